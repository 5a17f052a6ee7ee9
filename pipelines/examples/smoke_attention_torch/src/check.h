// What both devices ask of their arguments, with torch's stable ABI alone: no header of CUDA, none of
// Python, and of torch only functions of C behind these headers.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <climits>
#include <cmath>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

namespace attention {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

struct Sizes {
    int64_t batch_heads, seqlen_q, seqlen_k, head_dim;
    bool half;
    double scale;
};

// The kernels count rows in an int, and round up to whole blocks.
constexpr int64_t MOST = INT_MAX - 64;

inline void check_like(const char *name, const Tensor &x, const Tensor &q)
{
    STD_TORCH_CHECK(x.device() == q.device(), name, " must be on the device of q");
    STD_TORCH_CHECK(x.scalar_type() == q.scalar_type(), name, " must have the dtype of q");
    STD_TORCH_CHECK(x.dim() == 4, name, " must be (batch, heads, seqlen, head_dim), has ", x.dim(),
                    " dimensions");
    for (int dim : {0, 1, 3})
        STD_TORCH_CHECK(x.size(dim) == q.size(dim), name, " has ", x.size(dim), " at dimension ", dim,
                        ", q has ", q.size(dim));
}

inline Sizes check(const Tensor &q, const Tensor &k, const Tensor &v, std::optional<double> scale)
{
    const ScalarType type = q.scalar_type();
    STD_TORCH_CHECK(type == ScalarType::Float || type == ScalarType::Half,
                    "q must be float32 or float16");
    check_like("q", q, q);
    check_like("k", k, q);
    check_like("v", v, q);
    STD_TORCH_CHECK(k.size(2) == v.size(2), "k and v must have the same seqlen, have ", k.size(2),
                    " and ", v.size(2));
    for (int dim = 0; dim < 4; dim++)
        STD_TORCH_CHECK(q.size(dim) > 0 && k.size(dim) > 0, "an empty tensor has no answer");
    const Sizes s = {q.size(0) * q.size(1), q.size(2), k.size(2), q.size(3), type == ScalarType::Half,
                     scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3))))};
    STD_TORCH_CHECK(s.batch_heads <= MOST && s.seqlen_q <= MOST && s.seqlen_k <= MOST,
                    "batch * heads and each seqlen must stay below 2**31 - 64");
    STD_TORCH_CHECK(std::isfinite(s.scale), "scale must be finite");
    return s;
}

// q, k or v of a packed tensor. It is torch that finds out that there is no such part; its error comes
// here as an exception, and goes on with what the caller can do about it.
inline Tensor part(const Tensor &qkv, int64_t index)
{
    try {
        return torch::stable::select(qkv, 1, index);
    } catch (const std::exception &error) {
        throw std::runtime_error(
            std::string("qkv must be (batch, 3, heads, seqlen, head_dim); torch says: ") + error.what());
    }
}

// `attend` is the device's own attention.
template <typename Attend>
Tensor packed(const Tensor &qkv, bool causal, std::optional<double> scale, Attend attend)
{
    const Tensor v = part(qkv, 2);
    STD_TORCH_CHECK(qkv.size(1) == 3, "qkv has ", qkv.size(1), " parts at dimension 1, not 3");
    return attend(part(qkv, 0), part(qkv, 1), v, causal, scale);
}

} // namespace attention
