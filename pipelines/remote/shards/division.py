"""Common to both modes: the units found, and the replacement command for ninja."""

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

from . import balance, calls, compile_units, ninjafile

#: Started where nothing is to be done.
NOTHING = [sys.executable, "-c", ""]
MANIFEST = "wcw-share.ninja"
_CHUNK = 1 << 20
#: Most names to show.
FEW = 5


class DivisionError(SystemExit):
    """The request cannot be fulfilled; logged, and the build exits with 1."""

    def __init__(self, text: str) -> None:
        super().__init__(f"units: {text}")


@dataclass(frozen=True)
class Start:
    """One start of ninja, and its units."""

    call: calls.Call
    manifest: ninjafile.Manifest
    units: list[compile_units.Unit]
    new: list[compile_units.Unit]
    """The ones that no earlier start had."""
    environment: Mapping[str, str]


class Division:
    """The units of a build, and the replacement for each start of ninja."""

    def __init__(self, order: Mapping[str, Any], root: str) -> None:
        self.order, self.root = order, root
        self.units: dict[str, compile_units.Unit] = {}
        self.failed: dict[frozenset[str], str] = {}
        """By what it was to build: a build system may retry, and the last attempt counts."""
        self.reasons: list[str] = []
        self.refused: DivisionError | None = None
        self._started: list[tuple[Start, subprocess.Popen[Any]]] = []
        self._busy = threading.RLock()
        self._inside = False

    def install(self) -> None:
        """Intercept every start of a program in this process."""
        division, original = self, cast("Any", subprocess.Popen)

        class Popen(original):  # type: ignore[misc, valid-type]
            def __init__(self, args: Any, *rest: Any, **named: Any) -> None:
                try:
                    with division._busy:
                        turned, start = division._replacement(args, named)
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

    def _replacement(
        self, args: Any, named: Mapping[str, Any]
    ) -> tuple[list[str] | None, Start | None]:
        """The command to start instead, if any, and the ninja call it is."""
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
            manifest, units = (None, []) if call.reason else self._listed(call, environment)
        finally:
            self._inside = False
        if manifest is None:
            self.reasons.append(call.reason)
            print(f"units: not sharded: {call.reason}", flush=True)
            return self.undivided(), None
        new = [unit for unit in units if unit.id not in self.units]
        self.units |= {unit.id: unit for unit in new}
        start = Start(call, manifest, units, new, environment)
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
    ) -> tuple[ninjafile.Manifest | None, list[compile_units.Unit]]:
        try:
            manifest, units, rest = compile_units.units(call, self.root, environment)
        except OSError as error:
            call.reason = f"ninja has no manifest there: {error}"
        except compile_units.ListingError as error:
            raise DivisionError(str(error)) from None
        else:
            if rest:
                more = f" and {len(rest) - FEW} more" if len(rest) > FEW else ""
                names = f"{', '.join(rest[:FEW])}{more}"
                print(f"units: not sharded, the link builds them: {names}", flush=True)
            return manifest, units
        return None, []

    def other(self, command: list[str], where: str) -> list[str] | None:  # noqa: ARG002
        """The replacement of a command other than ninja; ``None``: itself."""
        return None

    def undivided(self) -> list[str] | None:
        """The same for a build command that cannot be sharded."""
        return None

    def divided(self, start: Start) -> tuple[str, list[str]]:
        """The manifest's text to use, and targets if not the caller's.

        Neither: nothing to do.
        """
        raise NotImplementedError

    def made(self, start: Start) -> None:
        """Process the results of a successful start of ninja."""
        raise NotImplementedError

    def settle(self) -> None:
        """Check how ninja ended, before anything else may overwrite its files.

        torch compiles every extension of a package in one directory, with the same manifest name,
        and two of them may have an object of the same name.
        """
        for start, process in self._started:
            key = frozenset(unit.id for unit in start.units)
            if code := process.wait():
                self.failed[key] = f"ninja exited with {code} in {start.call.directory}"
            else:
                self.failed.pop(key, None)
                self.made(start)
        self._started.clear()

    def headers(self, start: Start) -> dict[str, list[str]]:
        """The files read by each output's compiler; :class:`DivisionError` if ninja fails."""
        manifest = os.path.join(os.path.dirname(start.call.manifest), MANIFEST)
        before, self._inside = self._inside, True
        try:
            return compile_units.headers(start.call, manifest, start.environment)
        except compile_units.ListingError as error:
            raise DivisionError(str(error)) from None
        finally:
            self._inside = before

    def weight(self, unit: compile_units.Unit) -> float:
        """Its estimated seconds."""
        return balance.weight(unit.source, self.order.get("costs", ()), self.order.get("cost", 1.0))

    def report(self) -> dict[str, Any]:
        """All units, for the result."""
        if not self.units:
            raise DivisionError(
                "nothing to shard: "
                + (
                    "; ".join(self.reasons)
                    or "this build has started no ninja from its own process"
                )
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
    """Copy a file; sha256 and size of the bytes written."""
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
