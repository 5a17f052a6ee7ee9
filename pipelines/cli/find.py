"""The runs that a user names, wherever they lie."""

from __future__ import annotations

from pathlib import Path

from pipelines.core.errors import ConfigError
from pipelines.core.paths import project_dir
from pipelines.plan.config.model import load_config
from pipelines.record.run import Run

_MOST = 2000  # runs of one directory


def find_runs(name: str) -> list[Run]:
    """The run, or the runs in the directory, called ``name``; paths need no configuration.

    A name is one below ``out/``, ``latest``, the path of a run's directory, or of a directory of
    such. Raises :class:`ConfigError` for what is no run, and for too many.
    """
    path = Path(name).expanduser()
    if (path / "record.sqlite").is_file():
        return [Run(path.resolve())]
    kept = sorted(p.parent for p in path.glob("*/record.sqlite") if not p.parent.is_symlink())
    if len(kept) > _MOST:  # fewer would look like all
        raise ConfigError(
            f"{path} has {len(kept)} runs, more than {_MOST}",
            hint="Remove old ones, or sort them into directories.",
        )
    if kept:
        return [Run(one.resolve()) for one in kept]
    is_path = len(path.parts) > 1
    out = project_dir() / load_config().out if not is_path else None
    if out is not None and ((out / name).exists() or not path.exists()):
        return [Run.find(out, name)]
    why = (
        "neither it nor a directory in it holds" if path.is_dir() else "there is no directory with"
    )
    raise ConfigError(
        f"no run in {path}: {why} record.sqlite",
        hint="Name a run below out/, the directory of a run, or a directory of runs.",
    )


def fleet_of(name: str) -> Path | None:
    """The directory of the fleet called ``name``, below ``out/`` or as a path, if it is one."""
    from pipelines.fleet.ledger import FILE

    path = Path(name).expanduser()
    if len(path.parts) == 1 and not (path / FILE).is_file():
        path = project_dir() / load_config().out / name
    return path.resolve() if (path / FILE).is_file() else None
