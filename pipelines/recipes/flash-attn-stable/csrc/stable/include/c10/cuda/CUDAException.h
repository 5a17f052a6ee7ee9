// In place of torch's header of this name: FlashAttention's kernels need two macros of it. A failed
// call becomes std::runtime_error, which both the kernels and the torch layer know.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <stdexcept>

namespace flash_stable {

[[noreturn]] inline void throw_cuda(cudaError_t error, const char *file, int line)
{
    char text[512];
    snprintf(text, sizeof text, "CUDA error: %s (%s, line %d)", cudaGetErrorString(error), file, line);
    throw std::runtime_error(text);
}

} // namespace flash_stable

#define C10_CUDA_CHECK(call)                                                                  \
    do {                                                                                      \
        const cudaError_t flash_code = (call);                                                \
        if (flash_code != cudaSuccess) flash_stable::throw_cuda(flash_code, __FILE__, __LINE__); \
    } while (0)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
