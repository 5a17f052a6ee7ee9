"""The slot for the user's MSVC: the meaning of ``msvc`` in pipeline.yaml, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipelines.core.errors import ConfigError, HostError
from pipelines.core.finding import Finding
from pipelines.core.hosttext import line
from pipelines.core.paths import home
from pipelines.hosts.base import Events
from pipelines.hosts.sandbox.msvc import installing
from pipelines.hosts.sandbox.msvc.finder import Tree, find

_MICROSOFT = "Microsoft Corporation"


@dataclass(frozen=True, kw_only=True)
class Slot:
    """As written in pipeline.yaml."""

    msvc: str
    version: str = ""
    sdk: str = ""

    def require(self) -> Tree:
        """The tree of the user's directory; :class:`ConfigError` for an unusable one."""
        try:
            place = home() / Path(self.msvc).expanduser()
        except RuntimeError as error:  # for an unknown user
            raise ConfigError(f"msvc: {self.msvc}: {error}", hint="Write it without ~.") from None
        return require_microsoft(find(place, version=self.version, sdk=self.sdk))

    def missing(self) -> tuple[Finding, ...]:
        """What :meth:`require` would raise, for plan and doctor."""
        try:
            self.require()
        except ConfigError as error:
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
            yield f"compiler: {self.require()}"

    def which(self) -> tuple[str, str]:
        """The toolset's version, and what distinguishes its files from others of that version."""
        tree = self.require()
        return tree.version, str(tree)

    def remove(self, prefix: Path) -> None:
        """Remove the tree from the Windows in ``prefix``, if it is there."""
        installing.remove(prefix)

    def check(self, prefix: Path) -> None:
        """Raise :class:`HostError` unless the running Windows has the tree of pipeline.yaml."""
        tree = self.require()
        if not installing.is_installed(tree, prefix):
            raise HostError(
                f"the running sandbox has a different compiler from pipeline.yaml: {tree}",
                hint="Type: invoke host stop, then the same command again.",
            )

    def install(self, prefix: Path, events: Events) -> None:
        """Install the tree into the Windows in ``prefix``; raises what :meth:`require` does."""
        tree = self.require()
        installing.install(tree, prefix)
        events.step(f"compiler: {tree}")


def require_microsoft(tree: Tree) -> Tree:
    """``tree`` if its cl.exe is Microsoft's; otherwise :class:`ConfigError`."""
    if tree.maker != _MICROSOFT:
        raise ConfigError(
            f"{tree.bin / 'cl.exe'} names {line(tree.maker, 80) or 'no company'} as its maker, not "
            f"{_MICROSOFT}",
            hint="The sandbox's own stub toolchain needs no msvc: remove the key.",
        )
    return tree
