"""What was shown of each wheel, on a page for each project: verdicts, and how to look again.

What was not shown is said, never left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from urllib.parse import quote

from pipelines.publish.index.catalogue import Catalogue, Kind, Wheel
from pipelines.publish.index.front import page
from pipelines.publish.index.rows import Row, capabilities

#: What each of the files beside a wheel is.
_SHOWN: dict[Kind, str] = {
    "audit.json": "every check, with what it found",
    "smoke.xml": "the report of the smoke suite (JUnit)",
    "manifest.json": "what it was made of (manifest)",
    "intoto.jsonl": "the signed statement (in-toto)",
}


def about(catalogue: Catalogue, table: Sequence[Row]) -> dict[str, bytes]:
    """The page of each project by its path. ``table`` are the plain wheels."""
    variants: dict[str, list[Wheel]] = defaultdict(list)
    for one in catalogue.wheels:
        if one.name.label:
            variants[one.made_from or ""].append(one)
    projects: dict[str, list[Row]] = defaultdict(list)
    for row in table:
        projects[row.project].append(row)
    return {
        f"about/{project}.html": page(
            "about.html.j2",
            script="about.js",
            project=project,
            rows=rows,
            files={row.ident: _files(row.wheel) for row in rows},
            variants={row.ident: variants[row.wheel.sha256] for row in rows},
            up=_up,
            named=capabilities,
        ).encode()
        for project, rows in projects.items()
    }


def _files(wheel: Wheel) -> dict[str, tuple[str, str]]:
    """What lies beside it: by its kind the link from the project's page, and what it is."""
    return {kind: (_up(wheel.beside_url(kind)), _SHOWN[kind]) for kind in wheel.beside}


def _up(url: str) -> str:
    """From the project's page to a place of the index, or to elsewhere."""
    return url if "://" in url else f"../{quote(url)}"
