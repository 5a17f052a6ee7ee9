"""The doctor: each verdict at its edges, hostile facts, the table, the JSON, the exit code."""

from __future__ import annotations

import copy
import io
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement
from rich.console import Console

from pipelines.core import errors as pipeline_errors
from pipelines.core import github, model
from pipelines.core.architectures.gpus import load_gpu_table
from pipelines.core.console import say
from pipelines.core.errors import UNFIT, HostError, RemoteError, SetupError
from pipelines.core.evidence import Evidence
from pipelines.core.finding import LEVELS, Finding, worst_level
from pipelines.core.shell import INSTALL_GIT
from pipelines.core.target import AXES, Target
from pipelines.doctor import diagnose_facts, inspect, report, run
from pipelines.doctor.model import Facts, Purpose, Setting, make_finding
from pipelines.hosts import base
from pipelines.hosts.base import Capabilities
from pipelines.hosts.live import LiveSession
from pipelines.plan.config.model import Config
from pipelines.plan.matrix.buildplan import BuildPlan, Request, resolve_build_plan
from pipelines.plan.matrix.compat import load_compat
from pipelines.plan.matrix.torches import load_torches
from pipelines.recipe.load import load_recipe
from pipelines.remote import rpc
from pipelines.remote.inspection.nvml import BRIDGED
from pipelines.reports.findings import findings_table
from pipelines.session.base import Session
from pipelines.toolchain.lock import Cache, load_lock
from pipelines.wheels import toolkit

GIB = 1 << 30
DAY = 86400.0
SAC, LEFT = "host/machine/policies/smart_app_control", "host/machine/password/left"
GONE = object()


class Host(base.Host):
    """A host of which only the session is real enough."""

    name = "lab1"
    wine: Callable[[], str] | None = None
    evidence = Evidence.WRITTEN
    executable = r"C:\wcw\python\python.exe"

    def __init__(self, connect: Callable[[], Any], **capabilities: bool) -> None:
        have = {"windows": True, "msvc": True, "gpu": False, "publishable": True, "services": True}
        self.capabilities = Capabilities(**have | capabilities)
        self._connect = connect

    def emulator(self) -> str:
        return self.wine() if self.wine else ""

    def connect(self) -> Session:
        session: Session = self._connect()
        return session

    def restart(self, session: Session) -> Session:
        raise AssertionError("the doctor restarts nothing")

    def close(self) -> None:
        """Nothing was started."""


def make_plan(host: Host, tmp_path: Path, kind: str = "winrm") -> BuildPlan:
    winrm = {
        "kind": "winrm",
        "endpoint": "https://lab1:5986/wsman",
        "username": "b",
        "password_env": "LAB1_PW",
    }
    config = Config.model_validate(
        {"hosts": {"lab1": winrm if kind == "winrm" else {"kind": kind}}, "out": str(tmp_path)}
    )
    asked = Request(axes={"host": "lab1", "archs": "80+PTX"}, jobs=3)
    return replace(
        resolve_build_plan(config, asked, host=host), cache=Cache(load_lock(), tmp_path / "cache")
    )


def needing(plan: BuildPlan, program: str) -> BuildPlan:
    """The plan for a recipe whose build starts that program."""
    recipe = plan.recipe.model_copy(update={"host_requires": (program,)})
    return replace(plan, recipe=recipe)


def inspected(plan: BuildPlan) -> Any:
    return inspect.inspect_host(plan, LiveSession(plan.host))


def examined(plan: BuildPlan) -> run.Outcome:
    return run.run_diagnosis(plan, LiveSession(plan.host))


def diagnosed(plan: BuildPlan, *, as_json: bool = False) -> run.Outcome:
    return run.run_doctor(plan, LiveSession(plan.host), as_json=as_json)


def row(ok: bool = True, error: str = "", /, **values: str) -> dict[str, Any]:
    """What a host's check of a resource says."""
    return {"ok": ok, "found": error, "values": values, "plan": "", "error": error}


#: What resources.yaml wants of a server.
SETTINGS = run.purpose_of(make_plan(Host(lambda: None), Path("/none"))).settings
LAB = Target.model_validate(
    {
        "host": "lab1",
        "recipe": "flash",
        "python": "3.11",
        "cuda": "12.8",
        "torch": "2.8.0",
        "archs": "80;90",
    }
)
PURPOSE = Purpose(
    target=LAB,
    toolset="14.44",
    jobs=4,
    build_root=r"C:\b",
    gpu=True,
    settings=SETTINGS,
)
BARE = Purpose(
    target=Target.model_validate(
        {"host": "sandbox", "recipe": "smoke", "python": "3.11", "cuda": "13.0", "archs": "80"}
    ),
    build_root=r"C:\b",
    sandbox=True,
    msvc=False,
    services=False,
    settings=tuple(s for s in SETTINGS if s.spec["kind"] in ("registry", "environment")),
)
GPU = {"name": "NVIDIA L4", "capability": "8.9", "driver": "572.61", "model": "TCC", "memory": "1"}
MEMORY, PROCESSES = "MaxMemoryPerShellMB", "MaxProcessesPerShell"
SCANNED = row(False, Defender="scans", excluded="no")
UNSCANNED = row(Defender="scans", excluded="yes")
#: What a host says on which each of them is right.
RESOURCES = {
    "long paths": row(LongPathsEnabled="1"),
    "shell memory": row(MaxMemoryPerShellMB="8192"),
    "shell processes": row(MaxProcessesPerShell="200"),
    "plugin memory": row(MaxMemoryPerShellMB="8192"),
    "page file": row(**{r"C:\pagefile.sys": "16384 65536"}),
    "build root unscanned": UNSCANNED,
    "CUDA_PATH": row(CUDA_PATH=r"C:\cuda\12.8"),
    "plugin MaxProcessesPerShell": row(MaxProcessesPerShell="200"),
}
#: A machine and a host on which nothing is wrong.
GOOD: dict[str, Any] = {
    "controller": {
        "system": "Linux 6.1, x86_64",
        "python": "3.11.2",
        "disks": {
            "cache": {"path": "/home/me/.cache", "free": 40 * GIB, "total": 90 * GIB},
            "out": {"path": "/home/me/out", "free": 40 * GIB, "total": 90 * GIB},
        },
        "git": "2.39.5",
        "lock": {
            "tools": 13,
            "unpinned": [],
            "others": ["python-3.14"],
            "error": None,
            "missing": 0,
            "missing_size": "0 B",
        },
        "wine": {"version": "wine-8.0"},
    },
    "host": {
        "skew": 0.25,
        "facts": {
            "platform": "win32",
            "windows": {"version": "10.0.20348", "build": 20348, "server": True},
            "machine": "AMD64",
            "python": "3.11.9",
            "python_bits": 64,
            "cpus": 16,
            "memory": {"total": 64 * GIB},
            "problems": {},
        },
        "machine": {
            "system": {"EditionID": "ServerStandard"},
            "wine": None,
            "cpu": {"model": "AMD EPYC 7763", "cores": 16},
            "commit": {"limit": 96 * GIB, "used": 8 * GIB},
            "job": None,
            "disks": {"C:\\b": {"path": "C:\\", "free": 200 * GIB, "total": 500 * GIB}},
            "administrator": True,
            "policies": {"smart_app_control": 0, "enforced": False, "applocker": False},
            "password": {"left": None},
            "power": {"sleep": 0, "hibernate": 0, "lid": 0},
            "problems": {},
        },
        "tools": {
            "visual_studio": [{"path": r"C:\VS", "toolsets": ["14.44.35207"]}],
            "nvcc": {"path": r"C:\cuda\12.8\bin\nvcc.exe", "version": "12.8.93"},
            "gpus": [GPU],
            "ninja": {"path": "ninja.exe", "version": "1.12.1"},
            "git": {"path": "git.exe", "version": "2.50.1"},
            "sccache": {"path": "sccache.exe", "version": "0.10.0"},
            "problems": {},
        },
        "resources": RESOURCES,
        "problems": {},
    },
}


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    """GOOD with other values; a key is a path with ``/`` between its steps."""
    facts = copy.deepcopy(GOOD)
    for key, value in changes.items():
        *above, last = key.split("/")
        place = facts
        for step in above:
            place = place[step]
        if value is GONE:
            del place[last]
        else:
            place[last] = value
    return facts


def judge(name: str, changes: dict[str, Any], purpose: Purpose = PURPOSE) -> Finding:
    """The one finding of that id (``area: id``), or title of a GPU, on GOOD with other values."""
    area, _, key = name.partition(": ")
    verdicts = diagnose_facts(changed(changes), purpose)
    (found,) = [v for v in verdicts if v.subject == area and key in (v.title, v.id)]
    return found


def names(purpose: Purpose) -> list[str]:
    return [
        f"{v.subject}: {v.title if v.subject == 'GPU' else v.id}"
        for v in diagnose_facts(GOOD, purpose)
    ]


def render(verdicts: list[Finding], width: int, purpose: Purpose | None = PURPOSE) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(findings_table(verdicts, grouped=True), soft_wrap=True)
    return console.export_text()


def test_nothing_is_wrong_where_nothing_is_wrong() -> None:
    verdicts = diagnose_facts(GOOD, PURPOSE)
    assert {v.level for v in verdicts} == {"ok"}
    assert not [v for v in verdicts if v.hint or v.command]
    assert len(verdicts) == len({(v.subject, v.title) for v in verdicts}) == 39
    assert diagnose_facts(GOOD, PURPOSE) == verdicts


def test_what_is_not_meant_to_be_there_is_not_judged() -> None:
    gone = set(names(PURPOSE)) - set(names(BARE))
    assert {name for name in gone if name.startswith("services: ")} == {
        "services: memory-of-this-shell",
        "services: shell-memory",
        "services: shell-processes",
        "services: plugin-memory",
        "services: plugin-processes",
        "services: defender",
    }
    assert {"host: rights", "host: page-file"} <= gone
    assert not set(names(BARE)) - set(names(PURPOSE))


RES = "host/resources"
LONG, PAGES = f"{RES}/long paths", f"{RES}/page file"
#: Place and quota -> where the check of it is.
QUOTAS = {
    ("shell", MEMORY): f"{RES}/shell memory",
    ("shell", PROCESSES): f"{RES}/shell processes",
    ("plugin", MEMORY): f"{RES}/plugin memory",
    ("plugin", PROCESSES): f"{RES}/plugin MaxProcessesPerShell",
}
LOCK = "controller/lock"
WHOLE = {"id": "uv", "ok": True, "found": "1 of 1 archives", "values": {"uv": "0" * 64}}
WIN, TOOLS = "host/facts/windows", "host/tools"
POWER = "host/machine/power"
STUDIO = f"{TOOLS}/visual_studio"


def quota(name: str, found: int | str) -> dict[str, Any]:
    """The check of a quota that is ``found``."""
    enough = {MEMORY: 8192, PROCESSES: 200}[name]
    return row(isinstance(found, int) and (not found or found >= enough), **{name: str(found)})


#: Verdict, facts that differ, level, what is found, and what hint or command say.
# fmt: off
CASES: list[tuple[str, dict[str, Any], str, str, str]] = [
    # -- this machine
    ("this machine: operating-system", {"controller/system": GONE}, "unknown", "not reported", ""),
    ("this machine: python", {"controller/python": 3.11}, "unknown", "not reported", ""),
    *[
        (f"this machine: disk-of-{what}", {f"controller/disks/{key}/free": free}, level, said, hint)
        for what, key, cured in (
            ("downloads", "cache", "XDG_CACHE_HOME"),
            ("runs", "out", "out in pipeline.yaml"),
        )
        for free, level, said, hint in (
            (4 * GIB, "ok", "4.0 GiB free in /home/me", ""),
            (4 * GIB - 1, "warning", "4.0 GiB free", cured),
            (1 * GIB, "warning", "1.0 GiB free", cured),
            (1 * GIB - 1, "error", "1.0 GiB free", cured),
            (-1, "unknown", "not reported", ""),
            (True, "unknown", "not reported", ""),
            (float("nan"), "unknown", "not reported", ""),
        )
    ],
    ("this machine: disk-of-runs", {"controller/disks": None}, "unknown", "not reported", ""),
    ("this machine: lock", {f"{LOCK}/unpinned": ["torch"]}, "error", "torch", "invoke lock"),
    ("this machine: lock", {f"{LOCK}/unpinned": list("abcdef")}, "error",
     "not pinned: a, b, c, d, e and 1 more", "invoke lock"),
    ("this machine: lock", {f"{LOCK}/error": "no tool 'x'"}, "error", "no tool 'x'",
     "invoke lock"),
    ("this machine: lock", {LOCK: None}, "unknown", "not reported", ""),
    ("this machine: downloads", {f"{LOCK}/missing": 3, f"{LOCK}/missing_size": "5.0 MiB"}, "ok",
     "3 files to fetch, 5.0 MiB: the network is needed once", ""),
    ("this machine: downloads", {f"{LOCK}/missing": GONE}, "unknown", "not reported", ""),
    ("tool chain: unpacked-tools", {"host/unpacked": [WHOLE, WHOLE]}, "ok",
     "2 directories, every file as it was unpacked", ""),
    ("tool chain: unpacked-tools", {"host/unpacked": [WHOLE, {**WHOLE, "ok": False}]}, "warning",
     "uv: 1 of 1 archives", "invoke provision"),
    ("tool chain: unpacked-tools", {"host/unpacked": [{**WHOLE, "doubt": "d"}]}, "unknown",
     "uv: 1 of 1 archives (invoke provision --repair does)", ""),
    ("tool chain: unpacked-tools", {"host/unpacked": [{**WHOLE, "error": "E: x"}]}, "unknown",
     "uv: 1 of 1 archives", ""),
    ("this machine: downloads", {f"{LOCK}/damaged": ["/c/a.whl"], f"{LOCK}/missing": 3}, "warning",
     "damaged on this machine: /c/a.whl", "invoke cache --prune"),
    ("this machine: downloads", {f"{LOCK}/unpinned": ["x"]}, "unknown", "until the lock", ""),
    ("this machine: downloads", {f"{LOCK}/error": "no x"}, "unknown", "until the lock", ""),
    ("this machine: git", {"controller/git": None}, "warning", "not found", INSTALL_GIT),
    ("this machine: git", {"controller/git": GONE}, "unknown", "not reported", ""),
    ("this machine: wine", {"controller/wine": {"error": "Wine is not installed",
     "hint": "Type: sudo apt-get x"}}, "error", "Wine is not installed", "Type: sudo apt-get x"),
    ("this machine: wine", {"controller/wine": {"error": "Wine does not run: no"}}, "error",
     "Wine does not run: no", "scripts/setup"),
    ("this machine: wine", {"controller/wine": {}}, "unknown", "not reported", ""),
    # -- the host
    ("host: operating-system", {}, "ok", "Windows Server 2022, build 20348, ServerStandard", ""),
    ("host: operating-system", {f"{WIN}/build": 17762}, "error", "build 17762", "Server 2022"),
    ("host: operating-system", {f"{WIN}/build": 17763}, "ok", "Windows Server 2019", ""),
    ("host: operating-system", {f"{WIN}/build": 17764}, "warning", "build 17764", "--host"),
    ("host: operating-system", {f"{WIN}/build": 19044, f"{WIN}/server": False}, "warning",
     "Windows, build 19044", "--host"),
    ("host: operating-system", {f"{WIN}/server": "yes"}, "unknown", "not reported", ""),
    ("host: operating-system", {WIN: None}, "unknown", "not reported", ""),
    ("host: operating-system", {"host/facts/platform": "linux"}, "error", "linux", "--host"),
    ("host: operating-system", {"host/machine/wine": "8.0"}, "ok",
     "Wine 8.0, as Windows 10.0.20348", ""),
    ("host: processor", {}, "ok", "16 cores, AMD EPYC 7763", ""),
    ("host: processor", {"host/facts/machine": "ARM64"}, "error", "ARM64", "--host"),
    ("host: processor", {"host/machine/cpu": None}, "ok", "16 cores, AMD64", ""),
    ("host: processor", {"host/facts/cpus": 0}, "unknown", "not reported", ""),
    ("host: python", {"host/facts/python_bits": 32}, "error", "32 bits", "64-bit Python"),
    ("host: python", {"host/facts/python_bits": None}, "unknown", "not reported", ""),
    ("host: rights", {"host/machine/administrator": False}, "warning", "no administrator",
     "LocalAccountTokenFilterPolicy"),
    ("host: rights", {"host/machine/administrator": None,
     "host/machine/problems": {"administrator": "denied"}}, "unknown", "denied", ""),
    ("host: password", {}, "ok", "never expires", ""),
    ("host: password", {LEFT: 8 * DAY}, "ok", "expires in 8 days", ""),
    ("host: password", {LEFT: 7 * DAY}, "warning", "in 7 days", "Set-LocalUser"),
    ("host: password", {"host/machine/password": None,
     "host/machine/problems": {"password": "no local"}}, "unknown", "no local", ""),
    ("host: password", {LEFT: -9.0}, "warning", "in 0 days", "give that user a new password"),
    ("host: policies", {}, "ok", "none", ""),
    ("host: policies", {SAC: 1}, "error", "Smart App", "--host"),
    ("host: policies", {SAC: 2}, "warning", "may switch", "off"),
    ("host: policies", {SAC: None}, "ok", "none", ""),
    ("host: policies", {"host/machine/policies/enforced": True}, "error", "WDAC", "allow the"),
    ("host: policies", {"host/machine/policies/applocker": True}, "warning", "AppLocker",
     "allow the build root"),
    ("host: policies", {"host/machine/policies": None}, "unknown", "not reported", ""),
    ("host: memory", {"host/facts/memory/total": 20 * GIB}, "ok", "5.0 GiB for each of 4", ""),
    ("host: memory", {"host/facts/memory/total": 20 * GIB - 1}, "warning",
     "5.0 GiB for each of 4 compile jobs", "build with --jobs 3"),
    ("host: memory", {"host/facts/memory/total": 6 * GIB}, "warning", "1.5 GiB for", "--jobs 1"),
    ("host: memory", {"host/facts/memory/total": 3 * GIB}, "warning", "0.8 GiB for", "--jobs 1"),
    ("host: memory", {"host/facts/memory/total": 3 * GIB - 1}, "error", "0.7 GiB", "--host"),
    ("host: memory", {"host/facts/memory": {}}, "unknown", "not reported", ""),
    ("host: commit-limit", {"host/machine/commit/used": 76 * GIB}, "ok", "20.0 GiB of 96.0", ""),
    ("host: commit-limit", {"host/machine/commit/used": 80 * GIB}, "warning",
     "16.0 GiB of 96.0 GiB free", "build with --jobs 3, or invoke provision"),
    ("host: commit-limit", {"host/machine/commit/used": 93 * GIB}, "warning",
     "3.0 GiB of 96.0 GiB free", "--jobs 1"),
    ("host: commit-limit", {"host/machine/commit/used": 93 * GIB + 1}, "error",
     "3.0 GiB of 96.0 GiB free", "invoke provision"),
    ("host: commit-limit", {"host/machine/commit/used": 200 * GIB}, "error",
     "0.0 GiB of 96.0 GiB free", "invoke provision"),
    ("host: commit-limit", {"host/machine/commit": None}, "unknown", "not reported", ""),
    ("host: page-file", {PAGES: row(False)}, "warning", "none",
     r'/v PagingFiles /t REG_MULTI_SZ /d "C:\pagefile.sys 16384 65536" /f'),
    ("host: page-file", {PAGES: row(False, **{"": ""})}, "warning", "none", "invoke provision"),
    ("host: page-file", {PAGES: row(False, **{r"?:\pagefile.sys": ""})}, "ok", r"?:\page", ""),
    ("host: page-file", {PAGES: row(False, "PermissionError: no")}, "unknown",
     "PermissionError: no", ""),
    ("host: disk-of-builds", {"host/machine/disks/C:\\b/free": 30 * GIB}, "ok", "30.0 GiB", ""),
    ("host: disk-of-builds", {"host/machine/disks/C:\\b/free": 30 * GIB - 1}, "warning",
     r"30.0 GiB free for C:\b", "invoke cache --prune --days 1"),
    ("host: disk-of-builds", {"host/machine/disks/C:\\b/free": 10 * GIB}, "warning", "10.0",
     "--prune"),
    ("host: disk-of-builds", {"host/machine/disks/C:\\b/free": 1}, "error", "0.0 GiB", "--prune"),
    ("host: disk-of-builds",
     {"host/machine/disks": {"problems": {"C:\\b": "OSError: no such drive"}, "C:\\b": None}},
     "unknown", "OSError: no such drive", ""),
    ("host: clock", {"host/skew": 60.0}, "ok", "60.0 s off this machine's", ""),
    ("host: clock", {"host/skew": -60}, "ok", "60.0 s off this machine's", ""),
    ("host: clock", {"host/skew": 60.6}, "warning", "61 s ahead", "w32tm /resync /force"),
    ("host: clock", {"host/skew": -300.0}, "warning", "300 s behind", "w32tm"),
    ("host: clock", {"host/skew": -301.0}, "error", "301 s behind: Kerberos refuses", "w32tm"),
    ("host: clock", {"host/skew": float("inf")}, "unknown", "not reported", ""),
    ("host: clock", {"host/skew": 10**400}, "unknown", "not reported", ""),
    ("host: clock", {"host/skew": None}, "unknown", "not reported", ""),
    ("host: sleep", {f"{POWER}/sleep": 1800}, "warning", "sleeps after 30 min", "standby-timeout"),
    ("host: sleep", {f"{POWER}/hibernate": 10800}, "warning", "hibernates after 180", "hibernate"),
    ("host: sleep", {f"{POWER}/lid": 1}, "warning", "a closed lid sends it to sleep", "LIDACTION"),
    ("host: sleep", {f"{POWER}/lid": 7}, "unknown", "not reported", ""),
    ("host: sleep", {f"{POWER}/sleep": None}, "unknown", "not reported", ""),
    ("host: sleep", {POWER: None}, "unknown", "not reported", ""),
    # -- paths
    ("paths: long-paths", {LONG: row(False)}, "warning", "off",
     r"reg add HKLM\SYSTEM\CurrentControlSet\Control\FileSystem /v LongPathsEnabled /t REG_DWORD "
     "/d 1 /f"),
    ("paths: long-paths", {LONG: row() | {"ok": 1}}, "unknown", "not reported", ""),
    ("paths: long-paths", {LONG: row(False, "OSError: gone")}, "unknown", "OSError: gone", ""),
    # -- tool chain
    ("tool chain: msvc-toolset", {STUDIO: []}, "warning", "not there yet", "invoke provision"),
    ("tool chain: build-tools", {f"{TOOLS}/unreached": ["aka.ms", 7]}, "warning",
     "no connection to aka.ms", "layout"),
    ("tool chain: msvc-toolset", {STUDIO: [{"toolsets": ["14.38.33130", "nonsense", 14]},
     {"toolsets": ["14.44.35207"]}, 7]}, "ok", "14.44.35207 (also 14.38.33130)", ""),
    ("tool chain: msvc-toolset", {STUDIO: [{"toolsets": ["14.50.35717", "14.44.35207"]}]}, "ok",
     "14.44.35207 (also 14.50.35717)", ""),
    ("tool chain: msvc-toolset", {STUDIO: [{"toolsets": ["14.50.35717"]}]}, "error",
     "14.50.35717: crt/host_config.h of CUDA 12.4 to 13.1 refuses", "-vcvars_ver=14.44"),
    ("tool chain: msvc-toolset", {STUDIO: None,
     f"{TOOLS}/problems": {"visual_studio": "OSError: vswhere exited with 1"}}, "unknown",
     "OSError: vswhere exited with 1", ""),
    ("tool chain: cuda-compiler", {f"{TOOLS}/nvcc": None}, "warning", "not there yet", "invoke p"),
    ("tool chain: cuda-compiler", {f"{TOOLS}/nvcc/version": "12.80.1"}, "warning", "nvcc 12.80.1",
     "invoke provision"),
    ("tool chain: cuda-compiler", {f"{TOOLS}/nvcc/version": None}, "unknown", "no version", ""),
    ("tool chain: what-goes-with-what", {}, "ok",
     "CUDA 12.8.93, Python 3.11.9, MSVC 14.44.35207, torch 2.8.0: no rule against it", ""),
    ("tool chain: what-goes-with-what", {"host/facts/python": "three"}, "unknown",
     "not known: python", ""),
    # Before anything is there, what provisioning will bring is judged.
    ("tool chain: what-goes-with-what", {STUDIO: []}, "ok", "MSVC 14.44, torch", ""),
    ("tool chain: host-python", {"host/facts/python": "3.9.1"}, "error", "3.10 or newer", "3.11"),
    ("tool chain: ninja", {f"{TOOLS}/ninja/version": "1.11.1"}, "warning", "1.11.1: it", "invoke"),
    ("tool chain: ninja", {f"{TOOLS}/ninja/version": "1.12"}, "ok", "1.12", ""),
    ("tool chain: ninja", {f"{TOOLS}/ninja": None}, "warning", "not there yet",
     "invoke provision"),
    ("tool chain: git", {f"{TOOLS}/git": None}, "warning", "not there yet", "invoke provision"),
    ("tool chain: git", {f"{TOOLS}/git": []}, "unknown", "not reported", ""),
    ("tool chain: sccache", {f"{TOOLS}/sccache": GONE}, "unknown", "not reported", ""),
    # -- GPU
    ("GPU: gpu", {f"{TOOLS}/gpus": None}, "error", "none found", "install NVIDIA's driver there"),
    ("GPU: gpu", {f"{TOOLS}/gpus": []}, "error", "none found", "gpu: false in pipeline.yaml"),
    ("GPU: gpu", {f"{TOOLS}/gpus": GONE}, "unknown", "not reported", ""),
    ("GPU: gpu", {f"{TOOLS}/gpus": None,
     f"{TOOLS}/problems": {"gpus": "OSError: nvidia-smi exited with 9: no driver"}}, "error",
     "nvidia-smi exited with 9: no driver", "nvidia-smi"),
    ("GPU: GPU 0,1,2", {f"{TOOLS}/gpus": [GPU, GPU, GPU]}, "ok", "NVIDIA L4", ""),
    ("GPU: GPU 0,2", {f"{TOOLS}/gpus": [GPU, GPU | {"name": "T4"}, GPU]}, "ok", "NVIDIA L4", ""),
    ("GPU: GPU 1", {f"{TOOLS}/gpus": [GPU, GPU | {"name": None}]}, "unknown", "no name", ""),
    ("GPU: GPU 0 capability", {}, "ok", "8.9, which 80;90 covers", ""),
    ("GPU: GPU 0 capability", {f"{TOOLS}/gpus": [GPU | {"capability": "12.0"}]}, "error",
     "12.0, for which no SASS is built; the wheel does not run on it",
     "build with --archs '80;90;120'"),
    ("GPU: GPU 0 capability", {f"{TOOLS}/gpus": [GPU | {"capability": "3.5"}]}, "warning",
     "3.5, for which CUDA 12.8 does not compile", "--host"),
    ("GPU: GPU 0 capability", {f"{TOOLS}/gpus": [GPU | {"capability": "[N/A]"}]}, "unknown",
     "[N/A]", ""),
    ("GPU: GPU 0 driver", {f"{TOOLS}/gpus": [GPU | {"driver": "570.65"}]}, "ok", "570.65", ""),
    ("GPU: GPU 0 driver", {f"{TOOLS}/gpus": [GPU | {"driver": "570.64"}]}, "warning",
     "570.64 is older than CUDA 12.8", "install a driver from 570.65 on"),
    ("GPU: GPU 0 driver", {f"{TOOLS}/gpus": [GPU | {"driver": "528.32"}]}, "error",
     "528.32: programs of CUDA 12 need the driver 528.33", "528.33"),
    ("GPU: GPU 0 driver", {f"{TOOLS}/gpus": [GPU | {"driver": 5}]}, "unknown", "not reported", ""),
    ("GPU: GPU 0 driver", {f"{TOOLS}/gpus": [GPU | {"driver": "470.1", "model": BRIDGED}]}, "ok",
     "470.1 of Linux, whose CUDA the host's own rules judge", ""),
    ("GPU: GPU 0 driver model", {f"{TOOLS}/gpus": [GPU | {"model": BRIDGED}]}, "ok",
     "Linux, through a bridge: what Windows' own driver does is not shown there", ""),
    ("GPU: GPU 0 driver model", {}, "ok", "TCC: for computing only; it has no memory pools", ""),
    ("GPU: GPU 0 driver model", {f"{TOOLS}/gpus": [GPU | {"model": "WDDM"}]}, "ok",
     "WDDM: also draws; Windows resets it", ""),
    ("GPU: GPU 0 driver model", {f"{TOOLS}/gpus": [GPU | {"model": "MCDM"}]}, "ok", "MCDM: for",
     ""),
    ("GPU: GPU 0 driver model", {f"{TOOLS}/gpus": [GPU | {"model": "N/A"}]}, "unknown", "N/A", ""),
    ("GPU: GPU 0 driver model", {f"{TOOLS}/gpus": [{}]}, "unknown", "not reported", ""),
    # -- services
    *[
        (f"services: {place}-{what}", {QUOTAS[place, name]: quota(name, found)}, level, said, hint)
        for place, where in (
            ("shell", r"WSMan:\localhost\Shell"),
            ("plugin", r"WSMan:\localhost\Plugin\microsoft.powershell\Quotas"),
        )
        for what, name, found, level, said, hint in (
            ("memory", MEMORY, 8191, "warning", "MB = 8191", rf"{where}\{MEMORY} 8192"),
            ("memory", MEMORY, 3072, "warning", "MB = 3072", "powershell -Command"),
            ("memory", MEMORY, 3071, "error", "MB = 3071", rf"{where}\{MEMORY} 8192; Restart-S"),
            ("memory", MEMORY, 0, "ok", "= 0: no limit", ""),
            ("memory", MEMORY, 2147483647, "ok", "= 2147483647", ""),
            ("memory", MEMORY, "many", "unknown", "not reported", ""),
            ("processes", PROCESSES, 199, "warning", "= 199", rf"{where}\{PROCESSES} 200"),
            ("processes", PROCESSES, 25, "warning", "= 25", "ends the sessions of others"),
            ("processes", PROCESSES, 24, "error", "= 24", rf"{where}\{PROCESSES} 200"),
        )
    ],
    ("services: shell-memory", {QUOTAS["shell", MEMORY]: row(False)}, "unknown",
     f"{MEMORY} is not set: Windows'", ""),
    ("services: plugin-memory", {QUOTAS["plugin", MEMORY]: row(False)}, "unknown",
     "Windows' default applies", ""),
    ("services: plugin-memory", {QUOTAS["plugin", MEMORY]: None}, "unknown", "not reported", ""),
    ("services: plugin-processes",
     {QUOTAS["plugin", PROCESSES]: row(False, "PermissionError: no")}, "unknown",
     "PermissionError: no", ""),
    ("services: memory-of-this-shell", {}, "ok", "not in a job object", ""),
    *[
        ("services: memory-of-this-shell", {"host/machine/job": job}, level, said, hint)
        for job, level, said, hint in (
            ({"memory": None, "processes": 25}, "ok", "no limit", ""),
            ({"memory": 8 * GIB}, "ok", "8.0 GiB", ""),
            ({"memory": 8 * GIB - 1}, "warning", "8.0 GiB", "invoke provision"),
            ({"memory": 1 * GIB}, "error", "1.0 GiB", r"Shell\MaxMemoryPerShellMB 8192"),
            ({}, "unknown", "not reported", ""),
            ("none", "unknown", "not reported", ""),
        )
    ],
    ("services: defender", {}, "ok", r"scans, but not C:\b", ""),
    ("services: defender", {f"{RES}/build root unscanned": row(False, Defender="not installed",
     excluded="no")}, "ok", "not installed", ""),
    ("services: defender", {f"{RES}/build root unscanned": row(False, Defender="off",
     excluded="no")}, "ok", "does not scan", ""),
    ("services: defender", {f"{RES}/build root unscanned": row(False, Defender="rests")},
     "unknown", "not reported", ""),
    ("services: defender", {f"{RES}/build root unscanned": SCANNED}, "warning",
     r"scans C:\b", r'powershell -Command "Add-MpPreference -ExclusionPath C:\b"'),
    ("services: defender", {f"{RES}/build root unscanned": row(False, Defender="scans")
     | {"found": "PermissionError: 5"}}, "unknown",
     "scans; what it leaves out is not known: PermissionError: 5", ""),
    ("services: defender", {RES: None, "host/problems": {"resources": "RemoteError: no"}},
     "unknown", "RemoteError: no", ""),
]
# fmt: on


@pytest.mark.parametrize(
    ("name", "changes", "level", "found", "hint"),
    CASES,
    ids=[f"{name}={level}-{number}" for number, (name, _, level, _, _) in enumerate(CASES)],
)
def test_verdicts(name: str, changes: dict[str, Any], level: str, found: str, hint: str) -> None:
    verdict = judge(name, changes)
    assert verdict.level == level
    assert found in verdict.actual
    assert hint in f"{verdict.hint}\n{verdict.command}"
    assert bool(verdict.hint) == (level in ("warning", "error"))
    if verdict.command:
        assert "on the host as administrator" in verdict.hint


def test_every_verdict_has_a_case() -> None:
    plain = {"paths: build-root", "paths: path-budget", "GPU: GPU 0"}
    assert set(names(PURPOSE)) - {name for name, *_ in CASES} == plain


@pytest.mark.parametrize(
    ("root", "long_paths", "level", "found"),
    [
        (r"C:\b", False, "ok", "about 217 characters"),
        ("C:\\" + "a" * 43, False, "ok", "about 259 characters"),
        (
            "C:\\" + "a" * 44,
            False,
            "error",
            "about 260 characters for the longest path of the build",
        ),
        ("C:\\" + "a" * 44, True, "warning", "long paths are on, but cl.exe may not take them"),
        ("C:\\" + "a" * 44, None, "warning", "long paths are perhaps on, but cl.exe"),
    ],
)
def test_the_path_budget(root: str, long_paths: bool | None, level: str, found: str) -> None:
    purpose = with_purpose(build_root=root)
    changes = {LONG: row(bool(long_paths)) | {"ok": long_paths}}
    verdict = judge("paths: path-budget", changes, purpose)
    assert (verdict.level, found in verdict.actual) == (level, True)
    if level != "ok":
        assert (
            verdict.hint
            == r"set layout.build_root in pipelines/plan/provisioning/resources.yaml to C:\b"
        )
        assert verdict.source.startswith("https://github.com/ninja-build/ninja/")
    root_verdict = judge("paths: build-root", {}, purpose)
    assert root_verdict.level == ("ok" if len(root) <= 8 else "warning")
    assert f"{len(root) + 13} characters" in root_verdict.actual


@pytest.mark.parametrize(("longest", "level"), [(259, "ok"), (260, "error")])
def test_a_source_tree_that_is_here_is_measured(longest: int, level: str) -> None:
    changes = {LONG: row(False)}
    verdict = judge("paths: path-budget", changes, with_purpose(longest=longest))
    assert verdict.level == level
    assert verdict.actual.startswith(f"{longest} characters")


def test_nothing_is_provisioned_into_an_existing_environment() -> None:
    """Build Tools are an error with a command; other programs are not expected there."""
    purpose = with_purpose(existing=True, build_root=r"C:\far\too\long")
    verdict = judge("tool chain: msvc-toolset", {STUDIO: []}, purpose)
    assert (verdict.level, verdict.command.split()[:2]) == ("error", ["winget", "install"])
    programs = {"ninja", "git", "sccache"}
    findings = diagnose_facts(changed({f"{TOOLS}/{name}": None for name in programs}), purpose)
    found = {each.id: each for each in findings if each.subject in ("paths", "tool chain")}
    assert not programs & set(found)
    assert found["build-root"].level == "warning"
    assert "pipeline.yaml" in found["build-root"].hint


def test_a_linux_is_not_judged_as_a_windows() -> None:
    verdicts = diagnose_facts(
        changed({"host/facts/platform": "linux"}), with_purpose(windows=False)
    )
    found = {f"{v.subject}: {v.id}" for v in verdicts}
    assert not {name for name in found if name.startswith("paths: ")}
    assert not {"host: operating-system", "host: commit-limit", "tool chain: msvc-toolset"} & found
    assert {"host: memory", "tool chain: cuda-compiler"} <= found


def with_purpose(**changes: Any) -> Purpose:
    axes = {name: changes.pop(name) for name in [*changes] if name in AXES}
    return replace(PURPOSE, target=Target.model_validate(LAB.values() | axes), **changes)


@pytest.mark.parametrize(
    ("changes", "facts", "rule", "level", "found"),
    [
        ({"cuda": "13.2"}, {}, "zc-preprocessor", "warning", "traditional preprocessor"),
        ({"cuda": "13.0"}, {}, "align-c2719", "warning", "CUtensorMap"),
        ({"torch": "2.13.0"}, {}, "torch-cxx20", "warning", "C++20"),
        ({"archs": "80;100a;120"}, {"nvcc": None}, None, "", ""),
        ({"cuda": "12.6", "archs": "80;90"}, {}, "ptxas-sm90", "warning", "sm_90: ptxas"),
        (
            {"cuda": "12.6", "archs": "80;100a;120+PTX"},
            {},
            "blackwell-cuda",
            "error",
            "sm_100a, sm_120: CUDA before 12.8 does not compile for Blackwell",
        ),
    ],
)
def test_rules_name_their_source(
    changes: dict[str, Any], facts: dict[str, Any], rule: str | None, level: str, found: str
) -> None:
    by_id = {rule.id: rule for rule in load_compat().rules}
    verdicts = diagnose_facts(
        changed({f"{TOOLS}/{key}": value for key, value in facts.items()}), with_purpose(**changes)
    )
    broken = [v for v in verdicts if v.id in by_id]
    assert rule in [v.id for v in broken] if rule else not broken
    for verdict in broken:
        assert verdict.source == by_id[verdict.id].source
        assert verdict.hint == by_id[verdict.id].hint
        assert (verdict.level, verdict.actual) != ("ok", "")
    if rule:
        (verdict,) = [v for v in broken if v.id == rule]
        assert (verdict.level, found in verdict.actual) == (level, True)
        assert not [v for v in verdicts if v.id == "what-goes-with-what"]


@pytest.mark.parametrize(("driver", "level"), [("580.88", "warning"), ("595.10", "ok")])
def test_a_driver_is_held_against_a_minor_release_of_cuda_13(driver: str, level: str) -> None:
    """580 runs machine code of 13.2, and does not compile its PTX."""
    facts = changed({f"{TOOLS}/gpus": [GPU | {"driver": driver}]})
    (one,) = [
        v for v in diagnose_facts(facts, with_purpose(cuda="13.2")) if v.title == "GPU 0 driver"
    ]
    assert one.level == level
    assert ("595" in one.hint) == (level == "warning")


def test_rules_that_were_confirmed_long_ago_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Server 2019 with CUDA 12.8; the row of torch's own release was confirmed before."""
    (rule,) = (rule for rule in load_compat().rules if rule.id == "server-2019")
    facts = changed({f"{WIN}/build": 17763, f"{WIN}/version": "10.0.17763"})
    compat = load_compat()
    tables = (load_gpu_table(), toolkit.load_cuda_table(), compat.drivers, compat.builds)
    rows = (rule, load_torches()["2.8"], *tables)
    for days, marked in ((0, set()), (92, {row.source for row in rows})):
        today = rule.date + timedelta(days=days)
        monkeypatch.setattr(model, "current_date", lambda today=today: today)
        verdicts = diagnose_facts(facts, PURPOSE)
        assert {v.source for v in verdicts if v.id == "row-old"} == marked
        assert [v.level for v in verdicts if v.id == rule.id] == ["warning"]


def test_a_toolset_that_does_not_fit_is_told_once() -> None:
    verdicts = diagnose_facts(
        changed({STUDIO: [{"toolsets": ["14.44.1"]}]}), with_purpose(cuda="12.1")
    )
    errors = [v for v in verdicts if v.subject == "tool chain" and v.level == "error"]
    assert [v.id for v in errors] == ["msvc-toolset"]
    assert errors[0].source == "https://github.com/ggml-org/llama.cpp/issues/8628"
    assert "vcvars_ver=14.38" in errors[0].hint


@pytest.mark.parametrize(
    ("archs", "gpu", "wanted", "level", "found"),
    [
        ("80", "8.0", True, "ok", "8.0, which 80 covers"),
        ("86", "8.0", True, "error", "the wheel does not run on it"),
        ("86", "8.0", False, "warning", "the wheel does not run on it"),
        ("80+PTX", "9.0", True, "warning", "the driver compiles the PTX"),
        ("80;90a+PTX", "12.0", True, "error", "the wheel does not run on it"),
        ("90a", "9.0", True, "ok", "which 90a covers"),
        ("compute_80", "8.9", True, "warning", "the driver compiles the PTX"),
    ],
)
def test_which_gpus_a_wheel_runs_on(
    archs: str, gpu: str, wanted: bool, level: str, found: str
) -> None:
    facts = {f"{TOOLS}/gpus": [GPU | {"capability": gpu}]}
    verdict = judge("GPU: GPU 0 capability", facts, with_purpose(archs=archs, gpu=wanted))
    assert (verdict.level, found in verdict.actual) == (level, True)


def test_a_gpu_by_a_number_that_is_not_there() -> None:
    purpose = with_purpose(gpu_asked="gpu: [0, 2]", gpu_numbers=(0, 2))
    two, three = ({f"{TOOLS}/gpus": [GPU] * count} for count in (2, 3))
    (verdict,) = [v for v in diagnose_facts(changed(two), purpose) if v.title == "GPU"]
    assert (verdict.level, verdict.actual) == ("error", "there is no GPU 2, the last is 1")
    assert "gpu: [0, 2]" in verdict.expected
    names = [v.title for v in diagnose_facts(changed(three), purpose) if v.subject == "GPU"]
    assert "GPU" not in names
    assert {"GPU 0,2", "GPU 0,2 driver"} <= {*names}, "no word of the one that is not to be used"


def test_without_a_gpu_where_none_is_wanted() -> None:
    verdict = judge("GPU: gpu", {f"{TOOLS}/gpus": None}, with_purpose(gpu=False))
    assert (verdict.level, verdict.hint) == ("ok", "")


def test_thresholds_of_a_sandbox_are_its_own() -> None:
    disk = "host/machine/disks/C:\\b/free"
    assert judge("host: disk-of-builds", {disk: 4 * GIB}, BARE).level == "ok"
    verdict = judge("host: disk-of-builds", {disk: 2 * GIB - 1}, BARE)
    assert (verdict.level, verdict.command) == ("error", "")
    tight = {"host/machine/commit": {"limit": 8 * GIB, "used": 6 * GIB}}
    verdict = judge("host: commit-limit", tight, BARE)
    assert (verdict.level, verdict.hint) == ("error", "end other programs on that machine")


def test_only_what_is_wanted_is_what_provision_cures() -> None:
    """Of a quota that nothing raises, at the other place, the wanted value is the same."""
    low = {QUOTAS[place, PROCESSES]: quota(PROCESSES, 15) for place in ("shell", "plugin")}
    shell, plugin = (judge(f"services: {place}-processes", low) for place in ("shell", "plugin"))
    assert shell.hint.startswith("invoke provision, or on the")
    assert plugin.hint.startswith("on the")
    assert shell.expected == plugin.expected == "200 or more"


def test_wanted_values_stand_in_one_file() -> None:
    """Other ones there are other ones in hints, and in what is enough."""
    changes: dict[str, dict[str, Any]] = {
        "long paths": {"value": 2},
        "shell memory": {"at_least": 4096},
        "page file": {"initial_mb": 7, "maximum_mb": 9},
    }
    settings = tuple(
        replace(setting, spec={**setting.spec, **changes.get(setting.id, {})})
        for setting in SETTINGS
    )
    purpose = with_purpose(settings=settings)
    long = judge("paths: long-paths", {LONG: row(False)}, purpose)
    assert long.command.endswith("/d 2 /f")
    assert long.expected == "LongPathsEnabled = 2"
    assert (
        r'"C:\pagefile.sys 7 9"' in judge("host: page-file", {PAGES: row(False)}, purpose).command
    )
    found = judge("services: shell-memory", {QUOTAS["shell", MEMORY]: quota(MEMORY, 1)}, purpose)
    assert found.expected == "4096 or more"
    job = {"host/machine/job": {"memory": 4 * GIB}}
    assert judge("services: memory-of-this-shell", job, purpose).level == "ok"


@pytest.mark.parametrize(
    ("provisioned", "reply", "level", "found", "hint"),
    [
        (False, row(git=r"C:\g\git.exe", cargo="x"), "ok", r"C:\g\git.exe; x", ""),
        (False, row(False, git="x"), "error", "not there: cargo", "install cargo on that machine"),
        (True, row(False), "warning", "not there yet: git, cargo", "invoke provision"),
        (False, row(False, "OSError: no"), "unknown", "OSError: no", ""),
        (False, None, "unknown", "not reported", ""),
    ],
)
def test_programs_that_the_build_starts(
    provisioned: bool, reply: Any, level: str, found: str, hint: str
) -> None:
    spec = {"kind": "commands", "names": ["git", "cargo"], "places": []}
    purpose = with_purpose(settings=(*SETTINGS, Setting("programs", spec, provisioned)))
    verdict = judge("tool chain: programs-of-the-build", {f"{RES}/programs": reply}, purpose)
    assert (verdict.level, verdict.actual) == (level, found)
    assert hint in verdict.hint
    assert verdict.expected in ("", "git, cargo")


def test_a_host_that_cannot_be_reached_leaves_this_machines_verdicts() -> None:
    facts = {"controller": GOOD["controller"], "host": {"error": "no\x1b[31m route", "hint": ""}}
    *ours, last = diagnose_facts(facts, PURPOSE)
    assert ours == diagnose_facts(GOOD)
    assert (last.level, last.actual) == ("error", "no route")
    assert last.expected == "a session with lab1"
    assert "pipeline.yaml" in last.hint
    facts["host"]["hint"] = "Check the cable."
    assert diagnose_facts(facts, PURPOSE)[-1].hint == "Check the cable."


# -- hostile facts ---------------------------------------------------------------------------------

HOSTILE = [
    "\x1b[2Jgone\r\n::error::forged",
    "\x9b31m\u202egnp.exe\x00",
    "[bold red]markup[/nothing]",
    "\ud800 lone",
    "9" * 5000,
    "a" * 1_000_000,
    "\x1b" * 1_000_000,
]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**400, -(10**400), 1 << 63, (1 << 63) + 1])
    | st.floats()
    | st.text(max_size=30)
    | st.sampled_from(HOSTILE),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def steps(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in ``tree``."""
    if path:
        yield path
    if isinstance(tree, dict | list):
        for key in tree if isinstance(tree, dict) else range(len(tree)):
            yield from steps(tree[key], (*path, key))


PLACES = list(steps(GOOD))


def assert_harmless(facts: Any) -> None:
    verdicts = diagnose_facts(facts, PURPOSE)
    for verdict in verdicts:
        assert verdict.level in LEVELS
        assert len(verdict.actual) <= 410
        assert not CONTROL.search(verdict.actual)
        assert bool(verdict.hint) >= (verdict.level in ("warning", "error"))
    text = render(verdicts, 80)
    assert not CONTROL.search(text.replace("\n", ""))
    dumped = json.dumps(report.as_json(verdicts, PURPOSE), allow_nan=False, ensure_ascii=False)
    assert dumped.encode(), "no halves of surrogate pairs"
    assert json.loads(dumped)["level"] == worst_level(v.level for v in verdicts)


@given(JSON, JSON)
@settings(max_examples=30, deadline=None)
def test_any_json_is_judged(ours: Any, host: Any) -> None:
    assert_harmless({"controller": ours, "host": host})


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(PLACES), JSON, min_size=1, max_size=6))
@settings(max_examples=70, deadline=None)
def test_any_lie_in_good_facts_is_judged(lies: dict[tuple[Any, ...], Any]) -> None:
    facts = copy.deepcopy(GOOD)
    for place in sorted(lies, key=len, reverse=True):  # what lies deeper first
        tree: Any = facts
        for step in place[:-1]:
            tree = tree[step]
        tree[place[-1]] = lies[place]
    assert_harmless(facts)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_everywhere(text: str) -> None:
    def poison(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {key: poison(value) for key, value in tree.items()}
        return [poison(value) for value in tree] if isinstance(tree, list) else text

    assert_harmless({"controller": GOOD["controller"], "host": poison(GOOD["host"])})
    for name in list(GOOD["host"]):
        problems = {**dict.fromkeys(GOOD["host"][name] if name != "skew" else (), text)}
        assert_harmless(changed({f"host/{name}": {"problems": problems}}))


def test_no_cure_is_made_from_a_hosts_words() -> None:
    def poison(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {key: poison(value) for key, value in tree.items()}
        return [poison(value) for value in tree] if isinstance(tree, list) else "EVIL & del C:"

    places = [place for place in PLACES if place[0] == "host" and len(place) > 1]
    for place in places:
        facts = copy.deepcopy(GOOD)
        tree: Any = facts
        for step in place[:-1]:
            tree = tree[step]
        tree[place[-1]] = poison(tree[place[-1]])
        for verdict in diagnose_facts(facts, PURPOSE):
            assert "EVIL" not in verdict.hint + verdict.command + verdict.source + verdict.expected


def test_numbers_that_are_none() -> None:
    for value in (True, "1", None, float("nan"), float("inf"), 10**400, 1e300, [1]):
        assert Facts({"n": value}).signed("n") is None
    assert Facts({"n": -2}).signed("n") == -2.0
    assert Facts({"n": -2}).number("n") is None


# -- how it looks ----------------------------------------------------------------------------------

SICK = {
    "controller/git": None,
    "controller/disks/cache/free": 2 * GIB,
    "host/skew": -412.0,
    "host/facts/memory/total": 16 * GIB,
    "host/machine/commit": {"limit": 18 * GIB, "used": 6 * GIB},
    PAGES: row(False),
    LONG: row(False),
    "host/machine/administrator": None,
    QUOTAS["shell", MEMORY]: quota(MEMORY, 1024),
    QUOTAS["shell", PROCESSES]: quota(PROCESSES, 25),
    f"{RES}/build root unscanned": SCANNED,
    f"{TOOLS}/gpus": [GPU | {"driver": "528.02", "capability": "12.0", "model": "WDDM"}],
    f"{TOOLS}/ninja": None,
}


@pytest.mark.parametrize("width", [80, 100])
def test_the_table_breaks_no_word(width: int) -> None:
    verdicts = diagnose_facts(changed(SICK), with_purpose(torch="2.13.0"))
    text = render(verdicts, width)
    lines = text.splitlines()
    whole = {v.command for v in verdicts} | {v.source for v in verdicts}
    for line in lines:
        assert len(line) <= width or line.strip() in whole
    words = set(text.split())
    texts = [f"{v.subject} {v.title} {v.text} {v.hint}:" for v in verdicts]
    said = " ".join([*texts, *whole, *(v.hint for v in verdicts)])
    assert words <= {
        *said.split(),
        *"✓!✗?→",
    }
    for area in dict.fromkeys(v.subject for v in verdicts):
        assert lines.count(area) == 1
    marks = [line[0] for line in lines if line[:3] in ("✓  ", "!  ", "✗  ", "?  ")]
    assert marks == [
        {"ok": "✓", "warning": "!", "error": "✗", "unknown": "?"}[v.level]
        for v in sorted(
            verdicts,
            key=lambda v: list(dict.fromkeys(w.subject for w in verdicts)).index(v.subject),
        )
    ]


def test_a_host_gives_githubs_runner_no_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner takes a command from any line that begins with ``::``, blanks or not."""
    monkeypatch.setattr(github, "in_ci", True)
    for padding in range(60):
        model = "x" * padding + "::error::forged ##[error]forged"
        text = render([judge("host: processor", {"host/machine/cpu/model": model})], 40)
        assert "forged" in text
        assert not re.search(r"::|##\[", text)


def test_only_what_is_not_well_has_a_cure() -> None:
    verdicts = diagnose_facts(changed({LONG: row(False)}), PURPOSE)
    text = render(verdicts, 80)
    (at,) = [n for n, line in enumerate(text.splitlines()) if line.startswith("!  long paths")]
    lines = text.splitlines()
    assert "off (expected LongPathsEnabled = 1)" in lines[at]
    assert lines[at + 1].rstrip() == (
        "   → invoke provision, or on the host as administrator (then restart it):"
    )
    (command,) = [v.command for v in verdicts if v.command]
    assert lines[at + 2] == f"     {command}"
    assert text.count("→") == 1
    assert "wanted" not in text.replace(lines[at], "")
    assert "https://" not in render(diagnose_facts(GOOD, PURPOSE), 80)


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        (["ok"] * 12 + ["warning"] * 2 + ["error"], "12 ok, 2 warnings, 1 error"),
        (["ok", "warning", "error", "error"], "1 ok, 1 warning, 2 errors"),
        (["unknown"] * 3, "0 ok, 0 warnings, 0 errors, 3 not known"),
    ],
)
def test_the_summary(levels: list[Any], said: str) -> None:
    assert report.summary([make_finding("a", "n", level, "f") for level in levels]) == said


def test_json_says_all() -> None:
    verdicts = diagnose_facts(changed(SICK), PURPOSE)
    document: Any = report.as_json(verdicts, PURPOSE)
    assert list(document) == ["schema", "host", "order", "level", "summary", "findings"]
    assert (document["schema"], document["host"], document["level"]) == (2, "lab1", "error")
    assert document["order"]["archs"] == "80;90"
    assert sum(document["summary"].values()) == len(document["findings"]) == len(verdicts)
    for row, verdict in zip(document["findings"], verdicts, strict=True):
        assert Finding(**row) == verdict


# -- gathering -------------------------------------------------------------------------------------


class Answers:
    """A session whose host answers from GOOD; a value that is an exception is raised."""

    def __init__(self, **changes: Any) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        host = GOOD["host"]
        self.answers: dict[str, Any] = {
            "rpc.ping": time.time,
            "facts.facts": host["facts"],
            "inspection.machine.machine": host["machine"],
            "inspection.tools.tools": host["tools"],
            "provision.check_all": self.check_all,
        } | {name.replace("__", "."): value for name, value in changes.items()}

    def call(self, asked: Callable[..., object], /, **arguments: Any) -> Any:
        function = rpc.name_of(asked)
        self.calls.append((function, arguments))
        answer = self.answers[function]
        if isinstance(answer, Exception):
            raise answer
        return answer(**arguments) if callable(answer) else answer

    def check_all(self, specs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if any(spec["kind"] == "archive" for spec in specs):
            return [{**row(), "values": {}} for _ in specs]
        return list(GOOD["host"]["resources"].values())


def test_what_a_host_is_asked(tmp_path: Path) -> None:
    session = Answers()
    plan = make_plan(Host(lambda: session), tmp_path)
    found: Any = inspected(plan)
    assert found["problems"] == {}
    assert {key: found[key] for key in ("facts", "machine", "tools", "resources")} == {
        key: GOOD["host"][key] for key in ("facts", "machine", "tools", "resources")
    }
    assert abs(found["skew"]) < 1
    unpacked = {one.id for one in plan.wanted if one.spec["kind"] == "archive"}
    assert {one["id"] for one in found["unpacked"]} == unpacked >= {"Python", "CUDA toolkit"}
    asked = dict(session.calls)
    assert asked["inspection.machine.machine"] == {"paths": [r"C:\b", r"C:\t"]}
    assert asked["provision.check_all"] == {"specs": [setting.spec for setting in SETTINGS]}
    tools = asked["inspection.tools.tools"]
    assert tools["cuda"] == r"C:\cuda\13.0"
    assert tools["servers"] == ("aka.ms", "download.visualstudio.microsoft.com")
    assert tools["programs"] == {
        "ninja": [r"C:\tools\ninja"],
        "git": [r"C:\tools\git\cmd"],
        "sccache": [r"C:\tools\sccache"],
    }


def test_a_host_without_services_is_not_asked_for_them(tmp_path: Path) -> None:
    session = Answers()
    inspected(make_plan(Host(lambda: session, services=False), tmp_path))
    kinds = {spec["kind"] for spec in dict(session.calls)["provision.check_all"]["specs"]}
    assert kinds == {"registry", "environment"}


def test_parts_that_fail_leave_the_others(tmp_path: Path) -> None:
    session = Answers(
        rpc__ping="noon",
        facts__facts=RemoteError("MemoryError: no memory"),
        provision__check_all=OSError("odd"),
    )
    found: Any = inspected(make_plan(Host(lambda: session), tmp_path))
    assert found["problems"]["facts"] == "MemoryError: no memory"
    assert found["problems"]["resources"] == "OSError: odd"
    assert found["problems"]["skew"].startswith("ValueError: ")
    assert found["tools"] == GOOD["host"]["tools"]
    verdicts = {v.id: v for v in diagnose_facts({"host": found}, PURPOSE) if v.subject == "host"}
    assert verdicts["python"].actual == "MemoryError: no memory"
    assert verdicts["clock"].actual.startswith("ValueError: ")


def test_a_host_that_goes_away_is_not_asked_further(tmp_path: Path) -> None:
    session = Answers(inspection__machine__machine=HostError("lab1: connection lost"))
    found: Any = inspected(make_plan(Host(lambda: session), tmp_path))
    assert found["facts"] == GOOD["host"]["facts"]
    assert found["problems"] == dict.fromkeys(
        ("machine", "tools", "unpacked", "resources"), "lab1: connection lost"
    )
    assert [name for name, _ in session.calls][-1] == "inspection.machine.machine"


@pytest.mark.parametrize("late", [0.0, 0.5, 1.0])
def test_skew_is_measured_by_the_quickest_trip(
    late: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``late`` is the part of the trip after which the host reads its clock."""
    now, trips = [5000.0], iter([4.0, 0.2, 9.0])

    def ping() -> float:
        trip = next(trips)
        clock = now[0] + trip * late - 100
        now[0] += trip
        return clock

    monkeypatch.setattr(time, "time", lambda: now[0])
    monkeypatch.setattr(time, "monotonic", lambda: now[0] - 77)
    assert inspect.measure_skew(Answers(rpc__ping=ping)) == pytest.approx(-100, abs=0.1001)  # type: ignore[arg-type]
    assert next(trips, None) is None


def unpinned(plan: BuildPlan, name: str) -> BuildPlan:
    """``plan`` with a lock in which that tool has no sha256."""
    lock = plan.cache.lock
    tool = lock.tools[name]
    sources = tuple(s.model_copy(update={"sha256": None, "size": None}) for s in tool.sources)
    tools = {**lock.tools, name: tool.model_copy(update={"sources": sources})}
    bare = lock.model_copy(update={"tools": tools, "unpinned": (*lock.unpinned, name)})
    return replace(plan, cache=Cache(bare, plan.cache.root))


def test_the_lock_of_this_machine(tmp_path: Path) -> None:
    host = Host(Answers, msvc=False, services=False)
    whole: Any = inspect.inspect_controller(make_plan(host, tmp_path))
    assert whole["lock"]["unpinned"] == []
    assert whole["lock"]["error"] is None
    assert whole["lock"]["missing"] == whole["lock"]["tools"] > 5
    assert whole["lock"]["missing_size"].endswith(" MiB")
    assert "wine" not in whole
    plan = unpinned(make_plan(host, tmp_path), "setuptools")
    (verdict,) = [v for v in examined(plan).findings if v.id == "lock"]
    assert (verdict.level, verdict.actual) == ("error", "not pinned: setuptools")
    plan = unpinned(make_plan(host, tmp_path), "uv")
    (verdict,) = [v for v in examined(plan).findings if v.id == "lock"]
    assert verdict.level == "error"
    assert "uv" in verdict.actual
    assert "not pinned" in verdict.actual
    assert "invoke lock --only uv," in verdict.hint


def test_what_a_host_is_judged_for(tmp_path: Path) -> None:
    purpose = run.purpose_of(make_plan(Host(lambda: None, gpu=True), tmp_path))
    assert purpose.target.id == "smoke-attention-cp311-cu130"
    assert (purpose.target.host, str(purpose.target.archs), purpose.jobs) == ("lab1", "80+PTX", 3)
    assert purpose.toolset == load_lock().tools["vs-buildtools-2022"].toolset
    assert purpose.build_root == r"C:\b"
    assert (purpose.sandbox, purpose.msvc, purpose.gpu, purpose.services) == (
        False,
        True,
        True,
        True,
    )
    emulated = Host(lambda: None, msvc=False, emulated=True)
    purpose = run.purpose_of(make_plan(emulated, tmp_path, "sandbox"))
    assert (purpose.sandbox, purpose.toolset) == (True, None)


@pytest.mark.parametrize(("required", "provisioned"), [("git", True), ("cargo", False)])
def test_what_provisioning_brings_is_not_for_people_to_install(
    required: str, provisioned: bool, tmp_path: Path
) -> None:
    plan = needing(make_plan(Host(lambda: None), tmp_path), required)
    (setting,) = run.purpose_of(plan).of("commands")
    assert (setting.spec["names"], setting.provisioned) == ([required], provisioned)


def test_a_windows_that_is_used_as_it_is(tmp_path: Path) -> None:
    """Judged by the same values, but nothing is set there."""
    host = Host(lambda: None, services=False)
    host.existing = base.Existing(root="C:/wcw")
    purpose = run.purpose_of(needing(make_plan(host, tmp_path), "git"))
    assert {setting.id for setting in purpose.settings} >= {"long paths", "programs"}
    assert not [setting for setting in purpose.settings if setting.provisioned]
    (programs,) = purpose.of("commands")
    assert programs.spec["places"] == [r"C:\wcw\python", r"C:\wcw\cuda\13.0\bin"]
    (verdict,) = [
        v for v in diagnose_facts(changed({LONG: row(False)}), purpose) if v.id == "long-paths"
    ]
    assert verdict.hint.startswith("on the host as administrator")


def test_a_linux_is_asked_for_programs_alone(tmp_path: Path) -> None:
    host = Host(lambda: None, windows=False, msvc=False, services=False)
    host.existing = base.Existing(root="/x")
    plan = make_plan(host, tmp_path)
    assert [setting.id for setting in run.purpose_of(plan).settings] == ["environment"]
    purpose = run.purpose_of(needing(plan, "git"))
    assert [setting.id for setting in purpose.settings] == ["environment", "programs"]


def environment(tmp_path: Path, **values: str) -> Finding:
    """The verdict on an environment that is used as it is, by the host's answer."""
    host = Host(lambda: None, windows=False, msvc=False, services=False)
    host.existing = base.Existing(root="/x")
    plan = make_plan(host, tmp_path)
    recipe = load_recipe("flash-attn")
    target = plan.target.model_copy(update={"torch": "2.8", "cuda": "12.8"})
    asked = (Requirement("setuptools>=77"), Requirement("wheel"))
    place = replace(plan.place, target=target, requires=lambda: asked)
    purpose = run.purpose_of(replace(plan, recipe=recipe, target=target, place=place))
    (setting,) = purpose.of("distributions")
    assert not setting.provisioned
    answer = row(not values.pop("wrong", ""), **values)
    (verdict,) = [
        v
        for v in diagnose_facts(changed({f"{RES}/{setting.id}": answer}), purpose)
        if v.id == "python-packages"
    ]
    return verdict


INSTALLED = {
    "Python": "3.11",
    "setuptools": "80.9.0",
    "wheel": "0.45",
    "ninja": "1.13",
    "packaging": "25.0",
    "torch": "2.8.0+cu128",
    "torch's CUDA": "12.8",
    "pytest": "9.0",
    "pytest-xdist": "3.8",
    "psutil": "7.0",
    "einops": "0.8",
    "numpy": "2.3",
}


def test_an_environment_that_is_whole(tmp_path: Path) -> None:
    verdict = environment(tmp_path, **INSTALLED)
    assert verdict.level == "ok", verdict
    assert "torch 2.8.0+cu128" in verdict.actual


@pytest.mark.parametrize(
    ("changes", "found", "hint"),
    [
        ({"torch": ""}, "missing: torch",
         'python.exe -m pip install "torch==2.8.*" --index-url '
         "https://download.pytorch.org/whl/cu128"),
        ({"ninja": "", "pytest": ""}, "missing: ", '"ninja"'),
        ({"setuptools": "65.5"}, "setuptools 65.5 is not >=77", '"setuptools>=77"'),
        ({"wheel": ""}, "missing: wheel", '"wheel"'),
        ({"torch": "2.7.1+cu128"}, "that is torch 2.7 for CUDA 12.8", "--torch 2.7 --cuda 12.8"),
        ({"torch": "2.8.0+cpu", "torch's CUDA": ""}, "for CUDA none", "whl/cu128"),
        ({"Python": "3.12"}, "that is Python 3.12", "--python 3.12"),
    ],
    ids=str,
)  # fmt: skip
def test_an_environment_that_lacks_something(
    tmp_path: Path, changes: dict[str, str], found: str, hint: str
) -> None:
    """As provisioning refuses it, whatever the host's own summary says."""
    values = {name: version for name, version in (INSTALLED | changes).items() if version}
    for wrong in ("", "yes"):
        verdict = environment(tmp_path, **values, **({"wrong": wrong} if wrong else {}))
        assert verdict.level == "error"
        assert found in verdict.actual
        assert hint in verdict.hint


def test_an_environment_that_is_not_told(tmp_path: Path) -> None:
    odd = environment(tmp_path, **INSTALLED | {"Python": "3.11; rm -rf /"})
    assert (odd.level, odd.hint) == ("unknown", "")
    assert environment(tmp_path, **INSTALLED, wrong="yes").level == "unknown"


# -- the command -----------------------------------------------------------------------------------


def noisy() -> Any:
    say("starting something")
    sys.stdout.write("::add-mask::secret\n")
    return Answers()


def test_json_alone_is_on_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = diagnosed(make_plan(Host(noisy), tmp_path), as_json=True)
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert out.startswith("{")
    assert out.endswith("}\n")
    assert "starting something" in err
    assert document["host"] == "lab1"
    assert [v["id"] for v in document["findings"]] == [v.id for v in outcome.findings]


def test_the_table_on_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lost = HostError("cannot connect to https://lab1:5986", hint="Is it up?")

    def connect() -> Any:
        raise lost

    outcome = diagnosed(make_plan(Host(connect), tmp_path))
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0].startswith("Doctor lab1: smoke-attention for cp311, CUDA 13.0, 80+PTX")
    row = lines.index("host") + 1
    assert lines[row].startswith("✗  connection ")
    assert "cannot connect to https://lab1:5986 (expected a session" in lines[row]
    assert lines[-2].rstrip() == "   → Is it up?"
    assert lines[-1] == report.summary(outcome.findings)
    assert outcome.level == "error"
    assert outcome.exit_code == UNFIT
    assert any(line.startswith("✓  Python ") for line in lines)


def test_a_password_that_is_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAB1_PW", raising=False)
    keys = {"kind": "winrm", "endpoint": "https://lab1:5986/wsman", "username": "b"}
    config = Config.model_validate(
        {"hosts": {"lab1": keys | {"password_env": "LAB1_PW"}}, "out": str(tmp_path)}
    )
    outcome = examined(resolve_build_plan(config, Request(axes={"host": "lab1"})))
    last = outcome.findings[-1]
    assert (last.id, last.level) == ("connection", "error")
    assert "LAB1_PW" in last.actual
    assert "export LAB1_PW" in last.hint


@pytest.mark.parametrize(
    ("failure", "found", "hint"),
    [
        (
            SetupError("Wine is not installed", hint="Type: sudo apt-get install wine64"),
            "Wine is not installed",
            "Type: sudo apt-get install wine64",
        ),
        (PermissionError(13, "denied"), "Wine does not run: ", "scripts/setup"),
        (subprocess.TimeoutExpired("wine", 60), "Wine does not run: ", "scripts/setup"),
    ],
)
def test_a_sandbox_without_wine(failure: Exception, found: str, hint: str, tmp_path: Path) -> None:
    def wine() -> str:
        raise failure

    def connect() -> Any:
        raise AssertionError("without Wine there is nothing to connect to")

    host = Host(connect, msvc=False, services=False, emulated=True)
    host.wine = wine
    outcome = examined(make_plan(host, tmp_path, "sandbox"))
    (verdict,) = [v for v in outcome.findings if v.id == "wine"]
    assert verdict.level == "error"
    assert found in verdict.actual
    assert hint in verdict.hint
    last = outcome.findings[-1]
    assert (last.id, last.level) == ("connection", "unknown")
    assert last.actual.startswith("not tried: Wine ")
    assert outcome.exit_code == UNFIT


def test_wine_is_asked_for_a_sandbox_only(tmp_path: Path) -> None:
    def wine() -> str:
        raise AssertionError("not asked for")

    host = Host(Answers)
    host.wine = wine
    outcome = examined(make_plan(host, tmp_path))
    assert not [v for v in outcome.findings if v.id == "wine"]


def test_this_machine_alone(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run.run_doctor(None, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert (document["host"], document["order"]) == (None, None)
    assert {v["subject"] for v in document["findings"]} == {"this machine"}
    (python,) = [v for v in document["findings"] if v["id"] == "python"]
    assert python["level"] == "ok"
    assert outcome.purpose is None


@pytest.mark.parametrize(
    ("level", "code"), [("ok", 0), ("unknown", 0), ("warning", 0), ("error", 14)]
)
def test_exit_codes(level: Any, code: int) -> None:
    verdicts = (make_finding("a", "b", "ok", "c"), make_finding("a", "b", level, "c"))
    assert run.Outcome(findings=verdicts, purpose=None, facts={}).exit_code == code
    assert run.Outcome(findings=(), purpose=None, facts={}).exit_code == 0


def test_the_exit_code_is_no_errors() -> None:
    kinds = [k for k in vars(pipeline_errors).values() if isinstance(k, type)]
    codes = {k.exit_code for k in kinds if issubclass(k, pipeline_errors.PipelineError)}
    assert UNFIT not in codes | {0, 1, 2, pipeline_errors.INTERRUPTED}
