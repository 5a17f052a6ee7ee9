"""What was published at an address: a manifest, or a wheel with its manifest next to it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote, urljoin

from pipelines.core.console import say
from pipelines.core.errors import AuditError, ConfigError, LockError, PipelineError
from pipelines.core.hosttext import safe_line, shown_url
from pipelines.core.jsonfile import MOST
from pipelines.plan.prebuilt.downloads import fetch_url
from pipelines.plan.prebuilt.external import read_address
from pipelines.publish.provenance.statement import MANIFEST
from pipelines.publish.rebuild.published import Published, published_by
from pipelines.toolchain.lock import Cache
from pipelines.toolchain.obtaining import download_source
from pipelines.toolchain.sources import Source


def published_at(address: str, cache: Cache) -> Published:
    """What the manifest at an https address states, or the one next to a wheel there.

    The wheel is downloaded into the cache. Without one only sha256 sums are compared. Raises
    :class:`ConfigError` for an invalid address or manifest, :class:`LockError` for a failed
    download, :class:`AuditError` for a wheel that differs from its manifest.
    """
    try:
        at = read_address(address)
    except ValueError as error:
        raise ConfigError(
            ": ".join(error.args), hint=f"Name the https address of a {MANIFEST}, or of a wheel."
        ) from None
    if cache.offline:
        raise LockError(
            f"{at.shown} cannot be downloaded with --offline",
            hint="Download the wheel and its manifest.json, and name the file.",
        )
    places: tuple[str, ...] = ("",)
    if at.file.endswith(".whl"):
        # Where runs and releases have it: next to the wheel, or a directory above.
        known = _fetch_first_manifest(
            [urljoin(at.place, f"{up}{MANIFEST}") for up in ("", "../")], at.file
        )
    else:
        known = _fetch_first_manifest([at.place], "")
        file = quote(known.file)  # S3 reads a + as a blank
        inside = f"../../{known.sha256[:2]}/{known.sha256}/{file}"  # of an index that publish wrote
        places = (f"wheels/{file}", file, inside)
    if at.stated not in ("", known.sha256):
        raise AuditError(
            f"{at.shown} states sha256 {at.stated}, but {known.manifest} states {known.sha256}",
            hint="One of them describes another wheel, so nothing was rebuilt.",
        )
    kept = cache.place(known.file, known.sha256)
    if cache.has(kept, known.sha256):
        return known.with_wheel(kept)
    for place in places:
        try:
            found = fetch_url(known.file, urljoin(at.place, place), "", cache)
            return known.with_wheel(cache.place(known.file, str(found.sha256)))
        except LockError:
            if places == ("",):
                raise
    say(f"note: {known.file} was not found there, so only its sha256 is compared", style="yellow")
    return known


def _fetch_first_manifest(addresses: list[str], file: str) -> Published:
    """What the first manifest that is to be had tells; :class:`LockError` where there is none."""
    failed = ""
    with TemporaryDirectory(prefix="wcw-manifest-") as scratch:
        path = Path(scratch, MANIFEST)
        for url in addresses:
            try:
                download_source(Source(file=MANIFEST, url=url, size=MOST), path, lambda *_: None)
            except (OSError, LockError) as error:
                why = error.message if isinstance(error, PipelineError) else str(error)
                failed = failed or f"{shown_url(url)}: {safe_line(why, 300)}"
                continue
            return published_by(path, shown_url(url), file)
    raise LockError(
        f"no manifest was found: {failed}",
        hint=f"Name the address of the {MANIFEST} that was published with the wheel.",
    )
