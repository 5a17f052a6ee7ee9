"""Microsoft's manifests: reads Visual Studio's channel into pins.

The channel names a manifest of packages, which has the sha256 of each file of a package. The
sha256 that the channel has for the manifest itself is never right, according to
https://github.com/Jake-Shadle/xwin (src/manifest.rs): it is trusted once over TLS, like any tool,
and its pins are committed.
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

_LIMIT = 256 << 20  # bytes; the manifest is about 20 MB
_TEXT = 200
_LANGUAGES = ("neutral", "en-us")
_HINT = "Microsoft's manifests have changed: packages.yaml lists the expected entries."


def ask(cache: Cache, expected: Packages) -> Pins:
    """The pins of ``expected``; the channel's manifest is taken from the cache or fetched.

    Raises :class:`LockError` for anything but Visual Studio 2022, for a package or file that
    Microsoft does not offer (any more), and for a failed download.
    """
    channel = _read(cache.fetch(expected.channel))
    info = _table(channel, "info", "the channel")
    if info.get("productLineVersion") != expected.line:
        raise LockError(
            f"the channel is for Visual Studio {line(str(info.get('productLineVersion')), _TEXT)}, "
            f"not {expected.line}: CUDA 13.0 supports no newer MSVC",
            hint="See vs-channel-2022 in toolchain.yaml.",
        )
    items = list(_rows(channel, "channelItems", "the channel"))
    with tempfile.TemporaryDirectory(prefix="msvc-") as scratch:
        manifest = Path(scratch, "VisualStudio.vsman")
        _download(_manifest_url(items), manifest)
        packages = list(_rows(_read(manifest), "packages", "the manifest"))
        sha256 = sha256_of(manifest)
    payloads: list[Payload] = []
    for name in expected.packages:
        payloads += _payloads(packages, name)
    payloads += _of_sdk(packages, expected)
    try:
        return Pins(
            version=1,
            licence=_licence(items, expected.product),
            channel=line(str(info.get("productDisplayVersion", "")), _TEXT),
            manifest=sha256,
            toolset=expected.toolset,
            sdk=expected.sdk.version,
            payloads=tuple(sorted(payloads, key=lambda item: (item.package, item.file))),
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
        raise LockError(f"{path.name} is larger than {_LIMIT >> 20} MiB", hint=_HINT)
    try:
        data = json.loads(path.read_text("utf-8-sig"))
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise LockError(f"{path.name} is not a manifest: not a JSON object", hint=_HINT)
    return data


def _table(data: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    value = data.get(key)
    if not isinstance(value, dict):
        raise LockError(f"{where} has no {key}", hint=_HINT)
    return value


def _rows(data: Mapping[str, Any], key: str, where: str) -> Iterator[Mapping[str, Any]]:
    value = data.get(key)
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise LockError(f"{where} has no {key}", hint=_HINT)
    yield from value


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
    raise LockError(f"the channel names no license for {product}", hint=_HINT)


def _payloads(packages: list[Mapping[str, Any]], name: str) -> list[Payload]:
    """The files of a package; of several languages the English ones."""
    for package in packages:
        language = str(package.get("language", "neutral")).lower()
        if str(package.get("id", "")).lower() != name.lower() or language not in _LANGUAGES:
            continue
        if payloads := [_payload(name, row) for row in _rows(package, "payloads", name)]:
            return payloads
    raise LockError(f"Microsoft's manifest has no file for {name}", hint=_HINT)


def _payload(package: str, row: Mapping[str, Any]) -> Payload:
    file = str(row.get("fileName", "")).replace("\\", "/").rpartition("/")[2]
    values = {"url": row.get("url"), "sha256": str(row.get("sha256", "")).lower()}
    try:
        made = {"package": package, "file": file, "size": row.get("size"), **values}
        return Payload.model_validate(made)
    except ValidationError as error:
        raise LockError(explain(Path(package), error, Payload), hint=_HINT) from None


def _of_sdk(packages: list[Mapping[str, Any]], expected: Packages) -> list[Payload]:
    """The required installers, and all cabinets: each installer lists the ones it needs."""
    payloads = _payloads(packages, expected.sdk.package)
    here = {payload.file for payload in payloads}
    if missing := [name for name in expected.sdk.files if name not in here]:
        raise LockError(
            f"{expected.sdk.package} has no {', '.join(missing)}",
            hint=_HINT,
        )
    return [p for p in payloads if p.file in expected.sdk.files or p.file.lower().endswith(".cab")]
