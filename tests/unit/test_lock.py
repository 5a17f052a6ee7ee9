"""The lock refuses what is not pinned; the cache holds only what was."""

from __future__ import annotations

import errno
import hashlib
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines import lock as module
from pipelines.errors import LockError, StorageError
from pipelines.lock import Cache, ToolchainLock, load_lock
from pipelines.sources import Source, Step

DATA = b"the pinned bytes"
GOOD = hashlib.sha256(DATA).hexdigest()


def source(**changes: Any) -> dict[str, Any]:
    made = {"url": "https://a.invalid/f", "file": "f.whl", "sha256": GOOD, "size": len(DATA)}
    return {k: v for k, v in {**made, **changes}.items() if v is not None}


def locked(*sources: dict[str, Any], count: int = 1) -> ToolchainLock:
    tools = {}
    for number in range(count):
        own = [{**s, "file": f"f{number}.whl"} for s in sources] if count > 1 else list(sources)
        tools[f"tool{number}"] = {"version": "1", "sources": own}
    return ToolchainLock.model_validate({"version": 1, "tools": tools})


def leftovers(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


class Places:
    """Stands in for the network: URL -> bytes or an error."""

    def __init__(self, **places: bytes | Exception) -> None:
        self.places = places
        self.asked: list[str] = []
        self.guard = threading.Lock()

    def __call__(self, source: Source, target: Path, step: Step) -> None:
        name = str(source.url).rpartition("/")[2]
        with self.guard:
            self.asked.append(name)
        found = self.places[name]
        target.write_bytes(b"half" if isinstance(found, Exception) else found)
        if isinstance(found, Exception):
            raise found
        step(len(found), source.size)


def serve(monkeypatch: pytest.MonkeyPatch, **places: bytes | Exception) -> Places:
    made = Places(**places)
    monkeypatch.setattr(module, "download", made)
    return made


def test_the_shipped_lock_loads() -> None:
    lock = load_lock()
    assert {"uv", "nvidia-cuda-nvcc", "setuptools"} <= set(lock.tools)
    for tool in lock.tools.values():
        assert all(len(s.sha256) == 64 and s.size > 0 for s in tool.sources)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sha256": None}, "sha256"),
        ({"sha256": GOOD[:-1]}, "sha256"),
        ({"sha256": GOOD.upper()}, "sha256"),
        ({"size": None}, "size"),
        ({"size": 0}, "size"),
        ({"apt": "python3"}, "exactly one of"),
        ({"url": None}, "exactly one of"),
        ({"url": "http://a.invalid/f"}, "url"),
        ({"pypi": "uv>=1", "url": None}, "pypi"),
        ({"md5": "0"}, "unknown key"),
        ({"file": "../f.whl"}, "file"),
        ({"file": None}, "file"),
    ],
)
def test_wrong_locks_are_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    path = tmp_path / "lock.yaml"
    tool = {"version": "1", "sources": [source(**changes)]}
    path.write_text(yaml.safe_dump({"version": 1, "tools": {"uv": tool}}))
    with pytest.raises(LockError) as caught:
        load_lock(path)
    assert "tools.uv" in caught.value.message
    assert said in caught.value.message
    assert caught.value.advice
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    "text", ["version: 2\ntools: {}\n", "tools: [\n", "version: 1\nx: 1\ntools: {}\n"]
)
def test_other_wrong_files(tmp_path: Path, text: str) -> None:
    path = tmp_path / "lock.yaml"
    path.write_text(text)
    with pytest.raises(LockError, match=r"lock\.yaml"):
        load_lock(path)
    with pytest.raises(LockError, match=r"none\.yaml"):
        load_lock(tmp_path / "none.yaml")


def test_unknown_tool() -> None:
    with pytest.raises(LockError, match="no tool 'tol'") as caught:
        locked(source()).tool("tol")
    assert "tool0" in caught.value.advice


def test_fetch_and_hit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = serve(monkeypatch, f=DATA)
    cache = Cache(locked(source()), tmp_path)
    steps: list[tuple[str, int, int]] = []
    assert cache.missing(["tool0"]) == ["tool0"]
    path = cache.fetch("tool0", lambda *step: steps.append(step))
    assert path.read_bytes() == DATA
    assert steps == [("tool0", len(DATA), len(DATA))]
    assert cache.fetch("tool0") == path
    assert cache.missing(["tool0"]) == []
    assert net.asked == ["f"]
    assert leftovers(tmp_path) == [path]


@pytest.mark.parametrize(
    ("data", "said"), [(b"x" * len(DATA), "has sha256"), (DATA + b"!", "bytes"), (b"", "bytes")]
)
def test_wrong_bytes_never_enter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, said: str
) -> None:
    serve(monkeypatch, f=data)
    with pytest.raises(LockError, match=said) as caught:
        Cache(locked(source()), tmp_path).fetch("tool0")
    assert caught.value.advice
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    "first", [OSError("no route"), TimeoutError("slow"), LockError("not listed"), b"other"]
)
def test_the_second_source_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bytes | Exception
) -> None:
    net = serve(monkeypatch, f=first, g=DATA)
    cache = Cache(locked(source(), source(url="https://b.invalid/g")), tmp_path)
    assert cache.fetch("tool0").read_bytes() == DATA
    assert net.asked == ["f", "g"]


def test_every_failed_source_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, f=OSError("no route"), g=b"bad")
    cache = Cache(locked(source(), source(url="https://b.invalid/g")), tmp_path)
    with pytest.raises(LockError, match="no route") as caught:
        cache.fetch("tool0")
    assert "https://b.invalid/g" in caught.value.message


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    net = serve(monkeypatch, f=OSError(number, "full"), g=DATA)
    cache = Cache(locked(source(), source(url="https://b.invalid/g")), tmp_path)
    with pytest.raises(StorageError, match="full") as caught:
        cache.fetch("tool0")
    assert caught.value.advice
    assert net.asked == ["f"]
    assert leftovers(tmp_path) == []


def test_many_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    met = threading.Barrier(4, timeout=5)

    def download(source: Source, target: Path, step: Step) -> None:
        met.wait()  # passes only when four are under way
        target.write_bytes(DATA)

    monkeypatch.setattr(module, "download", download)
    cache = Cache(locked(source(), count=8), tmp_path)
    cache.fetch_all(cache.lock.tools)
    assert cache.missing(cache.lock.tools) == []
    assert len(leftovers(tmp_path)) == 8


def test_one_of_many_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, f=b"bad")
    with pytest.raises(LockError):
        Cache(locked(source(), count=5), tmp_path).fetch_all([f"tool{n}" for n in range(5)])
    assert leftovers(tmp_path) == []


def test_the_cache_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Cache(locked(source())).root.parent == tmp_path


def test_wheel_name() -> None:
    assert module.wheel_name("Nvidia_CUDA.nvcc-13.0-py3-none-any.whl") == "nvidia-cuda-nvcc"


def test_all_sources_of_a_tool_are_the_same_file() -> None:
    other = source(url="https://example.org/x", pypi=None, sha256="0" * 64)
    with pytest.raises(ValueError, match="same sha256 and size"):
        locked(source(), other)
