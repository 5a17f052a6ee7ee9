"""Whether Windows could load a wheel's binaries with given DLLs: each imported symbol is looked up.

For a missing symbol Windows only reports "the specified procedure could not be found".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic import computed_field

from pipelines.core.errors import LockError
from pipelines.core.finding import Level
from pipelines.core.hosttext import safe_line
from pipelines.core.model import Model
from pipelines.wheels.binary import Binary
from pipelines.wheels.exports.table import ExportTable
from pipelines.wheels.imports import (
    Exports,
    demangle_symbol,
    imported_libraries,
    look_up,
    own_exports,
)
from pipelines.wheels.libraries import is_system_dll, is_torch_dll

OWN, OTHERS = "its own DLLs", "other DLLs"
_SYSTEM, _UNKNOWN = "part of Windows, Python or the driver", "not in any requested package"
_LONGEST = 4000  # characters of a symbol
_MOST = 1000  # symbols reported for one set of DLLs


class Missing(Model):
    """A symbol that a binary imports and its library does not export."""

    binary: str
    """Its path within the wheel."""
    library: str
    """The DLL, in lower case."""
    symbol: str
    """As in the binary; an ordinal as ``#12``."""
    demangled: str
    """The C++ name; unchanged if it is not a C++ symbol."""
    delayed: bool = False
    """Whether it is delay-loaded: the binary loads without it."""


class Loads(Model):
    """The result for one set of DLLs."""

    against: str
    """Such as ``torch 2.8.0 (cp311)``."""
    sha256: str = ""
    """Of the wheel that exports were read from; empty for a directory or the wheel's own DLLs."""
    stated: bool = False
    """Whether that sha256 is what the index states and was not computed here."""
    table: str = ""
    """For a directory, the sha256 of its table of exports."""
    missing: tuple[Missing, ...] = ()
    unknown: tuple[str, ...] = ()
    """What was not checked, and why: ``c10_cuda.dll: not in torch 2.8.0 of the index``."""
    checked: int = 0
    """How many symbols were looked up."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def verdict(self) -> Level:
        """``ok`` only if everything was checked; ``error`` takes precedence."""
        if self.missing:
            return "error"
        return "unknown" if self.unknown or not self.checked else "ok"


def look_up_imports(binaries: Iterable[Binary], tables: Sequence[ExportTable]) -> tuple[Loads, ...]:
    """Look up a wheel's imports in its own DLLs and each of ``tables``; the rest is not checked.

    A table that cannot be read is reported as not checked.
    """
    every = [binary for binary in binaries if not binary.name.endswith(".so")]
    libraries = imported_libraries(every)
    own = {
        name: None if is_torch_dll(name) else exports
        for name, exports in own_exports(every).items()
        if name in libraries
    }
    # If it bundles a runtime, another copy may be loaded instead; of a DLL with the name of one of
    # torch's, torch's is loaded: https://learn.microsoft.com/windows/win32/dlls/dynamic-link-library-search-order
    rest = libraries - {name for name, exports in own.items() if exports is not None}
    results = []
    for table in tables:
        try:
            exports, why = table.look(rest)
        except LockError as error:
            results.append(Loads(against=table.against, unknown=(safe_line(error.message, 300),)))
            continue
        loads = _loads(table.against, every, exports, why)
        of = {"sha256": table.sha256, "stated": table.stated, "table": table.table}
        results.append(loads.model_copy(update=of))
        libraries -= {*exports}
    of_own = _loads(OWN, every, {k: v for k, v in own.items() if k in libraries}, {})
    others = [
        f"{name}: {_SYSTEM if is_system_dll(name) else _UNKNOWN}"
        for name in sorted(libraries - {*own})
    ]
    results = [of_own, *results, Loads(against=OTHERS, unknown=tuple(map(safe_line, others)))]
    return tuple(loads for loads in results if loads.checked or loads.unknown or loads.missing)


def _loads(
    against: str, binaries: Sequence[Binary], exports: Exports, why: dict[str, str]
) -> Loads:
    looked = look_up(binaries, exports)
    missing = tuple(
        Missing(
            binary=safe_line(missing.binary, 300),
            library=safe_line(missing.library, 300),
            symbol=safe_line(missing.name, _LONGEST),
            demangled=demangle_symbol(missing.name),
            delayed=missing.late,
        )
        for missing in looked.missing[:_MOST]
    )
    unknown = [f"{name}: {why.get(name, 'could not be read')}" for name in looked.unread]
    if len(looked.missing) > _MOST:
        unknown.append(f"{len(looked.missing) - _MOST} more symbols are missing")
    return Loads(
        against=against,
        missing=missing,
        unknown=tuple(safe_line(reason, 400) for reason in unknown),
        checked=looked.present + len(looked.missing),
    )
