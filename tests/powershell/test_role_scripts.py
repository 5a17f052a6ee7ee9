"""What Ansible's roles send as PowerShell, in PowerShell; WSMan: and networks are stand-ins."""

from __future__ import annotations

import pytest
from setup_state import State
from windows import ROOT, InWine, Result, Shell, call

_QUOTA = r"WSMan:\localhost\Shell\MaxMemoryPerShellMB"


class Role:
    """Runs its files as win_powershell does, which gives them $Ansible."""

    def __init__(self, shell: Shell) -> None:
        self.state = State(shell)

    def run(self, name: str, **parameters: object) -> tuple[list[str], bool]:
        """What it printed, and whether it says that it changed something."""
        script = self.state.shell.put(next((ROOT / "ansible/roles").glob(f"*/files/{name}")))
        result: Result = self.state.run_text(
            "$Ansible = [pscustomobject] @{ Changed = $null }\n"
            f"{call(script, **parameters)} | ForEach-Object {{ ConvertTo-Json $_ -Compress }}\n"
            "[string] $Ansible.Changed"
        )
        assert result.error == ""
        *output, changed = result.output
        assert changed in ("True", "False")
        return output, changed == "True"


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


def test_limits_of_the_service_and_its_plugins(role: Role) -> None:
    found = role.run("Get-MemoryLimits.ps1", Plugins=["microsoft.powershell"])
    assert found == (["1024", "2048"], False)
    assert role.run("Get-MemoryLimits.ps1", Plugins=[], WhatIf=True) == (["1024"], False)


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
