// In place of torch's header of this name; see ../CUDAGeneratorImpl.h.
#pragma once

#include <ATen/cuda/CUDAGeneratorImpl.h>

#include <tuple>

namespace at::cuda::philox {

__host__ __device__ __forceinline__ std::tuple<uint64_t, uint64_t> unpack(const at::PhiloxCudaState &state)
{
    if (state.captured_)
        return std::make_tuple(static_cast<uint64_t>(*state.seed_.ptr),
                               static_cast<uint64_t>(*state.offset_.ptr) + state.offset_intragraph_);
    return std::make_tuple(state.seed_.val, state.offset_.val);
}

} // namespace at::cuda::philox
