"""Reads literal values in ``setup.py`` without running it, and notes what is computed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipelines.core.errors import ConfigError
from pipelines.core.units import join_first
from pipelines.scaffold.project import Binding, FileFacts

#: Callables that define extension modules -> CUDA, torch, binding.
_MAKERS: dict[str, tuple[bool, bool, Binding]] = {
    "CUDAExtension": (True, True, "torch"),
    "CppExtension": (False, True, "torch"),
    "Extension": (False, False, "c"),
    "Pybind11Extension": (False, False, "pybind11"),
    "CMakeExtension": (False, False, "c"),
}
_DYNAMIC = object()
_COMPILED = (".cu", ".cpp", ".cc", ".cxx", ".c")
_LONG = 1 << 16  # characters of a text, or parts of a list
_ARCH = re.compile(r"(?:sm|compute)_(\d{2,3}[af]?)\b")
#: Variables that switch the part with CUDA on, and values that switch it off.
_SWITCH = re.compile(
    r"(?!(?:.*_)?(?:NO|SKIP|DISABLE|WITHOUT)_).*?"
    r"(?:WITH_(?:OPS|CUDA|EXT)|FORCE_(?:BUILD|CUDA)|(?:BUILD|USE|ENABLE)_CUDA)(?:_\w+)?"
)
_OFF = frozenset({"", "0", "off", "false", "no", "n"})
_NETWORK = re.compile(r"\bgit (?:clone|submodule)\b|\burlopen\b|\burlretrieve\b|requests\.get\b")


def read_setups(path: Path) -> list[FileFacts]:
    """Read ``setup.py`` and the modules in its directory that it imports."""
    first = read_setup(path)
    names = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(path.read_text("utf-8", "replace")))
        for name in _imported_modules(node)
    }
    siblings = [file for name in sorted(names) if (file := path.with_name(f"{name}.py")).is_file()]
    more = (read_setup(file) for file in siblings if file != path)
    return [first, *(replace(facts, name="", version="", doubts=(), later=()) for facts in more)]


def read_setup(path: Path) -> FileFacts:
    """Read ``setup.py``; nothing of it is run.

    Raises :class:`ConfigError` with file and line if it is not valid Python.
    """
    text = path.read_text("utf-8", "replace")
    try:
        return _Reading(ast.parse(text), path.name).facts()
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        number = getattr(error, "lineno", None)
        line = f", line {number}" if number else ""
        reason = error.msg if isinstance(error, SyntaxError) else str(error)[:200] or "too deep"
        raise ConfigError(
            f"{path.name}{line}: invalid Python: {reason}",
            hint="Fix it: a build would fail there as well. Nothing was written.",
        ) from None


class _Reading:
    def __init__(self, tree: ast.Module, shown: str) -> None:
        self.tree = tree
        self.shown = shown
        self.values = _module_constants(tree)
        self.doubts: list[str] = []
        self.later: list[tuple[str, str]] = []

    def facts(self) -> FileFacts:
        keys: dict[str, Any] = {}
        extensions: list[str] = []
        sources: list[str] = []
        cuda = torch = False
        bindings: set[Binding] = set()
        makers = _aliases(self.tree)
        for call in (n for n in ast.walk(self.tree) if isinstance(n, ast.Call)):
            name = makers.get(_callee(call), _callee(call))
            if name == "setup":
                keys |= self._keywords(call)
            elif name in _MAKERS:
                makes_cuda, with_torch, binding = _MAKERS[name]
                cuda, torch = cuda or makes_cuda, torch or with_torch
                bindings.add(binding)
                extensions.append(self._extension(call))
                sources += self._sources(call)
        words = [*_texts_of(self.tree)]
        text = "\n".join(words)
        above = [word for word in words if word.startswith("../")]
        sources += [word for word in above if word.endswith(_COMPILED)]
        if others := [word for word in above if not word.endswith(_COMPILED)]:
            self.doubts.append(f"{self.shown}: a build does not get {join_first(others)}")
        imports = {name for node in ast.walk(self.tree) for name in _imported_modules(node)}
        torch = torch or any(name.startswith("torch.utils.cpp_extension") for name in imports)
        cuda = cuda or any("nvcc" in word or word.endswith(".cu") for word in words)
        known = keys.get("package_dir")
        directories: dict[str, Any] = known if isinstance(known, dict) else {}
        if "skbuild" in imports:
            self.doubts.append(f"{self.shown}: scikit-build (not -core) runs CMake from it")
        if "**kwargs" in keys:
            self.doubts.append(
                f"{self.shown}: setup() takes keywords that are computed at build time"
            )
        return FileFacts(
            name=self._text(keys, "name"),
            version=self._text(keys, "version"),
            summary=self._text(keys, "description", "summary"),
            license=self._text(keys, "license"),
            requires_python=self._text(keys, "python_requires", "requires_python"),
            requires=self._texts(keys, "install_requires", "requires"),
            packages=self._texts(keys, "packages"),
            package_dirs=tuple((k, v) for k, v in directories.items() if isinstance(v, str)),
            py_api=_limited_api_option(keys.get("options")),
            sources=tuple(dict.fromkeys(sources)),
            extensions=tuple(dict.fromkeys(filter(None, extensions))),
            cuda=cuda,
            torch=torch,
            bindings=frozenset(bindings),
            variables=tuple(dict.fromkeys(self._variables(self.tree))),
            switches=tuple(self._switches()),
            imports=(
                *{name: 0 for node in self.tree.body for name in _imported_modules(node)},
                *(("cmake",) if "cmake" in words else ()),  # a program that it runs
            ),
            archs=tuple(dict.fromkeys(_ARCH.findall(text))),
            fetches=tuple(self._fetches(ast.unparse(self.tree))),
            doubts=tuple(dict.fromkeys(self.doubts)),
            later=tuple(dict.fromkeys(self.later)),
        )

    def _keywords(self, call: ast.Call) -> dict[str, Any]:
        keywords: dict[str, Any] = {}
        for keyword in call.keywords:
            if keyword.arg is None:
                value = self._value(keyword.value)
                keywords |= value if isinstance(value, dict) else {"**kwargs": _DYNAMIC}
            else:
                keywords[keyword.arg] = self._value(keyword.value)
        return keywords

    def _extension(self, call: ast.Call) -> str:
        arguments = call.args[:1] or [k.value for k in call.keywords if k.arg == "name"]
        name = self._value(arguments[0]) if arguments else _DYNAMIC
        if isinstance(name, str):
            return name
        line = call.lineno
        self.doubts.append(
            f"{self.shown}, line {line}: the extension's name is computed at build time"
        )
        return ""

    def _sources(self, call: ast.Call) -> list[str]:
        """Literal sources."""
        arguments = call.args[1:2] or [k.value for k in call.keywords if k.arg == "sources"]
        parts = (
            arguments[0].elts
            if arguments and isinstance(arguments[0], ast.List | ast.Tuple)
            else arguments
        )
        values = [self._value(part) for part in parts]
        flat = [
            item for value in values for item in (value if isinstance(value, list) else [value])
        ]
        return [item for item in flat if isinstance(item, str) and "\0" not in item]

    def _text(self, keys: dict[str, Any], key: str, field: str = "") -> str:
        value = keys.get(key, "")
        if isinstance(value, str):
            return value
        said = f"{self.shown}: {key} is computed at build time"
        if isinstance(value, tuple):
            self.doubts.append(f"{said}: {value[0]!r} is taken, it may be {value[1]!r}")
            return str(value[0])
        self.later.append((field or key, said))
        return ""

    def _texts(self, keys: dict[str, Any], key: str, field: str = "") -> tuple[str, ...]:
        """Literal texts; computed ones are a doubt only with a ``field``."""
        value = keys.get(key, ())
        if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            return tuple(value)
        if field:
            self.later.append((field, f"{self.shown}: {key} is computed at build time"))
        return ()

    def _switches(self) -> Iterator[tuple[str, str]]:
        """Variables that switch CUDA on, with the value that they are compared with."""
        values: dict[str, str] = {}
        for node in (n for n in ast.walk(self.tree) if isinstance(n, ast.Compare)):
            value = self._value(node.comparators[0])
            text = str(next(iter(value), "") if isinstance(value, list) else value)
            if isinstance(node.ops[0], ast.Eq | ast.In) and re.fullmatch(r"\w+", text):
                on = text.lower() not in _OFF
                values |= dict.fromkeys(self._variables(node.left), text) if on else {}
        for name in filter(_SWITCH.fullmatch, self._variables(self.tree)):
            yield name, values.get(name, "1")

    def _variables(self, tree: ast.AST) -> Iterator[str]:
        """Environment variables that are read anywhere in it."""
        for node in ast.walk(tree):
            name_node: ast.expr | None = None
            if isinstance(node, ast.Call) and node.args:
                function = ast.unparse(node.func)
                if function.endswith(
                    ("environ.get", "getenv", "environ.setdefault", "environ.pop")
                ):
                    name_node = node.args[0]
            elif isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("environ"):
                name_node = node.slice
            elif isinstance(node, ast.Compare) and _is_in_environ(node):
                name_node = node.left
            name = self._value(name_node) if name_node is not None else None
            if isinstance(name, str) and re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
                yield name

    def _fetches(self, text: str) -> Iterator[str]:
        for command in dict.fromkeys(match[0] for match in _NETWORK.finditer(text)):
            yield f"{self.shown}: {command}"

    def _value(self, node: ast.expr) -> Any:
        return _evaluated(node, self.values)


def _aliases(tree: ast.Module) -> dict[str, str]:
    """Names that may stand for a callable that defines extensions, for CUDA's if for several."""
    found: dict[str, str] = {}
    for node in (n for n in ast.walk(tree) if isinstance(n, ast.Assign)):
        targets = {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        words = {getattr(n, "id", getattr(n, "attr", "")) for n in ast.walk(node.value)}
        for maker in sorted(words & {*_MAKERS}, key=lambda name: _MAKERS[name]):
            cuda = {name for name, known in found.items() if known == "CUDAExtension"}
            found |= dict.fromkeys(targets - cuda, maker)
    return found


def _limited_api_option(options: Any) -> str:
    """The value in ``options={"bdist_wheel": {"py_limited_api": "cp39"}}``."""
    bdist_wheel = options.get("bdist_wheel") if isinstance(options, dict) else None
    tag = bdist_wheel.get("py_limited_api") if isinstance(bdist_wheel, dict) else None
    return tag if isinstance(tag, str) else ""


def _module_constants(tree: ast.Module) -> dict[str, Any]:
    """Module-level names that are assigned one literal value."""
    values: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name):
                known = target.id not in values
                values[target.id] = _evaluated(node.value, values) if known else _DYNAMIC
    return {name: value for name, value in values.items() if value is not _DYNAMIC}


def _evaluated(node: ast.expr, names: dict[str, Any]) -> Any:
    """The value of a literal expression over ``names``; else ``_DYNAMIC``."""
    value: Any
    match node:
        case ast.Constant():
            value = node.value
        case ast.Name():
            value = names.get(node.id, _DYNAMIC)
        case ast.IfExp():  # one of two
            both = (_evaluated(node.body, names), _evaluated(node.orelse, names))
            match node.test:  # the one with a switch on comes first
                case ast.Compare(ops=[ast.Eq()], comparators=[ast.Constant(value=off)]):
                    both = both[::-1] if str(off).lower() in _OFF else both
            value = both if all(isinstance(one, str) for one in both) else _DYNAMIC
        case ast.JoinedStr():
            inner = [v.value if isinstance(v, ast.FormattedValue) else v for v in node.values]
            parts = [_evaluated(part, names) for part in inner]
            plain = all(isinstance(part, str | int) for part in parts)
            value = _dynamic_if_too_long("".join(map(str, parts))) if plain else _DYNAMIC
        case ast.BinOp(op=ast.Add()):
            value = _sum(_evaluated(node.left, names), _evaluated(node.right, names))
        case ast.List() | ast.Tuple():
            values = [_evaluated(element, names) for element in node.elts]
            value = _DYNAMIC if any(value is _DYNAMIC for value in values) else values
        case ast.Dict() if all(node.keys):
            keys = [_evaluated(key, names) for key in node.keys if key is not None]
            values = [_evaluated(value, names) for value in node.values]
            texts = all(isinstance(key, str) for key in keys)
            value = dict(zip(keys, values, strict=True)) if texts else _DYNAMIC
        case _:
            value = _DYNAMIC
    return value


def _sum(left: Any, right: Any) -> Any:
    """The sum of two texts or two lists; else ``_DYNAMIC``."""
    same = any(isinstance(left, kind) and isinstance(right, kind) for kind in (str, list))
    return _dynamic_if_too_long(left + right) if same else _DYNAMIC


def _dynamic_if_too_long(value: Any) -> Any:
    """``_DYNAMIC`` for a value that is too long: a few lines can double one many times."""
    return value if len(value) <= _LONG else _DYNAMIC


def _is_in_environ(node: ast.Compare) -> bool:
    """Whether it is ``NAME in os.environ``."""
    inside = isinstance(node.ops[0], ast.In)
    return inside and ast.unparse(node.comparators[0]).endswith("environ")


def _callee(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _texts_of(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _imported_modules(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
