"""The kinds of things a host can be wanted to have, as ``resources.yaml`` writes them.

``pipelines/remote/resources`` has a module of the same name for each, which checks and applies it
on the host. ``tools`` names entries of the tool-chain lock (``*`` stands for any text); strings may
hold {cuda}, {python} and {torch}.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from pipelines.model import Model

#: A capability of :class:`pipelines.hosts.base.Capabilities`.
Capability = Literal["windows", "msvc", "gpu", "publishable", "services", "toolkit"]


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from None
    return pattern


class Proof(Model):
    """A command that shows that what was installed runs."""

    command: Annotated[tuple[str, ...], Field(min_length=1)]
    prints: Annotated[str, AfterValidator(_compiles)]
    """A regular expression that its output must contain."""


class Resource(Model):
    """What every kind has."""

    #: Keys that decide whether and when, and are not sent to the host.
    LOCAL: ClassVar = frozenset({"id", "why", "after", "needs", "without", "tools", "strip"})

    id: Annotated[str, Field(min_length=1)]
    why: Annotated[str, Field(min_length=1)]
    after: tuple[str, ...] = ()
    """Resources that must be brought about before this one."""
    needs: tuple[Capability, ...] = ()
    without: tuple[Capability, ...] = ()
    """Only for hosts that have, or lack, these capabilities."""

    def summary(self, spec: dict[str, Any]) -> str:
        """The wanted state in a few words, for tables."""
        return str(spec)


class _Named(Resource):
    def summary(self, spec: dict[str, Any]) -> str:
        value = spec["value"]
        return f"{spec['name']} = {'; '.join(value) if isinstance(value, list) else value}"


class Registry(_Named):
    """A registry value."""

    kind: Literal["registry"]
    key: Annotated[str, Field(pattern=r"^HK(LM|CU)\\")]
    name: str
    value: int | str | tuple[str, ...]
    """REG_DWORD, REG_SZ or REG_MULTI_SZ."""
    reboot: bool = False
    """Whether it takes effect at the next start of Windows only."""


class Environment(_Named):
    """A variable of the machine."""

    kind: Literal["environment"]
    name: str
    value: str


class GitConfig(_Named):
    """A setting of git for all users."""

    kind: Literal["git_config"]
    git: str
    name: str
    value: str


class Directory(Resource):
    """A writable directory."""

    kind: Literal["directory"]
    path: str

    def summary(self, spec: dict[str, Any]) -> str:
        """Its path."""
        return str(spec["path"])


class Archive(Resource):
    """Archives of the lock (wheel, zip, tar), unpacked into a directory."""

    kind: Literal["archive"]
    path: str
    tools: Annotated[tuple[str, ...], Field(min_length=1)]
    strip: str = ""
    """Only members below it are unpacked, without it; may use {version} and {stem}."""
    proof: str
    """A file that is there afterwards."""
    check: Proof | None = None

    def summary(self, spec: dict[str, Any]) -> str:
        """The directory and what is in it."""
        pins = [f"{a['name'].removeprefix('nvidia-')} {a['version']}" for a in spec["archives"]]
        return f"{spec['path']}: {', '.join(pins)}"


class Files(Resource):
    """Files of the lock, as they are."""

    kind: Literal["files"]
    path: str
    tools: tuple[str, ...]

    def summary(self, spec: dict[str, Any]) -> str:
        """The directory and how many."""
        return f"{spec['path']}: {len(spec['files'])} pinned files"


class Packages(Resource):
    """Python packages of the Python that builds."""

    kind: Literal["packages"]
    tools: tuple[str, ...]

    def summary(self, spec: dict[str, Any]) -> str:
        """Names and versions."""
        return ", ".join(f"{name} {version}" for name, version in spec["packages"].items())


class Distributions(Resource):
    """Python packages that must be there already, torch for the cell's release and CUDA."""

    kind: Literal["distributions"]
    tools: tuple[str, ...]
    spare: tuple[str, ...] = ()
    """Tools of the lock that only hosts without their own environment need."""
    torch: str = "{torch}"
    cuda: str = "{cuda}"
    release: str = "{python}"
    """Of the Python itself; what is built is for that one, whatever was asked for."""

    def summary(self, spec: dict[str, Any]) -> str:
        """Python's release, names, and what torch must be."""
        python = [f"Python {spec['release']}"] if spec["release"] else []
        return ", ".join(
            [
                *python,
                *(
                    f"{name} {spec['torch']} (CUDA {spec['cuda']})" if name == "torch" else name
                    for name in spec["names"]
                ),
            ]
        )


class Program(Resource):
    """A program that must be there already."""

    kind: Literal["program"]
    path: str
    check: Proof
    otherwise: Annotated[str, Field(min_length=1)]
    """What to do when it is missing or another."""

    def summary(self, spec: dict[str, Any]) -> str:
        """Its path and what it must say."""
        return f"{spec['path']}: {spec['check']['prints']}"


class Installer(Resource):
    """A program of the lock that installs something."""

    kind: Literal["installer"]
    tools: Annotated[tuple[str, ...], Field(min_length=1)]
    """The installer first, then files that lie beside it when it runs."""
    arguments: tuple[str, ...]
    """May use {tool-name}, the path of a file there; {components} becomes ``--add ID`` each."""
    detect: str
    """A glob of paths: something matches once it is installed."""
    success: tuple[int, ...] = (0,)
    reboot: tuple[int, ...] = (3010, 1641)
    """Exit codes that mean success, and a restart of Windows."""
    as_task: bool = False
    """Run by the Task Scheduler: some installers refuse a network logon."""
    logs: tuple[str, ...] = ()
    """Globs of log files on the host, brought home when it fails."""
    minutes: Annotated[float, Field(gt=0)] = 60
    check: Proof | None = None

    def summary(self, spec: dict[str, Any]) -> str:
        """What is installed."""
        return f"{spec['name']} {spec['version']}"


class WinrmQuota(Resource):
    """A quota of the WinRM service, at least so large (0: no limit)."""

    kind: Literal["winrm_quota"]
    place: Literal["shell", "plugin"]
    name: str
    at_least: int

    def summary(self, spec: dict[str, Any]) -> str:
        """Name and value."""
        return f"{spec['name']} >= {spec['at_least']} ({spec['place']})"


class DefenderExclusion(Resource):
    """A directory that Microsoft Defender does not scan."""

    kind: Literal["defender_exclusion"]
    path: str

    def summary(self, spec: dict[str, Any]) -> str:
        """Its path."""
        return f"{spec['path']} not scanned"


class PageFile(Resource):
    """A page file of fixed bounds: the commit limit is what parallel compiles run into."""

    kind: Literal["page_file"]
    path: str
    initial_mb: Annotated[int, Field(gt=0)]
    maximum_mb: Annotated[int, Field(gt=0)]

    def summary(self, spec: dict[str, Any]) -> str:
        """Path and bounds."""
        return f"{spec['path']} {spec['initial_mb']} to {spec['maximum_mb']} MB"


class ScheduledTask(Resource):
    """A task of the Task Scheduler that runs as SYSTEM at every start."""

    kind: Literal["scheduled_task"]
    name: str
    command: Annotated[tuple[str, ...], Field(min_length=1)]

    def summary(self, spec: dict[str, Any]) -> str:
        """Name and command."""
        return f"{spec['name']}: {' '.join(spec['command'])}"


class Reboot(Resource):
    """A restart, if something above asked for it or Windows itself waits for one."""

    kind: Literal["reboot"]
    marker: str
    """A file on the host that remembers who asked, should this controller not live to see it."""

    def summary(self, spec: dict[str, Any]) -> str:  # noqa: ARG002 - as of the base class
        """Nothing to wait for."""
        return "no restart pending"


AnyResource = Annotated[
    Registry
    | Environment
    | GitConfig
    | Directory
    | Archive
    | Files
    | Packages
    | Distributions
    | Program
    | Installer
    | WinrmQuota
    | DefenderExclusion
    | PageFile
    | ScheduledTask
    | Reboot,
    Field(discriminator="kind"),
]
