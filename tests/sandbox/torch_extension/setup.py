"""An extension in C and CUDA, built as torch's own are: BuildExtension, ninja, cl and nvcc."""

import os

import torch
from setuptools import setup
from torch.utils import cpp_extension

assert torch.version.cuda == "13.0", torch.version.cuda
assert os.environ["CUDA_HOME"] == cpp_extension.CUDA_HOME

extension = cpp_extension.CUDAExtension(
    "torch_extension",
    ["bind.c", "kernel.cu"],
    extra_compile_args={"cxx": [], "nvcc": ["-O3"]},
)
# torch's wheel without CUDA has no import libraries of these, and C needs none of torch's.
extension.libraries = ["cudart"]

setup(
    name="torch_extension",
    version="0.1",
    ext_modules=[extension],
    cmdclass={"build_ext": cpp_extension.BuildExtension},
)
