"""Made-up machines: the files of ``/sys``, ``/proc`` and ``/dev`` that the kernel would show."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

GPU, AUDIO, DISK, BRIDGE = "030000", "040300", "010802", "060400"
GIB = 1 << 30


@dataclass
class Device:
    """A function on the bus."""

    address: str
    kind: str = GPU
    group: int | None = 14
    driver: str = "vfio-pci"
    vendor: str = "10de"
    bar: int = 16 * GIB


@dataclass
class Tree:
    """A machine that can pass its GPU through; a test takes away what it is about."""

    devices: list[Device] = field(
        default_factory=lambda: [Device("0000:01:00.0"), Device("0000:01:00.1", AUDIO)]
    )
    nodes: tuple[str, ...] = ("kvm", "vfio/vfio", "vfio/14")
    cmdline: str = "quiet intel_iommu=on iommu=pt"
    cpu: str = "GenuineIntel"

    def write(self, root: Path) -> Path:
        bus, groups = root / "sys/bus/pci/devices", root / "sys/kernel/iommu_groups"
        bus.mkdir(parents=True)
        groups.mkdir(parents=True)
        for one in self.devices:
            self._device(root / "sys/devices/pci0000:00" / one.address, one)
            (bus / one.address).symlink_to(f"../../../devices/pci0000:00/{one.address}")
            if one.group is not None:
                (groups / str(one.group)).mkdir(exist_ok=True)
        for name in self.nodes:
            (root / "dev" / name).parent.mkdir(parents=True, exist_ok=True)
            (root / "dev" / name).touch()
        for name, text in {
            "proc/cmdline": self.cmdline,
            "proc/cpuinfo": f"vendor_id\t: {self.cpu}\n",
        }.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return root

    def _device(self, place: Path, one: Device) -> None:
        place.mkdir(parents=True)
        values = {"vendor": f"0x{one.vendor}", "device": "0x2684", "class": f"0x{one.kind}"}
        rows = [f"0x{0xE0000000:016x} 0x{0xE0FFFFFF:016x} 0x0000000000040200"]
        rows += [f"0x{64 * GIB:016x} 0x{64 * GIB + one.bar - 1:016x} 0x000000000014220c"]
        values["resource"] = "\n".join([*rows, "0x0 0x0 0x0"])
        for name, text in values.items():
            (place / name).write_text(f"{text}\n")
        for name, target in (
            ("driver", f"../../../bus/pci/drivers/{one.driver}" if one.driver else ""),
            (
                "iommu_group",
                "" if one.group is None else f"../../../kernel/iommu_groups/{one.group}",
            ),
        ):
            if target:
                (place / name).symlink_to(target)
