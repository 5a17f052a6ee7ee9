"""Services of Windows that end or slow builds: WinRM's quotas and Microsoft Defender."""

from __future__ import annotations

import re
import sys
from typing import Any

from ..facts import gather
from ..process import capture
from ..rpc import idempotent
from . import registry

_WSMAN = r"SOFTWARE\Microsoft\Windows\CurrentVersion\WSMAN"
_WINRS_POLICY = r"SOFTWARE\Policies\Microsoft\Windows\WinRM\Service\WinRS"
_DEFENDER = r"SOFTWARE\Microsoft\Windows Defender"
_DEFENDER_POLICY = r"SOFTWARE\Policies\Microsoft\Windows Defender"

_QUOTAS = re.compile(r"<Quotas\b([^>]*)>")
_ATTRIBUTE = re.compile(r'\b(MaxMemoryPerShellMB|MaxProcessesPerShell)\s*=\s*"?(\d+)')
_PATIENCE = 30.0

Quotas = dict[str, int]


def _plugin() -> Quotas | None:
    """Quotas of PowerShell's plugin, which WinRM keeps as XML in one value."""
    config = registry.value(rf"{_WSMAN}\Plugin\Microsoft.PowerShell", "ConfigXML")
    if not isinstance(config, str):
        return None
    element = _QUOTAS.search(config)
    return {n: int(size) for n, size in _ATTRIBUTE.findall(element[1] if element else "")}


def _shell() -> Quotas:
    """Quotas of shells: a policy wins, else what WinRM says of itself."""
    policy = {
        name: registry.value(_WINRS_POLICY, name)
        for name in ("MaxMemoryPerShellMB", "MaxProcessesPerShell")
    }
    if all(isinstance(size, int) for size in policy.values()):
        return policy
    code, text = capture(["cmd.exe", "/d", "/c", "winrm get winrm/config/winrs"], timeout=_PATIENCE)
    if code:
        raise OSError(f"winrm get winrm/config/winrs left with {code}: {text.strip()[:150]}")
    told = {name: int(size) for name, size in _ATTRIBUTE.findall(text)}
    return {**told, **{n: size for n, size in policy.items() if isinstance(size, int)}}


def _defender() -> dict[str, Any] | None:
    """Whether Defender scans; ``None`` when it is not installed (it is optional on servers)."""
    start = registry.value(r"SYSTEM\CurrentControlSet\Services\WinDefend", "Start")
    if start is None:
        return None
    off = [
        registry.value(_DEFENDER_POLICY, "DisableAntiSpyware"),
        registry.value(rf"{_DEFENDER_POLICY}\Real-Time Protection", "DisableRealtimeMonitoring"),
        registry.value(rf"{_DEFENDER}\Real-Time Protection", "DisableRealtimeMonitoring"),
    ]
    disabled = 4
    return {"scans": start != disabled and 1 not in off}


def _exclusions() -> list[str]:
    """Directories that are not scanned; ``PermissionError`` for who is no administrator."""
    own = registry.names(rf"{_DEFENDER}\Exclusions\Paths") or []
    policy: list[str] = []
    if registry.value(rf"{_DEFENDER_POLICY}\Exclusions", "Exclusions_Paths") == 1:
        policy = registry.names(rf"{_DEFENDER_POLICY}\Exclusions\Paths") or []
    return sorted({*own, *policy})


@idempotent
def services() -> dict[str, Any]:
    """WinRM's quotas at both places (0: no limit), Defender and its exclusions."""
    if sys.platform != "win32":
        reason = "this is no Windows"
        names = ("winrm_plugin", "winrm_shell", "defender", "exclusions")
        return {**dict.fromkeys(names), "problems": dict.fromkeys(names, reason)}
    return gather(
        {
            "winrm_plugin": _plugin,
            "winrm_shell": _shell,
            "defender": _defender,
            "exclusions": _exclusions,
        }
    )
