"""A Windows with PowerShell: Wine's, with PowerShell 7 in it, or that on which the tests run.

On Windows ``WCW_POWERSHELL`` is the program, ``powershell.exe`` (5.1) unless it says ``pwsh.exe``.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from pipelines.toolchain.lock import Cache, load_lock

if TYPE_CHECKING:
    from pipelines.hosts.sandbox.wine import Prefix

ROOT = Path(__file__).parents[2]
_SERVE = Path(__file__).with_name("serve.ps1")
_PATIENCE = 180.0


def powershell_folder() -> Path:
    """Of a PowerShell for Windows; the test is skipped where there is none."""
    if os.name == "nt":
        pytest.skip("the sandbox is for Linux")
    from pipelines.hosts.sandbox import powershell

    if (folder := powershell.find_powershell(Cache(load_lock()))) is None:
        pytest.skip("no PowerShell for Windows: neither WCW_POWERSHELL nor the cache has one")
    return folder


class Windows(Protocol):
    """Programs are started there, and its files are read and written here."""

    @property
    def python(self) -> str:
        """A Python of its own."""

    def path(self, there: str) -> Path:
        """Where a file of its is for us."""

    def start(self, line: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """A program with pipes, by its command line."""


class InWine:
    """A prefix with PowerShell."""

    python = r"C:\Python311\python.exe"

    def __init__(self, prefix: Prefix) -> None:
        self.prefix = prefix

    def path(self, there: str) -> Path:
        drive, rest = there[:2].lower(), there[2:].strip("\\").replace("\\", "/")
        return self.prefix.path / "dosdevices" / drive / rest

    def start(self, line: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        from pipelines.hosts.sandbox.daemon import WineLauncher

        return WineLauncher(self.prefix)(line, skip_cmd_shell=True, env=env or {}, cwd=None)


class Here:
    """The Windows of these tests."""

    python = sys.executable

    def path(self, there: str) -> Path:
        return Path(there)

    def start(self, line: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        program = os.environ.get("WCW_POWERSHELL", "powershell.exe")
        return subprocess.Popen(
            line.replace("powershell.exe", program, 1),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(env or {})},
        )


class Lines:
    """What a process prints, by lines, so that waiting for one can end."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._came: queue.Queue[bytes | None] = queue.Queue()
        assert process.stdout is not None
        self._stream = process.stdout
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._stream:
            self._came.put(line)
        self._came.put(None)

    def after(self, prefix: bytes) -> bytes | None:
        """What follows ``prefix`` in the next line that has it; None at the end."""
        while (line := self._came.get(timeout=_PATIENCE)) is not None:
            if prefix in line:
                return line.partition(prefix)[2]
        self._came.put(None)
        return None


class Shell:
    """One PowerShell that runs many scripts, each in a runspace of its own: it starts slowly."""

    def __init__(self, windows: Windows, folder: str) -> None:
        self.windows = windows
        self.folder = folder
        """A directory there."""
        here = windows.path(folder)
        here.mkdir(parents=True, exist_ok=True)
        (here / _SERVE.name).write_bytes(_SERVE.read_bytes())
        self._process = windows.start(
            "powershell.exe -NoLogo -NoProfile -NonInteractive -ExecutionPolicy Bypass "
            rf"-InputFormat None -OutputFormat Text -File {folder}\{_SERVE.name}"
        )
        self._lines = Lines(self._process)

    def run(self, text: str) -> Result:
        """Run it to its end."""
        assert self._process.stdin is not None
        self._process.stdin.write(base64.b64encode(text.encode()) + b"\n")
        self._process.stdin.flush()
        answer = self._lines.after(b"wcw-result ")
        assert answer is not None, "PowerShell has ended"
        return Result(json.loads(answer))

    def put(self, source: Path, name: str = "") -> str:
        """Copy a file of the repository there; its path there."""
        there = f"{self.folder}\\{name or source.name}"
        here = self.windows.path(there)
        here.parent.mkdir(parents=True, exist_ok=True)
        here.write_bytes(source.read_bytes())
        return there

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


class Result:
    """What a script left: its output as text, and what ended it."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.output: list[str] = told["output"]
        self.error: str = told["error"]
        self.warnings: list[str] = told["warnings"]

    @property
    def text(self) -> str:
        return "\n".join(self.output)


def run_bodies(dockerfile: str) -> list[str]:
    """The commands of a Dockerfile for Windows, as Docker joins their lines."""
    code = re.sub(r"(?m)^[ \t]*#.*\n", "", dockerfile)
    return [body.replace("`\n", "") for body in re.findall(r"(?m)^RUN ((?:.*`\n)*.*)", code)]


def literal(value: object) -> str:
    """A value as PowerShell writes it."""
    if isinstance(value, bool):
        return f"${value}".lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list | tuple):
        return f"@({', '.join(map(literal, value))})"
    return "'" + str(value).replace("'", "''") + "'"


def call(script: str, **parameters: object) -> str:
    """The text that runs ``script`` there with ``parameters``."""
    words = (f"-{name}:{literal(value)}" for name, value in parameters.items())
    return f"& {literal(script)} {' '.join(words)}"
