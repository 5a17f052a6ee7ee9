"""Reads a page of a simple index (PEP 503, PEP 691) or of links to wheels, without trusting it.

It is fetched and parsed in a separate process with a time limit: a few megabytes of HTML or JSON
can keep a parser busy for hours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urljoin, urlsplit

from pipelines.audit.workers import DiedError, TimedOutError, run_isolated
from pipelines.core.errors import ConfigError
from pipelines.core.hosttext import line, secret, shown_url
from pipelines.prebuilt.candidates import Offer, stated_sha256
from pipelines.toolchain import sources

if TYPE_CHECKING:
    import requests

_LARGEST = 16 << 20  # bytes: a project with thousands of files has 2 MB
_LINKS = 100_000
_TAGS = 4 * _LINKS
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_TAG = re.compile(r"""</?[A-Za-z](?:[^<>"']|"[^"<]*"|'[^'<]*'){0,8192}>""")
_TEXT = 300  # characters of a link
_SECONDS = 120  # of one page
_AT_ONCE = 2
_HINT = "Name a project's page, such as https://HOST/simple/NAME/, a wheel, or NAME==VERSION."
#: As pip reads it: behind other words as well.
_SHA256 = re.compile(r"(?:^|&)sha256=([^&]*)", re.IGNORECASE)
_JSON = ("application/vnd.pypi.simple.v1+json", "application/json")


@dataclass(frozen=True)
class Listed:
    """A file on a page, or why it cannot be used."""

    offer: Offer
    yanked: bool = False
    problem: str = ""


@dataclass(frozen=True)
class Page:
    """What is on a page: files, or addresses of other pages."""

    files: tuple[Listed, ...]
    projects: tuple[str, ...] = ()
    below: int = 0
    """How many other pages a page with files links to; these are not read."""
    ended: bool = True
    """Whether the HTML has its end tag; a page that was cut off does not."""


def read_pages(urls: Sequence[str]) -> list[Page | ConfigError]:
    """Each of these pages, or why it could not be read."""
    pages: dict[int, Page | ConfigError] = {}
    for number, result in run_isolated(read_page, urls, _AT_ONCE, _SECONDS):
        if isinstance(result, Page | ConfigError):
            pages[number] = result
        else:
            why = f"it cannot be read: {type(result).__name__}"
            if isinstance(result, TimedOutError | DiedError):
                why = f"reading it took more than {_SECONDS} s or ran out of memory"
            pages[number] = _refused(urls[number], why)
    return [pages[number] for number in range(len(urls))]


def read_page(url: str) -> Page:
    """Read one page; raises :class:`ConfigError` for anything else, or if it is too large."""
    body, kind, charset, place = _fetched(url)
    try:
        if kind in _JSON:
            return _of_json(json.loads(body), place)
        return _of_html(body.decode(charset or "utf-8", "replace"), place)
    except _TooManyError:  # links left out would not even be counted
        raise _refused(url, f"it has more than {_LINKS} links") from None
    except Exception as error:  # parsers of hostile input fail in many ways
        raise _refused(url, f"not an index page: {type(error).__name__}") from None


def _fetched(url: str) -> tuple[bytes, str, str, str]:
    """Its bytes, content type and character set, and its final address."""
    from pypi_simple import ACCEPT_JSON_PREFERRED
    from requests import RequestException

    headers = {"Accept": ACCEPT_JSON_PREFERRED}
    body = bytearray()

    def checked(answer: requests.Response, **_: Any) -> None:
        """Check each redirect before it is followed."""
        target = urljoin(answer.url, client.get_redirect_target(answer) or "")
        secret(urlsplit(target).query)
        if not target.startswith("https://"):
            raise _refused(url, "it redirects to an address without TLS")

    try:
        with (
            sources.session() as client,
            client.get(
                url, headers=headers, stream=True, timeout=(15, 60), hooks={"response": checked}
            ) as answer,
        ):
            if not answer.ok:
                raise _refused(url, f"HTTP status {answer.status_code}")
            for chunk in sources.pieces(answer):
                body += chunk
                if len(body) > _LARGEST:
                    raise _refused(url, f"it has more than {_LARGEST >> 20} MiB")
            kind, _, rest = answer.headers.get("Content-Type", "text/html").partition(";")
            charset = rest.partition("charset=")[2].strip(' "')
            return bytes(body), kind.strip().lower(), charset, answer.url
    except RequestException as error:  # its text has the address, passwords included
        raise _refused(url, f"it cannot be fetched: {type(error).__name__}") from None


class _TooManyError(Exception):
    """Too many links on one page."""


def _of_json(data: Any, place: str) -> Page:
    from pypi_simple import IndexPage, ProjectPage

    if "projects" in data and "files" not in data:
        names = IndexPage.from_json_data(data).projects
        if len(names) > _LINKS:
            raise _TooManyError
        return Page((), tuple(urljoin(place, f"{name}/") for name in names))
    page = ProjectPage.from_json_data(data, place)
    if len(page.packages) > _LINKS:
        raise _TooManyError
    return Page(
        tuple(
            _listed(
                package.filename,
                package.url,
                (package.digests or {}).get("sha256"),
                package.size,
                package.is_yanked,
            )
            for package in page.packages
        )
    )


def _tags(text: str) -> Iterator[str]:
    """The page without comments, and without ``<`` outside complete tags.

    For every stray ``<`` and every unclosed comment ``HTMLParser`` scans the whole rest of the
    page: 60 KB took minutes. https://github.com/python/cpython/issues/135462
    """
    text = _COMMENT.sub("", text)
    end = 0
    for number, tag in enumerate(_TAG.finditer(text)):
        if number > _TAGS:
            raise _TooManyError
        yield text[end : tag.start()].replace("<", "&lt;") + tag[0]
        end = tag.end()
    yield text[end:].replace("<", "&lt;")


class _Links(HTMLParser):
    """Links with their texts; pypi-simple's parser takes a gigabyte for a page of 16 MB."""

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
                raise _TooManyError
            self.found.append((urljoin(self.base, href or ""), "", "data-yanked" in own))

    def handle_endtag(self, tag: str) -> None:
        self._open = self._open and tag != "a"
        self.ended = self.ended or tag == "html"

    def handle_data(self, data: str) -> None:
        if self._open:
            url, text, yanked = self.found[-1]
            self.found[-1] = (url, (text + data)[:_TEXT], yanked)


def _of_html(text: str, place: str) -> Page:
    reader = _Links(place)
    reader.feed("".join(_tags(text)))
    reader.close()
    files = []
    here = urljoin(place, ".")  # its directory: only links below it are followed
    projects: dict[str, None] = {}
    for link, label, yanked in reader.found:
        url, _, fragment = link.partition("#")
        name = unquote(urlsplit(url).path).rpartition("/")[2]
        if name:
            stated = _SHA256.search(fragment)
            listed = _listed(name, url, stated and stated[1], None, yanked)
            if label.strip().endswith(".whl") and label.strip() != name:
                why = f"the page calls it {line(label.strip(), 120)}, its address {line(name, 120)}"
                listed = Listed(listed.offer, yanked, why)
            files.append(listed)
        elif url.startswith(here) and url not in (here, place):
            projects[url] = None
    wheels = any(listed.offer.file.endswith((".whl", ".tar.gz", ".zip")) for listed in files)
    if wheels:
        return Page(tuple(files), below=len(projects), ended=reader.ended)
    return Page(tuple(files), tuple(projects), ended=reader.ended)


def _listed(file: str, url: str, digest: str | None, size: int | None, yanked: bool) -> Listed:
    url = url.partition("#")[0]
    known = size if size and 0 < size <= sources.LIMIT else None  # else the limit applies
    try:
        offer = Offer(file, url, stated_sha256(file, digest), known)
    except ConfigError as error:
        return Listed(Offer(file, url), yanked, error.message)
    if not url.startswith("https://"):
        return Listed(offer, yanked, f"its page links to {shown_url(url)}, which is not https")
    return Listed(offer, yanked)


def _refused(url: str, why: str) -> ConfigError:
    return ConfigError(f"{shown_url(url)}: {why}", hint=_HINT)
