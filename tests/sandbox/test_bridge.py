"""The GPU bridge's real DLLs over a stand-in driver, from the sandbox's Windows Python."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import make_sandbox

from pipelines.core.errors import HostError
from pipelines.hosts.sandbox import toolset
from pipelines.hosts.sandbox.bridge import building, installing
from pipelines.hosts.sandbox.bridged import bridge_warnings as warnings_in
from pipelines.hosts.sandbox.making import read_verified_seal
from pipelines.hosts.sandbox.wine import Prefix
from pipelines.toolchain.lock import Cache, load_lock

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
        "function 2 of export table 42d85a81 was called with what may be a function",
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
    "check_nvml": [
        "nvmlDeviceGetCpuAffinity: not for Windows programs on Linux; answered with 3",
        "it has no nvmlShutdown; answered with 13",
    ],
}


class Varied(Prefix):
    """A prefix whose programs get other variables, too; ``None`` takes one away."""

    variables: Mapping[str, str | None] = {}

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        found = {**super().environment(extra), **self.variables}
        return {name: value for name, value in found.items() if value is not None}


@dataclass
class Bridged:
    """A Windows with a bridge, and a stand-in driver in ``libraries``."""

    prefix: Varied
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
            system = ["x86_64-pc-windows-msvc", *toolset.HEADERS]
            libraries = [toolset.import_library_path(name) for name in ("kernel32", "vcruntime")]
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

    def run(self, check: str, **variables: str | None) -> str:
        self.warnings()
        self.prefix.variables = variables
        try:
            return self.prefix.run([PYTHON, "checks.py", check], cwd=self.work, timeout=60)
        finally:
            self.prefix.variables = {}

    def warnings(self) -> list[str]:
        """What was warned of since this was asked last."""
        found = [line.partition(": ")[2] for line in warnings_in(self.prefix.path)]
        (self.prefix.path / "bridge/warnings.log").unlink(missing_ok=True)
        return found


@pytest.fixture(scope="module")
def bridged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridged]:
    base = tmp_path_factory.mktemp("bridge")
    sandbox = make_sandbox(base / "sandbox")
    sandbox._make()
    prefix = Varied(sandbox.prefix)
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
    made.built = building.ensure_bridge(prefix, made.cache, libraries, lambda text: None)
    installing.install_bridge(made.built, prefix, made.libraries)
    prefix.boot()
    yield made
    prefix.halt()
    sandbox.teardown()


def runtime(cache: Cache) -> Path:
    """The directory of the run-time's wheel, which is fetched like any other tool."""
    return cache.fetch(building.RUNTIME).parent


@pytest.mark.parametrize("check", CHECKS)
def test_a_windows_program_over_the_stand_in(
    bridged: Bridged, check: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = bridged.run(check, CUDA_LEFT="1", CUDA_TEST="from Linux")
    assert said.endswith(("ok\n", "ok\r\n"))
    found, expected = bridged.warnings(), WARNED.get(check, [])
    assert len(found) == len(expected), found
    for line, start in zip(found, expected, strict=True):
        assert line.startswith(start)
    if check == "check_speed":
        with capsys.disabled():
            print(f"\n{said}")


# -- what is not as it should be -------------------------------------------------------------------


def test_a_driver_that_is_none_is_refused(bridged: Bridged, tmp_path: Path) -> None:
    """As without a driver: the DLLs do not load; the reason is in the log."""
    bridged.compile("libcuda.c", bridged.work / "none/libcuda.so.1", "-DWITHOUT_INIT")
    bridged.compile("libcuda.c", bridged.work / "none/libnvidia-ml.so.1")
    without = bridged.work / "none"
    bridged.run("refused_as_without_a_driver", LD_LIBRARY_PATH=str(without))
    assert bridged.warnings() == [
        "it is no driver: it has no cuInit",
        "it is no driver: it has no nvmlInit_v2",
    ]
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        (tmp_path / name).write_text("no library" * 100)
    bridged.run("refused_as_without_a_driver", LD_LIBRARY_PATH=str(tmp_path))
    for line in bridged.warnings():
        assert line.startswith("it cannot be loaded: ")
        assert "invalid ELF header" in line
    for path in (without / "libcuda.so.1", tmp_path / "libcuda.so.1"):
        with pytest.raises(HostError, match=r"library of NVIDIA's driver"):
            building.ensure_bridge(bridged.prefix, bridged.cache, [path], lambda text: None)


def test_without_winedllpath_there_is_no_bridge(bridged: Bridged) -> None:
    bridged.run("refused_as_without_a_driver", WINEDLLPATH=None)
    expected = "the bridge has no Linux half: Wine found none in WINEDLLPATH"
    assert bridged.warnings() == [expected] * 2  # of nvcuda.dll and of nvml.dll


def test_the_log_is_bounded(bridged: Bridged) -> None:
    log = bridged.prefix.path / "bridge/warnings.log"
    bridged.run("check_a_function_that_the_driver_lacks")
    log.write_bytes(b"x: line\n" * (64 << 7))
    size = log.stat().st_size
    bridged.prefix.run([PYTHON, "checks.py", "check_tables_without_an_end"], cwd=bridged.work)
    assert log.stat().st_size == size
    assert bridged.warnings() == ["line"]


def test_what_was_swapped_in_a_windows_is_replaced(bridged: Bridged) -> None:
    windows, home = bridged.prefix.drive / "windows/system32", bridged.prefix.path / "bridge"
    swapped = [windows / "nvcuda.dll", home / "x86_64-unix/nvcuda.so", windows / "nvml.dll"]
    good = [path.read_bytes() for path in swapped]
    swapped[0].write_bytes((windows / "nvcudart_hybrid64.dll").read_bytes())
    swapped[1].write_bytes(good[1][:-1] + b"?")
    swapped[2].unlink()
    installing.install_bridge(bridged.built, bridged.prefix, bridged.libraries)
    assert [path.read_bytes() for path in swapped] == good
    bridged.run("check_it_says_what_it_is")


def test_what_was_damaged_in_the_cache_is_made_anew_the_same(bridged: Bridged) -> None:
    first = read_verified_seal(bridged.built)
    assert first is not None
    bridged.prefix.halt()  # whoever makes one starts Windows, and ends it
    (bridged.prefix.drive / "bridge-build").mkdir()  # of one that was killed
    (bridged.prefix.drive / "bridge-build/exports.o").touch()
    file = bridged.built / "x86_64-unix/nvcuda.so"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(HostError, match="is damaged"):
        installing.install_bridge(bridged.built, bridged.prefix, None)
    steps: list[str] = []
    libraries = sorted(bridged.libraries.iterdir())
    again = building.ensure_bridge(bridged.prefix, bridged.cache, libraries, steps.append)
    assert (again, read_verified_seal(again), len(steps)) == (bridged.built, first, 1)
    assert building.ensure_bridge(bridged.prefix, bridged.cache, libraries, steps.append) == again
    assert len(steps) == 1
    assert not list(bridged.prefix.drive.glob("bridge-*"))
    assert [path.name for path in again.parent.iterdir() if path.is_dir()] == [again.name]
