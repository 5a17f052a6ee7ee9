"""The same numbers from a Windows wheel through the bridge and from its Linux wheel on the driver.

``WCW_FOREIGN_WHEELHOUSE`` is a directory with the folders ``win`` and ``lin``, each with the wheels
of packages and all that they require; tests/gpu/foreign/README.md says how to fill it. The host of
the second run is this very Python, which needs nothing but ``venv``.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from bridged import kept, require_gpu_and_wine

from pipelines.hosts.live import LiveSession
from pipelines.plan.config.model import Config
from pipelines.plan.matrix.buildplan import Request, resolve_build_plan
from pipelines.record.results import SmokeResult
from pipelines.reports.load import load_view
from pipelines.reports.provenance import NUMBERS
from pipelines.stages.given import run_given
from pipelines.stages.line import Line

SCRIPTS = Path(__file__).parent / "foreign"
#: On both sides; Wine 8 runs none from 2 on.
NUMPY = "numpy==1.26.4"
CUDA_12 = ("nvidia-cuda-runtime-cu12==12.4.127", "nvidia-cuda-nvrtc-cu12==12.4.127")
CUBLAS_12 = ("nvidia-cuda-runtime-cu12==12.4.127", "nvidia-cublas-cu12==12.4.5.8")


@dataclass(frozen=True)
class Case:
    """A release of a package, which both sides install."""

    wheel: str
    script: str
    beside: tuple[str, ...] = ()
    near: Mapping[str, float] = field(default_factory=dict)
    """Number -> how far apart both may be, as a part of it: compilers differ."""
    free: tuple[str, ...] = ()
    """Times, and differences that the script itself bounds."""


_TIMES = ("saxpy milliseconds", "copy back GB per s")
CASES = (
    Case(
        "ctranslate2==4.7.2",
        "ctranslate2_numbers.py",
        CUBLAS_12,
        near=dict.fromkeys([f"mean log probability on the {on}" for on in ("CPU", "GPU")], 1e-4),
        free=("largest difference",),
    ),
    Case(
        "onnxruntime-gpu==1.23.2",
        "onnxruntime_numbers.py",
        (*CUBLAS_12, "nvidia-cufft-cu12==11.2.3.61", "nvidia-cudnn-cu12==9.6.0.74"),
        near={"sum": 1e-6},
        free=("difference to numpy",),
    ),
    Case(
        "cupy-cuda12x==13.6.0",
        "cupy_numbers.py",
        CUDA_12,
        free=_TIMES,
    ),
    Case(
        "cupy-cuda13x==13.6.0",
        "cupy_numbers.py",
        ("nvidia-cuda-runtime==13.1.80", "nvidia-cuda-nvrtc==13.1.115"),
        free=_TIMES,
    ),
    Case(
        "xgboost==3.1.3",
        "xgboost_train.py",
        near={
            "accuracy on the GPU": 1e-3,
            "accuracy on the CPU": 1e-3,
            "mean prediction": 1e-4,
        },
        free=("mean difference to the CPU", "seconds on the GPU", "seconds on the CPU"),
    ),
)
Numbers = Mapping[str, str]


@pytest.mark.fast
def test_what_is_unlike() -> None:
    """The comparison itself, without a GPU."""
    case = Case("x==1", "x.py", near={"mean": 1e-4}, free=("seconds",))
    here = {"count": "3", "mean": "0.50000", "seconds": "1"}
    assert unlike(case, here | {"mean": "0.50001", "seconds": "9"}, here) == []
    assert unlike(case, here | {"count": "4"}, here) == ["count: 4 and 3"]
    assert unlike(case, here | {"mean": "0.6"}, here) == ["mean: 0.6 and 0.50000"]
    assert unlike(case, here | {"mean": "nan"}, here | {"mean": "nan"}) == ["mean: nan and nan"]
    assert unlike(case, here | {"more": "1"}, here) == ["more: 1 and -"]
    assert unlike(case, {}, {}) == ["mean: - and -", "seconds: - and -"]


def unlike(case: Case, there: Numbers, here: Numbers) -> list[str]:
    """Each number that only one side has, or that differs by more than it may."""
    names = dict.fromkeys([*there, *here])
    found = [name for name in (*case.near, *case.free) if name not in names]
    for name in names:
        if name not in there or name not in here:
            found.append(name)
            continue
        pair = float(there[name]), float(here[name])
        same = math.isclose(*pair, rel_tol=case.near.get(name, 0.0))
        if not all(map(math.isfinite, pair)) or not (same or name in case.free):
            found.append(name)
    return [f"{name}: {there.get(name, '-')} and {here.get(name, '-')}" for name in found]


def wheelhouse() -> Path:
    path = os.environ.get("WCW_FOREIGN_WHEELHOUSE")
    if not path:
        pytest.skip("WCW_FOREIGN_WHEELHOUSE names no directory: tests/gpu/foreign/README.md")
    return Path(path).absolute()


def require_wheels(house: Path, release: str) -> None:
    """Skip a package that is not there for both."""
    name, _, version = release.partition("==")
    for side in ("win", "lin"):
        if not [*(house / side).glob(f"{name.replace('-', '_')}-{version}-*.whl")]:
            pytest.skip(f"{release} is not in {house / side}")


def numbers(case: Case, house: Path, host: Mapping[str, object], out: Path) -> Numbers:
    """What the script printed on this host, whose run stays in ``out``; it must have used a GPU."""
    settings = Config.model_validate(
        {
            "default": {"host": "one"},
            "hosts": {"one": host},
            "out": str(out),
            "wheelhouse": str(house),
            "offline": bool(os.environ.get("WCW_GPU_OFFLINE")),
        }
    )
    plan = resolve_build_plan(settings, Request(wheel=case.wheel))
    line = Line(plan, LiveSession(plan.host))
    try:
        run_given(line, companions=(NUMPY, *case.beside), script=str(SCRIPTS / case.script))
    finally:
        line.close()
    done = line.run.result(SmokeResult)
    assert done is not None
    assert done.gpus, "the suite saw no GPU"
    assert (done.bridge is not None) is plan.host.gpu_way.bridged
    return dict(dict(load_view(line.run).provenance)[NUMBERS])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the sandbox is, which all cases share."""
    base = tmp_path_factory.mktemp("foreign") / "sandbox"
    yield base
    settings = Config.model_validate({"hosts": {"sandbox": windows(base)}})
    plan = resolve_build_plan(settings, Request())
    assert plan.host.lifecycle is not None
    plan.host.lifecycle.teardown()


def windows(home: Path) -> dict[str, object]:
    return {"kind": "sandbox", "home": str(home), "gpu": "bridge"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.wheel)
def test_both_compute_the_same(case: Case, home: Path, tmp_path: Path) -> None:
    house = wheelhouse()
    require_wheels(house, case.wheel)
    require_gpu_and_wine()
    out = kept("foreign", tmp_path) / case.wheel.partition("==")[0]
    linux = {"kind": "local", "python": sys.executable, "root": str(tmp_path / "root"), "gpu": True}
    there = numbers(case, house / "win", windows(home), out / "bridged")
    here = numbers(case, house / "lin", linux, out / "native")
    for name in dict.fromkeys([*there, *here]):
        print(
            f"{case.wheel}: {name} = {there.get(name, '-')} bridged, {here.get(name, '-')} native"
        )
    assert unlike(case, there, here) == []
