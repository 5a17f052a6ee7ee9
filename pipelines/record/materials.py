"""The materials that determine a wheel: source, tools, variables and paths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import ConfigDict, Field, RootModel, StringConstraints

from pipelines.core.hosttext import safe_line, safe_text

Kind = Literal[
    "compiler",  # of a sharded build: a program of the host, or a variable that it reads
    "fixed place",  # of a reproducible build: the path of the source during compilation
    "found",  # on the host and not pinned
    "host",
    "patch",
    "place",  # a directory of the host, which differs between hosts with one toolchain
    "python",
    "recipe",
    "source",
    "tool",  # an entry of the lock
    "toolset",
    "user variable",  # of a host that is not provisioned
    "variable",
    "wheel",
]
#: The hash of the SBOM, which differs if any other material does.
SBOM: tuple[Kind, str] = ("wheel", "sbom")

_Name = Annotated[str, StringConstraints(max_length=500)]
_Value = Annotated[str, StringConstraints(max_length=1 << 20)]
_SHOWN = 8  # lines of differences


class Material(NamedTuple):
    """A material."""

    kind: Kind
    name: str
    value: str

    @property
    def label(self) -> str:
        """For messages."""
        return safe_text(f"{self.kind} {self.name}", 100)


class Difference(NamedTuple):
    """A material that differs."""

    kind: Kind
    label: str
    values: str
    """Both, for messages."""

    def __str__(self) -> str:
        return f"{self.label}: {self.values}"


class Materials(RootModel[dict[Kind, Annotated[dict[_Name, _Value], Field(max_length=5000)]]]):
    """All materials of a wheel; as JSON an object for each kind."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    root: dict[Kind, Annotated[dict[_Name, _Value], Field(max_length=5000)]] = Field(default={})

    @classmethod
    def of(cls, rows: Iterable[Material]) -> Self:
        """From rows; a later one replaces an earlier one of its kind and name."""
        made: dict[Kind, dict[str, str]] = {}
        for kind, name, value in sorted({row[:2]: row for row in rows}.values()):
            made.setdefault(kind, {})[name] = value
        return cls(made)

    def __bool__(self) -> bool:
        return any(self.root.values())

    def rows(self, *kinds: Kind) -> Iterator[Material]:
        """The materials of these kinds, or all."""
        for kind in kinds or tuple(self.root):
            for name, value in self.root.get(kind, {}).items():
                yield Material(kind, name, value)

    def differences(self, here: Materials) -> list[Difference]:
        """What differs here; the SBOM only if nothing else explains it."""
        there, mine = (
            {row[:2]: row.value for row in materials.rows()} for materials in (self, here)
        )
        unlike = [key for key in {**there, **mine} if there.get(key) != mine.get(key)]
        if any(key != SBOM and key[0] != "place" for key in unlike):
            unlike = [key for key in unlike if key != SBOM]
        return [
            Difference(
                key[0],
                Material(*key, "").label,
                f"there {_displayed_value(there.get(key))}, here {_displayed_value(mine.get(key))}",
            )
            for key in unlike
        ]


def join_difference_labels(differences: list[Difference]) -> str:
    """The first ones, in one line."""
    return ", ".join(difference.label for difference in differences[:3]) + ", ..." * bool(
        differences[3:]
    )


def format_differences(differences: list[Difference]) -> str:
    """The first ones, one in each line."""
    rows = [f"  {difference}" for difference in differences[:_SHOWN]]
    more = len(differences) - len(rows)
    return "\n".join(rows + [f"  and {more} more"] * bool(more))


def _displayed_value(value: str | None) -> str:
    return "nothing" if value is None else safe_line(value, 200) or "empty"
