/* FlashAttention's kernels behind plain C functions: all that the torch layer knows of CUDA.
 *
 * Each returns 0, or 1 and the reason in `error`. `params` is a struct of flash.h, of which `size`
 * is the caller's sizeof: two compilers that lay it out differently are refused. */
#pragma once
#include <stddef.h>

#ifdef _WIN32
#define FLASH_EXPORT __declspec(dllexport)
#else
#define FLASH_EXPORT __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif
struct flash_error {
    char text[600];
};
struct flash_device {
    int major, minor;    /* compute capability */
    int multiprocessors;
    int shared_memory;   /* bytes that a block can opt in to */
};
/* The CUDA releases of the driver and of this library's own runtime, as 1000 * major + 10 * minor;
 * the driver's is 0 where there is none. No device is needed. */
FLASH_EXPORT int flash_cuda_versions(int *driver, int *runtime, struct flash_error *error);
/* The current device of this thread. */
FLASH_EXPORT int flash_current_device(struct flash_device *device, struct flash_error *error);
/* Whether that device has a backward kernel for a head dimension, with or without dropout. */
FLASH_EXPORT int flash_check_backward(const struct flash_device *device, int head_dim, int dropout,
                                      struct flash_error *error);
FLASH_EXPORT int flash_forward(void *params, size_t size, void *stream, int force_split,
                               struct flash_error *error);
FLASH_EXPORT int flash_backward(void *params, size_t size, void *stream, struct flash_error *error);
#ifdef __cplusplus
}
#endif
