"""The session with a host that all stages of a pipeline share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pipelines.core.errors import TransferError
from pipelines.hosts.bounds import Bounds
from pipelines.remote import facts as remote_facts
from pipelines.remote import files
from pipelines.session.base import Given, Item, Progress, Result, Session

if TYPE_CHECKING:
    from pipelines.hosts.base import Host


class LiveSession:
    """A session that connects at first use and reconnects after a restart of the host.

    It implements :class:`pipelines.session.base.Session`.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self._session: Session | None = None
        self._facts: remote_facts.Facts | None = None

    def connect(self) -> Session:
        """The connection; opened if there is none yet."""
        if self._session is None:
            self._session = self.host.connect()
        return self._session

    @property
    def facts(self) -> remote_facts.Facts:
        """The host's facts, within its limits; read once."""
        if self._facts is None:
            self._facts = self.host.bounds.apply(self.call(remote_facts.facts))
        return self._facts

    def prepare(self, *, repair: bool) -> None:
        """As the host's; a repair reconnects, because it may replace the running Python."""
        if repair and self._session is not None:
            self._session.close()
            self._session, self._facts = None, None
        self.host.prepare(repair=repair)

    def restart(self) -> None:
        """Restart the host and wait for it; the next use connects to the new Windows."""
        self._session, self._facts = self.host.restart(self.connect()), None

    def call(
        self, function: Callable[Given, Result], /, *args: Given.args, **arguments: Given.kwargs
    ) -> Result:
        """Run a remote function there."""
        return self.connect().call(function, *args, **arguments)

    def stream(
        self,
        function: Callable[Given, Iterator[Item]],
        /,
        *args: Given.args,
        **arguments: Given.kwargs,
    ) -> Iterator[Item]:
        """Run a remote generator function there: yields its items as they arrive."""
        return self.connect().stream(function, *args, **arguments)

    def put(self, source: Path, target: str, *, progress: Progress | None = None) -> str:
        """Send a file; returns its sha256, verified at both ends."""
        return self.connect().put(source, target, progress=progress)

    def has(self, path: str, sha256: str, size: int = 0) -> bool:
        """Whether a file is there with that sha256; read only if its size fits, 0 if unknown."""
        found = self.call(files.stat, path=path)
        if found is None or size not in (0, found.get("size")):
            return False
        return bool(self.call(files.sha256, path=path) == sha256)

    def send(
        self, source: Path, target: str, sha256: str, *, progress: Progress | None = None
    ) -> None:
        """Send the file with that sha256; :class:`TransferError` if it is another one by now."""
        sent = self.put(source, target, progress=progress)
        if sent != sha256:
            raise TransferError(
                f"{source.name} reached {self.host.name} with sha256 {sent}, not {sha256}",
                hint="Something changed it on this machine: run the same command again.",
            )

    def get(self, source: str, target: Path, *, progress: Progress | None = None) -> str:
        """Fetch a file; returns its sha256, verified at both ends."""
        return self.connect().get(source, target, progress=progress)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the session and the host."""
        session, self._session, self._facts = self._session, None, None
        try:
            if session is not None:
                session.close()
        finally:
            self.host.close()


def visible_gpu_capabilities(session: LiveSession) -> tuple[str, ...]:
    """Compute capabilities (``9.0``) of the visible GPUs, from the driver."""
    from pipelines.remote.inspection import tools

    gpus, visible = session.call(tools.gpus) or [], session.host.gpu_way.visible
    chosen = [gpu for number, gpu in enumerate(gpus) if not visible or number in visible]
    capabilities = [str(gpu.get("capability", "")) for gpu in chosen if isinstance(gpu, dict)]
    return tuple(text for text in capabilities if re.fullmatch(r"\d{1,2}\.\d", text))


def part_of(facts: remote_facts.Facts, slots: int) -> remote_facts.Facts:
    """The resources of one of several equal, parallel parts of a host."""
    cores, memory = facts.get("cpus"), (facts.get("memory") or {}).get("total")
    bounds = Bounds(
        cores=max(1, cores // slots) if isinstance(cores, int) else 1,
        memory=memory // slots if isinstance(memory, int) else None,
    )
    return bounds.apply(facts) if slots > 1 else facts
