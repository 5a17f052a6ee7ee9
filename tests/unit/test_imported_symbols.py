"""Names that a wheel's binaries import from its own DLLs, whole: also those of C++."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pefile
import pytest
from foreign_wheels import foreign
from pes import dll

from pipelines.core.finding import Finding
from pipelines.wheels.checks import check_wheel
from pipelines.wheels.metadata import inspect_wheel

LONG = "?" + "a" * 3197  # torch has names of 3,199 characters


def judged(room: Path, files: Mapping[str, bytes]) -> Finding:
    path = foreign(room, "pkg", "1.0", "cp311-cp311-win_amd64", files=files)
    (found,) = (one for one in check_wheel(inspect_wheel(path)) if one.id == "imported-names")
    return found


def library(*exports: str) -> bytes:
    return dll({}, exports)


@pytest.mark.parametrize(
    ("wanted", "exported", "lacking"),
    [
        (["f"], ["f", "g"], ""),
        (["f", "h"], ["f", "g"], "pkg/_C.pyd"),
        (["#2"], ["f", "g"], ""),
        (["#3"], ["f", "g"], "own.dll"),
        ([LONG + "A"], [LONG + "A"], ""),
        ([LONG + "A"], [LONG + "B"], "?aaa"),
        (["f"], [], "own.dll"),
        ([f"f{n}" for n in range(9000)], [f"f{n}" for n in range(8999)], "f8999"),
    ],
)
def test_what_a_dll_lacks(
    tmp_path: Path, wanted: list[str], exported: list[str], lacking: str
) -> None:
    module = dll({"Own.dll": wanted, "KERNEL32.dll": ["Sleep"]})
    found = judged(tmp_path, {"pkg/_C.pyd": module, "pkg/libs/own.dll": library(*exported)})
    assert found.level == ("error" if lacking else "ok")
    assert lacking in found.actual
    if not lacking:
        assert found.actual == f"{len(wanted)} found"


@pytest.mark.parametrize(("machine", "judged_there"), [(0x8664, True), (0xAA64, False)])
def test_a_dll_for_another_machine_answers_nothing(
    tmp_path: Path, machine: int, *, judged_there: bool
) -> None:
    """Windows loads no ARM64 DLL into a program for x64, unless it is both (ARM64X)."""
    other = bytearray(library("f"))
    at = other.index(b"PE\0\0") + 4
    other[at : at + 2] = machine.to_bytes(2, "little")
    files = {"pkg/_C.pyd": dll({"own.dll": ["f"]}), "pkg/own.dll": bytes(other)}
    found = judged(tmp_path, files)
    assert found.checked == judged_there
    assert ("not read: own.dll" in found.actual) != judged_there


def test_one_address_under_many_names(tmp_path: Path) -> None:
    """Linkers fold functions that are the same; pefile takes that for an attack."""
    names = [f"f{n}" for n in range(500)]
    module = dll({"own.dll": names})
    found = judged(tmp_path, {"pkg/_C.pyd": module, "pkg/own.dll": library(*names)})
    assert (found.level, found.actual) == ("ok", "500 found")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"pkg/msvcp140.dll": library("g")}, "not read: msvcp140.dll"),
        ({"pkg/own.dll": library("g"), "pkg/old/own.dll": library("f")}, "not read: own.dll"),
        ({"pkg/own.dll": b"MZ"}, "not read: "),
        ({"pkg/own.dll": library("f" * 9000)}, "not read: own.dll"),
        ({"pkg/_D.pyd": dll({"own.dll": ["f" * 9000]})}, "not read: pkg/_D.pyd"),
        ({"pkg/own.dll": library("bad\x01name", "f")}, "not read: own.dll"),
    ],
)
def test_what_was_not_looked_at_has_not_passed(
    tmp_path: Path, files: Mapping[str, bytes], said: str
) -> None:
    module = dll({"own.dll": ["f"], "MSVCP140.dll": ["f"]})
    found = judged(tmp_path, {"pkg/_C.pyd": module, **files})
    assert found.level == "unknown"
    assert said in found.actual


def test_a_broken_table_of_imports_is_not_an_empty_one(tmp_path: Path) -> None:
    data = dll({"own.dll": ["lacking"]})
    image = pefile.PE(data=data, fast_load=True)
    image.OPTIONAL_HEADER.DATA_DIRECTORY[1].VirtualAddress = 0x7FFF0000
    broken = bytes(image.write())
    found = judged(tmp_path, {"pkg/_C.pyd": broken, "pkg/own.dll": library("f")})
    assert (found.level, found.actual) == ("unknown", "not read: pkg/_C.pyd")


def test_a_wheel_that_imports_nothing_of_its_own(tmp_path: Path) -> None:
    found = judged(tmp_path, {"pkg/_C.pyd": dll({"cudart64_13.dll": ["f"]})})
    assert (found.level, found.actual) == ("ok", "none imported")


def test_what_is_called_late_is_looked_at_too(tmp_path: Path) -> None:
    module = dll({}, late={"Own.dll": ["f", "g"]})
    found = judged(tmp_path, {"pkg/_C.pyd": module, "pkg/own.dll": library("f")})
    assert found.failed
    assert found.actual == "pkg/_C.pyd imports g from own.dll when it is first called"


@pytest.mark.parametrize(
    ("names", "level", "said"),
    [
        ({"torch_cpu.dll": ["aoti_torch_empty"]}, "ok", "1 found"),
        ({"torch_cpu.dll": ["aoti_torch_new"]}, "error", "aoti_torch_new"),
        (
            {"torch_cpu.dll": ["aoti_torch_empty"], "torch_cuda.dll": ["f"]},
            "unknown",
            "not read: torch_cuda.dll",
        ),
        ({"torch_cuda.dll": ["f"]}, "unknown", "not read: torch_cuda.dll"),
        ({"own.dll": ["f"]}, "ok", "imported"),
    ],
)
def test_of_torch_what_was_partly_read_has_not_passed(
    tmp_path: Path, names: Mapping[str, list[str]], level: str, said: str
) -> None:
    exports = {"torch_cpu.dll": frozenset({"aoti_torch_empty"}), "torch_cuda.dll": None}
    path = foreign(tmp_path, "pkg", "1.0", "py3-none-win_amd64", files={"pkg/a.dll": dll(names)})
    torches = {"2.10": exports, "2.11": None}
    checks = check_wheel(inspect_wheel(path), torches=torches)
    found, none = (one for one in checks if one.id == "torch-names")
    assert (found.label, found.level) == ("torch symbols 2.10", level)
    assert said in found.actual
    assert (none.subject, none.level) == ("2.11", "unknown")
