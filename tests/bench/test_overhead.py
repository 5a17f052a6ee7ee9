"""What ``invoke build`` adds to a bare ``pip wheel`` of the same tree; both compile all of it.

``OVERHEAD_PYTHON`` names a Python that has what the package needs to be built, ``OVERHEAD_FLAGS``
what else ``invoke build`` is told (``--recipe``, ``--torch``, ``--archs``, ``--offline``, ...),
``OVERHEAD_CUDA`` a toolkit that is not found by itself.
pip gets the source, environment and number of jobs that the pipeline chose.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines.remote.builder import unpack_source

ROOT = Path(__file__).resolve().parents[2]


def seconds(command: list[str], environment: dict[str, str], where: Path) -> float:
    began = time.monotonic()
    done = subprocess.run(
        command,
        cwd=where,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode("utf-8", "replace")[-3000:]
    return time.monotonic() - began


def test_overhead_over_pip_wheel(tmp_path: Path) -> None:
    told = os.environ.get("OVERHEAD_PYTHON")
    if not told:
        pytest.skip("OVERHEAD_PYTHON names no Python that can build")
    python = Path(told).absolute()
    host = {"kind": "local", "python": str(python), "root": str(tmp_path / "root")}
    if cuda := os.environ.get("OVERHEAD_CUDA"):
        host["cuda"] = cuda
    config = {"default": {"host": "here"}, "hosts": {"here": host}, "out": str(tmp_path / "out")}
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    environment = {**os.environ, "WCW_CONFIG": str(tmp_path / "config.yaml")}
    flags = shlex.split(os.environ.get("OVERHEAD_FLAGS", ""))
    invoke = str(ROOT / ".venv" / "bin" / "invoke")
    ours = seconds([invoke, "build", *flags], environment, ROOT)
    ours_wheel = next((tmp_path / "out").glob("*/wheels/*.whl"))

    spec = json.loads(next((tmp_path / "root").glob("b/*/spec.json")).read_text())
    spec = spec["arguments"]["spec"]
    source = tmp_path / "source"
    unpack_source(spec["archive"], str(source))
    bare = {k: v for k, v in {**os.environ, **spec["environment"]}.items() if k[:4] != "WCW_"}
    bare["PATH"] = f"{python.parent}{os.pathsep}{bare['PATH']}"
    # Else torch takes an sccache that it finds, and what ours has put there.
    bare["TORCH_NO_COMPILER_WRAPPER"] = "1"
    pip = [str(python), "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-cache-dir"]
    theirs = seconds([*pip, "--wheel-dir", str(tmp_path / "pip"), str(source)], bare, tmp_path)
    assert next((tmp_path / "pip").glob("*.whl")).name == ours_wheel.name
    sys.stdout.write(
        f"\nFIGURE invoke build {ours:.1f} s, pip wheel {theirs:.1f} s: "
        f"{100 * (ours / theirs - 1):+.1f} %   goal below +2 %"
    )
