"""A tool's file from the first of its sources that has it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.core.errors import LockError, StorageError
from pipelines.core.files import DISK_ERRNOS, hint
from pipelines.core.logs import timed
from pipelines.toolchain.sources import Source, download, tag_of

if TYPE_CHECKING:
    from pipelines.toolchain.lock import Tool

_log = logging.getLogger(__name__)

#: Called with (tool, bytes done, bytes in all; 0 when that is not known).
FetchProgress = Callable[[str, int, int], None]


def obtain(
    name: str,
    tool: Tool,
    part: Path,
    keep: Callable[[Path, Source], None],
    progress: FetchProgress | None = None,
    *,
    resume: bool = False,
) -> None:
    """Download ``tool`` to ``part`` from the first source whose bytes ``keep`` takes.

    ``keep`` moves the file away, or raises :class:`LockError` and the next source is tried. What
    is left of ``part`` is removed, but for what broke off if it is to ``resume``. Raises
    :class:`LockError` when no source is left, naming each, and :class:`StorageError` when the disk
    is full.
    """
    failures: list[str] = []
    for source in tool.sources:
        try:
            part.parent.mkdir(parents=True, exist_ok=True)
            with timed(_log, logging.INFO, "%s: fetch %s", name, source.file):
                download(source, part, lambda done, total: progress and progress(name, done, total))
            keep(part, source)
        except OSError as error:
            if error.errno is not None and error.errno in DISK_ERRNOS:
                space = f"{tool.size >> 20} MiB" if tool.size else "space"
                raise StorageError(
                    f"cannot keep {tool.file} in {part.parent}: {error.strerror}",
                    hint=f"{hint(error, space)}, or point XDG_CACHE_HOME elsewhere.",
                ) from error
            failures.append(f"{source.place}: {error}")
        except LockError as error:
            failures.append(f"{source.place}: {error.message}")
            part.unlink(missing_ok=True)
        else:
            return
        finally:
            if not (resume and part.is_file() and tag_of(part).is_file()):
                part.unlink(missing_ok=True)
                tag_of(part).unlink(missing_ok=True)
    raise LockError(
        f"{name} {tool.version} could not be fetched:\n  " + "\n  ".join(failures),
        hint="Check the network and the package index; a wrong sha256 means that the file "
        "is not the one that was pinned: do not use it.",
    )
