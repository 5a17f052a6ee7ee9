"""Checks a published index as pip, uv, ``which.py`` and a browser see it: hashes every file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote, urljoin

from pipelines.core.errors import AuditError, ConfigError, HostError, StorageError
from pipelines.core.hosttext import safe_line, shown_url
from pipelines.core.units import join_first
from pipelines.publish.index.catalogue import CATALOGUE, MOST, Catalogue, parse_catalogue
from pipelines.publish.index.pages import index_views, release_files, render_index_pages
from pipelines.publish.which.joining import WHICH
from pipelines.toolchain import sources

_AGENTS = {"pip": "pip/26.3", "uv": "uv/0.13.8", "which.py": "which.py", "browser": "Mozilla/5.0"}
_LOCAL = "http://127.0.0.1:"
_OK = 200
_HINT = "Name that of an index with published wheels."


class Problem(NamedTuple):
    """A page or file that a client does not get, or gets wrong."""

    kind: str
    """bytes, status, type, redirect or silent."""
    agent: str
    path: str
    found: str

    def __str__(self) -> str:
        return ": ".join(self)


class Look(NamedTuple):
    """How many pages and files were requested and received, by client."""

    listed: Counter[str]
    fetched: Counter[str]
    problems: list[Problem]

    def require(self) -> None:
        """Raise :class:`AuditError` for other bytes, :class:`StorageError` for what is missing."""
        text = join_first(map(str, self.problems), "\n")
        if any(problem.kind == "bytes" for problem in self.problems):
            raise AuditError(text, hint="Publish again, or find out what changed it.")
        if self.problems or self.listed != self.fetched:
            came = f"{self.fetched.total()} of {self.listed.total()} pages and files received"
            hint = "To set up the server, see docs/publish.md."
            raise StorageError(f"{came}:\n{text}", hint=hint)


def inspect_published_index(address: str) -> Look:
    """Request everything that its catalogue lists.

    Raises :class:`HostError` if it is unreachable, :class:`ConfigError` if it is not an index or
    empty.
    """
    base = address.rstrip("/") + "/"
    if not base.startswith((*sources.SECURE, _LOCAL)):
        raise ConfigError(f"{shown_url(address)}: expected an https address", hint=_HINT)
    seen = Look(Counter(), Counter(), [])
    kind, actual, data = _fetch_published_file(base + CATALOGUE, "which.py", MOST)
    catalogue = Catalogue() if kind else parse_catalogue(data, shown_url(base).rstrip("/"))
    if not catalogue.wheels:
        raise (HostError if kind == "silent" else ConfigError)(
            f"{shown_url(base)}: {kind or 'empty'}: {actual if kind else 'it has no wheels'}",
            hint="Check the network." if kind == "silent" else _HINT,
        )
    for agent, path, expected, size in _iter_expected_downloads(catalogue):
        seen.listed[agent] += 1
        kind, actual, _ = _fetch_published_file(urljoin(base, path), agent, size)
        seen.fetched[agent] += not kind
        if not kind and actual != expected:
            kind, actual = "bytes", f"sha256 {actual}, expected {expected}"
        if kind:
            seen.problems.append(
                Problem(kind, agent, safe_line(path or "the first page", 200), actual)
            )
    return seen


def _iter_expected_downloads(catalogue: Catalogue) -> Iterator[tuple[str, str, str, int]]:
    """Client, path (of a page: with a slash), sha256 and largest size of each file."""
    places = tuple(f"{place}/" for place in index_views(catalogue))
    for path, data in render_index_pages(catalogue).items():
        about, page = (sha256(data).hexdigest(), len(data)), path.removesuffix("index.html")
        if path.startswith(places) and page != path:
            yield from (("pip", page, *about), ("uv", page, *about))
        elif path != "web.config":  # not served by IIS
            yield "which.py" if path == WHICH else "browser", page, *about
    for path, data in release_files(catalogue).values():
        yield "uv", quote(path), sha256(data).hexdigest(), len(data)
    for wheel in catalogue.wheels:
        agent, url = "uv" if wheel.name.label else "pip", quote(wheel.url, safe="/:@!=~%")
        yield agent, url, wheel.sha256, wheel.size
        yield agent, f"{url}.metadata", wheel.metadata_sha256, MOST
        yield from (
            ("browser", quote(wheel.attached_url(k)), v, MOST) for k, v in wheel.attached.items()
        )


def _fetch_published_file(url: str, agent: str, most: int) -> tuple[str, str, bytes]:
    """Kind of problem and reason; or an empty string, the sha256 and the body."""
    import requests

    hashed, size, body = sha256(), 0, bytearray()
    headers = {"User-Agent": _AGENTS[agent], "Accept-Encoding": "identity"}
    try:
        with sources.open_response(url, headers, (*sources.SECURE, _LOCAL)) as answer:
            kind = answer.headers.get("Content-Type", "")
            if answer.status_code != _OK:
                return "status", f"HTTP status {answer.status_code}", b""
            if url.endswith(("/", ".html")) and not kind.startswith("text/html"):
                return "type", f"Content-Type is {safe_line(kind, 100)!r}, expected text/html", b""
            for piece in sources.iter_response_body(answer):
                size += len(piece)
                hashed.update(piece)
                body += piece if most == MOST else b""
                if size > most:
                    break
    except sources.RedirectError as error:
        return "redirect", error.message, b""
    except requests.RequestException as error:  # its text has the address, passwords included
        return "silent", f"cannot be fetched: {type(error).__name__}", b""
    return "", hashed.hexdigest(), bytes(body)
