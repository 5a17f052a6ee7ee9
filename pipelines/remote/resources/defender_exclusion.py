"""A directory that Microsoft Defender does not scan.

Written as the policy "Path Exclusions", because only Defender may write the ordinary key; read from
both, and from everything that turns Defender off. An exclusion includes all subdirectories.
https://learn.microsoft.com/windows/client-management/mdm/policy-csp-admx-microsoftdefenderantivirus
"""

from __future__ import annotations

from collections.abc import Iterable

from . import Check, Kind, registry

_OWN = r"HKLM\SOFTWARE\Microsoft\Windows Defender"
_ABOVE = r"HKLM\SOFTWARE\Policies\Microsoft\Windows Defender"
_POLICY = rf"{_ABOVE}\Exclusions"
_DISABLED = 4  # a service's Start


class Spec(Kind):
    """The desired state."""

    path: str


def _defender_state() -> str:
    """``not installed`` (Defender is optional on servers), ``off`` or ``scans``."""
    start = registry.read(r"HKLM\SYSTEM\CurrentControlSet\Services\WinDefend", "Start")
    if start is None:
        return "not installed"
    off = [
        registry.read(_ABOVE, "DisableAntiSpyware"),
        registry.read(rf"{_ABOVE}\Real-Time Protection", "DisableRealtimeMonitoring"),
        registry.read(rf"{_OWN}\Real-Time Protection", "DisableRealtimeMonitoring"),
    ]
    return "off" if start == _DISABLED or 1 in off else "scans"


def _covers(listed: Iterable[str], path: str) -> bool:
    """Whether the path or a parent directory is among them."""
    folder = path.rstrip("\\").lower() + "\\"
    return any(folder.startswith(above.rstrip("\\").lower() + "\\") for above in listed)


def _excluded(path: str) -> bool:
    """Raises ``PermissionError`` if Defender's own list matters and cannot be read."""
    policy = registry.read(_POLICY, "Exclusions_Paths") == 1
    if policy and _covers(registry.names(rf"{_POLICY}\Paths"), path):
        return True
    if registry.read(_ABOVE, "DisableLocalAdminMerge") == 1:  # only the policy's list counts
        return False
    return _covers(registry.names(rf"{_OWN}\Exclusions\Paths"), path)


def check(spec: Spec) -> Check:
    """Whether it is excluded; values: ``Defender``, see above, and ``excluded``: yes or no."""
    values = {"Defender": _defender_state()}
    try:
        excluded = _excluded(spec["path"])
    except PermissionError as error:
        return {"ok": False, "found": f"PermissionError: {error}", "values": values}
    values["excluded"] = "yes" if excluded else "no"
    return {"ok": excluded, "found": "excluded" if excluded else "scanned", "values": values}


def plan(spec: Spec) -> str:
    """The policy."""
    return f"add {spec['path']} to the policy Path Exclusions"


def apply(spec: Spec) -> None:
    """Add the path, then enable the policy."""
    registry.write(rf"{_POLICY}\Paths", spec["path"], "0")
    registry.write(_POLICY, "Exclusions_Paths", 1)
