"""A file on a server; only the parts that ``zipfile`` needs are fetched.

remotezip does not check the responses; here a response with a wrong range or length, or of another
file than the first one, is an error.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from pipelines.core.errors import LockError
from pipelines.core.hosttext import safe_line
from pipelines.toolchain.sources import LIMIT, iter_response_body
from pipelines.wheels.unpacking import SpentError

if TYPE_CHECKING:
    import requests

_BLOCK = 16 << 20  # bytes of one request: the DLLs are large, and read from front to back
_TIMEOUT = (15, 60)
_PARTIAL = 206
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class NoRangesError(Exception):
    """The server does not support range requests."""


class RangedFile(io.RawIOBase):
    """To be read through ``io.BufferedReader``; raises :class:`LockError` for a wrong response.

    And :class:`SpentError` before more than ``most`` bytes are fetched.
    """

    def __init__(self, client: requests.Session, url: str, most: int = LIMIT) -> None:
        """Request the first byte; :class:`NoRangesError` if more arrives."""
        self.most = most
        self._client, self._url = client, url
        self._at = 0
        self.size = 0
        self._mark = ""
        self.fetched = 0
        """Bytes received."""
        self._get(0, 0)

    def seekable(self) -> bool:
        """It is."""
        return True

    def readable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """As any file."""
        self._at = offset + (0, self._at, self.size)[whence]
        if self._at < 0:
            raise ValueError("before the start")
        return self._at

    def tell(self) -> int:
        """As any file."""
        return self._at

    def read(self, size: int = -1) -> bytes:
        """At most ``size`` bytes, from one request."""
        count = min(self.size - self._at, _BLOCK if size < 0 else size)
        if count <= 0:
            return b""
        data = self._get(self._at, self._at + count - 1)
        self._at += count
        return data

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """What ``io.BufferedReader`` calls."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _get(self, first: int, last: int) -> bytes:
        from requests import RequestException

        if self.fetched + last - first >= self.most:
            raise SpentError
        try:
            got = self._answered(first, last)
        # An OSError as well, which zipfile would take for a damaged file.
        except RequestException as error:
            raise self._false(safe_line(str(error), 200)) from None
        self.fetched += len(got)
        if len(got) != last - first + 1:
            raise self._false(f"received {len(got)} bytes instead of bytes {first} to {last}")
        return got

    def _answered(self, first: int, last: int) -> bytes:
        headers = {"Range": f"bytes={first}-{last}", "Accept-Encoding": "identity"}
        with self._client.get(self._url, headers=headers, stream=True, timeout=_TIMEOUT) as answer:
            answer.raise_for_status()
            hops = [hop.url for hop in (*answer.history, answer)]
            if hops[0].startswith("https://") and not all(h.startswith("https://") for h in hops):
                raise self._false("it redirects to an address without TLS")
            if answer.status_code != _PARTIAL:
                raise NoRangesError
            header = answer.headers.get("Content-Range", "")
            match = _RANGE.fullmatch(header)
            if not match or (int(match[1]), int(match[2])) != (first, last):
                raise self._false(
                    f"the response to a request for bytes {first} to {last} is "
                    f"'{safe_line(header, 80)}'"
                )
            etag = answer.headers.get("ETag") or answer.headers.get("Last-Modified", "")
            mark = f"{match[3]} {etag}"
            if self._mark not in ("", mark):
                raise self._false("the file changed during the download")
            self._mark, self.size = mark, int(match[3])
            got = bytearray()
            for chunk in iter_response_body(answer):
                got += chunk
                if len(got) > last - first + 1:
                    break
            return bytes(got)

    def _false(self, why: str) -> LockError:
        where = safe_line(self._url.partition("?")[0], 200)
        return LockError(f"{where}: {why}", hint="Download the wheel, and name the file.")


def open_ranged(client: requests.Session, url: str) -> io.BufferedReader:
    """The file at ``url``; raises :class:`NoRangesError` or :class:`LockError`."""
    return io.BufferedReader(RangedFile(client, url), _BLOCK)
