"""``.github/scripts/leash.py``: workflows see by it that a container ends with its controller."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.images import Image

ROOT = Path(__file__).parents[2]


def leash(host: str, config: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, ROOT / ".github/scripts/leash.py", host, "10"],
        env={**os.environ, "WCW_CONFIG": str(config), "PYTHONPATH": str(ROOT)},
        cwd=config.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout


def test_one_on_its_leash_goes_and_a_kept_one_is_seen_to_stay(
    engine: Engine, sandbox_image: Image, tmp_path: Path
) -> None:
    assert sandbox_image.id
    host = f"leash-{os.getpid()}"
    config = tmp_path / "pipeline.yaml"
    config.write_text(f"hosts: {{{host}: {{kind: container, memory: 4g, cache: false}}}}\n")
    code, said = leash(host, config)
    assert (code, "gone" in said) == (0, True), said
    config.write_text(
        f"hosts: {{{host}: {{kind: container, memory: 4g, cache: false, keep: true}}}}\n"
    )
    try:
        code, said = leash(host, config)
        assert (code, "still there" in said) == (1, True), said
        code, said = leash(host, config)  # nothing is killed next to an existing one
        assert (code, "already" in said) == (2, True), said
    finally:
        label = f"windows-cuda-wheels.host={host}"
        for left in engine.client.containers.list(all=True, filters={"label": label}):
            left.remove(force=True, v=True)
