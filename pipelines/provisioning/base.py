"""What every kind of resource has, and what it is bound with: recipe, lock, layout and place."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Self

from packaging.requirements import Requirement
from pydantic import AfterValidator, Field

from pipelines.core.errors import LockError
from pipelines.core.model import Model
from pipelines.core.versions import free_threaded, python_release
from pipelines.hosts.base import Existing
from pipelines.recipe.model import Recipe
from pipelines.recipe.tested import cells_of_tests
from pipelines.record.target import Target
from pipelines.toolchain.lock import Tool, ToolchainLock
from pipelines.toolchain.variants import Names

#: A capability of :class:`pipelines.hosts.base.Capabilities`; ``builds``: something is built there,
#: not only a wheel tested that was given; ``cxx_runtime``: see :attr:`Place.cxx_runtime`.
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
    """Where things are on a host; may use {cuda}, {python}, and what stands above."""

    build_root: str
    temp: str
    wheels: str
    tools: str = ""
    """Directory of what the pipeline unpacks there, but for the next three."""
    toolkits: str = ""
    pythons: str = ""
    visual_studio: str = ""
    uv: str
    """The program that makes environments; empty where the Python's own pip does."""
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
    """Directory for what compilers may write down the place of: one on all hosts of a system."""

    @property
    def separator(self) -> str:
        """Of the host's paths."""
        return "\\" if "\\" in self.build_root else "/"

    def join(self, *parts: str) -> str:
        """A path below ``parts[0]``, which is one of the layout's, as the host writes it."""
        return self.separator.join(parts)

    def above(self, path: str) -> str:
        """The directory that a path of the host's is in."""
        return path.rpartition(self.separator)[0]


@dataclass(frozen=True)
class Place:
    """What decides the wanted state besides the file: the host's abilities and the cell."""

    capabilities: Mapping[str, bool]
    target: Target
    executable: str
    """The Python that the session runs in; builds use it where none is provisioned."""
    existing: Existing | None = None
    """An environment that is used as it is."""
    instead: Mapping[str, str] = field(default_factory=dict)
    """The host's: name of a tool -> the one whose entry of the lock is taken for it there."""
    builds: bool = True
    """Whether something is built there; else it is made ready for a test alone."""
    requires: Callable[[], tuple[Requirement, ...]] = tuple
    """What the package's ``build-system.requires`` wants of such an environment, once asked."""

    @property
    def cxx_runtime(self) -> bool:
        """Whether Microsoft's C++ run-time takes the place of Wine's: for torch, for MSVC's."""
        have = self.capabilities
        cpu_torch = bool(self.target.torch) and "torch" in self.instead
        return cpu_torch or (have["msvc"] and have["emulated"])

    @property
    def cell(self) -> dict[str, str]:
        """What the strings of the file may use, besides the layout's names."""
        cell = self.target.fields() | {"beside": self.executable.rpartition("\\")[0]}
        cell["release"] = python_release(self.target.python)
        cell["threads"] = _FREE if free_threaded(self.target.python) else _LOCKED
        if self.existing is not None:
            exe = ".exe" if self.capabilities["windows"] else ""
            cell |= {"executable": self.executable, "exe": exe, "root": self.existing.root}
            cell |= {"toolkit": self.existing.toolkit, "sccache": self.existing.sccache}
            cell["fixed"] = self.existing.fixed or f"{self.existing.root}/f"
            if not self.existing.toolkit:  # one is unpacked there, by the resource of this name
                cell["toolkit"] = f"{self.existing.root}/cuda/{self.target.cuda}"
        return cell

    def text(self, text: str, layout: Mapping[str, str]) -> str:
        """A text of the file with the names in braces filled in; the cell's go first.

        Paths of an existing environment are written as Windows does, if it is one.
        """
        text = fill(text, {**layout, **self.cell})
        native = self.existing is not None and self.capabilities["windows"]
        return text.replace("/", "\\") if native else text


#: What ``python -VV`` says of a Python without the global lock, and not of one with it.
_FREE, _LOCKED = "(?=.*free-threading)", "(?!.*free-threading)"


def fill(text: str, names: Mapping[str, str]) -> str:
    """``text`` with {name} replaced; other braces are left alone."""
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def each(value: object, change: Callable[[str], str]) -> object:
    """``value`` with every string in it changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [each(item, change) for item in value]
    if isinstance(value, dict):
        return {key: each(item, change) for key, item in value.items()}
    return value


@dataclass(frozen=True)
class Wanted:
    """One resource as the host is asked for it."""

    id: str
    why: str
    spec: dict[str, Any]
    """What goes to the host: ``Spec`` of the kind's module in ``pipelines/remote/resources``."""
    uploads: dict[str, str]
    """Tool of the lock -> path on the host: what must be there before it is applied."""
    summary: str
    """The wanted state in a few words, for tables."""


@dataclass(frozen=True)
class PinnedFile:
    """A file of the lock, and where the host gets it."""

    package: str
    """What is installed, if it is a wheel."""
    entry: str
    """Of the lock."""
    tool: Tool
    file: str
    """Path on the host."""

    @property
    def row(self) -> dict[str, str]:
        """As the host is told of it."""
        version, sha256 = self.tool.version, self.tool.sha256
        return {"name": self.entry, "version": version, "sha256": sha256, "file": self.file}


@dataclass(frozen=True)
class Binding:
    """What resources are bound with."""

    recipe: Recipe
    lock: ToolchainLock
    layout: Layout
    place: Place
    resources: tuple[Resource, ...]
    """Those that concern this host, filled in, in order."""

    def listed(self, names: Iterable[str]) -> list[str]:
        """``names`` once each; {recipe.build} and its like stand for what the recipe lists."""
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
        """The lock's files that ``names`` stand for, as they lie in a directory of the host.

        Raises :class:`LockError` for a tool that the lock does not have; one that it has not
        pinned has no sha256, and whether the host needs it is for provisioning to find out.
        """
        lists = self._lists
        wanted = [tool for name in names for tool in lists.get(name, ())]
        place = self.place
        found = dict.fromkeys(self.lock.entries_for(wanted, place.target, place.instead).items())
        if "{recipe.test}" in names:
            existing = place.existing is not None
            for cell in cells_of_tests(
                self.recipe, place.target, self.lock, place.instead, existing=existing
            ):
                tools = self.lock.entries_for(self.recipe.test_tools, cell, place.instead)
                found |= dict.fromkeys(tools.items())
        for name in names:
            if name not in lists:  # other files are called as their entry
                matching = self._matching(fill(name, place.cell))
                found |= dict.fromkeys((tool, tool) for tool in matching)
        pins = [(package, entry, self.lock.tools[entry]) for package, entry in found]
        return [
            PinnedFile(package, entry, tool, self.layout.join(folder, tool.file))
            for package, entry, tool in pins
        ]

    def _matching(self, name: str) -> list[str]:
        """The tools that a name with ``*`` stands for; any other is the cell's, or an entry."""
        if "*" not in name:
            return [Names(self.lock.tools).resolve(name, self.place.target)]
        found = fnmatch.filter(self.lock.tools, name)
        if not found:
            raise LockError(
                f"toolchain.lock.yaml has no tool '{name}'",
                hint="Another CUDA version, or one more group of entries there.",
            )
        return found

    def brought(self, program: str) -> list[str]:
        """Directories in which provisioning puts that program."""
        layout, end = self.layout, f"{self.layout.separator}{program}.exe"
        paths = (resource.program(layout) for resource in self.resources)
        return [layout.above(path) for path in paths if path.endswith(end)]

    def places(self, program: str) -> list[str]:
        """Directories in which a program is looked for before PATH."""
        layout = self.layout
        beside = layout.above(layout.python)
        if self.place.existing is not None:
            return [beside, layout.join(layout.cuda, "bin")]
        return [*self.brought(program), layout.join(beside, "Scripts")]


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

    def concerns(self, place: Place) -> bool:
        """Whether it is for such a host."""
        own = {"builds": place.builds, "cxx_runtime": place.cxx_runtime}
        have = {**own, **place.capabilities}
        return all(have[n] for n in self.needs) and not any(have[n] for n in self.without)

    def filled(self, change: Callable[[str], str]) -> Self:
        """Itself, with every string that the host is sent changed."""
        spec = each(self.spec(), change)
        assert isinstance(spec, dict)  # noqa: S101 - it was one
        return self.model_validate(self.model_dump(include=set(self.LOCAL)) | spec)

    def spec(self) -> dict[str, object]:
        """What the file says of it for the host, in builtins."""
        return self.model_dump(mode="json", exclude=set(self.LOCAL), exclude_none=True)

    def bind(self, binding: Binding) -> Wanted | None:  # noqa: ARG002 - of kinds that need it
        """It, filled in already, as the host is asked for it; ``None``: there is nothing to ask."""
        return self.wanted(self.summary())

    def wanted(self, summary: str, uploads: Iterable[PinnedFile] = (), **more: object) -> Wanted:
        """What the host is asked, with ``more`` than the file says."""
        files = {pin.entry: pin.file for pin in uploads}
        return Wanted(self.id, self.why, {**self.spec(), **more}, files, summary)

    def summary(self) -> str:
        """The wanted state in a few words, for tables."""
        return self.id

    def program(self, layout: Layout) -> str:  # noqa: ARG002 - of kinds that bring one
        """Path of the program that it brings, or nothing."""
        return ""
