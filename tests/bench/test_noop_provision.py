"""A provision with nothing to do, against a process a task as configuration tools do it.

The peer starts a shell and a program for every resource over the same WinRM service, and the
program checks one registry value: less than what a module of Ansible has to do, which starts
PowerShell and sends itself each time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_figures import show

from pipelines.hosts.base import OpenOptions, Silent
from pipelines.hosts.sandbox.config import SandboxHost
from pipelines.hosts.sandbox.host import Sandbox
from pipelines.remote import provision
from pipelines.session.transports.winrs import connect_winrs
from pipelines.toolchain.lock import Cache, load_lock

KEY = r"HKLM\SOFTWARE\WcwBench"
SPECS: list[dict[str, Any]] = [
    *({"kind": "registry", "key": KEY, "name": f"n{n}", "value": n} for n in range(10)),
    *({"kind": "environment", "name": f"WCW_{n}", "value": str(n)} for n in range(5)),
    *({"kind": "directory", "path": rf"C:\t\bench\{n}"} for n in range(5)),
    *({"kind": "defender_exclusion", "path": rf"C:\t\{n}"} for n in range(4)),
    {"kind": "page_file", "path": r"C:\pagefile.sys", "initial_mb": 16, "maximum_mb": 64},
]
CHECK = f"import winreg; winreg.QueryValueEx(winreg.OpenKey(-2147483646,{KEY[5:]!r}),'n1')"


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    home = SandboxHost(kind="sandbox", home=str(tmp_path / "s"))
    made = Sandbox("s", home, OpenOptions("3.11", Cache(load_lock()), Silent()))
    made.start(ephemeral=True)
    yield made
    made.close()
    made.teardown()


def host_memory(sandbox: Sandbox) -> float:
    """Peak MiB of the Python on the host, as Linux counts it."""
    peaks = [0.0]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str(sandbox.home).encode() not in (entry / "environ").read_bytes():
                    continue
                command = (entry / "cmdline").read_bytes()
                status = (entry / "status").read_text()
            except OSError:
                continue
            if command.lower().startswith(b"c:\\python"):
                peaks.append(float(status.split("VmHWM:")[1].split()[0]) / 1024)
    return max(peaks)


def test_nothing_to_do(sandbox: Sandbox) -> None:
    with sandbox.connect() as session:
        for spec in SPECS:
            told = session.call(provision.apply_one, spec=spec, marker=r"C:\t\bench\marker")
            assert told["ok"], told
    began = time.monotonic()
    with sandbox.connect() as session:
        checks = session.call(provision.check_all, specs=SPECS)
        ours = time.monotonic() - began
        memory = host_memory(sandbox)
    assert all(check["ok"] for check in checks)

    connection = connect_winrs(sandbox.endpoint(sandbox.start(ephemeral=True)))
    began = time.monotonic()
    for _ in SPECS:
        shell = connection.open_shell(codepage=65001)
        command = connection.run_command(shell, sandbox.executable, ["-c", f'"{CHECK}"'])
        _, error, code = connection.get_command_output(shell, command)
        assert code == 0, error
        connection.cleanup_command(shell, command)
        connection.close_shell(shell, close_session=False)
    theirs = time.monotonic() - began
    show(f"no-op provision of {len(SPECS)} resources, sign-in included", f"{ours:.2f} s", "2 s")
    show("the same with a process a task", f"{theirs:.2f} s", "-")
    show("ratio", f"{theirs / ours:.1f} x", "-")
    show("memory of the host's Python", f"{memory:.0f} MiB", "60 MB")
