"""Reads the build settings in ``pyproject.toml`` (PEP 518, 621)."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pipelines.core.errors import ConfigError
from pipelines.scaffold.knowledge import known
from pipelines.scaffold.project import LIBRARIES, Backend, FileFacts

_LONG = 100  # characters: longer text is the license itself
#: Keys that may be dynamic -> their field.
_DYNAMIC = {
    "version": "version",
    "dependencies": "requires",
    "requires-python": "requires_python",
    "license": "license",
}


def backend_of(named: str) -> Backend:
    """The known back end; setuptools if none is named."""
    if not named:
        return "setuptools"
    return known().backends.get(named.partition(":")[0].partition(".")[0], "other")


def read_pyproject(path: Path) -> FileFacts:
    """Read the file; :class:`ConfigError` with the line if it is not valid TOML."""
    try:
        text = tomllib.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:  # invalid bytes, syntax or depth
        raise ConfigError(
            f"{path.name}: invalid TOML: {str(error)[:200]}", hint="Fix it. Nothing was written."
        ) from None
    system, project = _table(text, "build-system"), _table(text, "project")
    wants = _texts(system.get("requires"))
    dynamic = [key for key in _texts(project.get("dynamic")) if key in _DYNAMIC]
    tool = _table(text, "tool")
    build = _table(tool, "scikit-build")
    wheel = _table(build, "wheel")
    packages = _texts(build.get("wheel.packages")) or _texts(wheel.get("packages"))
    return FileFacts(
        name=_text(project.get("name")),
        version=_text(project.get("version")),
        summary=_text(project.get("description")),
        license=_license(project),
        requires_python=_text(project.get("requires-python")),
        requires=_texts(project.get("dependencies")),
        build_requires=wants,
        backend=_text(system.get("build-backend")),
        py_api=_text(build.get("wheel.py-api"))
        or _text(wheel.get("py-api"))
        or _text(_table(_table(tool, "distutils"), "bdist_wheel").get("py_limited_api")),
        packages=tuple(path.rpartition("/")[2] for path in packages),
        package_dirs=tuple(
            (name, _text(path))
            for name, path in _table(_table(tool, "setuptools"), "package-dir").items()
        ),
        torch=any(
            requirement.partition("[")[0].strip(" ><=~!0123456789.") == "torch"
            for requirement in wants
        ),
        bindings=frozenset(n for n in LIBRARIES if any(want.startswith(n) for want in wants)),
        later=tuple(
            (_DYNAMIC[key], f"{path.name}: {key} is computed at build time") for key in dynamic
        ),
        settled=frozenset(_DYNAMIC[key] for key in dynamic if _is_settled(key, tool)),
    )


def _is_settled(key: str, tool: dict[str, Any]) -> bool:
    """Whether setuptools uses this file for a dynamic key rather than setup.py.

    https://setuptools.pypa.io/en/latest/userguide/pyproject_config.html#dynamic-metadata
    """
    read = _table(_table(tool, "setuptools"), "dynamic")
    return key in read or (key == "version" and "setuptools_scm" in tool)


def _license(project: dict[str, Any]) -> str:
    """A short ``license``, else one from a classifier."""
    value = project.get("license", "")
    text = _text(value.get("text") if isinstance(value, dict) else value)
    if text and len(text) <= _LONG:
        return text
    names = (classifier.rpartition(" :: ")[2] for classifier in _texts(project.get("classifiers")))
    return next(filter(None, map(known().licenses.get, names)), "")


def _table(of: dict[str, Any], key: str) -> dict[str, Any]:
    value = of.get(key)
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""


def _texts(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
