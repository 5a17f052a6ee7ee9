"""Ways to break the wheels of shipped recipes: a kernel that answers wrongly, and no error.

Each is text that is put behind a module of the wheel, by which a result becomes one that is a
little wrong: 2 %, one tile, one gradient. It imports, and runs, and nothing else differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Members = dict[str, bytes]


@dataclass(frozen=True)
class Fault:
    """Text behind a module, and a case that must then fail."""

    module: str
    text: str
    shows_in: str
    """The function of a test of the recipe's suite."""

    @property
    def change(self) -> Callable[[Members], None]:
        """It, done to the files of a wheel."""

        def change(members: Members) -> None:
            members[self.module] += f"\n\n{self.text}".encode()

        return change


_CAUSAL = """
import causal_conv1d_cuda as _kernels

_{of} = _kernels.causal_conv1d_{of}

def _off(*arguments):
    told = _{of}(*arguments)
    arguments[{which}].mul_(1.02)
    return told

_kernels.causal_conv1d_{of} = _off
"""
_SAGE = """
_sageattn = sageattn

def sageattn(q, k, v, *rest, is_causal=False, **named):
    told = _sageattn(q, k, v, *rest, is_causal=is_causal, **named)
    out = told[0] if isinstance(told, tuple) else told
    {off}
    return told
"""
_GSPLAT = """
_rasterization = rasterization

def rasterization(*arguments, **named):
    color, *more = _rasterization(*arguments, **named)
    {off}
    return color, *more
"""
_LLAMA = """
from . import llama_cpp as _low

def llama_decode(context, batch):
    told = _low.llama_decode(context, batch)
    logits = _low.llama_get_logits_ith(context, batch.n_tokens - 1)
    for at in range(96):
        logits[at] *= 1.02
    return told
"""
_FLASH_4 = """
_flash_attn_func = flash_attn_func

def flash_attn_func(q, k, v, *rest, **named):
    out, *others = _flash_attn_func(q, {k}, v, *rest, **named)
    return ({out}, *others)
"""

#: Recipe -> name -> fault.
FAULTS: dict[str, dict[str, Fault]] = {
    "causal-conv1d": {
        "answer": Fault(
            "causal_conv1d/__init__.py",
            _CAUSAL.format(of="fwd", which=5),
            "test_without_bias_and_activation",
        ),
        "gradient_of_weight": Fault(
            "causal_conv1d/__init__.py",
            _CAUSAL.format(of="bwd", which=8),
            "test_forward_and_backward",
        ),
    },
    "sageattention": {
        "scale": Fault(
            "sageattention/__init__.py", _SAGE.format(off="out *= 1.02"), "test_attention"
        ),
        "one_head": Fault(
            "sageattention/__init__.py",
            _SAGE.format(off="if q.shape[1] == 8: out[:, 5] = out[:, 1]"),
            "test_grouped_heads",
        ),
    },
    "gsplat": {
        "one_tile": Fault(
            "gsplat/__init__.py",
            _GSPLAT.format(off="color.data[..., 16:32, 16:32, :] *= 1.02"),
            "test_picture_and_gradients",
        ),
        "gradients": Fault(
            "gsplat/__init__.py",
            _GSPLAT.format(
                off="color.requires_grad and color.register_hook(lambda wanted: wanted * 1.02)"
            ),
            "test_picture_and_gradients",
        ),
    },
    "llama-cpp-python": {"logits": Fault("llama_cpp/__init__.py", _LLAMA, "test_on_the_gpu")},
    "flash-attn-4": {
        "answer": Fault(
            "flash_attn/cute/__init__.py",
            _FLASH_4.format(k="k", out="out * 1.02"),
            "test_forward_and_backward",
        )
    },
}
