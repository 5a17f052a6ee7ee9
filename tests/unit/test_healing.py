"""A failing build goes on with other settings: at most twice, and the first error is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.diagnosis import Settings
from pipelines.errors import BuildError
from pipelines.stages.retry import until_healed

MEMORY = "layout_composed.hpp(478): catastrophic error : out of memory\nninja: build stopped\n"
HEAP = "x.cu: fatal error C1060: compiler is out of heap space\n"
ELSE = "src/x.cu(3): error: identifier foo is undefined\n"


class Builds:
    """Stands for the host: each round appends its log and ends as it was told to."""

    def __init__(self, log: Path, *rounds: str) -> None:
        self.log = log
        self.rounds = list(rounds)
        self.settings: list[Settings] = []
        self.fresh: list[bool] = []

    def __call__(self, settings: Settings, fresh: bool) -> tuple[dict[str, Any], int]:
        self.settings.append(settings)
        self.fresh.append(fresh)
        begin = self.log.stat().st_size if self.log.exists() else 0
        said = self.rounds.pop(0)
        with self.log.open("a") as log:
            log.write(said)
        return {"exit": 1 if said else 0, "wheels": []}, begin


def settings(jobs: int = 8) -> Settings:
    return Settings(jobs=jobs, build_root=r"C:\b", environment={"MAX_JOBS": str(jobs)})


def run(builds: Builds, jobs: int = 8) -> tuple[dict[str, Any], dict[str, Any]]:
    detail: dict[str, Any] = {"tail": ["the last line"]}
    return until_healed(settings(jobs), builds, builds.log, detail), detail


def test_well_at_once(tmp_path: Path) -> None:
    builds = Builds(tmp_path / "log", "")
    result, detail = run(builds)
    assert result["exit"] == 0
    assert detail["healed"] == []
    assert builds.fresh == [False]


def test_fewer_jobs_and_it_goes_on(tmp_path: Path) -> None:
    builds = Builds(tmp_path / "log", MEMORY, "")
    _, detail = run(builds)
    assert [s.jobs for s in builds.settings] == [8, 4]
    assert builds.settings[1].environment["MAX_JOBS"] == "4"
    assert builds.fresh == [False, True]
    assert "4 compile units at a time instead of 8" in detail["healed"][0]
    assert "4 compile units at a time instead of 8" in builds.log.read_text()


def test_twice_at_most_and_the_first_error_is_told(tmp_path: Path) -> None:
    builds = Builds(tmp_path / "log", MEMORY, MEMORY, ELSE, "never reached")
    with pytest.raises(BuildError) as caught:
        run(builds)
    assert [s.jobs for s in builds.settings] == [8, 4, 2]
    assert builds.rounds == ["never reached"]
    assert "oom-edg" in caught.value.message
    assert "after 2 changes" in caught.value.message
    assert "--jobs" in caught.value.advice


def test_an_old_error_in_the_log_is_not_the_new_one(tmp_path: Path) -> None:
    builds = Builds(tmp_path / "log", MEMORY, ELSE)
    with pytest.raises(BuildError):
        run(builds)
    assert len(builds.settings) == 2, "the second round failed of something unknown"


def test_one_job_cannot_be_fewer(tmp_path: Path) -> None:
    builds = Builds(tmp_path / "log", HEAP)
    with pytest.raises(BuildError):
        run(builds, jobs=1)
    assert len(builds.settings) == 1


def test_unknown_failures_show_the_end_of_the_log(tmp_path: Path) -> None:
    builds = Builds(tmp_path / "log", "something nobody has seen before\n")
    with pytest.raises(BuildError, match="the last line") as caught:
        run(builds)
    assert str(tmp_path / "log") in caught.value.advice
