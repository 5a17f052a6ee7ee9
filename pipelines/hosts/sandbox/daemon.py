"""The process behind a running sandbox: its wineserver and its WinRM service.

``python -m pipelines.hosts.sandbox.daemon HOME [--tied]``. It writes ``HOME/run/state.json`` when
clients may connect. With ``--tied`` it ends when its standard input closes, that is, with the
process that started it, however that dies; otherwise with SIGTERM. It also ends with its
wineserver: the next program would start another one, without Windows' start-up. Secrets are files
of mode 0600, never arguments.

Whatever was killed, the next service continues with the same prefix: it ends remaining processes
of the previous one and then checks that the prefix is intact.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pipelines.core.errors import HostError, PipelineError
from pipelines.hosts.sandbox import health, powershell
from pipelines.hosts.sandbox.state import (
    IN_USE,
    DamagedSandboxError,
    State,
    hold_service_lock,
    publish_state,
    withdraw_state,
)
from pipelines.hosts.sandbox.wine import Prefix, Wine
from pipelines.hosts.sandbox.wsman.commands import TAG

_CMD_LIMIT = 8191  # of cmd.exe, in characters


class WineLauncher:
    """Starts the commands of WinRS clients in the prefix."""

    def __init__(self, prefix: Prefix) -> None:
        self.prefix = prefix

    def __call__(
        self,
        command_line: str,
        /,
        *,
        skip_cmd_shell: bool,
        env: Mapping[str, str],
        cwd: str | None,
    ) -> subprocess.Popen[bytes]:
        """Start ``command_line`` through winrshost.exe, which reads it from a variable."""
        if not skip_cmd_shell and len(command_line) > _CMD_LIMIT:
            raise OSError(f"the command line is too long for cmd.exe ({len(command_line)})")
        # Without the server's own tag: winrshost.exe uses a job object instead, which a process can
        # break away from, as on Windows.
        variables = {key: value for key, value in env.items() if key != TAG}
        variables |= powershell.powershell_environment(self.prefix)
        variables["WSMAN_COMMAND_LINE"] = command_line
        if skip_cmd_shell:
            variables["WSMAN_SKIP_CMD"] = "1"
        drive = self.prefix.drive
        folder = drive / "users/builder"
        if cwd and cwd[:2].upper() == "C:":
            folder = drive.joinpath(*(part for part in cwd[2:].split("\\") if part != ".."))
        return subprocess.Popen(
            [*self.prefix.command(), r"C:\windows\system32\winrshost.exe"],
            cwd=folder if folder.is_dir() else drive,
            env=self.prefix.environment(variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )


class Windows:
    """The Windows of a prefix, from boot to orderly shutdown."""

    def __init__(self, home: Path, ended: threading.Event, wine: Wine | None = None) -> None:
        self.prefix = Prefix(home / "prefix", wine)
        self.ended = ended
        self._mark = home / "run" / IN_USE
        self._crashed = self._mark.exists()  # the last one did not shut down properly
        self._server: subprocess.Popen[bytes] | None = None

    def boot(self) -> None:
        """Boot it, and set ``ended`` at its end; :class:`DamagedSandboxError` if damaged."""
        python = health.check_files(self.prefix)
        if self._crashed:
            self.prefix.halt()
        self._mark.touch()
        try:
            self.prefix.boot()
        except HostError as error:
            if self._crashed:
                raise health.damaged_prefix_error(self.prefix, error.message) from error
            raise
        if self._crashed:
            health.check_answers(self.prefix, python)
        self._crashed = False
        self._server = self.prefix.watch()
        threading.Thread(target=self._wait, args=(self._server,), daemon=True).start()

    def _wait(self, server: subprocess.Popen[bytes]) -> None:
        server.wait()
        self.ended.set()

    def require(self) -> None:
        """Raises :class:`HostError` if it has ended."""
        if self._server is not None and self._server.poll() is not None:
            self._crashed = True
            raise HostError("Windows has ended: its wineserver was killed or crashed")

    def halt(self) -> None:
        """Shut it down; the mark of a crash stays."""
        self.prefix.halt()
        if not self._crashed:
            self._mark.unlink(missing_ok=True)


@dataclass(frozen=True)
class Ports:
    """The service's ports; port 0 is any free one."""

    host: str
    http: int
    https: int


def serve_sandbox(
    home: Path, ports: Ports, ended: threading.Event, account: tuple[str, str], wine: Wine | None
) -> None:
    """Run until ``ended`` is set; leaves no process and no secret behind.

    ``account``: the accepted user and password. ``wine``: found if it is ``None``.

    Raises :class:`HostError` if Windows does not start, or ends by itself.
    """
    run = home / "run"
    run.mkdir(mode=0o700, exist_ok=True)
    with hold_service_lock(run):
        _run_winrm_service(run, Windows(home, ended, wine), ports, account)


def _run_winrm_service(run: Path, windows: Windows, ports: Ports, account: tuple[str, str]) -> None:
    try:
        with ThreadPoolExecutor(1) as pool:
            booted = pool.submit(windows.boot)
            # Imported while Windows boots: cryptography and NTLM take 0.2 s.
            from pipelines.hosts.sandbox.wsman.auth import write_credentials
            from pipelines.hosts.sandbox.wsman.certificate import create_certificate
            from pipelines.hosts.sandbox.wsman.server import WsmanServer

            credentials = write_credentials(run / "credentials", *account)
            fingerprint = create_certificate(run / "cert.pem", run / "key.pem")
            with WsmanServer(
                WineLauncher(windows.prefix),
                credentials,
                host=ports.host,
                http_port=ports.http,
                https_port=ports.https,
                certificate=run / "cert.pem",
                key=run / "key.pem",
            ) as server:
                booted.result()
                state: State = {
                    "pid": os.getpid(),
                    "https": server.https_url or "",
                    "http": server.http_url,
                    "certificate_sha256": fingerprint,
                }
                publish_state(run, state)
                windows.ended.wait()
                withdraw_state(run)  # first, so that clients that lose a connection see why
                windows.require()
    finally:
        for name in ("state.json", "credentials", "key.pem", "cert.pem"):
            (run / name).unlink(missing_ok=True)
        windows.halt()


def main() -> int:
    """Entry point; prints one JSON line with the reason if it cannot start."""
    parser = argparse.ArgumentParser(prog="sandbox daemon")
    parser.add_argument("home", type=Path)
    parser.add_argument("--http-port", type=int, default=0)
    parser.add_argument("--https-port", type=int, default=0)
    parser.add_argument("--listen", default="127.0.0.1", metavar="ADDRESS")
    parser.add_argument("--account", type=Path, metavar="FILE", help="contains USER:PASSWORD")
    parser.add_argument("--wine", type=Wine.of, metavar="JSON", help="as the controller found it")
    parser.add_argument("--tied", action="store_true")
    arguments = parser.parse_args()
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the controller handles Ctrl-C
    if arguments.tied:

        def watch() -> None:
            while os.read(0, 4096):  # not sys.stdin: its lock is held when the process ends
                pass
            ended.set()

        threading.Thread(target=watch, daemon=True).start()
    try:
        ports = Ports(arguments.listen, arguments.http_port, arguments.https_port)
        account = f"builder-{secrets.token_hex(3)}", secrets.token_urlsafe(24)
        if arguments.account:
            user, _, password = arguments.account.read_text().strip().partition(":")
            account = user, password
        serve_sandbox(arguments.home, ports, ended, account, arguments.wine)
    except PipelineError as error:
        intact = not isinstance(error, DamagedSandboxError)
        report = {"error": error.message, "hint": error.hint, "whole": intact}
    except OSError as error:
        taken = error.errno is not None and "listen" in str(error)
        hint = "Choose another port in pipeline.yaml, or 0 for a free one." if taken else ""
        report = {"error": error.strerror or str(error), "hint": hint, "whole": True}
    else:
        return 0
    print(json.dumps(report), file=sys.stderr)
    return 1


if __name__ == "__main__":
    code = main()
    gc.freeze()  # as pipelines/__main__.py does
    sys.exit(code)
