"""The first page of an index: a table of its wheels, and a script that chooses from it.

The page loads nothing and asks nobody. Its style and its one script are named by hash in its own
policy, so that a browser runs nothing else, whatever stands in the catalogue.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from markupsafe import Markup
from packaging.version import Version

from pipelines.core.architectures.archs import capability
from pipelines.core.architectures.gpus import load_gpus
from pipelines.core.versions import python_order
from pipelines.publish.index.catalogue import Catalogue
from pipelines.publish.index.rows import Row
from pipelines.publish.which.joining import WHICH
from pipelines.publish.which.told import FORMS, pip_installs, typed, uv_installs
from pipelines.reports.html import environment

_TEMPLATES = Path(__file__).resolve().parents[2] / "reports" / "templates"
#: Minor releases of Python 3 that are offered where a wheel takes all later ones. What is pasted
#: may be another one.
_OLDEST, _NEWEST = 9, 15
_LEVELS = 12  # that are told in full; the page of a project tells each


def front(catalogue: Catalogue, table: Sequence[Row], places: Sequence[str]) -> str:
    """The page. ``table`` are the plain wheels, the one first that is taken before another."""
    return page(
        "index.html.j2",
        script="index.js",
        rows=table,
        places=places,
        which=WHICH,
        variants=len(catalogue.wheels) - len(table),
        untested=sum(row.wheel.smoke.verdict == "untested" for row in table),
        projects=list(dict.fromkeys(row.project for row in table)),
        platforms=_platforms(table),
        pythons=_pythons(table),
        cudas=_cudas(table),
        torches=_torches(table),
        levels=sorted({row.wheel.evidence for row in table})[:_LEVELS],
        cards=[(gpu.show, gpu.capability) for gpu in load_gpus()],
        capabilities=_capabilities(table),
        forms=commands(),
    )


def commands() -> list[tuple[str, str, str, str]]:
    """What installs a wheel, by where it is pasted, and what stands there in place of what.

    The page's script puts in what was chosen.
    """
    pip = pip_installs("~start~", ["~url~"], "~torch~")
    uv = uv_installs(["uv", "add"], "~index~", "~project~==~version~", "~torch~")
    made = [(name, typed(pip, name), *form[2:]) for name, form in FORMS.items()]
    return [*made, ("a uv project", typed([uv], "cmd"), "", "")]


def page(template: str, *, script: str, **values: Any) -> str:
    """A page of an index from its template, with the style and the script that its policy names."""
    files = {"style": _file("report.css") + _file("index.css"), "script": _file(script)}
    digests = {
        name: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for name, text in files.items()
    }
    own = {name: Markup(text) for name, text in files.items()}  # noqa: S704 - our own files
    return environment().get_template(template).render(digests=digests, **own, **values)


@cache
def _file(name: str) -> str:
    return (_TEMPLATES / name).read_text("utf-8")


def _platforms(table: Sequence[Row]) -> list[str]:
    found = {one for row in table for one in row.platforms.split()}
    return sorted(found - {"any"}) or ["win_amd64"] * bool(found)


def _pythons(table: Sequence[Row]) -> list[str]:
    """Every release that takes a wheel, within those that people have.

    Those without the global lock are there where a wheel is for one of them alone.
    """
    found = {minor for row in table for minor in row.minors}
    named = max((row.minors[-1] for row in table if row.minors and not row.later), default=0)
    own = [f"3.{minor}" for minor in sorted(found) if _OLDEST <= minor <= max(named, _NEWEST)]
    free = {minor for row in table for minor in row.lockless if len(row.lockless) == 1}
    return sorted([*own, *(f"3.{minor}t" for minor in free)], key=python_order)


def _torches(table: Sequence[Row]) -> list[str]:
    """As torch's wheels for these releases and CUDA are called."""
    pairs = {(row.wheel.torch, row.wheel.cuda) for row in table if row.wheel.torch}
    ordered = sorted(pairs, key=lambda pair: [Version(one or "0") for one in pair], reverse=True)
    return [f"{torch}.0+cu{cuda.replace('.', '')}" if cuda else torch for torch, cuda in ordered]


def _cudas(table: Sequence[Row]) -> list[str]:
    found = {row.wheel.cuda for row in table if row.wheel.cuda}
    return sorted(found, key=Version, reverse=True)


def _capabilities(table: Sequence[Row]) -> list[str]:
    """Of every card that has a name here, and of every architecture in a wheel."""
    archs = {arch for row in table for arch in (*row.wheel.sass, *row.wheel.ptx)}
    found = {capability(arch) for arch in archs} | {gpu.capability for gpu in load_gpus()}
    return sorted(found, key=Version)
