"""A source tree whose build backend a test writes."""

from __future__ import annotations

from pathlib import Path


def project(source: Path, code: str) -> None:
    """A project at ``source`` with the module ``mine`` as its backend."""
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "mine"\nbackend-path = ["."]\n'
    )
    (source / "mine.py").write_text(code)
