"""The cards of a Linux machine passed to a virtual machine, and what its container needs for that.

A card is passed as a whole: the kernel assigns IOMMU groups, and a card's functions share one.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.core.errors import ConfigError
from pipelines.hosts.gpus import (
    Gpu,
    gpu_option_text,
    is_wanted,
    requested_gpu_addresses,
    requested_gpu_indexes,
)
from pipelines.hosts.passthrough.linux import Machine

#: Limit of the firmware of QEMU's guests, in bytes.
LARGE = 32 << 30


@dataclass(frozen=True)
class Passthrough:
    """What QEMU's container needs to pass the cards to its guest."""

    devices: tuple[str, ...]
    """Device files."""
    arguments: tuple[str, ...]
    """QEMU arguments."""
    memlock: int = -1
    """The ``ulimit``: all guest memory is locked for the card to reach it; -1: no limit."""


def select_gpu_slots(machine: Machine, gpu: Gpu) -> tuple[str, ...]:
    """The slots of the cards that ``gpu`` requests; numbers count GPUs on the bus, from 0.

    Raises :class:`ConfigError` for a GPU that does not exist, and for ``true`` if there are
    several.
    """
    slots = machine.slots
    if not is_wanted(gpu):
        return ()
    have = ", ".join(f"{number} is {slot}.0" for number, slot in enumerate(slots)) or "none"
    hint = f"NVIDIA GPUs of that machine: {have}."
    if gpu is True and len(slots) > 1:
        raise ConfigError(f"gpu: true, but that machine has {len(slots)} GPUs", hint=hint)
    if by_address := requested_gpu_addresses(gpu):
        slots_ = tuple(dict.fromkeys(address.rpartition(".")[0] for address in by_address))
    elif numbers := requested_gpu_indexes(gpu):
        slots_ = tuple(slots[n] if n < len(slots) else "" for n in numbers)
    else:
        slots_ = slots
    if not slots_ or not set(slots_) <= set(slots):
        raise ConfigError(f"{gpu_option_text(gpu)}: that machine has no such GPU", hint=hint)
    return slots_


def plan_passthrough(machine: Machine, slots: tuple[str, ...]) -> Passthrough:
    """What passing these cards takes; :class:`ConfigError` for one without a group."""
    functions = [function for slot in slots for function in machine.card(slot)]
    if not functions:
        return Passthrough((), ())
    words: list[str] = []
    for function in functions:
        if function.group is None:
            raise ConfigError(
                f"{function.address} is in no IOMMU group, so it cannot be passed to a guest",
                hint="invoke doctor --host shows what is missing.",
            )
        words += ["-device", f"vfio-pci,host={function.address}"]
    if (total := sum(function.bar for function in functions)) > LARGE:
        # https://github.com/tianocore/edk2/blob/master/OvmfPkg/Library/PlatformInitLib/MemDetect.c
        room = 1 << (2 * total >> 20).bit_length()
        words += ["-fw_cfg", f"name=opt/ovmf/X-PciMmio64Mb,string={room}"]
    groups = sorted({function.group for function in functions if function.group is not None})
    return Passthrough(("/dev/vfio/vfio", *(f"/dev/vfio/{n}" for n in groups)), tuple(words))
