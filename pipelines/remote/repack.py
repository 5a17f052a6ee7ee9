"""Packs a wheel anew, so that what is in it decides its bytes: one order, one time, one mode.

Of binaries that this build has linked, times that the linker has written down are replaced as well;
what the build only copied keeps its bytes, and its signature. Its bill of materials is put in, and
the local version of a package whose own build takes none.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import pathlib
import re
import time
import zipfile
import zlib

from . import files, pestamps, sboms

#: zlib's own default, said here for it is part of what decides the bytes.
_LEVEL = 6
_BINARIES = (".pyd", ".dll", ".exe")
#: Hashes of a RECORD that is made anew would contradict these.
_SIGNATURES = ("RECORD.jws", "RECORD.p7s")


#: Of METADATA, whose headers end with the first empty line.
_VERSION = re.compile(rb"\A((?:[^\r\n]+\r?\n)*?Version: *)([^\r\n]+?) *(?=\r?$)", re.MULTILINE)


def repack(
    wheel: pathlib.Path, since: float | None, epoch: int, bill: str = "", local: str = ""
) -> list[str]:
    """Pack the wheel anew in its place; what was replaced in it, or left, a line each.

    ``since`` is when its build began, ``epoch`` the time that takes the place of any since then;
    ``None``: binaries stay as they are. ``bill`` is what :func:`.sboms.completed` takes. With
    ``local``, a local version, it is one of that version, and named so. Raises ``ValueError`` for
    a wheel that has a name twice, no RECORD or a signature of it, that has a bill of that name
    already, or a local version.
    """
    with zipfile.ZipFile(wheel) as archive:
        members = {one.filename: one for one in archive.infolist() if not one.is_dir()}
        if len(members) != sum(not one.is_dir() for one in archive.infolist()):
            raise ValueError(f"{wheel.name} has a name twice")
        records = [name for name in members if _is_info(name, "RECORD")]
        if len(records) > 1:
            raise ValueError(f"{wheel.name} has {len(records)} RECORDs: {', '.join(records)[:200]}")
        record = "".join(records)
        if not record or any(_is_info(name, one) for name in members for one in _SIGNATURES):
            raise ValueError(f"{wheel.name} has no RECORD, or a signed one: it stays as it is")
        info = record.partition("/")[0]
        own = f"{info}/sboms/{sboms.FILE}"
        if bill and own in members:
            raise ValueError(f"{wheel.name} has a {own} of its own: leave it out of the source")
        if (bill or local) and f"{info}/METADATA" not in members:
            raise ValueError(f"{wheel.name} has no {info}/METADATA")
        metadata = f"{info}/METADATA"
        changed, called = {}, wheel.name
        if local:
            changed[metadata], called = _versioned(wheel, archive.read(metadata), local)
        if bill:
            changed[own] = sboms.completed(bill, changed.get(metadata) or archive.read(metadata))
        every = members | ({own: zipfile.ZipInfo(own)} if bill else {})
        part = wheel.with_name(f".{wheel.name}.part")
        rows, told = [], []
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as made:
            for name in sorted(every, key=lambda name: (_is_info(name), name)):
                if name == record:
                    continue
                data = changed[name] if name in changed else archive.read(name)
                if name.endswith(_BINARIES) and since is not None:
                    data, found = pestamps.settled(data, since, epoch)
                    told += [f"{name}: {line}" for line in found]
                new = _placed(name, info, local)
                _write(made, new, data, every[name], epoch)
                value = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
                rows.append([new, f"sha256={value.rstrip('=')}", str(len(data))])
            text, new = io.StringIO(newline=""), _placed(record, info, local)
            csv.writer(text, lineterminator="\n").writerows([*rows, [new, "", ""]])
            _write(made, new, text.getvalue().encode(), members[record], epoch)
    files.replace(str(part), str(wheel.with_name(called)))
    if called != wheel.name:
        wheel.unlink()
        told.append(f"{wheel.name} is now {called}")
    runtime = getattr(zlib, "ZLIB_RUNTIME_VERSION", zlib.ZLIB_VERSION)
    return [*told, f"{len(every)} files, zlib {runtime} at level {_LEVEL}"]


def _versioned(wheel: pathlib.Path, metadata: bytes, local: str) -> tuple[bytes, str]:
    """METADATA with the local version, and the wheel's name with it."""
    name, version, tags = wheel.name.split("-", 2)
    found = _VERSION.search(metadata)
    if found is None or "+" in version or b"+" in found[2]:
        said = found[2].decode("utf-8", "replace")[:80] if found else "no version"
        raise ValueError(f"{wheel.name} has {said}: +{local} cannot be put behind it")
    made = metadata[: found.end(2)] + f"+{local}".encode() + metadata[found.end(2) :]
    return made, f"{name}-{version}+{local}-{tags}"


def _placed(name: str, info: str, local: str) -> str:
    """Where a member is in the wheel of that local version: two directories are named by it."""
    top, slash, rest = name.partition("/")
    stem = info.removesuffix(".dist-info")
    for end in (".dist-info", ".data") if local else ():
        if top == stem + end:
            return f"{stem}+{local}{end}{slash}{rest}"
    return name


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
