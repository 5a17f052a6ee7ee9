"""The slot for the user's MSVC: the meaning of ``msvc`` in pipeline.yaml, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipelines.core.errors import ConfigError, HostError, PipelineError
from pipelines.core.finding import Finding
from pipelines.core.hosttext import line
from pipelines.core.paths import home
from pipelines.hosts.base import Events
from pipelines.hosts.sandbox.msvc import fetch, installing, pins
from pipelines.hosts.sandbox.msvc.finder import Tree, find
from pipelines.toolchain.lock import Cache

#: The value of ``msvc`` for a tree from Microsoft; any other is a directory.
FETCH = "fetch"
_MICROSOFT = "Microsoft Corporation"


@dataclass(frozen=True, kw_only=True)
class Slot:
    """As written in pipeline.yaml."""

    msvc: str
    accept_license: str = ""
    version: str = ""
    sdk: str = ""

    @property
    def fetched(self) -> bool:
        """Whether the tree is fetched from Microsoft."""
        return self.msvc == FETCH

    def require(self) -> Tree | None:
        """The tree of the user's directory; ``None`` for a fetched one.

        Raises :class:`ConfigError` for an unusable tree and a license that is not accepted,
        :class:`LockError` without pins.
        """
        if self.fetched:
            pins.accepted(pins.load_pins(), self.accept_license)
            return None
        try:
            place = home() / Path(self.msvc).expanduser()
        except RuntimeError as error:  # for an unknown user
            raise ConfigError(f"msvc: {self.msvc}: {error}", hint="Write it without ~.") from None
        return require_microsoft(find(place, version=self.version, sdk=self.sdk))

    def missing(self) -> tuple[Finding, ...]:
        """What :meth:`require` would raise, for plan and doctor; nothing is fetched."""
        try:
            self.require()
        except PipelineError as error:
            return (
                Finding(
                    id="msvc",
                    level="error",
                    actual=error.message,
                    hint=error.hint,
                    source="this machine",
                    raises=type(error).__name__,
                ),
            )
        return ()

    def notes(self) -> Iterator[str]:
        """For a plan: what is available; a rule reports what is missing."""
        if not self.missing():
            tree = self.require()
            yield f"compiler: {tree or f'MSVC {self.which()[0]}, fetched from Microsoft'}"

    def which(self) -> tuple[str, str]:
        """The toolset's version, and what distinguishes its files from others of that version.

        Known before anything is fetched; raises what :meth:`require` does.
        """
        if (tree := self.require()) is not None:
            return tree.version, str(tree)
        expected = pins.load_pins()
        return expected.toolset, expected.key

    def remove(self, prefix: Path) -> None:
        """Remove the tree from the Windows in ``prefix``, if it is there."""
        installing.remove(prefix)

    def check(self, cache: Cache, prefix: Path) -> None:
        """Raise :class:`HostError` unless the running Windows has the tree of pipeline.yaml."""
        tree = self.require()
        if tree is None:
            try:
                tree = find(fetch.place(cache, pins.load_pins()))
            except ConfigError as error:  # the tree is linked from the cache, not copied
                raise HostError(
                    "the compiler of the running sandbox is no longer in the cache: "
                    f"{error.message}",
                    hint="Type: invoke host stop, then the same command again, which fetches it.",
                ) from None
        if not installing.is_installed(tree, prefix):
            raise HostError(
                f"the running sandbox has a different compiler from pipeline.yaml: {tree}",
                hint="Type: invoke host stop, then the same command again.",
            )

    def install(self, cache: Cache, prefix: Path, events: Events) -> Tree:
        """Install the tree into the Windows in ``prefix``, fetched and unpacked if necessary.

        Raises what :meth:`require` does, :class:`SetupError` without msiextract, and what
        :meth:`Cache.fetch` does.
        """
        tree = self.require()
        if tree is None:
            with events.bars() as bars:
                tree = require_microsoft(fetch.fetched(cache, pins.load_pins(), events.step, bars))
        installing.install(tree, prefix)
        events.step(f"compiler: {tree}")
        return tree


def require_microsoft(tree: Tree) -> Tree:
    """``tree`` if its cl.exe is Microsoft's; otherwise :class:`ConfigError`."""
    if tree.maker != _MICROSOFT:
        raise ConfigError(
            f"{tree.bin / 'cl.exe'} names {line(tree.maker, 80) or 'no company'} as its maker, not "
            f"{_MICROSOFT}",
            hint="The sandbox's own stub toolchain needs no msvc: remove the key.",
        )
    return tree
