"""What can be said of the PowerShell here without one; tests/powershell asks PowerShell itself."""

from __future__ import annotations

import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

from pipelines.core.yamlfile import read_yaml

ROOT = Path(__file__).parents[2]


def _scripts() -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [
        n for n in listed.splitlines() if n.endswith((".ps1", ".psm1")) and (ROOT / n).is_file()
    ]


SCRIPTS = _scripts()


@pytest.mark.parametrize("name", SCRIPTS)
def test_windows_powershell_reads_it(name: str) -> None:
    """Without a byte order mark 5.1 reads a file in the code page of the machine."""
    assert (ROOT / name).read_bytes().isascii()


@pytest.mark.parametrize("name", [n for n in SCRIPTS if not fnmatch(n, "ansible/roles/*/files/*")])
def test_errors_do_not_pass_unnoticed(name: str) -> None:
    """Before its first command each file says both; the tasks of Ansible say error_action."""
    if name == "tests/powershell/standins.ps1":
        pytest.skip("run before a script, in its scope, which says both")
    code = re.sub(r"<#.*?#>", "", (ROOT / name).read_text("ascii"), flags=re.DOTALL)
    code = re.sub(r"(?m)^\s*(#.*)?\n", "", code)
    code = re.sub(r"(?s)^(\[CmdletBinding.*?\)\]\n)?param\(.*?\n?\)\n", "", code, count=1)
    assert code.splitlines()[:2] == [
        "Set-StrictMode -Version Latest",
        "$ErrorActionPreference = 'Stop'",
    ]


def test_playbook_and_script_want_the_same_of_the_service() -> None:
    """Both are ways to the same host: what one sets, the other must not undo."""
    code = (ROOT / "scripts/enable-winrm-https.ps1").read_text("ascii")
    table = code[code.index("$ServiceSettings") :].partition("\n}")[0]
    by_script = {
        name: value.strip("'$").lower()
        for name, value in re.findall(r"(?m)^    '([\w\\]+)' += (\S+)$", table)
    }
    listed = read_yaml(ROOT / "ansible/roles/winrm_hardening/defaults/main.yml")
    by_playbook = {
        row["name"].removeprefix("Service\\"): row["value"].lower()
        for row in listed["winrm_hardening_values"]
        if row["name"].startswith("Service\\")
    }
    assert by_script["Auth\\CbtHardeningLevel"] == "strict"
    # Certificates that users sign in with are the host owner's choice, which the playbook keeps.
    del by_script["Auth\\Certificate"]
    assert by_script == by_playbook
