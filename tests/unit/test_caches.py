"""What ``invoke cache --prune`` takes away, and what it must not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.core.files import tree_size
from pipelines.hosts.base import CacheEntry
from pipelines.hosts.sandbox.config import SandboxHost
from pipelines.hosts.sandbox.image import image_key
from pipelines.recipe.load import load_versions, recipe_names
from pipelines.recipe.sourcetree import cache_key
from pipelines.remote import dependency_wheels, rpc
from pipelines.stages import kept as caches
from pipelines.toolchain.compilecache import DiskCache
from pipelines.toolchain.lock import Cache, load_lock

OLD = 1_000_000_000


@pytest.fixture
def line(tmp_path: Path) -> Any:
    """As much of a line as the command looks at."""
    asked: dict[str, Any] = {"compilecache.prune": {"busy": False}, "jobs.prune.prune": []}
    layout = SimpleNamespace(
        build_root="/b", compile_cache="/c", wheels="/w", join=lambda *parts: "/".join(parts)
    )
    plan = SimpleNamespace(
        cache=Cache(load_lock(), tmp_path),
        compile_cache=DiskCache(),
        host=SimpleNamespace(name="lab1", cache_entries=list, inspect_only=bool, unmade=str),
        layout=layout,
    )
    session = SimpleNamespace(call=lambda function, **_: asked.get(rpc.name_of(function)))
    return SimpleNamespace(plan=plan, session=session)


def kept(root: Path, sha256: str) -> Path:
    folder = root / "downloads" / sha256
    folder.mkdir(parents=True)
    (folder / "file").write_bytes(b"1234")
    os.utime(folder, (OLD, OLD))
    return folder


def test_what_a_host_has_moved_aside_goes(line: Any, tmp_path: Path) -> None:
    aside = tmp_path / "prefix.aside"
    (aside / "drive_c").mkdir(parents=True)
    os.utime(aside, (OLD, OLD))
    line.plan.host.cache_entries = lambda: [
        CacheEntry("sandboxes moved aside", aside, useful=False)
    ]
    caches.prune(line, 14.0)
    assert not aside.exists()


def test_only_what_no_command_would_use_goes(
    line: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A commit's tree cannot be had again on a machine without a network."""
    recipes = [made for name in recipe_names() for made in load_versions(name).values()]
    keys = {key for recipe in recipes if (key := cache_key(recipe))}
    assert len(keys) > 3
    sources = [kept(tmp_path, key) for key in keys]
    tool = kept(tmp_path, line.plan.cache.lock.tool("uv").sha256)
    spare, fresh = kept(tmp_path, "f" * 64), kept(tmp_path, "e" * 64)
    (fresh / "file").write_bytes(bytes(3 << 20))
    os.utime(fresh)
    caches.prune(line, 14.0)
    assert "3 MiB kept for one more day" in capsys.readouterr().out
    assert not spare.exists()
    assert all(folder.exists() for folder in (tool, fresh, *sources))


def test_what_is_kept_for_programs(line: Any, tmp_path: Path) -> None:
    kept(tmp_path, line.plan.cache.lock.tool("uv").sha256)
    kept(tmp_path, "f" * 64)
    answers: dict[str, Any] = {
        "jobs.prune.sizes": [{"bytes": 5}, {"bytes": 6}],
        "compilecache.stats": {"entries": 3, "bytes": 7},
        "cargo.libraries": [],
        "dependency_wheels.sizes": [8, 9],
    }
    line.session.call = lambda function, **_: answers[rpc.name_of(function)]
    line.plan.layout.sccache = "sccache"
    data = caches.as_json(line)
    shelves = [tuple(shelf.values()) for shelf in data["kept"] if shelf["what"] != "sandbox images"]
    assert data["schema"] == 1
    assert [*data["kept"][0]] == ["where", "what", "entries", "bytes", "unused"]
    assert shelves == [
        ("this machine", "downloads", 2, 8, 4),
        ("lab1", "builds and their units", 2, 11, None),
        ("lab1", "compiled units", 3, 7, None),
        ("lab1", "libraries of kernels", 0, 0, None),
        ("lab1", "requirements of external wheels", 2, 17, None),
    ]


def test_a_host_that_does_not_exist_is_not_made_for_it(
    line: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    line.plan.host.unmade = lambda: "not yet"
    del line.session.call
    caches.show(line)
    caches.prune(line, 14.0)
    assert "lab1" not in [shelf["where"] for shelf in caches.as_json(line)["kept"]]
    assert "not yet" in capsys.readouterr().out


def test_images_that_are_of_no_python_or_are_being_made(line: Any, tmp_path: Path) -> None:
    """Another process may be at them; a lock may have lost their Python."""
    cache = line.plan.cache
    current = f"{image_key(cache, '3.11')}-py3.11"
    for name in (current, f".{current}.z5zyf4c3", "0a32ed405d95d35c-py2.7"):
        (tmp_path / "images" / name).mkdir(parents=True)
    found = SandboxHost.model_validate({"kind": "sandbox"}).cache_entries(cache)
    assert [one.path.name for one in found if one.useful] == [current]


def test_what_vanishes_while_it_is_looked_at(
    line: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process makes an image in a directory, and gives it its name when it is ready."""
    making = tmp_path / ".image.abc"
    (making / "sub").mkdir(parents=True)
    for name in ("a", "b", "sub/c"):
        (making / name).write_bytes(b"1234")
    line.plan.host.cache_entries = lambda: [CacheEntry("images", making, useful=False)]
    look = Path.lstat

    def taken(path: Path) -> os.stat_result:
        if path.name == "b":
            path.unlink()
        return look(path)

    with monkeypatch.context() as during:
        during.setattr(Path, "lstat", taken)
        assert tree_size(making) == 8
    shutil.rmtree(making)
    caches.prune(line, 14.0)


def test_a_damaged_download_goes_however_new_it_is(
    line: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = line.plan.cache.lock.tool("uv")
    folder = kept(tmp_path, tool.sha256)
    (folder / "file").rename(folder / tool.file)
    os.utime(folder)
    caches.prune(line, 14.0)
    assert not folder.exists()
    assert "which was damaged: it has" in capsys.readouterr().out


def test_wheels_that_were_brought_go_when_they_are_old(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.whl").write_bytes(b"1234")
    os.utime(tmp_path / "old", (OLD, OLD))
    assert dependency_wheels.sizes(str(tmp_path)) == [4, 4]
    assert dependency_wheels.prune(str(tmp_path), 14.0) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    assert dependency_wheels.prune(str(tmp_path / "none"), 14.0) == 0
