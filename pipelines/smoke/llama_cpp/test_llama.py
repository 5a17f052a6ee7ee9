"""A whole model, small and random, against its computation in float64."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from smoke_batches import Record

KINDS = ("F32", "F16", "BF16", "Q4_0", "Q8_0", "Q4_K", "Q6_K")
#: One token, a few, and many at once are kernels of their own.
COUNTS = (1, 7, 65, 200)

kinds = pytest.mark.parametrize("kind", KINDS)
attentions = pytest.mark.parametrize("flash", [False, True], ids=["plain", "flash"])


def tokens(count: int) -> list[int]:
    source = random.Random(count)  # noqa: S311 - not for secrets
    return [source.randrange(96) for _ in range(count)]


@kinds
def test_without_a_gpu(kind: str, tmp_path: Path, record_property: Record) -> None:
    """The CPU's own way: what is asked of the GPU below is no more than this."""
    import gguf_model
    import running
    import tolerance

    model = gguf_model.Model(kind)
    model.write(tmp_path / "model.gguf")
    with running.opened(tmp_path / "model.gguf", gpu=False) as run:
        got = run.logits(tokens(33))
    tolerance.verdict(tolerance.shares(got, model.logits(tokens(33)), kind), record_property)


def test_it_was_built_for_gpus() -> None:
    """A build without CUDA imports as well, and computes on the CPU in silence."""
    import llama_cpp

    info = llama_cpp.llama_print_system_info().decode()
    assert "CUDA" in info, info


@attentions
@pytest.mark.parametrize("count", COUNTS)
@kinds
@pytest.mark.usefixtures("gpu")
def test_on_the_gpu(
    kind: str, count: int, flash: bool, tmp_path: Path, record_property: Record
) -> None:
    """All layers there, which the library itself must say."""
    import gguf_model
    import running
    import tolerance

    model = gguf_model.Model(kind)
    model.write(tmp_path / "model.gguf")
    with running.opened(tmp_path / "model.gguf", flash=flash) as run:
        got = run.logits(tokens(count))
        said = "".join(run.said)
    layers = gguf_model.LAYERS + 1
    assert f"offloaded {layers}/{layers} layers to GPU" in said, said[-1500:]
    tolerance.verdict(tolerance.shares(got, model.logits(tokens(count)), kind), record_property)


@attentions
@pytest.mark.parametrize("kind", ["F16", "Q4_K"])
@pytest.mark.usefixtures("gpu")
def test_a_prompt_and_steps(
    kind: str, flash: bool, tmp_path: Path, record_property: Record
) -> None:
    """What is kept of the prompt is what each further token goes on from."""
    import gguf_model
    import numpy as np
    import running
    import tolerance

    model = gguf_model.Model(kind)
    model.write(tmp_path / "model.gguf")
    every = tokens(48)
    with running.opened(tmp_path / "model.gguf", flash=flash) as run:
        parts = [run.logits(every[:40])]
        parts += [run.logits(every[at : at + 1], at) for at in range(40, 48)]
    got = np.concatenate(parts)
    tolerance.verdict(tolerance.shares(got, model.logits(every), kind), record_property)


@pytest.mark.usefixtures("gpu")
def test_sequences_do_not_mix(tmp_path: Path, record_property: Record) -> None:
    """Two of them in one context: neither sees the other."""
    import gguf_model
    import running
    import tolerance

    model = gguf_model.Model("F16")
    model.write(tmp_path / "model.gguf")
    one, other = tokens(30), tokens(31)
    with running.opened(tmp_path / "model.gguf") as run:
        run.logits(other, sequence=1)
        got = run.logits(one, sequence=0)
        again = run.logits([5], 31, sequence=1)
    errors = tolerance.shares(got, model.logits(one), "F16")
    late = tolerance.shares(again, model.logits([*other, 5])[-1:], "F16")
    tolerance.verdict(errors | {f"late_{name}": v for name, v in late.items()}, record_property)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    """It is refused, and the next one is read."""
    import gguf_model
    import running

    (tmp_path / "model.gguf").write_bytes(b"GGUF" + b"\0" * 100)
    with (
        pytest.raises(AssertionError, match=r"(?i)gguf|failed"),
        running.opened(tmp_path / "model.gguf", gpu=False),
    ):
        pass
    gguf_model.Model("F32").write(tmp_path / "model.gguf")
    with running.opened(tmp_path / "model.gguf", gpu=False) as run:
        assert run.logits([1]).shape == (1, gguf_model.VOCABULARY)
