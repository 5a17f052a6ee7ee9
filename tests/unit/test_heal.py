"""Healing: what is changed, and that it ends."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.diagnosis import (
    LIMIT,
    Change,
    Diagnosis,
    Settings,
    diagnose,
    first_error,
    heal,
    load_catalogue,
)
from pipelines.diagnosis import report as reports
from pipelines.record.results import BuildResult

CATALOGUE = load_catalogue()
HEALED = [s.id for s in CATALOGUE.signatures if s.heals]
BASE = Settings(jobs=8, build_root=r"C:\b", environment={"MAX_JOBS": "8", "TEMP": r"C:\t"})


@functools.cache
def of(name: str) -> Diagnosis:
    diagnosis = diagnose(CATALOGUE.by_id[name].sample.splitlines())
    assert diagnosis is not None
    return diagnosis


def healed(name: str, settings: Settings, *tried: Change) -> Change:
    change = heal(of(name), settings, tried)
    assert change is not None
    assert change.before == settings
    assert change.settings != settings
    return change


def changed(change: Change) -> dict[str, Any]:
    """The fields that the change has touched."""
    before, after = vars(change.before), vars(change.settings)
    return {key: value for key, value in after.items() if before[key] != value}


def env(change: Change) -> dict[str, str]:
    assert set(changed(change)) == {"environment"}
    return dict(change.settings.environment)


def test_memory_halves_the_jobs_and_what_repeats_them() -> None:
    for name in ("oom-edg", "oom-llvm", "oom-c1060", "paging-1455", "ptxas-av"):
        change = healed(name, BASE)
        assert changed(change) == {
            "jobs": 4,
            "environment": {"MAX_JOBS": "4", "TEMP": r"C:\t"},
        }
        assert change.what == "4 compile units at a time instead of 8"
        assert name in change.why
    without = Settings(jobs=3, build_root=r"C:\b")
    assert changed(healed("oom-edg", without)) == {"jobs": 1}


def test_one_job_halves_the_threads_then_gives_up() -> None:
    one = Settings(jobs=1, build_root=r"C:\b", nvcc_threads=4, environment={"nvcc_threads": "4"})
    change = healed("oom-edg", one)
    assert changed(change) == {"nvcc_threads": 2, "environment": {"nvcc_threads": "2"}}
    assert heal(of("oom-edg"), Settings(jobs=1, build_root=r"C:\b")) is None


def test_variables_and_flags() -> None:
    assert env(healed("vc-sdk", BASE))["DISTUTILS_USE_SDK"] == "1"
    there = Settings(jobs=1, build_root="", environment={"DISTUTILS_USE_SDK": "1"})
    assert heal(of("vc-sdk"), there) is None
    lower = Settings(jobs=1, build_root="", environment={"Distutils_Use_SDK": "0"})
    assert env(healed("cutlass-traits", lower)) == {"Distutils_Use_SDK": "1"}
    flags = Settings(jobs=1, build_root="", environment={"NVCC_APPEND_FLAGS": "-lineinfo"})
    appended = healed("zc-preproc", flags)
    assert env(appended) == {"NVCC_APPEND_FLAGS": "-lineinfo -Xcompiler=/Zc:preprocessor"}
    assert heal(of("zc-preproc"), appended.settings) is None  # it is there already


def test_leaking_flags_are_dropped_and_no_others() -> None:
    leaking = {"CL": "/MP4 /permissive- /std:c++20 /utf-8", "_CL_": "/std:c++20", "A": "/std:c"}
    change = healed("cudafe-409", Settings(jobs=1, build_root="", environment=leaking))
    assert env(change) == {"CL": "/MP4 /utf-8", "_CL_": "", "A": "/std:c"}
    assert change.what == "no /permissive- in CL, no /std:c++20 in CL, no /std:c++20 in _CL_"
    assert changed(healed("cudafe-409", BASE)) == {"toolset": "14.44"}  # nothing to drop


@pytest.mark.parametrize(
    ("now", "then"),
    [(None, "14.44"), ("14.50.35717", "14.44"), ("14.44.35207", "14.38"), ("14.38", None),
     ("14.29", None)],
)  # fmt: skip
def test_toolset_too_new_goes_down_only(now: str | None, then: str | None) -> None:
    change = heal(of("vs-unsupported"), Settings(jobs=1, build_root="", toolset=now))
    assert (change and change.settings.toolset) == then


def test_only_a_toolset_that_the_host_has() -> None:
    there = Settings(jobs=1, build_root="", toolsets=("14.50.35717", "14.38.33130"))
    assert healed("vs-unsupported", there).settings.toolset == "14.38"  # 14.44 is asked for first
    assert heal(of("vs-unsupported"), replace(there, toolsets=("14.50.35717",))) is None


def test_second_way_of_a_signature_comes_second() -> None:
    first = healed("std-ambig", BASE)
    assert env(first)["NVCC_APPEND_FLAGS"] == "-DUSE_CUDA=1"
    second = healed("std-ambig", first.settings, first)
    assert changed(second) == {"toolset": "14.44"}
    assert env(first)["NVCC_APPEND_FLAGS"] in second.settings.environment.values()  # both hold


def test_shorter_root_only_if_it_is_shorter() -> None:
    deep = Settings(
        jobs=2,
        build_root=r"C:\Users\builder\wheels",
        environment={"TEMP": r"C:\Users\builder\AppData\Local\Temp", "Tmp": r"D:\t"},
    )
    for name in ("longpath-ninja", "longpath-cl", "winerror206"):
        change = healed(name, deep)
        assert change.settings.build_root == r"C:\b"
        assert dict(change.settings.environment) == {"TEMP": r"C:\t", "Tmp": r"D:\t"}
        assert heal(of(name), BASE) is None  # C:\b and C:\t already


def test_root_that_is_shorter_stays() -> None:
    top = Settings(jobs=1, build_root="D:\\", environment={"TMP": r"C:\Users\b\Temp"})
    change = healed("longpath-cl", top)
    assert (change.settings.build_root, change.settings.environment["TMP"]) == ("D:\\", r"C:\t")


def test_what_is_unknown_or_says_nothing_is_not_healed() -> None:
    for signature in CATALOGUE.signatures:
        if not signature.heals and signature.kind != "fact":
            assert heal(of(signature.id), BASE) is None, signature.id
    assert heal(of("ninja-wrapper"), BASE) is None
    assert heal(of("triton-absent"), BASE) is None


def test_wheel_stays_the_one_that_was_asked_for() -> None:
    """No hint that drops architectures or swaps a release is ever done by itself."""
    for name in ("arch-unsupported", "lnk1248", "align-c2719", "no-kernel", "constexpr-c2975"):
        assert not CATALOGUE.by_id[name].heals


def test_at_most_twice_and_first_error_is_kept() -> None:
    first = healed("oom-edg", BASE)
    second = healed("zc-preproc", first.settings, first)
    assert second.settings.jobs == 4  # the first change holds
    last = of("paging-1455")
    assert LIMIT == 2
    assert heal(last, second.settings, [first, second]) is None
    assert first_error([first, second], last) is first.diagnosis
    assert first_error([first, second], None) is first.diagnosis
    assert first_error([], last) is last
    assert first_error([], None) is None
    kept = tuple(map(reports.healed_result, (first, second)))
    assert (kept[0].what, kept[0].line) == ("4 compile units at a time instead of 8", 1)
    told = BuildResult(job="", directory="", jobs=4, healed=kept).story
    assert len(told) == 2
    assert "retry 1 of 2 with 4 compile units" in told[0]
    assert "line 1, oom-edg: " in told[0]
    assert "zc-preproc" in told[1]


def test_settings_are_never_tried_again() -> None:
    """A toolset that was left because of one error is not taken up because of another."""
    newer = Settings(jobs=1, build_root="", toolset="14.44",
                     environment={"NVCC_APPEND_FLAGS": "-DUSE_CUDA=1"})  # fmt: skip
    down = healed("vs-unsupported", newer)
    assert down.settings.toolset == "14.38"
    assert heal(of("std-ambig"), down.settings, [down]) is None  # 14.44 again


SETTINGS = st.builds(
    Settings,
    jobs=st.integers(1, 512),
    build_root=st.sampled_from(["C:\\b", "C:\\", r"C:\Users\a\b", "D:\\w"]),
    nvcc_threads=st.integers(1, 64),
    environment=st.dictionaries(
        st.sampled_from(["MAX_JOBS", "Max_Jobs", "NVCC_THREADS", "CL", "_CL_", "TEMP", "TMP",
                         "NVCC_APPEND_FLAGS", "DISTUTILS_USE_SDK"]),
        st.sampled_from(["", "1", "/permissive- /MP", "C:\\t", r"C:\Users\x\AppData\Local\Temp"]),
    ),
    toolset=st.sampled_from([None, "", "14", "14.38", "14.44.35207", "14.50", "latest"]),
)  # fmt: skip


@given(settings=SETTINGS, failures=st.lists(st.sampled_from(HEALED), min_size=1, max_size=30))
def test_healing_ends_whatever_fails(settings: Settings, failures: list[str]) -> None:
    tried: list[Change] = []
    seen = [settings]
    for name in failures:
        change = heal(of(name), seen[-1], tried)
        if change is None:
            break
        assert change.settings not in seen
        assert change.what not in [earlier.what for earlier in tried]
        assert 1 <= change.settings.jobs <= seen[-1].jobs
        assert 1 <= change.settings.nvcc_threads <= seen[-1].nvcc_threads
        tried.append(change)
        seen.append(change.settings)
    assert len(tried) <= LIMIT
    assert first_error(tried, of(failures[-1])) == of(failures[0]) or not tried
