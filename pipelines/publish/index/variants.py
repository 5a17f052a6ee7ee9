"""Creates wheel variants (drafts of PEP 825 and 850), from which an installer chooses by label.

A variant is a plain wheel with another name and metadata: its local version states only torch,
which it requires; CUDA and GPU architectures are properties that the installer compares with the
machine. No installer supports the torch axis of PEP 850 (``abi_dependency``) yet.
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
from pipelines.wheels.checked import CheckedWheel
from pipelines.wheels.metadata import WheelFacts, inspect_wheel
from pipelines.wheels.unpacking import iter_member_chunks

Properties = dict[str, dict[str, list[str]]]

#: The draft with providers, which installers need.
SCHEMA = "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json"
_NAMESPACE = "nvidia"
_PROVIDER = {
    "requires": ["nvidia-variant-provider>=0.0.1"],
    "plugin-api": "nvidia_variant_provider.plugin:NvidiaVariantPlugin",
}
_SIGNATURES = ("RECORD.jws", "RECORD.p7s")


def stated_archs(sass: Iterable[str]) -> list[str]:
    """The architectures that can be stated as properties without claiming too much.

    ``80_real`` means all newer GPUs of that major version, so code for a single GPU (``100a``) is
    left out, except ``90a``, as there is no other GPU of that version. A family (``120f``) fits.
    """
    known = {"90" if arch == "90a" else arch.removesuffix("f") for arch in sass}
    return sorted((arch for arch in known if arch.isdigit()), key=int)


def variant_properties(cuda: str, sass: Iterable[str]) -> Properties:
    """What a machine must have; empty if nothing can be stated about its GPU."""
    archs = stated_archs(sass)
    if not archs or not cuda:
        return {}
    values = [f"{arch}_real" for arch in archs]
    return {_NAMESPACE: {"cuda_version_lower_bound": [cuda], "sm_arch": values}}


def label_of(cuda: str, sass: Iterable[str]) -> str:
    """``cu128_sm80_90``, unique for each set of properties."""
    return f"cu{cuda.replace('.', '')}_sm{'_'.join(stated_archs(sass))}"


def variant_version(version: str, torch: str) -> str:
    """The version of a variant, with only torch in its local version."""
    public = Version(version).public
    return f"{public}+torch{torch}" if torch else public


def variant_json(variants: Mapping[str, Properties]) -> bytes:
    """The contents of ``variant.json`` in a wheel and ``…-variants.json`` of a release."""
    document = {
        "$schema": SCHEMA,
        "default-priorities": {"namespace": [_NAMESPACE]},
        "providers": {_NAMESPACE: _PROVIDER},
        "variants": dict(sorted(variants.items())),
    }
    return json.dumps(document, indent=1).encode() + b"\n"


def json_name(wheel: Wheel) -> str:
    """The name of the file with the properties of a release's labels."""
    name, version = wheel.file.split("-")[:2]
    return f"{name}-{version}-variants.json"


def release_json(wheels: Iterable[Wheel]) -> bytes:
    """That file, for all variants of a release."""
    return variant_json(
        {wheel.name.label: variant_properties(wheel.cuda, wheel.sass) for wheel in wheels}
    )


def make_variant(plain: CheckedWheel, entry: Wheel, folder: Path) -> Path | None:
    """Create the variant of a plain wheel in ``folder``; ``None`` if it has no properties.

    With ``entry.stable`` it does not pin torch, or an installer would downgrade a later one.

    All files except METADATA, RECORD and ``variant.json`` are copied unchanged. Raises
    :class:`AuditError` for a wheel with a signed RECORD, and if the result is invalid.
    """
    if not (expected := variant_properties(entry.cuda, entry.sass)):
        return None
    facts = plain.facts
    label = label_of(entry.cuda, entry.sass)
    version = variant_version(facts.version, entry.torch)
    stem, _, *rest = plain.name.removesuffix(".whl").split("-")
    name = "-".join([stem, version, *rest])
    made = folder / f"{name}-{label}.whl"
    guard = f"torch=={entry.torch}.*" if entry.torch and not entry.stable else ""
    with zipfile.ZipFile(plain.path) as archive, disk_errors(folder):
        document = variant_json({label: expected})
        _pack(archive, made, facts, version=version, guard=guard, document=document)
    _require_valid(made, folder / f"{name}.whl", facts, version)
    return made


def _pack(
    archive: zipfile.ZipFile,
    made: Path,
    facts: WheelFacts,
    *,
    version: str,
    guard: str,
    document: bytes,
) -> None:
    """Write the variant: a new RECORD, and the old files in renamed directories."""
    info = facts.dist_info
    if any(f"{info}/{signature}" in archive.namelist() for signature in _SIGNATURES):
        raise AuditError(
            f"{facts.filename}: its RECORD is signed, so it cannot have variants",
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
                put(was, path, [_rewrite_variant_metadata(archive.read(was), version, guard)])
            else:
                put(was, path, iter_member_chunks(archive, was))
        record = archive.getinfo(f"{info}/RECORD")
        put(record, f"{new}.dist-info/variant.json", [document])
        text = io.StringIO(newline="")
        last = f"{new}.dist-info/RECORD"
        csv.writer(text, lineterminator="\n").writerows([*rows, [last, "", ""]])
        put(record, last, [text.getvalue().encode()])


def _rewrite_variant_metadata(text: bytes, version: str, guard: str) -> bytes:
    """Replace the version and add a requirement; the description is unchanged."""
    lines = f"Version: {version}" + (f"\nRequires-Dist: {guard}" if guard else "")
    head, blank, rest = re.match(rb"(.*?)(\r?\n\r?\n|\Z)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    return re.sub(rb"(?im)^Version:[^\r\n]*", lines.encode(), head, count=1) + blank + rest


def _require_valid(made: Path, as_plain: Path, facts: WheelFacts, version: str) -> None:
    """Inspect it like any wheel, under its name without the label."""
    try:
        made.rename(as_plain)
        result = inspect_wheel(as_plain)
    finally:
        if as_plain.exists():
            as_plain.rename(made)
    meant = WheelName.read(made.name)
    same = result.record.true and result.names_agree and result.tags_agree
    if not same or result.version != version or result.tags != facts.tags or not meant.label:
        raise AuditError(
            f"{made.name}: the variant of {facts.filename} is invalid",
            hint="Publish it with --no-variants, and report this bug.",
        )
