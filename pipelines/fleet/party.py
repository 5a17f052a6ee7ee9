"""Who takes part in a fleet: hosts of ``pipeline.yaml``, and those of members of a cluster."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pydantic import TypeAdapter, ValidationError

from pipelines.console import say
from pipelines.errors import ConfigError, StorageError
from pipelines.files import write_atomic
from pipelines.fleet.asked import Asked
from pipelines.fleet.drivers import Errand
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.lines import LineErrand, Order
from pipelines.fleet.looking import Hosts
from pipelines.fleet.model import Work
from pipelines.fleet.survey import Surveyor
from pipelines.hosttext import line

if TYPE_CHECKING:
    from pipelines.fleet.cluster.joined import Cluster

_FILE = "joined.json"


class HostErrand(Errand, Surveyor, Protocol):
    """What a fleet has of a host, its own or a member's."""

    def close(self, *, stop: bool) -> None:
        """Hang up; ``stop``: also end what the fleet has started."""


@dataclass(frozen=True)
class Party:
    """The hosts of one order."""

    asked: Asked
    """Its settings have the joined hosts as well."""
    names: tuple[str, ...]
    cluster: Cluster | None = None

    def errand(
        self, name: str, order: Order, hosts: Hosts, fleet: str, *, first: Work | None
    ) -> HostErrand:
        """How works are done at that host; nothing is reached yet."""
        if self.cluster is None or name not in self.cluster.hosts:
            return LineErrand(name, order, hosts, first)
        from pipelines.fleet.cluster.joined import JoinedErrand

        return JoinedErrand(name, self.cluster.wire, order, hosts, fleet=fleet, first=first)

    def remembered(self, folder: Path) -> Party:
        """With the hosts that this fleet has had, though their members are away now.

        So its works wait for them as for any host that is away, and are not done twice.
        """
        if self.cluster is None:
            return self
        from pipelines.fleet.cluster.joined import JoinedHost

        kept = TypeAdapter(dict[str, JoinedHost])
        file = folder / _FILE
        try:
            known = kept.validate_json(file.read_bytes())
        except FileNotFoundError:
            known = {}
        except (OSError, ValidationError) as error:
            raise StorageError(
                f"{file} cannot be read: {line(error, 200)}",
                advice="Remove it: then only members that are there now take part.",
            ) from None
        hosts = {**known, **self.cluster.hosts}
        if hosts != known:
            write_atomic(file, kept.dump_json(hosts, indent=1))
        return _party(self._own(), replace(self.cluster, hosts=hosts))

    def _own(self) -> Asked:
        joined = self.cluster.hosts if self.cluster is not None else {}
        mine = {name: one for name, one in self.asked.settings.hosts.items() if name not in joined}
        return replace(self.asked, settings=self.asked.settings.model_copy(update={"hosts": mine}))


@contextmanager
def party(asked: Asked) -> Iterator[Party]:
    """The hosts that an order may go to; those of a cluster while this is entered.

    Raises :class:`ConfigError` for hosts that do not exist, and for a cluster that does not let us
    in; :class:`HostError` for one that cannot be reached.
    """
    if not asked.scheduler:
        if far := next((name for name in asked.hosts if "/" in name), ""):
            raise ConfigError(
                f"--hosts {line(far, 100)} is of a member, and there is no --scheduler",
                advice="Add --scheduler tls://HOST:PORT, as invoke fleet serve says it.",
            )
        yield Party(asked, asked.settings.fleet_hosts(asked.hosts))
        return
    from pipelines.fleet.cluster.certificates import place, read_address
    from pipelines.fleet.cluster.joined import look
    from pipelines.fleet.cluster.wire import Wire

    wire = Wire(read_address(asked.scheduler, "--scheduler"), place(asked.settings.fleet))
    try:
        cluster = look(wire)
        for member, why in cluster.aside.items():
            say(f"{member} is set aside: {why}", style="yellow")
        if not cluster.hosts and not cluster.aside:
            say(f"nobody has joined {wire.address} yet: invoke fleet join", style="yellow")
        yield _party(asked, cluster)
    finally:
        wire.close()


def _party(asked: Asked, cluster: Cluster) -> Party:
    own, joined = cluster.chosen(asked.hosts)
    mine = asked.settings.fleet_hosts(own) if own or not asked.hosts else ()
    hosts = {**asked.settings.hosts, **cluster.hosts}
    settings = asked.settings.model_copy(update={"hosts": hosts})
    return Party(replace(asked, settings=settings), (*mine, *joined), cluster)


def called(ledger: Ledger) -> str:
    """What members know a fleet by: another controller may have one of the same name."""
    told = f"{ledger.fact('order')} {ledger.fact('began')} {socket.gethostname()}"
    return f"{ledger.path.name}-{hashlib.sha256(told.encode()).hexdigest()[:12]}"
