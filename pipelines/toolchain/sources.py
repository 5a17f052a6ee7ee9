"""How a pinned file is fetched: from the package index, from apt's source packages, from a URL.

Nothing here is trusted: :mod:`pipelines.toolchain.hashed` verifies what was written.
"""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self
from urllib.parse import unquote, urljoin, urlsplit

from pydantic import Field, StringConstraints, model_validator

from pipelines.core.errors import LockError
from pipelines.core.hosttext import secret
from pipelines.core.model import FileName, Model

if TYPE_CHECKING:
    import requests


#: More than any tool has: where a download of unknown size is given up, in bytes.
LIMIT = 8 << 30

_PYPI = "https://pypi.org"  # unless the user has another index, as pip does
SECURE = ("https://",)  # how addresses begin that nobody on the way can change
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


def download(source: Source, target: Path, step: Step) -> None:
    """Write ``source`` to ``target``; ``OSError`` or :class:`LockError` says why not.

    At most the pinned size is written, :data:`LIMIT` when there is none. What ``target`` has of an
    earlier attempt is gone on with if its server says that it has the very same file still.
    """
    if source.pypi:
        _http(_index_url(source.pypi, source.file), target, source.size, step)
    elif source.apt:
        _apt_source(source.apt, source.file, target)
        size = target.stat().st_size
        step(size, size)
    elif source.url:
        _http(source.url, target, source.size, step)


def tag_of(target: Path) -> Path:
    """Where it is noted which file on the server the beginning in ``target`` is of."""
    return target.with_name(f"{target.name}.etag")


def _http(url: str, target: Path, size: int | None, step: Step) -> None:
    import requests

    note = tag_of(target)
    # As it is on the server: what was compressed on the way would be counted differently.
    headers = {"Accept-Encoding": "identity"}
    done = target.stat().st_size if target.is_file() and note.is_file() else 0
    if done:  # https://www.rfc-editor.org/rfc/rfc9110#name-if-range
        headers |= {"Range": f"bytes={done}-", "If-Range": note.read_text("utf-8")}
    with answered(url, headers, SECURE if url.startswith("https://") else ("",)) as response:
        if response.status_code == requests.codes.requested_range_not_satisfiable:
            target.unlink()  # it is whole, or more than that
        response.raise_for_status()
        rest = response.headers.get("Content-Range", "")
        if response.status_code != requests.codes.partial or not rest.startswith(f"bytes {done}-"):
            done = 0
        left = 0 if size else _announced(response)
        total = size or (left and done + left)
        limit = size or LIMIT
        tag = response.headers.get("ETag", "")
        with target.open("ab" if done else "wb") as out:
            if tag.startswith('"'):  # a weak one may stand for other bytes
                note.write_text(tag, "utf-8")
            else:
                note.unlink(missing_ok=True)
            for chunk in pieces(response):
                done += len(chunk)
                if done > limit:
                    what = f"the pinned {size} bytes" if size else f"{limit >> 30} GiB"
                    raise LockError(f"more than {what} came")
                out.write(chunk)
                step(done, total)


@contextmanager
def answered(
    url: str, headers: Mapping[str, str], allowed: tuple[str, ...] = SECURE
) -> Iterator[requests.Response]:
    """The streamed answer; it and each redirect, before that is followed, begins as ``allowed``.

    Raises :class:`RedirectError`, and ``requests.RequestException``.
    """

    def checked(answer: requests.Response, **_: Any) -> None:
        target = urljoin(answer.url, client.get_redirect_target(answer) or "")
        secret(urlsplit(target).query)  # often a signature
        if not target.startswith(allowed):
            raise RedirectError("it redirects to an address without TLS")

    secret(urlsplit(url).query)
    options: dict[str, Any] = {"stream": True, "timeout": _TIMEOUT, "hooks": {"response": checked}}
    with session() as client, client.get(url, headers=headers, **options) as answer:
        yield answer


def pieces(answer: requests.Response) -> Iterator[bytes]:
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


def _announced(response: requests.Response) -> int:
    """The length that the server says the body has, in bytes; 0 when it comes in counted chunks.

    Raises :class:`LockError` without either: a body that breaks off would look complete.
    """
    if response.headers.get("Transfer-Encoding", "").lower() == "chunked":
        return 0
    length = response.headers.get("Content-Length", "")
    if not length.isdecimal():
        raise LockError("the server does not say how long the file is")
    return int(length)


def session() -> requests.Session:
    """A session that trusts what this machine trusts: requests alone knows no company's CA."""
    import requests  # 0.1 s, and only needed when the cache lacks something
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
        secret(value)
    return own or f"{_PYPI}/simple/"


def _index_url(requirement: str, file: str) -> str:
    from pipelines.toolchain.indexpage import IndexPageError, read_project

    name, _, _ = requirement.partition("==")
    try:
        page = read_project(index_url(), name, insecure=True)  # what it offers is pinned by hash
    except IndexPageError as error:
        raise LockError(f"the package index: {error}") from None
    if page is None:
        raise LockError(f"the package index has no project {name}")
    for one in page.files:
        if one.name == file:
            return one.url
    raise LockError(f"the package index does not list {file}")


def _apt_source(package: str, file: str, target: Path) -> None:
    """Fetch the upstream tarball of a source package with a private apt configuration.

    The machine's own repositories are asked for their sources, whether or not ``deb-src`` is on:
    nothing in /etc/apt is changed, root is not needed, and apt checks the signatures.
    """
    if not shutil.which("apt-get"):
        raise LockError("this machine has no apt-get")
    with tempfile.TemporaryDirectory(prefix="aptsrc-") as scratch:
        root = Path(scratch)
        for folder in ("lists/partial", "cache/archives/partial", "etc", "get"):
            (root / folder).mkdir(parents=True)
        (root / "etc/sources.list").write_text(_deb_src_lines())
        options = {
            "Dir::Etc::sourcelist": root / "etc/sources.list",
            "Dir::Etc::sourceparts": "-",
            "Dir::State::lists": root / "lists",
            "Dir::Cache": root / "cache",
            "APT::Sandbox::User": "",
            "Acquire::Languages": "none",
            "Acquire::http::Timeout": 20,
        }
        flags = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        for command in (["update"], ["--download-only", "--tar-only", "source", package]):
            run = subprocess.run(
                ["apt-get", "-qq", *flags, *command],
                cwd=root / "get",
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            if run.returncode and command != ["update"]:
                last = " | ".join(run.stderr.strip().splitlines()[-3:]) or "no message"
                raise LockError(f"apt-get source {package} failed: {last}")
        found = root / "get" / file
        if not found.is_file():
            have = ", ".join(sorted(p.name for p in (root / "get").iterdir())) or "nothing"
            raise LockError(f"apt has another version of {package}: {have}, not {file}")
        shutil.move(found, target)


def _deb_src_lines() -> str:
    """``deb-src`` lines for the repositories of binary packages that this machine uses.

    A mirror of Debian has every suite: what the lock pins is in bookworm, also for a Debian 13.
    """
    fields = "$(SITE)|$(RELEASE)|$(COMPONENT)|$(SIGNED_BY)|$(CREATED_BY)|$(LABEL)"
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", fields],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    ).stdout
    lines: dict[str, None] = {}
    for row in listed.splitlines():
        site, release, component, signed_by, created_by, label = row.split("|")
        if created_by != "Packages" or component not in ("main", "universe"):
            continue
        option = f"[signed-by={signed_by}] " if signed_by.startswith("/") else ""
        for suite in (release, *(("bookworm",) if label == "Debian" else ())):
            lines[f"deb-src {option}{site} {suite} {component}"] = None
    return "\n".join(lines) + "\n"
