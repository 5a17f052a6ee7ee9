"""cupy computes on the GPU: for ``invoke test --wheel cupy-cudaXXx==VERSION --script`` this file.

NVRTC compiles every kernel, so its DLL must be there; nothing here needs cuBLAS, cuFFT or cuRAND.
Each result is asserted to lie in the GPU's own memory, and to have the right value.
"""

import time

import cupy
import numpy

DEVICE_MEMORY = 2  # cudaMemoryTypeDevice


def on_gpu(array: "cupy.ndarray") -> "cupy.ndarray":
    """The array, which the run-time must say is memory of the GPU."""
    found = cupy.cuda.runtime.pointerGetAttributes(array.data.ptr)
    assert found.type == DEVICE_MEMORY, f"memory of type {found.type}"
    return array


properties = cupy.cuda.runtime.getDeviceProperties(0)
print("device:", properties["name"].decode())
print("version:", cupy.__version__)
print(f"compute capability = {properties['major']}.{properties['minor']}")
print(f"run-time = {cupy.cuda.runtime.runtimeGetVersion()}")
print(f"driver = {cupy.cuda.runtime.driverGetVersion()}")

free, total = cupy.cuda.runtime.memGetInfo()
x = on_gpu(cupy.arange(1 << 24, dtype=cupy.float32))
assert cupy.cuda.runtime.memGetInfo()[0] < free, "no memory of the GPU was taken"
here = numpy.arange(1 << 24, dtype=numpy.float32)

scaled = on_gpu(cupy.sqrt(x) * 2 + 1)
difference = float(numpy.abs(cupy.asnumpy(scaled) - (numpy.sqrt(here) * 2 + 1)).max())
print(f"elementwise difference to numpy = {difference:.3e}")
assert difference < 1e-2

total_sum = float(on_gpu(x.astype(cupy.float64)).sum())
print(f"sum = {total_sum:.1f}")
assert total_sum == here.astype(numpy.float64).sum()

ordered = on_gpu(cupy.sort(x[::-1]))
assert bool((ordered == x).all()), "it was not sorted"

kernel = cupy.RawKernel(
    """extern "C" __global__ void saxpy(float a, const float *x, float *y, int n)
    {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = a * x[i] + y[i];
    }""",
    "saxpy",
)
y = on_gpu(cupy.ones_like(x))
kernel((x.size // 256,), (256,), (numpy.float32(3), x, y, numpy.int32(x.size)))
found = float(numpy.abs(cupy.asnumpy(y) - (here * numpy.float32(3) + 1)).max())
print(f"saxpy difference to numpy = {found:.3e}")
assert found <= 4.0  # of 50 million: fused on the GPU, rounded twice here

begin, end = cupy.cuda.Event(), cupy.cuda.Event()
begin.record()
for _ in range(100):
    kernel((x.size // 256,), (256,), (numpy.float32(3), x, y, numpy.int32(x.size)))
end.record()
end.synchronize()
print(f"saxpy milliseconds = {cupy.cuda.get_elapsed_time(begin, end) / 100:.4f}")
began = time.perf_counter()
back = cupy.asnumpy(x)
print(f"copy back GB per s = {back.nbytes / (time.perf_counter() - began) / 1e9:.2f}")
assert (back == here).all()
