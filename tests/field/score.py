"""Writes docs/evidence/diagnosis.md: how often ``wcw diagnose`` is right, by kind of failure.

Each folder beside this file is a public report: ``build.log`` (an excerpt), and ``answer.yaml``
with the right signature, its line and sources. Those with ``judged`` were collected after the
catalogue was finished: the answer was judged, and nothing was changed for it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import yaml

FIELD = Path(__file__).parent
PAGE = FIELD.parents[1] / "docs/evidence/diagnosis.md"
VERDICTS = ("right", "partly", "misleading", "none")
KINDS = {
    "ci": "CI jobs",
    "cmake": "CMake",
    "compile": "compiling",
    "environment": "compilers and paths",
    "host": "hosts and containers",
    "link": "linking",
    "load": "loading a package",
    "pip": "pip and setup.py",
    "run": "running it",
    "source": "incomplete sources",
    "versions": "versions that do not go together",
}


def reports() -> dict[str, dict[str, Any]]:
    """Every report by name, with its answer."""
    files = sorted(FIELD.glob("*/answer.yaml"))
    return {file.parent.name: yaml.safe_load(file.read_text("utf-8")) for file in files}


def page() -> str:
    """The page as it should be."""
    every = reports()
    known = {name: one for name, one in every.items() if "judged" not in one}
    later = {name: one for name, one in every.items() if "judged" in one}
    verdicts = Counter(one["judged"] for one in later.values())
    score = ", ".join(f"{verdicts[one]} {one}" for one in VERDICTS)
    return "\n".join(
        [
            "# Diagnosis of public reports",
            "",
            "<!-- Made by: python tests/field/score.py. What is changed here is lost. -->",
            "",
            "`wcw diagnose` on excerpts of logs that people published, and its answers. `certain`, "
            "`likely` and `possible` are what it says of itself.",
            "",
            "## Reports that the catalogue was written with",
            "",
            f"{len(known)} reports, all answered as their threads did; a test repeats this. They "
            "say what it knows, not how well it does on other logs.",
            "",
            *_by_kind(known),
            "",
            "## Reports that were collected afterwards",
            "",
            f"{len(later)} reports, diagnosed once when the catalogue was finished, with nothing "
            f"changed for them: {score}. `partly`: the decisive line is named, "
            "but not its cause, or the cause is one of several; `none`: no answer that helps. "
            "Answers and verdicts are of that day.",
            "",
            *_by_kind(later),
            "",
            "| report | answer | confidence | verdict | what was right |",
            "| - | - | - | - | - |",
            *(_row(name, one) for name, one in later.items()),
            "",
        ]
    )


def _by_kind(some: dict[str, dict[str, Any]]) -> list[str]:
    columns = VERDICTS if any("judged" in one for one in some.values()) else ("right",)
    rows = [f"| kind | reports | {' | '.join(columns)} |", "| - | - |" + " - |" * len(columns)]
    for kind, title in KINDS.items():
        of_kind = [one.get("judged", "right") for one in some.values() if one["kind"] == kind]
        counts = " | ".join(str(of_kind.count(verdict)) for verdict in columns)
        rows += [f"| {title} | {len(of_kind)} | {counts} |"] if of_kind else []
    return rows


def _row(name: str, one: dict[str, Any]) -> str:
    cells = (f"[{name}]({one['sources'][0]})", one["id"] or "-", one["confidence"] or "-")
    return f"| {' | '.join((*cells, one['judged'], one['right']))} |"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
