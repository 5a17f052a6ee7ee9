"""Copies the CUDA driver's files to where programs look for them, in a Windows container.

A container under process isolation with access to GPUs sees its machine's driver store in
``HostDriverStore``, but its System32 does not have the driver's files: nvcuda.dll, nvml.dll,
nvidia-smi.exe. Their names are in the driver's INF: Windows itself uses its AddReg lines for
``CopyToVmOverwrite`` and ``CopyToVmWhenNewer``.
https://learn.microsoft.com/en-us/windows-hardware/drivers/display/container-non-dx

They are copied: Docker on Windows mounts directories, not files.
https://github.com/TensorWorks/DirectX-Device-Plugins/blob/main/plugins/cmd/gen-device-mounts/main.go

Unsupported by Microsoft and NVIDIA; others have shown it, we have not.
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
#: Not named by such lines, though every driver has it.
_ALWAYS = {"nvidia-smi.exe": "nvidia-smi.exe"}
#: The library of CUDA's driver: its presence identifies the directory of such a driver.
_LOADERS = ("nvcuda_loader64.dll", "nvcuda64.dll")
_NEEDED = "nvcuda.dll"


class Brought(TypedDict):
    """The result."""

    store: str
    """The driver's directory."""
    files: dict[str, str]
    """Name in System32 -> sha256 of the file there now."""
    missing: list[str]
    """Named by the INF but missing from the store."""


@idempotent
def bring(system: str = _SYSTEM) -> Brought:
    """Copy them; raises ``FileNotFoundError`` without a driver directory to copy from.

    Of several drivers the one Windows reports as in use is taken; ``RuntimeError`` if it does
    not report one.
    """
    root = pathlib.Path(system)
    stores = sorted(
        {p.parent for loader in _LOADERS for p in _repository(root).glob(f"*/{loader}")}
    )
    if not stores:
        raise FileNotFoundError(
            f"no NVIDIA driver in {_repository(root)}: the container has no GPU, "
            "or its machine has no driver for one"
        )
    if len(stores) > 1:
        used = _in_use()
        names = ", ".join(store.name for store in stores)
        stores = [store for store in stores if store.name.lower() in used]
        if len(stores) != 1:
            raise RuntimeError(
                f"cannot tell which of these NVIDIA drivers is in use: {names}; remove the others "
                "from the machine's driver store, with pnputil /delete-driver"
            )
    (store,) = stores
    files, missing = {}, []
    for source, target in _map_driver_files(store).items():
        if not (store / source).is_file():
            missing.append(source)
            continue
        shutil.copyfile(store / source, root / target)
        files[target] = hashlib.sha256((root / target).read_bytes()).hexdigest()
    if _NEEDED not in {name.lower() for name in files}:
        raise FileNotFoundError(f"{store} has no file for {_NEEDED}")
    return {"store": str(store), "files": files, "missing": missing}


def _repository(root: pathlib.Path) -> pathlib.Path:
    return root / "HostDriverStore" / "FileRepository"


def _in_use() -> set[str]:
    """The directories, in lower case, of the display drivers Windows reports as in use."""
    query = "(Get-CimInstance Win32_VideoController).InstalledDisplayDrivers"
    with contextlib.suppress(OSError):
        output = process.capture(["powershell", "-NoProfile", "-Command", query], timeout=60)[1]
        return {name.lower() for name in re.findall(r"FileRepository\\([^\\\s]+)\\", output)}
    return set()


def _map_driver_files(store: pathlib.Path) -> dict[str, str]:
    """Path in the store -> name in System32; the first one with a name wins."""
    required: dict[str, str] = {}
    for inf in sorted(store.glob("*.inf")):
        for source, target in _parse_inf_copies(_read_inf_text(inf)):
            if target.lower() not in {name.lower() for name in required.values()}:
                required[source] = target
    taken = {name.lower() for name in required.values()}
    first = next(name for name in _LOADERS if (store / name).is_file())
    others = {first: _NEEDED, **_ALWAYS}
    return required | {source: name for source, name in others.items() if name not in taken}


def _parse_inf_copies(text: str) -> Iterator[tuple[str, str]]:
    for match in _LINE.finditer(text):
        source = match["source"].strip().replace("\\", "/")
        target = (match["target"] or "").strip() or source.rpartition("/")[2]
        # A driver is trusted with more than this, but a path outside its directory is an error.
        if ".." not in source.split("/") and not re.search(r"[\\/:]", target):
            yield source.lstrip("/"), target


def _read_inf_text(path: pathlib.Path) -> str:
    """An INF's text: UTF-16 with a byte order mark, else bytes that are ASCII where relevant."""
    content = path.read_bytes()
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16", "replace")
    return content.decode("utf-8", "replace")
