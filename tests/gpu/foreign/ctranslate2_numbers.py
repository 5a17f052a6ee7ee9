"""ctranslate2 computes on the GPU: for ``invoke test --wheel ctranslate2==VERSION --script``.

A small decoder with random weights is written here, then scored on the GPU and on the CPU: a model
on the GPU multiplies with cuBLAS, whose DLL must be found (--with nvidia-cublas-cu12==VERSION).
"""

import tempfile

import ctranslate2
import numpy
from ctranslate2.specs import TransformerDecoderModelSpec

WIDTH, HEADS, LAYERS, WORDS = 64, 4, 2, 128
random = numpy.random.default_rng(7)


def weights(*shape: int) -> "numpy.ndarray":
    """Small ones."""
    return (random.standard_normal(shape) / 8).astype(numpy.float32)


def linear(spec: object, outputs: int, inputs: int) -> None:
    """A layer's weights, with a bias."""
    spec.weight, spec.bias = weights(outputs, inputs), weights(outputs)


def norm(spec: object) -> None:
    """A layer normalisation that changes little."""
    spec.gamma, spec.beta = numpy.ones(WIDTH, numpy.float32), numpy.zeros(WIDTH, numpy.float32)


def model(folder: str) -> None:
    """A decoder as GPT-2 is one."""
    spec = TransformerDecoderModelSpec.from_config(LAYERS, HEADS, pre_norm=True)
    decoder = spec.decoder
    decoder.embeddings.weight = weights(WORDS, WIDTH)
    decoder.position_encodings.encodings = weights(64, WIDTH)
    decoder.scale_embeddings = False
    norm(decoder.layer_norm)
    decoder.projection.weight = weights(WORDS, WIDTH)
    for layer in decoder.layer:
        norm(layer.self_attention.layer_norm)
        linear(layer.self_attention.linear[0], 3 * WIDTH, WIDTH)
        linear(layer.self_attention.linear[1], WIDTH, WIDTH)
        norm(layer.ffn.layer_norm)
        linear(layer.ffn.linear_0, 4 * WIDTH, WIDTH)
        linear(layer.ffn.linear_1, WIDTH, 4 * WIDTH)
    spec.config.unk_token = spec.config.bos_token = spec.config.eos_token = "w0"
    spec.register_vocabulary([f"w{number}" for number in range(WORDS)])
    spec.validate()
    spec.optimize()
    spec.save(folder)


print("version:", ctranslate2.__version__)
assert ctranslate2.get_cuda_device_count() > 0, "ctranslate2 counts no GPU"
print(f"GPUs = {ctranslate2.get_cuda_device_count()}")
folder = tempfile.mkdtemp()
model(folder)
text = [[f"w{number}" for number in random.integers(1, WORDS, 24)] for _ in range(8)]
scores = {}
for device in ("cpu", "cuda"):
    generator = ctranslate2.Generator(folder, device=device, compute_type="float32")
    assert generator.device == device
    # On the GPU the logits lie in its own memory, which the storage itself says.
    logits = generator.forward_batch(text)
    assert logits.device == device, f"{device}: the logits are on {logits.device}"
    found = generator.score_batch(text)
    scores[device] = numpy.array([one.log_probs for one in found])
difference = float(numpy.abs(scores["cpu"] - scores["cuda"]).max())
print(f"mean log probability on the GPU = {float(scores['cuda'].mean()):.6f}")
print(f"mean log probability on the CPU = {float(scores['cpu'].mean()):.6f}")
print(f"largest difference = {difference:.3e}")
assert difference < 1e-3
