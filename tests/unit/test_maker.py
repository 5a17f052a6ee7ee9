"""Which tool set built a wheel: what its binaries tell, and every lie of its name or its plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from foreign_wheels import foreign
from pes import MSVC_14_44, MSVC_DLLS, STAND_IN_DLLS, dll, msvc, stand_in

from pipelines.core.finding import Finding
from pipelines.core.toolsets import MSVC, STUB, Toolset, local_version_toolset
from pipelines.wheels.checking import Inputs, Order, Policy
from pipelines.wheels.maker import stated_toolset
from pipelines.wheels.metadata import WheelFacts, inspect_wheel

MODULE = "pkg/_C.cp311-win_amd64.pyd"
REAL = replace(MSVC, stamp="")  # of a host whose wheels may be published
LIBCXX = b".?AVbad_function_call@__1@std@@\0"


def made(room: Path, data: bytes, local: str = "cu130", beside: bytes = b"") -> WheelFacts:
    files = {MODULE: data} | ({"pkg/_D.pyd": beside} if beside else {})
    return inspect_wheel(foreign(room, "pkg", f"1.0+{local}", "cp311-cp311-win_amd64", files=files))


def told(facts: WheelFacts, asked: Toolset | None) -> Finding:
    order = Order("win_amd64", "3.11", toolset=asked)
    (found,) = stated_toolset.run(Inputs(facts.binaries, facts=facts, order=order), Policy())
    return found


def judged(room: Path, data: bytes, asked: Toolset | None, local: str = "cu130") -> Finding:
    return told(made(room, data, local), asked)


@pytest.mark.parametrize(
    ("data", "name", "why"),
    [
        (stand_in(), "stand-in", "linker 14.0, no Rich header, ucrtbase.dll"),
        (stand_in(LIBCXX), "stand-in", "libc++"),
        (msvc(), "MSVC", "linker 14.44, compiler build 35214, vcruntime140.dll"),
        (
            dll({"msvcrt.dll": ["malloc"]}, linker=(2, 35)),
            "",
            "linker 2.35, no Rich header, msvcrt",
        ),
        (dll(MSVC_DLLS), "", "linker 14.0, no Rich header"),
        (dll(STAND_IN_DLLS, linker=(14, 44)), "", "linker 14.44, no Rich header"),
        (msvc(products=MSVC_14_44[:1]), "", "that linker"),
        (msvc(products=(MSVC_14_44[0], MSVC_14_44[3])), "", "that linker"),
        (msvc(imports=STAND_IN_DLLS), "", "contradict"),
        (msvc(linker=(14, 0)), "", "contradict"),
        (msvc(LIBCXX), "", "contradict"),
        (msvc().replace(b"MZ\0", b"MZ\1"), "", "with a wrong checksum"),
        (msvc(before=0x20000), "", "with a wrong checksum"),
    ],
)
def test_what_a_binary_tells(tmp_path: Path, data: bytes, name: str, why: str) -> None:
    (module,) = made(tmp_path, data).extensions
    assert module.pe is not None
    assert module.pe.linked is not None, module.problem
    maker, said = module.pe.linked.maker
    assert (maker.name if maker else "") == name
    assert why in said
    assert module.pe.linked.contradicts == ("contradict" in why or "checksum" in why)


@pytest.mark.parametrize(
    ("data", "asked", "local", "said"),
    [
        # The stand-in's passed off as MSVC's, on a real host and in the sandbox.
        (stand_in(), REAL, "cu130", "was built with stand-in, not with MSVC"),
        (stand_in(), MSVC, "cu130.sandbox.msvc", "was built with stand-in, not with MSVC"),
        # MSVC's passed off as the stand-in's.
        (msvc(), STUB, "cu130.sandbox", "was built with MSVC, not with stand-in"),
        (msvc(), STUB, "cu130", "was built with MSVC, not with stand-in"),
        # True, but not said: whoever finds it takes it for one of real Windows.
        (stand_in(), STUB, "cu130", "its name has no '.sandbox'"),
        (stand_in(), STUB, "cu130sandbox", "its name has no '.sandbox'"),
        (msvc(), MSVC, "cu130", "its name has no '.sandbox.msvc'"),
        # The name alone lies, or the plan.
        (msvc(), REAL, "cu130.sandbox", "this host have none"),
        (msvc(), REAL, "cu130.sandbox.msvc", "'.sandbox.msvc', but wheels"),
        (
            msvc(),
            MSVC,
            "cu130.sandbox",
            "this host have '.sandbox.msvc'",
        ),
        (stand_in(), STUB, "cu130.sandbox.msvc", "this host have '.sandbox'"),
        # Another MSVC than the one asked for.
        (
            msvc(),
            replace(MSVC, version="14.38.33130"),
            "cu130.sandbox.msvc",
            "with MSVC 14.44, not",
        ),
        # Not requested; the name says it.
        (stand_in(), None, "cu130.sandbox.msvc", "was built with stand-in, not with MSVC"),
        (msvc(), None, "cu130.sandbox", "was built with MSVC, not with stand-in"),
        # A header of MSVC's on a binary of another linker.
        (msvc(imports=STAND_IN_DLLS), REAL, "cu130", "contradict"),
    ],
)
def test_lies_are_refused(
    tmp_path: Path, data: bytes, asked: Toolset | None, local: str, said: str
) -> None:
    found = judged(tmp_path, data, asked, local)
    assert found.level == "error"
    assert said in found.hint


@pytest.mark.parametrize(
    ("data", "asked", "local", "told"),
    [
        (stand_in(), STUB, "cu130.sandbox", "stand-in 14.0"),
        (msvc(), MSVC, "cu130.sandbox.msvc", "MSVC 14.44"),
        (msvc(), replace(MSVC, version="14.44.35207"), "cu130.sandbox.msvc", "MSVC 14.44"),
        (msvc(), REAL, "cu130", "MSVC 14.44"),
        (msvc(), None, "cu130.sandbox.msvc", "MSVC 14.44"),
    ],
)
def test_the_truth_passes(
    tmp_path: Path, data: bytes, asked: Toolset | None, local: str, told: str
) -> None:
    found = judged(tmp_path, data, asked, local)
    assert (found.level, found.actual) == ("ok", told)
    assert found.values == (told,)


@pytest.mark.parametrize("asked", [None, REAL, MSVC, STUB])
@pytest.mark.parametrize("data", [dll({}, linker=(2, 36)), b"MZ", msvc(products=())])
def test_what_cannot_be_read_has_not_passed(
    tmp_path: Path, data: bytes, asked: Toolset | None
) -> None:
    found = judged(tmp_path, data, asked, f"cu130{asked.stamp}" if asked else "cu130")
    assert (found.level, found.values) == ("unknown", ())
    assert found.actual.startswith("not read: pkg/_C")


def test_one_module_that_does_not_tell_leaves_the_wheel_unjudged(tmp_path: Path) -> None:
    facts = made(tmp_path, msvc(), beside=dll({}, linker=(2, 36)))
    found = told(facts, REAL)
    assert found.level == "unknown"
    assert "MSVC 14.44; not read: pkg/_D.pyd" in found.actual
    lying = made(tmp_path, msvc(), beside=stand_in())
    assert "pkg/_D.pyd was built with stand-in" in told(lying, REAL).hint


def test_a_wheel_of_dlls_alone(tmp_path: Path) -> None:
    """As extensions of torch without Python in them are; what others bring tells nothing of it."""
    theirs = {f"pkg/{name}": msvc() for name in ("msvcp140.dll", "cudart64_13.dll")}
    for own, ok in ((stand_in(), True), (msvc(), False)):
        files = {"pkg/_cpu.dll": own} | theirs
        path = foreign(tmp_path, "pkg", "1.0+cu130.sandbox", "py3-none-win_amd64", files=files)
        found = told(inspect_wheel(path), STUB)
        assert found.level == ("ok" if ok else "error")


def test_a_dll_beside_a_module_is_looked_at(tmp_path: Path) -> None:
    """Kernels may be in a DLL of the wheel's own, which its module only hands on."""
    for own, ok in ((msvc(), True), (stand_in(), False)):
        files = {MODULE: msvc(), "pkg/kernels.dll": own, "pkg/msvcp140.dll": dll({})}
        path = foreign(tmp_path, "pkg", "1.0+cu130", "cp311-cp311-win_amd64", files=files)
        found = told(inspect_wheel(path), REAL)
        assert found.level == ("ok" if ok else "error")
        assert ok or "pkg/kernels.dll was built with stand-in, not with MSVC" in found.hint


@pytest.mark.parametrize("name", ["msvcp140_kernels.dll", "vcruntime140.dll", "cudart64_13.dll"])
def test_a_name_of_a_run_time_hides_nothing(tmp_path: Path, name: str) -> None:
    """Neither Microsoft's nor NVIDIA's is ever made by the stand-in."""
    files = {MODULE: msvc(), f"pkg/{name}": stand_in()}
    path = foreign(tmp_path, "pkg", "1.0+cu130", "cp311-cp311-win_amd64", files=files)
    found = told(inspect_wheel(path), REAL)
    assert found.failed
    assert f"pkg/{name} was built with stand-in, not with MSVC" in found.hint


@pytest.mark.parametrize(
    ("local", "name"),
    [
        ("cu130.sandbox", "stand-in"),
        ("cu130torch2.10.sandbox.msvc", "MSVC"),
        ("cu130", None),
        ("cu130sandbox", None),
        ("", None),
    ],
)
def test_stamps(local: str, name: str | None) -> None:
    found = local_version_toolset(local)
    assert (found.name if found else None) == name
