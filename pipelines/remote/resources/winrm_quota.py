"""A quota of the WinRM service: ``{place, name, at_least}``; 0 there means no limit.

There are two places, and the smaller value wins: what winrm.cmd calls winrs, for shells, and the
configuration of PowerShell's plugin, which WinRM keeps as XML in one registry value.
https://learn.microsoft.com/windows/win32/winrm/quotas
"""

from __future__ import annotations

import os
import pathlib
import re
from typing import Any

from ..process import capture
from . import RefusedError, registry

_PLUGIN = r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\WSMAN\Plugin\Microsoft.PowerShell"
_QUOTAS = re.compile(r"<Quotas\b[^>]*?/?>")
_TIMEOUT = 60.0


def _winrm(arguments: str) -> str:
    """Run winrm.cmd. A script of one line, since no quoting survives cmd and cscript both."""
    script = pathlib.Path(os.environ.get("TEMP", ".")) / f"winrm-{os.getpid()}.cmd"
    script.write_text(f"@call winrm {arguments}\r\n", "ascii")
    try:
        code, output = capture(["cmd.exe", "/d", "/c", str(script)], timeout=_TIMEOUT)
    finally:
        script.unlink(missing_ok=True)
    if code:
        raise RefusedError(
            f"winrm {arguments} left with {code}: {output.strip()[-500:]}",
            advice="Is the account an administrator's, and a local policy not above the setting?",
        )
    return output


def _found(spec: dict[str, Any]) -> int | None:
    if spec["place"] == "shell":
        told = re.search(rf"\b{spec['name']}\s*=\s*(\d+)", _winrm("get winrm/config/winrs"))
    else:
        config = registry.read(_PLUGIN, "ConfigXML") or ""
        element = _QUOTAS.search(config)
        told = element and re.search(rf'\b{spec["name"]}="(\d+)"', element[0])
    return int(told[1]) if told else None


def check(spec: dict[str, Any]) -> dict[str, Any]:
    """Compare with the service's configuration."""
    found = _found(spec)
    enough = found is not None and (found == 0 or found >= spec["at_least"])
    return {"ok": enough, "found": "not set" if found is None else str(found)}


def plan(spec: dict[str, Any]) -> str:
    """The setting."""
    return f"set {spec['name']} of WinRM's {spec['place']} to {spec['at_least']}, then restart"


def apply(spec: dict[str, Any]) -> dict[str, Any]:
    """Set it; processes of the service that run keep the old one."""
    name, value = spec["name"], spec["at_least"]
    if spec["place"] == "shell":
        _winrm(f'set winrm/config/winrs @{{{name}="{value}"}}')
        return {"reboot": "WinRM's quotas were changed"}
    config = registry.read(_PLUGIN, "ConfigXML")
    element = _QUOTAS.search(config or "")
    if config is None or element is None:
        raise RefusedError(
            "the configuration of PowerShell's WinRM plugin has no quotas",
            advice="On the host: Enable-PSRemoting -Force",
        )
    old = element[0]
    new, replaced = re.subn(rf'\b{name}="\d*"', f'{name}="{value}"', old)
    if not replaced:
        new = old.replace("<Quotas", f'<Quotas {name}="{value}"', 1)
    registry.write(_PLUGIN, "ConfigXML", config.replace(old, new, 1))
    return {"reboot": "WinRM's quotas were changed"}
