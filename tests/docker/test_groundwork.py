"""What the doctor asks of a real engine and its machine before anything is started."""

from __future__ import annotations

from pipelines.doctor import passthrough
from pipelines.doctor.model import Facts
from pipelines.hosts.base import OpenOptions
from pipelines.hosts.container.config import ContainerHost
from pipelines.hosts.container.host import Container
from pipelines.hosts.engine import owners
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.manager import LABEL
from pipelines.hosts.images import Image
from pipelines.hosts.passthrough import linux, prerequisites
from pipelines.toolchain.lock import Cache


def test_a_container_sees_its_machine_as_it_is(engine: Engine, sandbox_image: Image) -> None:
    """As this very machine is; nothing stays."""
    found, here = prerequisites.look_at(engine, sandbox_image.id), linux.inspect_linux_machine()
    # Whether a device file may be written is asked as another user there.
    assert (found.kvm == "absent", found.vfio == "absent") == (
        here.kvm == "absent",
        here.vfio == "absent",
    )
    same = {"kvm": found.kvm, "vfio": found.vfio, "nodes": found.nodes}
    assert found == here.model_copy(update=same)
    labels = [f"{LABEL}project={owners.project_id()}", f"{LABEL}kind=look"]
    assert not engine.client.containers.list(all=True, filters={"label": labels})


def test_a_host_is_surveyed_and_not_made(engine: Engine, cache: Cache) -> None:
    config = ContainerHost.model_validate({"kind": "container"})
    host = Container("never-made", config, OpenOptions("3.11", cache))
    (verdict,) = passthrough.judge(Facts(host.prerequisites()))
    assert (verdict.id, verdict.level, verdict.actual) == ("engine", "ok", engine.title)
    assert not host.manager.all("never-made")
