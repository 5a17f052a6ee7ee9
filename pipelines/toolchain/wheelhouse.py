"""A directory with all that an order needs, to be carried to a machine without a network."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pipelines.core.console import say
from pipelines.core.errors import LockError, SetupError
from pipelines.core.extras import DISTRIBUTION, EXTRAS, find_missing
from pipelines.core.files import atomic_output, disk_errors, sha256_of
from pipelines.core.paths import CHECKOUT
from pipelines.toolchain.lock import Cache
from pipelines.toolchain.obtaining import FetchProgress

_REQUIREMENTS = ("requirements-uv.lock", "requirements.lock")
_SECONDS = 1800


def gather_files(
    cache: Cache, tools: Iterable[str], folder: Path, progress: FetchProgress | None = None
) -> int:
    """Copy the pinned files of ``tools`` into ``folder``; how many were not there yet."""
    names = list(dict.fromkeys(tools))
    cache.fetch_all(names, progress)
    return sum(
        copy_if_changed(cache.fetch(name), cache.lock.tool(name).sha256, folder) for name in names
    )


def copy_if_changed(source: Path, sha256: str, folder: Path) -> bool:
    """Copy a file unless the very same is there; whether it was copied."""
    target = folder / source.name
    if target.is_file() and sha256_of(target) == sha256:
        return False
    with disk_errors(folder), atomic_output(target) as part:
        shutil.copyfile(source, part)
    return True


def gather_controller(folder: Path, python: str | None = None) -> int:
    """Fetch what the pipeline itself needs, for this machine's Python or for ``python`` (3.12).

    In a checkout that is its lock, whose hashes are checked. Where the package was installed there
    is none: then it is what is installed here, in these very versions, without the package itself.
    Raises :class:`LockError` with what pip said last, and :class:`SetupError` without pip.
    """
    try:
        metadata.version("pip")
    except metadata.PackageNotFoundError:
        raise SetupError(
            f"{sys.executable} has no pip, which fetches the wheels of the pipeline itself",
            hint=f"Type: {sys.executable} -m ensurepip",
        ) from None
    before = set(folder.glob("*.whl"))
    if CHECKOUT is None:
        download_wheels("the installed versions", [*installed_requirements()], folder, python)
    else:
        for name in _REQUIREMENTS:
            locked = ["--require-hashes", "--requirement", str(CHECKOUT / name)]
            download_wheels(name, locked, folder, python)
    fresh = len(set(folder.glob("*.whl")) - before)
    say(f"{fresh} wheels of the pipeline itself")
    return fresh


def download_wheels(what: str, wanted: list[str], folder: Path, python: str | None) -> None:
    """The wheels of ``wanted``, words for pip, into ``folder``; for Linux with ``python`` or this.

    Raises :class:`LockError` with what pip said last.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet"]
    command += ["--no-deps", "--disable-pip-version-check", "--only-binary", ":all:"]
    if python is not None:
        command += ["--python-version", python]
        for platform in ("manylinux_2_28", "manylinux_2_17", "manylinux2014", "manylinux1"):
            command += ["--platform", f"{platform}_x86_64"]
    command += ["--dest", str(folder), *wanted]
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False
    )
    if done.returncode:
        last = " | ".join(done.stderr.strip().splitlines()[-3:])[:600] or "no message"
        raise LockError(
            f"pip could not fetch {what}: {last}", hint="Check the network and the index."
        )


def installed_requirements(distribution: str = DISTRIBUTION) -> Iterator[str]:
    """``name==version`` of all that ``distribution`` needs in this environment, each once.

    Also what its installed extras need. Raises :class:`LockError` for what is not installed.
    """
    seen = {distribution}
    waiting = [(distribution, "")]  # a name, and one of its extras
    if distribution == DISTRIBUTION:
        waiting += [(distribution, extra) for extra in EXTRAS if find_missing(extra) is None]
    for name, extra in waiting:
        for text in _installed_distribution(name).requires or ():
            wanted = Requirement(text)
            if wanted.marker and not wanted.marker.evaluate({"extra": extra}):
                continue
            key = canonicalize_name(wanted.name)
            waiting += [
                one for one in ((key, e) for e in ("", *wanted.extras)) if one not in waiting
            ]
            if key not in seen:
                seen.add(key)
                yield f"{key}=={_installed_distribution(key).version}"


def _installed_distribution(name: str) -> metadata.Distribution:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        raise LockError(
            f"{name} is not installed here, and the pipeline needs it", hint="Reinstall it."
        ) from None
