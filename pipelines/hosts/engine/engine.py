"""A container engine: reached by any way that Docker knows, asked what it runs, given images.

Whatever serves Docker's interface does: Docker on Linux or Windows, Docker Desktop, Podman.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import deque
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from docker.errors import DockerException, NotFound
from requests.exceptions import RequestException

from pipelines.core.errors import ConfigError, HostError
from pipelines.core.hosttext import line, safe
from pipelines.hosts.engine.reach import LOOPBACK, connect, shown, target, unreachable
from pipelines.hosts.engine.refusals import raise_event, telling

System = Literal["linux", "windows"]
#: What a stream of an engine tells: a layer or step, how much of it is done, of how much.
Progress = Callable[[str, int, int], object]
#: Seconds for the first word of an engine, and for any later answer.
_FIRST, TIMEOUT = 30.0, 120.0
_TAIL = 30  # lines of a build's log that may hold why it failed


def advance(event: dict[str, Any], progress: Progress) -> None:
    """Tell how far a pull or push is, if that is what an event is about."""
    detail = event.get("progressDetail") or {}
    if (total := detail.get("total", 0)) > 0:  # -1, or left out, where it is not known
        what = line(f"{event.get('status', '')} {event.get('id', '')}", 80)
        progress(what, detail.get("current", 0), total)


class Engine:
    """One engine; its SDK client is :attr:`client`.

    Raises :class:`SetupError` where nothing is installed or the user may not use it,
    :class:`HostError` where none answers, :class:`ConfigError` for an address that cannot be right.
    """

    def __init__(
        self, name: str = "", *, tls: Path | None = None, timeout: float = TIMEOUT
    ) -> None:
        """``name``: of a context, or a URL; without one, the context in use or ``DOCKER_HOST``.

        ``tls``: directory with ca.pem, cert.pem and key.pem.
        """
        self.name = name
        try:
            self.client = connect(name, tls, min(_FIRST, timeout))
            self.about: dict[str, Any] = self.client.info()
            self.client.api.timeout = int(timeout)
        except (DockerException, RequestException, OSError) as error:
            raise unreachable(name, error) from error
        system = str(self.about.get("OSType", ""))
        if system not in ("linux", "windows"):
            raise HostError(
                f"the engine at {shown(name)} runs '{safe(system, 40)}' containers",
                hint="Name an engine for Linux or Windows containers with 'engine'.",
            )
        self.system: System = "windows" if system == "windows" else "linux"

    @property
    def url(self) -> str:
        """Where it was reached."""
        return str(self.client.api.base_url)

    @cached_property
    def title(self) -> str:
        """Which engine on what, for people: as it tells itself."""
        about = self.about
        version, system = about.get("ServerVersion"), about.get("OperatingSystem")
        return safe(f"Docker {version} on {system}", 200)

    @property
    def build(self) -> str:
        """The Windows build of a Windows engine, such as ``10.0.20348``; empty elsewhere."""
        found = re.match(r"\d+\.\d+\.\d+", str(self.about.get("OSVersion", "")))
        return found[0] if found and self.system == "windows" else ""

    @property
    def patch(self) -> int | None:
        """How far a Windows engine's build is updated: 2700 of "OS Build 20348.2700"."""
        found = re.search(r"OS Build \d+\.(\d{1,9})\)", str(self.about.get("OperatingSystem", "")))
        return int(found[1]) if found else None

    @property
    def remote(self) -> str:
        """The machine that it is on, if that is not this one."""
        parts = urlsplit(target(self.name) or self.url)
        known = parts.scheme in ("ssh", "tcp", "http", "https") and parts.hostname
        return "" if not known or parts.hostname in LOOPBACK else str(parts.hostname)

    def require(self, system: System, why: str) -> None:
        """:class:`ConfigError` for an engine of another platform, before anything is fetched."""
        machine = safe(str(self.about.get("Architecture", "unknown")), 40)
        if machine not in ("x86_64", "amd64"):
            raise ConfigError(
                f"{why} needs an engine on x86-64; {self.title} is on {machine}",
                hint="Name another one with 'engine'.",
            )
        if self.system != system:
            hint = "Name another one with 'engine'."
            if "Desktop" in self.title:
                hint += " Docker Desktop has 'Switch to Windows containers' in its menu."
            raise ConfigError(
                f"{why} needs an engine for {system.title()} containers; {self.title} runs "
                f"{self.system.title()} ones",
                hint=hint,
            )

    # -- images ----------------------------------------------------------------------------------

    def image(self, name: str) -> dict[str, Any] | None:
        """What the engine knows of an image (as ``docker image inspect``); ``None``: not there."""
        with telling(f"image {name}"):
            try:
                return dict(self.client.images.get(name).attrs)
            except NotFound:
                return None

    def pull(self, name: str, progress: Progress) -> dict[str, Any]:
        """Fetch an image; what the engine then knows of it.

        The SDK's ``images.pull`` throws the stream away, and with it why it failed.
        """
        with telling(f"fetch image {name}"):
            for event in self.client.api.pull(name, stream=True, decode=True):
                raise_event(event)
                advance(event, progress)
            return dict(self.client.images.get(name).attrs)

    def build_image(
        self, context: Path, tag: str, say: Callable[[str], object], **keys: Any
    ) -> dict[str, Any]:
        """Build ``context``, a tar file; each line of its log is said. What became of it.

        ``keys`` are those of the SDK's ``build``. It is the classic builder, which every engine
        has: no mounts in RUN, no heredocs, no COPY --link.
        """
        log: deque[str] = deque(maxlen=_TAIL)
        with telling(f"build image {tag}"), context.open("rb") as stream:
            for event in self.client.api.build(
                fileobj=stream,
                custom_context=True,
                tag=tag,
                rm=True,
                forcerm=True,
                decode=True,
                **keys,
            ):
                raise_event(event, log)
                for text in str(event.get("stream", "")).splitlines():
                    log.append(safe(text, 400))
                    say(log[-1])
            return dict(self.client.images.get(tag).attrs)

    def import_tree(self, archive: Path, tag: str) -> dict[str, Any]:
        """An image of one layer from a tar file with a root directory, where no registry is."""
        repository, _, version = tag.rpartition(":")
        with telling(f"import {archive.name} as {tag}"):
            said = self.client.api.import_image_from_file(str(archive))
            events = [json.loads(row) for row in str(said).splitlines()]
            for event in events:
                raise_event(event)
            # Podman 4.3 does not take the tag at the import.
            self.client.api.tag(events[-1]["status"], repository, version)
            return dict(self.client.images.get(tag).attrs)

    def close(self) -> None:
        """Forget the connections."""
        with contextlib.suppress(Exception):
            self.client.close()
