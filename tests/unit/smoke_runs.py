"""Runs shipped smoke suites for real, against wheels made here, without a GPU."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreign_wheels import foreign

from pipelines.remote import awake, tester
from pipelines.reports.junit import read_pytest
from pipelines.reports.model import Case, Suite
from pipelines.wheels import fatbin

#: Of a wheel without device code.
EXPECT: dict[str, Any] = {
    "distribution": "demo",
    "version": "1.0",
    "archs": [],
    "ptx": [],
    "platform": None,
}
SMOKE = Path(__file__).parents[2] / "pipelines" / "smoke"


def shipped(name: str = "") -> dict[str, str]:
    """The files of ``common``, of the suite, and the fat-binary reader, as they are sent."""
    folders = ["common", *([name] if name else [])]
    paths = [path for folder in folders for path in sorted((SMOKE / folder).glob("*"))]
    files = [path for path in paths if path.suffix in (".py", ".ini")]
    assert len({path.name for path in files}) == len(files), "two files of one name"
    told = {path.name: path.read_text("utf-8") for path in files}
    beside = [Path(str(module.__file__)) for module in (fatbin, awake)]
    return told | {path.name: path.read_text("utf-8") for path in beside}


def wheel(
    folder: Path,
    name: str,
    files: dict[str, bytes],
    version: str = "1.0",
    tag: str = "py3-none-any",
) -> Path:
    """A whole wheel with these files."""
    return foreign(folder, name, version, tag, files=files, python=">=3.10")


@dataclass(frozen=True)
class Outcome:
    """What a run left."""

    result: tester.Outcome
    log: str
    suite: Suite

    def case(self, name: str) -> Case:
        """The one case of this name."""
        (found,) = [case for case in self.suite.cases if case.name == name]
        return found

    def outcomes(self, *outcomes: str) -> list[str]:
        """The names of the cases that ended so."""
        return [case.name for case in self.suite.cases if case.outcome in outcomes]


def run(  # noqa: PLR0917  the order of a call
    folder: Path,
    suite: dict[str, str],
    wheel: Path | None,
    expect: dict[str, Any],
    environment: dict[str, str] | None = None,
    timeout: float = 300.0,
    installer: str = "",
) -> Outcome:
    """Run the suite as a host does: over this very Python, used as it is."""
    spec: tester.Spec = {
        "directory": str(folder / "t"),
        "installer": installer,
        "python": sys.executable,
        "system": True,
        "wheel": str(wheel) if wheel else "",
        "packages": ["not-to-be-installed"],
        "suite": suite,
        "expect": expect,
        "environment": environment or {},
        "timeout": timeout,
    }
    *log, result = tester.run_suite(spec)
    assert isinstance(result, dict)
    text = b"".join(item for item in log if isinstance(item, bytes)).decode(errors="replace")
    assert result["junit"], text
    return Outcome(result, text, read_pytest(Path(result["junit"]).read_bytes()))


FAKE_DRIVER = r"""
#include <stddef.h>
#include <string.h>
int cuInit(unsigned f) { INIT }
int cuDriverGetVersion(int *v) { *v = DRIVER; return 0; }
int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetName(char *s, int n, int d) { strncpy(s, "NVIDIA Pretended", n); return 0; }
int cuDeviceTotalMem_v2(size_t *b, int d) { *b = (size_t)24 << 30; return 0; }
int cuDeviceGetPCIBusId(char *s, int n, int d) { strncpy(s, "0000:01:00.0", n); return 0; }
static int active;
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = &active; return active = 1, 0; }
int cuDevicePrimaryCtxRelease_v2(int d) { return active = 0; }
int cuDevicePrimaryCtxGetState(int d, unsigned *f, int *a) { *a = active; return 0; }
int cuCtxGetCurrent(void **c) { *c = 0; return 0; }
int cuModuleGetLoadingMode(int *m) { *m = 2; return 0; }
int cuDeviceGetAttribute(int *v, int a, int d)
{ *v = a == 75 ? MAJOR : a == 76 ? MINOR : a == 16 ? 42 : 0; return 0; }
"""


FAKE_NVML = r"""
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlSystemGetDriverVersion(char *s, unsigned n) { strncpy(s, "580.1", n); return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *s, void **h)
{ *h = (void *)1; return strcmp(s, "0000:01:00.0"); }
int nvmlDeviceGetIndex(void *h, unsigned *n) { *n = NUMBER; return 0; }
"""


def fake_driver(
    folder: Path,
    *,
    cuda: int = 13000,
    arch: tuple[int, int] = (8, 9),
    init: str = "return 0;",
    nvml: int | None = None,
    bridge: str = "",
) -> dict[str, str]:
    """The environment in which ``libcuda.so.1`` is a library made here, with one GPU.

    ``nvml``: the number that NVML gives it; without one there is no NVML. ``bridge``: what it calls
    itself if it says to be one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    values = {"DRIVER": cuda, "MAJOR": arch[0], "MINOR": arch[1], "INIT": init, "NUMBER": nvml}
    own = f'const char *driver_bridge(void) {{ return "{bridge}"; }}' if bridge else ""
    libraries = {"libcuda.so.1": FAKE_DRIVER + own}
    libraries |= {} if nvml is None else {"libnvidia-ml.so.1": FAKE_NVML}
    for name, text in libraries.items():
        source = folder / f"{name}.c"
        source.write_text(text)
        subprocess.run(
            [
                *("cc", "-shared", "-fPIC", "-w", "-o", str(folder / name), str(source)),
                *(f"-D{name}={value}" for name, value in values.items()),
            ],
            check=True,
        )
    return {"LD_LIBRARY_PATH": str(folder)}


def device_code(sass: list[int], ptx: list[int]) -> bytes:
    """A file with one fat binary: empty cubins and PTX for these architectures."""
    import struct

    entries = b""
    for kind, archs in ((fatbin.ELF, sass), (fatbin.PTX, ptx)):
        for arch in archs:
            entries += struct.pack("<HHIQ12xI8xQ16x", kind, 0x0101, 64, 8, arch, 0) + bytes(8)
    return fatbin.MAGIC + struct.pack("<HHQ", 1, 16, len(entries)) + entries
