"""A real sshd on loopback that lets in one key, and an ``ssh`` in front of the PATH that has it."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"

needs_sshd = pytest.mark.skipif(
    sys.platform == "win32" or not Path(SSHD).exists() or not shutil.which("ssh"),
    reason="needs sshd and ssh (apt-get install openssh-server)",
)

#: What the far end runs where there is no docker: both ways between its pipes and the socket.
DIAL_STDIO = """#!{python}
import os, socket, sys, threading
assert sys.argv[1:] == ["system", "dial-stdio"], sys.argv
way = socket.socket(socket.AF_UNIX)
way.connect("{socket}")
def back():
    while data := way.recv(65536):
        os.write(1, data)
    os._exit(0)
threading.Thread(target=back).start()
while data := os.read(0, 65536):
    way.sendall(data)
way.shutdown(socket.SHUT_WR)
"""


class Sshd:
    """One that lets in one key; ``bin`` is the PATH of its sessions."""

    def __init__(self, place: Path) -> None:
        self.place, self.bin = place, place / "bin"
        self.bin.mkdir()
        for name in ("host", "user"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name)]
            subprocess.run(command, check=True)
        shutil.copy(place / "user.pub", place / "authorized_keys")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        (place / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {place}/host\n"
            f"AuthorizedKeysFile {place}/authorized_keys\nPidFile none\nStrictModes no\n"
            f"UsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\n"
            f"KbdInteractiveAuthentication no\nSetEnv PATH={self.bin}:/usr/bin:/bin\n"
        )
        known = (place / "host.pub").read_text().split()[:2]
        (place / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {' '.join(known)}\n")
        (place / "ssh_config").write_text(
            f"IdentityFile {place}/user\nIdentitiesOnly yes\nIdentityAgent none\n"
            f"UserKnownHostsFile {place}/known_hosts\nGlobalKnownHostsFile /dev/null\n"
        )
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self.log = (place / "log").open("wb")
        command = [SSHD, "-D", "-e", "-f", str(place / "sshd_config")]
        self.process = subprocess.Popen(command, stderr=self.log)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                break
            except ConnectionRefusedError:
                if self.process.poll() is not None:
                    pytest.skip(f"no sshd: {(place / 'log').read_text()[-300:]}")
                time.sleep(0.02)

    @property
    def url(self) -> str:
        return f"ssh://{getpass.getuser()}@127.0.0.1:{self.port}"

    def docker(self, text: str) -> None:
        (self.bin / "docker").write_text(text)
        (self.bin / "docker").chmod(0o755)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        self.log.close()


@contextmanager
def running(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    """One below ``place``, as long as it is entered; every ``ssh`` of ours knows it and its key."""
    here, mine = place / "ssh", place / "ssh-bin"
    here.mkdir()
    mine.mkdir()
    server = Sshd(here)
    ssh = shutil.which("ssh")
    (mine / "ssh").write_text(f'#!/bin/sh\nexec {ssh} -F {here}/ssh_config "$@"\n')
    (mine / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{mine}{os.pathsep}{os.environ['PATH']}")
    try:
        yield server
    finally:
        server.close()
