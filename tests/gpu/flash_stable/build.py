"""Builds flash-attn-stable on Linux by the recipe, and upstream's own layer over the same kernels.

``python build.py tree ARCHIVE SOURCE`` lays out upstream's archive as the recipe does.
``python build.py empty SOURCE`` puts a kernel that does nothing in place of each unit's, and keeps
its parameters for ``flash_last_parameters``: that compiles in a minute, and what the layers hand on
can be compared, and timed. ``python build.py small SOURCE`` has each GPU say that a block can have
99 KiB of shared memory.
``python build.py build SOURCE PLACE`` leaves ``PLACE/ours``, the wheel's content, and
``PLACE/theirs``, the same files with upstream's ``flash_api.cpp`` as the extension: what differs
between the two is the layer alone. Environment: CUDA_HOME, TORCH_CUDA_ARCH_LIST, MAX_JOBS,
FLASH_ATTN_HEAD_DIMS, as in the recipe's setup.py. Needs torch with CUDA, setuptools, ninja, g++.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

RECIPES = Path(__file__).resolve().parents[3] / "pipelines" / "recipes"
RECIPE = RECIPES / "flash-attn-stable"
PATCHES = sorted(RECIPES.glob("patches/flash-attn-stable/*.patch"))


def tree(archive: Path, source: Path) -> None:
    """Upstream's files with the recipe's: source, exclude, also and patches of its YAML file."""
    with tempfile.TemporaryDirectory() as scratch:
        shutil.unpack_archive(archive, scratch)
        (inner,) = Path(scratch).iterdir()
        for part in ("csrc/flash_attn", "csrc/cutlass/include", "flash_attn", "tests", "AUTHORS"):
            (shutil.copytree if (inner / part).is_dir() else shutil.copy)(
                inner / part, _made(source / part)
            )
        shutil.copy(inner / "LICENSE", source)
    shutil.rmtree(source / "flash_attn/cute", ignore_errors=True)
    shutil.copytree(RECIPE, source, dirs_exist_ok=True)
    for patch in PATCHES:
        subprocess.run(["patch", "-p1", "-i", patch], cwd=source, check=True)


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


_EMPTY = """#include "flash.h"
#include <cutlass/numeric_types.h>
#include <cstring>
using namespace FLASH_NAMESPACE;
inline char last[sizeof(Flash_bwd_params)];
extern "C" __attribute__((visibility("default"), weak)) const void *flash_last_parameters()
{{
    return last;
}}
static __global__ void empty() {{}}
template <>
void FLASH_NAMESPACE::{name}<cutlass::{type}, {dim}, {causal}>({params} &p, cudaStream_t stream)
{{
    memset(last, 0, sizeof last);
    memcpy(last, &p, sizeof p);
    empty<<<1, 1, 0, stream>>>();
}}
"""
_NAMES = {
    "fwd": ("run_mha_fwd_", "Flash_fwd_params"),
    "fwd_split": ("run_mha_fwd_splitkv_dispatch", "Flash_fwd_params"),
    "bwd": ("run_mha_bwd_", "Flash_bwd_params"),
}


def empty(source: Path) -> None:
    """Of each unit its function, with a kernel that does nothing."""
    for unit in source.glob("csrc/flash_attn/src/flash_*_sm80.cu"):
        named = re.fullmatch(r"flash_(.*)_hdim(\d+)_(fp16|bf16)_(causal_)?sm80", unit.stem)
        assert named, unit
        kind, dim, kept, causal = named.groups()
        name, params = _NAMES[kind]
        element = {"fp16": "half_t", "bf16": "bfloat16_t"}[kept]
        one = {"name": name, "type": element, "dim": dim, "params": params}
        unit.write_text(_EMPTY.format(**one, causal=str(bool(causal)).lower()))


def small(source: Path) -> None:
    """As RTX 30 and 40 say."""
    unit, asked = source / "csrc/stable/dispatch.cu", "cudaDevAttrMaxSharedMemoryPerBlockOptin, i"
    text = unit.read_text()
    assert f"attribute({asked})" in text
    unit.write_text(text.replace(f"attribute({asked})", "99 << 10"))


def build(source: Path, place: Path) -> None:
    """Both, into ``place``."""
    import torch
    from torch.utils import cpp_extension

    ours, theirs, upstream = place / "ours", place / "theirs", source / "csrc/flash_attn"
    theirs.mkdir(parents=True)
    layer = theirs / f"flash_attn_2_cuda{sysconfig.get_config_var('EXT_SUFFIX')}"
    folders = [*cpp_extension.include_paths("cuda"), str(upstream), str(upstream / "src")]
    folders += [str(source / "csrc/cutlass/include"), sysconfig.get_paths()["include"]]
    compiling = subprocess.Popen(
        ["g++", "-c", "-fPIC", "-O3", "-std=c++17", "-DTORCH_EXTENSION_NAME=flash_attn_2_cuda"]
        + [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
        + [f"-I{folder}" for folder in folders]
        + [str(upstream / "flash_api.cpp"), "-o", str(place / "flash_api.o")]
    )
    subprocess.run([sys.executable, "setup.py", "-q", "bdist_wheel"], cwd=source, check=True)
    (wheel,) = source.glob("dist/*.whl")
    shutil.unpack_archive(wheel, ours, "zip")
    assert compiling.wait() == 0
    kernels = sorted(source.glob("build/temp*/csrc/flash_attn/src/*.o"))
    lib = Path(torch.__file__).parent / "lib"
    names = ("torch_python", "torch_cuda", "torch_cpu", "torch", "c10_cuda", "c10", "cudart_static")
    places = [f"-L{lib}", f"-L{os.environ['CUDA_HOME']}/lib64", f"-Wl,-rpath,{lib}"]
    libraries = [f"-l{name}" for name in (*names, "rt", "dl", "pthread")]
    objects = [place / "flash_api.o", *kernels]
    subprocess.run(
        ["g++", "-shared", "-Wl,--exclude-libs,ALL", "-o", layer, *objects, *places, *libraries],
        check=True,
    )
    shutil.copytree(source / "flash_attn", theirs / "flash_attn")


if __name__ == "__main__":
    what, *paths = sys.argv[1:]
    steps = {"tree": tree, "empty": empty, "small": small, "build": build}
    steps[what](*(Path(path).resolve() for path in paths))
