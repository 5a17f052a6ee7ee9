"""The lock refuses what is not pinned; the cache holds only what was."""

from __future__ import annotations

import errno
import hashlib
import shutil
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from recipefiles import SHIPPED

from pipelines.core.errors import LockError, StorageError
from pipelines.core.target import Target
from pipelines.core.versions import release_in_range
from pipelines.hosts.sandbox import image
from pipelines.hosts.sandbox.host import Sandbox
from pipelines.plan.provisioning.resources import Place, desired_resources, load_resources
from pipelines.recipe.load import load_recipe
from pipelines.recipe.model import Recipe
from pipelines.recipe.origin import FileSource
from pipelines.recipe.sourcetree import SourceTree, fetch_file
from pipelines.toolchain.lock import Cache, Tool, ToolchainLock, load_lock
from pipelines.toolchain.sources import Source, Step, verify_source_file
from pipelines.toolchain.variants import Names, distribution_name

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
    return [p for p in root.rglob("*") if p.is_file() and p.suffix != ".hashed"]


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
    monkeypatch.setattr("pipelines.toolchain.obtaining.download_source", made)
    return made


def test_the_shipped_lock_loads() -> None:
    lock = load_lock()
    assert {"uv", "nvidia-cuda-nvcc", "setuptools"} <= set(lock.tools)
    for name in lock.tools.keys() - {*lock.unpinned}:
        tool = lock.tool(name)
        assert len(tool.sha256) == 64
        assert all(s.sha256 == tool.sha256 and s.size in (None, tool.size) for s in tool.sources)
    assert lock.unpinned == ()


def test_every_cuda_has_the_same_components() -> None:
    tools = load_lock().tools
    found: dict[str, set[str]] = {}
    for id_, tool in tools.items():
        if tool.cuda and id_.startswith("cuda-") and not tool.torch:
            assert id_ == f"cuda-{tool.cuda}-{tool.name}"
            found.setdefault(tool.cuda, set()).add(tool.name)
            (place,) = tool.sources
            # With CUDA 13.4 it is called cccl.
            called = "cccl" if id_ == "cuda-13.4-cuda_cccl" else tool.name
            assert str(place.url).endswith(
                f"/redist/{called}/windows-x86_64/{called}-windows-x86_64-{tool.version}-archive.zip"
            )
            assert str(place.url).endswith(f"/{place.file}")
    assert sorted(found) == ["12.4", "12.6", "12.8", "12.9", "13.0", "13.2", "13.4"]
    for minor, parts in found.items():
        assert f"cuda-{minor}-cuda_nvcc" not in load_lock().unpinned
        assert tools[f"cuda-{minor}-cuda_nvcc"].version.startswith(f"{minor}.")
        assert parts - found["12.8"] == (
            {"libnvvm", "cuda_crt"} if minor.startswith("13.") else set()
        )
        assert {"cuda_nvcc", "cuda_cudart", "cuda_cccl", "libcublas"} <= found["12.8"] <= parts


def test_what_windows_hosts_need_is_there() -> None:
    lock = load_lock()
    for minor in ("3.10", "3.11", "3.12", "3.13", "3.14"):
        tool = lock.tools[f"python-{minor}"]
        assert tool.version.startswith(f"{minor}.")
        assert tool.sources[0].file.startswith(f"cpython-{tool.version}+")
    studio = lock.tool("vs-buildtools-2022")
    assert any(f".VC.{studio.toolset}." in name for name in studio.components)
    runtime = lock.tool("vc-redist").version
    assert runtime.split(".")[:2] == str(studio.toolset).split(".")
    for name, least in {"ninja": (1, 12), "sccache": (0, 8), "mingit": (2, 40)}.items():
        assert tuple(map(int, lock.tool(name).version.split(".")[:2])) >= least


@pytest.mark.parametrize("python", ["3.11", "3.13"])
def test_the_sandbox_needs_nothing_unpinned(python: str) -> None:
    lock = load_lock()
    recipe = load_recipe("smoke-attention")
    place = Place(
        asdict(Sandbox.capabilities), Target(python=python, cuda=recipe.cuda), "python.exe"
    )
    wanted = desired_resources(
        load_resources(), recipe, lock, place
    )  # raises where one is unpinned
    needed = {tool for row in wanted for tool in row.uploads} | {*image.image_tool_names(python)}
    needed |= {*recipe.build_requires, *recipe.test_tools}
    assert {"nvidia-cuda-nvcc", "zig", "uv", "setuptools"} <= needed
    assert not needed & {*lock.unpinned}
    for name in needed:
        assert lock.tool(name).pinned


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sha256": None}, "without a sha256 are"),
        ({"sha256": GOOD[:-1]}, "sha256"),
        ({"sha256": GOOD.upper()}, "sha256"),
        ({"sha256": "g" * 64}, "sha256"),
        ({"size": None, "sha256": None}, "without a sha256 are"),
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
    assert "uv" in caught.value.message
    assert said in caught.value.message
    assert caught.value.hint
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
        ([], "without a sha256 are ['half']"),
        (["half", "full"], "names ['full', 'half']"),
        (["half", "hlaf"], "names ['half', 'hlaf']"),
        (["half", "half"], "names ['half', 'half']"),
        (["full"], "names ['full'], and without a sha256 are ['half']"),
    ],
)
def test_unpinned_is_exactly_what_is_incomplete(
    tmp_path: Path, unpinned: list[str], said: str
) -> None:
    half = source(sha256=None)
    with pytest.raises(LockError) as caught:
        load_lock(write(tmp_path / "lock.yaml", unpinned, half=half, full=source()))
    assert said in caught.value.message
    assert caught.value.hint


def test_an_incomplete_tool_is_only_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = serve(monkeypatch, f=DATA)
    lock = load_lock(
        write(tmp_path / "l", ["a", "b"], a=source(sha256=None, size=None), b=source(sha256=None))
    )
    assert (lock.tools["a"].sha256, lock.tools["a"].size) == ("", 0)
    assert (lock.tools["b"].sha256, lock.tools["b"].size) == ("", len(DATA))
    cache = Cache(lock, tmp_path / "cache")
    for name in ("a", "b"):
        for use in (lock.tool, cache.path, cache.fetch, lambda name: cache.missing([name])):
            with pytest.raises(LockError, match=f"not pinned.* {name} 1") as caught:
                use(name)
            assert f"`invoke lock --only {name}`" in caught.value.hint
    with pytest.raises(LockError, match="not pinned"):
        verify_source_file(write(tmp_path / "f", []), lock.tools["a"].sources[0])
    assert net.asked == []


def test_a_sha256_is_a_pin_whatever_the_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(monkeypatch, f=DATA)
    cache = Cache(load_lock(write(tmp_path / "l", [], a=source(size=None))), tmp_path / "cache")
    assert (cache.size("a"), cache.sizes(["a", "a"])) == (0, "0 B and 2 of unknown size")
    assert cache.fetch("a").read_bytes() == DATA
    assert cache.sizes(["a"]) == f"{len(DATA)} B", "as it is here"
    assert cache.damaged(["a"]) == {}
    cache.path("a").write_bytes(DATA[::-1])
    assert [*cache.damaged(["a"])] == [cache.path("a")]
    serve(monkeypatch, f=DATA[::-1])
    with pytest.raises(LockError, match="pinned is"):
        cache.fetch("a")


def test_all_that_is_not_pinned_is_one_error() -> None:
    rows = {name: {"version": "1", "sources": [source(sha256=None)]} for name in ("a", "b", "c")}
    data = {"version": 1, "unpinned": [*rows], "tools": rows}
    error = ToolchainLock.model_validate(data).not_pinned(["a", "c"])
    assert "a 1 (16 B), c 1 (16 B)" in error.message
    assert "`invoke lock --only a,c`" in error.hint


def test_one_source_that_lacks_a_hash_makes_a_tool_incomplete() -> None:
    with pytest.raises(ValueError, match=r"without a sha256 are \['tool0'\]"):
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
    assert "tool0" in caught.value.hint


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
    assert caught.value.hint
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


def test_a_cache_below_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as with HOME=/dev/null."""
    net = serve(monkeypatch, f=DATA)
    with pytest.raises(StorageError, match="Not a directory"):
        Cache(locked(source()), Path("/dev/null")).fetch("tool0")
    assert net.asked == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    net = serve(monkeypatch, f=OSError(number, "full"), g=DATA)
    cache = Cache(locked(source(), source(url="https://b.invalid/g")), tmp_path)
    with pytest.raises(StorageError, match="full") as caught:
        cache.fetch("tool0")
    assert caught.value.hint
    assert net.asked == ["f"]
    assert leftovers(tmp_path) == []


def test_many_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    met = threading.Barrier(4, timeout=60)

    def download(source: Source, target: Path, step: Step) -> None:
        met.wait()  # passes only when four are under way
        target.write_bytes(DATA)

    monkeypatch.setattr("pipelines.toolchain.obtaining.download_source", download)
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
    assert distribution_name("Nvidia_CUDA.nvcc-13.0-py3-none-any.whl") == "nvidia-cuda-nvcc"


@pytest.mark.parametrize("changes", [{"sha256": "0" * 64}, {"size": 1}])
def test_all_sources_of_a_tool_are_the_same_file(changes: dict[str, Any]) -> None:
    other = source(url="https://example.org/x", **changes)
    with pytest.raises(ValueError, match="same sha256 and size"):
        locked(source(), other)


# -- entries of a cell -----------------------------------------------------------------------------

CELL = Target(python="3.12", cuda="12.8", torch="2.8")


def made(name: str, python: str = "", cuda: str = "", torch: str = "", **more: Any) -> Any:
    """An entry as the lock has it: its id, and what it says."""
    axes = {k: v for k, v in {"python": python, "cuda": cuda, "torch": torch}.items() if v}
    id_ = "-".join([name, *(f"{axis}{value}" for axis, value in axes.items())])
    return id_, {"name": name, **axes, "version": "1", "sources": [source()], **more}


def lock_of(*rows: Any, unpinned: tuple[str, ...] = ()) -> ToolchainLock:
    return ToolchainLock.model_validate({"version": 1, "unpinned": unpinned, "tools": dict(rows)})


def test_the_most_particular_entry_is_taken() -> None:
    order = [
        made("a", "3.12", "12.8", "2.8"),
        made("a", "", "12.8", "2.8"),
        made("a", "3.12", "", "2.8"),
        made("a", torch="2.8"),
        made("a", "3.12", "12.8"),
        made("a", cuda="12.8"),
        made("a", "3.12"),
        made("a"),
    ]
    for number, (id_, _) in enumerate(order):
        for rows in (order[number:], [*order[:number:-1], order[number]]):
            assert lock_of(*rows).entries_for(["a"], CELL) == {"a": id_}
    others = [
        made("a", "3.13", "12.8", "2.8"),
        made("a", "3.12", "12.9", "2.8"),
        made("a", torch="2.9"),
        made("a", "3.1"),
        made("a", "3.13"),
    ]
    assert lock_of(made("a"), *others).entries_for(["a"], CELL) == {"a": "a"}
    nine = lock_of(made("a"), made("a", "3.9"), *others)
    assert nine.entries_for(["a"], Target()) == {"a": "a"}
    assert nine.entries_for(["a"], Target(python="3.9", cuda="13.0")) == {"a": "a-python3.9"}


def test_an_id_stands_for_itself() -> None:
    lock = lock_of(made("a", "3.11"), made("a", "3.12"), ("x", made("b")[1]))
    assert lock.entries_for(["a-python3.11", "x"], CELL) == {
        "a-python3.11": "a-python3.11",
        "x": "x",
    }


def test_what_must_come_along_follows_once_and_of_the_same_cell() -> None:
    lock = lock_of(
        made("torch", "3.12", "12.8", "2.8", requires=["sympy", "markup"]),
        made("torch", "3.11", "12.8", "2.8", requires=["gone-in-3.12"]),
        made("gone-in-3.12"),
        made("sympy", requires=["mpmath", "torch"]),  # a circle
        made("mpmath", requires=["mpmath"]),
        made("markup", "3.11"),
        made("markup", "3.12", requires=["mpmath"]),
        made("pytest", requires=["markup"]),
    )
    found = lock.entries_for(["pytest", "torch", "pytest"], CELL)
    assert list(found) == ["pytest", "torch", "markup", "sympy", "mpmath"]
    assert found["torch"] == "torch-python3.12-cuda12.8-torch2.8"
    assert found["markup"] == "markup-python3.12"


def test_two_entries_for_one_cell_are_refused() -> None:
    _, row = made("a", "3.12")
    with pytest.raises(ValueError, match=r"tools\.x and y are the same tool for the same cell"):
        lock_of(("x", row), ("z", row | {"python": "3.13"}), ("y", row))


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.sets(st.sampled_from("abcdefgh"))))
def test_expansion_is_what_can_be_reached(graph: dict[str, set[str]]) -> None:
    whole = {name: sorted(graph.get(name, ())) for name in "abcdefgh"}
    lock = lock_of(*(made(name, requires=needs) for name, needs in whole.items()))
    for start in whole:
        reached = {start}
        while more := {other for name in reached for other in whole[name]} - reached:
            reached |= more
        found = lock.entries_for([start], CELL)
        assert next(iter(found)) == start
        assert set(found) == reached
        assert lock.unavailable([start], CELL) == []


@pytest.mark.parametrize(
    ("python", "cuda", "torch", "first"),
    [
        ("3.9", "12.8", "2.8", ["2.8 3.10", "2.8 3.12"]),
        ("3.12", "12.9", "2.8", ["2.8 3.12", "2.8 3.10"]),
        ("3.12", "12.8", "2.7", ["2.8 3.12", "2.10 3.12"]),
        ("3.10", "13.0", "2.11", ["2.8 3.10", "2.10 3.12"]),
    ],
)
def test_no_entry_in_this_cell_names_the_nearest(
    python: str, cuda: str, torch: str, first: list[str]
) -> None:
    have = ["2.10 3.12", "2.8 3.12", "2.8 3.10"]
    rows = {name: made("torch", name.split()[1], "12.8", name.split()[0]) for name in have}
    lock = lock_of(*rows.values(), made("torchy"))
    with pytest.raises(LockError) as caught:
        lock.entries_for(["torch"], Target(python=python, cuda=cuda, torch=torch))
    said = caught.value.message
    assert f"no torch for CUDA {cuda}, torch {torch}, Python {python}: " in said
    assert f"there are {', '.join(rows[name][0] for name in first)}" in said
    assert "torchy" not in said
    assert "toolchain.yaml" in caught.value.hint


def test_no_entry_of_that_name_at_all() -> None:
    lock = lock_of(made("numpy", "3.12"), made("uv"))
    with pytest.raises(LockError, match="no tool 'nunpy'") as caught:
        lock.entries_for(["nunpy"], CELL)
    assert "numpy" in caught.value.hint
    with pytest.raises(LockError, match="no tool 'x'") as caught:
        lock.entries_for(["x"], CELL)
    assert "toolchain.yaml" in caught.value.hint


def test_many_others_are_counted() -> None:
    lock = lock_of(*(made("numpy", f"3.{minor}") for minor in range(10, 20)))
    with pytest.raises(LockError, match=r"numpy-python3\.14, numpy-python3\.15 and 4 more"):
        lock.entries_for(["numpy"], Target(python="3.9"))


def test_unknown_requirements_are_refused_when_the_lock_is_read(tmp_path: Path) -> None:
    path = tmp_path / "lock.yaml"
    tools = dict([made("torch", "3.12", requires=["numpy", "nunpy"]), made("numpy", "3.13")])
    path.write_text(yaml.safe_dump({"version": 1, "tools": tools}))
    with pytest.raises(LockError) as caught:
        load_lock(path)
    assert "tools.torch-python3.12 requires 'nunpy', which does not exist" in caught.value.message
    assert "'numpy'" not in caught.value.message  # there is one, if not for every cell
    assert caught.value.hint


def test_unavailable_is_what_has_no_entry_or_no_pin() -> None:
    half = [source(sha256=None)]
    torch = made("torch", "3.12", "12.8", "2.8", requires=["sympy"], sources=half)
    rows = [torch, made("sympy", requires=["mpmath"]), made("mpmath", sources=half), made("uv")]
    lock = lock_of(*rows, unpinned=(torch[0], "mpmath"))
    assert lock.unavailable(["uv", "torch", "none", "sympy"], CELL) == [torch[0], "mpmath", "none"]
    assert lock.unavailable(["uv", "torch"], Target(python="3.13")) == ["torch"]


def test_names_and_ids_are_names() -> None:
    names = Names(lock_of(made("numpy", "3.12"), made("uv")).tools)
    assert [name in names for name in ("numpy", "numpy-python3.12", "uv")] == [True] * 3
    assert "numpy-python3.13" not in names
    assert locked(source()).tools["tool0"].name == "tool0"  # where nothing else is said


TORCHES = sorted(id_ for id_, tool in load_lock().tools.items() if tool.name == "torch")


def test_the_torches_are_those_that_are_offered() -> None:
    """Some releases have no published sha256 for every Python."""
    locked = 310, 311, 312, 313
    every = *locked, 314, "314t"
    whole: dict[str, tuple[object, ...]] = {"2.6-cu124": locked, "2.7-cu128": locked}
    whole |= dict.fromkeys(("2.8-cu126", "2.8-cu128", "2.8-cu129"), locked)
    whole |= {f"{torch}-cu{c}": every for torch in ("2.9", "2.10", "2.11") for c in (128, 130)}
    whole |= {f"{torch}-cu{c}": every for torch in ("2.12", "2.13") for c in (126, 130)}
    part = {"2.6-cu126": (311, 312), "2.7-cu126": (312,), "2.9-cu126": (312,)}
    part |= {"2.13-cu132": (312,), "2.14-cu126": (314,), "2.14-cu130": (312, 314)}
    offered = whole | part
    assert set(TORCHES) == {f"torch-{t}-cp{p}" for t, pythons in offered.items() for p in pythons}


@pytest.fixture(scope="module")
def shipped() -> list[Recipe]:
    return [*map(load_recipe, SHIPPED)]


@pytest.mark.parametrize("name", TORCHES)
def test_every_torch_has_what_builds_and_tests_install(name: str, shipped: list[Recipe]) -> None:
    lock = load_lock()
    _, torch, cuda, python = name.split("-")
    tool = lock.tools[name]
    assert tool.version.startswith(f"{torch}.")
    assert tool.version.endswith(f"+{cuda}")
    interpreter = python.rstrip("t")
    assert tool.file == f"torch-{tool.version}-{interpreter}-{python}-win_amd64.whl"
    (place,) = tool.sources
    assert place.url == (f"https://download.pytorch.org/whl/{cuda}/{tool.file.replace('+', '%2B')}")
    cell = Target(python=f"3.{python[3:]}", cuda=f"{cuda[2:4]}.{cuda[4:]}", torch=torch)
    assert (tool.python, tool.cuda, tool.torch) == (cell.python, cell.cuda, cell.torch)
    for recipe in shipped:
        if recipe.pythons and cell.python not in recipe.pythons:
            continue
        if not release_in_range(torch, recipe.supports.torch) or not release_in_range(
            cell.cuda, recipe.supports.cuda
        ):
            continue
        found = lock.entries_for([*recipe.build_requires, *recipe.test_tools], cell)
        for asked, entry in found.items():
            assert distribution_name(lock.tools[entry].file) == asked
            assert lock.tools[entry].pinned
            tags = lock.tools[entry].file.removesuffix(".whl").split("-")[-3:]
            # The last two are for any from it on.
            assert tags[0] in (interpreter, "py3", "py2.py3", "cp37", "cp310")
            assert tags[2] in ("win_amd64", "any")
        if "torch" in found:
            assert found["torch"] == name
            assert {"filelock", "sympy", "mpmath", "jinja2", "markupsafe"} <= set(found)
            major = int(lock.tools[found.get("setuptools", "setuptools")].version.split(".")[0])
            assert torch not in ("2.11", "2.12") or major < 82, "its metadata say setuptools<82"
            assert (lock.tools[found["sympy"]].version == "1.13.1") == (torch == "2.6")
        if "pytest" in found:
            assert ({"tomli", "exceptiongroup"} <= set(found)) == (python == "cp310")


# -- the wheelhouse, and no network ----------------------------------------------------------------


def house(tmp_path: Path, data: bytes | None = DATA, name: str = "f.whl") -> Path:
    folder = tmp_path / "house"
    folder.mkdir()
    if data is not None:
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("offline", [False, True])
def test_the_wheelhouse_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offline: bool
) -> None:
    net = serve(monkeypatch, f=DATA)
    folder, root = house(tmp_path), tmp_path / "cache"
    cache = Cache(locked(source()), root, wheelhouse=folder, offline=offline)
    path = cache.fetch("tool0")
    assert path == cache.path("tool0")
    assert path.read_bytes() == DATA
    assert net.asked == []
    assert leftovers(root) == [path]
    (folder / "f.whl").unlink()  # it was copied
    assert cache.fetch("tool0").read_bytes() == DATA
    assert Cache(locked(source()), root, offline=True).fetch("tool0") == path


@pytest.mark.parametrize("offline", [False, True])
@pytest.mark.parametrize("data", [b"x" * len(DATA), DATA + b"!", b""])
def test_wrong_bytes_in_the_wheelhouse_are_told_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, offline: bool
) -> None:
    net = serve(monkeypatch, f=DATA)
    folder, root = house(tmp_path, data), tmp_path / "cache"
    cache = Cache(locked(source()), root, wheelhouse=folder, offline=offline)
    with pytest.raises(LockError, match="pinned") as caught:
        cache.fetch("tool0")
    assert str(folder / "f.whl") in caught.value.message
    assert "invoke wheelhouse" in caught.value.hint
    assert net.asked == []
    assert leftovers(root) == []
    assert (folder / "f.whl").read_bytes() == data


def test_what_the_wheelhouse_lacks_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = serve(monkeypatch, f=DATA)
    folder = house(tmp_path, None)
    (folder / "f.whl").mkdir()  # no file
    cache = Cache(locked(source()), tmp_path / "cache", wheelhouse=folder)
    assert cache.fetch("tool0").read_bytes() == DATA
    assert net.asked == ["f"]


@pytest.mark.parametrize("with_house", [False, True])
def test_offline_nothing_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_house: bool
) -> None:
    net = serve(monkeypatch, f=DATA)
    folder = house(tmp_path, DATA, "other.whl") if with_house else None
    cache = Cache(locked(source()), tmp_path / "cache", wheelhouse=folder, offline=True)
    with pytest.raises(LockError, match="nothing is fetched") as caught:
        cache.fetch("tool0")
    said = caught.value.message
    assert "tool0 1" in said
    assert "f.whl" in said
    assert (str(tmp_path / "house") in said) == with_house
    assert "--wheelhouse" in caught.value.hint
    with pytest.raises(LockError, match="nothing is fetched"):
        cache.fetch_all(["tool0"])
    assert net.asked == []
    assert leftovers(tmp_path / "cache") == []


def test_a_wheelhouse_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    folder = house(tmp_path)
    cache = Cache(locked(source()), tmp_path / "cache", wheelhouse=folder, offline=True)
    with pytest.raises(StorageError, match="No space left") as caught:
        cache.fetch("tool0")
    assert str(folder / "f.whl") in caught.value.message
    assert caught.value.hint


def test_a_source_distribution_comes_from_the_wheelhouse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = serve(monkeypatch, f=DATA)
    pin = {"url": "https://a.invalid/f", "file": "a-1.tar.gz", "sha256": GOOD, "size": len(DATA)}
    origin = FileSource.model_validate(pin)
    recipe = load_recipe("flash-attn").model_copy(update={"source": origin})
    folder, root = house(tmp_path, DATA, "a-1.tar.gz"), tmp_path / "cache"
    lock = locked(source())
    path = fetch_file(origin, recipe, Cache(lock, root, wheelhouse=folder, offline=True))
    assert path == Cache(lock, root).place("a-1.tar.gz", GOOD)
    assert path.read_bytes() == DATA
    assert net.asked == []

    (folder / "a-1.tar.gz").write_bytes(b"x" * len(DATA))
    other = Cache(lock, tmp_path / "second", wheelhouse=folder, offline=True)
    with pytest.raises(LockError, match=r"house/a-1\.tar\.gz: a-1\.tar\.gz has sha256"):
        SourceTree(recipe, other).pack()
    (folder / "a-1.tar.gz").unlink()
    with pytest.raises(LockError, match=r"flash-attn 2\.8\.3\.post2 is not here") as caught:
        SourceTree(recipe, other).pack()
    assert "invoke wheelhouse" in caught.value.hint
    assert leftovers(tmp_path / "second") == []
