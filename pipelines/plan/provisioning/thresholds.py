"""``thresholds.yaml``: from where the doctor warns."""

from __future__ import annotations

from pathlib import Path

from pydantic import PositiveFloat, PositiveInt

from pipelines.core.model import Model, read_data

THRESHOLDS_FILE = Path(__file__).resolve().with_name("thresholds.yaml")


class Bounds(Model):
    """From where something is worth a warning, and from where it is an error."""

    warn: PositiveFloat
    fail: PositiveFloat


class Thresholds(Model):
    """The file; GiB, characters, seconds."""

    memory_per_job: Bounds
    host_disk: Bounds
    sandbox_disk: Bounds
    controller_disk: Bounds
    shell_processes: PositiveInt
    clock_skew: Bounds
    build_root: PositiveInt
    longest_path: PositiveInt
    max_path: PositiveInt
    ninja: str


def load_thresholds(path: Path = THRESHOLDS_FILE) -> Thresholds:
    """Read the file; :class:`ConfigError` names the file and the key that is wrong."""
    return read_data(path, Thresholds)
