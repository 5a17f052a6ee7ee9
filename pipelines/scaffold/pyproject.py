"""Reads the build settings in ``pyproject.toml`` (PEP 518, 621)."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pipelines.core.errors import ConfigError
from pipelines.scaffold.knowledge import load_knowledge
from pipelines.scaffold.project import LIBRARIES, Backend, FileFacts

_LONG = 100  # characters: longer text is the license itself
#: Keys that may be dynamic -> their field.
_DYNAMIC = {
    "version": "version",
    "dependencies": "requires",
    "requires-python": "requires_python",
    "license": "license",
}


def parse_build_backend(named: str) -> Backend:
    """The known back end; setuptools if none is named."""
    if not named:
        return "setuptools"
    return load_knowledge().backends.get(named.partition(":")[0].partition(".")[0], "other")


def read_pyproject(path: Path) -> FileFacts:
    """Read the file; :class:`ConfigError` with the line if it is not valid TOML."""
    try:
        text = tomllib.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:  # invalid bytes, syntax or depth
        raise ConfigError(
            f"{path.name}: invalid TOML: {str(error)[:200]}", hint="Fix it. Nothing was written."
        ) from None
    system, project = _toml_subtable(text, "build-system"), _toml_subtable(text, "project")
    wants = _string_items(system.get("requires"))
    dynamic = [key for key in _string_items(project.get("dynamic")) if key in _DYNAMIC]
    tool = _toml_subtable(text, "tool")
    build = _toml_subtable(tool, "scikit-build")
    wheel = _toml_subtable(build, "wheel")
    packages = _string_items(build.get("wheel.packages")) or _string_items(wheel.get("packages"))
    setuptools = _toml_subtable(tool, "setuptools")
    find = _toml_subtable(_toml_subtable(setuptools, "packages"), "find")
    modules = _string_items(setuptools.get("packages")) or _string_items(find.get("include"))
    return FileFacts(
        name=_collapsed_text(project.get("name")),
        version=_collapsed_text(project.get("version")),
        summary=_collapsed_text(project.get("description")),
        license=_license(project),
        requires_python=_collapsed_text(project.get("requires-python")),
        requires=_string_items(project.get("dependencies")),
        build_requires=wants,
        backend=_collapsed_text(system.get("build-backend")),
        py_api=_collapsed_text(build.get("wheel.py-api"))
        or _collapsed_text(wheel.get("py-api"))
        or _collapsed_text(
            _toml_subtable(_toml_subtable(tool, "distutils"), "bdist_wheel").get("py_limited_api")
        ),
        packages=(
            *(path.rpartition("/")[2] for path in packages),
            *(name.rstrip(".*") for name in modules),
        ),
        package_dirs=tuple(
            (name, _collapsed_text(path))
            for name, path in _toml_subtable(setuptools, "package-dir").items()
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
    read = _toml_subtable(_toml_subtable(tool, "setuptools"), "dynamic")
    return key in read or (key == "version" and "setuptools_scm" in tool)


def _license(project: dict[str, Any]) -> str:
    """A short ``license``, else one from a classifier."""
    value = project.get("license", "")
    text = _collapsed_text(value.get("text") if isinstance(value, dict) else value)
    if text and len(text) <= _LONG:
        return text
    names = (
        classifier.rpartition(" :: ")[2] for classifier in _string_items(project.get("classifiers"))
    )
    return next(filter(None, map(load_knowledge().licenses.get, names)), "")


def _toml_subtable(of: dict[str, Any], key: str) -> dict[str, Any]:
    value = of.get(key)
    return value if isinstance(value, dict) else {}


def _collapsed_text(value: object) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""


def _string_items(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
