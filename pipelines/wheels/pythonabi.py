"""Which Python a Windows module was compiled for, by its name and the DLL that it imports.

``python314t.dll`` is free-threaded Python, whose objects have another layout: a module compiled
without ``Py_GIL_DISABLED`` imports ``python314.dll``, and the process then has two Pythons in it.
On Windows no header defines that macro, the build must:
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
    """The Pythons that a module is tied to, such as ``3.14t``, by its name and imports.

    Empty if it states none or uses only the limited API. Several contradict each other.
    """
    matches = [_MODULE.search(name), *map(_DLL.fullmatch, imports)]
    return tuple(sorted({f"3.{match[1]}{match[2].lower()}" for match in matches if match}))


def module_incompatibility(tag: Tag, name: str, imports: Iterable[str]) -> str:
    """Why a module does not work with each Python of ``tag``; empty if it does."""
    imports = [*imports]
    bound, own = bound_to(name, imports), tag_python_version(tag)
    if tag.abi == "none":
        return f"only for Python {' and '.join(bound)}" if bound and bound != (own,) else ""
    if tag.abi in ("abi3", "abi3t"):
        if bound:
            return f"only for Python {' and '.join(bound)}, but {tag.abi} includes later ones"
    elif not own:  # of another interpreter
        return ""
    elif other := [python for python in bound if python != own]:
        why = f"for Python {' and '.join(other)}"
        same = [python for python in other if python.removesuffix("t") == own.removesuffix("t")]
        if same and own.endswith("t"):
            why += ": it was compiled without Py_GIL_DISABLED"
        elif same:
            why += ", free-threaded"
        return why
    free = tag.abi.endswith("t")
    for library in (name, *imports):
        match = _STABLE.search(library)
        if match and bool(match[1] or match[2]) != free:
            kind = "free-threaded" if not free else "not free-threaded"
            return f"{library} is {kind}"
    return ""


def tag_python_version(tag: Tag) -> str:
    """The Python of a tag, ``3.14t`` for ``cp314-cp314t``; empty if not a single one."""
    match = _CPYTHON.fullmatch(tag.interpreter)
    free = match and tag.abi == f"{tag.interpreter}t"
    return f"3.{match[1]}{'t' * bool(free)}" if match else ""
