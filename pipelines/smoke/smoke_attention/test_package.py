"""The wheel as installed: its files, its metadata, the GPU code inside it. No GPU is needed."""

from __future__ import annotations

import math
import sys
from importlib.metadata import Distribution
from pathlib import Path

import pytest
import reference
from smoke_batches import Record
from smoke_facts import Expected, Facts

EXTENSIONS = (".pyd", ".so")


def extension_file(installed: Distribution) -> Path:
    """Return the one extension module among the installed files."""
    (name,) = [file for file in installed.files or [] if file.name.endswith(EXTENSIONS)]
    return Path(str(installed.locate_file(name)))


def test_module_version_is_the_metadata_version(installed: Distribution) -> None:
    """``smoke_attention.__version__`` is the installed version, not an older build's."""
    import smoke_attention

    assert smoke_attention.__version__ == installed.version


def test_wheel_tag_is_this_python_and_platform(
    installed: Distribution, expected: Expected, record_property: Record
) -> None:
    """The WHEEL file's tag is for this CPython and for the platform that was asked for."""
    lines = (installed.read_text("WHEEL") or "").splitlines()
    tags = [line.removeprefix("Tag:").strip() for line in lines if line.startswith("Tag:")]
    record_property("tags", " ".join(tags))
    assert tags, "WHEEL has no Tag"
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    for tag in tags:
        assert tag.startswith(f"{python}-{python}-")
        if expected["platform"]:
            assert tag == f"{python}-{python}-{expected['platform']}"


def test_package_has_exactly_the_files_of_record(installed: Distribution) -> None:
    """The package directory holds what RECORD lists and nothing else, but for byte code."""
    listed = {Path(str(installed.locate_file(file))).resolve() for file in installed.files or []}
    package = extension_file(installed).resolve().parent
    present = {path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    inside = {path for path in listed if package in path.parents and path.suffix != ".pyc"}
    assert present == inside
    assert {"__init__.py", "py.typed", "_build_info.json"} <= {path.name for path in present}


def test_extension_holds_machine_code_for_every_architecture(
    installed: Distribution, expected: Expected, record_property: Record
) -> None:
    """The extension carries SASS and PTX for the architectures asked for and no others."""
    import fatbin

    inventory = fatbin.inventory(extension_file(installed).read_bytes())
    record_property("sass", " ".join(sorted(inventory.sass, key=int)))
    record_property("ptx", " ".join(sorted(inventory.ptx, key=int)))
    record_property("containers", len(inventory.containers))
    assert inventory.containers, "no device code in the extension"
    assert set(inventory.sass) == set(expected["archs"])
    assert set(inventory.ptx) == set(expected["ptx"])


def test_every_compiled_unit_carries_every_architecture(installed: Distribution) -> None:
    """Every compiled unit has the architectures that another one has."""
    import fatbin

    assert fatbin.inventory(extension_file(installed).read_bytes()).uneven() == {}


def test_build_info_agrees(expected: Expected) -> None:
    """``build_info()`` tells the version, architectures and CUDA that were asked for."""
    import smoke_attention

    info = smoke_attention.build_info()
    assert info["version"] == expected["version"]
    assert set(info["sass"]) == set(expected["archs"])
    assert set(info["ptx"]) == set(expected["ptx"])
    assert info["cuda"].split(".")[:2] == expected["cuda"].split(".")[:2]


GOOD: dict[str, object] = {
    "q": bytes(2 * 32 * 4),
    "k": bytes(3 * 32 * 4),
    "v": bytes(3 * 32 * 4),
    "batch": 1,
    "heads": 1,
    "head_dim": 32,
    "seqlen_q": 2,
    "seqlen_k": 3,
    "dtype": "float32",
}


BAD: list[tuple[dict[str, object], type[Exception], str | None]] = [
    ({"q": bytes(255)}, ValueError, "q must hold 256 bytes"),
    ({"k": bytes(380)}, ValueError, "k must hold 384 bytes"),
    ({"v": b""}, ValueError, "v must hold 384 bytes"),
    ({"dtype": "float64"}, ValueError, "dtype must be 'float32' or 'float16', got 'float64'"),
    ({"dtype": "float16"}, ValueError, "q must hold 128 bytes"),
    ({"head_dim": 48}, ValueError, "head_dim must be 32, 64, 96 or 128, got 48"),
    ({"head_dim": 0}, ValueError, "head_dim must be 32, 64, 96 or 128, got 0"),
    ({"batch": 0}, ValueError, "batch must be at least 1, got 0"),
    ({"heads": -1}, ValueError, "heads must be at least 1, got -1"),
    ({"seqlen_q": 0}, ValueError, "seqlen_q must be at least 1"),
    ({"seqlen_k": 0}, ValueError, "seqlen_k must be at least 1"),
    ({"scale": float("nan")}, ValueError, "scale must be finite"),
    ({"scale": float("inf")}, ValueError, "scale must be finite"),
    ({"batch": 2**30, "heads": 2**30}, ValueError, "must stay below"),
    ({"batch": 2**31 - 1, "seqlen_q": 2**31 - 65}, ValueError, "larger than memory"),
    ({"batch": 2**40}, OverflowError, None),
    ({"q": "text"}, TypeError, None),
    ({"q": [0.0]}, TypeError, None),
    ({"batch": 1.5}, TypeError, None),
]


def label(change: dict[str, object]) -> str:
    """Name a case by what is wrong: ``q=255 bytes``, ``head_dim=48``."""
    return ",".join(
        f"{name}={f'{len(value)} bytes' if isinstance(value, bytes) else value}"
        for name, value in change.items()
    )


@pytest.mark.parametrize(
    ("change", "error", "message"), BAD, ids=[label(change) for change, _, _ in BAD]
)
def test_bad_arguments_are_refused(
    change: dict[str, object], error: type[Exception], message: str | None
) -> None:
    """Wrong sizes and types raise without a GPU's help, and the message names the fault."""
    import smoke_attention

    with pytest.raises(error, match=message):
        smoke_attention.attention(**{**GOOD, **change})


def test_output_must_be_writable() -> None:
    """The extension refuses to write into an immutable buffer."""
    from smoke_attention import _core

    with pytest.raises((TypeError, BufferError)):
        _core.forward(
            bytes(128), bytes(128), bytes(128), bytes(128), 1, 1, 1, 1, 32, "float32", 0, 1.0
        )


def test_without_a_gpu_it_says_so(facts: Facts) -> None:
    """Good arguments on a host without a GPU raise RuntimeError instead of giving an answer."""
    if facts["gpu"]["devices"]:
        pytest.skip("this host has a GPU")
    import smoke_attention

    with pytest.raises(RuntimeError, match="no CUDA device"):
        smoke_attention.attention(**GOOD)


def test_reference_gives_a_hand_calculated_answer() -> None:
    """The GPU tests' reference is right where it can be checked by hand, mask included."""
    keys, values = [[0.0], [math.log(3)]], [[0.0], [4.0]]  # weights 1/4 and 3/4
    got = reference.attention([[1.0], [1.0]], keys, values, causal=True, scale=1.0)
    assert got[0] == [0.0]
    assert got[1] == pytest.approx([3.0])
