"""``pyproject.toml`` as far as a build is concerned (PEP 518, 621)."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pipelines.core.errors import ConfigError
from pipelines.scaffold.found import Backend, Binding, Told

_LONG = 100  # characters: more is the licence's own text
_BACKENDS: dict[str, Backend] = {
    "setuptools": "setuptools",
    "scikit_build_core": "scikit-build-core",
    "mesonpy": "meson-python",
    "hatchling": "hatchling",
}
#: Keys that may be left to the build -> the field that has them.
_DYNAMIC = {
    "version": "version",
    "dependencies": "requires",
    "requires-python": "requires_python",
    "license": "licence",
}


def backend_of(named: str) -> Backend:
    """Which of those that are known; setuptools where none is named."""
    if not named:
        return "setuptools"
    return _BACKENDS.get(named.partition(":")[0].partition(".")[0], "other")


def read_pyproject(path: Path, shown: str) -> Told:
    """What it says; :class:`ConfigError` with the line where it is no TOML."""
    try:
        text = tomllib.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:  # of its bytes, its text or its depth
        raise ConfigError(
            f"{shown}: no TOML: {str(error)[:200]}", hint="Mend it. Nothing was written."
        ) from None
    system, project = _table(text, "build-system"), _table(text, "project")
    wants = _texts(system.get("requires"))
    dynamic = [key for key in _texts(project.get("dynamic")) if key in _DYNAMIC]
    bindings: set[Binding] = set()
    known: tuple[Binding, ...] = ("pybind11", "nanobind")
    bindings.update(name for name in known if any(one.startswith(name) for one in wants))
    tool = _table(text, "tool")
    build = _table(tool, "scikit-build")
    wheel = _table(build, "wheel")
    given = _texts(build.get("wheel.packages")) or _texts(wheel.get("packages"))
    return Told(
        name=_text(project.get("name")),
        version=_text(project.get("version")),
        summary=_text(project.get("description")),
        licence=_licence(project),
        requires_python=_text(project.get("requires-python")),
        requires=_texts(project.get("dependencies")),
        build_requires=wants,
        backend=_text(system.get("build-backend")),
        py_api=_text(build.get("wheel.py-api"))
        or _text(wheel.get("py-api"))
        or _text(_table(_table(tool, "distutils"), "bdist_wheel").get("py_limited_api")),
        packages=tuple(one.rpartition("/")[2] for one in given),
        torch=any(one.partition("[")[0].strip(" ><=~!0123456789.") == "torch" for one in wants),
        bindings=frozenset(bindings),
        later=tuple((_DYNAMIC[key], f"{shown}: {key} is made when it is built") for key in dynamic),
        settled=frozenset(_DYNAMIC[key] for key in dynamic if _is_settled(key, tool)),
    )


def _is_settled(key: str, tool: dict[str, Any]) -> bool:
    """Whether setuptools goes by this file, which names where a dynamic key is, not by setup.py.

    https://setuptools.pypa.io/en/latest/userguide/pyproject_config.html#dynamic-metadata
    """
    read = _table(_table(tool, "setuptools"), "dynamic")
    return key in read or (key == "version" and "setuptools_scm" in tool)


#: Classifiers of licences that leave no doubt -> SPDX.
_LICENCES = {
    "MIT License": "MIT",
    "Apache Software License": "Apache-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "GNU General Public License v3 (GPLv3)": "GPL-3.0-only",
    "ISC License (ISCL)": "ISC",
}


def _licence(project: dict[str, Any]) -> str:
    """What stands under ``license`` in a line, else what a classifier says."""
    given = project.get("license", "")
    said = _text(given.get("text") if isinstance(given, dict) else given)
    if said and len(said) <= _LONG:
        return said
    names = (one.rpartition(" :: ")[2] for one in _texts(project.get("classifiers")))
    return next((_LICENCES[name] for name in names if name in _LICENCES), "")


def _table(of: dict[str, Any], key: str) -> dict[str, Any]:
    found = of.get(key)
    return found if isinstance(found, dict) else {}


def _text(found: object) -> str:
    return " ".join(found.split()) if isinstance(found, str) else ""


def _texts(found: object) -> tuple[str, ...]:
    return tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else ()
