"""Lists the files of GitHub releases and Hugging Face repositories, by their public APIs.

https://docs.github.com/en/rest/releases/releases, https://huggingface.co/docs/hub/api. Answers are
untrusted: they come from the API's own host only, and the files from the service's own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TypeVar
from urllib.parse import quote, unquote, urljoin, urlsplit

from pydantic import BaseModel, TypeAdapter, ValidationError

from pipelines.core.hosttext import remember_secret, safe_line
from pipelines.core.model import first_problem
from pipelines.toolchain.indexpage import File, IndexPage, IndexPageError, fetch_limited_response

_PAGES = 100
_FILES = 100_000
_PART = r"[A-Za-z0-9_][\w.-]*"
_GITHUB = re.compile(rf"github:({_PART}/{_PART})", re.ASCII)
_HUGGING_FACE = re.compile(rf"huggingface:(datasets/|spaces/|)({_PART}/{_PART})", re.ASCII)
Kind = TypeVar("Kind")


class _Asset(BaseModel):
    name: str
    size: int
    browser_download_url: str
    digest: str | None = None


class _Release(BaseModel):
    assets: list[_Asset]


class _Lfs(BaseModel):
    oid: str
    size: int


class _Entry(BaseModel):
    type: str
    path: str
    size: int = 0
    lfs: _Lfs | None = None


def is_repository(text: str) -> bool:
    """Whether it names releases on GitHub or a repository on Hugging Face."""
    return text.startswith(("github:", "huggingface:"))


def read_repository(text: str) -> IndexPage:
    """Its files: of every release, or of the branch ``main``; raises :class:`IndexPageError`."""
    if match := _GITHUB.fullmatch(text):
        files = _of_github(match[1])
    elif match := _HUGGING_FACE.fullmatch(text):
        files = _of_hugging_face(match[1], match[2])
    else:
        raise IndexPageError("expected github:OWNER/REPO or huggingface:OWNER/REPO")
    found: dict[str, File] = {}
    for file in files:
        found[file.url] = file
        if len(found) > _FILES:
            raise IndexPageError(f"it has more than {_FILES} files")
    return IndexPage(tuple(found.values()))


def _of_github(repository: str) -> Iterator[File]:
    api = os.environ.get("GITHUB_API_URL") or "https://api.github.com"
    server = os.environ.get("GITHUB_SERVER_URL") or "https://github.com"
    headers = {"Accept": "application/vnd.github+json"}
    if token := os.environ.get("GITHUB_TOKEN"):
        headers["Authorization"] = f"Bearer {remember_secret(token)}"
    for body in _pages(f"{api}/repos/{repository}/releases?per_page=30", headers):
        releases = _parse_api_answer(list[_Release], body)
        for asset in (asset for release in releases for asset in release.assets):
            where = asset.browser_download_url
            if not where.startswith(f"{server}/"):
                raise IndexPageError(f"it offers {safe_line(where, 120)}, on another host")
            name = _repository_file_name(unquote(urlsplit(where).path))
            digest = (asset.digest or "").removeprefix("sha256:") or None
            yield File(name, where, digest, asset.size, label=asset.name)


def _of_hugging_face(kind: str, repository: str) -> Iterator[File]:
    host = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    api = f"{host}/api/{kind or 'models/'}{repository}/tree/main?recursive=true"
    for body in _pages(api, {}):
        for entry in _parse_api_answer(list[_Entry], body):
            if entry.type == "file":
                name = _repository_file_name(f"/{entry.path}")
                where = f"{host}/{kind}{repository}/resolve/main/{quote(entry.path)}"
                size = entry.lfs.size if entry.lfs else entry.size
                sha256 = entry.lfs.oid if entry.lfs else None
                yield File(name, where, sha256, size)


def _repository_file_name(path: str) -> str:
    """The file's name; a path with ``..`` may be that of another repository."""
    if {".", ".."} & {*path.split("/")}:
        raise IndexPageError(f"it has a file {safe_line(path, 120)}")
    return path.rpartition("/")[2]


def _parse_api_answer(kind: type[Kind], body: bytes) -> Kind:
    try:
        return TypeAdapter(kind).validate_json(body)
    except ValidationError as error:
        raise IndexPageError(f"unexpected answer: {first_problem(error)}") from None


def _pages(url: str, headers: dict[str, str]) -> Iterator[bytes]:
    """Each page of an answer; the header ``Link`` of one has the address of the next."""
    host = "{0.scheme}://{0.netloc}/".format(urlsplit(url))
    seen = set[str]()
    while url:
        if url in seen or len(seen) >= _PAGES or not url.startswith(host):
            raise IndexPageError("its pages repeat, continue on another host or have no end")
        seen.add(url)
        body, answer = fetch_limited_response(url, headers, (host,))
        yield body
        following = answer.links.get("next", {}).get("url", "")
        url = following and urljoin(url, following)
