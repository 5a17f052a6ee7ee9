"""A quota of the WinRM service; 0 means no limit.

There are two places, and the smaller value wins: the one for shells, which a policy overrides, and
the configuration of PowerShell's plugin, which WinRM keeps as XML in one registry value. The first
is read with PowerShell, because winrm.cmd is VBScript, which Windows is about to drop.
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
    """The desired state."""

    place: str
    """``shell`` or ``plugin``."""
    name: str
    at_least: int


def _access_shell_quota(name: str, value: int | None = None) -> str:
    """Read the quota of that name, or set it."""
    item = rf"-LiteralPath 'WSMan:\localhost\Shell\{name}'"
    change = f"(Get-Item {item}).Value" if value is None else f"Set-Item {item} {value} -Force"
    script = f"$ErrorActionPreference = 'Stop'; $WarningPreference = 'Ignore'; {change}"
    code, output = capture([*POWERSHELL, script], timeout=_TIMEOUT)
    printed = output.strip()[-500:]
    if code or (value is None and not printed):  # Wine's prints nothing and exits with 0
        raise RefusedError(
            f"PowerShell exited with {code} after {change}: {printed or 'no output'}",
            hint="The account must be an administrator, and no local policy may set a lower limit.",
        )
    return output


def _quotas() -> tuple[str, str]:
    """The plugin's complete configuration, and the element with its quotas; empty without one."""
    config = registry.read(_PLUGIN, "ConfigXML")
    element = _QUOTAS.search(config) if isinstance(config, str) else None
    return (str(config), element[0]) if element else ("", "")


def _current(spec: Spec) -> int | None:
    if spec["place"] == "plugin":
        match = re.search(rf'\b{spec["name"]}="(\d+)"', _quotas()[1])
    else:
        policy = registry.read(_POLICY, spec["name"])
        if isinstance(policy, int):
            return policy
        match = re.search(r"^(\d+)\s*$", _access_shell_quota(spec["name"]), re.MULTILINE)
    return int(match[1]) if match else None


def check(spec: Spec) -> Check:
    """Compare with the service's setting; the quota under its name.

    Enable-PSRemoting creates the plugin: Windows 10 or 11 may not have it.
    """
    if spec["place"] == "plugin" and registry.read(_PLUGIN, "ConfigXML") is None:
        return {"ok": True, "found": "no plugin", "values": {}}
    value = _current(spec)
    enough = value is not None and (value == 0 or value >= spec["at_least"])
    return registry.described(spec["name"], value, ok=enough)


def plan(spec: Spec) -> str:
    """The setting."""
    return f"set {spec['name']} of WinRM's {spec['place']} to {spec['at_least']}, then restart"


def apply(spec: Spec) -> Applied:
    """Set it; running processes of the service keep the old one."""
    name, value = spec["name"], spec["at_least"]
    if spec["place"] == "shell":
        _access_shell_quota(name, value)
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
