"""Brings the files of CUDA's driver to where programs look for them, in a Windows container.

A container under process isolation that is given the class of GPUs sees the driver store of its
machine, in ``HostDriverStore``, but System32 lacks what the driver put there: nvcuda.dll, nvml.dll,
nvidia-smi.exe. Which files those are, and under which names, the driver's INF says: its AddReg
lines for ``CopyToVmOverwrite`` and ``CopyToVmWhenNewer`` are what Windows itself goes by.
https://learn.microsoft.com/en-us/windows-hardware/drivers/display/container-non-dx

They are copied: Docker on Windows mounts directories, no files.
https://github.com/TensorWorks/DirectX-Device-Plugins/blob/main/plugins/cmd/gen-device-mounts/main.go

Unsupported by Microsoft and NVIDIA; shown by others, not by us.
"""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
import re
import shutil
from collections.abc import Iterator
from typing import TypedDict

from . import process
from .rpc import idempotent

_SYSTEM = "C:\\Windows\\System32"
_LINE = re.compile(
    r'^\s*HKR\s*,\s*"?(?:[^",;]*\\)?CopyToVm(?:Overwrite|WhenNewer)"?\s*,[^,]*,[^,]*,\s*'
    r'"?(?P<source>[^",;\r\n]+?)"?\s*(?:,\s*"?(?P<target>[^",;\r\n]*?)"?\s*)?(?:;.*)?$',
    re.IGNORECASE | re.MULTILINE,
)
#: What no such line names, though every driver has it.
_ALWAYS = {"nvidia-smi.exe": "nvidia-smi.exe"}
#: The library of CUDA's driver: with it in a directory, the directory is of such a driver.
_LOADERS = ("nvcuda_loader64.dll", "nvcuda64.dll")
_NEEDED = "nvcuda.dll"


class Brought(TypedDict):
    """What was done."""

    store: str
    """The driver's directory."""
    files: dict[str, str]
    """Name in System32 -> sha256 of what is there now."""
    missing: list[str]
    """Named by the INF, and not in the store."""


@idempotent
def bring(system: str = _SYSTEM) -> Brought:
    """Copy them; raises ``FileNotFoundError`` where there is no driver's directory to copy from.

    Of several drivers the one that Windows says it uses is taken; ``RuntimeError`` where it does
    not say.
    """
    root = pathlib.Path(system)
    stores = sorted(
        {p.parent for loader in _LOADERS for p in _repository(root).glob(f"*/{loader}")}
    )
    if not stores:
        raise FileNotFoundError(
            f"no NVIDIA driver in {_repository(root)}: the container was given no GPU, "
            "or its machine has no driver for one"
        )
    if len(stores) > 1:
        used = _in_use()
        names = ", ".join(store.name for store in stores)
        stores = [store for store in stores if store.name.lower() in used]
        if len(stores) != 1:
            raise RuntimeError(
                f"which of these NVIDIA drivers is in use is not told: {names}; remove the others "
                "from the machine's driver store, with pnputil /delete-driver"
            )
    (store,) = stores
    files, missing = {}, []
    for source, target in _wanted(store).items():
        if not (store / source).is_file():
            missing.append(source)
            continue
        shutil.copyfile(store / source, root / target)
        files[target] = hashlib.sha256((root / target).read_bytes()).hexdigest()
    if _NEEDED not in {name.lower() for name in files}:
        raise FileNotFoundError(f"{store} has nothing that becomes {_NEEDED}")
    return {"store": str(store), "files": files, "missing": missing}


def _repository(root: pathlib.Path) -> pathlib.Path:
    return root / "HostDriverStore" / "FileRepository"


def _in_use() -> set[str]:
    """The directories, in small letters, of the display drivers that Windows says it uses."""
    query = "(Get-CimInstance Win32_VideoController).InstalledDisplayDrivers"
    with contextlib.suppress(OSError):
        told = process.capture(["powershell", "-NoProfile", "-Command", query], timeout=60)[1]
        return {name.lower() for name in re.findall(r"FileRepository\\([^\\\s]+)\\", told)}
    return set()


def _wanted(store: pathlib.Path) -> dict[str, str]:
    """Path in the store -> name in System32; the first that claims a name has it."""
    wanted: dict[str, str] = {}
    for inf in sorted(store.glob("*.inf")):
        for source, target in _named(_text(inf)):
            if target.lower() not in {name.lower() for name in wanted.values()}:
                wanted[source] = target
    taken = {name.lower() for name in wanted.values()}
    first = next(name for name in _LOADERS if (store / name).is_file())
    others = {first: _NEEDED, **_ALWAYS}
    return wanted | {source: name for source, name in others.items() if name not in taken}


def _named(text: str) -> Iterator[tuple[str, str]]:
    for found in _LINE.finditer(text):
        source = found["source"].strip().replace("\\", "/")
        target = (found["target"] or "").strip() or source.rpartition("/")[2]
        # A driver is trusted with more than this, but a path that leaves its place is an error.
        if ".." not in source.split("/") and not re.search(r"[\\/:]", target):
            yield source.lstrip("/"), target


def _text(path: pathlib.Path) -> str:
    """An INF's text: UTF-16 with its mark, else bytes that are ASCII where it matters."""
    content = path.read_bytes()
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16", "replace")
    return content.decode("utf-8", "replace")
