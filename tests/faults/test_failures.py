"""What befalls a connection to a Windows host, one test each, against the real client code."""

from __future__ import annotations

import datetime
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from simulator import Clock, SimulatedHost, flip, hang_up, refuse, reset, slow

from pipelines.core.errors import AuthError, BuildError, HostError, TransferError
from pipelines.core.evidence import Evidence
from pipelines.hosts.base import Capabilities, Host
from pipelines.hosts.live import LiveSession
from pipelines.hosts.sandbox.wsman import faults
from pipelines.hosts.sandbox.wsman.shells import Limits
from pipelines.record.results import RunFacts
from pipelines.record.run import Run
from pipelines.remote import process, rpc
from pipelines.session.base import Session
from pipelines.stages import detached
from pipelines.stages.detached import Job, JobSpec

NewHost = Callable[..., SimulatedHost]


class Bench(Host):
    """The simulated host as a job sees it, with a run for its record."""

    name = "simulated"
    executable = sys.executable
    evidence = Evidence.SIMULATED
    capabilities = Capabilities(windows=False, msvc=False, gpu=False, publishable=False)

    def __init__(self, sim: SimulatedHost, run: Run) -> None:
        self.sim = sim
        self.run = run
        self.live = LiveSession(self)

    @property
    def session(self) -> Session:
        return self.live.connect()

    def connect(self) -> Session:
        return self.sim.session()

    def restart(self, session: Session) -> Session:
        raise AssertionError("nothing here restarts")

    def close(self) -> None:
        """Nothing was started."""


@pytest.fixture
def bench(host: SimulatedHost, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(host, Run.create(tmp_path / "out", RunFacts()))
    yield made
    made.live.close()


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detached, "_PAUSES", (0.05, 0.2))


COUNTING = """
import os, sys, time
print("begin", flush=True)
for unit in range(int(sys.argv[1])):
    done = os.path.join(sys.argv[2], "unit%d" % unit)
    if os.path.exists(done):
        continue
    time.sleep(float(sys.argv[3]))
    open(done + ".part", "w").write("x")
    os.rename(done + ".part", done)
    print("unit", unit, flush=True)
print("end", flush=True)
"""


def counting(bench: Bench, units: int = 10, seconds: float = 0.1) -> Job:
    place = bench.sim.place
    command = [sys.executable, "-c", COUNTING, str(units), str(place), str(seconds)]
    spec = JobSpec(str(place / "job"), "t", process.stream, {"command": command})
    return Job(bench.live, bench.run, spec, bench.run.path / "build.log")


def finish(job: Job, when: Callable[[bytes], None] = lambda _: None) -> tuple[list[str], Any]:
    """Follow to the end; ``when`` gets each piece of log."""
    result = None
    with job.log.open("ab") as log:
        for item in job.follow():
            if isinstance(item, dict):
                result = item
            else:
                log.write(item)
                log.flush()
                when(item)
    return job.log.read_text().splitlines(), result


WHOLE = ["begin", *(f"unit {unit}" for unit in range(10)), "end"]


def at(text: bytes, action: Callable[[], None]) -> Callable[[bytes], None]:
    """Do ``action`` once, in a thread, when the log has come to ``text``."""
    seen = bytearray()
    done = threading.Event()

    def when(piece: bytes) -> None:
        seen.extend(piece)
        if text in seen and not done.is_set():
            done.set()
            threading.Thread(target=action, daemon=True).start()

    return when


# -- the connection --------------------------------------------------------------------------------


def test_idle_connections_are_dropped_and_nobody_notices(new_host: NewHost) -> None:
    host = new_host(idle_timeout=0.3)
    with host.session() as session:
        for _ in range(3):
            time.sleep(0.6)
            assert session.call(rpc.ping)


@pytest.mark.parametrize("effect", [reset(), reset(40), hang_up])
def test_a_reset_in_the_middle_of_a_response(bench: Bench, effect: Any) -> None:
    job = counting(bench)
    host = bench.sim
    lines, result = finish(job, at(b"unit 3", lambda: host.faults.plan("Receive", effect, times=2)))
    assert lines == WHOLE
    assert result["exit"] == 0
    assert job.attempt == 1
    assert host.faults.hits


@pytest.mark.parametrize("effect", [reset(), hang_up])
def test_a_reset_in_the_middle_of_a_send(host: SimulatedHost, tmp_path: Path, effect: Any) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(range(256)) * 12000)
    with host.session() as session:
        host.faults.plan("Send", effect, skip=3)
        session.put(source, str(host.place / "target"))
    assert host.faults.hits == 1
    assert (host.place / "target").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("code", [faults.BUSY, faults.TOO_MANY_OPERATIONS])
def test_busy_means_again(host: SimulatedHost, code: int) -> None:
    with host.session() as session:
        host.faults.plan("Send", refuse(code), times=2)
        assert session.call(rpc.ping)
    assert host.faults.hits == 2


def test_a_python_whose_start_a_scanner_holds_up(host: SimulatedHost) -> None:
    """Its first line is not read for nine Sends' time: ansible-collections/ansible.windows#644."""
    host.delay = 9.0
    with host.session(operation_timeout=1) as session:
        assert session.call(rpc.ping)


@pytest.mark.parametrize("action", ["Create", "Command"])
def test_a_first_sign_in_that_makes_a_profile(host: SimulatedHost, action: str) -> None:
    host.faults.plan(action, refuse(faults.TIMED_OUT))
    with host.session() as session:
        assert session.call(rpc.ping)
        assert len(host.shells()) == 1
    assert host.faults.hits == 1


def test_too_many_shells_is_told_with_its_cure(new_host: NewHost) -> None:
    host = new_host(limits=Limits(max_shells=1))
    with host.session(), pytest.raises(HostError, match="limit") as caught:
        host.session()
    assert "quota" in caught.value.hint


def test_an_envelope_limit_below_what_is_sent(new_host: NewHost, tmp_path: Path) -> None:
    """Of a file, or already of what runs there: that has grown beyond it."""
    host = new_host(limits=Limits(max_envelope=400 * 1024))
    source = tmp_path / "source"
    source.write_bytes(bytes(2 << 20))
    with pytest.raises(HostError) as caught, host.session() as session:
        session.put(source, str(host.place / "target"))
    assert "MaxEnvelopeSizekb" in f"{caught.value} {caught.value.hint} {caught.value.__cause__}"


def test_a_slow_link_is_only_slow(host: SimulatedHost) -> None:
    with host.session() as session:
        host.faults.plan("Receive", slow(1.0), times=3)
        began = time.monotonic()
        assert session.call(rpc.ping)
    assert host.faults.hits
    assert time.monotonic() - began > 0.9


def test_a_flipped_byte_in_a_download_does_not_land(host: SimulatedHost, tmp_path: Path) -> None:
    source = host.place / "source"
    source.write_bytes(bytes(3 << 20))
    target = tmp_path / "target"
    with host.session() as session:
        host.faults.plan("Receive", flip, skip=2)
        try:
            session.get(str(source), target)
        except TransferError:
            assert not target.exists()
        else:
            assert target.read_bytes() == source.read_bytes()
    assert host.faults.hits == 1


# -- the shell and the host ------------------------------------------------------------------------


def test_a_restart_with_vanished_shells(bench: Bench) -> None:
    job = counting(bench)
    lines, result = finish(job, at(b"unit 3", bench.sim.reboot))
    assert result["exit"] == 0
    assert job.attempt == 2
    assert len(job.lost) == 1
    units = [line for line in lines if line.startswith("unit")]
    assert len(set(units)) == len(units), "a finished unit was made again"
    assert len(list(bench.sim.place.glob("unit?"))) == 10
    there = [(bench.sim.place / f"job/log.{attempt}").read_bytes() for attempt in (1, 2)]
    assert job.log.read_bytes() == b"".join(there), "the end of the lost attempt's log is missing"


def test_a_shell_that_passes_its_memory_quota_does_not_take_the_job_along(bench: Bench) -> None:
    job = counting(bench)
    lines, result = finish(job, at(b"unit 3", bench.sim.kill_shells))
    assert (lines, result["exit"], job.attempt) == (WHOLE, 0, 1)
    assert bench.sim.killed


def test_the_eight_hour_cap_on_shells(bench: Bench, clock: Clock) -> None:
    job = counting(bench)

    def eight_hours_later() -> None:
        clock.ahead += 8 * 3600 + 1
        bench.sim.wake()

    assert bench.session.call(rpc.ping)
    first = bench.sim.shells()
    assert first
    lines, result = finish(job, at(b"unit 3", eight_hours_later))
    assert (lines, result["exit"], job.attempt) == (WHOLE, 0, 1)
    assert not first & bench.sim.shells()


def test_a_host_that_is_lost_again_and_again(bench: Bench) -> None:
    job = counting(bench, seconds=30)
    enough = threading.Event()

    def keep_killing() -> None:
        while not enough.is_set():
            time.sleep(1.0)
            bench.sim.kill_jobs()

    thread = threading.Thread(target=keep_killing, daemon=True)
    thread.start()
    try:
        with pytest.raises(BuildError, match="4 times"):
            finish(job)
    finally:
        enough.set()
        thread.join()


def test_a_host_that_stays_away(bench: Bench) -> None:
    job = counting(bench)
    job.patience = 0.5
    with pytest.raises(HostError) as caught:
        finish(job, at(b"unit 1", bench.sim.stop))
    assert "finds it again" in caught.value.hint


def test_a_fresh_attempt_comes_after_the_log_that_is_here(bench: Bench) -> None:
    """As healing asks for one: units are kept, the first log too, and nothing runs a third time."""
    first = counting(bench, units=3, seconds=0.0)
    finish(first)
    second = counting(bench, units=5, seconds=0.0)
    second.fresh = True
    lines, result = finish(second)
    assert lines == [
        "begin",
        "unit 0",
        "unit 1",
        "unit 2",
        "end",
        "begin",
        "unit 3",
        "unit 4",
        "end",
    ]
    assert (result["exit"], second.attempt) == (0, 2)
    assert second.base == len("begin\nunit 0\nunit 1\nunit 2\nend\n")
    kept = counting(bench, units=5, seconds=0.0)
    kept.keep = lambda left: left["exit"] == 0
    finish(kept)
    assert kept.attempt == 2


# -- who it is -------------------------------------------------------------------------------------


def test_a_password_rotated_in_mid_run(bench: Bench) -> None:
    job = counting(bench)
    host = bench.sim

    def rotate() -> None:
        host.rotate_password("An0ther!")
        host.kill_shells()

    with pytest.raises(AuthError) as caught:
        finish(job, at(b"unit 3", rotate))
    assert "finds it again" in caught.value.hint
    host.secret.value = "An0ther!"
    bench.live = LiveSession(bench)
    lines, result = finish(counting(bench))
    assert (lines, result["exit"]) == (WHOLE, 0)


def test_another_certificate_is_another_host(new_host: NewHost) -> None:
    host = new_host(secure=True)
    with host.session() as session:
        assert session.call(rpc.ping)
        host.stop()
        host.new_identity()
        host.start()
        with pytest.raises(HostError, match="not trusted"):
            session.call(rpc.ping)


@pytest.mark.parametrize(
    ("days", "said"), [(-400, "expired"), (+30, "not yet valid")], ids=["expired", "wrong clock"]
)
def test_a_certificate_that_is_not_valid_now(new_host: NewHost, days: int, said: str) -> None:
    host = new_host(secure=True)
    host.stop()
    (host.place / "trusted.pem").unlink()
    host.new_identity(since=datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days))
    host.start()
    with pytest.raises(HostError, match=said) as caught:
        host.session()
    assert "clock" in caught.value.hint
