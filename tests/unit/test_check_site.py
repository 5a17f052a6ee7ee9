"""``scripts/check_site.py``: what is wrong in a site is found, and what is right is counted."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PAGE = '<html><body><h1 id="top">T</h1><p>Words.</p>{}</body></html>'


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_site", ROOT / "scripts/check_site.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules["check_site"] = made  # dataclasses look their module up
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "a b").mkdir()
    (tmp_path / "x.png").write_bytes(b"")
    (tmp_path / "style.css").write_text("b { background: url(x.png); c: url(data:image/png;x) }")
    (tmp_path / "index.html").write_text(
        PAGE.format(
            '<link rel="stylesheet" href="style.css"><img src="x.png" alt="x">'
            '<a href="a%20b/two.html#top">two</a><a href="https://example.org/a?b#c">out</a>'
            '<a href="#top">up</a><a href="#__skip">theme</a><p><code>- code</code></p>'
        )
    )
    (tmp_path / "a b/two.html").write_text(PAGE.format('<a href="../index.html">home</a>'))
    return tmp_path


def test_what_is_right_is_counted(checker: ModuleType, site: Path) -> None:
    seen, wrong = checker.check(site)
    assert wrong == []
    assert dict(seen) == {
        "pages": 2,
        "kept as they are": 0,
        "links": 4,
        "anchors": 3,
        "links to elsewhere": 1,
        "files that pages load": 2,
    }


@pytest.mark.parametrize(
    ("html", "says"),
    [
        ('<a href="three.html">3</a>', "leads to no file of the site: three.html"),
        ('<a href="a b">a folder</a>', "leads to no file of the site: a b"),
        ('<a href="../index.html">above</a>', "leads to no file of the site: ../index.html"),
        ('<a href="a%20b/two.html#end">2</a>', "leads to no anchor of a b/two.html"),
        ('<a href="#end">here</a>', "leads to no anchor of index.html: #end"),
        ('<a href="/index.html">root</a>', "leads to the server's root"),
        ('<a href="//example.org/">no scheme</a>', "no https address"),
        ('<a href="http://example.org/">plain</a>', "no https address"),
        ('<a href="javascript:alert(1)">script</a>', "no https address"),
        ('<a href="https://example org/">blank</a>', "no address"),
        ('<a href="https://localhost/">mine</a>', "no address"),
        ('<img src="gone.png" alt="">', "leads to no file of the site: gone.png"),
        ('<img src="x.png">', "a picture without words"),
        ('<img src="https://example.org/x.png" alt="">', "is loaded from another host"),
        ('<script src="//cdn.example.org/x.js"></script>', "is loaded from another host"),
        ('<link rel="preconnect" href="https://fonts.example.org">', "is loaded from another host"),
        ("<p>Words:\n- one\n- two</p>", "no Markdown any more: - o"),
        ("<p>see [this](that.md)</p>", "no Markdown any more: ](that.md)"),
        ("<p>| a | b |\n|-|-|</p>", "no Markdown any more: | a | b |"),
    ],
)
def test_what_is_wrong_is_said(checker: ModuleType, site: Path, html: str, says: str) -> None:
    (site / "index.html").write_text(PAGE.format(html))
    _, wrong = checker.check(site)
    assert len(wrong) == 1
    assert wrong[0].startswith("index.html: ")
    assert says in wrong[0]


def test_a_style_from_elsewhere_is_found(checker: ModuleType, site: Path) -> None:
    (site / "style.css").write_text('@import "https://example.org/a.css"; b { c: url(//d.org/e) }')
    _, wrong = checker.check(site)
    assert len(wrong) == 2
    assert all("is loaded from another host" in one for one in wrong)


def test_a_site_without_pages_is_none(
    checker: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checker.main([str(tmp_path)]) == 1
    assert "no page is there" in capsys.readouterr().out
    assert checker.main([str(tmp_path / "none")]) == 2


def test_the_exit_code_tells(
    checker: ModuleType, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checker.main([str(site)]) == 0
    (site / "x.png").unlink()
    assert checker.main([str(site)]) == 1
    assert "FAILED  index.html: leads to no file of the site: x.png" in capsys.readouterr().out
