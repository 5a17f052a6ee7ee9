"""``gpu`` of a host: which GPUs were asked for, for every kind, and how they come in.

Kinds differ in what can be given. A machine that has a driver (``winrm``, ``local``, a Windows
container, the sandbox by a bridge) gives GPUs by the driver's numbers; a virtual machine is given
whole cards, by their numbers on the PCI bus or by address.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from pipelines.core.yamlfile import yaml_value
from pipelines.hosts.base import GpuWay

_MOST = 32  # GPUs of one machine
_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-1][0-9a-f]\.[0-7])")
_BRIDGE = re.compile(r"^bridge(?::(\d{1,2}(?:,\d{1,2})*))?$")
_EXPECTED = (
    "expected true, false, all, a GPU's number (0), a PCI address (0000:01:00.0), "
    "or a list of either"
)

Index = Annotated[int, Field(ge=0, lt=_MOST)]
Address = Annotated[
    str, StringConstraints(pattern=r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]$")
]


def _one(found: object) -> int | str:
    """A number or an address; a short address with its domain."""
    if isinstance(found, str) and (parts := _ADDRESS.fullmatch(found.lower())):
        return f"{parts[1] or '0000'}:{parts[2]}"
    found = yaml_value(found)
    if isinstance(found, int) and not isinstance(found, bool):
        if not 0 <= found < _MOST:
            raise ValueError(f"GPUs are counted from 0 to {_MOST - 1}")
        return found
    if isinstance(found, str) and found.startswith("bridge"):
        raise ValueError("a bridge is for hosts of kind sandbox; " + _EXPECTED)
    raise ValueError(_EXPECTED)


def _read(found: object) -> object:
    if found is None:
        raise ValueError(_EXPECTED)
    if isinstance(value := yaml_value(found), bool) or value == "all":
        return value
    if not isinstance(found, list | tuple):
        return _one(found)
    several = tuple(_one(each) for each in found)
    if not several:
        raise ValueError("the list is empty: 'gpu: false' asks for none")
    if len({type(each) for each in several}) > 1:
        raise ValueError("a list has numbers or PCI addresses, not both")
    if len(set(several)) < len(several):
        raise ValueError("a GPU stands in the list twice")
    return several


def _by_number(gpu: Gpu) -> Gpu:
    if addresses(gpu):
        raise ValueError(
            "PCI addresses are for kind vm; here GPUs have the numbers that nvidia-smi gives them"
        )
    return gpu


#: Of a virtual machine: which of the engine's machine's GPUs it is given.
Gpu = Annotated[
    bool | Literal["all"] | Index | Address | tuple[Index, ...] | tuple[Address, ...],
    BeforeValidator(_read),
]
#: Of a machine with a driver: which of its GPUs what runs there may see.
DriverGpu = Annotated[Gpu, AfterValidator(_by_number)]


def _read_bridge(found: object) -> object:
    if yaml_value(found) is False:
        return False
    if not isinstance(found, str) or not (parts := _BRIDGE.fullmatch(found)):
        raise ValueError(
            "the sandbox has a GPU through a bridge to Linux' driver only: expected bridge, "
            "bridge:0,1 with nvidia-smi's numbers, or false"
        )
    numbers = [_one(int(number)) for number in parts[1].split(",")] if parts[1] else []
    if len(set(numbers)) < len(numbers):
        raise ValueError("a GPU stands in the list twice")
    return found


#: Of the sandbox: whether it has a bridge to this machine's driver, and which GPUs may be seen.
BridgedGpu = Annotated[
    Literal[False] | Annotated[str, StringConstraints(pattern=_BRIDGE.pattern)],
    BeforeValidator(_read_bridge),
]


def bridged_numbers(gpu: str | bool) -> tuple[int, ...]:
    """The numbers of ``bridge:0,1``; empty: all that there are."""
    numbers = str(gpu).partition(":")[2]
    return tuple(map(int, numbers.split(","))) if numbers else ()


def indexes(gpu: Gpu | None) -> tuple[int, ...]:
    """The numbers that were asked for; empty where it was something else."""
    each = gpu if isinstance(gpu, tuple) else (gpu,)
    return tuple(one for one in each if isinstance(one, int) and not isinstance(one, bool))


def addresses(gpu: Gpu | None) -> tuple[str, ...]:
    """The PCI addresses that were asked for; empty where it was something else."""
    each = gpu if isinstance(gpu, tuple) else (gpu,)
    return tuple(one for one in each if isinstance(one, str) and one != "all")


def is_wanted(gpu: Gpu | None) -> bool:
    """Whether any GPU was asked for; the number 0 is one."""
    return gpu is not None and gpu is not False


def written(gpu: Gpu | None) -> str:
    """As it stands in ``pipeline.yaml``; empty where no GPU was asked for."""
    if not is_wanted(gpu):
        return ""
    if isinstance(gpu, tuple):
        return f"gpu: [{', '.join(map(str, gpu))}]"
    return f"gpu: {'true' if gpu is True else gpu}"


def _numbered(way: str, gpu: Gpu | None) -> GpuWay:
    numbers = indexes(gpu)
    return GpuWay(way=way, asked=written(gpu), count=len(numbers) or None, visible=numbers)


def own(gpu: Gpu | None) -> GpuWay:
    """Of a machine that has the GPUs itself."""
    return _numbered("the host's own", gpu)


def by_bridge(gpu: str | bool) -> GpuWay:
    """Of a sandbox whose DLL hands the calls of Windows' driver to that of Linux."""
    if not gpu:
        return GpuWay()
    numbers = bridged_numbers(gpu)
    return GpuWay(
        way="NVIDIA's Linux driver through a bridge",
        asked=f"gpu: {gpu}",
        count=len(numbers) or None,
        visible=numbers,
        bridged=True,
    )


def by_class(gpu: Gpu | None) -> GpuWay:
    """Of a Windows container under process isolation, which is given the class of all GPUs."""
    if not is_wanted(gpu):
        return GpuWay()
    return _numbered("class device in a process-isolated container", gpu)


def by_vfio(gpu: Gpu | None, cards: int) -> GpuWay:
    """Of a virtual machine that is given so many whole cards."""
    if not is_wanted(gpu):
        return GpuWay()
    return GpuWay(way="VFIO in a virtual machine", asked=written(gpu), count=cards or None)
