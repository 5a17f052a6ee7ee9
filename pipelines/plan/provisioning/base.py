"""What all kinds of resources share, and what they are bound to: recipe, lock, layout and place."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Self

from packaging.requirements import Requirement
from pydantic import Field

from pipelines.core.errors import LockError
from pipelines.core.model import Model, Regex
from pipelines.core.target import Target
from pipelines.core.versions import free_threaded, python_release
from pipelines.hosts.base import Existing
from pipelines.recipe.model import Recipe
from pipelines.recipe.tested import cells_of_tests
from pipelines.toolchain.lock import Tool, ToolchainLock
from pipelines.toolchain.variants import Names, wanted_file

#: A capability of :class:`pipelines.hosts.base.Capabilities`; ``builds``: the host builds, rather
#: than only testing a given wheel; ``cxx_runtime``: see :attr:`Place.cxx_runtime`.
Capability = Literal[
    "windows",
    "msvc",
    "gpu",
    "publishable",
    "services",
    "toolkit",
    "builds",
    "emulated",
    "cxx_runtime",
]


class Layout(Model):
    """Paths on a host; may use {cuda}, {python}, and the names above."""

    build_root: str
    temp: str
    wheels: str
    tools: str = ""
    """Directory the pipeline unpacks into, apart from the next three."""
    toolkits: str = ""
    pythons: str = ""
    visual_studio: str = ""
    uv: str
    """The program that creates environments; empty to use Python's own pip."""
    cuda: str
    python: str
    marker: str
    sccache: str
    """The program; empty when there is none."""
    ninja: str
    """The program; empty: the one on PATH."""
    compile_cache: str
    """Directory of sccache's local cache."""
    fixed: str
    """Directory whose path compilers may embed: the same on all hosts of one system."""

    @property
    def separator(self) -> str:
        """The path separator on the host."""
        return "\\" if "\\" in self.build_root else "/"

    def join(self, *parts: str) -> str:
        """A path below ``parts[0]``, which is one of the layout's, in the host's notation."""
        return self.separator.join(parts)

    def above(self, path: str) -> str:
        """The parent directory of a path on the host."""
        return path.rpartition(self.separator)[0]


@dataclass(frozen=True)
class Place:
    """What determines the desired state besides the file: the host's capabilities and the cell."""

    capabilities: Mapping[str, bool]
    target: Target
    executable: str
    """The Python the session runs in; builds use it when none is provisioned."""
    existing: Existing | None = None
    """An environment that is used unchanged."""
    replacements: Mapping[str, str] = field(default_factory=dict)
    """Name of a tool -> the lock entry this host uses for it."""
    builds: bool = True
    """Whether to prepare it for a build; otherwise only for a test."""
    requires: Callable[[], tuple[Requirement, ...]] = tuple
    """What the package's ``build-system.requires`` needs of such an environment, if known."""

    @property
    def cxx_runtime(self) -> bool:
        """Whether Microsoft's C++ runtime replaces Wine's: for torch and for MSVC's."""
        have = self.capabilities
        cpu_torch = bool(self.target.torch) and "torch" in self.replacements
        return cpu_torch or (have["msvc"] and have["emulated"])

    @property
    def cell(self) -> dict[str, str]:
        """The names available in the file's strings, apart from the layout's."""
        cell = self.target.fields() | {"python_dir": self.executable.rpartition("\\")[0]}
        cell["release"] = python_release(self.target.python)
        cell["threads"] = _FREE if free_threaded(self.target.python) else _LOCKED
        if self.existing is not None:
            exe = ".exe" if self.capabilities["windows"] else ""
            cell |= {"executable": self.executable, "exe": exe, "root": self.existing.root}
            cell |= {"toolkit": self.existing.toolkit, "sccache": self.existing.sccache}
            cell["fixed"] = self.existing.fixed or f"{self.existing.root}/f"
            if not self.existing.toolkit:  # one is unpacked there by the resource of this name
                cell["toolkit"] = f"{self.existing.root}/cuda/{self.target.cuda}"
        return cell

    def text(self, text: str, layout: Mapping[str, str]) -> str:
        """A text of the file with the names in braces filled in; the cell's take precedence.

        Paths of an existing environment use Windows' notation if it is a Windows.
        """
        text = fill_placeholders(text, {**layout, **self.cell})
        native = self.existing is not None and self.capabilities["windows"]
        return text.replace("/", "\\") if native else text


#: In the output of ``python -VV`` of a Python without the global lock only.
_FREE, _LOCKED = "(?=.*free-threading)", "(?!.*free-threading)"


def fill_placeholders(text: str, names: Mapping[str, str]) -> str:
    """``text`` with {name} replaced; other braces are left alone."""
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def map_strings(value: object, change: Callable[[str], str]) -> object:
    """``value`` with ``change`` applied to every string in it."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [map_strings(item, change) for item in value]
    if isinstance(value, dict):
        return {key: map_strings(item, change) for key, item in value.items()}
    return value


@dataclass(frozen=True)
class DesiredResource:
    """One resource as requested from the host."""

    id: str
    why: str
    spec: dict[str, Any]
    """What is sent to the host: ``Spec`` of the kind's module in ``pipelines/remote/resources``."""
    uploads: dict[str, str]
    """Tool of the lock -> path on the host: files required before it is applied."""
    summary: str
    """The desired state in a few words, for tables."""


@dataclass(frozen=True)
class PinnedFile:
    """A file of the lock and its path on the host."""

    package: str
    """The installed package, if it is a wheel."""
    entry: str
    """From the lock."""
    tool: Tool
    file: str
    """Path on the host."""

    @property
    def row(self) -> dict[str, str]:
        """As sent to the host."""
        version, sha256 = self.tool.version, self.tool.sha256
        return {"name": self.entry, "version": version, "sha256": sha256, "file": self.file}


@dataclass(frozen=True)
class Binding:
    """What resources are bound to."""

    recipe: Recipe
    lock: ToolchainLock
    layout: Layout
    place: Place
    resources: tuple[Resource, ...]
    """The ones that apply to this host, filled in, in order."""

    def listed(self, names: Iterable[str]) -> list[str]:
        """``names`` without duplicates; {recipe.build} etc. stand for the recipe's lists."""
        lists = self._lists
        return [*dict.fromkeys(n for name in names for n in lists.get(name, (name,)))]

    @property
    def _lists(self) -> dict[str, tuple[str, ...]]:
        recipe = self.recipe
        return {
            "{recipe.build}": recipe.build_requires,
            "{recipe.test}": recipe.test_tools,
            "{recipe.host}": recipe.host_requires,
        }

    def pinned(self, names: Iterable[str], folder: str) -> list[PinnedFile]:
        """The lock's files that ``names`` stand for, as stored in a directory of the host.

        Raises :class:`LockError` for a tool missing from the lock; an unpinned one has no
        sha256, and provisioning determines whether the host needs it.
        """
        lists = self._lists
        selected = [tool for name in names for tool in lists.get(name, ())]
        place = self.place
        files = dict.fromkeys(
            self.lock.entries_for(selected, place.target, place.replacements).items()
        )
        if "{recipe.test}" in names:
            existing = place.existing is not None
            for cell in cells_of_tests(
                self.recipe, place.target, self.lock, place.replacements, existing=existing
            ):
                tools = self.lock.entries_for(self.recipe.test_tools, cell, place.replacements)
                files |= dict.fromkeys(tools.items())
        for name in names:
            if name not in lists:  # other files are named like their entry
                matching = self._matching(fill_placeholders(name, place.cell))
                files |= dict.fromkeys((tool, tool) for tool in matching)
        pins = [(package, entry, self.lock.tools[entry]) for package, entry in files]
        return [
            PinnedFile(package, entry, tool, self.layout.join(folder, tool.file))
            for package, entry, tool in pins
        ]

    def _matching(self, name: str) -> list[str]:
        """The tools that a name with ``*`` matches; other names are the cell's, or entries."""
        if "*" not in name:
            return [Names(self.lock.tools).resolve(name, self.place.target)]
        names = fnmatch.filter(self.lock.tools, name)
        if not names:
            raise LockError(
                f"toolchain.lock.yaml has no tool '{name}'",
                hint=f"Choose another CUDA version, or add its entries to {wanted_file()}.",
            )
        return names

    def brought(self, program: str) -> list[str]:
        """Directories in which provisioning installs that program."""
        layout, end = self.layout, f"{self.layout.separator}{program}.exe"
        paths = (resource.program(layout) for resource in self.resources)
        return [layout.above(path) for path in paths if path.endswith(end)]

    def places(self, program: str) -> list[str]:
        """Directories searched for a program before PATH."""
        layout = self.layout
        folder = layout.above(layout.python)
        if self.place.existing is not None:
            return [folder, layout.join(layout.cuda, "bin")]
        return self.brought(program)


class Proof(Model):
    """A command that shows that the installation works."""

    command: Annotated[tuple[str, ...], Field(min_length=1)]
    prints: Regex
    """A regular expression that must match its output."""


class Resource(Model):
    """Fields of every kind."""

    #: Keys that determine whether and when, and are not sent to the host.
    LOCAL: ClassVar = frozenset({"id", "why", "after", "needs", "without", "tools", "strip"})

    id: Annotated[str, Field(min_length=1)]
    why: Annotated[str, Field(min_length=1)]
    after: tuple[str, ...] = ()
    """Resources that must be applied before this one."""
    needs: tuple[Capability, ...] = ()
    without: tuple[Capability, ...] = ()
    """Only for hosts that have, or do not have, these capabilities."""

    def concerns(self, place: Place) -> bool:
        """Whether it applies to such a host."""
        own = {"builds": place.builds, "cxx_runtime": place.cxx_runtime}
        have = {**own, **place.capabilities}
        return all(have[n] for n in self.needs) and not any(have[n] for n in self.without)

    def filled(self, change: Callable[[str], str]) -> Self:
        """A copy with every string for the host changed."""
        spec = map_strings(self.spec(), change)
        assert isinstance(spec, dict)  # noqa: S101 - it was a dict before
        return self.model_validate(self.model_dump(include=set(self.LOCAL)) | spec)

    def spec(self) -> dict[str, object]:
        """The file's entry for the host, as builtins."""
        return self.model_dump(mode="json", exclude=set(self.LOCAL), exclude_none=True)

    def bind(self, binding: Binding) -> DesiredResource | None:  # noqa: ARG002 - of kinds that need it
        """The request to the host for this filled-in resource; ``None``: nothing to request."""
        return self.desired(self.summary())

    def desired(
        self, summary: str, uploads: Iterable[PinnedFile] = (), **more: object
    ) -> DesiredResource:
        """What is requested from the host, with ``more`` fields than the file has."""
        files = {pin.entry: pin.file for pin in uploads}
        return DesiredResource(self.id, self.why, {**self.spec(), **more}, files, summary)

    def summary(self) -> str:
        """The desired state in a few words, for tables."""
        return self.id

    def program(self, layout: Layout) -> str:  # noqa: ARG002 - of kinds that bring one
        """Path of the program it installs, or an empty string."""
        return ""
