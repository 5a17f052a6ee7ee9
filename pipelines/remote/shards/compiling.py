"""Compiles one shard of the units."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from . import balance, calls, compile_units, ninjafile
from .compile_units import sha256
from .division import NOTHING, Division, DivisionError, Start, copied, replace

_TARGET = "wcw-share"


class Compile(Division):
    """One shard of the units."""

    def __init__(self, order: Mapping[str, Any], root: str) -> None:
        super().__init__(order, root)
        self.share, self.count = order["share"]
        self.mine: dict[str, compile_units.Unit] = {}
        self.objects: dict[str, dict[str, Any]] = {}
        self.read: dict[str, str] = {}
        """The sha256 of all files that its compilers have read, by path."""
        self._loads = [0.0] * self.count
        self._objects: set[str] = set()

    def other(self, command: list[str], where: str) -> list[str] | None:
        """Does nothing for commands that take objects."""
        taken = calls.installs(command) or any(
            _normalized_path(word, where) in self._objects
            for word in _expand_response_files(command, where)
        )
        if not self._objects or not taken:
            return None
        print(f"units: left to the link: {calls.name(command)}", flush=True)
        return NOTHING

    def undivided(self) -> list[str] | None:
        """Does nothing: it is left to the link."""
        return NOTHING

    def divided(self, start: Start) -> tuple[str, list[str]]:
        """The manifest with this shard as a target; empty if it has no unit."""
        self._objects |= {os.path.normcase(unit.path) for unit in start.units}
        weights = {unit.id: self.weight(unit) for unit in start.new}
        shares = balance.divided(weights, self.count, self._loads)
        self._loads = [
            load + sum(weights[unit] for unit in share)
            for load, share in zip(self._loads, shares, strict=True)
        ]
        mine = shares[self.share - 1]
        self.mine |= {unit: self.units[unit] for unit in mine}
        here = {unit.id: unit for unit in start.units}
        outputs = [here[unit].output for unit in self.mine if unit in here]
        print(
            f"units: shard {self.share}/{self.count}: {len(outputs)} of {len(start.units)} units "
            f"in {start.call.directory}",
            flush=True,
        )
        if not outputs:
            return "", []
        goal = " ".join(ninjafile.escaped(output) for output in outputs)
        return f"{start.manifest.text.rstrip()}\nbuild {_TARGET}: phony {goal}\n", [_TARGET]

    def made(self, start: Start) -> None:
        """Keep a copy of each object of this shard."""
        keep = self.order["keep"]
        os.makedirs(keep, exist_ok=True)
        rows = compile_units.logged(start.call, start.manifest)
        headers = self.headers(start) if self.mine else {}
        inputs = {edge.outputs[0]: edge.inputs for edge in start.manifest.edges}
        unknown = 0
        for unit in start.units:
            if unit.id in self.mine:
                part = os.path.join(keep, unit.id)
                try:
                    actual, size = copied(unit.path, part)
                except OSError as error:
                    raise DivisionError(f"no object of {unit.source}: {error}") from None
                path = os.path.join(keep, actual)
                replace(part, path)
                row = rows.get(unit.output, ("0", "0"))
                took = (int(row[1]) - int(row[0])) / 1000
                compiled = {"unit": unit.id, "path": path, "size": size, "sha256": actual}
                self.objects[unit.id] = compiled | {"seconds": took}
                included = headers.get(unit.output, ())
                sources = (
                    os.path.join(start.call.directory, path_) for path_ in inputs[unit.output]
                )
                for name in {*map(os.path.normpath, sources), *included} - {*self.read}:
                    if os.path.isfile(name):
                        self.read[name] = sha256(name)
                unknown += not included or not self.read.keys() >= {*included}
        if unknown:
            print(
                f"units: ninja does not know which headers {unknown} units have read: the link "
                "cannot compare those",
                flush=True,
            )

    def finish(self, error: BaseException | None) -> dict[str, Any]:
        """The result, with its objects' stored paths.

        An error of the build system after its units were compiled is not theirs: the output of a
        link is missing.
        """
        self.settle()
        if self.failed or self.mine.keys() - self.objects or (error and not self.units):
            raise error or DivisionError("; ".join(self.failed.values()) or "ninja was not started")
        report = self.report()
        if error is not None:
            print(f"units: without a link it ends here, with {error!r:.500}", flush=True)
        objects = [self.objects[unit] for unit in self.mine]
        keep = self.order["keep"]
        names = {*os.listdir(keep)} if objects else set()
        for name in names - {row["sha256"] for row in objects}:
            os.unlink(os.path.join(keep, name))
        return report | {"objects": objects, "read": self.read}


def _normalized_path(word: str, where: str) -> str:
    return os.path.normcase(os.path.normpath(os.path.join(where, word)))


def _expand_response_files(command: list[str], where: str) -> list[str]:
    """The arguments of a command, including those of its response files."""
    names = []
    for word in command[1:]:
        names.append(word)
        if word.startswith("@"):
            try:
                with open(os.path.join(where, word[1:]), "rb") as file:
                    data = file.read()
            except OSError:
                continue
            wide = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
            names += [name.strip('"') for name in data.decode(wide, "replace").split()]
    return names
