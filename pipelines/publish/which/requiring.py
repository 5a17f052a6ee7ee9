"""What a package requires on this machine, and whether that is there, in a version that will do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from pipelines.publish.which.causes import Finding, cause_finding
from pipelines.publish.which.data import KNOWN
from pipelines.publish.which.looking import Installed, Place, find_installed, found_at
from pipelines.publish.which.texts import ascii_line, normalize_project, satisfies_specifiers

_REQUIREMENT = re.compile(
    r"([A-Za-z0-9][\w.-]{0,99})\s*(?:\[[\w\s,.-]*\])?\s*\(?([\w\s.,!<>=~+*-]{0,200})\)?"
    r"\s*(?:;(.{1,500}))?",
    re.ASCII,
)
_ORDER = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


def active_requirements(place: Place, package: Installed) -> Iterator[tuple[str, str]]:
    """Project and version range of each requirement that is one on this machine."""
    for found in filter(None, map(_REQUIREMENT.fullmatch, package.requires)):
        if is_marker_true(found[3] or "", place):
            yield normalize_project(found[1]), re.sub(r"\s", "", found[2])


def is_marker_true(marker: str, place: Place) -> bool:
    """Whether a requirement's marker is true here, without extras; not if it is not understood."""
    system, machine = ("Windows", "AMD64") if place.windows else ("Linux", "x86_64")
    known = {
        "os_name": "nt" if place.windows else "posix",
        "sys_platform": "win32" if place.windows else "linux",
        "platform_system": system,
        "platform_machine": "ARM64" if place.platform == "win_arm64" else machine,
        "python_version": place.python.rstrip("t"),
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
        "extra": "",
    }
    try:  # it is written as comparisons are in Python
        return not marker.strip() or _true(ast.parse(marker.strip(), mode="eval").body, known)
    except (SyntaxError, ValueError, KeyError, RecursionError, MemoryError):
        return False


def _true(node: ast.expr, known: dict[str, str]) -> bool:
    if isinstance(node, ast.BoolOp):
        judged = [_true(one, known) for one in node.values]
        return all(judged) if isinstance(node.op, ast.And) else any(judged)
    if not isinstance(node, ast.Compare) or len(node.ops) > 1:
        raise ValueError("no comparison")
    sides, how = (node.left, node.comparators[0]), type(node.ops[0])
    left, right = (
        known[one.id] if isinstance(one, ast.Name) else str(ast.literal_eval(one)) for one in sides
    )
    if how in (ast.In, ast.NotIn):
        return (left in right) == (how is ast.In)
    if getattr(sides[0], "id", "") == "python_version":
        return satisfies_specifiers(left, _ORDER[how] + right)
    return {"==": left == right, "!=": left != right}[_ORDER[how]]


def pip_line(place: Place, name: str, versions: str = "") -> str:
    """What pip is given for a requirement; of triton on Windows the release that torch names."""
    line = KNOWN.get(name, ("", "", ""))[1] if place.windows else ""
    if line and name == "triton":
        for text in (text for one in find_installed(place, ["torch"]) for text in one.requires):
            found = re.match(r"triton\s*==\s*(\d+\.\d+)", text, re.ASCII)
            line = f"{line}=={found[1]}.*" if found and "=" not in line else line
    return line or name + versions


def requirement_findings(place: Place, package: Installed) -> Iterator[Finding]:
    """Those that are not there, or in another version."""
    wanted = [*dict.fromkeys(active_requirements(place, package))]
    there = {
        one.project: one for one in reversed(find_installed(place, [name for name, _ in wanted]))
    }
    for name, versions in wanted:
        own = there.get(name)
        absent = own is None and name != "torch" and not found_at(place, name.replace("-", "_"))
        try:
            wrong = own and not satisfies_specifiers(own.version, versions)
        except ValueError:
            continue
        if absent or wrong:
            is_ = f"{name} is {own.version}" if own else "it is not installed"
            said = ascii_line(f"{package.label} requires {name}{versions}, but {is_}")
            # By its name alone pip would take a torch without CUDA.
            do = () if name == "torch" else ("install", pip_line(place, name, versions))
            yield cause_finding(
                "wrong-requirement" if wrong else "missing-requirement", "", do, said=said
            )


def needed_by(place: Place, packages: Sequence[Installed]) -> list[Installed]:
    """What of the requirements of these, and of theirs, is there."""
    found = {one.project: one for one in packages}
    left = [*packages]
    while left:
        new = [name for name, _ in active_requirements(place, left.pop()) if name not in found]
        left += [
            one for one in find_installed(place, new) if found.setdefault(one.project, one) is one
        ]
    return [one for one in found.values() if one not in packages]
