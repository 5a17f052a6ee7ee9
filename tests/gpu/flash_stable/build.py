"""Builds flash-attn-stable on Linux by the recipe, and upstream's own layer over the same kernels.

``python build.py tree ARCHIVE SOURCE`` lays out upstream's archive as the recipe does.
``python build.py build SOURCE PLACE`` leaves ``PLACE/ours``, the wheel's content, and
``PLACE/theirs``, the same files with upstream's ``flash_api.cpp`` as the extension: what differs
between the two is the layer alone. Environment: CUDA_HOME, TORCH_CUDA_ARCH_LIST, MAX_JOBS,
FLASH_ATTN_HEAD_DIMS, as in the recipe's setup.py. Needs torch with CUDA, setuptools, ninja, g++.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path

RECIPES = Path(__file__).resolve().parents[3] / "pipelines" / "recipes"
RECIPE = RECIPES / "flash-attn-stable"
PATCHES = sorted(RECIPES.glob("patches/flash-attn-stable/*.patch"))


def tree(archive: Path, source: Path) -> None:
    """Upstream's files with the recipe's: source, exclude, also and patches of its YAML file."""
    with tarfile.open(archive) as packed, tempfile.TemporaryDirectory() as scratch:
        packed.extractall(scratch, filter="data")
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
    {"tree": tree, "build": build}[what](*(Path(path).resolve() for path in paths))
