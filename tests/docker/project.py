"""A project of its own on the engine: commands as they are typed, and what they leave."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from docker.models.containers import Container

from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.manager import LABEL, label_value

ROOT = Path(__file__).parents[2]
HOSTS = """\
hosts:
  box: {kind: container, memory: 4g}
  by-exec: {kind: container, memory: 4g, via: exec}
  lasting: {kind: container, memory: 4g, keep: true}
default: {host: box}
"""


class Project:
    """A directory with a ``pipeline.yaml``."""

    def __init__(self, home: Path, engine: Engine, hosts: str = HOSTS) -> None:
        self.home = home
        self.engine = engine
        self.give(hosts)

    def give(self, hosts: str) -> None:
        """Another ``pipeline.yaml``."""
        (self.home / "pipeline.yaml").write_text(hosts)

    def start(self, *words: str, **keys: object) -> subprocess.Popen[str]:
        """Begin a command."""
        return subprocess.Popen(
            [sys.executable, "-m", "pipelines", *words],
            cwd=self.home,
            env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **keys},  # type: ignore[arg-type]
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wcw(self, *words: str, seconds: float = 300) -> tuple[int, str]:
        """Type a command: its exit code and what it said."""
        process = self.start(*words)
        said, _ = process.communicate(timeout=seconds)
        return process.returncode, said

    def containers(self) -> list[Container]:
        """Those of this project."""
        every = self.engine.client.containers.list(
            all=True, filters={"label": f"{LABEL}host"}, ignore_removed=True
        )
        return [one for one in every if label_value(one, "project") == self.name]

    @property
    def name(self) -> str:
        """As the labels say it."""
        told = subprocess.run(
            [
                sys.executable,
                "-c",
                "from pipelines.hosts.engine import owners as o; print(o.project())",
            ],
            cwd=self.home,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        return told.stdout.strip()

    def clear(self) -> None:
        """Remove all that it has made."""
        self.give("hosts: {none: {kind: container}}\n")
        for one in self.containers():
            one.remove(force=True, v=True)
        for volume in self.engine.client.volumes.list(
            filters={"label": f"{LABEL}project={self.name}"}
        ):
            volume.remove(force=True)
