"""A test of an external wheel on a bare Linux machine with a GPU.

This checkout is copied there by ssh, to a directory with everything: environment, cache, sandbox,
runs. The run is copied back, and the directory is removed, even if the connection is lost.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from pipelines.core.console import say
from pipelines.core.errors import ConfigError, HostError, SetupError, SmokeError
from pipelines.core.files import disk_errors, new_directory
from pipelines.core.paths import CHECKOUT
from pipelines.record.run import Run
from pipelines.remote.safe_paths import name_fault

_PARTS = ("pipelines", "scripts", "wcw", "pyproject.toml", "requirements*.lock")
_OPTIONS = ("-oBatchMode=yes", "-oServerAliveInterval=15", "-oServerAliveCountMax=8")
_MOST = 256 << 20  # bytes of a run, without its wheel
_WAITER = """import subprocess, sys
sys.stdin.read()
sys.exit(subprocess.call(sys.argv[1], shell=True))"""


def test_there(
    machine: str, wheel: str, suite: Path, companions: Iterable[str], out: Path
) -> tuple[Run, SmokeError | None]:
    """The run of such a test, kept in ``out``, and how it failed.

    Raises :class:`HostError` without a run for a machine that is unreachable or lost.
    """
    if CHECKOUT is None:
        raise ConfigError(
            "--at works only from a checkout, not from an installed package",
            hint="Clone the repository, and run its wcw.",
        )
    if shutil.which("ssh") is None:
        raise SetupError("--at needs the program ssh", hint="Install openssh-client.")
    parts = {path.name: path for part in _PARTS for path in CHECKOUT.glob(part)}
    parts[f"suite/{suite.name}"] = suite
    if (file := Path(wheel).expanduser()).is_file():
        wheel = f"given/{file.name}"
        parts[wheel] = file
    order = ["test", "--gpu", "--wheel", wheel, "--script", f"suite/{suite.name}"]
    order += [word for one in companions for word in ("--with", one)]
    script = Path(__file__).with_suffix(".sh").read_text("utf-8")
    with tempfile.TemporaryFile() as parcel, tempfile.TemporaryFile() as back:
        with tarfile.open(fileobj=parcel, mode="w:gz", compresslevel=1) as made:
            for name, path in parts.items():
                made.add(path, name, filter=_member)
        words = ["sh", "-c", script, "sh", str(parcel.tell()), *order]
        parcel.seek(0)
        with subprocess.Popen(
            ["ssh", "-T", *_OPTIONS, "--", machine, f"exec {shlex.join(words)}"],
            stdin=subprocess.PIPE,
            stdout=back,
            bufsize=0,
        ) as ssh:
            assert ssh.stdin is not None  # noqa: S101 - a pipe, see above
            with suppress(BrokenPipeError):  # the code says so
                shutil.copyfileobj(parcel, ssh.stdin)
                ssh.wait()  # what interrupts it closes standard input
        back.seek(0)
        if code := ssh.returncode:
            raise HostError(
                f"{machine}: ssh or the setup there failed with exit code {code}, see above",
                hint=f"Nothing was recorded. To check the connection: ssh {machine} true",
            )
        return _unpack_remote_run(back, machine, out)


def _member(one: tarfile.TarInfo) -> tarfile.TarInfo | None:
    one.mode = 0o755  # on Windows no file is executable
    return None if "__pycache__" in one.name else one


def _unpack_remote_run(back: IO[bytes], machine: str, out: Path) -> tuple[Run, SmokeError | None]:
    """The run, of regular files with plain names alone."""
    try:
        with tarfile.open(fileobj=back, mode="r:") as archive:
            kept = [member for member in archive if member.isfile()]
            small = sum(member.size for member in kept) <= _MOST
            files = ((one.name, archive.extractfile(one)) for one in kept if small)
            read = {name: stream.read() for name, stream in files if stream}
    except (tarfile.TarError, EOFError):
        read = {}
    code = read.pop("code", b"").strip().decode("ascii", "replace")[:20]
    bases = [name.rpartition("/")[0] for name in read if name.endswith("/record.sqlite")]
    ended = f"the command on {machine} ended with {code or 'no exit code'}"
    if len(bases) != 1 or not code.isdigit() or name_fault(bases[0].rpartition("/")[2]):
        raise HostError(f"no run was returned: {ended}", hint="Its output is above.")
    with disk_errors(out):
        folder = new_directory(out, bases[0].rpartition("/")[2], "runs")
        for name, data in read.items():
            parts = name.removeprefix(f"{bases[0]}/").split("/")
            if name.startswith(f"{bases[0]}/") and not any(map(name_fault, parts)):
                path = folder.joinpath(*parts)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
    return Run(folder), SmokeError(ended) if int(code) else None


@contextmanager
def given_back(command: str) -> Iterator[None]:
    """Run the shell command that returns a rented machine, even if this process is killed.

    A helper waits for the end of its standard input.
    """
    if not command:
        yield
        return
    waits = subprocess.Popen(
        [sys.executable, "-c", _WAITER, command],
        stdin=subprocess.PIPE,
        # Ctrl-C is for this process, not for what waits.
        start_new_session=os.name == "posix",
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
    )
    try:
        yield
    finally:
        assert waits.stdin is not None  # noqa: S101 - a pipe, see above
        waits.stdin.close()
        if code := waits.wait():
            say(f"THE MACHINE WAS NOT GIVEN BACK: {command} exited with {code}", style="bold red")
