"""``gpu`` of a host, for every kind: which GPUs are requested, and how they are made available.

A machine with a driver (``winrm``, ``local``, a Windows container, the sandbox by a bridge)
provides GPUs by the driver's numbers; a virtual machine is given complete cards, by number on the
PCI bus or by address.
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


def _parse_gpu_id(value: object) -> int | str:
    """A number or an address; a short address with its domain."""
    if isinstance(value, str) and (parts := _ADDRESS.fullmatch(value.lower())):
        return f"{parts[1] or '0000'}:{parts[2]}"
    value = yaml_value(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value < _MOST:
            raise ValueError(f"GPU numbers range from 0 to {_MOST - 1}")
        return value
    if isinstance(value, str) and value.startswith("bridge"):
        raise ValueError("bridge is only valid for hosts of kind sandbox; " + _EXPECTED)
    raise ValueError(_EXPECTED)


def _parse_gpu_setting(raw: object) -> object:
    if raw is None:
        raise ValueError(_EXPECTED)
    if isinstance(value := yaml_value(raw), bool) or value == "all":
        return value
    if not isinstance(raw, list | tuple):
        return _parse_gpu_id(raw)
    several = tuple(_parse_gpu_id(each) for each in raw)
    if not several:
        raise ValueError("the list is empty: 'gpu: false' requests none")
    if len({type(each) for each in several}) > 1:
        raise ValueError("a list contains either numbers or PCI addresses, not both")
    if len(set(several)) < len(several):
        raise ValueError("a GPU is listed twice")
    return several


def _by_number(gpu: Gpu) -> Gpu:
    if requested_gpu_addresses(gpu):
        raise ValueError(
            "PCI addresses are for kind vm; here use the numbers that nvidia-smi shows"
        )
    return gpu


#: For a virtual machine: the GPUs of the engine's machine to pass through.
Gpu = Annotated[
    bool | Literal["all"] | Index | Address | tuple[Index, ...] | tuple[Address, ...],
    BeforeValidator(_parse_gpu_setting),
]
#: For a machine with a driver: the visible GPUs.
DriverGpu = Annotated[Gpu, AfterValidator(_by_number)]


def _read_bridge(value: object) -> object:
    if yaml_value(value) is False:
        return False
    if not isinstance(value, str) or not (parts := _BRIDGE.fullmatch(value)):
        raise ValueError(
            "the sandbox reaches GPUs only through a bridge to the Linux driver: expected bridge, "
            "bridge:0,1 with numbers from nvidia-smi, or false"
        )
    numbers = [_parse_gpu_id(int(number)) for number in parts[1].split(",")] if parts[1] else []
    if len(set(numbers)) < len(numbers):
        raise ValueError("a GPU is listed twice")
    return value


#: For the sandbox: whether to use a bridge to this machine's driver, and the visible GPUs.
BridgedGpu = Annotated[
    Literal[False] | Annotated[str, StringConstraints(pattern=_BRIDGE.pattern)],
    BeforeValidator(_read_bridge),
]


def bridged_numbers(gpu: str | bool) -> tuple[int, ...]:
    """The numbers of ``bridge:0,1``; empty: all."""
    numbers = str(gpu).partition(":")[2]
    return tuple(map(int, numbers.split(","))) if numbers else ()


def requested_gpu_indexes(gpu: Gpu | None) -> tuple[int, ...]:
    """The requested numbers; empty for any other request."""
    each = gpu if isinstance(gpu, tuple) else (gpu,)
    return tuple(index for index in each if isinstance(index, int) and not isinstance(index, bool))


def requested_gpu_addresses(gpu: Gpu | None) -> tuple[str, ...]:
    """The requested PCI addresses; empty for any other request."""
    each = gpu if isinstance(gpu, tuple) else (gpu,)
    return tuple(address for address in each if isinstance(address, str) and address != "all")


def is_wanted(gpu: Gpu | None) -> bool:
    """Whether any GPU is requested; the number 0 is one."""
    return gpu is not None and gpu is not False


def gpu_option_text(gpu: Gpu | None) -> str:
    """As written in ``pipeline.yaml``; empty if no GPU is requested."""
    if not is_wanted(gpu):
        return ""
    if isinstance(gpu, tuple):
        return f"gpu: [{', '.join(map(str, gpu))}]"
    return f"gpu: {'true' if gpu is True else gpu}"


def _gpu_way_by_index(way: str, gpu: Gpu | None) -> GpuWay:
    numbers = requested_gpu_indexes(gpu)
    return GpuWay(
        way=way, requested=gpu_option_text(gpu), count=len(numbers) or None, visible=numbers
    )


def host_gpu_way(gpu: Gpu | None) -> GpuWay:
    """For a machine that has the GPUs itself."""
    return _gpu_way_by_index("the host's own", gpu)


def by_bridge(gpu: str | bool) -> GpuWay:
    """For a sandbox whose DLL forwards the calls of Windows' driver to Linux'."""
    if not gpu:
        return GpuWay()
    numbers = bridged_numbers(gpu)
    return GpuWay(
        way="NVIDIA's Linux driver through a bridge",
        requested=f"gpu: {gpu}",
        count=len(numbers) or None,
        visible=numbers,
        bridged=True,
    )


def by_class(gpu: Gpu | None) -> GpuWay:
    """For a Windows container under process isolation, which is given the class of all GPUs."""
    if not is_wanted(gpu):
        return GpuWay()
    return _gpu_way_by_index("class device in a process-isolated container", gpu)


def by_vfio(gpu: Gpu | None, cards: int) -> GpuWay:
    """For a virtual machine with so many complete cards."""
    if not is_wanted(gpu):
        return GpuWay()
    return GpuWay(
        way="VFIO in a virtual machine", requested=gpu_option_text(gpu), count=cards or None
    )
