// fp16 in and out; all arithmetic in between is float. Apart because cuda_fp16.h is slow to parse.
#pragma once

#include <cuda_fp16.h>

namespace attention {

__device__ inline float4 load4(const __half *from)
{
    const uint2 bits = *reinterpret_cast<const uint2 *>(from); // one 8 byte load
    const float2 low = __half22float2(*reinterpret_cast<const __half2 *>(&bits.x));
    const float2 high = __half22float2(*reinterpret_cast<const __half2 *>(&bits.y));
    return make_float4(low.x, low.y, high.x, high.y);
}

__device__ inline void store(__half *to, float value) { *to = __float2half_rn(value); }

} // namespace attention
