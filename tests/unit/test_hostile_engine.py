"""An engine that answers what none should: refused or bounded, never believed, never shown raw."""

from __future__ import annotations

import io
import json
import struct
import tarfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from docker.models.containers import Container
from engine_api import WindowsEngine
from engine_simulator import Handler, Served

from pipelines.errors import HostError, PipelineError
from pipelines.hosts.engine import answers
from pipelines.hosts.engine.boxes import LABEL, Boxes
from pipelines.hosts.engine.containerfiles import read_file
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.execstream import ExecStream
from pipelines.hosts.engine.refusals import telling

QUIET: Callable[[str, int, int], None] = lambda *_: None  # noqa: E731


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


def json_of(value: object) -> Callable[[Handler], None]:
    return lambda handler: handler.answer(value)


def endless(handler: Handler) -> None:
    """A body that never ends, as fast as it is read."""
    handler.chunks(b"[" * 65536 for _ in iter(int, 1))


def dripping(handler: Handler) -> None:
    """A byte now and then: no time-out of a socket notices."""

    def drops() -> Iterator[bytes]:
        while True:
            time.sleep(0.3)
            yield b" "

    handler.chunks(drops())


def refused(look: Callable[[], object]) -> HostError:
    with pytest.raises(HostError) as raised, telling("look"):
        look()
    assert "\x1b" not in raised.value.message
    assert len(raised.value.message) < 2000
    return raised.value


# -- size, time, shape ---------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["GET /images/json", "GET /containers/json", "GET /info"])
def test_an_answer_without_an_end(served: Served, engine: Engine, path: str) -> None:
    served.replace(path, endless)
    client = engine.client
    looks: dict[str, Callable[[], object]] = {
        "GET /images/json": client.images.list,
        "GET /containers/json": client.containers.list,
        "GET /info": client.info,
    }
    look = looks[path]
    assert f"more than {answers.LONGEST >> 20} MiB" in refused(look).message


def test_an_answer_that_drips(served: Served) -> None:
    served.replace("GET /images/json", dripping)
    began = time.monotonic()
    assert (
        "not ended after 1 s" in refused(Engine(served.url, timeout=1).client.images.list).message
    )
    assert time.monotonic() - began < 10


def test_a_refusal_without_an_end(served: Served, engine: Engine) -> None:
    def fail(handler: Handler) -> None:
        handler.send_response(500)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        try:
            while True:
                handler.wfile.write(piece)
        except OSError:
            handler.close_connection = True

    served.replace("POST /images/create", fail)
    assert "more than" in refused(lambda: engine.pull("x:1", QUIET)).message


def test_a_compressed_answer_that_bursts(served: Served, engine: Engine) -> None:
    packed = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = packed.compress(b" " * (answers.LONGEST * 4)) + packed.flush()
    assert len(bomb) < 1 << 20
    served.replace("GET /images/json", lambda h: h.answer(bomb, Content_Encoding="gzip"))
    assert "more than" in refused(engine.client.images.list).message


@pytest.mark.parametrize("body", [b"<html>", b"", b"\xff\xfe", b"{" * 100_000, b"NaN"])
def test_an_answer_that_is_no_json(
    served: Served, engine: Engine, box: Container, body: bytes
) -> None:
    served.replace("GET /containers/", lambda handler: handler.answer(body))
    refused(box.reload)


STATE: dict[str, Any] = {"Status": "running"}
GOOD: dict[str, Any] = {"Name": "/box", "State": STATE, "Config": {"Labels": {}}}


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        {},
        "text",
        None,
        {"State": "running"},
        {"State": {"Status": 5}},
        {"State": {"Status": "exited", "ExitCode": "0"}},
        {"State": None},
        {"Config": {"Labels": ["a"]}},
        {"Config": {"Labels": {"a": 5}}},
        {"Name": None},
        {"NetworkSettings": {"Ports": {"5986/tcp": [{"HostPort": "80; rm -rf /"}]}}},
        {"NetworkSettings": {"Ports": {"5986/tcp": [{"HostPort": {"a": 1}}]}}},
        {"Id": "../../etc"},
    ],
    ids=str,
)
def test_an_inspect_of_wrong_types(
    served: Served, engine: Engine, box: Container, wrong: object
) -> None:
    told = {**GOOD, "Id": box.id, **wrong} if isinstance(wrong, dict) and wrong else wrong
    served.replace("GET /containers/", json_of(told))
    assert "the engine's answer cannot be used" in refused(box.reload).message


def test_an_inspect_of_another_container(served: Served, engine: Engine, box: Container) -> None:
    served.replace("GET /containers/", json_of({**GOOD, "Id": "f" * 64}))
    assert "it tells of ffffffffffff" in refused(box.reload).message
    served.replace("GET /containers/", json_of({**GOOD, "Id": box.id}))
    box.reload()


@pytest.mark.parametrize("about", [[], 5, {"OSType": 5}, {"OSType": "plan9\x1b[31m"}, {}], ids=str)
def test_an_engine_that_says_nothing_sensible_of_itself(served: Served, about: object) -> None:
    served.replace("GET /info", json_of(about))
    refused(lambda: Engine(served.url))


@pytest.mark.parametrize("version", ["", "1", "1.41/../../x", "9" * 1000, 1.41, None])
def test_a_version_that_is_none(served: Served, version: object) -> None:
    served.replace("GET /version", json_of({"ApiVersion": version}))
    refused(lambda: Engine(served.url))


@pytest.mark.parametrize("body", [b"[]", b'{"message": 5}', b'"x"', b"no \x1b]0;x\x07 json", b""])
def test_a_refusal_that_is_not_well_made(served: Served, engine: Engine, body: bytes) -> None:
    served.replace("GET /images/", lambda handler: handler.answer(body, 500))
    assert "the engine refused" in refused(lambda: engine.client.images.get("x")).message


def test_nobody_is_sent_elsewhere(served: Served, tmp_path: Path) -> None:
    asked: list[str] = []

    def seen(handler: Handler) -> None:
        asked.append(handler.path)
        handler.answer({})

    with Served(WindowsEngine(tmp_path / "other")) as other, Served(served.engine) as first:
        other.replace("", seen)
        there = other.url.replace("tcp:", "http:")
        first.replace("GET /images/json", lambda h: h.answer({}, 302, Location=f"{there}/x"))
        engine = Engine(first.url)
        with pytest.raises(PipelineError), telling("look"):
            engine.client.images.list()
    assert asked == []


# -- streams -------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [b"[]\n", b"5\n", b"not json\n", b"{" * 3_000_000, b'"x' * 2**20])
def test_an_event_that_is_none(served: Served, engine: Engine, line: bytes) -> None:
    served.replace("POST /images/create", lambda handler: handler.chunks([line]))
    assert "an event" in refused(lambda: engine.pull("x:1", QUIET)).message


def test_a_piece_of_a_stream_that_says_it_is_huge(served: Served, engine: Engine) -> None:
    """The SDK's own would read the 2 GiB that the engine names."""

    def huge(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b"80000000\r\n")
        try:
            for _ in range(4096):
                handler.wfile.write(b"x" * 65536)
        except OSError:
            handler.close_connection = True

    served.replace("POST /images/create", huge)
    assert "an event of more than 1 MiB" in refused(lambda: engine.pull("x:1", QUIET)).message


def test_progress_of_wrong_types_is_no_progress(served: Served, engine: Engine) -> None:
    details = [[], 5, {"total": "x"}, {"total": 5, "current": "x"}, {"total": {}}, {"total": -5}]
    events = [{"progressDetail": detail, "id": "\x1b[31m"} for detail in details]
    events.append({"progressDetail": {"total": 7, "current": 3}, "status": "\x1b]0;x\x07pull"})
    told: list[tuple[str, int, int]] = []
    served.replace("POST /images/create", lambda handler: handler.events(events))
    engine.pull("base", lambda *progress: told.append(progress))
    assert told == [("pull", 3, 7)]


def test_a_log_of_a_build_is_made_harmless(served: Served, engine: Engine, tmp_path: Path) -> None:
    served.engine.building = [
        {"stream": "\x1b]0;mine\x07Step\n" + "x" * 100_000},
        {"stream": ["a list"]},
        {"error": "\x1b[31mno", "errorDetail": {}},
    ]
    (tmp_path / "context.tar").write_bytes(b"x")
    said: list[str] = []
    with pytest.raises(HostError, match=r"the engine refused: no$"):
        engine.build_image(tmp_path / "context.tar", "x:1", said.append)
    assert said[0] == "Step"
    assert max(map(len, said)) < 500
    assert "\x1b" not in "".join(said)


def test_a_connection_that_sends_no_frames(served: Served, engine: Engine, box: Container) -> None:
    box.start()

    def rubbish(handler: Handler) -> None:
        _ = handler.body
        handler.hijack()
        time.sleep(0.2)
        handler.wfile.write(struct.pack(">BxxxI", 1, 0xFFFFFFFF) + b"x" * 100)

    served.replace("POST /exec/.*/start", rubbish)
    stream = ExecStream(box, ["cmd"])
    with pytest.raises(EOFError, match="what is no stream of output"):
        stream.read(10)


# -- files ---------------------------------------------------------------------------------------


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
        b"no archive at all" * 100,
        b"",
        tar_of(member("x", kind=tarfile.SYMTYPE)),
        tar_of(member("x", kind=tarfile.LNKTYPE)),
        tar_of(member("x", kind=tarfile.DIRTYPE)),
        tar_of(member("x", kind=tarfile.CHRTYPE)),
    ],
    ids=["noise", "nothing", "symlink", "hard link", "directory", "device"],
)
def test_an_archive_without_the_file(
    served: Served, engine: Engine, box: Container, data: bytes
) -> None:
    sent(served, data)
    refused(lambda: read_file(box, "C:/x"))


def test_names_in_an_archive_lead_nowhere(
    served: Served, engine: Engine, box: Container, tmp_path: Path
) -> None:
    """Nothing is unpacked: the bytes of the first file are all that is taken."""
    sent(served, tar_of(member("../../../../tmp/evil", b"data"), member("/etc/x", b"more")))
    assert read_file(box, "C:/x") == b"data"
    assert not Path("/tmp/evil").exists()  # noqa: S108 - what it would have written


def test_an_archive_of_ten_gigabytes(served: Served, engine: Engine, box: Container) -> None:
    info = tarfile.TarInfo("x")
    info.size = 10 << 30
    header = info.tobuf()

    def stream(handler: Handler) -> None:
        pieces = (header if at == 0 else b"x" * 65536 for at in range(200_000))
        handler.chunks(pieces, "application/x-tar")

    served.replace("GET /containers/.*/archive", stream)
    assert "more than 1 MiB" in refused(lambda: read_file(box, "C:/x")).message
    sent(served, header + b"x" * 1000)
    refused(lambda: read_file(box, "C:/x"))


def test_an_archive_that_drips(served: Served, box: Container, tmp_path: Path) -> None:
    served.replace("GET /containers/.*/archive", dripping)
    slow = Engine(served.url, timeout=1).client.containers.get("box")
    done: list[HostError] = []
    thread = threading.Thread(target=lambda: done.append(refused(lambda: read_file(slow, "C:/x"))))
    thread.start()
    thread.join(20)
    assert done, "it waits for ever"


# -- lists ---------------------------------------------------------------------------------------


def test_containers_of_others_are_not_ours(served: Served, engine: Engine) -> None:
    """An engine that does not filter, or a stranger with half of our labels."""
    boxes = Boxes(engine)
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
    assert boxes.kept("win") is None


def test_names_and_labels_are_made_harmless(served: Served, engine: Engine, box: Container) -> None:
    hostile = "\x1b]0;owned\x07box"
    served.replace(
        "GET /containers/[^/]+/json", json_of({**GOOD, "Id": box.id, "Name": f"/{hostile}"})
    )
    refused(lambda: Boxes(engine).remove(engine.client.containers.get(str(box.id))))


def test_json_is_really_checked() -> None:
    """Each path that the table knows finds its row."""
    assert json.loads("{}") == {}
    for path in ("/v1.41/info", "/v1.52/containers/json", f"/v1.41/containers/{'a' * 64}/json"):
        with pytest.raises(HostError):
            answers.check("GET", path, b'"x"')
    answers.check("GET", "/v1.41/networks", b"whatever")
