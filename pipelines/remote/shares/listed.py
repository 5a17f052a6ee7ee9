"""The compile units of one start of ninja, and what ninja's log says of them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from . import ninjafile
from .calls import Call

_OBJECTS = (".o", ".obj")
#: What a compiler leaves for another one: who reads it is no unit that stands alone.
_BETWEEN = (*_OBJECTS, ".pch", ".gch", ".pcm", ".ifc", ".bmi", ".dd", ".ddi", ".modmap")
_ID = 32  # hexadecimal digits
_COLUMNS = 5  # of ninja's log


class ListingError(Exception):
    """ninja does not say what it would do; the text has its own words."""


@dataclass(frozen=True)
class Unit:
    """One object that ninja makes of a source file."""

    id: str
    """The same on every host where it is compiled in the same way."""
    source: str
    """Below the source tree where it is there, with ``/``."""
    output: str
    """As ninja calls it."""
    command: str
    """Its sha256."""
    path: str
    """Absolute, where the object is."""


def units(
    call: Call, root: str, **started: object
) -> tuple[ninjafile.Manifest, list[Unit], list[str]]:
    """The manifest of ``call``, the units that its targets need, in its order, and other objects.

    ``root``: of the source tree. ``started``: how ninja is started, as ``subprocess`` takes it.
    Raises :class:`ListingError`, or ``OSError`` where there is no manifest.
    """
    path = os.path.join(call.directory, call.manifest)
    # As it is, byte by byte: a part of it is written again.
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        manifest = ninjafile.read(file.read())
    told = _compdb(call, **started)
    wanted = manifest.needed(call.targets)
    made = {output for edge in manifest.edges for output in edge.outputs}
    place = _below(path, root)
    found = []
    for edge in manifest.edges:
        output = edge.outputs[0] if len(edge.outputs) == 1 else ""
        alone = not any(one.endswith(_BETWEEN) for one in edge.inputs)
        if not (edge.sure and alone and output in wanted and output.endswith(_OBJECTS)):
            continue
        row = told.get(output)
        if edge.rule == "phony" or row is None or ninjafile.canonical(row[0]) != edge.inputs[0]:
            continue
        source = os.path.join(call.directory, edge.inputs[0])
        command = hashlib.sha256(row[1].encode("utf-8", "surrogateescape")).hexdigest()
        # Of a source that is made by this build nobody knows yet what will be in it.
        content = "" if edge.inputs[0] in made else _sha256(source)
        text = "\0".join((place, output, command, content))
        found.append(
            Unit(
                id=hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_ID],
                source=_below(source, root),
                output=output,
                command=command,
                path=os.path.normpath(os.path.join(call.directory, output)),
            )
        )
    alone_made = {unit.output for unit in found}
    objects = (one for one in told if one.endswith(_OBJECTS) and one not in alone_made)
    # What this file does not make is in one that it includes, and may be needed.
    return manifest, found, [one for one in objects if one in wanted or one not in made]


def _compdb(call: Call, **started: object) -> dict[str, tuple[str, str]]:
    """Output -> (source, command), as ninja itself has them, response files included."""
    command = [*call.program, "-C", call.directory, "-f", call.manifest, "-t", "compdb", "-x"]
    try:
        done = subprocess.run(command, capture_output=True, check=False, **started)  # type: ignore[call-overload]
        text = done.stdout.decode("utf-8", "surrogateescape")
        rows = json.loads(text) if done.returncode == 0 else [{}]
        return {row["output"]: (row["file"], row["command"]) for row in rows}
    except (OSError, ValueError, TypeError, KeyError) as error:
        said = "" if isinstance(error, OSError) else done.stderr.decode("utf-8", "replace").strip()
        raise ListingError(
            f"{' '.join(command)} does not tell the compile units (ninja 1.10 or later does): "
            f"{said or error}"
        ) from None


def _below(path: str, root: str) -> str:
    """``path`` from ``root`` where it is below that, with ``/``."""
    path, root = os.path.realpath(path), os.path.realpath(root)
    try:
        inside = os.path.commonpath([path, root]) == root
    except ValueError:  # another drive
        inside = False
    return PurePath(os.path.relpath(path, root) if inside else path).as_posix()


def _sha256(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""


def logged(call: Call, manifest: ninjafile.Manifest) -> Mapping[str, Sequence[str]]:
    """Output -> its last row in ninja's log: begin and end in milliseconds, time, output, hash."""
    path = os.path.join(call.directory, manifest.builddir, ".ninja_log")
    rows: dict[str, list[str]] = {}
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                row = line.rstrip("\n").split("\t")
                if len(row) == _COLUMNS:
                    rows[row[3]] = row
    except OSError:
        pass
    return rows
