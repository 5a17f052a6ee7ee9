"""A container of the simulated engine: a directory for its C:, processes of this machine in it."""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

#: What a Windows program is run as here: its command line -> one of this machine.
Programs = Mapping[str, Callable[[Sequence[str]], Sequence[str]]]
#: Given the number of a stream (1: output, 2: errors) and what came there.
Write = Callable[[int, bytes], None]
#: What Windows says of a process that was asked to end: STATUS_CONTROL_C_EXIT.
TOLD_TO_END = 0xC000013A


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Process:
    """A program of this machine that stands in for one of a container."""

    def __init__(
        self, argv: Sequence[str], root: Path, environment: Mapping[str, str], write: Write
    ) -> None:
        self.told = False
        self.child = subprocess.Popen(
            argv,
            cwd=root,
            env={"PATH": os.environ["PATH"], "SIMULATED": str(root), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert self.child.stdout is not None
        assert self.child.stderr is not None
        streams = ((1, self.child.stdout.fileno()), (2, self.child.stderr.fileno()))
        self._pumps = [
            threading.Thread(target=self._pump, args=(number, file, write), daemon=True)
            for number, file in streams
        ]
        for pump in self._pumps:
            pump.start()

    @staticmethod
    def _pump(number: int, file: int, write: Write) -> None:
        while piece := os.read(file, 65536):
            write(number, piece)

    def feed(self, data: bytes) -> None:
        assert self.child.stdin is not None
        try:
            view = memoryview(data)
            while view:
                view = view[self.child.stdin.write(view) or 0 :]
        except (BrokenPipeError, ValueError):  # it has ended, or its input has
            return

    def end_input(self) -> None:
        assert self.child.stdin is not None
        self.child.stdin.close()

    def end(self) -> None:
        """End it, and what it started."""
        self.told = self.child.poll() is None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)

    def wait(self) -> int:
        code = self.child.wait()
        for pump in self._pumps:
            pump.join(10)
        for file in (self.child.stdin, self.child.stdout, self.child.stderr):
            if file is not None:
                file.close()
        return TOLD_TO_END if self.told else code


class Exec:
    """A command that was, is or will be run inside."""

    def __init__(self, identity: str, box: Box, asked: dict[str, Any]) -> None:
        self.id, self.box, self.asked = identity, box, asked
        self.code: int | None = None
        self.running = False
        self.process: Process | None = None

    def run(self, write: Write) -> Process | None:
        """Start it; ``None`` where there is no such program."""
        argv = self.box.local(self.asked["Cmd"])
        if argv is None:
            self.code = 127
            return None
        environment = dict(one.split("=", 1) for one in self.asked.get("Env") or [])
        self.process = Process(argv, self.box.root, environment, write)
        self.running = True
        return self.process

    def ended(self) -> None:
        assert self.process is not None
        self.code, self.running = self.process.wait(), False

    def inspect(self) -> dict[str, Any]:
        return {
            "ID": self.id,
            "ContainerID": self.box.id,
            "Running": self.running,
            "ExitCode": self.code,
            "Pid": self.process.child.pid if self.process else 0,
            "ProcessConfig": {
                "entrypoint": self.asked["Cmd"][0],
                "arguments": self.asked["Cmd"][1:],
                "tty": False,
            },
        }


class Box:
    """One container."""

    def __init__(
        self, identity: str, name: str, asked: dict[str, Any], image: dict[str, Any], place: Path
    ) -> None:
        self.id, self.name, self.asked, self.image = identity, name, asked, image
        self.host: dict[str, Any] = asked.get("HostConfig") or {}
        self.root = place / identity[:12]
        self.root.mkdir(parents=True)
        self.programs: Programs = {}
        self.created = now()
        self.status, self.code, self.error = "created", 0, ""
        self.started = self.finished = "0001-01-01T00:00:00Z"
        self.execs: list[Exec] = []
        self.output: list[tuple[int, bytes]] = []
        self.changed = threading.Condition()
        self.process: Process | None = None
        self.exits = 0
        self.removed = self.restarting = False
        self.ending: threading.Thread | None = None

    @property
    def labels(self) -> dict[str, str]:
        return {**(self.image["Config"].get("Labels") or {}), **(self.asked.get("Labels") or {})}

    def path(self, path: str) -> Path:
        """A path of the container on this machine; Windows does not tell capitals apart."""
        found = self.root
        for part in path.replace("\\", "/").removeprefix("C:").removeprefix("c:").split("/"):
            if part in ("", "."):
                continue
            there = {one.name.lower(): one for one in found.iterdir()} if found.is_dir() else {}
            found = there.get(part.lower(), found / part)
        return found

    def local(self, command: Sequence[str]) -> Sequence[str] | None:
        """What is run here for a command of the container; ``None``: it has no such program."""
        name = command[0].replace("\\", "/").rpartition("/")[2].lower().removesuffix(".exe")
        if name in self.programs:
            return self.programs[name](command)
        if name == "python" and self.path(command[0]).is_file():
            return [sys.executable, *command[1:]]
        return None

    def start(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        with self.changed:
            self.status, self.started, self.error = "running", now(), ""
            self.process = Process(argv, self.root, environment, self._said)
        if not self.asked.get("OpenStdin"):
            self.process.end_input()
        threading.Thread(target=self._watch, args=(self.process,), daemon=True).start()

    def _said(self, number: int, data: bytes) -> None:
        with self.changed:
            self.output.append((number, data))
            self.changed.notify_all()

    def _watch(self, process: Process) -> None:
        code = process.wait()
        for one in self.execs:
            if one.process is not None and one.running:
                one.process.end()
        with self.changed:
            self.code, self.status, self.finished = code, "exited", now()
            self.exits += 1
            self.changed.notify_all()

    def until(self, condition: str) -> Iterator[int]:
        """Wait as ``docker wait`` does, from now on: for it not to run, to end, to be removed."""
        before = self.exits
        ready = {
            "next-exit": lambda: self.exits > before or self.removed,
            "removed": lambda: self.removed,
        }.get(condition, lambda: self.status != "running")

        def code() -> Iterator[int]:
            with self.changed:
                self.changed.wait_for(ready)
            yield self.code

        return code()

    def follow(self) -> Iterator[tuple[int, bytes]]:
        """What it prints from now on, to its next end."""
        start, before = len(self.output), self.exits

        def pieces() -> Iterator[tuple[int, bytes]]:
            at = start
            while True:
                with self.changed:
                    self.changed.wait_for(
                        lambda seen=at: (  # type: ignore[misc]
                            len(self.output) > seen or self.exits > before or self.removed
                        )
                    )
                    fresh, at = self.output[at:], len(self.output)
                if not fresh:
                    return
                yield from fresh

        return pieces()

    def stop(self) -> None:
        if self.process is not None and self.status == "running":
            self.process.end()
            self.wait(lambda: self.status != "running")

    def wait(self, ready: Callable[[], bool], timeout: float = 30) -> None:
        with self.changed:
            assert self.changed.wait_for(ready, timeout), f"{self.name} is {self.status}"

    def inspect(self) -> dict[str, Any]:
        command = [*(self.asked.get("Entrypoint") or []), *(self.asked.get("Cmd") or [])]
        return {
            "Id": self.id,
            "Name": f"/{self.name}",
            "Created": self.created,
            "Path": command[0] if command else "",
            "Args": command[1:],
            "Image": self.image["Id"],
            "Platform": "windows",
            "Driver": "windowsfilter",
            "RestartCount": 0,
            "State": {
                "Status": self.status,
                "Running": self.status == "running",
                "Paused": False,
                "Restarting": False,
                "OOMKilled": False,
                "Dead": False,
                "Pid": self.process.child.pid if self.process and self.status == "running" else 0,
                "ExitCode": self.code,
                "Error": self.error,
                "StartedAt": self.started,
                "FinishedAt": self.finished,
            },
            "Config": {
                "Hostname": self.asked.get("Hostname") or self.id[:12],
                "Image": self.asked["Image"],
                "Cmd": self.asked.get("Cmd"),
                "Entrypoint": self.asked.get("Entrypoint"),
                "Env": [*(self.image["Config"].get("Env") or []), *(self.asked.get("Env") or [])],
                "Labels": self.labels,
                "OpenStdin": bool(self.asked.get("OpenStdin")),
                "StdinOnce": bool(self.asked.get("StdinOnce")),
                "Tty": bool(self.asked.get("Tty")),
                "User": self.asked.get("User") or "",
                "WorkingDir": self.asked.get("WorkingDir") or "",
            },
            "HostConfig": self.host,
            "Mounts": [],
            "NetworkSettings": {"Ports": {}, "Networks": {"nat": {}}},
        }

    def summary(self) -> dict[str, Any]:
        """As in a list."""
        return {
            "Id": self.id,
            "Names": [f"/{self.name}"],
            "Image": self.asked["Image"],
            "ImageID": self.image["Id"],
            "Labels": self.labels,
            "State": self.status,
            "Status": self.status.title(),
            "Created": 1763820000,
            "Ports": [],
        }
