"""The kinds of things a host can be wanted to have, as ``resources.yaml`` writes them.

``pipelines/remote/resources`` has a module of the same name for each, which checks and applies it
on the host; here it is bound with the recipe, the lock and the host's layout. Strings may hold
{cuda}, {python}, {torch} and the names of the layout. What comes from the tool-chain lock is in
:mod:`.pinned_models`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from packaging.utils import canonicalize_name
from pydantic import BeforeValidator, Field

from pipelines.core.yamlfile import yaml_value
from pipelines.provisioning.base import Binding, Proof, Resource, Wanted
from pipelines.provisioning.pinned_models import Archive, Files, Installer, Packages


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
    """Whether it takes effect at the next start of Windows only."""


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
    """Python packages that must be there already, torch for the cell's release and CUDA."""

    LOCAL = Resource.LOCAL | {"spare", "index"}

    kind: Literal["distributions"]
    tools: tuple[str, ...]
    spare: tuple[str, ...] = ()
    """Tools of the lock that only hosts without their own environment need."""
    torch: str = "{torch}"
    cuda: str = "{cuda}"
    release: str = "{python}"
    """Of the Python itself; what is built is for that one, whatever was asked for."""

    index: str = ""
    """Where pip finds that torch; {cu} is its CUDA without the dot."""

    def bind(self, binding: Binding) -> Wanted:
        """With what recipe and package name; a crate is for no Python."""
        asked = {
            str(canonicalize_name(one.name)): one.specifier for one in binding.place.requires()
        }
        recipe = [name for name in binding.listed(self.tools) if name not in self.spare]
        names = [*dict.fromkeys([*recipe, *asked])]
        requires = {
            name: [[one.operator, one.version] for one in clauses]
            for name, clauses in asked.items()
            if clauses
        }
        release = self.release if binding.recipe.is_wheel else ""
        # A wheel for several releases of torch has a CUDA run-time of its own.
        cuda = "" if binding.recipe.tested_with else self.cuda
        torch = f"torch {self.torch} ({f'CUDA {cuda}' if cuda else 'any CUDA'})"
        shown = [f"Python {release}"] if release else []
        shown += [torch if name == "torch" else f"{name}{asked.get(name, '')}" for name in names]
        return self.wanted(
            ", ".join(shown),
            names=names,
            requires=requires,
            python=binding.layout.python,
            release=release,
            cuda=cuda,
            index=self.index.replace("{cu}", self.cuda.replace(".", "")),
        )


class Program(Resource):
    """A program that must be there already."""

    kind: Literal["program"]
    path: str
    check: Proof
    otherwise: Annotated[str, Field(min_length=1)]
    """What to do when it is missing or another."""

    def summary(self) -> str:
        """Its path and what it must say."""
        return f"{self.path}: {self.check.prints}"


class Commands(Resource):
    """Programs that the build starts, found where provisioning puts tools or on PATH."""

    kind: Literal["commands"]
    names: tuple[str, ...]

    def bind(self, binding: Binding) -> Wanted | None:
        """With the recipe's names; nothing where it has none."""
        names = binding.listed(self.names)
        places = [*dict.fromkeys(place for name in names for place in binding.places(name))]
        return self.wanted(", ".join(names), names=names, places=places) if names else None


class Compilers(Resource):
    """What compiles there, where that is the host's own: only looked at."""

    kind: Literal["compilers"]
    names: tuple[str, ...]

    def bind(self, binding: Binding) -> Wanted:  # noqa: ARG002 - of every kind
        """With the programs' names."""
        return self.wanted("whatever is there", names=self.names)


class WinrmQuota(Resource):
    """A quota of the WinRM service, at least so large (0: no limit)."""

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
    """A page file of fixed bounds: the commit limit is what parallel compiles run into."""

    kind: Literal["page_file"]
    path: str
    initial_mb: Annotated[int, Field(gt=0)]
    maximum_mb: Annotated[int, Field(gt=0)]

    def summary(self) -> str:
        """Path and bounds."""
        return f"{self.path} {self.initial_mb} to {self.maximum_mb} MB"


class Reboot(Resource):
    """A restart, if something above asked for it or Windows itself waits for one."""

    kind: Literal["reboot"]
    marker: str
    """A file on the host that remembers who asked, should this controller not live to see it."""

    def summary(self) -> str:
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
    | Commands
    | Compilers
    | Installer
    | WinrmQuota
    | DefenderExclusion
    | PageFile
    | Reboot,
    Field(discriminator="kind"),
]
