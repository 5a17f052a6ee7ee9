"""scripts/enable-winrm-https.ps1 in PowerShell; what Wine does not have is in standins.ps1."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from setup_state import POLICIES, SERVICE, State, answering
from windows import ROOT, InWine, Result, Shell, call
from windows_programs import knob

from pipelines.hosts.winrm.config import WinRMHost

_TOKEN = "LocalAccountTokenFilterPolicy"
_PEM = r"C:\ProgramData\wcw-winrm.pem"
_NAMES = ["lab1.example.org", "192.0.2.20"]


class Machine:
    """One that is to become a host."""

    def __init__(self, windows: InWine, shell: Shell, port: int = 1) -> None:
        self.windows = windows
        self.state = State(shell)
        self.script = shell.put(ROOT / "scripts/enable-winrm-https.ps1")
        self.port = port
        self.pem = windows.path(_PEM)
        self.pem.unlink(missing_ok=True)

    def _ask(self, text: str) -> str:
        result = self.state.shell.run(text)
        assert result.error == ""
        return result.text

    def run(self, names: list[str] = _NAMES, **parameters: object) -> Result:
        given = {"HostName": names, "RemoteAddress": ["192.0.2.10"], "Port": self.port}
        return self.state.run(self.script, **{**given, **parameters})

    def value(self, key: str, name: str) -> str:
        return self._ask(f"[string] (Get-ItemProperty -Path '{key}').'{name}'")

    @property
    def thumbprint(self) -> str:
        return str(self.state.kept["made"].get("thumbprint", ""))


@pytest.fixture
def machine(wine: InWine, shell: Shell) -> Iterator[Machine]:
    machine = Machine(wine, shell)
    with answering(machine.state) as machine.port:
        yield machine


@pytest.fixture
def silent(wine: InWine, shell: Shell) -> Machine:
    """Nothing answers on its port."""
    return Machine(wine, shell)


def test_fresh_then_again(machine: Machine) -> None:
    first = machine.run()
    assert first.error == ""
    kept = machine.state.kept
    assert machine.state.transports() == ["HTTPS"]
    (listener,) = kept["listeners"].values()
    assert listener["CertificateThumbprint"] == machine.thumbprint
    assert (listener["Port"], listener["Address"]) == (str(machine.port), "*")
    rule = {"LocalPort": machine.port, "RemoteAddress": ["192.0.2.10"]}
    assert list(kept["firewall"].values()) == [{**rule, "Action": "Allow", "Enabled": "True"}]
    assert machine.value(POLICIES, _TOKEN) == "1"
    assert (machine.value(SERVICE, "Start"), machine.value(SERVICE, "DelayedAutoStart")) == (
        "2",
        "1",
    )
    made = x509.load_pem_x509_certificate(machine.pem.read_bytes())
    assert made.fingerprint(hashes.SHA1()).hex().upper() == machine.thumbprint  # noqa: S303
    assert b"PRIVATE" not in machine.pem.read_bytes()
    assert kept["made"]["length"] >= 2048
    assert kept["made"]["export"] == "NonExportable"
    assert "CertSign" not in kept["made"]["usage"]  # its key vouches for no other host
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    days = (made.not_valid_after_utc - datetime.datetime.now(datetime.UTC)).days
    assert 820 <= days <= 825
    # What it prints is what a pipeline.yaml takes.
    printed = "\n".join(line for line in first.output if line.startswith("    "))
    host = {"kind": "winrm", "username": "builder", "password_env": "X", **yaml.safe_load(printed)}
    assert WinRMHost.model_validate(host).endpoint == (
        f"https://lab1.example.org:{machine.port}/wsman"
    )

    pem, listeners = machine.pem.read_bytes(), kept["listeners"]
    assert machine.run(RemoteAddress=["192.0.2.0/24"]).error == ""
    assert machine.state.kept["listeners"] == listeners
    assert machine.pem.read_bytes() == pem
    (rule,) = machine.state.kept["firewall"].values()
    assert rule["RemoteAddress"] == ["192.0.2.0/24"]


def test_stopped_service_is_started(machine: Machine) -> None:
    machine.state.kept["status"] = "Stopped"
    looked = machine.run(WhatIf=True)
    assert looked.warnings
    assert machine.state.kept["status"] == "Stopped"
    assert machine.run().error == ""
    assert machine.state.kept["status"] == "Running"


def test_what_if_changes_nothing(machine: Machine) -> None:
    before = dict(machine.state.kept)
    assert machine.run(WhatIf=True).error == ""
    assert machine.state.kept == before
    assert not machine.pem.exists()
    assert machine.value(POLICIES, _TOKEN) == ""
    assert machine.value(SERVICE, "Start") == "3"


def test_names_decide_whether_a_certificate_is_kept(machine: Machine) -> None:
    machine.run()
    first = machine.thumbprint
    assert machine.run([*_NAMES, "other"]).error == ""
    second = machine.thumbprint
    assert second != first
    (listener,) = machine.state.kept["listeners"].values()
    assert listener["CertificateThumbprint"] == second
    assert machine.run(["other"]).error == ""
    assert machine.thumbprint == second


def test_certificate_that_ends_soon_is_replaced(machine: Machine) -> None:
    assert machine.run(ValidDays=40, RenewDays=10).error == ""
    first = machine.thumbprint
    assert machine.run(RenewDays=50).error == ""
    assert machine.thumbprint != first
    (listener,) = machine.state.kept["listeners"].values()
    assert listener["CertificateThumbprint"] == machine.thumbprint


def test_ipv6_in_two_spellings(machine: Machine) -> None:
    said = machine.run(["2001:DB8:0::1"])
    assert said.error == ""
    first = machine.thumbprint
    again = machine.run(["2001:db8::1"])
    assert again.error == ""
    assert machine.thumbprint == first
    assert f"https://[2001:db8::1]:{machine.port}/wsman" in again.text


@pytest.mark.parametrize(
    ("refused", "said"),
    [("certificate", "no certificate"), ("listener", "cannot process"), ("firewall", "address")],
)
def test_what_cannot_be_made_leaves_http(machine: Machine, refused: str, said: str) -> None:
    machine.state.kept["refused"] = [refused]
    assert said in machine.run().error
    assert "HTTP" in machine.state.transports()


def test_policy_that_holds_a_way_to_sign_in(machine: Machine) -> None:
    machine.state.kept["service"]["Auth\\Basic"] = "true"
    machine.state.kept["fixed"] = ["Auth\\Basic"]
    assert "Auth\\Basic is true" in machine.run().error


def test_settings_that_a_public_network_holds_back(machine: Machine) -> None:
    """Such as that of a switch of Hyper-V; all else is right, and HTTP is gone all the same."""
    machine.state.kept["service"]["AllowUnencrypted"] = "true"
    machine.state.kept["networks"] = {"7": "Private", "9": "Public"}
    error = machine.run().error
    assert "AllowUnencrypted is true" in error
    assert "-InterfaceIndex 9 " in error
    assert machine.state.transports() == ["HTTPS"]
    assert machine.state.kept["firewall"]
    machine.state.kept["networks"] = {"9": "Private"}
    assert machine.run().error == ""
    assert machine.state.kept["service"]["AllowUnencrypted"] == "false"


def test_insecure_settings_are_taken_back(machine: Machine) -> None:
    machine.state.kept["service"] |= {"Auth\\Basic": "true", "AllowUnencrypted": "true"}
    assert machine.run().error == ""
    service = machine.state.kept["service"]
    assert (service["Auth\\Basic"], service["AllowUnencrypted"]) == ("false", "false")
    assert (service["Auth\\Negotiate"], service["Auth\\Kerberos"]) == ("true", "true")


def test_policy_that_keeps_http(machine: Machine) -> None:
    machine.state.kept["fixed"] = ["HTTP"]
    assert "there still is an HTTP listener" in machine.run().error


def test_keep_http_and_the_policy(machine: Machine) -> None:
    assert machine.run(KeepHttp=True, SkipTokenPolicy=True).error == ""
    assert machine.state.transports() == ["HTTP", "HTTPS"]
    assert machine.value(POLICIES, _TOKEN) == ""


def test_certificate_of_the_machine(machine: Machine) -> None:
    machine.run()
    first = machine.thumbprint
    assert machine.run(["elsewhere"], CertificateThumbprint=first.lower()).error == ""
    assert machine.thumbprint == first
    unknown = machine.run(CertificateThumbprint="a" * 40)
    assert "A" * 40 in unknown.error
    keyless = machine.state.store / f"{first}.pem"
    keyless.write_text(keyless.read_text().partition("-----BEGIN PRIVATE")[0])
    assert "private key" in machine.run(CertificateThumbprint=first).error
    made = machine.state.run_text(
        "$null = New-SelfSignedCertificate -Subject 'CN=a' -TextExtension '2.5.29.17={text}DNS=a' "
        "-NotAfter ([datetime]::Now.AddMinutes(-5))"
    )
    assert made.error == ""
    assert "expired" in machine.run(CertificateThumbprint=machine.thumbprint).error


@pytest.mark.parametrize(
    "parameters",
    [{"names": ["a b"]}, {"ValidDays": 10, "RenewDays": 10}, {"names": []}],
    ids=["space", "renewed-each-time", "no-name"],
)
def test_what_is_refused_at_once(silent: Machine, parameters: dict[str, object]) -> None:
    before = dict(silent.state.kept)
    assert silent.run(**parameters).error  # type: ignore[arg-type]
    assert silent.state.kept == before


def test_who_is_no_administrator(silent: Machine) -> None:
    before = dict(silent.state.kept)
    nobody = "[pscustomobject] @{} | Add-Member -PassThru ScriptMethod IsInRole { $false }"
    start = call(silent.script, HostName=["a"], RemoteAddress=["192.0.2.10"])
    said = silent.state.run_text(f"function New-Object {{ {nobody} }}\n{start}")
    assert "administrator" in said.error
    assert silent.state.kept == before


def test_nobody_answers(silent: Machine) -> None:
    assert "nothing answers on port 1" in silent.run().error
    assert "HTTP" in silent.state.transports()


def test_something_else_answers(wine: InWine, shell: Shell) -> None:
    machine = Machine(wine, shell)
    with answering(machine.state, "HTTP/1.1 503 Service Unavailable") as machine.port:
        assert "503" in machine.run().error
    assert "HTTP" in machine.state.transports()


def test_another_certificate_is_shown(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.run()
    other = machine.state.shown()
    monkeypatch.setattr(machine.state, "shown", lambda: other)
    machine.state.kept["listeners"] |= {"Listener_1": {"Transport": "HTTP", "Address": "*"}}
    assert "shows certificate" in machine.run([*_NAMES, "other"]).error
    assert machine.state.transports() == ["HTTP", "HTTPS"]


def test_sc_that_fails(machine: Machine, wine: InWine) -> None:
    knob(wine, failing=["sc"])
    assert "exit code 1" in machine.run().error
    assert machine.state.transports() == ["HTTP"]


def test_file_of_a_user_is_not_believed(machine: Machine) -> None:
    """Where the certificate goes every user may make files, and change those that he made."""
    machine.pem.write_text("of a user")
    machine.pem.chmod(0o666)
    assert machine.run().error == ""
    assert machine.pem.read_text().startswith("-----BEGIN CERTIFICATE-----")
    assert machine.pem.stat().st_mode & 0o002 == 0
    # Whoever is faster than the second of the two calls is not overwritten: it fails.
    script = (ROOT / "scripts/enable-winrm-https.ps1").read_text()
    (function,) = re.findall(r"^function Write-ProtectedFile .*?^\}\n", script, re.M | re.S)
    said = machine.state.run_text(f"{function}Write-ProtectedFile -Path '{_PEM}' -Text 'a'")
    assert "wcw-winrm.pem" in said.error
