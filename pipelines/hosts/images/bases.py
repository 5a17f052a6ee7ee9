"""The base of an image: by digest, from the lock or as requested, or a directory tree."""

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
from pipelines.hosts.images.definitions import ImageDefinition
from pipelines.hosts.images.record import Base
from pipelines.session.base import Bars
from pipelines.toolchain.lock import Cache

_DIGEST = re.compile(r"(?:(?P<name>[^@\s]+)@)?(?P<digest>sha256:[0-9a-f]{64})")


@dataclass(frozen=True)
class BaseImage:
    """A base image, and how an engine gets it."""

    base: Base
    tree: Path | None = None

    def bring(self, engine: Engine, bars: Bars, *, offline: bool = False) -> str:
        """Make it available on the engine; returns its name for FROM.

        Raises :class:`ConfigError` for a different image under that name or for another system,
        :class:`LockError` if it would have to be fetched ``offline``.
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
            about = pull_image(engine, reference, bars, offline=offline)
        known = {str(digest).rpartition("@")[2] for digest in about.get("RepoDigests") or ()}
        if self.base.digest not in {*known, str(about["Id"])}:
            raise ConfigError(
                f"{reference}: the engine has a different image under that name: {about['Id']}",
                hint="Remove it with docker rmi, then type the command again.",
            )
        if about.get("Os") != engine.system:
            raise ConfigError(
                f"{reference} is an image for {about.get('Os')}, but {engine.title} runs "
                f"{engine.system.title()} images",
                hint="Name another one with --base.",
            )
        return reference


def pull_image(engine: Engine, reference: str, bars: Bars, *, offline: bool) -> dict[str, Any]:
    """Fetch an image, unless fetching is forbidden: then :class:`LockError`."""
    if offline:
        raise LockError(
            f"the engine does not have {reference}, and nothing may be fetched",
            hint="Transfer it as a file: docker save on a machine that has it, docker load here.",
        )
    return engine.pull(reference, bars)


def base_image_of(
    definition: ImageDefinition, cache: Cache, build: str, *, base: str, tree: Path | None
) -> BaseImage | None:
    """The base of an image; None if none is requested and the lock has no digest.

    ``build`` is the engine's own Windows build, which selects the lock's base. Raises
    :class:`ConfigError` for a base without a digest, and for a missing tree.
    """
    if base and tree is not None:
        raise ConfigError("--base and --tree are mutually exclusive", hint="Remove one of them.")
    if tree is not None:
        if definition.system != "linux":
            raise ConfigError(
                "--tree: a Windows image cannot be imported from files", hint="Use --base."
            )
        return _tree(tree, cache)
    if base:
        match = _DIGEST.fullmatch(base)
        if match is None:
            raise ConfigError(
                f"--base {base}: a name without a digest, which may refer to another image later",
                hint=f"Type: docker pull {base}, and then use the digest that it prints: "
                f"--base {base.partition('@')[0]}@sha256:...",
            )
        name = match["name"] or match["digest"]
        return BaseImage(Base(name=name, digest=match["digest"], given=True))
    known = cache.lock.images.get(definition.base.get(build, ""))
    if known is None:
        return None
    return BaseImage(Base(name=known.image, digest=known.digest, given=False))


def missing_base_error(name: str, definition: ImageDefinition, build: str) -> ConfigError:
    """The error for a missing base, with the command to type."""
    return ConfigError(
        f"image '{name}' has no base for Windows {build}, only for {', '.join(definition.base)}",
        hint=f"Name a matching one: invoke image build --image {name} --base NAME@sha256:...",
    )


def _tree(path: Path, cache: Cache) -> BaseImage:
    """The base image from a tar file, or from a directory, which is packed first."""
    if path.is_dir():
        path = _pack_directory_tree(path, cache.root / "bases")
    if not path.is_file() or not tarfile.is_tarfile(path):
        raise ConfigError(
            f"--tree {path}: no such directory or tar file",
            hint="Create one with debootstrap --variant=minbase bookworm DIR, or docker export.",
        )
    return BaseImage(Base(name=path.name, digest=f"sha256:{sha256_of(path)}", given=True), path)


def _pack_directory_tree(folder: Path, target: Path) -> Path:
    """A tar file of a tree, in ``target``: the same tree gives the same bytes."""
    with disk_errors(target):
        target.mkdir(parents=True, exist_ok=True)
        part = target / f".{os.getpid()}.part"
        try:
            with tarfile.open(part, "w", format=tarfile.PAX_FORMAT) as tar:
                for path in sorted(folder.rglob("*")):
                    tar.add(path, path.relative_to(folder).as_posix(), recursive=False)
            return part.rename(target / f"{sha256_of(part)[:16]}.tar")
        except PermissionError as error:
            raise ConfigError(
                f"--tree {folder}: {error.filename} cannot be read",
                hint="The files of a Debian system belong to root: pack it as root, tar -C DIR "
                "-cf FILE .",
            ) from error
        finally:
            part.unlink(missing_ok=True)


def _bring_tree(engine: Engine, tree: Path, digest: str) -> str:
    """Import it unless it exists; its id."""
    tag = f"windows-cuda-wheels/base:{digest.removeprefix('sha256:')[:24]}"
    about = engine.image(tag) or engine.import_tree(tree, tag)
    return str(about["Id"])
