"""Microsoft's manifests: what Visual Studio's channel has, read into pins.

The channel names a manifest of packages, and that each file of a package with its sha256. What the
channel has as the manifest's own sha256 is never right, says https://github.com/Jake-Shadle/xwin in
src/manifest.rs: what comes over TLS is believed once, as with any tool, and its pins are committed.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pipelines.core.errors import LockError
from pipelines.core.files import sha256_of
from pipelines.core.hosttext import line
from pipelines.core.model import explain
from pipelines.hosts.sandbox.msvc.pins import Packages, Payload, Pins
from pipelines.toolchain.lock import Cache
from pipelines.toolchain.sources import Source, download

_LIMIT = 256 << 20  # bytes; the manifest has about 20 MB
_TEXT = 200
_LANGUAGES = ("neutral", "en-us")
_HINT = "Microsoft's manifests have changed: packages.yaml says what is looked for."


def ask(cache: Cache, wanted: Packages) -> Pins:
    """The pins of ``wanted``; the channel's manifest is taken from the cache or fetched.

    Raises :class:`LockError` for what is not Visual Studio 2022's, for a package or a file that
    Microsoft does not have (any more), and for what cannot be fetched.
    """
    channel = _read(cache.fetch(wanted.channel))
    info = _table(channel, "info", "the channel")
    if info.get("productLineVersion") != wanted.line:
        raise LockError(
            f"the channel is of Visual Studio {line(str(info.get('productLineVersion')), _TEXT)}, "
            f"not {wanted.line}: CUDA 13.0 knows no newer MSVC",
            hint="See vs-channel-2022 in toolchain.yaml.",
        )
    items = list(_rows(channel, "channelItems", "the channel"))
    with tempfile.TemporaryDirectory(prefix="msvc-") as scratch:
        manifest = Path(scratch, "VisualStudio.vsman")
        _download(_manifest_url(items), manifest)
        packages = list(_rows(_read(manifest), "packages", "the manifest"))
        sha256 = sha256_of(manifest)
    found: list[Payload] = []
    for name in wanted.packages:
        found += _payloads(packages, name)
    found += _of_sdk(packages, wanted)
    try:
        return Pins(
            version=1,
            licence=_licence(items, wanted.product),
            channel=line(str(info.get("productDisplayVersion", "")), _TEXT),
            manifest=sha256,
            toolset=wanted.toolset,
            sdk=wanted.sdk.version,
            payloads=tuple(sorted(found, key=lambda one: (one.package, one.file))),
        )
    except ValidationError as error:
        raise LockError(explain(Path("the channel"), error, Pins), hint=_HINT) from None


def _download(url: str, target: Path) -> None:
    try:
        download(Source(file=target.name, url=url, size=_LIMIT), target, lambda *_: None)
    except (OSError, ValidationError) as error:
        raise LockError(
            f"{line(url, _TEXT)} could not be fetched: {line(str(error), _TEXT)}",
            hint="On a machine that reaches Microsoft: invoke lock --only vs-channel-2022,msvc",
        ) from error


def _read(path: Path) -> Mapping[str, Any]:
    if path.stat().st_size > _LIMIT:
        raise LockError(f"{path.name} has more than {_LIMIT >> 20} MiB", hint=_HINT)
    try:
        told = json.loads(path.read_text("utf-8-sig"))
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise LockError(f"{path.name} is no manifest: it is not JSON's object", hint=_HINT)
    return told


def _table(told: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    found = told.get(key)
    if not isinstance(found, dict):
        raise LockError(f"{where} has no {key}", hint=_HINT)
    return found


def _rows(told: Mapping[str, Any], key: str, where: str) -> Iterator[Mapping[str, Any]]:
    found = told.get(key)
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise LockError(f"{where} has no {key}", hint=_HINT)
    yield from found


def _manifest_url(items: list[Mapping[str, Any]]) -> str:
    for item in items:
        if item.get("type") == "Manifest":
            for payload in _rows(item, "payloads", "the channel's manifest"):
                return str(payload.get("url", ""))
    raise LockError("the channel names no manifest", hint=_HINT)


def _licence(items: list[Mapping[str, Any]], product: str) -> str:
    for item in items:
        if item.get("id") == product:
            for text in _rows(item, "localizedResources", product):
                if str(text.get("language", "")).lower() == "en-us" and text.get("license"):
                    return str(text["license"])
    raise LockError(f"the channel names no licence of {product}", hint=_HINT)


def _payloads(packages: list[Mapping[str, Any]], name: str) -> list[Payload]:
    """The files of a package; of several languages those of English."""
    for package in packages:
        language = str(package.get("language", "neutral")).lower()
        if str(package.get("id", "")).lower() != name.lower() or language not in _LANGUAGES:
            continue
        if found := [_payload(name, row) for row in _rows(package, "payloads", name)]:
            return found
    raise LockError(f"Microsoft's manifest has no file of {name}", hint=_HINT)


def _payload(package: str, row: Mapping[str, Any]) -> Payload:
    file = str(row.get("fileName", "")).replace("\\", "/").rpartition("/")[2]
    said = {"url": row.get("url"), "sha256": str(row.get("sha256", "")).lower()}
    try:
        made = {"package": package, "file": file, "size": row.get("size"), **said}
        return Payload.model_validate(made)
    except ValidationError as error:
        raise LockError(explain(Path(package), error, Payload), hint=_HINT) from None


def _of_sdk(packages: list[Mapping[str, Any]], wanted: Packages) -> list[Payload]:
    """The installers that are wanted, and all cabinets: which one needs which, it says itself."""
    found = _payloads(packages, wanted.sdk.package)
    here = {one.file for one in found}
    if missing := [name for name in wanted.sdk.files if name not in here]:
        raise LockError(
            f"{wanted.sdk.package} has no {', '.join(missing)}",
            hint=_HINT,
        )
    return [p for p in found if p.file in wanted.sdk.files or p.file.lower().endswith(".cab")]
