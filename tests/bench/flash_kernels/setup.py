"""Some of FlashAttention 2's own kernel files in a module without torch.

Environment: FLASH_KERNELS (names of files in csrc/flash_attn/src, without .cu, with spaces between
them), FLASH_KERNELS_WITHOUT (what is left out of them by the switches of its static_switch.h, such
as DROPOUT), FLASH_KERNELS_ARCHS, FLASH_KERNELS_LOCAL_VERSION, MAX_JOBS, CUDA_HOME. ``csrc`` is that
of the sdist of flash-attn, CUTLASS included.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

KERNELS = os.environ["FLASH_KERNELS"].split()
ARCHS = os.environ["FLASH_KERNELS_ARCHS"].split(";")
CUDA = Path(os.environ["CUDA_HOME"])
RUNTIME = next(CUDA.glob("lib/libcudart.so.*")).name
NVCC = shlex.split(os.environ.get("PYTORCH_NVCC", "")) or [str(CUDA / "bin/nvcc")]
# As flash-attn's setup.py has them.
FLAGS = [
    *("-O3", "-std=c++17", "--expt-relaxed-constexpr", "--expt-extended-lambda"),
    *("--use_fast_math", "-U__CUDA_NO_HALF_OPERATORS__", "-U__CUDA_NO_HALF_CONVERSIONS__"),
    *("-U__CUDA_NO_HALF2_OPERATORS__", "-U__CUDA_NO_BFLOAT16_CONVERSIONS__"),
    *(word for arch in ARCHS for word in ("-gencode", f"arch=compute_{arch},code=sm_{arch}")),
    *(f"-DFLASHATTENTION_DISABLE_{word}" for word in os.environ["FLASH_KERNELS_WITHOUT"].split()),
    *("-Xcompiler", "-fPIC", "-w", "-Ishim", "-Icsrc/flash_attn/src", "-Icsrc/cutlass/include"),
]


class BuildCuda(build_ext):
    """Compile the .cu files side by side, then let setuptools compile the rest and link."""

    def build_extension(self, ext: Extension) -> None:
        """Build the one extension."""
        folder = Path(self.build_temp)
        folder.mkdir(parents=True, exist_ok=True)
        objects = [str(folder / f"{name}.o") for name in KERNELS]

        def compiled(name: str, target: str) -> None:
            source = f"csrc/flash_attn/src/{name}.cu"
            subprocess.run([*NVCC, *FLAGS, "-c", source, "-o", target], check=True)

        with ThreadPoolExecutor(int(os.environ.get("MAX_JOBS", "1"))) as pool:
            for number, _ in enumerate(pool.map(compiled, KERNELS, objects), 1):
                print(f"[{number}/{len(KERNELS)}] {KERNELS[number - 1]}.cu", flush=True)
        ext.extra_objects = objects
        super().build_extension(ext)


local = os.environ.get("FLASH_KERNELS_LOCAL_VERSION", "")
setup(
    name="flash-kernels",
    version=f"1.0+{local}" if local else "1.0",
    packages=[],
    cmdclass={"build_ext": BuildCuda},
    ext_modules=[
        Extension(
            "flash_kernels",
            ["src/module.cpp"],
            define_macros=[("KERNELS", str(len(KERNELS)))],
            extra_link_args=[
                f"-L{CUDA / 'lib'}",
                f"-l:{RUNTIME}",
            ],
        )
    ],
)
