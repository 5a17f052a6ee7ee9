"""What both modes have in common: the units that were seen, and ninja as it is started instead."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from . import balance, calls, listed, ninjafile

#: What is started where nothing is to be done.
NOTHING = [sys.executable, "-c", ""]
MANIFEST = "wcw-share.ninja"
_CHUNK = 1 << 20
#: As many names are told.
FEW = 5


class DivisionError(SystemExit):
    """What was asked for cannot be; said in the log, and the build ends with exit code 1."""

    def __init__(self, text: str) -> None:
        super().__init__(f"units: {text}")


@dataclass(frozen=True)
class Start:
    """One start of ninja, and what it is to make."""

    call: calls.Call
    manifest: ninjafile.Manifest
    units: list[listed.Unit]
    new: list[listed.Unit]
    """Those of them that no start before this one had."""
    environment: Mapping[str, str]


class Division:
    """The units of a build, and each start of ninja turned into another."""

    def __init__(self, order: Mapping[str, Any], root: str) -> None:
        self.order, self.root = order, root
        self.units: dict[str, listed.Unit] = {}
        self.failed: dict[frozenset[str], str] = {}
        """By what it was to make: a build system may try again, and the last one counts."""
        self.lacks: list[str] = []
        self.refused: DivisionError | None = None
        self._started: list[tuple[Start, subprocess.Popen[Any]]] = []
        self._busy = threading.RLock()
        self._inside = False

    def install(self) -> None:
        """Have every start of a program in this process come by here."""
        division, original = self, cast("Any", subprocess.Popen)

        class Popen(original):  # type: ignore[misc, valid-type]
            def __init__(self, args: Any, *rest: Any, **named: Any) -> None:
                try:
                    with division._busy:
                        turned, start = division._turned(args, named)
                except DivisionError as error:
                    division.refused = error
                    raise
                if turned is not None:
                    args = turned
                    named = {**named, "shell": False, "executable": None}
                super().__init__(args, *rest, **named)
                if start is not None:
                    division._started.append((start, self))

        subprocess.Popen = Popen  # type: ignore[misc]

    def _turned(self, args: Any, named: Mapping[str, Any]) -> tuple[list[str] | None, Start | None]:
        """The command to start instead, if another one, and what it is of ninja."""
        command = calls.words(args)
        if self._inside or not command:
            return None, None
        where = os.path.abspath(os.fsdecode(named.get("cwd") or os.getcwd()))
        environment = named.get("env") or os.environ
        call = calls.read(command, where, environment)
        if call is None:
            return self.other(command, where), None
        self.settle()
        self._inside = True
        try:
            manifest, found = (None, []) if call.lacks else self._listed(call, environment)
        finally:
            self._inside = False
        if manifest is None:
            self.lacks.append(call.lacks)
            print(f"units: not divided: {call.lacks}", flush=True)
            return self.undivided(), None
        new = [unit for unit in found if unit.id not in self.units]
        self.units |= {unit.id: unit for unit in new}
        start = Start(call, manifest, found, new, environment)
        text, targets = self.divided(start)
        if not text:
            return NOTHING, None
        path = os.path.join(call.directory, os.path.dirname(call.manifest), MANIFEST)
        with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text)
        at = ["-C", call.directory] if call.directory != where else []
        return [*call.program, *at, "-f", path, *call.flags, *(targets or call.targets)], start

    def _listed(
        self, call: calls.Call, environment: Mapping[str, str]
    ) -> tuple[ninjafile.Manifest | None, list[listed.Unit]]:
        try:
            manifest, found, rest = listed.units(call, self.root, environment)
        except OSError as error:
            call.lacks = f"ninja has no manifest there: {error}"
        except listed.ListingError as error:
            raise DivisionError(str(error)) from None
        else:
            if rest:
                more = f" and {len(rest) - FEW} more" if len(rest) > FEW else ""
                told = f"{', '.join(rest[:FEW])}{more}"
                print(f"units: not divided, the link makes them: {told}", flush=True)
            return manifest, found
        return None, []

    def other(self, command: list[str], where: str) -> list[str] | None:  # noqa: ARG002
        """What is started instead of something else than ninja; ``None``: itself."""
        return None

    def undivided(self) -> list[str] | None:
        """The same for what builds, and cannot be divided."""
        return None

    def divided(self, start: Start) -> tuple[str, list[str]]:
        """The text of the manifest to go by, and targets if not the caller's.

        Neither: there is nothing to do.
        """
        raise NotImplementedError

    def made(self, start: Start) -> None:
        """Look at what a start of ninja that ended well has left."""
        raise NotImplementedError

    def settle(self) -> None:
        """See how what was started has ended, before anything else may write over it.

        torch compiles every extension of a package in one directory, by one name of a manifest, and
        two of them may have an object of one name.
        """
        for start, process in self._started:
            key = frozenset(unit.id for unit in start.units)
            if code := process.wait():
                self.failed[key] = f"ninja left with exit code {code} in {start.call.directory}"
            else:
                self.failed.pop(key, None)
                self.made(start)
        self._started.clear()

    def headers(self, start: Start) -> dict[str, list[str]]:
        """Of each output what its compiler has read; :class:`DivisionError` if ninja fails."""
        manifest = os.path.join(os.path.dirname(start.call.manifest), MANIFEST)
        before, self._inside = self._inside, True
        try:
            return listed.headers(start.call, manifest, start.environment)
        except listed.ListingError as error:
            raise DivisionError(str(error)) from None
        finally:
            self._inside = before

    def weight(self, unit: listed.Unit) -> float:
        """Seconds that it is taken to need."""
        return balance.weight(unit.source, self.order.get("costs", ()), self.order.get("cost", 1.0))

    def told(self) -> dict[str, Any]:
        """All units, as they are handed on."""
        if not self.units:
            raise DivisionError(
                "nothing to divide: "
                + ("; ".join(self.lacks) or "this build has started no ninja from its own process")
            )
        return {
            "units": [
                {
                    "id": unit.id,
                    "source": unit.source,
                    "output": unit.output,
                    "command": unit.command,
                    "seconds": self.weight(unit),
                }
                for unit in self.units.values()
            ]
        }


def copied(source: str, target: str) -> tuple[str, int]:
    """Copy a file; sha256 and size of the bytes that were written."""
    digest, size = hashlib.sha256(), 0
    with open(source, "rb") as come, open(target, "wb") as go:
        while data := come.read(_CHUNK):
            digest.update(data)
            size += len(data)
            go.write(data)
    return digest.hexdigest(), size


def replace(source: str, target: str) -> None:
    """Rename over ``target``; on Windows a scanner may hold new files open for a moment."""
    for left in range(100 if sys.platform == "win32" else 0, -1, -1):
        try:
            os.replace(source, target)
            break
        except PermissionError:
            if not left:
                raise
            time.sleep(0.05)


def sha256(path: str) -> str:
    """Of the file; empty where there is none."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while data := file.read(_CHUNK):
                digest.update(data)
    except OSError:
        return ""
    return digest.hexdigest()
