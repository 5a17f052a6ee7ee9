"""What was published at an address: a manifest, or the wheel that lies beside one."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from pipelines.core.console import say
from pipelines.core.errors import AuditError, ConfigError, LockError, PipelineError
from pipelines.core.hosttext import line, secret, shown_url
from pipelines.core.jsonfile import MOST
from pipelines.prebuilt.downloads import fetch_url
from pipelines.prebuilt.external import read_external
from pipelines.stages.published import MANIFEST, Published, told_by
from pipelines.toolchain.lock import Cache
from pipelines.toolchain.sources import Source, download

#: Where runs have the one from the other, and releases: beside, or a directory above.
_MANIFESTS = (MANIFEST, f"../{MANIFEST}")


def published_at(address: str, cache: Cache) -> Published:
    """What the manifest at an https address tells, or that beside a wheel there.

    The wheel is fetched into the cache. Where only the manifest is to be had, the bytes are
    compared by its sha256 alone. Raises :class:`ConfigError` for what is no such address, or no
    manifest, :class:`LockError` for what cannot be had, and :class:`AuditError` for a wheel that is
    not the one that its manifest speaks of.
    """
    parts = _parts(address)
    if cache.offline:
        raise LockError(
            f"{shown_url(address)} is not fetched: --offline",
            hint="Download the wheel and its manifest.json, and name the file.",
        )
    if parts.path.endswith(".whl"):
        try:
            given = read_external(address)
        except ConfigError as error:
            said = error.message.removeprefix("--wheel ")
            raise ConfigError(
                said, hint=f"Name the wheel's own address, or that of its {MANIFEST}."
            ) from None
        file = unquote(urlsplit(given.place).path).rpartition("/")[2]
        told = _manifest(given.place, _MANIFESTS, file)
        if given.stated not in ("", told.sha256):
            raise AuditError(
                f"{given.requested} states sha256 {given.stated}, and {told.manifest} says "
                f"{told.sha256}",
                hint="One of them speaks of another wheel: nothing is built again for it.",
            )
        return told.with_wheel(_fetched(told, given.place, cache))
    told = _manifest(_secure(address), ("",), "")
    file = quote(told.file)  # S3 reads a + as a blank
    inside = f"../../{told.sha256[:2]}/{told.sha256}/{file}"  # of an index that publish wrote
    for place in (f"wheels/{file}", file, inside):
        try:
            return told.with_wheel(_fetched(told, urljoin(address, place), cache))
        except LockError:
            continue
    say(f"mind: {told.file} is not beside it: only its sha256 is compared", style="yellow")
    return told


def _parts(address: str) -> SplitResult:
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:  # whatever is in it may be a password
        raise ConfigError("https://: expected the address of a manifest or a wheel") from None
    return parts


def _secure(address: str) -> str:
    parts = _parts(address)
    for text in (parts.username, parts.password, parts.query):
        secret(text or "")
        secret(unquote(text or ""))
    if parts.scheme != "https" or not parts.hostname or parts.fragment:
        raise ConfigError(
            f"{shown_url(address)}: expected the https address of a {MANIFEST}, or of a wheel",
            hint=f"Such as https://example.org/releases/1.0/{MANIFEST}.",
        )
    return address


def _manifest(address: str, places: tuple[str, ...], file: str) -> Published:
    """What the first manifest that is to be had tells; :class:`LockError` where there is none."""
    failed = ""
    with TemporaryDirectory(prefix="wcw-manifest-") as scratch:
        path = Path(scratch, MANIFEST)
        for place in places:
            url = urljoin(address, place) if place else address
            try:
                download(Source(file=MANIFEST, url=url, size=MOST), path, lambda *_: None)
            except (OSError, LockError) as error:
                why = error.message if isinstance(error, PipelineError) else str(error)
                failed = failed or f"{shown_url(url)}: {line(why, 300)}"
                continue
            return told_by(path, shown_url(url), file)
    raise LockError(
        f"no manifest is to be had: {failed}",
        hint=f"Name the address of the {MANIFEST} that was published with the wheel.",
    )


def _fetched(told: Published, url: str, cache: Cache) -> Path:
    """The wheel in the cache, as its own sha256 has it; :class:`LockError` if it cannot be had."""
    kept = cache.place(told.file, told.sha256)
    if cache.has(kept, told.sha256):
        return kept
    found = fetch_url(told.file, url, "", cache)
    return cache.place(told.file, str(found.sha256))
