"""What a host says of itself, asked of this machine; and what happens when a source fails."""

from __future__ import annotations

import ctypes
import os
import socket
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_winreg
import pytest

from pipelines.remote import facts, rpc
from pipelines.remote.inspection import kernel, machine, tools


def script(path: Path, *lines: str) -> None:
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_facts_keep_their_keys(tmp_path: Path) -> None:
    found = facts.facts(str(tmp_path / "not" / "there"))
    assert {"platform", "windows", "machine", "python", "cpus", "memory", "disk"} <= set(found)
    assert found["problems"] == {}
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["disk"]
    assert found["memory"]
    assert found["disk"]["path"] == str(tmp_path)
    assert found["disk"]["free"] > 0
    assert found["memory"]["total"] > found["memory"]["available"] > 0
    assert set(found["environment"]) <= set(facts.ENVIRONMENT)


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
    found: Any = machine.machine([str(tmp_path)])
    assert found["problems"] == {}
    assert found["cpu"]["cores"] >= 1
    assert found["commit"]["limit"] > 0
    assert found["disks"][str(tmp_path)]["free"] > 0
    assert set(found["disks"]) == {"/", str(tmp_path), "problems"}
    assert found["administrator"] is (os.geteuid() == 0)


def test_structures_have_windows_sizes() -> None:
    if ctypes.sizeof(ctypes.c_size_t) != 8:
        pytest.skip("the sizes are those of 64 bits")
    assert ctypes.sizeof(kernel._Performance) == 104
    assert ctypes.sizeof(kernel._JobLimits) == 144
    assert kernel._JobLimits.flags.offset == 16
    assert kernel._JobLimits.active_processes.offset == 40
    assert kernel._JobLimits.job_memory.offset == 120


class Windows:
    """The DLLs that are asked: an account, the rules for passwords, code integrity."""

    def __init__(self, *, flags: int = 0, longest: int = 42 * 86400, options: int = 1) -> None:
        self.user = (ctypes.c_uint32 * 14)()  # USER_INFO_1 on 64 bits
        self.user[4], self.user[10] = 40 * 86400, flags
        self.rules = (ctypes.c_uint32 * 5)(0, longest)
        self.options, self.code, self.freed = options, 0, 0

    def NetUserGetInfo(self, _: None, name: Any, level: int, found: Any) -> int:  # noqa: N802
        assert (name.value, level) == ("builder", 1)
        found._obj.contents = ctypes.c_uint32.from_buffer(self.user)
        return 0

    def NetUserModalsGet(self, _: None, level: int, found: Any) -> int:  # noqa: N802
        assert level == 0
        if not self.code:
            found._obj.contents = ctypes.c_uint32.from_buffer(self.rules)
        return self.code

    def NetApiBufferFree(self, _: object) -> None:  # noqa: N802
        self.freed += 1

    def NtQuerySystemInformation(self, what: int, told: Any, size: int, _: None) -> int:  # noqa: N802
        assert (what, size, told[0]) == (103, 8, 8)
        told[1] = self.options
        return self.code


@pytest.fixture
def dlls(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Windows]:
    def become(**said: Any) -> Windows:
        windows = Windows(**said)
        monkeypatch.setattr(sys, "platform", "win32")
        monkeypatch.setattr(ctypes, "WinDLL", lambda _: windows, raising=False)
        for name, value in {"USERNAME": "builder", "USERDOMAIN": "LAB1"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("COMPUTERNAME", "lab1")
        return windows

    return become


def test_when_a_password_expires(dlls: Callable[..., Windows]) -> None:
    windows = dlls()
    assert kernel.password_expires() == 2 * 86400
    assert windows.freed == 2
    dlls(longest=0xFFFFFFFF)
    assert kernel.password_expires() is None
    dlls(flags=0x10000)
    assert kernel.password_expires() is None


def test_a_password_of_which_nothing_is_known(
    dlls: Callable[..., Windows], monkeypatch: pytest.MonkeyPatch
) -> None:
    dlls().code = 5
    with pytest.raises(OSError, match="error 5"):
        kernel.password_expires()
    monkeypatch.setenv("USERDOMAIN", "EXAMPLE")
    with pytest.raises(OSError, match="not a local account"):
        kernel.password_expires()


@pytest.mark.parametrize(
    ("options", "enforced"), [(1, False), (1 | 4, True), (1 | 4 | 8, False), (8, False)]
)
def test_whether_signatures_are_enforced(
    dlls: Callable[..., Windows], options: int, enforced: bool
) -> None:
    dlls(options=options)
    assert kernel.enforces_signatures() is enforced


def test_policies_of_the_registry(
    dlls: Callable[..., Windows], monkeypatch: pytest.MonkeyPatch
) -> None:
    dlls()
    number = fake_winreg.REG_DWORD
    control = r"system\currentcontrolset\control\ci\policy"
    rules = r"software\policies\microsoft\windows\srpv2"
    found = {
        ("HKLM", control): {"verifiedandreputablepolicystate": (1, number)},
        ("HKLM", rf"{rules}\dll"): {"enforcementmode": (1, number)},
        ("HKLM", rf"{rules}\exe"): {"enforcementmode": (0, number)},
    }
    monkeypatch.setitem(sys.modules, "winreg", fake_winreg)
    monkeypatch.setattr(fake_winreg, "keys", found)
    told: Any = {"smart_app_control": 1, "enforced": False, "applocker": True}
    assert machine._code_policies() == told
    monkeypatch.setattr(fake_winreg, "keys", {})
    assert machine._code_policies() == told | {"smart_app_control": None, "applocker": False}


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
    assert "exited with 3" in found["problems"]["sccache"]


def test_a_tool_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path / "ninja", "sleep 600")
    monkeypatch.setattr(tools, "PATIENCE", 0.3)
    began = time.monotonic()
    found: Any = tools.tools("", {"ninja": [str(tmp_path)]})
    assert time.monotonic() - began < 120, "it waited for a tool that takes 600 s"
    assert "TimeoutError" in found["problems"]["ninja"]


def test_where_build_tools_come_from_is_asked_where_they_are_to_be_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    studio: list[dict[str, Any]] = [{"toolsets": []}]
    monkeypatch.setattr(tools, "visual_studio", lambda: studio)
    with socket.create_server(("127.0.0.1", 0)) as server:
        genuine, port = socket.create_connection, server.getsockname()[1]

        def connect(place: tuple[str, int], timeout: float) -> socket.socket:
            assert (place[1], timeout) == (443, tools._CONNECTION)
            return genuine((place[0], port), timeout)

        monkeypatch.setattr(socket, "create_connection", connect)
        assert tools._unreachable_servers(["127.0.0.1", "nowhere.invalid"]) == ["nowhere.invalid"]
    assert tools._unreachable_servers(["127.0.0.1"]) == ["127.0.0.1"]
    assert tools.tools("", {}, servers=["127.0.0.1"])["unreached"] == ["127.0.0.1"]
    studio[0]["toolsets"] = ["14.44.35207"]
    assert tools.tools("", {}, servers=["127.0.0.1"])["unreached"] == []


def test_visual_studio_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "Microsoft Visual Studio/2022/BuildTools"
    for toolset in ("14.38.33130", "14.44.35207", "notes"):
        (root / "VC/Tools/MSVC" / toolset).mkdir(parents=True)
    (tmp_path / "Microsoft Visual Studio/Installer").mkdir()
    for name in ("ProgramFiles(x86)", "ProgramW6432", "VSINSTALLDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ProgramFiles", str(tmp_path))
    monkeypatch.setattr(tools, "_OURS", str(tmp_path / "VS"))
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
