"""The pages of an index for people: its table, what is offered to choose from, the verdicts."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from catalogues import CARDS, HOSTILE, UNTESTED, hostile, large, passed_on, wheel
from indexes import finished, offers_of

from pipelines.core.files import sha256_of
from pipelines.publish.index.catalogue import Catalogue, Wheel
from pipelines.publish.index.pages import render_index_pages
from pipelines.publish.index.publishing import Order, publish_wheels
from pipelines.publish.index.rows import plain_wheel_rows, row_of
from pipelines.publish.index.store import Store
from pipelines.publish.which.texts import is_final_release, version_key


class Tree(HTMLParser):
    """Tags with the names of their attributes, links, and text."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, ...]] = []
        self.values: list[tuple[str, str, str]] = []
        self.text = ""
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, *(name for name, _ in attrs)))
        self.values += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str, name: str) -> list[str]:
        return [value for one, key, value in self.values if (one, key) == (tag, name)]


def pages(*wheels: Wheel) -> dict[str, bytes]:
    return render_index_pages(Catalogue(wheels=wheels))


def people(made: dict[str, bytes]) -> dict[str, bytes]:
    return {path: page for path, page in made.items() if path.startswith(("index.", "about/"))}


def test_each_page_runs_and_loads_nothing_but_its_own() -> None:
    for page in people(pages(wheel(), hostile())).values():
        tree = Tree(page)
        (policy,) = (one for one in tree.all("meta", "content") if "default-src" in one)
        for tag in ("style", "script"):
            (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", page.decode(), re.DOTALL)
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert f"{tag}-src 'sha256-{digest}'" in policy
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy
        assert not [value for _, name, value in tree.values if name in ("src", "srcset", "action")]
        assert tree.all("link", "href") == ["data:,"]


def test_what_a_catalogue_says_stays_text() -> None:
    """A wheel with hostile texts has the same elements as one with harmless ones."""
    harmless = pages(hostile("words"))
    said = 0
    for path, page in pages(hostile()).items():
        if not path.endswith(".html"):
            continue
        one, other = Tree(page), Tree(harmless[path])
        assert one.tags == other.tags, path
        said += one.text.count(HOSTILE)
    assert said > 8


def test_500_wheels_are_less_than_300_kb_and_stand_there_once() -> None:
    catalogue = large(500)
    page = render_index_pages(catalogue)["index.html"]
    assert len(page) < 300_000
    (script,) = re.findall("<script>(.*?)</script>", page.decode(), re.DOTALL)
    for one in catalogue.wheels:
        assert page.count(one.sha256.encode()) == 2  # where it lies, and what pip compares
        assert str(one.name.version) not in script
    assert Tree(page).tags.count(("tr",)) + Tree(page).tags.count(("tr", "class")) == 501


@pytest.mark.parametrize("of", [5, 1])
def test_what_is_said_at_length_stands_on_the_pages_of_projects(of: int) -> None:
    """Wheels that were tested on many cards; every fifth, or each, for a long reason on none."""
    cards = tuple(CARDS.values()) * 3
    why = "it ran on cards that the suite does not know, " * 9
    wheels = []
    for at, one in enumerate(large(500).wheels):
        smoke = passed_on("89") if at % of else {"verdict": "untested", "why": why}
        changes = {"smoke": smoke | {"gpus": cards}, "yanked": one.yanked and why}
        wheels.append(Wheel.model_validate(one.model_dump() | changes))
    made = pages(*wheels)
    front, about = made["index.html"].decode(), made["about/flash-attn.html"].decode()
    assert len(made["index.html"]) < 310_000
    assert f"UNTESTED: {why[:70]}" in front
    assert why not in front
    assert why in about
    assert (f"tested on {cards[0]} and 8 more, 412 cases passed" in front) == (of > 1)
    assert (", ".join(cards) in about) == (of > 1)


def test_the_one_that_is_taken_first_stands_first() -> None:
    wheels = [
        wheel(version="2.8.3"),
        wheel(version="2.10.0"),
        wheel(version="2.9.0rc1"),
        wheel("apex", "0.1"),
        wheel(version="2.10.0", uploaded="2026-11-22T10:15:00Z", tag="cp311-cp311-win_amd64"),
        wheel(version="2.10.0", tag="cp313-cp313-win_amd64"),
    ]
    found = [
        (row.project, row.version, row.pythons)
        for row in plain_wheel_rows(Catalogue(wheels=tuple(wheels)))
    ]
    local = "+cu128torch2.8"
    assert found == [
        ("apex", f"0.1{local}", "3.12"),
        ("flash-attn", f"2.10.0{local}", "3.11"),
        ("flash-attn", f"2.10.0{local}", "3.13"),
        ("flash-attn", f"2.10.0{local}", "3.12"),
        ("flash-attn", f"2.8.3{local}", "3.12"),
        ("flash-attn", f"2.9.0rc1{local}", "3.12"),
    ]


VERSIONS = ["1.0", "1.0.dev1", "1.0a1", "1.0rc1", "1.0.post1", "1.0+cu128", "1.0+cu130", "1!0.1"]
VERSIONS += ["1.0.1", "1.10", "1.9", "1.0+cu128.2", "1.0+8", "1.0a1.dev2", "1.0.post1.dev1"]


def test_versions_stand_in_the_order_in_which_they_are_taken() -> None:
    """The page's script takes the first that fits, ``which`` compares: both mean one order."""
    wheels = [wheel("many", file=f"many-{one}-py3-none-any.whl") for one in VERSIONS]
    catalogue = Catalogue(wheels=tuple(wheels))
    ranked = sorted(
        VERSIONS, key=lambda one: (is_final_release(one), version_key(one)), reverse=True
    )
    assert [row.version for row in plain_wheel_rows(catalogue)] == ranked


@pytest.mark.parametrize(
    ("tag", "required", "said"),
    [
        ("cp312-cp312-win_amd64", ">=3.9", "3.12"),
        ("cp312-cp312-win_amd64", "<3.12", "none"),
        ("cp312-cp312-win_amd64", '"><script>', "none"),
        ("cp313-cp313t-win_amd64", "", "3.13t"),
        ("cp39-abi3-win_amd64", ">=3.9", "3.9+"),
        ("cp39-abi3-win_amd64", ">=3.10,<3.14", "3.10-3.13"),
        ("cp39-abi3-win_amd64", ">=3.9,!=3.11.*", "3.9-3.10, 3.12+"),
        ("cp310.cp312-cp310.cp312-win_amd64", "", "3.10, 3.12"),
        ("cp311-none-win_amd64", "", "3.11, 3.11t"),
        ("py3-none-any", ">=3.10", "3.10+, 3.10t+"),
        ("py2.py3-none-any", ">=3.10", "3.10+, 3.10t+"),
        ("pp310-pypy310_pp73-win_amd64", "", "none"),
        ("cp310-cp310-win_amd64", ">=3.10.4", "3.10"),  # a patch release is not asked for here
        ("cp39-abi3-win_amd64", ">3.9,<3.11.2", "3.9-3.11"),
    ],
)
def test_the_pythons_of_a_wheel(tag: str, required: str, said: str) -> None:
    assert row_of(wheel(tag=tag, requires_python=required)).pythons == said


def test_what_is_offered_is_what_the_index_holds() -> None:
    page = pages(
        wheel(),
        wheel("apex", cuda="13.0", torch="2.10", tag="cp39-abi3-win_amd64", ptx=("120",)),
        wheel("any-os", tag="py3-none-any", torch="", sass=("88",)),
    )["index.html"].decode()

    def offered(ident: str) -> list[str]:
        (found,) = re.findall(rf'id="{ident}".*?</(?:select|datalist)>', page, re.DOTALL)
        return re.findall(r"<option(?: value=\"(?:[^\"]*)\")?>([^<]*)", found)

    assert offered("c-package") == ["choose", "any-os", "apex", "flash-attn"]
    assert offered("c-platform") == ["choose", "win_amd64"]
    assert offered("c-python")[:3] == ["choose", "3.9", "3.10"]
    assert offered("c-cuda") == ["choose", "13.0", "12.8", "none: a CPU build"]
    assert '<option value="2.10.0+cu130"><option value="2.8.0+cu128">' in page
    assert {"RTX 50xx (12.0)", "A100 (8.0)", "8.8", "none"} <= set(offered("c-gpu"))


FILES = ("audit.json", "smoke.xml", "manifest.json", "intoto.jsonl")


@pytest.mark.parametrize("there", [FILES, ("audit.json", "manifest.json"), ()])
def test_what_was_not_shown_is_said(there: tuple[str, ...]) -> None:
    one = wheel(attached=dict.fromkeys(there, "ab" * 32))
    tree = Tree(pages(one)["about/flash-attn.html"])
    links = tree.all("a", "href")
    for kind in FILES:
        name = kind if kind == "manifest.json" else f"{one.file}.{kind}"
        place = f"../files/ab/{'ab' * 32}/{name.replace('+', '%2B')}"
        assert (place in links) == (kind in there)
        assert (f"{kind}: none" in tree.text) == (kind not in there)
    assert ("wcw verify" in tree.text) == ("intoto.jsonl" in there)
    assert ("wcw rebuild" in tree.text) == ("manifest.json" in there)
    assert "not reported" in tree.text


def test_every_verdict_is_told() -> None:
    again: dict[str, Any] = {"run": "second-party", "evidence": "R: run on real Windows"}
    again["when"] = "2026-11-22T10:15:00Z"
    good = wheel(rebuilt=[again | {"verdict": "identical"}, again | {"verdict": "different"}])
    bad = wheel(version="2.8.4", smoke=UNTESTED, yanked="", toolset="", stable=True)
    made = pages(good, bad)
    about, front = Tree(made["about/flash-attn.html"]), Tree(made["index.html"])
    for said in (
        "31 checks, all passed",
        "412 cases passed on NVIDIA GeForce RTX 4090 (8.9)",
        "R: run on real Windows",
        "MSVC 14.44.35207",
        "identical, 2026-11-22",
        "different, 2026-11-22",
        good.sha256,
        f"UNTESTED: {UNTESTED['why']}",
        "Yanked, do not use it any more: no reason given",
        "not recorded",
        "and later",
    ):
        assert said in about.text, said
    assert "yanked: no reason given" in front.text
    assert "R: run on real Windows" in front.text
    assert f"UNTESTED: {UNTESTED['why']}" in front.text
    assert "1 of them has not passed on a GPU for which it has machine code" in front.text
    linked = [one.rpartition("#")[2] for one in front.all("a", "href") if one.startswith("about/")]
    assert set(linked) <= set(about.all("article", "id"))
    assert len(linked) == 2


def test_a_wheel_more_changes_its_projects_page_alone() -> None:
    before = pages(wheel(), wheel("apex"))
    after = pages(wheel(), wheel("apex"), wheel("apex", "3.0"))
    changed = {path for path, page in people(after).items() if before.get(path) != page}
    assert changed == {"index.html", "about/apex.html"}


def test_an_empty_index_has_a_page() -> None:
    text = Tree(pages()["index.html"]).text
    assert "No wheels yet" in text
    assert "audited" not in text


def test_every_link_leads_to_a_file_and_a_place_in_it(tmp_path: Path) -> None:
    """Of an index as it is published, whose names have letters that addresses write otherwise."""
    out = tmp_path / "out"
    runs = [
        finished(out),
        finished(out, version="1!2.0", tested_on=""),
        finished(out, name="other_pkg", torch="2.9", cuda="13.0"),
    ]
    root = tmp_path / "an index"
    publish_wheels(Store(str(root)), Order(offers_of(runs, untested=True)), say=lambda _: None)
    trees = {path.relative_to(root): Tree(path.read_bytes()) for path in root.rglob("*.html")}
    followed = set()
    for path, tree in trees.items():
        for href in tree.all("a", "href"):
            parts = urlsplit(urljoin(f"https://h/{path.as_posix()}", href))
            target = Path(unquote(parts.path.lstrip("/")))
            target = target / "index.html" if parts.path.endswith("/") else target
            assert (root / target).is_file(), (path, href)
            if parts.fragment.startswith("sha256="):
                assert parts.fragment == f"sha256={sha256_of(root / target)}"
            elif parts.fragment:
                linked = trees[target]
                assert parts.fragment in {v for _, name, v in linked.values if name == "id"}
            followed.add(target)
    assert set(trees) - followed == set(), "a page that none leads to"
    files = {path.relative_to(root) for path in (root / "files").rglob("*") if path.is_file()}
    assert {one.suffix for one in files - followed} == {".metadata"}  # installers ask for these


def test_wheels_elsewhere_are_linked_there_and_keep_their_hash() -> None:
    url = "https://github.com/owner/wheels/releases/download/v1/flash_attn-2.8.3%2Bcu128.whl"
    one = wheel(url=url)
    for page in people(pages(one)).values():
        assert f"{url}#sha256={one.sha256}" in Tree(page).all("a", "href")
