"""Environments, wheels, repositories and hosts of public reports, and what is said of them.

Each is a folder of ``tests/field/environments``: what is there (``input.yaml``), what people found
to be wrong, with sources, and what must be said (``answer.yaml``).
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from audited import look
from environments import Windows, module
from fatbins import ELF, container
from foreign_wheels import foreign
from loopback import listening
from pes import dll
from winrm.exceptions import InvalidCredentialsError

from pipelines.audit import cards
from pipelines.cli.program import run_command_line
from pipelines.publish.which.answer import as_object
from pipelines.publish.which.looking import Driver
from pipelines.publish.which.reporting import build_report
from pipelines.session.transports.endpoint import Endpoint
from pipelines.session.transports.winrs_errors import explain_winrm_error
from pipelines.session.transports.winrs_http import Adapter

FIELD = Path(__file__).parents[1] / "field/environments"
CASES = sorted(path.name for path in FIELD.iterdir())


def binary(spec: Any) -> bytes:
    """A file as a case describes it."""
    if isinstance(spec, str):
        return spec.encode()
    if "elf" in spec:
        code = [(ELF, one, 8) for one in spec.get("archs", "").split(";") if one]
        return b"\x7fELF" + bytes(60) + (container(*code) if code else b"")
    imports, exports = spec.get("imports", {}), spec.get("exports", ["PyInit__C"])
    if "archs" in spec:
        return module(
            imports, archs=spec["archs"], ptx=spec.get("ptx", ""), cuda=spec.get("cuda", "12.8")
        )
    version = spec.get("version", "").split(".") if spec.get("version") else []
    words = [int(one).to_bytes(2, "little") for one in version]
    fixed = [words[at] for at in (1, 0, 3, 2)] if words else []
    tail = b"\xbd\x04\xef\xfe" + bytes(4) + b"".join(fixed) if fixed else b""
    return dll(imports, exports, tail=tail, linker=tuple(spec.get("linker", (14, 0))))


def binaries(files: dict[str, Any]) -> dict[str, bytes]:
    return {path: binary(spec) for path, spec in files.items()}


def environment(given: dict[str, Any], room: Path) -> Any:
    """What ``which`` says of a Windows Python."""
    windows = Windows(room)
    if "torch" in given:
        for installed in [*windows.site.glob("torch*")]:
            shutil.rmtree(installed)
        own = given["torch"]
        windows.torch(own["version"], own["cuda"])
        for path, data in binaries(own.get("files", {})).items():
            (windows.site / path).write_bytes(data)
            (record,) = windows.site.glob("torch-*/RECORD")
            record.write_text(f"{record.read_text()}\n{path},,{len(data)}\n")
        (metadata,) = windows.site.glob("torch-*/METADATA")
        requires = "".join(f"Requires-Dist: {one}\n" for one in own.get("requires", ()))
        metadata.write_text(metadata.read_text() + requires)
    for path, file in binaries(given.get("beside", {})).items():
        (windows.python / path).write_bytes(file)
    for path, file in binaries(given.get("system", {})).items():
        (windows.system / path).write_bytes(file)
    for one in given.get("packages", ()):
        tag = one.get("tag", "cp312-cp312-win_amd64")
        windows.package(one["project"], one["version"], binaries(one["files"]),
                        requires=one.get("requires", ()), tag=tag)  # fmt: skip
    driver = Driver(given.get("driver", "12.9"), ("8.9",), missing=tuple(given.get("lacks", ())))
    found = build_report(windows.place(), [], given["package"], driver=driver, load=False)
    return as_object(found, "https://wheels.example.org/")


def which(given: dict[str, Any], answer: dict[str, Any], room: Path) -> None:
    seen = environment(given, room)
    every = [*seen["findings"], *(f for one in seen["packages"] for f in one["findings"])]
    for wanted in answer["says"]:
        texts = [f"{one['actual']} {one['hint']}".replace("\\", "/") for one in every
                 if (one["id"], one["level"]) == (wanted["id"], wanted["level"])]  # fmt: skip
        names = [name.replace("\\", "/") for name in wanted["names"]]
        assert any(all(name in text for name in names) for text in texts), every
    commands = " ".join(one["do"] for one in seen["commands"])
    assert all(one["undo"] for one in seen["commands"])
    assert [one for one in answer.get("commands", ()) if one not in commands] == []
    if not answer["says"]:
        assert [one for one in every if one["level"] == "error"] == []


def audit(given: dict[str, Any], answer: dict[str, Any], room: Path) -> None:
    wheel = given["wheel"]
    files = binaries(wheel["files"])
    made = foreign(room, wheel["name"], wheel["version"], wheel["tag"],
                   requires=wheel["requires"], files=files)  # fmt: skip
    found = look(made, *map(cards.parse_gpu_option, given["gpus"])).findings
    for wanted in answer["says"]:
        texts = [f"{one.actual} {one.hint}" for one in found
                 if (one.id, one.level) == (wanted["id"], wanted["level"])]  # fmt: skip
        assert any(all(name in text for name in wanted["names"]) for text in texts), found


def init(given: dict[str, Any], answer: dict[str, Any], room: Path, capsys: Any) -> None:
    git = ["git", "-C", str(room), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    for path, text in given["files"].items():
        (room / path).parent.mkdir(parents=True, exist_ok=True)
        (room / path).write_text(text)
    subprocess.run([*git, "add", "-A"], check=True)
    for path in given.get("links", ()):
        link = f"160000,{'1' * 40},{path}"
        subprocess.run([*git, "update-index", "--add", "--cacheinfo", link], check=True)
    subprocess.run([*git, "commit", "-qm", "x"], check=True)
    where = room / given.get("directory", ".")
    says = answer["says"]
    with contextlib.chdir(where):
        code = run_command_line(["init", "--yes", *given.get("flags", ())])
    printed = " ".join("".join(capsys.readouterr()).split())
    assert code == (2 if "refused" in says else 0), printed
    wanted = [*says.get("refused", ()), *says.get("notes", ())]
    assert [one for one in wanted if one not in printed] == []
    if code:
        assert not (where / ".wcw").exists()
        return
    (recipe,) = (where / ".wcw/recipes").glob("*.yaml")
    made = yaml.safe_load(recipe.read_text())
    assert says.get("environment", {}).items() <= made["environment"].items()
    assert says.get("smoke", made["smoke"]) == made["smoke"]
    assert says.get("name", made["name"]) == made["name"]
    assert says.get("archs", made["archs"]) == made["archs"]
    assert {*says.get("tests", ())} <= {*made.get("test_requires", ())}
    (suite,) = (where / ".wcw/smoke").glob("*/test_*.py")
    assert [one for one in says.get("modules", ()) if repr(one) not in suite.read_text()] == []


def plan(given: dict[str, Any], answer: dict[str, Any], room: Path, capsys: Any) -> None:
    if "config" in given:
        (room / "pipeline.yaml").write_text(given["config"])
    says = answer["says"]
    assert run_command_line(["plan", "--json", *given["arguments"]]) == says["code"]
    printed = capsys.readouterr().out
    found = [one for cell in json.loads(printed)["cells"] for one in cell["findings"]]
    assert {*says["rules"]} <= {one["id"] for one in found}
    text = " ".join(f"{one['actual']} {one['hint']}" for one in found)
    assert [one for one in says["names"] if one not in text] == []


def doctor(given: dict[str, Any], answer: dict[str, Any], room: Path) -> None:
    class Refuses(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(401)
            self.send_header("WWW-Authenticate", given["offers"])
            self.send_header("Content-Length", "0")
            self.end_headers()

    with listening(Refuses) as url, requests.Session() as session:
        endpoint = Endpoint(url, "opc", transport=given["transport"])
        session.mount("http://", Adapter(endpoint, "secret99"))
        try:
            assert session.post(url, auth=("opc", "secret99")).status_code == 401
            error: Exception = InvalidCredentialsError("refused")
        except InvalidCredentialsError as found:
            error = found
    said = explain_winrm_error(error, endpoint)
    text = f"{said.message} {said.hint}"
    assert [one for one in answer["says"]["names"] if one not in text] == []
    assert "secret99" not in text


@pytest.mark.parametrize("name", CASES)
def test_what_people_found_is_said(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given, answer = (
        yaml.safe_load((FIELD / name / file).read_text("utf-8"))
        for file in ("input.yaml", "answer.yaml")
    )
    assert answer["sources"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAB1_PASSWORD", "x")
    printing = {"init": init, "plan": plan}
    silent = {"which": which, "audit": audit, "doctor": doctor}
    if answer["tool"] in printing:
        printing[answer["tool"]](given, answer, tmp_path, capsys)
    else:
        silent[answer["tool"]](given, answer, tmp_path)
