"""Findings on KVM, the IOMMU and the cards of a Linux machine that a guest is to be given."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.core.finding import Finding, Level
from pipelines.doctor.model import Facts, make_finding

AREA = "engine and passthrough"
_VFIO = "https://docs.kernel.org/driver-api/vfio.html"
_ROOT = "as root on the engine's machine"
_BRIDGES = "0604"
_MOST = 8  # names in one verdict


def judge(facts: Facts) -> Iterator[Finding]:
    """What was surveyed of the engine's machine; what was not looked at is not known."""
    wanted, machine = facts.at("wanted"), facts.at("machine")
    if wanted.flag("kvm"):
        yield _kvm(facts)
    if not wanted.text("gpu"):
        return
    if machine.tree is None:
        for name in ("IOMMU", "VFIO", "GPU"):
            yield make_finding(AREA, name, "unknown", machine.why, wanted.text("gpu") or "")
        return
    yield _iommu(machine)
    yield _vfio(machine)
    chosen = facts.rows("chosen")
    if chosen is None:
        hint = facts.text("hints", "chosen", limit=400) or "correct 'gpu' of the host"
        level: Level = "error" if facts.at("chosen").failed else "unknown"
        yield make_finding(
            AREA, "GPU", level, facts.at("chosen").why, wanted.text("gpu") or "", hint
        )
        return
    for slot in chosen:
        yield from _check_vfio_card(machine, slot.text() or "")


def _as_root(facts: Facts) -> bool:
    """Whether the engine may what its machine's root may."""
    return facts.flag("engine", "rootless") is False


def _kvm(facts: Facts) -> Finding:
    name, wanted = "KVM", "/dev/kvm, to be read and written"
    state = facts.text("machine", "kvm")
    if state == "absent":
        hint = (
            "switch virtualisation on in the firmware (VT-x, SVM); in a virtual machine, nested "
            "virtualisation of the one below; then: sudo modprobe kvm_intel or kvm_amd"
        )
        return make_finding(AREA, name, "error", "there is no /dev/kvm", wanted, hint)
    if state == "there":
        return make_finding(AREA, name, "ok", "/dev/kvm")
    if state is None:
        return make_finding(AREA, name, "unknown", facts.at("machine").why, wanted)
    if _as_root(facts):
        return make_finding(AREA, name, "ok", "/dev/kvm, for root as which the engine runs")
    found, hint = "/dev/kvm may not be written by you", "sudo usermod -aG kvm, then sign in again"
    return make_finding(AREA, name, "error", found, wanted, hint)


def _iommu(machine: Facts) -> Finding:
    name, wanted, groups = "IOMMU", "IOMMU groups", machine.number("groups")
    if groups is None:
        return make_finding(AREA, name, "unknown", machine.why, wanted)
    if groups:
        return make_finding(AREA, name, "ok", f"{groups:.0f} groups")
    amd = machine.flag("amd")
    if machine.flag("iommu") or amd:  # AMD's needs no word on the command line
        found = "no groups, though the kernel would use one"
        hint = f"switch {'AMD-Vi (IOMMU)' if amd else 'VT-d'} on in the firmware"
        return make_finding(AREA, name, "error", found, wanted, hint, source=_VFIO)
    hint = "intel_iommu=on iommu=pt on the kernel's command line, VT-d in the firmware, restart"
    return make_finding(AREA, name, "error", "no groups", wanted, hint, source=_VFIO)


def _vfio(machine: Facts) -> Finding:
    if machine.text("vfio") == "absent":
        found, hint = "there is no /dev/vfio/vfio", _ROOT
        return make_finding(
            AREA, "VFIO", "error", found, "/dev/vfio/vfio", hint, "modprobe vfio-pci"
        )
    level: Level = "ok" if machine.text("vfio") else "unknown"
    return make_finding(AREA, "VFIO", level, "/dev/vfio/vfio" if level == "ok" else machine.why)


def _check_vfio_card(machine: Facts, slot: str) -> Iterator[Finding]:
    """One card: its group, drivers and device files."""
    rows = machine.rows("functions") or []
    own = [row for row in rows if (row.text("address") or "").rpartition(".")[0] == slot]
    title = f"GPU {slot}"
    groups = {row.number("group") for row in own}
    if None in groups or not groups:
        found, hint = "in no IOMMU group", "see IOMMU above"
        yield make_finding(AREA, f"{title} group", "error", found, "a group", hint, source=_VFIO)
        return
    yield _group(f"{title} group", rows, own)
    for row in own:
        yield _binding(title, row)
    for number in sorted(int(group) for group in groups if group is not None):
        yield _check_vfio_node(machine, f"{title} device file", number)


def _group(name: str, rows: list[Facts], own: list[Facts]) -> Finding:
    """Strangers in the group go with the card, and are in use by no driver but VFIO's."""
    groups = {row.number("group") for row in own}
    mine = {row.text("address") for row in own}
    strangers = [
        row
        for row in rows
        if row.number("group") in groups
        and row.text("address") not in mine
        and row.text("kind") != _BRIDGES
    ]
    numbers = ", ".join(f"{number:.0f}" for number in sorted(n for n in groups if n is not None))
    if not strangers:
        return make_finding(AREA, name, "ok", f"group {numbers}, only the card")
    others = [f"{row.text('address')} ({row.text('driver') or 'no driver'})" for row in strangers]
    held = [row for row in strangers if row.text("driver") not in (None, "vfio-pci")]
    found = f"group {numbers} is shared with {', '.join(others[:_MOST])}"
    hint = (
        "put the card into a slot of its own group (the slot has no ACS), or give up the others in "
        "the group: bind them to vfio-pci as well. pcie_acs_override gives up their isolation"
    )
    level: Level = "error" if held else "warning"
    return make_finding(AREA, name, level, found, "only the card", hint, source=_VFIO)


def _binding(title: str, row: Facts) -> Finding:
    address, driver = row.text("address") or "", row.text("driver")
    name, wanted = f"{title} driver .{address.rpartition('.')[2]}", "vfio-pci"
    if driver == wanted:
        return make_finding(AREA, name, "ok", driver)
    hint = f"vfio-pci.ids={row.text('vendor')}:{row.text('device')} on the kernel's command line"
    command = f"driverctl set-override {address} vfio-pci"
    found = f"bound to {driver}" if driver else "bound to no driver"
    return make_finding(AREA, name, "error", found, wanted, f"{hint}, or {_ROOT}", command, _VFIO)


def _check_vfio_node(machine: Facts, name: str, group: int) -> Finding:
    path, state = f"/dev/vfio/{group}", machine.text("nodes", str(group))
    if state == "absent":
        hint = "bind all functions of the card to vfio-pci"
        return make_finding(AREA, name, "error", f"there is no {path}", path, hint)
    level: Level = "ok" if state else "unknown"
    return make_finding(AREA, name, level, path if state else machine.why)
