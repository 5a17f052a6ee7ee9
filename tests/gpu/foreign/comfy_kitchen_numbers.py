"""comfy-kitchen's kernels against numpy: for ``invoke lab comfy-kitchen==VERSION --suite``.

The wheel's own Python needs a torch with CUDA, which PyPI does not have for Windows. Its extension
takes arrays by DLPack, whoever made them: here cupy does, which compiles nothing for that.
"""

import importlib.metadata
import importlib.util
import math
from collections.abc import Callable

import cupy
import numpy

FLOAT, HALF, E4M3 = 0, 1, 5  # comfy-kitchen's numbers of types
STREAM = 0

random = numpy.random.default_rng(7)
wheel = importlib.metadata.distribution("comfy-kitchen")
(place,) = (f for f in wheel.files or () if f.match("backends/cuda/_C.*"))
spec = importlib.util.spec_from_file_location("_C", str(wheel.locate_file(place)))
assert spec is not None
kernels = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernels)
wrong: "list[str]" = []


def there(array: "numpy.ndarray") -> "cupy.ndarray":
    """A copy in the GPU's memory."""
    return cupy.asarray(numpy.ascontiguousarray(array))


def empty(shape: "tuple[int, ...]", kind: str) -> "cupy.ndarray":
    """For a result: full of what is none, so that a value that was not written shows."""
    poison = numpy.full(shape, 77 if kind in ("i1", "u1") else math.nan, kind)
    return there(poison)


def halves(*shape: int) -> "numpy.ndarray":
    """Numbers about 1."""
    return random.standard_normal(shape).astype("f2")


def compare(name: str, found: "cupy.ndarray", known: "numpy.ndarray", within: float) -> None:
    """The largest difference as a part of the largest value; and how much all are too large."""
    got = cupy.asnumpy(found).astype("f8").ravel()
    ideal = known.astype("f8").ravel()
    worst = float(numpy.abs(got - ideal).max() / numpy.abs(ideal).max())
    scale = float(got @ ideal / (ideal @ ideal))
    print(f"{name} worst error = {worst:.3e}")
    print(f"{name} scale = {scale:.5f}")
    if not (worst <= within and abs(scale - 1) <= 0.005):
        wrong.append(name)


def softmax(scores: "numpy.ndarray") -> "numpy.ndarray":
    """Along the last axis."""
    powers = numpy.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def int8_rows() -> None:
    """Quantized by rows, and back: the first within half a step, the second exactly."""
    x = halves(64, 512)
    q, scales, back = empty((64, 512), "i1"), empty((64, 1), "f4"), empty((64, 512), "f4")
    kernels.quantize_int8_rowwise(there(x), q, scales, False, 0, STREAM)
    ideal = numpy.abs(x).max(1, keepdims=True).astype("f4") / 127
    compare("int8 row scales", scales, ideal, 1e-3)
    compare("int8 rows", q, x / ideal, 0.6 / 127)
    kernels.dequantize_int8_simple(q, scales.reshape(-1), back, 512, 2, STREAM)
    compare("int8 back", back, cupy.asnumpy(q) * cupy.asnumpy(scales), 1e-6)


def fp8() -> None:
    """Every number that E4M3 has, exactly; and numbers rounded to it."""
    codes = numpy.array([c for c in range(256) if c & 0x7F != 0x7F], "u1")
    power, digits = (codes >> 3 & 15).astype(int), (codes & 7).astype("f8")
    size = numpy.where(power == 0, digits / 512, (1 + digits / 8) * 2.0 ** (power - 7))
    table = numpy.where(codes & 128, -size, size)
    scale = numpy.array([0.37], "f4")
    back = empty(codes.shape, "f4")
    kernels.dequantize_per_tensor_fp8(
        there(codes), there(scale), back, E4M3, FLOAT, codes.size, STREAM
    )
    compare("fp8 back", back, table * scale, 1e-6)
    x, q = halves(4096), empty((4096,), "u1")
    kernels.quantize_per_tensor_fp8(there(x), there(scale), q, HALF, E4M3, x.size, STREAM)
    values = dict(zip(codes.tolist(), table.tolist(), strict=True))
    got = numpy.array([values.get(code, math.nan) for code in cupy.asnumpy(q).tolist()])
    compare("fp8", there(got * scale), x, 2**-4)


def rope() -> None:
    """Pairs of numbers, turned."""
    x, angles = halves(2, 4, 64, 32), random.uniform(0, 6, (1, 1, 64, 16)).astype("f4")
    turn = numpy.stack(
        [numpy.cos(angles), -numpy.sin(angles), numpy.sin(angles), numpy.cos(angles)], -1
    ).reshape(1, 1, 64, 16, 2, 2)
    out = empty(x.shape, "f2")
    kernels.apply_rope(there(x), there(turn), out, None, None, STREAM, False)
    pairs = x.reshape(2, 4, 64, 16, 1, 2).astype("f8")
    compare("rope", out, (turn * pairs).sum(-1).reshape(x.shape), 2e-3)


def neighbourhood() -> None:
    """Attention of each place to those around it."""
    sizes, window = (4, 8, 8), (3, 5, 5)
    q, k, v = (halves(1, *sizes, 2, 32) for _ in range(3))
    out = empty(q.shape, "f2")
    places = numpy.indices(sizes).reshape(3, -1)
    seen = numpy.ones((places.shape[1],) * 2, bool)
    for at, size, wide in zip(places, sizes, window, strict=True):
        start = numpy.clip(at - wide // 2, 0, size - wide)[:, None]
        seen &= (at >= start) & (at < start + wide)
    flat = [a.reshape(-1, 2, 32).transpose(1, 0, 2).astype("f8") for a in (q, k, v)]
    scores = numpy.where(seen, flat[0] @ flat[1].transpose(0, 2, 1) / math.sqrt(32), -math.inf)
    known = (softmax(scores) @ flat[2]).transpose(1, 0, 2)
    on_gpu = [there(a) for a in (q, k, v)]

    def call() -> None:
        options = (1, *sizes, 2, 32, *window, 0, 0, 0, 1 / math.sqrt(32), HALF)
        kernels.na3d(*on_gpu, out, *options, STREAM)

    timed("neighbourhood attention", call)
    compare("neighbourhood attention", out, known, 5e-3)


def int8_attention() -> None:
    """SageAttention's: lossy, so that only the scale is held to 0.5 %."""
    heads, length, wide, block = 4, 256, 64, 64
    q, k, v = (halves(1, heads, length, wide) for _ in range(3))
    out = empty(q.shape, "f2")
    scores = q.astype("f8") @ k.astype("f8").transpose(0, 1, 3, 2) / math.sqrt(wide)
    known = softmax(scores) @ v.astype("f8")
    on_gpu = [there(a) for a in (q, k, v)]
    room = [
        *(empty(q.shape, "i1"), empty((1, heads, length // 128 * 32), "f4")),
        *(empty(k.shape, "i1"), empty((1, heads, length // block * 4), "f4")),
        *(empty((heads * wide, length), "i1"), empty((heads * wide,), "f4")),
    ]
    anchors = there(numpy.zeros((1, heads), "i4"))

    def call() -> None:
        options = (1 / math.sqrt(wide), HALF, HALF, STREAM, anchors.data.ptr, None, block)
        kernels.sage_sdpa(*on_gpu, out, *room, *options)

    timed("int8 attention", call)
    compare("int8 attention", out, known, 0.05)


def products() -> None:
    """Matrices of int8 and of fp16, with tensor cores."""
    a = random.integers(-127, 128, (128, 512)).astype("i1")
    b = random.integers(-127, 128, (256, 512)).astype("i1")
    rows, columns = (random.uniform(0.5, 1.5, n).astype("f4") / 127 for n in (128, 256))
    out, bias = empty((128, 256), "f2"), halves(256)
    known = (a.astype("f8") @ b.T.astype("f8")) * rows[:, None] * columns + bias
    given = [there(one) for one in (a, b, rows[:, None], columns, bias)]
    used = kernels.cutlass_int8_dequant(*given, out, HALF, STREAM)
    print(f"int8 product taken = {used:d}")  # else its Python asks cuBLAS
    if used:
        compare("int8 product", out, known, 2e-3)
    x, y, out = halves(128, 256), halves(256, 256), empty((128, 256), "f2")
    used = kernels.cutlass_fp16_linear(there(x), there(y), there(bias), out, STREAM)
    print(f"fp16 product taken = {used:d}")
    if used:
        compare("fp16 product", out, x.astype("f8") @ y.T.astype("f8") + bias, 1e-2)


def awq() -> None:
    """Weights of four bits, by groups of 64: by its kernel for a few rows, and for many."""
    packed = random.integers(0, 256, (256, 256)).astype("u1")
    nibbles = numpy.stack([packed & 15, packed >> 4], -1).reshape(256, 8, 64).astype("f8")
    scales, zeros = halves(8, 256) / 16, halves(8, 256)
    weights = ((nibbles - 8) * scales.T[..., None] + zeros.T[..., None]).reshape(256, 512)
    for count in (4, 64):
        x, out = halves(count, 512), empty((count, 256), "f2")
        given = [there(one) for one in (x, packed, scales, zeros)]
        kernels.awq_w4a16(*given, out, 64, STREAM)
        compare(f"awq of {count} rows", out, x.astype("f8") @ weights.T, 5e-3)


def timed(name: str, call: "Callable[[], None]") -> None:
    """Of one launch, after the first, which may compile."""
    call()
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record()
    for _ in range(100):
        call()
    end.record()
    end.synchronize()
    print(f"{name} milliseconds = {cupy.cuda.get_elapsed_time(begin, end) / 100:.4f}")


print("version:", wheel.version)
print("device:", cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())
for check in (int8_rows, fp8, rope, neighbourhood, int8_attention, products, awq):
    try:
        check()
        cupy.cuda.runtime.deviceSynchronize()
    except Exception as error:  # the others are still asked
        print(f"{check.__name__}: {type(error).__name__}: {error}"[:500])
        wrong.append(check.__name__)
assert not wrong, f"wrong: {', '.join(wrong)}"
