"""A quota of the WinRM service; 0 there means no limit.

There are two places, and the smaller value wins: that for shells, where a policy goes before it,
and the configuration of PowerShell's plugin, which WinRM keeps as XML in one registry value. The
first is asked of PowerShell, for winrm.cmd is VBScript, which Windows is about to lose.
https://learn.microsoft.com/windows/win32/winrm/quotas
https://learn.microsoft.com/windows/whats-new/deprecated-features-resources#vbscript
"""

from __future__ import annotations

import re

from ..process import POWERSHELL, capture
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


def _shell(name: str, value: int | None = None) -> str:
    """Read the quota of that name, or set it."""
    item = rf"-LiteralPath 'WSMan:\localhost\Shell\{name}'"
    change = f"(Get-Item {item}).Value" if value is None else f"Set-Item {item} {value} -Force"
    script = f"$ErrorActionPreference = 'Stop'; $WarningPreference = 'Ignore'; {change}"
    code, output = capture([*POWERSHELL, script], timeout=_TIMEOUT)
    said = output.strip()[-500:]
    if code or (value is None and not said):  # Wine's says nothing, and ends with 0
        raise RefusedError(
            f"PowerShell left with {code} after {change}: {said or 'it said nothing'}",
            hint="Is the account an administrator's, and a local policy not above the setting?",
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
        told = re.search(r"^(\d+)\s*$", _shell(spec["name"]), re.MULTILINE)
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
        _shell(name, value)
        return {"reboot": "WinRM's quotas were changed"}
    config, old = _quotas()
    if not old:
        raise RefusedError(
            "the configuration of PowerShell's WinRM plugin has no quotas",
            hint="On the host: Enable-PSRemoting -Force",
        )
    new, replaced = re.subn(rf'\b{name}="\d*"', f'{name}="{value}"', old)
    if not replaced:
        new = old.replace("<Quotas", f'<Quotas {name}="{value}"', 1)
    registry.write(_PLUGIN, "ConfigXML", config.replace(old, new, 1))
    return {"reboot": "WinRM's quotas were changed"}
