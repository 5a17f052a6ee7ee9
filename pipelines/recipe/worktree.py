"""The files of a directory here that are its project's: what git lists, or what is left by rules.

In a checkout: what is tracked, and what is neither tracked nor ignored (``git ls-files -co
--exclude-standard``), submodules included. Elsewhere: everything. Of what git does not track,
what tools make of a project is left out: virtual environments, ``build`` and ``dist``, caches.
"""

from __future__ import annotations

import fnmatch
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

from pipelines.core import plugins
from pipelines.core.checkout import Checkout
from pipelines.core.errors import ConfigError

#: What makes a directory a project.
PROJECT = ("pyproject.toml", "setup.py", "Cargo.toml")
_REPOSITORIES = frozenset({".git", ".hg", ".svn"})
_CACHES = frozenset(
    {"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox", ".eggs"}
    | {"node_modules", ".sandbox", plugins.FOLDER}
)
#: What a virtual environment holds, and a directory of runs.
_HELD = ("pyvenv.cfg", "conda-meta", "latest/record.sqlite")
#: A directory of outputs -> what then lies next to it; elsewhere the name may mean anything.
_OUTPUT = {"build": PROJECT, "dist": PROJECT, "target": ("Cargo.toml",)}
_GIT_SECONDS = 120
_SHOWN = 200  # files that are not as committed
#: How files are listed where git is asked.
BY_GIT = "as git lists them"


@dataclass(frozen=True)
class Listing:
    """The files of a directory that are packed."""

    files: dict[str, Path]
    """Names with ``/`` and where they are, in order."""
    by: str
    """What decided: :data:`BY_GIT`, or why it was not asked."""
    empty: tuple[str, ...] = ()
    """Submodules that are not checked out."""
    idle: tuple[str, ...] = ()
    """Globs of what is left out that name nothing."""
    repositories: tuple[str, ...] = ()
    """Git repositories within it, such as submodules that are checked out."""


def inspect_checkout(tree: Path, listed: Listing, exclude: Iterable[str] = ()) -> Checkout | None:
    """The commit of ``tree``, and what of the files ``listed`` differs; ``None`` outside git.

    Submodules are asked too: what is changed in one counts, and another commit of one.
    """
    if listed.by != BY_GIT:
        return None
    code, head = _query_git(tree, "rev-parse", "--verify", "--quiet", "HEAD", refused=1)
    names = _uncommitted_changes(tree)
    for inner in listed.repositories:
        names += [f"{inner}/{name}" for name in _uncommitted_changes(tree / inner)]
    globs = tuple(exclude)
    packed = {*listed.files} | {str(up) for n in listed.files for up in PurePosixPath(n).parents}
    kept = [
        name
        for name in dict.fromkeys(names)
        if name in packed or not ((tree / name).exists() or matches_any_glob(name, globs))
    ]
    commit = "" if code else head.decode().strip()
    return Checkout(commit=commit, changed=tuple(kept[:_SHOWN]), count=len(kept))


def _uncommitted_changes(tree: Path) -> list[str]:
    """What is not as committed: files, submodules at another commit, repositories in no commit."""
    rows = iter(
        _query_git(tree, "status", "--porcelain=v1", "-z", "-uall", "--", ".")[1].split(b"\0")
    )
    here, names = tree.resolve(), []
    top = top_of(tree) or here
    for row in filter(None, rows):
        if row[:1] in b"RC":
            next(rows, None)  # what it was called before
        path = top / os.fsdecode(row[3:])
        if path.is_relative_to(here):
            names.append(path.relative_to(here).as_posix())
    return names


def matches_any_glob(name: str, globs: Iterable[str]) -> bool:
    """Whether a file (with ``/``) is what a glob names, or below a directory that it names."""
    return any(
        fnmatch.fnmatchcase(name, glob) or fnmatch.fnmatchcase(name, f"{glob.rstrip('/')}/*")
        for glob in globs
    )


def list_project_files(
    tree: Path, include: Iterable[str] = (), exclude: Iterable[str] = ()
) -> Listing:
    """The files of ``tree`` with those that ``include`` names, without what ``exclude`` does.

    Raises :class:`ConfigError` for a link that an archive cannot follow, for a part that cannot be
    read, and for a glob of ``include`` that names no file.
    """
    empty: list[str] = []
    inner: list[str] = []
    by = _how(tree)
    names = {*(_walked(tree) if by else _tracked(tree, empty, inner))}
    for glob in include:
        forced = [name for name in _walked(tree, whole=True) if matches_any_glob(name, [glob])]
        if not forced:
            raise ConfigError(
                f"source: include: '{glob}' names no file of {tree}",
                hint="Write it as seen from there, such as csrc/generated/*.cu",
            )
        names.update(forced)
    globs = tuple(exclude)
    kept = {name for name in names if not matches_any_glob(name, globs)}
    links = _directory_links(tree, kept)
    linked = {name for inside in links.values() for name in inside}
    names = (names - links.keys()) | linked
    kept = (kept - links.keys()) | {n for n in linked if not matches_any_glob(n, globs)}
    files: dict[str, Path] = {}
    for name in sorted(kept):
        path = tree / name
        if path.is_symlink():
            _require_link_inside_tree(tree, name)
        if path.is_file():  # not what was deleted since, and no pipe
            files[name] = path
    missing = tuple(name for name in sorted(empty) if not matches_any_glob(name, globs))
    every = (*names, *empty)
    idle = tuple(
        glob for glob in globs if not any(matches_any_glob(name, [glob]) for name in every)
    )
    return Listing(files, by or BY_GIT, missing, idle, tuple(inner))


def _directory_links(tree: Path, names: Set[str]) -> dict[str, list[str]]:
    """Links to directories of the tree -> the names of the files there, as seen through the link.

    Without links to a directory that contains them, or that has no packed file.
    """
    top, found = tree.resolve(), {}
    for name in names:
        path = tree / name
        if path.is_symlink() and path.is_dir() and (target := path.resolve()).is_relative_to(top):
            place = f"{target.relative_to(top).as_posix()}/"
            inner = [f"{name}/{n.removeprefix(place)}" for n in names if n.startswith(place)]
            if inner and not name.startswith(place):
                found[name] = inner
    return found


def _require_link_inside_tree(tree: Path, name: str) -> None:
    """Refuse a link that is no plain file of the tree."""
    path = tree / name
    out = f"leave it out with 'exclude: [\"{name}\"]' in the recipe, or --exclude of init"
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):
        raise ConfigError(
            f"{path} is a link to {path.readlink()}, which does not exist",
            hint=f"Fix it, or {out}.",
        ) from None
    if not target.is_relative_to(tree.resolve()):
        raise ConfigError(
            f"{path} is a link out of the tree, to {target}",
            hint=f"If the build needs it, put a copy in its place; if not, {out}.",
        )
    if target.is_dir():
        raise ConfigError(
            f"{path} is a link to a directory, {path.readlink()}, that contains the link, has no "
            "packed file, or is reached through another link",
            hint=f"If the build needs it, put a copy in its place; if not, {out}.",
        )


def _walked(tree: Path, *, whole: bool = False) -> Iterator[str]:
    """Files and links below ``tree``; ``whole``: also of what tools have made."""

    def refuse(error: OSError) -> None:
        raise ConfigError(f"{error.filename} cannot be read: {error.strerror}") from None

    for folder, below, files in os.walk(tree, onerror=refuse):
        here = Path(folder)
        kept = [
            name
            for name in below
            if name not in _REPOSITORIES and (whole or not _is_made(here / name))
        ]
        links = [name for name in kept if (here / name).is_symlink()]
        below[:] = [name for name in kept if name not in links]
        for name in (*files, *links):
            if name not in _REPOSITORIES:  # a submodule's is a file
                yield (here / name).relative_to(tree).as_posix()


def _is_made(folder: Path) -> bool:
    """Whether tools have made that directory."""
    name = folder.name
    if name in _CACHES or name.endswith(".egg-info"):
        return True
    marks = _OUTPUT.get(name, ())
    return any((folder / mark).exists() for mark in _HELD) or any(
        (folder.parent / mark).is_file() for mark in marks
    )


def top_of(tree: Path) -> Path | None:
    """The top of the git checkout that ``tree`` is in, as git sees it: links are followed."""
    here = tree.resolve()  # a recipe's ../mine is not below the project
    return next((path for path in (here, *here.parents) if (path / ".git").exists()), None)


def _how(tree: Path) -> str:
    """Empty where git is to be asked, else why not."""
    here, top = tree.resolve(), top_of(tree)
    if top is None:
        return "no git checkout: without environments, build, dist and caches"
    if shutil.which("git") is None:
        return "git is not installed here, so .gitignore is not read"
    # A whole project may lie in what another one ignores, as an installed package does.
    if top != here and not _query_git(tree, "check-ignore", "--quiet", ".", refused=1)[0]:
        return f"{top} ignores it: without environments, build, dist and caches"
    return ""


def _tracked(tree: Path, empty: list[str], inner: list[str], under: str = "") -> Iterator[str]:
    """What git lists of ``tree``, and of the repositories in it, as seen from the first."""
    is_made = cache(_is_made)  # thousands of files may be in one environment

    def in_made(path: Path) -> bool:
        return path != tree and (is_made(path) or in_made(path.parent))

    for kind in ("--cached", "--others"):
        listed = _query_git(tree, "ls-files", "-z", "--exclude-standard", kind)[1]
        for raw in dict.fromkeys(listed.split(b"\0")):
            name = os.fsdecode(raw).rstrip("/")
            path = tree / name
            if not name or (kind == "--others" and in_made(path)):
                continue
            if path.is_symlink() or not path.is_dir():
                yield under + name
            elif (path / ".git").exists():
                inner.append(under + name)
                yield from _tracked(path, empty, inner, f"{under}{name}/")
            elif not any(path.iterdir()):
                empty.append(under + name)
            else:
                yield from (f"{under}{name}/{below}" for below in _walked(path))


def _query_git(tree: Path, *words: str, refused: int = 0) -> tuple[int, bytes]:
    """What git answers, asked in ``tree``; ``refused`` is an exit code that is an answer too.

    Not what the variables of a hook say, and no program of the repository's configuration. Whose
    directory it is does not matter: it is only read.
    """
    command = ["git", "-c", "core.fsmonitor=false", "-c", "safe.directory=*", *words]
    environment = {key: text for key, text in os.environ.items() if not key.startswith("GIT_")}
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"git {words[0]} in {tree} took longer than {_GIT_SECONDS} s") from None
    if done.returncode not in (0, refused):
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise ConfigError(
            f"git {words[0]} in {tree} failed: {said[0][:300]}",
            hint="Fix that checkout: git determines which files belong to the project.",
        )
    return done.returncode, done.stdout
