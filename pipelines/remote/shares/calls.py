"""What a build system starts: which of it is ninja, in which directory and for what.

``cmake --build`` and ``meson compile`` start ninja themselves, in a process that nobody looks into,
so what they would start is started instead.
"""

from __future__ import annotations

import ast
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: Options of ninja with a value of their own, and those after which it builds nothing.
_VALUED = ("-C", "-f", "-j", "-k", "-l", "-d", "-w")
_NO_BUILD = ("-t", "-n", "-h", "--help", "--version")
_SHELL = frozenset("&|;<>`$%^()")
_MAKE = "CMAKE_MAKE_PROGRAM:"
_GENERATOR = "CMAKE_GENERATOR:"


@dataclass
class Call:
    """One start of ninja."""

    directory: str
    """Absolute, where it runs."""
    program: list[str] = field(default_factory=lambda: ["ninja"])
    manifest: str = "build.ninja"
    """From its directory."""
    flags: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    lacks: str = ""
    """Why it cannot be divided; then there is nothing in the others to go by."""


def words(arguments: object) -> list[str]:
    """A command as a list; empty where a shell would do more than start it."""
    if isinstance(arguments, str | bytes | os.PathLike):
        text = os.fsdecode(arguments)
        if _SHELL & set(text):
            return []
        try:
            found = shlex.split(text, posix=sys.platform != "win32")
        except ValueError:
            return []
        return [word.strip('"') for word in found]
    if isinstance(arguments, Sequence):
        return [
            os.fsdecode(word) for word in arguments if isinstance(word, str | bytes | os.PathLike)
        ]
    return []


def name(command: Sequence[str]) -> str:
    """What a command starts, without directory and .exe; ``-m`` of a Python counts."""
    first = _name(command[0]) if command else ""
    if first.startswith("python") and list(command[1:2]) == ["-m"]:
        return _name(command[2]) if len(command) > 2 else first  # noqa: PLR2004
    return first


def _name(program: str) -> str:
    found = os.path.basename(program.replace("\\", "/")).lower()
    return found.removesuffix(".exe")


def read(command: Sequence[str], where: str, environment: Mapping[str, str]) -> Call | None:
    """The start of ninja that ``command``, given in the directory ``where``, is; or ``None``."""
    called, module = name(command), command[1:2] == ["-m"]
    head = list(command[: 3 if module else 1])
    rest = list(command[len(head) :])
    if called in ("ninja", "ninja-build"):
        return _ninja(Call(where, head), rest)
    if called == "cmake" and "--build" in rest:
        return _cmake(rest, where, environment)
    if called == "meson" and rest[:1] == ["compile"]:
        return _meson(rest[1:], where)
    return None


def installs(command: Sequence[str]) -> bool:
    """Whether it copies what was built to where it is packed."""
    called = name(command)
    return ("--install" in command and called == "cmake") or (
        called == "meson" and "install" in command
    )


def _ninja(call: Call, rest: list[str]) -> Call | None:
    left = iter(rest)
    for word in left:
        if word.startswith(_NO_BUILD):
            return None
        option = next((one for one in _VALUED if word.startswith(one)), "")
        if not option:
            (call.flags if word.startswith("-") else call.targets).append(word)
            continue
        value = word[len(option) :] or next(left, "")
        if option == "-C":
            call.directory = os.path.join(call.directory, value)
        elif option == "-f":
            call.manifest = value
        else:
            call.flags += [option, value]
    return call


def _cmake(rest: list[str], where: str, environment: Mapping[str, str]) -> Call:
    """``cmake --build DIR`` (https://cmake.org/cmake/help/latest/manual/cmake.1.html)."""
    cut = rest.index("--") if "--" in rest else len(rest)
    rest, native = rest[:cut], rest[cut + 1 :]
    call = Call(where, lacks="cmake does not say where it builds")
    jobs = environment.get("CMAKE_BUILD_PARALLEL_LEVEL", "")
    left = iter(_split(rest))
    several = False
    for word in left:
        if word == "--build":
            call.directory, call.lacks = os.path.join(where, next(left, ".")), ""
        elif word in ("--target", "-t"):
            several = True
            continue
        elif word in ("--parallel", "-j"):
            jobs = ""
        elif word.startswith("-j"):
            jobs = word[2:]
        elif word in ("--config", "--resolve-package-references"):
            next(left, "")
        elif word in ("-v", "--verbose"):
            call.flags.append("-v")
        elif several and not word.startswith("-"):
            call.targets.append(word)
            continue
        elif word.isdecimal():
            jobs = word
        several = False
    if jobs:
        call.flags += ["-j", jobs]
    if call.lacks:
        return call
    call.lacks = _lacks(call)
    return _ninja(call, native) or Call(where, lacks="ninja builds nothing with such options")


def _split(rest: list[str]) -> list[str]:
    """``--target=x`` as two words."""
    return [
        part
        for word in rest
        for part in (word.split("=", 1) if word.startswith("--") and "=" in word else [word])
    ]


def _lacks(call: Call) -> str:
    """Why a directory of CMake's is not divided; its ninja is taken from its cache."""
    cache = os.path.join(call.directory, "CMakeCache.txt")
    generator = ""
    try:
        with open(cache, encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith(_MAKE):
                    call.program = [line.partition("=")[2].strip()]
                elif line.startswith(_GENERATOR):
                    generator = line.partition("=")[2].strip()
    except OSError as error:
        return f"no cache of CMake's: {error}"
    if generator != "Ninja":
        return f"CMake's generator is {generator or 'not known'}, not Ninja (CMAKE_GENERATOR)"
    return ""


def _meson(rest: list[str], where: str) -> Call | None:
    """``meson compile`` (https://mesonbuild.com/Commands.html#compile)."""
    call = Call(where)
    given: list[str] = []
    left = iter(_split(rest))
    for word in left:
        if word == "-C":
            call.directory = os.path.join(where, next(left, "."))
        elif word in ("-j", "-l", "--jobs", "--load-average"):
            call.flags += ["-" + word.lstrip("-")[0], next(left, "")]
        elif word in ("-v", "--verbose"):
            call.flags.append("-v")
        elif word == "--ninja-args":
            text = next(left, "")
            given = ast.literal_eval(text) if text.startswith("[") else text.split(",")
        elif not word.startswith("-"):
            call.targets.append(word)
    return _ninja(call, [str(one) for one in given])
