"""What the projects that use flash_attn import of it and check before: each entry with its source.

Everything was read in the release that stands in the id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

GITHUB = "https://github.com"
TRANSFORMERS = f"{GITHUB}/huggingface/transformers/blob"
TRANSFORMERS_5 = f"{TRANSFORMERS}/v5.24.0/src/transformers/modeling_flash_attention_utils.py"
XFORMERS = f"{GITHUB}/facebookresearch/xformers/blob/v0.0.35/xformers/ops/fmha/flash.py"
MEGATRON = f"{GITHUB}/NVIDIA/Megatron-LM/blob"
MEGATRON_CORE = f"{MEGATRON}/core_v0.19.0/megatron/core/transformer/attention.py"
TE = f"{GITHUB}/NVIDIA/TransformerEngine/blob"
TE_FILE = "transformer_engine/pytorch/attention/dot_product_attention/backends.py"
# Of main: 2.20.2 as published has the same lines.
TE_2_20 = f"{TE}/d0067d0da6cb01811b8072a7d304f0e00344ce2b/{TE_FILE}"
UPSTREAM = f"{GITHUB}/Dao-AILab/flash-attention/tree/v2.8.3/csrc"


class Use(NamedTuple):
    """What one file of a project asks of flash_attn."""

    id: str
    source: str
    imports: str = ""
    guarded: bool = False
    """Whether it goes on without flash_attn if the import is an ImportError."""
    least: str = "2"
    below: str = "3"
    most: str = "3"
    """Which releases it takes."""
    refused: bool = False
    """Whether this release is none of them."""
    triton: bool = False
    words: Mapping[str, str] = {}
    """The parameters that it looks for or passes by name, of what it has imported."""
    places: Mapping[str, int] = {}
    """How many arguments it passes by their place to functions of flash_attn_2_cuda."""


USES = (
    Use(
        "transformers-5.24.0",  # its ModernBERT has no imports of its own any more
        TRANSFORMERS_5,
        "from flash_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache\n"
        "from flash_attn.bert_padding import pad_input, unpad_input",
        least="2.3.3",
        words={
            "flash_attn_varlen_func": "dropout_p window_size softcap deterministic block_table "
            "max_seqlen_q max_seqlen_k",
            "flash_attn_with_kvcache": "window_size softcap block_table cache_seqlens",
        },
    ),
    Use(
        "transformers-4.57.6",
        f"{TRANSFORMERS}/v4.57.6/src/transformers/modeling_flash_attention_utils.py",
        "from flash_attn import flash_attn_func, flash_attn_varlen_func\n"
        "from flash_attn.bert_padding import pad_input, unpad_input",
        least="2.1.0",
        words={"flash_attn_varlen_func": "dropout_p window_size softcap deterministic"},
    ),
    Use(
        "transformers-4.57.6-modernbert",  # at its head: without Triton it cannot be imported
        f"{TRANSFORMERS}/v4.57.6/src/transformers/models/modernbert/modeling_modernbert.py",
        "from flash_attn.flash_attn_interface import flash_attn_varlen_qkvpacked_func\n"
        "from flash_attn.layers.rotary import RotaryEmbedding\n"
        "from flash_attn.ops.triton.rotary import apply_rotary",
        least="2.1.0",
        triton=True,
    ),
    Use(
        "diffusers-0.42.1",
        f"{GITHUB}/huggingface/diffusers/blob/v0.42.1/src/diffusers/models/attention_dispatch.py",
        "from flash_attn import flash_attn_func, flash_attn_varlen_func\n"
        "from flash_attn.flash_attn_interface import "
        "_wrapped_flash_attn_backward, _wrapped_flash_attn_forward",
        guarded=True,
        least="2.6.3",
    ),
    Use(
        "xformers-0.0.35",
        XFORMERS,
        "import flash_attn\n"
        "import flash_attn.flash_attn_interface\n"
        "flash_attn.flash_attn_interface.flash_attn_gpu",
        least="2.7.1",
        most="2.8.4",
        places={"fwd": 13, "varlen_fwd": 21, "bwd": 19, "varlen_bwd": 24},
    ),
    Use(
        "comfyui-05080f6",
        f"{GITHUB}/Comfy-Org/ComfyUI/blob/05080f6022b2572df36a0aa6bcba413209c3d265/"
        "comfy/ldm/modules/attention.py",
        "from flash_attn import flash_attn_func",
        guarded=True,
        words={"flash_attn_func": "dropout_p causal softmax_scale"},
    ),
    Use(
        "ring-flash-attn-0.1.8",  # two of its files
        f"{GITHUB}/zhuzilin/ring-flash-attention/tree/899628238f2f5bb8c028579c89b7cd56ea451d2a",
        "from flash_attn.flash_attn_interface import _flash_attn_forward, _flash_attn_backward\n"
        "from flash_attn.flash_attn_interface import (\n"
        "    _flash_attn_varlen_forward,\n    _flash_attn_varlen_backward,\n)",
        words={
            f"_flash_attn_{kind}": "window_size_left window_size_right softcap alibi_slopes"
            for kind in ("forward", "backward", "varlen_forward", "varlen_backward")
        },
    ),
    Use(
        "megatron-core-0.19.0",
        MEGATRON_CORE,
        "from flash_attn import flash_attn_varlen_func, flash_attn_with_kvcache",
        guarded=True,
        least="2.7.3",
        words={
            "flash_attn_varlen_func": "block_table return_attn_probs window_size",
            "flash_attn_with_kvcache": "rotary_cos rotary_sin rotary_interleaved cache_seqlens "
            "block_table num_splits return_softmax_lse",
        },
    ),
    Use(
        "megatron-core-0.19.0-rotary",
        f"{MEGATRON}/core_v0.19.0/megatron/core/models/common/embeddings/rope_utils.py",
        "from flash_attn.layers.rotary import apply_rotary_emb as apply_rotary_emb_flash",
        guarded=True,
        triton=True,
    ),
    Use(
        "transformer-engine-2.20.2",
        TE_2_20,
        "from flash_attn_2_cuda import varlen_bwd as flash_attn_cuda_bwd\n"
        "from flash_attn.flash_attn_interface import flash_attn_func, flash_attn_varlen_func\n"
        "from flash_attn.flash_attn_interface import _flash_attn_forward as _flash_attn_fwd\n"
        "from flash_attn.flash_attn_interface import _flash_attn_backward as _flash_attn_bwd\n"
        "from flash_attn.flash_attn_interface import (\n"
        "    _flash_attn_varlen_forward as _flash_attn_varlen_fwd,\n)\n"
        "from flash_attn.flash_attn_interface import (\n"
        "    _flash_attn_varlen_backward as _flash_attn_varlen_bwd,\n)",
        least="2.7.3",  # for Blackwell; else 2.1.1
        below="2.8.4",
        words={
            f"_flash_attn_{kind}": "window_size_left window_size_right softcap alibi_slopes"
            for kind in ("fwd", "bwd", "varlen_fwd", "varlen_bwd")
        },
    ),
    # 2.10 to 2.18 take no post-release of 2.8.3, upstream's own neither: they warn and do without.
    Use("transformer-engine-2.18", f"{TE}/v2.18/{TE_FILE}", most="2.8.3", refused=True),
)


class Unmet(NamedTuple):
    """What a project asks for and does not get of this wheel."""

    id: str
    source: str
    code: str
    says: str
    """A part of the error."""
    distribution: str = ""
    """What brings it; it may be installed as well."""


UNMET = (
    # FlashAttention 4's, for which all three ask for flash-attn-4; Megatron after it has tried.
    # Upstream's wheel has an early copy of it, and nothing below is in that wheel either.
    Unmet(
        "transformers-5.24.0-cute",
        TRANSFORMERS_5,
        "from flash_attn.cute import flash_attn_func, flash_attn_varlen_func",
        "flash_attn.cute",
        "flash-attn-4",
    ),
    Unmet(
        "megatron-core-0.19.0-cute",
        MEGATRON_CORE,
        "from flash_attn.cute import flash_attn_varlen_func as flash_attn4_varlen_func",
        "flash_attn.cute",
        "flash-attn-4",
    ),
    Unmet(
        "transformer-engine-2.20.2-cute",
        TE_2_20,
        "from flash_attn.cute.interface import flash_attn_func as _flash_attn_func_v4",
        "flash_attn.cute",
        "flash-attn-4",
    ),
    # With NVTE_FUSED_ATTN_USE_FAv2_BWD=1 on Hopper: the arguments of flash-attn before 2.3.
    Unmet(
        "transformer-engine-2.20.2-fused",
        TE_2_20,
        "from flash_attn_2_cuda import varlen_bwd as flash_attn_cuda_bwd\n"
        "flash_attn_cuda_bwd(*[None] * 19)",
        "missing 5",
    ),
    # Names of older releases; both go on with those of today.
    Unmet(
        "megatron-core-0.16.0-legacy",
        f"{MEGATRON}/core_v0.16.0/megatron/legacy/model/transformer.py",
        "from flash_attn.flash_attn_interface import flash_attn_unpadded_func",
        "flash_attn_unpadded_func",
    ),
    Unmet(
        "xformers-0.0.35-cuda",
        XFORMERS,
        "from flash_attn.flash_attn_interface import flash_attn_cuda",
        "flash_attn_cuda",
    ),
    # Extensions of their own, which upstream's setup.py does not build.
    Unmet(
        "flash-attn-layer-norm",
        f"{UPSTREAM}/layer_norm",
        "from flash_attn.ops.rms_norm import rms_norm",
        "dropout_layer_norm",
        "dropout_layer_norm",
    ),
    Unmet(
        "flash-attn-fused-dense",
        f"{UPSTREAM}/fused_dense_lib",
        "from flash_attn.ops.fused_dense import FusedDense",
        "fused_dense_lib",
        "fused_dense_lib",
    ),
)
