"""Recipes that come with the package: built by our own commands, tested by their suites on a GPU.

On a Linux machine with an NVIDIA GPU, nvcc, g++ and a Python with torch for it and with what the
recipes name in ``build_requires`` and ``test_requires`` (what is missing is refused, with what to
type)::

    export CUDA_HOME=/usr/local/cuda WCW_TORCH_PYTHON=/path/to/bin/python WCW_GPU_OUT=out
    python -m pytest -m gpu tests/gpu/test_recipes_on_gpu.py -s

``-k sageattention`` takes one of them. ``WCW_ARCHS`` names other architectures than 90, and
``WCW_JOBS`` how many units are compiled at a time. Sources are fetched, or lie in the download
cache. What was measured stays in ``WCW_GPU_OUT``, beside the runs with their reports.

Then each wheel is broken in ways that no import shows, by 2 % or in one tile, and its suite has to
find it: a suite that lets that pass shows nothing of the good one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from bridged import kept
from broken_wheels import changed_wheel
from native import PYTHON, flags, installed, jobs, settings
from recipe_faults import FAULTS
from run_suite import ROOT, run

from pipelines.recipe.load import load_recipe
from pipelines.record.results import AuditResult, BuildResult, SmokeResult
from pipelines.record.run import Run
from pipelines.reports.junit import read_pytest

#: The only reasons for which a case may be skipped where there is a GPU.
REASONS = (
    "no GPU was asked for on this host",
    "this Python always has the global lock",
    "which architectures were ordered is not known",
    "this package does not use torch",
    "no file of this package holds device code",
    "absent: the wheel has no",  # of SageAttention: modules for other GPUs
    "no architecture of _qattn_sm",
    "not on this GPU: ",
    "Triton's has scales for blocks alone",
)


@pytest.fixture(scope="module")
def axes() -> dict[str, str]:
    return installed()


@pytest.fixture(scope="module")
def built() -> dict[str, Path]:
    """Recipe -> its run's directory, filled by what builds it."""
    return {}


def commanded(name: str, axes: dict[str, str], room: Path) -> tuple[int, Path]:
    """``provision build test`` as a user types it; how it ended, and the run's directory."""
    made = settings(room) | {"default": {"host": "here"}, "out": str(room / "out")}
    room.mkdir(parents=True, exist_ok=True)
    (room / "pipeline.yaml").write_text(yaml.safe_dump(made), "utf-8")
    words = [*flags(axes, torch=load_recipe(name).torch is not None), "--jobs", jobs()]
    command = [sys.executable, "-m", "pipelines", "provision", "build", "test", "--recipe", name]
    with (room / "console.log").open("wb") as log:
        done = subprocess.run(
            [*command, *words],
            cwd=room,
            env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    return done.returncode, room / "out/latest"


def measured(path: Path, to: Path) -> None:
    """How long each unit took, and what the whole did: for the recipe's ``costs``."""
    found = Run.open(path.parent)
    try:
        made, tested = found.result(BuildResult), found.result(SmokeResult)
        audited = found.result(AuditResult)
    finally:
        found.close()
    if made is None:  # the build itself failed: its log is what is left
        return
    lines = made.timeline
    figures = {
        "jobs": made.jobs,
        "seconds": made.process_seconds,
        "source_sha256": made.source_sha256,
        "units": [[n, round(e - b, 1)] for n, b, e in lines.units] if lines else [],
        "wheel": [[one.size, one.sha256] for one in made.wheels],
        "audit": [one.model_dump(mode="json") for one in audited.files] if audited else [],
        "outcomes": tested.outcomes if tested else {},
    }
    to.write_text(json.dumps(figures, indent=1), "utf-8")


@pytest.mark.parametrize("name", FAULTS)
def test_built_and_tested(
    name: str, axes: dict[str, str], built: dict[str, Path], tmp_path: Path
) -> None:
    """Every case that can run here has passed, and some of them on the GPU."""
    room = kept(f"recipes/{name}", tmp_path)
    code, path = commanded(name, axes, room)
    said = (room / "console.log").read_text("utf-8", "replace")
    if path.is_dir():  # whatever became of it: a build that took ten minutes is not lost
        measured(path, room / "measured.json")
    assert code == 0, said[-6000:]
    suite = read_pytest((path / "smoke.xml").read_bytes())
    bad = [c for c in suite.cases if c.outcome in ("failed", "error")]
    left = [c for c in suite.cases if c.outcome == "skipped" and not c.message.startswith(REASONS)]
    assert (bad, left) == ([], [])
    assert int(suite.properties["gpu_cases"]) > 5, suite.properties
    print(f"\n{name}: {suite.properties}")
    built[name] = path


@pytest.mark.parametrize(
    ("name", "fault"), [(name, fault) for name, faults in FAULTS.items() for fault in faults]
)
def test_a_wrong_result_is_found(
    name: str, fault: str, built: dict[str, Path], tmp_path: Path
) -> None:
    """A wheel that is a little wrong fails, in a case that is about that."""
    if name not in built:
        pytest.fail(f"{name} was not built: its wheel cannot be broken", pytrace=False)
    (good,) = (built[name] / "wheels").glob("*.whl")
    planned = FAULTS[name][fault]
    wheel = changed_wheel(good, tmp_path / "broken", planned.change)
    recipe, out = load_recipe(name), kept(f"recipes/{name}/{fault}", tmp_path)
    expect = {"torch": None, "distribution": recipe.distribution}
    done = run(recipe.smoke, wheel, out, python=PYTHON, expect=expect)
    suite = read_pytest((out / "smoke.xml").read_bytes())
    failed = sorted({c.name.partition("[")[0] for c in suite.cases if c.outcome == "failed"})
    assert done["exit"] != 0
    assert planned.shows_in in failed, failed
    assert "test_package_imports_in_a_fresh_interpreter" not in failed, "it must import"
