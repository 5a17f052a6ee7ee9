"""What the simulated engine refuses, and in which words: engine_rules.yaml, read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.model import Model, read_data


class Refused(Exception):  # noqa: N818 - an answer, as others are
    """An answer that is an error: its status and its text."""

    def __init__(self, status: int, says: str) -> None:
        super().__init__(says)
        self.status, self.says = status, says


class _Option(Model):
    option: str
    says: str
    at: str


class _Text(Model):
    status: int
    says: str
    at: str


class _Disk(Model):
    size: str
    at: str


class Rules(Model):
    source: str
    create: tuple[_Option, ...]
    texts: dict[str, _Text]
    disk: _Disk
    process_isolation: dict[str, tuple[str, ...]]

    def refusal(self, which: str, /, **values: Any) -> Refused:
        """One of ``texts``, filled in."""
        row = self.texts[which]
        return Refused(row.status, row.says.format(**values))

    def runs(self, host: str, image: str, isolation: str) -> bool:
        """Whether a host of one build (such as 20348) runs an image of another."""
        if isolation == "hyperv":
            return int(image) <= int(host)
        return image == host or image in self.process_isolation.get(host, ())


RULES = read_data(Path(__file__).with_name("engine_rules.yaml"), Rules, advice="")
