"""PowerShell in a sandbox, in the place where Windows has it; only where the user has one.

``WCW_POWERSHELL`` is a folder with PowerShell 7 for Windows, as its zip file unpacks; the pinned
file in the cache serves as well. Wine has a powershell.exe of its own, which does nothing and
answers 0. Run as a program, this module fetches the pinned file.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

from pipelines.core.errors import ConfigError
from pipelines.hosts.sandbox.making import alone, scratch_for
from pipelines.hosts.sandbox.wine import Prefix
from pipelines.toolchain.lock import Cache, load_lock

VARIABLE = "WCW_POWERSHELL"
PLACE = "windows/system32/WindowsPowerShell/v1.0"  # on Windows' PATH
_LIBRARY = "pwsh.dll"
_TOOL = "powershell"


def found(cache: Cache) -> Path | None:
    """A folder with PowerShell: the one that the variable names, else the cache's, if it is there.

    Raises :class:`ConfigError` where the variable names something else.
    """
    if not (said := os.environ.get(VARIABLE)):
        return None if cache.missing([_TOOL]) else _unpacked(cache)
    folder = Path(said).expanduser()
    if not all((folder / name).is_file() for name in (_LIBRARY, "pwsh.exe")):
        raise ConfigError(
            f"{VARIABLE}: expected a folder with pwsh.exe and {_LIBRARY}, found none in {folder}",
            hint="Unpack PowerShell-7.*-win-x64.zip of PowerShell's releases there.",
        )
    return folder


def _unpacked(cache: Cache) -> Path:
    place = cache.path(_TOOL).with_name("unpacked")
    with alone(place):
        if not place.is_dir():
            with scratch_for(place) as scratch, zipfile.ZipFile(cache.fetch(_TOOL)) as opened:
                opened.extractall(scratch)
                scratch.rename(place)
    return place


def install(prefix: Prefix, folder: Path) -> None:
    """Put PowerShell into ``prefix``, under its own name and that which Windows hosts know.

    Raises :class:`OSError` when that fails.
    """
    place = prefix.drive / PLACE
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder, place, copy_function=_link)
    if not (place / "powershell.exe").exists():
        _link(place / "pwsh.exe", place / "powershell.exe")


def _link(source: str | Path, target: str | Path) -> None:
    """Share a file, 0.1 GB in all, or copy it to another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def environment(prefix: Prefix) -> dict[str, str]:
    """What the processes of a prefix with PowerShell need besides; empty for one without."""
    if not (prefix.drive / PLACE / _LIBRARY).exists():
        return {}
    # Managed DLLs import mscoree, which prefixes do without. Wine 8 moves no memory that is to be
    # executed: "Internal CLR error (0x80131506)" at .NET's second collection.
    overrides = prefix.environment()["WINEDLLOVERRIDES"].replace("mscoree=;", "")
    return {
        "WINEDLLOVERRIDES": overrides,
        "DOTNET_EnableWriteXorExecute": "0",
        "WSMAN_CONSOLE": "1",
    }


if __name__ == "__main__":
    print(Cache(load_lock()).fetch(_TOOL))
