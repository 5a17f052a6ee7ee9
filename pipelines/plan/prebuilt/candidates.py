"""Lists available wheels in a directory or simple index, and fetches and verifies them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pipelines.core.errors import AuditError, ConfigError, LockError
from pipelines.core.files import own_part, sha256_of
from pipelines.core.hosttext import safe_line
from pipelines.remote.files import replace
from pipelines.toolchain import sources
from pipelines.toolchain.indexpage import IndexPageError, read_project
from pipelines.toolchain.lock import Cache
from pipelines.toolchain.obtaining import download_from_sources

_SUMS = "SHA256SUMS"
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Offer:
    """An available wheel: its file name, location, and sha256 if stated."""

    file: str
    place: str
    """A path, or a URL."""
    sha256: str | None = None
    size: int | None = None

    @property
    def path(self) -> Path | None:
        """The file, if it is local."""
        return None if "://" in self.place else Path(self.place)


def list_wheel_offers(place: str, project: str, *, offline: bool = False) -> list[Offer]:
    """The wheels at ``place``: a directory (with SHA256SUMS, if it has one) or a simple index.

    With ``offline`` an index counts as empty. Raises :class:`ConfigError` if it is neither or
    cannot be read.
    """
    if re.match(r"https?://", place):
        return [] if offline else _index(place, project)
    folder = Path(place).expanduser()
    try:
        sums = _sums(folder / _SUMS)
        return [
            Offer(path.name, str(path), sums.get(path.name), path.stat().st_size)
            for path in sorted(folder.iterdir())
            if path.suffix == ".whl"
        ]
    except OSError as error:
        raise ConfigError(
            f"cannot list wheels in {place}: {error.strerror}",
            hint="Fix 'prebuilt' in the recipe: a directory, or the URL of a simple index.",
        ) from None


def _sums(path: Path) -> dict[str, str]:
    """``sha256sum``'s own format."""
    if not path.is_file():
        return {}
    rows = (line.split(maxsplit=1) for line in path.read_text("utf-8").splitlines())
    return {
        row[1].lstrip("*"): row[0] for row in rows if len(row) > 1 and _DIGEST.fullmatch(row[0])
    }


def _index(url: str, project: str) -> list[Offer]:
    if not url.startswith("https://"):
        raise ConfigError(f"{url} is not https", hint="Only indexes with TLS are supported.")
    try:
        page = read_project(url, project)
    except IndexPageError as error:
        raise ConfigError(
            f"{url} cannot be read as a simple index: {error}", hint="Fix 'prebuilt' in the recipe."
        ) from None
    return [
        Offer(one.name, one.url, stated_sha256(one.name, one.sha256), one.size)
        for one in (page.files if page else ())
        if one.name.endswith(".whl") and not one.yanked
    ]


def stated_sha256(file: str, digest: str | None) -> str | None:
    """The sha256 that an index states for a file, if any; it names a directory of the cache.

    Raises :class:`ConfigError` if it is invalid: it is never silently ignored.
    """
    if digest is None or _DIGEST.fullmatch(small := digest.lower()):
        return digest and small
    raise ConfigError(
        f"{safe_line(file, 200)}: its index states the sha256 '{safe_line(digest, 80)}'",
        hint="Expected 64 hexadecimal digits: report it to the index's maintainer.",
    )


def obtain_offer(offer: Offer, cache: Cache) -> Path:
    """The local wheel file, fetched into the verified cache if it is remote.

    Raises :class:`AuditError` if its index states no sha256 to verify it by, :class:`LockError` if
    it is unavailable or has another sha256.
    """
    if offer.path is not None:
        return offer.path
    digest = offer.sha256
    if not digest:
        raise AuditError(
            f"{offer.file}: its index states no sha256",
            hint="Download it into a directory, and name that directory.",
        )
    path = cache.place(offer.file, digest)

    def keep(part: Path, source: sources.Source) -> None:
        if (actual := sha256_of(part)) != digest:
            raise LockError(f"{source.file} has sha256 {actual}, expected {digest}")
        replace(part, path)

    if not cache.has(path, digest):
        if cache.offline:
            raise LockError(
                f"{offer.file} is not cached, and --offline forbids fetching it",
                hint="Omit --offline, or add a directory that has it under 'prebuilt'.",
            )
        if not offer.place.startswith("https://"):
            raise AuditError(
                f"{offer.file}: its index links to {offer.place[:200]}, which is not https",
                hint="Download it into a directory, and name that directory.",
            )
        source = sources.Source(file=offer.file, url=offer.place.partition("#")[0], size=offer.size)
        download_from_sources(offer.file, "prebuilt", (source,), own_part(path), keep=keep)
    return path
