"""Generates the pages of an index: a pure function of its catalogue.

PEP 503 (pages), 691 and 700 (JSON), 658 and 714 (metadata files), 592 (yanked), 708 (tracking).
Three kinds of views, each a complete index:

- ``simple/``: only variants, from which the installer chooses; one without support for variants
  finds nothing there, which is better than an incompatible wheel.
- ``cu128/torch2.8/``: the plain wheels of that cell; without torch ``cu128/any-torch/``.
- ``plain/``: all plain wheels, to install one by its full version.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pipelines.publish.index.catalogue import PREVIEW, Catalogue, Wheel, stored_path
from pipelines.publish.index.front import render_main_page, render_project_pages
from pipelines.publish.index.rows import plain_wheel_rows, smoke_words
from pipelines.publish.index.variants import json_name, release_json
from pipelines.publish.which.joining import WHICH, build_which_script
from pipelines.reports.html import jinja_environment

COMBINED = "simple"
#: Configuration for IIS.
_IIS = Path(__file__).with_name("web.config")
_NO_PYTHON = ">=99"
_VERSION = "1.2"  # of the API, with PEP 700 and 708


def index_views(catalogue: Catalogue) -> dict[str, list[Wheel]]:
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
        name: (stored_path(name, hashlib.sha256(data).hexdigest()), data)
        for name, wheels in releases.items()
        for data in [release_json(wheels)]
    }


def render_index_pages(catalogue: Catalogue) -> dict[str, bytes]:
    """Every page by its path."""
    made: dict[str, bytes] = {}
    releases = release_files(catalogue)
    for place, wheels in index_views(catalogue).items():
        projects: dict[str, list[Wheel]] = defaultdict(list)
        for wheel in wheels:
            projects[str(wheel.name.project)].append(wheel)
        names = [{"name": name} for name in sorted(projects)]
        said = [*_notices(catalogue, place)]
        meta = {"api-version": _VERSION} | ({"_notices": said} if said else {})
        made |= _render_simple_page(place, {"meta": meta, "projects": names})
        for project, own in projects.items():
            data = _project_page_data(project, own, releases, place, catalogue.tracks)
            data["meta"] |= meta
            made |= _render_simple_page(f"{place}/{project}", data)
    table = plain_wheel_rows(catalogue)
    made |= render_project_pages(catalogue, table)
    made["index.html"] = render_main_page(catalogue, table, sorted(index_views(catalogue))).encode()
    return made | {WHICH: build_which_script(), _IIS.name: _IIS.read_bytes()}


def _render_simple_page(place: str, data: dict[str, Any]) -> dict[str, bytes]:
    """A page as HTML and as JSON."""
    html = jinja_environment().get_template("simple.html.j2").render(page=data)
    text = json.dumps(data, indent=1) + "\n"
    return {f"{place}/index.html": html.encode(), f"{place}/index.json": text.encode()}


def _notices(catalogue: Catalogue, place: str) -> Iterator[str]:
    """What people read on the page of an installer, which sees links alone."""
    if catalogue.preview:
        yield f"PREVIEW. Every wheel here is yanked: {PREVIEW}."
    if place == COMBINED:
        yield (
            "pip finds nothing here: this index has wheel variants, which only uv with variant "
            f"support can install. For pip, replace {COMBINED}/ in the address with plain/, or "
            "with the directory for your CUDA and torch, as listed on the front page."
        )


def _project_page_data(
    project: str,
    wheels: Sequence[Wheel],
    releases: Mapping[str, tuple[str, bytes]],
    place: str,
    tracks: str,
) -> dict[str, Any]:
    """A project's wheels, newest version last, and the descriptions of their labels, as JSON."""
    up = "../" * (place.count("/") + 2)
    files: list[dict[str, Any]] = []
    uploaded: dict[str, str] = {}
    for wheel in sorted(wheels, key=lambda wheel: (wheel.name.version, wheel.file)):
        url = wheel.url if "://" in wheel.url else up + quote(wheel.url)
        about = _simple_file_entry(wheel.file, url, wheel.sha256, wheel.size, wheel.uploaded)
        about["core-metadata"] = {"sha256": wheel.metadata_sha256}
        about["yanked"] = False if wheel.yanked is None else wheel.yanked or True
        # A yanked wheel is still taken by ==; one for no Python is not.
        if required := _NO_PYTHON if wheel.yanked == PREVIEW else wheel.requires_python:
            about["requires-python"] = required
        files.append(about | {"_smoke": smoke_words(wheel)})
        if wheel.name.label:
            name = json_name(wheel)
            uploaded[name] = max(wheel.uploaded, uploaded.get(name, ""))
    for name, when in uploaded.items():
        path, data = releases[name]
        hashed = hashlib.sha256(data).hexdigest()
        files.append(_simple_file_entry(name, up + quote(path), hashed, len(data), when))
    meta: dict[str, Any] = {"api-version": _VERSION}
    if tracks:
        meta["tracks"] = [f"{tracks}{project}/"]
    versions = map(str, sorted({wheel.name.version for wheel in wheels}))
    return {"meta": meta, "name": project, "versions": [*versions], "files": files}


def _simple_file_entry(
    name: str, url: str, sha256: str, size: int, uploaded: str
) -> dict[str, Any]:
    return {
        "filename": name,
        "url": url,
        "hashes": {"sha256": sha256},
        "size": size,
        "upload-time": uploaded,
    }
