"""The kinds of resources a host can have, as written in ``resources.yaml``.

``pipelines/remote/resources`` has a module of the same name for each, which checks and applies it
on the host; here it is bound to the recipe, the lock and the host's layout. Strings may contain
{cuda}, {python}, {torch} and the names of the layout. Resources from the toolchain lock are in
:mod:`.pinned_models`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from packaging.utils import canonicalize_name
from pydantic import BeforeValidator, Field

from pipelines.core.yamlfile import yaml_value
from pipelines.provisioning.base import Binding, DesiredResource, Proof, Resource
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
