"""What a host says of itself, asked of this machine; and what happens when a source fails."""

from __future__ import annotations

import ctypes
import os
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.remote import facts, rpc
from pipelines.remote.inspection import kernel, machine, tools


def script(path: Path, *lines: str) -> None:
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_facts_keep_their_keys() -> None:
    found = facts.facts()
    assert {"platform", "windows", "machine", "python", "cpus", "memory", "disk"} <= set(found)
    assert found["problems"] == {}
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))


def test_a_source_that_fails_leaves_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise OSError("the registry is gone" * 100)

    monkeypatch.setattr(facts, "memory", broken)
    found = facts.facts()
    assert found["memory"] is None
    assert found["problems"]["memory"].startswith("OSError: the registry is gone")
    assert len(found["problems"]["memory"]) <= 300
    assert found["cpus"] >= 1


def test_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMP", str(tmp_path))
    monkeypatch.setenv("TMP", str(tmp_path / "none"))
    found: Any = machine.machine([str(tmp_path)])
    assert found["problems"] == {}
    assert found["cpu"]["cores"] >= 1
    assert found["commit"]["limit"] > 0
    assert found["disks"][str(tmp_path)]["free"] > 0
    assert set(found["disks"]) == {"/", str(tmp_path), "problems"}
    assert found["temp"]["TEMP"]["exists"] is True
    assert found["temp"]["TMP"]["exists"] is False
    assert found["up_since"] < time.time()
    assert found["administrator"] is (os.geteuid() == 0)


def test_structures_have_windows_sizes() -> None:
    if ctypes.sizeof(ctypes.c_size_t) != 8:
        pytest.skip("the sizes are those of 64 bits")
    assert ctypes.sizeof(kernel._Performance) == 104
    assert ctypes.sizeof(kernel._JobLimits) == 144
    assert kernel._JobLimits.flags.offset == 16
    assert kernel._JobLimits.active_processes.offset == 40
    assert kernel._JobLimits.job_memory.offset == 120


def test_tools_are_found_and_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path) + ":/bin:/usr/bin")
    (tmp_path / "cuda/bin").mkdir(parents=True)
    script(tmp_path / "cuda/bin/nvcc", "echo 'Cuda compilation tools, release 12.8, V12.8.93'")
    script(
        tmp_path / "nvidia-smi",
        "echo 'NVIDIA RTX A4000, 8.6, 572.61, TCC, 16376'",
        "echo '\"GeForce, odd\", 12.0, 580.88, WDDM, 32607'",
        "echo 'no row'",
    )
    script(tmp_path / "ninja", "echo 1.12.1")
    script(tmp_path / "sccache", "echo failed >&2", "exit 3")
    found: Any = tools.tools(str(tmp_path / "cuda"), {"ninja": [], "sccache": [], "gone-tool": []})
    assert found["nvcc"]["version"] == "12.8.93"
    assert [gpu["name"] for gpu in found["gpus"]] == ["NVIDIA RTX A4000", "GeForce, odd"]
    assert found["gpus"][0] == {
        "name": "NVIDIA RTX A4000",
        "capability": "8.6",
        "driver": "572.61",
        "model": "TCC",
        "memory": "16376",
    }
    assert found["ninja"]["version"] == "1.12.1"
    assert found["gone-tool"] is None
    assert found["sccache"] is None
    assert list(found["problems"]) == ["sccache"]
    assert "left with 3" in found["problems"]["sccache"]


def test_a_tool_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path / "ninja", "sleep 600")
    monkeypatch.setattr(tools, "PATIENCE", 0.3)
    began = time.monotonic()
    found: Any = tools.tools("", {"ninja": [str(tmp_path)]})
    assert time.monotonic() - began < 120, "it waited for a tool that takes 600 s"
    assert "TimeoutError" in found["problems"]["ninja"]


def test_visual_studio_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "Microsoft Visual Studio/2022/BuildTools"
    for toolset in ("14.38.33130", "14.44.35207", "notes"):
        (root / "VC/Tools/MSVC" / toolset).mkdir(parents=True)
    (tmp_path / "Microsoft Visual Studio/Installer").mkdir()
    for name in ("ProgramFiles(x86)", "ProgramW6432", "VSINSTALLDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ProgramFiles", str(tmp_path))
    (found,) = tools.visual_studio()
    assert found["toolsets"] == ["14.38.33130", "14.44.35207"]
    assert found["name"] == "2022 BuildTools"
    script(
        tmp_path / "Microsoft Visual Studio/Installer/vswhere.exe",
        f"""echo '[{{"installationPath": "{root}", "displayName": "Build Tools", """
        """"installationVersion": "17.14.1", "isComplete": true}]'""",
    )
    (found,) = tools.visual_studio()
    assert (found["version"], found["complete"]) == ("17.14.1", True)
    assert found["toolsets"] == ["14.38.33130", "14.44.35207"]


@pytest.mark.parametrize("function", [machine.machine, tools.tools])
def test_inspections_may_be_repeated(function: Callable[..., object]) -> None:
    assert rpc.is_idempotent(function)
