"""Wheels in the verified cache, each under its own hash, wherever they are from."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.core.errors import LockError
from pipelines.core.files import disk_errors, sha256_of
from pipelines.prebuilt.candidates import Offer, obtain_offer
from pipelines.remote.files import replace
from pipelines.toolchain.lock import Cache, Tool
from pipelines.toolchain.obtaining import obtain
from pipelines.toolchain.sources import Source


def fetch_all(offers: Iterable[Offer], cache: Cache) -> tuple[Offer, ...]:
    """The same, each in the verified cache under its hash, with sha256 and size as computed.

    Raises :class:`LockError` for a file that is another one than was stated, or cannot be had.
    """
    return tuple(_kept(offer, cache) for offer in offers)


def _kept(offer: Offer, cache: Cache) -> Offer:
    source = obtain_offer(offer, cache)
    found = sha256_of(source)
    if offer.sha256 and found != offer.sha256:
        raise LockError(
            f"{offer.file} has sha256 {found}, {offer.sha256} is stated",
            hint="It is not the file that was meant: do not use it.",
        )
    kept = cache.place(offer.file, found)
    if not cache.has(kept, found):
        with disk_errors(kept.parent):
            kept.parent.mkdir(parents=True, exist_ok=True)
            part = kept.with_name(f".{kept.name}.{os.getpid()}.part")
            shutil.copyfile(source, part)
            replace(part, kept)
    return Offer(offer.file, offer.place, found, kept.stat().st_size)


def fetch_url(file: str, url: str, stated: str, cache: Cache) -> Offer:
    """A wheel of which no index tells: fetched, hashed, and kept under that hash."""
    if stated:
        return fetch_all((Offer(file, url, stated),), cache)[0]
    if cache.offline:
        raise LockError(f"{file} is not fetched: --offline", hint="Download it, and name the file.")
    with TemporaryDirectory(prefix="wcw-url-") as scratch:
        here = Path(scratch, file)

        def keep(part: Path, _: Source) -> None:
            replace(part, here)

        tool = Tool(version="given", sources=(Source(file=file, url=url),))
        obtain(file, tool, here.with_name(f".{file}.part"), keep)
        (found,) = fetch_all([Offer(file, str(here))], cache)
    return Offer(file, url, found.sha256, found.size)
