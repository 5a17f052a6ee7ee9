// Forward attention in one pass over the keys (online softmax), for one element type and head dimension.
//
// A block has 4 warps and answers 32 queries, 8 a warp. Keys come in tiles of 32:
//   scores   lane j holds key j, so a score is a private dot product and needs no shuffle;
//   softmax  only the running maximum is reduced over the warp, the sums stay per lane to the end;
//   output   lane j holds channels j, j + 32, ..., and reads the weights back from shared memory.
// Everything is float in shared memory whatever T is, which is what keeps this file short. K and V take
// turns in one buffer, so that head dimension 128 stays under the 48 KB that every GPU grants.
//
// "causal" is an argument and loops are unrolled sparingly: compile time is part of this example's job.
#pragma once

#include <cuda_runtime.h>

#include "attention.h"

namespace attention {

constexpr int LANES = 32;
constexpr int WARPS = 4;
constexpr int THREADS = WARPS * LANES;
constexpr int ROWS = 8;                  // queries a warp answers
constexpr int BLOCK_ROWS = WARPS * ROWS; // queries a block answers
constexpr int KEYS = LANES;              // keys in a tile: one a lane
constexpr float LOG2_E = 1.44269504f;
constexpr unsigned ALL = 0xffffffffu;

// Four neighbouring elements as floats, and one element back. The fp16 units add overloads for __half.
__device__ inline float4 load4(const float *from) { return *reinterpret_cast<const float4 *>(from); }
__device__ inline void store(float *to, float value) { *to = value; }

// Copies rows [0, limit) of a (rows, D) matrix into shared memory, times `factor`. Rows from `limit` up
// to `rows` become 0: a weight of 0 times stale shared memory could still be NaN.
template <typename T, int D>
__device__ inline void fill(float *to, int stride, const T *from, int rows, int limit, float factor)
{
#pragma unroll 4
    for (int i = threadIdx.x; i < rows * (D / 4); i += THREADS) {
        int row = i / (D / 4), column = i % (D / 4) * 4;
        float4 x = make_float4(0.f, 0.f, 0.f, 0.f);
        if (row < limit) x = load4(from + row * D + column);
        x.x *= factor;
        x.y *= factor;
        x.z *= factor;
        x.w *= factor;
        *reinterpret_cast<float4 *>(to + row * stride + column) = x;
    }
}

template <typename T, int D>
__global__ void __launch_bounds__(THREADS) forward(attention_problem p)
{
    constexpr int CHANNELS = D / LANES;
    constexpr int STRIDE = D + 4; // lanes reading float4s down a column of the tile hit different banks
    __shared__ __align__(16) float queries[BLOCK_ROWS * D];
    __shared__ __align__(16) float tile[KEYS * STRIDE];
    __shared__ __align__(16) float weights[WARPS][ROWS][KEYS];

    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const int blocks = (p.seqlen_q - 1) / BLOCK_ROWS + 1;
    const long long head = blockIdx.x / blocks;
    // The last queries see the most keys when causal: they start first.
    const int first_row = (blocks - 1 - static_cast<int>(blockIdx.x % blocks)) * BLOCK_ROWS;
    const int my_row = first_row + warp * ROWS;

    const T *q = static_cast<const T *>(p.q) + (head * p.seqlen_q + first_row) * D;
    const T *k = static_cast<const T *>(p.k) + head * p.seqlen_k * D;
    const T *v = static_cast<const T *>(p.v) + head * p.seqlen_k * D;
    T *out = static_cast<T *>(p.out) + (head * p.seqlen_q + my_row) * D;

    // A causal query i sees the keys up to i + shift, so the last query sees all of them.
    const int shift = p.seqlen_k - p.seqlen_q;
    const int last_row = min(first_row + BLOCK_ROWS, p.seqlen_q) - 1;
    const int end = p.causal ? last_row + shift + 1 : p.seqlen_k;

    // Scores are kept in base 2, so that a weight is one exp2f.
    fill<T, D>(queries, D, q, BLOCK_ROWS, p.seqlen_q - first_row, p.scale * LOG2_E);

    float acc[ROWS][CHANNELS] = {}, sum[ROWS] = {}, highest[ROWS];
    for (int r = 0; r < ROWS; r++) highest[r] = -INFINITY;

    for (int first_key = 0; first_key < end; first_key += KEYS) {
        const long long at = static_cast<long long>(first_key) * D;
        __syncthreads(); // the last tile's V has been read
        fill<T, D>(tile, STRIDE, k + at, KEYS, end - first_key, 1.f);
        __syncthreads();

        float score[ROWS] = {};
#pragma unroll 2
        for (int d = 0; d < D; d += 4) {
            const float4 key = *reinterpret_cast<const float4 *>(tile + lane * STRIDE + d);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const float4 x =
                    *reinterpret_cast<const float4 *>(queries + (warp * ROWS + r) * D + d);
                score[r] = fmaf(x.x, key.x, score[r]);
                score[r] = fmaf(x.y, key.y, score[r]);
                score[r] = fmaf(x.z, key.z, score[r]);
                score[r] = fmaf(x.w, key.w, score[r]);
            }
        }

        const int key = first_key + lane;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const bool seen = key < end && (!p.causal || key <= my_row + r + shift);
            const float s = seen ? score[r] : -INFINITY;
            float top = s;
#pragma unroll
            for (int step = LANES / 2; step; step /= 2)
                top = fmaxf(top, __shfl_xor_sync(ALL, top, step));
            top = fmaxf(top, highest[r]);
            // A row that has seen no key yet: any finite reference gives weights of 0 and not NaN.
            const float reference = top == -INFINITY ? 0.f : top;
            const float weight = exp2f(s - reference), keep = exp2f(highest[r] - reference);
            highest[r] = top;
            sum[r] = sum[r] * keep + weight;
#pragma unroll
            for (int c = 0; c < CHANNELS; c++) acc[r][c] *= keep;
            weights[warp][r][lane] = weight;
        }

        __syncthreads(); // K has been read, the weights are written
        fill<T, D>(tile, STRIDE, v + at, KEYS, end - first_key, 1.f);
        __syncthreads();

#pragma unroll 1
        for (int j = 0; j < KEYS; j += 4) {
            float value[4][CHANNELS];
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int c = 0; c < CHANNELS; c++)
                    value[i][c] = tile[(j + i) * STRIDE + c * LANES + lane];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const float4 w = *reinterpret_cast<const float4 *>(&weights[warp][r][j]);
#pragma unroll
                for (int c = 0; c < CHANNELS; c++) {
                    acc[r][c] = fmaf(w.x, value[0][c], acc[r][c]);
                    acc[r][c] = fmaf(w.y, value[1][c], acc[r][c]);
                    acc[r][c] = fmaf(w.z, value[2][c], acc[r][c]);
                    acc[r][c] = fmaf(w.w, value[3][c], acc[r][c]);
                }
            }
        }
    }

#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float total = sum[r];
#pragma unroll
        for (int step = LANES / 2; step; step /= 2) total += __shfl_xor_sync(ALL, total, step);
        const float inverse = total > 0.f ? 1.f / total : 0.f; // no visible key: the row is 0
        if (my_row + r < p.seqlen_q)
#pragma unroll
            for (int c = 0; c < CHANNELS; c++)
                store(out + r * D + c * LANES + lane, acc[r][c] * inverse);
    }
}

template <typename T, int D>
int launch(const attention_problem &p)
{
    const long long blocks = ((p.seqlen_q - 1LL) / BLOCK_ROWS + 1) * p.batch_heads;
    if (blocks > 0x7fffffff) return cudaErrorInvalidConfiguration;
    const cudaStream_t stream = static_cast<cudaStream_t>(p.stream);
    forward<T, D><<<static_cast<unsigned>(blocks), THREADS, 0, stream>>>(p);
    return cudaGetLastError();
}

} // namespace attention
