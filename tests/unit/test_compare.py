"""Two runs side by side: what differs; what is missing or fails is the exit code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import report_samples as samples

from pipelines.core import errors
from pipelines.core.errors import UNFIT, WORSE
from pipelines.core.evidence import Evidence
from pipelines.core.target import AXES, Target
from pipelines.reports.compare import Difference, compare_runs, comparison_payload
from pipelines.reports.load import load_view
from pipelines.reports.model import Case
from pipelines.reports.provenance import NUMBERS
from pipelines.reports.views import Capability, RunView


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> RunView:
    return load_view(samples.good(tmp_path_factory.mktemp("base")))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path


def worse(before: RunView, after: RunView) -> set[tuple[str, str]]:
    return {(d.kind, d.subject) for d in compare_runs(before, after).worse}


def row(before: RunView, after: RunView, kind: str, subject: str) -> Difference:
    found = compare_runs(before, after).differences
    return next(d for d in found if (d.kind, d.subject) == (kind, subject))


def test_a_run_is_as_good_as_itself(base: RunView) -> None:
    seen = compare_runs(base, base)
    assert (seen.differences, seen.notes, seen.exit_code) == ((), (), 0)


def test_what_cannot_be_read_does_not_pass(base: RunView, out: Path) -> None:
    run = samples.good(out)
    samples.row(run, "audit", "passed", samples.EPOCH, 1.0, None, '{"files": 3}')
    damaged = load_view(run)
    assert damaged.verdict == "unfinished"
    assert damaged.headline.startswith("the result of audit cannot be read: files")
    assert ("verdict", "run") in worse(base, damaged)


def test_a_suite_that_is_gone_is_worse(base: RunView) -> None:
    idle = replace(base, tested="import only")
    lost = row(base, idle, "verdict", "run")
    assert (lost.before, lost.after, lost.judgement) == ("passed", "passed, import only", "worse")
    assert row(idle, base, "verdict", "run").judgement == "better"
    other = replace(base, tested="verify only")
    assert row(idle, other, "verdict", "run").judgement == "changed"


def test_slower_is_shown_and_not_judged(base: RunView, out: Path) -> None:
    seen = compare_runs(base, load_view(samples.good(out, slower=1.5)))
    assert {"stage", "compile unit", "speed"} == {d.kind for d in seen.differences}
    assert {d.judgement for d in seen.differences} == {"changed"}
    assert seen.exit_code == 0
    (build,) = [d for d in seen.differences if (d.kind, d.subject) == ("stage", "build")]
    assert (build.before, build.after, build.ratio) == ("15 min 00 s", "22 min 30 s", 1.5)


def test_the_units_that_changed_most(base: RunView, out: Path) -> None:
    assert base.timeline is not None
    slow = tuple(
        replace(unit, end=unit.end + number) for number, unit in enumerate(base.timeline.units)
    )
    seen = compare_runs(base, replace(base, timeline=replace(base.timeline, units=slow)))
    told = [d.subject for d in seen.differences if d.kind == "compile unit"]
    assert told == [unit.name for unit in slow[:-11:-1]]


def test_another_host_or_gpu_is_named(base: RunView, out: Path) -> None:
    other = replace(load_view(samples.good(out, host="other")), gpu="NVIDIA T4")
    notes = compare_runs(base, other).notes
    assert "different host: lab, now other" in notes
    assert f"different GPU: {base.gpu}, now NVIDIA T4" in notes


def test_another_way_of_the_gpu_is_named(base: RunView) -> None:
    """A run that saw no test is not another one."""
    own = replace(base, gpu_way="WDDM, the host's own")
    passed = replace(base, gpu_way="MCDM, VFIO in a virtual machine")
    said = f"different GPU access: {own.gpu_way}, now {passed.gpu_way}"
    assert said in compare_runs(own, passed).notes
    for before, after in ((own, own), (replace(base, gpu_way=""), own)):
        assert not [note for note in compare_runs(before, after).notes if "GPU access" in note]


def test_another_level_of_evidence_is_named(base: RunView) -> None:
    plain, bridged = (replace(base, evidence=e) for e in (Evidence.BINARIES, Evidence.BRIDGED))
    assert "different evidence: B, now B + GPU" in compare_runs(plain, bridged).notes
    assert not [note for note in compare_runs(plain, plain).notes if "evidence" in note]


def test_every_axis_that_differs_is_named(base: RunView) -> None:
    nothing = replace(base, target=Target(), jobs=None)
    notes = compare_runs(base, nothing).notes
    assert {note.partition(":")[0] for note in notes} == {
        *(f"different {name}" for name in AXES),
        "different jobs",
    }
    assert "different archs: 80;86;89;90, now -" in notes
    assert "different jobs: 6, now -" in notes


def test_other_units_are_named(base: RunView) -> None:
    assert base.timeline is not None
    few = replace(base, timeline=replace(base.timeline, units=base.timeline.units[:3]))
    others = len(base.timeline.units) - 3
    assert f"{others} compile units in only one of the two" in compare_runs(few, base).notes


def test_a_larger_wheel(base: RunView, out: Path) -> None:
    large = load_view(samples.good(out, size=200_000))
    assert row(base, large, "size", "wheel").judgement == "changed"
    assert worse(base, large) == set()
    none = replace(base, files=())
    assert not [d for d in compare_runs(none, large).differences if d.kind == "size"]


def test_a_lost_capability(base: RunView) -> None:
    lost = tuple(
        Capability(c.name, "no") if c.name == "backward.hdim256" else c for c in base.capabilities
    )
    assert worse(base, replace(base, capabilities=lost)) == {("capability", "backward.hdim256")}
    gone = base.capabilities[1:]
    assert worse(base, replace(base, capabilities=gone)) == {
        ("capability", base.capabilities[0].name)
    }
    assert worse(replace(base, capabilities=gone), base) == set()
    assert compare_runs(base, replace(base, capabilities=())).exit_code == 0  # it was not asked


def test_lost_device_code(base: RunView) -> None:
    lost = {"values": ("80", "86")}
    fewer = tuple(c.model_copy(update=lost) if c.id == "sass" else c for c in base.checks)
    assert worse(base, replace(base, checks=fewer)) == {("device code", "SASS")}
    difference = row(base, replace(base, checks=fewer), "device code", "SASS")
    assert (difference.before, difference.after) == ("80 86 89 90", "80 86")
    worded = tuple(c.model_copy(update={"actual": "75 in 1/2 containers"}) for c in base.checks)
    assert worse(base, replace(base, checks=worded)) == set()


@pytest.mark.parametrize(
    ("was", "now", "judgement"),
    [
        ("passed", "failed", "worse"),
        ("passed", "error", "worse"),
        ("passed", "skipped", "worse"),
        ("skipped", "failed", "worse"),
        ("failed", "passed", "better"),
        ("skipped", "passed", "better"),
        ("failed", "error", None),
    ],
)
def test_cases(base: RunView, was: str, now: str, judgement: str | None) -> None:
    def with_first(outcome: str) -> RunView:
        first = replace(base.cases[0], outcome=outcome)  # type: ignore[arg-type]
        return replace(base, cases=(first, *base.cases[1:]))

    found = [
        d
        for d in compare_runs(with_first(was), with_first(now)).differences
        if d.kind == "smoke case"
    ]
    assert [d.judgement for d in found] == ([judgement] if judgement else [])


def test_cases_that_come_and_go(base: RunView) -> None:
    assert worse(base, replace(base, cases=base.cases[1:])) == set()
    names = row(base, replace(base, cases=base.cases[1:]), "smoke case", "names")
    assert (names.before, names.after, names.judgement) == ("1 only then", "0 only now", "changed")


def test_a_smoke_report_that_is_gone_is_worse(out: Path, base: RunView) -> None:
    """Of a run that was tested; one that was not has another verdict."""
    run = samples.good(out)
    (run.path / "smoke.xml").unlink()
    assert worse(base, load_view(run)) == {("smoke case", "names")}
    built = [stage for stage in base.stages if stage.name != "test"]
    assert worse(base, replace(base, stages=tuple(built), cases=())) == set()


def test_a_new_case_that_fails_is_worse(out: Path, base: RunView) -> None:
    run = samples.good(out)
    samples.smoke(
        run, [*samples.smoke_cases(), Case("new", outcome="failed")], alibi="yes", softcap="absent"
    )
    assert worse(base, load_view(run)) == {("smoke case", "new")}


def test_a_failed_run_is_worse(base: RunView, out: Path) -> None:
    failed = load_view(samples.failed_build(out))
    assert worse(base, failed) == {("verdict", "run")}
    assert compare_runs(failed, base).exit_code == 0


def test_a_figure_in_another_unit_is_another_one(base: RunView) -> None:
    doubled = tuple(replace(f, value=f.value * 2) for f in base.figures)
    seen = compare_runs(base, replace(base, figures=doubled))
    assert {d.ratio for d in seen.differences} == {2.0}
    other = tuple(replace(f, unit="furlongs") for f in doubled)
    assert compare_runs(base, replace(base, figures=other)).differences == ()


def test_the_exit_code_is_its_own() -> None:
    kinds = [errors.PipelineError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert WORSE not in {kind.exit_code for kind in kinds} | {0, UNFIT, errors.INTERRUPTED}


def printed(view: RunView, **numbers: str) -> RunView:
    """The run of a script that printed these."""
    return replace(view, provenance=((NUMBERS, tuple(numbers.items())),))


def test_numbers_of_a_script_are_shown_to_the_last_digit(base: RunView) -> None:
    before = printed(base, same="1.5", near="0.123456789", gone="3")
    after = printed(base, same="1.5", near="0.123456788", new="4")
    seen = compare_runs(before, after)
    assert {d.subject: (d.before, d.after, d.judgement) for d in seen.differences} == {
        "gone": ("3", "-", "worse"),
        "near": ("0.123456789", "0.123456788", "changed"),
        "new": ("-", "4", "changed"),
    }
    assert "1 of 4 numbers of the script are equal" in seen.notes
    assert compare_runs(before, base).exit_code == 0, "a run without a script says nothing of them"
    silent = replace(base, cases=(Case("test_script", "test_script", 1.0),))
    assert compare_runs(before, silent).exit_code == WORSE, "its script did not print them"


def test_numbers_that_no_float_holds(base: RunView) -> None:
    """Checksums, what has become no number, and names with dots."""
    before, after = (
        printed(base, **rows)
        for rows in (
            {"sum": "12345678901234567890", "loss": "0.5", "a.b": "1", "x": "nan", "y": "1.0"},
            {"sum": "12345678901234567891", "loss": "nan", "a.b": "2", "x": "NaN", "y": "1"},
        )
    )
    seen = compare_runs(before, after)
    assert {d.subject: (d.before, d.after, d.judgement) for d in seen.differences} == {
        "sum": ("12345678901234567890", "12345678901234567891", "changed"),
        "loss": ("0.5", "nan", "worse"),
        "a.b": ("1", "2", "changed"),
    }
    assert "2 of 5 numbers of the script are equal" in seen.notes
    json.dumps(comparison_payload(seen), allow_nan=False)
