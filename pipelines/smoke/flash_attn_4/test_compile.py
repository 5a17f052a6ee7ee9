"""Its kernels compiled without a GPU, forward and backward, and kept as a user's cache keeps them.

What runs on a GPU is in ``test_flash_4.py``. Here tensors have shapes and no numbers, which is how
the package itself fills its cache ahead; the objects there are looked at from outside.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

from smoke_batches import Record

_COMPILES = """
import sys
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from flash_attn.cute.interface import _flash_attn_bwd, _flash_attn_fwd

with FakeTensorMode(), torch.no_grad():
    rows = (128, 256, 256)
    q, k, v = (torch.empty(2, n, 4, 64, dtype=torch.bfloat16, device="cuda") for n in rows)
    out, lse, *_ = _flash_attn_fwd(q, k, v, causal=True, return_lse=True)
    grads = _flash_attn_bwd(q, k, v, out, torch.empty_like(out), lse, causal=True)
print(*(tuple(one.shape) for one in (out, *grads[:3])), "fcntl" in sys.modules, sep=";")
"""
_CUBIN, _OF_CUDA, _FLAGS = b"\x7fELF\x02\x01", 190, 48


def _cubins(data: bytes) -> list[int]:
    """The architecture of each file of machine code in an object: ELF, of machine 190."""
    found = []
    at = data.find(_CUBIN)
    while at >= 0:
        if struct.unpack_from("<H", data, at + 18) == (_OF_CUDA,):
            (flags,) = struct.unpack_from("<I", data, at + _FLAGS)
            found.append(flags >> 8 & 0xFF if data[at + 8] >= 8 else flags & 0xFF)
        at = data.find(_CUBIN, at + 1)
    return found


def test_kernels_for_hopper(tmp_path: Path, record_property: Record) -> None:
    """Two kernels of attention and two helpers, each machine code for sm_90.

    A package that looks for fcntl takes the machine for a POSIX one where it finds it: the one
    that stands in for it on Windows must be visible to nothing else.
    """
    settings = {
        "FLASH_ATTENTION_ARCH": "sm_90",
        "CUTE_DSL_ARCH": "sm_90a",
        "FLASH_ATTENTION_NUM_SMS": "132",
        "FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED": "1",
        "FLASH_ATTENTION_CUTE_DSL_CACHE_DIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", _COMPILES],
        env=os.environ | settings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    query, key = (2, 128, 4, 64), (2, 256, 4, 64)
    posix = sys.platform != "win32"
    assert done.stdout.split("\n")[0] == ";".join(map(str, (query, query, key, key, posix)))
    objects = {path.parent.name: path.read_bytes() for path in tmp_path.rglob("*.o")}
    assert sorted(objects) == ["bwd", "bwd_post", "bwd_pre", "fwd"]
    for name, data in objects.items():
        record_property(f"bytes_of.{name}", len(data))
        assert _cubins(data) == [90], name


def test_another_process_waits_for_the_cache(tmp_path: Path) -> None:
    """Its locks exclude: without fcntl, on Windows, they are of another kind."""
    from flash_attn.cute.cache_utils import FileLock

    with FileLock(tmp_path / "x.lock", exclusive=True):
        other = (
            "import pathlib, sys; from flash_attn.cute.cache_utils import FileLock;"
            "FileLock(pathlib.Path(sys.argv[1]), exclusive=True, timeout=0.5).__enter__()"
        )
        command = [sys.executable, "-c", other, str(tmp_path / "x.lock")]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        assert done.returncode, "another process has the lock as well"
        assert "Timed out after 0.5s" in done.stderr, done.stderr[-2000:]
    with FileLock(tmp_path / "x.lock", exclusive=True, timeout=0.5):
        pass
