"""``which.py``: the modules of this room, and what they use of others, joined into one file.

Each keeps its text, comments too, without its imports: what one takes from another is above it in
the file. The modules that run in other processes are in it as texts.
"""

from __future__ import annotations

import ast
import functools
import pprint
from pathlib import Path

from pipelines.publish.which import data

#: The file's name in an index.
WHICH = "which.py"
#: Below ``pipelines``, each after those that it uses.
PARTS = (
    "core/architectures/serving.py",
    "wheels/fatbin.py",
    "wheels/petables.py",
    "publish/memory.py",
    "publish/which/texts.py",
    "publish/which/machine.py",
    "publish/which/listed.py",
    "publish/which/choosing.py",
    "publish/which/children.py",
    "publish/which/images.py",
    "publish/which/looking.py",
    "publish/which/portable.py",
    "publish/which/searching.py",
    "publish/which/causes.py",
    "publish/which/requiring.py",
    "publish/which/packages.py",
    "publish/which/loading.py",
    "publish/which/devices.py",
    "publish/which/trying.py",
    "publish/which/reporting.py",
    "publish/which/answer.py",
    "publish/which/main.py",
)
_ROOT = Path(__file__).parents[2]
_OURS = "pipelines"
_HEAD = '''"""Find the wheel that fits this Python, and explain why an installed one does not load.

    python which.py --index https://wheels.example.org/

It needs only Python 3.9 or later and installs nothing: it prints the command. See --help for more.
It is generated from {version},
and consists of its modules, one after the other.
"""
# ruff: noqa
# fmt: off

from __future__ import annotations

'''
# A module of the folder in which people type this must not be taken for one of Python's.
_BEFORE = """import os
import sys

if sys.version_info < (3, 9):
    sys.exit("which.py needs Python 3.9 or later, but this is %d.%d" % sys.version_info[:2])
_own_first = not sys.flags.isolated and not getattr(sys.flags, "safe_path", False)
if sys.path and _own_first and sys.argv[0] not in ("-c", "-m", ""):
    _own_folder = os.path.dirname(os.path.abspath(sys.argv[0]))
    if os.path.abspath(sys.path[0] or ".") == _own_folder:
        del sys.path[0]

"""
_TAIL = """

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], main.__code__.co_filename))
"""


@functools.cache
def build_which_script() -> bytes:
    """The file, the same for the same sources."""
    from pipelines import __version__

    imports: dict[str, set[str]] = {}
    bodies = [
        body for part in PARTS for body in [_body((_ROOT / part).read_text("utf-8"), part, imports)]
    ]
    # Before the first module that uses them; `data.py` has the same elsewhere.
    bodies.insert(PARTS.index("publish/which/looking.py"), _constants_source())
    head = _HEAD.format(version=f"windows-cuda-wheels {__version__}")
    text = head + _BEFORE + "\n".join(_imports(imports)) + "\n" + "".join(bodies) + _TAIL
    _require_once(text)
    return text.encode()


def _body(text: str, part: str, imports: dict[str, set[str]]) -> str:
    """A module without its docstring and imports; those of Python's own go to ``imports``."""
    tree, lines = ast.parse(text), text.splitlines()
    gone: set[int] = set()
    for node in tree.body:
        rows = range(node.lineno - 1, (node.end_lineno or node.lineno))
        if isinstance(node, ast.Import | ast.ImportFrom):
            if any(alias.asname for alias in node.names):
                raise ValueError(f"{part}: {ast.unparse(node)}: joined files know no other names")
            names = {alias.name for alias in node.names}
            if isinstance(node, ast.Import):
                imports.setdefault("", set()).update(names)
            elif node.module and node.module.split(".")[0] not in (_OURS, "__future__"):
                imports.setdefault(node.module, set()).update(names)
        elif not _is_types(node) and node is not tree.body[0]:
            continue
        gone.update(rows)
    said = (ast.get_docstring(tree) or "").splitlines()[0]
    kept = "\n".join(line for at, line in enumerate(lines) if at not in gone).strip("\n")
    return f"\n\n# {'-' * 20} {part}\n# {said}\n\n{kept}\n"


def _is_types(node: ast.stmt) -> bool:
    """What is there for type checkers alone."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _imports(imports: dict[str, set[str]]) -> list[str]:
    """As lines, in order; what is there for type checkers alone is not among them."""
    whole = [f"import {name}" for name in sorted(imports.pop("", ()))]
    return whole + [
        f"from {module} import {', '.join(sorted(names - {'TYPE_CHECKING'}))}"
        for module, names in sorted(imports.items())
    ]


def _constants_source() -> str:
    texts = {name: getattr(data, name) for name in ("PROBE", "LOADER")}
    names = [
        name for name in vars(data) if name[0].isupper() and name.isupper() and name not in texts
    ]
    tables = {name: getattr(data, name) for name in names}
    said = [f"{name} = {pprint.pformat(table, width=98)}" for name, table in tables.items()]
    for name, text in texts.items():
        if "'''" in text or text.endswith(("'", "\\")):
            raise ValueError(f"{name} cannot be a raw text")
        said.append(f"{name} = r'''{text}'''")
    return f"\n\n# {'-' * 20} tables, and programs for processes of their own\n\n" + "\n".join(
        f"{one}\n" for one in said
    )


def _require_once(text: str) -> None:
    """A name of two modules would silently be the second one's in both."""
    seen: set[str] = set()
    for node in ast.parse(text, feature_version=(3, 9)).body:
        names = [getattr(node, "name", "")]
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [one.id for target in targets for one in ast.walk(target)
                     if isinstance(one, ast.Name)]  # fmt: skip
        for name in filter(None, names):
            if name in seen:
                raise ValueError(f"{name} is in two modules of which.py")
            seen.add(name)


if __name__ == "__main__":  # writes the repository's
    (_ROOT.parent / WHICH).write_bytes(build_which_script())
