"""The tests of ``tests/gpu/bridge`` here and in a sandbox with a bridge; the same way in both.

Each is run as a smoke suite is: in an environment of its own, by pytest in a worker of its own, so
that a case which ends the interpreter is one failed case.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipelines.core.errors import PipelineError
from pipelines.hosts.live import LiveSession
from pipelines.hosts.sandbox.wine import find_wine
from pipelines.plan.config.model import Config
from pipelines.plan.matrix.buildplan import Request, resolve_build_plan
from pipelines.remote import files, tester
from pipelines.reports.junit import read_pytest
from pipelines.reports.model import Suite
from pipelines.stages.line import Line, run_provision
from pipelines.stages.test import suite_wheel_paths

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests/gpu/bridge"
NAMES = ROOT / "pipelines/hosts/sandbox/bridge/source/cuda-names.txt"
_SECONDS = 480.0
_INI = "[pytest]\nmarkers =\n    gpu: needs an NVIDIA GPU\njunit_family = xunit1\n"


def require_gpu_and_wine() -> None:
    """Skip, and say why, where there is no GPU or no Wine."""
    try:
        told = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    except OSError:
        pytest.skip("no NVIDIA driver here: nvidia-smi is missing")
    if told.returncode or "GPU 0" not in told.stdout:
        pytest.skip(f"no NVIDIA GPU here: {told.stdout}{told.stderr}"[:300])
    try:
        find_wine()
    except PipelineError as error:
        pytest.skip(error.message)


def kept(name: str, scratch: Path) -> Path:
    """A directory for reports: below ``WCW_GPU_OUT`` if that is set, so that they stay."""
    place = Path(os.environ.get("WCW_GPU_OUT") or scratch) / name
    place.mkdir(parents=True, exist_ok=True)
    return place


def suite(*more: Path) -> dict[str, str]:
    """The folder as it is sent; ``more`` next to it."""
    sent = [*sorted(FOLDER.glob("*.py")), *([NAMES] if NAMES.exists() else []), *more]
    return {path.name: path.read_text("utf-8") for path in sent} | {"pytest.ini": _INI}


def report_of(ran: Iterable[bytes | tester.Outcome], log: Path) -> str:
    """Where a suite has left its report; what it printed is in ``log``."""
    outcome = None
    with log.open("wb") as sink:
        for item in ran:
            if isinstance(item, dict):
                outcome = item
            else:
                sink.write(item)
    assert outcome, f"no result; see {log}"
    assert outcome["junit"], f"{outcome}; see {log}"
    return outcome["junit"]


def natively(sent: dict[str, str], work: Path, out: Path) -> Suite:
    """Run them with this Python on Linux' driver; the report is ``native.xml`` in ``out``."""
    spec = _spec(sent, str(work / "native"), python=sys.executable, system=True)
    report = shutil.copy(report_of(tester.run_suite(spec), out / "native.log"), out / "native.xml")
    return read_pytest(Path(report).read_bytes())


@contextmanager
def bridged_line(base: Path, gpu: object = "bridge") -> Iterator[Line]:
    """A sandbox of its own with a bridge, provisioned; removed afterwards."""
    sandbox = {"kind": "sandbox", "home": str(base / "sandbox"), "gpu": gpu}
    settings = Config.model_validate(
        {
            "default": {"host": "bridged"},
            "hosts": {"bridged": sandbox},
            "out": str(base / "out"),
            "offline": bool(os.environ.get("WCW_GPU_OFFLINE")),
        }
    )
    plan = resolve_build_plan(settings, Request(axes={"archs": "80+PTX"}))
    line = Line(plan, LiveSession(plan.host))
    try:
        run_provision(line)
        yield line
    finally:
        line.close()
        assert plan.host.lifecycle is not None
        plan.host.lifecycle.teardown()


def bridged(line: Line, sent: dict[str, str], out: Path) -> Suite:
    """Run them with Windows' Python in the sandbox; the report is ``bridged.xml`` in ``out``."""
    layout = line.plan.layout
    directory = layout.join(layout.build_root, "bridged")
    spec = _spec(
        sent,
        directory,
        python=layout.python,
        installer=layout.uv,
        packages=suite_wheel_paths(line.plan),
    )
    spec["environment"] = {"TEMP": layout.temp, "TMP": layout.temp, "PYTHONUTF8": "1"}
    ran = line.session.stream(tester.run_suite, spec=spec)
    line.session.get(report_of(ran, out / "bridged.log"), out / "bridged.xml")
    line.session.call(files.remove_tree, path=directory)
    return read_pytest((out / "bridged.xml").read_bytes())


def _spec(
    sent: dict[str, str],
    directory: str,
    *,
    python: str,
    system: bool = False,
    installer: str = "",
    packages: list[str] | None = None,
) -> tester.Spec:
    return {
        "directory": directory,
        "installer": installer,
        "python": python,
        "system": system,
        "wheel": "",
        "packages": packages or [],
        "suite": sent,
        "expect": {},
        "environment": {},
        "timeout": _SECONDS,
    }
