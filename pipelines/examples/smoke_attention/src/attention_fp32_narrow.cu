#include "attention.cuh"

int attention_fp32_narrow(const attention_problem *problem)
{
    switch (problem->head_dim) {
    case 32: return attention::launch<float, 32>(*problem);
    case 64: return attention::launch<float, 64>(*problem);
    default: return cudaErrorInvalidValue;
    }
}
