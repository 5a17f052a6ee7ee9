"""A page for each project with the test evidence of each wheel, and how to verify it.

Missing evidence is stated, never omitted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from urllib.parse import quote

from pipelines.publish.index.catalogue import Catalogue, Wheel
from pipelines.publish.index.front import STYLES
from pipelines.publish.index.rows import Row, capabilities
from pipelines.reports.html import filled


def about(catalogue: Catalogue, table: Sequence[Row]) -> dict[str, bytes]:
    """The page of each project by its path; ``table`` are the plain wheels."""
    variants: dict[str, list[Wheel]] = defaultdict(list)
    for wheel in catalogue.wheels:
        if wheel.name.label:
            variants[wheel.made_from or ""].append(wheel)
    projects: dict[str, list[Row]] = defaultdict(list)
    for row in table:
        projects[row.project].append(row)
    return {
        f"about/{project}.html": filled(
            "about.html.j2",
            *STYLES,
            script="about.js",
            preview=catalogue.preview,
            project=project,
            rows=rows,
            variants={row.ident: variants[row.wheel.sha256] for row in rows},
            up=_up,
            named=capabilities,
        ).encode()
        for project, rows in projects.items()
    }


def _up(url: str) -> str:
    """A link from the project's page."""
    return url if "://" in url else f"../{quote(url)}"
