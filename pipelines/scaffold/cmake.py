"""Reads ``CMakeLists.txt`` as text: commands and arguments, without evaluating conditions.

Both branches of every ``if`` count. Variables are substituted if they were set to literal values;
otherwise the value is reported as unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.scaffold.project import LIBRARIES, Binding, FileFacts

_TOKEN = re.compile(
    r"""
    \#\[(?P<eq>=*)\[.*?\](?P=eq)\]        # a comment between brackets
    | \#[^\n]*
    | (?P<command>[A-Za-z_]\w*)\s*\(
    | (?P<close>\))
    | (?P<open>\()
    | "(?P<quoted>(?:[^"\\]|\\.)*)"
    | \[(?P<eq2>=*)\[(?P<bracket>.*?)\](?P=eq2)\]
    | (?P<word>[^\s()"#]+)
    """,
    re.VERBOSE | re.DOTALL,
)
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_ADDS: dict[str, Binding] = {
    "pybind11_add_module": "pybind11",
    "nanobind_add_module": "nanobind",
    "python_add_library": "c",
    "python3_add_library": "c",
}
_FETCHES = {"fetchcontent_declare", "externalproject_add", "cpmaddpackage", "file_download"}
#: Options that switch CUDA on, such as GGML_CUDA; not those that only say how it is linked.
_SWITCH = re.compile(
    r"(?:\w+_)?(?:WITH|USE|ENABLE|BUILD)_CUDA"
    r"|(?!(?:NO|SKIP|DISABLE|WITHOUT|STATIC|DYNAMIC|LINK|TEST)_)[A-Z0-9]+_CUDA"
)
_ARCH = re.compile(r"\b(\d{2,3}[af]?)(?:-real|-virtual)?\b")
_DEEP = 6  # nested directories
_MOST = 1 << 20  # bytes of a file that are read
_FILES = 200
_LONG = 4096  # characters of a word: a few lines can double it many times


@dataclass
class _Read:
    """Accumulated results."""

    variables: dict[str, str] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    """Target of an extension module -> where it is installed."""
    bindings: set[Binding] = field(default_factory=set)
    cuda: bool = False
    torch: bool = False
    fetches: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    archs: list[str] = field(default_factory=list)
    define: str = ""
    options: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    files: int = 0


def read_cmake(path: Path, root: Path) -> FileFacts:
    """Read the file and those of subdirectories that it adds."""
    read = _Read()
    _read_cmake_file(path, root, read, 0)
    names = {
        target: ".".join(filter(None, (*where.strip("/.").split("/"), target)))
        for target, where in read.modules.items()
    }
    return FileFacts(
        extensions=tuple(names.values()),
        cuda=read.cuda or bool(read.options),
        torch=read.torch,
        bindings=frozenset(read.bindings),
        archs=tuple(dict.fromkeys(read.archs)),
        arch_define=read.define,
        cuda_options=tuple(dict.fromkeys(read.options)),
        fetches=tuple(dict.fromkeys(read.fetches)),
        cuda_sources=tuple(dict.fromkeys(read.sources)),
        doubts=tuple(dict.fromkeys(read.doubts)),
    )


def parse_cmake_commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each command in lower case with its arguments, without quotes and comments."""
    name, depth = "", 0
    words: list[str] = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind == "command" and not depth:
            name, words, depth = match["command"].lower(), [], 1
        elif not depth:
            continue
        elif kind == "close":
            depth -= 1
            if not depth:
                yield name, words
        elif kind in ("open", "command"):  # within if ( ... )
            depth += 1
            if kind == "command":
                words.append(match["command"])
        else:
            words += [w for w in (match["quoted"], match["bracket"], match["word"]) if w]


def _read_cmake_file(path: Path, root: Path, read: _Read, deep: int) -> None:
    read.files += 1
    inside = path.resolve().is_relative_to(root.resolve())
    if deep > _DEEP or read.files > _FILES or not inside or not path.is_file():
        return
    with path.open("rb") as stream:
        text = stream.read(_MOST).decode("utf-8", "replace")
    shown = path.relative_to(root).as_posix()
    for name, raw in parse_cmake_commands(text):
        words = [_substitute_variables(word, read.variables) for word in raw]
        if name == "set" and raw[:1] == ["CMAKE_CUDA_ARCHITECTURES"] and len(raw) > 1:
            match = _VARIABLE.fullmatch(raw[1])
            read.define = match[1] if match else read.define
        _process_cmake_command(name, words, read, shown)
        if name == "add_subdirectory" and words and not {"$", "\0"} & {*words[0]}:
            _read_cmake_file(path.parent / words[0] / "CMakeLists.txt", root, read, deep + 1)


def _process_cmake_command(name: str, words: list[str], read: _Read, shown: str) -> None:
    upper = [word.upper() for word in words]
    first = words[0] if words else ""
    if name == "set" and first:
        _set(words, read)
    elif name == "option" and _SWITCH.fullmatch(first) and upper[-1] != "ON":
        read.options.append(first)
    elif name in ("project", "enable_language"):
        read.cuda = read.cuda or "CUDA" in upper
    elif name == "find_package" and first:
        _record_find_package(first.lower(), read)
    elif name in _ADDS and first:
        if "$" in first:
            read.doubts.append(f"{shown}: the name of the module {first} is computed at build time")
        else:
            read.modules.setdefault(first, "")
        read.bindings.add(_ADDS[name])
    elif name == "install" and "TARGETS" in upper:
        where = _after("DESTINATION", words)
        for target in read.modules.keys() & {*words} if "$" not in where else ():
            read.modules[target] = read.modules[target] or where
    elif name in _FETCHES or (name == "file" and upper[:1] == ["DOWNLOAD"]):
        read.fetches.append(f"{shown}: {name} {first}".rstrip())
    elif name == "set_source_files_properties" and _after("LANGUAGE", words).upper() == "CUDA":
        files = words[: upper.index("PROPERTIES")] if "PROPERTIES" in upper else []
        read.sources += [word for word in files if "$" not in word]
    _architectures(name, words, upper, read)


def _after(key: str, words: list[str]) -> str:
    """The word after ``key``; empty if there is none."""
    upper = [word.upper() for word in words]
    return next(iter(words[upper.index(key) + 1 :]), "") if key in upper else ""


def _record_find_package(name: str, read: _Read) -> None:
    read.cuda = read.cuda or name in ("cuda", "cudatoolkit")
    read.torch = read.torch or name == "torch"
    read.bindings.update(binding for binding in LIBRARIES if binding == name)


def _set(words: list[str], read: _Read) -> None:
    name, *rest = words
    stop = next((n for n, word in enumerate(rest) if word in ("CACHE", "PARENT_SCOPE")), len(rest))
    value = ";".join(rest[:stop])
    if "CACHE" in rest and "$" not in value:
        read.variables.setdefault(name, value)
    elif "$" in value:
        read.variables.pop(name, None)
    else:
        read.variables[name] = value


def _architectures(name: str, words: list[str], upper: list[str], read: _Read) -> None:
    """Collect values of CMAKE_CUDA_ARCHITECTURES and of targets."""
    if name == "set" and words[:1] == ["CMAKE_CUDA_ARCHITECTURES"]:
        read.archs += _ARCH.findall(";".join(words[1:]))
    elif "CUDA_ARCHITECTURES" in upper:
        read.archs += _ARCH.findall(";".join(words[upper.index("CUDA_ARCHITECTURES") + 1 :]))


def _substitute_variables(word: str, variables: dict[str, str]) -> str:
    """``word`` with known variables substituted, unless it becomes too long."""
    if len(word) > _LONG:
        return word
    filled = _VARIABLE.sub(lambda match: variables.get(match[1], match[0]), word)
    return filled if len(filled) <= _LONG else word
