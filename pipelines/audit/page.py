"""A self-contained page on many wheels: which runs where, sortable and filterable.

The page's own policy allows only its style and script, by hash; a browser runs and loads nothing
else, whatever is written in a wheel.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from packaging.tags import parse_tag

from pipelines.audit.findings import RUNS, Card, WheelReport, references_of
from pipelines.audit.listing import Listing
from pipelines.core.files import write_atomic
from pipelines.core.finding import LEVELS, Finding, Level
from pipelines.reports.findings import MARKS
from pipelines.reports.html import render_template

_TONES = {"error": "failed", "warning": "untested", "unknown": "idle", "ok": "passed"}
_PYTHON = re.compile(r"(cp|py)3(\d{1,2})")
_TORCH = re.compile(r"(torch \S+)(?: \(\w+\))?")
_FEW = 2
_CROWD = 40  # wheels from which passed checks are only listed by name
_SEARCHED = 1500  # characters of a wheel


@dataclass(frozen=True, slots=True)
class Torch:
    """A wheel with one version of torch: how many symbols were checked and are missing."""

    checked: int = 0
    missing: int = 0
    unknown: int = 0

    @property
    def level(self) -> Level:
        """Never ``ok`` if something was not checked."""
        if self.missing:
            return "error"
        return "ok" if self.checked and not self.unknown else "unknown"

    @property
    def word(self) -> str:
        """For a table cell."""
        if self.missing:
            return f"{self.missing} missing"
        if not self.checked:
            return "not checked"
        return "in part" if self.unknown else "loads"


class Survey(NamedTuple):
    """What it cost, sources not read and changes, and for each wheel a sentence or nothing."""

    summary: str
    notes: Sequence[Finding]
    sentences: Sequence[str]


@dataclass(frozen=True, slots=True)
class Row:
    """A wheel as the page shows it."""

    wheel: WheelReport
    title: str
    pythons: tuple[str, ...]
    """Versions such as ``3.11``, ``any``, or with ``+`` that one and later ones."""
    cuda: str
    fates: dict[str, str]
    """Compute capability -> how the wheel runs there; ``none``: it has no device code."""
    ranks: dict[str, int]
    torches: dict[str, Torch]
    """The result for each torch it was checked against."""
    drivers: tuple[tuple[str, tuple[str, ...]], ...]
    findings: tuple[Finding, ...]
    fine: tuple[str, ...]
    text: str

    @property
    def fitting(self) -> tuple[str, ...]:
        """Each torch with no missing symbols among those checked."""
        return tuple(
            name for name, torch in self.torches.items() if torch.checked and not torch.missing
        )


def write_wheels_page(
    path: Path, examined: Sequence[WheelReport], listings: Sequence[Listing] = ()
) -> int:
    """Write the page atomically and return its size in bytes; ``StorageError`` if that fails."""
    data = render(examined, listings).encode()
    write_atomic(path, data)
    return len(data)


def render(
    examined: Sequence[WheelReport],
    listings: Sequence[Listing] = (),
    survey: Survey | None = None,
) -> str:
    """The page on at least one wheel; ``listings`` say what was left out."""
    kinds = _card_columns(examined)
    tally = Counter(wheel.worst for wheel in examined)
    rows = [_wheel_table_row(wheel, kinds, crowd=len(examined) > _CROWD) for wheel in examined]
    return render_template(
        "wheels.html.j2",
        "report.css",
        "wheels.css",
        script="wheels.js",
        wheels=examined,
        rows=rows,
        kinds=kinds,
        order=LEVELS,
        marks=MARKS,
        tally=tally,
        held=references_of(examined),
        listings=listings,
        survey=survey,
        tone=_TONES[min(tally, key=LEVELS.index)],
        against=list(dict.fromkeys(name for row in rows for name in row.torches)),
        pythons=sorted(
            {name.rstrip("+") for row in rows for name in row.pythons} - {"any"},
            key=_minor_version_key,
        ),
    )


def _card_columns(examined: Sequence[WheelReport]) -> list[Card]:
    """A card for each compute capability."""
    cards: dict[str, Card] = {}
    for card in (card for wheel in examined for card in wheel.gpus.cards):
        if card.capability not in cards or len(card.names) > len(cards[card.capability].names):
            cards[card.capability] = card
    return sorted(cards.values(), key=lambda card: -float(card.capability))


def _wheel_table_row(wheel: WheelReport, kinds: Sequence[Card], *, crowd: bool) -> Row:
    cards = {card.capability: card for card in wheel.gpus.cards}
    fates: dict[str, str] = {}
    for kind in kinds:
        card = cards.get(kind.capability)
        fate = "none" if wheel.gpus.cards else "unknown"
        fates[kind.capability] = card.runs if card and (card.units or wheel.partial) else fate
    drivers: dict[str, list[str]] = {}
    for card in cards.values():
        if card.driver:
            drivers.setdefault(card.driver, []).append(card.capability)
    shown = tuple(each for each in wheel.findings if not crowd or each.level != "ok")
    problems = " ".join(
        f"{each.label} {each.text}" for each in wheel.findings if each.level != "ok"
    )
    return Row(
        wheel=wheel,
        title=f"{wheel.name} {wheel.version}" if wheel.name else wheel.file,
        pythons=_tagged_pythons(wheel.tags),
        cuda=_cuda_version_range(wheel.gpus.cuda),
        fates=fates,
        ranks={name: [*RUNS, "none"].index(fate) for name, fate in fates.items()},
        torches=_loads_by_torch(wheel),
        drivers=tuple((driver, tuple(names)) for driver, names in sorted(drivers.items())),
        findings=tuple(sorted(shown, key=lambda each: LEVELS.index(each.level))),
        fine=tuple(each.label for each in wheel.of("ok")) if crowd else (),
        text=f"{wheel.file} {wheel.name} {problems}"[:_SEARCHED].lower(),
    )


def _cuda_version_range(releases: Sequence[str]) -> str:
    """CUDA versions; a range if there are many."""
    if len(releases) > _FEW:
        return f"{releases[0]}\u2013{releases[-1]}"
    return ", ".join(releases)


def _loads_by_torch(wheel: WheelReport) -> dict[str, Torch]:
    """By torch version, for all Pythons; a directory counts as a torch of its own."""
    torches: dict[str, Torch] = {}
    for load in wheel.loads:
        if load.against.startswith("torch "):
            match = _TORCH.fullmatch(load.against)
            name = match[1] if match else load.against
            old = torches.get(name, Torch())
            torches[name] = Torch(
                old.checked + load.checked,
                old.missing + len({(gone.library, gone.symbol) for gone in load.missing}),
                old.unknown + len(load.unknown),
            )
    return torches


def _tagged_pythons(tags: Sequence[str]) -> tuple[str, ...]:
    """The Python versions that its tags are for."""
    pythons: dict[str, None] = {}
    for tag in (tag for text in tags for tag in parse_tag(text)):
        match = _PYTHON.fullmatch(tag.interpreter)
        plus = "+" if match and (match[1] == "py" or tag.abi in ("abi3", "none")) else ""
        pythons[f"3.{match[2]}{plus}" if match else "any"] = None
    return tuple(sorted(pythons, key=_minor_version_key))


def _minor_version_key(text: str) -> int:
    digits = re.sub(r"\D", "", text.partition(".")[2])
    return int(digits or 0)
