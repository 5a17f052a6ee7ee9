"""Adds wheels to an index so that it is whole at every moment, whatever ends the work.

First the files, each at a place that tells its hash, where no page points yet. Then the catalogue,
which decides. Then the pages that have changed. Who is interrupted before the catalogue has changed
nothing that anybody sees; after it, the next publish makes the pages that lack.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.parser import HeaderParser
from hashlib import sha256
from pathlib import Path

from pipelines.core.errors import AuditError, ConfigError
from pipelines.core.files import sha256_of
from pipelines.core.hosttext import line, safe
from pipelines.core.units import few
from pipelines.publish.index.catalogue import (
    CATALOGUE,
    MOST,
    Catalogue,
    Kind,
    Rebuilt,
    Smoke,
    Wheel,
    WheelName,
    read_catalogue,
    shown_at,
    stored,
    timestamp,
)
from pipelines.publish.index.lock import locked, require_mine
from pipelines.publish.index.memory import remember, require_newest
from pipelines.publish.index.pages import COMBINED, release_files, render
from pipelines.publish.index.releases import Release
from pipelines.publish.index.store import Store
from pipelines.publish.index.variants import label_of, make_variant, properties, version_of
from pipelines.record.seal import sealer
from pipelines.record.toolsets import stamped
from pipelines.wheels.checked import CheckedWheel

#: Is told of each wheel that is in its place.
Say = Callable[[Wheel], None]


@dataclass(frozen=True)
class Offer:
    """A wheel that may be published, with what was shown of it."""

    wheel: CheckedWheel
    python: str
    torch: str
    cuda: str
    sass: tuple[str, ...]
    ptx: tuple[str, ...]
    run: str
    evidence: str
    toolset: str
    checks: int
    smoke: Smoke
    stable: bool = False
    shown: Mapping[Kind, bytes] = field(default_factory=dict)
    """What was shown of it, as files."""


@dataclass(frozen=True)
class Order:
    """What is to be done to an index."""

    offers: Sequence[Offer] = ()
    rebuilt: Sequence[tuple[str, Rebuilt]] = ()
    """Verdicts on published wheels that were built again, by their sha256."""
    variants: bool = True
    """Whether variants are made of the wheels."""
    yank: str = ""
    """The file that nobody should take any more."""
    because: str = ""
    tracks: str | None = None
    unlock: bool = False
    """Whether a lock that somebody has left is taken away."""
    trusted: Sequence[str] = ()
    """Keys of other controllers that may have published last."""


@dataclass(frozen=True)
class Done:
    """What became of an index."""

    catalogue: Catalogue
    fresh: tuple[Wheel, ...]
    """Wheels that were not there before."""
    pages: tuple[str, ...]
    """Those that were written."""


def publish(store: Store, order: Order, *, release: Release | None = None, say: Say) -> Done:
    """Do it. With a ``release`` the wheels lie there, and the pages in ``store`` point to them.

    Raises :class:`AuditError` for a wheel that must not be there, :class:`ConfigError` for an index
    that is damaged or not ours, and :class:`StorageError` where it cannot be written or somebody
    else is at it.
    """
    with locked(store, order.unlock) as mine, tempfile.TemporaryDirectory() as room:
        before = _read(store, order)
        known = before.by_name
        _require_whole(store, release, before)
        found = list(_wheels(before, order, Path(room)))
        after = _changed(before, order, [wheel for _, wheel in found], release)
        for path, wheel in found:
            if wheel.name not in known:
                after = _place(store, release, path, wheel, after)
                say(wheel)
        if release:
            release.finish()
        for place, data in (*_shown(order, after), *release_files(after).values()):
            store.place(place, _written(Path(room), data), sha256(data).hexdigest())
        if after != before:
            after = after.model_copy(update={"generation": before.generation + 1})
            after = after.signed(sealer())
            require_mine(store, mine, before)
            store.write(CATALOGUE, after.dump())
        remember(store.address, after)
        pages = [path for path, data in render(after).items() if _put(store, path, data)]
    return Done(after, _fresh(before, after), tuple(pages))


def planned(store: Store, order: Order, *, release: Release | None = None) -> Done:
    """What :func:`publish` would do, with its refusals; nothing is written."""
    with tempfile.TemporaryDirectory() as room:
        before = _read(store, order)
        _require_whole(store, release, before)
        found = [wheel for _, wheel in _wheels(before, order, Path(room))]
        after = _changed(before, order, found, release)
    pages = [p for p, data in render(after).items() if store.read(p, len(data)) != data]
    return Done(after, _fresh(before, after), tuple(pages))


def _fresh(before: Catalogue, after: Catalogue) -> tuple[Wheel, ...]:
    known = before.by_name
    return tuple(one for one in after.wheels if one.name not in known)


def _read(store: Store, order: Order) -> Catalogue:
    """The catalogue: signed by a key that is trusted, and not older than the last one seen."""
    data = store.read(CATALOGUE, MOST)
    if data is None and (store.read("index.html", 1) is not None or store.sizes(COMBINED)):
        raise ConfigError(
            f"{store.name} has pages, and no {CATALOGUE}: it is no index of ours, or it has lost "
            "it",
            hint=f"Nothing was changed. Put {CATALOGUE} back, or name an empty place.",
        )
    found = Catalogue() if data is None else read_catalogue(data, store.name)
    found.require_signed({sealer().identity, *order.trusted}, store.name)
    require_newest(store.address, found)
    return found


def _shown(order: Order, after: Catalogue) -> Iterator[tuple[str, bytes]]:
    """What was shown of the wheels, as files by their place: those of which the catalogue tells."""
    rows = after.by_name
    for offer in order.offers:
        row = rows[WheelName.read(offer.wheel.name)]
        for kind, data in offer.shown.items():
            if row.beside.get(kind) == (hashed := sha256(data).hexdigest()):
                yield shown_at(row.file, kind, hashed), data


def _changed(
    before: Catalogue, order: Order, wheels: Sequence[Wheel], release: Release | None
) -> Catalogue:
    after = before.plus(wheels).told(order.rebuilt)
    if release:
        release.require_room(one.file for one in _fresh(before, after))
    if order.yank:
        after = after.without(order.yank, order.because)
    if order.tracks is not None:
        after = after.model_copy(update={"tracks": order.tracks})
    after.require_readable()
    return after


def _require_whole(store: Store, release: Release | None, catalogue: Catalogue) -> None:
    """Every file that the catalogue names is there: else nothing is built on it.

    With its size; in a directory, where that takes no transfer, with its sha256.
    """
    if not catalogue.wheels:
        return
    here = store.sizes("files")
    there = release.sizes() if release else {}
    lacking = []
    for wheel in catalogue.wheels:
        if "://" not in wheel.url:
            found = here.get(wheel.url) if f"{wheel.url}.metadata" in here else None
        elif release is None or not wheel.url.startswith(release.assets):
            found = wheel.size  # of another release: nobody has looked there
        else:
            found = there.get(wheel.url) if f"{wheel.url}.metadata" in there else None
        hashes = {wheel.beside_url(kind): hashed for kind, hashed in wheel.beside.items()}
        if "://" not in wheel.url:
            hashes |= {wheel.url: wheel.sha256, f"{wheel.url}.metadata": wheel.metadata_sha256}
        if (
            found != wheel.size
            or any(one not in here for one in hashes)
            or (store.is_local and any(store.sha256(one) != hashes[one] for one in hashes))
        ):
            lacking.append(wheel.file)
    if lacking:
        raise ConfigError(
            f"{store.name} is broken: of {len(lacking)} wheels a file that belongs to them is "
            f"not there, or is another: {few(safe(one, 120) for one in lacking)}",
            hint="Nothing was changed. Put the files back where the catalogue has them.",
        )


def _wheels(before: Catalogue, order: Order, room: Path) -> Iterator[tuple[Path, Wheel]]:
    """The wheels of an order and the variants that are made of them."""
    now = timestamp(datetime.now(UTC))
    for offer in order.offers:
        hashes = {kind: sha256(data).hexdigest() for kind, data in offer.shown.items()}
        plain = _wheel(offer, offer.wheel.path, offer.wheel.facts.dist_info, now)
        yield offer.wheel.path, plain.model_copy(update={"beside": hashes})
        if not order.variants or stamped(offer.wheel.facts.version.partition("+")[2]):
            continue  # a variant's version has no room for what built it
        there = _variant_of(before, plain, offer)
        if there is not None:  # of the same bytes: another zlib would pack it in another way
            seen = {"smoke": offer.smoke, "evidence": offer.evidence, "run": offer.run}
            yield offer.wheel.path, there.model_copy(update=seen)
            continue
        folder = Path(tempfile.mkdtemp(dir=room))
        made = make_variant(
            offer.wheel.path,
            folder,
            facts=offer.wheel.facts,
            torch=offer.torch,
            cuda=offer.cuda,
            sass=offer.sass,
            stable=offer.stable,
        )
        if made is not None:
            info = offer.wheel.facts.dist_info.removesuffix(".dist-info").rpartition("-")[0]
            version = version_of(offer.wheel.facts.version, offer.torch)
            wheel = _wheel(offer, made, f"{info}-{version}.dist-info", now)
            yield made, wheel.model_copy(update={"made_from": plain.sha256})


def _variant_of(before: Catalogue, plain: Wheel, offer: Offer) -> Wheel | None:
    if not properties(offer.cuda, offer.sass):
        return None
    label = label_of(offer.cuda, offer.sass)
    fits = (w for w in before.wheels if w.made_from == plain.sha256 and w.name.label == label)
    return next(fits, None)


def _wheel(offer: Offer, path: Path, info: str, now: str) -> Wheel:
    """Its row, with where it would lie in the index itself."""
    with zipfile.ZipFile(path) as archive:
        metadata = archive.read(f"{info}/METADATA")
    hashed = sha256_of(path)
    required = HeaderParser().parsestr(metadata.decode("utf-8", "replace"))
    try:
        return Wheel(
            file=path.name,
            sha256=hashed,
            size=path.stat().st_size,
            url=stored(path.name, hashed),
            metadata_sha256=sha256(metadata).hexdigest(),
            requires_python=line(required.get("Requires-Python", ""), 200),
            python=offer.python,
            torch=offer.torch,
            stable=offer.stable,
            cuda=offer.cuda,
            sass=offer.sass,
            ptx=offer.ptx,
            run=offer.run,
            uploaded=now,
            evidence=offer.evidence,
            toolset=offer.toolset,
            checks=offer.checks,
            smoke=offer.smoke,
        )
    except ValueError as error:
        raise AuditError(
            f"{safe(path.name, 200)} cannot be published: {line(error, 400)}",
            hint="Build it with a name and a cell that an index can hold.",
        ) from None


def _place(
    store: Store, release: Release | None, path: Path, wheel: Wheel, after: Catalogue
) -> Catalogue:
    """Bring a wheel and its metadata to where they lie; the catalogue with its address."""
    with tempfile.TemporaryDirectory() as room:
        beside = _written(Path(room), _metadata(path, wheel))
        if release is None:
            store.place(wheel.url, path, wheel.sha256)
            store.place(f"{wheel.url}.metadata", beside, wheel.metadata_sha256)
            return after
        url = release.place(wheel.file, path, wheel.sha256)
        release.place(f"{wheel.file}.metadata", beside, wheel.metadata_sha256)
    moved = Wheel.model_validate(wheel.model_dump() | {"url": url})
    rows = (moved if one.name == wheel.name else one for one in after.wheels)
    return after.model_copy(update={"wheels": tuple(rows)})


def _metadata(path: Path, wheel: Wheel) -> bytes:
    """METADATA of the wheel at ``path``, the one that its row speaks of."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            top, _, inside = name.partition("/")
            if top.endswith(".dist-info") and inside == "METADATA":
                data = archive.read(name)
                if sha256(data).hexdigest() == wheel.metadata_sha256:
                    return data
    raise AuditError(f"{wheel.file} has changed under the publish", hint="Build it again.")


def _written(room: Path, data: bytes) -> Path:
    path = room / "data"
    path.write_bytes(data)
    return path


def _put(store: Store, path: str, data: bytes) -> bool:
    """Write a page if it is another one than is there."""
    if store.read(path, len(data)) == data:
        return False
    store.write(path, data)
    return True
