"""The wheels that a page of an index or a repository offers, and what is wrong with them.

A page is fetched and parsed in a separate process with a time limit: a few megabytes of HTML or
JSON can keep a parser busy for hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.core.errors import ConfigError
from pipelines.core.hosttext import safe_line, shown_url
from pipelines.core.workers import DiedError, TimedOutError, run_isolated
from pipelines.plan.prebuilt.candidates import Offer, stated_sha256
from pipelines.plan.prebuilt.repositories import is_repository, read_repository
from pipelines.toolchain import sources
from pipelines.toolchain.indexpage import File, IndexPage, IndexPageError, read_index

_SECONDS = 120  # of one page
_AT_ONCE = 2
_HINT = "Name a project's page, such as https://HOST/simple/NAME/, a wheel, or NAME==VERSION."


@dataclass(frozen=True)
class Listed:
    """A file on a page, or why it cannot be used."""

    offer: Offer
    yanked: bool = False
    problem: str = ""


def read_pages(urls: Sequence[str]) -> list[IndexPage | ConfigError]:
    """Each of these pages, or why it could not be read."""
    pages: dict[int, IndexPage | ConfigError] = {}
    for number, result in run_isolated(read_page, urls, _AT_ONCE, _SECONDS):
        if isinstance(result, IndexPage | ConfigError):
            pages[number] = result
        else:
            why = f"it cannot be read: {type(result).__name__}"
            if isinstance(result, TimedOutError | DiedError):
                why = f"reading it took more than {_SECONDS} s or ran out of memory"
            pages[number] = _index_page_error(urls[number], why)
    return [pages[number] for number in range(len(urls))]


def read_page(url: str) -> IndexPage:
    """Read one page; raises :class:`ConfigError` for anything else, or if it is too large."""
    try:
        return read_repository(url) if is_repository(url) else read_index(url)
    except IndexPageError as error:
        raise _index_page_error(url, str(error)) from None


def listed_on(file: File) -> Listed:
    """A file of a page, held against what the page states of it."""
    url = file.url.partition("#")[0]
    size = file.size if file.size and 0 < file.size <= sources.LIMIT else None  # or the limit's
    try:
        offer = Offer(file.name, url, stated_sha256(file.name, file.sha256), size)
    except ConfigError as error:
        return Listed(Offer(file.name, url), file.yanked, error.message)
    problem = ""
    if file.label.endswith(".whl") and file.label != file.name:
        label, name = safe_line(file.label, 120), safe_line(file.name, 120)
        problem = f"the page calls it {label}, its address {name}"
    elif not url.startswith("https://"):
        problem = f"its page links to {shown_url(url)}, which is not https"
    return Listed(offer, file.yanked, problem)


def _index_page_error(url: str, why: str) -> ConfigError:
    return ConfigError(f"{shown_url(url)}: {why}", hint=_HINT)
