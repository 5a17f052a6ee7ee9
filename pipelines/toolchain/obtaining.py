"""A pinned file from the first of its sources that has it: the package index, apt, a URL.

Nothing here is trusted: :mod:`pipelines.toolchain.sources` verifies what was written.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.core.errors import LockError, StorageError
from pipelines.core.files import DISK_ERRNOS, disk_error_hint, disk_errors
from pipelines.core.logs import log_duration
from pipelines.toolchain.sources import (
    LIMIT,
    SECURE,
    Source,
    Step,
    index_url,
    iter_response_body,
    open_response,
)

if TYPE_CHECKING:
    import requests

_log = logging.getLogger(__name__)

#: Called with (tool, bytes done, bytes in all; 0 when that is not known).
FetchProgress = Callable[[str, int, int], None]


def download_from_sources(
    name: str,
    version: str,
    sources: Sequence[Source],
    part: Path,
    *,
    keep: Callable[[Path, Source], None],
    progress: FetchProgress | None = None,
    resume: bool = False,
) -> None:
    """Download ``name`` to ``part`` from the first source whose bytes ``keep`` takes.

    ``keep`` moves the file away, or raises :class:`LockError` and the next source is tried. What
    is left of ``part`` is removed, but for what broke off if it is to ``resume``. Raises
    :class:`LockError` when no source is left, naming each, and :class:`StorageError` when the disk
    is full.
    """
    failures: list[str] = []
    with disk_errors(part.parent, "point XDG_CACHE_HOME elsewhere"):
        part.parent.mkdir(parents=True, exist_ok=True)
    for source in sources:
        try:
            with log_duration(_log, logging.INFO, "%s: fetch %s", name, source.file):
                download_source(
                    source, part, lambda done, total: progress and progress(name, done, total)
                )
            keep(part, source)
        except OSError as error:
            if error.errno is not None and error.errno in DISK_ERRNOS:
                space = f"{source.size >> 20} MiB" if source.size else "space"
                raise StorageError(
                    f"cannot keep {source.file} in {part.parent}: {error.strerror}",
                    hint=f"{disk_error_hint(error, space)}, or point XDG_CACHE_HOME elsewhere.",
                ) from error
            failures.append(f"{source.place}: {error}")
        except LockError as error:
            failures.append(f"{source.place}: {error.message}")
            part.unlink(missing_ok=True)
        else:
            return
        finally:
            if not (resume and part.is_file() and etag_path(part).is_file()):
                part.unlink(missing_ok=True)
                etag_path(part).unlink(missing_ok=True)
    raise LockError(
        f"{name} {version} could not be fetched:\n  " + "\n  ".join(failures),
        hint="Check the network and the package index; a wrong sha256 means that the file "
        "is not the one that was pinned: do not use it.",
    )


def download_source(source: Source, target: Path, step: Step) -> None:
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


def etag_path(target: Path) -> Path:
    """Where it is noted which file on the server the beginning in ``target`` is of."""
    return target.with_name(f"{target.name}.etag")


def _http(url: str, target: Path, size: int | None, step: Step) -> None:
    import requests

    note = etag_path(target)
    # As it is on the server: what was compressed on the way would be counted differently.
    headers = {"Accept-Encoding": "identity"}
    done = target.stat().st_size if target.is_file() and note.is_file() else 0
    if done:  # https://www.rfc-editor.org/rfc/rfc9110#name-if-range
        headers |= {"Range": f"bytes={done}-", "If-Range": note.read_text("utf-8")}
    with open_response(url, headers, SECURE if url.startswith("https://") else ("",)) as response:
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
            for chunk in iter_response_body(response):
                done += len(chunk)
                if done > limit:
                    what = f"the pinned {size} bytes" if size else f"{limit >> 30} GiB"
                    raise LockError(f"more than {what} came")
                out.write(chunk)
                step(done, total)


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


def _index_url(requirement: str, file: str) -> str:
    from pipelines.toolchain.indexpage import IndexPageError, read_project  # when one is fetched

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
