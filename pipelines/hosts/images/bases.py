"""What an image stands on: by its digest, from the lock or as it was asked for; or a tree's."""

from __future__ import annotations

import os
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.core.errors import ConfigError, LockError
from pipelines.core.files import disk_errors, sha256_of
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.images.record import Base
from pipelines.hosts.images.wanted import Wanted
from pipelines.session.base import Bars
from pipelines.toolchain.lock import Cache

_DIGEST = re.compile(r"(?:(?P<name>[^@\s]+)@)?(?P<digest>sha256:[0-9a-f]{64})")


@dataclass(frozen=True)
class Ground:
    """A base, and how an engine comes by it."""

    base: Base
    tree: Path | None = None

    def bring(self, engine: Engine, bars: Bars, *, offline: bool = False) -> str:
        """Have the engine have it; what FROM calls it. It is what was asked for, or an error.

        Raises :class:`ConfigError` for another image under that name or for another system,
        :class:`LockError` for one that would be fetched ``offline``.
        """
        if self.tree is not None:
            return _bring_tree(engine, self.tree, self.base.digest)
        reference = self.base.digest
        if self.base.name != self.base.digest:
            reference = f"{self.base.name.partition('@')[0]}@{self.base.digest}"
        about = engine.image(reference)
        if about is None:
            if reference == self.base.digest:
                raise ConfigError(
                    f"the engine has no image {reference}",
                    hint="Type: docker images --digests --no-trunc",
                )
            about = pulled(engine, reference, bars, offline=offline)
        known = {str(one).rpartition("@")[2] for one in about.get("RepoDigests") or ()}
        if self.base.digest not in {*known, str(about["Id"])}:
            raise ConfigError(
                f"{reference}: the engine has another image under that name: {about['Id']}",
                hint="Remove that one with docker rmi, then type the command again.",
            )
        if about.get("Os") != engine.system:
            raise ConfigError(
                f"{reference} is an image for {about.get('Os')}, {engine.title} runs "
                f"{engine.system.title()} ones",
                hint="Name another one with --base.",
            )
        return reference


def pulled(engine: Engine, reference: str, bars: Bars, *, offline: bool) -> dict[str, Any]:
    """Fetch an image, unless nothing may be: then :class:`LockError`."""
    if offline:
        raise LockError(
            f"the engine does not have {reference}, and nothing is fetched",
            hint="Bring it by file: docker save on a machine that has it, docker load here.",
        )
    return engine.pull(reference, bars)


def ground_of(
    wanted: Wanted, cache: Cache, build: str, *, base: str, tree: Path | None
) -> Ground | None:
    """What an image is to stand on; None where nothing was asked for and the lock has no digest.

    ``build`` is the engine's own Windows build, by which the lock's base is chosen. Raises
    :class:`ConfigError` for a base without a digest, and for a tree that is not there.
    """
    if base and tree is not None:
        raise ConfigError("--base and --tree: one of them", hint="Leave one of them out.")
    if tree is not None:
        if wanted.system != "linux":
            raise ConfigError(
                "--tree: a Windows image cannot be imported from files", hint="Name a --base."
            )
        return _tree(tree, cache)
    if base:
        found = _DIGEST.fullmatch(base)
        if found is None:
            raise ConfigError(
                f"--base {base}: that is a name without a digest, so another image next month",
                hint=f"Type: docker pull {base}, and then what it prints behind 'Digest:' as "
                f"--base {base.partition('@')[0]}@sha256:...",
            )
        name = found["name"] or found["digest"]
        return Ground(Base(name=name, digest=found["digest"], given=True))
    known = cache.lock.images.get(wanted.base.get(build, ""))
    if known is None or known.digest is None:
        return None
    return Ground(Base(name=known.image, digest=known.digest, given=False))


def refused(name: str, wanted: Wanted, build: str) -> ConfigError:
    """There is no base: what to type."""
    typed = f"invoke image build --image {name} --base NAME@sha256:..."
    if (base := wanted.base.get(build)) is None:
        return ConfigError(
            f"no base of image '{name}' is for Windows {build}; there are those for "
            f"{', '.join(wanted.base)}",
            hint=f"Name one that fits: {typed}",
        )
    tree = " or, from a Debian tree, --tree FILE.tar" if wanted.system == "linux" else ""
    return ConfigError(
        f"the base of image '{name}', {base}, is not pinned",
        hint=f"Type: invoke lock (needs the internet), or: {typed}{tree}",
    )


def _tree(path: Path, cache: Cache) -> Ground:
    """The ground of a tar file, or of a directory, of which one is made."""
    if path.is_dir():
        path = _packed(path, cache.root / "bases")
    if not path.is_file() or not tarfile.is_tarfile(path):
        raise ConfigError(
            f"--tree {path}: there is no such directory or tar file",
            hint="Such as debootstrap --variant=minbase bookworm DIR makes, or docker export.",
        )
    return Ground(Base(name=path.name, digest=f"sha256:{sha256_of(path)}", given=True), path)


def _packed(folder: Path, kept: Path) -> Path:
    """A tar file of a tree, in ``kept``: the same tree gives the same bytes."""
    with disk_errors(kept):
        kept.mkdir(parents=True, exist_ok=True)
        part = kept / f".{os.getpid()}.part"
        try:
            with tarfile.open(part, "w", format=tarfile.PAX_FORMAT) as tar:
                for path in sorted(folder.rglob("*")):
                    tar.add(path, path.relative_to(folder).as_posix(), recursive=False)
            return part.rename(kept / f"{sha256_of(part)[:16]}.tar")
        except PermissionError as error:
            raise ConfigError(
                f"--tree {folder}: {error.filename} cannot be read",
                hint="The files of a Debian are root's: pack it as root, tar -C DIR -cf FILE .",
            ) from error
        finally:
            part.unlink(missing_ok=True)


def _bring_tree(engine: Engine, tree: Path, digest: str) -> str:
    """Import it, unless it is there already; its id."""
    tag = f"windows-cuda-wheels/base:{digest.removeprefix('sha256:')[:24]}"
    about = engine.image(tag) or engine.import_tree(tree, tag)
    return str(about["Id"])
