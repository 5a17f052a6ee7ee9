"""The fleet's ledger: its tasks, their states, every attempt. The source of truth, in SQLite.

It is ``fleet.sqlite`` in ``out/fleet-<stamp>``. Every change of state is one transaction that is
on disk before anything depends on it, so a killed controller can always resume; a second one at the
same time is refused. Readers, and writers of orders, need no lock.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import fields as fields_of
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel, TypeAdapter

from pipelines.core.errors import ConfigError, StorageError
from pipelines.core.files import disk_errors, new_directory
from pipelines.core.hosttext import redact, redact_all, safe_line
from pipelines.core.model import first_problem
from pipelines.fleet.model import (
    Ended,
    HostEntry,
    Logged,
    Machine,
    Order,
    Span,
    Task,
    TaskEntry,
    Verb,
)
from pipelines.remote.files import replace
from pipelines.remote.locks import claim

#: Of the ledger; one with another number is refused.
SCHEMA = 4
FILE = "fleet.sqlite"
_HELD = ".held"
_TABLES = """
CREATE TABLE facts (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE tasks (
    key TEXT PRIMARY KEY, place INTEGER NOT NULL, task TEXT NOT NULL, state TEXT NOT NULL,
    priority INTEGER NOT NULL, host TEXT NOT NULL, attempt INTEGER NOT NULL, since REAL NOT NULL,
    bound TEXT NOT NULL, wait_until REAL NOT NULL, not_before REAL NOT NULL,
    suspended INTEGER NOT NULL, cancelled INTEGER NOT NULL, losses TEXT NOT NULL,
    died TEXT NOT NULL, avoid TEXT NOT NULL, remains TEXT NOT NULL, error TEXT
);
CREATE TABLE attempts (
    key TEXT, attempt INTEGER, host TEXT NOT NULL, began REAL NOT NULL, ended REAL,
    outcome TEXT, run TEXT NOT NULL DEFAULT '', error TEXT, details TEXT NOT NULL DEFAULT '{}',
    PRIMARY KEY (key, attempt)
);
CREATE TABLE hosts (
    name TEXT PRIMARY KEY, place INTEGER NOT NULL, machine TEXT NOT NULL, state TEXT NOT NULL,
    why TEXT NOT NULL, since REAL NOT NULL, retry_at REAL NOT NULL, retries INTEGER NOT NULL,
    drained INTEGER NOT NULL
);
CREATE TABLE events (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, what TEXT NOT NULL, key TEXT NOT NULL,
    host TEXT NOT NULL, message TEXT NOT NULL
);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, verb TEXT NOT NULL, subject TEXT NOT NULL,
    number INTEGER NOT NULL, answer TEXT
);
CREATE INDEX open_orders ON orders (id) WHERE answer IS NULL;
"""
_JSON = ("task", "losses", "died", "avoid", "remains", "error", "machine", "details")
_Read = TypeVar("_Read")
#: What is read is validated: a word or number that makes no sense is damage.
_READ: Mapping[type, TypeAdapter[Any]] = {
    one: TypeAdapter(one) for one in (TaskEntry, HostEntry, Order, Span, Logged)
}


class Transaction:
    """The changes of one transaction, and of the entries in memory.

    If it fails, memory is ahead of the ledger: the process ends, and the next one reads it.
    """

    def __init__(self, database: sqlite3.Connection, at: float) -> None:
        self.database, self.at = database, at

    def task(self, entry: TaskEntry, **values: Any) -> None:
        """Give an entry other values."""
        if "state" in values:
            values.setdefault("since", self.at)
        self._update("tasks", "key", entry.task.key, entry, values)

    def host(self, entry: HostEntry, **values: Any) -> None:
        """Give a host other values."""
        if "state" in values:
            values.setdefault("since", self.at)
        self._update("hosts", "name", entry.machine.name, entry, values)

    def _update(
        self, table: str, column: str, name: str, entry: object, values: dict[str, Any]
    ) -> None:
        names = ", ".join(f"{one} = ?" for one in values)
        stored = [*map(_to_column_value, values.values()), name]
        self.database.execute(f"UPDATE {table} SET {names} WHERE {column} = ?", stored)  # noqa: S608
        for field, value in values.items():
            setattr(entry, field, value)

    def begin(self, key: str, attempt: int, host: str) -> None:
        """An attempt begins."""
        self.database.execute(
            "INSERT INTO attempts (key, attempt, host, began) VALUES (?, ?, ?, ?)",
            (key, attempt, host, self.at),
        )
        self.event("begins", key, host)

    def end(self, ended: Ended) -> None:
        """An attempt has ended; it cannot have ended before it began, whatever a clock says."""
        error, details = _to_column_value(ended.error), _to_column_value(ended.details)
        self.database.execute(
            "UPDATE attempts SET ended = MAX(began, ?), outcome = ?, run = ?, error = ?, "
            "details = ? WHERE key = ? AND attempt = ?",
            (self.at, ended.outcome, redact(ended.run), error, details, ended.key, ended.attempt),
        )
        message = ended.error.message if ended.error else ""
        self.event(ended.outcome, ended.key, ended.host, message)

    def answer(self, order: Order, answer: str) -> None:
        """Say what became of an order."""
        self.database.execute("UPDATE orders SET answer = ? WHERE id = ?", (answer, order.id))

    def event(self, what: str, key: str = "", host: str = "", message: str = "") -> None:
        """Note that something happened."""
        self.database.execute(
            "INSERT INTO events (at, what, key, host, message) VALUES (?, ?, ?, ?, ?)",
            (self.at, what, key, host, safe_line(message, 500)),
        )

    def fact(self, key: str, value: str) -> None:
        """Remember something of the fleet itself."""
        self.database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (key, value))


def _to_column_value(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return json.dumps(redact_all(value.model_dump(mode="json")))
    return json.dumps(redact_all(value)) if isinstance(value, dict | tuple) else value


class Ledger:
    """A fleet's ledger. Raises :class:`StorageError`, and :class:`ConfigError` if damaged."""

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        """``path`` is the fleet's directory. Not ``durable``: may lose its end with the power."""
        self.path = path
        self._held = ExitStack()
        if not (path / FILE).is_file():
            raise ConfigError(f"{path} is not a fleet", hint="It has no fleet.sqlite.")
        with _storage(path):
            self._database = sqlite3.connect(path / FILE, timeout=30, isolation_level=None)
            try:
                self._database.execute("PRAGMA journal_mode=WAL")
                self._database.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")
                found = self.fact("schema")
            except BaseException:
                self._database.close()
                raise
        if found != str(SCHEMA):
            self._database.close()
            raise ConfigError(
                f"{path} has a ledger of version {safe_line(found, 20) or '?'}, not {SCHEMA}",
                hint="Start a new fleet, or use the release that started this one.",
            )

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
        """The latest fleet of that order, unless it has ended.

        ``passed`` is called for each that is damaged or of another version. Raises
        :class:`StorageError` for one that cannot be read now.
        """
        for path in sorted(out.glob(f"fleet-*/{FILE}"), reverse=True):
            try:
                ledger = cls(path.parent)
                mine = ledger.fact("order") == order
            except ConfigError as error:
                passed(error.message)
                continue
            if mine and not ledger.fact("ended"):
                return ledger
            ledger.close()
            if mine:
                return None
        return None

    def hold(self) -> None:
        """Take it for this process; :class:`ConfigError` when another controller has it."""
        with disk_errors(self.path):
            held = self._held.enter_context(claim(self.path / _HELD))
        if not held:
            self._held.close()
            raise ConfigError(
                f"another process uses {self.path.name}",
                hint="invoke fleet shows it; pause it, or end that process first.",
            )

    def close(self) -> None:
        """Let go of it: another process may resume it."""
        self._database.close()
        self._held.close()

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
            raise _damaged_ledger_error(self.path, f"'{key}' is not a number")
        return value

    @contextmanager
    def change(self, at: float) -> Iterator[Transaction]:
        """One transaction: all of it, or nothing."""
        with _storage(self.path):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield Transaction(self._database, at)
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    def put(self, tasks: Iterable[Task], machines: Iterable[Machine], at: float) -> None:
        """Add these tasks and hosts; existing ones keep their states.

        ``tasks`` are in the order of their dependencies. Known hosts that are not among
        ``machines`` are refused.
        """
        with self.change(at) as change:
            (count,) = change.database.execute("SELECT COUNT(*) FROM tasks").fetchone()
            done = {key for (key,) in self.rows("SELECT key FROM tasks WHERE state = 'done'")}
            for place, task in enumerate(tasks, count):
                if task.key in done or (task.kind == "shard" and task.cell in done):
                    continue  # it stays what it was, however it would be divided now
                change.database.execute(
                    "INSERT INTO tasks VALUES (?, ?, ?, 'waiting', ?, '', 0, ?, '', 0, 0, 0, 0, "
                    "'{}', '[]', '[]', '{}', NULL) ON CONFLICT (key) DO UPDATE SET "
                    "task = excluded.task",
                    (task.key, place, task.model_dump_json(), task.priority, at),
                )
            change.database.execute(
                "UPDATE hosts SET state = 'refused', why = 'it is no longer among the hosts'"
            )
            for place, machine in enumerate(machines):
                change.database.execute(
                    "INSERT INTO hosts VALUES (?, ?, ?, 'coming', '', ?, 0, 0, 0) "
                    "ON CONFLICT (name) DO UPDATE SET "
                    "machine = excluded.machine, state = excluded.state, why = ''",
                    (machine.name, place, machine.model_dump_json(), at),
                )
            change.database.execute("DELETE FROM facts WHERE key = 'ended'")

    def tasks(self) -> list[TaskEntry]:
        """Every task and where it stands, in the order in which they were given."""
        entries = self._read(TaskEntry, "tasks ORDER BY place")
        shared: dict[tuple[str, ...], tuple[str, ...]] = {}  # thousands of tasks fit the same hosts
        for one in entries:
            hosts = shared.setdefault(one.task.hosts, one.task.hosts)
            one.task = one.task.model_copy(update={"hosts": hosts})
        return entries

    def hosts(self) -> list[HostEntry]:
        """Every host and where it stands."""
        return self._read(HostEntry, "hosts ORDER BY place")

    def attempts(self) -> list[Span]:
        """Every attempt in the order in which they began."""
        kinds = "SELECT key, task ->> 'kind' AS kind FROM tasks"
        order = "ORDER BY began, attempts.rowid"
        return self._read(Span, f"attempts JOIN ({kinds}) USING (key) {order}")

    def events(self, after: int = 0) -> list[Logged]:
        """What happened since the event of that number."""
        return self._read(Logged, "events WHERE id > ? ORDER BY id", after)

    def open_orders(self) -> list[Order]:
        """Those that have no answer."""
        return self._read(Order, "orders WHERE answer IS NULL ORDER BY id")

    def order(self, verb: Verb, subject: str = "", number: int = 0, *, at: float) -> int:
        """Leave an order for the controller, from any process; its number.

        ``subject``: a host, a task, or a cell with all its tasks. :class:`ConfigError` if there is
        none of that name.
        """
        host = verb in ("drain", "undrain")
        where = "hosts WHERE name = ?1" if host else "tasks WHERE ?1 IN (key, task ->> 'cell')"
        known = verb in ("pause", "resume") or self.rows(f"SELECT 1 FROM {where} LIMIT 1", subject)  # noqa: S608
        if not known:
            kind = "host" if host else "task"
            raise ConfigError(
                f"{self.path.name} has no {kind} '{safe_line(subject, 80)}'",
                hint="invoke fleet lists them.",
            )
        with self.change(at) as change:
            cursor = change.database.execute(
                "INSERT INTO orders (at, verb, subject, number) VALUES (?, ?, ?, ?)",
                (at, verb, subject, number),
            )
        return int(cursor.lastrowid or 0)

    def answer(self, order: int) -> str | None:
        """What the controller answered to an order; ``None`` until it has."""
        rows = self.rows("SELECT answer FROM orders WHERE id = ?", order)
        return rows[0][0] if rows else None

    def foreign_changes(self) -> int:
        """A number that is another one once another process has changed something."""
        return int(self.rows("PRAGMA data_version")[0][0])

    def _read(self, kind: type[_Read], source: str, *values: object) -> list[_Read]:
        """The rows of a table, each as a ``kind``; :class:`ConfigError` if they make no sense."""
        if issubclass(kind, BaseModel):
            names = [*kind.model_fields]
        else:
            names = [one.name for one in fields_of(kind)]  # type: ignore[arg-type]
        rows = self.rows(f"SELECT {', '.join(names)} FROM {source}", *values)  # noqa: S608 - ours
        found: list[_Read] = []
        try:
            for row in rows:
                fields = dict(zip(names, row, strict=True))
                for name in [one for one in _JSON if fields.get(one) is not None]:
                    fields[name] = json.loads(fields[name])
                found.append(_READ[kind].validate_python(fields))
        except (ValueError, TypeError, RecursionError) as error:
            raise _damaged_ledger_error(self.path, first_problem(error)) from error
        return found


@contextmanager
def _storage(path: Path) -> Iterator[None]:
    """What SQLite says, in our errors."""
    with disk_errors(path):
        try:
            yield
        except sqlite3.OperationalError as error:  # full, read-only, not to be opened
            if any(word in str(error) for word in ("no such", "malformed")):
                raise _damaged_ledger_error(path, str(error)) from error
            raise StorageError(
                f"cannot use the ledger in {path}: {error}",
                hint="Free some space, and check who owns the directory.",
            ) from error
        except sqlite3.DatabaseError as error:
            raise _damaged_ledger_error(path, str(error)) from error


def _damaged_ledger_error(path: Path, why: str) -> ConfigError:
    return ConfigError(
        f"{path} has no readable ledger: {safe_line(why)}",
        hint=f"Its {FILE} is damaged: start a new fleet; finished runs are kept in out.",
    )
