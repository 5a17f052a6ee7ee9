"""The judgement of a wheel's facts, each check on its own."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import pytest
from fatbins import ELF, container

from pipelines.core.architectures.archs import parse_arch_list
from pipelines.core.finding import Finding
from pipelines.recipe.load import load_recipe
from pipelines.wheels.binary import Binary
from pipelines.wheels.checking import Kernels, Order
from pipelines.wheels.checks import check_library, check_wheel
from pipelines.wheels.devicecode import Reading
from pipelines.wheels.fatbin import Container, Inventory
from pipelines.wheels.metadata import RecordFacts, WheelFacts
from pipelines.wheels.pe import PeFacts

PE = PeFacts(0x8664, ("PyInit__C",))


def unit(offset: int, sass: str, ptx: str = "", cuda: str = "13.0", isa: str = "9.0") -> Container:
    """A whole container that ``cuda`` has made."""
    return Container(
        offset,
        frozenset(sass.split()),
        frozenset(ptx.split()),
        releases=frozenset(cuda.split()),
        isas=frozenset([isa] if ptx else []),
    )


GOOD = unit(0x400, "75 90a", "90a")
LINKED = unit(0x800, "75 90a")
TAG = "cp311-cp311-win_amd64"
FACTS = WheelFacts(
    filename=f"pkg-1.0+cu130-{TAG}.whl",
    size=1000,
    sha256="00",
    name="pkg",
    version="1.0+cu130",
    tags=(TAG,),
    metadata_name="Pkg",
    metadata_version="1.0+cu130",
    wheel_tags=(TAG,),
    dist_info="pkg-1.0+cu130.dist-info",
    record=RecordFacts(),
    binaries=(
        Binary(
            "pkg/_C.cp311-win_amd64.pyd",
            Inventory((GOOD, LINKED)),
            PE,
            code=Reading(links=frozenset({LINKED.offset})),
        ),
    ),
)
MODULE = FACTS.binaries[0]


def judged(
    facts: WheelFacts,
    archs: str,
    cuda: str = "13.0",
    *,
    python: str = "3.11",
    tag: str | None = None,
    platform: str = "win_amd64",
    expects: Callable[[str], Collection[str]] | None = None,
) -> tuple[Finding, ...]:
    return check_wheel(
        facts,
        order=Order(platform, python, tag),
        kernels=Kernels(parse_arch_list(archs), cuda, expects),
    )


def failed(facts: WheelFacts, archs: str = "75;90a+PTX", cuda: str = "13.0") -> dict[str, Finding]:
    checks = judged(facts, archs, cuda)
    assert len({check.label for check in checks}) == len(checks)
    return {check.label: check for check in checks if check.failed}


def device(*containers: Container, complete: bool = True) -> WheelFacts:
    return replace(FACTS, binaries=(replace(MODULE, inventory=Inventory(containers, complete)),))


def test_ptx_is_due_in_each_unit_that_was_compiled() -> None:
    """A union would hide the one unit that newer GPUs cannot run."""
    bare = unit(0xC00, "75 90a")
    assert set(failed(device(GOOD, bare))) == {"PTX"}
    only: tuple[str, ...]
    for asked, only, wrong in (
        ("75;90a+PTX", ("75",), {"SASS", "PTX"}),  # no binary is left that could have it
        ("75;90a+PTX", ("90a",), {"SASS"}),
        ("75+PTX", (), {"SASS", "PTX"}),
    ):
        checks = judged(FACTS, asked, expects={MODULE.name: only}.__getitem__)
        assert {check.label for check in checks if check.failed} == wrong, asked


def test_no_device_code_has_its_own_text() -> None:
    checks = failed(device())
    assert set(checks) == {"device code", "CUDA", "SASS", "PTX"}
    assert "no device code at all" in checks["device code"].hint
    assert "build can succeed" in checks["device code"].hint
    assert checks["SASS"].hint == "see 'device code'"


def test_one_unit_without_an_arch_is_found() -> None:
    short = unit(0x1234, "75", "90a")
    checks = failed(device(GOOD, short, LINKED))
    assert set(checks) == {"SASS"}
    assert checks["SASS"].actual == "90a in 2/3"
    assert "0x1234" in checks["SASS"].hint
    assert MODULE.name in checks["SASS"].hint


def test_a_variant_is_not_its_base() -> None:
    assert failed(FACTS, "75;90")["SASS"].actual == "90 in 0/2"


def test_ptx_must_be_somewhere() -> None:
    assert failed(device(LINKED))["PTX"].actual == "none"
    assert "PTX" not in failed(device(LINKED), "75;90a")
    assert failed(FACTS, "75;90a;compute_120")["PTX"].actual == "90a in 1/2"


def test_unasked_for_is_told_and_not_refused() -> None:
    (told,) = [check for check in judged(FACTS, "75") if check.label == "extra architectures"]
    assert not told.failed
    assert "90a" in told.hint


def test_what_was_found_is_there_for_programs() -> None:
    """All that is in it, asked for or not, whole or not."""
    short = unit(0x1234, "80 120", "120")
    for archs in ("75;90a+PTX", "89"):
        checks = judged(device(GOOD, short), archs)
        values = {check.label: check.values for check in checks if check.values}
        del values["CUDA"]
        assert values == {
            "SASS": ("75", "80", "90a", "120"),
            "PTX": ("90a", "120"),
            "tags": (TAG,),
        }


def test_damaged_device_code() -> None:
    assert "at 0x400" in failed(device(replace(GOOD, intact=False)))["device code intact"].actual
    assert "in part" in failed(device(GOOD, complete=False))["device code intact"].actual


def test_a_bundled_library_is_judged_only_when_no_module_has_code() -> None:
    blas = Binary("pkg/cublas64_13.dll", Inventory((unit(0, "120", cuda="12.8"),)), PE)
    assert failed(replace(FACTS, binaries=(MODULE, blas))) == {}
    plain = replace(MODULE, inventory=Inventory())
    assert "SASS" in failed(replace(FACTS, binaries=(plain, blas)))


@pytest.mark.parametrize(
    ("change", "name", "text"),
    [
        ({"record": RecordFacts(missing=("a.py",))}, "RECORD", "1 missing from the wheel: a.py"),
        ({"record": RecordFacts(extra=("b.py",))}, "RECORD", "1 not in RECORD: b.py"),
        ({"record": RecordFacts(wrong=tuple("abcdefg"))}, "RECORD", "e and 2 more"),
        ({"metadata_version": "1.0"}, "name and version", "METADATA Pkg 1.0,"),
        ({"metadata_version": "?"}, "name and version", "METADATA Pkg ?"),
        ({"metadata_name": "other"}, "name and version", "METADATA other"),
        ({"dist_info": "pkg-1.0.dist-info"}, "name and version", "pkg-1.0.dist-info"),
        ({"wheel_tags": ("cp311-cp311-linux_x86_64",)}, "tags", "linux_x86_64"),
    ],
)
def test_packaging(change: dict[str, object], name: str, text: str) -> None:
    checks = failed(replace(FACTS, **change))  # type: ignore[arg-type]
    assert set(checks) == {name}
    assert text in checks[name].actual


def test_a_wheel_for_another_platform() -> None:
    tags = ("py3-none-any",)
    assert failed(replace(FACTS, tags=tags, wheel_tags=tags))["platform"].actual == "any"


@pytest.mark.parametrize(
    ("tag", "python", "ok"),
    [
        ("cp311-cp311", "3.11", True),
        ("cp311-cp311", "3.12", False),
        ("cp311-abi3", "3.12", True),
        ("cp313-abi3", "3.12", False),
        ("py3-none", "3.12", True),
        ("cp31-cp31", "3.11", False),
    ],
)
def test_the_python_is_the_one_asked_for(tag: str, python: str, ok: bool) -> None:
    tags, module = (f"{tag}-win_amd64",), replace(MODULE, name="pkg/_C.pyd")
    facts = replace(FACTS, tags=tags, wheel_tags=tags, binaries=(module,))
    rows = judged(facts, "75", python=python)
    assert {row.label for row in rows if row.failed} == (set() if ok else {"Python"})


FREE = replace(PE, imports=("KERNEL32.dll", "python314t.dll"))


@pytest.mark.parametrize(
    ("tag", "module", "imports", "python", "wrong"),
    [
        ("cp314-cp314t", "pkg/_C.cp314t-win_amd64.pyd", FREE.imports, "3.14t", ""),
        ("cp314-cp314", "pkg/_C.cp314-win_amd64.pyd", ("python314.dll",), "3.14", ""),
        # The wheel of one Python for the other: each pip refuses it.
        ("cp314-cp314", "pkg/_C.pyd", (), "3.14t", "Python"),
        ("cp314-cp314t", "pkg/_C.pyd", (), "3.14", "Python"),
        ("cp314-abi3", "pkg/_C.pyd", (), "3.14t", "Python"),
        # Named for the one, compiled for the other: both pips install it, and it breaks.
        ("cp314-cp314t", "pkg/_C.pyd", ("python314.dll",), "3.14t", "without Py_GIL_DISABLED"),
        ("cp314-cp314t", "pkg/_C.cp314-win_amd64.pyd", (), "3.14t", "without Py_GIL_DISABLED"),
        ("cp314-cp314", "pkg/_C.pyd", ("python314t.dll",), "3.14", "free-threaded"),
        ("cp314-cp314", "pkg/_C.pyd", ("python313.dll",), "3.14", "for Python 3.13"),
        ("cp314-cp314t", "pkg/_C.pyd", ("python3.dll",), "3.14t", "not free-threaded"),
        ("cp314-cp314", "pkg/_C.pyd", ("python3t.dll",), "3.14", "free-threaded"),
    ],
)
def test_a_python_without_the_global_lock(
    tag: str, module: str, imports: tuple[str, ...], python: str, wrong: str
) -> None:
    tags = (f"{tag}-win_amd64",)
    binary = replace(MODULE, name=module, pe=replace(PE, imports=imports))
    facts = replace(FACTS, tags=tags, wheel_tags=tags, binaries=(binary,))
    found = {row.label: row.actual for row in judged(facts, "75", python=python) if row.failed}
    if wrong in ("", "Python"):
        assert [*found] == [wrong] * bool(wrong)
    else:
        assert wrong in found["Python's own ABI"]


@pytest.mark.parametrize(
    ("tag", "python", "imports", "ok"),
    [
        ("cp39-abi3", "3.12", ("python3.dll",), True),
        ("cp39-abi3", "3.12", ("python312.dll",), False),  # Python 3.13 cannot load it
        ("cp315-abi3t", "3.15t", ("python3t.dll",), True),
        ("cp315-abi3t", "3.15t", ("python3.dll",), False),
        ("cp315-abi3t", "3.15t", ("python315t.dll",), False),
    ],
)
def test_the_limited_api_is_kept_to(
    tag: str, python: str, imports: tuple[str, ...], ok: bool
) -> None:
    tags = (f"{tag}-win_amd64",)
    binary = replace(MODULE, name="pkg/_C.pyd", pe=replace(PE, imports=imports))
    facts = replace(FACTS, tags=tags, wheel_tags=tags, binaries=(binary,))
    rows = judged(facts, "75", python=python, tag=tag)
    assert [row.label for row in rows if row.failed] == ([] if ok else ["Python's own ABI"])


@pytest.mark.parametrize(
    ("tag", "machine", "wrong"),
    [
        ("win_arm64", 0xAA64, {}),
        # Under an arm64 tag no Python of Windows on Arm loads it; ARM64EC is for x64 processes.
        ("win_arm64", 0x8664, {"machine": "x64 (0x8664)"}),
        ("win_arm64", 0xA641, {"machine": "ARM64EC (0xa641)"}),
        ("win_amd64", 0xAA64, {"platform": "win_amd64", "machine": "ARM64 (0xaa64)"}),
    ],
)
def test_windows_on_arm(tag: str, machine: int, wrong: dict[str, str]) -> None:
    """What a wheel of ``win_arm64`` must be, whatever it calls itself."""
    tags = (f"cp311-cp311-{tag}",)
    binary = replace(MODULE, name="pkg/_C.pyd", pe=replace(PE, machine=machine))
    facts = replace(FACTS, tags=tags, wheel_tags=tags, binaries=(binary,))
    rows = judged(facts, "75", platform="win_arm64")
    found = {row.label: row.actual for row in rows if row.failed}
    assert found.keys() == wrong.keys()
    assert all(text in found[name] for name, text in wrong.items())


def test_windows_binaries() -> None:
    arm = replace(MODULE, pe=replace(PE, machine=0xAA64))
    assert "ARM64 (0xaa64)" in failed(replace(FACTS, binaries=(arm,)))["machine"].actual
    mute = replace(MODULE, pe=replace(PE, inits=("PyInit__D",)))
    assert "without PyInit__C" in failed(replace(FACTS, binaries=(mute,)))["PyInit"].actual
    odd = replace(MODULE, pe=None, problem="no readable Windows binary: DOS Header not found.")
    assert "DOS Header" in failed(replace(FACTS, binaries=(odd,)))["machine"].actual
    elf = replace(MODULE, name="pkg/_C.so", pe=None)
    assert "pkg/_C.so is no" in failed(replace(FACTS, binaries=(elf,)))["tags match contents"].hint


def test_without_an_extension() -> None:
    checks = failed(replace(FACTS, binaries=()))
    assert set(checks) == {"extension module", "device code", "CUDA", "SASS", "PTX"}


def test_a_linux_wheel_has_no_windows_checks() -> None:
    tags = ("cp311-cp311-linux_x86_64",)
    module, helper = replace(MODULE, name="pkg/_C.so", pe=None), replace(MODULE, name="pkg/a.dll")
    facts = replace(FACTS, tags=tags, wheel_tags=tags, binaries=(module, helper))
    checks = judged(facts, "75", platform="linux_x86_64")
    assert "PyInit" not in {check.label for check in checks}
    assert not [check for check in checks if check.failed]


def two_modules(flash: Container) -> WheelFacts:
    """As xFormers' wheels: one module for all GPUs, one for those of FlashAttention 3."""
    main = replace(MODULE, name="xformers/_C.pyd", inventory=Inventory((GOOD,)))
    other = replace(MODULE, name="xformers/flash_attn_3/_C.pyd", inventory=Inventory((flash,)))
    return replace(FACTS, binaries=(main, other))


@pytest.mark.parametrize(("have", "found"), [("90a", ""), ("80", "90a in 1/2")])
def test_a_module_need_not_have_what_it_cannot(have: str, found: str) -> None:
    recipe, archs = load_recipe("xformers", version="0.0.34"), parse_arch_list("75;90a+PTX")
    facts = two_modules(unit(0x9000, have))
    checks = judged(facts, str(archs), expects=lambda name: recipe.archs_of(name, archs))
    sass = {check.label: check for check in checks}["SASS"]
    assert (sass.failed, sass.actual if sass.failed else "") == (bool(found), found)
    assert {check.label: check for check in judged(facts, str(archs))}["SASS"].failed


def test_a_library_of_kernels() -> None:
    blank = b"!<arch>\n" + bytes(1000)
    nothing = check_library("libkernels.a", blank, Kernels(parse_arch_list("89"), "12.8"))
    assert [row.label for row in nothing if row.failed] == ["device code", "CUDA", "SASS"]
    for cuda, wrong in (("12.8", []), ("12.9", ["CUDA"])):
        kernels = b"!<arch>\n" + container((ELF, "89", 0), cuda="12.8")
        rows = check_library("libkernels.a", kernels, Kernels(parse_arch_list("89"), cuda))
        assert [row.label for row in rows if row.failed] == wrong


@pytest.mark.parametrize(
    ("made", "cuda", "found"),
    [
        (unit(0, "75 90a", "90a"), "13.0", ""),
        (unit(0, "75 90a", "90a"), "99.9", "CUDA 13.0 in 1/1, PTX 9.0 in 1/1"),
        (unit(0, "75 90a", "90a"), "12.8", "CUDA 13.0 in 1/1, PTX 9.0 in 1/1"),
        (unit(0, "75 90a", "90a"), "13.1", "CUDA 13.0 in 1/1, PTX 9.0 in 1/1"),
        (unit(0, "75 90a", "90a", "12.10"), "12.1", "CUDA 12.10 in 1/1, PTX 9.0 in 1/1"),
        # the PTX alone tells it: SASS that is compressed, and a release that shares its ISA
        (unit(0, "75 90a", "90a", "", "8.7"), "12.8", ""),
        (unit(0, "75 90a", "90a", "", "8.7"), "13.0", "PTX 8.7 in 1/1"),
        (unit(0, "75 90a", "90a", "", "8.5"), "12.5", ""),
        (unit(0, "75 90a", "90a", "", "8.5"), "12.6", ""),
        (unit(0, "75 90a", "90a", "", "77.1"), "13.0", "PTX 77.1 in 1/1"),
        # a release that is not in the table is known by its SASS alone
        (unit(0, "75 90a", "90a", "14.2", "9.9"), "14.2", ""),
        (unit(0, "75 90a", "90a", "", "9.9"), "14.2", "unknown"),
        # by the major version, as names of wheels say it
        (unit(0, "75 90a", "90a", "12.3", "8.3"), "12", ""),
        (unit(0, "75 90a", "90a", "12.3", "8.3"), "13", "CUDA 12.3 in 1/1, PTX 8.3 in 1/1"),
        (unit(0, "75 90a", "90a", "13.0 12.8"), "13.0", "CUDA 12.8 in 1/1"),
    ],
)
def test_the_tool_kit_is_the_one_asked_for(made: Container, cuda: str, found: str) -> None:
    plain = replace(
        device(made), version="1.0", metadata_version="1.0", dist_info="pkg-1.0.dist-info"
    )
    checks = failed(plain, cuda=cuda)
    assert set(checks) == ({"CUDA"} if found else set())
    assert not found or checks["CUDA"].actual == found


def test_one_unit_of_another_tool_kit_is_found() -> None:
    """As a compile cache would leave it that mixes two."""
    told = failed(device(GOOD, LINKED, unit(0x900, "75 90a", cuda="12.8")))["CUDA"]
    assert told.actual == "CUDA 12.8 in 1/3"
    assert told.expected.startswith("13.0")


def test_a_tool_kit_that_cannot_be_seen_is_no_tool_kit() -> None:
    """All SASS compressed, no PTX: that is said, with what shows it; it does not pass."""
    told = failed(device(unit(0, "75 90a", cuda="")), "75;90a")["CUDA"]
    assert told.actual == "unknown"
    assert "90+PTX" in told.hint


def test_one_that_tells_speaks_for_the_others_and_they_are_counted() -> None:
    (told,) = [
        row for row in judged(device(GOOD, unit(0, "75 90a", cuda="")), "75") if row.label == "CUDA"
    ]
    assert (told.level, told.actual) == ("ok", "CUDA 13.0 in 1/2, PTX 9.0 in 1/2")


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("cudart64_13.dll", False), ("CUDART64_12.dll", True), ("cudart64_110.dll", True)],
)
def test_the_run_time_that_a_module_links_is_of_the_same_major(name: str, wrong: bool) -> None:
    linked = replace(MODULE, pe=replace(PE, cudarts=(name,)))
    checks = failed(replace(FACTS, binaries=(linked,)))
    assert set(checks) == ({"CUDA"} if wrong else set())
    assert not wrong or checks["CUDA"].actual == name.lower()
