/* What C and the CUDA units tell each other: one struct, four functions. smoke_attention_torch has
 * the same kernels, with an operator of torch in front of them. */
#ifndef SMOKE_ATTENTION_H
#define SMOKE_ATTENTION_H

#ifdef __cplusplus
extern "C" {
#endif

/* Device pointers to contiguous (batch, heads, seq, head_dim) tensors. */
typedef struct {
    const void *q, *k, *v;
    void *out;
    int batch_heads; /* batch * heads: nothing in the kernel needs to tell them apart */
    int seqlen_q, seqlen_k, head_dim;
    int causal;
    float scale;
    void *stream; /* a cudaStream_t; NULL is the default stream */
} attention_problem;

/* Each enqueues one forward pass on problem->stream and returns a cudaError_t.
 * "narrow" knows head dimensions 32 and 64, "wide" 96 and 128. */
int attention_fp32_narrow(const attention_problem *problem);
int attention_fp32_wide(const attention_problem *problem);
int attention_fp16_narrow(const attention_problem *problem);
int attention_fp16_wide(const attention_problem *problem);

#ifdef __cplusplus
}
#endif
#endif
