"""A wheel of shares is the wheel of one build, byte for byte: real ninja, g++ and setuptools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sharebuilds
from plans import at_desk, wanting
from test_shards import compiled, linked

from pipelines.errors import BuildError
from pipelines.record import BuildResult, CollectResult
from pipelines.stages.line import BUILD, Line

pytestmark = pytest.mark.skipif(
    bool(sharebuilds.LACKING), reason=f"not installed: {', '.join(sharebuilds.LACKING)}"
)


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


@pytest.mark.parametrize("count", [2, 7])
def test_the_same_bytes(tmp_path: Path, count: int) -> None:
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
    with pytest.raises(BuildError, match="nothing to divide"):
        compiled(desk(tmp_path), "1/2")
