"""A model of :mod:`gguf_model` run by the package, on the GPU or without it.

Imported inside the tests only: this module needs the package.

**How exact must it be?** Weights of F32 are multiplied in TF32 where there is such a thing, half
precision in itself; with rounded weights the other side is rounded to 8 bits as well. On the CPU
the error of all logits together, relative to their length, is 0.1 % with plain weights and 2.5 to
4 % with rounded ones, and that of the worst token twice as large. A wrong place, a lost head or
another's scale costs half of it and more. Their size may be off by 1 %: roundings cancel out, a
wrong scale does not.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import llama_cpp
import numpy as np
from gguf_model import CONTEXT, LAYERS, VOCABULARY, Array

WHOLE = {"F32": 0.01, "F16": 0.01, "BF16": 0.02}
ROUNDED, SIZE = 0.05, 0.01


class Running:
    """A loaded model and its context."""

    def __init__(self, model: object, context: object, said: list[str]) -> None:
        self._model, self._context, self.said = model, context, said

    def logits(self, tokens: list[int], begin: int = 0, sequence: int = 0) -> Array:
        """Of each of the tokens, which come at ``begin`` of the sequence."""
        batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
        try:
            batch.n_tokens = len(tokens)
            for at, token in enumerate(tokens):
                batch.token[at], batch.pos[at] = token, begin + at
                batch.n_seq_id[at], batch.logits[at] = 1, 1
                batch.seq_id[at][0] = sequence
            error = llama_cpp.llama_decode(self._context, batch)
            assert error == 0, f"llama_decode left with {error}"
            rows = [
                np.ctypeslib.as_array(
                    llama_cpp.llama_get_logits_ith(self._context, at), (VOCABULARY,)
                ).astype(np.float64)
                for at in range(len(tokens))
            ]
            return np.stack(rows)
        finally:
            llama_cpp.llama_batch_free(batch)


@contextmanager
def opened(path: Path, *, gpu: bool = True, flash: bool = False) -> Iterator[Running]:
    """The model with all of its layers on the GPU, or with none."""
    said: list[str] = []

    @llama_cpp.llama_log_callback
    def listen(level: int, text: bytes, data: ctypes.c_void_p) -> None:  # noqa: ARG001
        said.append(text.decode("utf-8", "replace"))

    llama_cpp.llama_log_set(listen, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = LAYERS + 1 if gpu else 0
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    assert model, "".join(said)[-2000:]
    told = llama_cpp.llama_context_default_params()
    told.n_ctx, told.n_batch, told.n_ubatch, told.n_seq_max = 4 * CONTEXT, CONTEXT, CONTEXT, 4
    told.offload_kqv = told.op_offload = gpu
    enabled, disabled = 1, 0
    told.flash_attn_type = enabled if flash else disabled
    context = llama_cpp.llama_init_from_model(model, told)
    assert context, "".join(said)[-2000:]
    try:
        yield Running(model, context, said)
    finally:
        llama_cpp.llama_free(context)
        llama_cpp.llama_model_free(model)


def shares(got: Array, want: Array, kind: str) -> dict[str, float]:
    """Errors as parts of what is tolerated: above 1 is wrong."""
    assert got.shape == want.shape
    if not np.isfinite(got).all():
        return {"finite": math.inf}
    whole = float(np.linalg.norm(got - want) / np.linalg.norm(want))
    token = float((np.linalg.norm(got - want, axis=1) / np.linalg.norm(want, axis=1)).max())
    size = abs(float((got * want).sum() / (want * want).sum()) - 1)
    most = WHOLE.get(kind, ROUNDED)
    return {"whole": whole / most, "worst_token": token / (4 * most), "size": size / SIZE}


def verdict(told: dict[str, float], record: object) -> None:
    """Record every share and fail if one is above 1."""
    for name, value in told.items():
        record(f"error_of_tolerance.{name}", f"{value:.3f}")  # type: ignore[operator]
    wrong = {name: round(value, 2) for name, value in told.items() if not value <= 1}
    assert not wrong, f"error as a part of what is tolerated: {wrong}"
