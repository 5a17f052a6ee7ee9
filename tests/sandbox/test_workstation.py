r"""The lines of docs/hosts/windows-workstation.md, in the genuine Windows Python under Wine.

The controller runs there, as on a workstation: installation, doctor, and a wheel that is built and
tested with ``kind: local``. The stand-in for Build Tools is at ``C:\VS``, NVIDIA's compiler and the
stub's Python are what a sandbox has. Python for embedding comes without ``venv`` and ``ensurepip``:
a module of that name makes environments with uv.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.markers import Marker

from pipelines.core.paths import PACKAGE
from pipelines.hosts.sandbox.host import Sandbox
from pipelines.remote import process
from pipelines.stages.line import Line, run_provision

pytestmark = pytest.mark.sandbox

ROOT = PACKAGE.parent
SOURCE = r"C:\src"
PYTHON = r"C:\Python311\python.exe"
ENVIRONMENT = r"C:\envs\torch28"
#: What is printed -> what there is.
INSTEAD = {
    "py -3.12": PYTHON,
    r"C:\envs\torch28\python.exe": rf"{ENVIRONMENT}\Scripts\python.exe",
    "# cuda: ": "cuda: ",
    r"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v12.8": r"C:\cuda\13.0",
    "--recipe flash-attn --torch 2.8 --cuda 12.8 --python 3.12": (
        "--recipe smoke-attention --cuda 13.0 --python 3.11"
    ),
    "--archs native": "--archs 80",
}
VENV = r"""
import subprocess, sys
uv, place = r"C:\tools\uv\uv.exe", sys.argv[-1]
subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, place], check=True)
if "--without-pip" not in sys.argv:
    offline = ["--no-index", "--find-links", r"C:\wheelhouse"]
    command = [uv, "pip", "install", "--quiet", *offline, "--python", place, "pip"]
    subprocess.run(command, check=True)
"""
#: No network is needed: pip finds the wheels there.
SET = r"""@echo off
set PIP_NO_INDEX=1
set PIP_FIND_LINKS=C:\wheelhouse C:\w
set PATH=C:\src\.venv\Scripts;%PATH%
"""
Typed = Callable[..., tuple[int, str]]


def printed(title: str, language: str) -> list[str]:
    """The lines of the first such block below a title, with what there is."""
    text = (ROOT / "docs/hosts/windows-workstation.md").read_text("utf-8")
    found = re.search(rf"^## {title}\n.*?^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert found, title
    block = found[1]
    for there, here in INSTEAD.items():
        block = block.replace(there, here)
    return block.splitlines()


def locked() -> str:
    """requirements.lock as it is for that Windows."""
    windows = {"sys_platform": "win32", "os_name": "nt", "platform_system": "Windows"}
    python = {"python_version": "3.11", "python_full_version": "3.11.9"}
    place = {**windows, **python, "platform_machine": "AMD64"}
    kept = []
    for block in re.split(r"\n(?=[a-z])", (ROOT / "requirements.lock").read_text("utf-8")):
        marker = re.search(r" ; ([^\\\n]+)", block)
        if "==" in block and (marker is None or Marker(marker[1]).evaluate(place)):
            kept.append(block.replace(marker[0], " ") if marker else block)
    return "\n".join(kept)


def gather(folder: Path, lock: Path) -> None:
    """The wheels that pip and uv are to find there."""
    lock.write_text(locked(), "utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--dest", str(folder)]
    windows = ["--platform", "win_amd64", "--python-version", "3.11", "--only-binary", ":all:"]
    for wanted in (["--require-hashes", "--requirement", str(lock)], ["pip"]):
        subprocess.run([*command, *windows, *wanted], check=True)


def drive_of(line: Line) -> Path:
    """Drive C: of the sandbox."""
    host = line.plan.host
    assert isinstance(host, Sandbox)
    return host.prefix / "drive_c"


@pytest.fixture(scope="module")
def typed(line: Line, tmp_path_factory: pytest.TempPathFactory) -> Typed:
    """Types lines in a checkout at C:\\src, one after another until one fails."""
    run_provision(line)  # CUDA's compiler, uv, and the wheels that builds and suites need
    drive = drive_of(line)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (drive / "src" / name).parent.mkdir(parents=True, exist_ok=True)
            (drive / "src" / name).write_bytes((ROOT / name).read_bytes())
    (drive / "Python311/Lib/venv").mkdir()
    (drive / "Python311/Lib/venv/__main__.py").write_text(VENV)
    gather(drive / "wheelhouse", tmp_path_factory.mktemp("lock") / "windows.lock")

    def run(*commands: str, timeout: float = 900) -> tuple[int, str]:
        lines = SET.splitlines()
        for command in commands:
            lines += [f"call {command}", "if errorlevel 1 exit %errorlevel%"]
        (drive / "src/typed.bat").write_text("\r\n".join(lines))
        shell = ["cmd", "/c", rf"{SOURCE}\typed.bat"]
        return line.session.call(process.capture, command=shell, timeout=timeout, cwd=SOURCE)

    comment, clone, folder, *install = printed("What you need", "powershell")
    assert comment.startswith("#")
    assert (clone.split()[:2], folder.split()[0]) == (["git", "clone"], "cd")  # it is there
    code, said = run(*install)
    assert code == 0, said
    return run


def test_from_nothing_to_a_tested_wheel(typed: Typed, line: Line, tmp_path: Path) -> None:
    settings = "\n".join(printed("An existing environment", "yaml"))
    (drive_of(line) / "src/pipeline.yaml").write_text(settings)
    doctor, build = printed("An existing environment", "powershell")
    code, said = typed(doctor)
    assert code == 2, said  # no such environment yet
    code, said = typed(rf"{PYTHON} -m venv {ENVIRONMENT}")
    assert code == 0, said
    # What is missing is installed by the command that the doctor prints.
    code, said = typed(f"{doctor} --json")
    assert code == 14, said
    findings = json.loads(said[said.index("{") :])["findings"]
    (missing,) = [row for row in findings if row["level"] == "error"]
    assert missing["id"] == "python-packages"
    assert {row["id"] for row in findings} >= {"msvc-toolset", "cuda-compiler", "build-root"}
    assert not [row for row in findings if "invoke provision" in row["hint"]]
    code, said = typed(missing["hint"].removeprefix("type: "), doctor)
    assert code == 0, said

    code, said = typed(build)
    assert code == 0, said[-4000:]
    (run,) = (drive_of(line) / "src/out").glob("*-smoke-attention-*")
    (wheel,) = (run / "wheels").glob("*.whl")
    assert wheel.name == "smoke_attention-0.1.0+cu130.sandbox-cp311-cp311-win_amd64.whl"
    report = (run / "junit.xml").read_text("utf-8")
    assert 'failures="0" errors="0"' in report
    (tmp_path / "junit.xml").write_text(report, "utf-8")
    manifest = json.loads((run / "manifest.json").read_text("utf-8"))
    assert (manifest["publishable"], manifest["evidence"]) == (False, "B")


def test_what_provisioning_would_change(typed: Typed, line: Line) -> None:
    settings = "\n".join(printed("Provisioned", "yaml"))
    (drive_of(line) / "src/pipeline.yaml").write_text(settings)
    code, said = typed("invoke provision --host here --dry-run")
    assert code == 0, said
    assert "vs_BuildTools.exe" in said
    assert not (drive_of(line) / "tools/ninja").exists()
