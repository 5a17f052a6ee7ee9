"""What all tests share: what to expect of the wheel, and whether there is a GPU to run it on.

The suite is sent to a host and run there against the installed wheel. It needs pytest, the
standard library, ``fatbin.py`` beside it, and ``SMOKE_EXPECT``: the path of a JSON file with
``distribution``, ``version``, ``archs``, ``ptx`` and ``platform`` (``null``: any).
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# Runs in a process of its own, because a broken driver can end the process that asks it.
DEVICE_CHECK = """
import json, sys
def answer(**facts):
    print("ANSWER" + json.dumps(facts)); sys.exit()
if sys.platform == "win32":
    import ctypes
    try:
        ctypes.WinDLL("nvcuda.dll")
    except OSError:
        answer(skip="no NVIDIA driver (nvcuda.dll) on this host", devices=[])
import smoke_attention
error, count = smoke_attention.device_count()
if error or not count:
    answer(skip="no CUDA device on this host "
                f"(cudaGetDeviceCount returned {error}, {count} devices)", devices=[])
answer(skip="", devices=smoke_attention.devices())
"""


def check_devices() -> dict[str, Any]:
    """Return ``skip`` (why GPU tests cannot run), ``devices``, ``broken`` (why the check died)."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", DEVICE_CHECK],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=120,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"skip": "", "devices": [], "broken": "the device check hung for 120 s"}
    for line in done.stdout.splitlines():
        if line.startswith("ANSWER"):
            return {"broken": "", **json.loads(line.removeprefix("ANSWER"))}
    # No answer is no reason to skip: a driver that crashes is not the same as none.
    broken = f"the device check ended with exit code {done.returncode}: {done.stdout.strip()}"
    return {"skip": "", "devices": [], "broken": broken}


@pytest.fixture(scope="session")
def device_facts() -> dict[str, Any]:
    """The device check's answer, asked for once."""
    return check_devices()


@pytest.fixture(scope="session", autouse=True)
def _suite_properties(device_facts: dict[str, Any], record_testsuite_property: Any) -> None:
    """Write what this host is into the JUnit report."""
    record_testsuite_property("python", sys.version.split()[0])
    record_testsuite_property("platform", sys.platform)
    record_testsuite_property("gpu_count", len(device_facts["devices"]))
    if device_facts["skip"] or device_facts["broken"]:
        record_testsuite_property("gpu_unavailable", device_facts["skip"] or device_facts["broken"])
    for device in device_facts["devices"]:
        major, minor = device["compute_capability"]
        prefix = f"gpu{device['index']}"
        record_testsuite_property(f"{prefix}_name", device["name"])
        record_testsuite_property(f"{prefix}_compute_capability", f"{major}.{minor}")
        record_testsuite_property(f"{prefix}_memory_mib", device["total_memory"] >> 20)
        record_testsuite_property("cuda_driver", device["driver_version"])
        record_testsuite_property("cuda_runtime", device["runtime_version"])


@pytest.fixture(scope="session")
def gpu(device_facts: dict[str, Any]) -> dict[str, Any]:
    """The first GPU. Skips without one, fails if the check for one died."""
    if device_facts["skip"]:
        pytest.skip(device_facts["skip"])
    if device_facts["broken"]:
        pytest.fail(device_facts["broken"], pytrace=False)
    return dict(device_facts["devices"][0])


@pytest.fixture(scope="session")
def expected() -> dict[str, Any]:
    """What the pipeline says this wheel is."""
    path = os.environ.get("SMOKE_EXPECT")
    if not path:
        pytest.fail("SMOKE_EXPECT must name the JSON file that says what to expect", pytrace=False)
    return dict(json.loads(Path(path).read_text(encoding="utf-8")))


@pytest.fixture(scope="session")
def installed(expected: dict[str, Any]) -> importlib.metadata.Distribution:
    """The installed distribution."""
    return importlib.metadata.distribution(expected["distribution"])
