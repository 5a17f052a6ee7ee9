"""The main job on this machine, in an environment that is used as it is, with NVIDIA's compiler.

Linux wheels: what is shown is the way through a host of kind local, not Windows.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.core.errors import BuildError, ConfigError, ProvisionError, TimeUpError
from pipelines.core.files import sha256_of
from pipelines.core.paths import PACKAGE
from pipelines.core.toolsets import NATIVE
from pipelines.hosts.live import LiveSession
from pipelines.plan.matrix.buildplan import Request, resolve_build_plan
from pipelines.publish.rebuild.published import read_published
from pipelines.publish.rebuild.run import rebuild_verdict_json, run_rebuild
from pipelines.recipe.reproducible import reproducible_environment
from pipelines.record.results import BuildResult, SmokeResult
from pipelines.stages.line import Line, run_build, run_test
from pipelines.wheels.differences import compare_wheels

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
import cuda_environment
from cache_runs import SCCACHE
from wheels import checked

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="nvcc needs g++")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment as somebody might have it, compiler included."""
    return cuda_environment.make(tmp_path_factory.mktemp("environment") / "venv")


Opened = Callable[..., Line]


@pytest.fixture
def opened(tmp_path: Path, environment: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    # Not where builds of others on this machine stand.
    monkeypatch.setattr("pipelines.hosts.local.host.FIXED", str(tmp_path / "fixed"))

    def make(
        *,
        jobs: int | None = None,
        minutes: float | None = None,
        root: str = "root",
        cache: str = "off",
        **axes: str,
    ) -> Line:
        settings = cuda_environment.settings(
            environment, tmp_path, root, compile_cache={"kind": cache}
        )
        asked = Request(axes={"host": "here"} | axes, jobs=jobs, minutes=minutes)
        plan = resolve_build_plan(settings, asked)
        return Line(plan, LiveSession(plan.host))

    return make


def listed(environment: Path) -> str:
    """What the environment holds, besides what Python itself keeps of what it has imported."""
    packages = (environment / "lib").glob("python3*/site-packages/*")
    return "\n".join(sorted(str(path) for path in packages if path.name != "__pycache__"))


@pytest.mark.skipif(sys.version_info[:2] not in ((3, 11), (3, 13)), reason="the recipe's Pythons")
def test_build_and_test_in_an_environment(opened: Opened, environment: Path) -> None:
    before = listed(environment)
    line = opened()
    try:
        path = run_build(line)
        run_test(line)
    finally:
        line.close()
    (wheel,) = (path / "wheels").glob("*.whl")
    assert wheel.name.endswith("linux_x86_64.whl")
    stages = line.run.stages()
    assert {name: stage.state for name, stage in stages.items()} == dict.fromkeys(
        ("provision", "build", "collect", "audit", "test"), "passed"
    )
    built, tested = line.run.result(BuildResult), line.run.result(SmokeResult)
    assert built is not None
    assert built.timeline is not None
    assert tested is not None
    assert len(built.timeline.units) == 5
    assert all(0 <= start < end for _, start, end in built.timeline.units)
    assert built.timeline.cpus >= 1
    assert built.timeline.samples
    assert tested.outcomes["passed"] > 20
    assert "skipped" in (path / "junit.xml").read_text()
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["inputs"]["host"] == "here"
    assert listed(environment) == before, "nothing was installed into it"


def built(line: Line) -> tuple[BuildResult, Path]:
    """How a build went, and its wheel."""
    try:
        (wheel,) = (run_build(line) / "wheels").glob("*.whl")
        made = line.run.result(BuildResult)
    finally:
        line.close()
    assert made is not None
    assert not made.kept
    return made, wheel


def test_another_directory_or_a_compile_cache_gives_the_same_bytes(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nvcc writes its temporary names and the place of the source into objects otherwise.

    The cache is cold, warm, damaged, and of no use to whoever builds it again.
    """
    monkeypatch.setenv("PATH", f"{Path(SCCACHE).parent}:{os.environ['PATH']}")
    cold, first = built(opened(cache="disk"))
    assert cold.cache["misses"], cold.cache
    shutil.rmtree(cold.directory)
    warm, second = built(opened(cache="disk"))
    assert (warm.cache["misses"], warm.cache["hits"]) == (0, cold.cache["misses"])
    shutil.rmtree(warm.directory)
    for path in (tmp_path / "root/sccache").rglob("*"):
        if path.is_file() and len(path.name) > 30:
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 0xFF
            path.write_bytes(data)
    damaged, third = built(opened(cache="disk"))
    assert damaged.cache["misses"], "what is damaged is compiled again"
    assert len({sha256_of(wheel) for wheel in (first, second, third)}) == 1
    manifest = first.parents[1] / "manifest.json"
    again = opened(cache="disk", root="a/directory of another name")
    try:
        run_rebuild(again, read_published(str(manifest)))
    finally:
        again.close()
    assert rebuild_verdict_json(again.run)["verdict"] == "identical"
    result = again.run.result(BuildResult)
    assert result is not None
    assert not result.cache
    assert result.directory.startswith(str(tmp_path / "a"))
    found = json.loads(manifest.read_text())["inputs"]["materials"]["found"]
    assert found.keys() >= {"g++", "ld"}


def test_names_in_files_that_define_templates_alone(environment: Path, tmp_path: Path) -> None:
    """As the kernels of flash-attn do: nvcc's process id is in them, unless it is given a seed."""
    (nvcc,) = environment.glob("lib/python3*/site-packages/nvidia/cu13/bin/nvcc")
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "k.cu").write_text(
            "namespace { __device__ int seen; }\n"
            "template <class T> __global__ void f(T *x) { *x = seen; }\n"
            "template <class T> void g(T *x);\n"
            "template <> void g<int>(int *x) { f<<<1, 1>>>(x); }\n"
        )
    profile = reproducible_environment(
        {}, NATIVE.name, "13.0", {"environment": "/e", "toolkit": "/t"}
    )

    def compiled(name: str, flags: str) -> bytes:
        where = tmp_path / name
        env = {**os.environ, "NVCC_APPEND_FLAGS": flags}
        subprocess.run([nvcc, "-c", "k.cu", "-o", "k.o"], cwd=where, env=env, check=True)
        return (where / "k.o").read_bytes()

    flags = profile["NVCC_APPEND_FLAGS"]
    without = " ".join(word for word in flags.split() if "seed" not in word)
    assert compiled("one", without) != compiled("one", without)
    assert compiled("one", flags) == compiled("one", flags)
    assert compiled("one", flags) != compiled("other", flags), "files keep names of their own"


def test_without_the_switch_the_same_source_gives_other_bytes(opened: Opened) -> None:
    """So that the test before this one shows something."""
    wheels = []
    for root in ("one", "other"):
        line = opened(root=root)
        recipe = line.plan.recipe.model_copy(update={"reproducible": False})
        line.plan = replace(line.plan, recipe=recipe)
        try:
            wheels += [*(run_build(line) / "wheels").glob("*.whl")]
        finally:
            line.close()
    verdict, found = compare_wheels(*map(checked, wheels))
    assert verdict == "different"
    assert any("_core" in one.file for one in found)


def test_time_is_up_and_the_next_build_goes_on(
    opened: Opened, environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The third unit waits: how fast the machine is must not matter.
    (nvcc,) = environment.glob("lib/python3*/site-packages/nvidia/cu13/bin/nvcc")
    slow, go_on = tmp_path / "nvcc", tmp_path / "go-on"
    slow.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *fp16_narrow*) while [ ! -e {go_on} ]; do sleep 0.1; done;; esac\n'
        f'exec {nvcc} "$@"\n'
    )
    slow.chmod(0o755)
    monkeypatch.setenv("PYTORCH_NVCC", str(slow))
    line = opened(minutes=0.75, jobs=1)
    with pytest.raises(TimeUpError, match=r"stopped after 0\.75 minutes") as caught:
        run_build(line)
    first = line.run.id
    line.close()
    assert caught.value.exit_code == 75
    go_on.touch()
    again = opened(jobs=1)
    try:
        path = run_build(again)
    finally:
        again.close()
    assert path.name == first, "the run that was cut off is gone on with"
    assert "is up to date" in (path / "build.log").read_text()


def test_another_release_than_the_one_that_is_there(opened: Opened) -> None:
    line = opened(cuda="12.8", archs="90")
    with pytest.raises(ConfigError, match=r"here has CUDA 13\.0, not 12\.8") as caught:
        run_build(line)
    line.close()
    assert "--cuda 13.0" in caught.value.hint
    assert not line.plan.out.exists(), "no run was begun"


def test_what_a_recipe_needs_and_is_not_there(opened: Opened) -> None:
    line = opened(recipe="flash-attn", cuda="13.0", torch="2.11")
    with pytest.raises(ProvisionError, match=r"missing: .*torch") as caught:
        run_build(line)
    line.close()
    assert "-m pip install" in caught.value.hint


def test_a_source_that_does_not_compile(opened: Opened) -> None:
    line = opened()
    tree = line.plan.out / "tree"
    shutil.copytree(PACKAGE.parent / "pipelines/examples/smoke_attention", tree)
    (tree / "src/half.cuh").write_text("#error not today\n")
    source = type(line.plan.recipe.source).model_construct(path=str(tree))
    line.plan = replace(line.plan, recipe=line.plan.recipe.model_copy(update={"source": source}))
    with pytest.raises(BuildError, match="not today"):
        run_build(line)
    line.close()
    junit = (line.run.path / "junit.xml").read_text()
    assert "not today" in junit
