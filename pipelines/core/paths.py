"""Where things are: the package's own data, its repository, and the user's project."""

from __future__ import annotations

import os
import sysconfig
from os.path import lexists
from pathlib import Path

from pipelines.core.errors import ConfigError

#: Directory of the package: recipes, smoke suites, the lock and the example are in it.
PACKAGE = Path(__file__).resolve().parents[1]
#: The repository, when the package is used from one; None when it was installed from a wheel.
CHECKOUT = PACKAGE.parent if (PACKAGE.parent / "pyproject.toml").is_file() else None
#: Directory that has the pages, ``docs/*.md``, also where the package was installed.
DOCUMENTS = CHECKOUT or Path(sysconfig.get_path("data"), "share/windows-cuda-wheels")
CONFIG_NAME = "pipeline.yaml"


def project_dir() -> Path:
    """The project's directory: the nearest one from here upwards that has a ``pipeline.yaml``.

    Without one it is the working directory. Runs and sandboxes are kept below it. A link to nothing
    counts: reading it is an error, and so it should be.
    """
    try:
        here = Path.cwd()
    except FileNotFoundError:
        raise ConfigError(
            "the working directory has been removed", hint="Change to one that exists."
        ) from None
    return next((path for path in (here, *here.parents) if lexists(path / CONFIG_NAME)), here)


def config_file() -> Path:
    """Where hosts and defaults are read from, if there is a file."""
    return Path(os.environ.get("WCW_CONFIG") or project_dir() / CONFIG_NAME)


def default_cache() -> Path:
    """Where downloads are kept: ``$XDG_CACHE_HOME/windows-cuda-wheels`` or below ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "windows-cuda-wheels"
