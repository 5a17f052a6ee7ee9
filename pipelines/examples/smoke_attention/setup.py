"""Build smoke_attention: nvcc compiles each .cu file, setuptools' compiler the C file and the link.

Environment: SMOKE_ATTENTION_ARCHS, SMOKE_ATTENTION_LOCAL_VERSION, MAX_JOBS, CUDA_PATH or CUDA_HOME.
The README says what each holds. An object that is newer than its inputs and was made by the same
command is kept, so a build that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, OptionError

VERSION = "0.1.0"
DEFAULT_ARCHS = "75;80;86;89;90;120+PTX"
WINDOWS = sys.platform == "win32"
NVCC = "nvcc.exe" if WINDOWS else "nvcc"

#: Slowest first: the last to finish should not be the one that started last.
CUDA_SOURCES = [
    "src/attention_fp16_wide.cu",
    "src/attention_fp32_wide.cu",
    "src/attention_fp16_narrow.cu",
    "src/attention_fp32_narrow.cu",
]
C_SOURCE = "src/_core.c"
HEADERS = ["src/attention.h", "src/attention.cuh", "src/half.cuh"]

#: Object -> its line in the log of times, for those that were compiled now.
TIMES: dict[Path, str] = {}
BEGAN = time.monotonic()

#: Compilers read options from these too, so a change of theirs is a change of the command.
COMPILER_VARIABLES = ("CL", "_CL_", "CFLAGS", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")


class Archs(NamedTuple):
    """What device code to embed: machine code for each of ``sass``, PTX for each of ``ptx``."""

    asked: str
    sass: list[str]
    ptx: list[str]

    @classmethod
    def parse(cls, text: str) -> Archs:
        """Read a list such as ``75;80;120+PTX``."""
        sass: list[str] = []
        ptx: list[str] = []
        for entry in text.split(";"):
            found = re.fullmatch(r"(\d{2,3}[af]?)(\+PTX)?", entry.strip())
            if not found:
                raise SystemExit(
                    f"SMOKE_ATTENTION_ARCHS: {entry!r} in {text!r} is no architecture; expected "
                    f"a list like {DEFAULT_ARCHS!r}"
                )
            if found[1] in sass:
                raise SystemExit(f"SMOKE_ATTENTION_ARCHS: {found[1]} is listed twice in {text!r}")
            sass.append(found[1])
            if found[2]:
                ptx.append(found[1])
        return cls(text, sass, ptx)

    def flags(self) -> list[str]:
        """Return nvcc's -gencode options."""
        flags = []
        for arch in self.sass:
            code = f"[sm_{arch},compute_{arch}]" if arch in self.ptx else f"sm_{arch}"
            flags += ["-gencode", f"arch=compute_{arch},code={code}"]
        return flags


def version() -> str:
    """Return the wheel's version, with the local part that the environment asks for."""
    local = os.environ.get("SMOKE_ATTENTION_LOCAL_VERSION", "")
    if local and not re.fullmatch(r"[a-z0-9]+(\.[a-z0-9]+)*", local):
        raise SystemExit(
            f"SMOKE_ATTENTION_LOCAL_VERSION: {local!r} is no local version; expected something "
            "like 'cu130.sandbox' (lower case letters and digits between dots)"
        )
    return f"{VERSION}+{local}" if local else VERSION


def jobs() -> int:
    """Return how many units may compile at once."""
    text = os.environ.get("MAX_JOBS", "").strip()
    if not text:
        return os.cpu_count() or 1
    if not text.isdecimal() or int(text) < 1:
        raise SystemExit(f"MAX_JOBS: {text!r} is no number of jobs; expected 1 or more")
    return int(text)


def cuda_toolkit() -> Path:
    """Return the directory that holds CUDA's bin, include and lib."""
    nvcc = shutil.which("nvcc")
    places = [os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME")]
    if nvcc:
        places.append(str(Path(nvcc).resolve().parents[1]))
    if not WINDOWS:
        places.append("/usr/local/cuda")
    for place in filter(None, places):
        root = Path(place)
        if (root / "bin" / NVCC).is_file() and (root / "include" / "cuda_runtime.h").is_file():
            return root
    raise SystemExit(
        f"no CUDA toolkit: looked for bin/{NVCC} and include/cuda_runtime.h in "
        f"{[p for p in places if p]}; set CUDA_PATH to its directory"
    )


def cudart() -> str:
    """Return the linker's option for CUDA's run-time; NVIDIA's wheels have no libcudart.so."""
    names = sorted(path.name for path in LIBRARIES.glob("libcudart.so*"))
    return f"-l:{names[0]}" if names else "-lcudart"


def say(text: str) -> None:
    """Print whole lines in one write: several threads speak."""
    sys.stdout.write(text.rstrip("\n") + "\n")
    sys.stdout.flush()


def run(command: Iterable[str | os.PathLike[str]]) -> str:
    """Run a compiler, return what it printed; its words are part of the error if it fails.

    Its standard handles are pipes and never files, which not every Windows-like system can inherit.
    """
    words = [os.fspath(word) for word in command]
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise CompileError(f"could not start {words[0]}: {error}") from error
    if done.returncode:
        say(done.stdout)
        raise CompileError(
            f"{Path(words[0]).name} failed with exit code {done.returncode}: {words}"
        )
    return done.stdout


class Unit(NamedTuple):
    """One source file, the object it becomes, and how."""

    source: Path
    object: Path
    command: str
    compile: Callable[[], str]

    @property
    def stamp(self) -> Path:
        """The file beside the object that says which command made it."""
        return self.object.with_name(self.object.name + ".cmd")

    def recipe(self) -> str:
        """Return the command and what else steers the compiler, as text to compare."""
        seen = {name: os.environ[name] for name in COMPILER_VARIABLES if name in os.environ}
        return f"{self.command}\n{json.dumps(seen, sort_keys=True)}\n"

    def fresh(self) -> bool:
        """Tell whether the object can stay as it is."""
        try:
            if self.stamp.read_text(encoding="utf-8") != self.recipe():
                return False
            made = self.object.stat().st_mtime
        except OSError:
            return False
        return all(Path(p).stat().st_mtime <= made for p in [self.source, *HEADERS])

    def build(self) -> float:
        """Compile unless fresh; return the seconds it took."""
        if self.fresh():
            say(f"{self.source.name} is up to date")
            return 0.0
        started = time.monotonic()
        # The stamp goes first and comes last: a killed compiler can leave half an object.
        self.stamp.unlink(missing_ok=True)
        self.object.parent.mkdir(parents=True, exist_ok=True)
        say(self.command)
        printed = self.compile()
        if printed.strip():
            say(printed)
        self.stamp.write_text(self.recipe(), encoding="utf-8")
        seconds = time.monotonic() - started
        begin = round((started - BEGAN) * 1000)
        changed = self.object.stat().st_mtime_ns
        name = self.object.resolve().as_posix()
        TIMES[self.object] = f"{begin}\t{begin + round(seconds * 1000)}\t{changed}\t{name}\t0"
        return seconds


class BuildCuda(build_ext):
    """Compile the .cu files side by side, then the C file, and link them all."""

    def build_extension(self, ext: Extension) -> None:
        """Build the one extension, and write down how beside it."""
        if WINDOWS and not shutil.which("cl"):
            raise OptionError(
                "cl.exe is not on PATH: build from an x64 Native Tools command prompt"
            )
        say(f"nvcc: {TOOLKIT / 'bin' / NVCC}, architectures {ARCHS.asked}, {jobs()} jobs")
        objects = self.compile_all(ext)
        ext.sources, ext.extra_objects, ext.depends = [], objects, objects
        self.compiler.spawn = lambda cmd, **_: say(run(cmd))  # the linker, with our kind of handles
        super().build_extension(ext)
        self.write_build_info(Path(self.get_ext_fullpath(ext.name)).parent)

    def compile_all(self, ext: Extension) -> list[str]:
        """Compile what is not fresh, a line for each finished unit; return all objects."""
        units = [self.cuda_unit(Path(source)) for source in CUDA_SOURCES]
        last = self.c_unit(ext)
        total = len(units) + 1
        with ThreadPoolExecutor(jobs()) as pool:
            running = {pool.submit(unit.build): unit for unit in units}
            try:
                for done, future in enumerate(as_completed(running), 1):
                    seconds = future.result()
                    say(f"[{done}/{total}] {running[future].source.name} {seconds:.1f}s")
            except CompileError:
                pool.shutdown(cancel_futures=True)
                raise
        say(f"[{total}/{total}] {last.source.name} {last.build():.1f}s")
        self.write_times([*units, last])
        return [str(unit.object) for unit in [*units, last]]

    def write_times(self, units: list[Unit]) -> None:
        """Leave when each object was made as ninja does, for tools that draw the build."""
        rows = [TIMES[unit.object] for unit in units if unit.object in TIMES]
        if rows:
            text = "".join(f"{row}\n" for row in ["# ninja log v5", *rows])
            Path(self.build_temp, ".ninja_log").write_text(text, encoding="utf-8")

    def cuda_unit(self, source: Path) -> Unit:
        """Return the unit that nvcc compiles."""
        target = Path(self.build_temp) / source.with_suffix(".obj" if WINDOWS else ".o").name
        host = ["--use-local-env", "-Xcompiler", "/MD"] if WINDOWS else ["-Xcompiler", "-fPIC"]
        command: list[str] = [*COMPILER, "-c", str(source), "-o", str(target)]
        command += ["-O3", "-std=c++14", *host, *ARCHS.flags()]
        return Unit(source, target, subprocess.list2cmdline(command), lambda: run(command))

    def c_unit(self, ext: Extension) -> Unit:
        """Return the unit that setuptools' own compiler compiles."""
        (name,) = self.compiler.object_filenames([C_SOURCE], output_dir=self.build_temp)

        def compile_c() -> str:
            printed: list[str] = []
            spawn, self.compiler.spawn = (
                self.compiler.spawn,
                lambda cmd, **_: printed.append(run(cmd)),
            )
            try:
                self.compiler.compile(
                    [C_SOURCE], output_dir=self.build_temp, include_dirs=ext.include_dirs
                )
            finally:
                self.compiler.spawn = spawn
            return "".join(printed)

        command = f"{self.compiler.compiler_type} {C_SOURCE} {ext.include_dirs} {sys.version}"
        return Unit(Path(C_SOURCE), Path(name), command, compile_c)

    def write_build_info(self, directory: Path) -> None:
        """Leave what ``smoke_attention.build_info()`` reads, in the build tree."""
        release = re.search(r"release \S+ V(\S+)", run([TOOLKIT / "bin" / NVCC, "--version"]))
        info: dict[str, Any] = {
            "version": version(),
            "archs": ARCHS.asked,
            "sass": ARCHS.sass,
            "ptx": ARCHS.ptx,
            "cuda": release[1] if release else "",
        }
        text = json.dumps(info, indent=2) + "\n"
        (directory / "_build_info.json").write_text(text, encoding="utf-8")


BUILDING = not {"sdist", "egg_info", "dist_info", "clean", "--version", "--help"} & set(sys.argv)
TOOLKIT = cuda_toolkit() if BUILDING else Path()
ARCHS = Archs.parse(os.environ.get("SMOKE_ATTENTION_ARCHS") or DEFAULT_ARCHS)
# As torch's extensions have it: nvcc, perhaps with a compile cache before it.
COMPILER = shlex.split(os.environ.get("PYTORCH_NVCC", ""), posix=not WINDOWS)
COMPILER = COMPILER or [str(TOOLKIT / "bin" / NVCC)]
LIBRARIES = TOOLKIT / "lib" / "x64" if WINDOWS else TOOLKIT / "lib64"
if not LIBRARIES.is_dir():
    LIBRARIES = TOOLKIT / "lib"  # the layout of NVIDIA's wheels

setup(
    version=version(),
    cmdclass={"build_ext": BuildCuda},
    ext_modules=[
        Extension(
            "smoke_attention._core",
            [C_SOURCE],
            include_dirs=[str(TOOLKIT / "include")],
            library_dirs=[str(LIBRARIES)],
            # nvcc's host code is C++, and on Linux a C extension's link does not bring its library
            libraries=["cudart"] if WINDOWS else ["stdc++"],
            extra_link_args=[] if WINDOWS else [cudart()],
            # Linux looks for cudart in NVIDIA's wheel beside us, then where we built.
            runtime_library_dirs=[]
            if WINDOWS
            else ["$ORIGIN/../nvidia/cu13/lib", str(LIBRARIES.resolve())],
        )
    ],
)
