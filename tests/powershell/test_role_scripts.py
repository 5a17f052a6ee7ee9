"""What Ansible's roles send as PowerShell, in PowerShell; WSMan: and networks are stand-ins."""

from __future__ import annotations

import pytest
from setup_state import State
from windows import ROOT, InWine, Result, Shell, call
from windows_programs import executable

_QUOTA = r"WSMan:\localhost\Shell\MaxMemoryPerShellMB"


class Role:
    """Runs its files as win_powershell does, which gives them $Ansible."""

    def __init__(self, shell: Shell) -> None:
        self.state = State(shell)

    def _run(self, name: str, parameters: dict[str, object]) -> Result:
        script = self.state.shell.put(next((ROOT / "ansible/roles").glob(f"*/files/{name}")))
        return self.state.run_text(
            "$Ansible = [pscustomobject] @{ Changed = $null }\n"
            f"{call(script, **parameters)} | ForEach-Object {{ ConvertTo-Json $_ -Compress }}\n"
            "[string] $Ansible.Changed"
        )

    def run(self, name: str, **parameters: object) -> tuple[list[str], bool]:
        """What it printed, and whether it says that it changed something."""
        result = self._run(name, parameters)
        assert result.error == ""
        *output, changed = result.output
        assert changed in ("True", "False")
        return output, changed == "True"

    def refuse(self, name: str, **parameters: object) -> str:
        """What it ends with."""
        return self._run(name, parameters).error


@pytest.fixture
def role(wine: InWine, shell: Shell) -> Role:
    return Role(shell)


def test_value_is_set_where_it_differs(role: Role) -> None:
    assert role.run("Get-WSManValue.ps1", Path=_QUOTA) == (['"1024"'], False)
    assert role.run("Set-WSManValue.ps1", Path=_QUOTA, Value="8192", WhatIf=True) == ([], True)
    assert role.run("Set-WSManValue.ps1", Path=_QUOTA, Value="8192") == ([], True)
    assert role.run("Set-WSManValue.ps1", Path=_QUOTA, Value="8192") == ([], False)
    assert role.run("Set-WSManValue.ps1", Path=_QUOTA, Value="", WhatIf=True) == ([], True)
    assert role.run("Get-WSManValue.ps1", Path=_QUOTA, WhatIf=True) == (['"8192"'], False)


def test_listeners(role: Role) -> None:
    ((row,), changed) = role.run("Get-Listeners.ps1", WhatIf=True)
    assert not changed
    assert '"name":"Listener_1"' in row
    assert '"port":"5985"' in row
    assert '"transport":"HTTP"' in row
    assert role.run("Remove-Listener.ps1", Name="Listener_1", WhatIf=True) == ([], True)
    assert role.state.transports() == ["HTTP"]
    assert role.run("Remove-Listener.ps1", Name="Listener_1") == ([], True)
    assert role.state.transports() == []


def test_public_networks_become_private(role: Role) -> None:
    role.state.kept["networks"] = {"4": "Public", "5": "DomainAuthenticated", "6": "Private"}
    assert role.run("Set-PrivateNetwork.ps1", WhatIf=True) == ([], True)
    assert role.state.kept["networks"]["4"] == "Public"
    assert role.run("Set-PrivateNetwork.ps1") == ([], True)
    after = {"4": "Private", "5": "DomainAuthenticated", "6": "Private"}
    assert role.state.kept["networks"] == after
    assert role.run("Set-PrivateNetwork.ps1") == ([], False)


def test_signature(role: Role, wine: InWine, place: str) -> None:
    file = rf"{place}\setup [x].exe"
    wine.path(file).write_bytes(executable())
    assert role.run("Get-Signature.ps1", Path=file) == (['"NotSigned|"'], False)


def test_errors_of_the_setup_program(role: Role, wine: InWine, place: str) -> None:
    wine.path(rf"{place}\dd_errors[x].log").write_text("first\nsecond\n")
    given = {"Directories": [place], "Patterns": ["dd_*errors*.log"]}
    (_, *lines), changed = role.run("Get-SetupErrors.ps1", **given)
    assert (lines, changed) == (['"first"', '"second"'], False)


def test_directory_that_others_may_have_filled(role: Role, wine: InWine, place: str) -> None:
    """Wine keeps the rights of Everyone as those of others."""
    script, path = "Protect-Directory.ps1", rf"{place}\roles [x]\git"
    for what_if, changed in ((True, True), (False, True), (False, False)):
        assert role.run(script, Path=path, Readable=True, WhatIf=what_if) == ([], changed)
        assert wine.path(path).exists() is not what_if
    assert wine.path(path).parent.stat().st_mode & 0o007 == 0
    wine.path(rf"{place}\open").mkdir()
    wine.path(rf"{place}\open").chmod(0o777)
    assert r"open is not safe to use" in role.refuse(script, Path=rf"{place}\open\git")
    assert [*wine.path(rf"{place}\open").iterdir()] == []
