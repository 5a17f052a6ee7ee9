"""What ``invoke cache --prune`` takes away, and what it must not."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pipelines import caches
from pipelines.config import Config
from pipelines.recipe.load import load_versions, recipe_names
from pipelines.recipe.sourcetree import cache_key
from pipelines.remote import rpc
from pipelines.stages.work import Work
from pipelines.toolchain.lock import Cache, load_lock

OLD = 1_000_000_000


@pytest.fixture
def work(tmp_path: Path) -> Work:
    asked: dict[str, Any] = {"compilecache.prune": {"busy": False}, "jobs.prune.prune": []}
    session = SimpleNamespace(call=lambda function, **_: asked.get(rpc.name_of(function)))
    layout = SimpleNamespace(
        build_root="/b", compile_cache="/c", join=lambda *parts: "/".join(parts)
    )
    made = SimpleNamespace(
        cache=Cache(load_lock(), tmp_path),
        config=Config.model_validate({"hosts": {"lab1": {"kind": "local"}}}),
        host=SimpleNamespace(name="lab1"),
        layout=layout,
        session=session,
    )
    return cast(Work, made)


def kept(root: Path, sha256: str) -> Path:
    folder = root / "downloads" / sha256[:16]
    folder.mkdir(parents=True)
    (folder / "file").write_bytes(b"1234")
    os.utime(folder, (OLD, OLD))
    return folder


def test_only_what_no_command_would_use_goes(work: Work, tmp_path: Path) -> None:
    """A commit's tree cannot be had again on a machine without a network."""
    recipes = [made for name in recipe_names() for made in load_versions(name).values()]
    keys = {key for recipe in recipes if (key := cache_key(recipe))}
    assert len(keys) > 3
    sources = [kept(tmp_path, key) for key in keys]
    tool = kept(tmp_path, work.cache.lock.tool("uv").sha256)
    spare, fresh = kept(tmp_path, "f" * 64), kept(tmp_path, "e" * 64)
    os.utime(fresh)
    caches.prune(work, 14.0)
    assert not spare.exists()
    assert all(folder.exists() for folder in (tool, fresh, *sources))
