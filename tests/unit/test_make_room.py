"""What goes from a host's disk before a build, and what must stay."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from pipelines.remote import facts, locks
from pipelines.remote.jobs import prune, store

DAY = 86400.0


class Disk:
    """A disk of a hundred bytes, on which there is what lies below a directory."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.temp = place / "b", place / "t"
        self.root.mkdir()
        self.temp.mkdir()
        self.place = place
        monkeypatch.setattr(facts, "disk", lambda path: {"path": path, "free": self.free})

    @property
    def free(self) -> int:
        payload = (path for path in self.place.rglob("data") if path.is_file())
        return 100 - sum(path.stat().st_size for path in payload)

    def job(self, name: str, days: float, size: int = 20) -> Path:
        folder = self.root / name
        folder.mkdir()
        (folder / store.SPEC).write_text(json.dumps({"function": "f", "arguments": {}}))
        (folder / "data").write_bytes(bytes(size))
        self.old(folder, days)
        return folder

    def wheel(self, name: str, days: float) -> Path:
        folder = self.root / name
        folder.mkdir()
        (folder / "data").write_bytes(bytes(20))
        self.old(folder, days)
        return folder

    def old(self, folder: Path, days: float) -> None:
        then = time.time() - days * DAY
        for path in (*folder.rglob("*"), folder):
            os.utime(path, (then, then))

    def room(self, least: int, **changes: Any) -> list[str]:
        keep = ["restart.json"]
        order: dict[str, Any] = {"root": str(self.root), "temp": str(self.temp), "keep": keep}
        removed = prune.make_room(**{**order, "least": least, **changes})
        return [Path(one).name for one in removed]


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(tmp_path, monkeypatch)


def test_the_oldest_goes_first_and_no_more_than_is_needed(disk: Disk) -> None:
    for name, days in {"young": 2, "oldest": 30, "old": 10}.items():
        disk.job(name, days)
    assert disk.room(40) == []
    assert disk.room(60) == ["oldest"]
    assert disk.room(80) == ["old"]
    assert (disk.root / "young").is_dir()


def test_what_runs_what_is_wanted_and_what_is_of_today_stays(disk: Disk) -> None:
    running = disk.job("running", 30)
    disk.job("wanted", 30)
    disk.job("today", 0.5)
    with locks.claim(running / store.ALIVE) as held:
        assert held
        disk.old(running, 30)
        assert disk.room(100, keep=["wanted"]) == []
    assert sorted(path.name for path in disk.root.iterdir()) == ["running", "today", "wanted"]


def test_a_job_that_begins_meanwhile_stays(disk: Disk) -> None:
    """Whoever starts it holds the lock before anything tells that it runs."""
    starting = disk.job("starting", 30)
    with locks.claim(starting / store.STARTING) as held:
        assert held
        disk.old(starting, 30)
        assert disk.room(100) == []
    assert (starting / "data").is_file()


def test_wheels_of_smoke_tests_go_with_their_job_or_after_it(disk: Disk) -> None:
    disk.job("smoke-1", 9, size=1)
    disk.wheel("smoke-1-wheel", 9)
    disk.wheel("smoke-2-wheel", 9)
    fresh = disk.wheel("smoke-3-wheel", 0.5)
    assert sorted(disk.room(100)) == ["smoke-1", "smoke-2-wheel"]
    assert [path.name for path in disk.root.iterdir()] == [fresh.name]
    assert disk.free == 80


def test_environments_of_builds_go_after_the_last_job_that_names_them(disk: Disk) -> None:
    for name in ("used", "unused", "wanted", "fresh"):
        (disk.root / prune.ENVIRONMENTS).mkdir(exist_ok=True)
        disk.wheel(f"{prune.ENVIRONMENTS}/{name}", 0.5 if name == "fresh" else 30)
    job = disk.job("job", 0.5, size=1)
    python = f"C:\\b\\{prune.ENVIRONMENTS}\\used\\Scripts\\python.exe"
    told = {"function": "f", "arguments": {"spec": {"python": python}}}
    (job / store.SPEC).write_text(json.dumps(told))
    assert disk.room(100, keep=["wanted"]) == ["unused"]
    disk.old(job, 30)
    assert sorted(prune.prune(str(disk.root), 14)) == ["job", "wanted"]
    assert prune.prune(str(disk.root), 14) == ["used"]


def test_the_cache_command_takes_such_wheels_too(disk: Disk) -> None:
    disk.wheel("smoke-2-wheel", 20)
    disk.wheel("smoke-3-wheel", 3)
    assert prune.prune(str(disk.root), 14) == ["smoke-2-wheel"]


def test_what_was_unpacked_of_an_old_archive_is_not_forgotten(disk: Disk) -> None:
    folder = disk.temp / "unpacked"
    folder.mkdir()
    (folder / "data").write_bytes(bytes(20))
    disk.old(folder, 900)
    assert disk.room(100) == []
    assert (folder / "data").is_file()


def test_what_is_forgotten_in_temp_goes(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "_last_change", lambda path: os.lstat(path).st_mtime)
    (disk.temp / "restart.json").write_text("{}")
    for name, days in {"stale": 8, "late": 8, "new": 1}.items():
        (disk.temp / name).mkdir()
        (disk.temp / name / "data").write_bytes(bytes(20))
        disk.old(disk.temp / name, days)
    (disk.temp / "late" / "data").write_bytes(bytes(20))  # its directory is as old as before
    disk.old(disk.temp / "restart.json", 30)
    assert disk.room(60) == ["stale"]
    assert {path.name for path in disk.temp.iterdir()} == {"restart.json", "late", "new"}


def test_nothing_is_there(disk: Disk, tmp_path: Path) -> None:
    none = str(tmp_path / "none")
    assert disk.room(1000, root=none, temp=none) == []
