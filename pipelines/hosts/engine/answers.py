"""The border to an engine: an answer ends, has the shape that is used, is about what was asked.

An engine is somebody else's program, often on somebody else's machine. What the models here do not
name is left alone: nothing of ours may use it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError
from requests import Response

from pipelines.errors import HostError
from pipelines.hosttext import line

LONGEST = 32 << 20  # bytes of an answer; a list of hundreds of containers has 1 MiB
_LONGEST_EVENT = 1 << 20
_PIECE = 1 << 16
_ID = re.compile(r"[0-9a-f]{12,64}")


class _Told(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


_Labels = dict[str, str] | None
#: What is shown to people, or put into a path of a request.
_Name = Annotated[str, StringConstraints(pattern=r"^/?[A-Za-z0-9][A-Za-z0-9_.-]{0,254}$")]
_Word = Annotated[str, StringConstraints(pattern=r"^[!-~]{1,512}$")]
_Identity = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{12,64}$")]


class _Version(_Told):
    ApiVersion: Annotated[str, StringConstraints(pattern=r"^\d{1,3}\.\d{1,3}$")]


class _Info(_Told):
    OSType: str = ""
    OSVersion: str = ""
    OperatingSystem: str = ""
    ServerVersion: str = ""


class _Image(_Told):
    Id: Annotated[str, StringConstraints(pattern=r"^(sha256:)?[0-9a-f]{12,64}$")]
    Os: str = ""
    OsVersion: str = ""
    RepoTags: list[_Word] | None = None
    RepoDigests: list[_Word] | None = None
    Config: dict[str, Any] | None = None


class _Pictured(_Told):
    Id: str
    Created: int = 0
    Labels: _Labels = None
    RepoTags: list[_Word] | None = None


class _Made(_Told):
    Id: _Identity


class _Listed(_Told):
    Id: _Identity
    Labels: _Labels = None


class _State(_Told):
    Status: str
    ExitCode: int = 0
    OOMKilled: bool = False
    Error: str = ""


class _Config(_Told):
    Labels: _Labels = None
    Env: list[str] | None = None


class _Bound(_Told):
    HostPort: Annotated[str, StringConstraints(pattern=r"^\d{0,5}$")] = ""


class _Network(_Told):
    Ports: dict[str, list[_Bound] | None] | None = None


class _Container(_Told):
    Id: _Identity
    Name: _Name
    State: _State
    Config: _Config
    NetworkSettings: _Network | None = None


class _Exec(_Told):
    ExitCode: int | None = None


class Ended(_Told):
    """How a container ended."""

    StatusCode: int
    Error: dict[str, Any] | None = None


class _Volume(_Told):
    Name: _Name
    Labels: _Labels = None


class _Volumes(_Told):
    Volumes: list[_Volume] | None = None


#: ``METHOD /path`` without the version, and what its answer has to be; ``asked``: the id in it.
_ANSWERED: tuple[tuple[str, Any], ...] = (
    (r"GET /version", _Version),
    (r"GET /info", _Info),
    (r"GET /images/.+/json", _Image),
    (r"GET /images/json", list[_Pictured]),
    (r"POST /containers/create", _Made),
    (r"GET /containers/json", Annotated[list[_Listed], Field(max_length=10_000)]),
    (r"GET /containers/(?P<asked>[^/]+)/json", _Container),
    (r"POST /containers/[^/]+/exec", _Made),
    (r"POST /containers/[^/]+/wait", Ended),
    (r"GET /exec/[^/]+/json", _Exec),
    (r"GET /volumes", _Volumes),
)
_SHAPES = tuple((re.compile(p), TypeAdapter[Any](shape)) for p, shape in _ANSWERED)


def check(method: str, path: str, data: bytes) -> None:
    """:class:`HostError` for an answer that is not what this request is answered with."""
    request = f"{method} {re.sub(r'^/v[0-9.]+(?=/)', '', path)}"
    for pattern, shape in _SHAPES:
        if (found := pattern.fullmatch(request)) is None:
            continue
        try:
            told = shape.validate_json(data)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise no_engine(f"{where}: {first['msg']}" if where else first["msg"]) from error
        asked = found.groupdict().get("asked") or ""
        if _ID.fullmatch(asked) and not told.Id.startswith(asked):
            raise no_engine(f"asked for container {asked[:12]}, it tells of {told.Id[:12]}")
        return


def message(data: bytes) -> str:
    """What an answer that is an error says: the SDK takes for granted that it is well made."""
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        told = None
    said = told.get("message") if isinstance(told, dict) else None
    return said if isinstance(said, str) else data[:_PIECE].decode("utf-8", "replace").strip()


def no_engine(why: str) -> HostError:
    """The error for what no engine says."""
    return HostError(
        f"the engine's answer cannot be used: {line(why)}",
        advice="Is that the address of a Docker engine, and is the engine sound? Type: docker info",
    )


def whole(response: Response, seconds: float | None, longest: int = LONGEST) -> bytes:
    """All of an answer, which has to end: in size, and in so many seconds."""
    deadline = None if seconds is None else time.monotonic() + seconds
    data = bytearray()
    while piece := response.raw.read1(_PIECE, decode_content=True):
        data += piece
        late = deadline is not None and time.monotonic() > deadline
        if late or len(data) > longest:
            response.close()
            how = f"not ended after {seconds} s" if late else f"more than {longest >> 20} MiB"
            raise no_engine(f"{response.request.method} {response.request.path_url[:80]}: {how}")
    return bytes(data)


def events(pieces: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """What a stream tells, line by line: of a pull, a build, a load."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from (_event(text) for text in lines if text.strip())
        if len(rest) > _LONGEST_EVENT:
            raise no_engine("an event of more than 1 MiB")
    if rest.strip():
        yield _event(rest)


def _event(text: bytes) -> dict[str, Any]:
    try:
        event = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise no_engine(f"an event that is no JSON: {line(text[:80])}") from error
    if not isinstance(event, dict):
        raise no_engine(f"an event that is a {type(event).__name__}")
    return event
