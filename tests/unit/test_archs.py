"""What users write for GPU architectures."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import ConfigError
from pipelines.plan.archs import KNOWN, ArchList, check, parse, supported


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("75;80;86;89;90;120+PTX", "75;80;86;89;90;120+PTX"),
        ("120+ptx, 90 75,,75;\t80 ", "75;80;90;120+PTX"),
        ("8.9", "89"),
        ("8.9+PTX 8.9", "89+PTX"),
        ("12.0 10.0a 9.0", "90;100a;120"),
        ("sm_90a;SM_90;sm90", "90;90a"),
        ("compute_120", "compute_120"),
        ("120;compute_120", "120+PTX"),
        ("6.0+PTX 7.0 7.5 8.0+PTX 9.0a", "60+PTX;70;75;80+PTX;90a"),
        ("103a 100f 100 101", "100;100f;101;103a"),
    ],
)
def test_parse_normalises(text: str, normal: str) -> None:
    assert str(parse(text)) == normal
    assert parse(normal) == parse(text)


def test_sass_and_ptx() -> None:
    assert parse("90a;compute_80;75+PTX") == ArchList(("75", "90a"), ("75", "80"))


@pytest.mark.parametrize(
    ("text", "entry", "nearest"),
    [
        ("75;91", "91", "90"),
        ("75;sm_85", "sm_85", "86"),
        ("80;native", "native", "120"),
        ("8.9.1", "8.9.1", "89"),
        ("90b", "90b", "90"),
        ("121c", "121c", "121"),
        ("12O", "12O", "120"),
        ("8", "8", "80"),
        ("75+PTX+PTX", "75+PTX+PTX", "75"),
        ("+PTX", "+PTX", "120"),
        ("\u0667\u0665", "\u0667\u0665", "120"),
        ("9" * 5000, "9" * 40, "121"),
    ],
)
def test_bad_entries_are_named(text: str, entry: str, nearest: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert repr(entry) in caught.value.message
    assert caught.value.advice.endswith(f" {nearest}")
    assert len(caught.value.message) < 300


@pytest.mark.parametrize("text", ["", " ;, "])
def test_nothing_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="empty"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "cuda", "nearest"),
    [
        ("70;75", "13.0", "75"),
        ("75+PTX;compute_60", "13.0", "75"),
        ("120", "12.6", "90"),
        ("101", "13.0", "100"),
        ("100f", "12.8", "100"),
        ("88", "12.9", "87"),
    ],
)
def test_check_knows_each_cuda(text: str, cuda: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"not known to CUDA {cuda}")) as caught:
        check(parse(text), cuda)
    assert caught.value.advice == f"the nearest valid one is {nearest}"


def test_check_lets_good_ones_pass() -> None:
    check(parse("75;80;86;87;88;89;90;90a;100;100a;100f;103;103a;110;120;120a;121+PTX"))
    check(parse("50;70;90a"), "12.4.1")


@pytest.mark.parametrize("cuda", ["13", "", "cu130", "13.x"])
def test_odd_cuda_versions(cuda: str) -> None:
    with pytest.raises(ConfigError, match="CUDA version"):
        check(parse("90"), cuda)


def test_no_arch_for_an_old_cuda() -> None:
    with pytest.raises(ConfigError, match="not known"):
        check(parse("90"), "5.0")


@settings(derandomize=True, max_examples=30, deadline=None)
@given(
    st.sets(st.sampled_from(list(KNOWN)), min_size=1),
    st.sets(st.sampled_from(list(KNOWN))),
)
def test_round_trip(sass: set[str], ptx: set[str]) -> None:
    order = list(KNOWN)
    archs = ArchList(tuple(sorted(sass, key=order.index)), tuple(sorted(ptx, key=order.index)))
    assert parse(str(archs)) == archs


@settings(derandomize=True, max_examples=40, deadline=None)
@given(st.text(alphabet="0123456789.+;, PTXptxsm_afcoue\u0667-", max_size=20))
def test_any_text_parses_or_is_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert parse(str(parse(text))) == parse(text)


def test_the_table_holds_what_nvcc_lists() -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc on PATH: the table is not compared with a real compiler")
    told = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    release = re.search(r"release (\d+\.\d+)", told)
    if release is None or release[1] != "13.0":
        pytest.skip("nvcc is not 13.0")
    usage = subprocess.run([nvcc, "--help"], capture_output=True, text=True, check=True).stdout
    listed = set(re.findall(r"'sm_(\w+)'", usage))
    assert set(supported("13.0")) == listed
