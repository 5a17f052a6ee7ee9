"""Where things are: the package's own data, and the user's project."""

from __future__ import annotations

from pathlib import Path

#: Directory of the package: recipes, smoke suites, the lock and the example are in it.
PACKAGE = Path(__file__).resolve().parent
CONFIG_NAME = "pipeline.yaml"


def home() -> Path:
    """The project's directory: the nearest one from here upwards that has a ``pipeline.yaml``.

    Without one it is the working directory. Runs and sandboxes are kept below it.
    """
    here = Path.cwd()
    return next((path for path in (here, *here.parents) if (path / CONFIG_NAME).is_file()), here)
