"""The functions that run on hosts, called directly."""

from __future__ import annotations

import ast
import errno
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.remote import facts, files, rpc

REMOTE = Path(rpc.__file__).parent


class FakeFeed(rpc.Feed):
    """Pieces without a channel."""

    def __init__(self, *pieces: bytes, digest: str | None = None) -> None:
        self.pieces = pieces
        self.digest = digest or hashlib.sha256(b"".join(pieces)).hexdigest()

    def __iter__(self) -> Iterator[bytes]:
        yield from self.pieces


def test_receive_lands(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file"
    told = files.receive(FakeFeed(b"ab", b"c"), str(target))
    assert told == {"sha256": hashlib.sha256(b"abc").hexdigest(), "size": 3}
    assert target.read_bytes() == b"abc"
    files.receive(FakeFeed(b"new"), str(target))
    assert target.read_bytes() == b"new"


def test_receive_refuses_damage(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    files.receive(FakeFeed(b"abc", digest="0" * 64), str(target))
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_receive_cleans_up_when_the_sender_goes(tmp_path: Path) -> None:
    class Gone:
        def receive(self) -> bytes:
            raise EOFError

    with pytest.raises(ConnectionAbortedError):
        files.receive(rpc.Feed(Gone()), str(tmp_path / "file"))
    assert not list(tmp_path.iterdir())


def test_full_disk_has_errno_and_path(tmp_path: Path) -> None:
    (tmp_path / "file.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space") as caught:
        files.receive(FakeFeed(bytes(1 << 20)), str(tmp_path / "file"))
    told = rpc.describe(caught.value)
    assert (told["errno"], told["errno_name"]) == (errno.ENOSPC, "ENOSPC")
    assert told["path"] == str(tmp_path / "file")


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


def test_facts(tmp_path: Path) -> None:
    found = facts.facts(str(tmp_path / "not" / "there"))
    assert found["disk"]["path"] == str(tmp_path)
    assert found["disk"]["free"] > 0
    assert found["memory"]["total"] > found["memory"]["available"] > 0
    assert set(found["environment"]) <= set(facts.ENVIRONMENT)


def test_idempotence_is_known_by_name() -> None:
    assert rpc.repeatable("files.stat")
    assert not rpc.repeatable("files.receive")


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
    monkeypatch.setattr(files, "_free", lambda _: free)
    with pytest.raises(OSError, match="somewhere") as caught, files.writing("somewhere"):
        raise OSError(errno.EINVAL, "Invalid argument")
    assert caught.value.errno == number
