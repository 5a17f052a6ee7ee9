"""Detached jobs, on this machine: the real launcher and runner, at the end of a real channel."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sessions import connect
from timing import until

from pipelines.core.errors import RemoteError
from pipelines.remote.jobs import follow as remote_follow
from pipelines.remote.jobs import launch, store
from pipelines.session.base import Session

pytestmark = pytest.mark.slow


@pytest.fixture
def session() -> Iterator[Session]:
    with connect() as opened:
        yield opened


def python(code: str, title: str = "test") -> store.Spec:
    command = [sys.executable, "-u", "-c", code]
    return {"title": title, "function": "process.stream", "arguments": {"command": command}}


def start(session: Session, place: Path, spec: store.Spec, **more: Any) -> store.State:
    return session.call(launch.start, directory=str(place), spec=spec, **more)


def follow(session: Session, place: Path, attempt: int = 1, offset: int = 0) -> tuple[bytes, Any]:
    log, last = b"", None
    for item in session.stream(
        remote_follow.follow, directory=str(place), attempt=attempt, offset=offset
    ):
        if isinstance(item, dict):
            last = item
        else:
            log += item
    return log, last


def state(session: Session, place: Path) -> dict[str, Any]:
    return dict(session.call(store.state, directory=str(place)))


def test_a_job_from_start_to_end(session: Session, tmp_path: Path) -> None:
    job = tmp_path / "job"
    assert state(session, job)["state"] == "absent"
    began = start(session, job, python("print('one'); print('two'); raise SystemExit(3)"))
    assert began["attempt"] == 1
    assert began["way"] == "session"
    log, last = follow(session, job)
    assert log == b"one\ntwo\n"
    assert last["state"] == "ended"
    assert last["result"]["result"]["exit"] == 3
    assert last["result"]["cancelled"] is False


def test_following_leaves_the_lock_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wine's server keeps a locked file open for each time that it was opened: after 20 minutes of
    looks ten times a second it had no file left for anybody.
    """
    job, looks = tmp_path / "job", 0
    with connect() as session:
        start(session, job, python("import time; time.sleep(2); print('done')"))
        genuine = store.lives

        def lives(directory: Path) -> bool:
            nonlocal looks
            looks += 1
            return genuine(directory)

        monkeypatch.setattr(store, "lives", lives)
        *_, last = remote_follow.follow(str(job), 1, 0)
    assert isinstance(last, dict)
    assert last["state"] == "ended"
    assert looks <= 5, "one at the start, and while the runner that has a result goes"


def test_nothing_that_an_environment_names_is_imported_by_our_own_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build could have set PYTHONPATH of the account. What a job runs sees it all the same."""
    planted, ran = tmp_path / "planted", tmp_path / "ran"
    planted.mkdir()
    code = f"import sys; open({str(ran)!r}, 'a').write(sys.argv[0] + chr(10))"
    (planted / "sitecustomize.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(planted))
    with connect() as session:
        start(session, tmp_path / "job", python("print('done')"))
        assert follow(session, tmp_path / "job")[0] == b"done\n"
    assert ran.read_text().splitlines() == ["-c"], "the job's program, not what runs it"


def test_it_outlives_the_connection_and_is_followed_from_an_offset(tmp_path: Path) -> None:
    job, go = tmp_path / "job", tmp_path / "go"
    code = (
        "import os, time\nprint('first')\n"
        "for _ in range(3000):\n"  # a minute: whatever fails here, it does not stay
        f"    if os.path.exists({str(go)!r}): break\n"
        "    time.sleep(0.02)\n"
        "else: raise SystemExit(4)\n"
        "print('second')"
    )
    try:
        with connect() as before:
            start(before, job, python(code))
            items = before.stream(remote_follow.follow, directory=str(job), attempt=1, offset=0)
            seen = b""
            while not seen.endswith(b"\n"):  # a line and its end may be written apart
                item = next(items)
                assert isinstance(item, bytes), item
                seen += item
        assert seen == b"first\n"
        go.touch()
        with connect() as after:
            again = start(after, job, python(code))
            assert again["attempt"] == 1
            log, last = follow(after, job, offset=len(seen))
    finally:
        go.touch()
    assert log == b"second\n"
    assert last["result"]["result"]["exit"] == 0


def test_one_that_has_ended_is_not_run_again_unless_asked(session: Session, tmp_path: Path) -> None:
    count = tmp_path / "count"
    spec = python(f"open({str(count)!r}, 'a').write('x')")
    for _ in range(2):
        start(session, tmp_path / "job", spec)
        follow(session, tmp_path / "job")
    assert count.read_text() == "x"
    for _ in range(2):  # asked twice, for the first answer may be lost
        assert start(session, tmp_path / "job", spec, beyond=1)["attempt"] == 2
    _, last = follow(session, tmp_path / "job", attempt=2)
    assert last["attempt"] == 2
    assert count.read_text() == "xx"


def test_a_killed_runner_is_lost_and_the_next_start_is_another_attempt(
    session: Session, tmp_path: Path
) -> None:
    job = tmp_path / "job"
    pid = start(session, job, python("import time; print('a'); time.sleep(60)"))["pid"]
    until(lambda: state(session, job)["log_size"] == len("a\n"))
    os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))  # either ends it at once
    log, last = follow(session, job)
    assert (log, last["state"], last["result"]) == (b"a\n", "lost", None)
    assert start(session, job, python("print('b')"))["attempt"] == 2
    log, last = follow(session, job, attempt=2)
    assert (log, last["state"]) == (b"b\n", "ended")


def test_cancel_ends_the_whole_tree(session: Session, tmp_path: Path) -> None:
    job, pids = tmp_path / "job", tmp_path / "pids"
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(pids)!r}, 'w').write(str(child.pid))\nprint('up')\ntime.sleep(60)"
    )
    start(session, job, python(code))
    until(lambda: state(session, job)["log_size"])
    ended = session.call(remote_follow.cancel, directory=str(job))
    assert ended["state"] == "ended"
    assert ended["result"]
    assert ended["result"]["cancelled"] is True
    until(lambda: not Path(f"/proc/{pids.read_text()}").exists())


def test_four_controllers_at_once_start_one_job(tmp_path: Path) -> None:
    count = tmp_path / "count"
    spec = python(f"import time; open({str(count)!r}, 'a').write('x'); time.sleep(0.5)")
    sessions = [connect() for _ in range(4)]
    attempts: list[int] = []

    def one(session: Session) -> None:
        attempts.append(start(session, tmp_path / "job", spec)["attempt"])

    threads = [threading.Thread(target=one, args=(s,)) for s in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _, last = follow(sessions[0], tmp_path / "job")
    for session in sessions:
        session.close()
    assert attempts == [1, 1, 1, 1]
    assert last["state"] == "ended"
    assert count.read_text() == "x"


def test_a_function_that_raises_is_a_result(session: Session, tmp_path: Path) -> None:
    spec: store.Spec = {
        "title": "t",
        "function": "process.stream",
        "arguments": {"command": ["/no/such"]},
    }
    start(session, tmp_path / "job", spec)
    _, last = follow(session, tmp_path / "job")
    assert last["result"]["result"]["error"]["kind"] == "FileNotFoundError"


def test_a_spec_that_names_no_function(session: Session, tmp_path: Path) -> None:
    start(session, tmp_path / "job", {"title": "", "function": "os.system", "arguments": {}})
    _, last = follow(session, tmp_path / "job")
    assert last["result"]["result"]["error"]["kind"] in ("ModuleNotFoundError", "LookupError")


def test_listed_and_digest(session: Session, tmp_path: Path) -> None:
    for name in ("a", "b"):
        start(session, tmp_path / name, python(f"print({name!r})", title=name))
        follow(session, tmp_path / name)
    found = session.call(store.listed, root=str(tmp_path))
    assert [(job["id"], job["title"], job["state"]) for job in found] == [
        ("b", "b", "ended"),
        ("a", "a", "ended"),
    ]
    import hashlib

    digest = session.call(store.prefix_digest, directory=str(tmp_path / "a"), attempt=1, size=2)
    assert digest == hashlib.sha256(b"a\n").hexdigest()
    assert not session.call(store.prefix_digest, directory=str(tmp_path / "a"), attempt=1, size=3)


def test_a_directory_that_cannot_be_made(session: Session, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RemoteError):
        start(session, tmp_path / "file/job", python(""))


def test_a_way_out_that_fails_is_told_and_the_next_one_taken(
    session: Session, tmp_path: Path
) -> None:
    """The launcher of a host whose first way is barred; patched there, in the host's own Python."""
    code = (
        "import remote.jobs.launch as launch\n"
        "good = launch.ways()['session']\n"
        "def barred(command, secrets): raise PermissionError(5, 'Access is denied')\n"
        "def dies(command, secrets):\n"
        "    import subprocess, sys\n"
        "    return subprocess.Popen([sys.executable, '-c', 'raise SystemExit(7)'])\n"
        "launch.ways = lambda: {'breakaway': barred, 'task': dies, 'shell': good}\n"
    )
    channel = session._link().gateway.remote_exec(code)  # type: ignore[attr-defined]
    channel.waitclose(10)
    began = start(session, tmp_path / "job", python("print('ran')"))
    assert began["way"] == "shell"
    assert began["failed"] == {
        "breakaway": "[Errno 5] Access is denied",
        "task": "the runner ended with exit code 7",
    }
    assert follow(session, tmp_path / "job")[0] == b"ran\n"
