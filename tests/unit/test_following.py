"""A job that is followed to its end on this machine; what its name is made of."""

from __future__ import annotations

import contextlib
import io
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn, cast

import pytest
from test_jobs import connect

from pipelines.errors import PipelineError, RemoteError
from pipelines.hosts.base import Existing
from pipelines.recipe.load import load_recipe
from pipelines.recipe.model import Recipe
from pipelines.remote import locks
from pipelines.remote.jobs import launch, store
from pipelines.run import Run
from pipelines.stages.buildspec import job_id
from pipelines.stages.detached import Job
from pipelines.stages.work import Work


@pytest.mark.skipif(sys.platform == "win32", reason="the compiler is a shell script")
def test_an_error_of_the_function_itself_is_no_lost_attempt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Told four times over it would be, with "memory is the usual reason"."""
    nvcc = tmp_path / "cuda" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text("#!/bin/sh\necho a broken toolkit; exit 3\n")
    nvcc.chmod(0o755)
    with tarfile.open(tmp_path / "src.tar.gz", "w:gz") as packed:
        packed.addfile(tarfile.TarInfo("crate/Cargo.toml"), io.BytesIO())
    spec = {
        "directory": str(tmp_path / "job"),
        "archive": str(tmp_path / "src.tar.gz"),
        "environment": {},
        "timeout": None,
        "toolkit": str(tmp_path / "cuda"),
        "root": str(tmp_path / "libraries"),
        "steps": {"directory": "crate", "compiler": ["nvcc"], "key": "k"},
        "cache": None,
    }
    run = Run.create(tmp_path / "out", "job", {})
    told: store.Spec = {"title": "t", "function": "cargo.build", "arguments": {"spec": spec}}
    with connect() as session:
        work = SimpleNamespace(session=session, run=run, host=SimpleNamespace(name="here"))
        job = Job(cast(Work, work), str(tmp_path / "job"), told, run.path / "build.log")
        with pytest.raises(RemoteError, match="a broken toolkit") as caught:
            list(job.follow())
    assert caught.value.kind == "RuntimeError"
    assert job.lost == []
    assert "going on from the finished units" not in capsys.readouterr().out
    run.close()


@pytest.mark.parametrize(
    ("kind", "told", "lost"),
    [("NoRunnerError", "here lost the job 4 times", 4), ("RuntimeError", "no way", 0)],
)
def test_a_runner_that_does_not_come_up_is_a_lost_attempt(
    tmp_path: Path, kind: str, told: str, lost: int
) -> None:
    class Host:
        def call(self, function: Callable[..., object], **_: object) -> dict[str, object]:
            if function is store.state:
                return {"state": "absent", "attempt": 0, "log_size": 0}
            raise RemoteError("no way", kind=kind)

    run = Run.create(tmp_path / "out", "job", {})
    work = SimpleNamespace(session=Host(), run=run, host=SimpleNamespace(name="here"))
    spec: store.Spec = {"title": "t", "function": "f", "arguments": {}}
    job = Job(cast(Work, work), str(tmp_path / "job"), spec, run.path / "build.log")
    with pytest.raises(PipelineError, match=told):
        list(job.follow())
    assert job.lost == ["no way"] * lost
    run.close()


@pytest.mark.parametrize("held", [False, True])
def test_what_is_raised_when_no_runner_comes_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    def barred(command: list[str], secrets: dict[str, str]) -> NoReturn:
        raise PermissionError("not allowed")

    monkeypatch.setattr(launch, "ways", lambda: {"session": barred})
    monkeypatch.setattr(launch, "_packed", lambda: b"")
    monkeypatch.setattr(launch, "_TURN", 0.0)
    spec: store.Spec = {"title": "t", "function": "f", "arguments": {}}
    with (
        locks.claim(tmp_path / store.STARTING) if held else contextlib.nullcontext(),
        pytest.raises(launch.NoRunnerError, match="somebody else" if held else "not allowed"),
    ):
        launch.start(str(tmp_path), spec)


def named(
    recipe: Recipe,
    python: str = "3.11",
    found: str = "",
    executable: str = "/e/python",
    **environment: str,
) -> str:
    pins = {"nvcc": SimpleNamespace(sha256="0" * 64)}
    rows = [{"id": "environment", "found": found}]
    work = SimpleNamespace(
        recipe=recipe,
        order=SimpleNamespace(python=python),
        wanted=[
            SimpleNamespace(id="CUDA", uploads={"nvcc": "x"}, spec={"kind": "archive"}),
            SimpleNamespace(id="environment", uploads={}, spec={"kind": "distributions"}),
        ],
        cache=SimpleNamespace(lock=SimpleNamespace(tool=pins.__getitem__)),
        provisioned=SimpleNamespace(detail={"resources": rows}),
        host=SimpleNamespace(existing=Existing("/r")),
        layout=SimpleNamespace(python=executable),
    )
    return job_id(b"source", cast(Work, work), environment)


def test_what_compilers_read_on_this_machine_is_in_the_name_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe = load_recipe("flash-attn")
    before = named(recipe)
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-G")
    assert named(recipe) != before
    assert named(recipe, WCW_SLOW_FIRST="[]") == named(recipe), "the order makes no other wheel"
    assert named(recipe, executable="/other/python") != named(recipe)


def test_what_decides_the_wheel_is_in_the_name_of_its_job() -> None:
    recipe = load_recipe("candle-flash-attn")
    library = recipe.library
    assert library is not None
    other = recipe.model_copy(
        update={"library": library.model_copy(update={"flags": (*library.flags, "-G")})}
    )
    names = [
        named(recipe),
        named(other),
        named(load_recipe("flash-attn")),
        named(recipe, python="3.12"),
        named(recipe, found="torch 2.8"),
        named(recipe, CUDA_PATH="x"),
    ]
    assert len(set(names)) == len(names)
    assert named(recipe) == names[0]
