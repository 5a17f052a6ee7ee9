"""The fleet's ledger: what is to be done, where it stands, every attempt. The truth, in SQLite.

It is ``fleet.sqlite`` in ``out/fleet-<stamp>``. Every change of state is one transaction that is
on the disk before anything follows from it, so a dispatcher that is killed anywhere goes on from
it; a second one at the same time is refused. Who only looks, or leaves an order, needs no lock.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import TypeAdapter, ValidationError

from pipelines.errors import ConfigError, StorageError
from pipelines.files import disk_errors, new_directory
from pipelines.fleet.change import Change
from pipelines.fleet.entries import Attempt, Entry, Event, HostEntry, Order, Verb
from pipelines.fleet.model import Machine, Span, Work
from pipelines.fleet.works import check
from pipelines.hosttext import line
from pipelines.model import first_problem
from pipelines.record import ErrorResult
from pipelines.remote.files import replace
from pipelines.remote.locks import claim

Row = TypeVar("Row")
#: What is read is looked at: a word or number that makes no sense is damage.
_ENTRY, _HOST, _ORDER = TypeAdapter(Entry), TypeAdapter(HostEntry), TypeAdapter(Order)
#: Of the ledger; one with another number is not read.
SCHEMA = 2
FILE = "fleet.sqlite"
_HELD = ".held"
_TABLES = """
CREATE TABLE facts (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE works (
    key TEXT PRIMARY KEY, place INTEGER NOT NULL, work TEXT NOT NULL, stand TEXT NOT NULL,
    priority INTEGER NOT NULL, host TEXT NOT NULL, attempt INTEGER NOT NULL, since REAL NOT NULL,
    bound TEXT NOT NULL, until REAL NOT NULL, rest REAL NOT NULL, fallen INTEGER NOT NULL,
    cancelled INTEGER NOT NULL, losses TEXT NOT NULL, died TEXT NOT NULL, parted TEXT NOT NULL,
    error TEXT
);
CREATE TABLE attempts (
    key TEXT, attempt INTEGER, host TEXT NOT NULL, began REAL NOT NULL, ended REAL,
    outcome TEXT, gone INTEGER, run TEXT NOT NULL DEFAULT '', error TEXT, told TEXT,
    left INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (key, attempt)
);
CREATE TABLE hosts (
    name TEXT PRIMARY KEY, place INTEGER NOT NULL, machine TEXT NOT NULL, state TEXT NOT NULL,
    why TEXT NOT NULL, since REAL NOT NULL, look REAL NOT NULL, looks INTEGER NOT NULL,
    drained INTEGER NOT NULL
);
CREATE TABLE events (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, what TEXT NOT NULL, key TEXT NOT NULL,
    host TEXT NOT NULL, said TEXT NOT NULL
);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, verb TEXT NOT NULL, subject TEXT NOT NULL,
    number INTEGER NOT NULL, answer TEXT
);
CREATE INDEX open_orders ON orders (id) WHERE answer IS NULL;
"""


class Ledger:
    """A fleet's ledger. Raises :class:`StorageError`, and :class:`ConfigError` if damaged."""

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        """``path`` is the fleet's directory. Not ``durable``: may lose its end with the power."""
        self.path = path
        self._held = ExitStack()
        if not (path / FILE).is_file():
            raise ConfigError(f"{path} holds no fleet", advice="It has no fleet.sqlite.")
        self._database = self._connect(durable)
        try:
            self._check_version()
        except BaseException:
            self._database.close()
            raise

    @classmethod
    def create(
        cls, out: Path, order: str, at: float | None = None, *, durable: bool = True
    ) -> Self:
        """Begin a fleet for ``order``: a hash of what was asked for. It is held."""
        moment = datetime.now(UTC) if at is None else datetime.fromtimestamp(at, UTC)
        path = new_directory(out, f"fleet-{moment:%Y%m%d-%H%M%S}", "fleets")
        facts = {"schema": SCHEMA, "order": order, "began": moment.timestamp()}
        with _storage(path):
            # Whole under its name, or not there: one that was killed here left no fleet.
            with sqlite3.connect(path / ".new") as database:
                database.executescript(_TABLES)
                rows = [(key, str(value)) for key, value in facts.items()]
                database.executemany("INSERT INTO facts VALUES (?, ?)", rows)
            database.close()
            replace(path / ".new", path / FILE)
        ledger = cls(path, durable=durable)
        ledger.hold()
        return ledger

    @classmethod
    def find(
        cls, out: Path, order: str, passed: Callable[[str], object] = lambda _: None
    ) -> Self | None:
        """The latest fleet of that order, if it has not come to its end.

        ``passed`` hears of each that is damaged or of another version: whose it was, nobody knows.
        Raises :class:`StorageError` for one that cannot be read now.
        """
        for path in sorted(out.glob(f"fleet-*/{FILE}"), reverse=True):
            try:
                ledger = cls(path.parent)
                mine = ledger.fact("order") == order
            except ConfigError as error:
                passed(error.message)
                continue
            if mine:
                if ledger.fact("ended"):
                    ledger.close()
                    return None
                return ledger
            ledger.close()
        return None

    def hold(self) -> None:
        """Take it for this process; :class:`ConfigError` when another dispatcher has it."""
        with disk_errors(self.path):
            held = self._held.enter_context(claim(self.path / _HELD))
        if not held:
            self._held.close()
            raise ConfigError(
                f"another process works at {self.path.name}",
                advice="invoke fleet shows it; pause it, or end that process first.",
            )

    def close(self) -> None:
        """Let go of it: another process may go on with it."""
        self._database.close()
        self._held.close()

    def _connect(self, durable: bool) -> sqlite3.Connection:
        with _storage(self.path):
            file = self.path / FILE
            database = sqlite3.connect(file, timeout=30, isolation_level=None)
            try:
                database.execute("PRAGMA journal_mode=WAL")
                database.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")
            except sqlite3.Error:
                database.close()
                raise
        return database

    def _check_version(self) -> None:
        if (found := self.fact("schema")) != str(SCHEMA):
            raise ConfigError(
                f"{self.path} holds a ledger of version {line(found, 20) or '?'}, not {SCHEMA}",
                advice="Begin a new fleet, or use the release that began this one.",
            )

    def rows(self, query: str, *values: object) -> list[Any]:
        """The rows of a query; :class:`ConfigError` for a ledger that is damaged."""
        with _storage(self.path):
            return self._database.execute(query, values).fetchall()

    def fact(self, key: str) -> str:
        """What is noted of the fleet itself; empty: nothing."""
        rows = self.rows("SELECT value FROM facts WHERE key = ?", key)
        return str(rows[0][0]) if rows else ""

    def number(self, key: str) -> float | None:
        """A fact that is a number; :class:`ConfigError` for another, which damage has made."""
        text = self.fact(key)
        try:
            value = float(text) if text else None
        except ValueError:
            value = math.nan
        if value is not None and not math.isfinite(value):
            raise _damaged(self.path, f"'{key}' is no number")
        return value

    @contextmanager
    def change(self, at: float) -> Iterator[Change]:
        """One transaction: all of it, or nothing."""
        with _storage(self.path):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                change = Change(self._database, at)
                yield change
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    def put(self, works: Iterable[Work], machines: Iterable[Machine], at: float) -> None:
        """Have these works and hosts in it; those it has keep where they stand.

        Hosts that it has and that are not among them are refused. Raises :class:`ConfigError` for
        works that cannot be: a key given twice, an unknown or circular ``after``.
        """
        known = {key: Work.model_validate_json(text) for key, text in self._texts()}
        new = {work.key: work for work in check(works, known)}
        with self.change(at) as change:
            for work in new.values():
                change.database.execute(
                    "INSERT INTO works VALUES (?, ?, ?, 'waiting', ?, '', 0, ?, '', 0, 0, 0, 0, "
                    "'{}', '[]', '[]', NULL) ON CONFLICT (key) DO UPDATE SET work = excluded.work",
                    (work.key, len(known), work.model_dump_json(), work.priority, at),
                )
                known[work.key] = work
            change.database.execute(
                "UPDATE hosts SET state = 'refused', why = 'it is no longer among the hosts'"
            )
            for place, machine in enumerate(machines):
                state = "off" if machine.made else "coming"
                change.database.execute(
                    "INSERT INTO hosts VALUES (?, ?, ?, ?, '', ?, 0, 0, 0) ON CONFLICT (name) DO "
                    "UPDATE SET machine = excluded.machine, state = excluded.state, why = ''",
                    (machine.name, place, machine.model_dump_json(), state, at),
                )
            change.database.execute("DELETE FROM facts WHERE key = 'ended'")

    def refuse(self, host: str, why: str, at: float) -> None:
        """Have a host do nothing, for a reason that does not pass by itself."""
        with self.change(at) as change:
            for entry in self.hosts():
                if entry.machine.name == host:
                    change.host(entry, state="refused", why=line(why, 500))
                    change.event("refused", host=host, said=why)

    def _texts(self) -> list[tuple[str, str]]:
        return self.rows("SELECT key, work FROM works ORDER BY place")

    def works(self) -> list[Entry]:
        """Every work and where it stands, in the order in which they were given."""
        names = [one.name for one in dataclasses.fields(Entry)]
        rows = self.rows(f"SELECT {', '.join(names)} FROM works ORDER BY place")  # noqa: S608 - ours
        fits: dict[tuple[str, ...], tuple[str, ...]] = {}  # thousands of works fit the same hosts

        def entry(row: Any) -> Entry:
            told = dict(zip(names, row, strict=True))
            work = Work.model_validate_json(told["work"])
            told["work"] = work.model_copy(
                update={"hosts": fits.setdefault(work.hosts, work.hosts)}
            )
            told["losses"] = dict(json.loads(told["losses"]))
            told["died"] = tuple(json.loads(told["died"]))
            told["parted"] = tuple(json.loads(told["parted"]))
            told["fallen"], told["cancelled"] = bool(told["fallen"]), bool(told["cancelled"])
            told["error"] = _error(told["error"])
            return _ENTRY.validate_python(told)

        return self._read(entry, rows)

    def hosts(self) -> list[HostEntry]:
        """Every host and how the fleet stands with it."""
        names = [one.name for one in dataclasses.fields(HostEntry)]
        rows = self.rows(f"SELECT {', '.join(names)} FROM hosts ORDER BY place")  # noqa: S608 - ours

        def entry(row: Any) -> HostEntry:
            told = dict(zip(names, row, strict=True))
            told["machine"] = Machine.model_validate_json(told["machine"])
            told["drained"] = bool(told["drained"])
            return _HOST.validate_python(told)

        return self._read(entry, rows)

    def attempts(self) -> list[Attempt]:
        """Every attempt in the order in which they began."""
        rows = self.rows(
            "SELECT a.key, work ->> 'kind', a.host, began, ended, outcome, a.attempt, "
            "run, a.error, gone, told, a.left FROM attempts a JOIN works w ON w.key = a.key "
            "ORDER BY began, a.rowid"
        )

        def attempt(row: Any) -> Attempt:
            key, kind, host, began, ended, outcome, number, run, *rest = row
            error, gone, told, still = rest
            span = Span(
                key=key,
                kind=kind,
                host=host,
                began=began,
                ended=ended,
                outcome=outcome,
                attempt=number,
                run=run,
                error=_error(error),
            )
            return Attempt(span, bool(gone), json.loads(told or "{}"), bool(still))

        return self._read(attempt, rows)

    def events(self, after: int = 0) -> list[Event]:
        """What happened since the event of that number."""
        rows = self.rows("SELECT * FROM events WHERE id > ? ORDER BY id", after)
        return [Event(*row) for row in rows]

    def order(self, verb: Verb, subject: str = "", number: int = 0, *, at: float) -> int:
        """Leave an order for the dispatcher, from any process; its number.

        ``subject``: a host, a work, or a cell with all its works. :class:`ConfigError` if there is
        none of that name.
        """
        table, column = ("hosts", "name") if verb in ("drain", "undrain") else ("works", "key")
        if verb not in ("pause", "resume"):
            either = "" if table == "hosts" else " OR work ->> 'cell' = :name"
            query = f"SELECT 1 FROM {table} WHERE {column} = :name{either} LIMIT 1"  # noqa: S608
            with _storage(self.path):
                if not self._database.execute(query, {"name": subject}).fetchone():
                    raise ConfigError(
                        f"{self.path.name} has no {table[:-1]} '{line(subject, 80)}'",
                        advice="invoke fleet lists them.",
                    )
        with self.change(at) as change:
            cursor = change.database.execute(
                "INSERT INTO orders (at, verb, subject, number) VALUES (?, ?, ?, ?)",
                (at, verb, subject, number),
            )
        return int(cursor.lastrowid or 0)

    def open_orders(self) -> list[Order]:
        """Those that nobody has answered."""
        rows = self.rows(
            "SELECT id, verb, subject, number FROM orders WHERE answer IS NULL ORDER BY id"
        )
        names = [one.name for one in dataclasses.fields(Order)]
        return self._read(
            lambda row: _ORDER.validate_python(dict(zip(names, row, strict=True))), rows
        )

    def answer(self, order: int) -> str | None:
        """What the dispatcher said to an order; ``None`` until it has."""
        rows = self.rows("SELECT answer FROM orders WHERE id = ?", order)
        return rows[0][0] if rows else None

    def foreign_changes(self) -> int:
        """A number that is another one once another process has changed something."""
        return int(self.rows("PRAGMA data_version")[0][0])

    def _read(self, make: Callable[[Any], Row], rows: list[Any]) -> list[Row]:
        try:
            return [make(row) for row in rows]
        except ValidationError as error:
            raise _damaged(self.path, first_problem(error)) from error
        except (ValueError, TypeError, RecursionError) as error:
            raise _damaged(self.path, str(error)) from error


def _error(text: str | None) -> ErrorResult | None:
    return None if text is None else ErrorResult.model_validate_json(text)


@contextmanager
def _storage(path: Path) -> Iterator[None]:
    """What SQLite says, in our errors."""
    with disk_errors(path):
        try:
            yield
        except sqlite3.OperationalError as error:  # full, read-only, not to be opened
            if "no such" in str(error):
                raise _damaged(path, str(error)) from error
            raise StorageError(
                f"cannot use the ledger in {path}: {error}",
                advice="Free some space, and check who owns the directory.",
            ) from error
        except sqlite3.DatabaseError as error:
            raise _damaged(path, str(error)) from error


def _damaged(path: Path, why: str) -> ConfigError:
    return ConfigError(
        f"{path} holds no ledger that can be read: {line(why)}",
        advice=f"Its {FILE} is damaged: begin the fleet anew; runs that are done are kept in out.",
    )
