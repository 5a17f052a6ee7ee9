"""What of a package's files is wrong: some missing, others than listed, of another Python."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence

from pipelines.publish.which.causes import Finding, cause_finding
from pipelines.publish.which.data import FIT, KNOWN
from pipelines.publish.which.looking import (
    Installed,
    Place,
    find_pip_leftovers,
    found_at,
    names_in,
    read_text,
)
from pipelines.publish.which.texts import ascii_line

BINARIES = (".pyd", ".dll", ".so")
_MOST_FILES = 20_000
_MOST_READ, _DEEP = 400, 3
_IMPORTS_TORCH = re.compile(r"^\s*(?:import|from)\s+torch\b", re.MULTILINE)
_TAGGED = re.compile(r"\.cp(?:ython-)?(\d{2,3}t?)-[\w-]+\.(?:pyd|so)$")


def binaries_of(package: Installed) -> list[str]:
    """The paths of its DLLs and extension modules that are there."""
    if package.files is not None:
        listed = [path for path, _ in package.files if path.lower().endswith(BINARIES)]
        listed = listed[:_MOST_FILES]
        return [
            one
            for one in (_package_file_path(package, path) for path in listed)
            if os.path.isfile(one)
        ]
    found = []
    for top, _, names in os.walk(os.path.join(package.folder, package.tops[0])):
        found += [os.path.join(top, name) for name in names if name.lower().endswith(BINARIES)]
        if len(found) > _MOST_FILES:
            break
    return found


def python_text(package: Installed, deep: int = 1) -> str:
    """The Python that is run when it is imported first, or more of it."""
    names = [one for one, _ in package.files or () if one.endswith(".py")]
    named = [one for one in names if one.count("/") <= deep][:_MOST_READ]
    return "\n".join(read_text(_package_file_path(package, one)) or "" for one in named)


def package_uses_torch(package: Installed, libraries: Iterable[str]) -> bool:
    """Whether it imports torch, or so it must be taken; ``libraries``: what its modules want."""
    return (
        package.files is None
        or package.linked
        or any(re.match(r"torch(?![\w.-])", one) for one in (package.project, *package.requires))
        or any(one.startswith(("torch", "c10")) for one in libraries)
        or _IMPORTS_TORCH.search(python_text(package, _DEEP)) is not None
    )


def content_findings(package: Installed, *, compiled: bool) -> Iterator[Finding]:
    """No compiled part at all; ``compiled``: an index has one with."""
    names = [path.lower() for path, _ in package.files or ()]
    if not names or package.linked or any(one.endswith(BINARIES) for one in names):
        return
    name, known = package.project, KNOWN.get(package.project)
    said = {
        "package": package.label,
        "hint": known[0] if known else f"if it should have one, {FIT}",
    }
    if {name.replace("-", "_"), *name.split("-")} & {one.lower() for one in package.tops}:
        yield cause_finding("no-binary", "error" if compiled or known else "warning", **said)
        return
    modules = ascii_line(", ".join(package.tops), 100)
    yield cause_finding("other-project", "", ("uninstall", name), modules=modules, **said)


def _package_file_path(package: Installed, path: str) -> str:
    return os.path.join(package.folder, *path.split("/"))


def file_findings(package: Installed) -> Iterator[Finding]:
    """What RECORD lists and is not there, or has another size."""
    if package.legacy or package.linked:
        what = "an editable install" if package.linked else "not installed from a wheel"
        yield cause_finding("not-checked.files", package=package.label, what=what)
        return
    if package.files is None:
        yield cause_finding("half-installed.record", package=package.label)
        return
    missing: list[str] = []
    cut: list[str] = []
    other: list[str] = []
    for path, size in package.files[:_MOST_FILES]:
        try:
            has = os.stat(_package_file_path(package, path)).st_size
        except (OSError, ValueError):
            missing.append(path)
            continue
        if size is not None and has != size:
            kind = cut if has < size and path.lower().endswith(BINARIES) else other
            kind.append(f"{path} ({has} of {size} bytes)")
    count = len(package.files)
    if count > _MOST_FILES:
        yield cause_finding("not-checked.many-files", package=package.label, count=count)
    kinds = ("half-installed.missing", missing), ("truncated.file", cut), ("changed-files", other)
    for key, paths in kinds:
        if paths:
            said = {"count": len(paths), "all": count, "path": ascii_line(paths[0])}
            yield cause_finding(key, package=package.label, **said)


def copy_findings(place: Place, copies: Sequence[Installed]) -> Iterator[Finding]:
    """Several installations, one of which hides the others, and what is left of earlier ones."""
    first = copies[0]
    for left in find_pip_leftovers(place, first.project)[:1]:
        yield cause_finding("leftover", path=ascii_line(left))
    if len(copies) == 1:
        return
    where = " and ".join(ascii_line(f"{one.version} in {one.folder}", 160) for one in copies[:3])
    own = [one for one in copies if place.user and one.folder == place.user]
    key = "side-by-side"
    if own and any(one.folder != place.user for one in copies):
        key = "user-site"
    said = {"first": ascii_line(first.folder, 160), "version": own[0].version if own else ""}
    yield cause_finding(key, project=first.project, where=where, **said)


def name_findings(place: Place, package: Installed) -> Iterator[Finding]:
    """Something else that is called like its modules, and is taken for them."""
    if package.linked:  # its own is elsewhere
        return
    for name in package.own:
        at = found_at(place, name)
        # Of folders without it, Python takes all that are called so.
        bare = os.path.isdir(at) and "__init__.py" not in names_in(at)
        if at and not bare and os.path.dirname(at) != package.folder:
            what = "a folder" if os.path.isdir(at) else "a file"
            folder = ascii_line(package.folder)
            yield cause_finding("shadowed", what=what, name=name, at=ascii_line(at), folder=folder)


def tag_findings(place: Place, package: Installed, paths: Sequence[str]) -> Iterator[Finding]:
    """Modules of another Python or another system."""
    linux = [one for one in paths if one.endswith(".so")]
    windows = [one for one in paths if one.lower().endswith((".pyd", ".dll"))]
    if place.windows and linux and not windows:
        hint, install, _ = KNOWN.get(package.project, (FIT, "", ""))
        do = ("install", install) if install else ("uninstall", package.project)
        file = ascii_line(os.path.basename(linux[0]))
        yield cause_finding("linux-files", "", do, package=package.label, file=file, hint=hint)
        return
    own = place.python.replace(".", "")
    tagged = {match[1]: one for one in paths if (match := _TAGGED.search(one))}
    if tagged and own not in tagged:
        other, path = next(iter(tagged.items()))
        said = {"file": ascii_line(os.path.basename(path)), "built": f"{other[0]}.{other[1:]}"}
        yield cause_finding(
            "python-mismatch.module", package=package.label, python=place.python, **said
        )


def paths_of_this_python(place: Place, paths: Sequence[str]) -> list[str]:
    """Without the extension modules that another Python would load."""
    own = place.python.replace(".", "")
    return [one for one in paths if (match := _TAGGED.search(one)) is None or match[1] == own]


def other_python_dll(place: Place, libraries: Sequence[str]) -> str:
    """Of the DLLs that are wanted, that of another Python; empty: there is none."""
    for name in libraries:
        found = re.fullmatch(r"python(\d)(\d{1,2}t?)\.dll", name)
        if found and f"{found[1]}.{found[2]}" != place.python:
            return f"{found[1]}.{found[2]}"
    return ""


def find_stray_folder(place: Place, project: str) -> str:
    """A folder called like a package that is not installed."""
    name = project.replace("-", "_")
    at = found_at(place, name)
    return at if at and names_in(at) else ""
