"""onnxruntime computes on the GPU: for ``invoke test --wheel onnxruntime-gpu==VERSION --script``.

A model without matrix products, written byte by byte: ONNX' protocol buffers are simple enough, and
nothing else must be installed. Its profile must say that the CUDA provider ran each node: one that
cannot be loaded is only a warning of onnxruntime's, which then goes on with the CPU.
"""

import json
import tempfile
from pathlib import Path

import numpy
import onnxruntime

FLOAT, TENSOR = 1, 1
SIZE = 1 << 20


def number(value: int) -> bytes:
    """A varint."""
    made = b""
    while value > 0x7F:
        made += bytes([value & 0x7F | 0x80])
        value >>= 7
    return made + bytes([value])


def field(key: int, value: "int | bytes | str") -> bytes:
    """A field of a message, by its type."""
    if isinstance(value, int):
        return number(key << 3) + number(value)
    data = value.encode() if isinstance(value, str) else value
    return number(key << 3 | 2) + number(len(data)) + data


def node(kind: str, inputs: "list[str]", output: str) -> bytes:
    """NodeProto: input 1, output 2, name 3, op_type 4."""
    given = b"".join(field(1, name) for name in inputs)
    return field(1, given + field(2, output) + field(3, f"{kind}_{output}") + field(4, kind))


def tensor(name: str) -> bytes:
    """ValueInfoProto of a vector: name 1, type 2."""
    shape = field(1, field(1, SIZE))  # dim, dim_value
    kind = field(1, field(1, FLOAT) + field(2, shape))
    return field(1, name) + field(2, kind)


# GraphProto: node 1, name 2, input 11, output 12
graph = b"".join(
    (node("Mul", ["x", "x"], "a"), node("Sqrt", ["a"], "b"), node("Add", ["b", "x"], "c"))
)
graph += (
    node("Sigmoid", ["c"], "y") + field(2, "g") + field(11, tensor("x")) + field(12, tensor("y"))
)
# ModelProto: ir_version 1, graph 7, opset_import 8 (version 2)
model = field(1, 8) + field(7, graph) + field(8, field(2, 17))

print("version:", onnxruntime.__version__)
print("device:", onnxruntime.get_device(), onnxruntime.get_available_providers())
if hasattr(onnxruntime, "preload_dlls"):
    onnxruntime.preload_dlls()
options = onnxruntime.SessionOptions()
options.enable_profiling = True
options.profile_file_prefix = str(Path(tempfile.mkdtemp(), "profile"))
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
session = onnxruntime.InferenceSession(model, options, ["CUDAExecutionProvider"])
assert session.get_providers()[0] == "CUDAExecutionProvider", session.get_providers()

x = numpy.linspace(-3, 3, SIZE, dtype=numpy.float32)
(y,) = session.run(None, {"x": x})
known = 1 / (1 + numpy.exp(-(numpy.abs(x).astype(numpy.float64) + x)))
difference = float(numpy.abs(y - known).max())
print(f"difference to numpy = {difference:.3e}")
print(f"sum = {float(y.astype(numpy.float64).sum()):.4f}")
assert difference < 1e-5

told = json.loads(Path(session.end_profiling()).read_text("utf-8"))
events = [event.get("args", {}) for event in told]
ran = {e["op_name"]: e["provider"] for e in events if e.get("provider") and e.get("op_name")}
print("providers:", ran)
assert {"Mul", "Sqrt", "Add", "Sigmoid"} <= ran.keys(), "the profile does not tell of each node"
there = [name for name, provider in ran.items() if provider == "CUDAExecutionProvider"]
assert {"Mul", "Sqrt", "Add", "Sigmoid"} <= {*there}
print(f"nodes on the GPU = {len(there)}")
