"""One command of a shell: a process tree with three pipes (MS-WSMV 3.1.4.11 to 3.1.4.15)."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from . import faults
from .pipes import InputPipe, OutputPipes

TAG = "WSMAN_COMMAND"
_PROC = Path("/proc")
_PAUSE = 0.005


def end_tree(process: subprocess.Popen[bytes], command_id: str, *, timeout: float = 2.0) -> bool:
    """Kill everything the command started. True when a last look found nothing alive.

    Also what left its parent, group or session: Windows does this with a job object. Here every
    process of a command carries an environment variable with the command's id. Parent ids do not
    help, because Wine starts each Windows process from its own server; but the Unix environment is
    inherited all the same.
    """
    if process.poll() is None:
        # The leader is not reaped yet, so its group id cannot belong to anyone else.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(process.pid) == process.pid:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                os.kill(process.pid, signal.SIGKILL)
    give_up = time.monotonic() + timeout
    # More than once: a process may fork between the look and the kill.
    while result := tagged_process_ids(command_id):
        for pid in result:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > give_up:
            return False
        time.sleep(_PAUSE)
    return True


def tagged_process_ids(command_id: str) -> list[int]:
    """Live processes with the tag. Zombies have no environment, so they are not included."""
    expected = f"{TAG}={command_id}".encode()
    result = []
    for entry in os.scandir(_PROC):
        if not entry.name.isdigit():
            continue
        try:
            # One raw read each: this runs over every process of the machine.
            environment = Path(entry.path, "environ").read_bytes()
        except OSError:
            continue  # gone, or of another user
        # Substring first: splitting every environment would cost ten times as much.
        if expected in environment and expected in environment.split(b"\0"):
            result.append(int(entry.name))
    return result


CONTROL_C_EXIT = 0xC000013A  # STATUS_CONTROL_C_EXIT, exit code of a Windows console program
_NO_FD = -1


class Launcher(Protocol):
    """Starts one process with three pipes and ``start_new_session=True``.

    ``env`` has only the client's variables, plus the tag that identifies the process tree; the
    launcher adds it to the environment its processes need. It must reach the Unix environment.
    """

    def __call__(
        self,
        command_line: str,
        /,
        *,
        skip_cmd_shell: bool,
        env: Mapping[str, str],
        cwd: str | None,
    ) -> subprocess.Popen[bytes]:
        """Start it, or raise OSError."""
        ...


class ClientGoneError(ConnectionError):
    """The peer hung up during its Receive; the command's output stays for the next one."""


@dataclass(frozen=True, slots=True)
class Output:
    """One answer to Receive."""

    data: dict[str, bytes] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    exit_code: int | None = None  # set when the command is done


class Command:
    """A running or finished process tree, and the rest of its pipes."""

    def __init__(self, command_id: str, process: subprocess.Popen[bytes], *, linger: float) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise ValueError("the launcher must give all three pipes")
        self.id = command_id
        self._process = process
        self._linger = linger
        self._exit_code: int | None = None
        self._interrupted = False
        self._quiet_since = math.inf
        # Own descriptors: the file objects of Popen would close theirs when collected.
        stdin, stdout, stderr = (
            os.dup(stream.fileno()) for stream in (process.stdin, process.stdout, process.stderr)
        )
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()
        self._exited, self._stopped = os.eventfd(0), os.eventfd(0)
        self.input = InputPipe(stdin, self._stopped)
        self._output = OutputPipes({"stdout": stdout, "stderr": stderr})
        self._receiving = threading.Lock()
        self._closing = threading.Lock()
        self._terminated = False
        self._waiter = threading.Thread(target=self._wait, name="wsman-wait", daemon=True)
        self._waiter.start()

    def _wait(self) -> None:
        code = self._process.wait()
        # A signal's number is no exit code on Windows; shells use 128 + n for it.
        self._exit_code = code if code >= 0 else 128 - code
        if self._interrupted:
            self._exit_code = CONTROL_C_EXIT
        self._quiet_since = time.monotonic()
        os.eventfd_write(self._exited, 1)

    @property
    def running(self) -> bool:
        """Whether the process itself is still running."""
        return self._exit_code is None

    def send(self, data: bytes, *, end: bool, timeout: float) -> None:
        """Pass input to the process; waits while the process does not read (MS-WSMV 3.1.4.13)."""
        try:
            taken = self.input.offer(data, end=end, timeout=timeout)
        except BrokenPipeError:
            if not data and end:
                return  # closing twice is not an error
            raise faults.wsman_fault("input-closed") from None
        except BlockingIOError:
            raise faults.wsman_fault("busy") from None
        if not taken:
            raise faults.wsman_fault("timed-out")

    def receive(self, timeout: float, limit: int, peer: int = _NO_FD) -> Output:
        """Output as soon as there is any, up to ``limit`` bytes (MS-WSMV 3.1.4.14).

        ``peer`` is the client's socket: a Receive whose client is gone must not swallow output.
        """
        deadline = time.monotonic() + timeout
        if not self._receiving.acquire(timeout=timeout):
            raise faults.wsman_fault("timed-out")
        try:
            while not self._terminated:
                _raise_if_gone(peer)
                data, ended = self._output.take(limit)
                done = self._output.all_ended and not self.running
                if data or ended or done:
                    if data and not self.running:
                        self._quiet_since = time.monotonic()
                    return Output(data, ended, self._exit_code if done else None)
                self._sleep(deadline, peer)
            raise faults.wsman_fault("aborted")
        finally:
            self._receiving.release()

    def _sleep(self, deadline: float, peer: int) -> None:
        """Wait for output, exit, termination or the peer's end; TimedOut if none came in time."""
        now, until = time.monotonic(), deadline
        poller = select.poll()
        if self.running:
            poller.register(self._exited, select.POLLIN)
        else:
            # Another process still holds the pipes (such as a compiler's server). Its silence
            # must not keep the client waiting forever.
            give_up = self._quiet_since + self._linger
            if now >= give_up:
                self._output.end_all()
                return
            until = min(deadline, give_up)
        if now >= deadline:
            raise faults.wsman_fault("timed-out")
        for fd in self._output.fds():
            poller.register(fd, select.POLLIN)
        poller.register(self._stopped, select.POLLIN)
        if peer != _NO_FD:
            poller.register(peer, select.POLLRDHUP)
        poller.poll(math.ceil((until - now) * 1000))

    def interrupt(self) -> None:
        """Ctrl-C: the tree ends, the command stays and reports its exit (MS-WSMV 2.2.4.38)."""
        if self.running:
            self._interrupted = True
            end_tree(self._process, self.id)

    def terminate(self) -> None:
        """End the tree and free everything. Waiting requests fail; later ones do not find it."""
        with self._closing:
            if self._terminated:
                return
            self._terminated = True
        os.eventfd_write(self._stopped, 1)
        end_tree(self._process, self.id)
        self._waiter.join(timeout=2)
        self.input.close()
        with self._receiving:
            self._output.end_all()
            if (
                not self._waiter.is_alive()
            ):  # otherwise it still writes to one: leak rather than misdirect
                os.close(self._exited)
                os.close(self._stopped)


def _raise_if_gone(peer: int) -> None:
    if peer == _NO_FD:
        return
    poller = select.poll()
    poller.register(peer, select.POLLRDHUP)
    if poller.poll(0):
        raise ClientGoneError
