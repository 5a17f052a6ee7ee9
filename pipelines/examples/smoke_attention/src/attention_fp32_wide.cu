#include "attention.cuh"

int attention_fp32_wide(const attention_problem *problem)
{
    switch (problem->head_dim) {
    case 96: return attention::launch<float, 96>(*problem);
    case 128: return attention::launch<float, 128>(*problem);
    default: return cudaErrorInvalidValue;
    }
}
