"""A binary out of a wheel, to be looked into: a large one as a file, for some have gigabytes."""

from __future__ import annotations

import io
import mmap
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from pipelines.files import disk_errors
from pipelines.wheels.fatbin import Bytes, forget

_LARGE = 16 << 20  # bytes


def holds(data: Bytes, wanted: bytes) -> bool:
    """Whether it is anywhere in a file, of which at most a part is then in memory."""
    for start in range(0, len(data), _LARGE):
        found = data.find(wanted, start, start + _LARGE + len(wanted)) >= 0
        forget(data)
        if found:
            return True
    return False


class Unpacked:
    """Takes a binary's bytes in pieces and gives them whole, for as long as it is open.

    A large one is mapped: of it there is in memory only what is looked at. Raises
    :class:`~pipelines.errors.StorageError` where its directory (``TMPDIR``) cannot take it.
    """

    def __init__(self, size: int) -> None:
        """``size`` is how much is expected."""
        self._place = Path(tempfile.gettempdir())
        self._map: mmap.mmap | None = None
        with disk_errors(self._place):
            self._file = io.BytesIO() if size <= _LARGE else tempfile.TemporaryFile()  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._map is not None:
            self._map.close()
        self._file.close()

    def write(self, chunk: bytes) -> None:
        """The next piece."""
        with disk_errors(self._place):
            self._file.write(chunk)

    def whole(self) -> Bytes:
        """All of it."""
        if isinstance(self._file, io.BytesIO):
            return self._file.getvalue()
        with disk_errors(self._place):
            self._file.flush()
        if not self._file.tell():  # less than its archive says: nothing can be mapped
            return b""
        self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        return self._map
