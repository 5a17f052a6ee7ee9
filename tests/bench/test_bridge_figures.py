"""What the sandbox's GPU bridge costs: Windows code through it against native Linux, in one run.

``pytest -m bench -s tests/bench/test_bridge_figures.py`` on a Linux machine with an NVIDIA GPU and
Wine. Both sides run in turn, ``BRIDGE_ROUNDS`` times each (5). For the suite's time to be compared,
``BRIDGE_NATIVE_WHEEL`` is a Linux wheel of pipelines/examples/smoke_attention for this Python and
80+PTX, or ``build``: the nvcc of this machine builds it in this Python's environment, which then
needs setuptools and nvidia-cuda-runtime. Nothing passes or fails by the clock: only answers do.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from defusedxml import ElementTree

from pipelines.hosts.live import LiveSession
from pipelines.hosts.sandbox.wine import Prefix
from pipelines.plan.config.model import Config
from pipelines.plan.matrix.buildplan import Request, resolve_build_plan
from pipelines.remote import process
from pipelines.reports.junit import read_pytest
from pipelines.stages.line import Line, run_build, run_test

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))
from bridged import FOLDER, bridged_line, kept, require_gpu_and_wine
from run_suite import run as run_natively

_ROUNDS = int(os.environ.get("BRIDGE_ROUNDS", "5"))
_HERE = Path(__file__).resolve().parent
_ZIG = r"C:\zig\zig.exe"
_PROGRAM = "bridge_figures.py"
_SECONDS = 300.0
#: The modules of the suite that are smoke-attention's own.
_OWN = ("test_gpu", "test_package")
#: Figure -> its goal; the difference is given in its own unit, or as a ratio where that is asked.
_GOALS = {
    "call_ns": "+20 ns",
    "launch_us": "+0.3 us",
    "launch_and_wait_us": "-",
    "callback_and_wait_us": "-",
    "pinned_up_gb_s": "the same",
    "pinned_down_gb_s": "the same",
    "pageable_up_gb_s": "the same",
    "pageable_down_gb_s": "the same",
    "kernel_ms": "within 1 %",
    "start_ms": "-",
    "smoke_suite_s": "-",
}
Figures = dict[str, list[float]]


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    require_gpu_and_wine()
    with bridged_line(tmp_path_factory.mktemp("figures")) as made:
        yield made


def compiled(prefix: Prefix, folder: Path) -> tuple[str, Path]:
    """bridge_loops.c by the sandbox's compiler, as ``C:\\bench\\loops.dll`` and as ``loops.so``."""
    work = prefix.drive / "bench"
    work.mkdir(exist_ok=True)
    for source in (_HERE / "bridge_loops.c", _HERE / _PROGRAM, *FOLDER.glob("*.py")):
        shutil.copy(source, work)
    flags = ("clang", "-c", "-O2", "-Wall", "-Wextra", "-Werror", "bridge_loops.c")
    there = ("--target=x86_64-pc-windows-msvc", "-fno-builtin", "-o", "windows.o")
    link = ("lld-link", "/nologo", "/dll", "/noentry", "/nodefaultlib", "/out:loops.dll")
    prefix.run([_ZIG, *flags, *there], cwd=work)
    prefix.run([_ZIG, *link, "windows.o"], cwd=work)
    here = ("--target=x86_64-linux-gnu", "-fPIC", "-fno-stack-protector", "-o", "linux.o")
    prefix.run([_ZIG, *flags, *here], cwd=work)
    prefix.run([_ZIG, "ld.lld", "-shared", "linux.o", "-o", "loops.so"], cwd=work)
    return r"C:\bench\loops.dll", Path(shutil.copy(work / "loops.so", folder))


def _told(code: int, text: str, *, bridged: bool) -> dict[str, Any]:
    """A round's answer, which must be about the side that was asked."""
    assert code == 0, text[-2000:]
    told: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    assert told["bridged"] is bridged
    return told


def natively(library: Path) -> dict[str, Any]:
    """One round with this Python."""
    work = library.parent
    for source in (_HERE / _PROGRAM, *FOLDER.glob("*.py")):
        shutil.copy(source, work)
    done = subprocess.run(
        [sys.executable, str(work / _PROGRAM), str(library)],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    return _told(done.returncode, done.stdout or done.stderr, bridged=False)


def through_the_bridge(line: Line, library: str) -> dict[str, Any]:
    """One round with Windows' Python."""
    command = [line.plan.layout.python, rf"C:\bench\{_PROGRAM}", library]
    code, text = line.session.call(process.capture, command=command, timeout=_SECONDS)
    return _told(code, text, bridged=True)


def show(native: Figures, bridged: Figures) -> str:
    """The table: medians, and what the bridge adds."""
    rows = [f"{'':24}{'native':>12}{'bridged':>12}{'difference':>12}{'ratio':>8}  goal"]
    for name, goal in _GOALS.items():
        if name not in bridged:
            continue
        ours = statistics.median(bridged[name])
        if name not in native:
            rows.append(f"{name:24}{'-':>12}{ours:12.3f}{'-':>12}{'-':>8}  {goal}")
            continue
        theirs = statistics.median(native[name])
        ratio = ours / theirs
        rows.append(
            f"{name:24}{theirs:12.3f}{ours:12.3f}{ours - theirs:+12.3f}{ratio:8.3f}  {goal}"
        )
    return "\n".join(rows)


def test_figures(line: Line, tmp_path: Path) -> None:
    host: Any = line.plan.host
    dll, library = compiled(Prefix(host.prefix), tmp_path)
    native: Figures = {}
    bridged: Figures = {}
    names = set()
    for number in range(_ROUNDS):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            told = through_the_bridge(line, dll) if side else natively(library)
            kept_in = bridged if side else native
            names.add(told["gpu"])
            for name, value in told["figures"].items():
                kept_in.setdefault(name, []).append(value)
    assert len(names) == 1, f"two GPUs: {names}"
    assert all(len(values) == _ROUNDS for side in (native, bridged) for values in side.values())
    _tell("figures", f"{names.pop()}, {_ROUNDS} rounds in turn, medians", native, bridged, tmp_path)


def native_wheel(base: Path) -> Path | None:
    """The Linux wheel of the same source: the one that is named, or built here if that is asked."""
    told = os.environ.get("BRIDGE_NATIVE_WHEEL", "")
    if told != "build":
        return Path(told) if told else None
    here = {"kind": "local", "python": sys.executable, "root": str(base / "root")}
    settings = Config.model_validate(
        {
            "default": {"host": "here", "python": f"3.{sys.version_info.minor}"},
            "hosts": {"here": here},
            "out": str(base / "out"),
            "compile_cache": {"kind": "off"},
        }
    )
    plan = resolve_build_plan(settings, Request(axes={"archs": "80+PTX"}))
    building = Line(plan, LiveSession(plan.host))
    try:
        (wheel,) = (run_build(building) / "wheels").glob("*.whl")
    finally:
        building.close()
    return wheel


def suite_of(report: Path) -> tuple[dict[str, str], float]:
    """How each of the suite's own cases ended, and pytest's own seconds for all of them.

    The cases that every suite has look at the host and at how the wheel came to it.
    """
    data = report.read_bytes()
    (found,) = ElementTree.fromstring(data).iter("testsuite")
    cases = read_pytest(data).cases
    own: dict[str, str] = {
        f"{c.classname}::{c.name}": c.outcome for c in cases if c.classname in _OWN
    }
    assert sum(outcome == "passed" for outcome in own.values()) > 100, f"without a GPU: {report}"
    return own, float(found.attrib["time"])


def test_the_smoke_suite(line: Line, tmp_path: Path) -> None:
    """The same cases in turn, of wheels of the same source; pytest's own time, without installs."""
    wheel = native_wheel(tmp_path / "build")
    archs = line.plan.archs.effective
    expect = {"archs": archs.sass, "ptx": archs.ptx, "cuda": line.plan.recipe.cuda}
    here: list[float] = []
    there: list[float] = []
    ended: list[dict[str, str]] = []
    run_build(line)
    for number in range(min(_ROUNDS, 3)):
        if wheel is not None:
            out = tmp_path / f"native-{number}"
            done = run_natively("smoke_attention", wheel, out, expect=expect)
            assert done["exit"] == 0, (out / "smoke.log").read_text("utf-8", "replace")[-3000:]
            own, seconds = suite_of(out / "smoke.xml")
            here.append(seconds)
            ended.append(own)
        run_test(line)
        own, seconds = suite_of(line.run.path / "smoke.xml")
        there.append(seconds)
        ended.append(own)
    assert all(own == ended[0] for own in ended), "other cases, or other outcomes"
    native = {"smoke_suite_s": here} if here else {}
    title = f"smoke-attention's suite, {len(ended[0])} cases"
    _tell("suite", title, native, {"smoke_suite_s": there}, tmp_path)


def _tell(name: str, title: str, native: Figures, bridged: Figures, scratch: Path) -> None:
    """Print the table and keep it, with every figure behind it."""
    table = f"{title}\n{show(native, bridged)}"
    sys.stdout.write(f"\n{table}\n")
    out = kept("figures", scratch)
    (out / f"{name}.txt").write_text(f"{table}\n", "utf-8")
    (out / f"{name}.json").write_text(json.dumps({"native": native, "bridged": bridged}), "utf-8")
