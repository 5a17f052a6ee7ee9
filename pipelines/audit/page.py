"""One page of many wheels: which runs where, to be sorted and filtered; self-contained.

Its style and its one script are named by hash in the page's own policy; a browser runs and loads
nothing else, whatever somebody has written into a wheel.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup
from packaging.tags import parse_tag

from pipelines.audit.findings import RUNS, WORDS, Card, Examined, held_against
from pipelines.audit.listing import Listing
from pipelines.core.files import write_atomic
from pipelines.core.finding import LEVELS, Finding, Level
from pipelines.reports.html import environment

_TEMPLATES = Path(__file__).resolve().parents[1] / "reports" / "templates"
_TONES = {"error": "failed", "warning": "untested", "unknown": "idle", "ok": "passed"}
_PYTHON = re.compile(r"(cp|py)3(\d{1,2})")
_TORCH = re.compile(r"(torch \S+)(?: \(\w+\))?")
_FEW = 2
_CROWD = 40  # wheels from which a page tells of what is ok no more than that
_SEARCHED = 1500  # characters of a wheel


@dataclass(frozen=True, slots=True)
class Torch:
    """A wheel beside one release of torch: of how many names it lacks how many."""

    checked: int = 0
    missing: int = 0
    unknown: int = 0

    @property
    def level(self) -> Level:
        """Never ``ok`` where something was not looked at."""
        if self.missing:
            return "error"
        return "ok" if self.checked and not self.unknown else "unknown"

    @property
    def word(self) -> str:
        """As short as it can be said."""
        if self.missing:
            return f"lacks {self.missing}"
        if not self.checked:
            return "not checked"
        return "in part" if self.unknown else "loads"


@dataclass(frozen=True, slots=True)
class Row:
    """A wheel as the page shows it."""

    wheel: Examined
    title: str
    pythons: tuple[str, ...]
    """Releases such as ``3.11``, ``any``, or with ``+`` those from there on."""
    cuda: str
    fates: dict[str, str]
    """Compute capability -> what becomes of the wheel there; ``none``: it has no device code."""
    ranks: dict[str, int]
    torches: dict[str, Torch]
    """Of each torch that it was held against."""
    drivers: tuple[tuple[str, tuple[str, ...]], ...]
    findings: tuple[Finding, ...]
    fine: tuple[str, ...]
    text: str

    @property
    def fitting(self) -> tuple[str, ...]:
        """Each torch in which nothing is missing of what was looked at."""
        return tuple(name for name, one in self.torches.items() if one.checked and not one.missing)


def write(path: Path, examined: Sequence[Examined], listings: Sequence[Listing] = ()) -> int:
    """Write the page, whole or not at all; its size in bytes. ``StorageError`` if that fails."""
    data = render(examined, listings).encode()
    write_atomic(path, data)
    return len(data)


def render(examined: Sequence[Examined], listings: Sequence[Listing] = ()) -> str:
    """The page, at least of one wheel; of ``listings`` it says what was left out."""
    style = "".join(
        (_TEMPLATES / f"{name}.css").read_text("utf-8") for name in ("report", "wheels")
    )
    script = (_TEMPLATES / "wheels.js").read_text("utf-8")
    kinds = _kinds(examined)
    tally = Counter(one.worst for one in examined)
    rows = [_row(one, kinds, crowd=len(examined) > _CROWD) for one in examined]
    return (
        environment()
        .get_template("wheels.html.j2")
        .render(
            wheels=examined,
            rows=rows,
            kinds=kinds,
            order=LEVELS,
            levels=WORDS,
            tally=tally,
            held=held_against(examined),
            listings=listings,
            tone=_TONES[min(tally, key=LEVELS.index)],
            against=list(dict.fromkeys(name for row in rows for name in row.torches)),
            pythons=sorted(
                {name.rstrip("+") for row in rows for name in row.pythons} - {"any"}, key=_minor
            ),
            style=Markup(style),  # noqa: S704 - our own file
            script=Markup(script),  # noqa: S704 - our own file
            digests={"style": _digest(style), "script": _digest(script)},
        )
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _kinds(examined: Sequence[Examined]) -> list[Card]:
    """A card for each compute capability that there are cards of."""
    found: dict[str, Card] = {}
    for card in (card for one in examined for card in one.gpus.cards):
        if card.capability not in found or len(card.names) > len(found[card.capability].names):
            found[card.capability] = card
    return sorted(found.values(), key=lambda card: -float(card.capability))


def _row(one: Examined, kinds: Sequence[Card], *, crowd: bool) -> Row:
    cards = {card.capability: card for card in one.gpus.cards}
    fates: dict[str, str] = {}
    for kind in kinds:
        card = cards.get(kind.capability)
        fates[kind.capability] = "none" if card is None or not card.units else card.runs
    drivers: dict[str, list[str]] = {}
    for card in cards.values():
        if card.driver:
            drivers.setdefault(card.driver, []).append(card.capability)
    shown = tuple(each for each in one.findings if not crowd or each.level != "ok")
    said = " ".join(f"{each.label} {each.text}" for each in one.findings if each.level != "ok")
    return Row(
        wheel=one,
        title=f"{one.name} {one.version}" if one.name else one.file,
        pythons=_pythons(one.tags),
        cuda=_span(one.gpus.cuda),
        fates=fates,
        ranks={name: [*RUNS, "none"].index(fate) for name, fate in fates.items()},
        torches=_torches(one),
        drivers=tuple((driver, tuple(names)) for driver, names in sorted(drivers.items())),
        findings=tuple(sorted(shown, key=lambda each: LEVELS.index(each.level))),
        fine=tuple(each.label for each in one.of("ok")) if crowd else (),
        text=f"{one.file} {one.name} {said}"[:_SEARCHED].lower(),
    )


def _span(releases: Sequence[str]) -> str:
    """Some releases of CUDA; of many from which to which."""
    if len(releases) > _FEW:
        return f"{releases[0]}\u2013{releases[-1]}"
    return ", ".join(releases)


def _torches(one: Examined) -> dict[str, Torch]:
    """By release, whichever Python its wheel is for; a directory is a torch of its own."""
    found: dict[str, Torch] = {}
    for load in one.loads:
        if load.against.startswith("torch "):
            match = _TORCH.fullmatch(load.against)
            name = match[1] if match else load.against
            old = found.get(name, Torch())
            found[name] = Torch(
                old.checked + load.checked,
                old.missing + len({(gone.library, gone.symbol) for gone in load.missing}),
                old.unknown + len(load.unknown),
            )
    return found


def _pythons(tags: Sequence[str]) -> tuple[str, ...]:
    """The releases that its tags are for."""
    found: dict[str, None] = {}
    for tag in (tag for text in tags for tag in parse_tag(text)):
        match = _PYTHON.fullmatch(tag.interpreter)
        plus = "+" if match and (match[1] == "py" or tag.abi in ("abi3", "none")) else ""
        found[f"3.{match[2]}{plus}" if match else "any"] = None
    return tuple(sorted(found, key=_minor))


def _minor(text: str) -> int:
    digits = re.sub(r"\D", "", text.partition(".")[2])
    return int(digits or 0)
