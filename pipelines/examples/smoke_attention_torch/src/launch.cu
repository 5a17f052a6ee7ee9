// The functions of launch.h. nvcc compiles them, so that the C++ of torch needs no header of CUDA:
// NVIDIA's refuse libc++ on x86.
#include "launch.h"

#include <cuda_runtime.h>

int smoke_attention_launch(const attention_problem *sent, int half)
{
    cudaGetLastError(); // a failed call of somebody else's must not look like a failed launch of ours
    if (sent->head_dim <= 64) return half ? attention_fp16_narrow(sent) : attention_fp32_narrow(sent);
    return half ? attention_fp16_wide(sent) : attention_fp32_wide(sent);
}

const char *smoke_attention_error(int error)
{
    return cudaGetErrorString(static_cast<cudaError_t>(error));
}
