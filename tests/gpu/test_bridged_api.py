"""The driver's API families, natively and through the sandbox's bridge, compared case by case.

``pytest -m gpu tests/gpu/test_bridged_api.py`` on a Linux machine with an NVIDIA GPU and Wine.
``WCW_GPU_OUT`` names a directory that keeps both JUnit reports and logs, ``WCW_GPU_OFFLINE``
forbids the network. ``pytest -m gpu tests/gpu/bridge`` runs the native half alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
from bridged import bridged, bridged_line, kept, natively, require_gpu_and_wine, suite

from pipelines.reports.model import Case, Suite

_AGREED = "agree."
#: What a case may say instead of passing. Anything else that is skipped was not looked at.
_REASONS = (
    "one GPU: peers are two",
    "the GPUs cannot reach each other",
    "this driver has no log of errors",
    "this driver logs nothing of these two errors",
    "compute capability",
)


@dataclass(frozen=True)
class Both:
    native: Suite
    bridged: Suite


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    require_gpu_and_wine()
    base = tmp_path_factory.mktemp("api")
    out, sent = kept("api", base), suite()
    native = natively(sent, base, out)
    with bridged_line(base) as line:
        through = bridged(line, sent, out)
        warned = line.plan.host.bridge()
    (out / "bridge.txt").write_text(f"{warned}\n", "utf-8")
    return Both(native, through)


def _bad(found: Suite) -> list[str]:
    """What did not pass, and was not skipped for a reason that is known here."""
    return [
        f"{case.classname}.{case.name}: {case.outcome}: {case.message}"
        for case in found.cases
        if case.outcome != "passed"
        and not (case.outcome == "skipped" and case.message.startswith(_REASONS))
    ]


def _by_name(found: Suite) -> dict[tuple[str, str], Case]:
    cases = {(case.classname, case.name): case for case in found.cases}
    assert len(cases) == len(found.cases), "two cases of one name"
    return cases


def test_natively(both: Both) -> None:
    """First of all: what the driver itself does not do is no fault of a bridge."""
    assert not (bad := _bad(both.native)), "\n".join(bad)
    assert Counter(case.outcome for case in both.native.cases)["passed"] >= 80


def test_through_the_bridge(both: Both) -> None:
    assert not (bad := _bad(both.bridged)), "\n".join(bad)
    assert Counter(case.outcome for case in both.bridged.cases)["passed"] >= 80


def test_case_by_case(both: Both) -> None:
    native, through = _by_name(both.native), _by_name(both.bridged)
    assert native.keys() == through.keys()
    differ = [
        f"{name}: {case.outcome} {case.message!r}, bridged {through[key].outcome} "
        f"{through[key].message!r}"
        for key, case in native.items()
        if (name := ".".join(key))
        and (case.outcome, case.message) != (through[key].outcome, through[key].message)
    ]
    assert not differ, "\n".join(differ)


def test_what_both_must_have_found_the_same(both: Both) -> None:
    native, through = _by_name(both.native), _by_name(both.bridged)
    compared = 0
    for key, case in native.items():
        for name, value in case.properties.items():
            if name.startswith(_AGREED):
                assert through[key].properties.get(name) == value, (*key, name)
                compared += 1
    assert compared >= 15


def test_each_ran_where_it_should(both: Both) -> None:
    """One through a bridge, one without: the DLL says so itself."""
    told = [
        {case.properties["bridge"] for case in found.cases if "bridge" in case.properties}
        for found in (both.native, both.bridged)
    ]
    assert told[0] == {"none"}
    assert len(told[1]) == 1
    assert all("libcuda.so.1" in text for text in told[1])
