"""Detects how a repository is built, what nvcc compiles and what is missing, from its files."""

from __future__ import annotations

import ast
import glob
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from pipelines.core.errors import ConfigError
from pipelines.core.units import join_first
from pipelines.recipe.worktree import BY_GIT, list_project_files, top_of
from pipelines.scaffold.cmake import read_cmake
from pipelines.scaffold.knowledge import load_knowledge
from pipelines.scaffold.project import FileFacts, Project, combine_facts
from pipelines.scaffold.pyproject import parse_build_backend, read_pyproject
from pipelines.scaffold.setuppy import read_setups

_DEVICE = (".cu",)
_SOURCES = (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".c", ".h", ".hpp", ".inl")
_CPLUSPLUS = (".cu", ".cpp", ".cc", ".cxx")
#: Directories that are not part of the package.
_NOT_PACKAGED = re.compile(
    r"(^|/)(tests?|benchmarks?|examples?|docs?|third_?party|extern(al)?|deps)/"
)
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]{1,200})[>"]', re.MULTILINE)
_MOST = 1 << 20  # bytes of a source that are read
_MANY = 4000  # sources
_LISTS = re.compile(r"""["']((?![\w./-]*(?:dev|test|doc))[\w./-]*requirements[\w./-]*\.txt)["']""")
_NESTED = 4  # parts of the path of a package's __init__.py
_EXAMPLE = re.compile(r"^\s*>>> .*\n(?:\s*\.\.\. .*\n)*\s*(?!>>>|\.\.\.)\S", re.MULTILINE)


def detect_project(root: Path, exclude: Iterable[str] = ()) -> Project:
    """Read the repository at ``root`` without ``exclude``; nothing of it is run.

    Raises :class:`ConfigError` if it is not a Python project or a file cannot be read.
    """
    if not root.is_dir():
        raise ConfigError(f"no such directory: {root}", hint="Name the repository's directory.")
    try:
        return _detected(root, exclude)
    except OSError as error:
        raise ConfigError(
            f"{error.filename or root} cannot be read: {error.strerror}",
            hint="Make it readable, or skip it with --exclude. Nothing was written.",
        ) from None


def _detected(root: Path, exclude: Iterable[str]) -> Project:
    parts, build = _read_build_files(root)  # before listing all files, which may be a whole disk
    listed = list_project_files(root, exclude=exclude)
    facts = combine_facts(*parts)
    if above := [name for name in facts.sources if posixpath.normpath(name).startswith("../")]:
        raise ConfigError(
            f"{build} names sources above its directory, which a build does not get: "
            f"{join_first(above)}",
            hint="Copy them below it; or put a setup.py that builds the package at the top of the "
            "repository, and run it there. Nothing was written.",
        )
    files = tuple(listed.files)
    units = tuple(
        dict.fromkeys(
            name
            for name in files
            if (name.endswith(_DEVICE) and not _NOT_PACKAGED.search(name))
            or name in facts.cuda_sources
        )
    )
    places = _packages(files, facts)
    public = {package: public_names(root / name) for package, name in places.items()}
    sources = [*_iter_python_modules(root, files, places)]
    return Project(
        root=root,
        facts=facts,
        files=files,
        by=listed.by,
        units=units,
        absent=tuple(name for name in facts.sources if not _has_source_file(root, name)),
        submodules=tuple(dict.fromkeys((*listed.empty, *_unchecked(root)))),
        idle=listed.idle,
        build=build,
        uses=frozenset(filter(None, _uses(root, files))),
        public=public,
        examples=tuple(name for name, text in sources if _EXAMPLE.search(text)),
        operators=any("ops.load_library(" in text for _, text in sources),
        inside=_path_within_checkout(root, listed.by),
    )


def _read_build_files(root: Path) -> tuple[list[FileFacts], str]:
    """The facts of each relevant file, and the file that defines the build."""
    parts, build = [], ""
    toml, setup, cmake = (root / n for n in ("pyproject.toml", "setup.py", "CMakeLists.txt"))
    backend = "setuptools"
    if toml.is_file():
        parts.append(read_pyproject(toml))
        backend = parse_build_backend(parts[0].backend)
    if setup.is_file() and backend == "setuptools":
        read = read_setups(setup)
        computed = any(key == "requires" for part in read for key, _ in part.later)
        parts += [*read, *(_read_requirements_files(root) if computed else ())]
        build = setup.name
    elif setup.is_file():
        parts.append(
            FileFacts(doubts=("setup.py is ignored: pyproject.toml names another back end",))
        )
    if cmake.is_file() and (backend == "scikit-build-core" or build):
        parts.append(read_cmake(cmake, root))
        build = cmake.name if backend == "scikit-build-core" else build
    if not build and toml.is_file():
        build = toml.name
    if not parts:
        actual = "only CMakeLists.txt" if cmake.is_file() else "neither"
        below = {
            path.parent.relative_to(root).as_posix()
            for depth in ("*", "*/*")
            for name in (toml.name, setup.name)
            for path in root.glob(f"{depth}/{name}")
        }
        found_below = f": {join_first(sorted(below))}" if below else ""
        raise ConfigError(
            f"{root} is not a Python project: expected pyproject.toml or setup.py, found {actual}",
            hint=f"Run it in the project's directory{found_below}. Nothing was written.",
        )
    return parts, build


def _read_requirements_files(root: Path) -> Iterator[FileFacts]:
    """Those in text files that ``setup.py`` names."""
    for name in dict.fromkeys(_LISTS.findall((root / "setup.py").read_text("utf-8", "replace"))):
        if (root / name).is_file() and ".." not in name:
            rows = (root / name).read_text("utf-8", "replace")[:_MOST].splitlines()
            kept = [row.partition(" #")[0].strip() for row in rows]
            yield FileFacts(requires=tuple(row for row in kept if row[:1].isalnum()))
        else:
            yield FileFacts(doubts=(f"setup.py names {name}, which is not there",))


def _has_source_file(root: Path, name: str) -> bool:
    """Whether a source exists, or one that it is generated from, such as a .pyx."""
    path = root / name
    try:
        return path.is_file() or any(path.parent.glob(f"{glob.escape(path.stem)}.*"))
    except OSError:  # not a valid file name
        return False


def _path_within_checkout(root: Path, by: str) -> str:
    """Its path within a larger git checkout; empty if it is the whole checkout."""
    top = top_of(root) if by == BY_GIT else None
    parts = () if top is None else root.resolve().relative_to(top).parts
    return "/".join(parts)


def _unchecked(root: Path) -> Iterable[str]:
    """Submodules in ``.gitmodules`` whose directory is empty or missing, as in an sdist."""
    file = root / ".gitmodules"
    if not file.is_file():
        return
    for match in re.finditer(r"^\s*path\s*=\s*(.+?)\s*$", file.read_text("utf-8", "replace"), re.M):
        place = root / match[1]
        if not place.is_dir() or not any(place.iterdir()):
            yield match[1]


def _uses(root: Path, files: Iterable[str]) -> Iterable[str]:
    """Included headers that decide which toolset can compile the sources."""
    sources = [name for name in files if name.endswith(_SOURCES) and not _NOT_PACKAGED.search(name)]
    for name in sources[:_MANY]:
        with (root / name).open("rb") as stream:
            text = stream.read(_MOST)
        for raw in _INCLUDE.findall(text):
            header = raw.decode("utf-8", "replace")
            yield next(
                (
                    what
                    for pattern, what in load_knowledge().headers.items()
                    if re.match(pattern, header)
                ),
                "",
            )
            if header in load_knowledge().stl and name.endswith(
                (*_CPLUSPLUS, ".cuh", ".hpp", ".h")
            ):
                yield "stl-in-cu" if name.endswith((".cu", ".cuh")) else "stl"


def _packages(files: tuple[str, ...], facts: FileFacts) -> dict[str, str]:
    """Top-level packages with their ``__init__.py``."""
    result: dict[str, str] = {}
    every = frozenset(files)
    expected = {*facts.packages} | {
        name.partition(".")[0] for name in facts.extensions if "." in name
    }
    for name in files:
        path = PurePosixPath(name)
        if path.name != "__init__.py" or _NOT_PACKAGED.search(name) or len(path.parts) > _NESTED:
            continue
        above = path.parts[:-1]
        if not above or any(
            "/".join(above[:n]) + "/__init__.py" in every for n in range(1, len(above))
        ):
            continue
        named = {path.strip("./"): package for package, path in facts.package_dirs if package}
        result.setdefault(named.get("/".join(above), above[-1]), name)
    own = facts.name.replace("-", "_").replace(".", "_").lower()
    chosen = [p for p in result if p in expected] or [p for p in result if p.lower() == own]
    outermost = sorted(result, key=lambda package: result[package].count("/"))[:1]
    return {package: result[package] for package in chosen or outermost}


def public_names(path: Path) -> tuple[str, ...]:
    """Public names of a package's ``__init__.py``: ``__all__``, or what it defines and imports."""
    try:
        body = ast.parse(path.read_text("utf-8", "replace")).body
    except (SyntaxError, ValueError, RecursionError):
        return ()
    listed: list[str] = []
    names: list[str] = []
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            target = node.targets[0].id
            names.append(target)
            if target == "__all__" and isinstance(node.value, ast.List | ast.Tuple):
                texts = [e.value for e in node.value.elts if isinstance(e, ast.Constant)]
                listed = [text for text in texts if isinstance(text, str)]
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.ImportFrom) and node.level:
            names += [alias.asname or alias.name for alias in node.names if alias.name != "*"]
    public = listed or [name for name in names if not name.startswith("_")]
    return tuple(dict.fromkeys(name for name in public if name.isidentifier()))[:200]


def _iter_python_modules(
    root: Path, files: tuple[str, ...], packages: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Each module of these packages: dotted name and text."""
    for package, init in packages.items():
        folder = init.removesuffix("__init__.py")
        for name in files:
            if not name.endswith(".py") or _NOT_PACKAGED.search(name):
                continue
            if name.startswith(folder):
                inner = f"{package}/{name.removeprefix(folder)}".removesuffix(".py").split("/")
                dotted = ".".join(inner[:-1] if inner[-1] == "__init__" else inner)
                yield dotted, (root / name).read_text("utf-8", "replace")[:_MOST]
