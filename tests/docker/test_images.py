"""Images on a real engine: built, found again, checked; what fails or is cut off leaves nothing."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from docker.errors import APIError
from docker.models.containers import Container
from registry import running

from pipelines.core.errors import ConfigError, HostError, PipelineError, SetupError
from pipelines.hosts import images
from pipelines.hosts.base import Silent
from pipelines.hosts.engine import owners
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.manager import LABEL, ContainerManager
from pipelines.hosts.images import Image, definitions, lookup
from pipelines.hosts.images import record as names
from pipelines.hosts.images.build import read_image_file
from pipelines.hosts.sandbox.image import image_tool_names as tools_of
from pipelines.toolchain.lock import Cache, load_lock

ROOT = Path(__file__).parents[2]
SMALL = """\
ARG BASE
FROM ${BASE}
COPY scripts/survey.py /image/
RUN mkdir -p /things && echo one >/things/one && echo two >/things/two
RUN python3 /image/survey.py --out /image/found.json things=/things
"""


@pytest.fixture
def small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine
) -> Iterator[Callable[..., Image]]:
    """Make an image of a Dockerfile's text, on that of the sandbox; all are removed afterwards."""
    (tmp_path / "Dockerfile").write_text(SMALL)
    (tmp_path / "survey.py").write_bytes((ROOT / "images/scripts/survey.py").read_bytes())
    described = definitions.ImageDefinition(
        system="linux",
        dockerfile="Dockerfile",
        base={"": "none"},
        files={"scripts/survey.py": "survey.py"},
        python=r"C:\Python{cp}\python.exe",
    )
    monkeypatch.setattr(definitions, "image_definitions", lambda: {"small": described})
    monkeypatch.setattr(definitions, "CHECKOUT", tmp_path)
    cache = Cache(load_lock(), root=tmp_path / "cache")

    def make(base: Image, text: str = SMALL, events: Any = None, **more: Any) -> Image:
        (tmp_path / "Dockerfile").write_text(text)
        return images.ensure(
            engine, "small", "3.11", cache, events or Silent(), base=base.id, **more
        )

    make.cache = cache  # type: ignore[attr-defined]
    yield make
    mine = {"label": f"{names.IMAGE}=small"}
    while left := engine.client.images.list(filters=mine):
        for image in left:
            with contextlib.suppress(APIError):  # those that others stand on go after them
                engine.client.images.remove(str(image.id), force=True)
        assert len(engine.client.images.list(filters=mine)) < len(left)


def tags(engine: Engine, what: str = "small") -> list[str]:
    found = engine.client.images.list(name=f"windows-cuda-wheels/{what}")
    return [tag for image in found for tag in image.tags]


@pytest.fixture
def run(engine: Engine) -> Iterator[Callable[..., Container]]:
    """Start a container of an image as a host would; it is removed afterwards."""
    made: list[Container] = []

    def start(image: Image, host: str = "box", **keys: Any) -> Container:
        labels = {f"{LABEL}project": owners.project_id(), f"{LABEL}host": host}
        made.append(engine.client.containers.run(image.id, detach=True, labels=labels, **keys))
        made[-1].reload()
        return made[-1]

    yield start
    for container in made:
        container.remove(force=True, v=True)


# -- the sandbox's ---------------------------------------------------------------------------------


def test_the_image_says_what_it_was_made_from(
    engine: Engine, cache: Cache, sandbox_image: Image
) -> None:
    record = sandbox_image.record
    inside = read_image_file(engine, sandbox_image.id, names.RECORD)
    assert json.loads(inside) == record
    about = engine.image(sandbox_image.id)
    assert about is not None
    labels = about["Config"]["Labels"]
    assert labels[names.HASH] == names.sha256_of_bytes(inside)
    assert labels[names.KEY] == record["key"]
    tools = record["inputs"]["tools"]
    assert {n: t["sha256"] for n, t in tools.items()} == {
        name: cache.lock.tool(name).sha256 for name in tools_of("3.11")
    }
    packages = {name.partition(":")[0] for name in record["found"]["packages"]}
    assert {"python3", "tini"} <= packages
    assert not any("wine" in name for name in packages)  # the pinned one alone
    assert record["found"]["trees"]["python"]["files"] > 500
    assert sandbox_image.python == r"C:\Python311\python.exe"


def test_its_service_is_ready_and_leaves_no_zombies(
    sandbox_image: Image, run: Callable[..., Container]
) -> None:
    box = run(sandbox_image)
    deadline = time.monotonic() + 60
    while box.exec_run(["test", "-e", "/sandbox/run/state.json"]).exit_code:
        assert time.monotonic() < deadline, box.logs()
        time.sleep(0.1)
    assert box.exec_run(["cat", "/proc/1/comm"]).output == b"tini\n"
    # A child whose parent is gone becomes process 1's; Wine leaves many.
    assert not box.exec_run(["sh", "-c", "(sleep 0.2 &) ; sleep 0.6"]).exit_code
    told = box.exec_run(["sh", "-c", "cat /proc/[0-9]*/stat | cut -d' ' -f3"]).output
    assert isinstance(told, bytes)
    assert b"S" in told.split()
    assert b"Z" not in told.split()
    began = time.monotonic()
    box.stop(timeout=20)
    assert time.monotonic() - began < 10
    assert box.wait()["StatusCode"] == 0


def test_the_commands(
    engine: Engine,
    sandbox_image: Image,
    run: Callable[..., Container],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts = {"box": {"kind": "container", "keep": True}, "bare": {"kind": "sandbox"}}
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump({"hosts": hosts}))
    monkeypatch.chdir(tmp_path)

    def wcw(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pipelines", *words]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    listed = wcw("image.list", "--json")
    assert listed.returncode == 0, listed.stderr
    rows = {row["id"]: row for row in json.loads(listed.stdout)["images"]}
    assert rows[sandbox_image.id]["state"] == lookup.TODAY
    assert rows[sandbox_image.id]["hosts"] == ["box"]
    other = wcw("image.list", "--host", "bare")
    assert other.returncode == ConfigError.exit_code


def archive_of(name: str, data: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        member = tarfile.TarInfo(name)
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


# -- any -------------------------------------------------------------------------------------------


def test_an_image_is_made_once_and_another_input_makes_another(
    engine: Engine, sandbox_image: Image, small: Callable[..., Image]
) -> None:
    first = small(sandbox_image)
    assert small(sandbox_image) == first
    other = small(sandbox_image, SMALL.replace("echo two", "echo three"))
    assert other.record["key"] != first.record["key"]
    assert other.id != first.id
    assert small(sandbox_image) == first
    assert sorted(tags(engine)) == sorted({first.tag, other.tag})
    assert first.record["found"]["trees"]["things"]["files"] == 2


def test_what_was_made_by_hand_is_used_where_no_base_is_asked_for(
    engine: Engine, sandbox_image: Image, small: Callable[..., Image]
) -> None:
    made = small(sandbox_image)
    assert images.find(engine, "small", "3.11", small.cache) == made  # type: ignore[attr-defined]
    other = "sha256:" + "0" * 64
    with pytest.raises(ConfigError, match="the engine has no image"):
        images.ensure(engine, "small", "3.11", small.cache, Silent(), base=other)  # type: ignore[attr-defined]


def test_a_failed_build_shows_its_last_lines_and_leaves_no_image(
    engine: Engine, sandbox_image: Image, small: Callable[..., Image]
) -> None:
    broken = SMALL + "RUN echo the-reason >&2 && exit 3\n"
    with pytest.raises(HostError, match="returned a non-zero code: 3") as caught:
        small(sandbox_image, broken)
    assert "the-reason" in caught.value.message
    log = Path(caught.value.hint.partition("Full log: ")[2])
    assert "the-reason" in log.read_text()
    assert not tags(engine)
    with pytest.raises(PipelineError):
        small(sandbox_image, SMALL.replace("things=/things", "things=/nothing"))
    assert not tags(engine)


def test_an_interrupted_build_leaves_no_image_and_nothing_running(
    engine: Engine, sandbox_image: Image, small: Callable[..., Image]
) -> None:
    class Impatient(Silent):
        def step(self, text: str) -> None:
            if "sleep 60" in text:
                time.sleep(1)
                raise KeyboardInterrupt

    before = {box.id for box in engine.client.containers.list(all=True)}
    with pytest.raises(KeyboardInterrupt):
        small(sandbox_image, SMALL + "RUN sleep 60\n", Impatient())
    assert not tags(engine)
    deadline = time.monotonic() + 15
    while left := {
        str((box.attrs or {}).get("Config", {}).get("Cmd"))
        for box in engine.client.containers.list(all=True, ignore_removed=True)
        if box.id not in before
        and "sleep 60" in str((box.attrs or {}).get("Config", {}).get("Cmd"))
    }:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def test_what_a_killed_build_left_is_forgotten_by_the_next(
    engine: Engine, sandbox_image: Image, small: Callable[..., Image]
) -> None:
    first = small(sandbox_image)
    api, repository = engine.client.api, "windows-cuda-wheels/small"
    dead = f"py311-000000000000-{owners.machine_id()}_1_gone.part"
    alive = f"py311-000000000000-{owners.process_identity().replace('/', '_')}.part"
    for tag in (dead, alive):
        api.tag(first.id, repository, tag)
    second = small(sandbox_image, SMALL.replace("echo two", "echo three"))
    assert {*tags(engine)} == {first.tag, second.tag, f"{repository}:{alive}"}


def test_a_record_that_was_changed_is_refused(
    engine: Engine, sandbox_image: Image, small: Callable[..., Image], tmp_path: Path
) -> None:
    made = small(sandbox_image)
    forged = tmp_path / "forged"
    forged.mkdir()
    record = json.loads(read_image_file(engine, made.id, names.RECORD))
    record["inputs"]["python"] = "3.12"
    (forged / "record.json").write_text(json.dumps(record))
    (forged / "Dockerfile").write_text(f"FROM {made.id}\nCOPY record.json /image/record.json\n")
    engine.client.images.build(path=str(forged), tag="windows-cuda-wheels/small:forged")
    for kept in (tmp_path / "cache/image-records").iterdir():
        kept.write_text("{}")  # damaged on this machine, too: the image is asked again
    other = engine.image("windows-cuda-wheels/small:forged")
    assert other is not None
    with pytest.raises(HostError, match="its record has sha256"):
        lookup.record_of(engine, other, small.cache)  # type: ignore[attr-defined]
    assert small(sandbox_image) == made


def test_what_somebody_made_of_ours_is_not_taken_for_it(
    engine: Engine, sandbox_image: Image, small: Callable[..., Image]
) -> None:
    made = small(sandbox_image)
    box = engine.client.containers.create(made.id)
    started = box.commit("windows-cuda-wheels/small", "started", conf={"Cmd": ["other"]})
    box.put_archive("/things", archive_of("one", b"other"))
    changed = box.commit("windows-cuda-wheels/small", "committed")
    box.remove()
    for other in (started, changed):
        assert other.labels[names.KEY] == made.record["key"]
    assert small(sandbox_image).id == made.id
    engine.client.images.remove(made.tag)
    again = small(sandbox_image)
    assert again.id not in (started.id, changed.id)
    assert again.record == made.record


def test_an_image_is_pushed_and_fetched_by_its_digest(
    engine: Engine, cache: Cache, tmp_path: Path
) -> None:
    (tmp_path / "tiny.tar").write_bytes(archive_of("hello", b"there"))
    api = engine.client.api
    label = r'LABEL windows-cuda-wheels.python="C:\\python\\{python}\\python.exe"'
    tiny = str(
        json.loads(
            api.import_image_from_file(
                str(tmp_path / "tiny.tar"), "wcw-test-tiny", "1", changes=[label]
            )
        )["status"]
    )
    image = Image(tiny, "wcw-test-tiny:1", "linux", "", {})
    told: list[str] = []
    with running() as registry:
        try:
            name = f"{registry.name}/wcw/tiny"
            said = lookup.push_image(engine, image, f"{name}:1", lambda what, *_: told.append(what))
            _, manifest = registry.manifests["1"]
            assert said == f"{name}@sha256:{names.sha256_of_bytes(manifest)}"
            for tag in (f"{name}:1", "wcw-test-tiny:1"):
                engine.client.images.remove(tag)
            fetched = images.ensure(engine, said, "3.13", cache, Silent())
            assert (fetched.id, fetched.python) == (tiny, r"C:\python\3.13\python.exe")
            gone = f"{name}@sha256:{'1' * 64}"
            with pytest.raises(ConfigError, match="no such image"):
                images.ensure(engine, gone, "3.13", cache, Silent())
            with pytest.raises(ConfigError, match="--to"):
                lookup.push_image(engine, fetched, name, print)
            registry.refuses = True
            with pytest.raises(SetupError, match="requires a sign-in"):
                lookup.push_image(engine, fetched, f"{name}:2", print)
        finally:
            engine.client.images.remove(tiny, force=True)


def test_a_command_that_is_killed_while_it_reads_an_image_leaves_what_is_found_again(
    engine: Engine, sandbox_image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = f"""if True:
        import os, signal
        from pipelines.hosts.engine import containerfiles
        from pipelines.hosts.engine.engine import Engine
        from pipelines.hosts.images.build import read_image_file
        containerfiles.read_container_file = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        read_image_file(Engine(), "{sandbox_image.id}", "/image/record.json")
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    orphans = ContainerManager(engine).orphans()
    for one in orphans:
        one.remove(force=True)
    assert [one.status for one in orphans] == ["created"]
