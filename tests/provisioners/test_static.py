"""What the linters do not look at: options of the firewall, the values of the Dockerfile.

Evidence level S (static check). ``ansible-doc`` and BuildKit's Dockerfile parser come from
``.venv-ansible``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
import yaml

from pipelines.toolchain.lock import load_lock
from pipelines.toolchain.sync import DOCKERFILE, VARIABLES

ROOT = Path(__file__).parents[2]
VENV = ROOT / ".venv-ansible"

pytestmark = pytest.mark.skipif(
    not (VENV / "bin/ansible-doc").exists(),
    reason="no .venv-ansible: scripts/check-provisioners --setup makes it",
)

PARSE = """
import dockerfile, json, sys
rows = [[c.cmd.upper(), list(c.value)] for c in dockerfile.parse_file(sys.argv[1])]
print(json.dumps(rows))
"""


def test_the_one_task_that_no_test_runs() -> None:
    """Windows' firewall is not in Wine: the options are compared with the module's."""
    module = "community.windows.win_firewall_rule"
    listed = yaml.safe_load((ROOT / "ansible/roles/winrm_hardening/tasks/main.yml").read_text())
    (given,) = (task[module] for task in listed if module in task)
    environment = {**os.environ, "PATH": f"{VENV}/bin{os.pathsep}{os.environ['PATH']}"}
    said = subprocess.run(
        [str(VENV / "bin/ansible-doc"), "--json", "--type", "module", module],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    options = json.loads(said.stdout)[module]["doc"]["options"]
    assert {name for name in options if options[name].get("required")} <= given.keys()
    for name, value in given.items():
        assert value in options[name].get("choices", [value])


@cache
def instructions() -> list[tuple[str, list[str]]]:
    """What BuildKit's own parser makes of the Dockerfile."""
    said = subprocess.run(
        [str(VENV / "bin/python"), "-c", PARSE, str(ROOT / DOCKERFILE)],
        capture_output=True,
        text=True,
        check=True,
    )
    return [(name, values) for name, values in json.loads(said.stdout)]


def test_the_arguments_come_back_as_pins() -> None:
    """Quotes, line ends and escapes of the generated block: Docker reads what the lock says."""
    rows = [values[0].partition("=") for name, values in instructions() if name == "ARG"]
    found = {name: value.removeprefix("'").removesuffix("'") for name, _, value in rows if value}
    assert "`" not in "".join(found.values())
    wanted = yaml.safe_load((ROOT / VARIABLES).read_text("utf-8"))
    tools = wanted["toolchain_build_tools"]
    assert json.loads(found["VC_REDIST"]) == wanted["toolchain_vc_redist"]
    assert json.loads(found["VS_BUILDTOOLS"]) == tools["bootstrapper"]
    assert found["VS_SIGNER"] == tools["signer"]
    assert found["VS_PREPARE"].split() == tools["prepare"]
    assert found["VS_ARGUMENTS"].split() == tools["arguments"]
    assert found["VS_COMPONENTS"].split() == tools["components"]
    assert found["VS_TOOLSET"] == tools["toolset"]
    assert json.loads(found["MINGIT"]) == wanted["toolchain_git"]
    assert json.loads(found["PYTHONS"]) == list(wanted["toolchain_pythons"].values())
    assert json.loads(found["WHEELS"]) == wanted["toolchain_wheels"]
    cuda = {
        minor: json.loads(found[f"CUDA_{minor.replace('.', '_')}"])
        for minor in wanted["toolchain_cuda"]
    }
    assert cuda == wanted["toolchain_cuda"]
    assert found["CUDA"] in cuda
    assert {row["name"] for rows in cuda.values() for row in rows} == {
        name for name in load_lock().tools if re.match(r"cuda-\d", name)
    }


def test_every_stage_declares_the_arguments_that_it_uses() -> None:
    """An argument from before the first FROM is empty in a stage that does not declare it."""
    stages: list[set[str]] = [set()]
    for name, values in instructions():
        text = " ".join(values)
        if name == "FROM":
            stages.append(set())
        elif name == "ARG":
            stages[-1].add(values[0].partition("=")[0])
        elif name in ("ENV", "LABEL"):
            assert set(re.findall(r"\$\{(\w+)\}", text)) <= stages[-1], text
        elif name == "RUN":
            used = {*re.findall(r"\$Env:(\w+)", text), *re.findall(r"\b[A-Z][A-Z_]{4,}\b", text)}
            assert used <= stages[-1], text
    cuda = {name for name in stages[0] if name.startswith("CUDA_")}
    assert cuda
    assert [stage & cuda for stage in stages[1:]] == [cuda, cuda]


def test_the_checker_complains(tmp_path: Path) -> None:
    """Each of its four tools finds a mistake, and the exit code says so."""
    for folder in ("images", "ansible", "tests/provisioners", "scripts"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "requirements-ansible.lock", tmp_path)
    (tmp_path / ".venv-ansible").symlink_to(VENV)
    with (tmp_path / DOCKERFILE).open("a") as dockerfile:
        dockerfile.write("FROM mcr.microsoft.com/windows/servercore:latest\n")
    with (tmp_path / "ansible/site.yml").open("a") as play:
        play.write("    - role: there_is_no_such_role\n")
    with (tmp_path / "ansible/roles/git/tasks/main.yml").open("a") as tasks:
        tasks.write("\n- name: nameless and unsafe\n  ansible.builtin.command: git status\n")
    said = subprocess.run(
        [str(tmp_path / "scripts/check-provisioners")], capture_output=True, text=True, check=False
    )
    assert said.returncode == 1
    assert said.stdout.count("FAILED") == 3, said.stdout
    for text in ("DL3007", "there_is_no_such_role", "name[casing]"):
        assert text in said.stdout, said.stdout
    assert "\x1b" not in said.stdout + said.stderr
