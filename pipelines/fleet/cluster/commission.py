"""What travels between controllers: JSON that is looked at where it is sent and where it arrives.

No address, user name or password of a host is in it: a member has its own ``pipeline.yaml``, and
makes of what was asked for a plan of its own. What decides the wheel must be the same at both ends.
"""

from __future__ import annotations

import functools
import hashlib
import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, StringConstraints, ValidationError

from pipelines import __version__
from pipelines.fleet.drivers import ElsewhereError
from pipelines.fleet.looking import Chain
from pipelines.fleet.model import Doing, Ended, Work
from pipelines.hosts.base import Supply
from pipelines.hosttext import safe
from pipelines.model import Model, Name, first_problem
from pipelines.paths import PACKAGE
from pipelines.recipe.model import Recipe
from pipelines.recipe.origin import PathSource
from pipelines.recipe.sourcetree import source_tree
from pipelines.recipe.suite import suite_of
from pipelines.record import ErrorResult, Size
from pipelines.session.base import UnfitHostError
from pipelines.taken import Sha256
from pipelines.toolchain.lock import Cache

Data = TypeVar("Data", bound=BaseModel)
Axis = Annotated[str, StringConstraints(pattern=r"^[a-z_]{1,20}$")]
#: Becomes names of files.
Key = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+-]{1,200}(/[a-z0-9]{1,40})?$")]
Errand = Literal["do", "withdraw", "reach", "survey"]


class Program(Model):
    """What runs at an end: two that differ may build two different wheels of one order."""

    version: Annotated[str, StringConstraints(max_length=80)] = __version__
    files: Sha256


class Lent(Model):
    """A host that a member offers."""

    given: Supply
    windows: bool
    made: bool
    slots: Annotated[int, Field(ge=1, le=64)]
    price: Annotated[float, Field(ge=0, le=100_000, allow_inf_nan=False)]


class Hello(Model):
    """What a member says of itself."""

    program: Program
    hosts: dict[Name, Lent]


class Commission(Model):
    """Something that a member is to do at one of its hosts."""

    fleet: Annotated[str, StringConstraints(pattern=r"^fleet-[A-Za-z0-9_-]{1,80}$")]
    """Of the asker: what belongs together at the member."""
    host: Name
    errand: Errand
    key: Key
    """Of the work, which must not become another file's name."""
    work: Work
    axes: dict[Axis, Annotated[str, StringConstraints(max_length=2000)]]
    """Of the work's cell, without its host."""
    jobs: Annotated[int, Field(ge=1, le=512)] | None = None
    reproducible: bool = False
    decided: dict[str, Sha256] = Field(default={})
    """What decides the wheel, as the asker has it: :func:`decided`."""
    chains: dict[str, Chain] = Field(default={})
    """The tool chains that the fleet has agreed on."""
    after: dict[Key, Sha256] = Field(default={})
    """Key of a work that comes before -> the seal of its run."""
    said: Annotated[int, Field(ge=0)] = 0
    """So many bytes of the work's log the asker has."""


class Parcel(Model):
    """A packed run."""

    sha256: Sha256
    size: Size
    run: Annotated[str, StringConstraints(pattern=r"^[0-9][A-Za-z0-9_.+-]{0,200}$")]
    """The directory's name."""


class Told(Model):
    """How it stands with a commission."""

    over: bool = False
    doing: Doing | None = None
    said: Annotated[str, StringConstraints(max_length=1 << 20)] = ""
    """More of the log."""
    heard: int = 0
    """So many bytes of it there were."""
    why: str = ""
    """Of a look at the host: what speaks against it."""
    facts: dict[str, Any] = Field(default={})
    """Of a survey, as the host says it."""
    gpus: tuple[Annotated[str, StringConstraints(pattern=r"^\d{1,2}\.\d$")], ...] = ()
    place: Annotated[str, StringConstraints(max_length=600)] = ""
    """Machine and place, which no other host of a fleet has."""
    ended: Ended | None = None
    parcel: Parcel | None = None


class Piece(Model):
    """A part of a packed run."""

    fleet: Annotated[str, StringConstraints(pattern=r"^fleet-[A-Za-z0-9_-]{1,80}$")]
    parcel: Parcel
    offset: Annotated[int, Field(ge=0)] = 0
    seal: Sha256 | None = None
    """Of a run that is sent to a member: what it is known by there."""


class Answered(Model):
    """What every answer is in: one of the two."""

    told: str = ""
    error: ErrorResult | None = None


def read(model: type[Data], text: str, whose: str) -> Data:
    """``text`` as that model; :class:`UnfitHostError` for what is none."""
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise UnfitHostError(
            f"{whose} says what makes no sense here: {safe(first_problem(error), 200)}",
            advice="Have the same release of windows-cuda-wheels at both ends.",
        ) from None


@functools.cache
def program() -> Program:
    """What runs here: every file of the package counts, recipes and the lock are among them."""
    known = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            known.update(f"{path.relative_to(PACKAGE).as_posix()}\0".encode())
            known.update(hashlib.sha256(path.read_bytes()).digest())
    return Program(files=known.hexdigest())


def require_program(theirs: Program, whose: str) -> None:
    """Refuse an end that is not this very program, in words."""
    mine = program()
    if theirs == mine:
        return
    same = theirs.version == mine.version
    raise UnfitHostError(
        f"{whose} runs windows-cuda-wheels {safe(theirs.version, 40)}, here is {mine.version}"
        + (": its files differ, so its wheels may, too" if same else ""),
        advice="Install the same one at both ends, and start invoke fleet join again.",
    )


def decided(recipe: Recipe, cache: Cache) -> dict[str, str]:
    """What of an order decides the wheel and how it is tested, but for the host: name -> sha256."""
    told = {"recipe": _hash(recipe.model_dump_json())}
    if isinstance(recipe.source, PathSource):  # others are pinned in the recipe
        told["source"] = hashlib.sha256(source_tree(recipe, cache)).hexdigest()
    told["lock"] = _hash(cache.lock.model_dump_json())
    told["tests"] = _hash(json.dumps(suite_of(recipe).files, sort_keys=True))
    return told


def require_decided(mine: dict[str, str], theirs: dict[str, str], what: str) -> None:
    """Refuse an order of which something else would be made here, in words."""
    for name in sorted({*mine, *theirs}):
        if mine.get(name) != theirs.get(name):
            raise ElsewhereError(
                f"the {name} of {what} is another one here than where it is asked for: "
                f"{mine.get(name, 'none')[:12]}, there {theirs.get(name, 'none')[:12]}",
                advice="Have the same files of the project at both ends.",
            )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
