"""Which cards of a Linux machine a virtual machine is given, and what its container needs for that.

A card goes in whole: the kernel hands out IOMMU groups, and a card's functions share one.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.core.errors import ConfigError
from pipelines.hosts.gpus import Gpu, addresses, indexes, is_wanted, written
from pipelines.hosts.passthrough.linux import Machine

#: What the firmware of QEMU's guests has room for, bytes.
LARGE = 32 << 30


@dataclass(frozen=True)
class Passed:
    """What a container in which QEMU runs needs for its guest to have the cards."""

    devices: tuple[str, ...]
    """Device files."""
    arguments: tuple[str, ...]
    """Words for QEMU."""
    memlock: int = -1
    """The ``ulimit``: the guest's whole memory is locked for the card to reach it; -1: no limit."""


def choose(machine: Machine, gpu: Gpu) -> tuple[str, ...]:
    """The slots of the cards that ``gpu`` asks for; a number is that of a GPU on the bus, from 0.

    Raises :class:`ConfigError` for a GPU that is not there, and where several are and ``true`` does
    not say which.
    """
    slots = machine.slots
    if not is_wanted(gpu):
        return ()
    have = ", ".join(f"{number} is {slot}.0" for number, slot in enumerate(slots)) or "none"
    hint = f"NVIDIA GPUs of that machine: {have}."
    if gpu is True and len(slots) > 1:
        raise ConfigError(f"gpu: true, and that machine has {len(slots)} GPUs", hint=hint)
    if by_address := addresses(gpu):
        wanted = tuple(dict.fromkeys(one.rpartition(".")[0] for one in by_address))
    elif numbers := indexes(gpu):
        wanted = tuple(slots[n] if n < len(slots) else "" for n in numbers)
    else:
        wanted = slots
    if not wanted or not set(wanted) <= set(slots):
        raise ConfigError(f"{written(gpu)}: that machine has no such GPU", hint=hint)
    return wanted


def passed(machine: Machine, slots: tuple[str, ...]) -> Passed:
    """What it takes to give a guest these cards; :class:`ConfigError` for one without a group."""
    functions = [one for slot in slots for one in machine.card(slot)]
    if not functions:
        return Passed((), ())
    words: list[str] = []
    for one in functions:
        if one.group is None:
            raise ConfigError(
                f"{one.address} is in no IOMMU group: no guest can be given it",
                hint="invoke doctor --host says what is missing.",
            )
        words += ["-device", f"vfio-pci,host={one.address}"]
    if (total := sum(one.bar for one in functions)) > LARGE:
        # https://github.com/tianocore/edk2/blob/master/OvmfPkg/Library/PlatformInitLib/MemDetect.c
        room = 1 << (2 * total >> 20).bit_length()
        words += ["-fw_cfg", f"name=opt/ovmf/X-PciMmio64Mb,string={room}"]
    groups = sorted({one.group for one in functions if one.group is not None})
    return Passed(("/dev/vfio/vfio", *(f"/dev/vfio/{n}" for n in groups)), tuple(words))
