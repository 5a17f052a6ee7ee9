// FlashAttention 2's five operators on torch's stable ABI, in place of upstream's flash_api.cpp: one
// library for every torch from 2.10 on and every Python. Tensors, memory, streams and random numbers
// come from torch by functions of C; CUDA is behind kernels.h.
//
// Arguments and results are those of flash_attn 2.8's own extension but for `out` and `gen`, which
// the Python module flash_attn_2_cuda handles. Its README lists where behaviour differs.
#include "kernels.h"

#include "flash.h" // with include/ATen/cuda/CUDAGeneratorImpl.h

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>
#else
#include <dlfcn.h>
#endif

namespace {

namespace stable = torch::stable;
using FLASH_NAMESPACE::Flash_bwd_params;
using FLASH_NAMESPACE::Flash_fwd_params;
using stable::Tensor;
using torch::headeronly::ScalarType;
using MaybeTensor = std::optional<Tensor>;
using Sizes = std::vector<int64_t>;
using SizesView = torch::headeronly::IntHeaderOnlyArrayRef;

constexpr double LOG2_E = 1.4426950408889634074;
constexpr float INF = std::numeric_limits<float>::infinity();

// ---- checks of arguments ------------------------------------------------------------------------

std::string to_text(SizesView sizes)
{
    std::string text = "(";
    for (size_t i = 0; i < sizes.size(); i++) text += (i ? ", " : "") + std::to_string(sizes[i]);
    return text + ")";
}

void check_shape(const char *name, const Tensor &x, SizesView sizes)
{
    STD_TORCH_CHECK(x.sizes().equals(sizes), name, " must have shape ", to_text(sizes), ", has ", to_text(x.sizes()));
}

void check_dim(const char *name, const Tensor &x, int64_t dim)
{
    STD_TORCH_CHECK(x.dim() == dim, name, " must have ", dim, " dimensions, has ", x.dim());
}

void check_last_stride(const char *name, const Tensor &x)
{
    STD_TORCH_CHECK(x.stride(x.dim() - 1) == 1, name, " must have contiguous last dimension");
}

void check_contiguous(const char *name, const Tensor &x)
{
    STD_TORCH_CHECK(x.is_contiguous(), name, " must be contiguous");
}

void check_int32(const char *name, const Tensor &x)
{
    STD_TORCH_CHECK(x.scalar_type() == ScalarType::Int, name, " must have dtype int32");
}

void check_like_q(const char *name, const Tensor &x, const Tensor &q)
{
    STD_TORCH_CHECK(x.scalar_type() == q.scalar_type(), name, " must have the same dtype as q");
    check_last_stride(name, x);
}

// An int32 vector with a number for each sequence of the batch.
void check_per_sequence(const char *name, const MaybeTensor &x, int64_t batch)
{
    if (!x) return;
    check_int32(name, *x);
    check_contiguous(name, *x);
    check_shape(name, *x, {batch});
}

void check_qkv(const Tensor &q, const Tensor &k, const Tensor &v, int64_t dim_q, int64_t dim_kv,
               const char *k_name = "k", const char *v_name = "v")
{
    const ScalarType type = q.scalar_type();
    STD_TORCH_CHECK(type == ScalarType::Half || type == ScalarType::BFloat16,
                    "FlashAttention only supports fp16 and bf16, q has another dtype");
    check_dim("q", q, dim_q);
    check_dim(k_name, k, dim_kv);
    check_dim(v_name, v, dim_kv);
    check_like_q("q", q, q);
    check_like_q(k_name, k, q);
    check_like_q(v_name, v, q);
}

void check_alibi(const MaybeTensor &slopes, int64_t batch, int64_t heads)
{
    if (!slopes) return;
    STD_TORCH_CHECK(slopes->scalar_type() == ScalarType::Float, "alibi_slopes must have dtype float32");
    const SizesView sizes = slopes->sizes();
    STD_TORCH_CHECK(sizes.equals({heads}) || sizes.equals({batch, heads}),
                    "alibi_slopes must have shape (heads) or (batch, heads), has ", to_text(sizes));
    check_last_stride("alibi_slopes", *slopes);
}

using Named = std::pair<const char *, MaybeTensor>;

// The last of the checks: all others can be made, and tested, without a GPU.
void check_devices(const Tensor &q, std::initializer_list<Named> tensors)
{
    STD_TORCH_CHECK(q.is_cuda(), "q must be on CUDA");
    for (const auto &[name, x] : tensors) {
        if (!x) continue;
        STD_TORCH_CHECK(x->is_cuda(), name, " must be on CUDA");
        STD_TORCH_CHECK(x->device() == q.device(), name, " must be on the same device as q");
    }
}

int to_int(const char *name, int64_t value)
{
    STD_TORCH_CHECK(value >= INT_MIN && value <= INT_MAX, name, " does not fit in 32 bits: ", value);
    return static_cast<int>(value);
}

// ---- torch, where its stable ABI of 2.10 has no function of its own -----------------------------

using CurrentStream = AOTITorchError (*)(int32_t, void **);

// Of torch's CUDA library, looked up among what is loaded: so this library needs no import library of
// it, and loads next to a torch without CUDA.
CurrentStream find_current_stream()
{
    const char *name = "aoti_torch_get_current_cuda_stream";
#ifdef _WIN32
    const HMODULE torch = GetModuleHandleA("torch_cuda.dll");
    return torch ? reinterpret_cast<CurrentStream>(reinterpret_cast<void *>(GetProcAddress(torch, name)))
                 : nullptr;
#else
    void *torch = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    return torch ? reinterpret_cast<CurrentStream>(dlsym(torch, name)) : nullptr;
#endif
}

void *current_stream(const Tensor &x)
{
    static const CurrentStream get = find_current_stream();
    STD_TORCH_CHECK(get, "this torch has no aoti_torch_get_current_cuda_stream: is it built for CUDA?");
    void *stream = nullptr;
    TORCH_ERROR_CODE_CHECK(get(x.get_device_index(), &stream));
    return stream;
}

// An uninitialised tensor on the device of `like`. stable::new_empty is the same by way of torch's
// dispatcher, which looks its operator up by name at each call.
Tensor new_tensor(const Tensor &like, SizesView sizes, SizesView strides, int32_t type)
{
    int32_t device = 0;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device));
    AtenTensorHandle made = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(),
                                                    type, device, like.get_device_index(), &made));
    return Tensor(made);
}

Tensor new_tensor(const Tensor &like, SizesView sizes, int32_t type)
{
    std::array<int64_t, 5> strides; // of the most dimensions that anything here has
    int64_t step = 1;
    for (size_t i = sizes.size(); i-- > 0; step *= std::max<int64_t>(sizes[i], 1)) strides[i] = step;
    return new_tensor(like, sizes, SizesView(strides.data(), sizes.size()), type);
}

Tensor new_float(const Tensor &like, SizesView sizes) { return new_tensor(like, sizes, aoti_torch_dtype_float32()); }

int32_t dtype_of(const Tensor &x)
{
    int32_t type = 0;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(x.get(), &type));
    return type;
}

Tensor new_like(const Tensor &x)
{
    // Strides of another order stay in that order, which is for torch to see to.
    return x.is_contiguous() ? new_tensor(x, x.sizes(), x.strides(), dtype_of(x)) : stable::empty_like(x);
}

Tensor reshaped(const Tensor &x, SizesView sizes) { return stable::reshape(x, sizes); }

// Two random int64 on the device, from torch's default generator there, as the kernels' seed and
// offset: so torch.manual_seed counts, and a captured graph draws new ones at each replay. The Philox
// state itself is not in the stable ABI. https://github.com/Dao-AILab/flash-attention/pull/2688
Tensor draw_seed(const Tensor &like)
{
    Tensor seed = new_tensor(like, {2}, aoti_torch_dtype_int64());
    std::array<StableIValue, 2> stack = {stable::detail::from(seed), stable::detail::from(std::nullopt)};
    TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::random_", "", stack.data(), TORCH_ABI_VERSION));
    (void)stable::detail::to<Tensor>(stack[0]); // the reference that was returned
    return seed;
}

void sum_into(Tensor &out, const Tensor &x, int64_t dim)
{
    const std::array<int64_t, 1> dims = {dim};
    stable::copy_(out, stable::sum(x, SizesView(dims)));
}

// Makes the tensor's device the current one, and says what it is.
struct Device {
    stable::accelerator::DeviceGuard guard;
    flash_device facts = {};

    explicit Device(const Tensor &q) : guard(q.get_device_index())
    {
        flash_error error = {};
        STD_TORCH_CHECK(!flash_current_device(&facts, &error), error.text);
        STD_TORCH_CHECK(facts.major >= 8, "FlashAttention needs an Ampere GPU or newer: this one has compute "
                                          "capability ", facts.major, ".", facts.minor);
    }
};

// ---- parameters of the kernels ------------------------------------------------------------------

int round_up(int64_t x, int64_t multiple) { return static_cast<int>((x + multiple - 1) / multiple * multiple); }

struct Shape {
    int batch, seqlen_q, seqlen_k, heads, heads_k, dim;

    int dim_rounded() const { return round_up(dim, dim <= 128 ? 32 : 64); }
    int groups() const { return heads / heads_k; }

    void check(bool any_dim = false) const
    {
        STD_TORCH_CHECK(batch > 0, "batch size must be positive");
        STD_TORCH_CHECK(heads_k > 0 && heads % heads_k == 0,
                        "number of heads of k and v must divide that of q: ", heads_k, " and ", heads);
        STD_TORCH_CHECK(dim > 0 && dim <= 256, "FlashAttention only supports head dimensions up to 256, not ", dim);
        STD_TORCH_CHECK(any_dim || dim % 8 == 0, "head dimension must be a multiple of 8, is ", dim);
    }
};

Shape shape_of(const Tensor &q, const Tensor &k)
{
    return {to_int("batch", q.size(0)), to_int("seqlen_q", q.size(1)), to_int("seqlen_k", k.size(1)),
            to_int("heads", q.size(2)), to_int("heads_k", k.size(2)), to_int("head_dim", q.size(3))};
}

// How scores become weights.
struct Softmax {
    float dropout, scale;
    bool causal;
    int left, right; // of the window; -1: without end
    float softcap;

    Softmax(double p_dropout, double softmax_scale, bool is_causal, int64_t window_size_left,
            int64_t window_size_right, double cap)
        : dropout(static_cast<float>(p_dropout)), scale(static_cast<float>(softmax_scale)), causal(is_causal),
          left(to_int("window_size_left", window_size_left)), right(to_int("window_size_right", window_size_right)),
          softcap(static_cast<float>(cap))
    {
        STD_TORCH_CHECK(dropout >= 0.f && dropout < 1.f, "p_dropout must be at least 0 and less than 1");
        STD_TORCH_CHECK(softcap <= 0.f || dropout == 0.f, "softcap does not support dropout");
    }

    void clip_window(int seqlen_k)
    {
        if (left >= seqlen_k) left = -1;
        if (right >= seqlen_k) right = -1;
    }

    // A single query sees all keys, causal or not; only ALiBi's bias depends on its position.
    void settle_causal(int seqlen_q, bool alibi)
    {
        if (seqlen_q == 1 && !alibi) causal = false;
        if (causal) right = 0;
    }

    // A single query of grouped heads: the heads of a group become the rows of one block of queries.
    bool can_swap_groups(const Shape &s, bool alibi) const
    {
        return s.seqlen_q == 1 && s.heads > s.heads_k && left < 0 && right < 0 && dropout == 0.f && s.dim % 8 == 0 &&
               !alibi;
    }
};

void fill(Flash_fwd_params &p, const Shape &s, const Softmax &softmax, const Tensor &q, const Tensor &k,
          const Tensor &v, const Tensor &out, const Tensor &lse)
{
    p.is_bf16 = q.scalar_type() == ScalarType::BFloat16;
    p.q_ptr = q.mutable_data_ptr();
    p.k_ptr = k.mutable_data_ptr();
    p.v_ptr = v.mutable_data_ptr();
    p.o_ptr = out.mutable_data_ptr();
    p.softmax_lse_ptr = lse.mutable_data_ptr();
    const auto row = [](const Tensor &x) { return x.stride(x.dim() - 3); };
    const auto head = [](const Tensor &x) { return x.stride(x.dim() - 2); };
    p.q_row_stride = row(q), p.q_head_stride = head(q);
    p.k_row_stride = row(k), p.k_head_stride = head(k);
    p.v_row_stride = row(v), p.v_head_stride = head(v);
    p.o_row_stride = row(out), p.o_head_stride = head(out);
    p.b = s.batch, p.h = s.heads, p.h_k = s.heads_k, p.h_h_k_ratio = s.groups();
    p.seqlen_q = s.seqlen_q, p.seqlen_k = s.seqlen_k;
    p.seqlen_q_rounded = round_up(s.seqlen_q, 128), p.seqlen_k_rounded = round_up(s.seqlen_k, 128);
    p.d = s.dim, p.d_rounded = s.dim_rounded();
    if (softmax.softcap > 0.f) { // the kernels put the cap outside, and the scale within it
        p.softcap = softmax.scale / softmax.softcap;
        p.scale_softmax = softmax.softcap;
        p.scale_softmax_log2 = static_cast<float>(softmax.softcap * LOG2_E);
    } else {
        p.softcap = 0.f;
        p.scale_softmax = softmax.scale;
        p.scale_softmax_log2 = static_cast<float>(softmax.scale * LOG2_E);
    }
    p.p_dropout = 1.f - softmax.dropout; // the share that is kept
    p.p_dropout_in_uint8_t = static_cast<uint8_t>(std::floor(p.p_dropout * 255.0));
    p.rp_dropout = 1.f / p.p_dropout;
    p.scale_softmax_rp_dropout = p.rp_dropout * p.scale_softmax;
    p.is_causal = softmax.left < 0 && softmax.right == 0;
    p.window_size_left = softmax.left < 0 && softmax.right >= 0 ? s.seqlen_k : softmax.left;
    p.window_size_right = softmax.left >= 0 && softmax.right < 0 ? s.seqlen_k : softmax.right;
    p.is_seqlens_k_cumulative = true;
}

void set_batch_strides(Flash_fwd_params &p, const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &out)
{
    p.q_batch_stride = q.stride(0);
    p.k_batch_stride = k.stride(0);
    p.v_batch_stride = v.stride(0);
    p.o_batch_stride = out.stride(0);
}

int *ints(const Tensor &x) { return static_cast<int *>(x.mutable_data_ptr()); }
int *ints(const MaybeTensor &x) { return x ? ints(*x) : nullptr; }

void set_alibi(Flash_fwd_params &p, const MaybeTensor &slopes)
{
    if (!slopes) return;
    p.alibi_slopes_ptr = slopes->mutable_data_ptr();
    p.alibi_slopes_batch_stride = slopes->dim() == 2 ? slopes->stride(0) : 0;
}

void set_pages(Flash_fwd_params &p, const MaybeTensor &block_table, int page)
{
    p.page_block_size = page;
    if (!block_table) return;
    p.block_table = ints(*block_table);
    p.block_table_batch_stride = block_table->stride(0);
}

// Into how many parts keys are split so that all multiprocessors have work: the least number whose
// waves are at least 85 % as full as the fullest of any number. As upstream's heuristic.
int best_split(int blocks, int processors, int key_blocks, int most)
{
    if (blocks >= 0.8f * processors) return 1;
    most = std::min({most, processors, key_blocks});
    const auto per_part = [&](int parts) { return (key_blocks + parts - 1) / parts; };
    const auto efficiency = [&](int parts) {
        if (parts > 1 && per_part(parts) == per_part(parts - 1)) return 0.f; // the last would be empty
        const float waves = static_cast<float>(blocks * parts) / processors;
        return waves / std::ceil(waves);
    };
    float best = 0.f;
    for (int parts = 1; parts <= most; parts++) best = std::max(best, efficiency(parts));
    for (int parts = 1; parts <= most; parts++)
        if (const float found = efficiency(parts); found > 0.f && found >= 0.85 * best) return parts;
    return 1;
}

// What the parts are accumulated in; it has to live until the kernels are enqueued.
std::pair<MaybeTensor, MaybeTensor> set_splits(Flash_fwd_params &p, const Shape &s, const Softmax &softmax,
                                               int64_t asked, int processors, const Tensor &like)
{
    constexpr int most = 128;
    p.num_splits = to_int("num_splits", asked);
    if (softmax.dropout != 0.f) return {};
    const int block = s.dim <= 64 ? 256 : s.dim <= 128 ? 128 : 64; // of run_mha_fwd_splitkv_dispatch
    if (asked < 1)
        p.num_splits = best_split(s.batch * s.heads * ((s.seqlen_q + 63) / 64), processors * 2,
                                  (s.seqlen_k + block - 1) / block, most);
    STD_TORCH_CHECK(p.num_splits <= most, "num_splits must be at most ", most);
    if (p.num_splits <= 1) return {};
    Tensor lse = new_float(like, {p.num_splits, s.batch, s.heads, s.seqlen_q});
    Tensor out = new_float(like, {p.num_splits, s.batch, s.heads, s.seqlen_q, s.dim_rounded()});
    p.softmax_lseaccum_ptr = lse.mutable_data_ptr();
    p.oaccum_ptr = out.mutable_data_ptr();
    return {lse, out};
}

// The seed, which has to live as long.
MaybeTensor set_dropout(Flash_fwd_params &p, const Softmax &softmax, const Tensor &like)
{
    if (softmax.dropout == 0.f) return {};
    Tensor seed = draw_seed(like);
    const auto *numbers = static_cast<const int64_t *>(seed.const_data_ptr());
    p.philox_args.captured_ = true;
    p.philox_args.seed_.ptr = numbers;
    p.philox_args.offset_.ptr = numbers + 1;
    return seed;
}

void run_forward(Flash_fwd_params &p, const Tensor &q, bool force_split)
{
    flash_error error = {};
    STD_TORCH_CHECK(!flash_forward(&p, sizeof p, current_stream(q), force_split, &error), error.text);
}

// ---- the operators ------------------------------------------------------------------------------

using Forward = std::tuple<Tensor, Tensor, Tensor, Tensor>; // out, softmax_lse, S_dmask, rng_state

Tensor new_mask(const Tensor &q, const Shape &s, bool asked)
{
    if (!asked) return new_tensor(q, {0}, dtype_of(q));
    return new_tensor(q, {s.batch, s.heads, round_up(s.seqlen_q, 128), round_up(s.seqlen_k, 128)}, dtype_of(q));
}

Forward fwd(Tensor q, Tensor k, Tensor v, MaybeTensor alibi_slopes, double p_dropout, double softmax_scale,
            bool is_causal, int64_t window_size_left, int64_t window_size_right, double softcap, bool return_softmax)
{
    Softmax softmax(p_dropout, softmax_scale, is_causal, window_size_left, window_size_right, softcap);
    check_qkv(q, k, v, 4, 4);
    Shape s = shape_of(q, k);
    s.check();
    check_shape("k", k, {s.batch, s.seqlen_k, s.heads_k, s.dim});
    check_shape("v", v, {s.batch, s.seqlen_k, s.heads_k, s.dim});
    check_alibi(alibi_slopes, s.batch, s.heads);
    STD_TORCH_CHECK(!return_softmax || softmax.dropout > 0.f, "return_softmax needs p_dropout > 0");
    check_devices(q, {{"k", k}, {"v", v}, {"alibi_slopes", alibi_slopes}});
    const Device device(q);

    softmax.clip_window(s.seqlen_k);
    softmax.settle_causal(s.seqlen_q, alibi_slopes.has_value());
    const int groups = s.groups();
    const bool swapped = softmax.can_swap_groups(s, alibi_slopes.has_value());
    if (swapped) {
        q = stable::transpose(reshaped(q, {s.batch, s.heads_k, groups, s.dim}), 1, 2);
        s.seqlen_q = groups, s.heads = s.heads_k;
    }
    Tensor out = new_like(q);
    Tensor lse = new_float(q, {s.batch, s.heads, s.seqlen_q});
    Tensor mask = new_mask(q, s, return_softmax);
    Tensor rng_state = new_tensor(q, {2}, aoti_torch_dtype_int64());

    Flash_fwd_params p = {};
    fill(p, s, softmax, q, k, v, out, lse);
    set_batch_strides(p, q, k, v, out);
    if (return_softmax) p.p_ptr = mask.mutable_data_ptr();
    const auto parts = set_splits(p, s, softmax, 0, device.facts.multiprocessors, q);
    p.rng_state = static_cast<uint64_t *>(rng_state.mutable_data_ptr());
    const MaybeTensor seed = set_dropout(p, softmax, q);
    set_alibi(p, alibi_slopes);
    if (s.seqlen_k == 0)
        stable::zero_(out), stable::fill_(lse, INF);
    else if (s.seqlen_q > 0)
        run_forward(p, q, false);
    if (swapped) {
        out = reshaped(stable::transpose(out, 1, 2), {s.batch, 1, int64_t{s.heads_k} * groups, s.dim});
        lse = reshaped(lse, {s.batch, int64_t{s.heads_k} * groups, 1});
    }
    return {out, lse, mask, rng_state};
}

Forward varlen_fwd(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor cu_seqlens_k, MaybeTensor seqused_k,
                   MaybeTensor leftpad_k, MaybeTensor block_table, MaybeTensor alibi_slopes, int64_t max_seqlen_q,
                   int64_t max_seqlen_k, double p_dropout, double softmax_scale, bool zero_tensors, bool is_causal,
                   int64_t window_size_left, int64_t window_size_right, double softcap, bool return_softmax)
{
    Softmax softmax(p_dropout, softmax_scale, is_causal, window_size_left, window_size_right, softcap);
    const bool paged = block_table.has_value();
    check_qkv(q, k, v, 3, paged ? 4 : 3);
    check_dim("cu_seqlens_q", cu_seqlens_q, 1);
    Shape s = {to_int("batch", cu_seqlens_q.numel() - 1), to_int("max_seqlen_q", max_seqlen_q),
               to_int("max_seqlen_k", max_seqlen_k), to_int("heads", q.size(1)),
               to_int("heads_k", k.size(paged ? 2 : 1)), to_int("head_dim", q.size(2))};
    s.check();
    check_per_sequence("cu_seqlens_q", cu_seqlens_q, s.batch + 1);
    check_per_sequence("cu_seqlens_k", cu_seqlens_k, s.batch + 1);
    const int page = paged ? to_int("page_block_size", k.size(1)) : 1;
    Sizes rows = {k.size(0)};
    if (paged) {
        check_int32("block_table", *block_table);
        check_dim("block_table", *block_table, 2);
        check_last_stride("block_table", *block_table);
        check_shape("block_table", *block_table, {s.batch, block_table->size(1)});
        STD_TORCH_CHECK(page % 256 == 0, "page_block_size must be a multiple of 256, is ", page);
        STD_TORCH_CHECK(max_seqlen_k <= block_table->size(1) * page, "max_seqlen_k is ", max_seqlen_k,
                        ", and the pages of a sequence hold ", block_table->size(1) * page);
        STD_TORCH_CHECK(!leftpad_k, "leftpad_k does not support paged keys");
        rows.push_back(page);
    }
    rows.insert(rows.end(), {s.heads_k, s.dim});
    check_shape("k", k, rows);
    check_shape("v", v, rows);
    check_per_sequence("seqused_k", seqused_k, s.batch);
    check_per_sequence("leftpad_k", leftpad_k, s.batch);
    check_alibi(alibi_slopes, s.batch, s.heads);
    STD_TORCH_CHECK(!return_softmax || softmax.dropout > 0.f, "return_softmax needs p_dropout > 0");
    check_devices(q, {{"k", k}, {"v", v}, {"cu_seqlens_q", cu_seqlens_q}, {"cu_seqlens_k", cu_seqlens_k},
                      {"seqused_k", seqused_k}, {"leftpad_k", leftpad_k}, {"block_table", block_table},
                      {"alibi_slopes", alibi_slopes}});
    const Device device(q);

    softmax.settle_causal(s.seqlen_q, alibi_slopes.has_value());
    const int groups = s.groups();
    const bool swapped = softmax.can_swap_groups(s, alibi_slopes.has_value());
    if (swapped) {
        q = reshaped(stable::transpose(reshaped(q, {s.batch, s.heads_k, groups, s.dim}), 1, 2),
                    {int64_t{s.batch} * groups, s.heads_k, s.dim});
        s.seqlen_q = groups, s.heads = s.heads_k;
    }
    softmax.clip_window(s.seqlen_k);
    Tensor out = new_like(q);
    const int total_q = to_int("total_q", q.size(0));
    Tensor lse = new_float(q, {s.heads, total_q});
    Tensor mask = new_mask(q, s, return_softmax);
    Tensor rng_state = new_tensor(q, {2}, aoti_torch_dtype_int64());
    if (zero_tensors) {
        stable::zero_(out), stable::fill_(lse, -INF);
        if (return_softmax) stable::zero_(mask);
    }

    Flash_fwd_params p = {};
    fill(p, s, softmax, q, k, v, out, lse);
    if (swapped) { // a sequence is as many rows as a group has heads
        p.q_batch_stride = q.stride(0) * groups;
        p.o_batch_stride = out.stride(0) * groups;
    } else
        p.cu_seqlens_q = ints(cu_seqlens_q);
    if (swapped || paged) p.k_batch_stride = k.stride(0), p.v_batch_stride = v.stride(0);
    p.cu_seqlens_k = ints(cu_seqlens_k);
    p.seqused_k = ints(seqused_k);
    p.leftpad_k = ints(leftpad_k);
    if (return_softmax) p.p_ptr = mask.mutable_data_ptr();
    p.unpadded_lse = true;
    p.seqlenq_ngroups_swapped = swapped;
    p.total_q = total_q;
    set_pages(p, block_table, page);
    std::pair<MaybeTensor, MaybeTensor> parts;
    if (swapped) parts = set_splits(p, s, softmax, 0, device.facts.multiprocessors, q);
    p.rng_state = static_cast<uint64_t *>(rng_state.mutable_data_ptr());
    const MaybeTensor seed = set_dropout(p, softmax, q);
    set_alibi(p, alibi_slopes);
    if (s.seqlen_k == 0)
        stable::zero_(out), stable::fill_(lse, INF);
    else if (s.seqlen_q > 0 && total_q > 0)
        run_forward(p, q, paged);
    if (swapped) {
        out = reshaped(stable::transpose(reshaped(out, {s.batch, groups, s.heads_k, s.dim}), 1, 2),
                      {s.batch, int64_t{s.heads_k} * groups, s.dim});
        lse = reshaped(lse, {int64_t{s.heads} * groups, s.batch});
    }
    return {out, lse, mask, rng_state};
}

struct Gradients {
    Tensor dout, q, k, v, out, lse, dq, dk, dv;
    MaybeTensor alibi_slopes, rng_state, cu_seqlens_q, cu_seqlens_k;
    bool deterministic, zero_tensors;

    bool varlen() const { return cu_seqlens_q.has_value(); }

    void check(const Shape &s, SizesView lse_shape) const
    {
        for (const auto &[name, x, same] : {std::tuple{"out", &out, &q}, {"dout", &dout, &q}, {"dq", &dq, &q},
                                            {"dk", &dk, &k}, {"dv", &dv, &k}, {"v", &v, &k}}) {
            check_like_q(name, *x, q);
            check_shape(name, *x, same->sizes());
        }
        STD_TORCH_CHECK(lse.scalar_type() == ScalarType::Float, "softmax_lse must have dtype float32");
        check_shape("softmax_lse", lse, lse_shape);
        check_contiguous("softmax_lse", lse);
        if (rng_state) {
            STD_TORCH_CHECK(rng_state->scalar_type() == ScalarType::Long, "rng_state must have dtype int64");
            check_shape("rng_state", *rng_state, {2});
            check_contiguous("rng_state", *rng_state);
        }
        check_alibi(alibi_slopes, s.batch, s.heads);
        // The kernels count the elements of one sequence's accumulator in 32 bits.
        // https://github.com/Dao-AILab/flash-attention/pull/2260
        const int64_t elements = int64_t{round_up(s.seqlen_q, 128)} * s.heads * s.dim_rounded();
        STD_TORCH_CHECK(elements <= INT_MAX, "the backward pass takes up to 2^31 elements of q for a sequence, not ",
                        elements);
        check_devices(q, {{"k", k}, {"v", v}, {"out", out}, {"dout", dout}, {"softmax_lse", lse}, {"dq", dq},
                          {"dk", dk}, {"dv", dv}, {"cu_seqlens_q", cu_seqlens_q}, {"cu_seqlens_k", cu_seqlens_k},
                          {"alibi_slopes", alibi_slopes}, {"rng_state", rng_state}});
    }

    // Fills dq, dk and dv; the sum of dout * out, which is returned.
    Tensor run(const Shape &s, Softmax softmax)
    {
        const Device device(q);
        flash_error error = {};
        STD_TORCH_CHECK(!flash_check_backward(&device.facts, s.dim, softmax.dropout > 0.f, &error), error.text);
        if (softmax.causal) softmax.right = 0;
        softmax.clip_window(s.seqlen_k);
        const int64_t padded = varlen() ? q.size(0) + 128 * int64_t{s.batch} : 0;
        const int rounded = round_up(s.seqlen_q, 128);
        Tensor d_sum = varlen() ? new_float(q, {s.heads, padded}) : new_float(q, {s.batch, s.heads, rounded});
        Sizes accumulated = varlen() ? Sizes{padded, s.heads, s.dim_rounded()}
                                     : Sizes{s.batch, rounded, s.heads, s.dim_rounded()};
        if (deterministic) { // one for each block of the grid that adds to the same rows
            const int64_t rows = int64_t{s.batch} * s.heads;
            accumulated.insert(accumulated.begin(), (device.facts.multiprocessors + rows - 1) / rows);
        }
        Tensor dq_sum =
            deterministic ? stable::new_zeros(q, accumulated, ScalarType::Float) : new_float(q, accumulated);
        // Of grouped heads each query head has its own, which are summed in the end.
        const bool grouped = s.heads != s.heads_k;
        Sizes expanded = k.sizes().vec();
        expanded[expanded.size() - 2] = s.heads;
        Tensor dk_all = grouped ? stable::new_empty(k, expanded) : dk;
        Tensor dv_all = grouped ? stable::new_empty(k, expanded) : dv;
        if (zero_tensors) stable::zero_(dq), stable::zero_(dk_all), stable::zero_(dv_all), stable::zero_(d_sum);

        Flash_bwd_params p = {};
        fill(p, s, softmax, q, k, v, out, lse);
        p.unpadded_lse = varlen();
        if (varlen()) {
            p.cu_seqlens_q = ints(cu_seqlens_q);
            p.cu_seqlens_k = ints(cu_seqlens_k);
            p.total_q = to_int("total_q", q.size(0));
        } else
            set_batch_strides(p, q, k, v, out);
        const auto set = [&](const Tensor &x, auto &data, int64_t &batch, int64_t &row, int64_t &head) {
            data = x.mutable_data_ptr();
            row = x.stride(x.dim() - 3), head = x.stride(x.dim() - 2);
            if (!varlen()) batch = x.stride(0);
        };
        // Pointers of Flash_bwd_params are `__restrict__`, to which no plain reference binds.
        void *data = nullptr;
        set(dout, data, p.do_batch_stride, p.do_row_stride, p.do_head_stride), p.do_ptr = data;
        set(dq, data, p.dq_batch_stride, p.dq_row_stride, p.dq_head_stride), p.dq_ptr = data;
        set(dk_all, data, p.dk_batch_stride, p.dk_row_stride, p.dk_head_stride), p.dk_ptr = data;
        set(dv_all, data, p.dv_batch_stride, p.dv_row_stride, p.dv_head_stride), p.dv_ptr = data;
        p.dq_accum_ptr = dq_sum.mutable_data_ptr();
        p.dsoftmax_sum = d_sum.mutable_data_ptr();
        p.deterministic = deterministic;
        p.dq_accum_split_stride = deterministic ? dq_sum.stride(0) : 0;
        MaybeTensor seed = rng_state;
        if (!seed && softmax.dropout > 0.f) seed = draw_seed(q);
        if (seed) p.rng_state = static_cast<uint64_t *>(seed->mutable_data_ptr());
        set_alibi(p, alibi_slopes);
        if (s.seqlen_q > 0 && s.seqlen_k > 0 && q.numel() > 0) {
            STD_TORCH_CHECK(!flash_backward(&p, sizeof p, current_stream(q), &error), error.text);
        } else
            stable::zero_(dq), stable::zero_(dk_all), stable::zero_(dv_all), stable::zero_(d_sum);
        if (grouped) {
            Sizes groups = k.sizes().vec();
            groups.insert(groups.end() - 1, s.groups());
            const auto dim = static_cast<int64_t>(groups.size()) - 2;
            sum_into(dk, reshaped(dk_all, groups), dim);
            sum_into(dv, reshaped(dv_all, groups), dim);
        }
        return d_sum;
    }
};

Tensor bwd(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor softmax_lse, Tensor dq, Tensor dk, Tensor dv,
           MaybeTensor alibi_slopes, double p_dropout, double softmax_scale, bool is_causal, int64_t window_size_left,
           int64_t window_size_right, double softcap, bool deterministic, MaybeTensor rng_state)
{
    const Softmax softmax(p_dropout, softmax_scale, is_causal, window_size_left, window_size_right, softcap);
    check_qkv(q, k, v, 4, 4);
    const Shape s = shape_of(q, k);
    s.check();
    check_shape("k", k, {s.batch, s.seqlen_k, s.heads_k, s.dim});
    Gradients gradients = {dout, q, k, v, out, softmax_lse, dq, dk, dv, alibi_slopes, rng_state, {}, {},
                           deterministic, false};
    gradients.check(s, {s.batch, s.heads, s.seqlen_q});
    return gradients.run(s, softmax);
}

Tensor varlen_bwd(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor softmax_lse, Tensor dq, Tensor dk,
                  Tensor dv, Tensor cu_seqlens_q, Tensor cu_seqlens_k, MaybeTensor alibi_slopes, int64_t max_seqlen_q,
                  int64_t max_seqlen_k, double p_dropout, double softmax_scale, bool zero_tensors, bool is_causal,
                  int64_t window_size_left, int64_t window_size_right, double softcap, bool deterministic,
                  MaybeTensor rng_state)
{
    const Softmax softmax(p_dropout, softmax_scale, is_causal, window_size_left, window_size_right, softcap);
    check_qkv(q, k, v, 3, 3);
    check_dim("cu_seqlens_q", cu_seqlens_q, 1);
    const Shape s = {to_int("batch", cu_seqlens_q.numel() - 1), to_int("max_seqlen_q", max_seqlen_q),
                     to_int("max_seqlen_k", max_seqlen_k), to_int("heads", q.size(1)),
                     to_int("heads_k", k.size(1)), to_int("head_dim", q.size(2))};
    s.check();
    check_per_sequence("cu_seqlens_q", cu_seqlens_q, s.batch + 1);
    check_per_sequence("cu_seqlens_k", cu_seqlens_k, s.batch + 1);
    check_shape("k", k, {k.size(0), s.heads_k, s.dim});
    Gradients gradients = {dout, q, k, v, out, softmax_lse, dq, dk, dv, alibi_slopes, rng_state, cu_seqlens_q,
                           cu_seqlens_k, deterministic, zero_tensors};
    gradients.check(s, {s.heads, q.size(0)});
    return gradients.run(s, softmax);
}

std::tuple<Tensor, Tensor> fwd_kvcache(Tensor q, Tensor kcache, Tensor vcache, MaybeTensor k, MaybeTensor v,
                                       MaybeTensor seqlens_k, MaybeTensor rotary_cos, MaybeTensor rotary_sin,
                                       MaybeTensor cache_batch_idx, MaybeTensor leftpad_k, MaybeTensor block_table,
                                       MaybeTensor alibi_slopes, double softmax_scale, bool is_causal,
                                       int64_t window_size_left, int64_t window_size_right, double softcap,
                                       bool is_rotary_interleaved, int64_t num_splits)
{
    Softmax softmax(0, softmax_scale, is_causal, window_size_left, window_size_right, softcap);
    const bool paged = block_table.has_value();
    check_qkv(q, kcache, vcache, 4, 4, "kcache", "vcache");
    Shape s = shape_of(q, kcache);
    s.check(true);
    const int page = paged ? to_int("page_block_size", kcache.size(1)) : 1;
    if (paged) {
        STD_TORCH_CHECK(!cache_batch_idx, "cache_batch_idx does not support a paged cache");
        STD_TORCH_CHECK(!leftpad_k, "leftpad_k does not support a paged cache");
        check_int32("block_table", *block_table);
        check_dim("block_table", *block_table, 2);
        check_last_stride("block_table", *block_table);
        check_shape("block_table", *block_table, {s.batch, block_table->size(1)});
        STD_TORCH_CHECK(page % 256 == 0, "page_block_size must be a multiple of 256, is ", page);
        s.seqlen_k = to_int("seqlen_k", block_table->size(1) * page);
    } else
        STD_TORCH_CHECK(cache_batch_idx || kcache.size(0) >= s.batch, "kcache has ", kcache.size(0),
                        " sequences, and q ", s.batch);
    check_shape("kcache", kcache, {kcache.size(0), kcache.size(1), s.heads_k, s.dim});
    check_shape("vcache", vcache, kcache.sizes());
    if (k) {
        STD_TORCH_CHECK(v, "v is missing: k and v are given together");
        STD_TORCH_CHECK(seqlens_k, "seqlens_k is missing: it says where k and v are appended");
        STD_TORCH_CHECK(s.seqlen_q <= s.seqlen_k, "q has ", s.seqlen_q, " rows, and the cache holds ", s.seqlen_k);
        check_dim("k", *k, 4);
        check_like_q("k", *k, q);
        check_like_q("v", *v, q);
        check_shape("k", *k, {s.batch, k->size(1), s.heads_k, s.dim});
        check_shape("v", *v, k->sizes());
    } else
        STD_TORCH_CHECK(!v, "k is missing: k and v are given together");
    check_per_sequence("seqlens_k", seqlens_k, s.batch);
    check_per_sequence("leftpad_k", leftpad_k, s.batch);
    check_per_sequence("cache_batch_idx", cache_batch_idx, s.batch);
    const int padding = (8 - s.dim % 8) % 8;
    if (rotary_cos) {
        STD_TORCH_CHECK(k, "rotary_cos needs k and v, which are rotated as they are appended");
        STD_TORCH_CHECK(rotary_sin, "rotary_sin is missing: it goes with rotary_cos");
        check_dim("rotary_cos", *rotary_cos, 2);
        const int64_t dim = rotary_cos->size(1) * 2;
        STD_TORCH_CHECK(dim <= s.dim + padding && dim % 16 == 0,
                        "rotary dimension must be a multiple of 16 up to the head dimension, is ", dim);
        STD_TORCH_CHECK(rotary_cos->size(0) >= s.seqlen_k, "rotary_cos has ", rotary_cos->size(0),
                        " rows, and the cache holds ", s.seqlen_k);
        check_like_q("rotary_cos", *rotary_cos, q);
        check_like_q("rotary_sin", *rotary_sin, q);
        check_contiguous("rotary_cos", *rotary_cos);
        check_contiguous("rotary_sin", *rotary_sin);
        check_shape("rotary_sin", *rotary_sin, rotary_cos->sizes());
    }
    check_alibi(alibi_slopes, s.batch, s.heads);
    check_devices(q, {{"kcache", kcache}, {"vcache", vcache}, {"k", k}, {"v", v}, {"seqlens_k", seqlens_k},
                      {"rotary_cos", rotary_cos}, {"rotary_sin", rotary_sin}, {"cache_batch_idx", cache_batch_idx},
                      {"leftpad_k", leftpad_k}, {"block_table", block_table}, {"alibi_slopes", alibi_slopes}});
    const Device device(q);

    softmax.settle_causal(s.seqlen_q, alibi_slopes.has_value());
    const int groups = s.groups();
    const bool swapped = softmax.can_swap_groups(s, alibi_slopes.has_value());
    if (swapped) {
        q = stable::transpose(reshaped(q, {s.batch, s.heads_k, groups, s.dim}), 1, 2);
        s.seqlen_q = groups, s.heads = s.heads_k;
    }
    softmax.clip_window(s.seqlen_k);
    const int dim = s.dim;
    s.dim += padding;
    const auto pad = [&](const Tensor &x) {
        const std::array<int64_t, 2> by = {0, padding};
        return padding ? stable::pad(x, by) : x;
    };
    q = pad(q);
    Tensor keys = pad(kcache), values = pad(vcache);
    Tensor out = new_like(q);
    Tensor lse = new_float(q, {s.batch, s.heads, s.seqlen_q});

    Flash_fwd_params p = {};
    fill(p, s, softmax, q, keys, values, out, lse);
    set_batch_strides(p, q, keys, values, out);
    MaybeTensor new_k, new_v;
    if (k) {
        new_k = pad(*k), new_v = pad(*v);
        p.seqlen_knew = to_int("seqlen_knew", k->size(1));
        p.knew_ptr = new_k->mutable_data_ptr(), p.vnew_ptr = new_v->mutable_data_ptr();
        p.knew_batch_stride = new_k->stride(0), p.vnew_batch_stride = new_v->stride(0);
        p.knew_row_stride = new_k->stride(1), p.vnew_row_stride = new_v->stride(1);
        p.knew_head_stride = new_k->stride(2), p.vnew_head_stride = new_v->stride(2);
    }
    p.cu_seqlens_k = ints(seqlens_k);
    p.is_seqlens_k_cumulative = !seqlens_k;
    p.leftpad_k = ints(leftpad_k);
    p.cache_batch_idx = ints(cache_batch_idx);
    if (rotary_cos) {
        p.rotary_dim = static_cast<int>(rotary_cos->size(1) * 2);
        p.rotary_cos_ptr = rotary_cos->mutable_data_ptr();
        p.rotary_sin_ptr = rotary_sin->mutable_data_ptr();
        p.is_rotary_interleaved = is_rotary_interleaved;
    }
    const auto parts = set_splits(p, s, softmax, num_splits, device.facts.multiprocessors, q);
    set_pages(p, block_table, page);
    set_alibi(p, alibi_slopes);
    if (s.seqlen_k == 0)
        stable::zero_(out), stable::fill_(lse, INF);
    else if (s.seqlen_q > 0) // appending and indexed or paged caches are in the split kernels alone
        run_forward(p, q, k || cache_batch_idx || paged);
    if (padding) {
        out = stable::narrow(out, 3, 0, dim);
        if (k) {
            stable::copy_(kcache, stable::narrow(keys, 3, 0, dim));
            stable::copy_(vcache, stable::narrow(values, 3, 0, dim));
        }
    }
    if (swapped) {
        out = reshaped(stable::transpose(out, 1, 2), {s.batch, 1, int64_t{s.heads_k} * groups, dim});
        lse = reshaped(lse, {s.batch, int64_t{s.heads_k} * groups, 1});
    }
    return {out, lse};
}

} // namespace

STABLE_TORCH_LIBRARY(flash_attn_2_cuda, library)
{
    library.def("fwd(Tensor q, Tensor k, Tensor v, Tensor? alibi_slopes, float p_dropout, float softmax_scale, "
                "bool is_causal, int window_size_left, int window_size_right, float softcap, bool return_softmax) "
                "-> (Tensor, Tensor, Tensor, Tensor)");
    library.def("varlen_fwd(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor cu_seqlens_k, "
                "Tensor? seqused_k, Tensor? leftpad_k, Tensor? block_table, Tensor? alibi_slopes, int max_seqlen_q, "
                "int max_seqlen_k, float p_dropout, float softmax_scale, bool zero_tensors, bool is_causal, "
                "int window_size_left, int window_size_right, float softcap, bool return_softmax) "
                "-> (Tensor, Tensor, Tensor, Tensor)");
    library.def("bwd(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor softmax_lse, Tensor(a!) dq, "
                "Tensor(b!) dk, Tensor(c!) dv, Tensor? alibi_slopes, float p_dropout, float softmax_scale, "
                "bool is_causal, int window_size_left, int window_size_right, float softcap, bool deterministic, "
                "Tensor? rng_state) -> Tensor");
    library.def("varlen_bwd(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor softmax_lse, "
                "Tensor(a!) dq, Tensor(b!) dk, Tensor(c!) dv, Tensor cu_seqlens_q, Tensor cu_seqlens_k, "
                "Tensor? alibi_slopes, int max_seqlen_q, int max_seqlen_k, float p_dropout, float softmax_scale, "
                "bool zero_tensors, bool is_causal, int window_size_left, int window_size_right, float softcap, "
                "bool deterministic, Tensor? rng_state) -> Tensor");
    library.def("fwd_kvcache(Tensor q, Tensor(a!) kcache, Tensor(b!) vcache, Tensor? k, Tensor? v, "
                "Tensor? seqlens_k, Tensor? rotary_cos, Tensor? rotary_sin, Tensor? cache_batch_idx, "
                "Tensor? leftpad_k, Tensor? block_table, Tensor? alibi_slopes, float softmax_scale, bool is_causal, "
                "int window_size_left, int window_size_right, float softcap, bool is_rotary_interleaved, "
                "int num_splits) -> (Tensor, Tensor)");
}

#define FLASH_OPERATORS                                 \
    library.impl("fwd", TORCH_BOX(&fwd));               \
    library.impl("varlen_fwd", TORCH_BOX(&varlen_fwd)); \
    library.impl("bwd", TORCH_BOX(&bwd));               \
    library.impl("varlen_bwd", TORCH_BOX(&varlen_bwd)); \
    library.impl("fwd_kvcache", TORCH_BOX(&fwd_kvcache));

STABLE_TORCH_LIBRARY_IMPL(flash_attn_2_cuda, CUDA, library) { FLASH_OPERATORS }
// On the CPU they only say what is wrong with their arguments: in the end, where the tensors are.
STABLE_TORCH_LIBRARY_IMPL(flash_attn_2_cuda, CPU, library) { FLASH_OPERATORS }
