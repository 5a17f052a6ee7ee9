// From a head dimension and a type to the unit with its kernels. FLASH_HEAD_DIMS names the ones that
// are linked; all, by default.
#include "kernels.h"

#include <c10/cuda/CUDAException.h>

#include <cutlass/numeric_types.h>

#include "flash.h"

#include <cstdio>
#include <exception>
#include <initializer_list>
#include <stdexcept>
#include <type_traits>
#include <vector>

#ifndef FLASH_HEAD_DIMS
#define FLASH_HEAD_DIMS(X) X(32) X(64) X(96) X(128) X(192) X(256)
#endif

using namespace FLASH_NAMESPACE;

namespace {

// Calls `f` with the head dimension of the unit that `head_dim` belongs to.
template <typename F>
void with_head_dim(int head_dim, F f)
{
    int unit = 0; // upstream's steps, also where one of them is left out of a build
    for (int dim : {256, 192, 128, 96, 64, 32})
        if (head_dim <= dim) unit = dim;
    switch (unit) {
#define FLASH_CASE(dim) \
    case dim: \
        return f(std::integral_constant<int, dim>{});
        FLASH_HEAD_DIMS(FLASH_CASE)
#undef FLASH_CASE
    default:
        char text[100];
        snprintf(text, sizeof text, "this build has no kernels for head dimension %d", head_dim);
        throw std::runtime_error(text);
    }
}

// Calls `f` with a value of the parameters' element type and whether they are causal.
template <typename F>
void with_type(const Flash_fwd_params &params, F f)
{
    const auto causal = [&](auto element) {
        params.is_causal ? f(element, std::true_type{}) : f(element, std::false_type{});
    };
    params.is_bf16 ? causal(cutlass::bfloat16_t{}) : causal(cutlass::half_t{});
}

// Runs `f`; what it throws becomes text, for no exception may leave a C function.
template <typename F>
int guarded(flash_error *error, F f)
{
    try {
        f();
        return 0;
    } catch (const std::exception &thrown) {
        snprintf(error->text, sizeof error->text, "%s", thrown.what());
        return 1;
    }
}

template <typename Params>
Params &checked(void *params, size_t size)
{
    if (size != sizeof(Params)) throw std::runtime_error("flash.h is laid out in two ways in this build");
    cudaGetLastError(); // an error that others left behind is no failed launch of ours
    return *static_cast<Params *>(params);
}

int attribute(cudaDeviceAttr which, int device)
{
    int value = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
    return value;
}

std::vector<flash_device> all_devices()
{
    int count = 0;
    C10_CUDA_CHECK(cudaGetDeviceCount(&count));
    std::vector<flash_device> devices;
    for (int i = 0; i < count; i++)
        devices.push_back({attribute(cudaDevAttrComputeCapabilityMajor, i),
                           attribute(cudaDevAttrComputeCapabilityMinor, i),
                           attribute(cudaDevAttrMultiProcessorCount, i),
                           attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, i)});
    return devices;
}

} // namespace

int flash_cuda_versions(int *driver, int *runtime, flash_error *error)
{
    return guarded(error, [&] {
        C10_CUDA_CHECK(cudaDriverGetVersion(driver));
        C10_CUDA_CHECK(cudaRuntimeGetVersion(runtime));
    });
}

int flash_current_device(flash_device *device, flash_error *error)
{
    return guarded(error, [&] {
        static const std::vector<flash_device> devices = all_devices();
        int index = 0;
        C10_CUDA_CHECK(cudaGetDevice(&index));
        *device = devices.at(index);
    });
}

int flash_check_backward(const flash_device *device, int head_dim, int dropout, flash_error *error)
{
    return guarded(error, [&] {
        // run_mha_bwd_hdim256 launches nothing there, and leaves the gradients as they were.
        const int least = 144 * 1024;
        if (head_dim <= 192 || !dropout || device->shared_memory >= least) return;
        char text[200];
        snprintf(text, sizeof text,
                 "no backward pass with dropout for head dimension %d on this GPU: it needs %d KiB of "
                 "shared memory for a block, and there are %d",
                 head_dim, least / 1024, device->shared_memory / 1024);
        throw std::runtime_error(text);
    });
}

int flash_forward(void *params, size_t size, void *stream, int force_split, flash_error *error)
{
    return guarded(error, [&] {
        auto &p = checked<Flash_fwd_params>(params, size);
        with_head_dim(p.d, [&](auto dim) {
            with_type(p, [&](auto element, auto causal) {
                using Element = decltype(element);
                if (p.num_splits > 1 || force_split)
                    run_mha_fwd_splitkv_dispatch<Element, decltype(dim)::value, decltype(causal)::value>(p, static_cast<cudaStream_t>(stream));
                else
                    run_mha_fwd_<Element, decltype(dim)::value, decltype(causal)::value>(p, static_cast<cudaStream_t>(stream));
            });
        });
    });
}

int flash_backward(void *params, size_t size, void *stream, flash_error *error)
{
    return guarded(error, [&] {
        auto &p = checked<Flash_bwd_params>(params, size);
        with_head_dim(p.d, [&](auto dim) {
            with_type(p, [&](auto element, auto causal) {
                run_mha_bwd_<decltype(element), decltype(dim)::value, decltype(causal)::value>(p, static_cast<cudaStream_t>(stream));
            });
        });
    });
}
