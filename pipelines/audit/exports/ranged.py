"""A file on a server of which only parts are read, as ``zipfile`` asks for them.

remotezip does not compare what it is given with what it asked for; here an answer that has another
range, another length or another file than the first one is an error.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from pipelines.core.errors import LockError
from pipelines.core.hosttext import line
from pipelines.toolchain.sources import pieces

if TYPE_CHECKING:
    import requests

_BLOCK = 16 << 20  # bytes of one request: the DLLs are large, and read from front to back
_TIMEOUT = (15, 60)
_PARTIAL = 206
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class NoRangesError(Exception):
    """The server gives a file whole or not at all."""


class RangedFile(io.RawIOBase):
    """To be read through ``io.BufferedReader``; raises :class:`LockError` for a false answer."""

    def __init__(self, client: requests.Session, url: str) -> None:
        """Asks for the first byte: :class:`NoRangesError` where that brings more."""
        self._client, self._url = client, url
        self._at = 0
        self._size = 0
        self._mark = ""
        self.fetched = 0
        """Bytes that came."""
        self._get(0, 0)

    def seekable(self) -> bool:
        """It is."""
        return True

    def readable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """As any file."""
        self._at = offset + (0, self._at, self._size)[whence]
        if self._at < 0:
            raise ValueError("before the start")
        return self._at

    def tell(self) -> int:
        """As any file."""
        return self._at

    def read(self, size: int = -1) -> bytes:
        """At most ``size`` bytes, of one request."""
        wanted = min(self._size - self._at, _BLOCK if size < 0 else size)
        if wanted <= 0:
            return b""
        found = self._get(self._at, self._at + wanted - 1)
        self._at += wanted
        return found

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """What ``io.BufferedReader`` calls."""
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def _get(self, first: int, last: int) -> bytes:
        from requests import RequestException

        try:
            got = self._answered(first, last)
        # An OSError as well, which zipfile would take for a damaged file.
        except RequestException as error:
            raise self._false(line(str(error), 200)) from None
        self.fetched += len(got)
        if len(got) != last - first + 1:
            raise self._false(f"of bytes {first} to {last} {len(got)} came")
        return got

    def _answered(self, first: int, last: int) -> bytes:
        asked = {"Range": f"bytes={first}-{last}", "Accept-Encoding": "identity"}
        with self._client.get(self._url, headers=asked, stream=True, timeout=_TIMEOUT) as answer:
            answer.raise_for_status()
            hops = [hop.url for hop in (*answer.history, answer)]
            if hops[0].startswith("https://") and not all(h.startswith("https://") for h in hops):
                raise self._false("it sends on to an address without TLS")
            if answer.status_code != _PARTIAL:
                raise NoRangesError
            said = answer.headers.get("Content-Range", "")
            found = _RANGE.fullmatch(said)
            if not found or (int(found[1]), int(found[2])) != (first, last):
                raise self._false(f"of bytes {first} to {last} it gives '{line(said, 80)}'")
            mark = f"{found[3]} {answer.headers.get('ETag', '')}"
            if self._mark not in ("", mark):
                raise self._false("the file has changed meanwhile")
            self._mark, self._size = mark, int(found[3])
            got = bytearray()
            for chunk in pieces(answer):
                got += chunk
                if len(got) > last - first + 1:
                    break
            return bytes(got)

    def _false(self, why: str) -> LockError:
        where = line(self._url.partition("?")[0], 200)
        return LockError(f"{where}: {why}", hint="Download the wheel, and name the file.")


def open_ranged(client: requests.Session, url: str) -> io.BufferedReader:
    """The file at ``url``; raises :class:`NoRangesError` or :class:`LockError`."""
    return io.BufferedReader(RangedFile(client, url), _BLOCK)
