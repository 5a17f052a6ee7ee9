"""Kernels of FlashAttention 2, CUTLASS and all, built twice by NVIDIA's compiler: the same bytes.

Many minutes: each file takes nvcc two or three on one core. ``WCW_KERNELS`` names others, with
spaces between them, ``WCW_WITHOUT`` what is left out of them, such as ``DROPOUT ALIBI``.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from pipelines.core.files import sha256_of
from pipelines.hosts.live import LiveSession
from pipelines.plan.matrix.buildplan import Request, resolve_build_plan
from pipelines.publish.rebuild.published import read_published
from pipelines.publish.rebuild.run import rebuild_verdict_json, run_rebuild
from pipelines.recipe.load import load_recipe
from pipelines.recipe.origin import FileSource
from pipelines.recipe.sourcetree import SourceTree
from pipelines.record.results import BuildResult
from pipelines.remote.builder import unpack_source
from pipelines.stages.line import Line, run_build
from pipelines.toolchain.lock import Cache, load_lock
from pipelines.wheels.differences import compare_wheels

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
import cuda_environment
from wheels import checked

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="nvcc needs g++")
RELEASE = "2.8.3.post2"
KERNELS = (
    "flash_fwd_hdim32_fp16_sm80",
    "flash_fwd_hdim32_bf16_sm80",
    "flash_fwd_hdim64_fp16_sm80",
    "flash_bwd_hdim32_fp16_sm80",
)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package next to this file with flash-attn's own sources in it, unpacked."""
    recipe = load_recipe("flash-attn")
    assert recipe.version == RELEASE
    assert isinstance(recipe.source, FileSource)
    cache = Cache(load_lock())
    SourceTree(recipe, cache).fetch()
    archive = cache.place(recipe.source.file, recipe.source.sha256)
    assert sha256_of(archive) == recipe.source.sha256
    room = tmp_path_factory.mktemp("package")
    shutil.copytree(Path(__file__).with_name("flash_kernels"), room / "mine")
    unpack_source(str(archive), str(room))
    return room


@pytest.fixture
def recipes(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of recipes with one of our own, as docs/recipes.md has it."""
    csrc = package / f"flash_attn-{RELEASE}/csrc"
    kernels = os.environ.get("WCW_KERNELS") or " ".join(KERNELS)
    made = {
        "name": "flash-kernels",
        "summary": "Some kernels of FlashAttention 2.",
        "kind": "wheel",
        "license": "BSD-3-Clause",
        "source": {
            "path": str(package / "mine"),
            "also": {
                f"csrc/{part}": str(csrc / part) for part in ("flash_attn/src", "cutlass/include")
            },
        },
        "pythons": [f"3.{sys.version_info.minor}"],
        "cuda": "13.0",
        "archs": "80",
        "reproducible": True,
        "environment": {
            "FLASH_KERNELS": kernels,
            "FLASH_KERNELS_WITHOUT": os.environ.get("WCW_WITHOUT", ""),
            "FLASH_KERNELS_ARCHS": "{archs}",
            "FLASH_KERNELS_LOCAL_VERSION": "{local_version}",
            "MAX_JOBS": "{jobs}",
        },
        "build_requires": ["setuptools"],
        "verify": "import flash_kernels",
        "objects": {"relative": ["csrc/flash_attn/src/*.cu", "src/*.cpp"]},
    }
    folder = tmp_path / "recipes"
    folder.mkdir()
    (folder / "flash-kernels.yaml").write_text(yaml.safe_dump(made), "utf-8")
    monkeypatch.setattr("pipelines.recipe.load.RECIPES", folder)
    # Not where builds of others on this machine stand.
    monkeypatch.setattr("pipelines.hosts.local.host.FIXED", str(tmp_path / "fixed"))
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = cuda_environment.make(tmp_path_factory.mktemp("environment") / "venv")
    yield place
    shutil.rmtree(place)


def opened(environment: Path, base: Path, root: str) -> Line:
    settings = cuda_environment.settings(environment, base, root)
    asked = Request(axes={"host": "here", "recipe": "flash-kernels", "archs": "80"})
    plan = resolve_build_plan(settings, asked)
    return Line(plan, LiveSession(plan.host))


def test_a_second_party_builds_the_same_bytes(
    environment: Path, tmp_path: Path, recipes: Path
) -> None:
    assert recipes.is_dir()
    first = opened(environment, tmp_path / "they", "root")
    second = opened(environment, tmp_path / "we, elsewhere", "a/directory of another name")
    began = time.monotonic()
    try:
        published = run_build(first)
        built = time.monotonic()
        run_rebuild(second, read_published(str(published / "manifest.json")))
        rebuilt = time.monotonic()
    finally:
        first.close()
        second.close()
    assert rebuild_verdict_json(second.run)["verdict"] == "identical"
    ours, theirs = (run.path.glob("wheels/*.whl") for run in (first.run, second.run))
    wheel, other = next(ours), next(theirs)
    assert wheel.read_bytes() == other.read_bytes()
    made = [line.run.result(BuildResult) for line in (first, second)]
    assert len({one.directory for one in made if one is not None}) == 2
    print(
        f"\n{wheel.name}: {wheel.stat().st_size} bytes, sha256 {sha256_of(wheel)}\n"
        f"build {(built - began) / 60:.1f} minutes, rebuild {(rebuilt - built) / 60:.1f} minutes"
    )


def test_without_the_switch_the_same_source_gives_other_bytes(
    environment: Path, tmp_path: Path, recipes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file is enough for that."""
    path = recipes / "flash-kernels.yaml"
    made = yaml.safe_load(path.read_text("utf-8")) | {"reproducible": False}
    made["environment"]["FLASH_KERNELS"] = made["environment"]["FLASH_KERNELS"].split()[0]
    path.write_text(yaml.safe_dump(made), "utf-8")
    wheels = []
    for root in ("one", "other"):
        line = opened(environment, tmp_path / "they", root)
        try:
            wheels += [*(run_build(line) / "wheels").glob("*.whl")]
        finally:
            line.close()
    verdict, found = compare_wheels(*map(checked, wheels))
    assert verdict == "different"
    assert any(one.file.endswith(".so") for one in found)
    print(f"\nwithout reproducible: true, {len(found)} differences, such as {found[0].summary}")
