"""A directory with all that an order needs, to be carried to a machine without a network."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from pipelines.console import say
from pipelines.errors import LockError
from pipelines.files import disk_errors, sha256_of
from pipelines.paths import PACKAGE
from pipelines.toolchain.lock import Cache, FetchProgress

_REQUIREMENTS = ("requirements-uv.lock", "requirements.lock")
_SECONDS = 1800


def gather_files(
    cache: Cache, tools: Iterable[str], folder: Path, progress: FetchProgress | None = None
) -> int:
    """Copy the pinned files of ``tools`` into ``folder``; how many were not there yet."""
    names = list(dict.fromkeys(tools))
    cache.fetch_all(names, progress)
    return sum(put(cache.path(name), cache.lock.tool(name).sha256, folder) for name in names)


def put(source: Path, sha256: str, folder: Path) -> bool:
    """Copy a file unless the very same is there; whether it was copied."""
    target = folder / source.name
    if target.is_file() and sha256_of(target) == sha256:
        return False
    part = target.with_name(f".{target.name}.part")
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, part)
        part.replace(target)
    return True


def gather_controller(folder: Path, python: str | None = None) -> int:
    """Fetch what the pipeline itself needs, for this machine's Python or for ``python`` (3.12).

    Its lock's hashes are checked. Raises :class:`LockError` with what pip said last.
    """
    before = set(folder.glob("*.whl"))
    for name in _REQUIREMENTS:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes"]
        command += ["--no-deps", "--disable-pip-version-check", "--only-binary", ":all:"]
        if python is not None:
            command += ["--python-version", python]
            for platform in ("manylinux_2_28", "manylinux_2_17", "manylinux2014", "manylinux1"):
                command += ["--platform", f"{platform}_x86_64"]
        command += ["--dest", str(folder), "--requirement", str(PACKAGE.parent / name)]
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False
        )
        if done.returncode:
            last = " | ".join(done.stderr.strip().splitlines()[-3:])[:600] or "no message"
            raise LockError(
                f"pip could not fetch {name}: {last}", advice="Check the network and the index."
            )
    fresh = len(set(folder.glob("*.whl")) - before)
    say(f"{fresh} wheels of the pipeline itself")
    return fresh
