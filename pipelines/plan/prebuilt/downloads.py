"""Copies wheels from any source into the verified cache, each under its hash."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.core.errors import LockError
from pipelines.core.files import atomic_output, disk_errors, own_part, sha256_of
from pipelines.plan.prebuilt.candidates import Offer, obtain_offer
from pipelines.remote.files import replace
from pipelines.toolchain.lock import Cache
from pipelines.toolchain.obtaining import download_from_sources
from pipelines.toolchain.sources import Source


def fetch_all(offers: Iterable[Offer], cache: Cache) -> tuple[Offer, ...]:
    """The offers in the verified cache, with computed sha256 and size.

    Raises :class:`LockError` for a file with another sha256 than stated, or that is unavailable.
    """
    return tuple(_cached(offer, cache) for offer in offers)


def _cached(offer: Offer, cache: Cache) -> Offer:
    source = obtain_offer(offer, cache)
    sha256 = sha256_of(source)
    if offer.sha256 and sha256 != offer.sha256:
        raise LockError(
            f"{offer.file} has sha256 {sha256}, expected {offer.sha256}",
            hint="It is a different file: do not use it.",
        )
    path = cache.place(offer.file, sha256)
    if not cache.has(path, sha256):
        with disk_errors(path.parent), atomic_output(path, own_part(path)) as part:
            shutil.copyfile(source, part)
    return Offer(offer.file, offer.place, sha256, path.stat().st_size)


def fetch_url(file: str, url: str, stated: str, cache: Cache) -> Offer:
    """Download a wheel that is not on an index, and cache it under its hash."""
    if stated:
        return fetch_all((Offer(file, url, stated),), cache)[0]
    if cache.offline:
        raise LockError(
            f"{file} cannot be fetched with --offline", hint="Download it and name the file."
        )
    with TemporaryDirectory(prefix="wcw-url-") as scratch:
        here = Path(scratch, file)

        def keep(part: Path, _: Source) -> None:
            replace(part, here)

        part = here.with_name(f".{file}.part")
        download_from_sources(file, "given", [Source(file=file, url=url)], part, keep=keep)
        (fetched,) = fetch_all([Offer(file, str(here))], cache)
    return Offer(file, url, fetched.sha256, fetched.size)
