"""The documents as a site: built from a copy with mistakes, then seen in a Chromium.

Needs scripts/build-docs, once, and scripts/setup-browser. With ``REPORT_SHOTS=DIR`` the screenshots
are kept: 1280 and 390 pixels wide, light and dark.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
#: One of each kind: tables, long code, pictures, generated ones.
PAGES = (
    "index.html",
    "start/package.html",
    "comparison.html",
    "hosts/github-actions.html",
    "reference/commands/build.html",
    "reference/failures.html",
    "reference/matrix.html",
)
SOURCES = ("mkdocs.yml", "requirements-docs.lock", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")


@pytest.fixture(scope="module")
def tools() -> Path:
    """The environment that scripts/build-docs makes."""
    made = ROOT / ".venv-docs"
    if not [*made.glob(".installed-*")]:
        pytest.skip("scripts/build-docs has not been run")
    return made


@pytest.fixture
def copy(tools: Path, tmp_path: Path) -> Path:
    """The documents, to be changed."""
    for name in SOURCES:
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    for name in ("pipelines", "tests", "images"):  # which documents link
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv-docs").symlink_to(tools)
    return tmp_path


def build(root: Path, **variables: str) -> tuple[int, str]:
    done = subprocess.run(
        [root / "scripts/build-docs"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | variables,
    )
    return done.returncode, done.stdout + done.stderr


def append(path: Path, text: str) -> None:
    path.write_text(f"{path.read_text('utf-8')}\n\n{text}\n", "utf-8")


def test_a_copy_is_built_and_links_the_repository(copy: Path) -> None:
    code, said = build(copy)
    assert code == 0, said
    assert "ok      build/site" in said
    page = (copy / "build/site/reproducible.html").read_text("utf-8")
    assert "<span>reproducible.yaml</span>" in page
    page = (copy / "build/site/use.html").read_text("utf-8")
    assert '<a href="shards.html">Splitting a build into shards</a>' in page  # shards.md on GitHub
    code, said = build(copy, DOCS_REPOSITORY="https://git.example.org/a/b/blob/0123abc")
    assert code == 0, said
    page = (copy / "build/site/reproducible.html").read_text("utf-8")
    assert "https://git.example.org/a/b/blob/0123abc/pipelines/recipe/reproducible.yaml" in page
    code, said = build(copy, DOCS_REPOSITORY="javascript:alert(1)")
    assert code != 0
    assert "DOCS_REPOSITORY=javascript:alert(1): expected https://" in said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[gone](gone.md)", "gone.md"),
        ("[no such part](recipes.md#no-such-part)", "no-such-part"),
        ("[not in the repository](../pipelines/none.py)", "none.py"),
        ("![gone](gone.png)", "gone.png"),
        ("[root](/recipes.md)", "recipes.md"),
        ('<script src="https://cdn.example.org/x.js"></script>', "is loaded from another host"),
        ("[plain](http://example.org/)", "no https address"),
        ("Words:\n- no list", "no Markdown any more"),
    ],
)
def test_a_mistake_ends_the_build_and_keeps_what_is_there(copy: Path, text: str, says: str) -> None:
    before = copy / "build/site/index.html"
    before.parent.mkdir(parents=True)
    before.write_text("of before")
    append(copy / "docs/use.md", text)
    code, said = build(copy)
    assert code != 0
    assert says in said
    assert before.read_text() == "of before"


def test_a_page_without_a_place_is_refused(copy: Path) -> None:
    (copy / "docs/more.md").write_text("# More\n")
    code, said = build(copy)
    assert code != 0
    assert "more.md" in said


@pytest.fixture(scope="module")
def seen(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What Chromium found: every page in both themes and widths, and a search from two places."""
    browser = (
        os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    )
    if not (HERE / "node_modules" / "axe-core").is_dir() or browser is None:
        pytest.skip("scripts/setup-browser has not been run, or there is no Chromium")
    site = tmp_path_factory.mktemp("docs") / "site"
    command = [str(ROOT / "scripts/build-docs"), str(site)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    shots = os.environ.get("REPORT_SHOTS", "-")
    command = ["node", "site.mjs", browser, str(site), shots, *PAGES]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    assert len(found["looks"]) == 4 * len(PAGES)
    return found


@pytest.mark.parametrize(
    ("key", "allowed"),
    [("violations", []), ("said", []), ("elsewhere", []), ("overflow", 0), ("pictures", 0)],
)
def test_every_page(seen: dict[str, Any], key: str, allowed: Any) -> None:
    wrong = [
        (one["path"], one["colorScheme"], one["width"], one[key])
        for one in seen["looks"]
        if one[key] != allowed
    ]
    assert not wrong


def test_colours_are_the_readers_and_axe_had_something_to_say(seen: dict[str, Any]) -> None:
    assert {(one["colorScheme"], one["scheme"]) for one in seen["looks"]} == {
        ("light", "default"),
        ("dark", "slate"),
    }
    assert all(one["rules"] > 25 for one in seen["looks"])


@pytest.mark.parametrize("place", ["file", "under"])
def test_search_finds_a_failure(seen: dict[str, Any], place: str) -> None:
    """As files, where browsers start no workers, and on a server below another path."""
    (found,) = [one for one in seen["searches"] if one["place"] == place]
    assert found["anchor"].startswith("oom-edg")
    assert found["results"] > 0
    assert found["home"] == "Welcome - Windows CUDA wheels"
    assert (found["said"], found["elsewhere"]) == ([], [])
