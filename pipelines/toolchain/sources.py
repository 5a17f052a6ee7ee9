"""Where a pinned file comes from, and how a server is asked for it."""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self
from urllib.parse import unquote, urljoin, urlsplit

from pydantic import Field, StringConstraints, model_validator

from pipelines.core.errors import LockError, SetupError
from pipelines.core.files import atomic_output, own_part, sha256_of
from pipelines.core.hosttext import remember_secret
from pipelines.core.model import FileName, Model
from pipelines.core.shell import pip_install

if TYPE_CHECKING:
    import requests


#: More than any tool has: where a download of unknown size is given up, in bytes.
LIMIT = 8 << 30

_PYPI = "https://pypi.org"  # unless the user has another index, as pip does
SECURE = ("https://",)  # how addresses begin that cannot be changed on the way
_TIMEOUT = (15, 60)  # seconds to connect, seconds without a byte
_CHUNK = 1 << 20
_SERVER = ("scheme", "hostname", "port")
_PATIENCE, _SLOWEST = 120.0, 2048  # seconds at any rate; then so many bytes a second at least

#: Called with (bytes done, bytes in all; 0 when that is not known).
Step = Callable[[int, int], object]


class RedirectError(LockError):
    """A redirect that was not followed."""


Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Source(Model):
    """One place a file can come from; exactly one of ``pypi``, ``apt``, ``url``.

    Without ``sha256`` it can only be pinned, see :mod:`pipelines.toolchain.pinning`.
    """

    file: FileName
    """Name of the file."""
    sha256: Sha256 | None = None
    """Of the file: 64 lower-case digits."""
    size: Annotated[int, Field(gt=0)] | None = None
    """In bytes; bounds a download, and tells what it costs before it begins."""
    pypi: Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+==[0-9][^\s]*$")] | None = None
    """A release on the package index: ``name==version``."""
    apt: str | None = None
    """A source package of the distribution, for its file."""
    url: Annotated[str, StringConstraints(pattern=r"^https://")] | None = None
    """The file's address, with https."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if sum(place is not None for place in (self.pypi, self.apt, self.url)) != 1:
            raise ValueError("exactly one of pypi, apt and url is expected")
        return self

    @property
    def place(self) -> str:
        """Where the file comes from, for messages."""
        return self.pypi or (f"apt source {self.apt}" if self.apt else str(self.url))


@contextmanager
def open_response(
    url: str, headers: Mapping[str, str], allowed: tuple[str, ...] = SECURE
) -> Iterator[requests.Response]:
    """The streamed answer; it and each redirect, before that is followed, begins as ``allowed``.

    Raises :class:`RedirectError`, ``requests.RequestException``, and :class:`SetupError` for a
    proxy that requests cannot use as it is installed.
    """
    from requests.exceptions import InvalidSchema

    def checked(answer: requests.Response, **_: Any) -> None:
        target = urljoin(answer.url, client.get_redirect_target(answer) or "")
        remember_secret(urlsplit(target).query)  # often a signature
        if not target.startswith(allowed):
            where = "an address without TLS" if allowed == SECURE else "another host"
            raise RedirectError(f"it redirects to {where}")

    remember_secret(urlsplit(url).query)
    options: dict[str, Any] = {"stream": True, "timeout": _TIMEOUT, "hooks": {"response": checked}}
    with system_trust_session() as client:
        try:
            answer = client.get(url, headers=headers, **options)
        except InvalidSchema as error:
            if "SOCKS" not in str(error):
                raise
            raise SetupError(
                "the proxy of the environment is a SOCKS proxy, which needs the package pysocks",
                hint=f"Type: {pip_install('pysocks')}",
            ) from None
        with answer:
            yield answer


def iter_response_body(answer: requests.Response) -> Iterator[bytes]:
    """The body of a streamed answer as it comes, without what it was packed in.

    Raises ``requests.RequestException`` where it breaks off, and where it drips: a timeout is of
    a single read, and a byte a minute would keep us for years.
    """
    from requests.exceptions import ChunkedEncodingError, ReadTimeout
    from urllib3.exceptions import HTTPError, ReadTimeoutError

    began, done = time.monotonic(), 0
    while True:
        try:
            piece = answer.raw.read1(_CHUNK, decode_content=True)
        except ReadTimeoutError as error:
            raise ReadTimeout(error) from error
        except HTTPError as error:
            raise ChunkedEncodingError(error) from error
        if not piece:
            return
        done += len(piece)
        if time.monotonic() - began > _PATIENCE + done / _SLOWEST:
            raise ReadTimeout(f"the server sends less than {_SLOWEST} bytes a second")
        yield piece


def system_trust_session() -> requests.Session:
    """A session that trusts what this machine trusts: requests alone knows no company's CA."""
    import requests  # 0.1 s, and only needed for what is not in the cache
    import truststore

    context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    class SystemTrust(requests.adapters.HTTPAdapter):
        def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
            super().init_poolmanager(*args, **kwargs, ssl_context=context)

        # Through a proxy it is another manager: https://github.com/psf/requests/issues/6109
        def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
            return super().proxy_manager_for(proxy, **kwargs, ssl_context=context)

    class IndexCredentials(requests.auth.HTTPBasicAuth):
        """For files that the index has under an address without them; for no other host."""

        def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
            asked = urlsplit(str(request.url))
            alike = all(getattr(asked, part) == getattr(index, part) for part in _SERVER)
            return super().__call__(request) if alike else request  # type: ignore[no-untyped-call]

    made = requests.Session()
    made.mount("https://", SystemTrust())
    index = urlsplit(index_url())
    if index.username:
        made.auth = IndexCredentials(unquote(index.username), unquote(index.password or ""))
    return made


def index_url() -> str:
    """The package index of the user; what signs in to it is never shown."""
    own = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("PIP_INDEX_URL")
    credential = urlsplit(own or "").password or urlsplit(own or "").username or ""
    for value in (credential, unquote(credential)):
        remember_secret(value)
    return own or f"{_PYPI}/simple/"


Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]


class BaseImage(Model):
    """An image that others stand on, or that is run as it is."""

    image: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.:_-]*(/[a-z0-9._-]+)*$")]
    """Its name, with its registry unless that is Docker's own."""
    tag: Annotated[str, StringConstraints(pattern=r"^[\w][\w.-]{0,127}$")]
    """Behind which it was found; nothing is ever fetched by it."""
    digest: Digest
    """What is meant: `docker pull` prints it."""

    @property
    def reference(self) -> str:
        """How an engine is asked for it."""
        return f"{self.image}@{self.digest}"


#: Two changes within a tick of the file system's clock have one time: what has changed within so
#: many nanoseconds is not remembered yet.
_TICK = 100_000_000


def sha256_once(path: Path) -> str:
    """The sha256 of ``path``, computed once for each state of it; ``OSError`` if it is unreadable.

    It is kept next to the file, with what the file system says of the file: another size, time or
    inode, and it is computed again. So is all of a cache that was copied or restored: its files
    have other inodes and times of change.
    """
    note = path.with_name(f".{path.name}.hashed")
    state = _file_fingerprint(path)
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        data = json.loads(note.read_text("utf-8"))
        if data["state"] == state:
            return str(data["sha256"])
    found, now = sha256_of(path), time.time_ns()
    settled = all(abs(now - moment) > _TICK for moment in state[1:3])
    if settled and _file_fingerprint(path) == state:
        # a cache that cannot be written is only slower
        with contextlib.suppress(OSError), atomic_output(note, own_part(note)) as part:
            part.write_text(json.dumps({"sha256": found, "state": state}), "utf-8")
    return found


def _file_fingerprint(path: Path) -> list[int]:
    """Size, times of change of its bytes and of its entry (ns), inode."""
    found = path.stat()
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


def describe_pin_mismatch(path: Path, sha256: str, size: int | None = None) -> str:
    """In what a file that is kept differs from what was pinned; empty when it does not."""
    try:
        here = path.stat().st_size
        if size and here != size:
            return f"it has {here} bytes, {size} were pinned"
        found = sha256_once(path)
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    return "" if found == sha256 else f"it has sha256 {found}, pinned is {sha256}"


def verify_source_file(path: Path, source: Source) -> None:
    """Raise :class:`LockError` unless ``path`` has the sha256 of ``source``, and its size if known.

    A source without a sha256 is an error, too: nothing was pinned.
    """
    if not source.sha256:
        raise LockError(f"{source.file} is not pinned")
    size = path.stat().st_size
    if source.size and size != source.size:
        raise LockError(f"{source.file} has {size} bytes, {source.size} were pinned")
    found = sha256_of(path)
    if found != source.sha256:
        raise LockError(f"{source.file} has sha256 {found}, pinned is {source.sha256}")
