"""Generates the pages of an index: a pure function of its catalogue.

PEP 503 (pages), 691 and 700 (JSON), 658 and 714 (metadata files), 592 (yanked), 708 (tracking).
Three kinds of views, each a complete index:

- ``simple/``: only variants, of which the installer chooses; one without support for variants finds
  nothing there, which is better than an incompatible wheel.
- ``cu128/torch2.8/``: the plain wheels of that cell; without torch ``cu128/any-torch/``.
- ``plain/``: all plain wheels, to install one by its full version.
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
#: Configuration for IIS.
_IIS = Path(__file__).with_name("web.config")
_VERSION = "1.2"  # of the API, with PEP 700 and 708


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
    """Every view of an index with its wheels."""
    projects: dict[str, list[Wheel]] = defaultdict(list)
    projects[COMBINED], projects["plain"] = [], []
    for wheel in catalogue.wheels:
        if wheel.name.label:
            projects[COMBINED].append(wheel)
            continue
        projects["plain"].append(wheel)
        torch = f"torch{wheel.torch}" if wheel.torch else "any-torch"
        projects[f"cu{wheel.cuda.replace('.', '')}/{torch}"].append(wheel)
    return dict(projects)


def release_files(catalogue: Catalogue) -> dict[str, tuple[str, bytes]]:
    """The ``…-variants.json`` of every release with variants: name -> path and bytes.

    The path contains the hash, so a file that an old page links to never changes.
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
    """Every page by its path."""
    made: dict[str, bytes] = {}
    releases = release_files(catalogue)
    for place, wheels in views(catalogue).items():
        projects: dict[str, list[Wheel]] = defaultdict(list)
        for wheel in wheels:
            projects[str(wheel.name.project)].append(wheel)
        named = {
            "meta": {"api-version": _VERSION},
            "projects": [{"name": n} for n in sorted(projects)],
        }
        made |= _pair(place, _root(sorted(projects)), named)
        for project, own in projects.items():
            links = _links(own, releases)
            page = _project(project, links, place, catalogue.tracks)
            data = _project_json(project, links, place, catalogue.tracks)
            made |= _pair(f"{place}/{project}", page, data)
    table = rows(catalogue)
    made |= about(catalogue, table)
    made["index.html"] = front(catalogue, table, sorted(views(catalogue))).encode()
    return made | {WHICH: joined(), _IIS.name: _IIS.read_bytes()}


def _pair(place: str, page: str, data: Any) -> dict[str, bytes]:
    text = json.dumps(data, indent=1) + "\n"
    return {f"{place}/index.html": page.encode(), f"{place}/index.json": text.encode()}


def _links(wheels: Sequence[Wheel], releases: Mapping[str, tuple[str, bytes]]) -> list[_Link]:
    """Links to a project's wheels, newest version last, and to the descriptions of their labels."""
    ordered = sorted(wheels, key=lambda wheel: (wheel.name.version, wheel.file))
    links = [_Link(w.file, w.url, w.sha256, w.size, w.uploaded, w) for w in ordered]
    files: dict[str, str] = {}
    for wheel in ordered:
        if wheel.name.label:
            files[json_name(wheel)] = max(wheel.uploaded, files.get(json_name(wheel), ""))
    for name, uploaded in files.items():
        path, data = releases[name]
        sha256 = hashlib.sha256(data).hexdigest()
        links.append(_Link(name, path, sha256, len(data), uploaded))
    return links


def _href(link: _Link, place: str) -> str:
    """A link from a project's page in ``place``."""
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


# Only the newer name of the metadata attribute: pip 22.3 to 23.0.1 fails with the older one.
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
        words = f" {escape(smoke_words(wheel))}" if wheel else ""
        text += f'<a href="{escape(href)}"{about}>{escape(link.file)}</a>{words}<br>\n'
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
