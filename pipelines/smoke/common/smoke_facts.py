"""What this host and this wheel are, gathered once before any test, and what that means.

:func:`gather` asks (driver, torch, package, each in a process of its own, and the files on
disk); :func:`judge` draws the conclusions from the answers alone; :func:`properties` is what
goes into the report. All of it is plain data: it is handed to the test process as JSON.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypedDict, cast

import fatbin
import smoke_images
import smoke_probe
import smoke_suite
from smoke_gpu import Device, Gpu
from smoke_probe import Torch
from smoke_releases import cpu_torch, numbers, other_torch, promise

#: Names of properties that the driver and the system answer, and no case.
OURS = re.compile(r"gpu\d*_|driver_|system$")
_ANSWERS = frozenset({"torch", "lock", "properties", "doing", "failed"})  # of smoke_probe
_HERE = Path(__file__).resolve().parent
_GPU_SECONDS, _PROBE_SECONDS = 120.0, 300.0
_WINDOWS_ENDS = {
    0xC0000005: "an access violation",
    0xC000001D: "an illegal instruction",
    0xC0000374: "a corrupted heap",
    0xC0000409: "abort() or a stack overrun",
    0xC00000FD: "a stack overflow",
    0xC0000135: "a DLL that is not there",
    0xC0000139: "a DLL without a function it should have",
    0x80000100: "a call of a function that Wine does not have",
    3: "abort()",
}


class Asked(TypedDict):
    """Which GPUs the host of ``pipeline.yaml`` asks for."""

    asked: str
    """Such as ``gpu: true``; empty: none."""
    count: int | None
    """How many; ``None``: one or more."""
    numbers: list[int]
    """Which of them, as nvidia-smi counts them; empty: any."""
    bridged: bool
    """Whether through a bridge to another system's driver."""


class Expected(TypedDict, total=False):
    """What the pipeline says this wheel is, see :mod:`conftest`."""

    distribution: str
    version: str
    archs: list[str]
    ptx: list[str]
    platform: str | None
    cuda: str
    torch: str | None
    cpu_torch: bool
    verify: str
    files: list[str]
    artifacts: str
    gpu: Asked
    given: bool


class Runs(TypedDict):
    """:class:`smoke_images.Verdict` of a file on a GPU."""

    text: str
    failure: str
    warning: str


class Unit(TypedDict):
    """A file with device code: what it holds, and what each GPU (``gpu0``) runs of it."""

    sass: list[str]
    ptx: list[str]
    containers: int
    gpus: dict[str, Runs]


class Found(TypedDict):
    """What was found; nothing is judged yet."""

    gpu: Gpu
    torch: Torch
    lock: str
    """The global lock: ``on`` from the start, ``off`` to the end, or the step that switched it on;
    empty of a Python that always has it."""
    properties: dict[str, str]
    """What the suite itself tells."""
    doing: str
    """The last step of :mod:`smoke_probe`."""
    failed: str
    """How that failed."""
    version: str
    units: dict[str, Unit]


class Judgement(TypedDict):
    """What that means."""

    failures: dict[str, str]
    """By name."""
    warnings: list[str]
    blocked: str
    """Why no GPU test can run."""
    report: dict[str, str]
    """Properties of the suite."""


class Facts(Found, Judgement):
    """All of it."""


def ended(code: int | None) -> str:
    """How a process ended: ``was ended by signal 11 (SIGSEGV)``."""
    if code is None:
        return "ended, nothing is known of how"
    if code < 0:
        known = {member.value: member.name for member in signal.Signals}
        return f"was ended by signal {-code} ({known.get(-code, 'unknown')})"
    if os.name == "nt" and code in _WINDOWS_ENDS:
        return f"was ended by {_WINDOWS_ENDS[code]} (exit code 0x{code:X})"
    return f"exited with code {code}"


def _run(script: str, *arguments: str, seconds: float) -> tuple[list[dict[str, Any]], str]:
    """The answers a script prints, and how it died (empty if it did not).

    Without ``PYTHON_GIL``, which would keep the global lock off whatever is imported.
    """
    with subprocess.Popen(
        [sys.executable, "-X", "faulthandler", str(_HERE / script), *arguments],
        env={name: value for name, value in os.environ.items() if name.upper() != "PYTHON_GIL"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
            died = "" if process.returncode == 0 else ended(process.returncode)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            died = f"hung for {seconds:.0f} s"
    answers, said = [], []
    for line in output.splitlines():
        if line.startswith(smoke_probe.MARK):
            answers.append(json.loads(line.removeprefix(smoke_probe.MARK)))
        elif line.strip():
            said.append(line)
    if said:
        print("\n".join(said[-40:]))
    return answers, died


def gather(expected: Expected) -> Facts:
    """Every fact, and what follows from them."""
    answers, died = _run("smoke_gpu.py", seconds=_GPU_SECONDS)
    gpu = cast("Gpu", answers[0]) if answers and not died else _no_answer(died)
    answers, died = _run(
        "smoke_probe.py", "gpu" if gpu["devices"] else "no-gpu", seconds=_PROBE_SECONDS
    )
    facts: dict[str, Any] = {"gpu": gpu, "torch": {}, "lock": "", "properties": {}}
    facts |= {"doing": "", "failed": ""}
    for answer in answers:
        facts |= {name: value for name, value in answer.items() if name in _ANSWERS}
    if died:
        facts["failed"] = f"the interpreter {died}"
    facts["version"], facts["units"] = _installed(expected, gpu["devices"])
    found = cast("Found", facts)
    return {**found, **judge(found, expected)}


def _no_answer(died: str) -> Gpu:
    # No answer is no reason to skip: a driver that crashes is not the same as none.
    broken = f"the process that asks the driver {died or 'said nothing'}"
    return {"skip": "", "broken": broken, "cuda": "", "driver_version": "unknown", "devices": []}


def _installed(expected: Expected, devices: list[Device]) -> tuple[str, dict[str, Unit]]:
    """The installed version, and for each file with device code what it holds and what runs."""
    own = getattr(smoke_suite, "files", None)  # for what is not a wheel
    files: dict[str, Path] = {str(f): Path(f) for f in expected.get("files", [])}
    files |= {str(f): f for f in own(expected)} if own else {}
    version = ""
    try:
        wheel = importlib.metadata.distribution(expected.get("distribution", ""))
        version = wheel.version
        for file in wheel.files or []:
            if file.name.endswith((".pyd", ".so", ".dll")):
                files[str(file)] = Path(str(wheel.locate_file(file)))
    except (importlib.metadata.PackageNotFoundError, ValueError):
        pass  # the test of the metadata says so
    units: dict[str, Unit] = {}
    for name, path in files.items():
        if not path.is_file():
            continue
        found = fatbin.inventory(path.read_bytes())
        if not found.containers:
            continue
        verdicts = {
            f"gpu{d['index']}": cast(
                "Runs", vars(smoke_images.judge(path.name, found, d["name"], d["arch"]))
            )
            for d in devices
        }
        units[name] = {
            "sass": sorted(found.sass, key=fatbin.arch_key),
            "ptx": sorted(found.ptx, key=fatbin.arch_key),
            "containers": len(found.containers),
            "gpus": verdicts,
        }
    return version, units


def judge(facts: Found, expected: Expected) -> Judgement:
    """The conclusions from the facts alone."""
    gpu, torch = facts["gpu"], facts["torch"]
    warnings: list[str] = []
    failures = {
        "driver": gpu["broken"] or _driver_too_old(facts, expected, warnings),
        "gpu": _other_bridge(gpu, asked := expected.get("gpu")) or _other_gpus(gpu, asked),
        "torch": _torch(facts, expected, warnings) or other_torch(torch, expected.get("torch")),
        "package": _package(facts),
        "promise": promise(facts["version"] or expected.get("version", ""), torch, warnings),
        "image": _image(facts["units"], warnings),
    }
    failures = {name: text for name, text in failures.items() if text}
    first = next(iter(failures.items()), None)
    blocked = gpu["skip"] or (f"cannot run: {first[1]}" if first else "")
    return {
        "failures": failures,
        "warnings": warnings,
        "blocked": blocked,
        "report": properties(facts, warnings),
    }


def _driver_too_old(facts: Found, expected: Expected, warnings: list[str]) -> str:
    """A driver runs every CUDA of its major version; an older major version it does not know.

    Same major and newer minor: SASS runs ("minor version compatibility"), PTX does not.
    """
    driver = facts["gpu"]["cuda"]
    properties = facts["properties"]
    wanted = (
        facts["torch"].get("cuda")
        or properties.get("cuda_runtime")
        or properties.get("cuda_toolkit")
    )
    wanted = wanted or expected.get("cuda")
    if not driver or not wanted:
        return ""
    own = f"driver {facts['gpu']['driver_version']} knows CUDA {driver}"
    if numbers(driver)[0] < numbers(wanted)[0]:
        return f"the driver is too old: {own} and the wheel needs CUDA {wanted}"
    if numbers(driver) < numbers(wanted):
        warnings.append(f"{own} and the wheel is for CUDA {wanted}: its PTX will not be compiled")
    return ""


def _other_bridge(gpu: Gpu, wanted: Asked | None) -> str:
    """Why the driver is a bridge and should be none, or the other way round."""
    bridge, asked = gpu.get("bridge", ""), wanted is not None and wanted.get("bridged", False)
    if bridge and wanted is not None and not asked:
        return f"the driver here is a bridge ({bridge}), which was not asked for"
    if asked and gpu["devices"] and not bridge:
        return "a bridge to Linux' driver was asked for, and the driver here is none"
    return ""


def _other_gpus(gpu: Gpu, wanted: Asked | None) -> str:
    """Why the GPUs here are not those that were asked for: none at all is no reason to skip."""
    if wanted is None or not wanted["asked"] or gpu["broken"]:
        return ""
    asked, found = f"{wanted['asked']} was asked for", gpu["devices"]
    if not found:
        return f"{asked}, and no GPU is here: {gpu['skip']}"
    if wanted["count"] not in (None, len(found)):
        return f"{asked}, which is {wanted['count']} GPUs, and {len(found)} are here"
    numbers = [device["number"] for device in found]
    if wanted["numbers"] and sorted(numbers) != sorted(wanted["numbers"]):
        if -1 in numbers:
            return f"{asked}, and which GPUs are here is not known: {gpu.get('nvml', '')}"
        return f"{asked}, and nvidia-smi's GPU {', '.join(map(str, numbers))} is here"
    return ""


def _torch(facts: Found, expected: Expected, warnings: list[str]) -> str:
    torch, gpu = facts["torch"], facts["gpu"]
    if facts["doing"] == "torch" and facts["failed"]:
        return f"torch cannot be imported: {facts['failed']}"
    if not smoke_suite.TORCH or not torch:
        return ""
    if expected.get("cpu_torch"):
        warnings.append(f"torch {torch['version']} is to be a CPU build: no GPU is used by it")
        return cpu_torch(torch)
    if not torch["cuda"]:
        kind = f"a build for ROCm {torch['hip']}" if torch["hip"] else "a CPU build"
        return f"torch {torch['version']} has no CUDA: it is {kind}"
    if gpu["devices"] and not torch["devices"]:
        why = torch["cuda_error"] or "it counts 0"
        count = len(gpu["devices"])
        return f"torch {torch['version']} sees none of the driver's {count} GPUs: {why}"
    return ""


def _package(facts: Found) -> str:
    if not facts["failed"] or facts["doing"] == "torch":
        return ""
    if facts["doing"] == "facts":
        return f"the package does not tell what it is: {facts['failed']}"
    where = f" with torch {facts['torch']['version']}" if facts["torch"] else ""
    return f"import {facts['doing'] or 'of the package'} failed{where}: {facts['failed']}"


def _image(units: dict[str, Unit], warnings: list[str]) -> str:
    """Why no file has code for a GPU. With good files, those for other GPUs are a warning."""
    failures: dict[str, list[str]] = {}
    good: set[str] = set()
    for unit in units.values():
        for gpu, verdict in unit["gpus"].items():
            if verdict["failure"]:
                failures.setdefault(gpu, []).append(verdict["failure"])
            else:
                good.add(gpu)
            if verdict["warning"]:
                warnings.append(verdict["warning"])
    bad = [text for gpu, texts in failures.items() if gpu not in good for text in texts]
    warnings += [text for gpu, texts in failures.items() if gpu in good for text in texts]
    return "; ".join(bad)


def _system() -> str:
    """Which Windows this is, or which Wine; of another system its name."""
    if sys.platform != "win32":
        return sys.platform
    wine = getattr(ctypes.WinDLL("ntdll"), "wine_get_version", None)
    if wine is not None:
        wine.restype = ctypes.c_char_p
        return f"Wine {wine().decode('ascii', 'replace')}"
    return "Windows {}.{}.{}".format(*sys.getwindowsversion()[:3])


def properties(facts: Found, warnings: Iterable[str]) -> dict[str, str]:
    """What a reader of the report needs of this host and this wheel, by name."""
    gpu, torch = facts["gpu"], facts["torch"]
    values = {
        "python": sys.version.split()[0],
        "platform": sys.platform,
        "system": _system(),
        "package_version": facts["version"],
        "gpu_count": len(gpu["devices"]),
        "gpu_unavailable": gpu["skip"] or gpu["broken"],
        "driver_version": gpu["driver_version"] if gpu["cuda"] else "",
        "cuda_driver": gpu["cuda"],
        "module_loading": gpu.get("module_loading", ""),
        "driver_bridge": gpu.get("bridge", ""),
        "torch": torch.get("version", ""),
        "torch_cuda": torch.get("cuda", ""),
        "torch_archs": " ".join(torch.get("archs", ())),
    }
    for device in gpu["devices"]:
        prefix = f"gpu{device['index']}"
        for key in ("name", "compute_capability", "multiprocessors", "memory_mib", "driver_model"):
            values[f"{prefix}_{key}"] = device[key]
        values[f"{prefix}_number"] = device["number"] if device["number"] >= 0 else ""
    for name, unit in facts["units"].items():
        short = name.replace("\\", "/").rsplit("/", 1)[-1]
        values[f"{short}.sass"] = " ".join(unit["sass"]) or "none"
        values[f"{short}.ptx"] = " ".join(unit["ptx"]) or "none"
        for each, verdict in unit["gpus"].items():
            values[f"{short}.{each}_runs"] = verdict["text"]
    values |= {f"warning{number}": text for number, text in enumerate(warnings, 1)}
    values |= {n: value for n, value in facts["properties"].items() if not OURS.match(n)}
    return {name: str(value) for name, value in values.items() if value not in ("", None)}
