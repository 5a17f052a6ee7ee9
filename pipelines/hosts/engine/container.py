"""One running container: its keep-alive pipe, its output, and how it ended."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from docker.errors import DockerException, NotFound
from docker.models.containers import Container
from requests import Response
from requests.exceptions import RequestException

from pipelines.core.errors import HostError, PipelineError
from pipelines.core.hosttext import safe_line, safe_text
from pipelines.hosts.bounds import in_bytes
from pipelines.hosts.engine.error_patterns import as_pipeline_error
from pipelines.hosts.engine.execstream import Hijacked, low_level
from pipelines.session.base import DeadHostError, GoneHostError

_TAIL = 8192  # bytes of its output to keep
_LINES = 20
_PIECE = 4096
_PATIENCE = 2.0  # seconds
_KILLED = 137  # 128 + SIGKILL


@dataclass(frozen=True, kw_only=True)
class ContainerSpec:
    """The definition of a container."""

    host: str
    kind: str
    image: str
    """Its id."""
    keys: Mapping[str, Any]
    """Arguments of the SDK's ``create``: no name, no labels, no secrets."""
    ephemeral_keys: Mapping[str, Any] = field(default_factory=dict)
    """The same, for a container that ends with this process."""
    caches: Mapping[str, str] = field(default_factory=dict)
    """Name -> directory kept in a named volume between containers."""
    fill: Callable[[Container], object] = field(default=lambda _: None, repr=False)
    """Writes files into it before it starts; this is how secrets get in."""
    explain: Callable[[int, str, str], PipelineError | None] = field(
        default=lambda _code, _name, _said: None, repr=False
    )
    """The meaning of an exit code, given the container's name and its last output."""
    keep: bool = False
    start_seconds: float = 120.0
    stop_seconds: int = 20
    """How long an orderly shutdown may take."""

    @property
    def digest(self) -> str:
        """A hash of the definition."""
        parts = [self.kind, self.image, dict(self.keys), dict(self.caches)]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


class ManagedContainer:
    """A container as held by its controller."""

    def __init__(self, container: Container, spec: ContainerSpec) -> None:
        self.container = container
        self.spec = spec
        self._keep_alive: Hijacked | None = None
        self._tail = bytearray()
        self._followers: list[threading.Thread] = []
        self._exit: int | None = None
        self._error = ""
        self._released = False

    @property
    def name(self) -> str:
        """The container's name."""
        return str(self.container.name)

    @property
    def id(self) -> str:
        """The container's id."""
        return str(self.container.id)

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it, with the keep-alive pipe if it is ephemeral. Raises what the SDK does."""
        if self.spec.keep:
            self.container.start()
            return
        self._attach()
        end = self._await_end()
        self.container.start()
        self._start_thread(self._watch, end)

    def _attach(self) -> None:
        """Attach to its input, which ends with this connection, and to its output."""
        ways = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        self._keep_alive = Hijacked(self.container.attach_socket(params=ways))
        self._start_thread(self._listen, self._keep_alive)

    def _start_thread(self, work: Callable[[Any], None], way: object) -> None:
        follower = threading.Thread(target=work, args=(way,), daemon=True)
        self._followers.append(follower)
        follower.start()

    def _listen(self, connection: Hijacked) -> None:
        with contextlib.suppress(EOFError, OSError, ValueError):
            while True:
                self._tail += connection.piece(_PIECE)[1]
                del self._tail[:-_TAIL]

    def _await_end(self) -> Response:
        """Request its exit code before it starts: one that ends at once is removed at once.

        The engine responds with the headers; the exit code follows.
        """
        api = low_level(self.container)
        url = f"{api.base_url}/v{api.api_version}/containers/{self.id}/wait"
        response: Response = api.post(url, params={"condition": "next-exit"}, stream=True)
        return response

    def _watch(self, end: Response) -> None:
        """Record how it ends: an engine that removes it does not report it afterwards."""
        with contextlib.suppress(RequestException, ValueError):
            end.raise_for_status()
            ended = end.json()
            self._error = str((ended.get("Error") or {}).get("Message") or "")
            self._exit = ended["StatusCode"]

    def restart(self) -> None:
        """Restart its processes with the same files."""
        self.container.restart(timeout=self.spec.stop_seconds)
        self._exit = None
        if not self.spec.keep:
            self._attach()
            self._start_thread(self._watch, self._await_end())

    def close(self) -> None:
        """Close the keep-alive pipe: an ephemeral container ends."""
        self._released = True
        connection, self._keep_alive = self._keep_alive, None
        if connection is not None:
            connection.close()

    def require_limits(self) -> None:
        """Raise :class:`HostError` if the engine has dropped a requested limit, with a warning.

        Compared are isolation, memory, processors, disk size, devices, and dropped privileges.
        """
        made, keys = self.container.attrs.get("HostConfig") or {}, self.spec.keys
        memory = keys.get("mem_limit", 0)
        requested = {
            "Memory": memory if isinstance(memory, int) else in_bytes(memory),
            "NanoCpus": keys.get("nano_cpus", 0),
            "StorageOpt": keys.get("storage_opt", {}),
            "Devices": keys.get("devices", []),
            "CapDrop": keys.get("cap_drop", []),
        }
        if "isolation" in keys:
            requested["Isolation"] = keys["isolation"]
        for name, value in requested.items():
            actual = made.get(name) or type(value)()
            if name == "Devices":
                actual = [device.get("PathOnHost") for device in actual]
            if actual != value:
                raise HostError(
                    f"container '{self.name}': {name} is {safe_line(actual, 80)}, requested was "
                    f"{value}",
                    hint="An engine ignores limits that its kernel does not support; docker info "
                    "lists them. Remove the key, or use another engine.",
                )

    # -- state -----------------------------------------------------------------------

    @property
    def exit_code(self) -> int | None:
        """Its exit code, as far as :meth:`ended` has found out."""
        return self._exit

    def output(self) -> str:
        """The end of its output, safe to display."""
        text = bytes(self._tail)
        if not text and self._keep_alive is None:
            with contextlib.suppress(DockerException, RequestException):
                text = bytes(self.container.logs(tail=_LINES))[-_TAIL:]
        lines = text.decode("utf-8", "replace").strip().splitlines()[-_LINES:]
        return safe_text("\n".join(lines), 2000)

    def ended(self) -> PipelineError | None:
        """Why it ended: ``GoneHostError`` without its files, else ``DeadHostError``; or ``None``.

        ``HostError`` is returned if the engine does not respond.
        """
        state: dict[str, Any] = {}
        try:
            self.container.reload()
            state = dict(self.container.attrs["State"])
        except NotFound:
            state = {"Status": "removed"}
        except (DockerException, RequestException) as error:
            return as_pipeline_error(error, f"look at container '{self.name}'")
        if state.get("Status") in ("running", "created", "restarting"):
            return None
        for follower in self._followers:  # they are about to read its output and exit code
            follower.join(_PATIENCE)
        code = self._exit = state.get("ExitCode", self._exit)
        known = None if code is None else self.spec.explain(code, self.name, self.output())
        if known is not None:
            return known
        killed = bool(state.get("OOMKilled")) or (code == _KILLED and not self._released)
        kind = DeadHostError if self.spec.keep and state["Status"] != "removed" else GoneHostError
        return self._end_error(kind, code, str(state.get("Error") or self._error), killed=killed)

    def _end_error(
        self, kind: type[HostError], code: object, error: str, *, killed: bool
    ) -> HostError:
        start = f"container '{self.name}'"
        if killed:
            return kind(
                f"{start} was killed (exit code {_KILLED}): it most likely ran out of memory",
                hint="Raise 'memory' of the host, or build with fewer --jobs.",
            )
        how = "was removed" if code is None else f"ended with exit code {code}"
        message, hint = _parse_program_error(self.output())
        reason = safe_text(error, 600) or message or "it printed nothing"
        return kind(f"{start} {how}: {reason}", hint=hint)


def _parse_program_error(output: str) -> tuple[str, str]:
    """The error that our own programs print as their last line, in JSON; else the last lines."""
    last = output.splitlines()[-1] if output else ""
    try:
        data = json.loads(last)
        return str(data["error"]), str(data["hint"])
    except (ValueError, KeyError, TypeError):
        return output, "Check that it is one of our images: invoke image list"
