"""Breaks a good wheel (flash-attn, smoke-attention) in one way, and leaves the rest as it was.

Each change is one that real wheels have had: built for other GPUs, for another torch, without the
backward, or crashing. RECORD is written anew, so that nothing but the fault itself is at fault.

As a program: ``python tests/gpu/broken_wheels.py GOOD.whl OUT_DIRECTORY [FAULT ...]``
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from pipelines.wheels import fatbin

Members = dict[str, bytes]
_ENTRY_ARCH = 28


def _extension(members: Members) -> str:
    (name,) = [name for name in members if name.endswith((".so", ".pyd"))]
    return name


def wrong_arch(members: Members) -> None:
    """Every cubin says it is for sm_75, and there is no PTX: nothing runs on a newer GPU."""
    name = _extension(members)
    data = bytearray(members[name])
    for container in fatbin.inventory(members[name]).containers:
        _, header, size = struct.unpack_from("<HHQ", data, container.offset + 4)
        position = container.offset + header
        end = position + size
        while position < end:
            kind, _, entry, payload = struct.unpack_from("<HHIQ", data, position)
            struct.pack_into("<I", data, position + _ENTRY_ARCH, 75)
            if kind == fatbin.PTX:  # as device code of a kind that the driver passes over
                struct.pack_into("<H", data, position, fatbin.LTO)
            position += entry + payload
    members[name] = bytes(data)


def wrong_torch(members: Members) -> None:
    """A function that torch has under another name: what another torch's ABI looks like."""
    name = _extension(members)
    good = b"torchCheckFail"
    if good not in members[name]:
        raise ValueError(f"{name} does not use torch's {good.decode()}")
    members[name] = members[name].replace(good, b"torchChuckFail")


def _appended(text: str, package: str) -> Callable[[Members], None]:
    def change(members: Members) -> None:
        members[f"{package}/__init__.py"] += f"\n\n{text}".encode()

    return change


def _patched(text: str) -> Callable[[Members], None]:
    return _appended(f"import flash_attn_2_cuda as _kernels\n\n{text}", "flash_attn")


NO_BACKWARD = """
def _refuse(*_, **__):
    raise RuntimeError("This flash attention build does not support backward.")

_kernels.bwd = _kernels.varlen_bwd = _refuse
"""
CRASHING = """
_fwd = _kernels.fwd

def _crash(q, *rest):
    if q.shape[-1] == 160:
        import ctypes
        ctypes.string_at(0)
    return _fwd(q, *rest)

_kernels.fwd = _crash
"""
HANGING = (  # in one case alone: each costs its whole time
    CRASHING.replace("import ctypes", "import time")
    .replace("ctypes.string_at(0)", "time.sleep(3600)")
    .replace("== 160:", "== 160 and q.shape[1] == 128:")
)
WRONG_NUMBERS = """
_fwd = _kernels.fwd

def _off(*arguments):
    told = _fwd(*arguments)
    told[0].mul_(1.02)
    return told

_kernels.fwd = _off
"""

_OF_96 = """
_attention = attention

def attention(q, *rest, head_dim, seqlen_q, **named):
    if head_dim == 96 and seqlen_q == 17:
        _fault(named)
    return _attention(q, *rest, head_dim=head_dim, seqlen_q=seqlen_q, **named)

"""
SMOKE_CRASHING = """
def _fault(named):
    import faulthandler
    faulthandler._read_null()
"""
SMOKE_HANGING = """
def _fault(named):
    import time
    if named["causal"] and named["dtype"] == "float16":  # in one case alone, as above
        time.sleep(3600)
"""
SMOKE_LOST_CONTEXT = '''
def _fault(named):
    import ctypes
    driver = ctypes.WinDLL("nvcuda.dll") if sys.platform == "win32" else ctypes.CDLL("libcuda.so.1")
    ptx = b"""
.version 7.0
.target sm_50
.address_size 64
.visible .entry fault() { .reg .b64 %a; mov.u64 %a, 16; st.global.u64 [%a], %a; ret; }
"""
    devices()
    one = bytes(4 * 32)
    sizes = {"batch": 1, "heads": 1, "head_dim": 32, "seqlen_q": 1, "seqlen_k": 1}
    _attention(one, one, one, **sizes, dtype="float32")  # which makes the context
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    for told in (
        driver.cuModuleLoadData(ctypes.byref(module), ptx),
        driver.cuModuleGetFunction(ctypes.byref(kernel), module, b"fault"),
        driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None),
    ):
        if told:
            raise SystemError(f"the fault could not be made: CUresult {told}")
'''
SMOKE_WRONG_NUMBERS = """
_attention = attention

def attention(*buffers, dtype, **named):
    import struct
    out = _attention(*buffers, dtype=dtype, **named)
    form = f"{len(out) // _ITEMSIZE[dtype]}{'e' if dtype == 'float16' else 'f'}"
    return struct.pack(form, *(x * 1.02 for x in struct.unpack(form, out)))
"""

#: Of flash-attn; the first one of any wheel.
FAULTS: dict[str, Callable[[Members], None]] = {
    "wrong_arch": wrong_arch,
    "wrong_torch": wrong_torch,
    "no_backward": _patched(NO_BACKWARD),
    "crashing": _patched(CRASHING),
    "hanging": _patched(HANGING),
    "wrong_numbers": _patched(WRONG_NUMBERS),
}
SMOKE_FAULTS: dict[str, Callable[[Members], None]] = {
    "smoke_crashing": _appended(_OF_96 + SMOKE_CRASHING, "smoke_attention"),
    "smoke_hanging": _appended(_OF_96 + SMOKE_HANGING, "smoke_attention"),
    "smoke_lost_context": _appended(_OF_96 + SMOKE_LOST_CONTEXT, "smoke_attention"),
    "smoke_wrong_numbers": _appended(SMOKE_WRONG_NUMBERS, "smoke_attention"),
}


def _record(members: Members, name: str) -> bytes:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for path, data in members.items():
        if path != name:
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
            rows.writerow([path, f"sha256={digest.decode()}", len(data)])
    rows.writerow([name, "", ""])
    return text.getvalue().encode()


def break_wheel(good: Path, folder: Path, fault: str) -> Path:
    """The wheel with this fault, of the same name, in ``folder/fault``."""
    return changed_wheel(good, folder / fault, (FAULTS | SMOKE_FAULTS)[fault])


def changed_wheel(good: Path, folder: Path, change: Callable[[Members], None]) -> Path:
    """The wheel after ``change``, of the same name, in ``folder``."""
    with zipfile.ZipFile(good) as archive:
        members = {name: archive.read(name) for name in archive.namelist() if name[-1] != "/"}
    change(members)
    (record,) = [name for name in members if name.endswith(".dist-info/RECORD")]
    members[record] = _record(members, record)
    target = folder / good.name
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return target


if __name__ == "__main__":
    for each in sys.argv[3:] or FAULTS:
        print(break_wheel(Path(sys.argv[1]), Path(sys.argv[2]), each))
