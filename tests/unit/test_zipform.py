"""A zip with one reading: what pip and uv install of it is what was looked at."""

from __future__ import annotations

import io
import random
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corruptions
import pytest
from foreign_wheels import foreign

from pipelines.core.errors import AuditError
from pipelines.wheels.checks import check_wheel
from pipelines.wheels.metadata import inspect_wheel
from pipelines.wheels.zipform import Form, inspect_zip_form

TEXT = b"VALUE = 1\n" * 9


def members(tmp_path: Path) -> dict[str, bytes]:
    files = {"other/__init__.py": TEXT, "other/one.py": TEXT, "other/data.txt": b"x" * 70_000}
    path = foreign(tmp_path / "made", files=files)
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def of(data: bytes) -> Form:
    file = io.BytesIO(data)
    return inspect_zip_form(file, zipfile.ZipFile(file))


def plain(files: dict[str, bytes]) -> bytes:
    return corruptions.packed(files)


def deflated(files: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.mkdir("other")
        for name, data in files.items():
            archive.writestr(name, data)
    return file.getvalue()


class Pipe(io.RawIOBase):
    """What cannot be gone back in: sizes then stand behind each member."""

    def __init__(self) -> None:
        self.made = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.made += bytes(data)
        return len(bytes(data))


def streamed(files: dict[str, bytes]) -> bytes:
    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return bytes(pipe.made)


def wide(files: dict[str, bytes]) -> bytes:
    """With sizes of 64 bits, though none is needed."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in files.items():
            with archive.open(name, "w", force_zip64=True) as member:
                member.write(data)
    return file.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("writer", [plain, deflated, streamed, wide])
def test_what_pip_and_uv_install_is_what_was_looked_at(
    writer: Callable[[dict[str, bytes]], bytes], tmp_path: Path
) -> None:
    files = members(tmp_path)
    data = writer(files)
    assert of(data) == Form()
    path = tmp_path / "other-1.0-py3-none-any.whl"
    path.write_bytes(data)
    assert not any(check.failed for check in check_wheel(inspect_wheel(path)))
    uv, pip = [str(Path(sys.executable).with_name("uv")), "pip"], [sys.executable, "-m", "pip"]
    for number, program in enumerate((uv, pip)):
        target = tmp_path / f"target{number}"
        words = ["install", "-q", "--no-deps", "--no-index", "--target", str(target), str(path)]
        subprocess.run([*program, *words], check=True, timeout=120)
        for name, body in files.items():
            if not name.endswith("/RECORD"):
                assert (target / name).read_bytes() == body, name


KINDS = ("prefixed", "suffixed", "commented", "two_names", "unicode_path", "hidden")


@pytest.mark.parametrize("kind", KINDS)
def test_a_zip_with_another_reading(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "other-1.0-py3-none-any.whl"
    for seed in range(8):
        made = corruptions.CORRUPTIONS[kind](random.Random(seed), members(tmp_path))
        assert isinstance(made, bytes)
        path.write_bytes(made)
        try:
            assert next(c.id for c in check_wheel(inspect_wheel(path)) if c.failed) == "zip"
        except AuditError:
            continue  # zipfile itself refuses it


def _local(at: int, form_: str, value: int) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        made = bytearray(data)
        struct.pack_into(form_, made, at, value)
        return bytes(made)

    return change


def _between(data: bytes) -> bytes:
    """Bytes in front of the directory, with all that says where it is put right."""
    start = zipfile.ZipFile(io.BytesIO(data)).start_dir
    end = bytearray(data[-22:])
    struct.pack_into("<L", end, 16, start + 9)
    return data[:start] + b"something" + data[start:-22] + bytes(end)


def _mode(mode: int) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        at = zipfile.ZipFile(io.BytesIO(data)).start_dir
        return _local(at + 38, "<L", mode << 16)(data)

    return change


@pytest.mark.parametrize(
    "change",
    [
        _local(8, "<H", 8),
        _local(14, "<L", zlib.crc32(b"another")),
        _local(18, "<L", 3),
        _local(22, "<L", 3),
        _local(6, "<H", 1 << 11),
        _between,
        _mode(0o120777),
        _mode(0o020600),
        lambda data: data[:-22] + data[-22:-12] + b"\x09\0" + data[-10:],
    ],
    ids=["method", "crc", "packed", "size", "flags", "between", "link", "device", "count"],
)
def test_headers_that_differ(change: Callable[[bytes], bytes], tmp_path: Path) -> None:
    data = plain(members(tmp_path))
    try:
        assert of(change(data)).fault
    except zipfile.BadZipFile:
        return


@pytest.mark.parametrize(
    "change",
    [_local(14, "<L", 5), _local(18, "<L", 3), _local(22, "<L", 3)],
    ids=["crc", "packed", "size"],
)
def test_sizes_that_stand_behind_a_member_are_not_in_front_too(
    change: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """Who reads from the front would take other bytes for the member."""
    assert of(change(streamed(members(tmp_path)))).fault


def test_another_name_in_a_local_header_alone(tmp_path: Path) -> None:
    """Whether its size stands before it or behind it."""
    files = {"other/__init__.py": TEXT}
    for writer in (plain, streamed):
        data = writer({**files, "other-1.0.dist-info/RECORD": b""})
        start = zipfile.ZipFile(io.BytesIO(data)).start_dir
        at = 30 + len("other/__init__.py")
        field = struct.pack("<2H", 0x7075, 5) + b"\1wxyz"
        made = bytearray(data[:at] + field + data[at:])
        struct.pack_into("<H", made, 28, len(field))
        struct.pack_into("<L", made, len(made) - 6, start + len(field))
        second = made.index(b"PK\1\2", made.index(b"PK\1\2") + 4)
        struct.pack_into("<L", made, second + 42, made.index(b"PK\3\4", 4))
        assert "0x7075" in of(bytes(made)).fault, writer.__name__


def test_times_of_the_zip_program_are_told_and_harmless(tmp_path: Path) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members(tmp_path).items():
            info = zipfile.ZipInfo(name)
            info.extra = struct.pack("<2HBL", 0x5455, 5, 1, 0)
            archive.writestr(info, data)
    assert of(file.getvalue()) == Form(extras=("0x5455",))


@pytest.mark.parametrize(
    "more",
    [
        "other-1.0.data/platlib/other/__init__.py",
        "other-1.0.data/purelib/OTHER/one.py",
        "other-1.0.data/data/Lib/site-packages/other/data.txt",
        "other-1.0.DATA/data/lib/Site-Packages/other/data.txt",
        "other/COM\u00b9",
        "other/one.py ",
        "other/data.txt/x",
        "other/e\u0301.txt",
    ],
)
def test_files_that_would_be_one_on_windows(more: str, tmp_path: Path) -> None:
    files = members(tmp_path) | {more: b"x", "other/\u00e9.txt": b"y"}
    path = tmp_path / "other-1.0-py3-none-any.whl"
    path.write_bytes(plain(files))
    assert [c.id for c in check_wheel(inspect_wheel(path)) if c.failed] == ["files"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("METADATA", b"X: y\n" * 10_001),
        ("METADATA", b"X" * (1 << 20 | 1)),
        ("WHEEL", b"\r" * 10_001),
        ("RECORD", b"\n" * 20_001),
    ],
)
def test_small_wheels_cost_little(name: str, text: bytes, tmp_path: Path) -> None:
    files = members(tmp_path)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in files.items():
            archive.writestr(member, data + text if member.endswith(f"/{name}") else data)
    path = tmp_path / "other-1.0-py3-none-any.whl"
    path.write_bytes(file.getvalue())
    with pytest.raises(AuditError, match=name):
        inspect_wheel(path)


def test_a_file_that_record_lists_twice(tmp_path: Path) -> None:
    """Which of the rows is true depends on who reads it."""
    path = tmp_path / "other-1.0-py3-none-any.whl"
    files = members(tmp_path)
    (record,) = [name for name in files if name.endswith("/RECORD")]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            text = b"other/one.py,sha256=AAAA,1\n" + data if name == record else data
            archive.writestr(name, text)
    assert [check.id for check in check_wheel(inspect_wheel(path)) if check.failed] == ["record"]


@pytest.mark.parametrize("tag", ["cp3/11-none-any", "py3-none", "py3-none-any-x", "", "a-b-\x7f"])
def test_tags_that_are_none_are_findings(tag: str, tmp_path: Path) -> None:
    files = members(tmp_path)
    (name,) = [one for one in files if one.endswith("/WHEEL")]
    path = tmp_path / "other-1.0-py3-none-any.whl"
    path.write_bytes(plain(files | {name: f"Wheel-Version: 1.0\nTag: {tag}\n".encode()}))
    assert "tags" in [check.id for check in check_wheel(inspect_wheel(path)) if check.failed]
