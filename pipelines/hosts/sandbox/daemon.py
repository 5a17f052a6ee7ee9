"""The process behind a running sandbox: its wineserver and its WinRM service.

``python -m pipelines.hosts.sandbox.daemon HOME [--tied]``. It writes ``HOME/run/state.json`` when
clients may connect. Tied, it ends when its standard input closes, hence with whoever started it,
however that died; otherwise with SIGTERM. Secrets are files of mode 0600, never arguments.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pipelines.errors import PipelineError
from pipelines.hosts.sandbox.state import State, publish
from pipelines.hosts.sandbox.wine import Prefix
from pipelines.hosts.sandbox.wsman.processes import TAG

_CMD_LIMIT = 8191  # of cmd.exe, in characters


class WineLauncher:
    """Starts what WinRS clients ask for in the prefix."""

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
        """Start ``command_line`` through winrshost.exe, which takes it from a variable."""
        if not skip_cmd_shell and len(command_line) > _CMD_LIMIT:
            raise OSError(f"the command line is too long for cmd.exe ({len(command_line)})")
        # Without the server's own mark: winrshost.exe has a job object instead, which what breaks
        # away from it leaves, as on Windows.
        asked = {key: value for key, value in env.items() if key != TAG}
        asked["WSMAN_COMMAND_LINE"] = command_line
        if skip_cmd_shell:
            asked["WSMAN_SKIP_CMD"] = "1"
        drive = self.prefix.drive
        folder = drive / "users/builder"
        if cwd and cwd[:2].upper() == "C:":
            folder = drive.joinpath(*(part for part in cwd[2:].split("\\") if part != ".."))
        return subprocess.Popen(
            [self.prefix.wine.loader, r"C:\windows\system32\winrshost.exe"],
            cwd=folder if folder.is_dir() else drive,
            env=self.prefix.environment(asked),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )


def serve(home: Path, http_port: int, https_port: int, ended: threading.Event) -> None:
    """Run until ``ended`` is set; leaves no process and no secret behind."""
    run = home / "run"
    run.mkdir(mode=0o700, exist_ok=True)
    prefix = Prefix(home / "prefix")
    (run / "in-use").touch()  # still there at the next start: this process did not end by itself
    try:
        with ThreadPoolExecutor(1) as pool:
            booted = pool.submit(prefix.boot)
            # Imported while Windows boots: cryptography and NTLM take 0.2 s.
            from pipelines.hosts.sandbox.wsman.auth import write_credentials
            from pipelines.hosts.sandbox.wsman.certificate import create_certificate
            from pipelines.hosts.sandbox.wsman.server import WsmanServer

            user = f"builder-{secrets.token_hex(3)}"
            credentials = write_credentials(run / "credentials", user, secrets.token_urlsafe(24))
            fingerprint = create_certificate(run / "cert.pem", run / "key.pem")
            with WsmanServer(
                WineLauncher(prefix),
                credentials,
                http_port=http_port,
                https_port=https_port,
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
                publish(run, state)
                ended.wait()
    finally:
        for name in ("state.json", "credentials", "key.pem", "cert.pem"):
            (run / name).unlink(missing_ok=True)
        prefix.halt()
    (run / "in-use").unlink(missing_ok=True)


def main() -> int:
    """Entry point; prints one JSON line with the reason if it cannot start."""
    parser = argparse.ArgumentParser(prog="sandbox daemon")
    parser.add_argument("home", type=Path)
    parser.add_argument("--http-port", type=int, default=0)
    parser.add_argument("--https-port", type=int, default=0)
    parser.add_argument("--tied", action="store_true")
    arguments = parser.parse_args()
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the controller's to handle
    if arguments.tied:

        def watch() -> None:
            while os.read(0, 4096):  # not sys.stdin: its lock is held when the process ends
                pass
            ended.set()

        threading.Thread(target=watch, daemon=True).start()
    try:
        serve(arguments.home, arguments.http_port, arguments.https_port, ended)
    except PipelineError as error:
        report = {"error": error.message, "advice": error.advice}
    except OSError as error:
        taken = error.errno is not None and "listen" in str(error)
        advice = "Choose another port in pipeline.yaml, or 0 for a free one." if taken else ""
        report = {"error": error.strerror or str(error), "advice": advice}
    else:
        return 0
    print(json.dumps(report), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
