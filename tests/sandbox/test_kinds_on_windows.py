"""Resources on genuine Windows CPython: registry, environment, archives, an installer, twice."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
from plans import installer_spec

from pipelines.core.files import sha256_of
from pipelines.record.results import ProvisionResult
from pipelines.remote import files, provision
from pipelines.stages.line import Line, run_provision

MARKER = r"C:\t\restart-test.json"
SOFTWARE = r"HKLM\SOFTWARE\WcwTest"
PLUGIN = r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\WSMAN\Plugin\Microsoft.PowerShell"

SPECS: list[dict[str, Any]] = [
    {"kind": "registry", "key": SOFTWARE, "name": "number", "value": 7},
    {"kind": "registry", "key": SOFTWARE, "name": "text", "value": "seven"},
    {"kind": "registry", "key": SOFTWARE, "name": "list", "value": ["a", "b c"]},
    {"kind": "environment", "name": "WCW_TEST", "value": r"C:\t"},
    {"kind": "directory", "path": r"C:\t\made\deep"},
    {"kind": "defender_exclusion", "path": r"C:\b"},
    {"kind": "page_file", "path": r"C:\pagefile.sys", "initial_mb": 16, "maximum_mb": 64},
    {"kind": "winrm_quota", "place": "plugin", "name": "MaxMemoryPerShellMB", "at_least": 8192},
]


def apply(line: Line, spec: provision.Spec) -> provision.Outcome:
    return line.session.call(provision.apply_one, spec=spec, marker=MARKER)


def check(line: Line, *specs: provision.Spec) -> list[provision.Row]:
    return line.session.call(provision.check_all, specs=specs)


def test_registry_kinds(line: Line) -> None:
    quotas = '<Plug xmlns="urn:x"><Quotas MaxMemoryPerShellMB="1024"/></Plug>'
    seed = {"kind": "registry", "key": PLUGIN, "name": "ConfigXML", "value": quotas}
    assert apply(line, seed)["ok"]
    first = check(line, *SPECS)
    assert not any(row["ok"] for row in first)
    assert all(row["plan"] for row in first)
    for spec in SPECS:
        told = apply(line, spec)
        assert told["ok"], (spec, told)
        assert bool(told["reboot"]) == (spec["kind"] in ("page_file", "winrm_quota"))
    assert all(row["ok"] for row in check(line, *SPECS))
    assert check(line, seed)[0]["found"] == quotas.replace("1024", "8192")


def test_a_wish_to_restart_is_remembered(line: Line) -> None:
    assert apply(line, {**SPECS[6], "maximum_mb": 65})["reboot"]
    (row,) = check(line, {"kind": "reboot", "marker": MARKER})
    assert not row["ok"]
    assert "page file" in row["found"]


def test_a_tar_and_its_proof(line: Line, tmp_path: Path) -> None:
    packed = tmp_path / "tool.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        for name, data in {"python/tool.py": b"print('tool 1.2')", "python/a/b.txt": b"x"}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    sha256 = line.session.put(packed, r"C:\t\tool.tar.gz")
    row = {"name": "tool", "sha256": sha256, "file": r"C:\t\tool.tar.gz", "strip": "python"}
    spec = {
        "kind": "archive",
        "path": r"C:\tools\tool",
        "archives": [row],
        "unwatched": [],
        "proof": "tool.py",
        "check": {
            "command": [line.plan.host.executable, r"C:\tools\tool\tool.py"],
            "prints": r"^tool \d",
        },
    }
    assert apply(line, spec)["ok"]
    assert check(line, spec)[0]["ok"]
    stat = line.session.call(files.stat, path=r"C:\tools\tool\a\b.txt")
    assert stat
    assert stat["size"] == 1


def test_a_program_that_is_gone_is_put_back_alone(line: Line) -> None:
    run_provision(line)
    layout, call = line.plan.layout, line.session.call
    ptxas = layout.join(layout.cuda, r"bin\ptxas.exe")
    nvcc = layout.join(layout.cuda, r"bin\nvcc.exe")
    whole, kept = call(files.sha256, path=ptxas), call(files.stat, path=nvcc)
    assert call(files.remove_tree, path=ptxas)
    run_provision(line)
    assert line.provisioned is not None
    done = line.provisioned.result
    assert isinstance(done, ProvisionResult)
    changed = {row.id: row.found for row in done.resources if row.changed}
    assert list(changed) == ["CUDA compiler"]
    assert "bin/ptxas.exe missing" in changed["CUDA compiler"]
    assert call(files.sha256, path=ptxas) == whole
    assert call(files.stat, path=nvcc) == kept, "what was right is left alone"


def installer(line: Line, place: Path, code: str, **spec: Any) -> dict[str, Any]:
    """A genuine Windows program as an installer: exit codes are those of Windows."""
    python = line.plan.host.executable
    pins = []
    for name, text in (("setup.cmd", f'@"{python}" %*\r\n@exit %errorlevel%\r\n'), ("x.py", code)):
        (place / name).write_bytes(text.encode())
        line.session.put(place / name, rf"C:\t\{name}")
        digest = sha256_of(place / name)
        pins.append({"name": name, "version": "1", "sha256": digest, "file": rf"C:\t\{name}"})
    made = {
        "files": pins,
        "arguments": [r"C:\t\x.py"],
        "detect": r"C:\t\made\installed-*",
        "reboot": [3010, 1641],
        "logs": [r"C:\t\made\*.log"],
    }
    return installer_spec("", "", **made | spec)


@pytest.mark.parametrize(
    ("code", "said"),
    [(1, "exited with 1: why"), (1602, "exited with 1602"), (1603, "fatal error")],
)
def test_an_installer_that_fails(line: Line, code: int, said: str, tmp_path: Path) -> None:
    apply(line, SPECS[4])
    lines = r"open('C:\\t\\made\\a.log','w').write('log'); print('why',flush=True);"
    lines += f"raise SystemExit({code})"
    told = apply(line, installer(line, tmp_path, lines))
    assert not told["ok"]
    assert said in told["error"]
    assert told["logs"] == [r"C:\t\made\a.log"]
    line.session.get(told["logs"][0], tmp_path / "a.log")
    assert (tmp_path / "a.log").read_text() == "log"


def test_an_installer_that_hangs_with_a_child(line: Line, tmp_path: Path) -> None:
    child = (
        "import subprocess,sys; subprocess.run([sys.executable,'-c','import time;time.sleep(90)'])"
    )
    told = apply(line, installer(line, tmp_path, child, minutes=0.03))
    assert "did not finish" in told["error"]


def test_an_installer_that_wants_a_restart(line: Line, tmp_path: Path) -> None:
    code = r"open('C:\\t\\made\\installed-1','w'); raise SystemExit(3010)"
    told = apply(line, installer(line, tmp_path, code))
    assert (told["ok"], told["error"]) == (True, "")
    assert "3010" in told["reboot"]
