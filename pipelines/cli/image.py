"""``invoke image build`` and its like: the images of hosts that are containers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.cli.command import command
from pipelines.cli.lines import Tell, effective_settings, request_of
from pipelines.cli.options import FETCH, Flags
from pipelines.core.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.hosts.engine.engine import Engine
    from pipelines.toolchain.lock import Cache


_SHARED = ("host", "python", *FETCH)
_ENGINE = {
    "image": "sandbox or windows (default: the host's, else by the engine's system)",
    "engine": "context or URL of the engine (default: the host's, else Docker's own)",
}


class _Asked:
    """What the flags mean, with ``pipeline.yaml``."""

    def __init__(self, flags: Flags, named: str | None, engine: str | None) -> None:
        from pipelines.hosts.engine.engine import Engine
        from pipelines.toolchain.lock import Cache, load_lock

        request, shared = request_of(flags)
        self.settings = effective_settings(shared)
        self.host = request.axes.get("host")
        self.python = request.axes.get("python") or self.settings.default.python
        keys: Any = self.settings.host(self.host) if self.host else None
        image: str | None = getattr(keys, "image", None)
        if self.host and image is None:
            raise ConfigError(
                f"host '{self.host}' is not made from an image", hint="Name one that is."
            )
        if self.host and named:
            raise ConfigError("--host and --image are mutually exclusive", hint="Omit one of them.")
        tls = getattr(keys, "engine_tls", None)
        self.engine: Engine = Engine(
            engine or str(getattr(keys, "engine", "")),
            tls=Path(tls).expanduser() if tls else None,
        )
        of_engine = "windows" if self.engine.system == "windows" else "sandbox"
        self.image: str = named or image or of_engine
        house = Path(self.settings.wheelhouse) if self.settings.wheelhouse else None
        self.cache: Cache = Cache(load_lock(), wheelhouse=house, offline=self.settings.offline)

    def users(self) -> dict[str, list[str]]:
        """Ids of images of ours on this engine -> the hosts that would use them now."""
        from pipelines.hosts.images import find
        from pipelines.hosts.images.definitions import image_definitions

        found: dict[str, list[str]] = {}
        for name, host in self.settings.hosts.items():
            image, engine = getattr(host, "image", None), getattr(host, "engine", None)
            if engine != self.engine.name or image not in image_definitions():
                continue
            if image_definitions()[image].system != self.engine.system:
                continue
            if (used := find(self.engine, image, self.python, self.cache)) is not None:
                found.setdefault(used.id, []).append(name)
        return found


@command(
    shared=_SHARED,
    help={
        **_ENGINE,
        "base": "its base image, instead of the lock's: NAME@sha256:...",
        "tree": "a base image without a registry: a tar file or directory",
    },
)
def build(
    flags: Flags,
    *,
    image: str | None = None,
    engine: str | None = None,
    base: str | None = None,
    tree: str | None = None,
) -> None:
    """Build an image from the lock if it is missing, or fetch the one that a host names."""
    from pipelines.core.console import say
    from pipelines.hosts import images

    asked = _Asked(flags, image, engine)
    made = images.ensure(
        asked.engine,
        asked.image,
        asked.python,
        asked.cache,
        Tell(asked.host or "engine"),
        base=base or "",
        tree=Path(tree).expanduser() if tree else None,
    )
    say(f"{made.tag} exists: {made.id}", style="green")
    if made.record:
        used = made.record["inputs"]["base"]
        whence = "as given" if used["given"] else "the lock's"
        say(f"key {made.record['key'][:12]}, on {used['name']} {used['digest']} ({whence})")


@command(
    shared=_SHARED,
    help={**_ENGINE, "to": "where: NAME:TAG, with the registry in the name"},
)
def push(flags: Flags, to: str, *, image: str | None = None, engine: str | None = None) -> None:
    """Push an image of ours to a registry; prints its name for a host's configuration."""
    from pipelines.core.console import say, transfer_progress
    from pipelines.hosts import images
    from pipelines.hosts.images import lookup

    asked = _Asked(flags, image, engine)
    found = images.find(asked.engine, asked.image, asked.python, asked.cache)
    if found is None:
        raise ConfigError(
            f"the engine has no image '{asked.image}' that is current",
            hint="Type: invoke image build",
        )
    say(lookup.LICENCE[found.system], style="yellow")
    with transfer_progress() as show:
        reference = lookup.push_image(asked.engine, found, to, show)
    say(f"image: {reference}", style="green")


@command(shared=_SHARED, help={"engine": _ENGINE["engine"]}, name="list")
def list_(flags: Flags, *, engine: str | None = None, json: bool = False) -> None:
    """List our images on an engine, and which hosts would use them."""
    from pipelines.core.console import print_json

    asked = _Asked(flags, None, engine)
    rows = _image_rows(asked)
    if json:
        print_json({"schema": 1, "engine": asked.engine.title, "images": rows})
        return
    _show_rows(asked, rows)


def _image_rows(asked: _Asked) -> list[dict[str, Any]]:
    from pipelines.core.hosttext import safe_line
    from pipelines.hosts.images import lookup
    from pipelines.hosts.images import record as names

    rows, users = [], asked.users()
    for one in sorted(
        lookup.list_own_images(asked.engine), key=lambda one: -int(one.get("Created", 0))
    ):
        labels = {key: safe_line(text) for key, text in one["Labels"].items()}
        state = lookup.state_of(asked.engine, labels, asked.cache)
        rows.append(
            {
                "tag": safe_line(names.listed_image_tag(one)),
                "id": safe_line(one["Id"]),
                "image": labels.get(names.IMAGE, ""),
                "python": labels.get(names.VERSION, ""),
                "key": labels.get(names.KEY, ""),
                "base": labels.get(names.GIVEN, ""),
                "bytes": int(one.get("Size", 0)),
                "state": state,
                "hosts": users.get(str(one["Id"]), []),
            }
        )
    return rows


def _show_rows(asked: _Asked, rows: list[dict[str, Any]]) -> None:
    from rich.markup import escape

    from pipelines.core.console import console, say
    from pipelines.core.tables import print_columns
    from pipelines.core.units import format_size
    from pipelines.hosts.images.lookup import OLD

    if not rows:
        say(f"{asked.engine.title} has none of our images: invoke image build makes one")
        return
    lines = [
        {key: escape(row[key]) for key in ("image", "python", "base", "state")}
        | {
            "size": format_size(row["bytes"]),
            "hosts": escape(", ".join(row["hosts"])),
            "id": escape(row["tag"] or row["id"][:19]),
        }
        for row in rows
    ]
    print_columns(console, lines, fold=["base", "id"], wrap=["state", "hosts"])
    if any(row["state"] == OLD for row in rows):
        say("old ones of this checkout are removed by: invoke hosts --clean", style="dim")


COMMANDS = (build, push, list_)
