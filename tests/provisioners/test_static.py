"""What the linters do not look at: options of modules, the values of the Dockerfile.

Evidence level S (static check). ``ansible-doc`` and BuildKit's Dockerfile parser come from
``.venv-ansible``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.toolchain.lock import load_lock
from pipelines.toolchain.sync import DOCKERFILE, VARIABLES

ROOT = Path(__file__).parents[2]
VENV = ROOT / ".venv-ansible"
ROLES = ROOT / "ansible/roles"

pytestmark = pytest.mark.skipif(
    not (VENV / "bin/ansible-doc").exists(),
    reason="no .venv-ansible: scripts/check-provisioners --setup makes it",
)

PARSE = """
import dockerfile, json, sys
rows = [[c.cmd.upper(), list(c.value)] for c in dockerfile.parse_file(sys.argv[1])]
print(json.dumps(rows))
"""


def tasks_in(node: Any) -> Iterator[dict[str, Any]]:
    for task in node:
        if "block" in task:
            for part in ("block", "rescue", "always"):
                yield from tasks_in(task.get(part, []))
        else:
            yield task


@cache
def calls() -> list[tuple[Path, str, Any]]:
    """``(file, module, arguments)`` of every task."""
    files = sorted([*ROLES.glob("*/tasks/*.yml"), *ROLES.glob("*/handlers/*.yml")])
    found = [(f, t) for f in files for t in tasks_in(yaml.safe_load(f.read_text("utf-8")))]
    return [(f, key, t[key]) for f, t in found for key in t if re.fullmatch(r"\w+\.\w+\.\w+", key)]


@cache
def documented() -> dict[str, Any]:
    names = sorted({module for _, module, _ in calls()})
    environment = {**os.environ, "PATH": f"{VENV}/bin{os.pathsep}{os.environ['PATH']}"}
    said = subprocess.run(
        [str(VENV / "bin/ansible-doc"), "--json", "--type", "module", *names],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    return dict(json.loads(said.stdout))


def literal(value: object) -> bool:
    return not (isinstance(value, str) and "{{" in value)


def test_every_option_is_one_of_the_module() -> None:
    """Of tasks that no other test runs, too."""
    wrong = []
    for file, module, arguments in calls():
        if not isinstance(arguments, dict) or module.endswith(".set_fact"):
            continue
        options = documented()[module]["doc"]["options"]
        names = {
            alias: name for name in options for alias in [name, *options[name].get("aliases", [])]
        }
        place = f"{file.relative_to(ROLES)}: {module}"
        wrong += [f"{place} has no {name}" for name in arguments.keys() - names.keys()]
        given = {names[name]: value for name, value in arguments.items() if name in names}
        wrong += [
            f"{place} needs {name}"
            for name, option in options.items()
            if option.get("required") and name not in given
        ]
        wrong += [
            f"{place}: {name} is {value!r}, not one of {options[name]['choices']}"
            for name, value in given.items()
            if "choices" in options[name]
            and literal(value)
            and value not in options[name]["choices"]
        ]
    assert not wrong
    assert len(calls()) > 100


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
