"""How long ``invoke audit`` takes for a directory of 100 wheels: in one process, and in all cores'.

They are made here, 8 MB of device code each; ``AUDIT_WHEELS=DIR`` names real ones instead.
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

import pytest
from test_figures import show

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from fatbins import ELF, PTX, container
from foreign_wheels import foreign
from pes import msvc

from pipelines.examine.examining import Asked, examine_all
from pipelines.examine.page import render
from pipelines.examine.taking import Taken

pytestmark = pytest.mark.bench

MANY = 100
CORES = os.cpu_count() or 1


def wheels(folder: Path) -> list[Path]:
    if own := os.environ.get("AUDIT_WHEELS"):
        return sorted(Path(own).rglob("*.whl"))
    code = container((ELF, "80", 8), (PTX, "80", 8), cuda="12.8", isa="8.7") * 50
    noise = random.Random(1).randbytes(8 << 20)
    files = {"other/_C.cp311-win_amd64.pyd": msvc(code + noise)}
    tag = "cp311-cp311-win_amd64"
    return [foreign(folder, "other", f"1.{n}", tag, files=files) for n in range(MANY)]


def test_a_hundred_wheels(tmp_path: Path) -> None:
    found = wheels(tmp_path)
    taken = [Taken(path.name, str(path), path) for path in found]
    took = {}
    for workers in (1, CORES):
        began = time.monotonic()
        seen = examine_all(taken, Asked(), workers=workers)
        took[workers] = time.monotonic() - began
    assert len(seen) == len(found)
    size = sum(path.stat().st_size for path in found) / 1e6
    name = f"audit of {len(found)} wheels, {size:.0f} MB"
    show(f"{name}, {CORES} processes", f"{took[CORES]:.1f} s", "-")
    show("that in one process", f"{took[1] / took[CORES]:.2f} times as long", f"{CORES} times")
    show("its page", f"{len(render(seen).encode()) / 1e6:.2f} MB", "-")
