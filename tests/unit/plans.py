"""Plans and lines for hosts that are only as real as a test needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pipelines.buildplan import BuildPlan, Request, resolve
from pipelines.config import Config
from pipelines.evidence import Evidence
from pipelines.hosts.base import Capabilities, Host
from pipelines.hosts.live import LiveSession
from pipelines.provisioning.resources import Wanted
from pipelines.recipe.model import Recipe
from pipelines.session.base import Session
from pipelines.stages.line import Line

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
        self.restarts = 0

    def connect(self) -> Session:
        assert self.session is not None, "nobody connects here"
        made: Session = self.session
        return made

    def restart(self, session: Session) -> Session:
        self.restarts += 1
        return session

    def close(self) -> None:
        """Nothing was started."""


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
    plan = resolve(settings, Request(axes=axes), host=host)
    if made is None:
        return plan
    target = plan.target.model_copy(
        update={"version": made.version, "torch": made.torch or "", "cuda": made.cuda}
    )
    return replace(plan, recipe=made, target=target)


def line_for(plan: BuildPlan) -> Line:
    """A line that has not begun."""
    return Line(plan, LiveSession(plan.host))


def wanting(line: Line, *wanted: Wanted, **layout: str) -> Line:
    """The line with other resources, and with other places on its host."""
    plan = replace(line.plan, layout=line.plan.layout.model_copy(update=layout))
    plan.__dict__["wanted"] = wanted  # as cached_property keeps it
    line.plan = plan
    return line
