r"""A tree in one Windows: ``C:\VS`` with the tree's own names, its parts linked and not copied.

Only ``bin`` is a directory of the prefix: it omits what cl.exe should not find there.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from pipelines.core.files import disk_errors
from pipelines.hosts.sandbox.msvc.finder import Tree
from pipelines.hosts.sandbox.msvc.vcvars import vcvars

#: Microsoft's telemetry, which cl.exe starts and which hangs in Wine:
#: https://github.com/mstorsjo/msvc-wine/issues/23
LEFT_OUT = frozenset({"vctip.exe"})
#: Where the stub toolchain is moved meanwhile.
_ASIDE = "VS.stand-in"


def install(tree: Tree, prefix: Path) -> None:
    r"""Put ``tree`` at ``C:\VS`` of the Windows in ``prefix``, in place of what is there.

    For each start of a sandbox. Raises :class:`StorageError` on a full disk.
    """
    drive = prefix / "drive_c"
    new = drive / ".VS.new"
    with disk_errors(drive):
        shutil.rmtree(new, ignore_errors=True)
        tools = new / "VC/Tools/MSVC" / tree.version
        _fill(tools / "bin/Hostx64/x64", tree.bin)
        _link(tools / "include", tree.include[0])
        _link(tools / "lib/x64", tree.lib[0])
        kits = new / "Windows Kits/10"
        for folder in tree.include[1:]:
            _link(kits / "Include" / tree.sdk / folder.name.lower(), folder)
        for name, folder in zip(("ucrt", "um"), tree.lib[1:], strict=True):
            _link(kits / "Lib" / tree.sdk / name / "x64", folder)
        if tree.sdk_bin is not None:
            _link(kits / "bin" / tree.sdk / "x64", tree.sdk_bin)
        script = new / "VC/Auxiliary/Build/vcvarsall.bat"
        script.parent.mkdir(parents=True)
        script.write_bytes(vcvars(tree).encode("ascii"))
        remove(prefix)
        (drive / "VS").rename(drive / _ASIDE)
        new.rename(drive / "VS")


def is_installed(tree: Tree, prefix: Path) -> bool:
    """Whether the Windows in ``prefix`` has ``tree``, and no other."""
    place = prefix / "drive_c/VS/VC"
    include = place / "Tools/MSVC" / tree.version / "include"
    try:
        script = (place / "Auxiliary/Build/vcvarsall.bat").read_bytes()
        linked = include.readlink() == tree.include[0].resolve()
    except OSError:
        return False
    return linked and script == vcvars(tree).encode("ascii")


def remove(prefix: Path) -> None:
    """Restore the stub toolchain, which compiles the GPU bridge; harmless without a tree."""
    drive = prefix / "drive_c"
    if (drive / _ASIDE).is_dir():
        shutil.rmtree(drive / "VS", ignore_errors=True)
        (drive / _ASIDE).rename(drive / "VS")


def _fill(place: Path, folder: Path) -> None:
    place.mkdir(parents=True)
    for path in sorted(folder.iterdir()):
        if path.name.lower() not in LEFT_OUT:
            _link(place / path.name, path)


def _link(place: Path, target: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target.resolve())
