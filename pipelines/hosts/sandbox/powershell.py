"""PowerShell in a sandbox, at Windows' path for it; only if the user provides it.

``WCW_POWERSHELL`` is a folder with PowerShell 7 for Windows, unpacked from its zip file; the pinned
file in the cache works as well. Wine's own powershell.exe does nothing and exits with 0. Run as a
program, this module fetches the pinned file.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.core.errors import ConfigError, PipelineError
from pipelines.hosts.sandbox.making import exclusive_lock, scratch_for
from pipelines.hosts.sandbox.wine import Prefix

if TYPE_CHECKING:
    from pipelines.toolchain.lock import Cache

VARIABLE = "WCW_POWERSHELL"
PLACE = "windows/system32/WindowsPowerShell/v1.0"  # on Windows' PATH
_LIBRARY = "pwsh.dll"
_TOOL = "powershell"


def find_powershell(cache: Cache) -> Path | None:
    """A folder with PowerShell: the variable's, else the cache's, if any.

    Raises :class:`ConfigError` if the variable names anything else.
    """
    if not (folder_name := os.environ.get(VARIABLE)):
        return None if cache.missing([_TOOL]) else _unpack_powershell(cache)
    folder = Path(folder_name).expanduser()
    if not all((folder / name).is_file() for name in (_LIBRARY, "pwsh.exe")):
        raise ConfigError(
            f"{VARIABLE}: expected a folder with pwsh.exe and {_LIBRARY}, none in {folder}",
            hint="Unpack PowerShell-7.*-win-x64.zip from PowerShell's releases there.",
        )
    return folder


def _unpack_powershell(cache: Cache) -> Path:
    place = cache.path(_TOOL).with_name("unpacked")
    with exclusive_lock(place):
        if not place.is_dir():
            with scratch_for(place) as scratch, zipfile.ZipFile(cache.fetch(_TOOL)) as opened:
                opened.extractall(scratch)
                scratch.rename(place)
    return place


def install_powershell(prefix: Prefix, folder: Path) -> None:
    """Install PowerShell into ``prefix``, under its own name and the one of Windows PowerShell.

    Raises :class:`OSError` when that fails.
    """
    place = prefix.drive / PLACE
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder, place, copy_function=_hardlink_or_copy)
    if not (place / "powershell.exe").exists():
        _hardlink_or_copy(place / "pwsh.exe", place / "powershell.exe")


def _hardlink_or_copy(source: str | Path, target: str | Path) -> None:
    """Link a file (0.1 GB in total), or copy it across file systems."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def powershell_environment(prefix: Prefix) -> dict[str, str]:
    """Additional variables for the processes of a prefix with PowerShell; otherwise empty."""
    if not (prefix.drive / PLACE / _LIBRARY).exists():
        return {}
    # Managed DLLs import mscoree, which prefixes do not have. Wine 8 cannot move executable memory:
    # "Internal CLR error (0x80131506)" at .NET's second garbage collection.
    overrides = prefix.environment()["WINEDLLOVERRIDES"].replace("mscoree=;", "")
    return {
        "WINEDLLOVERRIDES": overrides,
        "DOTNET_EnableWriteXorExecute": "0",
        "WSMAN_CONSOLE": "1",
    }


def main() -> str | None:
    """Fetch the pinned file; otherwise, a sentence that says what follows."""
    from pipelines.toolchain.lock import Cache, load_lock

    try:
        print(Cache(load_lock()).fetch(_TOOL))
    except PipelineError as error:
        return textwrap.shorten(
            "The tests that need PowerShell for Windows are skipped; set "
            f"{VARIABLE} to a folder with it: {error.message}",
            width=300,
        )
    return None


if __name__ == "__main__":
    sys.exit(main())
