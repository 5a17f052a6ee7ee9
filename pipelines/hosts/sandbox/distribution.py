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

#: Where distributions install it, and where WineHQ's packages do.
_PREFIXES = ("/usr", "/opt/wine-stable", "/opt/wine-staging", "/opt/wine-devel")
#: Its programs: Debian; Ubuntu 26.04 (https://github.com/hartwork/sandwine/issues/208); the others.
_PROGRAMS = ("lib/wine", "lib/x86_64-linux-gnu/wine", "bin")
#: Its DLLs: Debian; Fedora, openSUSE and WineHQ before 10; Arch and WineHQ.
_LIBRARIES = ("lib/x86_64-linux-gnu/wine", "lib64/wine", "lib/wine")
_HEADERS = ("include/wine/wine", "include/wine")
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
    """Wine's files on this machine, all of the same Wine; headers may be the distribution's."""
    known = (Path(prefix, name) for prefix in _PREFIXES for name in _PROGRAMS)
    loader = _program(("wine64", "wine"), *known)
    if not loader:
        found = (shutil.which(name) for name in ("wine64", "wine"))
        loader = next((Path(path) for path in found if path), None)
    if not loader:
        return Files(None, None, None, _headers())
    own = loader.resolve().parent
    prefix = next((own.parents[name.count("/")] for name in _PROGRAMS if own.match(name)), own)
    near = (loader.parent, own, *(prefix / name for name in _PROGRAMS))
    server = _program(("wineserver64", "wineserver"), *near)
    places = (own, *(prefix / name for name in _LIBRARIES))
    libraries = (place / "x86_64-windows" for place in places)
    there = next((path for path in libraries if (path / "kernel32.dll").exists()), None)
    return Files(loader, server, there, _headers(prefix))


def _program(names: Sequence[str], *folders: Path) -> Path | None:
    there = (folder / name for folder in folders for name in names)
    return next((path for path in there if path.is_file()), None)


def _headers(*prefixes: Path) -> Path | None:
    everywhere = (*prefixes, *map(Path, _PREFIXES))
    places = (prefix / name for prefix in everywhere for name in _HEADERS)
    return next((path for path in places if (path / "msvcrt").is_dir()), None)


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
