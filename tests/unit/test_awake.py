"""A host that falls asleep, shows error boxes, restarts, or resets its driver while it works."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from smoke_runs import EXPECT, run, shipped, wheel
from windows_dlls import BUTTONS, LID, SLEEP, STANDBY, Windows

from pipelines.core.paths import PACKAGE
from pipelines.remote import (
    awake,
    builder,
    events,
    process,
    rpc,
    scheduler,
    taskmain,
    tester,
    usage,
)
from pipelines.remote.inspection import kernel
from pipelines.remote.jobs import runner, store

BOXES = 0x8003


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> Windows:
    made = Windows()
    made.install(monkeypatch)
    return made


# -- awake, and no boxes ---------------------------------------------------------------------------


def test_it_is_held_awake_as_long_as_the_thread_lives(windows: Windows) -> None:
    over = threading.Event()

    def work() -> None:
        awake.begin()
        over.wait(10)

    thread = threading.Thread(target=work)
    thread.start()
    while not windows.mode & BOXES:
        time.sleep(0.01)
    while not windows.held:
        time.sleep(0.01)
    over.set()
    thread.join()
    assert not windows.held
    windows.mode = 0x4  # of somebody else
    awake.begin()
    assert windows.mode == 0x4 | BOXES


class Lists:
    """A channel that opens no other one, and sees how the host is meanwhile."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self.seen: list[tuple[bool, int]] = []

    def __iter__(self) -> Iterator[Any]:
        self.seen.append((self.windows.held, self.windows.mode))
        return iter(())


def test_a_session_holds_the_host_awake_and_shows_no_boxes(windows: Windows) -> None:
    channel: Any = Lists(windows)
    serving = threading.Thread(target=rpc.serve, args=(channel,))
    serving.start()
    serving.join()
    assert channel.seen == [(True, BOXES)]
    assert not windows.held


def test_a_task_holds_the_host_awake_and_shows_no_boxes(
    windows: Windows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "command.json").write_text('["x"]', "utf-8")
    seen = []

    def started(*_: object, **__: object) -> None:
        seen.append((windows.held, windows.mode))
        raise OSError("enough")

    monkeypatch.setattr(subprocess, "Popen", started)
    taskmain.main(tmp_path)
    assert seen == [(True, BOXES)]


class Ran:
    """The runner of one job, in this process: what its function does, and what is left."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.monkeypatch = monkeypatch
        monkeypatch.setattr(runner, "_wait_for_cancel", lambda *_: None)
        monkeypatch.setattr("pipelines.remote.reboot.boot_identity", lambda: "this one")
        monkeypatch.delenv("WCW_JOB", raising=False)
        runner._interrupted.clear()
        store.write(folder / store.SPEC, {"title": "t", "function": "x.y", "arguments": {}})

    def __call__(self, *items: Any) -> int:
        def given(*_: object) -> Iterator[Any]:
            for item in items:
                yield from item() if callable(item) else [item]

        self.monkeypatch.setattr(runner, "_items", given)
        code = runner._run_job_attempt(self.folder, {"attempt": 1})
        self.monkeypatch.delenv("WCW_JOB", raising=False)
        return code

    @property
    def left(self) -> dict[str, Any] | None:
        return store.read(self.folder / store.RESULT)

    @property
    def why(self) -> str:
        return store.latest(self.folder).get("why", "")


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ran:
    return Ran(tmp_path, monkeypatch)


def test_a_job_holds_the_host_awake_and_shows_no_boxes(windows: Windows, ran: Ran) -> None:
    seen = []

    def look() -> Iterator[bytes]:
        seen.append((windows.held, windows.mode))
        yield b""

    thread = threading.Thread(target=ran, args=(look, {"exit": 0}))
    thread.start()
    thread.join()
    assert seen == [(True, BOXES)]
    assert not windows.held
    assert ran.left is not None


def test_what_sends_it_to_sleep_is_told(windows: Windows) -> None:
    assert kernel.power() == {"sleep": 1800, "hibernate": 10800, "lid": 1}
    windows.can = {5: 1, 6: 1}  # no lid, and no file to hibernate into
    assert kernel.power() == {"sleep": 1800, "hibernate": 0, "lid": 0}
    windows.can = {20: 1, 2: 1}  # modern standby has no S3
    assert kernel.power() == {"sleep": 1800, "hibernate": 0, "lid": 1}
    windows.can = {2: 1}
    windows.settings[BUTTONS, LID] = 0
    assert kernel.power() == {"sleep": 0, "hibernate": 0, "lid": 0}
    windows.can = {5: 1}
    del windows.settings[SLEEP, STANDBY]
    with pytest.raises(OSError, match="sleep: 2"):
        kernel.power()


# -- time asleep is not running time ---------------------------------------------------------------


def test_a_program_is_not_stopped_for_a_night_asleep(windows: Windows) -> None:
    code = "import os, time; os.write(1, b'up'); time.sleep(1)"
    items = process.stream([sys.executable, "-c", code], timeout=60)
    assert next(items) == b"up"
    windows.sleeps(8)
    *_, ended = items
    assert isinstance(ended, dict)
    assert (ended["exit"], ended["timed_out"]) == (0, False)
    assert ended["seconds"] < 60


def test_an_installer_is_not_stopped_for_a_night_asleep(windows: Windows, tmp_path: Path) -> None:
    (tmp_path / "alive").touch()
    threading.Timer(0.2, windows.sleeps, (8,)).start()
    threading.Timer(1.5, (tmp_path / "result.json").touch).start()
    scheduler._wait_for_task_result(tmp_path, "setup.exe", 600)
    assert not (tmp_path / "stop").exists()


#: What may count sleep: a build's timeline, whose units are dated by ninja, which counts it too;
#: and a program that is sent alone and waits for a moment.
COUNT_SLEEP = {"awake.py", "usage.py", "buildwheel.py"}


def test_nothing_on_a_host_waits_by_another_clock() -> None:
    sources = {p for p in (PACKAGE / "remote").rglob("*.py") if p.name not in COUNT_SLEEP}
    sources.add(PACKAGE / "smoke" / "common" / "smoke_isolation.py")
    found = [
        f"{path.name}:{node.lineno}"
        for path in sorted(sources)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("monotonic", "perf_counter")
    ]
    assert found == []


SLEEPY = """
import awake, time
TORCH, MODULES = False, ("demo",)
steady, wall, began = time.monotonic, time.time, time.monotonic()
awake.seconds = steady  # as on Windows, where the other clocks continue during sleep
time.monotonic = lambda: steady() + 8 * 3600 * (steady() - began > 2)
time.time = lambda: wall() + 8 * 3600 * (steady() - began > 2)
def facts(*, gpu): return {}
def lost(): return False
"""


@pytest.mark.slow
def test_a_suite_does_not_hang_for_a_night_asleep(tmp_path: Path) -> None:
    suite = {name: text for name, text in shipped().items() if not name.startswith("test_")}
    text = "import time\ndef test_slow(): time.sleep(4)\ndef test_after(): pass\n"
    suite |= {"smoke_suite.py": SLEEPY, "test_z.py": text}
    made = wheel(tmp_path, "demo", {"demo.py": b""})
    outcome = run(tmp_path, suite, made, EXPECT, {"SMOKE_CASE_SECONDS": "30"})
    assert {case.outcome for case in outcome.suite.cases} == {"passed"}
    assert len(outcome.suite.cases) == 2


def test_figures_of_two_processor_groups_are_no_nonsense(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more than 64 cores a thread may move to a group whose counters are others."""
    told = [(100.0, 200.0), (50.0, 250.0), (500.0, 300.0)]
    monkeypatch.setattr(usage, "processor_times", lambda: told.pop(0) if told else (501.0, 400.0))
    monkeypatch.setattr(usage, "_EVERY", 0.02)
    measured = usage.Gauge()
    while told:
        time.sleep(0.01)
    samples = measured.finish(Path("/none"))["samples"]
    assert samples
    assert all(0 <= busy <= 1 for _, busy, _ in samples)


# -- a failure that is not the job's ---------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        b"FAILED: [code=3221225786] a.obj\n",
        b"error: command 'cl.exe' failed with exit code 1073807364\n",
        b"CalledProcessError: Command '['nvcc']' returned non-zero exit status -1073741205.\n",
        b"nvcc error   : 'cicc' died with status 0xC000013A\n",
        b"ninja: build stopped: interrupted by user.\n",
    ],
)
def test_a_program_that_was_ended_is_no_failure_of_the_job(ran: Ran, said: bytes) -> None:
    assert ran(said, {"exit": 1}) == 1
    assert (ran.left, bool(ran.why)) == (None, True)


@pytest.mark.parametrize("code", [0xC000013A, 0x40010004, -1073741205])
def test_the_jobs_own_program_may_be_what_was_ended(ran: Ran, code: int) -> None:
    assert ran(b"", {"exit": code}) == 1
    assert ran.left is None


@pytest.mark.parametrize(
    ("said", "result"),
    [
        (b"FAILED: [code=2] a.obj\n", {"exit": 1}),
        (b"a.cpp(3221225786): error C2065\n", {"exit": 1}),
        (b"FAILED: [code=32212257860] a.obj\n", {"exit": 1}),
        (b"FAILED: [code=3221225786] a.obj\n", {"exit": 0}),
        (b"FAILED: [code=3221225786] a.obj\n", {"exit": 1, "timed_out": True}),
    ],
)
def test_any_other_result_is_kept(ran: Ran, said: bytes, result: dict[str, Any]) -> None:
    assert ran(said, result) == 0
    assert ran.left is not None
    assert ran.left["result"] == result


def test_a_console_event_ends_programs_but_not_the_runner(windows: Windows, ran: Ran) -> None:
    def interrupt() -> Iterator[bytes]:
        assert windows.handlers[-1](1) == 1, "the next handler would end the process"
        yield b""

    assert ran(interrupt, {"exit": 1}) == 1
    assert (ran.left, bool(ran.why)) == (None, True)


def test_a_failure_while_windows_goes_down_waits_for_the_end(
    windows: Windows, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows.events = [("User32", 1074, ["MoUsoCoreWorker.exe", "restart"], 0.0)]
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        assert ran.left is None
        waited.append(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    assert ran(b"FAILED: [code=1] a.obj\n", {"exit": 1}) == 0
    assert waited == [runner._GOING_DOWN]
    assert ran.left is not None, "the restart was called off"
    assert not windows.open


# -- the System log --------------------------------------------------------------------------------


def test_resets_of_the_driver_are_told_from_what_a_program_does(windows: Windows) -> None:
    windows.events = [
        ("Display", 4101, ["nvlddmkm"], 5.0),
        ("Display", 4097, ["other"], 5.0),
        ("nvlddmkm", 153, [r"\Device\Video3", "Restarting TDR occurred on GPUID:100"], 6.0),
        ("nvlddmkm", 13, [r"\Device\Video3", "Graphics Exception on (GPC 0, TPC 0)"], 6.0),
        ("Display", 4101, ["of yesterday"], 86400.0),
    ]
    resets = [r"nvlddmkm", r"\Device\Video3 Restarting TDR occurred on GPUID:100"]
    assert events.driver_resets(60) == resets
    assert not events.restart_announced(60)
    assert not windows.open, "handles are left open"


def test_a_log_that_is_long_or_not_to_be_read_is_no_error(windows: Windows) -> None:
    windows.events = [("Display", 4101, ["x" * 40_000], 1.0), ("Display", 4101, ["y"], 1.0)] * 40
    windows.events[:0] = [("Display", 4101, ["\x01"], 1.0)]
    assert set(events.driver_resets(60)) == {"y"}
    assert not windows.open
    windows.readable = False
    assert events.driver_resets(60) == []


@pytest.mark.parametrize(
    ("exits", "resets", "runs", "left"),
    [
        ([1, 0], [["a TDR"]], 2, []),
        ([1, 1], [["a TDR"], []], 2, []),
        ([1, 1], [["a TDR"], ["a TDR"]], 2, ["a TDR"]),
        ([1], [[]], 1, []),
        ([0], [], 1, []),
    ],
)
def test_a_suite_that_a_reset_has_spoiled_runs_once_more(  # noqa: PLR0917
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    exits: list[int],
    resets: list[list[str]],
    runs: int,
    left: list[str],
) -> None:
    asked = 0

    def stream(command: list[str], **_: object) -> Iterator[dict[str, object]]:
        nonlocal asked
        code = 0
        if "pytest" in command:
            assert not (tmp_path / "t" / "junit.xml").exists(), "the report of the run before it"
            (tmp_path / "t" / "junit.xml").touch()
            code, asked = exits[asked], asked + 1
        yield {"exit": code, "timed_out": False, "seconds": 1.0}

    monkeypatch.setattr(process, "stream", stream)
    monkeypatch.setattr(events, "driver_resets", lambda _: resets.pop(0))
    spec: tester.Spec = {
        "directory": str(tmp_path / "t"),
        "installer": "",
        "python": sys.executable,
        "wheel": "",
        "packages": [],
        "suite": {},
        "expect": {},
        "environment": {},
        "timeout": 120.0,
    }
    *_, outcome = tester.run_suite(spec)
    assert isinstance(outcome, dict)
    assert (asked, outcome["exit"], outcome["resets"]) == (runs, exits[-1], left)


# -- a loss of power -------------------------------------------------------------------------------

RULES = (
    "rule cp\n command = cp $in $out && echo $out >> ran\nbuild a.o: cp a.c\nbuild b.o: cp b.c\n"
)


def windows_identity(boot: Callable[[], str]) -> Callable[..., str]:
    """As on Windows, where the file that Wine has is not found."""

    def identity(path: str = "") -> str:
        if path:
            raise FileNotFoundError(path)
        return boot()

    return identity


@pytest.mark.skipif(not shutil.which("ninja"), reason="needs ninja")
def test_objects_full_of_zeros_are_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot = "before"
    monkeypatch.setattr(builder, "boot_identity", windows_identity(lambda: boot))
    tree, mark = tmp_path / "src", tmp_path / "boot"
    assert builder.drop_unflushed(mark, tree) == b""
    tree.mkdir()
    (tree / "build.ninja").write_text(RULES, "utf-8")
    now = time.time()
    for name in ("a", "b"):
        (tree / f"{name}.c").write_text(f"what {name} is made of", "utf-8")
        os.utime(tree / f"{name}.c", (now - 9000, now - 9000))
    os.utime(tree / "build.ninja", (now - 9000, now - 9000))

    def ninja() -> list[str]:
        (tree / "ran").unlink(missing_ok=True)
        subprocess.run(["ninja"], cwd=tree, check=True, capture_output=True)
        return (tree / "ran").read_text("utf-8").split() if (tree / "ran").exists() else []

    assert sorted(ninja()) == ["a.o", "b.o"]
    os.utime(tree / "a.o", (now - 3600, now - 3600))
    (tree / "ran").unlink()
    (tree / "b.o").write_bytes(bytes((tree / "b.o").stat().st_size))
    assert ninja() == [], "it goes by dates, as after a loss of power"
    assert builder.drop_unflushed(mark, tree) == b"", "the same start of the host"
    boot = "after"
    assert b"1 files" in builder.drop_unflushed(mark, tree)
    assert ninja() == ["b.o"]
    assert (tree / "b.o").read_text("utf-8") == "what b is made of"
    assert builder.drop_unflushed(mark, tree) == b""


def test_a_mark_that_was_lost_itself_is_of_another_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "boot_identity", windows_identity(lambda: "boot"))
    tree, mark = tmp_path / "src", tmp_path / "boot"
    tree.mkdir()
    for left in (None, b"\0\0\0\0"):
        (tree / "x.o").touch()
        (tree / "ahead.h").touch()
        os.utime(tree / "ahead.h", (time.time() + 9000, time.time() + 9000))
        (tree / ".ninja_log").touch()
        mark.unlink(missing_ok=True)
        if left is not None:
            mark.write_bytes(left)
        assert builder.drop_unflushed(mark, tree)
        assert [path.name for path in tree.iterdir()] == [".ninja_log"]
