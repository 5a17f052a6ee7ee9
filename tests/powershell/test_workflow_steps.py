"""The steps of our jobs on Windows that are PowerShell, run as GitHub's runner does.

Programs are batch files for cmd, of which each fails in turn. The rest: tests/unit.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from windows import ROOT, InWine, Shell, Windows, literal

sys.path.insert(0, str(ROOT / "tests/unit"))
from test_runner_images import IMAGES, STEPS, TEXTS, Step, ids

SHELLS = {"pwsh", "powershell"}
HERE = [one for one in TEXTS if one.shell in SHELLS]
#: What src/Runner.Worker/Handlers/ScriptHandlerHelpers.cs of github.com/actions/runner adds.
_SCRIPT = (
    "$ErrorActionPreference = 'stop'\r\n{}\r\n"
    "if ((Test-Path -LiteralPath variable:\\LASTEXITCODE)) {{ exit $LASTEXITCODE }}\r\n"
)
_PARSED = """
$tokens = $null; $errors = $null
$parser = [System.Management.Automation.Language.Parser]
$parsed = $parser::ParseInput({}, [ref] $tokens, [ref] $errors)
if ($errors) {{ throw $errors[0].Message }}
$is = {{ $args[0] -is [System.Management.Automation.Language.CommandAst] }}
foreach ($name in $parsed.FindAll($is, $true) | ForEach-Object {{ $_.GetCommandName() }}) {{
    $found = Get-Command -Name $name -ErrorAction SilentlyContinue -CommandType Cmdlet, Function
    if (-not $found) {{ $name }}
}}
"""
#: Notes its name and words, and fails when so many were noted.
_BATCH = r"""@echo off
set count=0
for /f %%n in (C:\steps\count) do set count=%%n
set /a count+=1
>C:\steps\count echo %count%
>>C:\steps\typed echo %~n0 %*
if %count%==%FAIL% exit /b 3
if %~n0==git echo a.ps1
exit /b 0
"""
#: In place of the scripts of the repository, and of the module that is on the image.
_SCRIPT_STAND_IN = (
    "& C:\\steps\\bin\\script.cmd {}\r\nif ($LASTEXITCODE) {{ throw 'it failed' }}\r\n"
)
_MODULE = (
    "function Invoke-ScriptAnalyzer { if ($env:FOUND) { [pscustomobject] @{ Line = 1 } } }\r\n"
)


@pytest.mark.parametrize("one", [s for s in STEPS if s.shell in SHELLS], ids=ids)
def test_what_powershell_runs_is_there(shell: Shell, one: Step) -> None:
    if one.shell == "pwsh" and shell.run("$PSVersionTable.PSVersion.Major").text == "5":
        pytest.skip("for PowerShell 7")
    done = shell.run(_PARSED.format(literal(one.run)))
    assert done.error == ""
    for name in done.output:
        if name.endswith(".ps1"):
            assert (ROOT / name.replace("\\", "/")).is_file()
        elif name == "Invoke-ScriptAnalyzer":
            assert "PSScriptAnalyzer" in IMAGES[one.image]["modules"]
        else:
            assert name in one.there()


@pytest.fixture
def work(windows: Windows) -> Path:
    """C:\\steps, with a checkout of stand-ins and a C:\\tools as on the image."""
    if not isinstance(windows, InWine):
        pytest.skip("the programs are stand-ins")
    folder = windows.path(r"C:\steps")
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    for name in ("icacls", "git", "python", "script"):
        (folder / f"bin/{name}.cmd").write_text(_BATCH, newline="\r\n")
    for name in {path for one in HERE for path in re.findall(r"[\w.\\-]+\.ps1\b", one.run)}:
        script = folder / name.replace("\\", "/")
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(_SCRIPT_STAND_IN.format(Path(script).stem))
    module = folder / "modules/PSScriptAnalyzer/PSScriptAnalyzer.psm1"
    module.parent.mkdir(parents=True, exist_ok=True)
    module.write_text(_MODULE)
    windows.path(r"C:\tools").mkdir(exist_ok=True)
    return folder


def run(windows: Windows, work: Path, one: Step, **env: str) -> tuple[int, list[str]]:
    """The exit code, and what was run."""
    (work / "step.ps1").write_text(_SCRIPT.format(one.run))
    (work / "count").write_text("0")
    (work / "typed").write_text("")
    before = r"$env:PATH = 'C:\steps\bin;' + $env:PATH; Set-Location C:\steps; "
    before += r"$env:PSModulePath = 'C:\steps\modules;' + $env:PSModulePath; "
    line = "powershell.exe -NoProfile -ExecutionPolicy Unrestricted"  # as on the image
    line += f" -command \"{before}. 'C:\\steps\\step.ps1'\""
    process = windows.start(line, env={"RUNNER_TEMP": r"C:\steps", "FAIL": "0", **env})
    said = process.communicate(timeout=180)
    return process.returncode, (work / "typed").read_text().splitlines() or [repr(said)]


@pytest.mark.parametrize("one", HERE, ids=ids)
def test_a_program_that_fails_fails_its_step(windows: Windows, work: Path, one: Step) -> None:
    code, typed = run(windows, work, one)
    assert code == 0, typed
    for number in range(1, len(typed) + 1):
        code, _ = run(windows, work, one, FAIL=str(number))
        assert code != 0, typed[number - 1]


def test_what_the_analyzer_finds_fails_its_step(windows: Windows, work: Path) -> None:
    (one,) = [s for s in HERE if "Invoke-ScriptAnalyzer" in s.run]
    assert run(windows, work, one, FOUND="1")[0] == 1
