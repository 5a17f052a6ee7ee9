"""images/oem in PowerShell: what makes a golden disk, and what runs at each start of a machine."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from setup_state import POLICIES, State, answering
from windows import ROOT, InWine, Shell
from windows_programs import knob, ran

_WINLOGON = r"HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion\Winlogon"
_UPDATES = r"HKLM:\SOFTWARE\Policies\Microsoft\Windows\WindowsUpdate\AU"
_INSTALLED = r"C:\Program Files\windows-cuda-wheels"
_PORT = 5986


class Machine:
    """One with a serial port and the share of the container that it runs in."""

    def __init__(self, wine: InWine, shell: Shell) -> None:
        self.wine = wine
        self.state = State(shell)
        for name in ("golden.ps1", "ready.ps1", "serial.ps1"):
            shell.put(ROOT / "images/oem" / name, rf"oem [x]\{name}")
        shell.put(ROOT / "scripts/enable-winrm-https.ps1", r"oem [x]\enable-winrm-https.ps1")
        self.folder = rf"{shell.folder}\oem [x]"
        self.share = wine.prefix.path / "dosdevices/unc/host.lan/Data"
        shutil.rmtree(self.share, ignore_errors=True)
        self.share.mkdir(parents=True)
        wine.path(rf"{self.folder}\account.txt").unlink(missing_ok=True)
        shutil.rmtree(wine.path(_INSTALLED), ignore_errors=True)
        self._port = wine.path(rf"{shell.folder}\serial.txt")
        self._port.write_text("half a line of the boot loader's")

    def said(self) -> list[str]:
        """What came over the serial port."""
        return self._port.read_bytes().decode().split("\r\n")

    def listens(self) -> None:
        """As a disk that golden.ps1 has made."""
        script = rf"{self.folder}\enable-winrm-https.ps1"
        names = ["localhost", "127.0.0.1"]
        assert self.state.run(script, HostName=names, RemoteAddress=["Any"]).error == ""
        self.state.kept["status"] = "Stopped"


@pytest.fixture
def machine(wine: InWine, shell: Shell) -> Iterator[Machine]:
    made = Machine(wine, shell)
    with answering(made.state, port=_PORT):
        yield made


@pytest.fixture
def golden(machine: Machine) -> Machine:
    machine.state.kept["users"] = {
        name: {"enabled": True, "password": "x", "groups": []} for name in ("Docker", "Admin")
    }
    machine.state.shell.run(
        f"$null = New-Item -Path '{_WINLOGON}' -Force\n"
        f"Set-ItemProperty -Path '{_WINLOGON}' -Name DefaultPassword -Value x"
    )
    return machine


def _pin(machine: Machine) -> str:
    pem = machine.state.shown()
    assert pem is not None
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    return x509.load_pem_x509_certificate(pem.read_bytes()).fingerprint(hashes.SHA256()).hex()


def test_golden_disk(golden: Machine) -> None:
    key = golden.share / "key"
    key.write_text("AAAAA-BBBBB\r\n")
    assert golden.state.run(rf"{golden.folder}\golden.ps1").error == ""
    kept = golden.state.kept
    assert golden.state.transports() == ["HTTPS"]
    programs = {words[0].rpartition("\\")[2]: words[1:] for words in ran(golden.wine)}
    assert programs["tzutil.exe"] == ["/s", "UTC"]
    assert programs["shutdown.exe"][0] == "/s"
    settings = golden.state.shell.run(
        rf"(Get-Item '{POLICIES}').GetValue('ShutdownWithoutLogon')" + "\n"
        rf"(Get-Item '{_UPDATES}').GetValue('NoAutoUpdate')"
    )
    assert [str(one) for one in settings.output] == ["1", "1"]
    assert [user["enabled"] for user in kept["users"].values()] == [False, False]
    assert not key.exists()
    assert kept["called"]["InstallProductKey"]["key"] == "AAAAA-BBBBB"
    assert kept["called"]["Activate"]["class"] == "SoftwareLicensingProduct"
    (task,) = kept["tasks"].values()
    assert rf"{_INSTALLED}\ready.ps1" in task["action"]
    assert task["principal"].startswith("S-1-5-18")
    installed = golden.wine.path(_INSTALLED)
    assert sorted(path.name for path in installed.iterdir()) == [
        *("enable-winrm-https.ps1", "ready.ps1", "serial.ps1")
    ]
    values = golden.state.shell.run(f"(Get-Item -Path '{_WINLOGON}').Property")
    assert values.error == ""
    assert "DefaultPassword" not in values.output
    assert golden.said()[-2] == f"WCW-GOLDEN {_pin(golden)} 1 259200"


def test_golden_disk_that_cannot_be_activated(golden: Machine) -> None:
    """It says for how long it runs all the same."""
    golden.state.kept["refused"] = ["Activate"]
    assert golden.state.run(rf"{golden.folder}\golden.ps1").error == ""
    assert golden.said()[-2] == f"WCW-GOLDEN {_pin(golden)} 2 14400"


def test_golden_disk_on_which_an_account_stays(golden: Machine) -> None:
    golden.state.kept["fixed"] = ["Admin"]
    assert "Admin" in golden.state.run(rf"{golden.folder}\golden.ps1").error
    assert not any(line.startswith("WCW-GOLDEN") for line in golden.said())
    assert not any("shutdown" in words[0] for words in ran(golden.wine))


@pytest.mark.parametrize("failing", ["tzutil", "shutdown"])
def test_golden_disk_whose_programs_fail(golden: Machine, failing: str) -> None:
    knob(golden.wine, failing=[failing])
    error = golden.state.run(rf"{golden.folder}\golden.ps1").error
    assert f"{failing}.exe ended with exit code 1" in error


@pytest.mark.parametrize(("line", "said"), [("", "there is no"), ("builder", "USER:PASSWORD")])
def test_no_account(machine: Machine, line: str, said: str) -> None:
    machine.listens()
    if line:
        (machine.share / "winrm").write_text(line)
    result = machine.state.run(rf"{machine.folder}\ready.ps1", WaitSeconds=1)
    assert said in result.error
    assert machine.said()[-2] == f"WCW-FAILED {result.error}"
    assert machine.state.kept["users"] == {}


def test_account_is_made_once(machine: Machine) -> None:
    machine.listens()
    disks_own = machine.state.kept["made"]["thumbprint"]
    secret = machine.share / "winrm"
    timer = threading.Timer(3, lambda: _appear(secret, 'builder:a:b "c" $d\r\n'))
    timer.start()
    result = machine.state.run(rf"{machine.folder}\ready.ps1", WaitSeconds=120)
    timer.join()
    assert result.error == ""
    made = {"enabled": True, "password": 'a:b "c" $d', "groups": ["S-1-5-32-544"]}
    assert machine.state.kept["users"] == {"builder": made}
    assert not secret.exists()
    assert machine.state.kept["made"]["thumbprint"] != disks_own
    assert machine.state.kept["status"] == "Running"
    assert machine.said()[-2] == f"WCW-READY {_pin(machine)}"
    machine.state.kept["status"] = "Stopped"
    assert machine.state.run(rf"{machine.folder}\ready.ps1", WaitSeconds=1).error == ""
    assert machine.said()[-2] == f"WCW-READY {_pin(machine)}"
    machine.state.kept["listeners"] = {}
    result = machine.state.run(rf"{machine.folder}\ready.ps1", WaitSeconds=1)
    assert "there are 0 HTTPS listeners" in result.error
    assert machine.said()[-2] == f"WCW-FAILED {result.error}"


def test_no_account_without_a_key_of_its_own(machine: Machine) -> None:
    machine.listens()
    (machine.share / "winrm").write_text("builder:secret")
    machine.state.kept["refused"] = ["certificate"]
    assert machine.state.run(rf"{machine.folder}\ready.ps1", WaitSeconds=1).error
    assert machine.state.kept["users"] == {}


def _appear(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text)
    part.rename(path)


def test_builder_of_a_runner(machine: Machine, place: str) -> None:
    script = machine.state.shell.put(ROOT / ".github/scripts/New-Builder.ps1")
    place += r"\password"
    assert machine.state.run(script, Path=place, WhatIf=True).error == ""
    assert machine.state.kept["users"] == {}
    assert not machine.wine.path(place).exists()
    assert machine.state.run(script, Path=place).error == ""
    (user,) = machine.state.kept["users"].values()
    assert user["password"] == machine.wine.path(place).read_text()
    assert re.fullmatch("aA1(-[0-9A-F]{2}){16}", user["password"])
    assert len(set(user["password"])) > 8
    assert user["groups"] == ["S-1-5-32-544"]


def test_engine_of_a_runner(machine: Machine) -> None:
    script = machine.state.shell.put(ROOT / ".github/scripts/Start-Engine.ps1")
    machine.state.kept["status"] = "Stopped"
    assert machine.state.run(script).error == ""
    assert machine.state.kept["status"] == "Running"
    machine.state.kept |= {"status": "Stopped", "fixed": ["docker"]}
    assert "after 1 s" in machine.state.run(script, WaitSeconds=1).error
