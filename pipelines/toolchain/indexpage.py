"""Reads a page of a simple index (PEP 503, PEP 691) or of links to wheels, with bounds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urljoin, urlsplit

from packaging.utils import canonicalize_name
from pydantic import BaseModel, Field

from pipelines.toolchain import sources

if TYPE_CHECKING:
    import requests

_LARGEST = 16 << 20  # bytes: a project with thousands of files has 2 MB
_LINKS = 100_000
_TAGS = 4 * _LINKS
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_TAG = re.compile(r"""</?[A-Za-z](?:[^<>"']|"[^"<]*"|'[^'<]*'){0,8192}>""")
_TEXT = 300  # characters of a link
#: As pip reads it: behind other words as well.
_SHA256 = re.compile(r"(?:^|&)sha256=([^&]*)", re.IGNORECASE)
_JSON = "application/vnd.pypi.simple.v1+json"
_ACCEPT = f"{_JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"


@dataclass(frozen=True)
class File:
    """A file on a page, as the page has it."""

    name: str
    url: str
    sha256: str | None = None
    size: int | None = None
    yanked: bool = False
    label: str = ""
    """The text of its link."""


@dataclass(frozen=True)
class IndexPage:
    """What is on a page: files, and addresses of other pages."""

    files: tuple[File, ...] = ()
    projects: tuple[str, ...] = ()
    ended: bool = True
    """Whether the HTML has its end tag; a page that was cut off does not."""


class IndexPageError(Exception):
    """Why a page cannot be read; its text has no address."""

    def __init__(self, why: str, status: int = 0) -> None:
        super().__init__(why)
        self.status = status


def read_index(url: str, *, insecure: bool = False) -> IndexPage:
    """Read one page; raises :class:`IndexPageError`. ``insecure`` allows an address without TLS."""
    allowed = ("",) if insecure else sources.SECURE
    body, answer = fetch_limited_response(url, {"Accept": _ACCEPT}, allowed)
    kind, _, rest = answer.headers.get("Content-Type", "text/html").partition(";")
    charset = rest.partition("charset=")[2].strip(' "')
    try:
        if kind.strip().lower() in (_JSON, "application/json"):
            return parse_json(json.loads(body), answer.url)
        return parse_html(body.decode(charset or "utf-8", "replace"), answer.url)
    except IndexPageError:  # links left out would not even be counted
        raise
    except Exception as error:  # parsers of hostile input fail in many ways
        raise IndexPageError(f"not an index page: {type(error).__name__}") from None


def read_project(index: str, project: str, *, insecure: bool = False) -> IndexPage | None:
    """The page of ``project`` in an index; ``None`` if it has none."""
    try:
        url = f"{index.rstrip('/')}/{canonicalize_name(project)}/"
        return read_index(url, insecure=insecure)
    except IndexPageError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise


def fetch_limited_response(
    url: str, headers: dict[str, str], allowed: tuple[str, ...]
) -> tuple[bytes, requests.Response]:
    """The bytes of an answer, and its headers; ``allowed`` as in :func:`sources.open_response`."""
    from requests import RequestException

    body = bytearray()
    try:
        with sources.open_response(url, headers, allowed) as answer:
            if not answer.ok:
                raise IndexPageError(f"HTTP status {answer.status_code}", answer.status_code)
            for chunk in sources.iter_response_body(answer):
                body += chunk
                if len(body) > _LARGEST:
                    raise IndexPageError(f"it has more than {_LARGEST >> 20} MiB")
            return bytes(body), answer
    except sources.RedirectError as error:
        raise IndexPageError(error.message) from None
    except RequestException as error:  # its text has the address, passwords included
        raise IndexPageError(f"it cannot be fetched: {type(error).__name__}") from None


def _too_many() -> IndexPageError:
    return IndexPageError(f"it has more than {_LINKS} links")


class _Meta(BaseModel):
    version: str = Field(alias="api-version", pattern=r"^1\.\d+$")


class _Row(BaseModel):
    filename: str
    url: str
    hashes: dict[str, str] = {}
    size: int | None = None
    yanked: bool | str = False


class _Project(BaseModel):
    name: str


class _Answer(BaseModel):
    """A page in JSON.

    https://packaging.python.org/en/latest/specifications/simple-repository-api/
    """

    meta: _Meta
    files: list[_Row] | None = None
    projects: list[_Project] | None = None


def parse_json(data: Any, place: str) -> IndexPage:
    """A project's page, or the list of projects."""
    answer = _Answer.model_validate(data)
    if max(len(answer.files or ()), len(answer.projects or ())) > _LINKS:
        raise _too_many()
    if answer.files is None:
        if answer.projects is None:
            raise ValueError("neither files nor projects")
        return IndexPage(projects=tuple(urljoin(place, f"{x.name}/") for x in answer.projects))
    files = (
        File(
            row.filename,
            urljoin(place, row.url),
            row.hashes.get("sha256"),
            row.size,
            row.yanked is not False,
        )
        for row in answer.files
    )
    return IndexPage(tuple(files))


def _escape_stray_brackets(text: str) -> Iterator[str]:
    """The page without comments, and without ``<`` outside complete tags.

    For every stray ``<`` and every unclosed comment ``HTMLParser`` scans the whole rest of the
    page: 60 KB took minutes. https://github.com/python/cpython/issues/135462
    """
    text = _COMMENT.sub("", text)
    end = 0
    for number, tag in enumerate(_TAG.finditer(text)):
        if number > _TAGS:
            raise _too_many()
        yield text[end : tag.start()].replace("<", "&lt;") + tag[0]
        end = tag.end()
    yield text[end:].replace("<", "&lt;")


class _Links(HTMLParser):
    """Links with their texts; a parser that builds a tree takes a gigabyte for a page of 16 MB."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.base = place
        self.found: list[tuple[str, str, bool]] = []
        self.ended = False
        self._open = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = dict(attrs)
        href = own.get("href")
        if tag == "base" and href and not self.found:
            self.base = urljoin(self.base, href)
        self._open = tag == "a" and href is not None
        if self._open:
            if len(self.found) >= _LINKS:
                raise _too_many()
            self.found.append((urljoin(self.base, href or ""), "", "data-yanked" in own))

    def handle_endtag(self, tag: str) -> None:
        self._open = self._open and tag != "a"
        self.ended = self.ended or tag == "html"

    def handle_data(self, data: str) -> None:
        if self._open:
            url, text, yanked = self.found[-1]
            self.found[-1] = (url, (text + data)[:_TEXT], yanked)


def parse_html(text: str, place: str) -> IndexPage:
    """Its links: those below its own directory without a file name are other pages."""
    reader = _Links(place)
    reader.feed("".join(_escape_stray_brackets(text)))
    reader.close()
    files = []
    here = urljoin(place, ".")
    projects: dict[str, None] = {}
    for link, label, yanked in reader.found:
        url, _, fragment = link.partition("#")
        name = unquote(urlsplit(url).path).rpartition("/")[2]
        if name:
            stated = _SHA256.search(fragment)
            files.append(File(name, url, stated and stated[1], None, yanked, label.strip()))
        elif url.startswith(here) and url not in (here, place):
            projects[url] = None
    return IndexPage(tuple(files), tuple(projects), reader.ended)
