"""For which Python a Windows module was compiled: its name says so, and the DLL that it imports.

``python314t.dll`` is of the Python without the global lock, whose objects are laid out in another
way: a module that was compiled without ``Py_GIL_DISABLED`` imports ``python314.dll``, and the one
process then has two Pythons in it. On Windows no header defines that macro, whoever builds must:
https://docs.python.org/3/howto/free-threading-extensions.html
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from packaging.tags import Tag

_CPYTHON = re.compile(r"cp3(\d{1,2})")
_MODULE = re.compile(r"\.cp3(\d{1,2})(t?)-(?:win_amd64|win32|win_arm64)\.pyd$")
_DLL = re.compile(r"python3(\d{1,2})(t?)\.dll", re.IGNORECASE)
_STABLE = re.compile(r"(?:\.(?:abi3(t?))\.pyd$|^python3(t?)\.dll$)", re.IGNORECASE)


def bound_to(name: str, imports: Iterable[str]) -> tuple[str, ...]:
    """The Pythons that a module is for alone, such as ``3.14t``: of its name and of its imports.

    None for one that says nothing, or keeps to the limited API. More than one contradict each
    other.
    """
    found = [_MODULE.search(name), *map(_DLL.fullmatch, imports)]
    return tuple(sorted({f"3.{one[1]}{one[2].lower()}" for one in found if one}))


def misfit(tag: Tag, name: str, imports: Iterable[str]) -> str:
    """Why a module is not for each Python that ``tag`` is for; empty: it is."""
    imports = [*imports]
    bound, own = bound_to(name, imports), python_of(tag)
    if tag.abi == "none":
        return f"for Python {' and '.join(bound)} alone" if bound and bound != (own,) else ""
    if tag.abi in ("abi3", "abi3t"):
        if bound:
            return f"for Python {' and '.join(bound)} alone, and {tag.abi} is for later ones too"
    elif not own:  # of another interpreter
        return ""
    elif other := [one for one in bound if one != own]:
        why = f"for Python {' and '.join(other)}"
        same = [one for one in other if one.removesuffix("t") == own.removesuffix("t")]
        if same and own.endswith("t"):
            why += ": it was compiled without Py_GIL_DISABLED"
        elif same:
            why += ", the one without the global lock"
        return why
    free = tag.abi.endswith("t")
    for one in (name, *imports):
        found = _STABLE.search(one)
        if found and bool(found[1] or found[2]) != free:
            kind = "of a Python without the global lock" if not free else "of one with it"
            return f"{one} is {kind}"
    return ""


def python_of(tag: Tag) -> str:
    """The Python that a tag is for: ``3.14t`` of ``cp314-cp314t``; empty: none alone."""
    found = _CPYTHON.fullmatch(tag.interpreter)
    free = found and tag.abi == f"{tag.interpreter}t"
    return f"3.{found[1]}{'t' * bool(free)}" if found else ""
