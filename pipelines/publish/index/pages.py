"""The pages of an index, as text: a pure function of its catalogue.

PEP 503 (pages), 691 and 700 (the same as JSON), 658 and 714 (metadata beside the wheel), 592
(yanked), 708 (the same projects elsewhere). Three kinds of places, each an index of its own:

- ``simple/``: variants alone. Which of them is installed, the installer finds out; one that knows
  no variants finds nothing there, which is better than a wheel that does not fit.
- ``cu128/torch2.8/``: the plain wheels of that cell; without torch ``cu128/any-torch/``.
- ``plain/``: all plain wheels, for who names one by its whole version.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pipelines.publish.index.about import about
from pipelines.publish.index.catalogue import Catalogue, Wheel, stored
from pipelines.publish.index.front import front
from pipelines.publish.index.rows import rows, smoke_words
from pipelines.publish.index.variants import json_name, release_json
from pipelines.publish.which.joining import WHICH, joined

COMBINED = "simple"
#: What IIS needs to serve an index at all.
_IIS = Path(__file__).with_name("web.config")
_VERSION = "1.2"  # of the API: with what PEP 700 and 708 add


@dataclass(frozen=True)
class _Link:
    """A file on a page."""

    file: str
    url: str
    sha256: str
    size: int
    uploaded: str
    wheel: Wheel | None = None


def views(catalogue: Catalogue) -> dict[str, list[Wheel]]:
    """Every place of an index with its wheels."""
    found: dict[str, list[Wheel]] = defaultdict(list)
    found[COMBINED], found["plain"] = [], []
    for wheel in catalogue.wheels:
        if wheel.name.label:
            found[COMBINED].append(wheel)
            continue
        found["plain"].append(wheel)
        torch = f"torch{wheel.torch}" if wheel.torch else "any-torch"
        found[f"cu{wheel.cuda.replace('.', '')}/{torch}"].append(wheel)
    return dict(found)


def release_files(catalogue: Catalogue) -> dict[str, tuple[str, bytes]]:
    """The ``…-variants.json`` of every release that has variants: name -> path and bytes.

    The path tells their hash: one that an old page links to is never changed.
    """
    releases: dict[str, list[Wheel]] = defaultdict(list)
    for wheel in catalogue.wheels:
        if wheel.name.label:
            releases[json_name(wheel)].append(wheel)
    return {
        name: (stored(name, hashlib.sha256(data).hexdigest()), data)
        for name, wheels in releases.items()
        for data in [release_json(wheels)]
    }


def render(catalogue: Catalogue) -> dict[str, bytes]:
    """Every page by its path; one that was there before is there again."""
    made: dict[str, bytes] = {}
    releases = release_files(catalogue)
    for place, wheels in views(catalogue).items():
        projects: dict[str, list[Wheel]] = defaultdict(list)
        for wheel in wheels:
            projects[str(wheel.name.project)].append(wheel)
        made |= _pair(place, _root(sorted(projects)), _root_json(sorted(projects)))
        for project, own in projects.items():
            links = _links(own, releases)
            page = _project(project, links, place, catalogue.tracks)
            told = _project_json(project, links, place, catalogue.tracks)
            made |= _pair(f"{place}/{project}", page, told)
    table = rows(catalogue)
    made |= about(catalogue, table)
    made["index.html"] = front(catalogue, table, sorted(views(catalogue))).encode()
    return made | {WHICH: joined(), _IIS.name: _IIS.read_bytes()}


def _pair(place: str, page: str, told: Any) -> dict[str, bytes]:
    text = json.dumps(told, indent=1) + "\n"
    return {f"{place}/index.html": page.encode(), f"{place}/index.json": text.encode()}


def _links(wheels: Sequence[Wheel], releases: Mapping[str, tuple[str, bytes]]) -> list[_Link]:
    """The wheels of a project, newest version last, and what tells of their labels."""
    ordered = sorted(wheels, key=lambda one: (one.name.version, one.file))
    links = [_Link(w.file, w.url, w.sha256, w.size, w.uploaded, w) for w in ordered]
    told: dict[str, str] = {}
    for wheel in ordered:
        if wheel.name.label:
            told[json_name(wheel)] = max(wheel.uploaded, told.get(json_name(wheel), ""))
    for name, uploaded in told.items():
        path, data = releases[name]
        sha256 = hashlib.sha256(data).hexdigest()
        links.append(_Link(name, path, sha256, len(data), uploaded))
    return links


def _href(link: _Link, place: str) -> str:
    """From a project's page of ``place``: up to the index and down again, or to elsewhere."""
    if "://" in link.url:
        return link.url
    return "../" * (place.count("/") + 2) + quote(link.url)


def _head(title: str, more: str = "") -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="pypi:repository-version" content="{_VERSION}">{more}'
        f"<title>{escape(title)}</title></head>\n<body>\n"
    )


def _root(projects: Sequence[str]) -> str:
    lines = (f'<a href="{name}/">{name}</a><br>\n' for name in projects)
    return _head("Projects") + "".join(lines) + "</body></html>\n"


def _root_json(projects: Sequence[str]) -> Any:
    return {"meta": {"api-version": _VERSION}, "projects": [{"name": name} for name in projects]}


# Metadata has its newer name alone: pip 22.3 to 23.0.1 takes no wheel that has the older one.
# https://peps.python.org/pep-0714/
def _project(project: str, links: Iterable[_Link], place: str, tracks: str) -> str:
    more = f'<meta name="pypi:tracks" content="{escape(tracks)}{project}/">' if tracks else ""
    text = _head(f"Links for {project}", more) + f"<h1>Links for {project}</h1>\n"
    for link in links:
        about, wheel = "", link.wheel
        if wheel is not None:
            about = f' data-core-metadata="sha256={wheel.metadata_sha256}"'
            if wheel.requires_python:
                about += f' data-requires-python="{escape(wheel.requires_python)}"'
            if wheel.yanked is not None:
                about += f' data-yanked="{escape(wheel.yanked)}"'
        href = f"{_href(link, place)}#sha256={link.sha256}"
        said = f" {escape(smoke_words(wheel))}" if wheel else ""
        text += f'<a href="{escape(href)}"{about}>{escape(link.file)}</a>{said}<br>\n'
    return text + "</body></html>\n"


def _project_json(project: str, links: Sequence[_Link], place: str, tracks: str) -> Any:
    meta: dict[str, Any] = {"api-version": _VERSION}
    if tracks:
        meta["tracks"] = [f"{tracks}{project}/"]
    versions = sorted({link.wheel.name.version for link in links if link.wheel})
    files = []
    for link in links:
        about: dict[str, Any] = {
            "filename": link.file,
            "url": _href(link, place),
            "hashes": {"sha256": link.sha256},
            "size": link.size,
            "upload-time": link.uploaded,
        }
        if (wheel := link.wheel) is not None:
            about["core-metadata"] = {"sha256": wheel.metadata_sha256}
            about["yanked"] = False if wheel.yanked is None else wheel.yanked or True
            if wheel.requires_python:
                about["requires-python"] = wheel.requires_python
            about["_smoke"] = smoke_words(wheel)
        files.append(about)
    return {"meta": meta, "name": project, "versions": list(map(str, versions)), "files": files}
