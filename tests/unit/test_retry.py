"""A failing build continues with other settings: at most twice; the first error is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.core.errors import BuildError
from pipelines.diagnosis import Settings
from pipelines.record.results import BuildResult, RunFacts
from pipelines.record.run import Run, StageLog
from pipelines.stages.hooks import Attempt
from pipelines.stages.retry import until_healed

MEMORY = "layout_composed.hpp(478): catastrophic error : out of memory\nninja: build stopped\n"
HEAP = "x.cu: fatal error C1060: compiler is out of heap space\n"
ELSE = "src/x.cu(3): error: identifier foo is undefined\n"


class Builds:
    """Stands for the host: each round appends its log and ends as planned."""

    def __init__(self, place: Path, *rounds: str) -> None:
        self.notes = StageLog(Run.create(place / "out", RunFacts()))
        self.log = self.notes.run.path / "build.log"
        self.rounds = list(rounds)
        self.settings: list[Settings] = []
        self.fresh: list[bool] = []

    def __call__(self, settings: Settings, fresh: bool) -> Attempt:
        self.settings.append(settings)
        self.fresh.append(fresh)
        begin = self.log.stat().st_size if self.log.exists() else 0
        said = self.rounds.pop(0)
        with self.log.open("a") as log:
            log.write(said)
        done = BuildResult(
            job="1", directory="d", jobs=8, exit=1 if said else 0, tail=("the last line",)
        )
        return Attempt(done, begin)


def settings(jobs: int = 8) -> Settings:
    return Settings(jobs=jobs, build_root=r"C:\b", environment={"MAX_JOBS": str(jobs)})


def run(builds: Builds, jobs: int = 8) -> BuildResult:
    return until_healed(settings(jobs), builds, builds.notes).result


def test_well_at_once(tmp_path: Path) -> None:
    builds = Builds(tmp_path, "")
    done = run(builds)
    assert done.exit == 0
    assert done.healed == ()
    assert builds.fresh == [False]


def test_fewer_jobs_and_it_goes_on(tmp_path: Path) -> None:
    builds = Builds(tmp_path, MEMORY, "")
    done = run(builds)
    assert [s.jobs for s in builds.settings] == [8, 4]
    assert builds.settings[1].environment["MAX_JOBS"] == "4"
    assert builds.fresh == [False, True]
    assert "4 compile units at a time instead of 8" in done.story[0]
    assert "4 compile units at a time instead of 8" in builds.log.read_text()


def test_twice_at_most_and_the_first_error_is_told(tmp_path: Path) -> None:
    builds = Builds(tmp_path, MEMORY, MEMORY, ELSE, "never reached")
    with pytest.raises(BuildError) as caught:
        run(builds)
    assert [s.jobs for s in builds.settings] == [8, 4, 2]
    assert builds.rounds == ["never reached"]
    assert "oom-edg" in caught.value.message
    kept = builds.notes.result
    assert isinstance(kept, BuildResult)
    assert kept.diagnosis is not None
    assert kept.diagnosis.id == "oom-edg"
    assert [change.line for change in kept.healed] == [1, 5]
    assert "after 2 changes" in caught.value.message
    assert "--jobs" in caught.value.hint


def test_an_old_error_in_the_log_is_not_the_new_one(tmp_path: Path) -> None:
    builds = Builds(tmp_path, MEMORY, ELSE)
    with pytest.raises(BuildError):
        run(builds)
    assert len(builds.settings) == 2, "the second round failed of something unknown"


def test_one_job_cannot_be_fewer(tmp_path: Path) -> None:
    builds = Builds(tmp_path, HEAP)
    with pytest.raises(BuildError):
        run(builds, jobs=1)
    assert len(builds.settings) == 1


def test_unknown_failures_show_the_end_of_the_log(tmp_path: Path) -> None:
    builds = Builds(tmp_path, "something nobody has seen before\n")
    with pytest.raises(BuildError, match="the last line") as caught:
        run(builds)
    assert str(builds.log) in caught.value.hint
