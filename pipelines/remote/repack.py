"""Packs a wheel anew, so that what is in it decides its bytes: one order, one time, one mode.

Of binaries that this build has linked, times that the linker has written down are replaced as well;
what the build only copied keeps its bytes, and its signature. Its bill of materials is put in.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import pathlib
import time
import zipfile
import zlib

from . import pestamps, sboms

#: zlib's own default, said here for it is part of what decides the bytes.
_LEVEL = 6
_BINARIES = (".pyd", ".dll", ".exe")
#: Hashes of a RECORD that is made anew would contradict these.
_SIGNATURES = ("RECORD.jws", "RECORD.p7s")


def repack(wheel: pathlib.Path, since: float | None, epoch: int, bill: str = "") -> list[str]:
    """Pack the wheel anew in its place; what was replaced in it, or left, a line each.

    ``since`` is when its build began, ``epoch`` the time that takes the place of any since then;
    ``None``: binaries stay as they are. ``bill`` is what :func:`.sboms.completed` takes.
    Raises ``ValueError`` for a wheel that has a name twice, no RECORD or a signature of it, or
    that has a bill of that name already.
    """
    with zipfile.ZipFile(wheel) as archive:
        members = {one.filename: one for one in archive.infolist() if not one.is_dir()}
        if len(members) != sum(not one.is_dir() for one in archive.infolist()):
            raise ValueError(f"{wheel.name} has a name twice")
        (record,) = [name for name in members if _is_info(name, "RECORD")] or [""]
        if not record or any(_is_info(name, one) for name in members for one in _SIGNATURES):
            raise ValueError(f"{wheel.name} has no RECORD, or a signed one: it stays as it is")
        info = record.partition("/")[0]
        own = f"{info}/sboms/{sboms.FILE}"
        if bill and own in members:
            raise ValueError(f"{wheel.name} has a {own} of its own: leave it out of the source")
        brought = sboms.completed(bill, archive.read(f"{info}/METADATA")) if bill else b""
        every = members | ({own: zipfile.ZipInfo(own)} if bill else {})
        part = wheel.with_name(f".{wheel.name}.part")
        rows, told = [], []
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as made:
            for name in sorted(every, key=lambda name: (_is_info(name), name)):
                if name == record:
                    continue
                data = archive.read(name) if name in members else brought
                if name.endswith(_BINARIES) and since is not None:
                    data, found = pestamps.settled(data, since, epoch)
                    told += [f"{name}: {line}" for line in found]
                _write(made, name, data, every[name], epoch)
                value = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
                rows.append([name, f"sha256={value.rstrip('=')}", str(len(data))])
            text = io.StringIO(newline="")
            csv.writer(text, lineterminator="\n").writerows([*rows, [record, "", ""]])
            _write(made, record, text.getvalue().encode(), members[record], epoch)
    os.replace(part, wheel)  # noqa: PTH105
    runtime = getattr(zlib, "ZLIB_RUNTIME_VERSION", zlib.ZLIB_VERSION)
    return [*told, f"{len(every)} files, zlib {runtime} at level {_LEVEL}"]


def _is_info(name: str, file: str = "") -> bool:
    """Whether it is in the .dist-info directory, and that file of it."""
    folder, _, inside = name.partition("/")
    return folder.endswith(".dist-info") and inside == (file or inside)


def _write(made: zipfile.ZipFile, name: str, data: bytes, was: zipfile.ZipInfo, epoch: int) -> None:
    """Add a file: of its mode only whether it is a program is kept."""
    info = zipfile.ZipInfo(name, time.gmtime(epoch)[:6])
    info.create_system = 3  # Unix: what Windows says of modes is nothing
    program = was.create_system == 3 and was.external_attr >> 16 & 0o111  # noqa: PLR2004
    info.external_attr = (0o100755 if program else 0o100644) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    made.writestr(info, data, compresslevel=_LEVEL)
