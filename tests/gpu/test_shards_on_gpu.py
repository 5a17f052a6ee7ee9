"""Kernels of FlashAttention 2 in shares, by NVIDIA's compiler and torch: the bytes of one build.

On a Linux machine with nvcc of CUDA 13, g++, and a Python with torch for it, setuptools and ninja::

    export CUDA_HOME=/usr/local/cuda WCW_TORCH_PYTHON=/path/to/bin/python
    export WCW_FLASH_SDIST=/path/to/flash_attn-2.8.3.post2.tar.gz
    python -m pytest -m gpu tests/gpu/test_shards_on_gpu.py -s

``WCW_FLASH_SDIST`` is not needed where the download cache has the file, or there is a network. No
kernel is run. ``WCW_KERNELS`` names other files, ``WCW_GPU_OUT`` keeps what was measured.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from bridged import kept
from native import installed, require_torch_and_nvcc, settings

from pipelines.core.files import sha256_of
from pipelines.hosts.live import LiveSession
from pipelines.plan.config.model import Config
from pipelines.plan.matrix.buildplan import Request, resolve_build_plan
from pipelines.recipe.load import load_recipe
from pipelines.recipe.origin import FileSource
from pipelines.recipe.sourcetree import SourceTree
from pipelines.record.results import BuildResult
from pipelines.record.shards import share_of
from pipelines.remote.builder import unpack_source
from pipelines.stages.line import BUILD, COLLECT, Line
from pipelines.toolchain.lock import Cache, load_lock

RELEASE = "2.8.3.post2"
KERNELS = (
    "flash_fwd_hdim32_fp16_sm80",
    "flash_fwd_hdim32_bf16_sm80",
    "flash_fwd_hdim32_fp16_causal_sm80",
    "flash_fwd_hdim64_bf16_causal_sm80",
    "flash_bwd_hdim32_fp16_sm80",
)
SHARES = 3


def sdist() -> Path:
    """The pinned file of flash-attn's recipe."""
    recipe = load_recipe("flash-attn")
    assert recipe.version == RELEASE
    assert isinstance(recipe.source, FileSource)
    told = os.environ.get("WCW_FLASH_SDIST")
    if told is None:
        cache = Cache(load_lock())
        SourceTree(recipe, cache).fetch()
        told = str(cache.place(recipe.source.file, recipe.source.sha256))
    assert sha256_of(Path(told)) == recipe.source.sha256
    return Path(told)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_torch_and_nvcc()
    room = tmp_path_factory.mktemp("package")
    shutil.copytree(Path(__file__).with_name("shards"), room / "mine")
    unpack_source(str(sdist()), str(room))
    return room


@pytest.fixture
def line(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    """The package on host ``here``, this machine."""
    csrc = package / f"flash_attn-{RELEASE}/csrc"
    recipe = {
        "name": "flash-shards",
        "summary": "Some kernels of FlashAttention 2.",
        "kind": "wheel",
        "license": "BSD-3-Clause",
        "source": {
            "path": str(package / "mine"),
            "also": {
                f"csrc/{part}": str(csrc / part) for part in ("flash_attn/src", "cutlass/include")
            },
        },
        "pythons": [f"3.{minor}" for minor in range(10, 15)],
        "cuda": "13.0",
        "archs": "90",
        "reproducible": True,
        "environment": {
            "FLASH_KERNELS": os.environ.get("WCW_KERNELS") or " ".join(KERNELS),
            "FLASH_KERNELS_WITHOUT": "DROPOUT ALIBI SOFTCAP LOCAL UNEVEN_K",
            "TORCH_CUDA_ARCH_LIST": "9.0",
            "MAX_JOBS": "{jobs}",
        },
        "build_requires": ["setuptools", "ninja"],
        "objects": {"relative": ["csrc/flash_attn/src/*.cu", "src/*.cpp"]},
        "unit_costs": {"flash_bwd_*": 60, "flash_fwd_*": 30, "module.cpp": 5},
    }
    folder = tmp_path / "recipes"
    folder.mkdir()
    (folder / "flash-shards.yaml").write_text(yaml.safe_dump(recipe), "utf-8")
    monkeypatch.setattr("pipelines.recipe.load.RECIPES", folder)
    monkeypatch.setattr("pipelines.hosts.local.host.FIXED", str(tmp_path / "fixed"))
    default = {"python": installed()["python"], "archs": "90", "jobs": os.cpu_count()}
    made_of = settings(tmp_path) | {"out": str(tmp_path / "out"), "default": default}
    plan = resolve_build_plan(
        Config.model_validate(made_of), Request(axes={"host": "here", "recipe": "flash-shards"})
    )
    made = Line(plan, LiveSession(plan.host))
    yield made
    made.close()


def done(line: Line, share: str = "", runs: tuple[str, ...] = ()) -> tuple[BuildResult, float]:
    """A build's result, and its seconds."""
    line.plan = replace(line.plan, share=share_of(share) if share else None, objects=runs)
    line.begin_run()
    try:
        began = time.monotonic()
        line.do(BUILD)
        took = time.monotonic() - began
        line.do(COLLECT)
        made = line.run.result(BuildResult)
    finally:
        line.run.close()
    assert made is not None
    return made, took


def objects_of(directory: str) -> dict[str, str]:
    """Name -> sha256 of each object of a build."""
    return {path.name: sha256_of(path) for path in Path(directory, "src").rglob("build/**/*.o")}


def test_the_wheel_and_its_objects_are_those_of_one_build(line: Line, tmp_path: Path) -> None:
    whole, alone = done(line)
    expected = objects_of(whole.directory)
    assert len(expected) >= 2
    measured: dict[str, object] = {"seconds": {"alone": round(alone, 1)}, "objects": expected}
    runs, shares = [], []
    for number in range(1, SHARES + 1):
        made, took = done(line, f"{number}/{SHARES}")
        assert made.divided is not None
        assert not made.wheels
        shares.append((made.divided, round(took, 1)))
        runs.append(str(line.run.path))
    linked, took = done(line, runs=tuple(runs))
    assert linked.divided is not None
    assert not linked.divided.compiled, "every object came from a share"
    names = {unit.id: Path(unit.output).name for unit in linked.divided.units}
    found = {names[one.unit]: one.sha256 for made, _ in shares for one in made.objects}
    assert found == expected
    assert [wheel.sha256 for wheel in linked.wheels] == [wheel.sha256 for wheel in whole.wheels]
    measured["wheel"] = [(wheel.size, wheel.sha256) for wheel in whole.wheels]
    measured["shares"] = [(len(made.objects), seconds) for made, seconds in shares]
    measured["link"] = round(took, 1)
    text = json.dumps(measured, indent=1)
    (kept("shards", tmp_path) / "measured.json").write_text(text, "utf-8")
    print(f"\n{text}")
