"""Changes a run's record as another program may, with a seal that is in order."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pipelines.record.run import Run, _hash_record_rows
from pipelines.record.seal import Sealer


def rewrite(
    run: Run, statement: str, values: Sequence[Any] = (), sealer: Sealer | None = None
) -> Sealer:
    """Execute it and seal the whole record, by default with an unknown key."""
    sealer = sealer or Sealer(Ed25519PrivateKey.generate())
    with closing(sqlite3.connect(run.path / "record.sqlite")) as database, database:
        database.execute(statement, values)
        entry = sealer.entry(_hash_record_rows(database), "")
        database.execute("DELETE FROM seals")
        database.execute(
            "INSERT INTO seals VALUES (0, ?, ?, ?)",
            (json.dumps(entry.rows), entry.sealer, entry.signature),
        )
    return sealer
