"""Attention again, in plain Python: nothing here is shared with the code under test.

Double precision, exact sums (``math.fsum``), two passes over the keys: the highest score first,
then the weights. The kernel goes over them once and rescales: it cannot share a mistake with this.
"""

from __future__ import annotations

import math
import random
import struct
from operator import mul

Rows = list[list[float]]
FORMAT = {"float32": "f", "float16": "e"}


def pack(rows: Rows, dtype: str) -> bytes:
    """Return the rows as the bytes of a contiguous tensor."""
    flat = [x for row in rows for x in row]
    return struct.pack(f"={len(flat)}{FORMAT[dtype]}", *flat)


def unpack(data: bytes, width: int, dtype: str) -> Rows:
    """Return a tensor's bytes as rows."""
    flat = struct.unpack(f"={len(data) // struct.calcsize(FORMAT[dtype])}{FORMAT[dtype]}", data)
    return [list(flat[i : i + width]) for i in range(0, len(flat), width)]


def rounded(rows: Rows, dtype: str) -> Rows:
    """Return what is left of the values in ``dtype``: the kernel's inputs, as doubles."""
    return unpack(pack(rows, dtype), len(rows[0]), dtype)


def normal(seed: str, rows: int, width: int, dtype: str, size: float = 1.0) -> Rows:
    """Return reproducible normal values that ``dtype`` holds exactly."""
    gauss = random.Random(seed).gauss  # noqa: S311  the same numbers every time
    return rounded([[gauss(0, size) for _ in range(width)] for _ in range(rows)], dtype)


def attention_row(query: list[float], keys: Rows, columns: Rows, scale: float) -> list[float]:
    """Return one query's answer over ``keys``; ``columns`` are the values, transposed."""
    if not keys:
        return [0.0] * len(columns)
    scores = [scale * math.fsum(map(mul, query, key)) for key in keys]
    highest = max(scores)
    weights = [math.exp(score - highest) for score in scores]
    total = math.fsum(weights)
    # zip and map stop with the weights: values of keys that the query does not see have none
    return [math.fsum(map(mul, weights, column)) / total for column in columns]


def attention(q: Rows, k: Rows, v: Rows, *, causal: bool, scale: float | None = None) -> Rows:
    """Return the answer of one head; causal is aligned to the bottom-right corner."""
    scale = 1 / math.sqrt(len(q[0])) if scale is None else scale
    columns = [list(column) for column in zip(*v, strict=True)]
    shift = len(k) - len(q)
    return [
        attention_row(query, k[: max(0, i + shift + 1)] if causal else k, columns, scale)
        for i, query in enumerate(q)
    ]
