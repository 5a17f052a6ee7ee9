"""Builds of one tree as :mod:`pipelines.remote.builder` does them, whole and in shares.

``torch`` is a stand-in that writes its build.ninja and starts ninja as torch's BuildExtension does;
ninja, the compiler and setuptools are real.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from pipelines.remote import builder, sharding

LACKING = [name for name in ("ninja", "g++") if not shutil.which(name)]

TORCH = '''
"""As much of torch.utils.cpp_extension as compiles C++."""
import os, subprocess, sys
from setuptools.command.build_ext import build_ext

def escaped(path):
    return path.replace(":", "$:").replace(" ", "$ ")

def _write_ninja_file(path, *, sources, objects, cflags):
    lines = [
        "ninja_required_version = 1.3",
        "cxx = " + os.environ.get("CXX", "g++"),
        "",
        "cflags = " + " ".join(cflags),
        "",
        "rule compile",
        "  command = $cxx -MMD -MF $out.d $cflags -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "",
    ]
    for source, made in zip(sources, objects):
        lines.append(f"build {escaped(made)}: compile {escaped(os.path.abspath(source))}")
    with open(path, "w") as file:
        file.write("\\n".join(lines) + "\\n")

class BuildExtension(build_ext):
    def build_extensions(self):
        def compile(sources, output_dir=None, extra_postargs=None, depends=None, **named):
            output_dir = os.path.abspath(output_dir)
            _, objects, post, options, _ = self.compiler._setup_compile(
                output_dir, named.get("macros"), named.get("include_dirs"), sources, depends,
                extra_postargs)
            flags = ["-fPIC", *options, *(extra_postargs or ())]
            _write_ninja_file(os.path.join(output_dir, "build.ninja"),
                              sources=sources, objects=objects, cflags=flags)
            command = ["ninja", "-v"]
            if os.environ.get("MAX_JOBS", "").isdigit():
                command += ["-j", os.environ["MAX_JOBS"]]
            try:
                subprocess.run(command, shell=False, stdout=1, stderr=subprocess.STDOUT,
                               cwd=output_dir, check=True, env=os.environ.copy())
            except subprocess.CalledProcessError as error:
                raise RuntimeError("Error compiling objects for extension") from error
            return objects
        self.compiler.compile = compile
        super().build_extensions()
'''
SETUP = """
import os
from setuptools import Extension, setup
from torch.utils.cpp_extension import BuildExtension
setup(name="mine", version="1", py_modules=[], packages=[],
      ext_modules=[{extensions}], cmdclass={{"build_ext": BuildExtension}})
"""
MODULE = (
    '#include "common.h"\n'
    'extern "C" int {name}() {{ return PLUS + {number}; }}\n'
    "const char *{name}_place() {{ return __FILE__; }}\n"
)


def extensions(tree: Path, **units: int) -> Path:
    """A project: for each extension a number of units with a header in common."""
    made = []
    (tree / "src dir").mkdir(parents=True)
    (tree / "common.h").write_text("#define PLUS 1\n")
    for name, count in units.items():
        sources = [f"src dir/{name}_{number}.cpp" for number in range(count)]
        for number, source in enumerate(sources):
            text = MODULE.format(name=f"{name}_{number}", number=number)
            (tree / source).write_text(text)
        made.append(f"Extension({name!r}, {sources}, include_dirs=[os.getcwd()])")
    (tree / "setup.py").write_text(SETUP.format(extensions=", ".join(made)))
    return tree


class Builds:
    """Builds of one tree by one host; jobs go by their names."""

    def __init__(self, room: Path, tree: Path, python: str = sys.executable) -> None:
        self.room, self.tree, self.python = room, tree, python
        self.fixed = True
        self.log = ""
        self.read: dict[str, str] = {}
        site = room / "site/torch/utils"
        if not site.exists():
            site.mkdir(parents=True)
            (site.parent / "__init__.py").touch()
            (site / "__init__.py").touch()
            (site / "cpp_extension.py").write_text(TORCH)
        self.environment = {
            "PYTHONPATH": str(room / "site"),
            "SOURCE_DATE_EPOCH": "1700000000",
            "MAX_JOBS": "2",
        }

    def spec(self, job: str, units: Mapping[str, Any] | None = None) -> builder.Spec:
        """What the host is given for the job."""
        archive = self.room / f"{job}.tar.gz"
        with tarfile.open(archive, "w:gz") as members:
            for path in sorted(self.tree.rglob("*")):
                if path.is_file():
                    info = tarfile.TarInfo(path.relative_to(self.tree).as_posix())
                    data = path.read_bytes()
                    info.size, info.mtime = len(data), int(path.stat().st_mtime)
                    members.addfile(info, io.BytesIO(data))
        spec: dict[str, Any] = {
            "directory": str(self.room / job),
            "archive": str(archive),
            "python": self.python,
            "environment": self.environment,
            "timeout": 300.0,
        }
        spec |= {"fixed": str(self.room / "fixed")} if self.fixed else {}
        return cast("builder.Spec", spec | ({"units": units} if units is not None else {}))

    def run(self, job: str, units: Mapping[str, Any] | None = None) -> builder.Built:
        """How the build ended; its log is kept in ``log``."""
        *said, result = builder.build(self.spec(job, units))
        self.log = b"".join(item for item in said if isinstance(item, bytes)).decode()
        assert isinstance(result, dict)
        return result

    def share(
        self, number: int, count: int, costs: Sequence[object] = (), job: str = ""
    ) -> builder.Built:
        """One share, compiled."""
        units = {"mode": "compile", "share": [number, count], "costs": costs, "cost": 1.0}
        done = self.run(job or f"share{number}of{count}", units)
        self.read |= done.get("read", {})
        return done

    def shares(self, count: int) -> list[sharding.ForeignObject]:
        """The objects of all shares."""
        found: list[sharding.ForeignObject] = []
        for number in range(1, count + 1):
            done = self.share(number, count)
            assert done["exit"] == 0, self.log
            assert not done["wheels"]
            found += given(done)
        return found

    def sent(
        self, objects: Sequence[sharding.ForeignObject], job: str
    ) -> list[sharding.ForeignObject]:
        """The objects where the controller puts them for a link, by their hashes."""
        folder = self.room / job / "objects"
        folder.mkdir(parents=True, exist_ok=True)
        return [
            {**row, "path": shutil.copy(row["path"], str(folder / row["sha256"]))}
            for row in objects
        ]

    def link(
        self,
        objects: Sequence[sharding.ForeignObject],
        job: str = "link",
        read: Mapping[str, str] | None = None,
    ) -> builder.Built:
        """The wheel of these objects; of each unit that is known there is one."""
        known = [row["unit"] for row in objects]
        asked = {"objects": list(objects), "known": known, "read": read or self.read}
        return self.run(job, {"mode": "link", **asked, "cost": 1.0})


def given(done: builder.Built) -> list[sharding.ForeignObject]:
    """The objects of a share as a link takes them."""
    return [
        {"unit": row["unit"], "path": row["path"], "sha256": row["sha256"]}
        for row in done["objects"]
    ]


def wheels(done: builder.Built) -> list[str]:
    """The sha256 of each wheel."""
    return [row["sha256"] for row in done["wheels"]]


def compiled(log: str) -> int:
    """How many units a log tells to have been compiled."""
    return sum(" -c " in line and " -o " in line for line in log.splitlines())


def without_wheels(room: Path) -> bool:
    """Whether no wheel lies anywhere, wherever it might be taken for one."""
    return not [path for path in room.rglob("*.whl") if os.path.isfile(path)]  # noqa: PTH113
