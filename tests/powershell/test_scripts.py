"""Every piece of PowerShell here, and in the documents, as PowerShell's own parser sees it."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from windows import ROOT, Shell, call, run_bodies

from pipelines.hosts.windows import firstpython
from pipelines.toolchain.sync import DOCKERFILE

sys.path.insert(0, str(ROOT / "tests/unit"))
from documents import blocks

Parsed = dict[str, dict[str, Any]]
Parse = Callable[[dict[str, str]], Parsed]
_LOADER = "pipelines/hosts/windows/loader.ps1"

#: (rule, where, why it does not hold there).
EXEMPT = [
    ("running text", _LOADER, "runs bootstrap.ps1, which comes as input"),
    ("running text", "sent", "the same, as it is sent"),
    ("pattern", "docs/*", "typed by somebody who sees what it says"),
    ("interpolation", "images/scripts/*", "comes from the repository as a file, not as text"),
    ("interpolation", "ansible/roles/*/files/*", "sent by Ansible as a file"),
]


@pytest.fixture(scope="session")
def parse(shell: Shell) -> Parse:
    def parse(texts: dict[str, str]) -> Parsed:
        asked, told = (rf"{shell.folder}\{name}.json" for name in ("asked", "told"))
        items = [{"name": name, "text": text} for name, text in texts.items()]
        shell.windows.path(asked).write_text(json.dumps(items), "utf-8")
        script = shell.put(Path(__file__).with_name("check.ps1"))
        result = shell.run(call(script, Asked=asked, Told=told))
        assert result.error == ""
        found = json.loads(shell.windows.path(told).read_text("utf-8"))
        return {item["name"]: item for item in found}

    return parse


def repository() -> dict[str, str]:
    """All of it, new files included, ignored ones not."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    texts = {}
    for name in sorted({name for name in done.stdout.split("\0") if (ROOT / name).is_file()}):
        path = ROOT / name
        if name.startswith("tests/powershell/"):
            continue  # how the others are tested
        if path.suffix in (".ps1", ".psm1", ".psd1"):
            texts[name] = path.read_text("utf-8")
        elif name == DOCKERFILE.as_posix():
            bodies = enumerate(run_bodies(path.read_text("utf-8")))
            texts |= {f"{name}:{number}": body for number, body in bodies}
        elif path.suffix == ".md":
            found = enumerate(blocks(path, "powershell"))
            texts |= {f"{name}:{number}": block.source for number, block in found}
    loader = firstpython.loader_command_line().rpartition(" ")[2]
    return texts | {"sent": base64.b64decode(loader).decode("utf-16-le")}


@pytest.fixture(scope="session")
def everything(parse: Parse) -> Parsed:
    return parse(repository())


def test_repository(everything: Parsed) -> None:
    texts = everything
    assert {_LOADER, "scripts/enable-winrm-https.ps1", "images/scripts/Pins.psm1"} <= texts.keys()
    assert any(name.startswith(f"{DOCKERFILE}:") for name in texts)
    assert any(name.startswith("docs/") for name in texts)
    used, wrong = set(), []
    for name, parsed in texts.items():
        for finding in parsed["findings"]:
            excuses = [e for e in EXEMPT if e[0] == finding["rule"] and fnmatch(name, e[1])]
            used |= set(excuses)
            if not excuses:
                wrong.append((name, finding))
    assert wrong == []
    assert [entry for entry in EXEMPT if entry not in used] == []


def _called(parsed: Parsed) -> tuple[set[str], list[tuple[str, str, list[str]]]]:
    """Which scripts of ours are called, and where with what they do not take or with too little."""
    own = {
        name.rpartition("/")[2]: {p.casefold(): must for p, must in found["parameters"].items()}
        for name, found in parsed.items()
        if name.endswith(".ps1")
    }
    called, wrong = set(), []
    for name, found in parsed.items():
        for command in found["commands"]:
            if (script := re.split(r"[/\\]", command["name"])[-1]) in own:
                called.add(script)
                given = {p.casefold() for p in command["parameters"]} - {"whatif"}
                needed = {p for p, must in own[script].items() if must}
                if problems := (given - own[script].keys()) | (needed - given):
                    wrong.append((name, script, sorted(problems)))
    return called, wrong


def test_scripts_of_ours_are_called_with_parameters_that_they_have(
    parse: Parse, everything: Parsed
) -> None:
    called, wrong = _called(everything)
    assert wrong == []
    assert {path.name for path in ROOT.glob("images/scripts/*.ps1")} <= called
    bad = parse({"bad": ".\\enable-winrm-https.ps1 -HostName a -RemoteAdress b"})
    problems = ["remoteaddress", "remoteadress"]
    assert _called(everything | bad)[1] == [("bad", "enable-winrm-https.ps1", problems)]


BAD = [
    ("syntax", "if ($true) { Get-Item a"),
    ("syntax", "Get-Item -Path 'a"),
    ("newer", "$x = $a ?? 1; $x"),
    ("newer", "$a ??= 1; $a"),
    ("newer", "${a}?.Length"),
    ("newer", "$x = $a ? 1 : 2; $x"),
    ("newer", "Get-Item a && Get-Item b"),
    ("newer", 'Write-Output "`u{1F600}"'),
    ("newer", "1..3 | ForEach-Object -Parallel { $_ }"),
    ("newer", "if ($IsWindows) { Get-Item a }"),
    ("interpolation", 'Write-Output "a $b"'),
    ("running text", "Invoke-Expression -Command $a"),
    ("running text", "& ([ScriptBlock]::Create($a))"),
    ("running text", "powershell.exe -NoProfile -enc $a"),
    ("insecure", "Set-Item -Path WSMan:\\localhost\\Service\\Auth\\Basic -Value $true"),
    ("insecure", "$a = @{ 'Auth\\Basic'    = $true }; $a"),
    ("insecure", "winrm set winrm/config/service '@{AllowUnencrypted=\"true\"}'"),
    ("insecure", "New-PSSession -ComputerName $a -Authentication Basic"),
    ("insecure", "function Get-A([string] $Password) { $Password }"),
    ("insecure", "ConvertTo-SecureString 'a' -AsPlainText -Force"),
    ("pattern", "Test-Path -Path $a"),
    ("pattern", "Get-Content $a"),
    ("empty catch", "try { Get-Item a } catch { }"),
]


def test_every_rule_bites(parse: Parse) -> None:
    found = parse({text: text for _, text in BAD})
    missed = [
        (rule, text)
        for rule, text in BAD
        # 5.1 cannot even parse what is newer.
        if not {rule, "syntax" if rule == "newer" else rule}
        & {f["rule"] for f in found[text]["findings"]}
    ]
    assert missed == []
