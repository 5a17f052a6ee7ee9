"""How long ``invoke audit`` takes for 100 wheels: in all cores' processes, in one, and delvewheel.

They are made here, 8 MB of device code each. ``AUDIT_WHEELS=DIR`` names real ones instead, of which
there are as many links as make 100. ``DELVEWHEEL=PROGRAM`` is asked to show each different one.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_figures import show

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from fatbins import ELF, PTX, container
from foreign_wheels import foreign
from pes import msvc

from pipelines.audit.examination import AuditOptions, examine_all
from pipelines.audit.inputs import Input
from pipelines.audit.page import render

MANY = 100
CORES = os.cpu_count() or 1


def wheels(folder: Path) -> list[Path]:
    if own := os.environ.get("AUDIT_WHEELS"):
        real = sorted(Path(own).rglob("*.whl"))
        return [linked(real[n % len(real)], folder / str(n // len(real))) for n in range(MANY)]
    code = container((ELF, "80", 8), (PTX, "80", 8), cuda="12.8", isa="8.7") * 50
    noise = random.Random(1).randbytes(8 << 20)
    files = {"other/_C.cp311-win_amd64.pyd": msvc(code + noise)}
    tag = "cp311-cp311-win_amd64"
    return [foreign(folder, "other", f"1.{n}", tag, files=files) for n in range(MANY)]


def linked(path: Path, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / path.name).symlink_to(path.absolute())
    return folder / path.name


@contextmanager
def measured(into: dict[str, tuple[float, float]], name: str) -> Iterator[None]:
    """Seconds by the clock, and of processor time of the processes that have ended meanwhile."""
    began, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    yield
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    into[name] = (time.monotonic() - began, cpu)


def test_a_hundred_wheels(tmp_path: Path) -> None:
    found = wheels(tmp_path)
    taken = [Input(path.name, str(path), path) for path in found]
    took: dict[str, tuple[float, float]] = {}
    with measured(took, "all"):
        seen = examine_all(taken, AuditOptions(), workers=CORES)
    with measured(took, "one"):
        again = examine_all(taken, AuditOptions(), workers=1)
    assert again == seen
    size = sum(path.stat().st_size for path in found) / 1e6
    (wall, cpu), (alone, _) = took["all"], took["one"]
    name = f"audit of {len(found)} wheels, {size:.0f} MB"
    show(f"{name}, {CORES} processes", f"{wall:.1f} s, {cpu:.1f} s of CPU", "-")
    show("that in one process", f"{alone / wall:.2f} times as long", f"{CORES} times")
    show("its page", f"{len(render(seen).encode()) / 1e6:.2f} MB", "-")


def test_beside_delvewheel(tmp_path: Path) -> None:
    """On the same files, one after another: which DLLs are needed, and all that the audit says."""
    program = os.environ.get("DELVEWHEEL") or shutil.which("delvewheel")
    if not program:
        pytest.skip("DELVEWHEEL=PROGRAM: pip install delvewheel, in an environment of its own")
    every = {path.name: path for path in wheels(tmp_path)}
    found = [*every.values()] if os.environ.get("AUDIT_WHEELS") else [*every.values()][:10]
    found = [path for path in found if "win" in path.name]  # it refuses the others
    took: dict[str, tuple[float, float]] = {}
    with measured(took, "audit"):
        seen = examine_all(
            [Input(one.name, str(one), one) for one in found], AuditOptions(), workers=1
        )
    with measured(took, "delvewheel"):
        for path in found:
            subprocess.run([program, "show", str(path)], check=True, capture_output=True)
    assert len(seen) == len(found)
    (wall, cpu), (theirs, their_cpu) = took["audit"], took["delvewheel"]
    show(f"audit of {len(found)} wheels, one process", f"{wall:.1f} s, {cpu:.1f} s of CPU", "-")
    show("delvewheel show", f"{theirs / wall:.2f} times as long", "-")
    show("of processor time", f"{their_cpu / cpu:.2f} times as much", "-")
