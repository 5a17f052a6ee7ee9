"""Names that a wheel's binaries import from its own DLLs, whole: also those of C++."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from foreign_wheels import foreign
from pes import dll

from pipelines.architectures.archs import ArchList
from pipelines.record import CheckResult
from pipelines.wheels.checks import gate
from pipelines.wheels.metadata import inspect

LONG = "?" + "a" * 3197  # torch has names of 3,199 characters


def judged(room: Path, files: Mapping[str, bytes]) -> CheckResult:
    path = foreign(room, "pkg", "1.0", "cp311-cp311-win_amd64", files=files)
    checks = gate(inspect(path), ArchList(()), platform="win_amd64", python="3.11", cuda="13.0")
    (found,) = (check for check in checks if check.name == "imported names")
    return found


def library(*exports: str) -> bytes:
    return dll({}, exports)


@pytest.mark.parametrize(
    ("wanted", "exported", "lacking"),
    [
        (["f"], ["f", "g"], ""),
        (["f", "h"], ["f", "g"], "pkg/_C.pyd wants h of own.dll"),
        (["#2"], ["f", "g"], ""),
        (["#3"], ["f", "g"], "wants #3 of own.dll"),
        ([LONG + "A"], [LONG + "A"], ""),
        ([LONG + "A"], [LONG + "B"], "wants ?aaa"),
        (["f"], [], "wants f of own.dll"),
        ([f"f{n}" for n in range(9000)], [f"f{n}" for n in range(8999)], "wants f8999 of own.dll"),
    ],
)
def test_what_a_dll_lacks(
    tmp_path: Path, wanted: list[str], exported: list[str], lacking: str
) -> None:
    module = dll({"Own.dll": wanted, "KERNEL32.dll": ["Sleep"]})
    found = judged(tmp_path, {"pkg/_C.pyd": module, "pkg/libs/own.dll": library(*exported)})
    assert found.judged
    assert found.ok == (not lacking)
    assert lacking in found.found
    if not lacking:
        assert found.found == f"{len(wanted)} exported"


def test_one_address_under_many_names(tmp_path: Path) -> None:
    """Linkers fold functions that are the same; pefile takes that for an attack."""
    names = [f"f{n}" for n in range(500)]
    module = dll({"own.dll": names})
    found = judged(tmp_path, {"pkg/_C.pyd": module, "pkg/own.dll": library(*names)})
    assert (found.ok, found.judged, found.found) == (True, True, "500 exported")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "of its own DLLs none is imported"),
        ({"pkg/msvcp140.dll": library("g")}, "of its own DLLs none is imported"),
        ({"pkg/own.dll": library("g"), "pkg/old/own.dll": library("f")}, "not read: own.dll"),
        ({"pkg/own.dll": b"MZ"}, "not read: "),
        ({"pkg/own.dll": library("bad\x01name", "f")}, "not read: own.dll"),
    ],
)
def test_what_was_not_looked_at_has_not_passed(
    tmp_path: Path, files: Mapping[str, bytes], said: str
) -> None:
    module = dll({"own.dll": ["f"], "MSVCP140.dll": ["f"]})
    found = judged(tmp_path, {"pkg/_C.pyd": module, **files})
    assert (found.ok, found.judged) == (True, False)
    assert said in found.found
