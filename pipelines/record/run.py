"""One run: its directory below ``out/`` and its record, from which every report is made.

The record is SQLite in WAL mode, so that it is whole whatever kills the process. Files appear in
the directory by rename. What is in it are the models of :mod:`pipelines.record.results`.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Self, TypeVar

from pipelines.core import errors
from pipelines.core.errors import (
    AuditError,
    AuthError,
    ConfigError,
    HostError,
    PipelineError,
    StorageError,
    TimeUpError,
)
from pipelines.core.evidence import HOSTS, is_trusted
from pipelines.core.files import disk_errors, new_directory
from pipelines.core.hosttext import redact, redact_all, safe_line
from pipelines.core.model import first_problem
from pipelines.core.target import Target
from pipelines.record.job import JobRecord
from pipelines.record.results import (
    RESULTS,
    SCHEMA,
    BuildResult,
    ErrorResult,
    RunFacts,
    SmokeResult,
    StageRecord,
    StageResult,
    State,
)
from pipelines.record.seal import Entry, load_or_create_sealer, verify_seal_entries
from pipelines.remote.locks import claim

_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS stages (
    name TEXT PRIMARY KEY, state TEXT NOT NULL, started REAL NOT NULL, seconds REAL,
    error TEXT, result TEXT
);
CREATE TABLE IF NOT EXISTS seals (
    number INTEGER PRIMARY KEY, rows TEXT NOT NULL, sealer TEXT NOT NULL, signature TEXT NOT NULL
);
"""
#: What reading a damaged one may raise. ValueError: sqlite3 makes its text of the record's, which
#: need not be UTF-8.
_DAMAGE = (sqlite3.Error, ValueError, TypeError, OverflowError, RecursionError)
#: What is sealed: the first column of each names a row.
_TABLES = ("facts", "jobs", "stages")
_LOOK_BACK = 50  # runs
#: In a run's directory: locked by the process that uses it.
HELD = ".held"
_MESSAGE = 20_000  # characters of a recorded error, which may quote a host
_DATED = "[0-9]" * 8 + "-" + "[0-9]" * 6  # copies with other names are ignored
_NO_PRIVILEGE = 1314  # ERROR_PRIVILEGE_NOT_HELD
#: Errors after which a build has no outcome: it continues, or can.
_OPEN_ENDED = frozenset(kind.__name__ for kind in (HostError, AuthError, TimeUpError))
#: Facts by which runs of the same order are recognised.
_SAME = (
    *("target", "jobs", "evidence", "publishable", "taken_from", "given"),
    *("rebuilds", "share", "linked"),
)

Result = TypeVar("Result", bound=StageResult)


class StageNotes:
    """Records partial results of a running stage, which are kept even if it fails."""

    def __init__(self) -> None:
        self.result: StageResult | None = None

    def keep(self, result: Result) -> Result:
        """Store ``result``, replacing the previous one, and return it."""
        self.result = result
        return result


class StageLog(StageNotes):
    """The notes of one stage of a run."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run


class Run:
    """A run's directory and record; every write is atomic, so it need not be closed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held = ExitStack()

    @property
    def id(self) -> str:
        """The directory's name."""
        return self.path.name

    @classmethod
    def create(cls, out: Path, facts: RunFacts) -> Self:
        """Create ``out/<time>-<target>`` and link ``out/latest`` to it."""
        label = facts.target.id or "run"
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        path = new_directory(out, f"{stamp}-{label}", "runs")
        run = cls(path)
        run.hold()
        with run._database() as database:
            database.execute("PRAGMA journal_mode=WAL")  # kept in the file: to read writes nothing
            database.executescript(_SCHEMA)
        created = datetime.now(UTC).isoformat(timespec="seconds")
        run._write_facts(facts.model_copy(update={"run": run.id, "created": created}))
        run._make_latest()
        return run

    @classmethod
    def take_up(cls, out: Path, facts: RunFacts, among: Sequence[Self] = ()) -> Self | None:
        """The run of :meth:`cut_off_of`, locked and now the latest, unless it is in use."""
        run = cls.cut_off_of(out, facts, among)
        if run is None:
            return None
        if not run.hold() or not cut_off(run.stages()["build"]):  # its process has just ended
            run.close()
            return None
        run._make_latest()
        return run

    @classmethod
    def cut_off_of(cls, out: Path, facts: RunFacts, among: Sequence[Self] = ()) -> Self | None:
        """The latest run of the same order, of those in ``out`` or ``among``, if it was cut off.

        A controller that was killed leaves its stage as "running", an interrupted one says so.
        """
        for run in among or cls.past(out)[:_LOOK_BACK]:
            try:
                known, stage = run.facts(), run.stages().get("build")
            except (StorageError, ConfigError):
                continue  # of another version, or damaged
            if any(getattr(known, key) != getattr(facts, key) for key in _SAME):
                continue
            return run if stage is not None and cut_off(stage) else None
        return None

    @classmethod
    def past(cls, out: Path) -> list[Self]:
        """The runs that began in ``out``, the latest first."""
        records = sorted(out.glob(_DATED + "-*/record.sqlite"), reverse=True)
        return [cls(path.parent) for path in records if not path.parent.is_symlink()]

    @classmethod
    def latest_of(cls, out: Path, target: Target) -> Self | None:
        """The latest run of ``target``'s cell on any host, if there is one.

        Raises :class:`ConfigError` if there is no run at all.
        """
        latest = cls.open(out)
        cell = target.model_copy(update={"host": ""})
        for run in (latest, *cls.past(out)[:_LOOK_BACK]):
            try:
                known = run.facts().target
            except (StorageError, ConfigError):
                continue  # of another version, or damaged
            if known.model_copy(update={"host": ""}) == cell:
                return run
        return None

    def hold(self) -> bool:
        """Lock the run for this process; whether it was unlocked.

        It is released by :meth:`close`, or when the process dies.
        """
        with disk_errors(self.path):
            return self._held.enter_context(claim(self.path / HELD))

    def _make_latest(self) -> None:
        out = self.path.parent
        link = out / f".latest.{os.getpid()}-{threading.get_ident()}"
        with disk_errors(out):
            link.unlink(missing_ok=True)
            try:
                link.symlink_to(self.path.name)
            except OSError as error:
                if (
                    getattr(error, "winerror", None) == _NO_PRIVILEGE
                ):  # few Windows accounts may create links
                    return
                raise
            if not link.is_symlink():  # Wine makes none and reports success
                return
            try:
                link.replace(out / "latest")
            except PermissionError:  # Windows cannot replace a link to a directory
                (out / "latest").unlink(missing_ok=True)
                link.replace(out / "latest")

    def close(self) -> None:
        """Release the run for other processes."""
        self._held.close()

    @classmethod
    def open(cls, out: Path, name: str = "latest") -> Self:
        """The run called ``name``, or :class:`ConfigError` with the ones there are."""
        path = out / name
        if re.fullmatch(r"[\w.-]+", name) and (path / "record.sqlite").is_file():
            return cls(path.resolve())
        runs = sorted(p.name for p in out.glob("*/record.sqlite") for p in [p.parent])
        if name == "latest" and (past := cls.past(out)):  # if no link could be created
            return past[0]
        last = ", ".join(r for r in runs[-5:] if r != "latest")
        hint = f"There are: {last}" if last else "There are none yet. Run: invoke build"
        raise ConfigError(f"no run '{name}' in {out}", hint=hint)

    @classmethod
    def find(cls, out: Path, name: str) -> Self:
        """Like :meth:`open`; ``name`` may also be the path of a run's directory."""
        path = Path(name)
        if (path / "record.sqlite").is_file():
            return cls(path.resolve())
        return cls.open(out, name)

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        with disk_errors(self.path):
            try:
                connected = sqlite3.connect(self.path / "record.sqlite", timeout=10)
                with closing(connected) as database, database:
                    yield database
            except sqlite3.OperationalError as error:  # full, read-only, not to be opened
                raise StorageError(
                    f"cannot use the record in {self.path}: {error}",
                    hint="Free some space, and check who owns the directory.",
                ) from error

    def note(self, **changes: Any) -> None:
        """Store facts of the run: fields of :class:`RunFacts`."""
        known = self.facts()
        self._write_facts(RunFacts.model_validate(known.model_dump() | changes))

    def _write_facts(self, facts: RunFacts) -> None:
        rows = [(k, _redacted_json(v)) for k, v in facts.model_dump(mode="json").items()]
        self._write("facts", rows)

    def _write(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Put rows in place of those of their names, and seal them; what was there was intact."""
        marks = ", ".join("?" * len(rows[0]))
        with self._damage(), self._database() as database:
            database.execute("BEGIN IMMEDIATE")
            entries = _read_seal_entries(database)
            _require_sealed(database, entries)
            before = _hash_record_rows(database)
            statement = f"INSERT OR REPLACE INTO {table} VALUES ({marks})"  # noqa: S608 - ours
            database.executemany(statement, rows)
            changed = {k: v for k, v in _hash_record_rows(database).items() if before.get(k) != v}
            if not changed:
                return
            # What a job is at is written every few seconds: such an entry replaces the last one.
            if len(entries) > 1 and set(entries[-1].rows) == set(changed) == {f"jobs/{rows[0][0]}"}:
                del entries[-1]
            entry = load_or_create_sealer().entry(changed, verify_seal_entries(entries)[1])
            database.execute(
                "INSERT OR REPLACE INTO seals VALUES (?, ?, ?, ?)",
                (len(entries), json.dumps(entry.rows), entry.sealer, entry.signature),
            )

    @property
    def sealers(self) -> dict[str, str]:
        """Whose key has sealed each of its facts and stages, by ``table/key``.

        :class:`ConfigError` for a record that was changed after it was written.
        """
        with self._damage(StorageError), self._database() as database:
            return _require_sealed(database, _read_seal_entries(database))

    @property
    def recorded_by(self) -> str:
        """Whose record it is, where a part of it is another controller's; else empty."""
        keys = [
            who[:16]
            for who in sorted({*self.sealers.values()} - {load_or_create_sealer().identity})
        ]
        return f"recorded by another controller (key {', '.join(keys)})" if keys else ""

    def require_sealed_by(self, trusted: Sequence[str] = ()) -> None:
        """Refuse what another controller has recorded, unless its key is trusted for such a host.

        ``trusted``: :data:`pipelines.core.evidence.TRUST` each. A record's level, and whether it
        may be published, must be those of a host of that kind; a test must have run on one. The
        same of the objects that a wheel was linked from. :class:`AuditError` names the key.
        """
        level, test, built = self.facts().kinds, self.result(SmokeResult), self.result(BuildResult)
        claims = {"facts/evidence": level, "facts/publishable": level}
        claims |= {"stages/test": test.kinds} if test else {}
        rows = [(who, claims.get(row, frozenset(HOSTS))) for row, who in self.sealers.items()]
        lent = built.divided.lent if built is not None and built.divided is not None else ()
        rows += [(key, level) for one in lent for key in one.sealers]
        for who, kinds in rows:
            if who != load_or_create_sealer().identity and not is_trusted(who, kinds, trusted):
                raise AuditError(
                    f"{self.path}: its record is sealed with the key {who} of another controller, "
                    f"which is not trusted for {' or '.join(sorted(kinds)) or 'such'} hosts",
                    hint="If you know whose key that is, and its hosts, add KEY=KIND to "
                    "provenance.trust in pipeline.yaml: docs/provenance.md.",
                )

    def facts(self) -> RunFacts:
        """All stored facts; :class:`ConfigError` if this version cannot read the record."""
        rows = self._rows("SELECT key, value FROM facts")
        with self._damage():
            notes = {key: json.loads(value) for key, value in rows}
            if notes.get("schema_version") != SCHEMA:
                raise ValueError(f"it is of version {notes.get('schema_version')}, not {SCHEMA}")
            return RunFacts.model_validate(notes)

    def put_job(self, name: str, job: JobRecord) -> None:
        """Store a job on a host: its directory, attempt and log offset."""
        self._write("jobs", [(name, _redacted_json(job.model_dump(mode="json")))])

    def job(self, name: str) -> JobRecord | None:
        """The job of that name, if one was started for this run."""
        with self._damage():
            for (value,) in self._rows("SELECT value FROM jobs WHERE name = ?", name):
                return JobRecord.model_validate(json.loads(value))
        return None

    def put_stage(self, record: StageRecord) -> None:
        """Insert or replace a stage's row."""
        result = (
            None if record.result is None else _redacted_json(record.result.model_dump(mode="json"))
        )
        error = (
            None if record.error is None else _redacted_json(record.error.model_dump(mode="json"))
        )
        row = (record.name, record.state, record.started, record.seconds, error, result)
        self._write("stages", [row])

    def stages(self) -> dict[str, StageRecord]:
        """The stages so far, in order of their start.

        A result that cannot be read is missing, and ``unread`` says why; :class:`ConfigError` for
        a stage that cannot be read at all.
        """
        return {stage.name: stage for stage in self._stages("ORDER BY started")}

    def result(self, kind: type[Result]) -> Result | None:
        """The stored result of that kind, if any; :class:`ConfigError` if it is damaged."""
        for stage in self._stages("WHERE name = ?", kind.stage):
            if stage.unread:
                raise self._unreadable(ValueError(stage.unread))
            return stage.result if isinstance(stage.result, kind) else None
        return None

    def _stages(self, which: str, *values: str) -> list[StageRecord]:
        columns = "name, state, started, seconds, error, result"
        rows = self._rows(f"SELECT {columns} FROM stages {which}", *values)  # noqa: S608 - ours
        with self._damage():
            return [_parse_stage_row(row) for row in rows]

    def _rows(self, query: str, *values: str) -> list[Any]:
        with self._damage(StorageError), self._database() as database:
            database.execute("BEGIN")
            _require_sealed(database, _read_seal_entries(database))
            return database.execute(query, values).fetchall()

    @contextmanager
    def _damage(self, *more: type[Exception]) -> Iterator[None]:
        """Say of a record that is not as it was written that it cannot be read."""
        kinds: tuple[type[Exception], ...] = (*_DAMAGE, *more)
        try:
            yield
        except kinds as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> ConfigError:
        there = (self.path / "record.sqlite").is_file()
        return ConfigError(
            f"{self.path} has no readable record: {safe_line(first_problem(error))}",
            hint="Its record.sqlite is damaged or of another version: report.html and junit.xml "
            "there, if any, are as they were made. Copy the run again, or build again."
            if there
            else "Name the directory of a run: it contains record.sqlite.",
        )

    @contextmanager
    def stage(self, name: str) -> Iterator[StageLog]:
        """Record a stage: its results, and any error, which is re-raised."""
        log, started, began = StageLog(self), time.time(), time.monotonic()
        self.put_stage(StageRecord(name=name, state="running", started=started))
        state: State = "failed"
        recorded: ErrorResult | None = None
        try:
            yield log
            state = "passed"
        except KeyboardInterrupt:
            state = "interrupted"
            recorded = ErrorResult(kind="Interrupted", title="interrupted", message="interrupted")
            raise
        except BaseException as error:
            recorded = error_of(error)
            raise
        finally:
            self.put_stage(
                StageRecord(
                    name=name,
                    state=state,
                    started=started,
                    seconds=time.monotonic() - began,
                    error=recorded,
                    result=log.result,
                )
            )


def error_of(error: BaseException) -> ErrorResult:
    """An error as recorded."""
    if isinstance(error, PipelineError):
        # Record the class in errors.py rather than a local subclass.
        known = next(base for base in type(error).__mro__ if base.__module__ == errors.__name__)
        return ErrorResult(
            kind=known.__name__,
            title=error.title,
            message=redact(error.message)[:_MESSAGE],
            hint=redact(error.hint)[:_MESSAGE],
        )
    kind = type(error).__name__
    return ErrorResult(kind=kind, title="internal", message=redact(f"{kind}: {error}")[:_MESSAGE])


def cut_off(stage: StageRecord) -> bool:
    """Whether the stage has no outcome: it was killed or interrupted, or lost the host."""
    lost = stage.error is not None and stage.error.kind in _OPEN_ENDED
    return stage.state in ("running", "interrupted") or (stage.state == "failed" and lost)


def _read_seal_entries(database: sqlite3.Connection) -> list[Entry]:
    rows = database.execute("SELECT rows, sealer, signature FROM seals ORDER BY number").fetchall()
    return [Entry(dict(json.loads(names)), str(who), str(sign)) for names, who, sign in rows]


def _hash_record_rows(database: sqlite3.Connection) -> dict[str, str]:
    """The sha256 of every row, as it is read."""
    return {
        f"{table}/{row[0]}": sha256(json.dumps(row, default=bytes.hex).encode()).hexdigest()
        for table in _TABLES
        for row in database.execute(f"SELECT * FROM {table}")  # noqa: S608 - ours
    }


def _require_sealed(database: sqlite3.Connection, entries: Sequence[Entry]) -> dict[str, str]:
    """Who sealed each fact and stage; ``ValueError`` for a row that is another, or one too many."""
    sealed, _ = verify_seal_entries(entries)
    if names := {(k, v) for k, (v, _) in sealed.items()} ^ {*_hash_record_rows(database).items()}:
        raise ValueError(f"{min(names)[0]} was changed after it was written")
    return {row: who for row, (_, who) in sealed.items() if not row.startswith("jobs/")}


def _parse_stage_row(row: Any) -> StageRecord:
    name, state, started, seconds, error, result = row
    values = {"name": name, "state": state, "started": started, "seconds": seconds}
    if error is not None:
        values["error"] = ErrorResult.model_validate(json.loads(error))
    kind = RESULTS.get(name)
    if result is not None and kind is not None:
        try:
            values["result"] = kind.model_validate(json.loads(result))
        except (ValueError, RecursionError) as problem:
            values["unread"] = f"the result of {name} cannot be read: {first_problem(problem)}"
    return StageRecord.model_validate(values)


def _redacted_json(value: Any) -> str:
    return json.dumps(redact_all(value))
