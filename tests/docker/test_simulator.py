"""The simulated engine and a real one, asked the same: what it cannot say it may not make up.

Only what Linux and Windows have in common: statuses, streams, frames, the leash, files, labels.
"""

from __future__ import annotations

import io
import re
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError
from docker.models.containers import Container

from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.execstream import ExecStream
from pipelines.hosts.engine.hijack import Hijacked

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from engine_api import WindowsEngine
from engine_simulator import Served

pytestmark = pytest.mark.docker

MARK = "wcw-test-simulator"
#: A path of either container, which has a directory above it.
PLACE = "/wcw-there"


class Side:
    """One of the two engines, with an image in which ``sh`` and ``cat`` are."""

    def __init__(self, engine: Engine, image: str) -> None:
        self.engine, self.image = engine, image

    def create(self, *command: str, **keys: Any) -> Container:
        made: Container = self.engine.client.containers.create(
            self.image, list(command), labels={MARK: "1"}, **keys
        )
        return made

    def clean(self) -> None:
        found = self.engine.client.containers.list(all=True, filters={"label": MARK})
        for left in found:
            left.remove(force=True)


@pytest.fixture(scope="module")
def sides(
    engine: Engine, debian: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Side]]:
    place = tmp_path_factory.mktemp("simulated")
    same = {name: lambda words: words for name in ("sh", "cat", "sleep", "true")}
    windows = WindowsEngine(place / "boxes", programs=same)
    windows.add_image("base")
    with Served(windows, socket_file=place / "docker.sock") as served:
        both = [Side(engine, debian), Side(Engine(served.url), "base")]
        yield both
        for side in both:
            side.clean()


def status(work: Callable[[], object]) -> tuple[int, str]:
    """What an error is: its status, and its text without ids and names."""
    try:
        work()
    except APIError as error:
        said = re.sub(r"[0-9a-f]{64}", "ID", str(error.explanation)).lower()
        return int(error.status_code or 0), " ".join(said.split()[:4])
    return 200, ""


def archive(name: str, data: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(data), 0o600
        tar.addfile(member, io.BytesIO(data))
    return made.getvalue()


def refusals(side: Side) -> dict[str, tuple[int, str]]:
    client = side.engine.client
    box = side.create("sleep", "60", name="wcw-test-box")
    found = {
        "no image": status(lambda: client.containers.create("wcw-none:1", "x")),
        "no container": status(lambda: client.containers.get("wcw-none")),
        "name": status(lambda: side.create("sleep", "60", name="wcw-test-box")),
        "exec before start": status(lambda: client.api.exec_create(box.id, "true")),
        "no file": status(lambda: box.get_archive("/nowhere/at-all")),
        "no directory": status(lambda: box.put_archive("/nowhere", archive("x", b""))),
        "start": status(box.start),
        "start again": status(box.start),
        "remove while it runs": status(box.remove),
        "remove": status(lambda: box.remove(force=True)),
        "remove again": status(lambda: box.remove(force=True)),
        "stop what is gone": status(box.stop),
        "no exec": status(lambda: client.api.exec_inspect("f" * 64)),
        "no volume": status(lambda: client.api.remove_volume("wcw-none")),
        "no program": status(lambda: side.create("no-such-program").start()),
    }
    side.clean()
    for name in ("no program", "remove while it runs"):  # runc's words or Windows'; 20.10's or 29's
        found[name] = (found[name][0], "")
    return found


def test_they_refuse_alike(sides: list[Side]) -> None:
    real, simulated = map(refusals, sides)
    assert real == simulated


def test_a_leash_ends_them_alike(sides: list[Side]) -> None:
    for side in sides:
        box = side.create("cat", stdin_open=True)
        leash = Hijacked(box.attach_socket(params={"stdin": 1, "stdout": 1, "stream": 1}))
        box.start()
        leash.send(b"said\n")
        assert leash.piece(100) == (1, b"said\n")
        began = time.monotonic()
        leash.close()
        assert box.wait(timeout=20)["StatusCode"] == 0
        assert time.monotonic() - began < 30
        box.reload()
        assert box.status == "exited"
        assert box.logs() == b"said\n"
        assert box.logs(stdout=True, stderr=True, tail=0) == b""
        box.remove()


def test_one_without_a_leash_lives_on_when_nobody_is_attached(sides: list[Side]) -> None:
    for side in sides:
        box = side.create("sleep", "60")
        way = Hijacked(box.attach_socket(params={"stdout": 1, "stream": 1}))
        box.start()
        way.close()
        time.sleep(0.3)
        box.reload()
        assert box.status == "running"
        box.remove(force=True)


def test_an_exec_has_two_streams_an_end_and_a_code(sides: list[Side]) -> None:
    script = "sleep 0.2; cat; echo wrong >&2; exit 3"
    for side in sides:
        box = side.create("sleep", "60")
        box.start()
        stream = ExecStream(box, ["sh", "-c", script])
        stream.write(bytes(range(256)) * 1000)
        stream.close_write()
        assert stream.read(256_000) == bytes(range(256)) * 1000
        with pytest.raises(EOFError, match="exit code 3: wrong"):
            stream.read(1)
        assert stream.wait() == 3
        box.remove(force=True)


def test_a_program_that_is_not_there(sides: list[Side]) -> None:
    for side in sides:
        box = side.create("sleep", "60")
        box.start()
        stream = ExecStream(box, ["no-such-program"])
        with pytest.raises(EOFError, match=r"exit code 12[67]: no-such-program does not start"):
            stream.read(1)
        box.remove(force=True)


def test_files_go_in_and_out_alike(sides: list[Side]) -> None:
    for side in sides:
        box = side.create("sleep", "60")
        assert box.put_archive("/", archive("wcw-there", b"x" * 1000))
        for _ in ("created", "running"):
            stream, about = box.get_archive(PLACE)
            assert about is not None
            assert about["name"] == "wcw-there"
            assert about["size"] == 1000
            assert about["mode"] & 0o777 == 0o600
            with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as tar:
                assert tar.getnames() == ["wcw-there"]
            box.start()
        box.remove(force=True)


def test_labels_find_them_alike(sides: list[Side]) -> None:
    found = []
    for side in sides:
        client = side.engine.client
        for number in "12":
            client.containers.create(side.image, "true", labels={MARK: "1", "n": number})
        wanted = [[MARK], [f"{MARK}=1"], [f"{MARK}=2"], [MARK, "n=2"], ["n"], [MARK, "n=3"]]
        found.append(
            [len(client.containers.list(all=True, filters={"label": w})) for w in wanted]
            + [len(client.containers.list(filters={"label": MARK}))]
        )
        side.clean()
    assert found[0] == found[1] == [2, 2, 0, 1, 2, 0, 0]


def test_one_that_removes_itself_says_how_it_ended_before(sides: list[Side]) -> None:
    for side in sides:
        box = side.create("sh", "-c", "exit 5", auto_remove=True)
        api = side.engine.client.api
        url = f"{api.base_url}/v{api.api_version}/containers/{box.id}/wait"
        end = api.post(url, params={"condition": "next-exit"}, stream=True)
        box.start()
        assert end.json()["StatusCode"] == 5
        deadline = time.monotonic() + 10
        while status(box.reload)[0] != 404 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert status(box.reload)[0] == 404


def test_what_an_inspect_says_is_there_in_both(sides: list[Side]) -> None:
    def shape(value: object) -> object:
        return {key: shape(item) for key, item in value.items()} if isinstance(value, dict) else 0

    told = []
    for side in sides:
        box = side.create("sleep", "60", environment={"A": "b"})
        box.start()
        box.reload()
        told.append(box.attrs)
        box.remove(force=True)
    real, simulated = told
    assert not set(simulated) - set(real)
    for part in ("State", "Config"):
        assert not set(simulated[part]) - set(real[part]), part
        same = {key for key in simulated[part] if shape(simulated[part][key]) == 0}
        for key in same:
            mine, theirs = simulated[part][key], real[part][key]
            assert mine is None or theirs is None or type(mine) is type(theirs), (part, key)


def test_the_leash_of_an_earlier_run_is_none_of_the_next(sides: list[Side]) -> None:
    ways = {"stdin": 1, "stream": 1}
    for side in sides:
        box = side.create("cat", stdin_open=True)
        first = Hijacked(box.attach_socket(params=ways))
        box.start()
        box.restart(timeout=0)
        second = Hijacked(box.attach_socket(params=ways))
        first.close()
        time.sleep(0.5)
        box.reload()
        assert box.status == "running"
        second.close()
        assert box.wait(timeout=20)["StatusCode"] == 0
        box.remove()
