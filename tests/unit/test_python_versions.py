"""What is newer than the oldest Python that the project says it runs on.

mypy and vermin (``make check``) know in which minor version a name came. What came with a patch
release, they take for older: ``tarfile``'s filters are in 3.11.4, and Debian 12 has 3.11.2.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OLDEST = "3.11"

#: Names in the standard library that came with a patch release of Python 3.11, and with which:
#: "Changed in version 3.11.N" in https://docs.python.org/3.11/library, and a comparison of every
#: public name and parameter of 3.11.2 with those of 3.11.7.
NAMES = {
    **dict.fromkeys(
        (
            *("data_filter", "tar_filter", "fully_trusted_filter", "extraction_filter"),
            *("FilterError", "AbsolutePathError", "AbsoluteLinkError", "SpecialFileError"),
            *("OutsideDestinationError", "LinkOutsideDestinationError"),
        ),
        "3.11.4",
    ),
    "SetReparseDeferralEnabled": "3.11.9",
    "GetReparseDeferralEnabled": "3.11.9",
    "LinkFallbackError": "3.11.13",
    "ALLOW_MISSING": "3.11.13",
}
#: Functions and their parameters.
PARAMETERS = {
    ("extract", "filter"): "3.11.4",
    ("extractall", "filter"): "3.11.4",
    ("unpack_archive", "filter"): "3.11.4",
    ("getaddresses", "strict"): "3.11.10",
    ("parseaddr", "strict"): "3.11.10",
}


def newer(text: str) -> Iterator[str]:
    """What a module uses that is not in the first release of :data:`OLDEST`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            for keyword in node.keywords:
                if release := PARAMETERS.get((name, keyword.arg or "**")):
                    yield f"line {node.lineno}: {name}({keyword.arg}=) came with {release}"
                if keyword.arg is None and name in {name for name, _ in PARAMETERS}:
                    yield f"line {node.lineno}: {name}(**): which parameters cannot be seen"
        names = [node.attr] if isinstance(node, ast.Attribute) else []
        if isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
        for name in names:
            if release := NAMES.get(name):
                yield f"line {getattr(node, 'lineno', 0)}: {name} came with {release}"


@pytest.mark.slow
@pytest.mark.parametrize("place", ["pipelines", "tests", "scripts", ".github"])
def test_nothing_is_newer_than_the_oldest_python(place: str) -> None:
    paths = [*(ROOT / place).rglob("*.py")]
    assert paths
    found = {str(path): [*newer(path.read_text("utf-8"))] for path in paths}
    assert not {path: lines for path, lines in found.items() if lines}


@pytest.mark.parametrize(
    "text",
    [
        "archive.extract(member, into, filter='data')",
        "archive.extractall(filter=f)",
        "archive.extractall(place, **FILTER)",
        "shutil.unpack_archive(a, b, filter='data')",
        "archive.extraction_filter = f",
        "from tarfile import data_filter",
        "tarfile.tar_filter(member, place)",
        "email.utils.parseaddr(text, strict=True)",
        "os.path.realpath(p, strict=os.path.ALLOW_MISSING)",
    ],
)
def test_each_newer_name_is_found(text: str) -> None:
    assert [*newer(text)]


@pytest.mark.parametrize("text", ["archive.extractall(place)", "filter(None, x)", "read(**words)"])
def test_older_names_are_not(text: str) -> None:
    assert not [*newer(text)]


def test_the_oldest_python_is_the_same_everywhere() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert settings["project"]["requires-python"] == f">={OLDEST}"
    assert settings["tool"]["mypy"]["python_version"] == OLDEST
    assert settings["tool"]["ruff"]["target-version"] == f"py{OLDEST.replace('.', '')}"
    assert f"targets = {OLDEST}-" in (ROOT / "vermin.ini").read_text("utf-8")
