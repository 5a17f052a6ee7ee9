"""What the shared part must know of a suite that does not say it itself.

The modules to import are those that the installed wheel has: its packages and modules at the top,
and its extension modules wherever they are. Of a wheel that others have built it is what lies at
the top: modules within may be for what is not installed here. Where the recipe's ``verify`` says
how the package is loaded, that case alone does it.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import smoke_gpu

if TYPE_CHECKING:
    from smoke_facts import Expected


def _expected() -> Expected:
    path = os.environ.get("SMOKE_EXPECT")
    document: Expected = json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
    return document


def _modules(distribution: str) -> Iterator[str]:
    """Dotted names of what can be imported from an installed distribution."""
    try:
        wheel = importlib.metadata.distribution(distribution)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return  # the test of the metadata says so
    files = [file for file in wheel.files or [] if "__pycache__" not in file.parts]
    packages = {file.parts[:-1] for file in files if file.name == "__init__.py"}
    for file in files:
        stem = file.name.partition(".")[0]
        names = (*file.parts[:-1], stem)
        if file.name == "__init__.py":
            names = file.parts[:-1]
        elif stem == "__main__":
            continue
        if not names or not all(name.isidentifier() for name in names):
            continue
        # Below a package it is that package's to import; below a plain directory nothing does.
        top = not any(names[:count] in packages for count in range(1, len(names)))
        if file.suffix == ".py" and top:
            yield ".".join(names)
        elif file.suffix in (".pyd", ".so"):
            if len(names) > 1 and _expected().get("given"):
                continue
            data = Path(str(wheel.locate_file(file))).read_bytes()
            if f"PyInit_{stem}".encode() in data:  # else no module but a plain library
                yield ".".join(names)


TORCH = bool(_expected().get("torch"))
_VERIFY = bool(_expected().get("verify"))


def __getattr__(name: str) -> tuple[str, ...]:
    """``MODULES``, looked for when it is asked for: extension modules can be large."""
    if name != "MODULES":
        raise AttributeError(name)
    return () if _VERIFY else tuple(dict.fromkeys(_modules(_expected().get("distribution", ""))))


def facts(*, gpu: bool) -> dict[str, str]:  # noqa: ARG001  other suites ask the GPU
    """Asked in a process of its own, after the import; more properties of the report."""
    modules = __getattr__("MODULES")
    if not modules and not _VERIFY:
        raise RuntimeError("the wheel has no module that could be imported")
    return {"imported": " ".join(modules)}


def lost() -> bool:
    """Whether the GPU's context is lost, with which each later case would fail as well."""
    return smoke_gpu.lost()
