"""What was published, as a manifest tells it: read with bounds, held against a plan of today."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, StringConstraints, ValidationError

from pipelines.errors import AuditError, ConfigError, LockError
from pipelines.files import beside, sha256_of
from pipelines.hosttext import line, safe
from pipelines.model import first_problem
from pipelines.stages.buildspec import BILL, FIXED, PLACE
from pipelines.taken import Sha256
from pipelines.target import AXES

MANIFEST = "manifest.json"
MOST = 8 << 20  # bytes of a manifest
_SHOWN = 8
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,240}\.whl")
Short = Annotated[str, StringConstraints(max_length=500)]
Long = Annotated[str, StringConstraints(max_length=20_000)]


class _Inputs(BaseModel):
    """What it was made of; whatever else a manifest says is somebody else's to read."""

    recipe: Short = ""
    version: Short = ""
    python: Short = ""
    torch: Short = ""
    cuda: Short = ""
    archs: Short = ""
    reproducible: bool = False
    materials: Annotated[dict[Short, Long], Field(max_length=5000)] = {}


class _File(BaseModel):
    path: Short
    sha256: Sha256


class _Manifest(BaseModel):
    schema_: Annotated[Literal[1], Field(alias="schema")]
    run: Short
    made_by: Short = ""
    inputs: _Inputs
    files: Annotated[tuple[_File, ...], Field(max_length=1000)]


@dataclass(frozen=True)
class Published:
    """A wheel and what it was made of, as its manifest says."""

    manifest: str
    """Where it was read."""
    file: str
    """The wheel's name."""
    sha256: str
    """As the manifest has it."""
    wheel: Path | None
    """The wheel itself, where it is here: then it has that hash."""
    axes: dict[str, str]
    """What to ask for to have it built again, the host left open."""
    materials: dict[str, str]
    made_by: str

    def with_wheel(self, wheel: Path | None) -> Published:
        """The same with the wheel; :class:`AuditError` for another one than it tells of."""
        if wheel is not None and (found := sha256_of(wheel)) != self.sha256:
            raise AuditError(
                f"{wheel} has sha256 {found}, and {self.manifest} says {self.sha256}",
                advice="It is not the wheel that was built there: nothing is built again for it. "
                "Take both from whoever published them.",
            )
        return replace(self, wheel=wheel)


def read_published(asked: str) -> Published:
    """What a manifest tells, or that beside a wheel.

    Raises :class:`ConfigError` for what is none, or tells of no one reproducible wheel, and
    :class:`AuditError` for a wheel that is not the one that its manifest speaks of.
    """
    path = Path(asked).expanduser()
    if not path.is_file():
        raise ConfigError(
            f"{line(asked, 200)}: there is no such file",
            advice=f"Name a wheel with its {MANIFEST} beside it, or that {MANIFEST}.",
        )
    wheel = path if path.suffix == ".whl" else None
    manifest = _beside(path) if wheel else path
    told = told_by(manifest, str(manifest), wheel.name if wheel else "")
    return told.with_wheel(wheel or _here(manifest, told.file))


def told_by(manifest: Path, said: str, file: str = "") -> Published:
    """What a file tells, of the wheel called ``file`` or of its only one; ``said`` names it.

    Raises :class:`ConfigError` as :func:`read_published` does.
    """
    told = _read(manifest, said)
    if not told.inputs.reproducible or not told.inputs.materials:
        raise ConfigError(
            f"{said}: its wheel was not built with reproducible: true, so no two builds of it "
            "need be alike",
            advice="Write it into the recipe, build and publish anew: docs/reproducible.md.",
        )
    rows = [row for row in told.files if row.path.endswith(".whl")]
    if file:
        rows = [row for row in rows if row.path.rpartition("/")[2] == file]
    if len(rows) != 1:
        raise ConfigError(
            f"{said} tells of {len(rows)} wheels" + (f" called {line(file, 200)}" if file else ""),
            advice="Name the wheel that is meant, or the manifest that came with it.",
        )
    name = rows[0].path.rpartition("/")[2]
    if not _PLAIN.fullmatch(name):  # it becomes a file of ours, and a part of addresses
        raise ConfigError(
            f"{said}: {line(name, 200)} is no wheel's name",
            advice="Take the manifest from whoever published the wheel.",
        )
    asked_for = {axis: getattr(told.inputs, axis, "") for axis in AXES if axis != "host"}
    return Published(
        said,
        name,
        rows[0].sha256,
        None,
        {axis: text for axis, text in asked_for.items() if text},
        dict(told.inputs.materials),
        told.made_by,
    )


def _beside(wheel: Path) -> Path:
    """The manifest of a wheel: beside it, or above its directory as runs have it."""
    if found := beside(wheel, MANIFEST):
        return found
    raise ConfigError(
        f"{line(wheel, 300)}: there is no {MANIFEST} with it",
        advice=f"Put the {MANIFEST} that was published with it beside it, or name that.",
    )


def _here(manifest: Path, name: str) -> Path | None:
    """The wheel that a manifest tells of: where it says, or beside it."""
    places = (manifest.with_name("wheels") / name, manifest.with_name(name))
    return next((place for place in places if place.is_file()), None)


def hashes_of(manifest: Path, ending: str = ".whl") -> dict[str, str]:
    """The sha256 of every such file that a manifest tells of; :class:`ConfigError` if it is none.

    By its name, which ends with ``ending``.
    """
    rows = (row for row in _read(manifest, str(manifest)).files if row.path.endswith(ending))
    return {row.path.rpartition("/")[2]: row.sha256 for row in rows}


def _read(manifest: Path, said: str) -> _Manifest:
    try:
        with manifest.open("rb") as stream:
            data = stream.read(MOST + 1)
        if len(data) > MOST:
            raise ValueError(f"more than {MOST >> 20} MiB")  # noqa: TRY301
        return _Manifest.model_validate(json.loads(data))
    except ValidationError as error:
        why = first_problem(error)
    except (OSError, ValueError, RecursionError) as error:
        why = str(error)
    raise ConfigError(
        f"{said} is no manifest that can be read: {line(why, 300)}",
        advice=f"Name the {MANIFEST} of a run, or the wheel beside it.",
    )


def require_same(published: Published, today: dict[str, str], *, reached: bool = True) -> list[str]:
    """Refuse to build of other materials; what is only elsewhere, a line each.

    Without the host being ``reached``, only what the plan knows is compared. Raises
    :class:`LockError` that names what is not as it was.
    """
    then = published.materials
    if not reached:
        then, today = ({n: t for n, t in one.items() if _planned(n)} for one in (then, today))
    unlike = [name for name in {**then, **today} if then.get(name) != today.get(name)]
    places = [name for name in unlike if name.startswith(PLACE)]
    other = [name for name in unlike if name not in places]
    if other := [name for name in other if name != BILL] or other:  # it follows from the rest
        rows = [f"{safe(n, 100)}: {_said(then, n)}, today {_said(today, n)}" for n in other]
        more = f"\nand {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
        raise LockError(
            f"{published.file} was made of other things than are here "
            f"({', '.join(safe(n, 60) for n in other[:3])}{', ...' if other[3:] else ''}):\n"
            + "\n".join(rows[:_SHOWN])
            + more,
            advice=f"Take the release that made it ({line(published.made_by, 80)}), with its lock, "
            "its recipe and its source.",
        )
    return [f"{safe(n, 100)}: {_said(then, n)}, here {_said(today, n)}" for n in places]


def _planned(name: str) -> bool:
    """Whether a plan knows it: neither the source, which is packed later, nor what is found."""
    return name.startswith(("tool ", "variable ")) or name in ("Python", "tool set", FIXED)


def _said(told: dict[str, str], name: str) -> str:
    return line(told[name], 200) or "empty" if name in told else "not there"
