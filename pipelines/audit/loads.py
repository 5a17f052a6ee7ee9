"""Whether Windows could load a wheel's binaries beside given DLLs: each imported name looked up.

Of one that lacks a name Windows says no more than "the specified procedure could not be found".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import computed_field

from pipelines.audit.exports.table import ExportTable
from pipelines.core.errors import LockError
from pipelines.core.hosttext import line
from pipelines.core.model import Model
from pipelines.wheels.binary import Binary
from pipelines.wheels.imported import (
    Exports,
    demangled,
    look_up,
    own_exports,
    wanted_libraries,
)
from pipelines.wheels.libraries import is_systems, is_torchs

OWN, OTHERS = "its own DLLs", "other DLLs"
_SYSTEM, _NOBODYS = "of Windows, Python or the driver", "nothing that was named has it"
_LONGEST = 4000  # characters of a symbol
_MOST = 1000  # names that are told of one set of DLLs


class Missing(Model):
    """A name that a binary imports and its library does not export."""

    binary: str
    """Its path within the wheel."""
    library: str
    """The DLL, in lower case."""
    symbol: str
    """As it stands in the binary; a number as ``#12``."""
    demangled: str
    """The same as C++ has it; as it stands where it is none of C++'s."""
    delayed: bool = False
    """Looked for when it is first called: the binary loads without it."""


class Loads(Model):
    """What came of one set of DLLs."""

    against: str
    """Such as ``torch 2.8.0 (cp311)``."""
    sha256: str = ""
    """Of the wheel whose names were looked up; empty: of a directory, or of the wheel's own."""
    stated: bool = False
    """Whether its index states that sha256, and nobody has computed it."""
    table: str = ""
    """Of a directory, the sha256 of the table of what its DLLs export."""
    missing: tuple[Missing, ...] = ()
    unknown: tuple[str, ...] = ()
    """What was not looked at, and why: ``c10_cuda.dll: not in torch 2.8.0 of the index``."""
    checked: int = 0
    """How many names were looked up."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def verdict(self) -> Literal["ok", "problem", "unknown"]:
        """``ok`` only where everything was looked at; ``problem`` also where something was not."""
        if self.missing:
            return "problem"
        return "unknown" if self.unknown or not self.checked else "ok"


def judge(binaries: Iterable[Binary], tables: Sequence[ExportTable]) -> tuple[Loads, ...]:
    """Of a wheel's Windows binaries: its own DLLs, each of ``tables``, and what nobody looked at.

    A table that cannot be read is told as not looked at.
    """
    every = [one for one in binaries if not one.name.endswith(".so")]
    wanted = wanted_libraries(every)
    own = {
        name: None if is_torchs(name) else found
        for name, found in own_exports(every).items()
        if name in wanted
    }
    # Of a run-time that it brings along as well, another one may be loaded; of what is called as a
    # DLL of torch, torch's is: https://learn.microsoft.com/windows/win32/dlls/dynamic-link-library-search-order
    rest = wanted - {name for name, found in own.items() if found is not None}
    found = []
    for table in tables:
        try:
            exports, why = table.look(rest)
        except LockError as error:
            found.append(Loads(against=table.against, unknown=(line(error.message, 300),)))
            continue
        loads = _loads(table.against, every, exports, why)
        of = {"sha256": table.sha256, "stated": table.stated, "table": table.table}
        found.append(loads.model_copy(update=of))
        wanted -= {*exports}
    of_own = _loads(OWN, every, {k: v for k, v in own.items() if k in wanted}, {})
    others = [
        f"{name}: {_SYSTEM if is_systems(name) else _NOBODYS}" for name in sorted(wanted - {*own})
    ]
    found = [of_own, *found, Loads(against=OTHERS, unknown=tuple(map(line, others)))]
    return tuple(one for one in found if one.checked or one.unknown or one.missing)


def _loads(
    against: str, binaries: Sequence[Binary], exports: Exports, why: dict[str, str]
) -> Loads:
    looked = look_up(binaries, exports)
    missing = tuple(
        Missing(
            binary=line(one.binary, 300),
            library=line(one.library, 300),
            symbol=line(one.name, _LONGEST),
            demangled=demangled(one.name),
            delayed=one.late,
        )
        for one in looked.lacking[:_MOST]
    )
    unknown = [f"{name}: {why.get(name, 'could not be read')}" for name in looked.unread]
    if len(looked.lacking) > _MOST:
        unknown.append(f"{len(looked.lacking) - _MOST} more names are missing")
    return Loads(
        against=against,
        missing=missing,
        unknown=tuple(line(one, 400) for one in unknown),
        checked=looked.there + len(looked.lacking),
    )
