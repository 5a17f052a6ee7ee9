"""The imports and checks of projects that use flash_attn, done as each of them does it.

No GPU is needed. With a torch without CUDA every import is the ImportError that they look for.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
from typing import Any

import pytest
from flash_consumers import UNMET, USES, Unmet, Use
from packaging.version import Version
from smoke_batches import Record

pytest_plugins = "flash_stable"
pytestmark = pytest.mark.usefixtures("library")

uses = pytest.mark.parametrize("use", USES, ids=[use.id for use in USES])


def run(code: str) -> dict[str, Any]:
    """Its names."""
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102  statements of flash_consumers
    return names


def is_refused(code: str) -> bool:
    """Whether this torch is without CUDA: then it is an ImportError that says so."""
    import torch

    if torch.version.cuda:
        return False
    with pytest.raises(ImportError, match="torch for CUDA"):
        run(code)
    return True


def parameters(function: Any) -> set[str]:
    """Those of a function, or of the one behind a custom operator."""
    return set(inspect.signature(getattr(function, "_init_fn", function)).parameters)


def test_distribution_of_the_package_is_found(
    installed: importlib.metadata.Distribution,
) -> None:
    """transformers asks, for FlashAttention 4 has a package of that name too.

    Python 3.10 reads top_level.txt alone; later ones do without it.
    """
    assert "flash_attn" in importlib.metadata.packages_distributions()["flash_attn"]
    tops = installed.read_text("top_level.txt") or ""
    assert sorted(tops.split()) == ["flash_attn", "flash_attn_2_cuda"]


@pytest.mark.parametrize("name", ["flash_attn", "flash-attn"])
@uses
def test_version_is_taken(use: Use, name: str) -> None:
    """With the local part, which counts as newer, and without: Megatron and xFormers ask that."""
    whole = Version(importlib.metadata.version(name))
    for version in (whole, Version(whole.public)):
        least, below, most = map(Version, (use.least, use.below, use.most))
        assert (least <= version < below and version <= most) != use.refused


@pytest.mark.parametrize("use", [use for use in USES if use.imports], ids=lambda use: use.id)
def test_imports(use: Use, record_property: Record) -> None:
    record_property("without_flash_attn", "goes on" if use.guarded else "is an ImportError")
    if is_refused(use.imports):
        return
    if use.triton and importlib.util.find_spec("triton") is None:
        pytest.skip("this part of flash_attn needs Triton (on Windows: triton-windows)")
    names = run(use.imports)
    import flash_attn
    import flash_attn_2_cuda

    assert flash_attn.__version__ == Version(importlib.metadata.version("flash_attn")).public
    for name, words in use.words.items():
        assert set(words.split()) <= parameters(names[name]), name
    for name, count in use.places.items():
        inspect.signature(getattr(flash_attn_2_cuda, name)).bind(*range(count))


@pytest.mark.parametrize("unmet", UNMET, ids=[unmet.id for unmet in UNMET])
def test_what_is_not_there_is_said(unmet: Unmet) -> None:
    """Moved by upstream, or another distribution's; an entry that works one day is to be moved."""
    if unmet.distribution:
        try:
            found = importlib.metadata.distribution(unmet.distribution)
        except importlib.metadata.PackageNotFoundError:
            pass
        else:
            pytest.skip(f"{found.name} {found.version} is installed, which brings it")
    if is_refused(unmet.code):
        return
    with pytest.raises((ImportError, TypeError), match=unmet.says):
        run(unmet.code)
