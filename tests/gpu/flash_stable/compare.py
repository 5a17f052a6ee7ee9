"""Calls flash-attn-stable and upstream's own layer alike, in one process, and compares bit for bit.

``python compare.py PLACE [CALLS] [SEED]`` with what build.py left. Each call is drawn at random:
operator, head dimension, shapes, strides, masks, pages, splits. Both layers have the same kernels,
so equal arguments give equal bits, and where one refuses the other has to. Exits with 1 where not.
Dropout draws other numbers than upstream's and is compared in the backward alone, where the state
is an argument. Of a build with empty kernels the kernels' parameters are compared instead: numbers,
and which pointers are null. ``python compare.py PLACE figures`` times calls and kernels in turn.
``python compare.py PLACE small`` is for a build with little shared memory.
"""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import json
import random
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "pipelines/smoke/flash_attn"))
import flash_pointers  # noqa: E402  of the recipe's suite

DIMS = flash_pointers.DIMS
#: What upstream's varlen_bwd leaves as it was on the stack, and no kernel reads.
UNSET = ("do_batch", "dq_batch", "dk_batch", "dv_batch")


class Layer:
    """The extension below ``place``, and what its kernels were called with where they are empty."""

    def __init__(self, place: Path) -> None:
        self.module = load(place)
        (path,) = [*place.glob("flash_attn_2_cuda/_C.so"), *place.glob("flash_attn_2_cuda*.so")]
        last = getattr(ctypes.CDLL(str(path)), "flash_last_parameters", None)
        self.last = None
        if last is not None:
            last.restype = ctypes.c_void_p
            self.last = last()

    def clear(self) -> None:
        if self.last is not None:
            ctypes.memset(self.last, 0, ctypes.sizeof(flash_pointers.Backward))

    def parameters(self) -> dict[str, Any]:
        """By name; of a pointer, whether it is one."""
        if self.last is None:
            return {}
        found = flash_pointers.Backward.from_address(self.last)
        fields = [*flash_pointers.Forward._fields_, *flash_pointers.Backward._fields_]
        return {
            name: bool(getattr(found, name)) if kind is ctypes.c_void_p else getattr(found, name)
            for name, kind in fields
            if name != "philox"
        }


def load(place: Path) -> Any:
    """The extension's module."""
    (path,) = [*place.glob("flash_attn_2_cuda/__init__.py"), *place.glob("flash_attn_2_cuda*.so")]
    spec = importlib.util.spec_from_file_location("flash_attn_2_cuda", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Draw:
    """Arguments of one call."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.source = torch.Generator(device="cuda").manual_seed(seed)
        self.unit = self.random.choice(DIMS)
        least = max([dim for dim in DIMS if dim < self.unit], default=0) + 8
        self.dim = self.random.choice(
            (self.unit, self.unit, self.random.randrange(least, self.unit + 1, 8))
        )
        self.type = self.random.choice((torch.float16, torch.bfloat16))
        self.heads_k = self.random.choice((1, 2, 3))
        self.heads = self.heads_k * self.random.choice((1, 1, 2, 4))
        self.batch = self.random.randrange(1, 4)
        self.rows = self.random.choice((1, 1, self.random.randrange(1, 300)))
        self.keys = self.random.randrange(1, 700)

    def maybe(self, share: float = 0.5) -> bool:
        return self.random.random() < share

    def tensor(self, *shape: int, transposed: bool = False) -> Tensor:
        if transposed:  # (batch, heads, rows, dim) in memory, as Hugging Face's models hold them
            shape = (shape[0], shape[2], shape[1], shape[3])
        made = torch.randn(shape, generator=self.source, device="cuda").to(self.type)
        return made.transpose(1, 2) if transposed else made

    def ints(self, *values: int) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device="cuda")

    def alibi(self) -> Tensor | None:
        if self.maybe(0.8):
            return None
        shape = (self.batch, self.heads) if self.maybe() else (self.heads,)
        return torch.rand(shape, generator=self.source, device="cuda") * 0.3

    def mask(self) -> tuple[bool, int, int, float]:
        """Causal, window to the left and right, softcap."""
        causal, cap = self.maybe(), 10.0 if self.maybe(0.15) else 0.0
        if self.maybe(0.7):
            return causal, -1, -1, cap
        return causal, self.random.randrange(-1, 200), self.random.randrange(-1, 200), cap

    def lengths(self, most: int) -> list[int]:
        return [self.random.randrange(most + 1) for _ in range(self.batch)]


def starts(draw: Draw, lengths: list[int]) -> Tensor:
    return draw.ints(*(sum(lengths[:i]) for i in range(len(lengths) + 1)))


def dense(draw: Draw) -> dict[str, tuple[Any, ...]]:
    """fwd, and bwd of what it gives."""
    turned = draw.maybe(0.3)
    q = draw.tensor(draw.batch, draw.rows, draw.heads, draw.dim, transposed=turned)
    k, v = (
        draw.tensor(draw.batch, draw.keys, draw.heads_k, draw.dim, transposed=turned)
        for _ in range(2)
    )
    causal, left, right, cap = draw.mask()
    kind = (draw.dim**-0.5, causal, left, right, cap)
    alibi, dropout = draw.alibi(), 0.2 if draw.maybe(0.2) and not cap else 0.0
    state = torch.tensor((draw.random.randrange(1 << 40), 4), device="cuda") if dropout else None
    dout = draw.tensor(draw.batch, draw.rows, draw.heads, draw.dim)
    return {
        "fwd": (q, k, v, None, alibi, 0.0, *kind, False, None),
        "bwd": (dout, q, k, v, *[None] * 5, alibi, dropout, *kind, True, None, state),
    }


def packed(draw: Draw) -> dict[str, tuple[Any, ...]]:
    """varlen_fwd, paged or not, and without pages varlen_bwd of what it gives."""
    rows, keys = draw.lengths(draw.rows), draw.lengths(draw.keys)
    rows[0], keys[0] = draw.rows, draw.keys
    q = draw.tensor(sum(rows), draw.heads, draw.dim)
    causal, left, right, cap = draw.mask()
    kind = (draw.dim**-0.5, False, causal, left, right, cap)
    alibi, paged = draw.alibi(), draw.maybe(0.4)
    table, used = None, None
    if paged:
        each = -(-draw.keys // 256)
        order = [*range(each * draw.batch)]
        draw.random.shuffle(order)
        table = draw.ints(*order).reshape(draw.batch, each)
        k, v = (draw.tensor(len(order), 256, draw.heads_k, draw.dim) for _ in range(2))
    else:
        k, v = (draw.tensor(sum(keys), draw.heads_k, draw.dim) for _ in range(2))
        if draw.maybe(0.2):
            used = draw.ints(*(draw.random.randrange(1, n + 1) if n else 0 for n in keys))
    at = (starts(draw, rows), starts(draw, keys))
    sizes = (draw.rows, draw.keys)
    calls: dict[str, tuple[Any, ...]] = {
        "varlen_fwd": (
            *(q, k, v, None, *at, used, None, table, alibi, *sizes, 0.0, *kind, False, None),
        )
    }
    if not paged and used is None:
        dout = draw.tensor(sum(rows), draw.heads, draw.dim)
        calls["varlen_bwd"] = (
            *(dout, q, k, v, *[None] * 5, *at, alibi, *sizes, 0.0, *kind, True),
            *(None, None),
        )
    return calls


def cached(draw: Draw) -> dict[str, tuple[Any, ...]]:
    """fwd_kvcache: appended, rotated, paged, indexed, split."""
    dim = draw.dim - draw.random.choice((0, 0, 0, 3))
    q = draw.tensor(draw.batch, draw.rows, draw.heads, dim)
    room = draw.keys + draw.rows
    paged, new_k, new_v, cos, sin, index, pad, table = draw.maybe(0.3), *[None] * 7
    if paged:
        each = -(-room // 256)
        order = [*range(each * draw.batch)]
        draw.random.shuffle(order)
        table = draw.ints(*order).reshape(draw.batch, each)
        shape, room = (len(order), 256), each * 256
    else:
        shape = (draw.batch + 1, room)
        index = draw.ints(*range(1, draw.batch + 1)) if draw.maybe(0.3) else None
    k, v = (draw.tensor(*shape, draw.heads_k, dim) for _ in range(2))
    used = draw.ints(*(draw.random.randrange(1, draw.keys + 1) for _ in range(draw.batch)))
    if draw.maybe():
        new_k, new_v = (draw.tensor(draw.batch, draw.rows, draw.heads_k, dim) for _ in range(2))
        if draw.maybe() and dim >= 16:
            half = draw.random.randrange(16, dim + 1, 16) // 2
            cos, sin = (draw.tensor(room, half) for _ in range(2))
    elif not paged and draw.maybe(0.2):
        pad = draw.ints(*(draw.random.randrange(0, 1 + int(n) // 2) for n in used.tolist()))
    causal, left, right, cap = draw.mask()
    splits = draw.random.choice((0, 0, 1, 3, 7))
    return {
        "fwd_kvcache": (
            *(q, k, v, new_k, new_v, used, cos, sin, index, pad, table, draw.alibi(), None),
            *(dim**-0.5, causal, left, right, cap, draw.maybe(), splits),
        )
    }


def written(d_sum: Tensor, arguments: tuple[Any, ...] | list[Any]) -> Tensor:
    """Of a backward's softmax_d what it is for: the rest of a block of 128 rows is not written."""
    q = arguments[1]
    if q.dim() == 4:
        return d_sum[..., : q.shape[1]]
    at = arguments[9].tolist()
    parts = [d_sum[:, a + 128 * i : b + 128 * i] for i, (a, b) in enumerate(itertools.pairwise(at))]
    return torch.cat(parts, 1)


def called(layer: Layer, name: str, arguments: tuple[Any, ...]) -> list[Tensor] | str:
    """What a call gives and leaves in its arguments; or why it refused."""
    module = layer.module
    layer.clear()
    own = [x.clone() if isinstance(x, Tensor) and name == "fwd_kvcache" else x for x in arguments]
    try:
        # The forward of the same layer gives what a backward needs.
        if name == "bwd":
            forward = (*own[1:4], None, own[9], 0.0, *own[11:16], False, None)
            own[4:6] = module.fwd(*forward)[:2]
        elif name == "varlen_bwd":
            forward = (*own[1:4], None, *own[9:11], None, None, None, *own[11:14], 0.0)
            own[4:6] = module.varlen_fwd(*forward, *own[15:21], False, None)[:2]
        result = getattr(module, name)(*own)
        result = [*result[:3], written(result[3], own)] if name.endswith("bwd") else result[:2]
        torch.cuda.synchronize()
    except (RuntimeError, TypeError) as error:
        text = str(error)
        assert "CUDA error" not in text, text
        return text.splitlines()[0]
    changed = own[1:3] if name == "fwd_kvcache" else []
    return [x for x in (*result, *changed) if isinstance(x, Tensor)]


def same(a: list[Tensor] | str, b: list[Tensor] | str, *, numbers: bool) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return isinstance(a, str) and isinstance(b, str)
    return len(a) == len(b) and all(
        x.shape == y.shape
        and x.dtype == y.dtype
        and (not numbers or torch.equal(x.nan_to_num(7), y.nan_to_num(7)))
        for x, y in zip(a, b, strict=True)
    )


def compare(place: Path, calls: int, seed: int) -> int:
    ours, theirs = Layer(place / "ours"), Layer(place / "theirs")
    count: Counter[str] = Counter()
    different = []
    for number in range(calls):
        draw = Draw(seed + number)
        for name, arguments in draw.random.choice((dense, packed, cached))(draw).items():
            mine = called(ours, name, arguments)
            given = ours.parameters()
            upstream = called(theirs, name, arguments)
            other = theirs.parameters()
            what = "refused" if isinstance(mine, str) else "ran"
            count[f"{name} {draw.unit} {what}"] += 1
            unset = UNSET if name == "varlen_bwd" else ()
            names = [key for key in given if key not in unset and given[key] != other[key]]
            if apart := [f"{key}: {given[key]}, {other[key]}" for key in names]:
                different.append((seed + number, name, draw.dim, *apart))
            elif not same(mine, upstream, numbers=not given):
                texts = [one if isinstance(one, str) else "ran" for one in (mine, upstream)]
                different.append((seed + number, name, draw.dim, *texts))
    table = {
        name: {
            str(dim): [count[f"{name} {dim} {what}"] for what in ("ran", "refused")] for dim in DIMS
        }
        for name in ("fwd", "bwd", "varlen_fwd", "varlen_bwd", "fwd_kvcache")
    }
    compared = "parameters" if ours.last is not None else "numbers"
    json.dump({"compared": compared, "ran, refused": table, "different": different}, sys.stdout)
    sys.stdout.write("\n")
    return bool(different)


def small(place: Path) -> int:
    """With 99 KiB, as RTX 30 and 40: both backwards refuse what no kernel is launched for."""
    module = load(place / "ours")
    wrong = []
    for dim, dropout in ((192, 0.1), (200, 0.0), (200, 0.1), (256, 0.1)):
        q = torch.ones(2, 5, 2, dim, device="cuda", dtype=torch.float16)
        lse = torch.zeros(2, 2, 5, device="cuda")
        kind, rest = (dropout, 0.1, False, -1, -1, 0.0, False), (None, None, None, None)
        packed, at = q.flatten(0, 1), torch.tensor((0, 5, 10), dtype=torch.int32, device="cuda")
        calls = {
            "bwd": (q, q, q, q, q, lse, *rest, *kind, None, None),
            "varlen_bwd": (
                *(packed, packed, packed, packed, packed, lse.reshape(2, 10), None, None, None),
                *(at, at, None, 5, 5, dropout, 0.1, False, *kind[2:], None, None),
            ),
        }
        for name, arguments in calls.items():
            try:
                getattr(module, name)(*arguments)
                said = ""
            except RuntimeError as error:
                said = str(error)
            if ("99" in said) != (dim > 192 and dropout > 0):
                wrong.append((name, dim, dropout, said))
    json.dump({"wrong": wrong}, sys.stdout)
    sys.stdout.write("\n")
    return bool(wrong)


def figures(place: Path) -> int:
    """Microseconds: of a call that does not wait, and of kernels that are long; of both in turn."""
    ours, theirs = load(place / "ours"), load(place / "theirs")
    draw = Draw(1)
    draw.type = torch.bfloat16
    q, k = draw.tensor(1, 1, 8, 64), draw.tensor(1, 64, 8, 64)
    big = draw.tensor(4, 4096, 16, 64)
    used, at = draw.ints(40), draw.ints(0, 1)
    kind = (0.125, True, -1, -1, 0.0)

    def cases(module: Any) -> dict[str, Any]:
        out, lse, _, _ = module.fwd(q, k, k, None, None, 0.0, *kind, False, None)
        grads = [torch.empty_like(x) for x in (q, k, k)]
        long_out, long_lse, _, _ = module.fwd(big, big, big, None, None, 0.0, *kind, False, None)
        long_grads = [torch.empty_like(big) for _ in range(3)]
        return {
            "fwd": lambda: module.fwd(q, k, k, None, None, 0.0, *kind, False, None),
            "bwd": lambda: module.bwd(
                *(q, q, k, k, out, lse, *grads, None, 0.0, *kind, False, None, None)
            ),
            "varlen_fwd": lambda: module.varlen_fwd(
                *(q[0], k[0, :1], k[0, :1], None, at, at, None, None, None, None, 1, 1, 0.0),
                *(0.125, False, True, -1, -1, 0.0, False, None),
            ),
            "fwd_kvcache": lambda: module.fwd_kvcache(
                *(q, k, k, None, None, used, *[None] * 7, *kind, True, 0)
            ),
            "long fwd": lambda: module.fwd(big, big, big, None, None, 0.0, *kind, False, None),
            "long bwd": lambda: module.bwd(
                *(big, big, big, big, long_out, long_lse, *long_grads, None, 0.0, *kind),
                *(False, None, None),
            ),
        }

    def microseconds(call: Any, times: int, *, wait: bool) -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(times):
            call()
        if wait:
            torch.cuda.synchronize()
        ended = time.perf_counter()
        torch.cuda.synchronize()
        return (ended - began) / times * 1e6

    both = [cases(ours), cases(theirs)]
    for name in both[0]:
        wait = name.startswith("long")
        times = 20 if wait else 200
        rounds = [[microseconds(one[name], times, wait=wait) for one in both] for _ in range(41)][
            1:
        ]
        mine, upstream = (statistics.median(column) for column in zip(*rounds, strict=True))
        least = [min(column) for column in zip(*rounds, strict=True)]
        sys.stdout.write(
            f"{name}: ours {mine:.2f} us, upstream {upstream:.2f} us, ratio {mine / upstream:.3f}; "
            f"least {least[0]:.2f} and {least[1]:.2f}\n"
        )
    return 0


if __name__ == "__main__":
    folder, *rest = sys.argv[1:]
    if rest in (["figures"], ["small"]):
        sys.exit((figures if rest == ["figures"] else small)(Path(folder)))
    sys.exit(compare(Path(folder), *(int(one) for one in [*rest, "1000", "1"][:2])))
