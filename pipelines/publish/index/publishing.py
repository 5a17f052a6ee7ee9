"""Adds wheels to an index so that it is consistent at every moment, even if interrupted.

First the files, at paths with their hashes that no page links to yet; then the catalogue; then the
changed pages. An interruption before the catalogue is written changes nothing visible; after it,
the next publish writes the missing pages.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from email.parser import HeaderParser
from hashlib import sha256
from pathlib import Path
from typing import Any

from pipelines.core.console import transfer_progress
from pipelines.core.errors import AuditError, ConfigError
from pipelines.core.files import disk_errors, sha256_of
from pipelines.core.hosttext import safe_line, safe_text
from pipelines.core.toolsets import local_version_toolset
from pipelines.core.units import join_first
from pipelines.publish.index.catalogue import (
    CATALOGUE,
    MOST,
    PREVIEW,
    Catalogue,
    Kind,
    Rebuilt,
    Wheel,
    WheelName,
    format_timestamp,
    parse_catalogue,
    shown_at,
    stored_path,
)
from pipelines.publish.index.lock import hold_index_lock, require_mine
from pipelines.publish.index.pages import COMBINED, release_files, render_index_pages
from pipelines.publish.index.releases import Release
from pipelines.publish.index.store import Store, hash_etags
from pipelines.publish.index.variants import (
    label_of,
    make_variant,
    variant_properties,
    variant_version,
)
from pipelines.publish.memory import memory_file, record_last_seen, rollback_problem
from pipelines.record.seal import load_or_create_sealer
from pipelines.wheels.checked import CheckedWheel

#: Called with each published wheel.
Say = Callable[[Wheel], None]


@dataclass(frozen=True)
class Offer:
    """A wheel to publish, with its evidence."""

    wheel: CheckedWheel
    entry: Wheel
    """What the catalogue says of it, with its path in the index itself."""
    shown: Mapping[Kind, bytes]
    """Evidence files."""


@dataclass(frozen=True)
class Order:
    """Changes to an index."""

    offers: Sequence[Offer] = ()
    rebuilt: Sequence[tuple[str, Rebuilt]] = ()
    """Verdicts on rebuilt wheels, by sha256."""
    variants: bool = True
    """Whether to create variants."""
    yank: str = ""
    """The file to yank."""
    because: str = ""
    tracks: str | None = None
    unlock: bool = False
    """Whether to remove a stale lock."""
    trusted: Sequence[str] = ()
    """Keys of other controllers that may have published last."""


@dataclass(frozen=True)
class Done:
    """The result of a publish."""

    catalogue: Catalogue
    fresh: tuple[Wheel, ...]
    """New wheels."""
    pages: tuple[str, ...]
    """Pages that were written."""


def publish_wheels(
    store: Store, order: Order, *, release: Release | None = None, say: Say, dry_run: bool = False
) -> Done:
    """Apply the order. With a ``release`` wheels are its assets, linked from pages in ``store``.

    A ``dry_run`` makes all checks and writes nothing, not even the lock. Raises
    :class:`AuditError` for a refused wheel, :class:`ConfigError` for an index that is damaged or
    not ours, and :class:`StorageError` if it cannot be written or another publish is running.
    """
    lock = nullcontext(b"") if dry_run else hold_index_lock(store, order.unlock)
    with lock as mine, tempfile.TemporaryDirectory() as room:
        before = _read_trusted_catalogue(store, order)
        known = before.by_name
        _require_intact(store, release, before)
        released = list(_iter_order_wheels(before, order, Path(room)))
        after = _apply_order(before, order, [wheel for _, _, wheel in released], release)
        if dry_run:
            return Done(after, _added_wheels(before, after), tuple(_outdated_pages(store, after)))
        for path, metadata, wheel in released:
            if wheel.name not in known:
                written = _write_scratch_file(Path(room), metadata)
                after = _upload_wheel(store, release, path, wheel, after, metadata=written)
                say(wheel)
        if release:
            release.finish()
        for place, data in (*_iter_evidence_files(order, after), *release_files(after).values()):
            store.place(place, _write_scratch_file(Path(room), data), sha256(data).hexdigest())
        after = after.stating(lambda wheel: hash_etags(wheel.files, store.hashed))
        if after != before:
            after = after.model_copy(update={"generation": before.generation + 1})
            after = after.signed(load_or_create_sealer())
            require_mine(store, mine, before)
            store.write(CATALOGUE, after.dump())
        with disk_errors(memory_file()):
            record_last_seen(store.address, after.generation, after.digest)
        for page, data in (pages := _outdated_pages(store, after)).items():
            store.write(page, data)
    return Done(after, _added_wheels(before, after), tuple(pages))


def _outdated_pages(store: Store, after: Catalogue) -> dict[str, bytes]:
    """The pages that the store does not have, or has with other contents."""
    pages = render_index_pages(after).items()
    return {path: data for path, data in pages if store.read(path, len(data)) != data}


def _added_wheels(before: Catalogue, after: Catalogue) -> tuple[Wheel, ...]:
    known = before.by_name
    return tuple(wheel for wheel in after.wheels if wheel.name not in known)


def _read_trusted_catalogue(store: Store, order: Order) -> Catalogue:
    """The catalogue: signed by a key that is trusted, and not older than the last one seen."""
    data = store.read(CATALOGUE, MOST)
    if data is None and (store.read("index.html", 1) is not None or store.listed(COMBINED)):
        raise ConfigError(
            f"{store.name} is not a wcw index: it has pages but no {CATALOGUE}",
            hint=f"Nothing was changed. Restore {CATALOGUE}, or use an empty directory.",
        )
    found = Catalogue() if data is None else parse_catalogue(data, store.name)
    if data is not None:
        found.require_signed(load_or_create_sealer().identity, order.trusted, store.name)
    if why := rollback_problem(store.address, found.generation, found.digest):
        raise ConfigError(
            f"{store.name}/{CATALOGUE}: {why if data else 'it was published, but is missing now'}",
            hint="Restore the last one. If this is what you want, remove "
            f"{store.address} from {memory_file()}.",
        )
    return found


def _iter_evidence_files(order: Order, after: Catalogue) -> Iterator[tuple[str, bytes]]:
    """Evidence files that the catalogue lists, by path."""
    rows = after.by_name
    for offer in order.offers:
        row = rows[WheelName.read(offer.wheel.name)]
        for kind, data in offer.shown.items():
            if row.attached.get(kind) == (hashed := sha256(data).hexdigest()):
                yield shown_at(row.file, kind, hashed), data


def _apply_order(
    before: Catalogue, order: Order, wheels: Sequence[Wheel], release: Release | None
) -> Catalogue:
    after = before.plus(wheels).with_verdicts(order.rebuilt)
    if release:
        release.require_room(wheel.file for wheel in _added_wheels(before, after))
    if order.yank:
        after = after.without(order.yank, order.because)
    if order.tracks is not None:
        after = after.model_copy(update={"tracks": order.tracks})
    if after.preview and any(wheel.yanked != PREVIEW for wheel in after.wheels):
        raise ConfigError(
            "previews and other wheels cannot be in the same index",
            hint="Nothing was changed. Publish previews to a separate directory.",
        )
    after.require_readable()
    return after


def _require_intact(store: Store, release: Release | None, catalogue: Catalogue) -> None:
    """Require every file of the catalogue with its hash.

    It is read, unless an object store still states of it what it did when it was last hashed.
    """
    if not catalogue.wheels:
        return
    here, damaged, done = store.listed("files"), [], 0
    tags = {path: tag for path, (_, tag) in here.items()}
    read = [
        wheel
        for wheel in catalogue.wheels
        if "://" in wheel.url or not wheel.stated or wheel.stated != hash_etags(wheel.files, tags)
    ]
    total = sum(wheel.size for wheel in read)
    with transfer_progress() as show:
        for wheel in read:
            most = {wheel.url: wheel.size}
            sizes = {path: here[path][0] for path in wheel.files if path in here}
            if (
                len(sizes) < len(wheel.files)
                or any(size > most.get(path, MOST) for path, size in sizes.items())
                or any(store.sha256(path) != hashed for path, hashed in wheel.files.items())
                or not _is_released(release, wheel)
            ):
                damaged.append(wheel.file)
            done += wheel.size
            show("read the index", done, total)
    if damaged:
        raise ConfigError(
            f"{store.name} is damaged: files of {len(damaged)} wheels are missing or differ: "
            f"{join_first(safe_text(name, 120) for name in damaged)}",
            hint="Nothing was changed. Restore the files at their paths in the catalogue.",
        )


def _is_released(release: Release | None, wheel: Wheel) -> bool:
    """Whether the release has a wheel of its own. Those of other releases are not looked at."""
    if release is None or not wheel.url.startswith(release.assets):
        return True
    hashes = {wheel.url: wheel.sha256, f"{wheel.url}.metadata": wheel.metadata_sha256}
    return all(release.sha256(address) == hashed for address, hashed in hashes.items())


def _iter_order_wheels(
    before: Catalogue, order: Order, room: Path
) -> Iterator[tuple[Path, bytes, Wheel]]:
    """The wheels of an order and their variants, with their METADATA."""
    known = before.by_name
    for offer in order.offers:
        plain, facts = offer.entry, offer.wheel.facts
        yield offer.wheel.path, _read_wheel_metadata(offer.wheel.path, facts.dist_info), plain
        if not order.variants or local_version_toolset(facts.version.partition("+")[2]):
            continue  # a variant's version cannot state its toolset
        there = _variant_of(before, plain)
        if there is not None:  # reuse its bytes: another zlib would compress differently
            seen = {"smoke": plain.smoke, "evidence": plain.evidence, "run": plain.run}
            yield offer.wheel.path, b"", there.model_copy(update=seen)  # it is not placed
            continue
        if made := make_variant(offer.wheel, plain, Path(tempfile.mkdtemp(dir=room))):
            project = facts.dist_info.removesuffix(".dist-info").rpartition("-")[0]
            info = f"{project}-{variant_version(facts.version, plain.torch)}.dist-info"
            same = plain.model_dump() | {"made_from": plain.sha256, "attached": {}}
            same["yanked"] = known.get(plain.name, plain).yanked
            yield made, _read_wheel_metadata(made, info), entry_of(made, info, **same)


def _variant_of(before: Catalogue, plain: Wheel) -> Wheel | None:
    if not variant_properties(plain.cuda, plain.sass):
        return None
    label = label_of(plain.cuda, plain.sass)
    fits = (w for w in before.wheels if w.made_from == plain.sha256 and w.name.label == label)
    return next(fits, None)


def _read_wheel_metadata(path: Path, info: str) -> bytes:
    with zipfile.ZipFile(path) as archive:
        return archive.read(f"{info}/METADATA")


def entry_of(path: Path, info: str, **evidence: Any) -> Wheel:
    """The entry of a wheel with its METADATA in ``info``; ``evidence`` has its other fields.

    Raises :class:`AuditError` for what a catalogue cannot say.
    """
    metadata, hashed = _read_wheel_metadata(path, info), sha256_of(path)
    required = HeaderParser().parsestr(metadata.decode("utf-8", "replace"))
    own = {
        "file": path.name,
        "sha256": hashed,
        "size": path.stat().st_size,
        "url": stored_path(path.name, hashed),
        "metadata_sha256": sha256(metadata).hexdigest(),
        "requires_python": safe_line(required.get("Requires-Python", ""), 200),
        "uploaded": format_timestamp(datetime.now(UTC)),
    }
    try:
        return Wheel.model_validate(evidence | own)
    except ValueError as error:
        raise AuditError(
            f"{safe_text(path.name, 200)} cannot be published: {safe_line(error, 400)}",
            hint="Build it with a name and a target that an index supports.",
        ) from None


def _upload_wheel(
    store: Store,
    release: Release | None,
    path: Path,
    wheel: Wheel,
    after: Catalogue,
    *,
    metadata: Path,
) -> Catalogue:
    """Upload a wheel and its metadata; the catalogue with its address."""
    if release is None:
        store.place(wheel.url, path, wheel.sha256)
        store.place(f"{wheel.url}.metadata", metadata, wheel.metadata_sha256)
        return after
    url = release.place(wheel.file, path, wheel.sha256)
    release.place(f"{wheel.file}.metadata", metadata, wheel.metadata_sha256)
    moved = Wheel.model_validate(wheel.model_dump() | {"url": url})
    rows = (moved if row.name == wheel.name else row for row in after.wheels)
    return after.model_copy(update={"wheels": tuple(rows)})


def _write_scratch_file(room: Path, data: bytes) -> Path:
    path = room / "data"
    path.write_bytes(data)
    return path
