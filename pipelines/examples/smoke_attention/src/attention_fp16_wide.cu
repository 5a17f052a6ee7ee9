#include "half.cuh" // first: the kernel looks its overloads up where it is defined

#include "attention.cuh"

int attention_fp16_wide(const attention_problem *problem)
{
    switch (problem->head_dim) {
    case 96: return attention::launch<__half, 96>(*problem);
    case 128: return attention::launch<__half, 128>(*problem);
    default: return cudaErrorInvalidValue;
    }
}
