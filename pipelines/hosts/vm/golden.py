"""Creates golden disks: an unattended installation of Windows by the runner image."""

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
from pipelines.core.files import atomic_output, own_part
from pipelines.core.hosttext import remember_secret, safe_line
from pipelines.core.logs import log_duration
from pipelines.core.paths import CHECKOUT
from pipelines.hosts.base import OpenOptions
from pipelines.hosts.engine import owners
from pipelines.hosts.engine.container import ContainerSpec, ManagedContainer
from pipelines.hosts.engine.containerfiles import put_files
from pipelines.hosts.engine.error_patterns import engine_errors
from pipelines.hosts.engine.manager import ContainerManager, label_value
from pipelines.hosts.vm import disks
from pipelines.hosts.vm.config import VmHost
from pipelines.hosts.vm.machine import Runner, container_exit_error, keys_of
from pipelines.hosts.vm.volume import GoldenVolume, send_file
from pipelines.toolchain import sources
from pipelines.toolchain.obtaining import download_source
from pipelines.toolchain.sources import Source

_log = logging.getLogger(__name__)

#: One at a time in this process; other processes are detected by the volume's label.
_MAKING = threading.Lock()

#: Longest installation: its publisher's own CI gives Windows Server 2025 two and a half hours.
LONGEST = 3 * 3600.0
_LAST_WORDS = 300.0  # seconds from the end of an installation to Windows' shutdown
_TELL = 15.0  # seconds between two progress reports
_SAID = re.compile(r"WCW-(GOLDEN|FAILED|STEP) *([^\r\n]*)")
#: Fingerprint of its certificate, LicenseStatus and GracePeriodRemaining in minutes.
_GOLDEN = re.compile(r"([0-9a-f]{64}) (\d{1,3}) (\d{1,9})")
_LICENSED = "1"
#: Files for the installation, and their directory in a checkout.
_OEM = {
    "install.bat": "images/oem/install.bat",
    "golden.ps1": "images/oem/golden.ps1",
    "ready.ps1": "images/oem/ready.ps1",
    "serial.ps1": "images/oem/serial.ps1",
    "enable-winrm-https.ps1": "scripts/enable-winrm-https.ps1",
}


def oem_files() -> dict[str, bytes]:
    """The files of ``/oem``; :class:`ConfigError` without a checkout."""
    if CHECKOUT is None:
        raise ConfigError(
            "a golden disk is created in a checkout: images/oem is not in the installed package",
            hint="Clone the project, and run the same command in it.",
        )
    return {name: (CHECKOUT / place).read_bytes() for name, place in _OEM.items()}


def origin_of(config: VmHost, runner: Runner) -> dict[str, str]:
    """Everything that determines the contents of the disk."""
    scripts = hashlib.sha256()
    for name, data in sorted(oem_files().items()):
        scripts.update(f"{name} {hashlib.sha256(data).hexdigest()}\n".encode())
    return {
        "windows": config.windows or f"iso {config.sha256}",
        "edition": config.edition,
        "image": runner.id,
        "disk": config.disk,
        "oem": scripts.hexdigest(),
        "key": "product key" if config.key_env else "",
    }


class GoldenDiskBuilder:
    """Creates the golden disk of one host."""

    def __init__(
        self,
        name: str,
        config: VmHost,
        manager: ContainerManager,
        runner: Runner,
        options: OpenOptions,
    ) -> None:
        self.name = name
        self.config = config
        self.manager = manager
        self.runner = runner
        self.cache = options.cache
        self.events = options.events
        self.origin = origin_of(config, runner)
        self.volume = GoldenVolume(manager, runner.id, name, disks.key_of(self.origin))
        self._reported = 0.0

    # -- existing disks ---------------------------------------------------------------------------

    def ensure(self, *, thorough: bool = False) -> disks.Record:
        """The record of the golden disk, which is created if missing.

        Raises ``DamagedDiskError`` for a changed one, :class:`HostError` while another command
        creates it, and what creating it raises.
        """
        with _MAKING:
            return self._ensure(thorough=thorough)

    def _ensure(self, *, thorough: bool) -> disks.Record:
        if (there := self.volume.find()) is not None:
            disk = disks.read_disk_state(self.volume)
            if disk.record is not None:
                if disk.record.ends_soon():
                    self.events.step(
                        "the license on the golden disk is expiring: creating it again"
                    )
                    self.volume.remove()  # the engine refuses while machines use it
                    return self.make()
                if thorough:
                    self.events.step("comparing the golden disk with its record")
                return disks.verify_disk(self.volume, disk, thorough=thorough)
            owner = label_value(there, "owner")
            if owner != owners.process_identity() and owners.is_owner_alive(owner) is not False:
                raise HostError(
                    f"the golden disk of host '{self.name}' is being created by another command "
                    f"({safe_line(owner, 80)}), of {label_value(there, 'who')}",
                    hint="Wait for it. If nothing is creating it: docker volume rm "
                    f"{self.volume.name}",
                )
            self.events.step("removing an unfinished golden disk and creating it again")
            for orphan in self.manager.orphans(self.name):
                self.manager.remove(orphan)
            self.volume.remove()
        elif self._others():
            self.events.step("the inputs of the golden disk have changed: creating it again")
        return self.make()

    def _others(self) -> list[str]:
        volumes = self.manager.volumes(self.name)
        return [str(volume.name) for volume in volumes if label_value(volume, "kind") == "golden"]

    def make(self) -> disks.Record:
        """Create it, replacing any existing one; a failed one is removed."""
        if label_value(self.volume.create(), "owner") != owners.process_identity():
            raise HostError(
                f"the golden disk of host '{self.name}' is being created by another command",
                hint="Wait for it.",
            )
        began = time.monotonic()
        try:
            with log_duration(_log, logging.INFO, "%s: golden disk", self.name):
                pin, licensed = self._install(began)
                self.events.step("sealing the golden disk")
                took = time.monotonic() - began
                return disks.seal_disk(
                    self.volume, self.origin, pin=pin, licensed=licensed, seconds=took
                )
        except BaseException:
            with contextlib.suppress(PipelineError):  # the original error matters more
                self.volume.remove()
            raise

    # -- installing ------------------------------------------------------------------------------

    def _install(self, began: float) -> tuple[str, int]:
        """Install Windows into the volume; its certificate's fingerprint, its license's minutes."""
        key = self._product_key()
        iso = self._iso() if self.config.iso else None
        spec = ContainerSpec(
            host=self.name,
            kind="golden",
            image=self.runner.id,
            keys=self._keys(),
            ephemeral_keys={"entrypoint": self.runner.entrypoint("tied")},
            fill=partial(self._fill, iso=iso, key=key),
            explain=container_exit_error,
            start_seconds=LONGEST if self.config.kvm else 10 * LONGEST,
        )
        self.events.step(
            f"installing {self.config.title}: 15 to 60 minutes, ten times that without KVM"
        )
        managed, made = self.manager.open(spec, partial(self._installed, began=began))
        try:
            _await_shutdown(managed)
        except BaseException:
            with contextlib.suppress(PipelineError):
                self.manager.remove(managed.container)
            raise
        finally:
            managed.close()
        self.manager.remove(managed.container)
        return made

    def _keys(self) -> dict[str, Any]:
        keys = keys_of(self.config, self.runner, passed=None)
        keys["mounts"] = [Mount("/storage", self.volume.name, type="volume")]
        keys["environment"] |= {"VERIFY": "Y"}
        del keys["ports"]  # no sign-ins from outside
        return keys

    def _fill(self, container: Container, *, iso: Path | None, key: str) -> None:
        put_files(container, {f"/oem/{name}": data for name, data in oem_files().items()})
        if key:
            put_files(container, {"/shared/key": key.encode()})
        if iso is not None:
            with self.events.bars() as bars, engine_errors(f"copy {iso.name} to the engine"):
                progress = partial(bars, "ISO")
                place = ("/", "custom.iso")
                send_file(container, iso, place, str(self.config.sha256), progress)

    def _product_key(self) -> str:
        if not self.config.key_env:
            return ""
        key = os.environ.get(self.config.key_env, "").strip()
        if not re.fullmatch(r"(?i)([A-Z0-9]{5}-){4}[A-Z0-9]{5}", key):
            raise ConfigError(
                f"host '{self.name}': {self.config.key_env} is not a product key: five groups of "
                "five letters and digits",
                hint=f"Type: read -rs {self.config.key_env}; export {self.config.key_env}",
            )
        return remember_secret(key)

    def _iso(self) -> Path:
        address, digest = str(self.config.iso), str(self.config.sha256)
        if "://" not in address:
            path = Path(address).expanduser()
            if not path.is_file():
                raise ConfigError(
                    f"host '{self.name}': iso: {path.absolute()} does not exist",
                    hint="Paths in pipeline.yaml are relative to the current directory.",
                )
            return path
        file = re.sub(r"[^A-Za-z0-9._+-]", "_", address.partition("?")[0].rpartition("/")[2])
        source = Source(file=f"iso-{file}", sha256=digest, url=address)
        place = self.cache.place(source.file, digest)
        if not self.cache.has(place, digest):
            self.events.step(f"fetching {file}")
            with atomic_output(place, own_part(place)) as part:
                with self.events.bars() as bars:
                    download_source(source, part, partial(bars, "ISO"))
                sources.verify_source_file(part, source)
        return place

    def _installed(self, managed: ManagedContainer, *, began: float) -> tuple[str, int] | None:
        """As :meth:`_install`, once the guest has reported it; ``HostError`` for its errors.

        0 minutes mean no limit.
        """
        output = managed.output()
        words: Mapping[str, str] = dict(_SAID.findall(output))
        if "FAILED" in words:
            raise HostError(
                f"the installation of {self.config.title} failed: "
                f"{safe_line(words['FAILED'])}\n{output}",
                hint="Fix that, then type the same command again.",
            )
        if made := _GOLDEN.fullmatch(words.get("GOLDEN", "").strip()):
            pin, status, minutes = made.groups()
            if status != _LICENSED and not int(minutes):
                raise HostError(
                    f"{self.config.title} is not licensed (LicenseStatus {status}): "
                    "it would shut down every hour",
                    hint="Set a product key (key_env), or allow it to reach Microsoft's servers.",
                )
            return pin, int(minutes)
        if (now := time.monotonic()) - self._reported > _TELL:
            self._reported = now
            last = safe_line((output.splitlines() or [""])[-1], 100)
            self.events.step(f"installing, {(now - began) / 60:.0f} min: {last}")
        return None


def _await_shutdown(managed: ManagedContainer) -> None:
    """Wait until Windows has shut down; :class:`HostError` for any other end, or none."""
    deadline = time.monotonic() + _LAST_WORDS
    while (ended := managed.ended()) is None:
        if time.monotonic() > deadline:
            raise HostError(
                f"Windows was installed but did not shut down within {_LAST_WORDS:g} s",
                hint="Type the same command again to repeat the installation.",
            )
        time.sleep(0.2)
    if managed.exit_code not in (0, None):
        raise ended
