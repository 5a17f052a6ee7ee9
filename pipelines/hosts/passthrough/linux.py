"""GPUs, IOMMU and KVM of a Linux machine, from ``/sys``, ``/proc`` and ``/dev``.

Only files are read. They are described in https://docs.kernel.org/driver-api/vfio.html.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pipelines.core.hosttext import safe_line
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
    """PCI class, four digits."""
    driver: str = ""
    """The driver it is bound to; empty: none."""
    group: int | None = None
    """Its IOMMU group."""
    bar: int = 0
    """Size in bytes of its largest memory window."""

    @property
    def slot(self) -> str:
        """Its address without the function."""
        return self.address.rpartition(".")[0]

    @property
    def ids(self) -> str:
        """In the format of the kernel's ``vfio-pci.ids``."""
        return f"{self.vendor}:{self.device}"

    @property
    def is_gpu(self) -> bool:
        """Whether it is an NVIDIA GPU."""
        return self.vendor == _NVIDIA and self.kind in _DISPLAY


class Machine(Model):
    """A Linux machine, as relevant to a virtual machine with a GPU."""

    kvm: Node
    vfio: Node
    """``/dev/vfio/vfio``."""
    nodes: dict[int, Node]
    """``/dev/vfio/N``, by group number."""
    groups: int
    """IOMMU groups."""
    amd: bool
    """Of the processor."""
    iommu: bool
    """Whether the kernel command line enables the IOMMU."""
    functions: tuple[Function, ...]
    """NVIDIA GPUs and the devices in their slots and IOMMU groups, by address."""

    def card(self, slot: str) -> tuple[Function, ...]:
        """All functions of a card."""
        return tuple(function for function in self.functions if function.slot == slot)

    @property
    def slots(self) -> tuple[str, ...]:
        """The slots that have a GPU, in bus order."""
        return tuple(dict.fromkeys(function.slot for function in self.functions if function.is_gpu))


def inspect_linux_machine(root: Path = Path("/")) -> Machine:
    """The machine described by the files below ``root``; unreadable ones count as missing."""
    bus, groups = root / "sys/bus/pci/devices", root / "sys/kernel/iommu_groups"
    names = sorted(path.name for path in bus.glob("*"))
    functions = {name: _read_pci_function(bus / name) for name in names}
    slots = {function.slot for function in functions.values() if function.is_gpu}
    in_slots = (function.group for function in functions.values() if function.slot in slots)
    numbers = {group for group in in_slots if group is not None}
    there = tuple(
        function
        for function in functions.values()
        if function.slot in slots or function.group in numbers
    )
    return Machine(
        kvm=_device_node_state(root / "dev/kvm"),
        vfio=_device_node_state(root / "dev/vfio/vfio"),
        nodes={n: _device_node_state(root / f"dev/vfio/{n}") for n in sorted(numbers)},
        groups=sum(1 for _ in groups.glob("[0-9]*")),
        amd="AuthenticAMD" in _read_sysfs_text(root / "proc/cpuinfo", 4096),
        iommu=bool(
            re.search(r"\b(intel|amd)_iommu=on\b", _read_sysfs_text(root / "proc/cmdline", 4096))
        ),
        functions=there,
    )


def _read_sysfs_text(path: Path, limit: int = _SHOWN) -> str:
    try:
        with path.open("rb") as file:
            return safe_line(file.read(limit).decode("utf-8", "replace"), limit)
    except OSError:
        return ""


def _symlink_target_name(path: Path) -> str:
    """The name that a symbolic link points to; empty if there is none."""
    try:
        return path.readlink().name
    except OSError:
        return ""


def _device_node_state(path: Path) -> Node:
    if not path.exists():
        return "absent"
    return "there" if os.access(path, os.R_OK | os.W_OK) else "not writable"


def _read_pci_function(path: Path) -> Function:
    group = _symlink_target_name(path / "iommu_group")
    return Function(
        address=path.name,
        vendor=_read_sysfs_text(path / "vendor").removeprefix("0x"),
        device=_read_sysfs_text(path / "device").removeprefix("0x"),
        kind=_read_sysfs_text(path / "class").removeprefix("0x")[:4],
        driver=_symlink_target_name(path / "driver"),
        group=int(group) if group.isdecimal() else None,
        bar=max(_pci_bar_sizes(path / "resource"), default=0),
    )


def _pci_bar_sizes(path: Path) -> Iterator[int]:
    """The sizes of a function's windows: start, end and flags per line, in hexadecimal."""
    try:
        rows = [text.split() for text in path.read_text().splitlines()[:6]]
        for first, last, *_ in rows:
            if int(last, 16):
                yield int(last, 16) - int(first, 16) + 1
    except (OSError, ValueError):
        return
