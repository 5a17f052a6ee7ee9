"""A quota of the WinRM service; 0 there means no limit.

There are two places, and the smaller value wins: what winrm.cmd calls winrs, for shells, where a
policy goes before it, and the configuration of PowerShell's plugin, which WinRM keeps as XML in one
registry value.
https://learn.microsoft.com/windows/win32/winrm/quotas
"""

from __future__ import annotations

import re

from .. import protected_dirs
from ..process import capture
from . import Applied, Check, Kind, RefusedError, registry

_PLUGIN = r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\WSMAN\Plugin\Microsoft.PowerShell"
_POLICY = r"HKLM\SOFTWARE\Policies\Microsoft\Windows\WinRM\Service\WinRS"
_QUOTAS = re.compile(r"<Quotas\b[^>]*?/?>")
_TIMEOUT = 60.0


class Spec(Kind):
    """What is wanted."""

    place: str
    """``shell`` or ``plugin``."""
    name: str
    at_least: int


def _winrm(arguments: str) -> str:
    """Run winrm.cmd. A script of one line, since no quoting survives cmd and cscript both."""
    with protected_dirs.private() as folder:
        script = folder / "winrm.cmd"
        script.write_text(f"@call winrm {arguments}\r\n", "ascii")
        code, output = capture(["cmd.exe", "/d", "/c", str(script)], timeout=_TIMEOUT)
    if code:
        raise RefusedError(
            f"winrm {arguments} left with {code}: {output.strip()[-500:]}",
            advice="Is the account an administrator's, and a local policy not above the setting?",
        )
    return output


def _quotas() -> tuple[str, str]:
    """The plugin's whole configuration, and the element with its quotas; empty without one."""
    config = registry.read(_PLUGIN, "ConfigXML")
    element = _QUOTAS.search(config) if isinstance(config, str) else None
    return (str(config), element[0]) if element else ("", "")


def _found(spec: Spec) -> int | None:
    if spec["place"] == "plugin":
        told = re.search(rf'\b{spec["name"]}="(\d+)"', _quotas()[1])
    else:
        policy = registry.read(_POLICY, spec["name"])
        if isinstance(policy, int):
            return policy
        told = re.search(rf"\b{spec['name']}\s*=\s*(\d+)", _winrm("get winrm/config/winrs"))
    return int(told[1]) if told else None


def check(spec: Spec) -> Check:
    """Compare with what holds for the service; the quota under its name.

    Enable-PSRemoting makes the plugin: a Windows 10 or 11 need not have it.
    """
    if spec["place"] == "plugin" and registry.read(_PLUGIN, "ConfigXML") is None:
        return {"ok": True, "found": "no plugin", "values": {}}
    found = _found(spec)
    enough = found is not None and (found == 0 or found >= spec["at_least"])
    return registry.told(spec["name"], found, ok=enough)


def plan(spec: Spec) -> str:
    """The setting."""
    return f"set {spec['name']} of WinRM's {spec['place']} to {spec['at_least']}, then restart"


def apply(spec: Spec) -> Applied:
    """Set it; processes of the service that run keep the old one."""
    name, value = spec["name"], spec["at_least"]
    if spec["place"] == "shell":
        _winrm(f'set winrm/config/winrs @{{{name}="{value}"}}')
        return {"reboot": "WinRM's quotas were changed"}
    config, old = _quotas()
    if not old:
        raise RefusedError(
            "the configuration of PowerShell's WinRM plugin has no quotas",
            advice="On the host: Enable-PSRemoting -Force",
        )
    new, replaced = re.subn(rf'\b{name}="\d*"', f'{name}="{value}"', old)
    if not replaced:
        new = old.replace("<Quotas", f'<Quotas {name}="{value}"', 1)
    registry.write(_PLUGIN, "ConfigXML", config.replace(old, new, 1))
    return {"reboot": "WinRM's quotas were changed"}
