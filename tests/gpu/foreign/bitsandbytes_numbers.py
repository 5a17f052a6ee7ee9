"""bitsandbytes' kernels against numpy: for ``invoke lab bitsandbytes==VERSION --suite``.

Called by ctypes, as its own Python does, but with cupy's memory: PyPI has no torch with CUDA for
Windows. Its DLL imports cuBLAS (--with nvidia-cublas==VERSION), which nothing here calls.
"""

import ctypes
import importlib.metadata
import math
import re

import cupy
import numpy

BLOCK, NF4 = 64, 2
CODES = {
    "nf4": "-1 -.6961928009986877 -.5250730514526367 -.39491748809814453 -.28444138169288635 "
    "-.18477343022823334 -.09105003625154495 0 .07958029955625534 .16093020141124725 "
    ".24611230194568634 .33791524171829224 .44070982933044434 .5626170039176941 "
    ".7229568362236023 1",
    "fp4": "0 .005208333333 .66666667 1 .33333333 .5 .16666667 .25 "
    "0 -.005208333333 -.66666667 -1 -.33333333 -.5 -.16666667 -.25",
}
random = numpy.random.default_rng(7)
wheel = importlib.metadata.distribution("bitsandbytes")
wrong: "list[str]" = []


def library() -> ctypes.CDLL:
    """That of the newest CUDA which the driver knows."""
    driver = cupy.cuda.runtime.driverGetVersion() // 10
    known = {
        int(found[1][:-1]) * 100 + int(found[1][-1]): file
        for file in wheel.files or ()
        if (found := re.fullmatch(r"libbitsandbytes_cuda(\d+)\.(dll|so)", file.name))
    }
    chosen = known[max(version for version in known if version <= driver)]
    print("library:", chosen.name)
    return ctypes.CDLL(str(wheel.locate_file(chosen)))


def there(array: "numpy.ndarray") -> "cupy.ndarray":
    """A copy in the GPU's memory."""
    return cupy.asarray(numpy.ascontiguousarray(array))


def empty(shape: "tuple[int, ...]", kind: str) -> "cupy.ndarray":
    """For a result: full of what is none, so that a value that was not written shows."""
    return there(numpy.full(shape, 77 if kind in ("i1", "u1") else math.nan, kind))


def run(name: str, *given: object) -> None:
    """Arrays go as addresses, numbers as they are."""
    kinds = [
        ctypes.c_void_p(one.data.ptr) if isinstance(one, cupy.ndarray) else one for one in given
    ]
    getattr(bitsandbytes, name)(*kinds)


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


def unpacked(packed: "cupy.ndarray") -> "numpy.ndarray":
    """The first number of a byte is in its upper half."""
    both = cupy.asnumpy(packed)
    return numpy.stack([both >> 4, both & 15], -1).ravel()


def four_bits() -> None:
    """To four bits and back, of three types."""
    for code, text in CODES.items():
        table = numpy.array([float(one) for one in text.split()])
        for kind, named in (("f4", "fp32"), ("f2", "fp16")):
            x = random.standard_normal(1 << 15).astype(kind)
            sizes = numpy.abs(x).reshape(-1, BLOCK).max(1).astype("f4")
            found, packed = empty(sizes.shape, "f4"), empty((x.size // 2,), "u1")
            back = empty(x.shape, kind)
            run(f"cquantize_blockwise_{named}_{code}", None, there(x), found, packed, BLOCK, x.size)
            given = (None, packed, found, back, BLOCK, x.size, None)
            run(f"cdequantize_blockwise_{named}_{code}", *given)
            compare(f"{code} {named} sizes", found, sizes, 1e-6)
            known = table[unpacked(packed)].reshape(-1, BLOCK) * sizes[:, None]
            compare(f"{code} {named} back", back, known, 2e-3 if kind == "f2" else 1e-6)
            unit = x.reshape(-1, BLOCK) / sizes[:, None]
            least = numpy.abs(unit[..., None] - table).min(-1)
            far = numpy.abs(unit - known / sizes[:, None]) - least
            print(f"{code} {named} too far from the nearest = {far.max():.3e}")
            if not far.max() <= 4e-3:  # only where two are almost as near
                wrong.append(f"{code} {named}")


def eight_bits() -> None:
    """By a table of 256, and by rows."""
    table = numpy.linspace(-1, 1, 256).astype("f4")
    x = random.standard_normal(1 << 15).astype("f4")
    sizes, q, back = empty((x.size // 256,), "f4"), empty(x.shape, "u1"), empty(x.shape, "f4")
    run("cquantize_blockwise_fp32", there(table), there(x), sizes, q, 256, x.size)
    run("cdequantize_blockwise_fp32", there(table), q, sizes, back, 256, x.size, None)
    ideal = numpy.abs(x).reshape(-1, 256).max(1)
    known = table[cupy.asnumpy(q)].reshape(-1, 256) * ideal[:, None]
    compare("eight bits back", back, known, 1e-6)
    compare("eight bits", back, x, 1 / 200)
    rows = random.standard_normal((64, 512)).astype("f2")
    q, sizes = empty(rows.shape, "i1"), empty((64,), "f4")
    run("cint8_vector_quant", there(rows), q, sizes, ctypes.c_float(0), 64, 512, None)
    largest = numpy.abs(rows).max(1, keepdims=True).astype("f4")
    compare("int8 row sizes", sizes, largest, 1e-6)
    compare("int8 rows", q, rows * 127 / largest, 0.6 / 127)
    sums = random.integers(-(10**6), 10**6, (64, 128)).astype("i4")
    left, right = random.uniform(0.01, 0.1, 64), random.uniform(0.01, 0.1, 128)
    bias, out = random.standard_normal(128).astype("f2"), empty((64, 128), "f2")
    given = [there(one) for one in (sums, left.astype("f4"), right.astype("f4"))]
    run("cdequant_mm_int32_fp16", *given, out, there(bias), 64, 128, None)
    compare("int32 back", out, sums * left[:, None] * right / 127**2 + bias, 2e-3)


def products() -> None:
    """With weights of NF4: of one row, and of many with tensor cores."""
    table = numpy.array([float(one) for one in CODES["nf4"].split()], "f4")
    outputs, inputs = 512, 1024
    packed = random.integers(0, 256, outputs * inputs // 2).astype("u1")
    sizes = random.uniform(0.5, 1.5, outputs * inputs // BLOCK).astype("f4")
    weights = table[unpacked(there(packed))].reshape(-1, BLOCK) * sizes[:, None].astype("f8")
    weights = weights.reshape(outputs, inputs).T
    codes, scales, lut = there(packed), there(sizes), there(table)
    row = random.standard_normal((1, inputs)).astype("f2")
    x, out = there(row), empty((1, outputs), "f2")
    edges = (outputs, inputs // 2, outputs, BLOCK, None)
    shape = (outputs, 1, inputs)
    run("cgemm_4bit_inference_naive_fp16", *shape, x, codes, scales, lut, out, *edges)
    compare("nf4 product of one row", out, row.astype("f8") @ weights, 5e-3)
    for count in (4, 32):
        rows = random.standard_normal((count, inputs)).astype("f2")
        x, out = there(rows), empty((count, outputs), "f2")
        more = (None, None, None, out, None, count, outputs, inputs, BLOCK, NF4, None)
        timed(f"nf4 product of {count} rows", "cgemm_4bit_fp16", x, codes, scales, *more)
        compare(f"nf4 product of {count} rows", out, rows.astype("f8") @ weights, 5e-3)


def timed(name: str, function: str, *given: object) -> None:
    """Of one launch, after the first."""
    run(function, *given)
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record()
    for _ in range(100):
        run(function, *given)
    end.record()
    end.synchronize()
    print(f"{name} milliseconds = {cupy.cuda.get_elapsed_time(begin, end) / 100:.4f}")


print("version:", wheel.version)
print("device:", cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())
bitsandbytes = library()
for check in (four_bits, eight_bits, products):
    try:
        check()
        cupy.cuda.runtime.deviceSynchronize()
    except Exception as error:  # the others are still asked
        print(f"{check.__name__}: {type(error).__name__}: {error}"[:500])
        wrong.append(check.__name__)
assert not wrong, f"wrong: {', '.join(wrong)}"
