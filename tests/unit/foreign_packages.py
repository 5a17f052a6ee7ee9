"""Third-party source distributions, and repositories as their authors have them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from pipelines.remote.builder import unpack_source
from pipelines.toolchain import sources
from pipelines.toolchain.lock import Cache, load_lock
from pipelines.toolchain.obtaining import download_source
from pipelines.toolchain.sources import Source

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Foreign:
    """A source distribution on the package index, and what is known of it."""

    name: str
    version: str
    file: str
    sha256: str
    size: int
    found: tuple[str, ...]
    """What `init` must say of it."""
    module: str
    """The compiled file that its wheel must have, without what names a platform."""


def repository(package: Foreign, folder: Path) -> Path:
    """Its sources below ``folder``, in a git repository of their own; no line is changed.

    The file is taken from the directory ``WCW_SDISTS`` or the download cache, or fetched.
    """
    told = {"file": package.file, "sha256": package.sha256, "size": package.size}
    source = Source.model_validate({"pypi": f"{package.name}=={package.version}"} | told)
    given = os.environ.get("WCW_SDISTS", "")
    archive = Path(given, package.file)
    if not given:
        archive = Cache(load_lock()).place(package.file, package.sha256)
        if not archive.is_file():
            archive = folder / package.file
            download_source(source, archive, lambda *_: None)
    sources.verify_source_file(archive, source)
    unpack_source(str(archive), str(folder))
    made = folder / package.file.removesuffix(".tar.gz")
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "theirs"]):
        subprocess.run(["git", *who, *words], cwd=made, check=True)
    return made


def program(folder: Path, *words: str, minutes: float = 12) -> tuple[int, str]:
    """Exit code and output of the program in ``folder``, as a user types it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pipelines", *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=minutes * 60,
        check=False,
    )
    return done.returncode, done.stdout
