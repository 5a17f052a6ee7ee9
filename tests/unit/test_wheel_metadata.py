"""Tiny wheels, whole and broken in each way."""

from __future__ import annotations

import hashlib
import struct
import zipfile
from pathlib import Path

import pytest
from wheels import FILES, INFO, METADATA, NAME, fatbin, pe, record, wheel

from pipelines.core.errors import AuditError
from pipelines.wheels.metadata import Limits, inspect_wheel


def test_a_good_wheel(tmp_path: Path) -> None:
    path = wheel(tmp_path, FILES)
    facts = inspect_wheel(path)
    assert (facts.name, facts.version) == ("pkg", "1.0+cu130")
    assert facts.record.true
    assert facts.names_agree
    assert facts.tags_agree
    assert facts.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    (module,) = facts.extensions
    assert module.pe is not None, module.problem
    assert module.pe.machine == 0x8664
    assert module.pe.inits == ("PyInit__C",) == (module.init,)
    assert module.inventory.sass == {"90a"}


def test_record_missing_extra_and_wrong(tmp_path: Path) -> None:
    told = FILES | {"pkg/gone.py": b"", "pkg/__init__.py": b"x = 2\n"}
    facts = inspect_wheel(wheel(tmp_path, FILES | {"pkg/new.py": b""}, record(told)))
    assert facts.record.missing == ("pkg/gone.py",)
    assert facts.record.extra == ("pkg/new.py",)
    assert facts.record.wrong == ("pkg/__init__.py",)
    assert not facts.record.true


def test_record_hashes(tmp_path: Path) -> None:
    assert inspect_wheel(wheel(tmp_path, FILES, record(FILES, "sha512"))).record.true
    assert len(inspect_wheel(wheel(tmp_path, FILES, record(FILES, "md5"))).record.wrong) == len(
        FILES
    )
    empty = inspect_wheel(wheel(tmp_path, FILES, b'"'))
    assert len(empty.record.extra) == len(FILES)
    size = record(FILES).replace(b",6\n", b",7\n")
    assert inspect_wheel(wheel(tmp_path, FILES, size)).record.wrong == ("pkg/__init__.py",)
    bare = b"\n".join(name.encode() + b",," for name in FILES)
    assert len(inspect_wheel(wheel(tmp_path, FILES, bare)).record.wrong) == len(FILES)


@pytest.mark.parametrize(
    ("old", "new", "agree"),
    [
        (b"1.0+cu130", b"1.0", False),
        (b"Name: Pkg", b"Name: other", False),
        (b"1.0+cu130", b"1.0.0+CU130", True),  # only spelled differently
    ],
)
def test_names_that_differ(tmp_path: Path, old: bytes, new: bytes, agree: bool) -> None:
    files = FILES | {f"{INFO}/METADATA": METADATA.replace(old, new)}
    assert inspect_wheel(wheel(tmp_path, files)).names_agree is agree


def test_a_renamed_wheel(tmp_path: Path) -> None:
    facts = inspect_wheel(wheel(tmp_path, FILES, name="pkg-1.0+cu130-cp312-cp312-win_amd64.whl"))
    assert not facts.tags_agree
    assert facts.wheel_tags == ("cp311-cp311-win_amd64",)
    files = FILES | {f"{INFO}/WHEEL": b"Tag: nonsense\n"}
    assert inspect_wheel(wheel(tmp_path, files)).wheel_tags == ("nonsense",)


@pytest.mark.parametrize("data", [b"", b"MZ", b"\x7fELF", pe()[:300], b"MZ" + b"\xff" * 500])
def test_no_windows_binary(tmp_path: Path, data: bytes) -> None:
    (module,) = inspect_wheel(
        wheel(tmp_path, FILES | {"pkg/_C.cp311-win_amd64.pyd": data})
    ).extensions
    assert module.pe is None or not module.pe.inits


def test_libraries_and_linux_modules(tmp_path: Path) -> None:
    facts = inspect_wheel(
        wheel(tmp_path, FILES | {"pkg/a.dll": pe(0xAA64), "pkg/b.so": fatbin(80)})
    )
    assert [(b.name, b.module, b.pe.machine if b.pe else 0) for b in facts.binaries] == [
        ("pkg/_C.cp311-win_amd64.pyd", True, 0x8664),
        ("pkg/a.dll", False, 0xAA64),
        ("pkg/b.so", True, 0),
    ]


@pytest.mark.parametrize("dll", [b"cudart64_12.dll", b"KERNEL32.dll"])
def test_the_run_time_that_a_module_imports(tmp_path: Path, dll: bytes) -> None:
    module = {"pkg/_C.cp311-win_amd64.pyd": pe(imports=dll)}
    (found,) = inspect_wheel(wheel(tmp_path, FILES | module)).extensions
    assert found.pe is not None
    assert found.pe.cudarts == ((dll.decode(),) if b"cudart" in dll else ())


@pytest.mark.parametrize(
    "name",
    ["/etc/x", "../x", "pkg/../../x", "C:/x", "C:x", "pkg\\..\\x", "a//b", "./a", "\\\\h\\x"],
)
def test_members_that_leave_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(AuditError, match="outside"):
        inspect_wheel(wheel(tmp_path, FILES | {name: b""}))


def test_doubled_members_are_refused(tmp_path: Path) -> None:
    path = wheel(tmp_path, FILES)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("pkg/__init__.py", b"evil")
    with pytest.raises(AuditError, match="duplicate"):
        inspect_wheel(path)


def test_zip_bombs_are_refused(tmp_path: Path) -> None:
    path = wheel(tmp_path, FILES | {"pkg/zeros": bytes(4 << 20)})
    with pytest.raises(AuditError, match="zip bomb"):
        inspect_wheel(path, limits=Limits(small=1 << 20))
    with pytest.raises(AuditError, match="unpacks to 4194304"):
        inspect_wheel(path, limits=Limits(member_bytes=1 << 20))
    with pytest.raises(AuditError, match="zip bomb"):
        inspect_wheel(path, limits=Limits(total_bytes=1 << 20))
    with pytest.raises(AuditError, match="members"):
        inspect_wheel(path, limits=Limits(members=3))


def test_a_member_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    path = wheel(tmp_path, FILES | {"pkg/zeros": bytes(4 << 20)})
    path.write_bytes(path.read_bytes().replace(struct.pack("<I", 4 << 20), struct.pack("<I", 9)))
    with pytest.raises(AuditError, match="CRC"):
        inspect_wheel(path)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = wheel(tmp_path, FILES)
    whole = path.read_bytes()
    for broken in (b"", b"not a zip", whole[: len(whole) // 2]):
        path.write_bytes(broken)
        with pytest.raises(AuditError):
            inspect_wheel(path)
    at = whole.index(b"pkg/_C.cp311-win_amd64.pyd") + 60
    path.write_bytes(whole[:at] + b"\xff" * 40 + whole[at + 40 :])
    with pytest.raises(AuditError, match="cannot be read"):
        inspect_wheel(path)


def test_other_refusals(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="not the name of a wheel"):
        inspect_wheel(wheel(tmp_path, FILES, name="pkg.whl"))
    with pytest.raises(AuditError, match="cannot be read"):
        inspect_wheel(tmp_path / NAME)
    with pytest.raises(AuditError, match=r"one \.dist-info"):
        inspect_wheel(wheel(tmp_path, FILES | {"other-1.dist-info/METADATA": b""}))
    lacking = {name: data for name, data in FILES.items() if "WHEEL" not in name}
    with pytest.raises(AuditError, match="WHEEL is missing"):
        inspect_wheel(wheel(tmp_path, lacking))
    path = tmp_path / NAME
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a", b"a")
    with pytest.raises(AuditError, match="method 14"):
        inspect_wheel(path)
