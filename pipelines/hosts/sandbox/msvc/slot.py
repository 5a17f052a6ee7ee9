"""The slot for the user's MSVC: what ``msvc`` of pipeline.yaml means, and what it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipelines.core.errors import ConfigError, HostError, PipelineError
from pipelines.core.hosttext import line
from pipelines.core.paths import home
from pipelines.hosts.base import Events, Lack
from pipelines.hosts.sandbox.msvc import fetch, installing, pins
from pipelines.hosts.sandbox.msvc.finder import Tree, find
from pipelines.toolchain.lock import Cache

#: What ``msvc`` says for a tree from Microsoft; anything else is a directory.
FETCH = "fetch"
_MICROSOFT = "Microsoft Corporation"


@dataclass(frozen=True, kw_only=True)
class Slot:
    """As it stands in pipeline.yaml."""

    msvc: str
    accept_license: str = ""
    version: str = ""
    sdk: str = ""

    @property
    def fetched(self) -> bool:
        """Whether the tree is fetched from Microsoft."""
        return self.msvc == FETCH

    def require(self) -> Tree | None:
        """The tree of the user's directory; ``None`` for one that is fetched, which may be.

        Raises :class:`ConfigError` for a tree that will not do and a licence that is not accepted,
        :class:`LockError` without pins.
        """
        if self.fetched:
            pins.accepted(pins.load_pins(), self.accept_license)
            return None
        try:
            place = home() / Path(self.msvc).expanduser()
        except RuntimeError as error:  # of a user that there is not
            raise ConfigError(f"msvc: {self.msvc}: {error}", hint="Write it without ~.") from None
        return genuine(find(place, version=self.version, sdk=self.sdk))

    def lacks(self) -> tuple[Lack, ...]:
        """What :meth:`require` would raise, for plan and doctor; nothing is fetched."""
        try:
            self.require()
        except PipelineError as error:
            kind = type(error).__name__
            return (Lack(rule="msvc", says=error.message, hint=error.hint, raises=kind),)
        return ()

    def notes(self) -> Iterator[str]:
        """For a plan: what there is; what is lacking, a rule says."""
        if not self.lacks():
            tree = self.require()
            yield f"compiler: {tree or f'MSVC {self.which()[0]}, fetched from Microsoft'}"

    def which(self) -> tuple[str, str]:
        """The tool set's version, and what tells its files from others of that version.

        Before anything is fetched; raises what :meth:`require` does.
        """
        if (tree := self.require()) is not None:
            return tree.version, str(tree)
        wanted = pins.load_pins()
        return wanted.toolset, wanted.key

    def remove(self, prefix: Path) -> None:
        """Take the tree out of the Windows in ``prefix`` again, if it is there."""
        installing.remove(prefix)

    def check(self, cache: Cache, prefix: Path) -> None:
        """:class:`HostError` unless a Windows that runs has the tree that pipeline.yaml means."""
        tree = self.require()
        if tree is None:
            try:
                tree = find(fetch.place(cache, pins.load_pins()))
            except ConfigError as error:  # what the cache had was linked to, not copied
                raise HostError(
                    f"the sandbox that runs has lost its compiler from the cache: {error.message}",
                    hint="Type: invoke host stop, then the same command again: it is fetched.",
                ) from None
        if not installing.is_installed(tree, prefix):
            raise HostError(
                f"the sandbox that runs has another compiler than pipeline.yaml names: {tree}",
                hint="Type: invoke host stop, then the same command again.",
            )

    def install(self, cache: Cache, prefix: Path, events: Events) -> Tree:
        """Put the tree into the Windows in ``prefix``, fetched and unpacked if it has to be.

        Raises what :meth:`require` does, :class:`SetupError` without msiextract, and what
        :meth:`Cache.fetch` does.
        """
        tree = self.require()
        if tree is None:
            with events.bars() as bars:
                tree = genuine(fetch.fetched(cache, pins.load_pins(), events.step, bars))
        installing.install(tree, prefix)
        events.step(f"compiler: {tree}")
        return tree


def genuine(tree: Tree) -> Tree:
    """``tree`` if its cl.exe says that it is Microsoft's; :class:`ConfigError` otherwise."""
    if tree.maker != _MICROSOFT:
        raise ConfigError(
            f"{tree.bin / 'cl.exe'} says that {line(tree.maker, 80) or 'nobody'} has made it, not "
            f"{_MICROSOFT}",
            hint="The sandbox's own stand-in needs no msvc: leave the key out.",
        )
    return tree
