"""Pages, summaries and tables: complete, bounded, and deaf to what a host says."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import io
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, unquote_to_bytes, urlsplit

import pytest
import report_samples as samples
from rich.console import Console

from pipelines.core import github
from pipelines.core import units as words
from pipelines.core.evidence import Evidence
from pipelines.core.target import AXES
from pipelines.reports import charts, junit, markdown, terminal
from pipelines.reports import html as pages
from pipelines.reports.load import load_view
from pipelines.reports.suites import junit_suites
from pipelines.reports.views import Failure, RunView
from pipelines.reports.write import write_summary_pages

TAGS = {
    "html",
    "head",
    "meta",
    "link",
    "title",
    "style",
    "body",
    "header",
    "nav",
    "main",
    "footer",
    "section",
    "article",
    "div",
    "span",
    "p",
    "h1",
    "h2",
    "h3",
    "h4",
    "ul",
    "li",
    "dl",
    "dt",
    "dd",
    "a",
    "table",
    "caption",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "details",
    "summary",
    "pre",
    "code",
    "b",
    "mark",
    "strong",
    "svg",
    "g",
    "rect",
    "path",
    "text",
    "desc",
}
VOID = {"meta", "link"}
ATTRIBUTES = {
    "lang",
    "charset",
    "http-equiv",
    "content",
    "name",
    "rel",
    "href",
    "class",
    "id",
    "tabindex",
    "role",
    "scope",
    "open",
    "aria-label",
    "aria-labelledby",
    "aria-hidden",
    "viewbox",
    "d",
    "x",
    "y",
    "width",
    "height",
    "preserveaspectratio",
    "data-label",
    "colspan",
}


class Page(HTMLParser):
    """Every tag, attribute and link of a page; fails on a tag that is not closed in its place."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: set[str] = set()
        self.seen: set[str] = set()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.feed(source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}
        found = dict(attrs)
        if "href" in found:
            self.links.append(str(found["href"]))
        if "id" in found:
            self.ids.append(str(found["id"]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunView]:
    names = ("good", "failed_build", "failed_smoke", "killed", "hostile")
    made = {}
    for name in names:
        made[name] = load_view(getattr(samples, name)(tmp_path_factory.mktemp(name)))
    return made


@pytest.mark.parametrize("name", ["good", "failed_build", "failed_smoke", "killed", "hostile", "*"])
def test_a_page_is_whole_and_inert(views: dict[str, RunView], name: str) -> None:
    source = pages.render(list(views.values()) if name == "*" else [views[name]])
    page = Page(source)
    assert page.seen <= TAGS
    assert page.attributes <= ATTRIBUTES
    assert len(set(page.ids)) == len(page.ids)
    inner = [link[1:] for link in page.links if link.startswith("#")]
    assert set(inner) <= set(page.ids)
    outer = [link for link in page.links if not link.startswith("#")]
    assert all(link.startswith("https://") or link == "data:," for link in outer)
    assert source.count("<style>") == 1


def test_its_policy_allows_its_style_alone(views: dict[str, RunView]) -> None:
    source = pages.render([views["good"]])
    style = source.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', source)
    assert policy is not None
    assert policy[1].startswith(f"default-src 'none'; style-src 'sha256-{digest}';")
    assert "unsafe" not in policy[1]
    assert "<script" not in source
    assert "url(" not in style
    assert "@import" not in style


def test_the_verdict_comes_first(views: dict[str, RunView]) -> None:
    for name, word in (("good", "Passed"), ("failed_build", "Failed"), ("killed", "Unfinished")):
        source = pages.render([views[name]])
        assert f"<title>{word}: flash-attn 2.8.3" in source
        first = source.partition("<h1>")[2].partition("</h1>")[0]
        assert word in first
        assert source.index("<h1>") < source.index('id="matrix"')


def test_a_page_has_all_its_parts(views: dict[str, RunView]) -> None:
    source = pages.render([views["failed_smoke"]])
    for part in (
        "matrix",
        "failures",
        "stages",
        "timeline",
        "figures",
        "smoke",
        "files",
        "provenance",
    ):
        assert f'id="{part}"' in source
    view = views["failed_smoke"]
    keys = source.partition('<dl class="keys">')[2].partition("</dl>")[0]
    assert all(value in keys for value in view.target.values().values())
    assert all(file.sha256 in source for file in view.files)
    assert view.timeline is not None
    assert all(unit.name in source for unit in view.timeline.slowest)
    assert "AssertionError: 0.5" in source
    assert "speed.forward" not in source
    assert "mem_efficient" in source
    assert "busy cores on the host, of 8" in source


def hrefs(page: Path) -> list[str]:
    """Where a page leads to besides itself and the world."""
    found = Page(page.read_text("utf-8")).links
    return [link for link in found if not link.startswith(("#", "https://", "data:"))]


def test_a_page_links_the_files_of_its_run(tmp_path: Path) -> None:
    run = samples.failed_smoke(tmp_path / "über & <b> #1?")
    for name in ("a b%20#?.txt", "javascript:alert(1)", 'x" onclick="y', "\udcff.log"):
        (run.path / name).write_bytes(b"x")
    (run.path / "gone.log").symlink_to("/etc/hostname")
    write_summary_pages([load_view(run)], run.path)
    links = hrefs(run.path / "report.html")
    assert all((run.path / os.fsdecode(unquote_to_bytes(link))).is_file() for link in links)
    assert {urlsplit(link).scheme for link in links} == {""}
    wanted = {"build.log", "smoke.xml", "a%20b%2520%23%3F.txt", "javascript%3Aalert%281%29"}
    assert wanted <= set(links)
    assert "%FF.log" in links
    assert "gone.log" not in links
    assert sum(link.endswith(".whl") for link in links) == 2, "above, and among the files"
    junit.write_junit_file(run.path / "junit.xml", junit_suites(run))
    write_summary_pages([load_view(run)], run.path)
    assert "junit.xml" in hrefs(run.path / "report.html")


def test_a_page_of_many_links_from_where_it_lies(tmp_path: Path) -> None:
    runs = [samples.good(tmp_path / "a b" / "runs"), samples.failed_build(tmp_path / "other")]
    samples.manifest(runs[0])
    next(runs[0].path.glob("wheels/*.whl")).unlink()  # as of an artifact without wheels
    page = write_summary_pages([load_view(run) for run in runs], tmp_path / "a b")
    links = hrefs(page)
    assert f"runs/{runs[0].id}/build.log" in links
    assert f"../other/{runs[1].id}/build.log" in links
    assert not [link for link in links if link.endswith(".whl")]
    assert all((page.parent / unquote(link)).is_file() for link in links)
    assert str(tmp_path) not in page.read_text("utf-8").replace(samples.SAID[0], "")


def test_the_line_that_says_it_is_linked_to_its_log(tmp_path: Path) -> None:
    run = samples.failed_build(tmp_path)
    source = write_summary_pages([load_view(run)], run.path).read_text("utf-8")
    assert '<a href="build.log">build.log</a>, line 60' in source
    assert "<a href" not in pages.render([load_view(run)]).partition("line 60")[0][-200:]


def test_the_bar_of_the_stages_has_a_legend(views: dict[str, RunView]) -> None:
    source = pages.render([views["failed_build"]])
    legend = re.search(r'<ul class="legend" aria-label="([^"]+)">(.*?)</ul>', source)
    assert legend is not None
    assert legend[1] == "Share of the time of each stage, this run"
    bar = source.partition('<svg class="stages"')[2].partition("</svg>")[0]
    colours = re.findall(r'class="(\w+)"', bar)[: legend[2].count("<li>")]
    assert re.findall(r'class="swatch (\w+)"', legend[2]) == colours == ["stage0", "bad"]
    words = re.sub(r"<[^>]+>", "", legend[2])
    assert "provision 14 %" in words
    assert "build failed 86 %" in words


def test_on_a_phone_tables_stack_with_the_verdict_first(views: dict[str, RunView]) -> None:
    source = pages.render(list(views.values()))
    grid = source[source.index('<table class="grid') :].partition("</table>")[0]
    assert 'class="grid stack flow' in grid
    assert grid.count('<td class="status" data-label="Python 3.12">') == 1
    narrow = source.partition("@media (max-width: 560px)")[2].partition("@media")[0]
    assert re.search(r"table\.grid \.status \{ order: -1;", narrow)
    for table in re.findall(r'<table class="([^"]*wide[^"]*)"', source):
        assert "stack" in table.split(), "one that is wider than a phone"


def test_runs_of_one_cell_are_told_apart_in_the_matrix(views: dict[str, RunView]) -> None:
    times = ("2026-11-22T00:19:31+00:00", "2026-11-22T02:00:00+00:00")
    shown = [dataclasses.replace(views["good"], created=one) for one in times]
    grid = pages.render(shown).partition('<table class="grid')[2].partition("</table>")[0]
    assert "11-22 00:19:31" in grid
    assert "11-22 02:00:00" in grid


def test_what_a_host_says_is_text(views: dict[str, RunView]) -> None:
    source = pages.render([views["hostile"]])
    assert "<script>alert" not in source
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in source
    assert "<img" not in source
    assert "49" not in source.partition("{{ 7 * 7 }}")[2][:20]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", source)
    assert "a" * 3000 not in source


def test_the_matrix(tmp_path: Path) -> None:
    made = [load_view(run) for run in samples.matrix(tmp_path, 24)]
    grid = pages.build_run_grid(made)
    assert grid.pythons == ("3.10", "3.11", "3.12", "3.13")
    assert grid.titles == ("Package", "torch", "CUDA", "Architectures")
    others = {"host", "version", "python"}
    assert len({*grid.titles, *others}) == len(AXES), "the recipe is a package"
    assert grid.caption == "Status by package, torch, CUDA, architectures and Python"
    assert [row[0][1:] for row in grid.rows][:2] == [
        ("2.6", "12.6", "80"),
        ("2.6", "12.6", "80;86;89;90"),
    ]
    assert [len(row[1]) for row in grid.rows] == [4] * 6
    places = [n for row in grid.rows for cell in row[1] for n in cell]
    assert sorted(places) == list(range(24))
    source = pages.render(made)
    assert source.count('<article class="cell"') == 24
    assert all(f'href="#run-{n}"' in source for n in range(24))
    tally = [sum(v.verdict == kind for v in made) for kind in ("passed", "unfinished", "failed")]
    assert tally == [20, 1, 3]
    assert "20 of 24 runs passed" in source


def test_versions_are_sorted_as_versions() -> None:
    ordered = sorted(["2.10", "2.9", "", "2.6", "main"], key=pages._version_sort_key)
    assert ordered == ["2.6", "2.9", "2.10", "", "main"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["failed_smoke", "hostile"])
def test_a_hundred_of_the_worst_stay_below_two_megabytes(
    views: dict[str, RunView], name: str
) -> None:
    source = pages.render([views[name]] * 100)
    assert len(source.encode()) < 2_000_000
    assert source.count('<article class="cell"') == 100
    Page(source)


def test_excerpts_keep_the_line_that_says_it(views: dict[str, RunView]) -> None:
    found = views["failed_build"].failures[0].excerpt
    assert found is not None
    for most in (1, 2, 8, 40):
        lines = pages._number_excerpt_lines(found, most)
        assert len(lines) <= most
        assert [n for n, _, marked in lines if marked] == ["60"]


def test_charts_name_themselves(views: dict[str, RunView]) -> None:
    drawn = views["good"].timeline
    assert drawn is not None
    source = str(charts.timeline(drawn, "t0"))
    assert 'role="img" aria-labelledby="t0-t t0-d"' in source
    assert "73 units in 6 lanes" in source
    assert source.count("<rect") == 10
    assert source.count("M") > 63
    small = str(charts.timeline(drawn, "t0", most=20, points=10))
    assert len(small) < len(source) / 2


def test_bars_stay_in_their_box() -> None:
    assert 'width="100"' in str(charts.bar(7.0))
    assert 'width="0"' in str(charts.bar(-1.0))
    assert "mark" not in str(charts.bar(0.5, mark=1.5))
    assert charts.stages([]) == ""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, ""),
        (0.26, "0.3 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (185, "3 min 05 s"),
        (3725, "1 h 02 min"),
    ],
)
def test_seconds(value: float | None, said: str) -> None:
    assert words.format_seconds(value) == said


def test_numbers() -> None:
    assert [words.format_number(n) for n in (0, 0.00012, 1.23456, 31415.9, 1e9)] == [
        "0",
        "0.00012",
        "1.235",
        "31,416",
        "1e+09",
    ]
    assert [words.format_size(n) for n in (0, 1023, 1536, 5 << 40)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 TiB",
    ]


# -- for GitHub ------------------------------------------------------------------------------------


def test_a_summary_tells_the_failure(views: dict[str, RunView]) -> None:
    said = markdown.summary([views["failed_build"]])
    assert said.startswith("## ❌ failed: flash\\-attn 2.8.3")
    assert "cudafe\\-av" in said
    assert "> cudafe++ died with status" in said
    assert "| build | failed | 4 min 20 s |" in said


def test_a_summary_of_many(views: dict[str, RunView]) -> None:
    said = markdown.summary(list(views.values()))
    assert said.startswith("## 1 of 5 runs passed")
    assert said.index("❌ failed |") < said.index("✅ passed |")


@pytest.mark.slow
def test_summaries_are_bounded(views: dict[str, RunView]) -> None:
    said = markdown.summary([views["hostile"]] * 20_000)
    assert len(said.encode()) <= markdown.MOST
    assert said.endswith("the rest is in report.html.)\n")


def test_hostile_text_means_nothing_to_markdown(views: dict[str, RunView]) -> None:
    said = markdown.summary([views["hostile"]])
    outside, fence = [], ""
    for line in said.splitlines():
        mark = re.match(r"`{3,}", line)
        if mark and (not fence or line == fence):
            fence = "" if fence else mark[0]
        elif not fence:
            outside.append(line)
    assert not fence
    text = "\n".join(outside)
    tags = set(re.findall(r"<(/?\w+)", text))
    assert tags <= {"details", "/details", "summary", "/summary"}
    assert "](" not in text
    assert not re.search(r"(?<!\\)@", text)
    assert not [line for line in said.splitlines() if line.startswith(("::", "##["))]


def test_annotations_are_single_commands(views: dict[str, RunView]) -> None:
    for name in ("hostile", "failed_smoke", "failed_build"):
        commands = markdown.error_annotations([views[name]])
        assert 0 < len(commands) <= 10
        for command in commands:
            assert command.startswith("::error ")
            assert "\n" not in command
            assert "\r" not in command
            fields = command.removeprefix("::error ").partition("::")[0]
            assert all(re.fullmatch(r"(file|line|title)=[^:,\n]*", f) for f in fields.split(","))


def test_annotations_point_into_the_repository(views: dict[str, RunView]) -> None:
    (command,) = markdown.error_annotations([views["failed_build"]])
    assert command.startswith("::error file=pipelines/recipes/flash-attn.yaml,title=cp312%2C torch")
    assert markdown.error_annotations([views["failed_build"]], stages=False) == [
        command
    ]  # it has a diagnosis
    (own,) = markdown.error_annotations([views["failed_smoke"]], stages=False)
    assert "test_backward" in own
    assert markdown.error_annotations([views["failed_smoke"]]) == [own]
    assert markdown.error_annotations([views["good"], views["killed"]]) == []


# -- in a terminal ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ci", [False, True])
def test_terminal(views: dict[str, RunView], monkeypatch: pytest.MonkeyPatch, ci: bool) -> None:
    monkeypatch.setattr(github, "in_ci", ci)
    for shown in ([view] for view in views.values()):
        out = io.StringIO()
        Console(file=out, width=100, force_terminal=False).print(terminal.render(shown))
        assert shown[0].verdict in out.getvalue()
        assert "\x1b" not in out.getvalue()
        if ci:
            assert "::" not in out.getvalue()
            assert "##[" not in out.getvalue()
    out = io.StringIO()
    Console(file=out, width=100).print(terminal.render(list(views.values())))
    assert out.getvalue().count("failed") >= 3


def test_nothing_of_a_failure_is_cut_off(views: dict[str, RunView]) -> None:
    long = Failure("stage", "test", "test failed", "the smoke test: " + "word " * 40 + "the end")
    shown = dataclasses.replace(
        views["failed_build"], failures=(long, *views["failed_build"].failures)
    )
    for soft_wrap in (True, False):
        out = io.StringIO()
        Console(file=out, width=60, soft_wrap=soft_wrap).print(terminal.render([shown]))
        said = " ".join(out.getvalue().split())
        assert "word the end" in said
        assert "build.log, line 60: " in said


def test_many_runs_are_told_apart(views: dict[str, RunView]) -> None:
    shown = [dataclasses.replace(views["good"], id=name) for name in ("run-1", "run-2")]
    out = io.StringIO()
    Console(file=out, width=80).print(terminal.render(shown))
    assert "run-1" in out.getvalue()
    assert "run-2" in out.getvalue()


def test_a_page_of_many_says_its_levels_of_evidence(views: dict[str, RunView]) -> None:
    def levels(*found: Evidence | None) -> str:
        shown = [dataclasses.replace(views["good"], evidence=one) for one in found]
        return pages.render(shown).partition('<p class="small">')[2].partition("</p>")[0]

    assert levels(Evidence.GPU, Evidence.SIMULATED, Evidence.GPU) == (
        "evidence: run against a simulator; evidence: run on a real GPU"
    )
    assert levels(None, None) == "the level of evidence is not recorded"


def test_a_page_of_many_says_when_they_began(views: dict[str, RunView]) -> None:
    shown = [dataclasses.replace(views["good"], created=f"2026-01-0{n}") for n in (3, 1, 2)]
    assert "started 2026-01-01 to 2026-01-03" in pages.render(shown)
    bare = pages.render([dataclasses.replace(view, created="") for view in shown])
    assert "started 2026" not in bare
    assert '<p class="muted small">started' not in bare


def test_failures_without_anything_said() -> None:
    assert terminal._render_failure(Failure("stage", "build", "build failed"), "✗")


def test_a_check_that_warns_has_not_plainly_passed(tmp_path: Path) -> None:
    """Of a wheel of others damaged device code is no more than that."""
    run = samples.good(tmp_path)
    found = samples.check("Device code intact", "warning", "k.pyd at 0x200", "whole")
    samples.stage(run, "audit", result=samples.audited(found))
    page = pages.render([load_view(run)])
    row = page.partition("Device code intact</th>")[2].partition("</tr>")[0]
    assert "warning" in row
    assert "passed" not in row
    (case,) = [
        c for suite in junit_suites(run) for c in suite.cases if "Device code intact" in c.name
    ]
    assert (case.outcome, "0x200" in case.message) == ("skipped", True)
