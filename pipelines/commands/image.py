"""``invoke image build`` and its like: the images of hosts that are containers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pipelines.commands.command import Command
from pipelines.commands.lines import Tell, request_of, settings_of
from pipelines.commands.options import FETCH, Flag, Options
from pipelines.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.hosts.engine.engine import Engine
    from pipelines.toolchain.lock import Cache


class ImageOptions(Options):
    """Which image, on which engine."""

    axes = ("host", "python")
    shared = FETCH
    image: Annotated[
        str | None, Flag("sandbox or windows (default: the host's, else by the engine's system)")
    ] = None
    engine: Annotated[
        str | None, Flag("context or URL of the engine (default: the host's, else Docker's own)")
    ] = None


class BuildOptions(ImageOptions):
    """Flags of ``image.build``."""

    base: Annotated[
        str | None, Flag("what it stands on, instead of the lock's: NAME@sha256:...")
    ] = None
    tree: Annotated[
        str | None, Flag("what it stands on where no registry is: a tar file or directory")
    ] = None


class _Asked:
    """What the flags mean, with ``pipeline.yaml``."""

    def __init__(self, options: ImageOptions, given: dict[str, Any]) -> None:
        from pipelines.hosts.engine.engine import Engine
        from pipelines.toolchain.lock import Cache, load_lock

        request, shared = request_of(given)
        self.settings = settings_of(shared)
        self.host = request.axes.get("host")
        self.python = request.axes.get("python") or self.settings.default.python
        keys: Any = self.settings.host(self.host) if self.host else None
        image: str | None = getattr(keys, "image", None)
        if self.host and image is None:
            raise ConfigError(
                f"host '{self.host}' is not made from an image", advice="Name one that is."
            )
        if self.host and options.image:
            raise ConfigError("--host and --image: one of them", advice="Leave one of them out.")
        tls = getattr(keys, "engine_tls", None)
        self.engine: Engine = Engine(
            options.engine or str(getattr(keys, "engine", "")),
            tls=Path(tls).expanduser() if tls else None,
        )
        of_engine = "windows" if self.engine.system == "windows" else "sandbox"
        self.image: str = options.image or image or of_engine
        house = Path(self.settings.wheelhouse) if self.settings.wheelhouse else None
        self.cache: Cache = Cache(load_lock(), wheelhouse=house, offline=self.settings.offline)


def build(options: BuildOptions, given: dict[str, Any]) -> None:
    """Build an image from the lock, unless it is there; or fetch the one that a host names."""
    from pipelines.console import say
    from pipelines.hosts import images

    asked = _Asked(options, given)
    made = images.ensure(
        asked.engine,
        asked.image,
        asked.python,
        asked.cache,
        Tell(asked.host or "engine"),
        base=options.base or "",
        tree=Path(options.tree).expanduser() if options.tree else None,
    )
    say(f"{made.tag} is there: {made.id}", style="green")
    if made.record:
        base = made.record["inputs"]["base"]
        whence = "as given" if base["given"] else "the lock's"
        say(f"key {made.record['key'][:12]}, on {base['name']} {base['digest']} ({whence})")


COMMANDS = (Command(build, BuildOptions),)
