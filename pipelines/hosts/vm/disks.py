"""Golden disks: an installed Windows in a volume, sealed with a record of every file's hash.

Machines use overlays of it, so it must never change. Before one starts, the disk is compared with
its record: always by sizes and times, by hashes if a time has changed or for a repair.
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
#: The files a machine needs: the disk and the image's own state files.
_FILES = "data.qcow2 windows.*"
_LOOK = f"""
if [ -f {RECORD} ]; then tr -d '\\n' <{RECORD}; fi; echo
for file in {_FILES}; do if [ -e "$file" ]; then stat -c '%s %.9Y %n' "$file"; fi; done
"""
_HASH = f'for file in {_FILES}; do if [ -e "$file" ]; then sha256sum "$file"; fi; done'
# Only the files a machine needs are kept of the installation: not 8 GB of ISO.
_WHOLE = """
[ -f data.qcow2 ] || { echo "there is no data.qcow2" >&2; exit 3; }
[ -f windows.boot ] || { echo "Windows was not shut down cleanly" >&2; exit 3; }
rm -rf tmp setup.img ./*.iso ./*.part
qemu-img check -q data.qcow2 >&2 || { echo "qemu-img finds errors in data.qcow2" >&2; exit 3; }
qemu-img info --output=json data.qcow2 | tr -d '\\n'
"""


class File(Model):
    """One file of a golden disk."""

    sha256: Sha256
    size: int
    time: str
    """Time of its last change, by the engine's clock."""


class Record(Model):
    """The origin of a golden disk, and its files."""

    version: int = _SCHEMA
    key: str
    """Hash of :attr:`origin`."""
    origin: dict[str, str]
    """Everything that determines its contents."""
    made: str
    seconds: int
    """How long that took."""
    pin: str
    """sha256 of its Windows' certificate at that time; empty for one installed elsewhere."""
    licensed: str = ""
    """When its Windows license expires; empty: never, or unknown."""
    virtual_size: int
    files: dict[str, File]

    def ends_soon(self) -> bool:
        """Whether its Windows may shut itself down within a day."""
        soon = datetime.now(UTC) + timedelta(days=1)
        return bool(self.licensed) and datetime.fromisoformat(self.licensed) < soon


class DamagedDiskError(HostError):
    """A golden disk does not match its record."""


@dataclass(frozen=True)
class Found:
    """The current state of a golden disk's volume."""

    record: Record | None
    """``None``: it was never finished."""
    states: dict[str, tuple[int, str]]
    """Name -> size and modification time of each file."""


def key_of(origin: dict[str, str]) -> str:
    """The name of the disk made from ``origin``."""
    return hashlib.sha256(json.dumps(origin, sort_keys=True).encode()).hexdigest()[:16]


def read_disk_state(volume: GoldenVolume) -> Found:
    """Its current state; :class:`DamagedDiskError` for an unreadable record."""
    text, *rows = volume.run(_LOOK).splitlines() or [""]
    states = {}
    for row in rows:
        size, time, name = row.split(" ", 2)
        states[name] = int(size), time
    if not text.strip():
        return Found(None, states)
    try:
        record = Record.model_validate_json(text)
    except ValidationError as error:
        raise _damaged_disk_error(
            volume, f"its record cannot be read ({error.error_count()} errors)"
        ) from None
    if record.version != _SCHEMA or record.key != volume.key:
        raise _damaged_disk_error(volume, f"its record belongs to another disk ({record.key})")
    return Found(record, states)


def verify_disk(volume: GoldenVolume, current: Found, *, thorough: bool = False) -> Record:
    """The record of an unchanged disk; :class:`DamagedDiskError` describes the changes.

    ``thorough``: read every byte, regardless of the times.
    """
    record = current.record
    if record is None:
        raise _damaged_disk_error(volume, "it was never finished")
    known = {name: file.size for name, file in record.files.items()}
    sizes = {name: size for name, (size, _) in current.states.items()}
    if known != sizes:
        raise _damaged_disk_error(volume, _describe_size_changes(known, sizes))
    touched = [n for n, file in record.files.items() if current.states[n][1] != file.time]
    if not touched and not thorough:
        return record
    hashes = _read_volume_hashes(volume)
    wrong = [name for name, file in record.files.items() if hashes.get(name) != file.sha256]
    if wrong:
        raise _damaged_disk_error(volume, f"{', '.join(wrong)}: the sha256 differs")
    if touched:
        files = {
            n: file.model_copy(update={"time": current.states[n][1]})
            for n, file in record.files.items()
        }
        record = record.model_copy(update={"files": files})
        _write_disk_record(volume, record)
    return record


def seal_disk(
    volume: GoldenVolume, origin: dict[str, str], *, pin: str, licensed: int, seconds: float
) -> Record:
    """Record a new disk; :class:`HostError` for an incomplete one.

    ``licensed``: how many minutes its Windows runs, 0 without a limit.
    """
    about = json.loads(volume.run(_WHOLE, write=True))
    if about.get("format") != "qcow2" or about.get("backing-filename"):
        raise HostError(
            f"the disk is {about.get('format')} with the backing file "
            f"{about.get('backing-filename')}, expected qcow2 without one",
        )
    hashes = _read_volume_hashes(volume)
    states = read_disk_state(volume).states
    if set(hashes) != set(states):
        raise HostError(f"volume {volume.name} changed while it was being sealed")
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
    _write_disk_record(volume, record)
    return record


def _read_volume_hashes(volume: GoldenVolume) -> dict[str, str]:
    rows = re.findall(r"(?m)^([0-9a-f]{64}) [ *](.+)$", volume.run(_HASH))
    return {name: digest for digest, name in rows}


def _write_disk_record(volume: GoldenVolume, record: Record) -> None:
    """Written atomically: without it the disk counts as unfinished."""
    script = f'printf %s "$TEXT" >{RECORD}.new; sync {RECORD}.new; mv {RECORD}.new {RECORD}'
    volume.run(script, write=True, TEXT=record.model_dump_json())


def _describe_size_changes(known: dict[str, int], current: dict[str, int]) -> str:
    lost, new = sorted(known.keys() - current.keys()), sorted(current.keys() - known.keys())
    differences = [f"{name} is missing" for name in lost] + [f"{name} is new" for name in new]
    differences += [
        f"{name} has {current[name]} bytes, recorded are {known[name]}"
        for name in sorted(known.keys() & current.keys())
        if known[name] != current[name]
    ]
    return "; ".join(differences)


def _damaged_disk_error(volume: GoldenVolume, why: str) -> PipelineError:
    return DamagedDiskError(
        f"the golden disk {volume.name} is damaged: {why}",
        hint=f"Type: docker volume rm {shlex.quote(volume.name)}; the next command creates it "
        "again. First remove the machines that use it: invoke hosts",
    )
