"""The Python packages of an image: of requirements.lock, for its Python and not for this one."""

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
    """Some of the packages of requirements.lock, with the hashes that their files may have."""

    def __init__(self, lock: Path, names: Iterable[str], python: str) -> None:
        """``python``: that of the image, such as 3.11, on Linux.

        Raises :class:`LockError` for a name that the lock does not have for it.
        """
        wanted = {canonicalize_name(name) for name in names}
        found = {name: one for name, one in _read(lock, python) if name in wanted}
        if missing := wanted - found.keys():
            raise LockError(
                f"{lock} has no {', '.join(sorted(missing))} for Python {python}",
                hint="Restore it from git; 'requirements' in images.yaml names them.",
            )
        self.versions = {name: found[name][0] for name in sorted(found)}
        self.hashes = {name: found[name][1] for name in sorted(found)}

    @property
    def text(self) -> str:
        """A requirements file of them alone, as pip takes it with ``--require-hashes``."""
        return "".join(
            f"{name}=={version} "
            + " ".join(f"--hash=sha256:{one}" for one in self.hashes[name])
            + "\n"
            for name, version in self.versions.items()
        )

    def wheels(self, cache: Cache, python: str, folder: Path) -> dict[str, str]:
        """Their wheels in ``folder``: file -> sha256.

        What is there and is one of the locked files is kept, what is not is replaced. Raises
        :class:`LockError` for what cannot be had.
        """
        if len(found := self._kept(folder)) == len(self.versions):
            return found
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".part-", dir=folder) as work:
            part = Path(work)  # of its own: somebody else may fetch them at the same time
            listed = part / "requirements.txt"
            listed.write_text(self.text, "utf-8")
            sources = ["--find-links", str(cache.wheelhouse)] if cache.wheelhouse else []
            if cache.offline:
                sources.append("--no-index")
            locked = [*sources, "--require-hashes", "--requirement", str(listed)]
            download("the image's Python packages", locked, part, python)
            for name in self._kept(part):
                (part / name).replace(folder / name)
        found = self._kept(folder)
        if len(found) != len(self.versions):
            raise LockError(
                f"pip left {len(found)} wheels in {folder}, {len(self.versions)} are wanted",
                hint=f"Remove {folder}, then type the command again.",
            )
        return found

    def _kept(self, folder: Path) -> dict[str, str]:
        """The wheels there that are what the lock says."""
        allowed = {one for hashes in self.hashes.values() for one in hashes}
        found = {path.name: sha256_of(path) for path in sorted(folder.glob("*.whl"))}
        return {name: sha256 for name, sha256 in found.items() if sha256 in allowed}


def _read(lock: Path, python: str) -> Iterable[tuple[str, tuple[str, list[str]]]]:
    """Name, version and hashes of each requirement of the lock that holds for that Python."""
    where = {
        "python_version": python,
        "python_full_version": f"{python}.99",  # the newest: what is locked for older ones is not
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
            wanted = Requirement(text)
        except InvalidRequirement as error:
            raise LockError(f"{lock}: {error}", hint="Restore it from git.") from None
        if wanted.marker is None or wanted.marker.evaluate(where):
            version = str(wanted.specifier).removeprefix("==")
            yield canonicalize_name(wanted.name), (version, sorted(_HASH.findall(entry)))
