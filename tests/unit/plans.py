"""Plans and lines for hosts that are only as real as a test needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from projects import project
from sessions import Here

from pipelines.core.evidence import Evidence
from pipelines.core.files import sha256_of
from pipelines.hosts.base import Capabilities, Existing, Host
from pipelines.hosts.live import LiveSession
from pipelines.plan.config.model import Config
from pipelines.plan.matrix.buildplan import BuildPlan, Request, resolve_build_plan
from pipelines.plan.provisioning.resources import DesiredResource
from pipelines.recipe.load import load_recipe
from pipelines.recipe.model import Recipe
from pipelines.recipe.origin import PathSource
from pipelines.record.results import (
    AuditedFile,
    AuditResult,
    ProvisionResult,
    StageRecord,
    StageResult,
)
from pipelines.record.run import Run
from pipelines.session.base import Session
from pipelines.stages.buildspec import collect_materials, job_id
from pipelines.stages.line import Line

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
LAB = {
    "kind": "winrm",
    "endpoint": "https://lab.invalid:5986/wsman",
    "username": "u",
    "password_env": "NOT_SET",
}


class Lab(Host):
    """A Windows with everything; ``session`` is what a test puts there."""

    name = "lab"
    evidence = Evidence.WRITTEN
    executable = r"C:\wcw\python\python.exe"
    capabilities = Capabilities(windows=True, msvc=True, gpu=False, publishable=True, services=True)

    def __init__(self, session: Any = None) -> None:
        self.session = session
        self.connects = self.restarts = self.closed = 0
        self.gone = ""

    def ended(self) -> str:
        return self.gone

    def connect(self) -> Session:
        assert self.session is not None, "nobody connects here"
        self.connects += 1
        made: Session = self.session
        return made

    def restart(self, session: Session) -> Session:
        self.restarts += 1
        return session

    def close(self) -> None:
        self.closed += 1


class Desk(Lab):
    """This machine, its Python used as it is, its session one with this very process."""

    name = "desk"
    evidence = Evidence.SIMULATED
    executable = sys.executable
    capabilities = Capabilities(windows=False, msvc=False, gpu=False, publishable=True)

    def __init__(self, root: Path, session: Here) -> None:
        super().__init__(session)
        self.existing = Existing(root=str(root))


def plan_for(
    tmp_path: Path, host: Host | None = None, made: Recipe | None = None, /, **axes: str
) -> BuildPlan:
    """A plan for the host called ``lab``; ``made`` takes the place of the recipe in it."""
    settings = Config.model_validate(
        {
            "hosts": {"lab": LAB},
            "out": str(tmp_path / "out"),
            "offline": True,
            "default": {"host": "lab"},
        }
    )
    plan = resolve_build_plan(settings, Request(axes=axes), host=host)
    if made is None:
        return plan
    target = plan.target.model_copy(
        update={"version": made.version, "torch": made.torch or "", "cuda": made.cuda}
    )
    return replace(plan, recipe=made, target=target)


def line_for(plan: BuildPlan) -> Line:
    """A line that has not begun."""
    return Line(plan, LiveSession(plan.host))


def changed(plan: BuildPlan, *wanted: DesiredResource, **changes: Any) -> BuildPlan:
    """The plan with these fields, and with these resources in place of its own."""
    made = replace(plan, **changes)
    made.__dict__["wanted"] = wanted  # as cached_property keeps it
    return made


def wanting(line: Line, *wanted: DesiredResource, **layout: str) -> Line:
    """The line with other resources, and with other places on its host."""
    line.plan = changed(line.plan, *wanted, layout=line.plan.layout.model_copy(update=layout))
    return line


def installer_spec(file: str, sha256: str, **spec: Any) -> dict[str, Any]:
    """A resource: the installer ``file``, which takes no arguments and leaves no logs."""
    usual = {
        "kind": "installer",
        "name": "tool",
        "version": "1",
        "files": [{"name": Path(file).name, "version": "1", "sha256": sha256, "file": file}],
        "arguments": [],
        "path": "",
        "signer": "",
        "prepare": [],
        "toolset": "",
        "registered": "",
        "success": [0],
        "reboot": [],
        "as_task": False,
        "logs": [],
        "minutes": 1.0,
    }
    return usual | spec


def recipe_of(tree: Path, **changes: Any) -> Recipe:
    """A recipe for the project at ``tree`` that asks its host for nothing."""
    own = {
        "project": "pkg",
        "source": PathSource(path=str(tree)),
        "pythons": (PYTHON,),
        "build_requires": (),
        "test_requires": (),
        "smoke": "",
        "verify": "import pkg",
        "costs": (),
        "reproducible": False,
    }
    return load_recipe("smoke-attention").model_copy(update=own | changes)


def at_desk(
    tmp_path: Path,
    job: Callable[..., Any] | None = None,
    answers: Mapping[Callable[..., Any], Any] | None = None,
    **recipe: Any,
) -> tuple[Line, Here]:
    """A line for a small project on :class:`Desk`, which is wanted to have nothing; its session."""
    tree = tmp_path / "tree"
    if not tree.exists():
        project(tree, "")
    session = Here(job, answers)
    host, made = Desk(tmp_path / "root", session), recipe_of(tree, **recipe)
    return wanting(line_for(plan_for(tmp_path, host, made, python=PYTHON, archs="90a"))), session


def having(line: Line, *results: StageResult) -> Run:
    """A run of the line in which these stages have passed, in this order."""
    run = line.begin_run()
    for number, result in enumerate(results, 1):
        record = StageRecord(
            name=result.stage, state="passed", started=float(number), seconds=1.0, result=result
        )
        run.put_stage(record)
    return run


def audited(line: Line, wheel: Path) -> Run:
    """A run of the line in which this wheel, which is moved there, has passed its audit."""
    one = AuditedFile(file=wheel.name, sha256=sha256_of(wheel), version="1.0+cu130")
    run = having(line, AuditResult(files=(one,)))
    (run.path / "wheels").mkdir()
    wheel.rename(run.path / "wheels" / wheel.name)
    return run


def job_of(plan: BuildPlan, source: str, found: ProvisionResult | None) -> str:
    """The id of the build of a source with that sha256."""
    return job_id(plan, collect_materials(plan, source, found))
