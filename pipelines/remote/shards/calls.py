"""The commands a build system starts: which are ninja, in which directory and for what.

``cmake --build`` and ``meson compile`` start ninja themselves, in a process that cannot be
intercepted, so ninja is started directly instead.
"""

from __future__ import annotations

import ast
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: Options of ninja with a value, and those that prevent it from building.
_VALUED = ("-C", "-f", "-j", "-k", "-l", "-d", "-w")
_NO_BUILD = ("-t", "-n", "-h", "--help", "--version")
_SHELL = frozenset("&|;<>`$%^()")
_MAKE = "CMAKE_MAKE_PROGRAM:"
_GENERATOR = "CMAKE_GENERATOR:"


@dataclass
class Call:
    """One start of ninja."""

    directory: str
    """Absolute path on the host it runs on."""
    program: list[str] = field(default_factory=lambda: ["ninja"])
    manifest: str = "build.ninja"
    """Relative to its directory."""
    flags: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    reason: str = ""
    """Why it cannot be sharded; the other fields are unused then."""


def words(arguments: object) -> list[str]:
    """A command as a list; empty if a shell would do more than start it."""
    if isinstance(arguments, str | bytes | os.PathLike):
        text = os.fsdecode(arguments)
        if _SHELL & set(text):
            return []
        try:
            parts = shlex.split(text, posix=sys.platform != "win32")
        except ValueError:
            return []
        return [word.strip('"') for word in parts]
    if isinstance(arguments, Sequence):
        return [
            os.fsdecode(word) for word in arguments if isinstance(word, str | bytes | os.PathLike)
        ]
    return []


def name(command: Sequence[str]) -> str:
    """The program a command starts, without directory and .exe; ``-m`` of a Python counts."""
    first = _program_base_name(command[0]) if command else ""
    if first.startswith("python") and list(command[1:2]) == ["-m"]:
        return _program_base_name(command[2]) if len(command) > 2 else first  # noqa: PLR2004
    return first


def _program_base_name(program: str) -> str:
    base = os.path.basename(program.replace("\\", "/")).lower()
    return base.removesuffix(".exe")


def read(command: Sequence[str], where: str, environment: Mapping[str, str]) -> Call | None:
    """``command``, given in the directory ``where``, as a start of ninja; or ``None``."""
    called, module = name(command), command[1:2] == ["-m"]
    head = list(command[: 3 if module else 1])
    rest = list(command[len(head) :])
    if called in ("ninja", "ninja-build"):
        return _ninja(Call(where, head), rest)
    if called == "cmake" and "--build" in rest:
        return _parse_cmake_build(rest, where, environment)
    if called == "meson" and rest[:1] == ["compile"]:
        return _meson(rest[1:], where)
    return None


def installs(command: Sequence[str]) -> bool:
    """Whether it copies built files to the packaging directory."""
    called = name(command)
    return ("--install" in command and called == "cmake") or (
        called == "meson" and "install" in command
    )


def _ninja(call: Call, rest: list[str]) -> Call | None:
    left = iter(rest)
    for word in left:
        if word.startswith(_NO_BUILD):
            return None
        option = next((valued for valued in _VALUED if word.startswith(valued)), "")
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


def _parse_cmake_build(rest: list[str], where: str, environment: Mapping[str, str]) -> Call:
    """``cmake --build DIR`` (https://cmake.org/cmake/help/latest/manual/cmake.1.html)."""
    cut = rest.index("--") if "--" in rest else len(rest)
    rest, native = rest[:cut], rest[cut + 1 :]
    call = Call(where, reason="cmake does not report its build directory")
    jobs = environment.get("CMAKE_BUILD_PARALLEL_LEVEL", "")
    left = iter(_split_long_options(rest))
    several = False
    for word in left:
        if word == "--build":
            call.directory, call.reason = os.path.join(where, next(left, ".")), ""
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
    if call.reason:
        return call
    call.reason = _why_not_shardable(call)
    return _ninja(call, native) or Call(where, reason="ninja builds nothing with these options")


def _split_long_options(rest: list[str]) -> list[str]:
    """``--target=x`` as two arguments."""
    return [
        part
        for word in rest
        for part in (word.split("=", 1) if word.startswith("--") and "=" in word else [word])
    ]


def _why_not_shardable(call: Call) -> str:
    """Why a CMake build cannot be sharded; its ninja is read from its cache."""
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
        return f"no CMake cache: {error}"
    if generator != "Ninja":
        return f"CMake's generator is {generator or 'unknown'}, not Ninja (CMAKE_GENERATOR)"
    return ""


def _meson(rest: list[str], where: str) -> Call | None:
    """``meson compile`` (https://mesonbuild.com/Commands.html#compile)."""
    call = Call(where)
    options: list[str] = []
    left = iter(_split_long_options(rest))
    for word in left:
        if word == "-C":
            call.directory = os.path.join(where, next(left, "."))
        elif word in ("-j", "-l", "--jobs", "--load-average"):
            call.flags += ["-" + word.lstrip("-")[0], next(left, "")]
        elif word in ("-v", "--verbose"):
            call.flags.append("-v")
        elif word == "--ninja-args":
            text = next(left, "")
            options = ast.literal_eval(text) if text.startswith("[") else text.split(",")
        elif not word.startswith("-"):
            call.targets.append(word)
    return _ninja(call, [str(option) for option in options])
