"""The steps of our jobs on Windows, against a model of GitHub's images: ``runner_images.yaml``.

Those in bash and Python run here, with stand-ins for programs of which each fails in turn;
tests/powershell has those in PowerShell.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment
from test_first_run import SCRIPT
from typed import calls

from pipelines.core.paths import PACKAGE

ROOT = PACKAGE.parent
MODEL = yaml.safe_load(Path(__file__).with_name("runner_images.yaml").read_text("utf-8"))
IMAGES: dict[str, Any] = MODEL["images"]
BASH = shutil.which("bash")
#: A Windows of one's own, of which nothing is known.
OWN = "own"
LINUX = "Linux"
PYTHON_ACTION = "actions/setup-python@"
OUR_ACTION = "$/.github/actions/setup"


@dataclass(frozen=True)
class Step:
    """A step with a command, on one image."""

    where: str
    image: str
    shell: str
    run: str
    env: dict[str, str] = field(repr=False)
    given: frozenset[str] = field(repr=False)
    """Programs of the steps before it."""

    def there(self) -> set[str]:
        """The programs that it finds."""
        if self.image == LINUX:
            return {"cat", "cp"}
        found = {*MODEL["system"], *self.given, *IMAGES.get(self.image, {"path": {}})["path"]}
        return found | {*MODEL["bash"]} if self.shell == "bash" else found


def documents() -> Iterator[tuple[str, dict[Any, Any]]]:
    for path in sorted((ROOT / ".github/workflows").glob("*.yml")):
        yield path.name, yaml.load(path.read_bytes(), yaml.CSafeLoader)
    template = (PACKAGE / "scaffold/templates/workflow.yml.j2").read_text("utf-8")
    choices = {"name": "mine", "python": "3.12"}
    filled = Environment(autoescape=False).from_string(template).render(choices=choices)  # noqa: S701
    yield "of init", yaml.load(filled, yaml.CSafeLoader)


DOCUMENTS = dict(documents())


def images_of(job: dict[str, Any]) -> list[str]:
    """Where a job with steps runs; none of them: on Linux."""
    asked = str(job["runs-on"])
    if "matrix." in asked:
        asked = json.dumps(job["strategy"])
    if "inputs.gpu-runner" in asked:
        return [OWN]
    if "inputs.runner }}" in asked:  # of build-cell.yml, which wheels.yml calls
        asked = DOCUMENTS["wheels.yml"][True]["workflow_call"]["inputs"]["build-runner"]["default"]
    return sorted({*re.findall(r"windows-\w+", asked)})


def given_by(step: dict[str, Any]) -> set[str]:
    """The programs that a step leaves on the path."""
    if step.get("uses", "").startswith(PYTHON_ACTION):
        return {"python", "pip"}
    if step.get("uses") == OUR_ACTION:
        lock = (ROOT / step.get("with", {}).get("lock", "requirements.lock")).read_text("utf-8")
        names = {re.sub(r"[-_.]+", "-", name) for name in re.findall(r"^([\w.-]+)==", lock, re.M)}
        scripts = importlib.metadata.entry_points(group="console_scripts")
        return {"python"} | {
            one.name
            for one in scripts
            if one.dist and re.sub(r"[-_.]+", "-", one.dist.name).lower() in names
        }
    return {"wcw"} if "pip install" in step.get("run", "") else set()


def plain(*sources: dict[str, Any]) -> dict[str, str]:
    """The variables that no expression of GitHub's makes."""
    pairs = (pair for source in sources for pair in source.items())
    return {name: str(value) for name, value in pairs if "${{" not in str(value)}


def steps() -> Iterator[Step]:
    for file, document in DOCUMENTS.items():
        for name, job in document["jobs"].items():
            for image in images_of(job) if "steps" in job else ():
                given: set[str] = set()
                for one in job["steps"]:
                    if "run" in one:
                        defaults = {**document.get("defaults", {}), **job.get("defaults", {})}
                        yield Step(
                            f"{file}: {name}: {one['name']}",
                            image,
                            one.get("shell", defaults.get("run", {}).get("shell", "pwsh")),
                            one["run"],
                            plain(*(each.get("env", {}) for each in (document, job, one))),
                            frozenset(given),
                        )
                    given |= given_by(one)


STEPS = [*steps()]
#: Each command once, whatever the image.
TEXTS = [*{one.run: one for one in STEPS}.values()]


def ids(one: Step) -> str:
    return f"{one.where} on {one.image}"


# -- programs -------------------------------------------------------------------------------------

#: Of bash itself.
_WITHIN = {"if", "then", "elif", "else", "fi", "for", "do", "done", "while", "case", "esac"}
_WITHIN |= {"{", "}", "!", "[", "echo", "printf", "export", "exit"}
_BEFORE = {"if", "then", "elif", "else", "do", "while", "!", "{"}


def programs(script: str) -> set[str]:
    """The words of a script for bash that stand where a command begins."""
    found: set[str] = set()
    for text in (script, *re.findall(r"\$\(([^()]*)\)", script)):
        lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&\n")
        lexer.whitespace, lexer.whitespace_split = " \t", True
        begins, assigned, array = True, False, False
        for word in lexer:
            if array:
                array = not word.startswith(")")
                continue
            array = assigned and word == "("
            named = begins and re.match(r"\w+=", word)
            if begins and not named and word[0] not in "();<>|&\n":
                found.add(word.removesuffix(".exe"))
            assigned = bool(named) and word.endswith("=")
            begins = bool(named) or word in _BEFORE or word[-1] in "(;|&\n"
    return found - _WITHIN


def test_the_words_that_are_programs() -> None:
    script = """
    code=0
    part=(--shard "$SHARE")
    x="$(find shares -printf '%h\\n' | sort)"
    if [ -f a ]; then rm a; elif ! grep b; then :; fi
    A=1 invoke x "${part[@]}" || code=$?  # make c
    { echo y; cat z; } >> "$OUT" && docker info
    """
    assert programs(script) == {"find", "sort", "rm", "grep", ":", "invoke", "cat", "docker"}


def test_the_jobs_on_windows_are_those_of_the_workflows() -> None:
    found = {one.where.rpartition(": ")[0]: set[str]() for one in STEPS}
    for one in STEPS:
        found[one.where.rpartition(": ")[0]].add(one.image)
    old, both = {"windows-2022"}, {*IMAGES}
    assert found == {
        "build-cell.yml: build": old,
        "ci.yml: windows": old,
        "first-run.yml: windows": both,
        "wheels.yml: test": {OWN},
        "windows-containers.yml: container": both,
        "windows-containers.yml: image": old,
        "windows-containers.yml: winrm": both,
        "of init: build": old,
    }


@pytest.mark.parametrize("one", [s for s in STEPS if s.shell == "bash"], ids=ids)
def test_what_bash_runs_is_there(one: Step) -> None:
    assert one.image != OWN, "the first bash of a Windows of one's own may be that of WSL"
    assert programs(one.run) - one.there() == set()


@pytest.mark.parametrize("one", STEPS, ids=ids)
def test_its_shell_is_there(one: Step) -> None:
    assert one.shell in {"bash", "pwsh", "powershell", "python"}
    assert one.shell in one.there()


def test_the_python_that_is_asked_for_is_on_the_image() -> None:
    action = yaml.safe_load((ROOT / ".github/actions/setup/action.yml").read_text("utf-8"))
    every = [*action["runs"]["steps"]]
    every += [s for d in DOCUMENTS.values() for j in d["jobs"].values() for s in j.get("steps", [])]
    asked = {s["with"]["python-version"] for s in every if PYTHON_ACTION in s.get("uses", "")}
    for image in IMAGES.values():
        assert {one.rpartition(".")[0] for one in image["python"]} >= asked - {
            "${{ matrix.python }}"
        }


def test_the_programs_of_the_first_run_are_there() -> None:
    (step,) = [s for s in STEPS if s.where.endswith(": Every step") and s.image == "windows-2025"]
    named = {word for one in SCRIPT.STEPS for word in [c.split()[0] for c in one.commands]}
    assert named <= {*SCRIPT.PROGRAMS}
    own = {sys.executable, SCRIPT.PYTHON}
    assert {SCRIPT.PROGRAMS[name][0] for name in named} - own == {"powershell.exe"}
    assert "powershell" in step.there()
    assert {"docker", "git"} <= step.there()


# -- failures -------------------------------------------------------------------------------------

#: Notes its name and words, and fails when these are to. What is not asked for is real.
#: (Not by number: the programs of a pipeline start in any order.)
_STAND_IN = """#!/bin/sh
printf '%s\\n' "{name} $*" >> {typed}
if [ "{name} $*" = "$FAIL" ]; then exit 3; fi
case "{name} $WCW_HOST_PASSWORD $*" in
  *stranger*) exit 5;;
  *wrong*) exit 6;;
  docker*OSType*) echo windows; exit;;
  docker*|invoke*|python*|powershell*|wcw*|first_run*) exit;;
esac
exec {real} "$@"
"""
#: What a step finds.
_FILES = (
    "builder",
    "handover/build.tar",
    "shares/one/record.sqlite",
    "runs/one/record.sqlite",
    "first-run/files/issue.md",
    "bundle",
)
#: Of expressions of GitHub's.
_VARIABLES = ["HOST", "RECIPE", "VERSION", "TORCH", "CUDA", "PYTHON", "ARCHS", "MINUTES", "CONFIG"]
_VARIABLES += ["LOCK", "WCW_PACKAGE"]
_FIRST_RUN = 'import subprocess, sys; sys.exit(subprocess.run(["first_run"]).returncode)'
#: An environment is made in no time.
_NO_VENV = "import venv; venv.create = lambda *_, **__: None\n"


def run(step: Step, place: Path, fail: str = "") -> tuple[int, list[str]]:
    """The exit code, and the lines that were run; the line ``fail`` fails."""
    work, typed = place / "work", place / "typed"
    shutil.rmtree(work, ignore_errors=True)
    for name in _FILES:
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("x")
    (work / "scripts").mkdir()
    (work / "scripts/first_run.py").write_text(_FIRST_RUN)
    typed.write_text("")
    asked = {"invoke"} if step.shell == "python" else programs(step.run)
    for name in ("bin/first_run", ".venv/bin/python", *(f"bin/{n}" for n in asked & step.there())):
        file = work / name
        file.parent.mkdir(parents=True, exist_ok=True)
        real = shutil.which(file.name) or "false"
        file.write_text(_STAND_IN.format(name=file.name, typed=typed, real=real))
        file.chmod(0o755)
        shutil.copy(file, file.with_suffix(".exe"))
    command = [str(BASH), "--noprofile", "--norc", "-eo", "pipefail", "-c", step.run]
    if step.shell == "python":
        command = [sys.executable, "-c", _NO_VENV + step.run]
    given = dict.fromkeys(
        ("GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STEP_SUMMARY"), str(work / "out")
    )
    given |= dict.fromkeys(_VARIABLES, "1") | {"RUNNER_TEMP": str(work), "BUNDLE": "bundle"}
    given |= step.env | {"PATH": str(work / "bin"), "FAIL": fail}
    done = subprocess.run(
        command, cwd=work, env=given, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return done.returncode, typed.read_text().splitlines()


def others() -> Iterator[Step]:
    """The first run's steps on Linux, and that of our action."""
    attest = DOCUMENTS["first-run.yml"]["jobs"]["attest"]["steps"]
    for one in attest:
        if "run" in one:
            where = f"first-run.yml: attest: {one['name']}"
            yield Step(where, LINUX, "bash", one["run"], {}, frozenset())
    action = yaml.safe_load((ROOT / ".github/actions/setup/action.yml").read_text("utf-8"))
    (run,) = [one["run"] for one in action["runs"]["steps"] if "run" in one]
    yield Step("actions/setup", "windows-2022", "python", run, {}, frozenset({"python"}))


HERE = [one for one in (*TEXTS, *others()) if one.shell in {"bash", "python"}]


@pytest.mark.slow
@pytest.mark.skipif(BASH is None or os.name == "nt", reason="stand-ins are scripts of a shell")
@pytest.mark.parametrize("one", HERE, ids=ids)
def test_a_program_that_fails_fails_its_step(one: Step, tmp_path: Path) -> None:
    code, typed = run(one, tmp_path)
    assert code == 0, typed
    assert bool(typed) == bool(programs(one.run) if one.shell == "bash" else "run(" in one.run)
    for line in dict.fromkeys(typed):
        program, _, words = line.partition(" ")
        if program in {"invoke", "wcw"}:
            calls(words)
        code, again = run(one, tmp_path, fail=line)
        assert line in again
        assert code != 0, line


def test_a_failed_step_fails_its_job() -> None:
    for name, document in DOCUMENTS.items():
        for job in document["jobs"].values():
            assert "continue-on-error" not in job, name
            for one in job.get("steps", []):
                assert "run" not in one or "continue-on-error" not in one, (name, one)


def test_the_first_run_is_made_and_kept_whatever_failed_before_it() -> None:
    *before, every, kept = DOCUMENTS["first-run.yml"]["jobs"]["windows"]["steps"]
    assert before
    assert every["name"] == "Every step"
    assert every["if"] == "${{ !cancelled() }}"
    assert kept["if"] == "always()"
