#pragma once
#include <cuda_runtime.h>

#include <cstdio>
#include <stdexcept>

#define C10_CUDA_CHECK(call)                                                      \
  do {                                                                            \
    cudaError_t found_ = (call);                                                  \
    if (found_ != cudaSuccess) throw std::runtime_error(cudaGetErrorString(found_)); \
  } while (0)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
