"""xgboost trains on the GPU: for ``invoke test --wheel xgboost==VERSION --script`` this file.

It fails where the GPU was not used: xgboost then says so in the booster's own configuration,
and goes on with the CPU.
"""

import json
import time

import numpy
import xgboost

ROWS, COLUMNS, ROUNDS = 200_000, 50, 100

random = numpy.random.default_rng(7)
x = random.standard_normal((ROWS, COLUMNS), dtype=numpy.float32)
y = (x[:, 0] * x[:, 1] + numpy.sin(3 * x[:, 2]) > 0).astype(numpy.float32)
train = xgboost.DMatrix(x[: ROWS // 2], y[: ROWS // 2])
test = xgboost.DMatrix(x[ROWS // 2 :])
known = y[ROWS // 2 :]


def fit(device: str) -> "tuple[xgboost.Booster, float]":
    """A booster trained there, and the seconds it took."""
    wanted = {"objective": "binary:logistic", "max_depth": 8, "tree_method": "hist", "seed": 7}
    began = time.perf_counter()
    made = xgboost.train({**wanted, "device": device}, train, ROUNDS)
    return made, time.perf_counter() - began


def device_of(booster: xgboost.Booster) -> str:
    """Where it says that it was trained."""
    told = json.loads(booster.save_config())
    return str(told["learner"]["generic_param"]["device"])


assert xgboost.build_info()["USE_CUDA"], "this xgboost was built without CUDA"
print("version:", xgboost.__version__, "CUDA", xgboost.build_info().get("CUDA_VERSION"))
fit("cuda")  # the first use loads the device code
on_gpu, seconds = fit("cuda")
assert device_of(on_gpu).startswith("cuda"), f"it was trained on {device_of(on_gpu)}"
on_cpu, cpu_seconds = fit("cpu")
assert device_of(on_cpu) == "cpu"
told, other = on_gpu.predict(test), on_cpu.predict(test)
accuracy = float(((told > 0.5) == known).mean())
print(f"accuracy on the GPU = {accuracy:.6f}")
print(f"accuracy on the CPU = {float(((other > 0.5) == known).mean()):.6f}")
print(f"mean prediction = {float(told.mean()):.6f}")
print(f"mean difference to the CPU = {float(numpy.abs(told - other).mean()):.6f}")
print(f"seconds on the GPU = {seconds:.3f}")
print(f"seconds on the CPU = {cpu_seconds:.3f}")
assert accuracy > 0.9, "it has learnt nothing"
