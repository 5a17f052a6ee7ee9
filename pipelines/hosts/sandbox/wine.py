"""Wine: where it is on this machine, and one prefix of it.

Three rules of Wine shape this module. A standard handle of a Wine process is never a regular file
(Windows Python then stops with WinError 6). The wineserver starts with null handles, or whoever
reads a pipe from its clients never sees it close. And every call has a timeout, because some of
Wine's tools hang.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.core.errors import HostError, SetupError
from pipelines.hosts.sandbox import bridged, debian

if TYPE_CHECKING:
    from pipelines.toolchain.lock import Cache

#: No Mono, no Gecko, no crash dialogs; and no WMI, through which platform.* of Python 3.12 crashes.
#: No entries in menus of Linux: for them each start would open a desktop, a third of its work.
#: No wow64.dll either: with it Wine 8 begins a 32-bit program, for which there are no DLLs, and
#: that ends with 0 without having run. Now it ends with 0xC0000135, as if a DLL were missing.
_OFF = "mscoree=;mshtml=;wbemprox=;winedbg.exe=;winemenubuilder.exe=;wow64="
#: Microsoft's run-time where it lies beside a program, else Wine's own. Without a word Wine would
#: take its own, with which torch was seen to hang (Wine 8), to crash in torch.save, and to lose
#: gradients (Wine 10): the doctor and the smoke suite look which one torch has.
_GENUINE = (
    "msvcp140,msvcp140_1,msvcp140_2,msvcp140_atomic_wait,"
    "vcruntime140,vcruntime140_1,vcruntime140_threads=n,b"
)
#: What torch cannot know of Wine: Intel's OpenMP asks for NUMA nodes ("OMP: Error #179"), which
#: Wine does not tell; oneDNN believes the processor that it has AMX, for which Linux wants to be
#: asked first (0xC000001D in a bfloat16 product): the last level without it.
_TORCH = {"KMP_AFFINITY": "disabled", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"}


#: Where systemd keeps a directory for each user who is logged in.
_RUNTIME = Path("/run/user")
#: A file of a prefix that is whole: its Python, the Wine that made it, the key of its image.
SEAL = "sealed.json"
#: Seconds that Windows' processes have to end in, and between two looks at them.
_ENDING = 5.0
#: And the server, to write the registry.
_WRITING = 20.0
_PAUSE = 0.005
_EMPTY_LOOKS = 3


#: What to do on a machine that can have no sandbox.
INSTEAD = (
    "Add 'here: {kind: local}' to hosts in pipeline.yaml, and --host here to the command "
    "(docs/hosts/windows-workstation.md)"
    if sys.platform == "win32"
    else "Build on a host of another kind (docs/hosts/README.md)"
) + "; to look into wheels, none is needed."


@dataclass(frozen=True)
class Wine:
    """The programs and files of one Wine."""

    loader: Path
    server: Path
    libraries: Path
    """Wine's own DLLs, as PE files."""
    headers: Path
    """Its C run-time and Win32 headers (folders ``msvcrt`` and ``windows``)."""
    version: str
    aside: tuple[str, ...] = ()
    """What command lines begin with, so that no process has its heap where Windows has data."""

    @property
    def command(self) -> tuple[str, ...]:
        """What a Windows program and its arguments are put behind."""
        return (*self.aside, str(self.loader))

    def packed(self) -> str:
        """For the command line of a service, which need not look for it again."""
        return json.dumps(astuple(self), default=str)

    @classmethod
    def of(cls, packed: str) -> Wine:
        """That of :meth:`packed`."""
        *places, version, aside = json.loads(packed)
        loader, server, libraries, headers = map(Path, places)
        return cls(loader, server, libraries, headers, version, tuple(aside))


def unsupported_machine_reason() -> str:
    """Why there can be no sandbox on this machine; empty where there can."""
    here = f"{platform.system()} on {platform.machine()}"
    return "" if here == "Linux on x86_64" else f"a sandbox needs Linux on x86_64, this is {here}"


def require_machine() -> None:
    """Raise :class:`SetupError` on a machine that can have no sandbox."""
    if why := unsupported_machine_reason():
        raise SetupError(why, hint=INSTEAD)


def wine_version(cache: Cache) -> str:
    """Of the Wine of sandboxes, without fetching it; :class:`SetupError` where none can be."""
    require_machine()
    return debian.pinned_wine_version(cache)


@cache
def find_wine() -> Wine:
    """The Wine of sandboxes, fetched and unpacked if need be.

    Raises :class:`SetupError` on a machine that can have none, or where it does not run, and what
    :func:`debian.ensure_unpacked_wine` does.
    """
    from pipelines.toolchain.lock import Cache, load_lock  # not for a service, which is given it

    named = wine_version(known := Cache(load_lock()))
    root = debian.ensure_unpacked_wine(known)
    loader, server = (root / name for name in debian.PROGRAMS)
    try:
        subprocess.run(
            [loader, "--version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        raise SetupError(
            f"{loader} does not run: {said.strip()}",
            hint="Must no program run there (mount option noexec)? Set XDG_CACHE_HOME.",
        ) from None
    return Wine(loader, server, root / debian.DLLS, root / debian.HEADERS, named, _heap_aside())


def _heap_aside() -> tuple[str, ...]:
    """The command that keeps Linux' heap of a Wine process off Windows' shared data.

    Newer kernels (seen on 6.18) begin the heap anywhere in the gigabyte after the program, which
    is at 0x7d000000 for Wine's loader; the shared data of Windows has to be at 0x7ffe0000. One
    process in 6,000 meets its heap there and is gone before its first instruction ("failed to map
    the shared user data", told with WINEDEBUG=err+all alone): CreateProcess says
    ERROR_INTERNAL_ERROR (1359), and nvcc, whose compilers do not begin, nothing.
    """
    if setarch := shutil.which("setarch"):
        tried = subprocess.run(
            [setarch, "-R", "true"], capture_output=True, timeout=60, check=False
        )
        if not tried.returncode:
            return setarch, "-R"  # what these processes start inherits it
    # Docker's seccomp profile forbids it: glibc 2.35 and newer can do without such a heap.
    return ("env", "GLIBC_TUNABLES=glibc.malloc.hugetlb=2")


class Prefix:
    """One Windows: a directory that Wine keeps as drive C: and a registry."""

    def __init__(self, path: Path, wine: Wine | None = None) -> None:
        self.path = path
        self.wine = wine or find_wine()

    @property
    def drive(self) -> Path:
        """Drive C:."""
        return self.path / "drive_c"

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """What a Wine process gets, and nothing else: the caller's variables do not leak in."""
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.path),
            "USER": "builder",
            "LANG": "C.UTF-8",
            "TZ": os.environ.get("TZ", ""),
            "WINEPREFIX": str(self.path),
            "WINEARCH": "win64",
            "WINEDEBUG": "-all",
            "WINEDLLOVERRIDES": f"{_OFF};{_GENUINE}",
            **_TORCH,
            **bridged.bridge_environment(self.path),
            **(extra or {}),
        }

    def boot(self, *, first: bool = False, timeout: float = 180) -> None:
        """Start the wineserver (it stays) and Windows' own start-up; ``first`` makes the prefix."""
        self.path.mkdir(parents=True, exist_ok=True)
        if self._link.is_symlink():  # to a server that has ended
            self._link.unlink()
        self._quiet([self.wine.server, "-p"], timeout)
        boot = r"C:\windows\system32\wineboot.exe"  # for a name start.exe would look first
        self._quiet([self.wine.loader, boot, *(["-i"] if first else [])], timeout)
        if first and not (self.drive / "windows/system32/kernel32.dll").exists():
            raise HostError(
                f"{self.wine.version} made no prefix in {self.path}",
                hint="Is the disk full, or the directory owned by somebody else?",
            )

    @property
    def _link(self) -> Path:
        """Where Debian's Wine looks for the server while its user is logged in."""
        held = self.path.stat()
        name = f"server-{held.st_dev:x}-{held.st_ino:x}"
        return _RUNTIME / str(os.getuid()) / "wine" / name

    def command(self) -> tuple[str, ...]:
        """What a Windows program and its arguments are put behind, so that the server is found.

        Debian's Wine keeps its socket in /run/user/UID if that is there when a process begins, else
        in /tmp, under a name that is in the prefix (wineserver/request.c, get_tmp_dir). After a
        login or a logout a program would start a second server, and one of them lose what is
        written to Windows' registry. Raises :class:`HostError` where the server is out of reach.
        """
        link = self._link
        runtime, noted = link.parent.parent, (self.path / "wineserver").exists()
        for pid in self._processes(server=True):
            try:
                place = Path(f"/proc/{pid}/cwd").readlink()
            except OSError:  # it has ended meanwhile
                continue
            if not place.is_dir():
                raise HostError(
                    f"{place}, through which the sandbox's Windows is reached, was removed, as "
                    f"{runtime} is when its user logs out",
                    hint="Type: invoke host stop, then the same command. So that it stays: "
                    "sudo loginctl enable-linger $USER",
                )
            if noted and runtime.is_dir() and place.name == link.name and not link.exists():
                link.parent.mkdir(mode=0o700, exist_ok=True)
                link.unlink(missing_ok=True)
                link.symlink_to(place)
        return self.wine.command

    def watch(self) -> subprocess.Popen[bytes]:
        """A process that ends when the wineserver does, whatever ends that."""
        return subprocess.Popen(
            [self.wine.server, "-w"],
            cwd=self.path,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def halt(self) -> None:
        """End every Windows process of the prefix, then the wineserver; harmless when none runs.

        ``wineserver -k`` would wait for 0.75 s. What it does is done here: the processes are
        killed, and the server, told to end, writes the registry that it holds. It would ask its
        clients first at a SIGINT, which takes half a second even when none is left.
        """
        # One may start another between the look and the kill, and a program that finds no server
        # starts one: none may be left when the server goes, which one empty look does not show.
        give_up = time.monotonic() + _ENDING
        empty = 0
        while empty < _EMPTY_LOOKS and time.monotonic() < give_up:
            found = [_send_signal(pid, signal.SIGKILL) for pid in self._processes()]
            empty = 0 if found else empty + 1
            time.sleep(_PAUSE)
        for pid in self._processes(server=True):
            _send_signal(pid, signal.SIGTERM)
        give_up = time.monotonic() + _WRITING
        while any(self._processes(server=True)):
            if time.monotonic() > give_up:
                for pid in self._processes(server=True):
                    _send_signal(pid, signal.SIGKILL)
                break
            time.sleep(_PAUSE)

    def _processes(self, *, server: bool = False) -> Iterator[int]:
        """The prefix's Windows processes as they are found, or what serves them."""
        tag = f"WINEPREFIX={self.path}".encode()
        names = (entry.name for entry in Path("/proc").iterdir())
        found = sorted((int(name) for name in names if name.isdigit()), reverse=True)
        for pid in found:  # the youngest first: it is the one that will have started another
            entry = Path("/proc", str(pid))
            try:
                mine = tag in (entry / "environ").read_bytes().split(b"\0")
                serves = (entry / "comm").read_text().startswith("wineserver")
            except OSError:  # gone, or somebody else's
                continue
            if mine and serves is server and pid != os.getpid():
                yield pid

    def run(
        self, arguments: Sequence[str], *, timeout: float = 120, cwd: Path | None = None
    ) -> str:
        """Run a Windows program and return what it printed; :class:`HostError` if it failed.

        ``cwd`` is a directory of the drive; the drive itself unless given.
        """
        try:
            done = subprocess.run(
                [*self.command(), *arguments],
                cwd=cwd or self.drive,
                env=self.environment(),
                input=b"",  # makes a pipe, see above
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise HostError(f"'{arguments[0]}' hung for {timeout:.0f} s under Wine") from None
        text = done.stdout.decode("utf-8", "replace")
        if done.returncode:
            raise HostError(
                f"'{' '.join(arguments)}' exited with {done.returncode} under Wine:\n{text[-2000:]}"
            )
        return text

    def _quiet(self, command: Sequence[str | Path], timeout: float, *, check: bool = True) -> None:
        try:
            done = subprocess.run(
                [*self.wine.aside, *command],
                cwd=self.path,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise HostError(
                f"{' '.join(map(str, command[:2]))} hung for {timeout:.0f} s in {self.path}",
                hint="Is the machine overloaded?",
            ) from None
        if check and done.returncode:
            raise HostError(
                f"{' '.join(map(str, command))} exited with {done.returncode} in {self.path}",
                hint="Free disk space, then: invoke host remove provision",
            )


def _send_signal(pid: int, number: signal.Signals) -> bool:
    """Whether there was a process to send it to."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True
