"""From records to views: any record, complete or not, gives the right view."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import report_samples as samples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from records import rewrite
from rich.console import Console

from pipelines.core import hosttext
from pipelines.core.checkout import Checkout
from pipelines.core.errors import BuildError, ConfigError, TimeUpError
from pipelines.core.evidence import Origin
from pipelines.core.target import AXES
from pipelines.record.diagnosis import DiagnosisResult
from pipelines.record.results import (
    ORDER,
    RESULTS,
    SCHEMA,
    AuditResult,
    BuildResult,
    HostFacts,
    ProvisionResult,
    RunFacts,
    Timeline,
)
from pipelines.record.run import Run
from pipelines.reports import failures as failing
from pipelines.reports import terminal, views
from pipelines.reports.brief import brief_of
from pipelines.reports.figures import extract_figures, load_rules
from pipelines.reports.html import render
from pipelines.reports.junit import render as junit_of
from pipelines.reports.junit import write_junit_file
from pipelines.reports.load import list_run_files, load_any, load_view, read_timeline
from pipelines.reports.markdown import summary
from pipelines.reports.model import Case, Suite
from pipelines.reports.runs import runs_in
from pipelines.reports.suites import junit_suites

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
TEXT = st.text(max_size=30) | st.sampled_from(samples.SAID)
NUMBER = st.floats() | st.integers(-(10**20), 10**20)
#: What a host can make a build's result say, by the models' own rules.
BUILD = st.fixed_dictionaries(
    {"job": TEXT, "directory": TEXT, "jobs": st.integers()},
    optional={
        "tail": st.lists(TEXT, max_size=4),
        "environment": st.dictionaries(TEXT, TEXT, max_size=4),
        "lost": st.lists(TEXT, max_size=4),
        "attempt": st.integers(),
        "kept": st.booleans(),
        "timeline": st.fixed_dictionaries(
            {},
            optional={
                "units": st.lists(st.tuples(TEXT, NUMBER, NUMBER), max_size=6),
                "samples": st.lists(st.tuples(NUMBER, NUMBER, NUMBER), max_size=6),
                "cpus": st.integers(),
                "memory": NUMBER,
            },
        ),
        "cache": st.dictionaries(TEXT, TEXT | NUMBER | st.booleans() | st.none(), max_size=4),
        "healed": st.lists(
            st.fixed_dictionaries({"what": TEXT, "why": TEXT, "line": st.integers()}), max_size=3
        ),
        "diagnosis": st.fixed_dictionaries(
            {
                "id": TEXT,
                "is_cause": st.booleans(),
                "cause": TEXT,
                "hint": TEXT,
                "line": st.integers(),
                "links": st.lists(TEXT, max_size=3),
            }
        ),
    },
)


def read(
    units: Sequence[Any] = (), samples: Sequence[Any] = (), **told: Any
) -> views.Timeline | None:
    return read_timeline(Timeline(units=tuple(units), samples=tuple(samples), **told))


@pytest.mark.parametrize(
    ("sample", "verdict", "said"),
    [
        ("good", "passed", "built, audited and smoke-tested"),
        ("failed_build", "failed", "build failed: line 60: cudafe++ of CUDA 12.9 crashes"),
        ("failed_smoke", "failed", "test failed: 1 of 13 smoke cases failed"),
        ("killed", "unfinished", "build has no outcome: it is running or was killed"),
    ],
)
def test_verdicts(tmp_path: Path, sample: str, verdict: str, said: str) -> None:
    view = load_view(getattr(samples, sample)(tmp_path))
    assert view.verdict == verdict
    assert view.headline.startswith(said)


def test_an_error_is_told_without_the_log_that_follows(tmp_path: Path) -> None:
    run = samples.good(tmp_path)
    said = "the build exited with code 2:\nnvcc -c a.cu -gencode arch=compute_80\nerror: no"
    samples.stage(run, "build", "failed", failed=samples.error(said))
    view = load_view(run)
    assert view.headline == "build failed: the build exited with code 2"
    assert "nvcc -c a.cu" in view.failures[0].message


def test_a_build_that_was_taken_up_took_all_of_its_time(tmp_path: Path) -> None:
    run = samples.good(tmp_path)
    whole = load_view(run)
    result = samples.built()
    samples.stage(run, "build", seconds=30.0, result=result)
    view = load_view(run)
    assert view.timeline is not None
    assert view.stage("build").seconds == view.timeline.end > 300  # type: ignore[union-attr]
    assert "the last command saw 30 s of it" in view.caveats[0]
    assert not [said for said in whole.caveats if "went on without" in said]
    samples.stage(run, "build", seconds=0.2, result=samples.built(kept=True))
    assert "nothing was rebuilt" in load_view(run).caveats[0]


def test_stages_that_are_missing_are_not_reached(tmp_path: Path) -> None:
    view = load_view(samples.killed(tmp_path))
    states = {stage.name: stage.state for stage in view.stages}
    assert states == {
        "provision": "passed",
        "build": "running",
        "collect": "not reached",
        "audit": "not reached",
        "test": "not reached",
    }
    assert view.stage("audit") is None


def test_an_untested_wheel_is_no_pass(tmp_path: Path) -> None:
    run = Run.create(tmp_path, samples.facts())
    for name in ("provision", "build", "collect", "audit"):
        samples.stage(run, name)
    assert load_view(run).verdict == "untested"


def test_nothing_recorded(tmp_path: Path) -> None:
    view = load_view(Run.create(tmp_path, RunFacts()))
    assert (view.verdict, view.headline) == ("unfinished", "no record of provision")
    assert view.target.label == "an unrecorded cell"
    assert tuple(stage.name for stage in view.stages) == ORDER
    assert ORDER == ("provision", "build", "collect", "audit", "test")


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (TimeUpError("after 5 minutes"), "unfinished"),
        (KeyboardInterrupt(), "unfinished"),
        (BuildError("no"), "failed"),
        (ValueError("odd"), "failed"),
    ],
)
def test_how_a_build_ended(tmp_path: Path, error: BaseException, verdict: str) -> None:
    run = Run.create(tmp_path, samples.facts())

    def work() -> None:
        with run.stage("build"):
            raise error

    with pytest.raises(type(error)):
        work()
    view = load_view(run)
    assert view.verdict == verdict
    file = io.StringIO()
    Console(file=file, width=100).print(terminal.render([view]))
    said = file.getvalue()
    assert ("✗" in said) == ("build failed" in said) == (verdict == "failed")


def test_what_a_good_run_holds(tmp_path: Path) -> None:
    view = load_view(samples.good(tmp_path))
    assert view.counts == {"passed": 12, "skipped": 1}
    assert view.skips == (("sm_90 runs a cubin of its own", 1),)
    assert view.gpu == "NVIDIA L4"
    assert view.target.label == "cp312, torch 2.8, CUDA 12.8, 80;86;89;90"
    skipped = "1 of 13 smoke cases were skipped, mostly because: sm_90 runs a cubin of its own"
    assert view.caveats[0] == skipped, "although all is green"
    has = {c.name: c.there for c in view.capabilities}
    assert has["forward.hdim64"]
    assert not has["softcap"]
    assert {f.group for f in view.figures} == {"speed", "ratio", "memory", "accuracy"}
    assert view.timeline is not None
    assert (len(view.timeline.units), view.timeline.lanes) == (73, 6)
    asked = dict(dict(view.provenance)["Run"])
    assert {name: asked.get(name, "") for name in AXES} == view.target.values()
    assert (asked["evidence"], asked["publishable"]) == ("F", "True")
    assert dict(dict(view.provenance)["Host"]) == {"cpus": "8", "windows": "10.0.20348"}
    assert "Taken from" not in dict(view.provenance)  # of a run from before it was recorded
    assert view.failures == ()


def test_where_recipe_tests_and_sources_are_from(tmp_path: Path) -> None:
    whose = "wheels of <b>pony</b> 1.5"
    run = samples.good(tmp_path, taken_from={"recipe": ".wcw of this repository", "suite": whose})
    checkout = Checkout(commit="ab" * 20, changed=("csrc/k&r.cu",), count=3)
    samples.stage(run, "build", "passed", 900.0, samples.built(checkout=checkout))
    view = load_view(run)
    assert dict(view.provenance)["Taken from"] == (
        ("recipe", ".wcw of this repository"),
        ("suite", whose),
        ("commit", "ab" * 20),
        ("uncommitted", "3 files: csrc/k&r.cu, ..."),
    )
    page = render([view])
    assert "Taken from" in page
    assert "<b>pony" not in page
    assert "wheels of &lt;b&gt;pony" in page
    assert "3 files: csrc/k&amp;r.cu, ..." in page
    samples.stage(run, "build", "passed", 900.0, samples.built(checkout=Checkout(commit="")))
    assert ("commit", "none yet") in dict(load_view(run).provenance)["Taken from"]


def test_the_diagnosis_comes_with_its_lines(tmp_path: Path) -> None:
    (failure,) = load_view(samples.failed_build(tmp_path)).failures
    assert failure.signature == "cudafe-av"
    assert failure.links
    assert failure.excerpt is not None
    assert (failure.excerpt.source, failure.excerpt.mark) == ("build.log", 60)
    marked = failure.excerpt.lines[failure.excerpt.mark - failure.excerpt.first]
    assert marked.startswith("cudafe++ died")
    assert failure.file == "pipelines/recipes/flash-attn.yaml"


def test_without_a_diagnosis_the_end_of_the_log_is_told(tmp_path: Path) -> None:
    run = Run.create(tmp_path, samples.facts())
    result = samples.built(tail=tuple(f"line {n}" for n in range(60)))
    samples.stage(run, "build", "failed", result=result, failed=samples.error("no"))
    (failure,) = load_view(run).failures
    assert failure.excerpt is not None
    assert failure.excerpt.first == 0
    assert failure.excerpt.lines[-1] == "line 59"
    assert len(failure.excerpt.lines) == 30


def test_excerpts_of_odd_logs(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_bytes(b"x" * 300_000 + b"\nsecond \xff\xfe\r\nthird")
    found = failing.log_excerpt(log, 2)
    assert found is not None
    assert found.lines[1] == "second \ufffd\ufffd"
    assert len(found.lines[0]) < 500
    assert (found.first, len(found.lines)) == (1, 3)
    assert failing.log_excerpt(log, 4) is None
    assert failing.log_excerpt(log, 0) is None
    assert failing.log_excerpt(tmp_path / "none", 1) is None


def test_a_large_log_is_not_in_the_view(tmp_path: Path) -> None:
    run = samples.failed_build(tmp_path)
    with (run.path / "build.log").open("ab") as log:
        log.write(b"noise of a compiler that never ends\n" * 1_000_000)
    assert len(render([load_view(run)])) < 60_000


def test_a_failed_case_names_its_place(tmp_path: Path) -> None:
    run = samples.good(tmp_path, recipe="smoke-attention")
    trace = "suite/test_package.py:12: in f\n    x\nsuite/test_package.py:59: AssertionError"
    samples.smoke(run, [Case("t", "test_package", 0, "failed", "E", trace)], "failed")
    failure = load_view(run).failures[-1]
    assert (failure.file, failure.line) == (
        "pipelines/smoke/smoke_attention/test_package.py",
        59,
    )


def test_failed_checks_and_resources_are_failures(tmp_path: Path) -> None:
    run = Run.create(tmp_path, samples.facts())
    row = samples.resource("TEMP", ok=False)
    samples.stage(run, "provision", result=ProvisionResult(resources=(row,)))
    samples.audit(run, "80", ok=False, state="failed")
    told = [(failure.kind, failure.title) for failure in load_view(run).failures]
    assert told == [
        ("resource", "TEMP"),
        ("check", "SASS of the wheel"),
    ]


def test_many_failing_cases_are_bounded(tmp_path: Path) -> None:
    run = samples.good(tmp_path)
    samples.smoke(run, [Case(f"t{n}", outcome="failed") for n in range(400)], "failed")
    view = load_view(run)
    assert view.failures[-1].title == "350 more smoke cases failed"
    assert len(render([view])) < 400_000


def test_a_smoke_report_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    run = samples.good(tmp_path)
    (run.path / "smoke.xml").write_bytes(b"<testsuites><!")
    view = load_view(run)
    assert view.cases == ()
    assert "not JUnit XML" in view.caveats[0]
    (run.path / "smoke.xml").unlink()
    assert load_view(run).caveats[0].startswith("smoke.xml is missing")


def test_files_with_sha256(tmp_path: Path) -> None:
    run = samples.good(tmp_path)
    (run.path / "wheels" / "link.whl").symlink_to("/etc/hostname")
    paths = [file.path for file in load_view(run).files]
    assert paths == ["build.log", "smoke.xml", next(p for p in paths if p.endswith(".whl"))]
    assert load_view(run).files[-1].sha256 == (hashlib.sha256(bytes(4000)).hexdigest())


def test_a_wheel_that_is_not_what_was_audited_has_not_passed(tmp_path: Path) -> None:
    """Nor is a wheel that is not here, as from CI, one that was changed."""
    run = samples.good(tmp_path)
    wheel = next(run.path.glob("wheels/*.whl"))
    samples.stage(run, "audit", "passed", 0.4, samples.audited(file=wheel.name))
    samples.manifest(run)
    assert load_view(run).verdict == "failed"
    assert any(wheel.name in caveat for caveat in load_view(run).caveats)
    wheel.unlink()
    assert load_view(run).verdict == "passed"


def test_a_wheel_is_looked_at_however_many_files_a_run_has(tmp_path: Path) -> None:
    """More than a page lists; and one that was put there is none that was audited."""
    run = samples.good(tmp_path)
    for number in range(501):
        (run.path / f"{number}.txt").touch()
    assert load_view(run).verdict == "passed"
    wheel = next(run.path.glob("wheels/*.whl"))
    added = wheel.with_name("a-1-py3-none-any.whl")
    added.write_bytes(b"x")
    assert load_view(run).verdict == "failed"
    added.unlink()
    wheel.write_bytes(b"x")
    assert load_view(run).verdict == "failed"


def test_a_wheel_that_is_not_the_manifests(tmp_path: Path) -> None:
    run = samples.good(tmp_path)
    samples.manifest(run)
    assert {file.note for file in list_run_files(run.path)} == {""}
    told = json.loads((run.path / "manifest.json").read_bytes())
    told["files"].append({"path": "report.html", "size": 1, "sha256": "0" * 64})
    (run.path / "manifest.json").write_text(json.dumps(told))
    assert "report.html" not in {file.path for file in list_run_files(run.path)}
    wheel = next(run.path.glob("wheels/*.whl"))
    wheel.write_bytes(bytes(3999) + b"x")
    assert list_run_files(run.path)[-1].note == "differs from manifest.json"
    wheel.unlink()
    left = list_run_files(run.path)[-1]
    assert (left.note, left.size) == ("not here; from manifest.json", 4000)


@pytest.mark.parametrize("said", ["{", "[]", '{"written": 1}', "[" * 100_000, '{"files": [1]}'])
def test_odd_manifests_are_passed_over(tmp_path: Path, said: str) -> None:
    run = samples.good(tmp_path)
    (run.path / "manifest.json").write_text(said)
    assert len(list_run_files(run.path)) == 3


def test_lanes_are_the_jobs() -> None:
    rows = [("a", 0, 5), ("b", 0, 3), ("c", 3, 6), ("d", 5, 7), ("e", 3.02, 4)]
    seen = read(rows, cpus=2)
    assert seen is not None
    assert {unit.name: unit.lane for unit in seen.units} == {"a": 1, "b": 0, "c": 0, "e": 2, "d": 1}
    assert seen.lanes == 3
    assert [unit.name for unit in seen.slowest][:3] == ["a", "b", "c"]


def test_utilisation_is_weighted_by_time() -> None:
    seen = read(samples=[(0, 1.0, 5), (8, 1.0, 9), (10, 0.0, 7)])
    assert seen is not None
    assert seen.busy == pytest.approx(0.9)
    assert seen.peak == 9
    assert seen.core_seconds is None, "how many cores it had is not known"
    seen = read(samples=[(2, 0.5, 5), (8, 0.5, 9), (10, 0.0, 7)], cpus=4)
    assert seen is not None
    assert seen.core_seconds == pytest.approx(4 * (2 * 0.5 + 6 * 0.5 + 2 * 0.25))


@given(
    st.lists(
        st.tuples(st.floats(0, 100), st.floats(0.1, 20)).map(lambda p: ("u", p[0], p[0] + p[1])),
        max_size=60,
    )
)
def test_no_two_units_share_a_lane_at_a_time(rows: list[tuple[str, float, float]]) -> None:
    seen = read(rows)
    units = seen.units if seen else ()
    assert len(units) == len(rows)
    for lane in {unit.lane for unit in units}:
        own = sorted((u for u in units if u.lane == lane), key=lambda u: u.start)
        assert all(a.end <= b.start + 0.06 for a, b in itertools.pairwise(own))


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("5", "4"),
        ("-1", "4"),
        ("NaN", "4"),
        ("0", "NaN"),
        ("0", "Infinity"),
        ("0", "1e300"),
        ("0", "1" + "0" * 400),
    ],
)
def test_units_without_sense_are_counted(begin: str, end: str) -> None:
    told = f'{{"units": [["a", {begin}, {end}], ["b", 0, 1]], "memory": Infinity, "cpus": -1}}'
    seen = read_timeline(Timeline.model_validate_json(told))
    assert seen is not None
    assert [unit.name for unit in seen.units] == ["b"]
    assert (seen.left_out, seen.memory, seen.cpus) == (1, 0.0, 0)


def test_samples_without_sense_are_left_out() -> None:
    nan, inf = float("nan"), float("inf")
    rows = [(nan, 1, 1), (-1, 1, 1), (1, nan, 1), (1, inf, 1), (1, -1, 1), (2, 7, nan), (3, 1, inf)]
    seen = read(samples=rows)
    assert seen is not None
    assert seen.samples == ((2.0, 1.0, 0.0), (3.0, 1.0, 0.0))
    assert read(samples=rows[:5]) is None


def test_too_many_units_and_lanes() -> None:
    seen = read([(str(n), 0, n % 9 + 1) for n in range(9000)])
    assert seen is not None
    assert (len(seen.units), seen.lanes) == (64, 64)
    assert seen.left_out == 9000 - 64


def test_the_rules_of_figures() -> None:
    case = Case(
        "test_throughput[fp16]",
        properties={
            "milliseconds": "1.5",
            "tflops": "21.0",
            "error_of_tolerance": "0.4",
            "gpu": "L4",
            "speed.d64.sdpa_ms": "3 ms",
            "ratio.d64": "2.1",
            "memory.d64.peak_mib": "inf",
            "memory.linear.ratio": "2.01",
            "sass": "75 86 90",
            "has.alibi": "1",
        },
    )
    found = {f.key: f for f in extract_figures({}, [case])}
    own = "test_throughput[fp16]: "
    assert set(found) == {
        f"{own}milliseconds",
        f"{own}tflops",
        f"{own}error_of_tolerance",
        "speed.d64.sdpa_ms",
        "ratio.d64",
        "memory.linear.ratio",
    }
    ms = found[f"{own}milliseconds"]
    assert (ms.group, ms.unit, ms.better, ms.value) == ("speed", "ms", "lower", 1.5)
    assert found[f"{own}tflops"].better == "higher"
    assert (found["speed.d64.sdpa_ms"].subject, found["speed.d64.sdpa_ms"].series) == (
        "d64",
        "sdpa_ms",
    )


def test_one_name_in_two_cases_is_two_figures() -> None:
    cases = [Case(name, properties={"speed.x.y_ms": "1"}) for name in ("a", "b")]
    assert [f.key for f in extract_figures({}, cases)] == ["speed.x.y_ms", "b: speed.x.y_ms"]


def test_a_broken_rules_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "figures.yaml"
    path.write_text("rules: [{pattern: a, group: sped, unit: s, better: lower}]")
    with pytest.raises(ConfigError, match="group"):
        load_rules(path)


def test_the_same_record_gives_the_same_reports(tmp_path: Path) -> None:
    run = samples.failed_smoke(tmp_path)
    first = load_view(run)
    (run.path / "report.html").write_text("an old one")
    again = load_view(Run(run.path))
    assert first == again
    assert render([first]) == render([again])
    assert summary([first]) == summary([again])


def test_secrets_stay_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = samples.failed_build(tmp_path)
    with (run.path / "build.log").open("a") as log:
        log.write("the hunter22 is out\n")
    run.note(host=HostFacts(machine="hunter22"))
    monkeypatch.setattr(hosttext, "_secrets", {"hunter22"})
    view = load_view(run)
    assert "hunter22" not in render([view]) + summary([view])


def test_what_a_host_was_made_from_is_in_every_report(tmp_path: Path) -> None:
    run = samples.failed_build(tmp_path)
    origin = {"kind": "container", "engine": "Docker 29", "image": "sha256:12", "image_key": "ab3"}
    run.note(host=HostFacts.of({"machine": "AMD64"}, Origin(**origin)))
    view = load_view(run)
    (rows,) = (rows for title, rows in view.provenance if title == "Host")
    assert set(origin.items()) <= set(rows)
    page = render([view])
    assert all(text in page for text in origin.values())
    properties = dict(junit_suites(run)[0].properties)
    assert properties["host.engine"] == "Docker 29"
    assert properties["host.image_key"] == "ab3"


def test_no_record_and_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no readable record"):
        load_view(Run(tmp_path / "none"))
    (tmp_path / "record.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(ConfigError, match="no readable record") as caught:
        load_view(Run(tmp_path))
    assert "damaged" in caught.value.hint
    view = load_any(Run(tmp_path))
    assert (view.verdict, view.id) == ("unfinished", tmp_path.name)
    assert "no readable record" in view.headline


def fact(run: Run, key: str, value: str) -> None:
    """A fact as another program, or another version, may have written it."""
    rewrite(run, "INSERT OR REPLACE INTO facts VALUES (?, ?)", (key, value))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schema_version", str(SCHEMA - 1)),
        ("schema_version", str(SCHEMA + 1)),
        ("schema_version", "null"),
        ("colour", '"red"'),
        ("target", '{"host": "<script>alert(1)</script>"}'),
        ("target", '{"recipe": "../../etc/passwd"}'),
        ("target", '{"archs": "sm_9999"}'),
        ("evidence", '"X"'),
        ("jobs", '"many"'),
        ("host", "{"),
        ("created", "{}"),
    ],
)
def test_facts_of_another_version_or_none(tmp_path: Path, key: str, value: str) -> None:
    run = samples.good(tmp_path)
    fact(run, key, value)
    with pytest.raises(ConfigError, match="no readable record"):
        load_view(run)
    view = load_any(run)
    assert (view.verdict, view.id, view.evidence) == ("unfinished", run.id, None)
    assert "no readable record" in view.headline
    assert "\n" not in view.headline
    assert "<script>" not in render([view])


@pytest.mark.parametrize(
    "row",
    [
        {"state": "<b>"},
        {"started": "soon"},
        {"seconds": -1.0},
        {"seconds": 1e300},
        {"error": "{"},
        {"error": '{"message": "no"}'},
        {"name": b"\xff"},
    ],
)
def test_a_stage_that_is_none(tmp_path: Path, row: dict[str, Any]) -> None:
    run = samples.good(tmp_path)
    samples.row(run, **({"name": "build"} | row))
    with pytest.raises(ConfigError, match="no readable record"):
        load_view(run)
    assert load_any(run).verdict == "unfinished"


def test_half_a_character_hides_nothing(tmp_path: Path) -> None:
    """As of an error that names a file whose name is no text."""
    run = samples.good(tmp_path)
    told = '{"kind": "BuildError", "title": "build", "message": "half \\ud800 of a pair"}'
    samples.row(run, "build", "failed", samples.EPOCH, 7.0, told, None)
    view = load_view(run)
    assert view.verdict == "failed"
    assert "half \\xd800 of a pair" in view.headline


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize(
    "result",
    [
        "{",
        "[]",
        "[" * 100_000,
        '{"<script>alert(1)</script>": 1}',
        '{"tail": "\\u001b[31m"}',
    ],
)
def test_a_result_that_cannot_be_read_is_a_caveat(tmp_path: Path, name: str, result: str) -> None:
    run = samples.good(tmp_path)
    whole = load_view(run)
    samples.row(run, name, "failed", samples.EPOCH, 7.0, None, result)
    view = load_view(run)
    stage = view.stage(name)
    assert stage is not None
    assert (stage.state, stage.seconds) == ("failed", 7.0)
    assert view.caveats[0].startswith(f"the result of {name} cannot be read: ")
    assert len(view.caveats[0]) < 400
    assert "\x1b" not in view.caveats[0]
    assert view.verdict == "failed"
    assert (view.timeline is None) == (name == "build")
    assert (view.checks == ()) == (name == "audit")
    assert (view.cases == ()) == (name == "test")
    assert view.target == whole.target
    assert "<script>" not in render([view])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.dictionaries(st.sampled_from([*RESULTS, "other"]), JSON, max_size=4), JSON, JSON)
def test_any_record_gives_reports(
    tmp_path_factory: pytest.TempPathFactory, results: dict[str, Any], told: Any, failed: Any
) -> None:
    run = Run.create(tmp_path_factory.mktemp("r"), samples.facts())
    fact(run, "tools", json.dumps(told))
    for name, result in results.items():
        error = json.dumps(failed) if name == "build" else None
        samples.row(run, name, "failed", 1.0, None, error, json.dumps(result))
    view = load_any(run)
    assert "<main" in render([view])
    assert "<main" in render([view, view])
    assert summary([view])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(BUILD, st.dictionaries(TEXT, TEXT, max_size=4))
def test_any_result_of_a_host_gives_reports(
    tmp_path_factory: pytest.TempPathFactory, result: dict[str, Any], tools: dict[str, str]
) -> None:
    run = Run.create(tmp_path_factory.mktemp("r"), samples.facts())
    run.note(tools={name: samples.used(version) for name, version in tools.items()})
    samples.row(run, "build", "failed", 1.0, 5.0, None, json.dumps(result))
    assert isinstance(run.stages()["build"].result, BuildResult)
    view = load_view(run)
    assert "<main" in render([view])
    assert summary([view])
    assert junit_of(junit_suites(run))


@pytest.mark.slow
def test_rows_without_end_are_bounded(tmp_path: Path) -> None:
    run = samples.good(tmp_path)
    rows = tuple(samples.resource(str(n), ok=False) for n in range(300))
    samples.stage(run, "provision", result=ProvisionResult(resources=rows))
    checks = samples.audited(*[samples.check("c", "ok", "f")] * 300).files * 30
    samples.stage(run, "audit", result=AuditResult(files=checks))
    every = {str(n): "x" for n in range(900)}
    told = ("x" * 9999,) * 300
    result = samples.built(environment=every, lost=told, tail=told)
    samples.stage(run, "build", "failed", result=result, failed=samples.error("x" * 99_999))
    for n in range(100):
        samples.row(run, f"stage {n}", started=9e9 + n)
    view = load_view(run)
    assert len(view.stages) == 50
    assert [f.kind for f in view.failures].count("resource") == 200
    assert len(view.checks) == 20 * 100
    assert len(dict(view.provenance)["Build environment"]) == 200
    assert sum(said.startswith("an attempt was lost") for said in view.caveats) == 10
    assert max(map(len, view.caveats)) < 500
    assert len(view.failures[0].message) < 3100
    assert view.failures[0].excerpt is not None
    assert len(view.failures[0].excerpt.lines) == 30
    assert max(map(len, view.failures[0].excerpt.lines)) < 500


def test_what_was_diagnosed_is_told_by_its_fields(tmp_path: Path) -> None:
    run = samples.failed_build(tmp_path)
    links = ("javascript:alert(1)", "https://example.org/1", "https://x/ onclick=a", "http://x")
    found = DiagnosisResult(
        id="new", is_cause=False, cause="line 7: (no)", hint="", links=links, line=10**9
    )
    failed = samples.error("it left", hint="See the log.")
    samples.stage(run, "build", "failed", result=samples.built(diagnosis=found), failed=failed)
    view = load_view(run)
    (failure,) = view.failures
    assert (failure.title, failure.signature) == ("no known cause: line 7: (no)", "new")
    assert failure.links == ("https://example.org/1",)
    assert failure.hint == "See the log."
    assert failure.excerpt == views.Excerpt("end of build.log", 0, ("done",))
    assert view.headline == "build failed: line 1000000000: no known cause: line 7: (no) (new)"


def test_what_the_suites_of_this_project_record(tmp_path: Path) -> None:
    told = {
        "speed.forward.hdim64.over_math": "4.10",
        "speed.forward.hdim64.tflops": "310.0",
        "memory.growth_4096_to_8192": "2.00",
        "memory.peak_mib_at_8192": "96.0",
        "package_name": "flash-attn",
        "gpu0_name": "NVIDIA H200",
        "warning1": "the driver compiles PTX for it at the first use",
        "info.fa2F": "available",
        "info.fa2B": "unavailable",
        "info.version": "0.0.31",
    }
    run = samples.good(tmp_path)
    case = Case("t", properties={"milliseconds_math": "0.4"})
    write_junit_file(run.path / "smoke.xml", [Suite("pytest", (case,), told)])
    view = load_view(run)
    groups = {f.key: (f.group, f.unit, f.better) for f in view.figures}
    assert groups == {
        "speed.forward.hdim64.over_math": ("ratio", "x", "higher"),
        "speed.forward.hdim64.tflops": ("speed", "TFLOP/s", "higher"),
        "memory.growth_4096_to_8192": ("memory", "x", "lower"),
        "memory.peak_mib_at_8192": ("memory", "MiB", "lower"),
        "t: milliseconds_math": ("speed", "ms", "lower"),
    }
    assert view.gpu == "NVIDIA H200"
    assert told["warning1"] in view.caveats
    assert {c.name: c.there for c in view.capabilities} == {"fa2F": True, "fa2B": False}


def test_a_run_of_another_controller_says_so_everywhere(tmp_path: Path) -> None:
    run = samples.good(tmp_path)
    assert (run.recorded_by, brief_of(run).recorded_by) == ("", "")
    key = rewrite(run, "UPDATE stages SET state = 'passed'").identity[:16]
    assert key in run.recorded_by
    view, file = load_view(run), io.StringIO()
    Console(file=file, width=100).print(terminal.render([view]))
    pages = (render([view]), summary([view]), file.getvalue(), str(brief_of(run)))
    assert [key in page for page in pages] == [True] * 4
    (past,) = runs_in(run.path.parent)
    assert past.payload()["recorded_by"] == run.recorded_by
