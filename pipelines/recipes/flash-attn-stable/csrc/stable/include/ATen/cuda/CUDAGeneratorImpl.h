// In place of torch's header of this name: where dropout's random numbers begin, which is all that
// FlashAttention's kernels know of torch.
#pragma once

#include <cstdint>

struct CUstream_st;
typedef struct CUstream_st *cudaStream_t;

namespace at {

/// A seed and an offset: as values, or, with `captured_`, where the GPU reads them. Laid out as
/// torch's, so that the same objects also link with upstream's flash_api.cpp.
struct PhiloxCudaState {
    union Payload {
        uint64_t val;
        const int64_t *ptr;
    };
    Payload seed_ = {0}, offset_ = {0};
    uint64_t offset_intragraph_ = 0;
    bool captured_ = false;
};

} // namespace at
