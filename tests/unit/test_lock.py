"""The lock refuses what is not pinned; the cache holds only what was."""

from __future__ import annotations

import errno
import hashlib
import re
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.errors import LockError, StorageError
from pipelines.hosts.sandbox import image
from pipelines.hosts.sandbox.host import Sandbox
from pipelines.plan.recipes import load_recipe
from pipelines.plan.resources import Place, load_resources, wanted_resources
from pipelines.toolchain import lock as module
from pipelines.toolchain.lock import Cache, Tool, ToolchainLock, load_lock, verify
from pipelines.toolchain.sources import Source, Step

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
        step(len(found), source.size or 0)


def serve(monkeypatch: pytest.MonkeyPatch, **places: bytes | Exception) -> Places:
    made = Places(**places)
    monkeypatch.setattr(module, "download", made)
    return made


def test_the_shipped_lock_loads() -> None:
    lock = load_lock()
    assert {"uv", "nvidia-cuda-nvcc", "setuptools"} <= set(lock.tools)
    for name in lock.tools.keys() - {*lock.unpinned}:
        tool = lock.tool(name)
        assert len(tool.sha256) == 64
        assert tool.size > 0
        assert all(s.sha256 == tool.sha256 and s.size == tool.size for s in tool.sources)


def test_every_cuda_has_the_same_components() -> None:
    tools = load_lock().tools
    found: dict[str, set[str]] = {}
    for name, tool in tools.items():
        if made := re.fullmatch(r"cuda-(\d+\.\d)-(\w+)", name):
            found.setdefault(made[1], set()).add(made[2])
            (place,) = tool.sources
            assert str(place.url).endswith(
                f"/redist/{made[2]}/windows-x86_64/{made[2]}-windows-x86_64-{tool.version}-archive.zip"
            )
            assert str(place.url).endswith(f"/{place.file}")
    assert sorted(found) == ["12.4", "12.6", "12.8", "12.9", "13.0"]
    for minor, names in found.items():
        assert f"cuda-{minor}-cuda_nvcc" not in load_lock().unpinned
        assert tools[f"cuda-{minor}-cuda_nvcc"].version.startswith(f"{minor}.")
        assert names - found["12.8"] == ({"libnvvm", "cuda_crt"} if minor == "13.0" else set())
        assert {"cuda_nvcc", "cuda_cudart", "cuda_cccl", "libcublas"} <= found["12.8"] <= names


def test_what_windows_hosts_need_is_there() -> None:
    lock = load_lock()
    for minor in ("3.10", "3.11", "3.12", "3.13", "3.14"):
        tool = lock.tools[f"python-{minor}"]
        assert tool.version.startswith(f"{minor}.")
        assert tool.sources[0].file.startswith(f"cpython-{tool.version}+")
    studio = lock.tool("vs-buildtools-2022")
    assert studio.version == lock.tools["vs-channel-2022"].version
    assert any(f".VC.{studio.toolset}." in name for name in studio.components)
    runtime = lock.tool("vc-redist").version
    assert runtime.split(".")[:2] == str(studio.toolset).split(".")
    for name, least in {"ninja": (1, 12), "sccache": (0, 8), "mingit": (2, 40)}.items():
        assert tuple(map(int, lock.tool(name).version.split(".")[:2])) >= least


@pytest.mark.parametrize("python", ["3.11", "3.13"])
def test_the_sandbox_needs_nothing_unpinned(python: str) -> None:
    lock = load_lock()
    recipe = load_recipe("smoke-attention")
    place = Place(asdict(Sandbox.capabilities), python, recipe.cuda, "python.exe")
    wanted = wanted_resources(load_resources(), recipe, lock, place)  # raises where one is unpinned
    needed = {tool for row in wanted for tool in row.uploads} | {*image.tools(python)}
    needed |= {*recipe.build_requires, *recipe.test_requires}
    assert {"nvidia-cuda-nvcc", "zig", "uv", "setuptools"} <= needed
    assert not needed & {*lock.unpinned}
    for name in needed:
        assert lock.tool(name).pinned


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sha256": None}, "sha256 or size is missing"),
        ({"sha256": GOOD[:-1]}, "sha256"),
        ({"sha256": GOOD.upper()}, "sha256"),
        ({"sha256": "g" * 64}, "sha256"),
        ({"size": None}, "sha256 or size is missing"),
        ({"size": None, "sha256": None}, "sha256 or size is missing"),
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


def write(path: Path, unpinned: list[str], **tools: dict[str, Any]) -> Path:
    rows = {name: {"version": "1", "sources": [row]} for name, row in tools.items()}
    path.write_text(yaml.safe_dump({"version": 1, "unpinned": unpinned, "tools": rows}))
    return path


@pytest.mark.parametrize(
    ("unpinned", "said"),
    [
        ([], "tools.half: sha256 or size is missing"),
        (["half", "full"], "tools.full is listed as unpinned, but has"),
        (["half", "hlaf"], "tools.hlaf is listed as unpinned, but there is no such tool"),
        (["half", "half"], "tools.half is listed as unpinned twice"),
        (["full"], "tools.half: sha256 or size is missing; tools.full is listed"),
    ],
)
@pytest.mark.parametrize("missing", ["sha256", "size"])
def test_unpinned_is_exactly_what_is_incomplete(
    tmp_path: Path, unpinned: list[str], said: str, missing: str
) -> None:
    half = source(**{missing: None})
    with pytest.raises(LockError) as caught:
        load_lock(write(tmp_path / "lock.yaml", unpinned, half=half, full=source()))
    assert said in caught.value.message
    assert caught.value.advice


def test_an_incomplete_tool_is_only_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = serve(monkeypatch, f=DATA)
    lock = load_lock(
        write(tmp_path / "l", ["a", "b"], a=source(size=None), b=source(sha256=None), c=source())
    )
    assert (lock.tools["a"].sha256, lock.tools["a"].size) == (GOOD, 0)
    assert (lock.tools["b"].sha256, lock.tools["b"].size) == ("", len(DATA))
    assert lock.tool("c").pinned
    cache = Cache(lock, tmp_path / "cache")
    for name in ("a", "b"):
        for use in (lock.tool, cache.path, cache.fetch, lambda name: cache.missing([name])):
            with pytest.raises(LockError, match=f"{name} 1 is not pinned") as caught:
                use(name)
            assert "`invoke lock`" in caught.value.advice
    with pytest.raises(LockError, match="not pinned"):
        verify(write(tmp_path / "f", []), lock.tools["a"].sources[0])
    assert net.asked == []


def test_one_source_that_lacks_a_hash_makes_a_tool_incomplete() -> None:
    with pytest.raises(ValueError, match="tool0: sha256 or size is missing"):
        locked(source(), source(url="https://b.invalid/g", sha256=None))


@pytest.mark.parametrize(
    "changes",
    [
        {"components": ["VC Tools"]},
        {"components": ["Microsoft.X --add Microsoft.Y"]},
        {"toolset": "14.4"},
        {"toolset": 14.44},
        {"toolsets": "14.44"},
    ],
)
def test_wrong_fields_of_a_tool(changes: dict[str, Any]) -> None:
    tool = {"version": "1", "sources": [source()]}
    assert Tool.model_validate(tool).components == ()
    with pytest.raises(ValueError, match=next(iter(changes))):
        Tool.model_validate({**tool, **changes})


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


@pytest.mark.parametrize("changes", [{"sha256": "0" * 64}, {"size": 1}])
def test_all_sources_of_a_tool_are_the_same_file(changes: dict[str, Any]) -> None:
    other = source(url="https://example.org/x", **changes)
    with pytest.raises(ValueError, match="same sha256 and size"):
        locked(source(), other)
