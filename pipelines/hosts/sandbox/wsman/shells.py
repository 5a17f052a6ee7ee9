"""Shells and the table that owns them (MS-WSMV 3.1.4.1, Windows Remote Shell)."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from . import faults
from .commands import TAG, Command, Launcher


def new_id() -> str:
    """An id as Windows writes it."""
    return str(uuid.uuid4()).upper()


@dataclass(frozen=True, slots=True)
class Limits:
    """Quotas, named after the settings of Windows where there is one."""

    max_shells: int = 30  # MaxShellsPerUser
    max_commands: int = 25  # MaxProcessesPerShell
    idle_timeout: float = 7200.0  # IdleTimeout
    max_lifetime: float = 28800.0  # MS-WSMV's cap on the life of a shell, 8 hours
    max_envelope: int = 500 * 1024  # MaxEnvelopeSizekb
    receive_bytes: int = 300 * 1024  # raw output in one Receive response
    max_operation_timeout: float = 3600.0
    linger: float = 2.0  # wait for pipes that outlive their command, once silent


class Shell:
    """An environment, a directory and the commands started in them; it runs nothing by itself."""

    def __init__(
        self,
        shell_id: str,
        owner: str,
        *,
        env: Mapping[str, str],
        cwd: str | None,
        idle_timeout: float,
        lifetime: float,
    ) -> None:
        self.id = shell_id
        self.owner = owner
        self.env = dict(env)
        self.cwd = cwd
        self.idle_timeout = idle_timeout
        self.created = self._last_used = time.monotonic()
        self.lifetime = lifetime
        self._lock = threading.Lock()
        self._in_use = 0
        self._closed = False
        self._commands: dict[str, Command] = {}

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Stop the idle clock while an operation runs."""
        with self._lock:
            self._in_use += 1
        try:
            yield
        finally:
            with self._lock:
                self._in_use -= 1
                self._last_used = time.monotonic()

    def expires(self) -> float:
        """When this shell will expire, as currently known (monotonic clock)."""
        with self._lock:
            idle_since = time.monotonic() if self._in_use else self._last_used
            return min(idle_since + self.idle_timeout, self.created + self.lifetime)

    def start(
        self, launch: Launcher, command_line: str, limits: Limits, *, skip_cmd_shell: bool
    ) -> str:
        """Start a command and return its id (MS-WSMV 3.1.4.11)."""
        self._make_room(limits.max_commands)
        command_id = new_id()
        try:
            process = launch(
                command_line,
                skip_cmd_shell=skip_cmd_shell,
                env={**self.env, TAG: command_id},
                cwd=self.cwd,
            )
        except OSError as error:
            raise faults.cannot_start(error) from error
        command = Command(command_id, process, linger=limits.linger)
        with self._lock:
            if not self._closed:
                self._commands[command_id] = command
                return command_id
        command.terminate()  # the shell was deleted while the command started
        raise faults.wsman_fault("shell-not-found", id=self.id)

    def _make_room(self, limit: int) -> None:
        """Refuse if too many run; forget the oldest results that were never released."""
        with self._lock:
            if self._closed:
                raise faults.wsman_fault("shell-not-found", id=self.id)
            finished = [command for command in self._commands.values() if not command.running]
            if len(self._commands) - len(finished) >= limit:
                raise faults.wsman_fault("too-many-commands", limit=limit)
            forgotten = finished[: max(0, len(finished) - limit + 1)]
            for command in forgotten:
                del self._commands[command.id]
        for command in forgotten:
            command.terminate()

    def command(self, command_id: str) -> Command:
        """A command by id, or the fault."""
        with self._lock:
            command = self._commands.get(command_id)
        if command is None:
            raise faults.wsman_fault("command-not-found", id=command_id)
        return command

    def terminate(self, command_id: str) -> None:
        """Signal terminate: the tree ends and the id is free (MS-WSMV 3.1.4.15)."""
        self.command(command_id).terminate()
        with self._lock:
            self._commands.pop(command_id, None)

    def close(self) -> None:
        """End every command."""
        with self._lock:
            self._closed = True
            commands = list(self._commands.values())
            self._commands.clear()
        threads = [threading.Thread(target=command.terminate) for command in commands[1:]]
        for thread in threads:
            thread.start()
        if commands:
            commands[0].terminate()
        for thread in threads:
            thread.join()


class ShellTable:
    """All shells of a server, and the thread that removes expired ones."""

    def __init__(self, launch: Launcher, limits: Limits) -> None:
        self.launch = launch
        self.limits = limits
        self._shells: dict[str, Shell] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._reaper = threading.Thread(target=self._reap, name="wsman-reaper", daemon=True)
        self._reaper.start()

    def __len__(self) -> int:
        return len(self._shells)

    def create(
        self,
        owner: str,
        *,
        env: Mapping[str, str],
        cwd: str | None,
        idle_timeout: float | None = None,
        lifetime: float | None = None,
        shell_id: str = "",
    ) -> Shell:
        """Open a shell (MS-WSMV 3.1.4.10); a client may choose its id."""
        limits = self.limits
        shell = Shell(
            shell_id or new_id(),
            owner,
            env=env,
            cwd=cwd,
            idle_timeout=idle_timeout or limits.idle_timeout,
            lifetime=min(lifetime or limits.max_lifetime, limits.max_lifetime),
        )
        with self._changed:
            if self._closed or len(self._shells) >= limits.max_shells:
                raise faults.wsman_fault("too-many-shells", limit=limits.max_shells)
            if shell.id in self._shells:
                raise faults.invalid_parameter_fault("A shell with this id already exists.")
            self._shells[shell.id] = shell
            self._changed.notify_all()
        return shell

    def get(self, shell_id: str, owner: str) -> Shell:
        """A live shell of this owner, or the fault."""
        shell = self._shells.get(shell_id)
        if shell is None:
            raise faults.wsman_fault("shell-not-found", id=shell_id)
        if shell.owner != owner:
            raise faults.wsman_fault("access-denied")
        return shell

    def delete(self, shell_id: str, owner: str) -> None:
        """Close a shell and end its commands (MS-WSMV 3.1.4.3)."""
        shell = self.get(shell_id, owner)
        with self._changed:
            if self._shells.pop(shell_id, None) is None:
                raise faults.wsman_fault("shell-not-found", id=shell_id)
        shell.close()

    def _reap(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                now = time.monotonic()
                dead = [shell for shell in self._shells.values() if shell.expires() <= now]
                for shell in dead:
                    del self._shells[shell.id]
                if not dead:
                    # An operation in flight only moves an expiry back, so waking early is harmless.
                    ends = [shell.expires() - now for shell in self._shells.values()]
                    self._changed.wait(max(0.01, min(ends)) if ends else None)
            for shell in dead:
                shell.close()

    def close(self) -> None:
        """Close every shell; no new ones."""
        with self._changed:
            self._closed = True
            shells = list(self._shells.values())
            self._shells.clear()
            self._changed.notify_all()
        threads = [threading.Thread(target=shell.close) for shell in shells]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._reaper.join(timeout=2)
