"""torch where Wine is Windows: a build without CUDA, which nothing may take for one with it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from plans import LAB
from projects import project

from pipelines.core.errors import LockError
from pipelines.hosts.base import IN_SANDBOX
from pipelines.hosts.sandbox.wine import Prefix, Wine
from pipelines.plan.config.model import Config
from pipelines.plan.matrix.buildplan import BuildPlan, Request, resolve_build_plan
from pipelines.plan.matrix.hostfacts import HostFacts
from pipelines.plan.matrix.judge import judge_targets
from pipelines.plan.matrix.plan import lay_ground
from pipelines.record.results import BuildResult
from pipelines.remote import buildwheel, provision
from pipelines.stages.buildspec import build_environment
from pipelines.stages.test import suite_wheel_paths
from pipelines.toolchain.lock import load_lock

LOCK = load_lock()
SANDBOX = {"kind": "sandbox"}


#: The doctor's facts of a host without problems.
def plan_of(out: Path, host: str = "sandbox", **axes: str) -> BuildPlan:
    """flash-attn's plan: a package with torch."""
    hosts = {"sandbox": SANDBOX | {"home": str(out / "sandbox")}, "lab": LAB}
    settings = Config.model_validate({"hosts": hosts, "out": str(out / "out"), "offline": True})
    asked = {"recipe": "flash-attn", "python": "3.11", "cuda": "13.0", "torch": "2.10"}
    return resolve_build_plan(settings, Request(axes={**asked, "host": host, **axes}))


def plain(out: Path) -> BuildPlan:
    """A package without torch."""
    hosts = {"sandbox": SANDBOX | {"home": str(out / "sandbox")}}
    return resolve_build_plan(Config.model_validate({"hosts": hosts}), Request())


@pytest.mark.parametrize("torch", ["2.10", "2.15"])
@pytest.mark.parametrize("python", ["3.11", "3.13"])
def test_the_lock_has_it_for_every_python_of_the_sandbox(
    tmp_path: Path, torch: str, python: str
) -> None:
    plan = plan_of(tmp_path, torch=torch, python=python)
    wanted = {one.id: one for one in plan.wanted}
    runtime = wanted["C++ run-time"]
    assert runtime.spec["path"] == plan.host.executable.rpartition("\\")[0]
    assert runtime.spec["shared"] is True
    assert [*runtime.uploads] == [f"msvc-runtime-{python}"]
    cp = f"cp{python.replace('.', '')}"
    wheel = LOCK.tool(f"torch-cpu-{torch}-{cp}")
    assert f"torch-cpu-{torch}-{cp}" in wanted["wheels"].uploads
    assert wanted["build tools"].spec["packages"]["torch"] == wheel.version == f"{torch}.0"
    assert f"C:\\w\\{wheel.file}" in suite_wheel_paths(plan)
    assert wheel.file == f"torch-{wheel.version}-{cp}-{cp}-win_amd64.whl"


def test_without_torch_nothing_of_it_is_brought(tmp_path: Path) -> None:
    plan = plain(tmp_path)
    assert "C++ run-time" not in {one.id for one in plan.wanted}
    assert "WCW_CPU_TORCH" not in build_environment(plan, 1, 1)


def test_elsewhere_it_never_stands_for_torch(tmp_path: Path) -> None:
    """Not even where the lock has no other: a build against it would be another wheel."""
    plan = plan_of(tmp_path, "lab", torch="2.15")
    with pytest.raises(LockError, match=r"no torch for CUDA 13\.0, torch 2\.15"):
        suite_wheel_paths(plan)
    assert plan.place.replacements == {}
    assert not [
        one
        for one in plan.resources.resources
        if "cxx_runtime" in one.needs and one.concerns(plan.place)
    ]
    assert "WCW_CPU_TORCH" not in build_environment(plan, 1, 1)


def test_a_release_that_the_lock_lacks_is_named_with_the_nearest(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, torch="2.8")
    with pytest.raises(LockError, match=r"torch 2\.8.*torch-cpu-2\.10-cp311"):
        _ = plan.wanted


@pytest.mark.parametrize(("host", "rule"), [("sandbox", "torch-cpu"), ("lab", "torch-cuda")])
def test_the_plan_says_that_it_has_no_cuda(tmp_path: Path, host: str, rule: str) -> None:
    """Whether there is a build of torch for that CUDA is no question where none has any."""
    plan = plan_of(tmp_path, host, torch="2.8")
    facts = HostFacts(cores=8, memory=64 << 30)
    ground = lay_ground(plan.recipe, plan.cache, facts, plan.supply(), dict)
    (judged,) = judge_targets(plan.recipe, [plan.target], ground)
    (found,) = [one for one in judged.findings if one.id.startswith("torch-c")]
    assert found.id == rule
    assert found.failed is (host == "lab")
    assert "CUDA 13.0" in found.actual


def test_what_stands_for_a_name_is_taken_with_what_it_requires(tmp_path: Path) -> None:
    target = plan_of(tmp_path).target
    found = LOCK.entries_for(["torch"], target, IN_SANDBOX)
    assert found["torch"] == "torch-cpu-2.10-cp311"
    assert found["markupsafe"] == "markupsafe-cp311"
    assert LOCK.entries_for(["torch"], target)["torch"] == "torch-2.10-cu130-cp311"
    assert LOCK.unavailable(["torch"], target, IN_SANDBOX) == []


def test_the_wheel_is_made_with_it_taken_for_another_and_says_so(tmp_path: Path) -> None:
    told = build_environment(plan_of(tmp_path), 1, 1)
    assert told["WCW_CPU_TORCH"] == "13.0"
    done = BuildResult(job="x", directory="x", jobs=1, environment=told)
    assert done.made_up == "a CPU build of torch was presented as one with CUDA 13.0"
    assert BuildResult(job="x", directory="x", jobs=1).made_up == ""


# -- while a wheel is built -----------------------------------------------------------------------


def built(tmp_path: Path, cuda: str | None) -> subprocess.CompletedProcess[str]:
    """Build a project that prints what it finds of torch; torch is a stand-in with that CUDA."""
    project(
        tmp_path / "source",
        "import os, torch\n"
        "from torch.utils import cpp_extension\n"
        "def build_wheel(out):\n"
        "    print('finds', torch.version.cuda, cpp_extension.CUDA_HOME)\n"
        "    print('headers', os.environ['INCLUDE'])\n"
        "    return 'x'\n",
    )
    site = tmp_path / "site/torch"
    (site / "utils").mkdir(parents=True)
    (site / "__init__.py").write_text(
        f"__version__ = '2.10.0'\nclass version:\n    cuda = {cuda!r}\n"
    )
    (site / "utils/__init__.py").touch()
    (site / "utils/cpp_extension.py").write_text("CUDA_HOME = None\n")
    (tmp_path / "out").mkdir()
    more = {"WCW_CPU_TORCH": "13.0", "CUDA_HOME": "/cuda", "INCLUDE": "/other"}
    return subprocess.run(
        [sys.executable, buildwheel.__file__, str(tmp_path / "source"), str(tmp_path / "out")],
        env={**os.environ, **more, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_torch_s_own_way_finds_the_toolkit_and_the_headers(tmp_path: Path) -> None:
    done = built(tmp_path, None)
    assert done.returncode == 0, done.stderr
    assert "finds 13.0 /cuda\n" in done.stdout
    folder = tmp_path / "torch-headers"
    assert f"headers {folder}{os.pathsep}/other\n" in done.stdout
    assert "torch 2.10.0 is a CPU build: used as one with CUDA 13.0" in done.stdout
    macros = (folder / "c10/cuda/impl/cuda_cmake_macros.h").read_text()
    assert "#define C10_CUDA_BUILD_SHARED_LIBS\n" in macros
    assert "#define AT_CUDNN_ENABLED() 0\n" in (folder / "ATen/cuda/CUDAConfig.h").read_text()


def test_a_torch_with_cuda_is_not_taken_for_another(tmp_path: Path) -> None:
    done = built(tmp_path, "12.8")
    assert done.returncode
    assert "torch 2.10.0 is for CUDA 12.8, expected a CPU build" in done.stderr


# -- its C++ run-time -----------------------------------------------------------------------------


def test_what_others_have_in_the_directory_is_left_alone(tmp_path: Path) -> None:
    home, packed = tmp_path / "Python311", tmp_path / "runtime.whl"
    home.mkdir()
    (home / "python.exe").write_text("Python")
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("data/msvcp140.dll", "genuine")
    sha256 = hashlib.sha256(packed.read_bytes()).hexdigest()
    row = {"name": "r", "version": "1", "sha256": sha256, "strip": "data", "file": str(packed)}
    spec: dict[str, Any] = {
        "kind": "archive",
        "path": str(home),
        "proof": "msvcp140.dll",
        "archives": [row],
    }
    spec |= {"unwatched": [], "shared": True}
    content = packed.read_bytes()
    (before,) = provision.check_all([spec])
    assert (before["ok"], before["found"]) == (False, "missing")
    assert provision.apply_one(spec, str(tmp_path / "marker"))["ok"]
    assert (home / "python.exe").read_text() == "Python"
    (home / "msvcp140.dll").write_text("another")
    (after,) = provision.check_all([spec])
    assert "msvcp140.dll" in after["found"]
    assert not after["ok"]
    packed.write_bytes(content)
    assert provision.apply_one(spec, str(tmp_path / "marker"))["ok"]
    assert (home / "msvcp140.dll").read_text() == "genuine"
    assert (home / "python.exe").read_text() == "Python"


def test_wine_is_told_what_torch_needs(tmp_path: Path) -> None:
    wine = Wine(tmp_path, tmp_path, tmp_path, tmp_path, "wine-8.0")
    told = Prefix(tmp_path, wine).environment()
    assert told["KMP_AFFINITY"] == "disabled"
    assert told["ONEDNN_MAX_CPU_ISA"] == "AVX512_CORE_FP16"
    assert "msvcp140_atomic_wait,vcruntime140" in told["WINEDLLOVERRIDES"]
    assert told["WINEDLLOVERRIDES"].endswith("=n,b")
