"""Engines over ssh://: a real sshd on loopback, ``docker system dial-stdio`` at its far end."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_api import WindowsEngine
from engine_simulator import Served
from sshd_server import DIAL_STDIO, Sshd, needs_sshd, running

from pipelines.core.errors import HostError, SetupError
from pipelines.hosts.engine import transport
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.execstream import ExecStream, Hijacked

pytestmark = needs_sshd


@pytest.fixture
def sshd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    with running(tmp_path, monkeypatch) as server:
        yield server


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(WindowsEngine(tmp_path / "engine"), socket_file=tmp_path / "d.sock") as served:
        yield served


@pytest.fixture(params=["docker", "a stand-in"])
def relayed(request: pytest.FixtureRequest, sshd: Sshd, served: Served) -> Sshd:
    """With a real ``docker`` at the far end, and with a stand-in for machines without one."""
    socket_file = served.url.removeprefix("unix://")
    if request.param == "docker":
        if not (docker := shutil.which("docker")):
            pytest.skip("no docker on this machine")
        sshd.docker(f'#!/bin/sh\nDOCKER_HOST={served.url} exec {docker} "$@"\n')
    else:
        sshd.docker(DIAL_STDIO.format(python=sys.executable, socket=socket_file))
    return sshd


def test_an_engine_over_ssh(relayed: Sshd, served: Served) -> None:
    engine = Engine(relayed.url)
    assert engine.system == "windows"
    served.engine.add_image("base")
    box = engine.client.containers.create("base", stdin_open=True)
    leash = Hijacked(box.attach_socket(params={"stdin": 1, "stream": 1}))
    box.start()
    place = served.engine.find(str(box.id)).path(r"C:\Python\python.exe")
    place.parent.mkdir()
    place.touch()
    code = "import sys; sys.stdout.write(sys.stdin.read().upper())"
    stream = ExecStream(box, [r"C:\Python\python.exe", "-c", code])
    stream.write(b"all the way " * 10_000)
    stream.close_write()
    assert stream.read(120_000) == b"ALL THE WAY " * 10_000
    with pytest.raises(EOFError):
        stream.read(1)
    assert stream.wait() == 0
    leash.close()
    assert box.wait(timeout=20)["StatusCode"] == 0  # its input has ended with the leash
    box.remove()
    engine.close()


def test_nobody_is_asked_for_a_password(sshd: Sshd) -> None:
    (sshd.place / "authorized_keys").write_text("")
    with pytest.raises(SetupError, match="ssh may not sign in there") as raised:
        Engine(sshd.url)
    assert "ssh-copy-id" in raised.value.hint


def test_a_machine_with_another_key_is_refused(sshd: Sshd) -> None:
    other = (sshd.place / "user.pub").read_text().split()[:2]
    known = f"[127.0.0.1]:{sshd.port} {' '.join(other)}\n"
    (sshd.place / "known_hosts").write_text(known)
    with pytest.raises(SetupError, match="shows another key"):
        Engine(sshd.url)


def test_a_machine_whose_key_nobody_knows_is_refused(sshd: Sshd) -> None:
    (sshd.place / "known_hosts").write_text("")
    with pytest.raises(SetupError, match="or none is known yet"):
        Engine(sshd.url)


def test_a_machine_without_docker(sshd: Sshd) -> None:
    (sshd.place / "sshd_config").touch()
    if Path("/usr/bin/docker").exists():
        sshd.docker("#!/bin/sh\necho 'sh: 1: docker: not found' >&2\nexit 127\n")
    with pytest.raises(SetupError, match="there is no docker on its machine"):
        Engine(sshd.url)


def test_a_machine_whose_engine_does_not_run(sshd: Sshd, tmp_path: Path) -> None:
    if not (docker := shutil.which("docker")):
        pytest.skip("no docker on this machine")
    sshd.docker(f'#!/bin/sh\nDOCKER_HOST=unix://{tmp_path}/none exec {docker} "$@"\n')
    with pytest.raises(HostError, match="the engine there is not running"):
        Engine(sshd.url)


def test_what_the_far_end_says_is_made_harmless(sshd: Sshd) -> None:
    sshd.docker("#!/bin/sh\nprintf '\\033]0;mine\\007\\033[31mno\\n' >&2\nexit 3\n")
    with pytest.raises(HostError, match="ssh ended with 3: no") as raised:
        Engine(sshd.url)
    assert "\x1b" not in raised.value.message


def test_a_machine_that_is_off(sshd: Sshd) -> None:
    sshd.process.terminate()
    sshd.process.wait()
    with pytest.raises(HostError, match="ssh does not reach its machine"):
        Engine(sshd.url)


def test_a_far_end_that_says_nothing_is_given_up(
    sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.hosts.engine.engine._FIRST", 3.0)
    sshd.docker("#!/bin/sh\nexec sleep 60\n")
    began = time.monotonic()
    with pytest.raises(HostError, match="says nothing"):
        Engine(sshd.url)
    assert time.monotonic() - began < 20


def test_without_ssh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="needs the program ssh"):
        Engine("ssh://ci@192.0.2.1")


def test_what_ssh_is_told() -> None:
    way = transport.Ssh("ssh://ci@win1:2222/run/d.sock", 5)
    command = way._pool._command
    assert command[-7:] == (
        *("-p", "2222", "-l", "ci", "--", "win1"),
        "docker --host unix:///run/d.sock system dial-stdio",
    )
    assert "BatchMode=yes" in command
    assert transport.Ssh("ssh://-oProxyCommand=x", 5)._pool._command[-3] == "--"
