"""What runs in a container: its output and its files are bounded, and made harmless.

And containers that are somebody else's, which are never taken for ours.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker.models.containers import Container
from engine_api import WindowsEngine
from engine_simulator import Handler, Served

from pipelines.core.errors import HostError
from pipelines.hosts.engine.containerfiles import read_container_file
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.manager import LABEL, ContainerManager


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(WindowsEngine(tmp_path / "engine"), socket_file=tmp_path / "d.sock") as served:
        served.engine.add_image("base")
        yield served


@pytest.fixture
def engine(served: Served) -> Engine:
    return Engine(served.url, timeout=5)


@pytest.fixture
def box(engine: Engine) -> Container:
    made: Container = engine.client.containers.create("base", stdin_open=True, name="box")
    return made


def test_a_log_of_a_build_is_made_harmless(served: Served, engine: Engine, tmp_path: Path) -> None:
    served.engine.building = [
        {"stream": "\x1b]0;mine\x07Step\n" + "x" * 100_000},
        {"error": "\x1b[31mno", "errorDetail": {}},
    ]
    (tmp_path / "context.tar").write_bytes(b"x")
    said: list[str] = []
    with pytest.raises(HostError, match=r"the engine refused: no$"):
        engine.build_image(tmp_path / "context.tar", "x:1", said.append)
    assert said[0] == "Step"
    assert max(map(len, said)) < 500
    assert "\x1b" not in "".join(said)


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for member, data in members:
            archive.addfile(member, io.BytesIO(data))
    return made.getvalue()


def member(
    name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(data) if kind == tarfile.REGTYPE else 0
    info.linkname = "/etc/passwd" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
    return info, data


def sent(served: Served, data: bytes) -> None:
    served.replace("GET /containers/.*/archive", lambda h: h.answer(data, kind="application/x-tar"))


@pytest.mark.parametrize(
    "data",
    [
        tar_of(member("x", kind=tarfile.SYMTYPE)),
        tar_of(member("x", kind=tarfile.LNKTYPE)),
        tar_of(member("x", kind=tarfile.DIRTYPE)),
        tar_of(member("x", kind=tarfile.CHRTYPE)),
        tar_of(member("x", b"x" * 1000))[:700],
    ],
    ids=["symlink", "hard link", "directory", "device", "shrunk"],
)
def test_what_is_no_file(served: Served, box: Container, data: bytes) -> None:
    sent(served, data)
    with pytest.raises(HostError, match="C:/x of container 'box'"):
        read_container_file(box, "C:/x")


def test_names_in_an_archive_lead_nowhere(served: Served, box: Container) -> None:
    """Nothing is unpacked: the bytes of the first file are all that is taken."""
    sent(served, tar_of(member("../../../../tmp/evil", b"data"), member("/etc/x", b"more")))
    assert read_container_file(box, "C:/x") == b"data"
    assert not Path("/tmp/evil").exists()  # noqa: S108 - what it would have written


def test_a_file_of_ten_gigabytes(served: Served, box: Container) -> None:
    info = tarfile.TarInfo("x")
    info.size = 10 << 30
    header = info.tobuf()

    def stream(handler: Handler) -> None:
        pieces = (header if at == 0 else b"x" * 65536 for at in range(200_000))
        handler.chunks(pieces, "application/x-tar")

    served.replace("GET /containers/.*/archive", stream)
    with pytest.raises(HostError, match="larger than 1048576 bytes"):
        read_container_file(box, "C:/x")


def test_containers_of_others_are_not_ours(served: Served, engine: Engine) -> None:
    """Filters of an engine are not relied on: what is found here may be removed."""
    boxes = ContainerManager(engine)
    client = engine.client
    foreign = [{}, {"a": "b"}, {f"{LABEL}project": "f" * 12}, {f"{LABEL}host": "win"}]
    for number, labels in enumerate(foreign):
        client.containers.create("base", labels=labels, name=f"foreign-{number}")
    mine = {f"{LABEL}project": boxes.project, f"{LABEL}host": "win", f"{LABEL}owner": "x/y/z"}
    client.containers.create("base", labels=mine, name="mine")

    def unfiltered(handler: Handler) -> None:
        handler.answer(served.engine.listing(True, {}))

    served.replace("GET /containers/json", unfiltered)
    assert [box.name for box in boxes.all("win")] == ["mine"]
    assert boxes.orphans("win") == []
    assert boxes.persistent("win") is None
