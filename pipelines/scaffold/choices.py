"""The few questions for the author, with defaults from the repository."""

from __future__ import annotations

import glob
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from pipelines.core.architectures import archs as arch_lists
from pipelines.core.architectures import gpus
from pipelines.core.errors import ConfigError, PipelineError
from pipelines.core.toolsets import NEEDED, Api
from pipelines.core.units import join_first
from pipelines.core.versions import as_release
from pipelines.scaffold.knowledge import knowledge_note, load_knowledge
from pipelines.scaffold.project import LIBRARIES, FileFacts, Project
from pipelines.toolchain.lock import ToolchainLock
from pipelines.toolchain.variants import distribution_name
from pipelines.wheels.packaging import on_windows

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}")
_RELEASE = re.compile(r"\d+\.\d+")
_LIMITED = re.compile(r"cp3(\d{1,2})")
#: Not ARCHFLAGS, which is for macOS, nor SEARCH_PATH; nor those of Windows and of AMD.
_ARCH_VARIABLE = re.compile(
    r"(?!VSCMD_|PROCESSOR_|TORCH_CUDA_ARCH_LIST$)(?!.*(ROCM|HIP|OSX)).*"
    r"(^|_|CUDA|GPU|SM)ARCH(S|LIST|ITECTURES?)?(_\w*|$)"
)
_PYTHON = re.compile(r"3\.\d{1,2}")
#: Current GPUs from RTX 20 on, with PTX of the newest for future ones.
ARCHS = "75;80;86;89;90;120+PTX"
#: The default versions, which the sandbox has.
CUDA, TORCH = "13.0", "2.10"


@dataclass(frozen=True)
class Question:
    """One thing to decide."""

    key: str
    """The name of its flag."""
    prompt: str
    default: str
    check: Callable[[str], str]
    """Normalises the value; raises :class:`ConfigError` if it is invalid."""


@dataclass(frozen=True)
class Choices:
    """The answers, and what follows from them and the repository."""

    name: str
    python: str
    """The default Python to build for."""
    pythons: tuple[str, ...]
    cuda: str
    archs: str
    torch: str = ""
    api: Api = "plain"
    workflow: bool = True
    build_requires: tuple[str, ...] = ()
    test_requires: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    wheel_tag: str = ""
    """For a wheel for more than one Python."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Key -> value of questions answered by their defaults."""
    doubts: tuple[str, ...] = ()


def arch_variable(facts: FileFacts) -> str:
    """The variable by which the build is given its GPUs; empty for torch's, or none."""
    own = [name for name in facts.variables if _ARCH_VARIABLE.fullmatch(name)]
    return next((name for name in own if not facts.torch or "CUDA" in name or "GPU" in name), "")


def relevant_questions(project: Project, lock: ToolchainLock) -> list[Question]:
    """The relevant questions for this repository."""
    pythons = _supported_pythons(project, lock)
    sandbox = [t.python for t in lock.tools.values() if t.name == "cpython-headers"]
    first = next((p for p in pythons if p in sandbox), pythons[0])
    # What reads a list of its own may know no PTX.
    archs = ARCHS.partition("+")[0] if arch_variable(project.facts) else ARCHS
    result = [
        Question("name", "name of the recipe", recipe_name(project.facts.name), _check_name),
        Question(
            "python",
            "default Python to build for",
            first,
            lambda t: _require_supported_python(t, pythons),
        ),
        Question(
            "cuda", "CUDA version", CUDA, lambda text: _parse_release_option(text, "cuda", CUDA)
        ),
        Question("archs", "GPUs, such as 75;86;120+PTX or RTX 40xx", archs, _check_archs),
    ]
    if compiles_against_torch(project):
        result.insert(
            3,
            Question(
                "torch", "torch version", TORCH, lambda t: _parse_release_option(t, "torch", TORCH)
            ),
        )
    return result


def compiles_against_torch(project: Project) -> bool:
    """Whether it is compiled against torch."""
    return project.facts.torch or bool({"torch", "torch-stable"} & project.uses)


def make_choices(
    project: Project,
    lock: ToolchainLock,
    answers: Mapping[str, str],
    *,
    workflow: bool,
    exclude: tuple[str, ...],
    defaults: Mapping[str, str],
) -> Choices:
    """All that the files depend on; ``answers``: checked ones to :func:`relevant_questions`."""
    wheels: dict[str, set[str]] = {}
    for tool in lock.tools.values():
        if tool.file.endswith(".whl"):
            wheels.setdefault(distribution_name(tool.file), set()).add(tool.version)
    if torch := answers.get("torch"):
        named = {version for version in wheels.get("torch", ()) if version.startswith(f"{torch}.")}
        wheels["torch"] = named or {torch}
    doubts = list(project.facts.doubts)
    build = _locked_requirement_names(
        _build_requires(project), wheels, doubts, "the build requires"
    )
    imported = _locked_requirement_names(
        _imported(project, wheels), wheels, doubts, f"{project.build} imports"
    )
    test = _locked_requirement_names(project.facts.requires, wheels, doubts, "it requires")
    api, why = api_of(project)
    if project.absent:
        doubts.append(
            knowledge_note("missing-sources", build=project.build, names=join_first(project.absent))
        )
    for name, gone in load_knowledge().gone.items():
        if name in project.facts.imports:
            said = {"of": gone.of, "hint": gone.hint}
            doubts.append(knowledge_note("gone", build=project.build, name=name, **said))
    if project.facts.archs and not (arch_variable(project.facts) or project.facts.arch_define):
        doubts.append(
            knowledge_note("own-gpus", build=project.build, names=join_first(project.facts.archs))
        )
    if {"setuptools-scm", "hatch-vcs"} & {*map(_distribution, project.facts.build_requires)}:
        doubts.append(knowledge_note("version-of-git"))
    if not (project.facts.cuda or project.facts.extensions):
        doubts.append(knowledge_note("not-compiled", build=project.build, units=len(project.units)))
    if project.idle:
        doubts.append(knowledge_note("idle", names=join_first(project.idle)))
    if project.facts.py_api == "py2.py3":
        doubts.append(knowledge_note("python-2"))
    if workflow and project.inside:
        doubts.append(knowledge_note("no-workflow", inside=project.inside))
    # the chosen CUDA must support them
    arch_lists.require_supported_archs(gpus.parse_gpu_archs(answers["archs"]), answers["cuda"])
    return Choices(
        name=answers["name"],
        python=answers["python"],
        pythons=_supported_pythons(project, lock),
        cuda=answers["cuda"],
        archs=answers["archs"],
        torch=answers.get("torch", ""),
        api=api,
        workflow=workflow and not project.inside,
        build_requires=tuple(dict.fromkeys((*build, *imported))),
        test_requires=tuple(name for name in test if name != "torch"),
        wheel_tag=_wheel_tag(project),
        exclude=(*exclude, *map(glob.escape, project.submodules)),
        defaults=dict(defaults),
        doubts=(*doubts, *why),
    )


def api_of(project: Project) -> tuple[Api, tuple[str, ...]]:
    """The API it needs, by the headers of its sources, and notes on that."""
    uses = project.uses
    if "torch" in uses or (project.facts.torch and "torch-stable" not in uses):
        return "torch", (f"api: torch, as its sources include torch's headers: {NEEDED['torch']}",)
    if "torch-stable" in uses:
        return "stable", ()
    library = {"stl", "stl-in-cu", *LIBRARIES} & (uses | project.facts.bindings)
    return ("cxx" if library else "plain"), ()


def _wheel_tag(project: Project) -> str:
    """The recipe's ``wheel_tag``; empty if there is a wheel for each Python, or unknown."""
    py_api = project.facts.py_api
    if py_api in ("py3", "py2.py3"):
        return "py3-none"
    return f"{py_api}-abi3" if _LIMITED.fullmatch(py_api) else ""


def recipe_name(name: str) -> str:
    """A recipe name for a package's name; empty if it has none."""
    made = canonicalize_name(name).strip("-")
    return made[:41] if _NAME.fullmatch(made[:41]) else ""


def _supported_pythons(project: Project, lock: ToolchainLock) -> tuple[str, ...]:
    """Versions that the lock has and the package allows."""
    known = sorted(
        {
            t.python
            for t in lock.tools.values()
            if t.name == "python" and t.python and _PYTHON.fullmatch(t.python)
        },
        key=lambda text: int(text.partition(".")[2]),
    )
    requires = project.facts.requires_python
    try:
        allowed = SpecifierSet(requires)
    except InvalidSpecifier:
        raise ConfigError(
            f"requires-python: '{requires[:80]}' is not a version range",
            hint="Write it like >=3.10. Nothing was written.",
        ) from None
    first = int(match[1]) if (match := _LIMITED.fullmatch(project.facts.py_api)) else 0
    fits = tuple(
        python
        for python in known
        if allowed.contains(f"{python}.99") and int(python.partition(".")[2]) >= first
    )
    if not fits:
        constraints = [f"requires-python: {requires[:80]}"] if requires else []
        constraints += [f"limited API: {project.facts.py_api}"] if first else []
        raise ConfigError(
            f"{', '.join(constraints)}: no available Python matches",
            hint=f"Available: {', '.join(known)}. Nothing was written.",
        )
    return fits


def _build_requires(project: Project) -> tuple[str, ...]:
    """Build requirements of pyproject.toml, and those that are implied."""
    facts = project.facts
    requirements = list(facts.build_requires or ("setuptools", "wheel"))
    if compiles_against_torch(project) and not any(
        _distribution(requirement) == "torch" for requirement in requirements
    ):
        requirements.append("torch")
    if facts.backend.startswith("scikit_build_core"):
        requirements += ["cmake", "ninja"]
    if facts.torch:
        requirements += ["setuptools", "ninja"]
    return tuple(requirements)


def _imported(project: Project, wheels: Iterable[str]) -> tuple[str, ...]:
    """What ``setup.py`` imports beyond Python, setuptools, its own modules and ``requires``.

    A directory without ``__init__.py`` is only imported if no wheel has that name.
    """
    modules = (name.removesuffix("/__init__.py").removesuffix(".py") for name in project.files)
    given = {"distutils", *sys.stdlib_module_names, *(path.rpartition("/")[2] for path in modules)}
    given |= {name.partition(".")[0] for name in load_knowledge().gone}
    given |= {name.partition("/")[0] for name in project.files if "/" in name} - {*wheels}
    required = {_distribution(requirement) for requirement in project.facts.build_requires}
    names = dict.fromkeys(name.partition(".")[0] for name in project.facts.imports)
    return tuple(n for n in names if n not in given and canonicalize_name(n) not in required)


def _locked_requirement_names(
    requirements: tuple[str, ...], wheels: Mapping[str, set[str]], doubts: list[str], what: str
) -> tuple[str, ...]:
    """The names that are in the lock; others, and those of other versions, become doubts."""
    names: dict[str, None] = {}
    for requirement in requirements:
        name = _distribution(requirement)
        if not name:
            continue
        if name in wheels:
            names[name] = None
            allowed, has = Requirement(requirement).specifier, wheels[name]
            if not any(allowed.contains(version, prereleases=True) for version in has):
                said = {"requirement": requirement, "versions": join_first(sorted(has))}
                doubts.append(knowledge_note("other-version", what=what, **said))
        else:
            doubts.append(knowledge_note("not-in-lock", what=what, requirement=requirement))
    return tuple(names)


def _distribution(requirement: str) -> str:
    """Its name, if its marker applies to Windows."""
    try:
        read = Requirement(requirement)
    except InvalidRequirement:
        return ""
    return canonicalize_name(read.name) if on_windows(read) else ""


def _check_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ConfigError(
            f"--name '{text[:60]}': expected lower-case letters, digits, - and _",
            hint="For example --name my-kernels.",
        )
    return text


def _require_supported_python(text: str, known: tuple[str, ...]) -> str:
    text = as_release("python", text)
    if text not in known:
        raise ConfigError(
            f"--python '{text[:40]}': the package is for {', '.join(known)}",
            hint=f"For example --python {known[0]}.",
        )
    return text


def _parse_release_option(text: str, key: str, such: str) -> str:
    text = as_release(key, text)
    if not _RELEASE.fullmatch(text):
        raise ConfigError(
            f"--{key} '{text[:40]}': expected MAJOR.MINOR", hint=f"For example --{key} {such}."
        )
    return text


def _check_archs(text: str) -> str:
    try:
        gpus.parse_gpu_archs(text)
    except PipelineError as error:
        raise ConfigError(f"--archs: {error.message}", hint=error.hint) from None
    return text
