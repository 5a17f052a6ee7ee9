"""Makes golden disks: an unattended installation of Windows by the runner image."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from docker.models.containers import Container
from docker.types import Mount

from pipelines.core.errors import ConfigError, HostError, PipelineError
from pipelines.core.hosttext import line, secret
from pipelines.core.logs import timed
from pipelines.core.paths import CHECKOUT
from pipelines.hosts.base import Opening
from pipelines.hosts.engine import owners
from pipelines.hosts.engine.box import Box
from pipelines.hosts.engine.boxes import Boxes, Order, label
from pipelines.hosts.engine.containerfiles import put_files
from pipelines.hosts.engine.refusals import telling
from pipelines.hosts.vm import disks
from pipelines.hosts.vm.config import VmHost
from pipelines.hosts.vm.exits import explained
from pipelines.hosts.vm.machine import Runner, keys_of
from pipelines.hosts.vm.volume import GoldenVolume, send_file
from pipelines.remote.files import replace
from pipelines.toolchain import hashed, sources

_log = logging.getLogger(__name__)

#: One at a time in this process; of other processes the volume's label tells.
_MAKING = threading.Lock()

#: Longest installation: its publisher's own CI gives Windows Server 2025 two and a half hours.
LONGEST = 3 * 3600.0
_LAST_WORDS = 300.0  # seconds from the end of an installation to Windows' shutdown
_TELL = 15.0  # seconds between two words on how it goes
_SAID = re.compile(r"WCW-(GOLDEN|FAILED|STEP) *([^\r\n]*)")
#: Fingerprint of its certificate, LicenseStatus and GracePeriodRemaining in minutes.
_GOLDEN = re.compile(r"([0-9a-f]{64}) (\d{1,3}) (\d{1,9})")
_LICENSED = "1"
#: What is put into the installation, and where it stands in a checkout.
_OEM = {
    "install.bat": "images/oem/install.bat",
    "golden.ps1": "images/oem/golden.ps1",
    "ready.ps1": "images/oem/ready.ps1",
    "serial.ps1": "images/oem/serial.ps1",
    "enable-winrm-https.ps1": "scripts/enable-winrm-https.ps1",
}


def oem() -> dict[str, bytes]:
    """The files of ``/oem``; :class:`ConfigError` where there is no checkout."""
    if CHECKOUT is None:
        raise ConfigError(
            "a golden disk is made in a checkout: images/oem is not in the installed package",
            hint="Clone the project, and run the same command in it.",
        )
    return {name: (CHECKOUT / place).read_bytes() for name, place in _OEM.items()}


def origin_of(config: VmHost, runner: Runner) -> dict[str, str]:
    """All that decides what is on the disk."""
    scripts = hashlib.sha256()
    for name, data in sorted(oem().items()):
        scripts.update(f"{name} {hashlib.sha256(data).hexdigest()}\n".encode())
    return {
        "windows": config.windows or f"iso {config.sha256}",
        "edition": config.edition,
        "image": runner.id,
        "disk": config.disk,
        "oem": scripts.hexdigest(),
        "key": "product key" if config.key_env else "",
    }


class Making:
    """Makes the golden disk of one host."""

    def __init__(
        self, name: str, config: VmHost, boxes: Boxes, runner: Runner, given: Opening
    ) -> None:
        self.name = name
        self.config = config
        self.boxes = boxes
        self.runner = runner
        self.cache = given.cache
        self.events = given.events
        self.origin = origin_of(config, runner)
        self.volume = GoldenVolume(boxes, runner.id, name, disks.key_of(self.origin))
        self._told = 0.0

    # -- what there is ---------------------------------------------------------------------------

    def ensure(self, *, thorough: bool = False) -> disks.Record:
        """The record of the golden disk, which is made if it is not there.

        Raises ``DamagedDiskError`` for one that is not what it was, :class:`HostError` while
        another command makes it, and what making raises.
        """
        with _MAKING:
            return self._ensure(thorough=thorough)

    def _ensure(self, *, thorough: bool) -> disks.Record:
        if (there := self.volume.find()) is not None:
            found = disks.look(self.volume)
            if found.record is not None:
                if found.record.ends_soon():
                    self.events.step("the licence on the golden disk ends: it is made again")
                    self.volume.remove()  # the engine refuses while machines use it
                    return self.make()
                if thorough:
                    self.events.step("comparing the golden disk with its record")
                return disks.check(self.volume, found, thorough=thorough)
            owner = label(there, "owner")
            if owner != owners.me() and owners.alive(owner) is not False:
                raise HostError(
                    f"the golden disk of host '{self.name}' is being made by another command "
                    f"({line(owner, 80)}), of {label(there, 'who')}",
                    hint=f"Wait for it. If nothing makes it: docker volume rm {self.volume.name}",
                )
            self.events.step("a golden disk was left unfinished: removed, it is made anew")
            for orphan in self.boxes.orphans(self.name):
                self.boxes.remove(orphan)
            self.volume.remove()
        elif self._others():
            self.events.step("what the golden disk is made of has changed: it is made anew")
        return self.make()

    def _others(self) -> list[str]:
        found = self.boxes.volumes(self.name)
        return [str(one.name) for one in found if label(one, "kind") == "golden"]

    def make(self) -> disks.Record:
        """Make it, whatever is there; nothing is left of one that fails."""
        if label(self.volume.create(), "owner") != owners.me():
            raise HostError(
                f"the golden disk of host '{self.name}' is being made by another command",
                hint="Wait for it.",
            )
        began = time.monotonic()
        try:
            with timed(_log, logging.INFO, "%s: golden disk", self.name):
                pin, licensed = self._install(began)
                self.events.step("sealing the golden disk")
                took = time.monotonic() - began
                return disks.seal(
                    self.volume, self.origin, pin=pin, licensed=licensed, seconds=took
                )
        except BaseException:
            with contextlib.suppress(PipelineError):  # why it came to that matters more
                self.volume.remove()
            raise

    # -- installing ------------------------------------------------------------------------------

    def _install(self, began: float) -> tuple[str, int]:
        """Install Windows into the volume; its certificate's fingerprint, its licence's minutes."""
        key = self._product_key()
        iso = self._iso() if self.config.iso else None
        order = Order(
            host=self.name,
            kind="golden",
            image=self.runner.id,
            keys=self._keys(),
            tied={"entrypoint": self.runner.entrypoint("tied")},
            fill=partial(self._fill, iso=iso, key=key),
            explain=explained,
            start_seconds=LONGEST if self.config.kvm else 10 * LONGEST,
        )
        self.events.step(
            f"installing {self.config.title}: 15 to 60 minutes, ten times that without KVM"
        )
        box, made = self.boxes.open(order, partial(self._installed, began=began))
        try:
            _await_shutdown(box)
        except BaseException:
            with contextlib.suppress(PipelineError):
                self.boxes.remove(box.container)
            raise
        finally:
            box.close()
        self.boxes.remove(box.container)
        return made

    def _keys(self) -> dict[str, Any]:
        keys = keys_of(self.config, self.runner, passed=None)
        keys["mounts"] = [Mount("/storage", self.volume.name, type="volume")]
        keys["environment"] |= {"VERIFY": "Y"}
        del keys["ports"]  # nobody is to sign in there
        return keys

    def _fill(self, container: Container, *, iso: Path | None, key: str) -> None:
        put_files(container, {f"/oem/{name}": data for name, data in oem().items()})
        if key:
            put_files(container, {"/shared/key": key.encode()})
        if iso is not None:
            with self.events.bars() as bars, telling(f"copy {iso.name} to the engine"):
                progress = partial(bars, "ISO")
                place = ("/", "custom.iso")
                send_file(container, iso, place, str(self.config.sha256), progress)

    def _product_key(self) -> str:
        if not self.config.key_env:
            return ""
        found = os.environ.get(self.config.key_env, "").strip()
        if not re.fullmatch(r"(?i)([A-Z0-9]{5}-){4}[A-Z0-9]{5}", found):
            raise ConfigError(
                f"host '{self.name}': {self.config.key_env} has no product key: five groups of "
                "five letters and digits",
                hint=f"Type: read -rs {self.config.key_env}; export {self.config.key_env}",
            )
        return secret(found)

    def _iso(self) -> Path:
        wanted, digest = str(self.config.iso), str(self.config.sha256)
        if "://" not in wanted:
            path = Path(wanted).expanduser()
            if not path.is_file():
                raise ConfigError(
                    f"host '{self.name}': iso: there is no file {path.absolute()}",
                    hint="Paths in pipeline.yaml are seen from the directory you type in.",
                )
            return path
        file = re.sub(r"[^A-Za-z0-9._+-]", "_", wanted.partition("?")[0].rpartition("/")[2])
        source = sources.Source(file=f"iso-{file}", sha256=digest, url=wanted)
        place = self.cache.place(source.file, digest)
        if not self.cache.has(place, digest):
            self.events.step(f"fetching {file}")
            part = place.with_name(f".{place.name}.{os.getpid()}.part")
            part.parent.mkdir(parents=True, exist_ok=True)
            try:
                with self.events.bars() as bars:
                    sources.download(source, part, partial(bars, "ISO"))
                hashed.verify(part, source)
                replace(part, place)
            finally:
                part.unlink(missing_ok=True)
        return place

    def _installed(self, box: Box, *, began: float) -> tuple[str, int] | None:
        """As :meth:`_install`, once the guest has said so; ``HostError`` for what it says instead.

        0 minutes are without an end.
        """
        said = box.said()
        words: Mapping[str, str] = dict(_SAID.findall(said))
        if "FAILED" in words:
            raise HostError(
                f"the installation of {self.config.title} failed: {line(words['FAILED'])}\n{said}",
                hint="Mend that, then type the same command again.",
            )
        if made := _GOLDEN.fullmatch(words.get("GOLDEN", "").strip()):
            pin, status, minutes = made.groups()
            if status != _LICENSED and not int(minutes):
                raise HostError(
                    f"{self.config.title} has no licence (LicenseStatus {status}): "
                    "it would shut down every hour",
                    hint="Give it a product key (key_env), or let it reach Microsoft's servers.",
                )
            return pin, int(minutes)
        if (now := time.monotonic()) - self._told > _TELL:
            self._told = now
            last = line((said.splitlines() or [""])[-1], 100)
            self.events.step(f"installing, {(now - began) / 60:.0f} min: {last}")
        return None


def _await_shutdown(box: Box) -> None:
    """Wait until Windows has shut down; :class:`HostError` for another end, or none."""
    deadline = time.monotonic() + _LAST_WORDS
    while (ended := box.ended()) is None:
        if time.monotonic() > deadline:
            raise HostError(
                f"Windows was installed and has not shut down within {_LAST_WORDS:g} s",
                hint="Type the same command again: it is installed anew.",
            )
        time.sleep(0.2)
    if box.exit_code not in (0, None):
        raise ended
