"""What a Linux machine shows of its GPUs, its IOMMU and KVM, in ``/sys``, ``/proc`` and ``/dev``.

Files are read, nothing else. https://docs.kernel.org/driver-api/vfio.html says what they mean.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pipelines.core.hosttext import line
from pipelines.core.model import Model

_NVIDIA = "10de"
_DISPLAY = ("0300", "0302")  # VGA and 3D controllers
_SHOWN = 80  # characters of one file

Node = Literal["there", "not writable", "absent"]


class Function(Model):
    """A function on the PCI bus."""

    address: str
    """Such as ``0000:01:00.0``."""
    vendor: str
    device: str
    kind: str
    """Its class, four digits."""
    driver: str = ""
    """The one it is bound to; empty: none."""
    group: int | None = None
    """Its IOMMU group."""
    console: bool = False
    """Whether the firmware, or the console, draws on it."""
    reset: str = ""
    """The ways in which the kernel can reset it."""
    bar: int = 0
    """Bytes of its largest window of memory."""

    @property
    def slot(self) -> str:
        """Its address without the function."""
        return self.address.rpartition(".")[0]

    @property
    def ids(self) -> str:
        """As the kernel's ``vfio-pci.ids`` has it."""
        return f"{self.vendor}:{self.device}"

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU of NVIDIA's."""
        return self.vendor == _NVIDIA and self.kind in _DISPLAY


class Machine(Model):
    """A Linux machine, as far as it matters to a virtual machine with a GPU."""

    kvm: Node
    vfio: Node
    """``/dev/vfio/vfio``."""
    nodes: dict[int, Node]
    """``/dev/vfio/N``, by the group's number."""
    groups: int
    """IOMMU groups."""
    amd: bool
    """Of the processor."""
    told: bool
    """Whether the kernel's command line switches the IOMMU on."""
    lockdown: str
    """The kernel's state; empty where it has none."""
    secure_boot: bool | None
    """``None``: the firmware does not say."""
    memlock: int | None
    """Bytes that a process of ours may lock; -1: any number, ``None``: not known."""
    functions: tuple[Function, ...]
    """GPUs of NVIDIA's, what is in their slots and what is in their groups, by address."""
    holders: dict[str, tuple[str, ...]]
    """Device file of a GPU -> the processes that have it open."""
    all_processes: bool
    """Whether every process was looked at; only root may."""

    def card(self, slot: str) -> tuple[Function, ...]:
        """All functions of a card."""
        return tuple(one for one in self.functions if one.slot == slot)

    @property
    def slots(self) -> tuple[str, ...]:
        """Those that have a GPU, in the order of the bus."""
        return tuple(dict.fromkeys(one.slot for one in self.functions if one.is_gpu))


def look(root: Path = Path("/")) -> Machine:
    """What the files below ``root`` say; what cannot be read is as if it were not there."""
    bus, groups = root / "sys/bus/pci/devices", root / "sys/kernel/iommu_groups"
    shown = _framebuffers(root)
    names = sorted(path.name for path in bus.glob("*"))
    every = {name: _function(bus / name, console=name in shown) for name in names}
    slots = {one.slot for one in every.values() if one.is_gpu}
    in_slots = (one.group for one in every.values() if one.slot in slots)
    numbers = {group for group in in_slots if group is not None}
    there = tuple(one for one in every.values() if one.slot in slots or one.group in numbers)
    found, whole = _holders(root)
    return Machine(
        kvm=_node(root / "dev/kvm"),
        vfio=_node(root / "dev/vfio/vfio"),
        nodes={n: _node(root / f"dev/vfio/{n}") for n in sorted(numbers)},
        groups=sum(1 for _ in groups.glob("[0-9]*")),
        amd="AuthenticAMD" in _text(root / "proc/cpuinfo", 4096),
        told=bool(re.search(r"\b(intel|amd)_iommu=on\b", _text(root / "proc/cmdline", 4096))),
        lockdown=_text(root / "sys/kernel/security/lockdown"),
        secure_boot=_secure_boot(root),
        memlock=_memlock(_text(root / "proc/self/limits", 4096)),
        functions=there,
        holders=found,
        all_processes=whole,
    )


def _text(path: Path, limit: int = _SHOWN) -> str:
    try:
        with path.open("rb") as file:
            return line(file.read(limit).decode("utf-8", "replace"), limit)
    except OSError:
        return ""


def _link(path: Path) -> str:
    """The name that a symbolic link leads to; empty where there is none."""
    try:
        return path.readlink().name
    except OSError:
        return ""


def _node(path: Path) -> Node:
    if not path.exists():
        return "absent"
    return "there" if os.access(path, os.R_OK | os.W_OK) else "not writable"


def _function(path: Path, *, console: bool) -> Function:
    group = _link(path / "iommu_group")
    return Function(
        address=path.name,
        vendor=_text(path / "vendor").removeprefix("0x"),
        device=_text(path / "device").removeprefix("0x"),
        kind=_text(path / "class").removeprefix("0x")[:4],
        driver=_link(path / "driver"),
        group=int(group) if group.isdecimal() else None,
        console=console or _text(path / "boot_vga") == "1",
        # Before Linux 5.15 there is no list of ways, only that there is one.
        reset=_text(path / "reset_method") or ("yes" if (path / "reset").exists() else ""),
        bar=max(_windows(path / "resource"), default=0),
    )


def _windows(path: Path) -> Iterator[int]:
    """The sizes of a function's windows: start, end and flags a line, in hexadecimal."""
    try:
        rows = [text.split() for text in path.read_text().splitlines()[:6]]
        for first, last, *_ in rows:
            if int(last, 16):
                yield int(last, 16) - int(first, 16) + 1
    except (OSError, ValueError):
        return


def _framebuffers(root: Path) -> set[str]:
    return {_link(path / "device") for path in (root / "sys/class/graphics").glob("fb*")} - {""}


def _secure_boot(root: Path) -> bool | None:
    """The firmware's variable: four bytes of attributes, then one of value."""
    for path in (root / "sys/firmware/efi/efivars").glob("SecureBoot-*"):
        try:
            return path.read_bytes()[4:5] == b"\x01"
        except OSError:
            break
    return None


def _memlock(limits: str) -> int | None:
    found = re.search(r"Max locked memory\s+(\S+)", limits)
    if found and found[1] == "unlimited":
        return -1
    return int(found[1]) if found and found[1].isdecimal() else None


def _holders(root: Path) -> tuple[dict[str, tuple[str, ...]], bool]:
    """Who has a GPU's device file open, and whether every process could be asked."""
    found: dict[str, list[str]] = {}
    whole = True
    for process in (root / "proc").glob("[0-9]*"):
        try:
            links = [_target(path) for path in (process / "fd").iterdir()]
        except PermissionError:
            whole = False
            continue
        except OSError:  # it has ended meanwhile
            continue
        for name in {one for one in links if re.fullmatch(r"/dev/(nvidia|vfio/)\S+", one)}:
            found.setdefault(name, []).append(f"{_text(process / 'comm')} ({process.name})")
    return {name: tuple(sorted(who)) for name, who in sorted(found.items())}, whole


def _target(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""
