"""Every PowerShell script here: it parses, Windows PowerShell 5.1 takes it, and it breaks no rule.

Static (evidence level S): no PowerShell runs.
"""

from __future__ import annotations

import base64
import functools
import re
from fnmatch import fnmatch
from typing import get_args

import powershell_safety
import powershell_style
import pytest
from powershell_rules import Finding, Rules
from powershell_syntax import ROOT, Script, below, plain, repository, run_bodies, text, variable

from pipelines.hosts.windows import firstpython
from pipelines.hosts.winrm.config import WinRMHost
from pipelines.yamlfile import read_yaml

HERE = "pipelines/hosts/windows"
SCRIPTS = repository()
RULES = Rules(powershell_safety.RULES | powershell_style.RULES)
check = functools.cache(RULES.check)

#: (rule, where, why it does not hold there).
EXEMPT = [
    ("AvoidRunningText", f"{HERE}/loader.ps1", "runs bootstrap.ps1, which comes as input"),
    ("AvoidInterpolation", "images/scripts/*", "comes from the repository as a file, not as text"),
    ("AvoidInterpolation", "ansible/roles/*/files/*", "sent by Ansible as a file"),
    ("AvoidUsingWriteHost", "images/scripts/*", "for the log of docker build, beside a result"),
    (
        "UseStrictMode",
        "ansible/roles/*/files/*",
        "the tasks say error_action: stop where it counts",
    ),
]


def exempt(finding: Finding) -> tuple[str, str, str] | None:
    for entry in EXEMPT:
        if entry[0] == finding.rule and fnmatch(finding.name, entry[1]):
            return entry
    return None


def script(name: str) -> Script:
    (found,) = (script for script in SCRIPTS if script.name == name)
    return found


def test_scripts_are_found() -> None:
    names = {script.name for script in SCRIPTS}
    assert {
        f"{HERE}/bootstrap.ps1",
        f"{HERE}/loader.ps1",
        "scripts/enable-winrm-https.ps1",
        "images/scripts/Pins.psm1",
        "images/windows-buildtools.Dockerfile",
        "ansible/roles/wsman_values/files/Set-WSManValue.ps1",
    } <= names


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: f"{script.name}:{script.first}")
def test_script(script: Script) -> None:
    assert [str(finding) for finding in check(script) if not exempt(finding)] == []


def test_no_exemption_is_left_over() -> None:
    used = {exempt(finding) for script in SCRIPTS for finding in check(script)}
    assert [entry for entry in EXEMPT if entry not in used] == []


# -- the rules themselves --------------------------------------------------------------------------

START = "Set-StrictMode -Version Latest\n$ErrorActionPreference = 'Stop'\n"
BAD = [
    ("Syntax", "if ($true) { Get-Item a"),
    ("Syntax", "$x = $a ?? 1; $x"),
    ("Syntax", "$a ??= 1; $a"),
    ("Syntax", "${a}?.Length"),
    ("Syntax", "$x = $a ? 1 : 2; $x"),
    ("Syntax", "Get-Item -Path 'a"),
    ("Syntax", "function Get-A { param([string] $B }"),
    ("UseCompatibleSyntax", "Get-Item a && Get-Item b"),
    ("UseCompatibleSyntax", "Get-Item a || Get-Item b"),
    ("UseCompatibleSyntax", 'Write-Output "`u{1F600}"'),
    ("UseCompatibleSyntax", "$x = 0b101; $x"),
    ("UseCompatibleCommands", "1..3 | ForEach-Object -Parallel { $_ }"),
    ("UseCompatibleCommands", "1..3 | ForEach-Object -para { $_ }"),
    ("UseCompatibleCommands", "if ($IsWindows) { Get-Item a }"),
    ("UseCompatibleCommands", "Get-Content -Path a -AsByteStream"),
    ("UseCompatibleCommands", "ConvertFrom-Json -InputObject a -AsHashtable"),
    ("UseCompatibleCommands", "Set-Content -Path a -Value b -Encoding utf8NoBOM"),
    ("UseCompatibleCommands", "Get-Error"),
    ("UseCompatibleCommands", "function Get-A { clean { Get-Item a } }"),
    ("UseAscii", "Write-Output 'Straße'"),
    ("UseAscii", "# a \u2013 b"),
    ("AvoidUsingInvokeExpression", "Invoke-Expression -Command $a"),
    ("AvoidUsingInvokeExpression", "& 'iex' $a"),
    ("AvoidRunningText", "& ([ScriptBlock]::Create($a))"),
    ("AvoidRunningText", "[System.Management.Automation.ScriptBlock]::Create($a).Invoke()"),
    ("AvoidRunningText", "$ExecutionContext.InvokeCommand.InvokeScript($a)"),
    ("AvoidRunningText", "powershell.exe -enc $a"),
    ("AvoidInterpolation", 'Write-Output "a $b"'),
    ("AvoidInterpolation", 'Write-Output "a $($b.Length)"'),
    ("AvoidInterpolation", 'Write-Output @"\na $b\n"@'),
    ("AvoidInterpolation", "Get-Item -Path C:\\$b"),
    (
        "AvoidBasicAndUnencrypted",
        "Set-Item -Path WSMan:\\localhost\\Service\\Auth\\Basic -Value $true",
    ),
    ("AvoidBasicAndUnencrypted", "Set-Item 'WSMan:\\localhost\\Service\\AllowUnencrypted' $true"),
    ("AvoidBasicAndUnencrypted", "$a = @{ Basic = $true }; $a"),
    ("AvoidBasicAndUnencrypted", "$a = @{ 'Auth\\Basic'    = $true }; $a"),
    ("AvoidBasicAndUnencrypted", "winrm set winrm/config/service '@{AllowUnencrypted=\"true\"}'"),
    ("AvoidBasicAndUnencrypted", "New-PSSession -ComputerName $a -Authentication Basic"),
    ("AvoidUsingPlainTextForPassword", "function Get-A([string] $Password) { $Password }"),
    ("AvoidUsingPlainTextForPassword", "function Get-A($ApiToken) { $ApiToken }"),
    (
        "AvoidUsingUsernameAndPasswordParams",
        "function Get-A($Username, [securestring] $Password) { 1 }",
    ),
    (
        "AvoidUsingConvertToSecureStringWithPlainText",
        "ConvertTo-SecureString 'a' -AsPlainText -Force",
    ),
    ("AvoidUsingComputerNameHardcoded", "Invoke-Command -ComputerName lab1 -ScriptBlock { 1 }"),
    ("AvoidUsingBrokenHashAlgorithms", "Get-FileHash -Path a -Algorithm MD5"),
    ("AvoidUsingBrokenHashAlgorithms", "[System.Security.Cryptography.SHA1]::Create()"),
    ("AvoidUsingCmdletAliases", "gci -Path a"),
    ("AvoidUsingCmdletAliases", "Get-Item a | % { $_ }"),
    ("AvoidUsingCmdletAliases", "function Get-A { sc -Path a -Value b }"),
    ("AvoidUsingWriteHost", "Write-Host 'a'"),
    ("AvoidUsingWMICmdlet", "Get-WmiObject -Class Win32_Process"),
    ("UseApprovedVerbs", "function Build-Thing { 1 }"),
    ("UseApprovedVerbs", "function thing { 1 }"),
    ("AvoidGlobalVars", "$global:A = 1"),
    ("AvoidGlobalFunctions", "function global:Get-A { 1 }"),
    ("AvoidUsingEmptyCatchBlock", "try { Get-Item a } catch { }"),
    ("AvoidUsingEmptyCatchBlock", "try { Get-Item a }\ncatch {\n    # never mind\n}"),
    ("PossibleIncorrectComparisonWithNull", "if ($a -eq $null) { 1 }"),
    ("PossibleIncorrectComparisonWithNull", "if ($b -and $a -ine $NULL) { 1 }"),
    ("PossibleIncorrectUsageOfAssignmentOperator", "if ($a = 1) { $a }"),
    ("PossibleIncorrectUsageOfAssignmentOperator", "while ($a = 1) { $a }"),
    ("UseDeclaredVarsMoreThanAssignments", "$found = Get-Item a"),
    ("UseDeclaredVarsMoreThanAssignments", "function Get-A { $x = 1; $x += 1 }"),
    ("AvoidAssignmentToAutomaticVariable", "$Host = 1; $Host"),
    ("AvoidAssignmentToAutomaticVariable", "foreach ($input in 1) { $input }"),
    ("AvoidAssignmentToAutomaticVariable", "function Get-A { param($Args) $Args }"),
    ("AvoidDefaultValueSwitchParameter", "function Get-A([switch] $On = $true) { $On }"),
    (
        "AvoidDefaultValueForMandatoryParameter",
        "function Get-A([Parameter(Mandatory)] $A = 1) { $A }",
    ),
    ("AvoidTrailingWhitespace", "Get-Item a  \nGet-Item b"),
]


@pytest.mark.parametrize(("rule", "source"), BAD)
def test_rule_bites(rule: str, source: str) -> None:
    assert rule in {found.rule for found in check(Script("bad.ps1", (START + source).encode()))}


@pytest.mark.parametrize(
    "source",
    [
        "Get-Item a",
        "Set-StrictMode -Version Latest\nGet-Item a",
        "$ErrorActionPreference = 'Stop'\nGet-Item a",
        "Set-StrictMode -Version Latest\nGet-Item a\n$ErrorActionPreference = 'Stop'",
        "Set-StrictMode -Version Latest\n$ErrorActionPreference = 'Continue'",
        "",
    ],
)
def test_strict_mode_comes_first(source: str) -> None:
    assert "UseStrictMode" in {found.rule for found in check(Script("bad.ps1", source.encode()))}


def test_every_rule_was_seen_to_bite() -> None:
    assert {rule for rule, _ in BAD} | {"UseStrictMode"} == set(RULES)


GOOD = r"""<#
What a script may do: `$a -eq $null`, Basic = $true and Write-Host in comments, for example.
#>
#Requires -Version 5.1
[CmdletBinding(SupportsShouldProcess = $true)]
param(
    [Parameter(Mandatory = $true)] [ValidatePattern('^[a-z]+$')] [string[]] $Name,
    [securestring] $Password,
    [switch] $SkipTokenPolicy
)

Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'

function Get-Thing {
    param([Parameter(Mandatory = $true)] [string] $Path)
    $settings = @{ Basic = $false; Path = $Path; "Name`n" = "tab`t" }
    if ($null -ne $Path -and $SkipTokenPolicy) { return Get-Item @settings }
    $count = 0
    foreach ($one in $Name) { $count += 1; $settings[$one] = $count }
    try { $settings.Other = Get-FileHash -LiteralPath $Path -Algorithm SHA256 }
    catch [System.IO.IOException] { Write-Verbose -Message $_.ToString() }
    finally { $null = $settings.Remove('Path') }
    Set-Item -Path 'WSMan:\localhost\Service\AllowUnencrypted' -Value $false
    $Password.Dispose()
    $settings
}
Get-Thing -Path 'a $b' | ForEach-Object -Process { '{0}: {1}' -f $_, $Name.Count }
Invoke-Command -ComputerName $Name -ScriptBlock { Get-Content -LiteralPath 'C:\a' -Encoding Ascii }
"""


def test_good_script_passes() -> None:
    assert [str(finding) for finding in check(Script("good.ps1", GOOD.encode()))] == []


def test_finding_says_where() -> None:
    (found,) = check(Script("a.ps1", (START + "Get-Item a\nWrite-Host b\n").encode(), 10))
    assert str(found).startswith("a.ps1:13: AvoidUsingWriteHost: ")


def test_run_bodies_are_joined_as_docker_does() -> None:
    dockerfile = """# escape=`
FROM windows AS a
RUN echo for cmd
SHELL ["powershell", "-Command"]
RUN Get-Item a; `
    # a comment between
    Get-Item b
ENV X=1
run Get-Item c `
    Get-Item d
FROM linux
RUN apt-get install x && true
"""
    bodies = list(run_bodies("Dockerfile", dockerfile))
    assert [body.first for body in bodies] == [5, 9]
    assert bodies[0].source.split() == b"Get-Item a; Get-Item b".split()
    assert b"\n" not in bodies[1].source  # a forgotten ';' is found by whoever reads it, not hidden
    assert [command.name for command in bodies[0].commands] == ["get-item", "get-item"]
    assert "UseStrictMode" not in {found.rule for body in bodies for found in check(body)}
    assert "Syntax" in {
        f.rule for f in check(next(run_bodies("D", dockerfile.replace("b\n", "{\n"))))
    }


# -- what the two sides of the bootstrap have to agree on ------------------------------------------


def test_command_line_is_the_loader_and_nothing_else() -> None:
    line = firstpython.command_line()
    assert len(line) < 8191 - 100, "cmd takes 8191 characters, with its own path and switches"
    assert '"' not in line
    loader = base64.b64decode(line.rpartition(" ")[2]).decode("utf-16-le")
    sent = Script("sent", loader.encode(), is_file=False)
    assert {finding.rule for finding in check(sent)} == {"AvoidRunningText"}
    kept = [c.name for c in script(f"{HERE}/loader.ps1").commands]
    assert [command.name for command in sent.commands] == kept


def test_parameters_are_those_of_the_bootstrap() -> None:
    (block,) = (c for c in script(f"{HERE}/bootstrap.ps1").root.children if c.type == "param_block")
    wanted = {
        variable(child): any(text(a) == "Mandatory = $true" for a in below(p, "attribute_argument"))
        for p in below(block, "script_parameter")
        for child in p.children
        if child.type == "variable"
    }
    python = (ROOT / HERE / "firstpython.py").read_text()
    sent = re.findall(r"(told|given) = \{(.*?)\}", python, re.S)
    names = [(kind, set(re.findall(r'"(\w+)":', text.casefold()))) for kind, text in sent]
    assert set().union(*(found for _, found in names)) == set(wanted)
    for kind, found in names:
        if kind == "told":  # each question has what it must have
            assert found >= {name for name, mandatory in wanted.items() if mandatory}


def test_answers_are_those_that_are_understood() -> None:
    fields = firstpython.Answer.model_fields
    bootstrap = script(f"{HERE}/bootstrap.ps1")
    said: dict[str, set[str]] = {}
    for entry in bootstrap.each("hash_entry"):
        key = plain(entry.children[0])
        said.setdefault(key, set()).update(re.findall(r"= '([a-z-]+)'\s*;?$", text(entry)))
    assert set(said) == set(fields)
    assert said["state"] == set(get_args(fields["state"].annotation))
    kinds = set(re.findall(r"return '([a-z-]+)'", bootstrap.code)) | said["kind"]
    assert kinds == set(get_args(fields["kind"].annotation))
    assert f"'{firstpython._PREFIX.decode()}'" in bootstrap.code


def test_set_up_script_prints_keys_that_the_configuration_has() -> None:
    printed = re.findall(r"'    (\w+): ", script("scripts/enable-winrm-https.ps1").code)
    assert printed == ["endpoint", "ca"]
    assert set(printed) <= set(WinRMHost.model_fields)


def test_playbook_and_script_want_the_same_of_the_service() -> None:
    """Both are ways to the same host: what one sets, the other must not undo."""
    code = script("scripts/enable-winrm-https.ps1").code
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


def test_each_machine_of_a_golden_disk_has_a_key_of_its_own() -> None:
    """Made before the account: nobody can sign in to a machine with the disk's own key."""
    code = script("images/oem/ready.ps1").code
    assert "enable-winrm-https.ps1" in script("images/oem/golden.ps1").code
    own = re.search(r"& \(Join-Path .*'enable-winrm-https\.ps1'\) .*-Renew", code)
    assert own is not None
    assert own.start() < code.index("New-Account -Line")
