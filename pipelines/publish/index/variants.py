"""Wheel variants (drafts of PEP 825 and 850): of wheels with one label, an installer takes one.

A variant is a plain wheel with another name and other metadata: its local version has torch alone,
which it then requires, and CUDA and GPU architectures are properties that the installer compares
with the machine. The torch axis of PEP 850 (``abi_dependency``) is in no installer yet.
What uv compares: https://github.com/wheelnext/nvidia-variant-provider
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from packaging.version import Version

from pipelines.core.errors import AuditError
from pipelines.core.files import disk_errors
from pipelines.publish.index.catalogue import Wheel, WheelName
from pipelines.wheels.metadata import WheelFacts, inspect
from pipelines.wheels.unpacking import chunks

Properties = dict[str, dict[str, list[str]]]

#: The draft with providers, without which no installer asks one.
SCHEMA = "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json"
_NAMESPACE = "nvidia"
_PROVIDER = {
    "requires": ["nvidia-variant-provider>=0.0.1"],
    "plugin-api": "nvidia_variant_provider.plugin:NvidiaVariantPlugin",
}
_SIGNATURES = ("RECORD.jws", "RECORD.p7s")


def said_archs(sass: Iterable[str]) -> list[str]:
    """What of a wheel's machine code the provider's words can say without saying too much.

    It takes ``80_real`` for all newer GPUs of that major version: so code for one GPU alone
    (``100a``) is left out, except ``90a``, for there is no other GPU of that version. Of a family
    (``120f``) it is true.
    """
    known = {"90" if arch == "90a" else arch.removesuffix("f") for arch in sass}
    return sorted((arch for arch in known if arch.isdigit()), key=int)


def properties(cuda: str, sass: Iterable[str]) -> Properties:
    """What a machine must have; empty where nothing can be said of its GPU."""
    archs = said_archs(sass)
    if not archs or not cuda:
        return {}
    values = [f"{arch}_real" for arch in archs]
    return {_NAMESPACE: {"cuda_version_lower_bound": [cuda], "sm_arch": values}}


def label_of(cuda: str, sass: Iterable[str]) -> str:
    """``cu128_sm80_90``: the same for the same properties, another for others."""
    return f"cu{cuda.replace('.', '')}_sm{'_'.join(said_archs(sass))}"


def version_of(version: str, torch: str) -> str:
    """Of the variant of a plain wheel: torch alone is in its local version."""
    public = Version(version).public
    return f"{public}+torch{torch}" if torch else public


def variant_json(variants: Mapping[str, Properties]) -> bytes:
    """The file of that name in a wheel, and ``…-variants.json`` of a release."""
    told = {
        "$schema": SCHEMA,
        "default-priorities": {"namespace": [_NAMESPACE]},
        "providers": {_NAMESPACE: _PROVIDER},
        "variants": dict(sorted(variants.items())),
    }
    return json.dumps(told, indent=1).encode() + b"\n"


def json_name(wheel: Wheel) -> str:
    """Of the file that tells the properties of a release's labels."""
    name, version = wheel.file.split("-")[:2]
    return f"{name}-{version}-variants.json"


def release_json(wheels: Iterable[Wheel]) -> bytes:
    """That file, for all variants of a release."""
    return variant_json({one.name.label: properties(one.cuda, one.sass) for one in wheels})


def make_variant(
    plain: Path,
    folder: Path,
    *,
    facts: WheelFacts,
    torch: str,
    cuda: str,
    sass: Iterable[str],
    stable: bool = False,
) -> Path | None:
    """The variant of a plain wheel, in ``folder``; ``None`` where it can have no properties.

    A ``stable`` one requires no release of torch: an installer would replace a later one by it.

    Every file but METADATA, RECORD and ``variant.json`` has the bytes that it has there. Raises
    :class:`AuditError` for a wheel whose RECORD is signed, and when the result is not what was
    meant.
    """
    wanted = properties(cuda, archs := tuple(sass))
    if not wanted:
        return None
    label, version = label_of(cuda, archs), version_of(facts.version, torch)
    stem, _, *rest = plain.name.removesuffix(".whl").split("-")
    name = "-".join([stem, version, *rest])
    made = folder / f"{name}-{label}.whl"
    guard = f"torch=={torch}.*" if torch and not stable else ""
    with zipfile.ZipFile(plain) as archive, disk_errors(folder):
        told = variant_json({label: wanted})
        _pack(archive, made, facts, version=version, guard=guard, told=told)
    _require_whole(made, folder / f"{name}.whl", facts, version)
    return made


def _pack(
    archive: zipfile.ZipFile,
    made: Path,
    facts: WheelFacts,
    *,
    version: str,
    guard: str,
    told: bytes,
) -> None:
    """Write the variant: one RECORD, the old files under the new names of their directories."""
    info = facts.dist_info
    if any(f"{info}/{one}" in archive.namelist() for one in _SIGNATURES):
        raise AuditError(
            f"{facts.filename}: its RECORD is signed, and a variant has another one",
            hint="Publish it with --no-variants.",
        )
    old = info.removesuffix(".dist-info")
    new = f"{old.rpartition('-')[0]}-{version}"
    rows: list[list[str]] = []
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as into:

        def put(was: zipfile.ZipInfo, path: str, pieces: Iterable[bytes]) -> None:
            hashed, size = hashlib.sha256(), 0
            about = zipfile.ZipInfo(path, was.date_time)
            about.external_attr, about.create_system = was.external_attr, was.create_system
            about.compress_type, about.file_size = zipfile.ZIP_DEFLATED, was.file_size
            with into.open(about, "w") as stream:
                for piece in pieces:
                    hashed.update(piece)
                    size += len(piece)
                    stream.write(piece)
            digest = base64.urlsafe_b64encode(hashed.digest()).rstrip(b"=").decode()
            rows.append([path, f"sha256={digest}", str(size)])

        for was in archive.infolist():
            if was.is_dir() or was.filename == f"{info}/RECORD":
                continue
            top, _, inside = was.filename.partition("/")
            path = was.filename
            if top in (info, f"{old}.data"):
                path = f"{new}{top.removeprefix(old)}/{inside}"
            if was.filename == f"{info}/METADATA":
                put(was, path, [_metadata(archive.read(was), version, guard)])
            else:
                put(was, path, chunks(archive, was))
        record = archive.getinfo(f"{info}/RECORD")
        put(record, f"{new}.dist-info/variant.json", [told])
        text = io.StringIO(newline="")
        last = f"{new}.dist-info/RECORD"
        csv.writer(text, lineterminator="\n").writerows([*rows, [last, "", ""]])
        put(record, last, [text.getvalue().encode()])


def _metadata(text: bytes, version: str, guard: str) -> bytes:
    """Another version, and what it requires besides; the description stays as it is."""
    said = f"Version: {version}" + (f"\nRequires-Dist: {guard}" if guard else "")
    head, blank, rest = re.match(rb"(.*?)(\r?\n\r?\n|\Z)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    return re.sub(rb"(?im)^Version:[^\r\n]*", said.encode(), head, count=1) + blank + rest


def _require_whole(made: Path, as_plain: Path, facts: WheelFacts, version: str) -> None:
    """Look into it as into any wheel, by the name that it has without its label."""
    try:
        made.rename(as_plain)
        found = inspect(as_plain)
    finally:
        if as_plain.exists():
            as_plain.rename(made)
    meant = WheelName.read(made.name)
    same = found.record.true and found.names_agree and found.tags_agree
    if not same or found.version != version or found.tags != facts.tags or not meant.label:
        raise AuditError(
            f"{made.name}: the variant that was made of {facts.filename} is not whole",
            hint="Publish it with --no-variants, and tell us.",
        )
