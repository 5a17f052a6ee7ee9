"""Faults that can be made on any Linux machine, on a real engine: error, hint, exit code."""

from __future__ import annotations

import hashlib
import io
import json
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker.models.containers import Container
from windows_registry import WindowsRegistry

from pipelines.core.errors import (
    ConfigError,
    HostError,
    PipelineError,
    SetupError,
    StorageError,
)
from pipelines.hosts.engine.container import ContainerSpec
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.error_patterns import engine_errors
from pipelines.hosts.engine.manager import ContainerManager

#: What the fixture ``debian`` imports.
BASE = "windows-cuda-wheels-tests/debian:bookworm"
MARK = {"wcw-test-refusals": "1"}
#: The classes' exit codes, as the documents have them.
CODES = {ConfigError: 2, SetupError: 4, HostError: 5, StorageError: 11}


@pytest.fixture(scope="module")
def registry() -> Iterator[WindowsRegistry]:
    made = WindowsRegistry()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def clean(engine: Engine, debian: str) -> Iterator[None]:
    assert debian == BASE
    yield
    for left in engine.client.containers.list(all=True, filters={"label": "wcw-test-refusals"}):
        left.remove(force=True, v=True)


def started(engine: Engine, *command: str, **keys: Any) -> Container:
    with engine_errors("make container 'fault'"):
        made: Container = engine.client.containers.create(
            BASE, list(command or ("sleep", "60")), labels=MARK, **keys
        )
    with engine_errors("start container 'fault'"):
        made.start()
    return made


def refused(
    kind: type[PipelineError], says: str, hint: str, work: Any, *given: Any, **keys: Any
) -> str:
    with pytest.raises(PipelineError) as raised:
        work(*given, **keys)
    assert type(raised.value) is kind, raised.value.message
    assert raised.value.exit_code == CODES[kind]
    assert says in raised.value.message
    assert hint in raised.value.hint
    return raised.value.message


def pull(engine: Engine, name: str) -> None:
    engine.pull(name, lambda *_: None)


# -- images --------------------------------------------------------------------------------------


@pytest.mark.parametrize("tag", ["list", "plain"])
def test_a_windows_image(engine: Engine, registry: WindowsRegistry, tag: str) -> None:
    name = f"{registry.host}/windows:{tag}"
    refused(ConfigError, "one is for Windows", "Windows Server", pull, engine, name)
    assert engine.image(name) is None


def test_a_windows_image_from_a_file(engine: Engine) -> None:
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w"):
        pass
    diff = f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}"
    config = json.dumps({"os": "windows", "rootfs": {"type": "layers", "diff_ids": [diff]}})
    manifest = [{"Config": "c.json", "RepoTags": ["wcw-test:win"], "Layers": ["l/layer.tar"]}]
    made = io.BytesIO()
    files = {"c.json": config.encode(), "l/layer.tar": layer.getvalue()}
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, data in {**files, "manifest.json": json.dumps(manifest).encode()}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))

    def load() -> None:
        with engine_errors("load"):
            engine.client.images.load(made.getvalue())

    refused(ConfigError, "one is for Windows", "Windows Server", load)


def test_registries(engine: Engine, registry: WindowsRegistry) -> None:
    host = registry.host
    refused(ConfigError, "no such image", "digest", pull, engine, f"{host}/windows:none")
    missing = f"{host}/windows@sha256:{'0' * 64}"
    refused(ConfigError, "no such image", "digest", pull, engine, missing)
    refused(SetupError, "requires a sign-in", "docker login", pull, engine, f"{host}/secret:x")
    refused(HostError, "has rate-limited", "wait", pull, engine, f"{host}/busy:x")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    nobody = f"127.0.0.1:{port}/x:1"
    refused(HostError, "cannot reach the registry", "docker save", pull, engine, nobody)
    lost = "no-such-machine.invalid/x:1"
    refused(HostError, "cannot reach the registry", "docker save", pull, engine, lost)


def test_names_that_are_none(engine: Engine) -> None:
    refused(
        ConfigError, "not a valid image name", "lower case", pull, engine, "127.0.0.1:1/UPPER:x"
    )


def test_images_that_are_not_there(engine: Engine) -> None:
    def create(image: str, **keys: Any) -> None:
        with engine_errors("make container 'fault'"):
            engine.client.containers.create(image, "x", labels=MARK, **keys)

    refused(ConfigError, "does not have that image", "docker pull", create, "wcw-none:1")
    refused(ConfigError, "one is for Windows", "Windows Server", create, BASE, platform="windows")
    assert engine.image("wcw-none:1") is None
    with pytest.raises(ConfigError, match="needs an engine for Windows containers"):
        engine.require("windows", "host 'win'")


# -- options --------------------------------------------------------------------------------------


def test_isolation(engine: Engine) -> None:
    refused(
        ConfigError,
        "for Windows engines",
        "Remove 'isolation'",
        started,
        engine,
        isolation="process",
    )


def test_devices(engine: Engine) -> None:
    gpu = ["class/5B45201D-F2F2-4F3B-85BB-30FF1F953599"]
    refused(ConfigError, "for Windows engines", "Remove 'gpu'", started, engine, devices=gpu)
    refused(
        SetupError, "has no /dev/vfio/9", "bind the GPU", started, engine, devices=["/dev/vfio/9"]
    )
    from docker.types import DeviceRequest

    wanted = [DeviceRequest(count=1, capabilities=[["gpu"]])]
    refused(
        SetupError, "no NVIDIA container toolkit", "VFIO", started, engine, device_requests=wanted
    )


def test_limits(engine: Engine) -> None:
    refused(ConfigError, "fewer processors", "Lower 'cpus'", started, engine, nano_cpus=int(640e9))
    refused(ConfigError, "too small", "8g", started, engine, mem_limit="1m")
    refused(ConfigError, "too small", "8g", started, engine, mem_limit="8q")
    if "xfs" not in str(engine.about.get("DriverStatus")):
        size = {"size": "120g"}
        refused(
            ConfigError,
            "cannot limit a container's disk",
            "pquota",
            started,
            engine,
            storage_opt=size,
        )


def test_a_name_that_is_taken(engine: Engine) -> None:
    started(engine, name="wcw-test-clash")
    said = refused(
        HostError,
        "'wcw-test-clash' already",
        "docker rename",
        started,
        engine,
        name="wcw-test-clash",
    )
    assert said.count("\n") == 0


def test_a_mount_of_nothing(engine: Engine) -> None:
    from docker.types import Mount

    mounts = [Mount("/there", "/no-such-directory-here", type="bind")]
    refused(
        ConfigError,
        "has no /no-such-directory-here",
        "on the engine's machine",
        started,
        engine,
        mounts=mounts,
    )


def test_a_program_that_the_image_has_not(engine: Engine) -> None:
    refused(
        ConfigError, "does not have the program", "invoke image build", started, engine, "--tied"
    )


# -- ends ------------------------------------------------------------------------------------------


def opened(engine: Engine, *command: str, **keys: Any) -> None:
    order = ContainerSpec(
        host="wcw-test-faults",
        kind="container",
        image=str((engine.image(BASE) or {})["Id"]),
        keys={"command": list(command), **keys},
        start_seconds=20,
    )
    boxes = ContainerManager(engine)
    try:
        boxes.open(order, lambda _: None)
    finally:
        assert boxes.all("wcw-test-faults") == [], "what was made for nothing is removed"


def test_a_container_that_dies_at_once(engine: Engine) -> None:
    """Ten times: it may be gone before anybody has looked."""
    for _ in range(10):
        with pytest.raises(HostError, match="ended with exit code 7: no licence"):
            opened(engine, "sh", "-c", "echo no licence; exit 7")


def test_a_container_that_uses_up_its_memory(engine: Engine) -> None:
    eat = "x=$(head -c 200m /dev/zero | tr '\\0' x)"
    with pytest.raises(HostError, match="exit code 137") as raised:
        opened(engine, "sh", "-c", eat, mem_limit="16m", memswap_limit="16m")
    assert "'memory'" in raised.value.hint


def test_a_container_that_is_gone(engine: Engine) -> None:
    box = started(engine)
    box.remove(force=True)

    def look() -> None:
        with engine_errors("look at container 'fault'"):
            box.reload()

    refused(HostError, "no longer exists", "again", look)
    ContainerManager(engine).remove(box)  # harmless


def test_a_container_that_does_not_run(engine: Engine) -> None:
    box = started(engine, "true")
    box.wait(timeout=20)

    def enter() -> None:
        with engine_errors("enter"):
            engine.client.api.exec_create(box.id, "true")

    refused(HostError, "has ended", "docker logs", enter)


# -- disks and engines ----------------------------------------------------------------------------


def test_a_build_on_a_full_disk(engine: Engine, tmp_path: Path) -> None:
    """A small tmpfs for the builder's step: what is full is inside, the words are the engine's."""
    recipe = f"FROM {BASE}\nRUN dd if=/dev/zero of=/dev/shm/x bs=1M count=200\n".encode()
    with tarfile.open(tmp_path / "context.tar", "w") as tar:
        member = tarfile.TarInfo("Dockerfile")
        member.size = len(recipe)
        tar.addfile(member, io.BytesIO(recipe))
    said: list[str] = []

    def build() -> None:
        engine.build_image(tmp_path / "context.tar", "wcw-test:full", said.append, shmsize=1 << 20)

    refused(StorageError, "the engine's disk is full", "docker system df", build)
    assert any("No space left on device" in line for line in said)


def test_an_engine_that_dies_in_the_middle(tmp_path: Path) -> None:
    """A relay before the real engine, cut: the engine itself must not be stopped here."""
    relay = (
        "import os, socket, sys, threading\n"
        "listening = socket.socket(socket.AF_UNIX)\n"
        "listening.bind(sys.argv[1]); listening.listen()\n"
        "def pump(a, b):\n"
        "    while data := a.recv(65536): b.sendall(data)\n"
        "    b.shutdown(socket.SHUT_WR)\n"
        "while True:\n"
        "    mine = listening.accept()[0]; real = socket.socket(socket.AF_UNIX)\n"
        "    real.connect('/var/run/docker.sock')\n"
        "    for pair in ((mine, real), (real, mine)):\n"
        "        threading.Thread(target=pump, args=pair, daemon=True).start()\n"
    )
    place = tmp_path / "relay.sock"
    child = subprocess.Popen([sys.executable, "-c", relay, str(place)])
    try:
        deadline = time.monotonic() + 10
        while not place.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        engine = Engine(f"unix://{place}")
        box = started(engine)
        child.kill()
        child.wait()

        def look() -> None:
            with engine_errors("look at container 'fault'"):
                box.reload()

        refused(HostError, "stopped responding", "docker info", look)
        place.unlink()
        with pytest.raises(SetupError, match="no Docker engine"):
            Engine(f"unix://{place}")
    finally:
        child.kill()
        child.wait()
