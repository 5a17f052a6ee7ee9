r"""Installs the pinned Python on a Windows host without one, over WinRM alone.

PowerShell is started with a constant command line, reads ``bootstrap.ps1`` and its parameters from
its standard input, and then the payload, so that the host needs no internet::

    here                                        there
    powershell.exe ... -EncodedCommand LOADER
    base64 of bootstrap.ps1                  ->
    {"Target": "C:\\wcw\\python", ...}       ->
                                             <- wcw-bootstrap {"state": "need"}   (or "present")
    the zip file, as lines of base64         ->
                                             <- wcw-bootstrap {"state": "installed", ...}

The responses are untrusted: limited in size, parsed strictly, escaped for display.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipelines.core.errors import (
    ConfigError,
    HostError,
    PipelineError,
    ProvisionError,
    StorageError,
    TransferError,
)
from pipelines.core.hosttext import safe_text
from pipelines.core.logs import log_duration
from pipelines.hosts.base import Events
from pipelines.hosts.windows import FIRST_PYTHON
from pipelines.hosts.windows.payload import Payload, open_python_payload, payload_marker
from pipelines.session.base import ByteStream, Progress, Session
from pipelines.session.channel import over_winrs
from pipelines.session.transports.endpoint import Endpoint
from pipelines.session.transports.winrs import WinRSStream
from pipelines.toolchain.lock import Cache

TARGET = r"C:\wcw\python"
_HERE = Path(__file__).parent
_PREFIX = b"wcw-bootstrap "
_TARGET = re.compile(r'[A-Za-z]:(?:\\[^\\/:*?"<>|\x00-\x1f]+)+')
#: Raw bytes per line of base64, and lines per write: together less than one Send carries.
_LINE = 48 * 1024
_LINES = 5
#: Bytes of a response, and of other output before it.
_ANSWER_LIMIT = 16 * 1024
_NOISE_LIMIT = 64 * 1024
#: Seconds that a response may still take after the connection broke in the other direction.
_LAST_WORDS = 5.0


class Answer(BaseModel):
    """One line of output of ``bootstrap.ps1``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    state: Literal["need", "present", "installed", "failed"]
    kind: Literal[
        "damaged",
        "denied",
        "disk-full",
        "busy",
        "foreign",
        "unsafe",
        "no-drive",
        "file-in-the-way",
        "other",
    ] = "other"
    message: str = Field(default="", max_length=4000)
    python: str = Field(default="", max_length=300)
    version: str = Field(default="", max_length=40)
    bits: int = 0


def loader_command_line() -> str:
    """The command line for PowerShell: always the same, far below cmd's limit of 8191 characters.

    ``-InputFormat None`` keeps PowerShell from reading the loader's input, and
    ``-OutputFormat Text`` keeps its errors from being XML.
    """
    lines = (line.strip() for line in (_HERE / "loader.ps1").read_text("ascii").splitlines())
    loader = "\n".join(line for line in lines if line and not line.startswith("#"))
    encoded = base64.b64encode(loader.encode("utf-16-le")).decode("ascii")
    return (
        "powershell.exe -NoLogo -NoProfile -NonInteractive -ExecutionPolicy Bypass "
        f"-InputFormat None -OutputFormat Text -EncodedCommand {encoded}"
    )


def install_python_over_winrm(
    endpoint: Endpoint,
    cache: Cache,
    *,
    target: str = TARGET,
    python: str = "3.11",
    progress: Progress | None = None,
    patience: float = 300.0,
    fresh: bool = False,
) -> str:
    """Make sure the pinned CPython is in ``target`` on the host; the path of its python.exe.

    Call :func:`is_there` first. ``progress`` receives bytes sent and total; ``patience`` is how
    many seconds PowerShell may be silent; ``fresh``: replace it even if it looks right, since a
    build with write access could have changed it. Raises :class:`ConfigError` for a ``target`` that
    is not an absolute Windows path, ``AuthError`` and :class:`HostError` if the host does not
    cooperate, :class:`TransferError` if the payload arrived damaged, :class:`StorageError` if a
    disk is full, :class:`ProvisionError` for any other refusal.
    """
    with open_python_payload(cache, python) as parcel:
        digests = {"Digest": parcel.sha256, "Size": parcel.size, "Unpacked": parcel.unpacked}
        parameters = {
            "Target": target,
            "Marker": payload_marker(cache, python),
            "Replace": fresh,
            **digests,
        }
        answer = _request_python_install(endpoint, parameters, patience, parcel, progress)
    return _verify_installed_python(
        endpoint, answer, target, cache.lock.tool(f"cpython-{python}").version
    )


def is_there(
    endpoint: Endpoint,
    cache: Cache,
    *,
    target: str = TARGET,
    python: str = "3.11",
    patience: float = 300.0,
) -> bool:
    """Whether the pinned CPython is in ``target``, installed by an administrator.

    Checked before that Python is started for the first time; raises what
    :func:`install_python_over_winrm` does: :class:`ProvisionError` for a directory that others may
    change.
    """
    parameters = {"Target": target, "Marker": payload_marker(cache, python)}
    answer = _request_python_install(endpoint, parameters, patience)
    if answer.state == "need":
        return False
    _verify_installed_python(endpoint, answer, target, cache.lock.tool(f"cpython-{python}").version)
    return True


def _request_python_install(
    endpoint: Endpoint,
    parameters: Mapping[str, object],
    patience: float,
    parcel: Payload | None = None,
    progress: Progress | None = None,
) -> Answer:
    if not _TARGET.fullmatch(target := str(parameters["Target"])):
        raise ConfigError(
            f"{target!r} is not an absolute path on a Windows host",
            hint=f"For example {TARGET}.",
        )
    stream = WinRSStream(endpoint, loader_command_line())
    try:
        return _exchange(stream, parameters, parcel, progress, patience)
    finally:
        stream.kill()


def _exchange(
    stream: ByteStream,
    parameters: Mapping[str, object],
    parcel: Payload | None,
    progress: Progress | None,
    patience: float,
) -> Answer:
    script = base64.b64encode((_HERE / "bootstrap.ps1").read_bytes())
    question = script + b"\n" + json.dumps(parameters).encode("ascii") + b"\n"
    listening = _Listener(stream)
    answer = listening.wait(patience, _write_pieces(stream, [question]))
    if answer.state != "need" or parcel is None:
        return answer
    listening = _Listener(stream)

    def pieces() -> Iterator[bytes]:
        sent = 0
        for text, size in _as_lines(parcel.file):
            if listening.done.is_set():
                return
            yield text
            sent += size
            if progress is not None:
                progress(sent, parcel.size)

    return listening.wait(patience, _write_pieces(stream, pieces()))


def _write_pieces(stream: ByteStream, pieces: Iterable[bytes]) -> ConnectionError | None:
    """Write all of it; returns the error if the connection broke."""
    try:
        for piece in pieces:
            stream.write(piece)
    except ConnectionError as error:
        return error
    return None


def _as_lines(file: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    """Several lines of base64 at a time, with the number of bytes in them."""
    while block := file.read(_LINE * _LINES):
        pieces = (block[start : start + _LINE] for start in range(0, len(block), _LINE))
        yield b"".join(base64.b64encode(piece) + b"\n" for piece in pieces), len(block)


class _Listener:
    """Waits for one response in a separate thread: reads of a stream have no timeout."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream
        self.done = threading.Event()
        self._answer: Answer | None = None
        self._error: BaseException | None = None
        threading.Thread(target=self._listen, name="bootstrap-answer", daemon=True).start()

    def _listen(self) -> None:
        try:
            self._answer = _read_answer(self.stream)
        except BaseException as error:  # noqa: BLE001, RUF100 - raised by wait()
            self._error = error
        finally:
            self.done.set()

    def wait(self, seconds: float, lost: ConnectionError | None) -> Answer:
        """The response; after ``lost``, only data already on its way back counts."""
        if not self.done.wait(min(seconds, _LAST_WORDS) if lost else seconds):
            if lost:
                raise HostError(
                    f"{self.stream.remoteaddress}: the connection was lost while Python was "
                    f"uploaded: {lost}",
                    hint="Run the same command again; no partial installation is left.",
                ) from lost
            raise HostError(
                f"{self.stream.remoteaddress}: no answer from PowerShell within {seconds:g} s",
                hint="The host may be overloaded, or a virus scanner may be blocking PowerShell.",
            )
        if self._answer is None:
            if isinstance(self._error, PipelineError):
                raise self._error
            raise HostError(
                f"{self.stream.remoteaddress}: PowerShell ended without an answer: "
                f"{safe_text(str(self._error), 1500)}",
                hint="Run the same command again; no partial installation is left. A policy of the "
                "host (AppLocker, constrained language mode) may forbid the script.",
            )
        return self._answer


def _read_answer(stream: ByteStream) -> Answer:
    noise = bytearray()
    while True:
        line = bytearray()
        while not line.endswith(b"\n"):
            line += stream.read(1)
            if len(line) > _ANSWER_LIMIT:
                raise _invalid_answer(stream, bytes(line))
        # Its line may have a prefix: a byte order mark, or output from AutoRun of cmd.
        _, marker_, body = bytes(line).partition(_PREFIX)
        if marker_:
            try:
                return Answer.model_validate_json(body)
            except ValidationError:
                raise _invalid_answer(stream, bytes(line)) from None
        noise += line
        if len(noise) > _NOISE_LIMIT:
            raise _invalid_answer(stream, bytes(noise))


def _invalid_answer(stream: ByteStream, output: bytes) -> HostError:
    return HostError(
        f"{stream.remoteaddress}: expected an answer of bootstrap.ps1, got "
        f"{safe_text(output[:200].decode('utf-8', 'replace'))!r}",
        hint="Check that 'powershell.exe' on the host's PATH is PowerShell 5.1 or newer.",
    )


def _verify_installed_python(endpoint: Endpoint, answer: Answer, target: str, version: str) -> str:
    """The path of the Python the host reports, if it is the expected one."""
    if answer.state == "failed":
        raise _python_install_error(endpoint, answer, target)
    expected = f"{target}\\python.exe"
    if answer.python.casefold() != expected.casefold() or answer.bits != 64:  # noqa: PLR2004
        raise HostError(
            f"{endpoint.url}: the host answered {answer.state!r} with Python "
            f"{safe_text(answer.version)!r}, {answer.bits} bits, at "
            f"{safe_text(answer.python)!r}; expected "
            f"{expected}",
            hint="Do not trust this host with a build.",
        )
    if answer.version != version:
        raise ProvisionError(
            f"{endpoint.url}: {expected} is Python {safe_text(answer.version)}, {version} is "
            "pinned",
            hint="The version in toolchain.lock.yaml does not match the file it pins.",
        )
    return expected


def _python_install_error(endpoint: Endpoint, answer: Answer, target: str) -> PipelineError:
    message = safe_text(answer.message, 800)
    where = f"{endpoint.url}: cannot install Python in {target}"
    if answer.kind == "disk-full":
        return StorageError(
            f"{where}: the host's disk is full: {message}",
            hint="Free 100 MiB there, or set the host's 'python' to another drive.",
        )
    if answer.kind == "damaged":
        return TransferError(
            f"{where}: it arrived damaged and was removed: {message}",
            hint="Run the same command again; if it happens twice, suspect the network or memory.",
        )
    hint = {
        "denied": "The user that signs in must be an administrator of the host.",
        "busy": "It is in use, by a running build or by another controller doing the same. "
        "Run the same command again once that has ended.",
        "foreign": "Empty that directory, or set the host's 'python' in pipeline.yaml to another "
        "path.",
        "unsafe": "As administrator, rename that directory on the host: cmd /c ren DIRECTORY "
        "NAME.old. Inspect it before using any of it.",
        "no-drive": "Set the host's 'python' in pipeline.yaml to a path on an existing drive.",
        "file-in-the-way": "Move that file, or set the host's 'python' in pipeline.yaml to another "
        "path.",
        "other": "Fix that on the host, then run the same command again.",
    }[answer.kind]
    return ProvisionError(f"{where}: {message}", hint=hint)


_log = logging.getLogger(__name__)


def connect_with_python(
    endpoint: Endpoint,
    cache: Cache,
    events: Events,
    *,
    name: str,
    python: str = FIRST_PYTHON,
    again: Callable[[], Endpoint] | None = None,
    fresh: bool = False,
) -> Session:
    """A session by the pinned Python, which is put there if it is missing or another one.

    ``fresh``: put it there in any case. Raises what
    :func:`install_python_over_winrm` does.
    """
    target = python.rpartition("\\")[0]
    if fresh or not is_there(endpoint, cache, target=target):
        events.step(f"Python for {target}")
        with events.bars() as bars, log_duration(_log, logging.INFO, "%s: install Python", name):
            progress = partial(bars, "send Python")
            install_python_over_winrm(
                endpoint, cache, target=target, progress=progress, fresh=fresh
            )
    return over_winrs(endpoint, python, name, again=again)
