/* The kernels behind functions of C: device pointers in, nothing of torch and nothing of C++.
 *
 * They are exported, so any program can call them, in a process with torch or without. */
#ifndef SMOKE_ATTENTION_LAUNCH_H
#define SMOKE_ATTENTION_LAUNCH_H

#include "attention.h"

#ifdef _WIN32
#define SMOKE_ATTENTION_API __declspec(dllexport)
#else
#define SMOKE_ATTENTION_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueues one forward pass on problem->stream: float16 if `half`, else float32. Returns a cudaError_t;
 * cudaErrorInvalidValue for a head dimension other than 32, 64, 96 and 128. */
SMOKE_ATTENTION_API int smoke_attention_launch(const attention_problem *sent, int half);

/* CUDA's words for a cudaError_t. */
SMOKE_ATTENTION_API const char *smoke_attention_error(int error);

#ifdef __cplusplus
}
#endif
#endif
