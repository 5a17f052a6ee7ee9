"""A small model of random numbers: written as a GGUF file, and computed in float64 as well.

Standard library and numpy alone: nothing is shared with what is tested. The file is as
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md describes it; what a block of a type means
is in ggml-common.h of the same repository. Blocks of the K types are random bytes: what they mean
is exact, and nothing has to be rounded to them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

VOCABULARY, WIDTH, LAYERS, HEADS, KV_HEADS, INNER, CONTEXT = 96, 256, 2, 4, 2, 512, 256
EPSILON, BASE = 1e-5, 10000.0
_HEAD = WIDTH // HEADS
_ALIGNED = 32
_UINT32, _FLOAT32, _STRING = 4, 6, 8

#: Its bytes, and what they are, row by row.
Encoded = tuple[bytes, Array]


def _plain(kind: type[Any]) -> Callable[[Array, np.random.Generator], Encoded]:
    def encode(values: Array, _: np.random.Generator) -> Encoded:
        made = values.astype(kind)
        return made.tobytes(), made.astype(np.float64)

    return encode


def _bf16(values: Array, _: np.random.Generator) -> Encoded:
    bits = values.astype(np.float32).view(np.uint32) & 0xFFFF0000
    return (bits >> 16).astype(np.uint16).tobytes(), bits.view(np.float32).astype(np.float64)


def _q8_0(values: Array, _: np.random.Generator) -> Encoded:
    """32 numbers of 8 bits, and their step."""
    blocks = values.reshape(-1, 32)
    step = (np.abs(blocks).max(1) / 127).astype(np.float16)
    whole = np.rint(blocks / step.astype(np.float64)[:, None]).clip(-127, 127).astype(np.int8)
    raw = b"".join(s.tobytes() + w.tobytes() for s, w in zip(step, whole, strict=True))
    return raw, (whole * step.astype(np.float64)[:, None]).reshape(values.shape)


def _q4_0(values: Array, _: np.random.Generator) -> Encoded:
    """32 numbers of 4 bits less 8, the first half in the low ones."""
    blocks = values.reshape(-1, 32)
    most = blocks[np.arange(len(blocks)), np.abs(blocks).argmax(1)]
    step = (most / -8).astype(np.float16)
    whole = (np.rint(blocks / step.astype(np.float64)[:, None]) + 8).clip(0, 15).astype(np.uint8)
    packed = whole[:, :16] | whole[:, 16:] << 4
    raw = b"".join(s.tobytes() + p.tobytes() for s, p in zip(step, packed, strict=True))
    exact = (whole.astype(np.float64) - 8) * step.astype(np.float64)[:, None]
    return raw, exact.reshape(values.shape)


def _q4_k(values: Array, source: np.random.Generator) -> Encoded:
    """256 numbers of 4 bits in 8 groups, each with a scale and a least of 6 bits."""
    count = values.size // 256
    spread = float(values.std())
    step = source.uniform(0.8, 1.2, count).astype(np.float16) * np.float16(spread / 140)
    least = source.uniform(0.8, 1.2, count).astype(np.float16) * np.float16(spread / 18)
    scales = source.integers(16, 48, (count, 8), np.uint8)
    # About what centres each group: a mean of its own in each would drown the rest.
    centre = 7.5 * scales * (step.astype(np.float64) / least.astype(np.float64))[:, None]
    leasts = (centre + source.uniform(-1, 1, (count, 8))).clip(0, 63).astype(np.uint8)
    low = np.concatenate([scales[:, :4], leasts[:, :4]], 1)
    low[:, :4] |= (scales[:, 4:] >> 4) << 6
    low[:, 4:] |= (leasts[:, 4:] >> 4) << 6
    twelve = np.concatenate([low, (scales[:, 4:] & 15) | (leasts[:, 4:] & 15) << 4], 1)
    packed = source.integers(0, 256, (count, 4, 32), np.uint8)
    nibbles = np.stack([packed & 15, packed >> 4], 2).reshape(count, 8, 32).astype(np.float64)
    exact = nibbles * (step.astype(np.float64)[:, None] * scales)[:, :, None]
    exact -= (least.astype(np.float64)[:, None] * leasts)[:, :, None]
    rows = zip(step, least, twelve, packed, strict=True)
    raw = b"".join(b"".join(part.tobytes() for part in row) for row in rows)
    return raw, exact.reshape(values.shape)


def _q6_k(values: Array, source: np.random.Generator) -> Encoded:
    """256 numbers of 6 bits less 32 in 16 groups, each with a signed scale of 8 bits."""
    count = values.size // 256
    step = (source.uniform(0.8, 1.2, count) * values.std() / 900).astype(np.float16)
    scales = source.integers(-64, 64, (count, 16)).astype(np.int8)
    low = source.integers(0, 256, (count, 2, 64), np.uint8)
    high = source.integers(0, 256, (count, 2, 32), np.uint8)
    four = np.concatenate([low & 15, low >> 4], 2).reshape(count, 2, 4, 32)
    two = np.stack([high >> shift & 3 for shift in (0, 2, 4, 6)], 2)
    six = (four | two << 4).reshape(count, 16, 16).astype(np.float64) - 32
    exact = six * (scales.astype(np.float64) * step.astype(np.float64)[:, None])[:, :, None]
    rows = zip(low, high, scales, step, strict=True)
    raw = b"".join(b"".join(part.tobytes() for part in row) for row in rows)
    return raw, exact.reshape(values.shape)


#: Name -> ggml's number, and how numbers become bytes.
TYPES: dict[str, tuple[int, Callable[[Array, np.random.Generator], Encoded]]] = {
    "F32": (0, _plain(np.float32)),
    "F16": (1, _plain(np.float16)),
    "BF16": (30, _bf16),
    "Q4_0": (2, _q4_0),
    "Q8_0": (8, _q8_0),
    "Q4_K": (12, _q4_k),
    "Q6_K": (14, _q6_k),
}


@dataclass
class Model:
    """Its weights as they are in the file."""

    kind: str
    weights: dict[str, Array] = field(default_factory=dict)
    _raw: dict[str, tuple[int, bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        source = np.random.default_rng(7)
        shapes = {"token_embd": (VOCABULARY, WIDTH), "output": (VOCABULARY, WIDTH)}
        for n in range(LAYERS):
            shapes |= {
                f"blk.{n}.attn_q": (WIDTH, WIDTH),
                f"blk.{n}.attn_k": (KV_HEADS * _HEAD, WIDTH),
                f"blk.{n}.attn_v": (KV_HEADS * _HEAD, WIDTH),
                f"blk.{n}.attn_output": (WIDTH, WIDTH),
                f"blk.{n}.ffn_gate": (INNER, WIDTH),
                f"blk.{n}.ffn_up": (INNER, WIDTH),
                f"blk.{n}.ffn_down": (WIDTH, INNER),
            }
        for name, shape in shapes.items():
            size = 1.0 if name == "token_embd" else 1.5 / np.sqrt(shape[1])
            self._put(name, self.kind, source.normal(0, size, shape), source)
        norms = [f"blk.{n}.{part}_norm" for n in range(LAYERS) for part in ("attn", "ffn")]
        for name in [*norms, "output_norm"]:
            self._put(name, "F32", source.uniform(0.5, 1.5, WIDTH), source)

    def _put(self, name: str, kind: str, values: Array, source: np.random.Generator) -> None:
        number, encode = TYPES[kind]
        raw, self.weights[name] = encode(values, source)
        self._raw[name] = number, raw

    def write(self, path: Path) -> None:
        """The GGUF file."""
        settings: dict[str, int | float | str] = {
            "general.architecture": "llama",
            "llama.context_length": CONTEXT,
            "llama.embedding_length": WIDTH,
            "llama.block_count": LAYERS,
            "llama.feed_forward_length": INNER,
            "llama.attention.head_count": HEADS,
            "llama.attention.head_count_kv": KV_HEADS,
            "llama.attention.layer_norm_rms_epsilon": EPSILON,
            "llama.rope.dimension_count": _HEAD,
            "llama.rope.freq_base": BASE,
            "llama.vocab_size": VOCABULARY,
            "tokenizer.ggml.model": "no_vocab",
        }
        head = b"GGUF" + struct.pack("<IQQ", 3, len(self._raw), len(settings))
        for key, value in settings.items():
            head += _text(key) + _value(value)
        body = b""
        for name, (number, raw) in self._raw.items():
            shape = self.weights[name].shape[::-1]
            head += _text(f"{name}.weight") + struct.pack("<I", len(shape))
            head += struct.pack(f"<{len(shape)}QIQ", *shape, number, len(body))
            body += raw + b"\0" * (-len(raw) % _ALIGNED)
        path.write_bytes(head + b"\0" * (-len(head) % _ALIGNED) + body)

    def product(self, x: Array, name: str) -> Array:
        """``x`` times a matrix of weights, ``(rows, columns)`` of that name."""
        return np.asarray(x @ self.weights[name].T)

    def logits(self, tokens: list[int]) -> Array:
        """For each token those of the next one, ``(tokens, vocabulary)``, in float64."""
        w = self.weights
        count = len(tokens)
        seen = np.tril(np.ones((count, count), dtype=bool))
        x = w["token_embd"][tokens]
        for n in range(LAYERS):
            h = _normed(x, w[f"blk.{n}.attn_norm"])
            q, k, v = (
                self.product(h, f"blk.{n}.attn_{part}").reshape(count, -1, _HEAD) for part in "qkv"
            )
            q, k = _turned(q), _turned(k)
            k, v = (np.repeat(one, HEADS // KV_HEADS, 1) for one in (k, v))
            scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(_HEAD)
            scores = np.where(seen, scores, -np.inf)
            share = np.exp(scores - scores.max(-1, keepdims=True))
            share /= share.sum(-1, keepdims=True)
            mixed = np.einsum("hij,jhd->ihd", share, v).reshape(count, WIDTH)
            x = x + self.product(mixed, f"blk.{n}.attn_output")
            h = _normed(x, w[f"blk.{n}.ffn_norm"])
            gate = self.product(h, f"blk.{n}.ffn_gate")
            inner = gate / (1 + np.exp(-gate)) * self.product(h, f"blk.{n}.ffn_up")
            x = x + self.product(inner, f"blk.{n}.ffn_down")
        return self.product(_normed(x, w["output_norm"]), "output")


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _value(value: float | str) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _text(value)
    if isinstance(value, int):
        return struct.pack("<II", _UINT32, value)
    return struct.pack("<If", _FLOAT32, value)


def _normed(x: Array, weight: Array) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * weight


def _turned(x: Array) -> Array:
    """Rotary embedding: neighbouring numbers are turned by an angle that grows with the place."""
    places = np.arange(x.shape[0])[:, None, None]
    angle = places * BASE ** (-2 * np.arange(_HEAD // 2) / _HEAD)
    even, odd, cos, sin = x[..., ::2], x[..., 1::2], np.cos(angle), np.sin(angle)
    return np.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(x.shape)
