"""What torch, CUDA and the upstreams of recipes have released, according to their pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version

from pipelines.core.errors import ConfigError, LockError
from pipelines.core.finding import Finding
from pipelines.core.hosttext import safe_line
from pipelines.core.versions import (
    free_threaded,
    minor_release,
    parse_version,
    python_order,
    release_in_range,
)
from pipelines.plan.matrix.compat import load_compat
from pipelines.plan.matrix.torches import TorchBuild
from pipelines.publish.watch.pages import File, Project, Tags, read_members
from pipelines.recipe.load import shown_file
from pipelines.recipe.model import Recipe
from pipelines.recipe.origin import FileSource, GitSource
from pipelines.recipe.worktree import PROJECT
from pipelines.toolchain.lock import ToolchainLock

#: All builds of torch, those with CUDA for Windows among them.
TORCH_BUILDS = "https://download.pytorch.org/whl/torch/"
#: Projects of the package index: one with wheels for Windows of every release of CUDA, one whose
#: wheel lists the releases of python-build-standalone, and pinned tools.
CUDA, PYTHONS, TOOLS = "nvidia-cuda-nvcc", "pbs-installer", ("triton-windows",)
TORCHES = 3  # minor releases of torch that are looked at where --torch names none
MOST = 24  # cells at once where --most says nothing else
#: ``cu92``, ``cu130``, ``cu1310``: the last digits are the minor release.
_LOCAL = re.compile(r"cu(\d{2}(?=\d)|\d)(\d{1,2})")
#: The Python whose own ABI it has, with the global lock or without; no other.
_OWN = re.compile(r"(cp3(\d{1,2}))-\1(t?)-win_amd64")
#: Where releases of python-build-standalone are listed; one of a single Python is none of others.
STANDALONE = "src/pbs_installer/versions.json"
_FILE = re.compile(
    r"/(\d{8})/cpython-(3\.\d+)[\w.%]+-x86_64-pc-windows-msvc-(freethreaded-)?install_only_stripped"
)
_BUILT_BY = (*PROJECT, "setup.cfg", "CMakeLists.txt")


def release_warning(id_: str, subject: str, says: str, hint: str = "") -> Finding:
    """Something that is out and becomes no cell, and what to do about it.

    The ``subject`` is a recipe, or what is out.
    """
    return Finding(id=id_, level="warning", actual=says, hint=hint, subject=subject)


@dataclass(frozen=True)
class Torch:
    """A minor release of torch, by the newest release in it that both indexes have."""

    version: str
    builds: Mapping[str, Mapping[str, File]]
    """CUDA -> Python -> its wheel for Windows."""

    @property
    def pythons(self) -> list[str]:
        """Those that any of its builds is for."""
        return list(dict.fromkeys(python for wheels in self.builds.values() for python in wheels))


def find_torch_releases(
    project: Project, builds: Project, *, pre: bool = False
) -> tuple[dict[str, Torch], list[Finding]]:
    """Minor release -> torch, oldest first; and what is on one of the two indexes alone.

    A release counts when the package index has a wheel of it for Windows that is not yanked, and
    the index of builds one with CUDA.
    """
    here = {
        version
        for version, files in project.releases(pre=pre).items()
        if any(_locked(_windows_wheel_python(one)) for one in files)
    }
    found: dict[str, Torch] = {}
    built = builds.releases(pre=pre)
    for version in sorted(here & built.keys()):
        if table := _released(built[version]):
            found[_minor_release(version)] = Torch(str(version), table)
    lone: dict[str, str] = {}
    for version in sorted(here | built.keys()):
        release = _minor_release(version)
        if release in found or (found and version < Version([*found][-1])):
            continue
        if version not in built or not _released(built[version]):
            lone[release] = f"torch {version} is out, without a build with CUDA for Windows"
        elif version not in here:
            lone[release] = f"torch {version} is on {builds.place}, but missing or yanked on "
            lone[release] += project.place
    wait = "The next watch checks it again."
    return found, [
        release_warning("torch-incomplete", "torch", says, wait) for says in lone.values()
    ]


def _minor_release(version: Version) -> str:
    return f"{version.major}.{version.minor}"


def _has_windows_wheel(files: Iterable[File]) -> bool:
    """Whether one of them is a wheel for Windows."""
    return any(tag.endswith("-win_amd64") for one in files for tag in one.tags)


def _windows_wheel_python(file: File) -> str:
    """The Python that a wheel for Windows is for; empty: none alone."""
    owns = (_OWN.fullmatch(tag) for tag in file.tags)
    return next((f"3.{own[2]}{own[3]}" for own in owns if own), "")


def _locked(python: str) -> bool:
    """Whether there is one, and it has the global lock."""
    return bool(python) and not free_threaded(python)


def _with_cuda(files: Iterable[File]) -> dict[str, dict[str, File]]:
    found: dict[str, dict[str, File]] = {}
    for one in files:
        local, python = _LOCAL.fullmatch(one.version.local or ""), _windows_wheel_python(one)
        if local and python:
            found.setdefault(f"{local[1]}.{local[2]}", {})[python] = one
    return found


def _released(files: Iterable[File]) -> dict[str, dict[str, File]]:
    """The builds with CUDA; none where they are for Pythons without the global lock alone."""
    table = _with_cuda(files)
    return table if any(map(_locked, Torch("", table).pythons)) else {}


def pinned_from(lock: ToolchainLock, project: str) -> Iterator[tuple[str, str]]:
    """File and sha256 (empty: not known) of what the lock has of a project of the package index.

    Without a project: of torch's wheels with CUDA, which have an index of their own.
    """
    for tool in lock.tools.values():
        for source in tool.sources:
            own = tool.name == "torch" and source.url
            if (source.pypi or "").partition("==")[0] == project if project else own:
                yield source.file, source.sha256 or ""


def tools_out(project: Project, lock: ToolchainLock, *, pre: bool = False) -> Iterator[Finding]:
    """A release for Windows that is newer than all that the lock has."""
    pins = (Version(one.version) for one in lock.tools.values() if one.name == project.name)
    known = max(pins, default=Version("0"))
    out = [
        version for version, files in project.releases(pre=pre).items() if _has_windows_wheel(files)
    ]
    if found := [version for version in out if version > known]:
        says = f"{project.name} {_newest_version_label(found)} is out; the lock ends with {known}"
        hint = "If a torch requires it, add it to toolchain.yaml, then: invoke lock"
        yield release_warning("tool-released", project.name, says, hint)


def find_missing_cudas(
    project: Project, out: Mapping[str, Torch], lock: ToolchainLock, *, pre: bool = False
) -> list[Finding]:
    """CUDA without a driver in compat.yaml, or a tool kit in the lock.

    Those that are newer than all there, or that a torch has and lie between these.
    """
    known = sorted(map(Version, lock.toolkits))
    releases = project.releases(pre=pre).items()
    there = dict.fromkeys(
        _minor_release(version) for version, files in releases if _has_windows_wheel(files)
    )
    missing: dict[str, list[str]] = {cuda: [] for cuda in there if Version(cuda) > known[-1]}
    compat = load_compat()
    last = max(map(Version, compat.toolkit_drivers))
    for release, torch in out.items():
        for cuda in torch.builds:
            if known[0] < Version(cuda) < known[-1] and Version(cuda) not in known:
                missing.setdefault(cuda, []).append(f"torch {release}")
    has = f"but the lock has toolkits of {', '.join(map(str, known))}"
    what = "Add its archives to toolchain.yaml, then: invoke lock"
    notes = [
        release_warning(
            "toolkit-missing", "CUDA", f"CUDA {cuda}: {', '.join(users) or 'out'}, {has}", what
        )
        for cuda, users in sorted(missing.items(), key=lambda one: Version(one[0]))
    ]
    for cuda in (cuda for cuda in there if Version(cuda) > last):
        says = f"CUDA {cuda} is out; the drivers in compat.yaml end with that of CUDA {last}"
        notes.append(
            release_warning("driver-missing", "CUDA", says, f"Add it from {compat.drivers.source}")
        )
    return notes


def find_torch_drift(pages: Iterable[Project], rows: Mapping[str, TorchBuild]) -> Iterator[Finding]:
    """Where a row of torch.yaml is not what the pages have of its patch releases together."""
    found: dict[tuple[str, str], set[str]] = {}
    for page in pages:
        for version, files in page.releases().items():
            found.setdefault((_minor_release(version), "CUDA"), set()).update(_with_cuda(files))
            pythons = found.setdefault((_minor_release(version), "Python"), set())
            pythons |= {*filter(None, map(_windows_wheel_python, files))}
    for release, row in rows.items():
        for axis, known in (("CUDA", {*row.cuda}), ("Python", {*row.python})):
            there = found.get((release, axis)) or known
            for one in sorted(there ^ known, key=python_order):
                how = "is out" if one in there else "is no longer there"
                says = f"torch {release} for {axis} {one} {how}, unlike its row in torch.yaml"
                yield release_warning(
                    "torch-table", "torch", says, "Correct the row, and set its date."
                )


def find_withdrawn_pythons(listing: bytes, lock: ToolchainLock) -> Iterator[Finding]:
    """Pythons of the lock that python-build-standalone's newest release no longer has."""
    releases: dict[str, set[str]] = {}
    for date, python, free in _FILE.findall(listing.decode("utf-8", "replace")):
        releases.setdefault(date, set()).add(python + "t" * bool(free))
    if not (whole := [date for date, has in releases.items() if len(has) > 1]):
        raise LockError("the list of python-build-standalone's releases is empty")
    for tool in lock.tools.values():
        if tool.name == "python" and tool.python not in releases[max(whole)]:
            says = f"python-build-standalone {max(whole)} no longer has Python {tool.python}"
            hint = "Keep the pinned one, or remove it from toolchain.yaml."
            yield release_warning("python-withdrawn", "Python", says, hint)


def places_of(versions: Mapping[str, Recipe]) -> tuple[str, str]:
    """The project of the package index, and the repository, that a recipe's versions come from."""
    sources = [recipe.source for recipe in versions.values()]
    files = (one.pypi or "" for one in sources if isinstance(one, FileSource))
    repositories = (one.git for one in sources if isinstance(one, GitSource))
    return next(filter(None, files), "").partition("==")[0], next(repositories, "")


def find_upstream_releases(
    name: str,
    versions: Mapping[str, Recipe],
    project: Project | None,
    tags: Tags | None,
    *,
    pre: bool = False,
) -> Iterator[Finding]:
    """What a recipe's upstream has released that the recipe does not know.

    Raises :class:`LockError` where a page and the recipe disagree on a file.
    """
    known = {one for one in map(parse_version, versions) if one is not None}
    newest = max(known, default=None)
    add = f"Add it to 'versions' in {shown_file(name)}"
    if project is not None:
        sources = [recipe.source for recipe in versions.values()]
        files = [one for one in sources if isinstance(one, FileSource) and one.pypi]
        project.require((one.file, one.sha256) for one in files)
        out = project.releases(pre=pre)
        if newer := [version for version in out if newest is None or version > newest]:
            sdists = [one for one in out[newer[-1]] if not one.tags]
            ours = [one for one in project.files if one.version == newest and not one.tags]
            how = (
                _build_requires_note(ours, sdists) if sdists else ", without a source distribution"
            )
            says = (
                f"{name} {_newest_version_label(newer)} is out{how}; the recipe ends with {newest}"
            )
            hint = f"{add}, with sha256 {sdists[0].sha256}" if sdists else ""
            yield release_warning("upstream-released", name, says, hint)
    if tags is None:
        return
    tagged = [one for one in sorted(tags.releases) if pre or not one.is_prerelease]
    if newer := [version for version in tagged if newest is None or version > newest]:
        label = _newest_version_label(newer)
        says = f"{name} {label} is tagged; the recipe ends with {newest or 'no release'}"
        hint = f"{add}: commit {tags.releases[newer[-1]]}"
        yield release_warning("upstream-tagged", name, says, hint)
    for called, recipe in versions.items():
        if not isinstance(recipe.source, GitSource):
            continue
        version = parse_version(called)
        tag = tags.releases.get(version) if version else None
        if version is None and recipe.source.commit != tags.head:
            says = f"{name} {called}: the main branch is at {tags.head[:12]}"
            says += f", the recipe at {recipe.source.commit[:12]}"
            yield release_warning("branch-moved", name, says)
        elif tag is not None and tag != recipe.source.commit:
            says = f"{name} {called}: its tag is at {tag[:12]}, the recipe at "
            says += recipe.source.commit[:12]
            yield release_warning("tag-moved", name, says, "Check whether the tag was moved.")


def _build_requires_note(old: Iterable[File], new: Iterable[File]) -> str:
    """Whether the first of the new source distributions is built as the first of the old ones."""
    urls = [one.url for files in (old, new) for one in [*files][:1]]
    try:
        first, *rest = read_members(urls, _BUILT_BY).values()
    except LockError:
        return ", but its build requirements could not be read"
    changed = sorted(n for two in rest for n in {*first, *two} if first.get(n) != two.get(n))
    return f", with another {', '.join(changed)}" if changed else ""


def _newest_version_label(newer: Sequence[Version]) -> str:
    more = len(newer) - 1
    return f"{newer[-1]} (and {more} before it)" if more else str(newer[-1])


def is_source_yanked(recipe: Recipe, project: Project | None) -> bool:
    """Whether its upstream has taken back what the recipe is built from."""
    source = recipe.source
    if project is None or not isinstance(source, FileSource):
        return False
    return any(one.yanked for one in project.files if one.name == source.file)


def choose_torch_releases(
    recipe: Recipe, out: Mapping[str, Torch], asked: Iterable[str], newest: int
) -> tuple[list[str], list[Finding]]:
    """The minor releases of torch to look at, newest first, and what is left out and why.

    Raises :class:`ConfigError` for a release that was asked for and is not out.
    """
    newest_first = sorted(out, key=Version, reverse=True)
    if recipe.torch is None:
        return [], []
    if recipe.tested_with:  # one wheel for all
        return [one for one in newest_first if release_in_range(one, recipe.supports.torch)], []
    named = list(dict.fromkeys(map(minor_release, asked)))
    if missing := [one for one in named if one not in out]:
        raise ConfigError(
            f"--torch {safe_line(missing[0], 40)}: no such release with CUDA for Windows",
            hint=f"The newest: {', '.join([*out][-newest:]) or 'none'}.",
        )
    notes: list[Finding] = []
    fitting = [one for one in newest_first if release_in_range(one, recipe.supports.torch)]
    if named:
        wanted = [one for one in newest_first if one in named]
    else:
        wanted = fitting[:newest]
        newer = [one for one in out if wanted and Version(one) > Version(wanted[0])]
        if newer or (out and not wanted):
            says = f"supports torch {recipe.supports.torch}, and {', '.join(newer or out)} is out"
            says = f"{recipe.name} {recipe.version} {says}"
            hint = f"See {shown_file(recipe.name)}."
            notes.append(release_warning("torch-unsupported", recipe.name, says, hint))
        if older := fitting[newest:]:
            says = f"{recipe.name}: older releases of torch are skipped: "
            says += ", ".join(reversed(older))
            hint = f"To include them: --torch {','.join(reversed(older))}"
            notes.append(release_warning("torch-left-out", recipe.name, says, hint))
    return wanted, notes
