// Device code behind a function of C, and the two headers that a torch without CUDA lacks.
#include <ATen/cuda/CUDAConfig.h>
#include <c10/cuda/impl/cuda_cmake_macros.h>
#include <cuda_runtime.h>

#ifndef C10_CUDA_BUILD_SHARED_LIBS
#error "not the header that CUDA builds of torch have"
#endif
#if AT_CUDNN_ENABLED()
#error "nobody said that there is cuDNN"
#endif

__global__ void twice(float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] *= 2.0f;
}

extern "C" int torch_extension_devices(void)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess)
        return -static_cast<int>(error);
    float *x = nullptr;
    if (count > 0 && cudaMalloc(&x, 4) == cudaSuccess)
        twice<<<1, 1>>>(x, 1);
    return count;
}
