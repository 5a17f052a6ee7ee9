"""Tiny wheels, whole and broken in each way."""

from __future__ import annotations

import base64
import hashlib
import struct
import zipfile
from pathlib import Path

import pytest

from pipelines.errors import AuditError
from pipelines.wheels.metadata import Limits, inspect

NAME = "pkg-1.0+cu130-cp311-cp311-win_amd64.whl"
INFO = "pkg-1.0+cu130.dist-info"
METADATA = b"Metadata-Version: 2.1\nName: Pkg\nVersion: 1.0+cu130\n\nText\n"
WHEEL = b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-cp311-win_amd64\n"


def fatbin(arch: int = 90) -> bytes:
    entry = struct.pack("<HHIQQIIQQQQ", 2, 0x101, 64, 8, 0, 0, arch, 0, 0x100011, 0, 0) + b"x" * 8
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry)) + entry


def pe(machine: int = 0x8664, export: bytes = b"PyInit__C", tail: bytes = b"") -> bytes:
    """A PE32+ DLL with one section: one export, one function imported by its number."""
    rva, raw = 0x1000, 0x200
    names = (
        b"_C.pyd\0".ljust(16, b"\0") + export.ljust(32, b"\0") + b"KERNEL32.dll\0".ljust(16, b"\0")
    )
    tables = rva + len(names)
    exports = struct.pack(
        "<IIHHIIIIIII", 0, 0, 0, 0, rva, 1, 1, 1, tables + 40, tables + 44, tables + 48
    )
    exports += struct.pack("<IIHxx", rva, rva + 16, 0)
    imports = tables + len(exports)
    thunks = imports + 40
    body = names + exports + struct.pack("<IIIII", thunks, 0, 0, rva + 48, thunks) + bytes(20)
    body += struct.pack("<QQ", 1 << 63 | 1, 0)
    directories = struct.pack("<IIII", tables, len(exports), imports, 40).ljust(128, b"\0")
    optional = struct.pack("<HBBIIIIIQIIHHHHHHIIIIHHQQQQII", 0x20B, 14, 0, 0, 0x1000, 0, 0, 0x1000,
        0x180000000, 0x1000, 0x200, 6, 0, 0, 0, 6, 0, 0, 0x2000, 0x200, 0, 2, 0, 1 << 20, 4096,
        1 << 20, 4096, 0, 16) + directories  # fmt: skip
    head = b"MZ".ljust(60, b"\0") + struct.pack("<I", 64) + b"PE\0\0"
    head += struct.pack("<HHIIIHH", machine, 1, 0, 0, 0, len(optional), 0x2022) + optional
    head += struct.pack("<8sIIIIIIHHI", b".rdata", 0x1000, rva, 0x200, raw, 0, 0, 0, 0, 0x40000040)
    return head.ljust(raw, b"\0") + body.ljust(0x200, b"\0") + tail


FILES = {
    "pkg/__init__.py": b"x = 1\n",
    "pkg/_C.cp311-win_amd64.pyd": pe(tail=fatbin()),
    f"{INFO}/METADATA": METADATA,
    f"{INFO}/WHEEL": WHEEL,
}


def record(files: dict[str, bytes], algorithm: str = "sha256") -> bytes:
    lines = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.new(algorithm, data).digest()).decode()
        lines.append(f"{name},{algorithm}={digest.rstrip('=')},{len(data)}\n")
    return "".join([*lines, f"{INFO}/RECORD,,\n"]).encode()


def wheel(
    room: Path, files: dict[str, bytes], lines: bytes | None = None, name: str = NAME
) -> Path:
    path = room / name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in files.items():
            archive.writestr(member, data)
        archive.writestr(f"{INFO}/RECORD", record(files) if lines is None else lines)
    return path


def test_a_good_wheel(tmp_path: Path) -> None:
    path = wheel(tmp_path, FILES)
    facts = inspect(path)
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
    facts = inspect(wheel(tmp_path, FILES | {"pkg/new.py": b""}, record(told)))
    assert facts.record.missing == ("pkg/gone.py",)
    assert facts.record.extra == ("pkg/new.py",)
    assert facts.record.wrong == ("pkg/__init__.py",)
    assert not facts.record.true


def test_record_hashes(tmp_path: Path) -> None:
    assert inspect(wheel(tmp_path, FILES, record(FILES, "sha512"))).record.true
    assert len(inspect(wheel(tmp_path, FILES, record(FILES, "md5"))).record.wrong) == len(FILES)
    empty = inspect(wheel(tmp_path, FILES, b'"'))
    assert len(empty.record.extra) == len(FILES)
    size = record(FILES).replace(b",6\n", b",7\n")
    assert inspect(wheel(tmp_path, FILES, size)).record.wrong == ("pkg/__init__.py",)
    bare = b"\n".join(name.encode() + b",," for name in FILES)
    assert len(inspect(wheel(tmp_path, FILES, bare)).record.wrong) == len(FILES)


@pytest.mark.parametrize(
    ("member", "old", "new"),
    [("METADATA", b"1.0+cu130", b"1.0"), ("METADATA", b"Name: Pkg", b"Name: other")],
)
def test_names_that_differ(tmp_path: Path, member: str, old: bytes, new: bytes) -> None:
    files = FILES | {f"{INFO}/{member}": FILES[f"{INFO}/{member}"].replace(old, new)}
    assert not inspect(wheel(tmp_path, files)).names_agree


def test_names_that_are_only_spelled_differently(tmp_path: Path) -> None:
    files = FILES | {f"{INFO}/METADATA": METADATA.replace(b"1.0+cu130", b"1.0.0+CU130")}
    assert inspect(wheel(tmp_path, files)).names_agree


def test_a_renamed_wheel(tmp_path: Path) -> None:
    facts = inspect(wheel(tmp_path, FILES, name="pkg-1.0+cu130-cp312-cp312-win_amd64.whl"))
    assert not facts.tags_agree
    assert facts.wheel_tags == ("cp311-cp311-win_amd64",)
    files = FILES | {f"{INFO}/WHEEL": b"Tag: nonsense\n"}
    assert inspect(wheel(tmp_path, files)).wheel_tags == ("nonsense",)


@pytest.mark.parametrize("data", [b"", b"MZ", b"\x7fELF", pe()[:300], b"MZ" + b"\xff" * 500])
def test_no_windows_binary(tmp_path: Path, data: bytes) -> None:
    (module,) = inspect(wheel(tmp_path, FILES | {"pkg/_C.cp311-win_amd64.pyd": data})).extensions
    assert module.pe is None or not module.pe.inits


def test_libraries_and_linux_modules(tmp_path: Path) -> None:
    facts = inspect(wheel(tmp_path, FILES | {"pkg/a.dll": pe(0xAA64), "pkg/b.so": fatbin(80)}))
    assert [(b.name, b.module, b.pe.machine if b.pe else 0) for b in facts.binaries] == [
        ("pkg/_C.cp311-win_amd64.pyd", True, 0x8664),
        ("pkg/a.dll", False, 0xAA64),
        ("pkg/b.so", True, 0),
    ]


@pytest.mark.parametrize(
    "name",
    ["/etc/x", "../x", "pkg/../../x", "C:/x", "C:x", "pkg\\..\\x", "a//b", "./a", "\\\\h\\x"],
)
def test_members_that_leave_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(AuditError, match="outside"):
        inspect(wheel(tmp_path, FILES | {name: b""}))


def test_doubled_members_are_refused(tmp_path: Path) -> None:
    path = wheel(tmp_path, FILES)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("pkg/__init__.py", b"evil")
    with pytest.raises(AuditError, match="twice"):
        inspect(path)


def test_zip_bombs_are_refused(tmp_path: Path) -> None:
    path = wheel(tmp_path, FILES | {"pkg/zeros": bytes(4 << 20)})
    with pytest.raises(AuditError, match="zip bomb"):
        inspect(path, limits=Limits(small=1 << 20))
    with pytest.raises(AuditError, match="unpacks to 4194304"):
        inspect(path, limits=Limits(member_bytes=1 << 20))
    with pytest.raises(AuditError, match="zip bomb"):
        inspect(path, limits=Limits(total_bytes=1 << 20))
    with pytest.raises(AuditError, match="members"):
        inspect(path, limits=Limits(members=3))


def test_a_member_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    path = wheel(tmp_path, FILES | {"pkg/zeros": bytes(4 << 20)})
    path.write_bytes(path.read_bytes().replace(struct.pack("<I", 4 << 20), struct.pack("<I", 9)))
    with pytest.raises(AuditError, match="CRC"):
        inspect(path)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = wheel(tmp_path, FILES)
    whole = path.read_bytes()
    for broken in (b"", b"not a zip", whole[: len(whole) // 2]):
        path.write_bytes(broken)
        with pytest.raises(AuditError):
            inspect(path)
    at = whole.index(b"pkg/_C.cp311-win_amd64.pyd") + 60
    path.write_bytes(whole[:at] + b"\xff" * 40 + whole[at + 40 :])
    with pytest.raises(AuditError, match="cannot be read"):
        inspect(path)


def test_other_refusals(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="not a wheel's"):
        inspect(wheel(tmp_path, FILES, name="pkg.whl"))
    with pytest.raises(AuditError, match="cannot be read"):
        inspect(tmp_path / NAME)
    with pytest.raises(AuditError, match=r"one \.dist-info"):
        inspect(wheel(tmp_path, FILES | {"other-1.dist-info/METADATA": b""}))
    lacking = {name: data for name, data in FILES.items() if "WHEEL" not in name}
    with pytest.raises(AuditError, match="WHEEL is missing"):
        inspect(wheel(tmp_path, lacking))
    path = tmp_path / NAME
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a", b"a")
    with pytest.raises(AuditError, match="method 14"):
        inspect(path)
