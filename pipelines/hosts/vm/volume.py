"""A golden disk's volume, accessed by short-lived containers of the image that uses it."""

from __future__ import annotations

import contextlib
import hashlib
import tarfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from docker.errors import DockerException, NotFound
from docker.models.containers import Container
from docker.models.volumes import Volume
from docker.types import Mount
from requests.exceptions import RequestException

from pipelines.core.errors import HostError, TransferError
from pipelines.core.hosttext import safe_text
from pipelines.hosts.engine import owners
from pipelines.hosts.engine.error_patterns import engine_errors
from pipelines.hosts.engine.manager import LABEL, ContainerManager
from pipelines.session.base import Progress

_PIECE = 1 << 20
_POLL = 0.05
_BLOCK = 512  # of a tar file


class GoldenVolume:
    """A named volume; its contents are read and written by scripts at ``/golden``."""

    def __init__(self, manager: ContainerManager, image: str, host: str, key: str) -> None:
        """``image``: id of one that has a shell and qemu-img."""
        self._boxes = manager
        self._client = manager.engine.client
        self._image = image
        self._host = host
        self.key = key
        self.name = f"wcw-{manager.project[:6]}-golden-{key}"

    @property
    def labels(self) -> dict[str, str]:
        """Its owner."""
        return {
            f"{LABEL}project": self._boxes.project,
            f"{LABEL}host": self._host,
            f"{LABEL}kind": "golden",
            f"{LABEL}what": "golden disk",
            f"{LABEL}key": self.key,
            f"{LABEL}owner": owners.process_identity(),
            f"{LABEL}who": owners.user_at_machine(),
        }

    def find(self) -> Volume | None:
        """The volume, if it exists."""
        with engine_errors(f"inspect volume {self.name}"):
            try:
                return self._client.volumes.get(self.name)
            except NotFound:
                return None

    def create(self) -> Volume:
        """Create it; if another command has created it meanwhile, its labels stay."""
        with engine_errors(f"create volume {self.name}"):
            self._client.volumes.create(self.name, labels=self.labels)
            return self._client.volumes.get(self.name)

    def remove(self) -> None:
        """Remove it; harmless when it is gone."""
        volume = self.find()
        if volume is not None:
            with engine_errors(f"remove volume {self.name}"):
                volume.remove(force=True)

    def _helper(self, script: str, environment: Mapping[str, str], *, write: bool) -> Container:
        return self._client.containers.create(
            self._image,
            ["-ec", f"cd /golden\n{script}"],
            entrypoint=["/bin/sh"],
            environment=dict(environment),
            mounts=[Mount("/golden", self.name, type="volume", read_only=not write)],
            network_mode="none",
            labels={**self.labels, f"{LABEL}keep": "0"},
        )

    def run(self, script: str, *, write: bool = False, **environment: str) -> str:
        """A script's output; :class:`HostError` with the end of it if it fails."""
        with engine_errors(f"inspect volume {self.name}"):
            helper = self._helper(script, environment, write=write)
            try:
                helper.start()
                while helper.status in ("created", "running"):
                    time.sleep(_POLL)
                    helper.reload()
                output = helper.logs(stdout=True, stderr=False).decode("utf-8", "replace")
                code = int(helper.attrs["State"]["ExitCode"])
                if code:
                    words = helper.logs(stdout=False, stderr=True).decode("utf-8", "replace")
                    raise HostError(f"volume {self.name}: {safe_text(words.strip(), 600)} ({code})")
            finally:
                _remove_helper_container(helper)
        return output


def _remove_helper_container(helper: Container) -> None:
    """Remove it; the next command sweeps up leftovers, and the first error is reported."""
    with contextlib.suppress(DockerException, RequestException):
        helper.remove(force=True, v=True)


def send_file(
    container: Container,
    source: Path,
    place: tuple[str, str],
    sha256: str,
    progress: Progress,
) -> None:
    """Stream a large file into a container, running or not; ``place``: directory and name.

    Raises :class:`TransferError` if the data read has another sha256.
    """
    size = source.stat().st_size
    hashed = hashlib.sha256()

    def packed() -> Iterator[bytes]:
        member = tarfile.TarInfo(place[1])
        member.size, member.mode = size, 0o644
        yield member.tobuf(tarfile.GNU_FORMAT)
        done = 0
        with source.open("rb") as file:
            while piece := file.read(_PIECE):
                hashed.update(piece)
                done += len(piece)
                progress(done, size)
                yield piece
        yield bytes(-done % _BLOCK + 2 * _BLOCK)

    container.put_archive(place[0], packed())
    if hashed.hexdigest() != sha256:
        raise TransferError(
            f"{source} has sha256 {hashed.hexdigest()}, expected {sha256}",
            hint="Check that it is the right file and complete; its publisher gives its sha256.",
        )
