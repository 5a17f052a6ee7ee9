"""A model of :mod:`gguf_model` run by the package, on the GPU or without it.

Imported inside the tests only: this module needs the package.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import llama_cpp
import numpy as np
from gguf_model import CONTEXT, LAYERS, VOCABULARY, Array


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
            assert error == 0, f"llama_decode exited with {error}"
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

    with ExitStack() as ended:
        llama_cpp.llama_log_set(listen, ctypes.c_void_p(0))
        # The library would go on to call what is collected when this ends, however it ends.
        silent = llama_cpp.llama_log_callback()
        ended.callback(llama_cpp.llama_log_set, silent, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = LAYERS + 1 if gpu else 0
        model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        assert model, "".join(said)[-2000:]
        ended.callback(llama_cpp.llama_model_free, model)
        options = llama_cpp.llama_context_default_params()
        options.n_ctx, options.n_seq_max = 4 * CONTEXT, 4
        options.n_batch = options.n_ubatch = CONTEXT
        options.offload_kqv = options.op_offload = gpu
        options.flash_attn_type = int(flash)  # 1: enabled, 0: disabled
        context = llama_cpp.llama_init_from_model(model, options)
        assert context, "".join(said)[-2000:]
        ended.callback(llama_cpp.llama_free, context)
        yield Running(model, context, said)
