"""A container engine: its connection, its properties and its images.

Anything with Docker's API works: Docker on Linux or Windows, Docker Desktop, Podman.
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
from pipelines.core.hosttext import safe_line, safe_text
from pipelines.hosts.engine.error_patterns import engine_errors, raise_event
from pipelines.hosts.engine.reach import (
    LOOPBACK,
    connect_to_engine,
    describe_engine,
    engine_address,
    unreachable_engine_error,
)

System = Literal["linux", "windows"]
#: Progress from an engine's stream: a layer or step, how much is done, the total.
Progress = Callable[[str, int, int], object]
#: Seconds for the first response of an engine, and for any later one.
_FIRST, TIMEOUT = 30.0, 120.0
_TAIL = 30  # lines of a build's log that may contain the reason of a failure


def report_layer_progress(event: dict[str, Any], progress: Progress) -> None:
    """Report the progress of a pull or push, if the event contains it."""
    detail = event.get("progressDetail") or {}
    if (total := detail.get("total", 0)) > 0:  # -1 or absent if unknown
        what = safe_line(f"{event.get('status', '')} {event.get('id', '')}", 80)
        progress(what, detail.get("current", 0), total)


class Engine:
    """One engine; its SDK client is :attr:`client`.

    Raises :class:`SetupError` if none is installed or the user may not use it,
    :class:`HostError` if it does not respond, :class:`ConfigError` for an invalid address.
    """

    def __init__(
        self, name: str = "", *, tls: Path | None = None, timeout: float = TIMEOUT
    ) -> None:
        """``name``: a context or a URL; without one, the current context or ``DOCKER_HOST``.

        ``tls``: directory with ca.pem, cert.pem and key.pem.
        """
        self.name = name
        try:
            self.client = connect_to_engine(name, tls, min(_FIRST, timeout))
            self.about: dict[str, Any] = self.client.info()
            self.client.api.timeout = int(timeout)
        except (DockerException, RequestException, OSError) as error:
            raise unreachable_engine_error(name, error) from error
        system = str(self.about.get("OSType", ""))
        if system not in ("linux", "windows"):
            raise HostError(
                f"the engine at {describe_engine(name)} runs '{safe_text(system, 40)}' containers",
                hint="Set 'engine' to one that runs Linux or Windows containers.",
            )
        self.system: System = "windows" if system == "windows" else "linux"

    @property
    def url(self) -> str:
        """Its address."""
        return str(self.client.api.base_url)

    @cached_property
    def title(self) -> str:
        """The engine and its machine, for people, as it describes itself."""
        about = self.about
        version, system = about.get("ServerVersion"), about.get("OperatingSystem")
        return safe_text(f"Docker {version} on {system}", 200)

    @property
    def build(self) -> str:
        """The Windows build of a Windows engine, such as ``10.0.20348``; otherwise empty."""
        match = re.match(r"\d+\.\d+\.\d+", str(self.about.get("OSVersion", "")))
        return match[0] if match and self.system == "windows" else ""

    @property
    def patch(self) -> int | None:
        """The patch level of a Windows engine's build: 2700 of "OS Build 20348.2700"."""
        match = re.search(r"OS Build \d+\.(\d{1,9})\)", str(self.about.get("OperatingSystem", "")))
        return int(match[1]) if match else None

    @property
    def remote(self) -> str:
        """The machine it is on, if not this one."""
        parts = urlsplit(engine_address(self.name) or self.url)
        known = parts.scheme in ("ssh", "tcp", "http", "https") and parts.hostname
        return "" if not known or parts.hostname in LOOPBACK else str(parts.hostname)

    def require(self, system: System, why: str) -> None:
        """Raises :class:`ConfigError` for an engine of another platform."""
        machine = safe_text(str(self.about.get("Architecture", "unknown")), 40)
        if machine not in ("x86_64", "amd64"):
            raise ConfigError(
                f"{why} needs an engine on x86-64; {self.title} is on {machine}",
                hint="Set 'engine' to another one.",
            )
        if self.system != system:
            hint = "Set 'engine' to another one."
            if "Desktop" in self.title:
                hint += " Docker Desktop has 'Switch to Windows containers' in its menu."
            raise ConfigError(
                f"{why} needs an engine for {system.title()} containers; {self.title} runs "
                f"{self.system.title()} containers",
                hint=hint,
            )

    # -- images ----------------------------------------------------------------------------------

    def image(self, name: str) -> dict[str, Any] | None:
        """The engine's information on an image (as ``docker image inspect``); ``None``: missing."""
        with engine_errors(f"image {name}"):
            try:
                return dict(self.client.images.get(name).attrs)
            except NotFound:
                return None

    def pull(self, name: str, progress: Progress) -> dict[str, Any]:
        """Fetch an image; returns the engine's information on it.

        The SDK's ``images.pull`` discards the stream, and with it the reason of a failure.
        """
        with engine_errors(f"fetch image {name}"):
            for event in self.client.api.pull(name, stream=True, decode=True):
                raise_event(event)
                report_layer_progress(event, progress)
            return dict(self.client.images.get(name).attrs)

    def build_image(
        self, context: Path, tag: str, say: Callable[[str], object], **keys: Any
    ) -> dict[str, Any]:
        """Build ``context``, a tar file, reporting each line of its log; the image's id.

        ``keys`` are arguments of the SDK's ``build``. It is the classic builder, which every engine
        has: no mounts in RUN, no heredocs, no COPY --link.
        """
        log: deque[str] = deque(maxlen=_TAIL)
        with engine_errors(f"build image {tag}"), context.open("rb") as stream:
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
                    log.append(safe_text(text, 400))
                    say(log[-1])
            return dict(self.client.images.get(tag).attrs)

    def import_tree(self, archive: Path, tag: str) -> dict[str, Any]:
        """Import an image of one layer from a tar file of a root directory."""
        repository, _, version = tag.rpartition(":")
        with engine_errors(f"import {archive.name} as {tag}"):
            answer = self.client.api.import_image_from_file(str(archive))
            events = [json.loads(row) for row in str(answer).splitlines()]
            for event in events:
                raise_event(event)
            # Podman 4.3 ignores the tag during the import.
            self.client.api.tag(events[-1]["status"], repository, version)
            return dict(self.client.images.get(tag).attrs)

    def close(self) -> None:
        """Close the connections."""
        with contextlib.suppress(Exception):
            self.client.close()
