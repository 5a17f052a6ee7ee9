"""The Python packages of an image: from requirements.lock, for the image's Python."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from pipelines.core.errors import LockError
from pipelines.core.files import disk_errors, sha256_of
from pipelines.toolchain.lock import Cache
from pipelines.toolchain.wheelhouse import download

_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class Locked:
    """Some of the packages of requirements.lock, with their allowed file hashes."""

    def __init__(self, lock: Path, names: Iterable[str], python: str) -> None:
        """``python``: the image's, such as 3.11, on Linux.

        Raises :class:`LockError` for a name missing from the lock.
        """
        expected = {canonicalize_name(name) for name in names}
        selected = {
            name: requirement for name, requirement in _read(lock, python) if name in expected
        }
        if missing := expected - selected.keys():
            raise LockError(
                f"{lock} has no {', '.join(sorted(missing))} for Python {python}",
                hint="Restore it from git; 'requirements' in images.yaml lists the names.",
            )
        self.versions = {name: selected[name][0] for name in sorted(selected)}
        self.hashes = {name: selected[name][1] for name in sorted(selected)}

    @property
    def text(self) -> str:
        """A requirements file of these packages only, for pip's ``--require-hashes``."""
        return "".join(
            f"{name}=={version} "
            + " ".join(f"--hash=sha256:{sha256}" for sha256 in self.hashes[name])
            + "\n"
            for name, version in self.versions.items()
        )

    def wheels(self, cache: Cache, python: str, folder: Path) -> dict[str, str]:
        """Download their wheels to ``folder``: file -> sha256.

        Files that match the lock are kept, others are replaced. Raises :class:`LockError` if one
        cannot be downloaded.
        """
        if len(wheels := self._kept(folder)) == len(self.versions):
            return wheels
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".part-", dir=folder) as work:
            part = Path(work)  # separate: another process may download them at the same time
            listed = part / "requirements.txt"
            listed.write_text(self.text, "utf-8")
            sources = ["--find-links", str(cache.wheelhouse)] if cache.wheelhouse else []
            if cache.offline:
                sources.append("--no-index")
            locked = [*sources, "--require-hashes", "--requirement", str(listed)]
            download("the image's Python packages", locked, part, python)
            for name in self._kept(part):
                (part / name).replace(folder / name)
        wheels = self._kept(folder)
        if len(wheels) != len(self.versions):
            raise LockError(
                f"pip downloaded {len(wheels)} wheels to {folder}, expected {len(self.versions)}",
                hint=f"Remove {folder}, then type the command again.",
            )
        return wheels

    def _kept(self, folder: Path) -> dict[str, str]:
        """The wheels there that match the lock."""
        allowed = {digest for hashes in self.hashes.values() for digest in hashes}
        digests = {path.name: sha256_of(path) for path in sorted(folder.glob("*.whl"))}
        return {name: sha256 for name, sha256 in digests.items() if sha256 in allowed}


def _read(lock: Path, python: str) -> Iterable[tuple[str, tuple[str, list[str]]]]:
    """Name, version and hashes of each requirement of the lock that applies to that Python."""
    where = {
        "python_version": python,
        "python_full_version": f"{python}.99",  # the newest patch release
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    try:
        entries = lock.read_text("utf-8").replace("\\\n", " ").splitlines()
    except OSError as error:
        raise LockError(
            f"{lock} cannot be read: {error.strerror}", hint="Restore it from git."
        ) from None
    for entry in entries:
        text = entry.partition("--hash")[0].strip()
        if not text or text.startswith("#"):
            continue
        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            raise LockError(f"{lock}: {error}", hint="Restore it from git.") from None
        if requirement.marker is None or requirement.marker.evaluate(where):
            version = str(requirement.specifier).removeprefix("==")
            yield canonicalize_name(requirement.name), (version, sorted(_HASH.findall(entry)))
