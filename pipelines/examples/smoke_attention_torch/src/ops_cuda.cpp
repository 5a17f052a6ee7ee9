// Attention on a GPU: what torch says of the tensors goes to the kernels as plain pointers.
//
// torch's CUDA library is not linked, but looked for among what is loaded: so this file needs no import
// library of it, and loads beside a torch without CUDA, for the functions of launch.h.
#include "check.h"
#include "launch.h"

#include <torch/csrc/stable/accelerator.h>

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>
#else
#include <dlfcn.h>
#endif

namespace attention {
namespace {

// aoti_torch_get_current_cuda_stream of the stable ABI.
using CurrentStream = AOTITorchError (*)(int32_t device, void **stream);

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

void *current_stream(int32_t device)
{
    static const CurrentStream current = find_current_stream();
    STD_TORCH_CHECK(current, "this torch has no CUDA");
    void *stream = nullptr;
    TORCH_ERROR_CODE_CHECK(current(device, &stream));
    return stream;
}

Tensor attention_cuda(const Tensor &q, const Tensor &k, const Tensor &v, bool causal,
                      std::optional<double> scale)
{
    const Sizes s = check(q, k, v, scale);
    const int32_t device = q.get_device_index();
    const torch::stable::accelerator::DeviceGuard guard(device);
    const Tensor whole_q = torch::stable::contiguous(q), whole_k = torch::stable::contiguous(k),
                 whole_v = torch::stable::contiguous(v), out = torch::stable::empty_like(whole_q);
    attention_problem p = {};
    p.q = whole_q.const_data_ptr();
    p.k = whole_k.const_data_ptr();
    p.v = whole_v.const_data_ptr();
    p.out = out.mutable_data_ptr();
    p.batch_heads = static_cast<int>(s.batch_heads);
    p.seqlen_q = static_cast<int>(s.seqlen_q);
    p.seqlen_k = static_cast<int>(s.seqlen_k);
    p.head_dim = static_cast<int>(s.head_dim);
    p.causal = causal;
    p.scale = static_cast<float>(s.scale);
    p.stream = current_stream(device);
    STD_TORCH_CHECK(s.head_dim == 32 || s.head_dim == 64 || s.head_dim == 96 || s.head_dim == 128,
                    "head_dim must be 32, 64, 96 or 128 on a GPU, is ", s.head_dim);
    const int error = smoke_attention_launch(&p, s.half);
    STD_TORCH_CHECK(error == 0, smoke_attention_error(error), " (CUDA error ", error, ")");
    return out;
}

Tensor attention_packed_cuda(const Tensor &qkv, bool causal, std::optional<double> scale)
{
    return packed(qkv, causal, scale, attention_cuda);
}

} // namespace
} // namespace attention

STABLE_TORCH_LIBRARY_IMPL(smoke_attention_torch, CUDA, library)
{
    library.impl("attention", TORCH_BOX(&attention::attention_cuda));
    library.impl("attention_packed", TORCH_BOX(&attention::attention_packed_cuda));
}
