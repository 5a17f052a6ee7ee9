"""Build smoke_attention_torch with torch's BuildExtension: two libraries, no Python in either.

Environment: CUDA_HOME or CUDA_PATH, TORCH_CUDA_ARCH_LIST, SMOKE_ATTENTION_LOCAL_VERSION, MAX_JOBS.
The README says what each holds.
"""

from __future__ import annotations

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
from setuptools.command.sdist import sdist

VERSION = "0.1.0"
DEFAULT_ARCHS = "7.5;8.0;8.6;9.0;12.0+PTX"
WINDOWS = sys.platform == "win32"
#: The least torch, as torch's headers write it: nothing that came later is used.
LEAST = (2, 10)
TARGET = f"0x{LEAST[0]:02x}{LEAST[1]:02x}000000000000"

ROOT = Path(__file__).resolve().parent
PACKED = ROOT / "kernels"  # in a source distribution
KERNELS = PACKED if PACKED.is_dir() else ROOT.parent / "smoke_attention" / "src"
KERNEL_FILES = sorted(p for p in KERNELS.glob("*") if p.suffix in (".h", ".cu", ".cuh"))

# The kernels are behind functions of C and know nothing of torch, so torch's CUDA may be another,
# or none: BuildExtension refuses neither if torch says that it has none.
torch.version.cuda = None

from torch.utils import cpp_extension  # noqa: E402  it reads torch.version.cuda


def version() -> str:
    """Return the wheel's version, with the local part that the environment asks for."""
    local = os.environ.get("SMOKE_ATTENTION_LOCAL_VERSION", "")
    if local and not re.fullmatch(r"[a-z0-9]+(\.[a-z0-9]+)*", local):
        raise SystemExit(
            f"SMOKE_ATTENTION_LOCAL_VERSION: {local!r} is no local version; expected something "
            "like 'cu130.sandbox' (lower case letters and digits between dots)"
        )
    return f"{VERSION}+{local}" if local else VERSION


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


def libraries_of(toolkit: Path) -> Path:
    """Return the directory of its libraries: a toolkit's, or that of NVIDIA's wheels."""
    places = [toolkit / "lib" / "x64"] if WINDOWS else [toolkit / "lib64", toolkit / "lib"]
    return next((place for place in places if place.is_dir()), places[-1])


def relative(suffix: str) -> list[str]:
    """Return the kernels' files as setuptools wants them, seen from here."""
    return [os.path.relpath(path, ROOT) for path in KERNEL_FILES if path.suffix == suffix]


class Build(cpp_extension.BuildExtension):
    """torch's own, for libraries that Python does not import."""

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """No PyInit: launch.h says what is exported."""
        return list(ext.export_symbols)

    def get_ext_filename(self, fullname: str) -> str:
        """Without Python's version, and on Windows as what it is."""
        return str(Path(*fullname.split("."))) + (".dll" if WINDOWS else ".so")

    def run(self) -> None:
        """Build, and write down how beside the libraries."""
        super().run()
        folder = Path(self.get_ext_fullpath("smoke_attention_torch._cpu")).parent
        text = json.dumps(build_info(), indent=2) + "\n"
        (folder / "_build_info.json").write_text(text, encoding="utf-8")


class Wheel(bdist_wheel):
    """One wheel for every Python: nothing in it is compiled for one."""

    def get_tag(self) -> tuple[str, str, str]:
        """``py3-none`` and the platform."""
        return "py3", "none", super().get_tag()[2]


class Source(sdist):
    """Packs the kernels as well, so that it can be built alone."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Copy them to ``kernels``."""
        super().make_release_tree(base_dir, files)
        (Path(base_dir) / "kernels").mkdir(exist_ok=True)
        for path in KERNEL_FILES:
            shutil.copy(path, Path(base_dir) / "kernels")


def build_info() -> dict[str, Any]:
    """Return what ``smoke_attention_torch.build_info()`` will say."""
    nvcc = TOOLKIT / "bin" / ("nvcc.exe" if WINDOWS else "nvcc")
    printed = subprocess.run([nvcc, "--version"], stdout=subprocess.PIPE, text=True, check=True)
    release = re.search(r"release \S+ V(\S+)", printed.stdout)
    archs = os.environ["TORCH_CUDA_ARCH_LIST"].replace(" ", ";").split(";")
    return {
        "version": version(),
        "sass": [arch.removesuffix("+PTX").replace(".", "") for arch in archs],
        "ptx": [arch.removesuffix("+PTX").replace(".", "") for arch in archs if "+PTX" in arch],
        "cuda": release[1] if release else "",
        "torch": torch.__version__,
        "least_torch": ".".join(map(str, LEAST)),
    }


def extensions() -> list[Extension]:
    """Return the two libraries; the second has the kernels and CUDA's run-time."""
    # /permissive-: MSVC's old rules for templates choose other functions of torch's headers.
    cxx = ["/permissive-"] if WINDOWS else ["-fvisibility=hidden", "-O3", "-g0"]
    flags = {"cxx": [f"-DTORCH_TARGET_VERSION={TARGET}", *cxx], "nvcc": ["-O3"]}
    lib = libraries_of(TOOLKIT)
    # NVIDIA's wheels have libcudart.so.13 alone, under its full name.
    cudart = [f"-l:{path.name}" for path in sorted(lib.glob("libcudart.so.*"))[:1]]
    found = ["$ORIGIN/../nvidia/cu13/lib", str(lib.resolve())]
    # Of a compiler that links its own run-time of C++ for good, as many that are not Linux' own do:
    # nothing of it may be seen by torch's, and exceptions reach torch by the one unwinder of all.
    # https://gcc.gnu.org/onlinedocs/gcc/Link-Options.html (-static-libgcc)
    apart = [] if WINDOWS else ["-Wl,--exclude-libs,ALL", "-l:libgcc_s.so.1"]
    return [
        cpp_extension.CppExtension(
            "smoke_attention_torch._cpu",
            ["src/ops_cpu.cpp"],
            extra_link_args=apart,
            py_limited_api=True,  # no torch_python
            extra_compile_args=flags,
        ),
        cpp_extension.CppExtension(
            "smoke_attention_torch._cuda",
            ["src/ops_cuda.cpp", "src/launch.cu", *relative(".cu")],
            include_dirs=[str(KERNELS)],
            library_dirs=[str(lib)],
            libraries=["cudart"] if WINDOWS else ["dl"],
            extra_link_args=[] if WINDOWS else [*cudart, *apart],
            runtime_library_dirs=[] if WINDOWS else found,
            py_limited_api=True,
            extra_compile_args=flags,
        ),
    ]


BUILDING = not {"sdist", "egg_info", "dist_info", "clean", "--version", "--help"} & set(sys.argv)
TOOLKIT = cuda_toolkit() if BUILDING else Path()
cpp_extension.CUDA_HOME = str(TOOLKIT)
os.environ.setdefault("TORCH_CUDA_ARCH_LIST", DEFAULT_ARCHS)

setup(
    version=version(),
    cmdclass={"build_ext": Build, "bdist_wheel": Wheel, "sdist": Source},
    ext_modules=extensions(),
)
