"""What ``invoke audit --torch`` costs, on wheels of others; they are fetched once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pefile
import pytest
from test_figures import show

from pipelines.audit.loads import look_up_imports
from pipelines.audit.lookup import torch_exports
from pipelines.plan.prebuilt.candidates import list_wheel_offers
from pipelines.plan.prebuilt.downloads import fetch_all
from pipelines.toolchain.lock import Cache, load_lock
from pipelines.toolchain.sources import index_url
from pipelines.wheels.metadata import inspect_wheel
from pipelines.wheels.pe import read_pe

XFORMERS = "xformers-0.0.30-cp311-cp311-win_amd64.whl"
#: How many names of xformers' ``_C.pyd`` each torch does not have, by DLL.
LACKS = {"2.7.0": {}, "2.8.0": {"c10.dll": 1}, "2.5.1": {"c10.dll": 1, "torch_cpu.dll": 8}}
#: In a process of its own: the peak of its memory is wanted.
MEASURED = """
import json, sys, time
from pathlib import Path
from pipelines.audit.examination import AuditOptions, audit_wheel
from pipelines.audit.load_checks import references_to
from pipelines.audit.inputs import Input
from pipelines.toolchain.lock import Cache, load_lock
from pipelines.wheels import binary
path = Path(sys.argv[1])
if sys.argv[2:] == ["labels"]:  # as it was: the containers' labels alone
    binary.read_code = lambda *_: binary.Reading()
    binary.read_host = lambda *_: ()
began, used = time.monotonic(), time.process_time()
cache = Cache(load_lock(), offline=True)
references = references_to(["2.7.0"], [path.name], cache)
found = audit_wheel(Input(path.name, "", path), AuditOptions(references=references))
print(json.dumps({
    "seconds": time.monotonic() - began, "cpu": time.process_time() - used,
    # ru_maxrss would begin with that of the process which started this one.
    "kib": int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]),
    "verdicts": {one.against: one.verdict for one in found.loads},
}))
"""


@pytest.fixture(scope="module")
def wheel() -> Path:
    cache = Cache(load_lock())
    (offer,) = [one for one in list_wheel_offers(index_url(), "xformers") if one.file == XFORMERS]
    (kept,) = fetch_all([offer], cache)
    return cache.place(kept.file, kept.sha256 or "")


def test_which_torch_xformers_loads_with(wheel: Path) -> None:
    """By the genuine wheels of torch; each misses what Windows would fail with."""
    cache = Cache(load_lock())
    began = time.monotonic()
    tables = [torch_exports(release, cache, python="3.11") for release in LACKS]
    show("exports of three releases of torch", f"{time.monotonic() - began:.1f} s", "1 s if kept")
    binaries = [one for one in inspect_wheel(wheel).binaries if one.name.endswith("/_C.pyd")]
    found = {one.against: one for one in look_up_imports(binaries, tables)}
    for release, lacks in LACKS.items():
        loads = found[f"torch {release} (cp311)"]
        libraries = [one.library for one in loads.missing]
        assert {one: libraries.count(one) for one in libraries} == lacks
        assert {one.partition(":")[0] for one in loads.unknown} == {
            "c10_cuda.dll",
            "torch_cuda.dll",
        }


def test_the_audit_of_a_large_wheel(wheel: Path) -> None:
    torch_exports("2.7.0", Cache(load_lock()), python="3.11")
    paths = {"PYTHONPATH": str(Path(__file__).parents[2])}

    def measured(*words: str) -> Any:
        command = [sys.executable, "-c", MEASURED, str(wheel), *words]
        done = subprocess.run(
            command, env={**os.environ, **paths}, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    told, labels = measured(), measured("labels")
    assert told["verdicts"]["torch 2.7.0 (cp311)"] == "unknown"  # without CUDA's DLLs
    show("audit of 268 MB of code, with torch's names", f"{told['seconds']:.1f} s", "3 s")
    ratio = told["cpu"] / labels["cpu"]
    show("of that, processor time", f"{told['cpu']:.1f} s", f"labels alone {labels['cpu']:.1f} s")
    show("reading the code, against its labels alone", f"{ratio:.2f} times", "1.3 times")
    show("its memory", f"{told['kib'] >> 10} MiB", "150 MiB")


def test_a_table_of_sixty_thousand_names(tmp_path: Path) -> None:
    """Of torch_cpu.dll, compared with pefile on the same bytes."""
    cache = Cache(load_lock())
    file = "torch-2.10.0-cp311-cp311-win_amd64.whl"
    pins = [one for one in cache.lock.tools.values() if one.file == file]
    path = cache.place(file, pins[0].sha256)
    if not path.is_file():
        pytest.skip("the sandbox has not fetched its torch yet")
    unzip = [sys.executable, "-m", "zipfile", "-e", str(path), str(tmp_path)]
    subprocess.run(unzip, check=True)
    data = (tmp_path / "torch/lib/torch_cpu.dll").read_bytes()
    began = time.process_time()
    ours = read_pe(data).exports
    took = time.process_time() - began
    began = time.process_time()
    pe = pefile.PE(data=data, fast_load=True, max_symbol_exports=1 << 20)
    pe.parse_data_directories([0])
    theirs = time.process_time() - began
    assert ours
    show(f"{len(ours) // 2} exported names", f"{took:.2f} s", f"pefile {theirs:.2f} s")
