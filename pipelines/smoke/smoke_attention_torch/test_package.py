"""The wheel as installed: its tag, its metadata, the GPU code inside it. No GPU is needed."""

from __future__ import annotations

import ctypes
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from smoke_batches import Record
from smoke_facts import Expected, Facts

LIBRARIES = (".dll", ".so")


def libraries(installed: Distribution) -> dict[str, Path]:
    """The libraries among the installed files, by their name without its end."""
    files = [file for file in installed.files or [] if file.name.endswith(LIBRARIES)]
    return {file.stem: Path(str(installed.locate_file(file))) for file in files}


def test_module_version_is_the_metadata_version(installed: Distribution) -> None:
    """``__version__`` is the installed version, not an older build's."""
    import smoke_attention_torch

    assert smoke_attention_torch.__version__ == installed.version


def test_wheel_is_for_every_python(installed: Distribution, expected: Expected) -> None:
    """One tag, ``py3-none`` and the platform that was asked for."""
    lines = (installed.read_text("WHEEL") or "").splitlines()
    (tag,) = [line.removeprefix("Tag:").strip() for line in lines if line.startswith("Tag:")]
    assert tag.startswith("py3-none-")
    if expected["platform"]:
        assert tag == f"py3-none-{expected['platform']}"


def test_metadata_requires_the_least_torch(installed: Distribution) -> None:
    """pip cannot install it with a torch that is too old for it."""
    import smoke_attention_torch

    least = smoke_attention_torch.build_info()["least_torch"]
    assert f"torch>={least}" in (installed.requires or [])


def test_every_unit_carries_every_architecture(
    installed: Distribution, expected: Expected, record_property: Record
) -> None:
    """The CUDA library has SASS and PTX as asked for in each unit, the CPU's has none."""
    import fatbin

    found = {
        name: fatbin.inventory(path.read_bytes()) for name, path in libraries(installed).items()
    }
    assert set(found) == {"_cpu", "_cuda"}
    cuda = found["_cuda"]
    record_property("sass", " ".join(sorted(cuda.sass, key=int)))
    assert not found["_cpu"].containers
    assert cuda.containers, "no device code in the library"
    assert cuda.uneven() == {}
    if expected["archs"]:
        assert set(cuda.sass) == set(expected["archs"])
        assert set(cuda.ptx) == set(expected["ptx"])


def test_the_cuda_library_loads(installed: Distribution) -> None:
    """Also with a torch without CUDA, which does not load it: for its functions of C."""
    import smoke_attention_torch

    assert libraries(installed)["_cuda"].samefile(smoke_attention_torch.CUDA_LIBRARY)
    library = ctypes.CDLL(str(smoke_attention_torch.CUDA_LIBRARY))
    assert library.smoke_attention_launch
    assert library.smoke_attention_error


def test_build_info_agrees(installed: Distribution, expected: Expected) -> None:
    """What the package says of its build is what was asked for."""
    import smoke_attention_torch

    built = smoke_attention_torch.build_info()
    assert built["version"] == installed.version
    if not expected["archs"]:
        pytest.skip("which architectures were ordered is not known")
    assert set(built["sass"]) == set(expected["archs"])
    assert set(built["ptx"]) == set(expected["ptx"])


def test_torch_is_the_one_that_was_asked_for(
    facts: Facts, expected: Expected, record_property: Record
) -> None:
    """The torch of this very process, not of another: the wheel is for several."""
    import smoke_attention_torch
    import torch

    record_property("torch_loaded", str(torch.__version__))
    record_property("torch_built_with", smoke_attention_torch.build_info()["torch"])
    assert str(torch.__version__) == facts["torch"]["version"]
    if not expected.get("torch"):
        pytest.skip(f"which torch was meant is not known; torch {torch.__version__} was loaded")
    asked = str(expected["torch"]).split(".")
    assert str(torch.__version__).split(".")[: len(asked)] == asked
