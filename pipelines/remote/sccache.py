"""An sccache server as a child process, and requests to a running one."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from . import awake, process

_ADDRESS, _LOG = "server.json", "server.log"
_START, _ASK, _FAREWELL = 25.0, 15.0, 12.0  # seconds
_IDLE = "7200"  # seconds; only for a server whose runner was killed
_WORDS = 400  # of the server's output, in bytes
_NO_WINDOW, _NEW_GROUP = 0x08000000, 0x00000200


@contextlib.contextmanager
def server(
    executable: str, directory: pathlib.Path, environment: dict[str, str]
) -> Iterator[dict[str, str]]:
    """A server of our own; yields the variable with its address.

    Raises ``OSError`` with its last output if it does not start.
    """
    with contextlib.ExitStack() as stack:
        if sys.platform == "win32":
            address = {"SCCACHE_SERVER_PORT": str(_free_port())}
        else:  # a port would be open to every user of the machine
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sc-"))
            address = {"SCCACHE_SERVER_UDS": f"{folder}/s"}
        windows = sys.platform == "win32"
        # Neither a user's variables nor the user's file may change settings.
        variables = {k: v for k, v in os.environ.items() if not k.startswith("SCCACHE_")}
        variables |= {**environment, **address, "SCCACHE_CONF": str(directory / "none.toml")}
        variables |= {"SCCACHE_START_SERVER": "1", "SCCACHE_NO_DAEMON": "1"}
        variables["SCCACHE_IDLE_TIMEOUT"] = _IDLE
        stack.callback(_try_unlink, directory / _LOG)
        with (directory / _LOG).open("wb") as log:
            started = subprocess.Popen(
                [executable],
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=not windows,
                creationflags=_NO_WINDOW | _NEW_GROUP if windows else 0,
            )
        job = process._Job() if windows else None
        if job:
            job.add(started)
        stack.callback(process._kill_process_tree, started, job)  # with the compilers still running
        _wait_for_server(started, address, directory / _LOG)
        note = directory / _ADDRESS
        note.write_text(json.dumps(address), "utf-8")
        stack.callback(_try_unlink, note)
        stack.callback(_shut_down, executable, address, started)
        yield address


def _try_unlink(path: pathlib.Path) -> None:
    """Remove a file, if possible.

    Windows refuses while an ending compiler or a scanner has it open: no reason to lose a
    successful build.
    """
    with contextlib.suppress(OSError):
        path.unlink()


def _free_port() -> int:
    with socket.socket() as server_socket:
        server_socket.bind(("127.0.0.1", 0))
        return int(server_socket.getsockname()[1])


def _wait_for_server(
    server: subprocess.Popen[bytes], address: dict[str, str], log: pathlib.Path
) -> None:
    deadline = awake.seconds() + _START
    while not answers(address):
        ended = server.poll() is not None
        if ended or awake.seconds() > deadline or process.cancelled.is_set():
            with log.open("rb") as words:
                words.seek(max(0, words.seek(0, os.SEEK_END) - _WORDS))
                output = " ".join(words.read().decode("utf-8", "replace").split())
            why = "sccache's server stopped" if ended else "sccache's server does not answer"
            raise OSError(f"{why}: {output}" if output else why)
        time.sleep(0.05)


def answers(address: dict[str, str]) -> bool:
    """Whether a server listens there."""
    try:
        if port := address.get("SCCACHE_SERVER_PORT"):
            socket.create_connection(("127.0.0.1", int(port)), timeout=1).close()
            return True
        if sys.platform != "win32":
            with socket.socket(socket.AF_UNIX) as line:
                line.settimeout(1)
                line.connect(address["SCCACHE_SERVER_UDS"])
                return True
    except (OSError, ValueError, KeyError):
        pass
    return False


def _shut_down(executable: str, address: dict[str, str], server: subprocess.Popen[bytes]) -> None:
    """Let the server write pending entries; if it does not end, the caller kills it."""
    if process.cancelled.is_set():
        return
    query([executable, "--stop-server"], address)
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(_FAREWELL)


def query(command: list[str], address: dict[str, str]) -> str:
    """The output of sccache; empty if it does not respond."""
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **address},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_ASK,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")


def stop(executable: str, directory: pathlib.Path) -> bool:
    """Ask a server still running for ``directory`` to end; whether there was one."""
    known = address_of(directory)
    if not answers(known):
        return False
    query([executable, "--stop-server"], known)
    deadline = awake.seconds() + _FAREWELL
    while answers(known) and awake.seconds() < deadline:
        time.sleep(0.1)
    return True


def address_of(directory: pathlib.Path) -> dict[str, str]:
    """The address of the server started for ``directory``; empty if there is none."""
    try:
        data = json.loads((directory / _ADDRESS).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(k): str(v) for k, v in data.items()} if isinstance(data, dict) else {}
