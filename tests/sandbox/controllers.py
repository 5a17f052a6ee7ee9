"""The program, run by itself in a directory with a ``pipeline.yaml``, to be watched and killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.paths import PACKAGE


class Controller:
    """What is said by all that was started here stands in one file."""

    #: Seconds for a command line to end, or for something to become true.
    patience = 900.0

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path, self.out = path, path / "out"
        path.mkdir()
        (path / "pipeline.yaml").write_text(json.dumps(settings))

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.path / "said.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "pipelines", *words],
                cwd=self.path,
                env=self.environment,
                stdout=log,
                stderr=log,
            )

    def run(self, *words: str) -> None:
        assert self.start(*words).wait(self.patience) == 0, self.said()

    def said(self) -> str:
        log = self.path / "said.log"
        return log.read_text() if log.is_file() else ""

    def until(self, true: Callable[[], object]) -> None:
        deadline = time.monotonic() + self.patience
        while not true():
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.2)

    def building(self) -> int:
        """How many builds have begun on their hosts: they have said something of their own."""
        logs = self.out.glob("fleet-*/*.log")
        return sum("running build_ext" in log.read_text() for log in logs)

    def remove(self, *hosts: str) -> None:
        for host in hosts:
            self.start("host", "remove", "--host", host, "--force").wait(120)
