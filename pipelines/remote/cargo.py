"""Builds a Rust crate on the host, its CUDA kernels first: as a library cached under a key.

ninja compiles them: it starts the slow ones first, continues after an interruption, and detects
incomplete objects. A second build with the same key uses the cached library and only links.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from typing import TypedDict

from . import awake, builder, compilecache, files, locks, process, protected_dirs, usage
from .resources import commands
from .rpc import idempotent
from .shards import compile_units

_TURN = 60.0  # seconds to wait for another build of the same library
_NOTE = "library.json"
_OBJECTS = "build"  # where the resource gauge looks for ninja's log
_KEY = re.compile(r"[0-9a-f]{16}")
_LONGEST = 1 << 20  # bytes of one line of cargo's output

#: The result of a function that runs programs: the last exit code, and whether it timed out.
_Ended = tuple[int, bool]


class Unit(TypedDict):
    """A kernel to compile, relative to the project's directory, and its object's file name."""

    source: str
    object: str


class Steps(TypedDict):
    """How to build the library, see recipe/library.py."""

    key: str
    directory: str
    units: Sequence[Unit]
    compiler: Sequence[str]
    archiver: Sequence[str]
    library: Sequence[str]
    variable: str
    cargo: Sequence[str]
    verify: Sequence[str]


class _Optional(TypedDict, total=False):
    ninja: str
    """The program's path; empty looks on PATH, as for the next."""
    cargo: str


class Spec(builder.Source, _Optional):
    """Parameters of a crate build."""

    steps: Steps
    jobs: int
    toolkit: str
    """CUDA's directory."""
    root: str
    """Directory of cached libraries."""


class Library(builder.OutputFile):
    """The library of kernels."""

    key: str
    restored: bool
    """Whether it came from the cache; otherwise it was built."""
    seconds: float


class Built(builder.Built):
    """How a build ended; its timeline covers the kernels, empty if none was compiled."""

    library: Library | None
    programs: list[builder.OutputFile]
    """What ``verify`` linked."""


def build(spec: Spec) -> Generator[bytes | Built, None, None]:
    """Run a build; yields log bytes, then its result, which has no wheels."""
    if "units" in spec:
        raise ValueError("the kernels of a crate are one library and cannot be sharded")
    began = awake.seconds()
    job = pathlib.Path(spec["directory"])
    result: Built = {
        "exit": 1,
        "seconds": 0.0,
        "timed_out": False,
        "timeline": {},
        "cache": {},
        "wheels": [],
        "toolset": "",
        "leftovers": [],
        "library": None,
        "programs": [],
    }
    with compilecache.running(spec.get("cache"), job / "src") as cache:
        yield cache.line() + builder.drop_unflushed(job / "boot", cache.source)
        builder.unpack_source(spec["archive"], str(cache.source))
        made = _Build(spec, cache, began)
        code, late = yield from made.library(result)
        if not code and not late:
            code, late = yield from made.crate(result)
        result["cache"] = cache.figures()
    yield {**result, "exit": code, "timed_out": late, "seconds": awake.seconds() - began}


class _Build:
    """One build: its paths and its steps."""

    def __init__(self, spec: Spec, cache: compilecache.Running, began: float) -> None:
        self.steps, self.spec, self.cache = spec["steps"], spec, cache
        self.until = None if spec["timeout"] is None else began + spec["timeout"]
        self.project = cache.source.joinpath(*self.steps["directory"].split("/"))
        environment = {
            **builder.compiler_environment(spec.get("toolset", "")),
            **spec["environment"],
        }
        toolkit = pathlib.Path(spec["toolkit"])
        places = [str(toolkit / "bin"), *spec.get("programs", ()), environment.get("PATH", "")]
        environment["PATH"] = os.pathsep.join(places)
        if sys.platform == "win32":
            _before(environment, "LIB", toolkit / "lib" / "x64")
        else:
            _before(environment, "LIBRARY_PATH", toolkit / "lib64")
        self.environment = environment | cache.environment
        self.nvcc = self.program(self.steps["compiler"][0])
        version = _compiler_version_output([self.nvcc, "--version"])
        read = json.dumps(sorted(compile_units.read_by_compilers(environment).items()))
        stated = f"{self.steps['key']}\0{version}\0{self._host_compiler()}\0{read}"
        self.key = hashlib.sha256(stated.encode()).hexdigest()[:16]
        self.store = pathlib.Path(spec["root"]) / self.key

    def program(self, name: str) -> str:
        """Its path on the build's PATH, which differs from this process'."""
        path = commands.find(name, self.environment["PATH"])
        if path is None:
            raise FileNotFoundError(f"{name} is not on the host's PATH")
        return path

    def _host_compiler(self) -> str:
        if sys.platform == "win32":
            return self.environment.get("VCTOOLSVERSION", "")
        return _compiler_version_output([self.program("c++"), "--version"])

    def run(self, command: list[str], **more: str) -> Generator[bytes, None, _Ended]:
        """Run a program in the project's directory; yields its output."""
        left = None if self.until is None else max(0.1, self.until - awake.seconds())
        environment = {**self.environment, **more}
        for item in process.stream(command, env=environment, cwd=str(self.project), timeout=left):
            if isinstance(item, dict):
                return item["exit"], item["timed_out"]
            yield item
        raise RuntimeError("the stream ended without an exit code")

    # -- the library ------------------------------------------------------------------------------

    def library(self, result: Built) -> Generator[bytes, None, _Ended]:
        """Provide the library in the store, compiled or cached."""
        began = awake.seconds()
        protected_dirs.make(self.store.parent)
        with locks.claim(self.store.with_name(f"{self.key}.lock"), _TURN) as mine:
            if not mine:
                raise RuntimeError(f"another build on this host is creating {self.store}")
            cached, damaged = self._kept()
            if damaged:
                yield f"{self.store}: {damaged}: rebuilding it\n".encode()
                files.remove_tree(str(self.store))
            if cached is None:
                ended = yield from self._make(result)
                if ended != (0, False):
                    return ended
                cached, damaged = self._kept()
                if cached is None:
                    raise RuntimeError(f"{self.store} is damaged: {damaged}")
                restored = False
            else:
                restored = True
                os.utime(self.store / _NOTE)  # mark as used
            seconds = awake.seconds() - began
        result["library"] = {**cached, "key": self.key, "restored": restored, "seconds": seconds}
        how = "restored" if restored else "made"
        yield f"library {self.key} {how} in {seconds:.1f} s, {cached['size']:,} bytes\n".encode()
        return 0, False

    def _kept(self) -> tuple[builder.OutputFile | None, str]:
        """The library if it is intact; else why not, empty if none exists."""
        try:
            note = json.loads((self.store / _NOTE).read_text("utf-8"))
        except FileNotFoundError:
            return None, ""
        except ValueError:
            return None, f"{_NOTE} is damaged"
        first = self.store / self.steps["library"][0]
        for name in self.steps["library"]:
            path = self.store / name
            try:
                same = path != first and path.samefile(first)
                if not same and files.sha256(str(path)) != note["sha256"]:
                    return None, f"{name} does not match its record"
            except OSError:
                return None, f"{name} is missing"
        return {"path": str(first), "size": first.stat().st_size, "sha256": note["sha256"]}, ""

    def _make(self, result: Built) -> Generator[bytes, None, _Ended]:
        objects = self.store / _OBJECTS
        yield builder.drop_unflushed(self.store.with_name(f"{self.key}.boot"), objects)
        objects.mkdir(parents=True, exist_ok=True)
        rules = self.store / "build.ninja"
        rules.write_text(self._rules(objects), "utf-8")
        ninja = self.spec.get("ninja") or self.program("ninja")
        command = [ninja, "-f", str(rules), "-j", str(self.spec["jobs"])]
        measured = usage.Gauge()
        try:
            ended = yield from self.run(command, NINJA_STATUS="[%f/%t] ")
        finally:
            result["timeline"] = measured.finish(self.store)
        if ended != (0, False):
            return ended
        out = self.store / f"joined{pathlib.Path(self.steps['library'][-1]).suffix}"
        out.unlink(missing_ok=True)  # ar would append to it
        first, *words = (word.replace("{out}", str(out)) for word in self.steps["archiver"])
        paths = [str(objects / unit["object"]) for unit in self.steps["units"]]
        ended = yield from self.run([self.program(first), *words, *paths])
        if ended == (0, False):
            self._keep(out)
        return ended

    def _rules(self, objects: pathlib.Path) -> str:
        """A build.ninja that compiles every unit in this order."""
        lines = ["builddir = " + _literal(str(objects)), "rule unit"]
        lines += ["  command = $words", "  description = $name"]
        for unit in self.steps["units"]:
            target = str(objects / unit["object"])
            words = [*self.cache.launcher, self.nvcc, *self.steps["compiler"][1:]]
            words += ["-o", target, unit["source"]]
            line = compilecache.quoted(words)
            lines.append(
                f"build {_escape_ninja_path(target)}: unit {_escape_ninja_path(unit['source'])}"
            )
            lines.append(f"  words = {_literal(line)}")
            lines.append(f"  name = {_literal(unit['source'].rpartition('/')[2])}")
        return "\n".join(lines) + "\n"

    def _keep(self, out: pathlib.Path) -> None:
        """Store it under every name; the note comes last and makes it valid."""
        first, *others = (self.store / name for name in self.steps["library"])
        sha256 = files.sha256(str(out))
        files.replace(str(out), str(first))
        for other in others:
            other.unlink(missing_ok=True)
            try:
                os.link(first, other)
            except OSError:  # a file system without hard links
                shutil.copyfile(first, other)
        part = self.store / f"{_NOTE}.part"
        part.write_text(json.dumps({"sha256": sha256}), "utf-8")
        files.replace(str(part), str(self.store / _NOTE))
        files.remove_tree(str(self.store / _OBJECTS))  # they are in the library

    # -- the crate --------------------------------------------------------------------------------

    def crate(self, result: Built) -> Generator[bytes, None, _Ended]:
        """Run cargo with the library, then link programs with it."""
        more = {
            self.steps["variable"]: str(self.store),
            "CARGO_TERM_COLOR": "never",
            # Cargo does not rerun a build script for a changed variable: another library, another
            # target.
            "CARGO_TARGET_DIR": str(pathlib.Path(self.spec["directory"]) / f"target-{self.key}"),
        }
        cargo = self.spec.get("cargo") or self.program("cargo")
        ended = yield from self.run([cargo, *self.steps["cargo"][1:]], **more)
        if ended != (0, False) or not self.steps["verify"]:
            return ended
        words = [*self.steps["verify"][1:], "--message-format=json-render-diagnostics"]
        rest, ended = b"", (1, False)
        stream = self.run([cargo, *words], **more)
        while True:
            try:
                *lines, rest = (rest + next(stream)).split(b"\n")
            except StopIteration as end:
                ended = (int(end.value[0]), bool(end.value[1]))
                break
            for line in lines:
                yield from _program_version(line + b"\n", result)
            if len(rest) > _LONGEST:
                yield rest
                rest = b""
        if rest:
            yield from _program_version(rest, result)
        return ended


def _program_version(line: bytes, result: Built) -> Iterator[bytes]:
    """Extract the programs from cargo's messages; other lines go to the log."""
    if not line.startswith(b"{"):
        yield line
        return
    try:
        path = json.loads(line).get("executable")
    except ValueError:
        yield line
        return
    with contextlib.suppress(OSError):
        if path:
            result["programs"].append(builder.left(pathlib.Path(path)))


def _compiler_version_output(command: list[str]) -> str:
    """The version a compiler reports."""
    code, output = process.capture(command, timeout=60)
    if code:
        raise RuntimeError(f"{command[0]} --version exited with {code}: {output[-300:]}")
    return output


def _before(environment: dict[str, str], name: str, folder: pathlib.Path) -> None:
    environment[name] = os.pathsep.join(filter(None, [str(folder), environment.get(name, "")]))


def _literal(text: str) -> str:
    return text.replace("$", "$$")


def _escape_ninja_path(text: str) -> str:
    return text.replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


# -- space -----------------------------------------------------------------------------------------


class Row(TypedDict):
    """A cached library, or an unfinished one."""

    key: str
    bytes: int
    used: float
    """In seconds since the epoch."""
    whole: bool


@idempotent
def libraries(root: str) -> list[Row]:
    """The libraries below ``root``."""
    rows: list[Row] = []
    for folder in pathlib.Path(root).glob("*"):
        if folder.is_dir() and _KEY.fullmatch(folder.name):
            note = folder / _NOTE
            seen: dict[int, int] = {}
            for path in folder.rglob("*"):
                with contextlib.suppress(OSError):
                    stat = path.lstat()
                    seen[stat.st_ino or len(seen)] = stat.st_size  # hard links count once
            used = (note if note.exists() else folder).stat().st_mtime
            size = sum(seen.values())
            rows.append({"key": folder.name, "bytes": size, "used": used, "whole": note.exists()})
    return sorted(rows, key=lambda row: -row["used"])


@idempotent
def prune(root: str, days: float) -> list[str]:
    """Remove libraries that no build has used for so many days; their keys."""
    removed = []
    for row in libraries(root):
        folder = pathlib.Path(root) / row["key"]
        if time.time() - row["used"] < days * 86400:
            continue
        with locks.claim(folder.with_name(f"{row['key']}.lock")) as mine:
            if mine:
                files.remove_tree(str(folder))
                removed.append(row["key"])
    return removed
