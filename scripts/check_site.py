"""Looks at a site that was built: every link, anchor and picture, and what a page loads.

    python scripts/check_site.py DIRECTORY

Within the site a link must lead to a file that is there, and to an anchor of it; nothing may begin
with ``/``, for the site is also opened as files and lies below other paths. What a page loads comes
from the site. Of links to elsewhere only the form is looked at: nothing is asked of any server.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: What a page loads by itself, by element -> attribute; of ``link`` that is by its relation.
_LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src"}
_RELATIONS = {"stylesheet", "icon", "preload", "modulepreload", "manifest"}
_RELATIONS |= {"preconnect", "dns-prefetch", "prefetch"}
_HOST = re.compile(r"[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,}", re.IGNORECASE)
_IN_CSS = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")
#: Pages that lie there are kept as a run has left them, without the files that they link.
_DOCS = Path(__file__).resolve().parents[1] / "docs"
#: Markdown that became text: a list without an empty line before it, a table, a fence, a link.
_UNMADE = re.compile(r"^(?:[-*] \S|\d+\. \S|```|\|.*\|$)|\]\(\S+\)", re.MULTILINE)


@dataclass
class Page:
    """What one page has, as its HTML says."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    """Its paragraphs, without code."""
    problems: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self.paragraph = ""
        self.depth = Counter[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        if found := has.get("id"):
            self.page.ids.add(found)
        if tag == "a" and "href" in has:
            self.page.links.append(has["href"])
        if tag in _LOADED and has.get(_LOADED[tag]):
            self.page.loaded.append(has[_LOADED[tag]])
        if tag == "link" and _RELATIONS & {*has.get("rel", "").split()}:
            self.page.loaded.append(has.get("href", ""))
        if tag == "img" and "alt" not in has:
            self.page.problems.append(f"a picture without words: {has.get('src')}")
        if tag in ("p", "code"):
            self.depth[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        if tag in ("p", "code"):
            self.depth[tag] -= 1
        if tag == "p":
            self.page.texts.append(self.paragraph)
            self.paragraph = ""

    def handle_data(self, data: str) -> None:
        if self.depth["p"] > 0 and self.depth["code"] < 1:
            self.paragraph += data


def read(path: Path) -> Page:
    """The links, anchors and texts of a page."""
    reader = _Reader()
    reader.feed(path.read_text("utf-8"))
    return reader.page


def check(root: Path) -> tuple[Counter[str], list[str]]:
    """How much was looked at, by kind, and what is wrong, as ``page: what``."""
    pages = {path.relative_to(root).as_posix(): read(path) for path in sorted(root.rglob("*.html"))}
    seen, wrong = Counter(pages=len(pages)), []
    if not pages:
        return seen, [f"{root}: no page is there"]
    for name, page in pages.items():
        said = list(page.problems)
        kept = (_DOCS / name).is_file()
        seen["kept as they are"] += kept
        for link in () if kept else page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                seen["links to elsewhere"] += 1
                said += _form(link)
            else:
                seen["links"] += 1
                seen["anchors"] += bool(parts.fragment)
                said += _inside(root, name, link, pages)
        for link in page.loaded:
            seen["files that pages load"] += 1
            said += _inside(root, name, link, pages)
        said += [
            f"no Markdown any more: {found[0]}"
            for text in page.texts
            if (found := _UNMADE.search(text))
        ]
        wrong += [f"{name}: {one}" for one in said]
    for path in sorted(root.rglob("*.css")):
        for found in _IN_CSS.findall(path.read_text("utf-8")):
            link = found[0] or found[1]
            if not link.startswith(("data:", "#")):
                place = path.relative_to(root).as_posix()
                wrong += [f"{place}: {one}" for one in _inside(root, place, link, pages)]
    return seen, wrong


def _inside(root: Path, page: str, link: str, pages: dict[str, Page]) -> list[str]:
    """What is wrong with a link that must lead to a place of the site."""
    parts = urlsplit(link)
    if parts.scheme == "data":
        return []
    if parts.scheme or parts.netloc:
        return [f"is loaded from another host: {link}"]
    if parts.path.startswith("/"):
        return [f"leads to the server's root, where the site need not be: {link}"]
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(parts.path)))
    target = page if not parts.path else path
    if target.startswith("..") or not (root / target).is_file():
        return [f"leads to no file of the site: {link}"]
    if parts.fragment and target in pages:
        anchor = unquote(parts.fragment)
        if anchor not in pages[target].ids and not anchor.startswith("__"):
            return [f"leads to no anchor of {target}: {link}"]
    return []


def _form(link: str) -> list[str]:
    """What is wrong with the address of another place."""
    parts = urlsplit(link)
    if parts.scheme != "https":
        return [f"no https address: {link}"]
    if not _HOST.fullmatch(parts.netloc) or re.search(r"[\s<>\"{}|\\^`]", link):
        return [f"no address: {link}"]
    return []


def main(words: list[str]) -> int:
    """Print what was looked at and what is wrong; 1 if anything is."""
    if len(words) != 1 or not Path(words[0]).is_dir():
        print("check_site: the directory of a site is expected", file=sys.stderr)
        return 2
    seen, wrong = check(Path(words[0]))
    for one in wrong:
        print(f"FAILED  {one}")
    counts = ", ".join(f"{number} {what}" for what, number in seen.items())
    print(f"{'FAILED' if wrong else 'ok'}      {words[0]}: {counts}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
