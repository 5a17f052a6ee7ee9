"""Links a wheel with the objects that other hosts have compiled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from . import listed
from .division import FEW, Division, DivisionError, Start, copied, sha256


class Link(Division):
    """All of the build, with the objects of others."""

    def __init__(self, order: Mapping[str, Any], root: str) -> None:
        super().__init__(order, root)
        self.given: dict[str, tuple[str, str]] = {}
        self.placed: set[str] = set()
        self._known = frozenset(order.get("known", ()))
        self._before: Mapping[str, object] = {}
        for row in order["objects"]:
            before = self.given.setdefault(row["unit"], (row["path"], row["sha256"]))
            if before[1] != row["sha256"]:
                raise DivisionError(
                    f"unit {row['unit']} was given twice with other bytes: sha256 {before[1]} at "
                    f"{before[0]} and {row['sha256']} at {row['path']}"
                )

    def divided(self, start: Start) -> tuple[str, list[str]]:
        """The manifest where what other hosts have compiled is not made."""
        self._before = listed.logged(start.call, start.manifest)
        ours = [unit for unit in start.units if unit.id in self.given]
        for unit in ours:
            if unit.id in self.placed:
                continue  # since a start before this one
            path, expected = self.given[unit.id]
            os.makedirs(os.path.dirname(unit.path), exist_ok=True)
            try:
                found_sha256, _ = copied(path, unit.path)
            except OSError as error:
                raise DivisionError(f"the object of {unit.source} was not put: {error}") from None
            if found_sha256 != expected:
                os.unlink(unit.path)
                raise DivisionError(
                    f"the object of {unit.source}, {path}, is damaged: its sha256 is "
                    f"{found_sha256}, it was {expected} where it was compiled"
                )
            self.placed.add(unit.id)
        print(f"units: {len(ours)} of {len(start.units)} come from other hosts", flush=True)
        known = self._known
        if known and start.units and not any(unit.id in known for unit in self.units.values()):
            raise DivisionError(self._strange(self.given))  # before hours go by
        return start.manifest.without(frozenset(unit.output for unit in ours)), []

    def _strange(self, ids: Mapping[str, object]) -> str:
        few = [f"{one} at {self.given[one][0]}" for one in list(ids)[:FEW]]
        have = ", ".join(list(self.units)[:FEW]) or "none"
        return (
            f"{len(ids)} of {len(self.given)} objects are of units that this build does not have: "
            f"{', '.join(few)}; it has {len(self.units)}: {have}. Another source, place, tool or "
            "flag has made them"
        )

    def made(self, start: Start) -> None:
        """See that what was put there still is, and was not compiled as well.

        Raises :class:`DivisionError` when it is not so. Whatever was linked meanwhile is no wheel.
        """
        after = listed.logged(start.call, start.manifest)
        for unit in start.units:
            if unit.id in self.placed:
                if after.get(unit.output) != self._before.get(unit.output):
                    raise DivisionError(f"ninja has compiled {unit.source}, which another host did")
                expected = self.given[unit.id][1]
                if (found := sha256(unit.path)) != expected:
                    raise DivisionError(
                        f"{unit.path} was changed while the wheel was linked: its sha256 is "
                        f"{found or 'none'}, it was put there with {expected}"
                    )

    def finish(self, error: BaseException | None) -> dict[str, Any]:
        """The result, after a look at what was linked."""
        if error is not None:
            raise error
        self.settle()
        told = self.told()
        if self.failed:
            raise DivisionError("; ".join(self.failed.values()))
        if strange := {unit: "" for unit in self.given if unit not in self.placed}:
            raise DivisionError(self._strange(strange))
        told["placed"] = [unit for unit in self.units if unit in self.placed]
        told["compiled"] = [unit for unit in self.units if unit not in self.placed]
        if told["compiled"] and self.given:
            names = ", ".join(self.units[unit].source for unit in told["compiled"][:FEW])
            print(f"units: compiled here, no host gave them: {len(told['compiled'])}: {names}")
        return told
