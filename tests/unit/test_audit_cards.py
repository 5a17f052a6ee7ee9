"""What a wheel's device code does on real cards, unit by unit, and with which driver."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from audited import finding, one
from fatbins import ELF, PTX, container
from pes import msvc

from pipelines.audit.cards import parse_gpu_option
from pipelines.audit.findings import Card, WheelReport
from pipelines.core.architectures.serving import code_runs_on
from pipelines.core.errors import ConfigError

MODULE = "other/_C.cp311-win_amd64.pyd"


def unit(*codes: str, cuda: str = "12.8", isa: str = "8.7") -> bytes:
    """A container: ``89`` is machine code, ``+89`` PTX."""
    entries = [(PTX if code[0] == "+" else ELF, code.lstrip("+"), 8) for code in codes]
    return container(*entries, cuda=cuda, isa=isa)


def of(seen: WheelReport, capability: str) -> Card:
    (card,) = [each for each in seen.gpus.cards if each.capability == capability]
    return card


@pytest.mark.parametrize(
    ("code", "gpu", "ptx", "expected"),
    [
        ("80", "89", False, True),
        ("89", "80", False, False),
        ("80", "90", False, False),
        ("80", "90", True, True),
        ("90", "89", True, False),
        ("90a", "90", False, True),
        ("100a", "103", False, False),
        ("100a", "120", True, False),
        ("100f", "103", False, True),
        ("100f", "120", True, False),
        ("120f", "121", True, True),
    ],
)
def test_nvidias_rules(code: str, gpu: str, ptx: bool, expected: bool) -> None:
    assert code_runs_on(code, gpu, ptx=ptx) is expected


def test_each_fate(tmp_path: Path) -> None:
    """spconv-cu120 is of that kind: some units have no code but PTX of an old architecture."""
    code = unit("75", "80", "+80") + unit("52", "+80")
    seen = one(tmp_path, {MODULE: msvc(code)})
    fates = {card.capability: card.runs for card in seen.gpus.cards}
    assert (fates["8.9"], fates["12.0"]) == ("jit", "jit")
    assert (fates["7.5"], fates["5.2"], fates["6.1"]) == ("partly", "partly", "no")
    assert (of(seen, "8.9").native, of(seen, "8.9").jit, of(seen, "8.9").units) == (1, 1, 2)
    assert "1 of 2 units have" in of(seen, "7.5").why
    found = finding(seen, "coverage")
    assert found.level == "warning"
    assert "7.5" in found.hint
    assert "75 in 1" in found.hint


def test_every_unit_in_machine_code(tmp_path: Path) -> None:
    seen = one(tmp_path, {MODULE: msvc(unit("80", "86") + unit("80"))})
    assert of(seen, "8.6").runs == "native"
    assert of(seen, "9.0").runs == "no"
    assert finding(seen, "coverage").level == "ok"


def test_the_least_driver(tmp_path: Path) -> None:
    """Any of the family for machine code; for PTX that of the release which wrote it."""
    seen = one(tmp_path, {MODULE: msvc(unit("89", "+89"))})
    assert of(seen, "8.9").driver == "528.33"
    assert of(seen, "12.0").driver == "570.65"
    assert of(seen, "8.0").driver == ""
    old = one(tmp_path, {MODULE: msvc(unit("+80", cuda="12.5", isa="8.5"))})
    drivers = [of(old, each).driver for each in ("8.9", "12.0", "12.1")]
    assert drivers == ["555.85", "570.65", "576.02"]  # of the PTX; then of the cards
    seen = one(tmp_path, {MODULE: msvc(unit("89", cuda="13.0"))})
    assert of(seen, "8.9").driver == "580"
    assert of(one(tmp_path, {MODULE: msvc(container((ELF, "89", 8)))}), "8.9").driver == ""


@pytest.mark.parametrize(
    ("cuda", "isa", "driver"),
    [
        ("13.0", "9.0", "580"),
        ("13.1", "9.1", "590"),
        ("13.2", "9.2", "595"),
        ("13.3", "9.3", "610"),
        ("13.4", "9.4", "616"),
        ("13.5", "9.5", "of CUDA 13.5"),
        ("11.7", "7.7", "of CUDA 11.7"),
        ("11.8", "7.8", "520.06"),
    ],
)
def test_ptx_of_a_release_whose_driver_no_table_has(
    tmp_path: Path, cuda: str, isa: str, driver: str
) -> None:
    """580 is of CUDA 13.0: it runs machine code of 13.2, and does not know its PTX."""
    seen = one(tmp_path, {MODULE: msvc(unit("80", "+80", cuda=cuda, isa=isa))})
    assert (of(seen, "9.0").runs, of(seen, "9.0").driver) == ("jit", driver)
    native = {"13": "580", "11": "452.39"}[cuda[:2]]
    assert (of(seen, "8.0").runs, of(seen, "8.0").driver) == ("native", native)


def test_of_ptx_whose_release_nobody_knows_no_driver_is_named(tmp_path: Path) -> None:
    """A version of PTX that no table has is of a later CUDA: 580 would not compile it."""
    for code in (
        unit("80", "+80", cuda="13.0", isa="9.99"),
        unit("90", "+90", cuda="13.0", isa="9.0") + unit("80", "+80", isa="9.99"),
        unit("80", "+80", cuda="13.0") + unit("+75", isa="9.99"),
    ):
        card = of(one(tmp_path, {MODULE: msvc(code)}), "12.0")
        assert (card.runs, card.driver) == ("jit", "")
    assert of(one(tmp_path, {MODULE: msvc(unit("80", "+80", isa="9.99"))}), "8.0").driver


def test_code_for_tegra_is_for_no_card(tmp_path: Path) -> None:
    seen = one(tmp_path, {MODULE: msvc(unit("87"))})
    assert {card.runs for card in seen.gpus.cards} == {"no"}
    assert "8.7" not in {card.capability for card in seen.gpus.cards}


def test_a_device_link_has_no_ptx_and_that_is_said(tmp_path: Path) -> None:
    seen = one(tmp_path, {MODULE: msvc(unit("80", "+80") + unit("80"))})
    assert of(seen, "12.0").runs == "partly"
    assert "device link" in of(seen, "12.0").why


def linked(parts: bytes, link: bytes) -> bytes:
    """A module of units that were linked: they are in a section, the link's code behind it."""
    data = bytearray(msvc(parts + link))
    section = data.index(b".rdata")
    (size,) = struct.unpack_from("<I", data, section + 16)
    start = len(data) - len(parts + link)
    data[section : section + 8] = b"__nv_rel"
    struct.pack_into("<II", data, section + 16, size + len(parts), start - size)
    return bytes(data)


@pytest.mark.parametrize(
    ("parts", "capability", "runs"),
    [
        (("80", "+80"), "8.9", "native"),
        (("80", "+80"), "12.0", "jit"),
        (("80", "+80"), "7.5", "no"),
        (("80",), "12.0", "no"),
    ],
)
def test_what_was_linked_is_linked_anew_by_the_driver(
    tmp_path: Path, parts: tuple[str, ...], capability: str, runs: str
) -> None:
    """bitsandbytes is of that kind: the code that was linked has no PTX, its parts have."""
    seen = one(tmp_path, {MODULE: linked(unit(*parts) * 2, unit("80"))})
    assert of(seen, capability).runs == runs
    assert of(seen, capability).units == 3
    # One part without PTX, and there is nothing to link.
    seen = one(tmp_path, {MODULE: linked(unit("80", "+80") + unit("80"), unit("80"))})
    assert of(seen, "12.0").runs == "partly"


def test_what_is_linked_anew_needs_the_driver_of_its_parts(tmp_path: Path) -> None:
    """Its parts have machine code for the card, and are compiled of their PTX all the same."""
    parts = unit("90", "+90", cuda="13.2", isa="9.2") * 2
    link = unit("80", cuda="13.2")
    card = of(one(tmp_path, {MODULE: linked(parts, link)}), "9.0")
    assert (card.native, card.jit, card.driver) == (2, 1, "595")


def test_one_library_for_each_cuda(tmp_path: Path) -> None:
    """bitsandbytes is of that kind: it loads the one of torch's CUDA."""
    files = {
        "other/lib_cuda118.dll": msvc(unit("80", cuda="11.8", isa="7.8")),
        "other/lib_cuda128.dll": msvc(unit("80", "120")),
    }
    seen = one(tmp_path, files, tag="py3-none-win_amd64")
    assert of(seen, "8.9").runs == of(seen, "12.0").runs == "native"
    assert (of(seen, "8.9").driver, of(seen, "12.0").driver) == ("520.06", "570.65")
    assert of(seen, "8.0").driver == "452.39"
    assert "lib_cuda128.dll" in of(seen, "12.0").why
    # Of one CUDA they are parts of a whole, whatever they are called.
    same = {"other/lib1.dll": msvc(unit("80")), "other/lib2.dll": msvc(unit("120"))}
    assert of(one(tmp_path, same, tag="py3-none-win_amd64"), "12.0").runs == "partly"
    # Of two, whose names do not say so, both may be loaded.
    same["other/lib1.dll"] = msvc(unit("80", cuda="11.8", isa="7.8"))
    assert of(one(tmp_path, same, tag="py3-none-win_amd64"), "12.0").runs == "partly"


def test_a_card_that_is_asked_for(tmp_path: Path) -> None:
    cards = [parse_gpu_option("RTX 4090"), parse_gpu_option("12.0"), parse_gpu_option("GTX 1080")]
    seen = one(tmp_path, {MODULE: msvc(unit("80", "+80"))}, *cards)
    assert [finding(seen, f"GPU {name}").level for name, _ in cards] == ["ok", "warning", "error"]
    assert "8.9: " in finding(seen, "GPU RTX 4090").text
    assert seen.worst == "error"
    seen = one(tmp_path, None, parse_gpu_option("RTX 4090"))
    assert finding(seen, "GPU RTX 4090").level == "error"  # there is no device code at all
    calls = {MODULE: msvc(imports={"cudart64_12.dll": ["cudaLaunch"]})}
    for files, tag, requires in (
        (calls, "cp311-cp311-win_amd64", ()),
        ({"other/k.cu": b""}, "py3-none-any", ()),
        ({"other/__init__.py": b""}, "py3-none-any", ("torch",)),
    ):  # what may compile later, or call CUDA's own
        seen = one(tmp_path, files, parse_gpu_option("RTX 4090"), tag=tag, requires=requires)
        assert finding(seen, "GPU RTX 4090").level == "unknown"


def test_a_card_that_nobody_knows() -> None:
    with pytest.raises(ConfigError, match="RTX 9999"):
        parse_gpu_option("RTX 9999")
    with pytest.raises(ConfigError, match="one GPU"):
        parse_gpu_option("RTX 4090, A100")


def test_device_code_that_was_read_in_part_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.wheels.fatbin.MAX_STEPS", 2)
    seen = one(tmp_path, {MODULE: msvc(unit("80") * 3)})
    assert {card.runs for card in seen.gpus.cards} == {"unknown"}
    assert finding(seen, "device code intact").level == "error"
