#pragma once
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <tuple>

namespace at::cuda::philox {

// The seed and the offset of a random stream, which a captured graph keeps on the GPU.
__host__ __device__ __forceinline__ std::tuple<uint64_t, uint64_t> unpack(PhiloxCudaState state) {
  uint64_t seed = state.captured_ ? *state.seed_.ptr : state.seed_.val;
  uint64_t offset = state.captured_ ? *state.offset_.ptr + state.offset_intragraph_ : state.offset_.val;
  return {seed, offset};
}

}  // namespace at::cuda::philox
