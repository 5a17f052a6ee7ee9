"""``thresholds.yaml``: from where the doctor warns."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import PositiveFloat, PositiveInt
from pydantic import model_validator as _check

from pipelines.core.model import Model, read_data

THRESHOLDS_FILE = Path(__file__).resolve().with_name("thresholds.yaml")


class Least(Model):
    """Less than ``warn`` is worth a warning, less than ``fail`` an error."""

    warn: PositiveFloat
    fail: PositiveFloat

    @_check(mode="after")
    def _in_order(self) -> Self:
        if self.fail > self.warn:
            raise ValueError("fail must not be above warn")
        return self


class Most(Model):
    """More than ``warn`` is worth a warning, more than ``fail`` an error."""

    warn: PositiveFloat
    fail: PositiveFloat

    @_check(mode="after")
    def _in_order(self) -> Self:
        if self.fail < self.warn:
            raise ValueError("fail must not be below warn")
        return self


class Thresholds(Model):
    """The file; GiB, characters, seconds."""

    memory_per_job: Least
    host_disk: Least
    sandbox_disk: Least
    controller_disk: Least
    shell_processes: PositiveInt
    clock_skew: Most
    build_root: PositiveInt
    longest_path: PositiveInt
    max_path: PositiveInt
    ninja: str


def load_thresholds(path: Path = THRESHOLDS_FILE) -> Thresholds:
    """Read the file; :class:`ConfigError` names the file and the key that is wrong."""
    return read_data(path, Thresholds)
