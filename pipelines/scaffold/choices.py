"""What is asked of the author: few things, each with a default that the repository gives."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from pipelines.core.architectures import archs as arch_lists
from pipelines.core.architectures import gpus
from pipelines.core.errors import ConfigError, PipelineError
from pipelines.core.units import few
from pipelines.record.toolsets import NEEDED, Api
from pipelines.scaffold.found import Project
from pipelines.toolchain.lock import ToolchainLock
from pipelines.toolchain.variants import wheel_name

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}")
_RELEASE = re.compile(r"\d+\.\d+")
_LIMITED = re.compile(r"cp3(\d{1,2})")
_PYTHON = re.compile(r"3\.\d{1,2}")
#: GPUs of today, from RTX 20 on; the newest with PTX for those to come.
ARCHS = "75;80;86;89;90;120+PTX"
#: What a wheel is built with where nobody says otherwise: what the sandbox has.
CUDA, TORCH = "13.0", "2.10"


@dataclass(frozen=True)
class Question:
    """One thing to decide."""

    key: str
    """As its flag is called."""
    asks: str
    default: str
    check: Callable[[str], str]
    """The value as it is kept; :class:`ConfigError` says what is wrong with it."""


@dataclass(frozen=True)
class Choices:
    """What was decided, and what follows from it and the repository."""

    name: str
    python: str
    """The one that is built for when none is named."""
    pythons: tuple[str, ...]
    cuda: str
    archs: str
    torch: str = ""
    api: Api = "plain"
    workflow: bool = True
    tasks: bool = False
    build_requires: tuple[str, ...] = ()
    test_requires: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    wheel_tag: str = ""
    """Of a wheel that is for more than one Python."""
    taken: Mapping[str, str] = field(default_factory=dict)
    """Key -> value of the questions that nobody was asked."""
    doubts: tuple[str, ...] = ()


def questions(project: Project, lock: ToolchainLock) -> list[Question]:
    """Those that matter for this repository, with their defaults."""
    pythons = _pythons(project, lock)
    sandbox = [t.python for t in lock.tools.values() if t.name == "cpython-headers"]
    first = next((p for p in pythons if p in sandbox), pythons[0])
    found = [
        Question("name", "name of the recipe", recipe_name(project.told.name), _check_name),
        Question(
            "python", "Python to build for when none is named", first, lambda t: _of(t, pythons)
        ),
        Question("cuda", "release of CUDA", CUDA, lambda text: _release(text, "cuda", CUDA)),
        Question("archs", "GPUs, such as 75;86;120+PTX or RTX 40xx", ARCHS, _check_archs),
    ]
    if uses_torch(project):
        found.insert(
            3, Question("torch", "release of torch", TORCH, lambda t: _release(t, "torch", TORCH))
        )
    return found


def uses_torch(project: Project) -> bool:
    """Whether it is compiled against torch."""
    return project.told.torch or bool({"torch", "torch-stable"} & project.uses)


def decide(
    project: Project,
    lock: ToolchainLock,
    answers: Mapping[str, str],
    *,
    workflow: bool,
    tasks: bool,
    exclude: tuple[str, ...],
    taken: Mapping[str, str],
) -> Choices:
    """All that is written goes by this; ``answers`` are of :func:`questions`, checked."""
    wheels = {wheel_name(t.file) for t in lock.tools.values() if t.file.endswith(".whl")}
    wheels |= {"torch"}
    doubts = list(project.told.doubts)
    build = _known(_build_requires(project), wheels, doubts, "the build requires")
    test = _known(project.told.requires, wheels, doubts, "it requires")
    api, why = api_of(project)
    if project.absent:
        doubts.append(
            f"{project.build} names sources that are not here: {few(project.absent)}: it cannot be "
            "built of this; the repository may have what the source distribution lacks"
        )
    if project.idle:
        doubts.append(f"--exclude leaves nothing out where it says {few(project.idle)}")
    if project.told.py_api == "py2.py3":
        doubts.append(
            "wheel.py-api is py2.py3, and the audit refuses a wheel of Python 2: make it py3"
        )
    if workflow and project.inside:
        doubts.append(
            f"no workflow: GitHub reads those at the top of a repository alone, and this is "
            f"{project.inside} of one: docs/hosts/github-actions.md"
        )
    arch = arch_lists.check  # the CUDA that was chosen must know them
    arch(gpus.read(answers["archs"]), answers["cuda"])
    return Choices(
        name=answers["name"],
        python=answers["python"],
        pythons=_pythons(project, lock),
        cuda=answers["cuda"],
        archs=answers["archs"],
        torch=answers.get("torch", ""),
        api=api,
        workflow=workflow and not project.inside,
        tasks=tasks,
        build_requires=build,
        test_requires=tuple(name for name in test if name != "torch"),
        wheel_tag=_wheel_tag(project),
        exclude=(*exclude, *map(glob.escape, project.submodules)),
        taken=dict(taken),
        doubts=(*doubts, *why),
    )


def api_of(project: Project) -> tuple[Api, tuple[str, ...]]:
    """What of C++ it needs, by the headers of its sources, and what to say of that."""
    uses = project.uses
    if "torch" in uses or (project.told.torch and "torch-stable" not in uses):
        return "torch", (f"api: torch: its sources include torch's headers: {NEEDED['torch']}",)
    if "torch-stable" in uses:
        return "stable", ()
    library = {"stl", "stl-in-cu", "pybind11", "nanobind"} & uses
    return ("cxx" if library or project.told.bindings & {"pybind11", "nanobind"} else "plain"), ()


def _wheel_tag(project: Project) -> str:
    """As recipes have it; empty where there is a wheel for each Python, or nobody can say."""
    told = project.told.py_api
    if told in ("py3", "py2.py3"):
        return "py3-none"
    return f"{told}-abi3" if _LIMITED.fullmatch(told) else ""


def recipe_name(name: str) -> str:
    """A package's name as recipes are called; empty where it has none."""
    made = re.sub(r"[-_.]+", "-", name).lower().strip("-")
    return made[:41] if _NAME.fullmatch(made[:41]) else ""


def _pythons(project: Project, lock: ToolchainLock) -> tuple[str, ...]:
    """Releases that the lock has and the package allows."""
    known = sorted(
        {
            t.python
            for t in lock.tools.values()
            if t.name == "python" and t.python and _PYTHON.fullmatch(t.python)
        },
        key=lambda text: int(text.partition(".")[2]),
    )
    said = project.told.requires_python
    try:
        allowed = SpecifierSet(said)
    except InvalidSpecifier:
        raise ConfigError(
            f"requires-python: '{said[:80]}' is no range of versions",
            hint="Write it as in >=3.10. Nothing was written.",
        ) from None
    first = int(found[1]) if (found := _LIMITED.fullmatch(project.told.py_api)) else 0
    fits = tuple(
        one
        for one in known
        if allowed.contains(f"{one}.99") and int(one.partition(".")[2]) >= first
    )
    if not fits:
        asked = [f"requires-python: {said[:80]}"] if said else []
        asked += [f"limited API: {project.told.py_api}"] if first else []
        raise ConfigError(
            f"{', '.join(asked)}: none of the Pythons that can be had fits",
            hint=f"There are: {', '.join(known)}. Nothing was written.",
        )
    return fits


def _build_requires(project: Project) -> tuple[str, ...]:
    """What pyproject.toml names, and what its build starts besides."""
    told = project.told
    wanted = list(told.build_requires or ("setuptools", "wheel"))
    if uses_torch(project) and not any(_distribution(one) == "torch" for one in wanted):
        wanted.append("torch")
    if told.backend.startswith("scikit_build_core"):
        wanted += ["cmake", "ninja"]
    if told.torch:
        wanted += ["setuptools", "ninja"]
    return tuple(wanted)


def _known(
    wanted: tuple[str, ...], wheels: set[str], doubts: list[str], what: str
) -> tuple[str, ...]:
    """Names of the lock; of what is not in it, it is said."""
    found: dict[str, None] = {}
    for one in wanted:
        name = _distribution(one)
        if not name:
            continue
        if name in wheels:
            found[name] = None
        else:
            doubts.append(
                f"{what} {one}, of which the lock has no wheel: name it in .wcw/toolchain.yaml and "
                "type wcw lock (docs/init.md)"
            )
    return tuple(found)


def _distribution(requirement: str) -> str:
    """Its name, if it concerns Windows at all."""
    try:
        read = Requirement(requirement)
    except InvalidRequirement:
        return ""
    windows = {"sys_platform": "win32", "os_name": "nt", "platform_system": "Windows"}
    if read.marker is not None and not read.marker.evaluate({**windows, "extra": ""}):
        return ""
    return re.sub(r"[-_.]+", "-", read.name).lower()


def _check_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ConfigError(
            f"--name '{text[:60]}': expected small letters, digits, - and _",
            hint="Such as --name my-kernels.",
        )
    return text


def _of(text: str, known: tuple[str, ...]) -> str:
    if not _PYTHON.fullmatch(text) or text not in known:
        raise ConfigError(
            f"--python '{text[:40]}': the package is for {', '.join(known)}",
            hint=f"Such as --python {known[0]}.",
        )
    return text


def _release(text: str, key: str, such: str) -> str:
    if not _RELEASE.fullmatch(text):
        raise ConfigError(
            f"--{key} '{text[:40]}': expected MAJOR.MINOR", hint=f"Such as --{key} {such}."
        )
    return text


def _check_archs(text: str) -> str:
    try:
        gpus.read(text)
    except PipelineError as error:
        raise ConfigError(f"--archs: {error.message}", hint=error.hint) from None
    return text
