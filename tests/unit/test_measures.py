"""Charts of figures: one unit per axis, rivals next to the package's own with their factor."""

from __future__ import annotations

import dataclasses

import report_samples as samples

from pipelines.reports.figures import extract_figures
from pipelines.reports.measures import Chart, figure_charts
from pipelines.reports.model import Case
from pipelines.reports.views import Figure


def drawn(cases: list[Case], most: int = 100) -> dict[str, Chart]:
    charts = figure_charts(extract_figures({}, cases), most)
    made = {chart.unit: chart for chart in charts}
    assert len(made) == len(charts)
    return made


def bars(chart: Chart) -> list[tuple[str, str, float, float | None]]:
    return [
        (subject, row.series, row.value, row.factor)
        for subject, rows in chart.subjects
        for row in rows
    ]


def timed(name: str, own: float, theirs: float, **more: str) -> Case:
    rival = name.rstrip("]").rpartition("-")[2]
    told = {
        "milliseconds": str(own),
        "tflops": str(100 / own),
        f"milliseconds_{rival}": str(theirs),
    }
    return Case(name, properties=told | more)


def test_rivals_stand_beside_the_package() -> None:
    charts = drawn(samples.smoke_cases())
    assert list(charts) == ["ms", "TFLOP/s", "MiB", "of tolerance"], "no axis has two units"
    ms = charts["ms"]
    assert [name for name, _ in ms.legend] == ["this package", "flash", "math", "mem_efficient"]
    assert [subject for subject, _ in ms.subjects] == ["forward.hdim64", "forward.hdim128"]
    first = bars(ms)[:4]
    assert [(bar[1], bar[2]) for bar in first] == [
        ("this package", 0.22),
        ("flash", 0.2156),
        ("mem_efficient", 0.3762),
        ("math", 4.862),
    ]
    assert [bar[3] and round(bar[3], 2) for bar in first] == [None, 0.98, 1.71, 22.1]
    assert "lower is better" in ms.caption
    assert "the factor is the other's time" in ms.caption
    assert not charts["TFLOP/s"].factors
    assert "higher is better" in charts["TFLOP/s"].caption
    own, *others = ms.subjects[0][1]
    assert own.many == 3
    assert 'width="100"' in others[-1].bar
    assert 'width="4.5"' in own.bar


def test_records_without_a_shape_are_grouped_by_their_parameters() -> None:
    """As suites recorded it before they named the shape."""
    cases = [
        timed("test_speed[64-forward-math]", 0.241, 5.077),
        timed("test_speed[64-forward-flash]", 0.194, 0.173),
        timed("test_speed[64-both-flash]", 0.982, 0.783),
    ]
    found = bars(drawn(cases)["ms"])
    assert [(subject, series) for subject, series, _, _ in found] == [
        ("test_speed[64-both]", "this package"),
        ("test_speed[64-both]", "flash"),
        ("test_speed[64-forward]", "this package"),
        ("test_speed[64-forward]", "flash"),
        ("test_speed[64-forward]", "math"),
    ]
    assert found[-1][3] == 5.077 / 0.241, "by what was measured beside it, not by a median"
    assert found[2][2] == (0.241 + 0.194) / 2


def test_a_smaller_batch_is_not_drawn_beside_a_larger_one() -> None:
    smaller = timed("test_speed[64-forward-math]", 0.1, 2.0, batch="2 instead of 4", shape="f.64")
    cases = [smaller, timed("test_speed[64-forward-flash]", 0.2, 0.2, shape="f.64")]
    subjects = [subject for subject, _ in drawn(cases)["ms"].subjects]
    assert subjects == ["f.64", "test_speed[64-forward-math]"]


def test_a_time_without_a_rival_is_its_own_subject() -> None:
    charts = drawn([Case("test_throughput[fp16]", properties={"milliseconds": "1.5"})])
    assert bars(charts["ms"]) == [("test_throughput[fp16]", "milliseconds", 1.5, None)]
    assert charts["ms"].legend == ()


def test_what_cannot_be_divided_has_no_factor() -> None:
    found = bars(drawn([timed("test_speed[a-math]", 1.0, 2.0, milliseconds="0")])["ms"])
    assert [bar[3] for bar in found] == [None, None]


def test_a_ratio_that_the_times_show_is_not_told_twice() -> None:
    ratio = {"speed.forward.hdim64.over_math": "22.10", "speed.forward.hdim64.over_xla": "2"}
    cases = [timed("t[64-math]", 1.0, 22.1, shape="forward.hdim64"), Case("s", properties=ratio)]
    charts = drawn(cases)
    assert bars(charts["x"]) == [("forward.hdim64", "over_xla", 2.0, None)]
    assert charts["x"].caption.endswith("the line marks 1")


def test_bars_are_bounded_and_sorted_by_size() -> None:
    shown = [
        Figure(str(n), "memory", f"hdim{n}", "peak", float(n), "MiB", "lower")
        for n in (256, 64, 32, 128)
    ]
    (chart,) = figure_charts(shown, 3)
    assert [subject for subject, _ in chart.subjects] == ["hdim32", "hdim64", "hdim128"]
    assert chart.more == 1
    errors = [
        dataclasses.replace(one, group="accuracy", unit="of tolerance", value=one.value / 256)
        for one in shown
    ]
    (chart,) = figure_charts(errors, 2)
    assert [subject for subject, _ in chart.subjects] == ["hdim256", "hdim128"], "the largest"
    assert figure_charts([], 5) == []
