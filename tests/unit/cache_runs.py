"""What tests of the compile cache share: its specification, processes, and the real sccache."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from pipelines.remote import compilecache, process
from pipelines.toolchain import compilecache as plan
from pipelines.toolchain.compilecache import CompileCache

#: That of the test tools.
SCCACHE = shutil.which("sccache", path=str(Path(sys.executable).parent)) or ""
NVCC = shutil.which("nvcc") or next(
    (p for p in ("/usr/local/cuda/bin/nvcc",) if Path(p).exists()), ""
)
needs_sccache = pytest.mark.skipif(not SCCACHE, reason="sccache is not installed")
needs_nvcc = pytest.mark.skipif(not (SCCACHE and NVCC), reason="needs sccache and nvcc")


def cache(**keys: Any) -> CompileCache:
    made: CompileCache = TypeAdapter(CompileCache).validate_python(keys)
    return made


def spec(
    where: CompileCache, executable: str = "sccache", *, pinned: bool = True, **more: str
) -> compilecache.Spec | None:
    at: dict[str, Any] = {
        "directory": "/c",
        "nvcc": "/n/nvcc",
        "place": "/b/s",
        "packages": "/b/p/site",
        **more,
    }
    return plan.host_spec(where, executable=executable, pinned=pinned, **at)


def told(tmp_path: Path, executable: str, where: CompileCache | None = None) -> compilecache.Spec:
    made = spec(
        where or cache(kind="disk"),
        executable,
        directory=str(tmp_path / "cache"),
        place=str(tmp_path / "s"),
        packages=str(tmp_path / "p/site"),
        nvcc="/n o/nvcc",
    )
    assert made is not None
    return made


def children() -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = entry.joinpath("stat").read_text().rpartition(")")[2].split()[1]
            if parent == str(os.getpid()):
                found.append(entry.joinpath("cmdline").read_bytes().decode())
    return [line for line in found if "sccache" in line]


def compiled(tmp_path: Path, job: str, compiler: str, name: str, text: str) -> compilecache.Figures:
    """The cache's figures of one build, in a job's directory of its own, of one unit."""
    source = tmp_path / job / "src"
    source.mkdir(parents=True, exist_ok=True)
    (source / name).write_text(text)
    where = told(tmp_path, SCCACHE) | {"nvcc": compiler}
    with compilecache.running(where, source) as made:
        assert made.environment, made.status
        path = made.source / name
        for item in process.stream(
            ["sh", "-c", f"$PYTORCH_NVCC -c {path} -o {path}.o"],
            env={**os.environ, **made.environment},
            cwd=str(made.source),
        ):
            if isinstance(item, dict):
                assert item["exit"] == 0
                assert item["seconds"] < 60
        figures = made.figures()
    assert (source / f"{name}.o").stat().st_size > 0
    assert not children()
    return figures
