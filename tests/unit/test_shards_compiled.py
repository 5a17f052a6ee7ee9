"""A wheel of shares is the wheel of one build, byte for byte: real ninja, g++ and setuptools."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sharebuilds
from plans import PYTHON, at_desk, wanting
from test_shards import compiled, linked

from pipelines.core.errors import BuildError
from pipelines.hosts.live import LiveSession
from pipelines.plan.config.model import Config
from pipelines.plan.matrix.buildplan import Request, resolve_build_plan
from pipelines.record.results import BuildResult, CollectResult
from pipelines.stages.line import BUILD, Line

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(sharebuilds.LACKING), reason=f"not installed: {', '.join(sharebuilds.LACKING)}"
    ),
]


def desk(tmp_path: Path, room: str = "root", **recipe: Any) -> Line:
    """A line for a project of two extensions on this machine."""
    if not (tmp_path / "tree").exists():
        sharebuilds.extensions(tmp_path / "tree", one=3, two=2)
    sharebuilds.Builds(tmp_path, tmp_path / "tree")
    environment = {"PYTHONPATH": str(tmp_path / "site"), "MAX_JOBS": "{jobs}"}
    keys = {"reproducible": True, "environment": environment, "api": "plain", **recipe}
    line, _ = at_desk(tmp_path, None, None, **keys)
    return wanting(
        line, build_root=str(tmp_path / room), fixed=str(tmp_path / "fixed"), compile_cache=""
    )


def whole(line: Line) -> str:
    """The sha256 of the wheel that one build makes."""
    line.begin_run()
    done = line.do(BUILD)
    assert isinstance(done, BuildResult)
    line.run.close()
    (wheel,) = done.wheels
    return wheel.sha256


def test_the_same_bytes(tmp_path: Path) -> None:
    """Of more shares than there are units, too: two are empty."""
    count = 7
    expected = whole(desk(tmp_path, "whole"))
    line = desk(tmp_path)
    runs = [compiled(line, f"{number}/{count}") for number in range(1, count + 1)]
    done = linked(line, *runs)
    assert done.divided is not None
    assert len(done.divided.placed) == len(done.divided.units) == 5
    home = line.run.result(CollectResult)
    assert home is not None
    assert [row.sha256 for row in home.files] == [expected]
    assert [one.sha256 for one in done.wheels] == [expected]


def test_a_build_without_ninja_has_nothing_to_divide(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/setup.py").write_text("from setuptools import setup; setup(name='mine')\n")
    with pytest.raises(BuildError, match="nothing to shard"):
        compiled(desk(tmp_path), "1/2")


def test_on_a_host_of_kind_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Detached jobs in processes of their own, to which the program is sent by value."""
    monkeypatch.setattr("pipelines.hosts.local.host.FIXED", str(tmp_path / "fixed"))
    nvcc = tmp_path / "cuda/bin/nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.48'\n")
    nvcc.chmod(0o755)
    plain = desk(tmp_path).plan
    here = {"kind": "local", "python": sys.executable, "root": str(tmp_path / "root")}
    settings = Config.model_validate(
        {
            "hosts": {"here": here | {"cuda": str(tmp_path / "cuda")}},
            "out": str(tmp_path / "out"),
            "compile_cache": {"kind": "off"},
        }
    )
    asked = Request(axes={"host": "here", "python": PYTHON, "archs": "90a"}, jobs=2)
    plan = resolve_build_plan(settings, asked)
    line = Line(replace(plan, recipe=plain.recipe), LiveSession(plan.host))
    try:
        expected = whole(line)
        done = linked(line, *(compiled(line, f"{number}/2") for number in (1, 2)))
    finally:
        line.close()
    assert done.divided is not None
    assert "nvcc" in done.divided.compilers
    assert [one.units for one in done.divided.lent] == [3, 2]
    assert [one.sha256 for one in done.wheels] == [expected]
