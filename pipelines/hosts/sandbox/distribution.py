"""Where this machine has Wine, and what the distribution calls its packages.

``scripts/setup`` asks ``python3 -m pipelines.hosts.sandbox.distribution [--dev]`` which packages to
install, before any Python package is there. Exit code 77 and a line: it cannot install them.
"""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Debian 12 and 13; Ubuntu 26.04 (https://github.com/hartwork/sandwine/issues/208); WineHQ.
_FOLDERS = ("/usr/lib/wine", "/usr/lib/x86_64-linux-gnu/wine", "/opt/wine-stable/bin")
#: The same; Fedora and openSUSE; Arch.
_LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu/wine/x86_64-windows",
    "/opt/wine-stable/lib64/wine/x86_64-windows",
    "/usr/lib64/wine/x86_64-windows",
    "/usr/lib/wine/x86_64-windows",
)
_HEADERS = ("/usr/include/wine/wine", "/usr/include/wine", "/opt/wine-stable/include/wine")
#: What to do on a machine that can have no sandbox.
INSTEAD = (
    "Build on a host of another kind (docs/hosts/README.md); to look into wheels, none is needed."
)
_CANNOT = 77


@dataclass(frozen=True)
class Packages:
    """How a distribution installs them, and their names."""

    install: str
    wine: str
    headers: str
    installers: str
    """What reads Windows installers."""
    wixl: str
    """And what tests make some with."""


_DEBIAN = Packages(
    "apt-get install --no-install-recommends", "wine64", "libwine-dev", "msitools", "wixl"
)
#: By ID and ID_LIKE of /etc/os-release.
_PACKAGES = {
    "debian": _DEBIAN,
    "fedora": Packages("dnf install", "wine-core", "wine-devel", "msitools", "msitools"),
    "arch": Packages("pacman -S --needed", "wine", "wine", "msitools", "msitools"),
    "suse": Packages("zypper install", "wine", "wine-devel", "msitools", "msitools"),
}


@dataclass(frozen=True)
class Files:
    """Wine's files, as far as they are there."""

    loader: Path | None
    server: Path | None
    libraries: Path | None
    """Wine's own 64-bit DLLs, as PE files."""
    headers: Path | None
    """Its C run-time and Win32 headers (folders ``msvcrt`` and ``windows``)."""


def files() -> Files:
    """Wine's files on this machine."""
    loader = _program("wine64", "wine")
    own = loader.resolve().parent if loader else Path()
    near = (loader.parent, own) if loader else ()
    server = _program("wineserver64", "wineserver", near=near)
    places = (own / "x86_64-windows", *map(Path, _LIBRARIES))
    libraries = next((path for path in places if (path / "kernel32.dll").exists()), None)
    headers = next((Path(p) for p in _HEADERS if Path(p, "msvcrt").is_dir()), None)
    return Files(loader, server, libraries, headers)


def _program(*names: str, near: Sequence[Path] = ()) -> Path | None:
    """One of Wine's programs: in these folders, where distributions have it, or on PATH."""
    folders = (*near, *map(Path, _FOLDERS))
    there = (folder / name for folder in folders for name in names)
    on_path = (Path(found) for name in names if (found := shutil.which(name)))
    return next((path for path in (*there, *on_path) if path.is_file()), None)


def unfit() -> str:
    """Why there can be no sandbox on this machine; empty where there can."""
    here = f"{platform.system()} on {platform.machine()}"
    return "" if here == "Linux on x86_64" else f"a sandbox needs Linux on x86_64, this is {here}"


def packages() -> Packages | None:
    """What they are called on this distribution; ``None`` where that is not known."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return None
    names = [release.get("ID", ""), *release.get("ID_LIKE", "").split()]
    return next((_PACKAGES[name] for name in names if name in _PACKAGES), None)


def advice(*kinds: str) -> str:
    """What to type for packages of these kinds, fields of :class:`Packages`."""
    named = packages()
    if named is None:
        return "Install 64-bit Wine and its development files, and msitools."
    wanted = dict.fromkeys(getattr(named, kind) for kind in kinds or ("wine", "headers"))
    return f"Type: sudo {named.install} {' '.join(wanted)}"


def missing(*, tests: bool) -> Iterator[str]:
    """Kinds of packages that the sandbox, and its tests, lack on this machine."""
    found = files()
    if not (found.loader and found.server and found.libraries):
        yield "wine"
    if not found.headers:
        yield "headers"
    programs = {"installers": "msiextract", "wixl": "wixl"} if tests else {}
    yield from (kind for kind, program in programs.items() if not shutil.which(program))


def main() -> int:
    """Entry point."""
    kinds = [*missing(tests="--dev" in sys.argv)]
    refusal = ""
    if why := unfit():
        refusal = f"{why}. {INSTEAD}"
    elif kinds and packages() is not _DEBIAN:
        refusal = f"Wine's packages are missing. {advice(*kinds)}"
    if refusal:
        print(f"setup: {refusal}", file=sys.stderr)
        return _CANNOT
    print(" ".join(getattr(_DEBIAN, kind) for kind in kinds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
