"""What users write for GPU architectures."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.core.architectures.archs import (
    KNOWN,
    ArchList,
    merge_arch_lists,
    parse_arch_list,
    require_supported_archs,
    supported_archs,
)
from pipelines.core.architectures.gpus import arch_of, load_gpu_table, parse_gpu_archs
from pipelines.core.errors import ConfigError
from pipelines.recipe.archmap import Fixed, Listed, Single, Torch, torch_list, translate_archs
from pipelines.recipe.load import load_recipe


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
    assert str(parse_arch_list(text)) == normal
    assert parse_arch_list(normal) == parse_arch_list(text)


def test_sass_and_ptx() -> None:
    assert parse_arch_list("90a;compute_80;75+PTX") == ArchList(("75", "90a"), ("75", "80"))


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
        parse_arch_list(text)
    assert repr(entry) in caught.value.message
    assert caught.value.hint.endswith(f" {nearest}")
    assert len(caught.value.message) < 300


@pytest.mark.parametrize("text", ["", " ;, "])
def test_nothing_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="empty"):
        parse_arch_list(text)


@pytest.mark.parametrize(
    ("text", "cuda", "nearest"),
    [
        ("70;75", "13.0", "75"),
        ("75+PTX;compute_60", "13.0", "75"),
        ("120", "12.6", "90"),
        ("100f", "12.8", "100"),
        ("88", "12.9", "87"),
    ],
)
def test_check_knows_each_cuda(text: str, cuda: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"not known to CUDA {cuda}")) as caught:
        require_supported_archs(parse_arch_list(text), cuda)
    assert caught.value.hint == f"the nearest valid one is {nearest}"


@pytest.mark.parametrize(
    ("text", "cuda", "name"),
    [("101", "13.0", "110"), ("101a", "13.4", "110a"), ("11.0f", "12.9", "101f")],
)
def test_a_gpu_whose_number_changed_is_not_taken_for_its_neighbour(
    text: str, cuda: str, name: str
) -> None:
    """Thor is 10.1 to CUDA 12 and 11.0 to CUDA 13: code for 100 or 103 does not run on it."""
    with pytest.raises(ConfigError, match=re.escape(f"not known to CUDA {cuda}")) as caught:
        require_supported_archs(parse_arch_list(text), cuda)
    assert caught.value.hint == f"this CUDA release calls it {name}"
    require_supported_archs(parse_arch_list(name), cuda)


def test_check_lets_good_ones_pass() -> None:
    require_supported_archs(
        parse_arch_list("75;80;86;87;88;89;90;90a;100;100a;100f;103;103a;110;120;120a;121+PTX")
    )
    require_supported_archs(parse_arch_list("50;70;90a"), "12.4.1")


@pytest.mark.parametrize(
    ("cuda", "said"),
    [*((odd, "CUDA version") for odd in ("13", "", "cu130", "13.x")), ("5.0", "not known")],
)
def test_odd_and_old_cuda_versions(cuda: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        require_supported_archs(parse_arch_list("90"), cuda)


@settings(derandomize=True, max_examples=30, deadline=None)
@given(
    st.sets(st.sampled_from(list(KNOWN)), min_size=1),
    st.sets(st.sampled_from(list(KNOWN))),
)
def test_round_trip(sass: set[str], ptx: set[str]) -> None:
    order = list(KNOWN)
    archs = ArchList(tuple(sorted(sass, key=order.index)), tuple(sorted(ptx, key=order.index)))
    assert parse_arch_list(str(archs)) == archs


@settings(derandomize=True, max_examples=40, deadline=None)
@given(st.text(alphabet="0123456789.+;, PTXptxsm_afcoue\u0667-", max_size=20))
def test_any_text_parses_or_is_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert parse_arch_list(str(parse_arch_list(text))) == parse_arch_list(text)


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
    assert set(supported_archs("13.0")) == listed


# -- names of GPUs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("NVIDIA GeForce RTX 4090", "89"),
        ("RTX 40xx", "89"),
        ("rtx 4070 ti super", "89"),
        ("NVIDIA GeForce RTX 4060 Laptop GPU", "89"),
        ("RTX 3090", "86"),
        ("RTX 50xx", "120"),
        ("GeForce RTX 5070 Ti", "120"),
        ("RTX 20xx", "75"),
        ("GTX 1650", "75"),
        ("GTX 1080 Ti", "61"),
        ("NVIDIA A100-SXM4-80GB", "80"),
        ("NVIDIA H100 80GB HBM3", "90"),
        ("NVIDIA H200", "90"),
        ("Tesla T4", "75"),
        ("Tesla V100-SXM2-16GB", "70"),
        ("NVIDIA L40S", "89"),
        ("NVIDIA A10G", "86"),
        ("B200", "100"),
        ("Jetson AGX Orin", "87"),
        # Three generations of workstation boards share a number.
        ("Quadro RTX 4000", "75"),
        ("NVIDIA RTX A4000", "86"),
        ("NVIDIA RTX 4000 Ada Generation", "89"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "120"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "120"),
        ("NVIDIA RTX PRO 4000 Blackwell SFF Edition", "120"),
        ("NVIDIA GeForce RTX 5090 D v2", "120"),
        ("NVIDIA GeForce RTX 3050 6GB Laptop GPU", "86"),
        ("NVIDIA RTX A1000 6GB Laptop GPU", "86"),
        ("NVIDIA T1000 8GB", "75"),
        ("NVIDIA GeForce RTX 2050", "86"),
        ("NVIDIA GeForce MX570", "86"),
        ("NVIDIA GeForce MX550", "75"),
        ("NVIDIA GeForce GTX 1650 with Max-Q Design", "75"),
        ("NVIDIA RTX 500 Ada Generation Laptop GPU", "89"),
        ("NVIDIA RTX 5880 Ada Generation", "89"),
        ("NVIDIA RTX PRO 5000 72GB Blackwell", "120"),
        ("NVIDIA RTX PRO 6000D", "120"),
        ("NVIDIA RTX A500 Laptop GPU", "86"),
        ("Quadro T2000", "75"),
        ("Quadro P2200", "61"),
        ("Tesla M60", "52"),
        ("Tesla M10", "50"),
        ("NVIDIA L2", "89"),
        ("NVIDIA A800 40GB Active", "80"),
        ("NVIDIA B300 SXM6 AC", "103"),
        ("GRID T4-16Q", "75"),
        ("NVIDIA A10-4C", "86"),
        ("NVIDIA A100-4C", "80"),
        ("NVIDIA L40S-8Q", "89"),
        ("NVIDIA T500", None),
        ("RTX PRO 6000", "120"),
        ("RTX 4000", None),
        ("RTX 6090", None),
        ("x" * 5000, None),
    ],
)
def test_names_of_gpus(name: str, arch: str | None) -> None:
    assert arch_of(name) == arch


def test_the_table_of_gpus() -> None:
    for gpu in load_gpu_table().gpus:
        assert gpu.arch in KNOWN
        assert re.compile(gpu.match)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("89", "89"),
        ("8.9+PTX", "89+PTX"),
        ("RTX 40xx", "89"),
        ("RTX 30xx, RTX 5090 + PTX; 8.0", "80;86;120+PTX"),
        ("sm_90a; compute_120", "90a;compute_120"),
        ("75 80 90+PTX", "75;80;90+PTX"),
        ("native", "86;89"),
        ("Native+PTX, A100", "80;86+PTX;89+PTX"),
        ("89-real;90a-real", "89;90a"),
        ("80;90-virtual", "80;compute_90"),
        ("4090", "89"),
        ("4070 Ti Super", "89"),
    ],
)
def test_everything_a_user_may_write(text: str, normal: str) -> None:
    assert str(parse_gpu_archs(text, native=("8.9", "8.6", "8.9"))) == normal


@pytest.mark.parametrize(
    ("text", "native", "said"),
    [
        ("native", None, "was not asked"),
        ("native", (), "it has none"),
        ("RTX 4000", None, "'RTX 4000' is not known"),
        ("Radeon 7900", None, "'Radeon 7900' is not known"),
        ("90+PTXX", None, "'90+PTXX' is not understood"),
        ("85", None, "no architecture"),
        ("", None, "empty"),
        ("8,9", None, "two architectures"),
        ("all", None, "'all' is not known"),
        ("RTX 9999", None, "'RTX 9999' is not known"),
    ],
)
def test_what_no_gpu_is_called(text: str, native: tuple[str, ...] | None, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        parse_gpu_archs(text, native)
    assert caught.value.hint
    assert "GTX" not in caught.value.hint  # near in letters alone


# -- what packages make of it ---------------------------------------------------------------------

FLASH = load_recipe("flash-attn").arch_map
MAIN = load_recipe("flash-attn", version="main").arch_map
OLD = load_recipe("flash-attn", version="2.3.6").arch_map
FROM_AMPERE = [arch for arch in KNOWN if int(arch.rstrip("af")) >= 80 and not arch.endswith("f")]


def gencodes(variables: dict[str, str], cuda: str, *, newer: bool = False) -> ArchList:
    """What flash-attn's setup.py (2.7 to 2.8.3; ``newer`` main) and torch make of ``variables``.

    setup.py compares strings with a closed list. torch adds flags of its own only where no flag
    of the package names an arch, and takes the local GPU, which a host may not have, without list.
    """
    release = tuple(map(int, cuda.split(".")))
    told = variables.get("FLASH_ATTN_CUDA_ARCHS", "80;90;100;120").split(";")
    needs = {"80": (0, 0), "90": (11, 8), "100": (12, 8), "120": (12, 8)}
    needs |= {"110": (13, 0)} if newer else {}
    sass = [arch for arch, least in needs.items() if arch in told and release >= least]
    ptx = [max((a for a in told if a.isdigit()), key=int)] if newer and sass else []
    if sass:
        return parse_arch_list(";".join([*sass, *(f"compute_{arch}" for arch in ptx)]))
    return parse_arch_list(
        variables["TORCH_CUDA_ARCH_LIST"]
    )  # KeyError: the local GPU would decide


@settings(derandomize=True, max_examples=200, deadline=None)
@given(
    st.sets(st.sampled_from(FROM_AMPERE), min_size=1),
    st.data(),
    st.sampled_from(["12.4", "12.6", "12.8", "13.0"]),
    st.booleans(),
)
def test_flash_attn_gets_exactly_what_was_asked_for(
    sass: set[str], data: st.DataObject, cuda: str, newer: bool
) -> None:
    """86 and 89 are in none of its lists: given to it, they meant nothing, without a word."""
    ptx = data.draw(st.sets(st.sampled_from(sorted(sass))))
    archs = merge_arch_lists(ArchList(()), ArchList(tuple(sass), tuple(ptx)))
    made = translate_archs(MAIN if newer else FLASH, archs, cuda, "flash-attn")
    assert gencodes(made.variables, cuda, newer=newer) == archs == made.effective


@pytest.mark.parametrize(
    ("archs", "cuda", "variables", "notes"),
    [
        ("80;90", "12.8", {"FLASH_ATTN_CUDA_ARCHS": "80;90"}, 0),
        (
            "89",
            "12.8",
            {"FLASH_ATTN_CUDA_ARCHS": "torch", "TORCH_CUDA_ARCH_LIST": "8.9"},
            1,
        ),
        (
            "80;86+PTX",
            "12.8",
            {"FLASH_ATTN_CUDA_ARCHS": "torch", "TORCH_CUDA_ARCH_LIST": "8.0;8.6+PTX"},
            2,
        ),
    ],
)
def test_the_trap_of_86_and_89(
    archs: str, cuda: str, variables: dict[str, str], notes: int
) -> None:
    made = translate_archs(FLASH, parse_arch_list(archs), cuda, "flash-attn")
    assert made.variables == variables
    assert len(made.notes) == notes
    if notes:
        assert "does nothing for 8" in made.notes[0]


def test_flash_attn_has_nothing_for_turing() -> None:
    with pytest.raises(ConfigError, match="no code for 75") as caught:
        translate_archs(FLASH, parse_arch_list("75;80"), "12.8", "flash-attn")
    assert "issues/1640" in caught.value.message
    assert caught.value.hint.endswith("80")


def test_an_old_flash_attn_compiles_its_own_as_well() -> None:
    made = translate_archs(OLD, parse_arch_list("89+PTX"), "12.1", "flash-attn")
    assert str(made.effective) == "80;89+PTX;90"
    assert made.variables == {
        "NVCC_APPEND_FLAGS": "-gencode=arch=compute_89,code=sm_89 "
        "-gencode=arch=compute_89,code=compute_89"
    }
    plain = translate_archs(OLD, parse_arch_list("80;90"), "12.1", "flash-attn")
    assert (plain.variables, plain.notes) == ({}, ())


def test_torch_has_its_own_spelling() -> None:
    made = translate_archs(Torch(kind="torch"), parse_arch_list("75;90a;120+PTX"), "12.8", "x")
    assert made.variables == {"TORCH_CUDA_ARCH_LIST": "7.5;9.0a;12.0+PTX"}
    with pytest.raises(ConfigError, match="family target 120f") as caught:
        torch_list(parse_arch_list("120f"))
    assert caught.value.hint.endswith("120")
    with pytest.raises(ConfigError, match="PTX of 90 without") as caught:
        torch_list(parse_arch_list("80;compute_90"))
    assert caught.value.hint.endswith("90+PTX")


def test_one_architecture_a_build() -> None:
    candle = load_recipe("candle-flash-attn").arch_map
    assert isinstance(candle, Single)
    assert translate_archs(candle, parse_arch_list("89"), "12.8", "c").variables == {
        "CUDA_COMPUTE_CAP": "89"
    }
    for text in ("80;89", "89+PTX"):
        with pytest.raises(ConfigError, match="one architecture at a time"):
            translate_archs(candle, parse_arch_list(text), "12.8", "candle")


def test_maps_name_known_architectures() -> None:
    with pytest.raises(ValueError, match="no architecture"):
        Fixed(kind="fixed", compiles={"85": ">=12"})
    with pytest.raises(ValueError, match="not a version range"):
        Listed(kind="listed", variable="A", understands={"80": "new"}, none="x")
