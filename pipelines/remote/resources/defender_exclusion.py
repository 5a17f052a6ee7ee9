"""A directory that Microsoft Defender does not scan: ``{path}``.

Written as the policy "Path Exclusions", for the ordinary key belongs to Defender alone.
https://learn.microsoft.com/windows/client-management/mdm/policy-csp-admx-microsoftdefenderantivirus
"""

from __future__ import annotations

from typing import Any

from . import registry

_POLICY = r"HKLM\SOFTWARE\Policies\Microsoft\Windows Defender\Exclusions"


def check(spec: dict[str, Any]) -> dict[str, Any]:
    """Whether the policy is on and names the path."""
    on = registry.read(_POLICY, "Exclusions_Paths") == 1
    listed = registry.read(rf"{_POLICY}\Paths", spec["path"]) is not None
    return {"ok": on and listed, "found": "excluded" if on and listed else "scanned"}


def plan(spec: dict[str, Any]) -> str:
    """The policy."""
    return f"add {spec['path']} to the policy Path Exclusions"


def apply(spec: dict[str, Any]) -> None:
    """Name the path, then switch the policy on."""
    registry.write(rf"{_POLICY}\Paths", spec["path"], "0")
    registry.write(_POLICY, "Exclusions_Paths", 1)
