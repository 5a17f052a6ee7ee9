// The operators' schemas, and attention on the CPU: two passes over the keys, in double.
#include "check.h"

#include <torch/headeronly/util/Half.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace attention {
namespace {

constexpr int64_t GRAIN = 8; // rows that a thread takes at least

template <typename T>
struct Arrays {
    const T *q, *k, *v;
    T *out;
};

double dot(const float *a, const float *b, int64_t size)
{
    double sum = 0;
    for (int64_t i = 0; i < size; i++) sum += static_cast<double>(a[i]) * b[i];
    return sum;
}

double dot(const torch::headeronly::Half *a, const torch::headeronly::Half *b, int64_t size)
{
    double sum = 0;
    for (int64_t i = 0; i < size; i++)
        sum += static_cast<double>(static_cast<float>(a[i])) * static_cast<float>(b[i]);
    return sum;
}

// One query over the first `keys` keys of its head.
template <typename T>
void answer(const Arrays<T> &a, const Sizes &s, int64_t row, int64_t keys, std::vector<double> &weights,
            std::vector<double> &sums)
{
    const int64_t d = s.head_dim, first = row / s.seqlen_q * s.seqlen_k * d;
    double highest = -std::numeric_limits<double>::infinity(), total = 0;
    for (int64_t j = 0; j < keys; j++) {
        weights[j] = s.scale * dot(a.q + row * d, a.k + first + j * d, d);
        highest = std::max(highest, weights[j]);
    }
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int64_t j = 0; j < keys; j++) {
        const double weight = std::exp(weights[j] - highest);
        total += weight;
        for (int64_t c = 0; c < d; c++)
            sums[c] += weight * static_cast<float>(a.v[first + j * d + c]);
    }
    for (int64_t c = 0; c < d; c++) // no visible key: the row is 0
        a.out[row * d + c] = static_cast<T>(static_cast<float>(keys ? sums[c] / total : 0.0));
}

template <typename T>
void forward(const Arrays<T> &a, const Sizes &s, bool causal)
{
    // A causal query i sees the keys up to i + shift, so the last query sees all of them.
    const int64_t shift = s.seqlen_k - s.seqlen_q, rows = s.batch_heads * s.seqlen_q;
    torch::stable::parallel_for(0, rows, GRAIN, [&](int64_t begin, int64_t end) {
        std::vector<double> weights(s.seqlen_k), sums(s.head_dim);
        for (int64_t row = begin; row < end; row++) {
            const int64_t last = row % s.seqlen_q + shift + 1;
            answer(a, s, row, causal ? std::max<int64_t>(last, 0) : s.seqlen_k, weights, sums);
        }
    });
}

template <typename T>
Tensor run(const Tensor &q, const Tensor &k, const Tensor &v, const Sizes &s, bool causal)
{
    const Tensor whole_q = torch::stable::contiguous(q), whole_k = torch::stable::contiguous(k),
                 whole_v = torch::stable::contiguous(v), out = torch::stable::empty_like(whole_q);
    const Arrays<T> arrays = {
        static_cast<const T *>(whole_q.const_data_ptr()), static_cast<const T *>(whole_k.const_data_ptr()),
        static_cast<const T *>(whole_v.const_data_ptr()), static_cast<T *>(out.mutable_data_ptr())};
    forward(arrays, s, causal);
    return out;
}

Tensor attention_cpu(const Tensor &q, const Tensor &k, const Tensor &v, bool causal,
                     std::optional<double> scale)
{
    const Sizes s = check(q, k, v, scale);
    return s.half ? run<torch::headeronly::Half>(q, k, v, s, causal) : run<float>(q, k, v, s, causal);
}

Tensor attention_packed_cpu(const Tensor &qkv, bool causal, std::optional<double> scale)
{
    return packed(qkv, causal, scale, attention_cpu);
}

} // namespace
} // namespace attention

STABLE_TORCH_LIBRARY(smoke_attention_torch, library)
{
    library.def("attention(Tensor q, Tensor k, Tensor v, bool causal=False, float? scale=None) -> Tensor");
    library.def("attention_packed(Tensor qkv, bool causal=False, float? scale=None) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(smoke_attention_torch, CPU, library)
{
    library.impl("attention", TORCH_BOX(&attention::attention_cpu));
    library.impl("attention_packed", TORCH_BOX(&attention::attention_packed_cpu));
}
