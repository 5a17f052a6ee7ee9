"""Findings on KVM, the IOMMU and the cards of a Linux machine that a guest is to be given."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.core.finding import Finding, Level
from pipelines.core.units import GIB, gib
from pipelines.doctor.model import Facts, finding

AREA = "engine and passthrough"
_VFIO = "https://docs.kernel.org/driver-api/vfio.html"
_ROOT = "as root on the engine's machine"
_BRIDGES = "0604"
_LARGE = 32 * GIB  # a window of memory for which the guest's firmware must be told to make room
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
            yield finding(AREA, name, "unknown", machine.why, wanted.text("gpu") or "")
        return
    yield _iommu(machine)
    yield _vfio(machine)
    yield _locked_memory(facts)
    yield _lockdown(machine)
    chosen = facts.rows("chosen")
    if chosen is None:
        hint = facts.text("hints", "chosen", limit=400) or "correct 'gpu' of the host"
        level: Level = "error" if facts.at("chosen").failed else "unknown"
        yield finding(AREA, "GPU", level, facts.at("chosen").why, wanted.text("gpu") or "", hint)
        return
    for slot in chosen:
        yield from _card(machine, slot.text() or "")


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
        return finding(AREA, name, "error", "there is no /dev/kvm", wanted, hint)
    if state == "there":
        return finding(AREA, name, "ok", "/dev/kvm")
    if state is None:
        return finding(AREA, name, "unknown", facts.at("machine").why, wanted)
    if _as_root(facts):
        return finding(AREA, name, "ok", "/dev/kvm, for root as which the engine runs")
    found, hint = "/dev/kvm may not be written by you", "sudo usermod -aG kvm, then sign in again"
    return finding(AREA, name, "error", found, wanted, hint)


def _iommu(machine: Facts) -> Finding:
    name, wanted, groups = "IOMMU", "IOMMU groups", machine.number("groups")
    if groups is None:
        return finding(AREA, name, "unknown", machine.why, wanted)
    if groups:
        return finding(AREA, name, "ok", f"{groups:.0f} groups")
    amd = machine.flag("amd")
    if machine.flag("told") or amd:  # which needs no word on the command line
        found = "no groups, though the kernel would use one"
        hint = f"switch {'AMD-Vi (IOMMU)' if amd else 'VT-d'} on in the firmware"
        return finding(AREA, name, "error", found, wanted, hint, source=_VFIO)
    hint = "intel_iommu=on iommu=pt on the kernel's command line, VT-d in the firmware, restart"
    return finding(AREA, name, "error", "no groups", wanted, hint, source=_VFIO)


def _vfio(machine: Facts) -> Finding:
    if machine.text("vfio") == "absent":
        found, hint = "there is no /dev/vfio/vfio", _ROOT
        return finding(AREA, "VFIO", "error", found, "/dev/vfio/vfio", hint, "modprobe vfio-pci")
    level: Level = "ok" if machine.text("vfio") else "unknown"
    return finding(AREA, "VFIO", level, "/dev/vfio/vfio" if level == "ok" else machine.why)


def _locked_memory(facts: Facts) -> Finding:
    """The guest's whole memory is locked; an engine that is root raises the limit by itself."""
    name, wanted = "locked memory", "no limit: the guest's whole memory is locked"
    if _as_root(facts):
        return finding(AREA, name, "ok", "the engine sets no limit for the container")
    limit = facts.signed("machine", "memlock")
    if limit is None:
        return finding(AREA, name, "unknown", facts.at("machine", "memlock").why, wanted)
    if limit < 0:
        return finding(AREA, name, "ok", "no limit")
    hint = "'* - memlock unlimited' in /etc/security/limits.conf there, then sign in again"
    return finding(AREA, name, "error", f"at most {gib(limit, 3)}", wanted, hint)


def _lockdown(machine: Facts) -> Finding:
    name, state = "Secure Boot", machine.text("lockdown") or ""
    boot = machine.flag("secure_boot")
    told = {True: "on", False: "off", None: "the firmware does not say"}[boot]
    if not boot and (not state or "[none]" in state):
        return finding(AREA, name, "ok" if boot is False else "unknown", told)
    found = f"{told}, lockdown {state or 'not told'}"
    if machine.text("vfio") == "absent":
        hint = "load the distribution's own vfio-pci: modules that nobody signed do not load"
        return finding(AREA, name, "warning", found, "", hint)
    return finding(AREA, name, "ok", f"{found}; vfio-pci is loaded all the same")


def _card(machine: Facts, slot: str) -> Iterator[Finding]:
    """One card: its group, drivers, device file, console, reset, memory window, and who uses it."""
    rows = machine.rows("functions") or []
    own = [row for row in rows if (row.text("address") or "").rpartition(".")[0] == slot]
    title = f"GPU {slot}"
    groups = {row.number("group") for row in own}
    if None in groups or not groups:
        found, hint = "in no IOMMU group", "see IOMMU above"
        yield finding(AREA, f"{title} group", "error", found, "a group", hint, source=_VFIO)
        return
    yield _group(f"{title} group", rows, own)
    for row in own:
        yield _binding(title, row)
    for number in sorted(int(group) for group in groups if group is not None):
        yield _node(machine, f"{title} device file", number)
    yield _console(f"{title} console", own)
    yield _reset(f"{title} reset", own)
    yield _window(f"{title} memory", own)
    yield _in_use(f"{title} in use", machine, own)


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
        return finding(AREA, name, "ok", f"group {numbers}, the card alone")
    told = [f"{row.text('address')} ({row.text('driver') or 'no driver'})" for row in strangers]
    held = [row for row in strangers if row.text("driver") not in (None, "vfio-pci")]
    found = f"group {numbers} is shared with {', '.join(told[:_MOST])}"
    hint = (
        "put the card into a slot of its own group (the slot has no ACS), or give up the others in "
        "the group: bind them to vfio-pci as well. pcie_acs_override gives up their isolation"
    )
    level: Level = "error" if held else "warning"
    return finding(AREA, name, level, found, "the card alone", hint, source=_VFIO)


def _binding(title: str, row: Facts) -> Finding:
    address, driver = row.text("address") or "", row.text("driver")
    name, wanted = f"{title} driver .{address.rpartition('.')[2]}", "vfio-pci"
    if driver == wanted:
        return finding(AREA, name, "ok", driver)
    hint = f"vfio-pci.ids={row.text('vendor')}:{row.text('device')} on the kernel's command line"
    command = f"driverctl set-override {address} vfio-pci"
    found = f"bound to {driver}" if driver else "bound to no driver"
    return finding(AREA, name, "error", found, wanted, f"{hint}, or {_ROOT}", command, _VFIO)


def _node(machine: Facts, name: str, group: int) -> Finding:
    path, state = f"/dev/vfio/{group}", machine.text("nodes", str(group))
    if state == "absent":
        hint = "bind all functions of the card to vfio-pci"
        return finding(AREA, name, "error", f"there is no {path}", path, hint)
    level: Level = "ok" if state else "unknown"
    return finding(AREA, name, level, path if state else machine.why)


def _console(name: str, own: list[Facts]) -> Finding:
    if not any(row.flag("console") for row in own):
        return finding(AREA, name, "ok", "it draws no console")
    hint = (
        "let another card be the firmware's first, or no card: video=efifb:off on the kernel's "
        "command line; the machine's screen stays dark then"
    )
    found = "the firmware and the console draw on it"
    return finding(AREA, name, "warning", found, "another card for the console", hint)


def _reset(name: str, own: list[Facts]) -> Finding:
    ways = next((text for row in own if (text := row.text("reset"))), None)
    if ways:
        return finding(AREA, name, "ok", ways)
    hint = "restart that machine between two guests, or take another card"
    return finding(AREA, name, "warning", "the kernel cannot reset it", "a way to reset it", hint)


def _window(name: str, own: list[Facts]) -> Finding:
    largest = max((row.number("bar") or 0 for row in own), default=0)
    if not largest:
        return finding(AREA, name, "unknown", "its windows of memory are not told")
    found = f"a window of {gib(largest)}"
    if largest > _LARGE:
        found += ": the guest's firmware is told to make room (X-PciMmio64Mb)"
    return finding(AREA, name, "ok", found)


def _in_use(name: str, machine: Facts, own: list[Facts]) -> Finding:
    """Who has the card open: as VFIO's, or through NVIDIA's driver while it still has that."""
    files = [f"/dev/vfio/{row.number('group'):.0f}" for row in own]
    tree = machine.at("holders").tree
    if any(row.text("driver") == "nvidia" for row in own) and isinstance(tree, dict):
        files += [key for key in tree if isinstance(key, str) and key.startswith("/dev/nvidia")]
    who = [
        f"{one.text()} has {file}"
        for file in dict.fromkeys(files)
        for one in machine.rows("holders", file) or []
    ]
    if who:
        hint = "end them, unless it is this very host that runs: one card, one guest"
        return finding(AREA, name, "warning", "; ".join(who[:_MOST]), "no process", hint)
    if machine.flag("all_processes"):
        return finding(AREA, name, "ok", "by no process")
    return finding(AREA, name, "unknown", "by none of your processes; only root sees the others'")
