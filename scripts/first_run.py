r"""The first run on a real Windows: each step of it, and one file with all that they left.

    py scripts\first_run.py               what changes nothing outside this checkout (ten minutes)
    py scripts\first_run.py --full        also provision, builds and containers; an administrator,
                                          hours, and a machine that may be changed
    py scripts\first_run.py --list        the steps

No step stops another: a failed one is recorded with its log, and those that need it are skipped
with the reason. The result is ``first-run.zip``: facts about the machine, logs, records, verdicts,
and ``issue.md``, the text of an issue. ``python -m scripts.reference.first_run`` imports it into
``docs/evidence``. Only Python's standard library: nothing is installed when it begins.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WINDOWS = sys.platform == "win32"
VENV = ROOT / ".venv"
PYTHON = str(VENV / ("Scripts/python.exe" if WINDOWS else "bin/python"))
#: What the commands of the steps are written with.
PROGRAMS = {
    "{this}": [sys.executable],
    "{python}": [PYTHON],
    "{wcw}": [PYTHON, "-m", "pipelines"],
    "{powershell}": [
        "powershell.exe",
        "-NoProfile",
        "-NonInteractive",
        "-ExecutionPolicy",
        "Bypass",
    ],
}
ENABLE = (
    "{powershell} -File scripts/enable-winrm-https.ps1 -HostName localhost -RemoteAddress 127.0.0.1"
)
#: Of `wcw doctor`: something will go wrong. It has looked, and the log has what.
RED = 14
#: Of `wcw build --minutes`: the time is up, which says nothing against the build.
UNFINISHED = 75
#: A log's first and last part are kept; a loop that prints cannot fill the disk.
MOST = 8_000_000


@dataclass(frozen=True)
class Step:
    """Commands that run one after another, until one fails."""

    id: str
    title: str
    minutes: float
    commands: tuple[str, ...]
    needs: tuple[str, ...] = ()
    accepts: tuple[int, ...] = (0,)
    config: str = ".github/runner.yaml"
    """WCW_CONFIG."""
    changes: str = ""
    """What it changes outside the checkout; such steps are for --full alone."""
    unless: Callable[[], str] = str
    """Why it cannot run here; empty: it can."""


def _no_windows() -> str:
    return "" if WINDOWS else "only for Windows"


def _no_engine() -> str:
    if _no_windows() or not shutil.which("docker"):
        return _no_windows() or "no docker command"
    found = _output("docker", "info", "--format", "{{.OSType}}").strip()
    return "" if found == "windows" else f"no Docker engine for Windows containers ({found or '-'})"


def _not_thrown_away() -> str:
    """A local administrator and open ports are for machines that are thrown away."""
    hosted = os.environ.get("RUNNER_ENVIRONMENT") == "github-hosted"
    return _no_windows() or ("" if hosted else "only on a runner that is thrown away after the job")


def wheel(recipe: str, minutes: float, more: str = "") -> Step:
    """Build a recipe's wheel and run its suite."""
    return Step(
        recipe,
        f"{recipe}: a wheel, built and tested",
        minutes,
        (
            f"{{wcw}} provision build test --host runner --recipe {recipe} --python 3.12"
            f" --minutes {minutes - 10:g}{more}",
        ),
        needs=("provision",),
        changes="C:/b",
        unless=_no_windows,
    )


STEPS = (
    Step(
        "setup",
        "the program and what it requires, in .venv",
        10,
        (
            "{this} -m venv --clear .venv",
            "{python} -m pip install --quiet --disable-pip-version-check --require-hashes"
            " -r requirements.lock",
        ),
    ),
    Step("plan", "what can be built", 5, ("{wcw} plan --host runner",), needs=("setup",)),
    Step(
        "powershell",
        "enable-winrm-https.ps1 in Windows PowerShell: what it would change",
        5,
        (f"{ENABLE} -WhatIf",),
        unless=_no_windows,
    ),
    Step(
        "doctor",
        "doctor on this machine",
        5,
        ("{wcw} doctor --host runner",),
        needs=("setup",),
        accepts=(0, RED),
    ),
    Step(
        "provision",
        "provision on top of what is installed",
        45,
        ("{wcw} provision --host runner --python 3.12",),
        needs=("setup",),
        changes="long paths, C:/b, C:/t, C:/tools, C:/python, C:/cuda; Build Tools if missing",
        unless=_no_windows,
    ),
    wheel("smoke-attention", 20),
    wheel("smoke-attention-torch", 25),
    wheel("causal-conv1d", 35),
    Step(
        "flash-attn-shard",
        "flash-attn: one share of its compile units",
        30,
        (
            "{wcw} provision build --host runner --recipe flash-attn --python 3.12 --archs 80"
            " --shard 1/40 --minutes 25",
        ),
        needs=("provision",),
        changes="C:/b",
        unless=_no_windows,
    ),
    wheel("flash-attn-stable", 85, " --archs 80"),
    Step(
        "winrm",
        "a build host over its own WinRM service",
        25,
        (
            "{powershell} -File .github/scripts/New-Builder.ps1 -Path {password}",
            f"{ENABLE} -CertificateFile winrm.pem",
            "{wcw} jobs --host real",
            "{wcw} provision build test --host real --python 3.12 --minutes 20",
        ),
        needs=("provision",),
        config=".github/windows-winrm.yaml",
        changes="a local administrator, the WinRM service, a firewall rule",
        unless=_not_thrown_away,
    ),
    Step(
        "container",
        "a Windows container: started, examined, removed",
        20,
        (
            "{powershell} -File .github/scripts/Start-Engine.ps1",
            "{python} .github/scripts/bare_host.py host.yaml",
            "{wcw} jobs --host bare",
            "{wcw} doctor --host bare",
        ),
        needs=("setup",),
        accepts=(0, RED),
        config="host.yaml",
        changes="a container, removed afterwards",
        unless=_no_engine,
    ),
)


@dataclass
class Result:
    """How a step went: passed, failed, unfinished, timeout or skipped."""

    id: str
    verdict: str
    code: int | None = None
    seconds: float = 0.0
    reason: str = ""


class Runner:
    """Runs steps; their logs and what they leave are below ``folder``."""

    def __init__(self, folder: Path, steps: Iterable[Step], *, full: bool) -> None:
        self.folder, self.steps, self.full = folder, tuple(steps), full
        self.results: dict[str, Result] = {}
        self.password = folder.parent / ".first-run-password"

    def run(self) -> None:
        """Every step in turn."""
        try:
            for step in self.steps:
                print(
                    f"::group::{step.id}: {step.title}" if _on_github() else f"== {step.id}",
                    flush=True,
                )
                begun = time.monotonic()
                if reason := self._reason_to_skip(step):
                    result = Result(step.id, "skipped", reason=reason)
                else:
                    result = self._run(step)
                result.seconds = round(time.monotonic() - begun, 1)
                self.results[step.id] = result
                print(_line(result), flush=True)
                if _on_github():
                    print("::endgroup::")
                    if result.verdict not in ("passed", "skipped"):
                        print(f"::warning title={step.id}::{_line(result)}", flush=True)
        finally:
            self.password.unlink(missing_ok=True)

    def _reason_to_skip(self, step: Step) -> str:
        if step.changes and not self.full:
            return f"changes this machine ({step.changes}): --full"
        for name in step.needs:
            if name in self.results and self.results[name].verdict != "passed":
                return f"needs {name}, which {self.results[name].verdict}"
        return step.unless()

    def _run(self, step: Step) -> Result:
        deadline = time.monotonic() + step.minutes * 60
        environment = os.environ | {"PYTHONUTF8": "1", "WCW_CONFIG": step.config}
        with (self.folder / f"{step.id}.log").open("w", encoding="utf-8", newline="\n") as log:
            for command in step.commands:
                words = words_of(command, self.password)
                if self.password.is_file():
                    environment["WCW_HOST_PASSWORD"] = self.password.read_text("utf-8")
                left = deadline - time.monotonic()
                code = run(words, environment, log, left)
                if code is None:
                    return Result(step.id, "timeout", reason=f"longer than {step.minutes:g} min")
                if code == UNFINISHED:
                    return Result(step.id, "unfinished", code, reason="its time was up")
                if code not in step.accepts:
                    return Result(step.id, "failed", code, reason=f"exit code {code}")
        return Result(step.id, "passed", code)


def words_of(command: str, password: Path) -> list[str]:
    """The words of a step's command, with the programs and the file that it is written with."""
    programs = PROGRAMS | {"{password}": [str(password)]}
    return [one for word in shlex.split(command) for one in programs.get(word, [word])]


def run(words: list[str], environment: Mapping[str, str], log: Any, seconds: float) -> int | None:
    """The exit code, or None if it was ended after so many seconds; it is logged."""
    log.write(f"$ {subprocess.list2cmdline(words)}\n")
    try:
        process = subprocess.Popen(
            words,
            cwd=ROOT,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # elsewhere than on Windows
        )
    except OSError as error:
        log.write(f"{error}\n")
        return 127
    copying = threading.Thread(target=_copy, args=(process.stdout, log), daemon=True)
    copying.start()
    try:
        code = process.wait(max(seconds, 1))
    except subprocess.TimeoutExpired:
        _kill(process)
        code = None
    copying.join(30)  # a grandchild may hold the pipe
    return code


def _copy(pipe: Any, log: Any) -> None:
    written = 0
    for raw in pipe:
        line = anonymous(raw.decode("utf-8", "replace").rstrip("\r\n"))
        sys.stdout.write(f"{line}\n")
        written += len(line)
        if written < MOST:
            log.write(f"{line}\n")
            log.flush()
    if written >= MOST:
        log.write(f"[{written:,} characters in all; those after {MOST:,} are left out]\n")


def _kill(process: subprocess.Popen[bytes]) -> None:
    if WINDOWS:
        taskkill = ["taskkill", "/F", "/T", "/PID", str(process.pid)]
        subprocess.run(taskkill, capture_output=True, check=False)
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def anonymous(line: str) -> str:
    """Without the names of the account and of the machine."""
    for name, stand_in in ((str(Path.home()), "~"), (platform.node(), "HOST")):
        if len(name) > 3:  # noqa: PLR2004 - shorter ones are parts of words
            line = line.replace(name, stand_in)
    return line


def _on_github() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"


def _line(result: Result) -> str:
    reason = f": {result.reason}" if result.reason else ""
    return f"{result.id} {result.verdict} ({result.seconds:.0f} s){reason}"


def _output(*words: str) -> str:
    try:
        done = subprocess.run(
            words, cwd=ROOT, capture_output=True, timeout=60, check=False, text=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return ""
    return done.stdout


def facts() -> dict[str, Any]:
    """Of the machine, without names of people."""
    query = "name,driver_version,compute_cap,memory.total"
    files = Path(os.environ.get("PROGRAMFILES(X86)", ""))
    vswhere = files / "Microsoft Visual Studio/Installer/vswhere.exe"
    products = _output(str(vswhere), "-all", "-products", "*", "-format", "json")
    docker = _output("docker", "info", "--format", "{{.OSType}} {{.ServerVersion}} {{.OSVersion}}")
    return {
        "system": platform.system(),
        "version": platform.version(),
        "edition": platform.win32_edition() if WINDOWS else "",
        "wine": _wine(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "disk_free": shutil.disk_usage(ROOT).free,
        "gpus": _output("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader").splitlines(),
        "visual_studio": re.findall(r'"installationVersion": "([\d.]+)"', products),
        "docker": docker.strip(),
    }


def _wine() -> bool:
    if sys.platform != "win32":
        return False
    return hasattr(ctypes.WinDLL("ntdll"), "wine_get_version")


def origin() -> dict[str, Any]:
    """What was run, and where, as git and GitHub say."""
    get = os.environ.get
    run_url = ""
    if _on_github():
        parts = (get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY"))
        run_url = "/".join((*parts, "actions/runs", get("GITHUB_RUN_ID", "")))
    changed = _output("git", "status", "--porcelain", "--untracked-files=no")
    return {
        "commit": _output("git", "rev-parse", "HEAD").strip(),
        "changed": bool(changed.strip()),
        "repository": get("GITHUB_REPOSITORY", ""),
        "run": run_url,
        "ref": get("GITHUB_REF", ""),
        "attempt": int(get("GITHUB_RUN_ATTEMPT", "1")),
        "image": f"{get('ImageOS', '')} {get('ImageVersion', '')}".strip(),
    }


def issue(manifest: Mapping[str, Any], folder: Path) -> str:
    """The text of an issue: the machine, a table of the steps, why each failed."""
    machine, titles = manifest["facts"], {step.id: step.title for step in STEPS}
    lines = [
        f"First run of {manifest['commit'][:12]} on {machine['system']} {machine['version']}"
        f" ({manifest['image'] or 'own machine'}), {manifest['started'][:10]}",
        "",
        *((manifest["run"], "") if manifest["run"] else ()),
        f"Python {machine['python']}, {machine['cores']} cores",
        f"Visual Studio: {', '.join(machine['visual_studio']) or 'none'}",
        f"GPU: {'; '.join(machine['gpus']) or 'none'}",
        "",
        "| step | verdict | seconds | reason |",
        "|-|-|-|-|",
    ]
    for row in manifest["steps"]:
        name = f"{row['id']} ({titles.get(row['id'], '')})"
        lines.append(f"| {name} | {row['verdict']} | {row['seconds']:.0f} | {row['reason']} |")
    for row in manifest["steps"]:
        diagnosis = folder / f"{row['id']}.diagnosis.txt"
        if diagnosis.is_file():
            said = diagnosis.read_text("utf-8").replace("```", "'''").rstrip()[:4000]
            lines += ["", f"### {row['id']}", "", "```", said, "```"]
    return "\n".join(lines) + "\n"


def diagnose(folder: Path, results: Iterable[Result]) -> None:
    """What `wcw diagnose` says of each log of a step that failed."""
    for result in results:
        log = folder / f"{result.id}.log"
        if result.verdict in ("failed", "timeout") and log.is_file():
            said = (
                _output(*PROGRAMS["{wcw}"], "diagnose", str(log)) or log.read_text("utf-8")[-2000:]
            )
            (folder / f"{result.id}.diagnosis.txt").write_text(said, "utf-8")


def pack(folder: Path, manifest: dict[str, Any], target: Path) -> None:
    """Everything below ``folder``, each file with its sha256 in ``first-run.json``."""
    (folder / "issue.md").write_text(issue(manifest, folder), "utf-8", newline="\n")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    manifest["files"] = {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }
    text = json.dumps(manifest, indent=2) + "\n"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("first-run.json", text)
        for path in files:
            archive.write(path, path.relative_to(folder).as_posix())
    (target.parent / "first-run.json").write_text(text, "utf-8", newline="\n")


def take_records(folder: Path) -> None:
    """The runs' records, logs and reports; wheels stay, their sha256 is in the record."""
    left_out = shutil.ignore_patterns("wheels", "objects", "latest", "*.whl")
    if (ROOT / "out").is_dir():
        shutil.copytree(ROOT / "out", folder / "out", ignore=left_out, symlinks=True)


def main(words: list[str]) -> int:
    """0 if no step failed; what was found is packed in any case."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="also steps that change this machine")
    parser.add_argument("--list", action="store_true", help="the steps, and what they change")
    parser.add_argument("--output", type=Path, default=ROOT / "first-run", metavar="DIRECTORY")
    given = parser.parse_args(words)
    if given.list:
        for step in STEPS:
            changes = f"; changes {step.changes}" if step.changes else ""
            print(f"{step.id:22} {step.minutes:3.0f} min at most  {step.title}{changes}")
        return 0
    if (ROOT / "out") in (one := given.output.resolve(), *one.parents):
        parser.error(f"{given.output}: out/ holds the runs that are copied; name another directory")
    if VENV in Path(sys.executable).parents:
        parser.error("this Python is the one in .venv, which the first step makes: use another")
    folder = given.output / "files"
    if given.output.exists() and any(given.output.iterdir()):
        parser.error(f"{given.output}: there is an earlier run; remove it or name another --output")
    folder.mkdir(parents=True)
    manifest = origin() | {
        "schema": 1,
        "full": given.full,
        "facts": facts(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    runner = Runner(folder, STEPS, full=given.full)
    try:
        runner.run()
    finally:
        manifest["ended"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        manifest["steps"] = [vars(result) for result in runner.results.values()]
        diagnose(folder, runner.results.values())
        take_records(folder)
        target = given.output / "first-run.zip"
        pack(folder, manifest, target)
        print((folder / "issue.md").read_text("utf-8"))
        print(f"Send this file: {target}")
    bad = [result for result in runner.results.values() if result.verdict in ("failed", "timeout")]
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
