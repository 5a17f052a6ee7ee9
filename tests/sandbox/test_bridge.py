"""The GPU bridge's real DLLs over a stand-in driver, from the sandbox's Windows Python."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import make_sandbox

from pipelines.hosts.sandbox.bridge import building, installing
from pipelines.hosts.sandbox.wine import Prefix
from pipelines.toolchain.lock import Cache, load_lock

pytestmark = pytest.mark.sandbox

SOURCES = Path(__file__).parent / "bridge"
CHECKS = re.findall(r"^def (check_\w+)", (SOURCES / "checks.py").read_text("utf-8"), re.M)
PYTHON, ZIG = r"C:\Python311\python.exe", r"C:\zig\zig.exe"

#: What a check makes the bridge warn of; every other one must not make it warn of anything.
WARNED = {
    "check_a_function_that_the_driver_lacks": [
        "it has no cuStreamSynchronize; answered with 500",
        "cuD3D11GetDevice: not for Windows programs on Linux; answered with 801",
    ],
    "check_a_million_calls_without_growth": ["it has no cuStreamSynchronize; answered with 500"],
    "check_more_callbacks_than_there_is_room_for": [
        "no room left for callbacks: there are 49152 already"
    ],
    "check_a_callback_for_an_unknown_function": [
        "cuNew was called with what may be a function of the program's, as argument 1",
        f"export table {'01' * 16} is not known: its 2 functions",
        "function 2 of export table 01010101 was called with what may be a function",
    ],
    "check_an_unknown_table": [f"export table {'01' * 16} is not known: its 2 functions"],
    "check_tables_without_an_end": [
        f"export table {f'0{first}' * 16} is refused: its length cannot be told"
        for first in (2, 3, 4, 5)
    ],
    "check_handles_of_windows": [
        "cuMemCreate: Windows' handles; answered with 801",
        "cuMemExportToShareableHandle: Windows' handles; answered with 801",
        "cuImportExternalMemory: Windows' handles; answered with 801",
        "cuCheckpointProcessLock: not for Windows programs on Linux; answered with 801",
    ],
    "check_nvml": ["it has no nvmlShutdown; answered with 13"],
}


@dataclass
class Bridged:
    """A Windows with a bridge, and a stand-in driver in ``libraries``."""

    prefix: Prefix
    cache: Cache
    work: Path
    built: Path = Path()

    @property
    def libraries(self) -> Path:
        return self.work / "lib"

    def compile(self, source: str, target: Path, *flags: str) -> None:
        """One of the stand-in's sources, as a shared library of Linux or a DLL."""
        here = self.work / source
        shutil.copy(SOURCES / source, here)
        made = f"{target.name}.o"
        if target.suffix == ".dll":
            system = ["x86_64-pc-windows-msvc", *building.HEADERS]
            libraries = [rf"C:\sdk\lib\{name}.lib" for name in ("kernel32", "vcruntime")]
            link = ["lld-link", "/nologo", "/nodefaultlib", "/noimplib", "/dll", "/entry:DllMain"]
            link += [f"/out:{target.name}", made, *libraries]
        else:
            system = ["x86_64-linux-gnu", "-fPIC", "-fvisibility=hidden", "-funwind-tables"]
            link = ["ld.lld", "-shared", "--eh-frame-hdr", made, "-o", target.name]
        target_flag, *rest = system
        command = [ZIG, "clang", f"--target={target_flag}", *rest, *flags, "-O1", "-c", source]
        self.prefix.run([*command, "-o", made], cwd=self.work)
        self.prefix.run([ZIG, *link], cwd=self.work)
        target.parent.mkdir(exist_ok=True)
        (self.work / target.name).rename(target)

    def run(self, *checks: str) -> str:
        return self.prefix.run([PYTHON, "checks.py", *checks], cwd=self.work, timeout=60)

    def warnings(self) -> list[str]:
        """What was warned of since this was asked last."""
        found = [line.partition(": ")[2] for line in installing.warnings(self.prefix.path)]
        (self.prefix.path / "bridge/warnings.log").unlink(missing_ok=True)
        return found


@pytest.fixture(scope="module")
def bridged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridged]:
    base = tmp_path_factory.mktemp("bridge")
    sandbox = make_sandbox(base / "sandbox")
    sandbox.make()
    prefix = Prefix(sandbox.prefix)
    cache = Cache(load_lock())
    work = prefix.drive / "checks"
    work.mkdir()
    shutil.copy(SOURCES / "checks.py", work)
    libraries = work / "lib/libcuda.so.1", work / "lib/libnvidia-ml.so.1"
    made = Bridged(prefix, Cache(cache.lock, base / "cache", wheelhouse=runtime(cache)), work)
    prefix.boot()
    made.compile("windows.c", work / "windows.dll")
    made.compile("libcuda.c", libraries[0])
    made.compile("libnvidia-ml.c", libraries[1])
    prefix.halt()
    made.built = building.built(prefix, made.cache, libraries, lambda text: None)
    installing.install(made.built, prefix, made.libraries)
    prefix.boot()
    yield made
    prefix.halt()
    sandbox.teardown()


def runtime(cache: Cache) -> Path:
    """The directory of the run-time's wheel, which is fetched like any other tool."""
    return cache.fetch(building.RUNTIME).parent


@pytest.mark.parametrize("check", CHECKS)
def test_a_windows_program_over_the_stand_in(
    bridged: Bridged,
    check: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = bridged.prefix.environment()
    left = {"CUDA_LEFT": "1", "CUDA_TEST": "from Linux"}
    monkeypatch.setattr(bridged.prefix, "environment", lambda: {**own, **left})
    bridged.warnings()
    said = bridged.run(check)
    assert said.endswith(("ok\n", "ok\r\n"))
    found, expected = bridged.warnings(), WARNED.get(check, [])
    assert len(found) == len(expected), found
    for line, start in zip(found, expected, strict=True):
        assert line.startswith(start)
    with capsys.disabled():
        if "speed" in check:
            print(f"\n{said}")
