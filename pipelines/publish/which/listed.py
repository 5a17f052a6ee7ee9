"""The wheels that an index lists: ``catalogue.json``, read as the untrusted text that it is."""

from __future__ import annotations

import json
import os
import re
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path
from typing import Any

from pipelines.publish.memory import memory_file, record_last_seen, rollback_problem
from pipelines.publish.which.texts import RefusalError, ascii_line, normalize_project, version_key

CATALOGUE_NAME = "catalogue.json"
_MOST_BYTES = 64 << 20
_MOST_WHEELS = 50_000
_MOST_PARTS_OF_ALL = 40 * _MOST_WHEELS
_PATIENCE, _SILENCE = 120.0, 20.0  # seconds for all of it, and for a piece of it
_PIECE = 1 << 18
_ARCHES = r"\d{2,3}[af]?"
_FORBIDDEN = 403
_LOCAL = "http://127.0.0.1:"
_WHEEL = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.]*)-(?P<version>[\w.+!]+)(?:-(?P<build>\d\w*))?"
    r"-(?P<python>[a-z][\w.]*)-(?P<abi>[\w.]+)-(?P<platform>[\w.]+?)(?:-(?P<label>[\w.]+))?\.whl",
    re.ASCII,
)
_TEXTS = {
    "file": r"[\w.+!-]{8,200}",
    "sha256": r"[0-9a-f]{64}",
    "url": r"(https://|http://127\.0\.0\.1:|files/)[\w.~%+!/:@=-]{1,1000}",
    "requires_python": r"[ -~]{0,500}",
    "torch": r"(\d+\.\d+)?",
    "cuda": r"(\d+\.\d+)?",
    "uploaded": r"[\dTZ:-]{20}",
}


@dataclass(frozen=True)
class Row:
    """A wheel of an index, as far as it decides what fits."""

    file: str
    sha256: str
    url: str
    """Where it lies: below the index, or an https address."""
    project: str
    version: str
    tags: tuple[tuple[str, str, str], ...]
    """Python, ABI and platform, of each of its tags."""
    requires_python: str
    torch: str
    cuda: str
    sass: tuple[str, ...]
    ptx: tuple[str, ...]
    stable: bool
    """Whether it is for its torch and every later one."""
    any_cuda: bool
    """Whether it is for a torch of any CUDA."""
    tested: bool
    smoke: str
    uploaded: str


def read_catalogue_rows(data: bytes, where: str = "the index") -> list[Row]:
    """The plain wheels of a catalogue that were not yanked.

    Raises :class:`RefusalError` for one that is damaged, too large or not a catalogue: then none of
    its wheels is offered.
    """
    try:
        return _parse_catalogue_rows(data)
    except (ValueError, TypeError, KeyError, RecursionError, MemoryError) as error:
        start = data[:40].decode("ascii", "replace").lstrip()
        said = (
            f"it begins with {ascii_line(start, 40)!r}"
            if start[:1] not in "{["
            else ascii_line(error, 200)
        )
        raise RefusalError(
            f"{CATALOGUE_NAME} of {ascii_line(where, 200)} is not valid: {said}",
            "Open the address in a browser: it should show the index's front page.",
        ) from None


def _parse_catalogue_rows(data: bytes) -> list[Row]:
    if len(data) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES >> 20} MiB")
    if data.count(b"[") + data.count(b"{") > _MOST_PARTS_OF_ALL:
        raise ValueError("it has too many parts")  # each takes 25 times its bytes
    document = json.loads(data)
    if not isinstance(document, dict) or document.get("schema_version") != 1:
        said = document.get("schema_version") if isinstance(document, dict) else None
        newer = isinstance(said, int) and said > 1
        raise ValueError(
            f"it has schema version {ascii_line(said, 20)}: use the which.py of that index"
            if newer
            else "it does not have schema version 1"
        )
    wheels = document.get("wheels")
    if not isinstance(wheels, list) or len(wheels) > _MOST_WHEELS:
        raise ValueError(f"it has no list of at most {_MOST_WHEELS} wheels")
    rows = [_parse_catalogue_row(one) for one in wheels]
    names = [row.file for row, _ in rows]
    if len({*names}) != len(names):
        raise ValueError("two wheels have the same name")
    return [row for row, plain in rows if plain]


def _parse_catalogue_row(entry: Any) -> tuple[Row, bool]:
    """A wheel, and whether it is a plain one that may be taken."""
    text = {key: _require_matching_text(entry, key, form) for key, form in _TEXTS.items()}
    name = _WHEEL.fullmatch(text["file"])
    if name is None:
        raise ValueError(f"{text['file']} is not the name of a wheel")
    version_key(name["version"])
    if ".." in text["url"] or urllib.parse.unquote(text["url"]).rpartition("/")[2] != text["file"]:
        raise ValueError(f"{text['file']} has an address with another name")
    smoke = entry["smoke"]
    verdict = _require_matching_text(smoke, "verdict", "passed|untested")
    gpus = ", ".join(ascii_line(one, 60) for one in smoke.get("gpus", [])[:4])
    row = Row(
        **text,
        sass=tuple(_parse_arch_list(entry, "sass")),
        ptx=tuple(_parse_arch_list(entry, "ptx")),
        project=normalize_project(name["name"]),
        version=name["version"],
        tags=tuple(
            (python, abi, platform)
            for python in name["python"].split(".")
            for abi in name["abi"].split(".")
            for platform in name["platform"].split(".")
        ),
        stable=entry.get("stable", False) is True,
        any_cuda=entry.get("any_cuda", False) is True,
        tested=verdict == "passed",
        smoke=f"tested on {gpus}" if verdict == "passed" else "UNTESTED on any GPU",
    )
    return row, not name["label"] and entry.get("yanked") is None


def _require_matching_text(entry: Any, key: str, form: str) -> str:
    value = entry[key] if key != "requires_python" else entry.get(key, "")
    if not isinstance(value, str) or not re.fullmatch(form, value, re.ASCII):
        raise ValueError(f"{key}: {ascii_line(value, 80)}")
    return value


def _parse_arch_list(entry: Any, key: str) -> list[str]:
    values = entry.get(key, [])
    if not isinstance(values, list) or len(values) > 64:  # noqa: PLR2004
        raise ValueError(f"{key}: {ascii_line(values, 80)}")
    return [_require_matching_text({key: one}, key, _ARCHES) for one in values]


def fetch_rows(index: str, catalogue: str = "") -> tuple[list[Row], str]:
    """The wheels of an index, a directory or an address, and where its files lie.

    ``catalogue`` is a file that somebody has saved, of the index at an address. Raises
    :class:`RefusalError` where it cannot be read whole, whatever a server answers.
    """
    base = _normalize_index_url(index) if "://" in index else ""
    if base and not catalogue:
        data = _download_bounded(base + CATALOGUE_NAME)
        return _latest_rows(data, base, base), base
    folder = Path(os.path.expanduser(index)).absolute()
    file = Path(os.path.expanduser(catalogue)) if catalogue else folder / CATALOGUE_NAME
    try:
        with file.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise RefusalError(
            f"{ascii_line(file.parent, 300)}: {ascii_line(file.name, 100)} cannot be read: "
            f"{ascii_line(error.strerror, 100)}",
            "Name the directory or the https address of an index.",
        ) from None
    base = base or folder.as_uri() + "/"
    return _latest_rows(data, base, str(file.parent)), base


def _latest_rows(data: bytes, base: str, where: str) -> list[Row]:
    """The wheels, unless a later catalogue of the index at ``base`` was seen here before."""
    rows, document = read_catalogue_rows(data, where), json.loads(data)
    if base.startswith(_LOCAL):  # a port of this machine, of another program each time
        return rows
    generation = document.get("generation")
    serial, digest = generation if isinstance(generation, int) else 0, sha256(data).hexdigest()
    yanked = [one["file"] for one in document["wheels"] if one.get("yanked") is not None]
    if why := rollback_problem(base, serial, digest, yanked):
        raise RefusalError(
            f"{CATALOGUE_NAME} of {ascii_line(where, 200)}: {ascii_line(why, 300)}",
            f"It may be an old copy. If its owner says that it is right, remove {memory_file()}.",
        )
    try:
        record_last_seen(base, serial, digest, yanked)
    except OSError as error:
        said = f"older copies of this index will not be noticed: {ascii_line(error, 200)}"
        print(f"which: {said}", file=sys.stderr)
    return rows


def _normalize_index_url(index: str) -> str:
    """The address of an index, ending with a slash."""
    try:
        parts = urllib.parse.urlsplit(index)
        _ = parts.port  # or none that can be
    except ValueError as error:
        raise RefusalError(
            f"the address of the index is invalid: {ascii_line(error, 100)}"
        ) from None
    if "@" in parts.netloc:  # it would stand in the command that people pass on
        raise RefusalError(
            "the address of the index contains a user name or password",
            "Remove it: this program does not support signing in.",
        )
    if not index.startswith(("https://", _LOCAL)) or not parts.hostname:
        raise RefusalError(f"{ascii_line(index, 200)}: expected an https address or a directory")
    path = parts.path
    if path.endswith((".html", ".json", ".py")):
        path = path.rpartition("/")[0]
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc, path.rstrip("/") + "/", "", ""))


class _Onward(urllib.request.HTTPRedirectHandler):
    """Follows to https alone: who sits on a way without it could lead on to anywhere."""

    def redirect_request(  # noqa: PLR0917 - as it is there
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        local = req.full_url.startswith(_LOCAL) and newurl.startswith(_LOCAL)
        if not newurl.startswith("https://") and not local:
            raise RefusalError(f"{ascii_line(req.full_url)} redirects to an address without https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _download_bounded(url: str) -> bytes:
    """What a server answers, bounded in bytes and in time."""
    until = time.monotonic() + _PATIENCE
    data = bytearray()
    shown = ascii_line(url)
    saved = f"Save {shown} (with curl.exe -O), then add --index {shown.rpartition('/')[0]}/"
    saved += f" --catalogue {CATALOGUE_NAME}"
    try:
        # Python 3.13 refuses what pip takes: https://github.com/python/cpython/issues/138193
        context = ssl.create_default_context()
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        secure = urllib.request.HTTPSHandler(context=context)
        opener = urllib.request.build_opener(_Onward, secure)
        # That of urllib is refused by fronts that check browsers (Cloudflare's error 1010).
        opener.addheaders = [("User-Agent", "which.py")]
        with opener.open(url, timeout=_SILENCE) as answer:
            while piece := answer.read1(_PIECE):
                data += piece
                if len(data) > _MOST_BYTES:
                    raise RefusalError(
                        f"{ascii_line(url)} has more than {_MOST_BYTES >> 20} MiB: not an index"
                    )
                if time.monotonic() > until:
                    raise RefusalError(f"{ascii_line(url)} takes longer than {_PATIENCE:.0f} s")
            length = answer.headers.get("Content-Length")
            if length is not None and length.isdigit() and int(length) != len(data):
                raise RefusalError(
                    f"{ascii_line(url)}: got {len(data)} of {length} bytes: try again"
                )
    except urllib.error.HTTPError as error:
        hint = "Use the address of the index's front page. If it is right, try again later."
        if error.code == _FORBIDDEN:
            hint = f"A proxy in front of it may reject programs. {saved}"
        raise RefusalError(f"{ascii_line(url)}: HTTP status {error.code}", hint) from None
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        # Windows fetches authorities when it first needs them; Python has those that are there.
        distrusted = isinstance(reason, ssl.SSLCertVerificationError)
        hint = saved if distrusted else "Check the network connection."
        raise RefusalError(
            f"{ascii_line(url)} cannot be read: {ascii_line(reason, 200)}", hint
        ) from None
    return bytes(data)


def place_of(row: Row, base: str) -> str:
    """The address of a wheel of the index at ``base``."""
    quoted = urllib.parse.quote(row.url, safe="/:@!=~%")
    return quoted if "://" in quoted else base + quoted
