"""What is out: recorded pages of PyPI, and pages that are made in the form of PyTorch's index."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pipelines.recipe.load import load_versions
from pipelines.recipe.origin import GitSource
from pipelines.toolchain.lock import load_lock

DAY = Path(__file__).parent / "recorded/2026-11-23"
PEP691 = "application/vnd.pypi.simple.v1+json"
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
#: Releases, their CUDA and Pythons: of 2.15 the CUDA is a guess, the Pythons are PyPI's.
Out = Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]
OUT: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "2.8.0": (("12.6", "12.8", "12.9"), PYTHONS[:4]),
    "2.10.0": (("12.6", "12.8", "13.0"), PYTHONS),
    "2.11.0": (("12.6", "12.8", "13.0"), PYTHONS),
    "2.12.1": (("12.6", "13.0", "13.2"), PYTHONS),
    "2.13.0": (("12.6", "13.0", "13.2"), PYTHONS),
    "2.14.1": (("12.6", "13.0", "13.2"), PYTHONS),
    "2.15.0": (("12.6", "13.0", "13.2"), ("3.11", "3.12", "3.13", "3.14", "3.15")),
}
NEXT: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "2.16.0": (("13.0", "13.2"), ("3.12", "3.13", "3.14", "3.15"))
}


def recorded(project: str) -> dict[str, Any]:
    """PyPI's page of a project, as it was."""
    told: dict[str, Any] = json.loads((DAY / f"{project}.json").read_text())
    return told


def with_release(page: dict[str, Any], version: str, pythons: Iterable[str]) -> dict[str, Any]:
    """The same page a day later: with another release of torch for Windows, without CUDA."""
    files = [*page["files"]]
    for python in pythons:
        tag = f"cp{python.replace('.', '')}"
        name = f"torch-{version}-{tag}-{tag}-win_amd64.whl"
        files.append(
            {
                "filename": name,
                "hashes": {"sha256": hashlib.sha256(name.encode()).hexdigest()},
                "url": f"https://files.example.org/packages/aa/bb/{name}",
                "yanked": False,
            }
        )
    return page | {"files": files, "versions": [*page["versions"], version]}


def names(out: Out, platform: str = "win_amd64") -> Iterator[tuple[str, str]]:
    """Folder and file name of every wheel of torch with CUDA, and one without for each release."""
    for version, (cudas, pythons) in out.items():
        tag = f"cp{pythons[-1].replace('.', '')}"
        yield "cpu", f"torch-{version}+cpu-{tag}-{tag}-{platform}.whl"
        for cuda in cudas:
            for python in pythons:
                folder, tag = f"cu{cuda.replace('.', '')}", f"cp{python.replace('.', '')}"
                yield folder, f"torch-{version}+{folder}-{tag}-{tag}-{platform}.whl"
                if python == "3.14":
                    yield folder, f"torch-{version}+{folder}-{tag}-{tag}t-{platform}.whl"


def builds(wheels: Iterable[tuple[str, str]], *, more: str = "") -> str:
    """PyTorch's page of torch: it lists these, and all that the lock has, which with its sha256."""
    tools = [tool for tool in load_lock().tools.values() if tool.name == "torch"]
    pins = {tool.file: tool.sha256 for tool in tools}
    wheels = [*wheels, *((f"cu{str(tool.cuda).replace('.', '')}", tool.file) for tool in tools)]
    rows = ["<!DOCTYPE html>", "<html>", "  <body>", "    <h1>Links for torch</h1>"]
    for folder, name in sorted({*wheels}):
        sha256 = pins.get(name) or hashlib.sha256(name.encode()).hexdigest()
        where = f"/whl/{folder}/{quote(name)}#sha256={sha256}"
        told = f'data-dist-info-metadata="sha256={sha256}"'
        rows.append(f'    <a href="{where}" {told}>{name}</a><br/>')
    return "\n".join([*rows, more, "  </body>", "</html>", "<!--TIMESTAMP 1795422000-->"])


def sdist(top: str, files: Mapping[str, str]) -> bytes:
    """A source distribution with these files below its one directory."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return made.getvalue()


def standalone(releases: Mapping[str, Iterable[str]]) -> str:
    """Releases of python-build-standalone (date -> Pythons) as pbs-installer lists them."""
    where = "https://github.com/astral-sh/python-build-standalone/releases/download"
    return json.dumps(
        [
            f"{where}/{date}/cpython-{python.rstrip('t')}.7%2B{date}-{platform}"
            f"-{'freethreaded-' * python.endswith('t')}install_only_stripped.tar.gz"
            for date, pythons in releases.items()
            for python in pythons
            for platform in ("x86_64-pc-windows-msvc", "x86_64-unknown-linux-gnu")
        ]
    )


def refs(head: str, tags: dict[str, str]) -> str:
    """What git's server lists: https://git-scm.com/docs/gitprotocol-http"""

    def packet(text: str) -> str:
        return f"{len(text) + 4:04x}{text}"

    first = packet(f"{head} HEAD\0multi_ack thin-pack symref=HEAD:refs/heads/main\n")
    rest = [packet(f"{head} refs/heads/main\n")]
    rest += [packet(f"{commit} refs/tags/{name}\n") for name, commit in tags.items()]
    return packet("# service=git-upload-pack\n") + "0000" + first + "".join(rest) + "0000"


def commit_of(recipe: str, version: str) -> str:
    """That the recipe has of a version from git."""
    source = load_versions(recipe)[version].source
    assert isinstance(source, GitSource)
    return source.commit
