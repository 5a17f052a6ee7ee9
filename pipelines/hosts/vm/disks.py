"""Golden disks: an installed Windows in a volume, sealed with a record of every file's hash.

Machines use overlays of one, so it must never change. Before one starts, the disk is compared with
its record: sizes and times always, the hashes where a time has changed or a repair is asked for.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pydantic import ValidationError

from pipelines.core.errors import HostError, PipelineError
from pipelines.core.model import Model
from pipelines.hosts.vm.volume import GoldenVolume
from pipelines.toolchain.sources import Sha256

RECORD = "record.json"
_SCHEMA = 1
#: What a machine needs of the disk: the disk and the image's own state files.
_FILES = "data.qcow2 windows.*"
_LOOK = f"""
if [ -f {RECORD} ]; then tr -d '\\n' <{RECORD}; fi; echo
for file in {_FILES}; do if [ -e "$file" ]; then stat -c '%s %.9Y %n' "$file"; fi; done
"""
_HASH = f'for file in {_FILES}; do if [ -e "$file" ]; then sha256sum "$file"; fi; done'
# Of what the installation leaves only what a machine needs stays: not 8 GB of ISO.
_WHOLE = """
[ -f data.qcow2 ] || { echo "there is no data.qcow2" >&2; exit 3; }
[ -f windows.boot ] || { echo "Windows was not shut down in good order" >&2; exit 3; }
rm -rf tmp setup.img ./*.iso ./*.part
qemu-img check -q data.qcow2 >&2 || { echo "qemu-img finds errors in data.qcow2" >&2; exit 3; }
qemu-img info --output=json data.qcow2 | tr -d '\\n'
"""


class File(Model):
    """One file of a golden disk."""

    sha256: Sha256
    size: int
    time: str
    """Of its last change, as the engine's machine counts it."""


class Record(Model):
    """What a golden disk was made from, and what every file of it is."""

    version: int = _SCHEMA
    key: str
    """Hash of :attr:`origin`."""
    origin: dict[str, str]
    """All that decides what is on it."""
    made: str
    seconds: int
    """How long that took."""
    pin: str
    """sha256 of the certificate that its Windows had then; empty for one installed elsewhere."""
    licensed: str = ""
    """Until when its Windows runs; empty: without an end, or not known."""
    virtual_size: int
    files: dict[str, File]

    def ends_soon(self) -> bool:
        """Whether its Windows may shut itself down within a day."""
        soon = datetime.now(UTC) + timedelta(days=1)
        return bool(self.licensed) and datetime.fromisoformat(self.licensed) < soon


class DamagedDiskError(HostError):
    """A golden disk is not what its record says."""


@dataclass(frozen=True)
class Found:
    """A golden disk's volume as it is now."""

    record: Record | None
    """``None``: it was never finished."""
    states: dict[str, tuple[int, str]]
    """Name -> size and time of each file."""


def key_of(origin: dict[str, str]) -> str:
    """Names the disk that is made of ``origin``."""
    return hashlib.sha256(json.dumps(origin, sort_keys=True).encode()).hexdigest()[:16]


def look(volume: GoldenVolume) -> Found:
    """What is there; :class:`DamagedDiskError` for a record that cannot be read."""
    told, *rows = volume.run(_LOOK).splitlines() or [""]
    states = {}
    for row in rows:
        size, time, name = row.split(" ", 2)
        states[name] = int(size), time
    if not told.strip():
        return Found(None, states)
    try:
        record = Record.model_validate_json(told)
    except ValidationError as error:
        raise _damaged(
            volume, f"its record cannot be read ({error.error_count()} errors)"
        ) from None
    if record.version != _SCHEMA or record.key != volume.key:
        raise _damaged(volume, f"its record is of another disk ({record.key})")
    return Found(record, states)


def check(volume: GoldenVolume, found: Found, *, thorough: bool = False) -> Record:
    """The record of a disk that is what it was; :class:`DamagedDiskError` says in what it is not.

    ``thorough``: every byte is read, whatever the times say.
    """
    record = found.record
    if record is None:
        raise _damaged(volume, "it was never finished")
    known = {name: file.size for name, file in record.files.items()}
    sizes = {name: size for name, (size, _) in found.states.items()}
    if known != sizes:
        raise _damaged(volume, _difference(known, sizes))
    touched = [n for n, file in record.files.items() if found.states[n][1] != file.time]
    if not touched and not thorough:
        return record
    hashes = _hashes(volume)
    wrong = [name for name, file in record.files.items() if hashes.get(name) != file.sha256]
    if wrong:
        raise _damaged(volume, f"{', '.join(wrong)}: the sha256 is another one")
    if touched:
        files = {
            n: file.model_copy(update={"time": found.states[n][1]})
            for n, file in record.files.items()
        }
        record = record.model_copy(update={"files": files})
        _write(volume, record)
    return record


def seal(
    volume: GoldenVolume, origin: dict[str, str], *, pin: str, licensed: int, seconds: float
) -> Record:
    """Record a disk that was just made; :class:`HostError` for one that is not whole.

    ``licensed`` is for how many minutes its Windows runs, 0 without an end.
    """
    about = json.loads(volume.run(_WHOLE, write=True))
    if about.get("format") != "qcow2" or about.get("backing-filename"):
        raise HostError(
            f"the disk is {about.get('format')} with the backing file "
            f"{about.get('backing-filename')}, expected qcow2 without one",
        )
    hashes = _hashes(volume)
    states = look(volume).states
    if set(hashes) != set(states):
        raise HostError(f"volume {volume.name} was changed while it was sealed")
    now = datetime.now(UTC)
    until = now + timedelta(minutes=licensed)
    record = Record(
        key=volume.key,
        origin=origin,
        made=now.isoformat(timespec="seconds"),
        licensed=until.isoformat(timespec="seconds") if licensed else "",
        seconds=round(seconds),
        pin=pin,
        virtual_size=int(about["virtual-size"]),
        files={
            name: File(sha256=hashes[name], size=size, time=time)
            for name, (size, time) in states.items()
        },
    )
    _write(volume, record)
    return record


def _hashes(volume: GoldenVolume) -> dict[str, str]:
    rows = re.findall(r"(?m)^([0-9a-f]{64}) [ *](.+)$", volume.run(_HASH))
    return {name: digest for digest, name in rows}


def _write(volume: GoldenVolume, record: Record) -> None:
    """Whole or not at all: without it the disk counts as never finished."""
    script = f'printf %s "$TEXT" >{RECORD}.new; sync {RECORD}.new; mv {RECORD}.new {RECORD}'
    volume.run(script, write=True, TEXT=record.model_dump_json())


def _difference(known: dict[str, int], found: dict[str, int]) -> str:
    lost, new = sorted(known.keys() - found.keys()), sorted(found.keys() - known.keys())
    said = [f"{name} is missing" for name in lost] + [f"{name} is new" for name in new]
    said += [
        f"{name} has {found[name]} bytes, recorded are {known[name]}"
        for name in sorted(known.keys() & found.keys())
        if known[name] != found[name]
    ]
    return "; ".join(said)


def _damaged(volume: GoldenVolume, why: str) -> PipelineError:
    return DamagedDiskError(
        f"the golden disk {volume.name} is damaged: {why}",
        hint=f"Type: docker volume rm {shlex.quote(volume.name)}; the next command makes it "
        "anew. Machines that were made of it must be removed first: invoke hosts",
    )
