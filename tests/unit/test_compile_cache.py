"""The compile cache: what a host gets, secrets, and sccache itself where it is installed."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from cache_runs import cache, children, spec, told
from pydantic import ValidationError

from pipelines.core.errors import ConfigError
from pipelines.core.hosttext import redact
from pipelines.core.yamlfile import parse_yaml
from pipelines.remote import compilecache, fixed_paths, locks, process, sccache
from pipelines.remote.jobs import prune, store
from pipelines.toolchain import compilecache as plan

if sys.platform == "win32":
    pytest.skip("the fake server is a POSIX script", allow_module_level=True)


# -- configuration --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys",
    [
        {"kind": "disk", "size_gib": 0},
        {"kind": "disk", "password": "x"},
        {"kind": "s3"},
        {"kind": "s3", "bucket": "b", "secret_access_key": "x"},
        {"kind": "s3", "bucket": "b", "endpoint": "https://key:word@minio.example"},
        {"kind": "redis", "endpoint": "redis://:word@10.0.0.1:6379"},
        {"kind": "webdav", "endpoint": "https://dav.example/?token=word"},
        {"kind": "floppy"},
    ],
)
def test_no_secret_and_nothing_unknown_is_taken(keys: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        cache(**keys)


def test_variables_of_each_kind() -> None:
    disk = plan.sccache_environment(cache(kind="disk", size_gib=5), r"C:\sccache")
    assert disk == {"SCCACHE_DIR": r"C:\sccache\units", "SCCACHE_CACHE_SIZE": "5G"}
    s3 = plan.sccache_environment(cache(kind="s3", bucket="b", endpoint="http://minio:9000"), "/c")
    assert s3["SCCACHE_BUCKET"] == "b"
    assert s3["SCCACHE_REGION"] == "auto"
    assert s3["SCCACHE_S3_USE_SSL"] == "false"
    assert "SCCACHE_S3_RW_MODE" not in s3
    redis = plan.sccache_environment(
        cache(kind="redis", endpoint="rediss://r:1", read_only=True), "/c"
    )
    assert redis["SCCACHE_REDIS_RW_MODE"] == "READ_ONLY"
    gha = plan.sccache_environment(cache(kind="gha"), "/c")
    assert gha["SCCACHE_GHA_ENABLED"] == "on"
    dav = plan.sccache_environment(cache(kind="webdav", endpoint="https://dav/x", prefix="p"), "/c")
    assert dav["SCCACHE_WEBDAV_KEY_PREFIX"] == "p"


def test_off_without_quotes() -> None:
    assert cache(**parse_yaml("{kind: off}")).kind == "off"


def test_what_the_host_is_told_names_what_the_local_cache_leaves_out() -> None:
    assert spec(cache(kind="off")) is None
    assert spec(cache(kind="disk"), executable="") is None
    told = spec(cache(kind="redis", endpoint="redis://r:1"))
    assert told is not None
    assert told["remote"] == ["SCCACHE_REDIS_ENDPOINT"]
    assert json.loads(json.dumps(told)) == told


def test_secrets_come_from_the_environment_and_are_redacted() -> None:
    have = {"AWS_ACCESS_KEY_ID": "AKIA-not-shown", "AWS_SECRET_ACCESS_KEY": "wcw-hidden", "X": "1"}
    s3 = cache(kind="s3", bucket="b")
    assert plan.sccache_secrets(s3, have) == {k: v for k, v in have.items() if k != "X"}
    assert redact("said wcw-hidden") == "said ***"
    assert "hidden" not in json.dumps(spec(s3))
    assert plan.sccache_secrets(s3, {}) == {}
    with pytest.raises(ConfigError, match="AWS_SECRET_ACCESS_KEY is not"):
        plan.sccache_secrets(s3, {"AWS_ACCESS_KEY_ID": "AKIA-not-shown"})


def test_actions_without_its_token_is_refused_with_a_way_out() -> None:
    with pytest.raises(ConfigError, match="ACTIONS_RUNTIME_TOKEN not set") as caught:
        plan.sccache_secrets(cache(kind="gha"), {"ACTIONS_RESULTS_URL": "https://x"})
    assert "actions/cache" in caught.value.hint


# -- the fixed place ------------------------------------------------------------------------------


def test_a_tree_is_at_its_place_and_comes_home(tmp_path: Path) -> None:
    source, place = tmp_path / "j" / "src", tmp_path / "s"
    source.mkdir(parents=True)
    (source / "a.cu").write_text("x")
    with fixed_paths.moved_to(source, place) as there:
        assert there == place
        assert (place / "a.cu").exists()
        assert not source.exists()
        (place / "a.obj").write_text("y")
    assert (source / "a.obj").read_text() == "y"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["j"]


def test_a_removed_job_leaves_no_tree_behind(tmp_path: Path) -> None:
    one, two, place = tmp_path / "1" / "src", tmp_path / "2" / "src", tmp_path / "s"
    one.mkdir(parents=True)
    assert fixed_paths._move_in(one, place, tmp_path / "s.home")
    shutil.rmtree(one.parent)
    (place / "old").touch()
    with fixed_paths.moved_to(two, place):
        assert not list(place.iterdir())
    assert two.is_dir() is False or not list(two.iterdir())


# -- running --------------------------------------------------------------------------------------

FAKE = """#!{python}
import os, socket, sys
if sys.argv[1:2] == ["--stop-server"]:
    line = socket.socket(socket.AF_UNIX)
    line.connect(os.environ["SCCACHE_SERVER_UDS"]); line.send(b"stop"); sys.exit()
if sys.argv[1:2] == ["--show-stats"]:
    print("not json"); sys.exit()
if os.environ.get("SCCACHE_REDIS_ENDPOINT"):
    print("no redis: bad word", os.environ.get("SCCACHE_REDIS_PASSWORD"), file=sys.stderr)
    sys.exit(2)
server = socket.socket(socket.AF_UNIX)
server.bind(os.environ["SCCACHE_SERVER_UDS"]); server.listen()
while True:
    line, _ = server.accept()
    if line.recv(9): break
"""


@pytest.fixture
def fake(tmp_path: Path) -> str:
    path = tmp_path / "fake-sccache"
    path.write_text(FAKE.format(python=sys.executable))
    path.chmod(0o755)
    return str(path)


def test_the_server_lives_as_long_as_the_block(tmp_path: Path, fake: str) -> None:
    with compilecache.running(told(tmp_path, fake), tmp_path / "src") as made:
        assert made.environment["PYTORCH_NVCC"] == f"{fake} '/n o/nvcc'"
        assert made.environment["TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES"] == "1"
        assert made.environment["WCW_PACKAGES"] == str(tmp_path / "p/site")
        assert made.environment["SCCACHE_DIR"] == str(tmp_path / "cache" / "units")
        assert made.source == tmp_path / "s"
        assert b"disk" in made.line()
        assert made.figures() == {}  # it says nonsense
        assert len(children()) == 1
        uds = made.environment["SCCACHE_SERVER_UDS"]
        assert sccache.answers({"SCCACHE_SERVER_UDS": uds})
    assert not children()
    assert not Path(uds).exists()
    assert sorted(p.name for p in (tmp_path / "cache").iterdir()) == ["in-use"]


def test_without_an_address_nobody_is_asked(
    tmp_path: Path, fake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Windows, too: sccache would ask, start or stop the one at its default port."""
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(sccache, "query", lambda *_: pytest.fail("sccache was called"))
    assert not sccache.answers({})
    assert not sccache.answers({"SCCACHE_SERVER_UDS": str(tmp_path)})
    assert not sccache.stop(fake, tmp_path)
    assert compilecache.stats(fake, str(tmp_path)) == {"entries": 0, "bytes": 0}


def test_files_that_somebody_holds_open_are_no_reason_to_lose_a_build(
    tmp_path: Path, fake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.unlink

    def held(path: Path, missing_ok: bool = False) -> None:
        if path.name in ("server.log", "server.json"):
            raise PermissionError(13, "used by another process", str(path))
        real(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", held)
    with compilecache.running(told(tmp_path, fake), tmp_path / "src") as made:
        assert made.environment
    assert not children()


def test_a_build_that_raises_leaves_no_server(tmp_path: Path, fake: str) -> None:
    with (
        pytest.raises(RuntimeError, match="the build"),
        compilecache.running(told(tmp_path, fake), tmp_path / "src"),
    ):
        raise RuntimeError("the build")
    assert not children()


def test_no_sccache_is_no_error(tmp_path: Path) -> None:
    with compilecache.running(told(tmp_path, "/nowhere/sccache"), tmp_path / "src") as made:
        assert made.environment == {}
        assert made.source == tmp_path / "src"
        assert b"/nowhere/sccache does not exist" in made.line()
    with compilecache.running(None, tmp_path / "src") as made:
        assert made.line() == b"compile cache: off\n"
    assert compilecache.stats("/nowhere/sccache", str(tmp_path / "none")) == {
        "entries": 0,
        "bytes": 0,
    }


def child_ids() -> set[str]:
    return {*Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()}


def test_a_remote_cache_that_fails_is_replaced_by_the_disk_without_its_secrets(
    tmp_path: Path, fake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        compilecache.SECRETS, json.dumps({"SCCACHE_REDIS_PASSWORD": "word-not-shown"})
    )
    where = told(tmp_path, fake, cache(kind="redis", endpoint="redis://r:1"))
    before = child_ids()  # such as what multiprocessing has started for other tests
    with compilecache.running(where, tmp_path / "src") as made:
        assert made.status.startswith("redis is not used: sccache's server stopped: no redis")
        assert made.status.endswith("; local disk instead")
        assert "word-not-shown" not in made.status
        assert "word-not-shown" not in json.dumps(made.environment)
        assert compilecache.SECRETS not in os.environ
        (server,) = child_ids() - before
        assert b"word-not-shown" not in Path(f"/proc/{server}/environ").read_bytes()
    kept = [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    assert not [p for p in kept if b"word-not-shown" in p.read_bytes()]


def test_a_second_build_goes_without(
    tmp_path: Path, fake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilecache, "_TURN", 0.1)
    where = told(tmp_path, fake)
    with (
        compilecache.running(where, tmp_path / "1"),
        compilecache.running(where, tmp_path / "2") as second,
    ):
        assert second.environment == {}
        assert "another build" in second.status
        assert second.source == tmp_path / "2"
        assert compilecache.prune(where["directory"], 0)["busy"] is False  # it is empty
    with compilecache.running(where, tmp_path / "2") as second:
        assert second.environment


def test_a_server_that_never_answers_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "deaf-sccache"
    script.write_text("#!/bin/sh\nexec sleep 600\n")
    script.chmod(0o755)
    monkeypatch.setattr(sccache, "_START", 0.3)
    with compilecache.running(told(tmp_path, str(script)), tmp_path / "src") as made:
        assert "does not answer" in made.status
        assert made.environment == {}
    assert not children()


def test_cancelling_does_not_wait_for_the_server(
    tmp_path: Path, fake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = threading.Event()
    monkeypatch.setattr(process, "cancelled", event)
    monkeypatch.setattr(sccache, "query", lambda *_: pytest.fail("it was asked to leave"))
    monkeypatch.setattr(sccache, "_FAREWELL", 240.0)
    began = time.monotonic()
    with compilecache.running(told(tmp_path, fake), tmp_path / "src"):
        event.set()
    assert time.monotonic() - began < 120, "it was given time to leave"
    assert not children()


def test_prune_removes_what_was_used_longest_ago(tmp_path: Path) -> None:
    for number in range(4):
        path = tmp_path / "a" / "b" / f"{number:064x}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(100))
        os.utime(path, (number, number))
    (tmp_path / "a" / "mine.txt").write_bytes(bytes(900))
    assert compilecache.stats("", str(tmp_path))["bytes"] == 400
    done = compilecache.prune(str(tmp_path), 250)
    assert done == {"busy": False, "removed": 2, "freed": 200, "bytes": 200}
    left = sorted(p.name for p in (tmp_path / "a" / "b").iterdir())
    assert left == [f"{2:064x}", f"{3:064x}"]
    assert (tmp_path / "a" / "mine.txt").exists()
    with locks.claim(tmp_path / "in-use") as held:
        assert held
        assert compilecache.prune(str(tmp_path), 0)["busy"] is True
    assert compilecache.stats("", str(tmp_path))["entries"] == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"stats": {"compile_requests": "x"}}', "\0"])
def test_figures_of_nonsense(text: str) -> None:
    assert compilecache.figures(text) == {}


def test_tools_that_are_not_pinned_may_change_under_a_build(tmp_path: Path, fake: str) -> None:
    """Then ninja must see it by the dependency files."""
    where = told(tmp_path, fake)
    where["pinned"] = False
    with compilecache.running(where, tmp_path / "src") as made:
        assert "TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES" not in made.environment


def test_the_link_to_packages_goes_and_they_stay(tmp_path: Path, fake: str) -> None:
    where, packages = told(tmp_path, fake), tmp_path / "site"
    (packages / "torch").mkdir(parents=True)
    link = Path(where["packages"])
    for _ in range(2):  # the second finds what a build left that was killed
        with compilecache.running(where, tmp_path / "src") as made:
            assert made.environment, made.status
            assert not os.path.lexists(link)
            link.symlink_to(packages)
        assert not os.path.lexists(link)
        link.symlink_to(tmp_path / "gone")
    link.unlink()
    link.mkdir()
    (link / "mine").touch()
    with compilecache.running(where, tmp_path / "src") as made:
        assert made.status.startswith("not used: ")
    assert (link / "mine").exists()
    assert (packages / "torch").is_dir()


def test_no_job_is_found_through_the_link(tmp_path: Path) -> None:
    """``jobs.keep.prune`` removes what it finds; here that would be somebody's Python."""
    site, root = tmp_path / "site", tmp_path / "b"
    site.mkdir()
    (site / "spec.json").write_text('{"function": "f", "arguments": {}}')
    link = root / "p" / "site"  # as in stages/buildspec.py
    link.parent.mkdir(parents=True)
    link.symlink_to(site)
    assert store.listed(str(root)) == []
    assert prune.prune(str(root), 0) == []
    assert (site / "spec.json").exists()
