"""What the site does besides MkDocs: pages from outside of docs, links to files that are no pages.

On GitHub documents link files of the whole repository. In the site such a link leads to the page,
if the file is one; else to the file in the repository that ``DOCS_REPOSITORY`` names, such as
``https://github.com/OWNER/NAME/blob/COMMIT``; without that variable the file is named, and no link.
What is not there at all stays as it is: MkDocs then says so, and the build fails.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element

from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
#: Documents outside of docs -> what their pages are called.
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
_REPOSITORY = re.compile(r"https://[\w.-]+(?:/[\w.-]+){2,}")


class Links(Treeprocessor):
    """Rewrites the links of one page after the other; ``page`` and ``pages`` are set for each."""

    repository = ""
    """Where files of the repository are shown; empty: nowhere."""
    page = ""
    """The page's source, from docs on."""
    pages: Mapping[str, str]
    """Every file of the site: its place in the repository -> its source, from docs on."""

    def run(self, root: Element) -> None:
        """Lead links to where they lead from the site; a head without words heads nothing."""
        for head in root.iter("th"):
            if not (head.text or "").strip() and not len(head):
                head.tag = "td"
        for element in root.iter("a"):
            parts = urlsplit(element.get("href", ""))
            if parts.scheme or parts.netloc or not parts.path:
                continue
            here = next((at for at, src in self.pages.items() if src == self.page), self.page)
            wanted = posixpath.normpath(posixpath.join(posixpath.dirname(here), parts.path))
            found = self.pages.get(wanted) or self.pages.get(f"{wanted}/README.md")
            if found:
                link = posixpath.relpath(found, posixpath.dirname(self.page) or ".")
                element.set("href", f"{link}#{parts.fragment}" if parts.fragment else link)
                if element.text and element.text.endswith(".md") and not len(element):
                    element.text = _title(ROOT / wanted) or element.text
            elif (ROOT / wanted).exists() and not wanted.startswith(".."):
                self._outside(element, wanted, parts.fragment)

    def _outside(self, element: Element, wanted: str, fragment: str) -> None:
        if self.repository:
            link = f"{self.repository}/{wanted}"
            element.set("href", f"{link}#{fragment}" if fragment else link)
        else:
            element.tag = "span"
            del element.attrib["href"]


@cache
def _title(path: Path) -> str:
    """What a page is called, where a link says only its file's name; empty for a folder."""
    found = re.search(r"^# (.+)$", path.read_text("utf-8"), re.M) if path.is_file() else None
    return found[1] if found else ""


class _LinksExtension(Extension):
    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - Markdown's name
        # Before MkDocs' own, which looks the links up, and has priority 0.
        LINKS.md = md
        md.treeprocessors.register(LINKS, "links-of-the-repository", 5)


LINKS = Links()


def on_config(config: Any) -> Any:
    """Take the repository from the environment; have links rewritten."""
    said = os.environ.get("DOCS_REPOSITORY", "")
    if said and not _REPOSITORY.fullmatch(said):
        raise PluginError(f"DOCS_REPOSITORY={said}: expected https://HOST/OWNER/NAME/blob/COMMIT")
    LINKS.repository = said
    config.nav = _spread(config.nav)
    # They would name files from the server's root, or nothing.
    config.theme.static_templates -= {"404.html", "sitemap.xml"}
    config.markdown_extensions.append(_LinksExtension())
    return config


def _spread(nav: Any) -> Any:
    """The navigation, in which a folder (``NAME/``) is every page that is in it."""
    if isinstance(nav, str) and nav.endswith("/"):
        there = sorted(path.name for path in (ROOT / "docs" / nav).glob("*.md"))
        return [f"{nav}{name}" for name in sorted(there, key=lambda name: name != "README.md")]
    if isinstance(nav, dict):
        return {title: _spread(below) for title, below in nav.items()}
    return [_spread(one) for one in nav] if isinstance(nav, list) else nav


def on_files(files: Any, config: Any) -> Any:
    """Add the documents from outside of docs."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_post_page(output: str, **_: Any) -> str:
    """Give the search of the theme the name that screen readers say."""
    return output.replace('role="dialog">', 'role="dialog" aria-label="Search">')


def on_page_markdown(markdown: str, page: Any, files: Any, **_: Any) -> str:
    """Tell whose links come next."""
    outside = {page: source for source, page in PAGES.items()}
    LINKS.page = page.file.src_uri
    LINKS.pages = {outside.get(one.src_uri, f"docs/{one.src_uri}"): one.src_uri for one in files}
    return markdown
