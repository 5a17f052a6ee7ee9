"""A job that is followed to its end on this machine; what its name is made of."""

from __future__ import annotations

import contextlib
import io
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from plans import Lab, job_of, plan_for
from sessions import connect

from pipelines.core.errors import RemoteError
from pipelines.hosts.base import Existing
from pipelines.hosts.live import LiveSession
from pipelines.recipe.load import load_recipe
from pipelines.recipe.model import Recipe
from pipelines.record.results import ProvisionResult, ResourceResult, RunFacts
from pipelines.record.run import Run
from pipelines.remote import cargo, locks
from pipelines.remote.jobs import launch, store
from pipelines.stages.detached import Job, JobSpec


@pytest.mark.skipif(sys.platform == "win32", reason="the compiler is a shell script")
def test_an_error_of_the_function_itself_is_no_lost_attempt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be reported four times, with "memory is the usual reason"."""
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
    run = Run.create(tmp_path / "out", RunFacts())
    asked = JobSpec(str(tmp_path / "job"), "t", cargo.build, {"spec": spec})
    with connect() as session:
        job = Job(LiveSession(Lab(session)), run, asked, run.path / "build.log")
        with pytest.raises(RemoteError, match="a broken toolkit") as caught:
            list(job.follow())
    assert caught.value.kind == "RuntimeError"
    assert job.lost == []
    assert "continuing with the finished units" not in capsys.readouterr().out
    run.close()


@pytest.mark.parametrize("held", [False, True])
def test_what_is_raised_when_no_runner_comes_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    def barred(command: list[str], secrets: dict[str, str]) -> NoReturn:
        raise PermissionError("not allowed")

    monkeypatch.setattr(launch, "ways", lambda: {"session": barred})
    monkeypatch.setattr(launch, "_pack_runner_zip", lambda: b"")
    monkeypatch.setattr(launch, "_TURN", 0.0)
    spec: store.Spec = {"title": "t", "function": "f", "arguments": {}}
    with (
        locks.claim(tmp_path / store.STARTING) if held else contextlib.nullcontext(),
        pytest.raises(launch.NoRunnerError, match="another process" if held else "not allowed"),
    ):
        launch.start(str(tmp_path), spec)


def row(**values: str) -> ResourceResult:
    """What was found of an environment that is not ours."""
    return ResourceResult(
        id="environment", kind="distributions", wanted="w", found="words", ok=True, values=values
    )


def named(
    tmp_path: Path,
    made: Recipe | None = None,
    /,
    found: ResourceResult | None = None,
    executable: str = sys.executable,
    **target: str,
) -> str:
    host = Lab()
    host.existing, host.executable = Existing(str(tmp_path)), executable
    host.capabilities = replace(host.capabilities, windows=False)
    plan = plan_for(tmp_path, host, made, **{"recipe": "flash-attn", "archs": "80"} | target)
    return job_of(plan, "source", ProvisionResult(resources=(found or row(),)))


def test_what_compilers_read_on_this_machine_is_in_the_name_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = named(tmp_path)
    assert named(tmp_path, executable="/other/python") != before
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-G")
    assert named(tmp_path) != before


def test_values_are_in_the_name_and_words_are_not(tmp_path: Path) -> None:
    """A reworded message must not throw away the finished units of every host."""
    one = row(torch="2.8.0")
    assert named(tmp_path, found=one) != named(tmp_path, found=row(torch="2.8.1"))
    reworded = one.model_copy(update={"found": "other words", "why": "w", "wanted": "else"})
    assert named(tmp_path, found=reworded) == named(tmp_path, found=one)


def test_the_order_of_units_makes_no_other_wheel(tmp_path: Path) -> None:
    recipe = load_recipe("flash-attn")
    assert recipe.slow_first
    unordered = recipe.model_copy(update={"slow_first": ()})
    assert named(tmp_path, unordered) == named(tmp_path, recipe)


def test_what_decides_the_wheel_is_in_the_name_of_its_job(tmp_path: Path) -> None:
    recipe = load_recipe("candle-flash-attn")
    library = recipe.library
    assert library is not None
    other = recipe.model_copy(
        update={"library": library.model_copy(update={"flags": (*library.flags, "-G")})}
    )
    names = [
        named(tmp_path, recipe, recipe="candle-flash-attn"),
        named(tmp_path, other, recipe="candle-flash-attn"),
        named(tmp_path),
        named(tmp_path, python="3.12"),
        named(tmp_path, found=row(torch="2.8")),
        named(tmp_path, archs="90"),
    ]
    assert len(set(names)) == len(names)
    assert named(tmp_path) == names[2]
