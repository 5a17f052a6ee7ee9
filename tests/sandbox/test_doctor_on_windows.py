"""The doctor on genuine Windows CPython: what is asked there, and what comes of it."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from pipelines.doctor import run
from pipelines.doctor.inspect import inspect_host, measure_skew
from pipelines.remote import facts, provision
from pipelines.remote.inspection import machine, tools
from pipelines.reports.findings import findings_table
from pipelines.stages.line import Line

#: What a part must have, and of which types; a dict stands for the keys below.
MACHINE: dict[str, Any] = {
    "system": dict,
    "wine": str,
    "cpu": {"model": (str, type(None)), "cores": int},
    "commit": {"limit": int, "used": int},
    "job": (dict, type(None)),
    "disks": {"C:\\": {"path": str, "free": int, "total": int}, "C:\\b": dict, "C:\\t": dict},
    "administrator": bool,
}
FACTS: dict[str, Any] = {
    "platform": str,
    "windows": {"version": str, "build": int, "server": bool},
    "machine": str,
    "python": str,
    "python_bits": int,
    "cpus": int,
    "memory": {"total": int, "available": int},
    "time": float,
}


def assert_shape(found: Any, shape: Any, where: str = "") -> None:
    if not isinstance(shape, dict):
        assert isinstance(found, shape), f"{where}: {found!r}"
        return
    assert isinstance(found, dict), f"{where}: {found!r}"
    for key, below in shape.items():
        assert_shape(found.get(key), below, f"{where}/{key}")


def test_the_machine(line: Line) -> None:
    found: Any = line.session.call(machine.machine, paths=["C:\\b", "C:\\t"])
    assert_shape(found, MACHINE)
    problems = found["problems"].keys()
    assert {"power"} <= problems <= {"power", "password"}, (
        "Wine has no power scheme, nor rules for passwords"
    )
    assert found["policies"]["enforced"] is False
    assert found["disks"]["problems"] == {}
    assert found["wine"][0].isdigit()
    assert found["commit"]["limit"] > found["commit"]["used"] > 1 << 20
    assert found["disks"]["C:\\"]["total"] > found["disks"]["C:\\"]["free"] > 1 << 20
    assert found["cpu"]["cores"] == line.session.facts["cpus"]


def test_the_facts(line: Line) -> None:
    assert_shape(line.session.facts, FACTS)
    assert line.session.facts["problems"] == {}
    assert (line.session.facts["platform"], line.session.facts["python_bits"]) == ("win32", 64)
    assert line.session.facts["machine"] == "AMD64"


def test_tools_are_asked_for_their_version(line: Line) -> None:
    """python.exe is a tool that is there for certain."""
    beside = line.plan.host.executable.rpartition("\\")[0]
    found: Any = line.session.call(
        tools.tools, cuda=r"C:\no", programs={"python": [beside], "no-tool": []}
    )
    assert found["python"]["version"] == line.session.facts["python"]
    assert found["python"]["path"].lower() == line.plan.host.executable.lower()
    assert found["no-tool"] is None
    assert found["gpus"] is None
    (stand_in,) = found["visual_studio"]
    assert (stand_in["path"], stand_in["toolsets"]) == (r"C:\VS", ["14.40.33807"])
    assert found["problems"] == {}


def test_services_that_wine_lacks(line: Line) -> None:
    shell = {"kind": "winrm_quota", "place": "shell", "name": "MaxShellRunTime", "at_least": 1}
    exclusion = {"kind": "defender_exclusion", "path": r"C:\no"}
    quota, defender = line.session.call(provision.check_all, specs=[shell, exclusion])
    assert "PowerShell" in quota["error"]  # of Wine: no output; a genuine one: no such drive
    assert quota["values"] == {}
    assert defender["values"] == {"Defender": "not installed", "excluded": "no"}


def test_clocks_of_one_machine_agree(line: Line) -> None:
    assert abs(measure_skew(line.session)) < 1


def test_the_host_part_by_part(line: Line) -> None:
    found = inspect_host(line.plan, line.session)
    assert found["problems"] == {}
    assert set(found) == {"skew", "facts", "machine", "tools", "resources", "unpacked", "problems"}


def test_nothing_is_wrong_with_a_sandbox(line: Line, capsys: pytest.CaptureFixture[str]) -> None:
    line.session.call(facts.facts)  # the start has printed its messages
    capsys.readouterr()
    outcome = run.run_doctor(line.plan, line.session, as_json=True)
    out, _ = capsys.readouterr()
    told = json.loads(out, parse_constant=pytest.fail)
    assert (told["schema"], told["host"]) == (2, "sandbox")
    assert told["order"]["sandbox"] is True
    assert told["summary"]["error"] == 0
    assert told["summary"]["unknown"] == 0
    assert outcome.exit_code == 0
    by_name = {(v.subject, v.id): v for v in outcome.findings}
    assert by_name["this machine", "wine"].actual.startswith("wine-")
    assert by_name["host", "operating-system"].actual.startswith("Wine ")
    assert by_name["host", "clock"].level == "ok"
    assert by_name["tool chain", "what-goes-with-what"].level == "ok"
    # Memory, and what is not provisioned yet, may be worth a warning; nothing else is.
    warned = {name for (_, name), verdict in by_name.items() if verdict.level == "warning"}
    assert warned <= {"memory", "commit-limit", "cuda-compiler", "long-paths"}
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(findings_table(outcome.findings, grouped=True), soft_wrap=True)
    rows = console.export_text().splitlines()
    assert sum(row[:3] in ("✓  ", "!  ") for row in rows) == len(outcome.findings)
