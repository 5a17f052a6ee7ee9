"""The functions that run on hosts, called directly."""

from __future__ import annotations

import ast
import errno
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.errors import StorageError
from pipelines.core.files import write_atomic
from pipelines.remote import blocks, files, rpc
from pipelines.remote.jobs import store

REMOTE = Path(rpc.__file__).parent


def test_stat_dirs_and_trees(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    files.make_dirs(str(tree / "a" / "b"))
    files.make_dirs(str(tree / "a" / "b"))
    (tree / "a" / "file").write_bytes(b"12")
    found = files.stat(str(tree / "a" / "file"))
    assert found is not None
    assert (found["size"], found["directory"]) == (2, False)
    assert files.stat(str(tree / "none")) is None
    assert files.stat(str(tree / "a" / "file" / "below")) is None
    assert files.remove_tree(str(tree / "a" / "file"))
    assert files.remove_tree(str(tree))
    assert not files.remove_tree(str(tree))


def test_remove_tree_leaves_what_links_point_to(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    assert files.remove_tree(str(tmp_path / "link"))
    assert (tmp_path / "kept").is_dir()


@pytest.mark.parametrize(("limit", "tail"), [(0, b""), (3, b"789"), (100, b"0123456789")])
def test_read_tail(tmp_path: Path, limit: int, tail: bytes) -> None:
    (tmp_path / "log").write_bytes(b"0123456789")
    assert files.read_tail(str(tmp_path / "log"), limit) == tail


def test_functions_are_known_by_name() -> None:
    assert rpc.name_of(files.stat) == "files.stat"
    assert rpc.name_of(store.state) == "jobs.store.state"
    assert rpc.resolve("files.stat") is files.stat
    assert rpc.is_idempotent(files.stat)
    assert not rpc.is_idempotent(blocks.receive)


@pytest.mark.parametrize("file", sorted(REMOTE.rglob("*.py")), ids=lambda path: str(path.name))
def test_stdlib_only_and_old_enough_syntax(file: Path) -> None:
    tree = ast.parse(file.read_text("utf-8"), feature_version=(3, 10))
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        for name in names:
            first = name.partition(".")[0]
            assert first == "remote" or first in sys.stdlib_module_names, name


@pytest.mark.parametrize(("free", "number"), [(0, errno.ENOSPC), (1 << 30, errno.EINVAL)])
def test_a_full_disk_is_named_whatever_the_run_time_says(
    monkeypatch: pytest.MonkeyPatch, free: int, number: int
) -> None:
    monkeypatch.setattr(files, "_free_space_at", lambda _: free)
    with pytest.raises(OSError, match="somewhere") as caught, files.writing("somewhere"):
        raise OSError(errno.EINVAL, "Invalid argument")
    assert caught.value.errno == number


@pytest.mark.parametrize("problem", [errno.EACCES, errno.ENOTEMPTY])
@pytest.mark.parametrize("name", ["unlink", "rmdir"])
def test_remove_tree_waits_for_who_holds_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, problem: int
) -> None:
    """A scanner: https://learn.microsoft.com/windows/win32/api/fileapi/nf-fileapi-deletefilew."""
    (tmp_path / "tree/a").mkdir(parents=True)
    (tmp_path / "tree/a/file").touch()
    genuine, refusals = getattr(os, name), [problem] * 3

    def held(*arguments: Any, **named: Any) -> None:
        if refusals:
            raise OSError(refusals.pop(), "held")
        genuine(*arguments, **named)

    monkeypatch.setattr(os, name, held)
    monkeypatch.setattr(files, "_SCAN", 1.0)
    assert files.remove_tree(str(tmp_path / "tree"))
    assert not (tmp_path / "tree").exists()
    assert not refusals


def test_files_that_windows_may_hold_are_replaced_patiently() -> None:
    """155 of 4,000 failed: https://github.com/zarr-developers/zarr-python/issues/4358."""
    alone = {REMOTE / name for name in ("files.py", "taskmain.py", "shards/division.py")}
    # Of which.py, which has no neighbours either: where it may not be replaced, it says so.
    alone.add(REMOTE.parent / "publish/memory.py")
    for path in {*REMOTE.parent.rglob("*.py")} - alone:  # those have no neighbours, and wait
        if REMOTE.parent / "hosts/sandbox" not in path.parents:  # that is never Windows
            assert not re.search(r"os\.replace\(|\bpart\.replace\(", path.read_text("utf-8")), path


def test_controller_waits_for_who_holds_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine, refusals = os.replace, [errno.EACCES] * 3

    def held(*arguments: Any) -> None:
        if refusals:
            raise PermissionError(refusals.pop(), "held")
        genuine(*arguments)

    monkeypatch.setattr(os, "replace", held)
    monkeypatch.setattr(files, "_SCAN", 1.0)
    write_atomic(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert not refusals
    refusals.extend([errno.EACCES] * 1000)
    monkeypatch.setattr(files, "_SCAN", 0.0)
    with pytest.raises(StorageError) as caught:
        write_atomic(tmp_path / "file", b"newer")
    assert "has it open" in caught.value.hint
    assert (tmp_path / "file").read_bytes() == b"new"
