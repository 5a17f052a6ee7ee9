"""LLVM's C++ library for the stand-in, compiled once from the sources in the pinned zig's wheel.

For packages on torch's stable ABI: https://docs.pytorch.org/docs/stable/notes/libtorch_stable_abi.html
It is kept in the cache by the hash of what it is made of, and appears there under its final name
by rename. What is not as it was sealed is made anew.
"""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pipelines.core.errors import HostError, SetupError
from pipelines.core.files import disk_errors
from pipelines.hosts.sandbox import image, toolset
from pipelines.hosts.sandbox.making import (
    exclusive_lock,
    read_verified_seal,
    scratch_for,
    seal_directory,
)
from pipelines.hosts.sandbox.wine import Prefix
from pipelines.toolchain.lock import Cache

Step = Callable[[str], object]

_IN_WHEEL = "ziglang/lib/libcxx/"
#: In the wheel's headers, where LLVM's own include their configuration.
_LEFT_OUT = "/* zig patch: instead of including __config_site, zig adds -D flags when compiling */"
#: What cudafe++ cannot read, and is of no use to it: header -> what of it is left out there. The
#: member of <string> is the padding that alignment gives as well.
_NOT_FOR_CUDAFE = {
    "__iterator/segmented_iterator.h": (
        b"template <class _Tp>\n"
        b"struct __has_specialization<_Tp, sizeof(_Tp) * 0> : true_type {};\n",
    ),
    "string": (
        b"    unsigned char __padding_[sizeof(value_type) - 1];\n",
        b"    char __padding_[sizeof(value_type) - 1];\n",
    ),
}
#: Folders of sources. No file systems: Wine's headers lack too much for <filesystem>.
_FOLDERS = ("", "ryu/", "support/win32/")
#: What none of C++17's and C++20's needs, and what C++23 alone can compile.
_NOT_MADE = {"expected.cpp", "legacy_pointer_safety.cpp", "random_shuffle.cpp", "strstream.cpp"}
_FLAGS = (
    *("/nologo", "/c", "/O2", "/MD", "/EHsc", "/std:c++20", "/Zl", "-Wno-everything"),
    *("/D_LIBCPP_BUILDING_LIBRARY", "/D_LIBCPP_REMOVE_TRANSITIVE_INCLUDES"),
    *("/I..", r"/I..\include", "/Fo./"),
)
_SECONDS = 900


def ensure_libcxx(cache: Cache, python: str, step: Step) -> Path:
    """The directory of the library, verified; made unless it is there.

    ``python`` names the image that lends its compiler. ``step`` is told when something is made.
    Raises :class:`HostError` for a compiler that fails, :class:`SetupError` for a wheel without the
    sources, and what :func:`image.make_image` does.
    """
    target = cache.root / "libcxx" / f"{libcxx_cache_key(cache, python)}-py{python}"
    with disk_errors(target.parent), exclusive_lock(target):
        if read_verified_seal(target) is None:
            step("compiling libc++, once")
            with scratch_for(target) as scratch:
                _build_libcxx(cache, python, step, scratch).rename(target)
    return target


def libcxx_cache_key(cache: Cache, python: str) -> str:
    """The directory of :func:`ensure_libcxx`: the hash of the image's inputs and of ours."""
    digest = hashlib.sha256(image.image_key(cache, python).encode())
    digest.update(Path(__file__).read_bytes())
    return digest.hexdigest()[:16]


def install_libcxx(made: Path, prefix: Prefix) -> None:
    """Put what :func:`ensure_libcxx` gave into a Windows, unless it is there as it should be.

    Raises :class:`HostError` when ``made`` is not whole, :class:`StorageError` on a full disk.
    """
    wanted = read_verified_seal(made)
    if wanted is None:
        raise HostError(f"libc++ in {made} is damaged", hint="Type the same command again.")
    place = prefix.drive / toolset.LIBCXX
    if read_verified_seal(place) == wanted:
        return
    scratch = place.with_name(f".{place.name}.new")
    with disk_errors(place.parent):
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(made, scratch)
        if read_verified_seal(scratch) != wanted:
            raise HostError(f"libc++ in {made} changed while it was copied")
        shutil.rmtree(place, ignore_errors=True)
        scratch.rename(place)


def _build_libcxx(cache: Cache, python: str, step: Step, scratch: Path) -> Path:
    """Compile it in a Windows that is made for this and removed afterwards."""
    prefix = Prefix(scratch / "prefix")
    image.copy_image(image.make_image(cache, python, step), prefix.path)
    home = prefix.drive / toolset.LIBCXX
    sources = _unpack_libcxx_sources(cache.fetch("zig"), home, prefix.drive / "libcxx-src")
    shutil.copy(toolset.SDK / "libcxx/__config_site", home / "include")
    shutil.copytree(toolset.SDK / "libcxx/c", home / "c")
    (home / toolset.LIBCXX_LIBRARY).parent.mkdir()
    try:
        prefix.boot()
        _compile_libcxx(prefix, sources, f"C:/{toolset.LIBCXX}/{toolset.LIBCXX_LIBRARY}")
    finally:
        prefix.halt()
    seal_directory(home)
    return home


def _unpack_libcxx_sources(wheel: Path, home: Path, sources: Path) -> Path:
    """Headers into ``home``, with their configuration; sources and licence beside them."""
    configured = 0
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            part, _, file = name.removeprefix(_IN_WHEEL).partition("/")
            if not name.startswith(_IN_WHEEL) or name.endswith("/"):
                continue
            place = sources / file if part == "src" else home / part / file if file else home / part
            content = archive.read(name)
            if part == "include" and (mark := _LEFT_OUT.encode()) in content:
                content = content.replace(mark, b"#include <__config_site>")
                configured += 1
            if part == "include":
                content = _for_cudafe(file, content)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
    if not configured or not sources.is_dir():
        raise SetupError(
            f"{wheel.name}: unexpected libc++ with {configured} configured headers",
            hint="The zig version has changed: check its lib/libcxx.",
        )
    return sources


def _for_cudafe(header: str, content: bytes) -> bytes:
    """``content`` of a header without that, for nvcc; :class:`SetupError` if it has it not."""
    for text in _NOT_FOR_CUDAFE.get(header, ()):
        if content.count(b"\n" + text) != 1:
            raise SetupError(
                f"libc++'s <{header}> does not contain exactly once: {text.decode().strip()}",
                hint="The zig version has changed: check its lib/libcxx.",
            )
        kept = b"\n#ifndef __CUDACC__\n" + text + b"#endif\n"
        content = content.replace(b"\n" + text, kept)
    return content


def _compile_libcxx(prefix: Prefix, sources: Path, library: str) -> None:
    """Make ``library`` of all sources, by as many compilers as a small machine has cores."""
    work = sources / "objects"
    work.mkdir()
    names = [
        f"../{folder}{path.name}"
        for folder in _FOLDERS
        for path in sorted((sources / folder).glob("*.cpp"))
        if path.name not in _NOT_MADE
    ]
    compile_ = [*toolset.CL, *_FLAGS]
    with ThreadPoolExecutor(2) as pool:
        for half in [
            pool.submit(_run_compile_command, prefix, work, [*compile_, *names[at::2]])
            for at in (0, 1)
        ]:
            half.result()
    objects = [f"{Path(name).stem}.obj" for name in names]
    _run_compile_command(prefix, work, [*toolset.LIBRARIAN, f"/out:{library}", *objects])


def _run_compile_command(prefix: Prefix, work: Path, command: Sequence[str]) -> None:
    prefix.run(command, cwd=work, timeout=_SECONDS)
