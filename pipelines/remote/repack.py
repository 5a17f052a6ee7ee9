"""Repacks a wheel so that its contents determine its bytes: one order, one time, one mode.

In binaries linked by this build, the linker's timestamps are replaced as well; files the build only
copied keep their bytes and their signature. The SBOM is added, and the local version for a package
whose own build does not support one.
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

#: zlib's own default, set explicitly because it affects the bytes.
_LEVEL = 6
_BINARIES = (".pyd", ".dll", ".exe")
#: Hashes of a regenerated RECORD would contradict these.
_SIGNATURES = ("RECORD.jws", "RECORD.p7s")


#: In METADATA, whose headers end with the first empty line.
_VERSION = re.compile(rb"\A((?:[^\r\n]+\r?\n)*?Version: *)([^\r\n]+?) *(?=\r?$)", re.MULTILINE)


def repack(
    wheel: pathlib.Path, since: float | None, epoch: int, bill: str = "", local: str = ""
) -> list[str]:
    """Repack the wheel in place; returns one line for each change, or for what was left.

    ``since`` is when its build began, ``epoch`` replaces any timestamp since then; ``None``:
    binaries are not changed. ``bill`` is the input of :func:`.sboms.completed`. ``local``, a local
    version, is added to its version and its name. Raises ``ValueError`` for a wheel with a
    duplicate name, without RECORD or with a signed one, and for one that already has an SBOM of
    that name or a local version.
    """
    with zipfile.ZipFile(wheel) as archive:
        members = {member.filename: member for member in archive.infolist() if not member.is_dir()}
        if len(members) != sum(not member.is_dir() for member in archive.infolist()):
            raise ValueError(f"{wheel.name} has a duplicate name")
        records = [name for name in members if _is_info(name, "RECORD")]
        if len(records) > 1:
            raise ValueError(f"{wheel.name} has {len(records)} RECORDs: {', '.join(records)[:200]}")
        record = "".join(records)
        if not record or any(_is_info(name, member) for name in members for member in _SIGNATURES):
            raise ValueError(f"{wheel.name} has no RECORD, or a signed one: it is not changed")
        info = record.partition("/")[0]
        own = f"{info}/sboms/{sboms.FILE}"
        if bill and own in members:
            raise ValueError(f"{wheel.name} already has a {own}: remove it from the source")
        if (bill or local) and f"{info}/METADATA" not in members:
            raise ValueError(f"{wheel.name} has no {info}/METADATA")
        metadata = f"{info}/METADATA"
        changed, called = {}, wheel.name
        if local:
            changed[metadata], called = _versioned(wheel, archive.read(metadata), local)
        if bill:
            changed[own] = sboms.completed(bill, changed.get(metadata) or archive.read(metadata))
        names = members | ({own: zipfile.ZipInfo(own)} if bill else {})
        part = wheel.with_name(f".{wheel.name}.part")
        rows, changes = [], []
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as made:
            for name in sorted(names, key=lambda name: (_is_info(name), name)):
                if name == record:
                    continue
                data = changed[name] if name in changed else archive.read(name)
                if name.endswith(_BINARIES) and since is not None:
                    data, stamped = pestamps.settled(data, since, epoch)
                    changes += [f"{name}: {line}" for line in stamped]
                new = _placed(name, info, local)
                _write_normalized_entry(made, new, data, names[name], epoch)
                value = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
                rows.append([new, f"sha256={value.rstrip('=')}", str(len(data))])
            text, new = io.StringIO(newline=""), _placed(record, info, local)
            csv.writer(text, lineterminator="\n").writerows([*rows, [new, "", ""]])
            _write_normalized_entry(made, new, text.getvalue().encode(), members[record], epoch)
    files.replace(str(part), str(wheel.with_name(called)))
    if called != wheel.name:
        wheel.unlink()
        changes.append(f"{wheel.name} is now {called}")
    runtime = getattr(zlib, "ZLIB_RUNTIME_VERSION", zlib.ZLIB_VERSION)
    return [*changes, f"{len(names)} files, zlib {runtime} at level {_LEVEL}"]


def _versioned(wheel: pathlib.Path, metadata: bytes, local: str) -> tuple[bytes, str]:
    """METADATA with the local version, and the new name of the wheel."""
    name, version, tags = wheel.name.split("-", 2)
    match = _VERSION.search(metadata)
    if match is None or "+" in version or b"+" in match[2]:
        text = match[2].decode("utf-8", "replace")[:80] if match else "no version"
        raise ValueError(f"{wheel.name} has {text}: +{local} cannot be appended")
    made = metadata[: match.end(2)] + f"+{local}".encode() + metadata[match.end(2) :]
    return made, f"{name}-{version}+{local}-{tags}"


def _placed(name: str, info: str, local: str) -> str:
    """The path of a member in the wheel of that local version, which is in two directory names."""
    top, slash, rest = name.partition("/")
    stem = info.removesuffix(".dist-info")
    for end in (".dist-info", ".data") if local else ():
        if top == stem + end:
            return f"{stem}+{local}{end}{slash}{rest}"
    return name


def _is_info(name: str, file: str = "") -> bool:
    """Whether it is in the .dist-info directory, optionally that file of it."""
    folder, _, inside = name.partition("/")
    return folder.endswith(".dist-info") and inside == (file or inside)


def _write_normalized_entry(
    made: zipfile.ZipFile, name: str, data: bytes, was: zipfile.ZipInfo, epoch: int
) -> None:
    """Add a file: of its mode only the executable bit is kept."""
    info = zipfile.ZipInfo(name, time.gmtime(epoch)[:6])
    info.create_system = 3  # Unix: Windows has no modes
    program = was.create_system == 3 and was.external_attr >> 16 & 0o111  # noqa: PLR2004
    info.external_attr = (0o100755 if program else 0o100644) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    made.writestr(info, data, compresslevel=_LEVEL)
