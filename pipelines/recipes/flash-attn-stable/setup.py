"""Build FlashAttention 2 on torch's stable ABI: upstream's kernels and csrc/stable as one library.

Environment: CUDA_HOME or CUDA_PATH, TORCH_CUDA_ARCH_LIST, MAX_JOBS, FLASH_ATTN_LOCAL_VERSION, and
FLASH_ATTN_HEAD_DIMS such as "64;128" for a build without the other head dimensions.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel

WINDOWS = sys.platform == "win32"
#: The least torch, as torch's headers write it: nothing that came later is used.
LEAST = (2, 10)
TARGET = f"0x{LEAST[0]:02x}{LEAST[1]:02x}000000000000"
HEAD_DIMS = ("32", "64", "96", "128", "192", "256")
KERNELS = "csrc/flash_attn/src"

# The library has CUDA's runtime in it and knows no CUDA of torch, so torch's may be another, or
# none: BuildExtension refuses neither if torch says that it has none.
torch.version.cuda = None

from torch.utils import cpp_extension  # noqa: E402  it reads torch.version.cuda


def version() -> str:
    """Return upstream's version with the local part that the environment asks for."""
    text = Path("flash_attn/__init__.py").read_text(encoding="utf-8")
    found = next(
        node.value.value
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__"
    )
    local = os.environ.get("FLASH_ATTN_LOCAL_VERSION", "")
    if local and not re.fullmatch(r"[a-z0-9]+(\.[a-z0-9]+)*", local):
        raise SystemExit(
            f"FLASH_ATTN_LOCAL_VERSION: {local!r} is no local version; expected something like "
            "'cu130' (lower case letters and digits between dots)"
        )
    return f"{found}+{local}" if local else found


def head_dims() -> list[str]:
    """Return the head dimensions to compile."""
    asked = re.findall(r"[^\s;,]+", os.environ.get("FLASH_ATTN_HEAD_DIMS", "")) or [*HEAD_DIMS]
    if unknown := set(asked) - {*HEAD_DIMS}:
        raise SystemExit(
            f"FLASH_ATTN_HEAD_DIMS: {', '.join(sorted(unknown))}: expected some of "
            f"{', '.join(HEAD_DIMS)}"
        )
    return [dim for dim in HEAD_DIMS if dim in asked]


def gencodes(asked: str) -> list[str]:
    """Return nvcc's flags for a TORCH_CUDA_ARCH_LIST such as ``8.0+PTX;9.0;12.0``.

    The kernels have no code for one architecture alone. So nvcc's front end runs once, for the
    oldest architecture, and ptxas assembles that PTX for each of them: most of the time is saved.
    """
    archs: dict[str, bool] = {}  # with PTX or not
    for entry in re.findall(r"[^\s;]+", asked):
        if not (arch := re.fullmatch(r"(\d+)\.(\d[af]?)(\+PTX)?", entry)):
            raise SystemExit(
                f"TORCH_CUDA_ARCH_LIST: {entry!r} is not understood; expected something like "
                "8.0+PTX;9.0;12.0"
            )
        archs[arch[1] + arch[2]] = bool(arch[3])
    plain = sorted(int(arch) for arch in archs if arch.isdigit())
    flags = []
    for arch, ptx in archs.items():
        front = plain[0] if arch.isdigit() else arch  # 90a has its own
        flags.append(f"-gencode=arch=compute_{front},code=sm_{arch}")
        flags += [f"-gencode=arch=compute_{arch},code=compute_{arch}"] * ptx
    return flags


def cuda_toolkit() -> Path:
    """Return the directory that holds CUDA's bin, include and lib."""
    nvcc = shutil.which("nvcc")
    places = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    places.append(str(Path(nvcc).resolve().parents[1]) if nvcc else None)
    for place in filter(None, places):
        if (Path(place) / "bin" / ("nvcc.exe" if WINDOWS else "nvcc")).is_file():
            return Path(place)
    raise SystemExit(
        f"no CUDA toolkit: looked for bin/nvcc in {[p for p in places if p]}; set CUDA_HOME"
    )


def copy_licences() -> None:
    """Put the texts of what gets linked in where license-files of pyproject.toml looks for them.

    CUDA's runtime; and LLVM's C++ library, of a compiler that brings it.
    """
    texts = {"CUDA.txt": TOOLKIT / "EULA.txt"}
    if cl := shutil.which("cl"):
        texts["LLVM.txt"] = Path(cl).resolve().parents[3] / "libcxx" / "LICENSE.TXT"
    Path("licenses").mkdir(exist_ok=True)
    for name, text in texts.items():
        if text.is_file():
            shutil.copy(text, Path("licenses", name))


class Build(cpp_extension.BuildExtension):
    """torch's own, for a library that Python does not import."""

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """No PyInit: kernels.h says what is exported."""
        return list(ext.export_symbols)

    def get_ext_filename(self, fullname: str) -> str:
        """Without Python's version, and on Windows as what it is."""
        return str(Path(*fullname.split("."))) + (".dll" if WINDOWS else ".so")

    def run(self) -> None:
        """Build, and write down how next to the library."""
        super().run()
        folder = Path(self.get_ext_fullpath("flash_attn_2_cuda._C")).parent
        text = json.dumps(build_info(), indent=2) + "\n"
        (folder / "_build_info.json").write_text(text, encoding="utf-8")


class Wheel(bdist_wheel):
    """One wheel for every Python: nothing in it is compiled for one."""

    def get_tag(self) -> tuple[str, str, str]:
        """``py3-none`` and the platform."""
        return "py3", "none", super().get_tag()[2]


def build_info() -> dict[str, Any]:
    """Return what the wheel's _build_info.json says."""
    nvcc = TOOLKIT / "bin" / ("nvcc.exe" if WINDOWS else "nvcc")
    printed = subprocess.run([nvcc, "--version"], stdout=subprocess.PIPE, text=True, check=True)
    release = re.search(r"release \S+ V(\S+)", printed.stdout)
    return {
        "version": version(),
        "archs": os.environ["TORCH_CUDA_ARCH_LIST"],
        "head_dims": [int(dim) for dim in head_dims()],
        "cuda": release[1] if release else "",
        "least_torch": ".".join(map(str, LEAST)),
    }


def extension() -> Extension:
    """Return the library: upstream's units of the head dimensions, and what is ours."""
    dims = head_dims()
    units = [
        f"{KERNELS}/flash_{kind}_hdim{dim}_{dtype}_{causal}sm80.cu"
        for kind in ("fwd_split", "bwd", "fwd")
        for dim in dims
        for dtype in ("fp16", "bf16")
        for causal in ("", "causal_")
    ]
    nvcc = [
        *("-O3", "-std=c++17", "--use_fast_math", "--expt-relaxed-constexpr"),
        *("--expt-extended-lambda", "-U__CUDA_NO_HALF_OPERATORS__"),
        *("-U__CUDA_NO_HALF_CONVERSIONS__", "-U__CUDA_NO_HALF2_OPERATORS__"),
        "-U__CUDA_NO_BFLOAT16_CONVERSIONS__",
        *gencodes(os.environ["TORCH_CUDA_ARCH_LIST"]),  # torch adds none of its own then
        f"-DFLASH_HEAD_DIMS(X)={' '.join(f'X({dim})' for dim in dims)}",
        # M_LOG2E, which MSVC's math.h has with that definition alone.
        *(["-D_USE_MATH_DEFINES"] if WINDOWS else []),
    ]
    # /permissive-: MSVC's old rules for templates choose other functions of torch's headers.
    cxx = ["/permissive-", "/O2"] if WINDOWS else ["-fvisibility=hidden", "-O3", "-g0"]
    lib = TOOLKIT / "lib" / "x64" if WINDOWS else TOOLKIT / "lib64"
    lib = lib if lib.is_dir() else TOOLKIT / "lib"  # of NVIDIA's wheels
    # Of a compiler that links its own C++ library for good, nothing may be seen by torch's.
    # https://gcc.gnu.org/onlinedocs/gcc/Link-Options.html (-static-libgcc)
    apart = [] if WINDOWS else ["-Wl,--exclude-libs,ALL", "-l:libgcc_s.so.1"]
    return cpp_extension.CppExtension(
        "flash_attn_2_cuda._C",
        ["csrc/stable/flash_api.cpp", "csrc/stable/dispatch.cu", *units],
        # In this order: some headers of csrc/stable/include stand for torch's.
        include_dirs=[
            str(Path(folder).resolve())
            for folder in ("csrc/stable/include", "csrc/stable", KERNELS, "csrc/cutlass/include")
        ]
        + [str(TOOLKIT / "include")],
        library_dirs=[str(lib)],
        libraries=["cudart_static", *([] if WINDOWS else ["rt", "dl", "pthread"])],
        extra_link_args=apart,
        py_limited_api=True,  # no torch_python
        extra_compile_args={
            "cxx": [f"-DTORCH_TARGET_VERSION={TARGET}", *cxx],
            "nvcc": nvcc if WINDOWS else [*nvcc, "-Xcompiler", "-fvisibility=hidden"],
        },
    )


TOOLKIT = cuda_toolkit()
cpp_extension.CUDA_HOME = str(TOOLKIT)
os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "8.0+PTX;9.0;12.0")
copy_licences()

setup(
    version=version(),
    cmdclass={"build_ext": Build, "bdist_wheel": Wheel},
    ext_modules=[extension()],
    package_data={"flash_attn_2_cuda": ["_build_info.json"]},
)
