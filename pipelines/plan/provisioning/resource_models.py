"""The kinds of resources a host can have, as written in ``resources.yaml``.

``pipelines/remote/resources`` has a module of the same name for each, which checks and applies it
on the host; here it is bound to the recipe, the lock and the host's layout. Strings may contain
{cuda}, {python}, {torch} and the names of the layout. ``tools`` names entries of the toolchain
lock; ``*`` stands for any text, {recipe.build} and {recipe.test} for what the recipe lists.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

from packaging.utils import canonicalize_name
from pydantic import BeforeValidator, Field

from pipelines.core.yamlfile import yaml_value
from pipelines.plan.provisioning.base import (
    Binding,
    DesiredResource,
    Layout,
    Proof,
    Resource,
    fill_placeholders,
)


class Archive(Resource):
    """Archives of the lock (wheel, zip, tar), unpacked into a directory."""

    kind: Literal["archive"]
    path: str
    tools: Annotated[tuple[str, ...], Field(min_length=1)]
    strip: str = ""
    """Only members below it are unpacked, without this prefix; may use {version} and {stem}."""
    proof: str
    """A file that must exist afterwards."""
    unwatched: tuple[str, ...] = ()
    """Globs of files below ``path`` that may change without being reported as damage."""
    shared: bool = False
    """Whether the directory also holds files of others, which are left alone."""
    check: Proof | None = None

    def bind(self, binding: Binding) -> DesiredResource:
        """With the files to unpack."""
        pins = binding.pinned(self.tools, binding.layout.temp)
        archives = [
            {
                **pin.row,
                "strip": self.strip.format(
                    version=pin.tool.version, stem=pin.tool.file.removesuffix(".zip")
                ),
            }
            for pin in pins
        ]
        shown = [f"{pin.entry.removeprefix('nvidia-')} {pin.tool.version}" for pin in pins]
        return self.desired(f"{self.path}: {', '.join(shown)}", pins, archives=archives)

    def program(self, layout: Layout) -> str:
        """Its proof."""
        return layout.join(self.path, self.proof)


class Files(Resource):
    """Files of the lock, unchanged."""

    kind: Literal["files"]
    path: str
    tools: tuple[str, ...]

    def bind(self, binding: Binding) -> DesiredResource:
        """With its files."""
        pins = binding.pinned(self.tools, self.path)
        files = [pin.row for pin in pins]
        return self.desired(f"{self.path}: {len(pins)} pinned files", pins, files=files)


class Packages(Resource):
    """Python packages of a build, in an environment that only builds with this set of them use."""

    kind: Literal["packages"]
    path: str
    """Directory of the environments."""
    tools: tuple[str, ...]

    def bind(self, binding: Binding) -> DesiredResource:
        """With their versions; the files are already there."""
        layout = binding.layout
        pins = binding.pinned(self.tools, layout.wheels)
        packages = {pin.package: pin.tool.version for pin in pins}
        decides = [layout.python, *sorted(f"{pin.file} {pin.tool.sha256}" for pin in pins)]
        name = hashlib.sha256("\n".join(decides).encode()).hexdigest()[:8]
        path = layout.join(self.path, name)
        return self.desired(
            ", ".join(f"{name} {version}" for name, version in packages.items()),
            packages=packages,
            files=[pin.file for pin in pins],
            installer=layout.uv,
            base=layout.python,
            path=path,
            python=layout.join(path, "Scripts", "python.exe"),
        )


class Installer(Resource):
    """A program of the lock that installs something."""

    kind: Literal["installer"]
    tools: Annotated[tuple[str, ...], Field(min_length=1)]
    """The installer first, then the files it needs in its directory when it runs."""
    arguments: tuple[str, ...]
    """May use {tool-name}, the path of a file on the host, and {arguments}, those of the lock;
    {components} becomes ``--add ID`` for each."""
    path: str = ""
    """The directory that it fills, if the pipeline manages it. The Visual Studio product found
    there afterwards must be the one of the lock."""
    detect: str
    """A glob that matches a path once it is installed; may use {toolset}."""
    registered: str = ""
    """A key whose ``Version`` must not be older than the pinned one, for installers whose files
    do not show their version."""
    success: tuple[int, ...] = (0,)
    reboot: tuple[int, ...] = (3010, 1641)
    """Exit codes that mean success but require a restart of Windows."""
    as_task: bool = False
    """Run it through the Task Scheduler: some installers refuse a network logon."""
    logs: tuple[str, ...] = ()
    """Globs of log files on the host, downloaded when it fails."""
    minutes: Annotated[float, Field(gt=0)] = 60
    check: Proof | None = None

    def bind(self, binding: Binding) -> DesiredResource:
        """With its own file and those named in its arguments."""
        pins = binding.pinned(self.tools, binding.layout.temp)
        own, paths = pins[0], {pin.entry: pin.file for pin in pins}
        adds = [word for component in own.tool.components for word in ("--add", component)]
        several = {"{components}": adds, "{arguments}": [*own.tool.arguments]}
        arguments: list[str] = []
        for word in self.arguments:
            arguments += several.get(word) or [fill_placeholders(word, paths)]
        version, toolset = own.tool.version, own.tool.toolset or ""
        return self.desired(
            f"{own.entry} {version}",
            pins,
            name=own.entry,
            version=version,
            files=[pin.row for pin in pins],
            signer=own.tool.signer or "",
            prepare=[*own.tool.prepare],
            arguments=arguments,
            detect=fill_placeholders(self.detect, {"toolset": toolset}),
            toolset=toolset,
        )


class _Named(Resource):
    name: str
    value: Annotated[int | str | tuple[str, ...], BeforeValidator(yaml_value)]

    def summary(self) -> str:
        """Name and value."""
        value = "; ".join(self.value) if isinstance(self.value, tuple) else self.value
        return f"{self.name} = {value}"


class Registry(_Named):
    """A registry value: REG_DWORD, REG_SZ or REG_MULTI_SZ."""

    kind: Literal["registry"]
    key: Annotated[str, Field(pattern=r"^HK(LM|CU)\\")]
    reboot: bool = False
    """Whether it only takes effect after a restart of Windows."""


class Environment(_Named):
    """A variable of the machine."""

    kind: Literal["environment"]
    value: str


class GitConfig(_Named):
    """A setting of git for all users."""

    kind: Literal["git_config"]
    git: str
    value: str


class Directory(Resource):
    """A writable directory."""

    kind: Literal["directory"]
    path: str

    def summary(self) -> str:
        """Its path."""
        return self.path


class Distributions(Resource):
    """Python packages that must already be installed, torch for the cell's version and CUDA."""

    LOCAL = Resource.LOCAL | {"spare", "index"}

    kind: Literal["distributions"]
    tools: tuple[str, ...]
    spare: tuple[str, ...] = ()
    """Tools of the lock needed only by hosts without their own environment."""
    torch: str = "{torch}"
    cuda: str = "{cuda}"
    release: str = "{python}"
    """Of the Python itself; builds target this one, whatever was requested."""

    index: str = ""
    """Where pip finds that torch; {cu} is its CUDA version without the dot."""

    def bind(self, binding: Binding) -> DesiredResource:
        """With the packages the recipe names; a crate needs no Python."""
        requested = {
            str(canonicalize_name(requirement.name)): requirement.specifier
            for requirement in binding.place.requires()
        }
        recipe = [name for name in binding.listed(self.tools) if name not in self.spare]
        names = [*dict.fromkeys([*recipe, *requested])]
        requires = {
            name: [[requirement.operator, requirement.version] for requirement in clauses]
            for name, clauses in requested.items()
            if clauses
        }
        release = self.release if binding.recipe.is_wheel else ""
        # A wheel for several versions of torch has its own CUDA runtime.
        cuda = "" if binding.recipe.tested_with else self.cuda
        torch = f"torch {self.torch} ({f'CUDA {cuda}' if cuda else 'any CUDA'})"
        shown = [f"Python {release}"] if release else []
        shown += [
            torch if name == "torch" else f"{name}{requested.get(name, '')}" for name in names
        ]
        return self.desired(
            ", ".join(shown),
            names=names,
            requires=requires,
            python=binding.layout.python,
            release=release,
            cuda=cuda,
            index=self.index.replace("{cu}", self.cuda.replace(".", "")),
        )


class Program(Resource):
    """A program that must already be installed."""

    kind: Literal["program"]
    path: str
    check: Proof
    otherwise: Annotated[str, Field(min_length=1)]
    """What to do if it is missing or has another version."""

    def summary(self) -> str:
        """Its path and expected output."""
        return f"{self.path}: {self.check.prints}"


class Commands(Resource):
    """Programs run by the build, in provisioning's tool directories or on PATH."""

    kind: Literal["commands"]
    names: tuple[str, ...]

    def bind(self, binding: Binding) -> DesiredResource | None:
        """With the recipe's names; nothing if it has none."""
        names = binding.listed(self.names)
        places = [*dict.fromkeys(place for name in names for place in binding.places(name))]
        return self.desired(", ".join(names), names=names, places=places) if names else None


class Compilers(Resource):
    """The compilers of the host itself, for information only."""

    kind: Literal["compilers"]
    names: tuple[str, ...]

    def bind(self, binding: Binding) -> DesiredResource:  # noqa: ARG002 - of every kind
        """With the programs' names."""
        return self.desired("whatever is there", names=self.names)


class WinrmQuota(Resource):
    """A minimum quota of the WinRM service (0: no limit)."""

    kind: Literal["winrm_quota"]
    place: Literal["shell", "plugin"]
    name: str
    at_least: int

    def summary(self) -> str:
        """Name and value."""
        return f"{self.name} >= {self.at_least} ({self.place})"


class DefenderExclusion(Resource):
    """A directory that Microsoft Defender does not scan."""

    kind: Literal["defender_exclusion"]
    path: str

    def summary(self) -> str:
        """Its path."""
        return f"{self.path} not scanned"


class PageFile(Resource):
    """A page file of fixed size: parallel compiles run into the commit limit."""

    kind: Literal["page_file"]
    path: str
    initial_mb: Annotated[int, Field(gt=0)]
    maximum_mb: Annotated[int, Field(gt=0)]

    def summary(self) -> str:
        """Path and size."""
        return f"{self.path} {self.initial_mb} to {self.maximum_mb} MB"


class Reboot(Resource):
    """A restart, if a resource above requested it or Windows itself has one pending."""

    kind: Literal["reboot"]
    marker: str
    """A file on the host that records who requested the restart, in case this controller dies."""

    def summary(self) -> str:
        """Nothing pending."""
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
    | Commands
    | Compilers
    | Installer
    | WinrmQuota
    | DefenderExclusion
    | PageFile
    | Reboot,
    Field(discriminator="kind"),
]
