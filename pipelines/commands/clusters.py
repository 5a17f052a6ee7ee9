"""``invoke fleet serve`` and ``invoke fleet join``: a cluster of controllers, until Ctrl-C."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from pipelines.console import say
from pipelines.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.config import Config

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}")


def run(
    settings: Config, words: tuple[str, ...], hosts: str | None, name: str | None, port: int
) -> None:
    """Do what the words after ``fleet`` say; :class:`ConfigError` for what is not understood."""
    verb, *further = words
    if verb == "serve":
        if len(further) > 1 or hosts or name or port:
            raise ConfigError(
                f"fleet {' '.join(words)}: expected serve [tls://HOST:PORT]",
                advice="What is offered, invoke fleet join says, on the machine that offers it.",
            )
        _serve(settings, *further)
    else:
        if len(further) != 1:
            raise ConfigError(
                f"fleet {' '.join(words)}: expected join tls://HOST:PORT",
                advice="invoke fleet serve says which.",
            )
        _join(settings, further[0], hosts, name, port)


def _serve(settings: Config, where: str = "tls://0.0.0.0:8786") -> None:
    from pipelines.fleet.cluster.certificates import check, make, place, read_address
    from pipelines.fleet.cluster.wire import serve

    address, file = read_address(where, "fleet serve"), place(settings.fleet)
    made = not file.exists()
    if made:
        with contextlib.suppress(FileExistsError):  # another has made it at this moment
            make(file)
    until = check(file)

    def ready(listens: str) -> None:
        found = read_address(listens, "fleet serve")
        if found.host == "127.0.0.1" and address.host == "0.0.0.0":  # noqa: S104 - as it was typed
            listens = f"tls://{socket.gethostname()}:{found.port}"
        say(f"{'made' if made else 'found'} {file}, good until {until:%Y-%m-%d}", style="bold")
        say("Whoever has that file may run programs on every member: copy it by a way you trust.")
        say(f"Where hosts are:  invoke fleet join {listens} --hosts NAME,NAME")
        say(f"Where it is asked: invoke build --fleet --scheduler {listens}")
        if str(address) != listens:
            say("Any other name of this machine will do, too, where it is known by that.")
        say("Ctrl-C ends it; what members do goes on.")

    _until_left(serve(address, file, say, ready))


def _join(settings: Config, where: str, hosts: str | None, name: str | None, port: int) -> None:
    from pipelines.fleet.cluster.certificates import check, place, read_address
    from pipelines.fleet.cluster.member import Member
    from pipelines.fleet.cluster.wire import stay

    address, file = read_address(where, "fleet join"), place(settings.fleet)
    check(file)
    called = name or re.sub(r"[^a-z0-9_-]+", "-", socket.gethostname().lower()).strip("-_")[:40]
    if not _NAME.fullmatch(called):
        raise ConfigError(
            f"--name {called[:60]}: expected letters, digits, - and _, at most 41",
            advice="Its hosts are called NAME/HOST where they are asked.",
        )
    offered = settings.fleet_hosts(tuple(filter(None, (hosts or "").split(","))))
    member = Member(settings, offered, say)
    say(f"offering {', '.join(f'{called}/{host}' for host in offered)}")
    try:
        _until_left(stay(address, file, called, member.answer, say=say, port=port))
    finally:
        member.close()


def _until_left(work: Coroutine[Any, Any, None]) -> None:
    import asyncio

    try:
        asyncio.run(work)
    except KeyboardInterrupt:
        say("left; what runs on hosts goes on there", style="yellow")
