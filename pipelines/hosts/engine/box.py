"""One running container of ours: its leash, what it says, and how it ended."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from docker.errors import DockerException, NotFound
from docker.models.containers import Container
from requests import Response
from requests.exceptions import RequestException

from pipelines.core.errors import HostError, PipelineError
from pipelines.core.hosttext import safe
from pipelines.hosts.engine.hijack import Hijacked, low_level
from pipelines.hosts.engine.refusals import told
from pipelines.session.base import DeadHostError, GoneHostError

if TYPE_CHECKING:
    from pipelines.hosts.engine.boxes import Order

_TAIL = 8192  # bytes of its output that are kept
_LINES = 20
_PIECE = 4096
_PATIENCE = 2.0  # seconds
_KILLED = 137  # 128 + SIGKILL


class Box:
    """A container as its controller holds it."""

    def __init__(self, container: Container, order: Order) -> None:
        self.container = container
        self.order = order
        self._leash: Hijacked | None = None
        self._tail = bytearray()
        self._followers: list[threading.Thread] = []
        self._exit: int | None = None
        self._error = ""
        self._released = False

    @property
    def name(self) -> str:
        """The container's."""
        return str(self.container.name)

    @property
    def id(self) -> str:
        """The container's."""
        return str(self.container.id)

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it, on the leash if it is to end with us. Raises what the SDK does."""
        if self.order.keep:
            self.container.start()
            return
        self._hold()
        end = self._await_end()
        self.container.start()
        self._follow(self._watch, end)

    def _hold(self) -> None:
        """Attach to its input, which ends with this connection, and to its output."""
        ways = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        self._leash = Hijacked(self.container.attach_socket(params=ways))
        self._follow(self._listen, self._leash)

    def _follow(self, work: Callable[[Any], None], way: object) -> None:
        follower = threading.Thread(target=work, args=(way,), daemon=True)
        self._followers.append(follower)
        follower.start()

    def _listen(self, leash: Hijacked) -> None:
        with contextlib.suppress(EOFError, OSError, ValueError):
            while True:
                self._tail += leash.piece(_PIECE)[1]
                del self._tail[:-_TAIL]

    def _await_end(self) -> Response:
        """Ask how it will end, before it starts: one that ends at once is removed at once.

        The engine answers with the headers; what became of it follows.
        """
        api = low_level(self.container)
        url = f"{api.base_url}/v{api.api_version}/containers/{self.id}/wait"
        asked: Response = api.post(url, params={"condition": "next-exit"}, stream=True)
        return asked

    def _watch(self, end: Response) -> None:
        """Learn how it ends: an engine that removes it then does not tell any more."""
        with contextlib.suppress(RequestException, ValueError):
            end.raise_for_status()
            ended = end.json()
            self._error = str((ended.get("Error") or {}).get("Message") or "")
            self._exit = ended["StatusCode"]

    def restart(self) -> None:
        """Stop what runs in it, and start it again with the same files."""
        self.container.restart(timeout=self.order.stop_seconds)
        self._exit = None
        if not self.order.keep:
            self._hold()
            self._follow(self._watch, self._await_end())

    def close(self) -> None:
        """Let go of the leash: one that is on it ends."""
        self._released = True
        leash, self._leash = self._leash, None
        if leash is not None:
            leash.close()

    # -- what is known of it -----------------------------------------------------------------------

    @property
    def exit_code(self) -> int | None:
        """How it ended, as far as :meth:`ended` has learnt it."""
        return self._exit

    def said(self) -> str:
        """The end of what it has printed, harmless to show."""
        text = bytes(self._tail)
        if not text and self._leash is None:
            with contextlib.suppress(DockerException, RequestException):
                text = bytes(self.container.logs(tail=_LINES))[-_TAIL:]
        lines = text.decode("utf-8", "replace").strip().splitlines()[-_LINES:]
        return safe("\n".join(lines), 2000)

    def ended(self) -> PipelineError | None:
        """Why it is no more: ``GoneHostError`` with its files, else ``DeadHostError``; or nothing.

        ``HostError`` is returned where the engine does not answer.
        """
        state: dict[str, Any] = {}
        try:
            self.container.reload()
            state = dict(self.container.attrs["State"])
        except NotFound:
            state = {"Status": "removed"}
        except (DockerException, RequestException) as error:
            return told(error, f"look at container '{self.name}'")
        if state.get("Status") in ("running", "created", "restarting"):
            return None
        for follower in self._followers:  # they are about to know what it said, and how it ended
            follower.join(_PATIENCE)
        code = self._exit = state.get("ExitCode", self._exit)
        known = None if code is None else self.order.explain(code, self.name, self.said())
        if known is not None:
            return known
        killed = bool(state.get("OOMKilled")) or (code == _KILLED and not self._released)
        kind = DeadHostError if self.order.keep and state["Status"] != "removed" else GoneHostError
        return self._epitaph(kind, code, str(state.get("Error") or self._error), killed=killed)

    def _epitaph(
        self, kind: type[HostError], code: object, error: str, *, killed: bool
    ) -> HostError:
        start = f"container '{self.name}'"
        if killed:
            return kind(
                f"{start} was killed (exit code {_KILLED}): most likely it used up its memory",
                hint="Raise 'memory' of the host, or build with fewer --jobs.",
            )
        how = "was removed" if code is None else f"ended by itself with exit code {code}"
        message, hint = _report(self.said())
        said = safe(error, 600) or message or "it printed nothing"
        return kind(f"{start} {how}: {said}", hint=hint)


def _report(said: str) -> tuple[str, str]:
    """The reason that our own programs give as their last line, in JSON; else the last lines."""
    last = said.splitlines()[-1] if said else ""
    try:
        told_ = json.loads(last)
        return str(told_["error"]), str(told_["hint"])
    except (ValueError, KeyError, TypeError):
        return said, "Is it an image of ours? Type: invoke image list"
