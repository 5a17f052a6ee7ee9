"""The compile cache with the real sccache, and with nvcc where there is one."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from cache_runs import NVCC, SCCACHE, compiled, needs_nvcc, needs_sccache, told
from projects import project

from pipelines.remote import builder, compilecache, sccache

pytestmark = pytest.mark.slow


if sys.platform == "win32":
    pytest.skip("the compiler is started by sh", allow_module_level=True)


@needs_sccache
def test_a_unit_is_compiled_once_for_two_jobs(tmp_path: Path) -> None:
    text = "#include <cassert>\nint f(int x) { assert(x); return x + 1; }\n"  # has __FILE__ in it
    compiler = shutil.which("g++") or ""
    if not compiler:
        pytest.skip("no g++")
    first = compiled(tmp_path, "1", compiler, "a.cpp", text)
    assert (first["hits"], first["misses"], first["errors"]) == (0, 1, 0)
    second = compiled(tmp_path, "2", compiler, "a.cpp", text)
    assert (second["hits"], second["misses"]) == (1, 0)
    third = compiled(tmp_path, "3", compiler, "a.cpp", text.replace("1", "2"))
    assert (third["hits"], third["misses"]) == (0, 1)
    kept = compilecache.stats(SCCACHE, str(tmp_path / "cache"))
    assert kept["entries"] >= 2
    assert compilecache.prune(str(tmp_path / "cache"), 0)["bytes"] == 0
    assert compiled(tmp_path, "4", compiler, "a.cpp", text)["misses"] == 1


@needs_nvcc
def test_every_step_of_nvcc_is_found_again_by_another_job(tmp_path: Path) -> None:
    text = (
        "#include <cassert>\n__global__ void f(float *x) { assert(x); x[threadIdx.x] += 1; }\n"
        "void g(float *x) { f<<<1, 32>>>(x); }\n"
    )
    first = compiled(tmp_path, "1", NVCC, "a.cu", text)
    assert first["misses"] >= 3, first
    second = compiled(tmp_path, "2", NVCC, "a.cu", text)
    assert second["misses"] == 0, second
    assert second["hits"] >= 1


@needs_nvcc
def test_a_second_python_compiles_nothing_again(tmp_path: Path) -> None:
    """Its torch has the same headers at another place, and that place is in a message of theirs."""
    source = tmp_path / "source"
    project(
        source,
        "import os, subprocess, torch\n"
        "def build_wheel(out):\n"
        "    where = os.path.join(os.path.dirname(torch.__file__), 'include')\n"
        "    unit = os.path.abspath('a.cu')\n"
        "    command = f'$PYTORCH_NVCC -I{where} -c {unit} -o {unit}.o'\n"
        "    subprocess.run(['sh', '-c', command], check=True)\n"
        "    open(os.path.join(out, 'x.whl'), 'wb').write(open(f'{unit}.o', 'rb').read())\n"
        "    return 'x.whl'\n",
    )
    (source / "a.cu").write_text(
        "#include <check.h>\n__global__ void f(float *x) { x[threadIdx.x] += 1; }\n"
        "void g(float *x) { check(x); f<<<1, 32>>>(x); }\n"
    )
    with tarfile.open(tmp_path / "source.tar.gz", "w:gz") as archive:
        for path in sorted(source.iterdir()):
            archive.add(path, path.name)
    cache, results = told(tmp_path, SCCACHE) | {"nvcc": NVCC}, []
    for number in ("1", "2"):
        include = tmp_path / f"python{number}/torch/include"
        include.mkdir(parents=True)
        (include.parent / "__init__.py").touch()
        (include / "check.h").write_text(
            "#include <cassert>\n#include <cstdio>\n"
            "inline void check(void *x) { if (!x) puts(__FILE__); }\n"
        )
        spec: builder.Spec = {
            "directory": str(tmp_path / number),
            "archive": str(tmp_path / "source.tar.gz"),
            "python": sys.executable,
            "environment": {"PYTHONPATH": str(include.parents[1])},
            "timeout": 120,
            "cache": cache,
        }
        *said, result = builder.build(spec)
        assert isinstance(result, dict)
        assert result["exit"] == 0, said
        results.append(result)
    first, second = (result["cache"] for result in results)
    assert first["misses"] >= 3, first
    assert (second["misses"], second["hits"]) == (0, first["misses"]), second
    assert results[0]["wheels"][0]["sha256"] == results[1]["wheels"][0]["sha256"]


@needs_sccache
def test_the_server_of_a_runner_that_was_killed_is_replaced(tmp_path: Path) -> None:
    """As a job of the host runs: the runner ends by SIGKILL, the server is left."""
    where = told(tmp_path, SCCACHE)
    code = (
        "import json, sys, pathlib, time\nfrom pipelines.remote import compilecache\n"
        "with compilecache.running(json.loads(sys.argv[1]), pathlib.Path(sys.argv[2])):\n"
        "    print('up', flush=True)\n    time.sleep(600)\n"
    )
    source = tmp_path / "1" / "src"
    source.mkdir(parents=True)
    (source / "kept").touch()
    runner = subprocess.Popen(
        [sys.executable, "-c", code, json.dumps(where), str(source)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert runner.stdout is not None
    assert runner.stdout.readline() == b"up\n"
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    runner.stdout.close()
    left = sccache.address_of(tmp_path / "cache")
    assert sccache.answers(left)
    with compilecache.running(where, tmp_path / "2" / "src") as made:
        assert made.environment["SCCACHE_SERVER_UDS"] != left["SCCACHE_SERVER_UDS"]
        assert not sccache.answers(left)
        assert (source / "kept").exists()
