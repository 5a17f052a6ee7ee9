"""One transaction of the ledger, and the entries in memory that follow it.

Where it fails, memory is ahead of the ledger: whoever used it ends, and the next one reads anew.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from pydantic import BaseModel

from pipelines.fleet.entries import Entry, HostEntry, Order
from pipelines.fleet.model import Ended
from pipelines.hosttext import line, redact, redact_all


class Change:
    """What one transaction changes; the entries are changed when it is on the disk."""

    def __init__(self, database: sqlite3.Connection, at: float) -> None:
        self.database = database
        self.at = at

    def work(self, entry: Entry, **fields: Any) -> None:
        """Give an entry other values."""
        if "stand" in fields:
            fields.setdefault("since", self.at)
        self._update("works", "key", entry.work.key, fields)
        _set(entry, fields)

    def host(self, entry: HostEntry, **fields: Any) -> None:
        """Give a host other values."""
        if "state" in fields:
            fields.setdefault("since", self.at)
        self._update("hosts", "name", entry.machine.name, fields)
        _set(entry, fields)

    def _update(self, table: str, column: str, name: str, fields: dict[str, Any]) -> None:
        names = ", ".join(f"{one} = ?" for one in fields)
        values = [*map(_stored, fields.values()), name]
        self.database.execute(f"UPDATE {table} SET {names} WHERE {column} = ?", values)  # noqa: S608

    def begin(self, key: str, attempt: int, host: str) -> None:
        """An attempt begins."""
        self.database.execute(
            "INSERT INTO attempts (key, attempt, host, began) VALUES (?, ?, ?, ?)",
            (key, attempt, host, self.at),
        )

    def end(self, ended: Ended) -> None:
        """An attempt has ended; it cannot have ended before it began, whatever a clock says."""
        self.database.execute(
            "UPDATE attempts SET ended = MAX(began, ?), outcome = ?, gone = ?, run = ?, error = ?, "
            "told = ? WHERE key = ? AND attempt = ?",
            (
                self.at,
                ended.outcome,
                ended.gone,
                redact(ended.run),
                _stored(ended.error),
                _stored(ended.told),
                ended.key,
                ended.attempt,
            ),
        )

    def left(self, key: str, attempt: int, *, still: bool) -> None:
        """Whether an attempt may be running at its host though the work was given elsewhere."""
        self.database.execute(
            "UPDATE attempts SET left = ? WHERE key = ? AND attempt = ?", (still, key, attempt)
        )

    def answer(self, order: Order, answer: str) -> None:
        """Say what became of an order."""
        self.database.execute("UPDATE orders SET answer = ? WHERE id = ?", (answer, order.id))

    def event(self, what: str, key: str = "", host: str = "", said: str = "") -> None:
        """Note that something happened."""
        self.database.execute(
            "INSERT INTO events (at, what, key, host, said) VALUES (?, ?, ?, ?, ?)",
            (self.at, what, key, host, line(said, 500)),
        )

    def fact(self, key: str, value: str) -> None:
        """Remember something of the fleet itself."""
        self.database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (key, value))


def _set(entry: Entry | HostEntry, fields: dict[str, Any]) -> None:
    for name, value in fields.items():
        setattr(entry, name, value)


def _stored(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return json.dumps(redact_all(value.model_dump(mode="json")))
    return json.dumps(redact_all(value)) if isinstance(value, dict | tuple) else value
