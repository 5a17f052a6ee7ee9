"""``.github``: what GitHub would read, and the commands in it, which run here.

``scripts/check-workflows`` has the linters; this needs none of them.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typed import calls

from pipelines.core.errors import TimeUpError
from pipelines.core.paths import PACKAGE, default_cache
from pipelines.core.units import GIB
from pipelines.plan.config.model import load_config
from pipelines.plan.matrix.hostfacts import HostFacts
from pipelines.plan.provisioning.resources import load_resources
from pipelines.publish.index.lock import LOCK
from pipelines.publish.provenance.statement import PREDICATE, SIGNED
from pipelines.toolchain.intent import INTENT_FILE, WATCHED
from pipelines.toolchain.lock import load_lock

GITHUB = PACKAGE.parent / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
ACTIONS = sorted((GITHUB / "actions").glob("*/action.yml"))
FILES = [*WORKFLOWS, *ACTIONS]
PIN = re.compile(
    r"uses: (?P<action>[\w-]+/[\w/-]+)@(?P<sha>[0-9a-f]{40}) # (?P<version>v\d+\.\d+\.\d+)$"
)
PINS = re.compile(PIN.pattern, re.MULTILINE)
OWN = re.compile(r"uses: \$/(?P<path>\.github/[\w./-]+)$")
BASH = shutil.which("bash")
needs_bash = pytest.mark.skipif(
    BASH is None or sys.platform == "win32", reason="the commands of a workflow are bash"
)
FULL = {
    "cell": "cp312-torch2.8-cu128",
    "host": "runner",
    "recipe": "flash-attn",
    "version": "2.8.3.post2",
    "python": "3.12",
    "torch": "2.8",
    "cuda": "12.8",
    "archs": "80;90;120+PTX",
}
SHARE = FULL | {"share": "2/3", "part": "share2of3"}
BARE = FULL | {"cell": "cu130", "version": "", "python": "", "torch": "", "cuda": "13.0"}


def read(path: Path) -> dict[str, Any]:
    document = yaml.load(path.read_bytes(), yaml.CSafeLoader)
    assert isinstance(document, dict)
    # YAML 1.1 takes `on` for a boolean; GitHub does not.
    return {("on" if key is True else key): value for key, value in document.items()}


WHEELS = read(GITHUB / "workflows/wheels.yml")
CELL = read(GITHUB / "workflows/build-cell.yml")
WATCH = read(GITHUB / "workflows/watch.yml")


def jobs() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path in WORKFLOWS:
        for name, job in read(path)["jobs"].items():
            yield path.name, name, job


def steps() -> Iterator[tuple[str, dict[str, Any]]]:
    for file, name, job in jobs():
        for step in job.get("steps", []):
            yield f"{file}:{name}", step
    for path in ACTIONS:
        for step in read(path)["runs"]["steps"]:
            yield path.parent.name, step


def step(document: dict[str, Any], job: str, name: str) -> dict[str, Any]:
    found = [s for s in document["jobs"][job]["steps"] if s.get("name") == name]
    assert len(found) == 1, name
    return dict(found[0])


# -- pins, permissions, limits --------------------------------------------------------------------


def test_every_action_is_pinned_by_commit_with_its_version() -> None:
    pins: dict[str, set[tuple[str, str]]] = {}
    for path in FILES:
        for line in path.read_text("utf-8").splitlines():
            if "uses:" not in line:
                continue
            if own := OWN.search(line):
                assert (PACKAGE.parent / own["path"]).exists(), line
                continue
            pin = PIN.search(line)
            assert pin, f"{path.name}: {line.strip()}"
            pins.setdefault(
                pin["action"].removesuffix("/restore").removesuffix("/save"), set()
            ).add((pin["sha"], pin["version"]))
    assert {action: len(found) for action, found in pins.items()} == dict.fromkeys(pins, 1)
    assert {action.split("/")[0] for action in pins} == {"actions"}, "GitHub's own actions alone"


def test_what_init_writes_has_the_pins_of_ours() -> None:
    """They are looked after here; ``scripts/check-workflows`` lints the file itself."""
    ours = {m["action"]: m["sha"] for path in FILES for m in PINS.finditer(path.read_text("utf-8"))}
    text = (PACKAGE / "scaffold/templates/workflow.yml.j2").read_text("utf-8")
    written = {m["action"]: m["sha"] for m in PINS.finditer(text)}
    assert len(written) == 3
    assert written.items() <= ours.items()
    assert text.count("uses:") == len([*PINS.finditer(text)])


def test_nothing_is_interpolated_into_a_command() -> None:
    for where, found in steps():
        assert "${{" not in found.get("run", ""), where
        assert "${{" not in found.get("shell", ""), where


#: Jobs that have no code of the repository -> what they may write.
_WITHOUT_CODE = {
    ("docs.yml", "show"): {"pages": "write"},
    ("first-run.yml", "attest"): {"attestations": "write"},
}


def test_permissions_are_the_least() -> None:
    for path in WORKFLOWS:
        assert read(path)["permissions"] == {}, path.name
    for file, name, job in jobs():
        asked = job.get("permissions", {})
        if (file, name) in _WITHOUT_CODE:
            assert asked == _WITHOUT_CODE[file, name] | {"id-token": "write"}
            assert not any("checkout@" in step.get("uses", "") for step in job["steps"])
            continue
        # What compiles neither signs nor writes.
        more = {"id-token": "write", "attestations": "write"} if name == "attest" else {}
        more = {"contents": "write"} if (file, name) == ("watch.yml", "publish") else more
        assert asked in ({}, {"contents": "read"} | more), f"{file}:{name}"
        clones = any("checkout@" in s.get("uses", "") for s in job.get("steps", []))
        assert bool(asked) == (clones or "uses" in job), f"{file}:{name}"


def test_every_job_ends_and_no_credentials_stay() -> None:
    for file, name, job in jobs():
        if "steps" in job:
            assert 0 < job["timeout-minutes"] <= 360, f"{file}:{name}"
    for where, found in steps():
        if "checkout@" in found.get("uses", ""):
            assert found["with"]["persist-credentials"] is False, where


def test_what_may_run_at_the_same_time() -> None:
    groups = {}
    for path in WORKFLOWS:
        if path.name == "build-cell.yml":  # a cell of wheels.yml, whose group holds it
            continue
        document = read(path)
        groups[path.name] = document["concurrency"]["group"].split("${{")[0]
        compiles = path.name != "ci.yml"
        assert document["concurrency"]["cancel-in-progress"] is not compiles, path.name
    # A caller in the group of what it calls would wait for itself.
    assert len(set(groups.values())) == len(groups)


def test_secrets_reach_the_test_on_the_gpu_alone() -> None:
    for path in WORKFLOWS:
        for line in path.read_text("utf-8").splitlines():
            if "${{ secrets." in line:
                assert "host-password" in line, f"{path.name}: {line}"
    holders = [s["name"] for _, s in steps() if "secrets." in str(s)]
    assert holders == ["Test"]
    for path in WORKFLOWS:
        assert "pull_request_target" not in read(path)["on"]
        assert "workflow_run" not in read(path)["on"]


def test_calls_fit_what_is_called() -> None:
    count = 0
    for file, name, job in jobs():
        if "uses" not in job:
            continue
        count += 1
        called = read(PACKAGE.parent / job["uses"].removeprefix("$/"))["on"]["workflow_call"]
        inputs, given = called["inputs"], job.get("with", {})
        assert given.keys() <= inputs.keys(), f"{file}:{name}"
        assert {n for n, i in inputs.items() if i.get("required")} <= given.keys(), f"{file}:{name}"
        assert job.get("secrets", {}).keys() <= called.get("secrets", {}).keys()
        for key, value in inputs.items():
            assert "default" in value or value.get("required"), f"{file}: {key}"
    assert count == 8


def test_shares_come_before_what_links_them() -> None:
    jobs = WHEELS["jobs"]
    shares = [jobs["share-1"], jobs["share-2"]]
    assert [job["with"]["attempt"] for job in shares] == [1, 2]
    assert [job["with"].get("last", False) for job in shares] == [False, True]
    assert not any("divided" in job["with"] for job in shares)
    assert {"share-1", "share-2"} < {*jobs["build-1"]["needs"]}
    # They are skipped where nothing is divided, and that must not skip what builds.
    assert "!cancelled()" in jobs["build-1"]["if"]
    assert all(
        jobs[f"build-{n}"]["with"]["divided"] == "${{ inputs.shards != '' }}" for n in (1, 2, 3)
    )
    # Runs of two shares may have one name, for they begin in the same second.
    assert "merge-multiple" not in step(CELL, "build", "Objects of the shares")["with"]


def test_an_attempt_goes_to_the_next() -> None:
    built = {n: j for n, j in WHEELS["jobs"].items() if n.startswith("build-")}
    assert [job["with"]["attempt"] for job in built.values()] == [1, 2, 3]
    assert [job["with"].get("last", False) for job in built.values()] == [False, False, True]
    alike = [
        {key: v for key, v in job["with"].items() if key not in ("attempt", "last")}
        for job in built.values()
    ]
    assert alike[0] == alike[1] == alike[2]
    for job in built.values():
        assert job["strategy"]["fail-fast"] is False
    # Built and handed over within the job's six hours.
    minutes = WHEELS["on"]["workflow_call"]["inputs"]["minutes"]["default"]
    net = step(CELL, "build", "Build")["timeout-minutes"]
    assert minutes + 30 <= net < CELL["jobs"]["build"]["timeout-minutes"]


def test_places_are_the_pipelines() -> None:
    layout = load_resources().layout
    found = step(CELL, "build", "Compiled units of earlier runs")["with"]["path"]
    kept = step(CELL, "build", "Keep the compiled units")["with"]["path"]
    assert found == kept == layout.compile_cache
    for name in ("Unpack it", "Pack the build directory"):
        assert f"'{layout.build_root}'" in step(CELL, "build", name)["run"]
    downloads = step(CELL, "build", "Downloads of earlier runs")["with"]["path"]
    # What is verified when it is used; of a sandbox's image nothing says what it should be.
    assert Path(downloads).parts[-2:] == (default_cache().name, "downloads")
    assert load_config(GITHUB / "runner.yaml").host("runner").kind == "local"


def test_what_is_handed_over_is_what_is_awaited() -> None:
    def names(document: dict[str, Any], key: str) -> set[str]:
        every = [s for job in document["jobs"].values() for s in job.get("steps", [])]
        found = {
            s["with"][key] for s in every if key in s.get("with", {}) and "artifact@" in s["uses"]
        }
        cell = r"\$\{\{ env\.CELL \}\}-share\*of\*|\$\{\{ (env\.(CELL|ITEM)|matrix\.cell) \}\}|\*"
        order = r"\$\{\{ (inputs|needs\.plan\.outputs)\.name \}\}"
        found = {re.sub(cell, "CELL", re.sub(order, "ORDER", name)) for name in found}
        share = "${{ env.PART && 'share-' }}"  # one name of a cell, another of a share
        found = {name.replace(share, said) for name in found for said in ("", "share-")}
        return {name.replace("${{ inputs.attempt }}", "N") for name in found}

    made = names(CELL, "name") | names(WHEELS, "name")
    wanted = names(CELL, "pattern") | names(WHEELS, "pattern")
    wanted = {re.sub(r"^left-(share-)?\d", r"left-\1N", name) for name in wanted}
    wanted.remove("${{ inputs.pins }}")  # of the caller
    uploaded = step(WATCH, "watch", "Rows for the lock")["with"]["name"]
    assert WATCH["jobs"]["wheels"]["with"]["pins"] == uploaded
    assert wanted <= made
    assert made - wanted == {"report-ORDER"}


def test_docs_name_every_input() -> None:
    said = (PACKAGE.parent / "docs/hosts/github-actions.md").read_text("utf-8")
    for name in (
        *WHEELS["on"]["workflow_call"]["inputs"],
        *WHEELS["on"]["workflow_call"]["secrets"],
    ):
        assert f"`{name}`" in said, name
    for name in re.findall(
        r"(?:vars|secrets)\.([A-Z_]+)", (GITHUB / "workflows/build-wheels.yml").read_text()
    ):
        assert f"`{name}`" in said, name
    said += (PACKAGE.parent / "docs/watch.md").read_text("utf-8")
    for name in re.findall(r"vars\.([A-Z_]+)", (GITHUB / "workflows/watch.yml").read_text()):
        assert f"`{name}`" in said, name


def test_ci_types_what_there_is() -> None:
    targets = set(
        re.findall(r"^([a-z-]+):", (PACKAGE.parent / "Makefile").read_text("utf-8"), re.M)
    )
    for _, found in steps():
        for word in re.findall(r"\bmake ([\w-]+)", found.get("run", "")):
            assert word in targets
        for word in re.findall(
            r"(?:^|\s)((?:scripts|\.github/scripts|tests)/[\w./-]+)", found.get("run", "")
        ):
            assert (PACKAGE.parent / word).exists(), word


def test_what_is_hashed_is_there() -> None:
    """A path that is gone hashes to nothing, and a cache would be kept for ever."""
    named = set()
    for path in FILES:
        for asked in re.findall(r"hashFiles\((.*?)\)", path.read_text("utf-8")):
            named |= {name for name in re.findall(r"'([^']+)'", asked) if "{" not in name}
    assert "pipelines/toolchain/toolchain.lock.yaml" in named
    assert not [name for name in named if not (PACKAGE.parent / name).is_file()]


def test_unit_tests_run_on_every_python_that_is_promised() -> None:
    job = read(GITHUB / "workflows/ci.yml")["jobs"]["unit"]
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text("utf-8"))["project"]
    found = (
        re.fullmatch(r"Programming Language .* :: (3\.\d+)", c) for c in project["classifiers"]
    )
    promised = [match[1] for match in found if match]
    assert job["strategy"]["matrix"]["python"] == promised
    assert project["requires-python"] == f">={promised[0]}"
    assert {"run": "make test"} in job["steps"]


# -- the commands ---------------------------------------------------------------------------------


class Shell:
    """Runs a step's script as GitHub would, with an ``invoke`` of ours that notes its words."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.output = place / "output"
        self.words = place / "words"
        (place / "bin").mkdir()
        self.program(
            "invoke",
            f'printf "%s\\0" "$@" >> {self.words}; echo >> {self.words}; exit ${{CODE:-0}}',
        )
        (place / "bin/python").symlink_to(sys.executable)
        (place / "bin/python3").symlink_to(sys.executable)

    def program(self, name: str, code: str) -> None:
        path = self.place / "bin" / name
        path.write_text(f"#!/bin/sh\n{code}\n")
        path.chmod(0o755)

    def run(self, script: str, **env: str) -> tuple[int, str]:
        assert BASH is not None
        return self._run([BASH, "--noprofile", "--norc", "-eo", "pipefail", "-c", script], env)

    def run_python(self, script: str, **env: str) -> tuple[int, str]:
        return self._run([sys.executable, "-c", script], env)

    def _run(self, command: list[str], env: dict[str, str]) -> tuple[int, str]:
        self.output.write_text("")
        done = subprocess.run(
            command,
            cwd=self.place,
            env={
                "PATH": f"{self.place / 'bin'}{os.pathsep}{os.environ['PATH']}",
                "GITHUB_OUTPUT": str(self.output),
                "HOME": str(self.place),
                **env,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout

    @property
    def outputs(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.output.read_text().splitlines())

    def typed(self) -> list[list[str]]:
        """The command lines that ``invoke`` was called with, each parsed by the real parser."""
        lines = [line.split("\0")[:-1] for line in self.words.read_text().splitlines()]
        for line in lines:
            calls(line)
        self.words.unlink()
        return lines


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def environment(
    cell: dict[str, str], document: dict[str, Any], job: str, **more: str
) -> dict[str, str]:
    """The job's variables that come from the cell, as GitHub would fill them in."""
    filled = {}
    for source in (document["jobs"][job].get("env", {}), more):
        for name, value in source.items():
            if found := re.fullmatch(
                r"\$\{\{ (?:fromJSON\(inputs\.cell\)|matrix)\.(\w+) \}\}", str(value)
            ):
                filled[name] = cell.get(found[1], "")
            elif name == "ITEM":
                filled[name] = "-".join(filter(None, (cell["cell"], cell.get("part"))))
            elif "${{" not in str(value):
                filled[name] = str(value)
    return filled


@needs_bash
def test_what_is_attested_is_what_was_verified(shell: Shell) -> None:
    document = read(GITHUB / "workflows/attest-wheels.yml")
    found = step(document, "attest", "Take the predicate")
    assert "One wheel was expected" in shell.run(found["run"])[1]
    run = shell.place / "runs/20260101-000000-x"
    (run / "wheels").mkdir(parents=True)
    (run / "wheels/a b.whl").touch()
    (run / "a b.whl.statement.json").write_text('{"predicate": {"buildDefinition": {"é": 1}}}')
    shell.program(
        "invoke",
        f'printf "%s\\0" "$@" >> {shell.words}; echo >> {shell.words}; '
        'case "$*" in *--json) echo "$SAID";; esac; exit ${CODE:-0}',
    )
    states = {"wheel": "ok", "signature": "unknown", "manifest": "ok", "lock": "unknown"}
    said = {"findings": [{"id": name, "level": state} for name, state in states.items()]}
    assert shell.run(found["run"], SAID=json.dumps(said)) == (0, "")
    assert shell.outputs == {"wheel": "runs/20260101-000000-x/wheels/a b.whl"}
    # The very file that is read afterwards, whatever envelope is next to it.
    statement = "runs/20260101-000000-x/a b.whl.statement.json"
    words = ["verify", shell.outputs["wheel"], "--provenance", statement, "--accept", "unsigned"]
    assert shell.typed() == [words, [*words, "--json"]]
    said["findings"][2]["level"] = "unknown"
    code, told = shell.run(found["run"], SAID=json.dumps(said))
    assert (code, "manifest was not looked at" in told, shell.outputs) == (1, True, {})
    assert json.loads((shell.place / "predicate.json").read_text()) == {"buildDefinition": {"é": 1}}
    assert shell.run(found["run"], CODE="9")[0] == 9, "what is not right is not signed"
    with_ = step(document, "attest", "Attest")["with"]
    assert with_["subject-path"] == "${{ steps.predicate.outputs.wheel }}"
    assert with_["predicate-type"] == PREDICATE
    assert with_["predicate-path"] == "predicate.json"
    (shell.place / "bundle").write_text("{}")
    name = step(document, "attest", "Name it after its wheel")["run"]
    wheel = shell.place / "runs/20260101-000000-x/wheels/a b.whl"
    assert shell.run(name, BUNDLE="bundle", WHEEL=str(wheel)) == (0, "")
    assert (shell.place / "attested" / f"a b.whl{SIGNED}").read_text() == "{}"


@needs_bash
@pytest.mark.parametrize("cell", [FULL, BARE], ids=["full", "bare"])
@pytest.mark.parametrize(
    ("code", "last", "ends", "unfinished"),
    [
        (0, "false", 0, False),
        (TimeUpError.exit_code, "false", 0, True),
        (TimeUpError.exit_code, "true", 75, True),
        (8, "false", 8, False),
        (9, "true", 9, False),
    ],
)
def test_build(
    shell: Shell, cell: dict[str, str], *, code: int, last: str, ends: int, unfinished: bool
) -> None:
    env = environment(cell, CELL, "build", MINUTES="290", LAST=last, CODE=str(code))
    ended, said = shell.run(step(CELL, "build", "Build")["run"], **env)
    assert ended == ends
    assert shell.outputs == ({"unfinished": "true"} if unfinished else {})
    assert ("::error" in said) == (unfinished and last == "true")
    assert ("::notice" in said) == (unfinished and last == "false")
    (line,) = shell.typed()
    assert line[:4] == ["provision", "build", "--host", "runner"]
    assert "" not in line
    flags = dict(zip(line[2::2], line[3::2], strict=True))
    asked = {"--recipe": "recipe", "--recipe-version": "version", "--python": "python"}
    asked |= {"--torch": "torch", "--cuda": "cuda", "--archs": "archs"}
    wanted = {flag: cell[key] for flag, key in asked.items() if cell[key]}
    assert flags == wanted | {"--host": "runner", "--minutes": "290"}


@needs_bash
def test_a_share_and_the_link_of_several(shell: Shell) -> None:
    script = step(CELL, "build", "Build")["run"]
    env = environment(SHARE, CELL, "build", MINUTES="290", LAST="true", ATTEMPT="2", CODE="75")
    code, said = shell.run(script, **env, DIVIDED="false")
    assert (code, shell.outputs) == (75, {"unfinished": "true"})
    assert "title=cp312-torch2.8-cu128-share2of3::Not finished in 2 attempts" in said
    assert shell.typed()[0][:4] == ["provision", "build", "--shard", "2/3"]
    env = environment(FULL, CELL, "build", MINUTES="290", LAST="false")
    assert shell.run(script, **env, DIVIDED="true")[0] == 0
    assert shell.typed()[0][:4] == ["provision", "build", "--reproducible", "--host"]
    runs = ["shares/objects-a b/2026-x", "shares/objects-c/2026-x"]  # and of one alone: no folder
    for run in runs:
        (shell.place / run / "objects").mkdir(parents=True)
        (shell.place / run / "record.sqlite").touch()
    assert shell.run(script, **env, DIVIDED="true")[0] == 0
    assert shell.typed()[0][:4] == ["provision", "build", "--objects", ",".join(runs)]


@needs_bash
def test_a_hostile_input_stays_one_word(shell: Shell) -> None:
    evil = FULL | {"archs": "$(touch hacked); `touch hacked` && echo \"'", "version": "1 2;*"}
    env = environment(evil, CELL, "build", MINUTES="1", LAST="false")
    assert shell.run(step(CELL, "build", "Build")["run"], **env)[0] == 0
    (line,) = shell.typed()
    assert evil["archs"] in line
    assert evil["version"] in line
    assert not (shell.place / "hacked").exists()


@pytest.mark.slow
@needs_bash
@pytest.mark.skipif(HostFacts.local().memory < 8 * GIB, reason="flash-attn's plan needs 8 GiB here")
def test_plan_and_the_cells_of_it(shell: Shell) -> None:
    """The real ``invoke plan``: it prints every key that the workflows take of a cell."""
    shell.program("invoke", f'cd {PACKAGE.parent} && exec {sys.executable} -m invoke "$@"')
    env = {"RECIPE": "flash-attn", "PYTHON": "3.11,3.12", "TORCH": "2.8", "CUDA": "12.8"}
    env |= {"VERSION": "", "ARCHS": "", "SELECT": "cp312-*", "WCW_CONFIG": ".github/runner.yaml"}
    code, said = shell.run(step(WHEELS, "plan", "Plan")["run"], **env)
    assert code == 0, said
    cells = json.loads(shell.outputs["matrix"])["include"]
    assert [cell["cell"] for cell in cells] == ["cp312-torch2.8-cu128"]
    assert shell.outputs["name"] == f"flash-attn-{cells[0]['version']}"
    assert cells[0].keys() >= FULL.keys()
    text = "".join((GITHUB / f"workflows/{n}.yml").read_text() for n in ("wheels", "build-cell"))
    taken = set(re.findall(r"(?:fromJSON\(inputs\.cell\)|\bmatrix)\.(\w+)", text))
    assert taken - SHARE.keys() == set()
    assert shell.outputs["shares"] == ""
    assert shell.run(step(WHEELS, "plan", "Plan")["run"], **env, SHARDS="3")[0] == 0
    shares = json.loads(shell.outputs["shares"])["include"]
    assert [(one["share"], one["part"]) for one in shares] == [
        (f"{n}/3", f"share{n}of3") for n in (1, 2, 3)
    ]
    assert taken <= shares[0].keys()
    assert json.loads(shell.outputs["matrix"])["include"] == cells
    assert shell.run(step(WHEELS, "plan", "Plan")["run"], **env, SHARDS="1")[0] == 0
    assert shell.outputs["shares"] == ""
    env |= {"RECIPE": "smoke-attention", "PYTHON": "", "TORCH": "", "CUDA": "", "SELECT": ""}
    assert shell.run(step(WHEELS, "plan", "Plan")["run"], **env)[0] == 0
    assert re.fullmatch(r"smoke-attention(-[\w.]*\w)?", shell.outputs["name"])
    env |= {"SELECT": "cp27-*"}
    code, said = shell.run(step(WHEELS, "plan", "Plan")["run"], **env)
    assert code == 2
    assert shell.outputs == {}


@pytest.mark.slow
@needs_bash
@pytest.mark.parametrize("job", ["left-share-1", "left-1", "left-2", "built"])
def test_cells_become_a_matrix(shell: Shell, job: str) -> None:
    script = step(WHEELS, job, "Make a matrix of them")["run"]
    assert shell.run(script)[0] == 0
    assert shell.outputs == {"matrix": ""}  # none is left: the next job is skipped
    put = step(CELL, "build", "Entry for what comes next")["run"]
    for cell in (FULL, BARE):
        env = {"ITEM": cell["cell"], "ENTRY": json.dumps(cell, indent=2)}
        assert shell.run("rm -rf built\n" + put, **env)[0] == 0
        (shell.place / "cells").mkdir(exist_ok=True)
        name = f"{cell['cell']}.json"
        shutil.copy(shell.place / "built" / name, shell.place / "cells" / name)
    shutil.rmtree(shell.place / "built")
    assert shell.run(script)[0] == 0
    assert json.loads(shell.outputs["matrix"]) == {"include": [FULL, BARE]}
    if job != "built":  # a later attempt has built one of them
        (shell.place / "built").mkdir()
        (shell.place / "built" / f"{FULL['cell']}.json").write_text("{}")
        assert shell.run(script)[0] == 0
        assert json.loads(shell.outputs["matrix"]) == {"include": [BARE]}


@needs_bash
@pytest.mark.parametrize("cell", [FULL, BARE], ids=["full", "bare"])
def test_test_takes_the_run_that_came(shell: Shell, cell: dict[str, str]) -> None:
    for name in ("20260101-000000-x", "provision"):  # installers' logs come along
        (shell.place / "runs" / name).mkdir(parents=True)
    found = step(WHEELS, "test", "Test")
    env = environment(cell, WHEELS, "test", **found["env"])
    assert shell.run_python(found["run"], **env, HOST="lab1")[0] == 1, "no run was returned"
    (shell.place / "runs/20260101-000000-x/record.sqlite").touch()
    ended, said = shell.run_python(found["run"], **env, HOST="lab1")
    assert (ended, said) == (0, "")
    (line,) = shell.typed()
    assert line[:3] == ["test", "--host", "lab1"]
    assert line[-2:] == ["--run", "runs/20260101-000000-x"]
    assert "" not in line
    assert shell.run_python(found["run"], **env, HOST="lab1", CODE="10")[0] == 10, "a case failed"


@needs_bash
def test_configuration_of_the_gpu_host(shell: Shell) -> None:
    text = "hosts:\n  lab1: {kind: local, python: 'C:/x y/python.exe'}\n"
    script = step(WHEELS, "test", "The host's configuration")["run"]
    assert shell.run_python(script, CONFIG=text)[0] == 0
    path = shell.place / "host.yaml"
    assert load_config(path).host("lab1").kind == "local"
    assert f"'{path.name}'" in WHEELS["jobs"]["test"]["env"]["WCW_CONFIG"]


@needs_bash
def test_report(shell: Shell) -> None:
    script = step(WHEELS, "report", "Report")["run"]
    ended, said = shell.run(script)
    assert ended == 1
    assert "::error::No attempt left a record" in said
    for name in ("a", "b", "provision"):
        (shell.place / "runs" / name).mkdir(parents=True)
    for name in ("a", "b"):
        (shell.place / "runs" / name / "record.sqlite").touch()
    assert shell.run(script)[0] == 0
    assert shell.typed() == [["report", "runs"]]


@needs_bash
@pytest.mark.parametrize(("code", "ends"), [(0, 0), (14, 0), (5, 5)])
def test_doctor_comes_to_a_verdict(shell: Shell, code: int, ends: int) -> None:
    script = step(read(GITHUB / "workflows/ci.yml"), "windows", "Doctor")["run"]
    assert shell.run(script, CODE=str(code))[0] == ends
    assert shell.typed() == [["doctor", "--host", "runner"]]


@needs_bash
def test_what_watch_types(shell: Shell) -> None:
    script = step(WATCH, "watch", "Watch")["run"]
    for said, matrix in (
        ('{"include":[]}', ""),
        ('{"include":[{"a":1}]}', '{"include":[{"a":1}]}'),
    ):
        shell.program(
            "invoke",
            f'printf "%s\\0" "$@" >> {shell.words}; echo >> {shell.words}; '
            f"echo '{said}'; exit ${{CODE:-0}}",
        )
        env = {"RECIPE": "", "TORCH": "2.16,2.15", "MOST": "", "GITHUB_RUN_NUMBER": "7"}
        assert shell.run(script, **env, RELEASE="wheels", TESTED="true") == (0, "")
        assert shell.outputs == {"matrix": matrix}
    words = ["watch", "--index", "index", "--host", "runner", "--torch", "2.16,2.15"]
    shell_words = shell.typed()[0]
    words += ["--turn", "7"]
    assert shell_words == [*words, "--pins", "pins/watched.yaml", "--format", "gha"]
    # What cannot be read is no empty matrix.
    assert shell.run(script, **env, RELEASE="", TESTED="false", CODE="3")[0] == 3
    assert shell.outputs == {}
    shell.words.unlink()
    # Hours of compiling for what publish refuses every day.
    ended, said = shell.run(script, **env, RELEASE="wheels", TESTED="false")
    assert (ended, "::error::What no GPU has run is not published" in said) == (1, True)
    assert not shell.words.exists()
    folder = PACKAGE / "toolchain"
    for document, job in ((CELL, "build"), (WHEELS, "test")):
        place = step(document, job, "Rows for the lock")["with"]["path"]
        assert PACKAGE.parent / place == folder == INTENT_FILE.parent
    assert Path(shell_words[-3]).name == WATCHED


@needs_bash
def test_the_torch_of_a_cell_is_pinned(shell: Shell) -> None:
    for document, job, run in ((CELL, "build", shell.run), (WHEELS, "test", shell.run_python)):
        found = step(document, job, "Pin the torch of the cell")
        env = environment(FULL, document, job, **found.get("env", {}))
        assert run(found["run"], **env)[0] == 0
        assert shell.typed() == [["lock", "--only", "torch-2.8-cu128-cp312"]]
    assert "torch-2.8-cu128-cp312" in load_lock().tools


@needs_bash
def test_what_watch_publishes(shell: Shell) -> None:
    script = step(WATCH, "publish", "Publish")["run"]
    env = {"TO": "github:o/r@wheels", "UNTESTED": ""}
    assert shell.run(script, **env) == (0, "")
    assert not shell.words.exists()
    for name, files in {"a b": ["record.sqlite", "wheels/x.whl"], "c": ["wheels/y.whl"]}.items():
        for file in files:
            path = shell.place / "runs" / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    (shell.place / "runs/d").mkdir()  # whose build failed
    ended, said = shell.run(script, **env)  # a wheel without its record is reported
    assert (ended, said.count("::error::runs/c/wheels/y.whl came without")) == (1, 1)
    words = [
        "publish",
        "runs/a b",
        "--to",
        "github:o/r@wheels",
        "--pages",
        "index",
        *("--trust", "any=windows", "--trust", "any=sandbox"),
    ]
    assert shell.typed() == [words]
    (shell.place / "runs/c/wheels/y.whl").unlink()
    assert shell.run(script, **env | {"UNTESTED": "true", "CODE": "9"})[0] == 9
    assert shell.typed() == [[*words, "--untested"]]
    # Of what takes too long, the pages are shown all the same.
    job = WATCH["jobs"]["publish"]
    assert step(WATCH, "publish", "Publish")["timeout-minutes"] < job["timeout-minutes"]
    assert "${{" not in WATCH["concurrency"]["group"]  # one release, whatever the branch


@needs_bash
@pytest.mark.skipif(shutil.which("git") is None, reason="no git here")
def test_what_watch_shows(shell: Shell, tmp_path: Path) -> None:
    """The branch of the pages gets the new pages, and the token is in no file and no argument."""
    found = step(WATCH, "publish", "Show it")
    env = {"BRANCH": "gh-pages", "GITHUB_TOKEN": "s3cret", "GITHUB_RUN_ID": "7"}
    env |= {"GITHUB_SERVER_URL": "https://github.invalid"}

    def git(*words: str, place: str = "index") -> str:
        done = subprocess.run(
            ["git", "-C", str(shell.place / place), *words],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    (shell.place / "remote").mkdir()
    git("init", "--quiet", "--bare", place="remote")
    (shell.place / "index").mkdir()
    git("init", "--quiet", "--initial-branch", "gh-pages")
    git("remote", "add", "origin", str(shell.place / "remote"))
    (shell.place / "index/index.html").write_text("one")
    (shell.place / "index" / LOCK).touch()  # else every later publish would wait for it
    assert shell.run(found["run"], **env)[0] == 0
    assert git("log", "--format=%s", "gh-pages", place="remote") == "Wheels of run 7\n"
    assert git("ls-tree", "--name-only", "gh-pages", place="remote") == "index.html\n"
    assert shell.run(found["run"], **env) == (0, "")
    assert "s3cret" not in git("config", "--list") + git("show")


def proofs() -> Iterator[Any]:
    """Every step in bash of the workflows for what only GitHub's runners can show."""
    for name in ("windows-containers", "windows-vm"):
        for job, found in read(GITHUB / f"workflows/{name}.yml")["jobs"].items():
            for each in found["steps"]:
                if "run" in each and "shell" not in each:
                    yield pytest.param(each["run"], id=f"{name}-{job}-{each['name']}")


@pytest.fixture
def runner(shell: Shell) -> Shell:
    """With what a runner has; ``invoke`` ends as it should where it is to fail."""
    shell.program(
        "invoke",
        f'printf "%s\\0" "$@" >> {shell.words}; echo >> {shell.words}\n'
        'case "$WCW_HOST_PASSWORD $*" in\n'
        "  *stranger*) exit 5;;\n  wrong*) exit 6;;\n  *doctor*) exit ${DOCTOR:-14};;\nesac",
    )
    shell.program(
        "docker",
        'case "$*" in\n  *OSType*) echo ${SYSTEM:-windows};;\n'
        f"  *RepoDigests*) echo name@sha256:{'a' * 64};;\n  ps*) echo $LEFT;;\nesac",
    )
    for name in ("sudo", "df", "powershell.exe"):
        shell.program(name, "true")
    scripts = shell.place / ".github/scripts"
    scripts.mkdir(parents=True)
    (scripts / "leash.py").write_text("")
    (scripts / "bare_host.py").write_text("")
    (shell.place / "builder").write_text("word")
    shell.words.touch()
    return shell


@needs_bash
@pytest.mark.parametrize("script", [*proofs()])
def test_what_the_proofs_type(runner: Shell, script: str) -> None:
    env = {"RUNNER_TEMP": str(runner.place), "WCW_CONFIG": ".github/runner.yaml"}
    assert runner.run(script, **env)[0] == 0
    runner.typed()


@needs_bash
def test_the_proofs_can_fail(runner: Shell) -> None:
    proof = read(GITHUB / "workflows/windows-containers.yml")
    env = {"RUNNER_TEMP": str(runner.place)}
    assert runner.run(step(proof, "container", "The engine")["run"], SYSTEM="linux")[0] != 0
    assert runner.run(step(proof, "container", "Nothing is left")["run"], LEFT="0123")[0] != 0
    for job, name in (
        ("container", "Made, entered by exec, asked, removed"),
        ("winrm", "Sign in, ask the host, show what would be done"),
    ):
        assert runner.run(step(proof, job, name)["run"], DOCTOR="5", **env)[0] == 5
    refused = step(proof, "winrm", "A wrong password and a wrong certificate are refused")["run"]
    runner.program("invoke", "exit 0")
    assert runner.run(refused)[0] != 0


@needs_bash
@pytest.mark.parametrize("build", [20348, 26100])
def test_the_bare_host_is_named_by_digest(
    runner: Shell, build: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = script("bare_host")
    monkeypatch.setenv("PATH", f"{runner.place / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(
        sys, "getwindowsversion", lambda: SimpleNamespace(build=build), raising=False
    )
    file = runner.place / "host.yaml"
    assert module.main([str(file)]) == 0
    assert load_config(file).host("bare").kind == "container"
    monkeypatch.setattr(
        sys, "getwindowsversion", lambda: SimpleNamespace(build=19045), raising=False
    )
    assert module.main([str(file)]) == 2


def test_the_configurations_of_the_proofs_are_taken() -> None:
    text = "".join(each.read_text("utf-8") for each in WORKFLOWS)
    for path in GITHUB.glob("*.yaml"):
        config = load_config(path)
        assert config.default.host in config.hosts, path
        assert f".github/{path.name}" in text


def test_every_tier_runs_somewhere() -> None:
    """On a schedule, and by one command; what needs a GPU or measures is typed by hand."""
    options = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text("utf-8"))
    tiers = {each.partition(":")[0] for each in options["tool"]["pytest"]["ini_options"]["markers"]}
    makefile = (PACKAGE.parent / "Makefile").read_text("utf-8")
    for tier in tiers - {"fast", "gpu"}:
        assert re.search(rf"^{tier}:.*\n(?:\t.*\n)*\t.*-m {tier}\b", makefile, re.M), tier
    found = re.search(r"^nightly: ([^#]*)", makefile, re.M)
    assert found is not None
    parts = {*found[1].split()}
    assert tiers - parts == {"fast", "gpu", "bench"}
    jobs = {n: read(GITHUB / f"workflows/{n}.yml")["jobs"] for n in ("ci", "nightly")}
    typed = {*re.findall(r"make ([a-z]+)", str(jobs))}
    typed |= {*jobs["nightly"]["part"]["strategy"]["matrix"]["part"]}
    assert parts - typed == {"advisories"}, "by its script: there it must look every pin up"
    assert "scripts/check_advisories.py" in str(jobs["nightly"]["advisories"])


@needs_bash
@pytest.mark.parametrize(("system", "folder"), [("posix", "bin"), ("nt", "Scripts")])
def test_set_up_finds_the_environment_it_made(shell: Shell, system: str, folder: str) -> None:
    action = read(GITHUB / "actions/setup/action.yml")
    (found,) = (s for s in action["runs"]["steps"] if "run" in s)
    assert found["shell"] == "python"
    stand_ins = (
        "import os, subprocess, venv\n"
        "venv.create = lambda path, clear, with_pip: print(path, clear, with_pip)\n"
        "subprocess.run = lambda words, check: print(*words, check)\n"
        f"os.name = {system!r}\n"
    )
    path = shell.place / "path"
    env = {"LOCK": "requirements.lock", "GITHUB_PATH": str(path)}
    ended, said = shell.run_python(stand_ins + found["run"], **env)
    assert ended == 0, said
    place = shell.place / ".venv" / folder
    assert path.read_text() == f"{place}\n"
    made, pip, uv = said.splitlines()
    assert made == ".venv True True"
    assert pip.startswith(f"{place}/python -m pip install ")
    assert uv.startswith(f"{place}/python -m uv pip install ")
    assert all("--require-hashes" in line for line in (pip, uv))
    assert uv.endswith(f"--python {place}/python -r requirements.lock True")


@pytest.mark.slow
@needs_bash
def test_others_audit_what_they_name(shell: Shell) -> None:
    """Words in quotes stay whole, and a failure of the audit is one of the step."""
    action = read(GITHUB / "actions/audit/action.yml")
    (found,) = (s for s in action["runs"]["steps"] if "run" in s)
    shell.program(
        "python-of-theirs",
        'case $* in *install*) exit 0;; esac; ls "$PYTHONPATH"; printf "%s|" "$@"; exit ${CODE:-0}',
    )
    env = {"ARGUMENTS": "dist --gpu 'RTX 4090,A100'", "ROOT": str(PACKAGE.parent)}
    env["PYTHON"] = str(shell.place / "bin/python-of-theirs")
    ended, said = shell.run(found["run"], **env)
    assert (ended, said) == (0, "pipelines\n-m|pipelines|audit|dist|--gpu|RTX 4090,A100|"), said
    ended, _ = shell.run(found["run"], **env, CODE="9")
    assert ended != 0


# -- the build directory --------------------------------------------------------------------------


def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, GITHUB / f"scripts/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HANDOVER = script("handover")


def tree(folder: Path) -> dict[str, tuple[str, int]]:
    """Every entry with its content and its time of change, to the nanosecond."""
    return {
        path.relative_to(folder).as_posix(): (
            path.read_text() if path.is_file() else "/",
            path.stat().st_mtime_ns,
        )
        for path in sorted(folder.rglob("*"))
    }


def test_a_build_directory_arrives_as_it_was(tmp_path: Path) -> None:
    folder, archive = tmp_path / "b", tmp_path / "handover/build.tar"
    for number, name in enumerate(["job/x.obj", "job/deep/" + "y" * 150 + "/z.obj", "job/ü ö.txt"]):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        os.utime(path, ns=(0, 1_700_000_000_123_456_700 + number * 100))
    (folder / "job/empty").mkdir()
    os.utime(folder / "job", ns=(0, 1_600_000_000_987_654_300))
    environment = folder / "e/12345678/Lib"
    environment.mkdir(parents=True)
    (environment / "torch.py").write_text("gigabytes")
    assert HANDOVER.pack(folder, archive) == 3
    shutil.rmtree(folder / "e")
    assert [path.name for path in archive.parent.iterdir()] == ["build.tar"]
    assert HANDOVER.unpack(archive, tmp_path / "there") == 3
    assert tree(tmp_path / "there") == tree(folder)


def test_a_handover_makes_directories_as_the_pipeline_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the pipeline refuses what it finds: another account could have filled it."""
    asked: list[str] = []
    make = HANDOVER.protected_dirs.make

    def noted(path: str | Path) -> None:
        asked.append(str(path))
        make(path)

    monkeypatch.setattr(HANDOVER.protected_dirs, "make", noted)
    folder, archive = tmp_path / "b", tmp_path / "build.tar"
    assert HANDOVER.main(["make", str(folder)]) == 0
    (folder / "unit.obj").touch()
    HANDOVER.pack(folder, archive)
    HANDOVER.unpack(archive, tmp_path / "again")
    assert asked == [str(folder), str(tmp_path / "again")]
    build = CELL["jobs"]["build"]["steps"]
    places = [step.get("with", {}).get("path") for step in build]
    before = build[: places.index(r"C:\sccache")]
    assert any(r"handover.py make 'C:\sccache'" in step.get("run", "") for step in before)


@pytest.mark.skipif(shutil.which("ninja") is None, reason="no ninja here")
def test_ninja_has_nothing_to_do_after_a_handover(tmp_path: Path) -> None:
    folder = tmp_path / "b"
    folder.mkdir()
    (folder / "build.ninja").write_text(
        'rule cc\n  command = cp $in $out && echo "$out: header.h" > $out.d\n'
        "  depfile = $out.d\n  deps = gcc\nbuild one.o: cc one.c\nbuild two.o: cc two.c\n"
    )
    for name in ("one.c", "two.c", "header.h"):
        (folder / name).write_text(name)

    def ninja(place: Path, *words: str) -> str:
        done = subprocess.run(
            ["ninja", "-C", str(place), *words], capture_output=True, text=True, check=True
        )
        return done.stdout

    ninja(folder, "one.o")
    # Times that a tar rounds upwards: ninja then takes its notes of the headers for outdated.
    for number in range(5):
        there, archive = tmp_path / f"there{number}", tmp_path / "build.tar"
        HANDOVER.pack(folder, archive)
        HANDOVER.unpack(archive, there)
        assert "[1/1] cp two.c" in ninja(there)  # the unit that was left, and no other
        assert "no work to do" in ninja(there)
        (folder / "one.o").unlink()
        ninja(folder, "one.o")


def test_nothing_to_hand_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = tmp_path / "build.tar"
    assert HANDOVER.main(["pack", str(tmp_path / "none"), str(archive)]) == 0
    assert "nothing to hand over" in capsys.readouterr().out
    assert not archive.exists()
    assert HANDOVER.main(["unpack", str(archive)]) == 2


def test_a_damaged_or_hostile_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b/x.obj").write_bytes(b"x" * 100_000)
    archive = tmp_path / "build.tar"
    HANDOVER.pack(tmp_path / "b", archive)
    archive.write_bytes(archive.read_bytes()[:50_000])
    with pytest.raises(tarfile.ReadError):
        HANDOVER.unpack(archive, tmp_path / "there")


def test_nothing_lands_outside_the_folder(tmp_path: Path) -> None:
    archive = tmp_path / "build.tar"
    (tmp_path / "secret").write_text("s")
    link, through = tarfile.TarInfo("link"), tarfile.TarInfo("link/outside")
    link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
    hard = tarfile.TarInfo("hard")
    hard.type, hard.linkname = tarfile.LNKTYPE, "../secret"
    for members in ([tarfile.TarInfo("../outside")], [link, through], [hard]):
        with tarfile.open(archive, "w") as tar:
            for member in members:
                tar.addfile(member, io.BytesIO())
        with pytest.raises(ValueError, match="member"):
            HANDOVER.unpack(archive, tmp_path / "there")
    assert not (tmp_path / "outside").exists()
    assert not (tmp_path / "there/hard").exists()


def test_a_file_that_is_gone_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "b"
    folder.mkdir()
    (folder / "kept").write_text("x")
    (folder / "temporary").write_text("x")
    real = tarfile.TarFile.gettarinfo

    def look(self: tarfile.TarFile, name: Any, arcname: str) -> tarfile.TarInfo:
        if Path(name).name == "temporary":
            Path(name).unlink()
        return real(self, name, arcname)

    monkeypatch.setattr(tarfile.TarFile, "gettarinfo", look)
    assert HANDOVER.pack(folder, tmp_path / "build.tar") == 1
    with tarfile.open(tmp_path / "build.tar") as tar:
        assert tar.getnames() == ["kept"]


#: Jobs about Windows Server 2025 itself: its containers, its WinRM. Nothing is compiled there by
#: what the runner has installed.
_OF_2025 = {
    ("windows-containers.yml", "container"),
    ("windows-containers.yml", "winrm"),
    ("first-run.yml", "windows"),  # provision installs Build Tools 2022 there
    ("first-run.yml", "attest"),  # on Linux, of its artifact
}


@pytest.mark.parametrize("path", [*FILES, *sorted(GITHUB.glob("*.yaml"))], ids=lambda one: one.name)
def test_no_runner_that_moves(path: Path) -> None:
    """What GitHub moved to Visual Studio 2026 in June 2026, and will move again, builds nothing."""
    text = path.read_text("utf-8")
    code = [one for one in text.splitlines() if not one.lstrip().startswith(("#", "description:"))]
    refusing = [one for one in code if "windows-latest* | windows-2025*)" in one]
    rest = "\n".join(one for one in code if one not in refusing)
    assert "windows-latest" not in rest
    for name, job in read(path).get("jobs", {}).items():
        if "windows-2025" not in json.dumps({k: job.get(k) for k in ("runs-on", "strategy")}):
            continue
        assert (path.name, name) in _OF_2025
        commands = "\n".join(step.get("run", "") for step in job["steps"])
        assert not re.search(r"invoke [^\n|&;]*\b(?:build|test)\b", commands)


@needs_bash
@pytest.mark.parametrize(
    ("label", "code"),
    [
        ("windows-2022", 0),
        ("windows-11-arm", 0),
        ('["self-hosted", "windows-lab"]', 0),
        ("windows-latest", 2),
        ("windows-latest-16-cores", 2),
        ("windows-2025", 2),
        ("windows-2025-vs2026", 2),
    ],
)
def test_the_runner_that_builds_has_a_compiler_that_cuda_takes(label: str, code: int) -> None:
    """Another label is an error before twenty runners fail."""
    (step,) = [
        one
        for one in WHEELS["jobs"]["plan"]["steps"]
        if one.get("name") == "The runners that build"
    ]
    environment = {**os.environ, "LABEL": label}
    command = [str(BASH), "-c", step["run"]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert ("Visual Studio 2026" in done.stdout) is bool(code)
    # Nothing is planned before it.
    names = [one.get("name") for one in WHEELS["jobs"]["plan"]["steps"]]
    assert names.index("The runners that build") < names.index("Plan")
