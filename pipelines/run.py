"""One run: its directory below ``out/`` and its record, from which every report is made.

The record is SQLite in WAL mode, so that it is whole whatever kills the process. Files appear in
the directory by rename.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self

from pipelines.errors import (
    AuthError,
    ConfigError,
    HostError,
    PipelineError,
    StorageError,
    TimeUpError,
)
from pipelines.files import disk_errors
from pipelines.hosttext import redact_all
from pipelines.remote.locks import claim

_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS stages (
    name TEXT PRIMARY KEY, state TEXT NOT NULL, started REAL NOT NULL, seconds REAL,
    detail TEXT NOT NULL DEFAULT '{}'
);
"""
_LOOK_BACK = 50  # runs
_NO_PRIVILEGE = 1314  # ERROR_PRIVILEGE_NOT_HELD
State = Literal["running", "passed", "failed", "interrupted"]


@dataclass
class StageRecord:
    """What one stage left."""

    name: str
    state: State
    started: float
    """Seconds since the epoch."""
    seconds: float | None
    detail: dict[str, Any] = field(default_factory=dict)


class Run:
    """A run's directory and record; a context manager is not needed, every write is whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held = ExitStack()

    @property
    def id(self) -> str:
        """The directory's name."""
        return self.path.name

    @classmethod
    def create(cls, out: Path, label: str, facts: dict[str, Any]) -> Self:
        """Make ``out/<time>-<label>`` and let ``out/latest`` point to it."""
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        for number in range(100):
            path = out / f"{stamp}-{label}{f'-{number}' if number else ''}"
            try:
                with disk_errors(out):
                    path.mkdir(parents=True)
            except FileExistsError:
                continue
            break
        else:
            raise StorageError(f"100 runs began in this second in {out}", advice="Try again.")
        run = cls(path)
        run._hold()
        with run._database() as database:
            database.executescript(_SCHEMA)
        run.note(**facts, created=datetime.now(UTC).isoformat(timespec="seconds"))
        run._make_latest()
        return run

    @classmethod
    def take_up(cls, out: Path, facts: dict[str, Any]) -> Self | None:
        """The latest run with these facts whose build was cut off, unless somebody is at it.

        A controller that was killed leaves its stage as "running", an interrupted one says so.
        """
        for path in sorted(out.glob("*/record.sqlite"), reverse=True)[:_LOOK_BACK]:
            if path.parent.is_symlink():
                continue
            run = cls(path.parent)
            try:
                known, stage = run.facts(), run.stages().get("build")
            except (StorageError, sqlite3.Error, ValueError):
                continue  # of another version, or damaged: not ours to judge here
            if {key: known.get(key) for key in facts} != facts:
                continue
            if stage is None or not _cut_off(stage):
                return None
            if not run._hold() or not _cut_off(run.stages()["build"]):  # its process has just ended
                run.close()
                return None
            run._make_latest()
            return run
        return None

    def _hold(self) -> bool:
        """Take the run for this process; let go of by :meth:`close`, or when the process dies."""
        with disk_errors(self.path):
            return self._held.enter_context(claim(self.path / ".held"))

    def _make_latest(self) -> None:
        out = self.path.parent
        link = out / f".latest.{os.getpid()}"
        with disk_errors(out):
            link.unlink(missing_ok=True)
            try:
                link.symlink_to(self.path.name)
            except OSError as error:
                if getattr(error, "winerror", None) == _NO_PRIVILEGE:  # few accounts of Windows may
                    return
                raise
            try:
                link.replace(out / "latest")
            except PermissionError:  # Windows puts no link to a directory in another one's place
                (out / "latest").unlink(missing_ok=True)
                link.replace(out / "latest")

    def close(self) -> None:
        """Let go of the run: another process may take it up."""
        self._held.close()

    @classmethod
    def open(cls, out: Path, name: str = "latest") -> Self:
        """The run called ``name``, or :class:`ConfigError` with the ones there are."""
        path = out / name
        if re.fullmatch(r"[\w.-]+", name) and (path / "record.sqlite").is_file():
            return cls(path.resolve())
        runs = sorted(p.name for p in out.glob("*/record.sqlite") for p in [p.parent])
        if name == "latest" and runs:  # where no link could be made: names begin with the time
            return cls(out / runs[-1])
        last = ", ".join(r for r in runs[-5:] if r != "latest") or "none yet: invoke build"
        raise ConfigError(f"no run '{name}' in {out}", advice=f"There are: {last}")

    @classmethod
    def find(cls, out: Path, name: str) -> Self:
        """As :meth:`open`; ``name`` may be the path of a run's directory, wherever it is."""
        path = Path(name)
        if (path / "record.sqlite").is_file():
            return cls(path.resolve())
        return cls.open(out, name)

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        with disk_errors(self.path):
            try:
                with closing(sqlite3.connect(self.path / "record.sqlite", timeout=10)) as database:
                    database.execute("PRAGMA journal_mode=WAL")
                    with database:
                        yield database
            except sqlite3.OperationalError as error:  # full, read-only, not to be opened
                raise StorageError(
                    f"cannot use the record in {self.path}: {error}",
                    advice="Free some space, and check who owns the directory.",
                ) from error

    def note(self, **facts: Any) -> None:
        """Remember facts of the run."""
        rows = [(key, json.dumps(redact_all(value))) for key, value in facts.items()]
        with self._database() as database:
            database.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", rows)

    def facts(self) -> dict[str, Any]:
        """Everything noted."""
        with self._database() as database:
            return {k: json.loads(v) for k, v in database.execute("SELECT key, value FROM facts")}

    def put_job(self, name: str, value: dict[str, Any]) -> None:
        """Remember a job on a host: where it is, which attempt is followed, from where on."""
        with self._database() as database:
            row = (name, json.dumps(redact_all(value)))
            database.execute("INSERT OR REPLACE INTO jobs VALUES (?, ?)", row)

    def jobs(self) -> dict[str, dict[str, Any]]:
        """The jobs that were started for this run, by name."""
        with self._database() as database:
            return {k: json.loads(v) for k, v in database.execute("SELECT name, value FROM jobs")}

    def put_stage(self, record: StageRecord) -> None:
        """Insert or replace a stage's row."""
        detail = json.dumps(redact_all(record.detail))
        row = (record.name, record.state, record.started, record.seconds, detail)
        with self._database() as database:
            database.execute("INSERT OR REPLACE INTO stages VALUES (?, ?, ?, ?, ?)", row)

    def stages(self) -> dict[str, StageRecord]:
        """The stages so far, in the order in which they began."""
        with self._database() as database:
            rows = database.execute("SELECT * FROM stages ORDER BY started").fetchall()
        return {
            name: StageRecord(name, state, started, seconds, json.loads(detail))
            for name, state, started, seconds, detail in rows
        }

    @contextmanager
    def stage(self, name: str) -> Iterator[dict[str, Any]]:
        """Record a stage around its work; the yielded dict becomes its ``detail``.

        An error is recorded with its message and passes on.
        """
        record = StageRecord(name, "running", time.time(), None)
        self.put_stage(record)
        began = time.monotonic()
        try:
            yield record.detail
            record.state = "passed"
        except PipelineError as error:
            record.state = "failed"
            record.detail |= {"error": error.message, "advice": error.advice, "kind": error.title}
            raise
        except KeyboardInterrupt:
            record.state = "interrupted"
            record.detail |= {"error": "interrupted", "kind": "interrupted"}
            raise
        except BaseException as error:
            record.state = "failed"
            record.detail |= {"error": f"{type(error).__name__}: {error}", "kind": "internal"}
            raise
        finally:
            record.seconds = time.monotonic() - began
            self.put_stage(record)


def _cut_off(stage: StageRecord) -> bool:
    """Whether the stage has no outcome: its controller was killed or left, or lost the host."""
    lost = stage.detail.get("kind") in (HostError.title, AuthError.title, TimeUpError.title)
    return stage.state in ("running", "interrupted") or (stage.state == "failed" and lost)
