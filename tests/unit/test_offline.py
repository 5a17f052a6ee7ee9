"""Offline, ``invoke plan`` says yes just where a build starts."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plans import LAB, line_for
from projects import project

from pipelines.core.errors import LockError
from pipelines.core.files import sha256_of
from pipelines.hosts.container.host import Container
from pipelines.hosts.sandbox import debian, image
from pipelines.hosts.sandbox.host import Sandbox
from pipelines.hosts.sandbox.wine import SEAL
from pipelines.hosts.vm.host import Vm
from pipelines.hosts.winrm.host import WindowsHost
from pipelines.plan.config.model import Config
from pipelines.plan.matrix.buildplan import BuildPlan, Request, resolve_build_plan
from pipelines.plan.matrix.hostfacts import HostFacts
from pipelines.plan.matrix.plan import plan_matrix
from pipelines.recipe.load import load_recipe
from pipelines.recipe.origin import FileSource
from pipelines.stages.dryrun import show_build
from pipelines.stages.line import run_build
from pipelines.toolchain.lock import Tool, ToolchainLock, load_lock

HOSTS: dict[str, dict[str, Any]] = {
    "sandbox": {"kind": "sandbox"},
    "box": {"kind": "container", "engine": "tcp://engine.invalid:2376"},
    "bare": {"kind": "container", "engine": "tcp://engine.invalid:2376", "cache": False},
    "kept": {"kind": "container", "engine": "tcp://engine.invalid:2376", "keep": True},
    "windows": {"kind": "container", "engine": "tcp://engine.invalid:2376", "image": "windows"},
    "vm": {"kind": "vm", "engine": "tcp://engine.invalid:2376", "windows": "2022"},
    "lab": LAB,
}


class Started(Exception):  # noqa: N818 - no error
    """The build has all files, or has asked the host for them."""


def pinned(name: str, tool: Tool) -> Tool:
    """The tool with a content that a test can write: its name."""
    pin = {"sha256": hashlib.sha256(name.encode()).hexdigest(), "size": len(name)}
    sources = tuple(source.model_copy(update=pin) for source in tool.sources)
    return tool.model_copy(update={"sources": sources})


@pytest.fixture(autouse=True)
def _small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock of small files; hosts that end where they would be started."""
    tools = {name: pinned(name, tool) for name, tool in load_lock().tools.items()}
    lock = ToolchainLock.model_construct(**{**dict(load_lock()), "tools": tools, "unpinned": ()})
    monkeypatch.setattr("pipelines.plan.matrix.buildplan.load_lock", lambda: lock)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("WCW_CONFIG", str(tmp_path / "pipeline.yaml"))
    monkeypatch.chdir(tmp_path)

    def start(*_: object, **__: object) -> None:
        raise Started

    monkeypatch.setattr(image, "make_image", start)
    monkeypatch.setattr(Sandbox, "_require_current", start)
    monkeypatch.setattr(Sandbox, "_require_possible", lambda _: None)
    monkeypatch.setattr("pipelines.hosts.sandbox.host.make_run", lambda _: None)  # Linux's own
    for kind in (Container, Vm, WindowsHost):
        monkeypatch.setattr(kind, "prepare", start)


def asked(host: str, tmp_path: Path, recipe: str, **keys: object) -> tuple[Config, Request]:
    hosts = {
        name: {**made, "home": str(tmp_path / "sandbox")} if name == "sandbox" else made
        for name, made in HOSTS.items()
    }
    settings = {"hosts": hosts, "out": str(tmp_path / "out"), "offline": True, **keys}
    return Config.model_validate(settings), Request(axes={"host": host, "recipe": recipe})


def fill(plan: BuildPlan) -> None:
    """All files that a new host is sent, into the cache."""
    for name in (*plan.host.tools, *(name for one in plan.wanted for name in one.uploads)):
        place = plan.cache.path(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(name)


def word(settings: Config, request: Request) -> str:
    """What the plan says of offline files: ``yes``, ``warning`` or ``no``."""
    made = plan_matrix(settings, request, select="cp311-*", facts=HostFacts(16, 64 << 30))
    (row,) = made.rows
    found = {one.level for one in row.judged.findings if one.id == "offline-files"}
    assert row.possible is ("error" not in found)
    return {"error": "no", "warning": "warning"}.get("".join(found), "yes")


def starts(settings: Config, request: Request, tmp_path: Path) -> bool:
    """Whether a build does. Otherwise no run was begun, and a dry run says so as well."""
    line = line_for(resolve_build_plan(settings, request))
    with pytest.raises((Started, LockError)) as caught:
        run_build(line)
    if caught.type is LockError:
        assert not (tmp_path / "out").exists(), "no run was begun"
        with pytest.raises(LockError):
            show_build(line)
    return caught.type is Started


def nothing(_: BuildPlan) -> None:
    pass


def remove_all(plan: BuildPlan) -> None:
    shutil.rmtree(plan.cache.root)


def remove(name: str) -> Callable[[BuildPlan], None]:
    return lambda plan: plan.cache.path(name).unlink()


def shorten(plan: BuildPlan) -> None:
    plan.cache.path("uv").write_text("u")


def change(plan: BuildPlan) -> None:
    plan.cache.path("uv").write_text("vu")


def other_version(plan: BuildPlan) -> None:
    path = plan.cache.path("uv")
    path.parent.rename(path.parent.with_name("0" * 64))


def make_sandbox(plan: BuildPlan) -> None:
    """One of an earlier build, whose downloads were removed, but not its Wine."""
    assert isinstance(plan.host, Sandbox)
    plan.host.prefix.mkdir(parents=True)
    (plan.host.prefix / SEAL).write_text("{}")
    remove_all(plan)
    wine = plan.cache.root / "wine" / debian.wine_cache_key(plan.cache)
    wine.mkdir(parents=True)
    (wine / "place").write_text(str(wine))


def break_sandbox(plan: BuildPlan) -> None:
    """It is replaced by a new one."""
    make_sandbox(plan)
    assert isinstance(plan.host, Sandbox)
    (plan.host.prefix / SEAL).unlink()


@pytest.mark.parametrize(
    ("host", "state", "expected"),
    [
        *((host, nothing, "yes") for host in HOSTS),
        *((host, remove_all, "no") for host in ("sandbox", "box", "bare", "vm")),
        *((host, remove_all, "warning") for host in ("lab", "kept", "windows")),
        *(("sandbox", damage, "no") for damage in (remove("uv"), shorten, change, other_version)),
        ("sandbox", remove("debian-libwine"), "no"),
        ("sandbox", remove("setuptools"), "no"),
        ("sandbox", make_sandbox, "warning"),
        ("sandbox", break_sandbox, "no"),
        ("box", remove("setuptools"), "warning"),
        ("bare", remove("setuptools"), "no"),
        ("vm", remove("vc-redist"), "warning"),
    ],
)
def test_plan_says_what_build_does(
    tmp_path: Path, host: str, state: Callable[[BuildPlan], None], expected: str
) -> None:
    settings, request = asked(host, tmp_path, "smoke-attention")
    plan = resolve_build_plan(settings, request)
    fill(plan)
    state(plan)
    assert word(settings, request) == expected
    assert starts(settings, request, tmp_path) is (expected != "no")


def test_a_sandbox_does_not_download_its_wine_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "pipelines.toolchain.lock.download_from_sources", lambda *_, **__: pytest.fail("fetched")
    )
    host = resolve_build_plan(*asked("sandbox", tmp_path, "smoke-attention")).host
    assert isinstance(host, Sandbox)
    host.prefix.mkdir(parents=True)
    (host.prefix / SEAL).write_text("{}")
    with pytest.raises(LockError, match="debian-"):
        host.start(ephemeral=True)


@pytest.mark.parametrize("place", ["cache", "wheelhouse", ""])
def test_a_source_and_a_wheelhouse_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The source is needed on any host; a wheelhouse is as good as the cache."""
    project(tmp_path / "tree", "")
    packed = tmp_path / "mine.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(tmp_path / "tree", "mine")
    source = FileSource(
        file=packed.name,
        url="https://a.invalid/mine",
        sha256=sha256_of(packed),
        size=packed.stat().st_size,
    )
    recipe = load_recipe("smoke-attention").model_copy(update={"source": source, "version": "1"})
    for module in ("plan", "buildplan"):
        monkeypatch.setattr(f"pipelines.plan.matrix.{module}.load_recipe", lambda *_, **__: recipe)
    house = tmp_path / "house"
    house.mkdir()
    for host in ("sandbox", "lab"):
        settings, request = asked(host, tmp_path, "smoke-attention", wheelhouse=str(house))
        plan = resolve_build_plan(settings, request)
        fill(plan)
        if place == "wheelhouse":
            for path in (*plan.cache.root.rglob("*"), packed):
                if path.is_file():
                    shutil.copy(path, house / path.name)
            shutil.rmtree(plan.cache.root)
        elif place == "cache":
            cached = plan.cache.place(packed.name, source.sha256)
            cached.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(packed, cached)
        assert word(settings, request) == ("yes" if place else "no")
        assert starts(settings, request, tmp_path) is bool(place)


def test_no_index_is_asked_for_a_prebuilt_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"strategy": "prebuilt", "prebuilt": ("https://index.invalid/simple/",)}
    recipe = load_recipe("smoke-attention").model_copy(update=keys)
    monkeypatch.setattr("pipelines.plan.matrix.plan.load_recipe", lambda *_, **__: recipe)
    monkeypatch.setattr(
        "pipelines.plan.prebuilt.candidates._index", lambda *_: pytest.fail("asked")
    )
    settings, request = asked("lab", tmp_path, "smoke-attention")
    rows = plan_matrix(settings, request, select="cp311-*", facts=HostFacts(16, 64 << 30)).rows
    assert [row.way.action for row in rows] == ["none"]
