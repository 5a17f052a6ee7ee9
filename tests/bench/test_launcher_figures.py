"""What the sandbox's launchers cost: processor time of cl.exe and of the compiler.

``pytest -m bench -s tests/bench/test_launcher_figures.py`` on a machine with Wine. cl.exe hands its
command line to zig's clang in another process, which is counted apart: what a process and those
that it has waited for have used is told when it is reaped. A Wine program that does nothing (``cl``
alone prints its banner) is the floor of both.
"""

from __future__ import annotations

import os
import statistics
import subprocess
from pathlib import Path

from pipelines.hosts.sandbox import image, toolset
from pipelines.hosts.sandbox.wine import Prefix
from pipelines.toolchain.lock import Cache, load_lock

_ROUNDS = 15
_MILLISECONDS = 50
_ARGUMENTS = ("/nologo", "/O2", "/c", "a.c", "/Foa.obj")


def processor_time(prefix: Prefix, *command: str) -> float:
    """Milliseconds of one run; :class:`AssertionError` when it fails."""
    process = subprocess.Popen(
        [prefix.wine.loader, *command],
        cwd=prefix.drive / "bench",
        env=prefix.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    said, _ = b"", process.stdin.close() if process.stdin else None
    if process.stdout:
        said = process.stdout.read()
        process.stdout.close()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, said.decode(errors="replace")
    return (used.ru_utime + used.ru_stime) * 1000


def test_a_launcher_takes_a_fraction_of_what_it_launches(tmp_path: Path) -> None:
    prefix = Prefix(tmp_path / "prefix")
    cache = Cache(load_lock())
    image.copy_image(image.make_image(cache, "3.11", print), prefix.path)
    (prefix.drive / "bench").mkdir()
    (prefix.drive / "bench/a.c").write_text("int f(int a) { return a + 1; }\n")
    launcher, clang = toolset.CL[0], (r"C:\zig\zig.exe", "clang", "--driver-mode=cl")
    ways = {"floor": (launcher,), "cl": (launcher, *_ARGUMENTS), "clang": (*clang, *_ARGUMENTS)}
    prefix.boot()
    try:
        runs = [{n: processor_time(prefix, *w) for n, w in ways.items()} for _ in range(_ROUNDS)]
    finally:
        prefix.halt()
    took = {name: statistics.median(run[name] for run in runs) for name in ways}
    ratio = took["cl"] / took["clang"]
    print(
        f"\ncl.exe itself: {took['cl']:.1f} ms a call, {ratio:.2f} of clang's own "
        f"{took['clang']:.1f} ms; a Wine program that does nothing: {took['floor']:.1f} ms"
    )
    assert took["cl"] < _MILLISECONDS or ratio < 0.5, "on a slow machine by the ratio"
