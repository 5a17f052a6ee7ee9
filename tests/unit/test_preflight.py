"""What cannot be built is refused before a run begins or a host is asked."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from plans import Lab, at_desk, changed, line_for, plan_for

from pipelines.core.errors import ConfigError, LockError
from pipelines.core.units import GIB
from pipelines.hosts.base import Existing
from pipelines.plan.matrix.buildplan import BuildPlan
from pipelines.plan.matrix.hostfacts import HostFacts
from pipelines.stages.line import run_build
from pipelines.stages.preflight import refuse_unbuildable


def asked(tmp_path: Path, **axes: str) -> BuildPlan:
    """A plan whose tools are all pinned."""
    return changed(plan_for(tmp_path, **{"recipe": "smoke-attention"} | axes))


def fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.recipe.sourcetree.SourceTree.fetch", lambda *_: None)
    monkeypatch.setattr("pipelines.recipe.sourcetree.SourceTree.is_here", lambda _: True)


REFUSED = [
    ({"python": "3.12", "torch": "2.8", "cuda": "13.0"}, "no torch 2.8 for CUDA 13.0", "12.9"),
    ({"python": "3.13", "torch": "2.4", "cuda": "12.4"}, "no torch 2.4 for Python 3.13", "3.12"),
]


@pytest.mark.parametrize(("axes", "said", "near"), REFUSED)
def test_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, axes: dict[str, str], said: str, near: str
) -> None:
    fetched(monkeypatch)
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        run_build(line_for(asked(tmp_path, recipe="flash-attn", archs="80", **axes)))
    assert near in caught.value.hint
    assert not (tmp_path / "out").exists(), "no run was begun"


def test_a_tool_that_is_not_pinned_is_said_before_a_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched(monkeypatch)
    plan = plan_for(tmp_path, recipe="smoke-attention")
    lock = plan.cache.lock
    unknown = lock.tools["uv"].sources[0].model_copy(update={"sha256": None})
    tools = {**lock.tools, "uv": lock.tools["uv"].model_copy(update={"sources": (unknown,)})}
    plan.cache.lock = lock.model_copy(update={"tools": tools})
    with pytest.raises(LockError, match=r"not pinned.*: uv ") as caught:
        run_build(line_for(plan))
    assert "invoke lock --only uv`" in caught.value.hint
    assert not (tmp_path / "out").exists(), "no run was begun"


def test_what_can_be_built_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched(monkeypatch)
    refuse_unbuildable(asked(tmp_path))
    refuse_unbuildable(asked(tmp_path, recipe="flash-attn", python="3.12", archs="80;90"))


class Sandbox(Lab):
    capabilities = dataclasses.replace(Lab.capabilities, emulated=True)


class Desk(Lab):
    capabilities = dataclasses.replace(Lab.capabilities, windows=False)
    existing = Existing(root="/wcw")


@pytest.mark.parametrize("kind", [Sandbox, Desk])
def test_more_jobs_than_this_machine_has_memory_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Lab]
) -> None:
    """Where the host is this machine, its memory is known before anything is started."""
    fetched(monkeypatch)
    monkeypatch.setattr(HostFacts, "local", lambda: HostFacts(4, 16 * GIB))
    plan = changed(plan_for(tmp_path, kind()), jobs=64)
    with pytest.raises(ConfigError, match="--jobs 64 needs 64 GiB, this machine has 14") as caught:
        run_build(line_for(plan))
    assert caught.value.hint == "The nearest possible value is --jobs 14."
    assert not (tmp_path / "out").exists(), "no run was begun"
    refuse_unbuildable(changed(plan, jobs=14))
    refuse_unbuildable(changed(plan, host=Lab(), jobs=64))  # it is unknown what it has


def test_what_is_to_be_minded_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """89 is no word of flash-attn's list: it means nothing there, in silence."""
    fetched(monkeypatch)
    refuse_unbuildable(asked(tmp_path, recipe="flash-attn", python="3.12", archs="89"))
    assert "FLASH_ATTN_CUDA_ARCHS does nothing for 89" in " ".join(capsys.readouterr().out.split())


def test_a_source_that_cannot_be_packed_is_refused_on_every_kind_of_host(tmp_path: Path) -> None:
    line, session = at_desk(tmp_path)
    (tmp_path / "tree/odd").symlink_to("/etc")
    with pytest.raises(ConfigError, match="is a link out of the tree"):
        run_build(line)
    assert not (tmp_path / "out").exists(), "no run was begun"
    assert session.sent == []
