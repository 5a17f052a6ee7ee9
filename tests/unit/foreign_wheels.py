"""Wheels as others make them, and an index that has them."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

from loopback import listening


def foreign(
    folder: Path,
    name: str = "other",
    version: str = "1.0",
    tag: str = "py3-none-any",
    *,
    requires: Sequence[str] = (),
    files: Mapping[str, bytes] | None = None,
    python: str = "",
    classifiers: Sequence[str] = (),
) -> Path:
    """A whole wheel that requires these; without ``files`` a package of its name.

    ``python``: its Requires-Python, which many leave out.
    """
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {text}\n" for text in requires)
    needs += f"Requires-Python: {python}\n" if python else ""
    needs += "".join(f"Classifier: {text}\n" for text in classifiers)
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
    every = {
        **({f"{name}/__init__.py": b"VALUE = 1\n"} if files is None else files),
        f"{info}/METADATA": head.encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(),
    }
    rows = "".join(f"{path},sha256={_digest(data)},{len(data)}\n" for path, data in every.items())
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in every.items():
            archive.writestr(member, data)
        archive.writestr(f"{info}/RECORD", f"{rows}{info}/RECORD,,\n")
    return path


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


@contextmanager
def index(root: Path, yanked: Mapping[str, str] | None = None) -> Iterator[str]:
    """A simple index of the files in ``root/files`` on this machine; its URL."""
    for path in sorted((root / "files").iterdir()):
        name = path.name.split("-")[0].replace("_", "-").lower()
        page = root / "simple" / name / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        why = (yanked or {}).get(path.name)
        more = f' data-yanked="{why}"' if why else ""
        link = f'<a href="/files/{path.name}#sha256={digest}"{more}>{path.name}</a><br>\n'
        page.write_text((page.read_text() if page.exists() else "") + link)
    with listening(SimpleHTTPRequestHandler, directory=root) as address:
        yield f"{address}/simple/"
