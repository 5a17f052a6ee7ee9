"""The driver's structures that the cases use, by the names that cuda.h gives them (CUDA 13.0)."""

from __future__ import annotations

import ctypes as c
from typing import Any, ClassVar

from driver import F32, I32, U32, U64, P

SIZE = c.c_size_t
Fields = list[tuple[str, Any]]


class Location(c.Structure):
    """CUmemLocation; type 1 is a GPU, 2 the host."""

    _fields_: ClassVar[Fields] = [("type", I32), ("id", I32)]


class LaunchAttribute(c.Structure):
    """CUlaunchAttribute; ``value`` is a union of 64 bytes."""

    _fields_: ClassVar[Fields] = [("id", I32), ("pad", I32), ("value", U32 * 16)]


class LaunchConfig(c.Structure):
    """CUlaunchConfig."""

    _fields_: ClassVar[Fields] = [
        ("grid", U32 * 3),
        ("block", U32 * 3),
        ("shared", U32),
        ("stream", P),
        ("attributes", c.POINTER(LaunchAttribute)),
        ("count", U32),
    ]


class KernelNode(c.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_: ClassVar[Fields] = [
        ("function", P),
        ("grid", U32 * 3),
        ("block", U32 * 3),
        ("shared", U32),
        ("parameters", P),
        ("extra", P),
        ("kernel", P),
        ("context", P),
    ]


class HostNode(c.Structure):
    """CUDA_HOST_NODE_PARAMS."""

    _fields_: ClassVar[Fields] = [("function", P), ("data", P)]


class MemsetNode(c.Structure):
    """CUDA_MEMSET_NODE_PARAMS."""

    _fields_: ClassVar[Fields] = [
        ("address", U64),
        ("pitch", SIZE),
        ("value", U32),
        ("element", U32),
        ("width", SIZE),
        ("height", SIZE),
    ]


class Copy2D(c.Structure):
    """CUDA_MEMCPY2D; memory types: 1 host, 2 GPU, 3 array."""

    _fields_: ClassVar[Fields] = [
        (f"{side}_{name}", kind)
        for side in ("source", "target")
        for name, kind in (
            *(("x", SIZE), ("y", SIZE), ("type", I32)),
            *(("host", P), ("address", U64), ("array", P), ("pitch", SIZE)),
        )
    ] + [("width", SIZE), ("height", SIZE)]


class Copy3D(c.Structure):
    """CUDA_MEMCPY3D."""

    _fields_: ClassVar[Fields] = [
        (f"{side}_{name}", kind)
        for side in ("source", "target")
        for name, kind in (
            *(("x", SIZE), ("y", SIZE), ("z", SIZE), ("level", SIZE), ("type", I32), ("host", P)),
            *(("address", U64), ("array", P), ("reserved", P), ("pitch", SIZE), ("rows", SIZE)),
        )
    ] + [("width", SIZE), ("height", SIZE), ("depth", SIZE)]


class Conditional(c.Structure):
    """CUgraphNodeParams of a conditional node (type 13)."""

    _fields_: ClassVar[Fields] = [
        ("type", I32),
        ("reserved", I32 * 3),
        ("handle", U64),
        ("kind", I32),
        ("size", U32),
        ("graphs", c.POINTER(P)),
        ("context", P),
        ("rest", U64 * 26),
    ]


class HostNodeParams(c.Structure):
    """CUgraphNodeParams of a host node (type 3)."""

    _fields_: ClassVar[Fields] = [
        ("type", I32),
        ("reserved", I32 * 3),
        ("host", HostNode),
        ("rest", U64 * 28),
    ]


class UpdateResult(c.Structure):
    """CUgraphExecUpdateResultInfo."""

    _fields_: ClassVar[Fields] = [("result", I32), ("node", P), ("other", P)]


class PoolProperties(c.Structure):
    """CUmemPoolProps."""

    _fields_: ClassVar[Fields] = [
        ("type", I32),
        ("handles", I32),
        ("location", Location),
        ("security", P),
        ("maximum", SIZE),
        ("usage", c.c_ushort),
        ("reserved", c.c_ubyte * 54),
    ]


class AllocationProperties(c.Structure):
    """CUmemAllocationProp."""

    _fields_: ClassVar[Fields] = [
        ("type", I32),
        ("handles", I32),
        ("location", Location),
        ("metadata", P),
        ("flags", c.c_ubyte * 8),
    ]


class Access(c.Structure):
    """CUmemAccessDesc; 3 is reading and writing."""

    _fields_: ClassVar[Fields] = [("location", Location), ("flags", I32)]


class ArrayShape(c.Structure):
    """CUDA_ARRAY3D_DESCRIPTOR; formats: 0x03 unsigned of 32 bits, 0x20 float."""

    _fields_: ClassVar[Fields] = [
        ("width", SIZE),
        ("height", SIZE),
        ("depth", SIZE),
        ("format", I32),
        ("channels", U32),
        ("flags", U32),
    ]


class Resource(c.Structure):
    """CUDA_RESOURCE_DESC of an array (type 0): a union of 128 bytes begins with it."""

    _fields_: ClassVar[Fields] = [
        ("type", I32),
        ("array", P),
        ("rest", U64 * 15),
        ("flags", U32),
    ]


class Texture(c.Structure):
    """CUDA_TEXTURE_DESC."""

    _fields_: ClassVar[Fields] = [
        ("address", I32 * 3),
        ("filter", I32),
        ("flags", U32),
        ("anisotropy", U32),
        ("mipmap_filter", I32),
        ("bias", F32),
        ("clamp", F32 * 2),
        ("border", F32 * 4),
        ("reserved", I32 * 12),
    ]


class IpcHandle(c.Structure):
    """CUipcMemHandle and CUipcEventHandle: passed by value."""

    _fields_: ClassVar[Fields] = [("bytes", c.c_ubyte * 64)]


class TensorMap(c.Structure):
    """CUtensorMap; its address is a multiple of 64."""

    _fields_: ClassVar[Fields] = [("words", U64 * 16)]
