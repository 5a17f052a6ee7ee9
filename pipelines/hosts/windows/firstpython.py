r"""Puts the pinned Python on a Windows that has none, over WinRM alone.

PowerShell is started with a constant command line, reads ``bootstrap.ps1`` and its parameters from
its standard input, and then the payload, so that the host needs no internet::

    here                                        there
    powershell.exe ... -EncodedCommand LOADER
    base64 of bootstrap.ps1                  ->
    {"Target": "C:\\wcw\\python", ...}       ->
                                             <- wcw-bootstrap {"state": "need"}   (or "present")
    the zip file, as lines of base64         ->
                                             <- wcw-bootstrap {"state": "installed", ...}

What comes back is a host's word: bounded, parsed strictly, escaped before it is shown.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
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
from pipelines.core.hosttext import safe
from pipelines.hosts.windows.payload import Payload, marker, payload
from pipelines.session.base import ByteStream, Progress
from pipelines.session.transports.endpoint import Endpoint
from pipelines.session.transports.winrs import WinRSStream
from pipelines.toolchain.lock import Cache

TARGET = r"C:\wcw\python"
_HERE = Path(__file__).parent
_PREFIX = b"wcw-bootstrap "
_TARGET = re.compile(r'[A-Za-z]:(?:\\[^\\/:*?"<>|\x00-\x1f]+)+')
#: Raw bytes in a line of base64, and lines in one write: together less than one Send carries.
_LINE = 48 * 1024
_LINES = 5
#: Bytes of an answer, and of anything else that is printed before it.
_ANSWER_LIMIT = 16 * 1024
_NOISE_LIMIT = 64 * 1024
#: Seconds that an answer may still take after the connection broke in the other direction.
_LAST_WORDS = 5.0


class Answer(BaseModel):
    """One line of ``bootstrap.ps1``."""

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


def command_line() -> str:
    """What starts PowerShell: the same characters every time, far below cmd's limit of 8191.

    ``-InputFormat None`` keeps PowerShell itself from reading what the loader is to read, and
    ``-OutputFormat Text`` keeps its errors from being XML.
    """
    lines = (line.strip() for line in (_HERE / "loader.ps1").read_text("ascii").splitlines())
    loader = "\n".join(line for line in lines if line and not line.startswith("#"))
    encoded = base64.b64encode(loader.encode("utf-16-le")).decode("ascii")
    return (
        "powershell.exe -NoLogo -NoProfile -NonInteractive -ExecutionPolicy Bypass "
        f"-InputFormat None -OutputFormat Text -EncodedCommand {encoded}"
    )


def install_python(
    endpoint: Endpoint,
    cache: Cache,
    *,
    target: str = TARGET,
    python: str = "3.11",
    progress: Progress | None = None,
    patience: float = 300.0,
    fresh: bool = False,
) -> str:
    """Make sure that the pinned CPython is in ``target`` on the host; the path of its python.exe.

    Ask :func:`is_there` first. ``progress`` is told bytes sent and in all; ``patience`` is how many
    seconds PowerShell may be silent; ``fresh``: replace what seems to be right, for a build that
    could write there could have changed it. Raises :class:`ConfigError` for a ``target`` that is no
    absolute Windows path, ``AuthError`` and :class:`HostError` when the host does not play its
    part, :class:`TransferError` when the payload arrived damaged, :class:`StorageError` when a disk
    is full, :class:`ProvisionError` for what else was refused.
    """
    with payload(cache, python) as parcel:
        given = {"Digest": parcel.sha256, "Size": parcel.size, "Unpacked": parcel.unpacked}
        told = {"Target": target, "Marker": marker(cache, python), "Replace": fresh, **given}
        answer = _ask(endpoint, told, patience, parcel, progress)
    return _accept(endpoint, answer, target, cache.lock.tool(f"cpython-{python}").version)


def is_there(
    endpoint: Endpoint,
    cache: Cache,
    *,
    target: str = TARGET,
    python: str = "3.11",
    patience: float = 300.0,
) -> bool:
    """Whether the pinned CPython is in ``target``, and nobody but an administrator put it there.

    It is asked before that Python is started for the first time, and raises what
    :func:`install_python` does: :class:`ProvisionError` for a directory that others may change.
    """
    told = {"Target": target, "Marker": marker(cache, python)}
    answer = _ask(endpoint, told, patience)
    if answer.state == "need":
        return False
    _accept(endpoint, answer, target, cache.lock.tool(f"cpython-{python}").version)
    return True


def _ask(
    endpoint: Endpoint,
    told: Mapping[str, object],
    patience: float,
    parcel: Payload | None = None,
    progress: Progress | None = None,
) -> Answer:
    if not _TARGET.fullmatch(target := str(told["Target"])):
        raise ConfigError(
            f"{target!r} is not an absolute path on a Windows host",
            hint=f"Say, for example, {TARGET}.",
        )
    stream = WinRSStream(endpoint, command_line())
    try:
        return _converse(stream, told, parcel, progress, patience)
    finally:
        stream.kill()


def _converse(
    stream: ByteStream,
    told: Mapping[str, object],
    parcel: Payload | None,
    progress: Progress | None,
    patience: float,
) -> Answer:
    script = base64.b64encode((_HERE / "bootstrap.ps1").read_bytes())
    question = script + b"\n" + json.dumps(told).encode("ascii") + b"\n"
    listening = _Listener(stream)
    answer = listening.wait(patience, _write(stream, [question]))
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

    return listening.wait(patience, _write(stream, pieces()))


def _write(stream: ByteStream, pieces: Iterable[bytes]) -> ConnectionError | None:
    """Write all of it; what broke the connection meanwhile, for the far side may say more."""
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
    """Waits for one answer in a thread of its own: reads of a stream have no time-out."""

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
        """The answer; once the way there is ``lost``, only what is on its way back counts."""
        if not self.done.wait(min(seconds, _LAST_WORDS) if lost else seconds):
            if lost:
                raise HostError(
                    f"{self.stream.remoteaddress}: the connection was lost while Python was sent: "
                    f"{lost}",
                    hint="Run the same command again; nothing was left half-done.",
                ) from lost
            raise HostError(
                f"{self.stream.remoteaddress}: no answer from PowerShell within {seconds:g} s",
                hint="Is the host overloaded, or does a virus scanner hold PowerShell back?",
            )
        if self._answer is None:
            if isinstance(self._error, PipelineError):
                raise self._error
            raise HostError(
                f"{self.stream.remoteaddress}: PowerShell went away without an answer: "
                f"{safe(str(self._error), 1500)}",
                hint="Run the same command again; nothing was left half-done. A policy of the "
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
                raise _nonsense(stream, bytes(line))
        # Anything may come first on its line: a byte order mark, or what AutoRun of cmd prints.
        _, found, said = bytes(line).partition(_PREFIX)
        if found:
            try:
                return Answer.model_validate_json(said)
            except ValidationError:
                raise _nonsense(stream, bytes(line)) from None
        noise += line
        if len(noise) > _NOISE_LIMIT:
            raise _nonsense(stream, bytes(noise))


def _nonsense(stream: ByteStream, said: bytes) -> HostError:
    return HostError(
        f"{stream.remoteaddress}: expected an answer of bootstrap.ps1, got "
        f"{safe(said[:200].decode('utf-8', 'replace'))!r}",
        hint="Is 'powershell.exe' on the host's PATH really PowerShell 5.1 or newer?",
    )


def _accept(endpoint: Endpoint, answer: Answer, target: str, version: str) -> str:
    """The path of the Python that the host says it has, if it is the one that was wanted."""
    if answer.state == "failed":
        raise _failure(endpoint, answer, target)
    wanted = f"{target}\\python.exe"
    if answer.python.casefold() != wanted.casefold() or answer.bits != 64:  # noqa: PLR2004
        raise HostError(
            f"{endpoint.url}: the host answered {answer.state!r} with Python "
            f"{safe(answer.version)!r}, {answer.bits} bits, at {safe(answer.python)!r}; expected "
            f"{wanted}",
            hint="The host is not to be trusted with a build.",
        )
    if answer.version != version:
        raise ProvisionError(
            f"{endpoint.url}: {wanted} is Python {safe(answer.version)}, {version} is pinned",
            hint="The version in toolchain.lock.yaml and the file it pins do not agree.",
        )
    return wanted


def _failure(endpoint: Endpoint, answer: Answer, target: str) -> PipelineError:
    said = safe(answer.message, 800)
    where = f"{endpoint.url}: cannot put Python into {target}"
    if answer.kind == "disk-full":
        return StorageError(
            f"{where}: the host's disk is full: {said}",
            hint="Free 100 MiB there, or give the host's 'python' another drive.",
        )
    if answer.kind == "damaged":
        return TransferError(
            f"{where}: it arrived damaged and was removed: {said}",
            hint="Run the same command again; should it happen twice, suspect network or memory.",
        )
    hint = {
        "denied": "The user that signs in must be an administrator of the host.",
        "busy": "Something uses it: a running build, or another controller that does the same. "
        "Run the same command again once that has ended.",
        "foreign": "Empty that directory, or give the host's 'python' another path in "
        "pipeline.yaml.",
        "unsafe": "As administrator, rename that directory on the host: cmd /c ren DIRECTORY "
        "NAME.old. Look at what is in it before you use any of it.",
        "no-drive": "Give the host's 'python' in pipeline.yaml a path on a drive that it has.",
        "file-in-the-way": "Move that file, or give the host's 'python' in pipeline.yaml another "
        "path.",
        "other": "Mend that on the host, then run the same command again.",
    }[answer.kind]
    return ProvisionError(f"{where}: {said}", hint=hint)
