"""Reads a wheel on a server without fetching more than a given number of bytes.

One that fits into the bound is read whole. Of a larger one the directory, ``METADATA`` and each
binary up to its tables are unpacked.
"""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.audit.listing import plain_name
from pipelines.audit.ranges import NoRangesError, RangedFile
from pipelines.core import units
from pipelines.core.errors import LockError
from pipelines.core.files import disk_errors
from pipelines.core.hosttext import safe_line, shown_url
from pipelines.plan.prebuilt.candidates import Offer
from pipelines.toolchain.sources import system_trust_session
from pipelines.wheels.metadata import Depth, Limits, WheelFacts, inspect_file, inspect_wheel
from pipelines.wheels.unpacking import UNREADABLE, SpentError

_BLOCK = 256 << 10  # bytes of one request
_END = 4096
_HINT = "Download the wheel, and name the file."


def read_remote(offer: Offer, most: int) -> WheelFacts:
    """Fetch at most ``most`` bytes; :class:`LockError` for what may be the server's fault."""
    if plain_name(offer.file) is None:
        raise LockError("its name is not that of a wheel", hint=_HINT)
    with TemporaryDirectory(prefix="wcw-survey-") as room, system_trust_session() as client:
        try:
            raw = RangedFile(client, offer.place.partition("#")[0], most)
            if not offer.size or raw.size == offer.size:
                return replace(
                    _inspect_remote_wheel(raw, Path(room, offer.file), most), fetched=raw.fetched
                )
            why = f"{raw.size} bytes, but its page states {offer.size}"
        except NoRangesError:
            why = "its server does not support range requests"
        except SpentError:
            why = f"more than {units.format_size(most)} would be needed for its directory alone"
        except UNREADABLE as error:
            why = f"it cannot be read in parts: {safe_line(error, 200)}"
    raise LockError(f"{shown_url(offer.place)}: {why}", hint=_HINT)


def _inspect_remote_wheel(raw: RangedFile, path: Path, most: int) -> WheelFacts:
    end = _read_wheel_end(raw)
    try:
        raw.seek(0)
        if raw.fetched + raw.size > most:
            file = io.BufferedReader(raw, _BLOCK)
            return inspect_file(file, path, raw.size, Limits(), Depth.TABLES)
        with disk_errors(path.parent), path.open("wb") as out:
            while piece := raw.read():
                out.write(piece)
        return inspect_wheel(path)
    finally:  # whatever was found in it
        raw.most += _END
        if _read_wheel_end(raw) != end:
            raise LockError(f"{path.name} changed while it was read", hint=_HINT)


def _read_wheel_end(raw: RangedFile) -> bytes:
    """The end of a wheel: where it lists RECORD, whose checksum changes with any other file.

    Not every server has an ETag.
    """
    raw.seek(max(raw.size - _END, 0))
    return raw.read(_END)
