"""Other people's wheels as packages: what is wrong with names, tags, requirements, paths, zips."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import pytest
from audited import TAG, finding, level, look, one, with_member
from fatbins import ELF, container
from foreign_wheels import foreign
from pes import msvc

from pipelines.core.errors import StorageError
from pipelines.core.finding import worst_level
from pipelines.wheels.metadata import inspect_wheel

MODULE = "other/_C.cp311-win_amd64.pyd"


def test_a_good_one_has_nothing_wrong(tmp_path: Path) -> None:
    seen = one(tmp_path)
    assert {each.level for each in seen.findings} == {"ok"}
    assert (seen.name, seen.version, seen.tags) == ("other", "1.0", (TAG,))
    assert seen.sha256
    assert seen.size == (tmp_path / seen.file).stat().st_size


def test_of_nothing_nothing_is_known() -> None:
    assert worst_level([]) == "unknown"
    assert worst_level(["ok", "unknown", "warning"]) == "warning"


def test_a_pure_one_is_no_less_good(tmp_path: Path) -> None:
    seen = look(foreign(tmp_path))
    assert seen.worst == "ok"
    assert not seen.gpus.binaries
    assert {card.runs for card in seen.gpus.cards} == {"unknown"}


@pytest.mark.parametrize(
    ("files", "tag", "check", "said"),
    [
        ({MODULE: msvc()}, "cp312-cp312-win_amd64", "Python's own ABI", "for Python 3.11"),
        ({MODULE: msvc()}, "py3-none-win_amd64", "Python's own ABI", "only for Python 3.11"),
        ({MODULE: msvc()}, "py3-none-any", "tags match contents", "for any platform"),
        (
            {"other/_C.pyd": msvc(imports={"python312.dll": ["Py_x"]})},
            TAG,
            "Python's own ABI",
            "for Python 3.12",
        ),
        (
            {"other/_C.pyd": msvc(imports={"python311.dll": ["Py_x"]})},
            "cp39-abi3-win_amd64",
            "Python's own ABI",
            "only for Python 3.11",
        ),
        ({"other/_C.so": b"\x7fELF"}, TAG, "tags match contents", "not a Windows binary"),
        ({MODULE: msvc()}, "cp311-cp311-win_arm64", "machine", "(expected ARM64 (0xaa64))"),
        ({MODULE: msvc()}, "cp311-cp311-manylinux_2_28_x86_64", "machine", "no Windows machine"),
    ],
)
def test_tags_that_are_not_true(
    tmp_path: Path, files: dict[str, bytes], tag: str, check: str, said: str
) -> None:
    found = finding(one(tmp_path, files, tag=tag), check)
    assert found.level == "error"
    assert said in found.text + found.hint


@pytest.mark.parametrize(
    ("files", "tag"),
    [
        ({"other/_C.pyd": msvc(imports={"python3.dll": ["Py_x"]})}, "cp39-abi3-win_amd64"),
        ({"other/_C.pyd": msvc()}, "py39-none-win_amd64"),
        ({"other/_C.pyd": msvc(imports={"python311.dll": ["Py_x"]})}, TAG),
    ],
)
def test_tags_that_are_true(tmp_path: Path, files: dict[str, bytes], tag: str) -> None:
    seen = one(tmp_path, files, tag=tag)
    assert (level(seen, "tags match contents"), level(seen, "Python's own ABI")) == ("ok", "ok")


def test_a_platform_without_a_binary(tmp_path: Path) -> None:
    assert level(one(tmp_path, {"other/a.py": b""}), "tags match contents") == "warning"


@pytest.mark.parametrize(
    ("requires", "python", "expected", "said"),
    [
        ((), ">=3.12", "error", "Requires-Python >=3.12"),
        ((), ">=3.11.4", "ok", ""),
        ((), "3.x", "error", "range"),
        (["torch=2.7"], "", "error", "requirement"),
        (["a @ https://example.org/a.whl"], "", "warning", "names an address"),
        (["other>=1"], "", "warning", "itself"),
        (["other[cuda]>=1"], "", "ok", ""),
    ],
)
def test_requirements(
    tmp_path: Path, requires: list[str], python: str, expected: str, said: str
) -> None:
    found = finding(one(tmp_path, requires=requires, python=python), "requirements")
    assert found.level == expected
    assert said in found.hint


def test_metadata_that_no_index_takes(tmp_path: Path) -> None:
    path = foreign(tmp_path, files={"a.py": b"", "b.py": b""})
    data = path.read_bytes()
    assert level(look(path), "METADATA") == "ok"
    path.write_bytes(data.replace(b"Metadata-Version: 2.1", b"Metadata-Version: 9.1"))
    seen = look(path)  # its checksum in the zip is now wrong
    assert level(seen, "readable") == "error"


def test_names_that_windows_does_not_take(tmp_path: Path) -> None:
    for name in (
        *("other/aux.py", "other/nul", "other/a b .", "other/a?.py"),
        *("other/com0.py", "other/lpt\u00b9.py", "other/CONIN$"),
    ):
        found = finding(one(tmp_path, {name: b"", MODULE: msvc()}), "files")
        assert found.level == "error", name
        assert name in found.text


def test_one_file_to_windows(tmp_path: Path) -> None:
    found = finding(one(tmp_path, {"o/A.py": b"", "o/a.py": b"1", MODULE: msvc()}), "files")
    assert found.level == "error"
    assert "o/A.py" in found.text
    assert "o/a.py" in found.text


@pytest.mark.parametrize(("length", "expected"), [(60, "ok"), (150, "warning"), (220, "error")])
def test_paths_that_are_too_long_somewhere(tmp_path: Path, length: int, expected: str) -> None:
    found = finding(one(tmp_path, {"o/" + "a" * (length - 2): b"", MODULE: msvc()}), "paths")
    assert found.level == expected
    assert str(length) in found.text


def test_what_an_index_does_not_take_is_told(tmp_path: Path) -> None:
    found = finding(one(tmp_path, version="1.0+cu128"), "upload")
    assert "local version" in found.hint


def test_two_metadata(tmp_path: Path) -> None:
    path = with_member(foreign(tmp_path), "evil-2.0.dist-info/METADATA", b"Name: evil\n")
    found = finding(look(path), "readable")
    assert found.level == "error"
    assert "found 2" in found.text
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = with_member(foreign(tmp_path), "other-1.0.dist-info/METADATA", b"Name: evil\n")
    assert "duplicate" in finding(look(path), "readable").text


@pytest.mark.parametrize("name", ["../evil.py", "/etc/evil", "a/../../b", "C:/evil", "a\\..\\b"])
def test_a_member_that_would_land_elsewhere(tmp_path: Path, name: str) -> None:
    seen = look(with_member(foreign(tmp_path), name))
    assert "outside its directory" in finding(seen, "readable").text
    assert seen.worst == "error"
    assert level(seen, "everything else") == "unknown"


def test_a_file_that_is_cut(tmp_path: Path) -> None:
    path = foreign(tmp_path, files={"a.bin": bytes(5000)})
    whole = path.read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 30):
        path.write_bytes(whole[:size])
        assert level(look(path), "readable") == "error", size


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = foreign(tmp_path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("other/zeros.dll", bytes(128 << 20))
    assert "bomb" in finding(look(path), "readable").text


def test_a_size_that_is_a_lie(tmp_path: Path) -> None:
    """The directory of the zip says 4 bytes, and there are more."""
    path = foreign(tmp_path, files={"other/data.dll": b"abcdefgh"})
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02")
    data[at + 20 : at + 28] = struct.pack("<II", 4, 4)
    path.write_bytes(data)
    assert look(path).worst == "error"


def test_another_file_than_is_stated(tmp_path: Path) -> None:
    seen = look(foreign(tmp_path), sha256="0" * 64)
    assert level(seen, "sha256") == "error"
    assert seen.worst == "error"


def test_metadata_without_end_is_not_checked(tmp_path: Path) -> None:
    seen = one(tmp_path, requires=[f"a{number}" for number in range(2000)])
    assert (level(seen, "requirements"), level(seen, "METADATA")) == ("unknown", "unknown")


@pytest.mark.parametrize(("size", "lines"), [(2000, 1), (9, 2000)])
def test_tags_that_would_multiply_stay_as_they_are(tmp_path: Path, size: int, lines: int) -> None:
    parts = [".".join(f"a{number}b{n}" for n in range(size)) for number in range(lines)]
    path = foreign(tmp_path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    text = "".join(f"Tag: {part}-{part}-{part}\n" for part in parts)
    members["other-1.0.dist-info/WHEEL"] += text.encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    assert level(look(path), "tags") == "warning"
    assert len(inspect_wheel(path).wheel_tags) <= 1000 + lines


def test_linux_has_no_drivers_of_windows(tmp_path: Path) -> None:
    code = b"\x7fELF" + container((ELF, "80", 8), cuda="12.8")
    for tag, name, drivers in (
        ("py3-none-linux_x86_64", "other/_C.so", {""}),
        ("py3-none-win_amd64", "other/_C.dll", {"", "528.33"}),
        ("py3-none-win_amd64", "other/_C.so", {""}),  # nothing is said of another platform's
    ):
        seen = one(tmp_path, {name: code}, tag=tag)
        assert {card.driver for card in seen.gpus.cards} == drivers


def test_a_full_disk_is_not_the_wheels_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise StorageError("cannot write to /tmp: No space left on device")

    monkeypatch.setattr("pipelines.audit.examination.inspect_wheel", full)
    with pytest.raises(StorageError):
        look(foreign(tmp_path))


def test_text_of_a_wheel_is_harmless(tmp_path: Path) -> None:
    seen = one(tmp_path, requires=["evil\x1b[31m<script>=="])
    said = str([each.model_dump() for each in seen.findings])
    assert "\x1b" not in said
