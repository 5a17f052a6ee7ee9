"""The library of a build on torch's stable ABI, for the tests that are for such a build alone."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import pytest
import smoke_suite


@pytest.fixture(scope="module")
def library(installed: importlib.metadata.Distribution) -> Path:
    """The wheel's library."""
    for file in installed.files or ():
        if file.as_posix() in smoke_suite.STABLE:
            return Path(str(installed.locate_file(file)))
    pytest.skip("this flash_attn has upstream's extension")


@pytest.fixture(scope="module")
def ops(library: Path) -> Any:
    """Its operators, with any torch."""
    import torch

    torch.ops.load_library(str(library))
    return torch.ops.flash_attn_2_cuda
