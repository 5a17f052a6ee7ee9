"""Some of FlashAttention 2's own kernel files, compiled by torch's BuildExtension.

Environment: FLASH_KERNELS (names of files in csrc/flash_attn/src, without .cu, with spaces between
them), FLASH_KERNELS_WITHOUT (what is left out of them by the switches of its static_switch.h).
``csrc`` is that of the sdist of flash-attn, CUTLASS included.
"""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

HERE = Path(__file__).parent.absolute()
KERNELS = os.environ["FLASH_KERNELS"].split()
# As flash-attn's setup.py has them; torch adds those of TORCH_CUDA_ARCH_LIST.
FLAGS = [
    *("-O3", "-std=c++17", "--expt-relaxed-constexpr", "--expt-extended-lambda"),
    *("--use_fast_math", "-U__CUDA_NO_HALF_OPERATORS__", "-U__CUDA_NO_HALF_CONVERSIONS__"),
    *("-U__CUDA_NO_HALF2_OPERATORS__", "-U__CUDA_NO_BFLOAT16_CONVERSIONS__", "-w"),
    *(f"-DFLASHATTENTION_DISABLE_{word}" for word in os.environ["FLASH_KERNELS_WITHOUT"].split()),
]
setup(
    name="flash-shards",
    version="1.0",
    packages=[],
    cmdclass={"build_ext": BuildExtension},
    ext_modules=[
        CUDAExtension(
            "flash_shards",
            ["src/module.cpp", *(f"csrc/flash_attn/src/{name}.cu" for name in KERNELS)],
            include_dirs=[str(HERE / "csrc/flash_attn/src"), str(HERE / "csrc/cutlass/include")],
            extra_compile_args={"cxx": ["-O2"], "nvcc": FLAGS},
        )
    ],
)
