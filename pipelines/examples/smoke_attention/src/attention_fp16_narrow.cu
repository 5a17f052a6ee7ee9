#include "half.cuh" // first: the kernel looks its overloads up where it is defined

#include "attention.cuh"

int attention_fp16_narrow(const attention_problem *problem)
{
    switch (problem->head_dim) {
    case 32: return attention::launch<__half, 32>(*problem);
    case 64: return attention::launch<__half, 64>(*problem);
    default: return cudaErrorInvalidValue;
    }
}
