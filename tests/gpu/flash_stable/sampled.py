"""A plugin for upstream's 400,000 tests: SAMPLE of each function and head dimension.

``PYTHONPATH=THIS:PLACE/ours SAMPLE=8 pytest -p sampled tests/test_flash_attn.py`` in upstream's
directory. The sample is the same in each process and for each build.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

SAMPLE = int(os.environ.get("SAMPLE", "8"))


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Takes the place of the marks ``parametrize`` with one of chosen combinations."""
    marks = [*metafunc.definition.iter_markers("parametrize")]
    if not marks:
        return
    axes: list[tuple[list[str], list[Any]]] = []
    for mark in marks:
        names = [name.strip() for name in mark.args[0].split(",")]
        axes.append((names, [one if len(names) > 1 else (one,) for one in mark.args[1]]))
    source = random.Random(metafunc.function.__name__)
    dims = next(([one for (one,) in values] for names, values in axes if names == ["d"]), [None])
    chosen: dict[str, dict[str, Any]] = {}
    for dim in dims:
        for _ in range(SAMPLE):
            picked: dict[str, Any] = {}
            for names, values in axes:
                value = (dim,) if names == ["d"] else source.choice(values)
                picked |= dict(zip(names, value, strict=True))
            chosen[repr(sorted(picked.items(), key=str))] = picked
    keys = [name for names, _ in axes for name in names]
    metafunc.definition.own_markers[:] = [
        mark for mark in metafunc.definition.own_markers if mark.name != "parametrize"
    ]
    metafunc.parametrize(keys, [tuple(one[key] for key in keys) for one in chosen.values()])
