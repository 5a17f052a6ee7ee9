"""What a GPU will run of a file, whether a driver is new enough, what a torch does not have."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from smoke_runs import SMOKE, device_code, fake_driver, run, shipped, wheel

from pipelines.wheels.fatbin import inventory

pytestmark = pytest.mark.slow


needs_cc = pytest.mark.skipif(
    os.name == "nt" or not shutil.which("cc"), reason="makes a shared library with cc"
)


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModuleType]:
    """The shipped modules, imported from a folder as on a host."""
    folder = tmp_path_factory.mktemp("shipped")
    for name, text in shipped("flash_attn").items():
        (folder / name).write_text(text, "utf-8")
    names = ("fatbin", "smoke_images", "smoke_gpu", "smoke_facts", "smoke_batches")
    sys.path.insert(0, str(folder))
    try:
        return {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(folder))


@pytest.mark.parametrize(
    ("sass", "ptx", "device", "choice"),
    [
        (["80", "90"], [], "90", "sm_90"),
        (["80"], [], "86", "sm_80"),  # same major, a minor version not above
        (["80", "86"], [], "89", "sm_86"),
        (["86"], [], "80", "nothing"),  # minor versions go one way only
        (["80"], [], "90", "nothing"),  # a cubin never runs on another major version
        (["80"], ["80"], "90", "compiled from compute_80"),
        (["80"], ["80"], "75", "nothing"),
        (["75"], ["75", "90"], "120", "compiled from compute_90"),
        (["90a"], [], "90", "sm_90a"),
        ([], ["90a"], "100", "nothing"),  # PTX for one GPU is for that one
        (["100f"], [], "103", "sm_100f"),
        ([], ["100f"], "120", "nothing"),
        (["120"], [], "121", "sm_120"),
        ([], [], "90", "nothing"),
    ],
)
def test_the_driver_s_choice(
    modules: dict[str, ModuleType], sass: list[str], ptx: list[str], device: str, choice: str
) -> None:
    assert str(modules["smoke_images"].choose(sass, ptx, device)) == choice


ARCHS = st.sampled_from([70, 75, 80, 86, 89, 90, 100, 103, 120])


@given(st.sets(ARCHS, min_size=1, max_size=4), st.sets(ARCHS, max_size=2), ARCHS)
def test_a_verdict_says_one_thing(
    modules: dict[str, ModuleType], sass: set[int], ptx: set[int], device: int
) -> None:
    images = modules["smoke_images"]
    found = inventory(device_code(sorted(sass), sorted(ptx)))
    verdict = images.judge("x.so", found, "GPU", str(device))
    assert not (verdict.failure and verdict.warning)
    runs = any(a // 10 == device // 10 and a <= device for a in sass)
    compiles = not runs and any(a <= device for a in ptx)
    assert bool(verdict.failure) == (not runs and not compiles)
    assert bool(verdict.warning) == compiles
    if verdict.failure:
        assert f"sm_{device}" in verdict.failure
        assert str(min(sass)) in verdict.failure


def raw(**changes: Any) -> dict[str, Any]:
    gpu = {
        "skip": "",
        "broken": "",
        "cuda": "13.0",
        "driver_version": "580.1",
        "module_loading": "lazy",
        "devices": [
            {
                "index": 0,
                "name": "GPU",
                "arch": "90",
                "compute_capability": "9.0",
                "multiprocessors": 132,
                "memory_mib": 1,
                "number": 0,
                "driver_model": "TCC",
            }
        ],
    }
    torch = {
        "version": "2.11.0+cu130",
        "cuda": "13.0",
        "hip": "",
        "cxx11abi": True,
        "archs": ["sm_90"],
        "devices": 1,
        "cuda_error": "",
    }
    facts: dict[str, Any] = {
        "gpu": gpu | changes.pop("gpu", {}),
        "torch": torch | changes.pop("torch", {}),
        "properties": {},
        "doing": "facts",
        "failed": "",
        "version": "2.8.3",
        "units": {},
    }
    return facts | changes


@pytest.mark.parametrize(
    ("changes", "name", "said"),
    [
        ({"gpu": {"cuda": "12.4"}}, "driver", ("CUDA 12.4", "CUDA 13.0", "580.1")),
        ({"gpu": {"broken": "cuInit returned 999"}}, "driver", ("cuInit returned 999",)),
        ({"torch": {"cuda": ""}}, "torch", ("2.11.0", "no CUDA", "CPU build")),
        ({"torch": {"cuda": "", "hip": "6.2"}}, "torch", ("ROCm 6.2",)),
        ({"torch": {"devices": 0, "cuda_error": "bad"}}, "torch", ("sees none", "bad")),
        ({"torch": {}, "doing": "torch", "failed": "ImportError: x"}, "torch", ("ImportError: x",)),
        (
            {"doing": "flash_attn_2_cuda", "failed": "ImportError: undefined symbol: _ZN3c10"},
            "package",
            ("flash_attn_2_cuda", "torch 2.11.0", "undefined symbol"),
        ),
        ({"version": "2.8.3+cu12torch2.8cxx11abiTRUE"}, "promise", ("torch 2.8", "CUDA 12")),
        ({"version": "2.8.3+cu130torch2.11cxx11abiFALSE"}, "promise", ("cxx11abi is FALSE",)),
    ],
)
def test_what_is_wrong_is_named(
    modules: dict[str, ModuleType], changes: dict[str, Any], name: str, said: tuple[str, ...]
) -> None:
    judged = modules["smoke_facts"].judge(raw(**changes), {})
    assert list(judged["failures"]) == [name]
    assert all(text in judged["failures"][name] for text in said), judged["failures"]
    assert judged["failures"][name] in judged["blocked"]


@pytest.mark.parametrize(
    ("torch", "said"),
    [
        ({"cuda": "", "devices": 0, "wine_runtime": ""}, ""),
        ({}, "torch 2.11.0+cu130 has CUDA 13.0, and a CPU build was to be here"),
        ({"cuda": "", "wine_runtime": r"C:\x\msvcp140.dll"}, "Wine's own C++ run-time"),
    ],
)
def test_where_a_cpu_build_is_to_be_it_is_one(
    modules: dict[str, ModuleType], torch: dict[str, Any], said: str
) -> None:
    judged = modules["smoke_facts"].judge(raw(torch=torch), {"cpu_torch": True})
    assert [*judged["failures"]] == (["torch"] if said else [])
    assert said in judged["failures"].get("torch", "")
    assert "no GPU is used by it" in judged["warnings"][0]


def test_what_is_well_is_well(modules: dict[str, ModuleType]) -> None:
    judged = modules["smoke_facts"].judge(raw(version="2.8.3+cu130torch2.11cxx11abiTRUE"), {})
    assert judged["failures"] == {}
    assert judged["warnings"] == []
    assert judged["blocked"] == ""
    assert judged["report"]["gpu0_driver_model"] == "TCC"


def test_a_newer_minor_version_is_a_warning(modules: dict[str, ModuleType]) -> None:
    """CUDA's minor version compatibility: machine code runs, PTX does not."""
    judged = modules["smoke_facts"].judge(raw(torch={"cuda": "13.1"}), {})
    assert judged["failures"] == {}
    assert "CUDA 13.1" in judged["warnings"][0]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (None, ""),
        ("2.11", ""),
        ("2.1", "torch 2.1 was asked for, and torch 2.11.0+cu130 was loaded"),
        ("2.10", "torch 2.10 was asked for, and torch 2.11.0+cu130 was loaded"),
    ],
)
def test_another_torch_than_asked_is_a_failure(
    modules: dict[str, ModuleType], asked: str | None, said: str
) -> None:
    judged = modules["smoke_facts"].judge(raw(), {"torch": asked})
    assert judged["failures"] == ({"torch": said} if said else {})
    assert bool(judged["blocked"]) == bool(said)


def test_a_package_for_any_torch_has_its_own_cuda(
    modules: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = raw(version="0.1.0+cu130", torch={"cuda": "12.8", "version": "2.10.0+cu128"})
    judge, said = modules["smoke_facts"].judge, "it is for CUDA 13, torch here has 12.8"
    assert said in judge(facts, {})["failures"]["promise"]
    monkeypatch.setattr(sys.modules["smoke_suite"], "ANY_TORCH", True, raising=False)
    judged = judge(facts, {})
    assert (judged["failures"], judged["warnings"]) == ({}, [said])


def test_no_gpu_blocks_without_failing(modules: dict[str, ModuleType]) -> None:
    gpu = {"skip": "no CUDA device on this host", "devices": [], "cuda": ""}
    judged = modules["smoke_facts"].judge(raw(gpu=gpu, torch={"devices": 0}), {})
    assert judged["failures"] == {}
    assert judged["blocked"] == "no CUDA device on this host"


NO_GPU = {"skip": "no CUDA device on this host", "devices": [], "cuda": ""}
ANY: dict[str, Any] = {"asked": "gpu: true", "count": None, "numbers": []}


def devices(*numbers: int) -> dict[str, Any]:
    (one,) = raw()["gpu"]["devices"]
    return {"devices": [one | {"index": i, "number": n} for i, n in enumerate(numbers)]}


@pytest.mark.parametrize(
    ("gpu", "asked", "said"),
    [
        (NO_GPU, {"asked": ""}, ""),
        (devices(0), {}, ""),
        (devices(0, 1), {}, ""),
        (devices(1), {"count": 1, "numbers": [1]}, ""),
        (devices(2, 0), {"count": 2, "numbers": [0, 2]}, ""),
        (devices(0), {"count": 1}, ""),
        (NO_GPU, {}, "gpu: true was asked for, and no GPU is here: no CUDA device"),
        (devices(0), {"count": 2}, "which is 2 GPUs, and 1 are here"),
        (devices(0), {"count": 1, "numbers": [1]}, "and nvidia-smi's GPU 0 is here"),
        (
            devices(-1) | {"nvml": "not asked: no nvml.dll"},
            {"count": 1, "numbers": [0]},
            "which GPUs are here is not known: not asked: no nvml.dll",
        ),
    ],
)
def test_gpus_are_compared_with_what_was_asked_for(
    modules: dict[str, ModuleType], gpu: dict[str, Any], asked: dict[str, Any], said: str
) -> None:
    facts = raw(gpu=gpu, torch={"devices": len(gpu["devices"])})
    judged = modules["smoke_facts"].judge(facts, {"gpu": ANY | asked})
    assert [*judged["failures"]] == (["gpu"] if said else [])
    assert said in judged["failures"].get("gpu", "")


@pytest.mark.parametrize(
    ("bridge", "asked", "said"),
    [
        ("1 libcuda.so.1", {"bridged": True}, ""),
        ("1 libcuda.so.1", {"bridged": False}, r"is a bridge \(1 libcuda.so.1\), which was not"),
        ("1 libcuda.so.1", {}, "which was not asked for"),
        ("1 libcuda.so.1", {"asked": "", "bridged": False}, "which was not asked for"),
        ("", {"bridged": True}, "a bridge to Linux' driver was asked for, and the driver here is"),
        ("", {"bridged": False}, ""),
    ],
)
def test_a_bridge_is_compared_with_what_was_asked_for(
    modules: dict[str, ModuleType], bridge: str, asked: dict[str, Any], said: str
) -> None:
    facts = raw(gpu=devices(0) | {"bridge": bridge})
    judged = modules["smoke_facts"].judge(facts, {"gpu": ANY | asked})
    assert [*judged["failures"]] == (["gpu"] if said else [])
    assert re.search(said, judged["failures"].get("gpu", ""))
    assert judged["report"].get("driver_bridge", "") == bridge
    assert bool(judged["blocked"]) == bool(said), "nothing runs on what was not asked for"


def test_nobody_said_what_to_compare_a_bridge_with(modules: dict[str, ModuleType]) -> None:
    facts = raw(gpu=devices(0) | {"bridge": "1 libcuda.so.1"})
    assert modules["smoke_facts"].judge(facts, {})["failures"] == {}


@needs_cc
@pytest.mark.parametrize(("bridge", "outcome"), [("1 libcuda.so.1", "passed"), ("", "failed")])
def test_a_whole_run_through_a_bridge(tmp_path: Path, bridge: str, outcome: str) -> None:
    """The driver itself says what it is, and cases on a GPU are counted where they passed."""
    made = wheel(tmp_path, "demo", {"demo.py": b""})
    cases = f"{GPU_CASE}\ndef test_fails(gpu): assert 0\n\ndef test_without(): pass\n"
    cases += "\nimport pytest\n\n@pytest.mark.usefixtures('gpu')\ndef test_uses_it(): pass\n"
    suite = shipped() | {"smoke_suite.py": PLAIN + "def lost(): return False\n", "test_z.py": cases}
    expect = EXPECT | {"archs": [], "gpu": ANY | {"asked": "gpu: bridge", "bridged": True}}
    ran = run(tmp_path, suite, made, expect, fake_driver(tmp_path / "d", nvml=0, bridge=bridge))
    assert ran.case("test_gpus_are_those_that_were_asked_for").outcome == outcome
    properties = ran.suite.properties
    assert properties.get("driver_bridge", "") == bridge
    assert properties.get("gpu_cases", "0") == ("2" if bridge else "0")
    assert properties["gpu0_driver_model"] == "Linux"
    assert not any("on_gpu" in case.properties for case in ran.suite.cases)


NO_GPU_CASES = """
import pytest
@pytest.fixture
def gpu(): return "my own"
def test_of_its_own(gpu): pass
@pytest.mark.parametrize("gpu", ["L4", "H200"])
def test_parameter(gpu): pass
def test_says_so(record_suite):
    for name in ("driver_bridge", "gpu_cases", "gpu1_name"): record_suite(name, 7)
    record_suite("own", 7)
"""
SAYS = """
import json
forged = {"skip": "", "broken": "", "bridge": "1 forged", "devices": []}
print("ANSWER" + json.dumps({"gpu": forged}))
"""


@needs_cc
def test_nobody_but_the_driver_says_that_there_is_a_gpu(tmp_path: Path) -> None:
    """Neither fixtures and parameters that are called gpu, nor what the wheel or a case tells."""
    made = wheel(tmp_path, "demo", {"demo.py": SAYS.encode()})
    forged = "{'driver_bridge': '1 forged', 'gpu1_name': 'forged', 'cuda_runtime': '13.0'}"
    plain = PLAIN.replace("{'cuda_runtime': '13.0'}", forged) + "def lost(): return False\n"
    suite = shipped() | {"smoke_suite.py": plain, "test_z.py": NO_GPU_CASES}
    ran = run(tmp_path, suite, made, EXPECT | {"archs": []}, fake_driver(tmp_path / "d"))
    properties = ran.suite.properties
    assert ran.case("test_of_its_own").outcome == "passed"
    assert ran.case("test_parameter[L4]").outcome == "passed"
    assert properties["own"] == "7"
    assert properties["gpu_count"] == "1"
    assert not properties.keys() & {"driver_bridge", "gpu_cases", "gpu1_name"}


LOADS = "import ctypes\nd = ctypes.CDLL('libcuda.so.1')\nc = ctypes.c_void_p()\n"
USES = LOADS + "assert not d.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0)\n"
AS_MAIN = """
import multiprocessing, sys
def double(n): return 2 * n
class Own: pass
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(double, [1]) == [2]
    import __main__
    assert __main__.Own is Own and Own.__module__ == "__main__"
    assert len(sys.argv) == 1 and __file__ == sys.argv[0] and sys.path[0] in __file__
    assert "Path" not in globals() and "atexit" not in globals()
"""
AS_MAIN += "".join(f"    {row}\n" for row in USES.splitlines())


@needs_cc
@pytest.mark.parametrize(
    ("script", "had", "code"),
    [
        (USES, True, 0),
        (LOADS, False, 0),
        ("x = 1", False, 0),
        (AS_MAIN, True, 0),
        (f"{USES}d.cuDevicePrimaryCtxRelease_v2(0)", False, 0),
        (f"{USES}raise SystemExit(3)", True, 3),
        (f"{USES}1/0", True, 1),
        (f"{USES}import os; os._exit(0)", False, 0),
    ],
    ids=["uses", "loads", "neither", "as-main", "gives-back", "exits", "raises", "leaves-at-once"],
)
def test_whether_a_script_has_a_gpu_at_its_end(
    tmp_path: Path, script: str, had: bool, code: int
) -> None:
    """What it printed or said of itself does not count: the driver that it has loaded is asked."""
    program, used = tmp_path / "own.py", tmp_path / "used"
    program.write_text(script)
    environment = os.environ | fake_driver(tmp_path / "driver")
    command = [sys.executable, str(SMOKE / "common/smoke_used.py"), str(used), str(program)]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == code, done.stderr
    assert used.is_file() == had


@needs_cc
@pytest.mark.parametrize(
    ("script", "cases", "outcome"), [(USES, "1", "passed"), (f"{USES}1/0", "0", "failed")]
)
def test_a_script_that_had_a_gpu_and_passed_counts(
    tmp_path: Path, script: str, cases: str, outcome: str
) -> None:
    made = wheel(tmp_path, "demo", {"demo.py": b""})
    suite = shipped("script") | {"smoke_suite.py": PLAIN + "def lost(): return False\n"}
    suite["script/own.py"] = script
    driver = fake_driver(tmp_path / "driver")
    ran = run(tmp_path, suite, made, EXPECT | {"archs": []}, driver)
    case = ran.case("test_script")
    assert case.outcome == outcome, case.message
    assert ran.suite.properties.get("gpu_cases", "0") == cases


class OutOfMemoryError(RuntimeError):
    """As torch calls its own."""


def test_out_of_memory_falls_back_and_says_so(modules: dict[str, ModuleType]) -> None:
    tried, said, freed = [], [], []

    def run_batch(batch: int) -> str:
        tried.append(batch)
        if batch > 2:
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB")
        return "done"

    batches = modules["smoke_batches"]
    end = batches.shrinking(8, run_batch, lambda *pair: said.append(pair), lambda: freed.append(1))
    assert end == "done"
    assert tried == [8, 4, 2]
    assert said == [("batch", "2 instead of 8: out of GPU memory")]
    assert len(freed) == 2


@pytest.mark.parametrize("error", [OutOfMemoryError("x"), RuntimeError("bad shape")])
def test_what_memory_cannot_cure_is_raised(
    modules: dict[str, ModuleType], error: RuntimeError
) -> None:
    def run_batch(_: int) -> None:
        raise error

    with pytest.raises(RuntimeError, match=str(error)):
        modules["smoke_batches"].shrinking(1, run_batch, print, print)


@needs_cc
@pytest.mark.parametrize(
    ("init", "key", "said"),
    [
        ("return 0;", "", ""),
        ("return 100;", "skip", "no CUDA device on this host (cuInit returned 100)"),
        ("return 999;", "broken", "cuInit returned 999"),
    ],
)
def test_the_driver_is_asked(tmp_path: Path, init: str, key: str, said: str) -> None:
    """A library made here, with the driver's entry points, in the place of NVIDIA's."""
    variables = fake_driver(tmp_path, init=init, arch=(12, 0))
    script = Path(__file__).parents[2] / "pipelines/smoke/common/smoke_gpu.py"
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    facts = json.loads(done.stdout.removeprefix("ANSWER"))
    if key:
        assert said in facts[key]
        assert facts["devices"] == []
    else:
        (device,) = facts["devices"]
        assert (device["name"], device["arch"]) == ("NVIDIA Pretended", "120")
        assert (device["memory_mib"], device["multiprocessors"]) == (24 << 10, 42)
        assert (facts["cuda"], facts["module_loading"]) == ("13.0", "lazy")


PLAIN = "TORCH = False\nMODULES = ('demo',)\ndef facts(*, gpu): return {'cuda_runtime': '13.0'}\n"
EXPECT = {"distribution": "demo", "version": "1.0", "archs": ["80"], "ptx": [], "platform": None}
GPU_CASE = """
def test_on_the_gpu(gpu, record_suite):
    assert gpu['name'] == 'NVIDIA Pretended'
    record_suite('system', 'Windows 10.0.26100')
    record_suite('gpu0_name', 'RTX 4090')
"""


@needs_cc
@pytest.mark.parametrize(
    ("driver", "code", "failed", "said"),
    [
        ({"arch": (8, 9)}, ([80], []), "", ""),
        ({"arch": (9, 0)}, ([80], [80]), "", "compiles PTX for NVIDIA Pretended (sm_90)"),
        ({"arch": (7, 5)}, ([80], [80]), "test_device_code_for_every_gpu", "SASS for 80"),
        (
            {"arch": (8, 9), "cuda": 12040},
            ([80], []),
            "test_driver_knows_the_cuda_of_the_wheel",
            "knows CUDA 12.4 and the wheel needs CUDA 13.0",
        ),
        (
            {"arch": (8, 9), "init": "__builtin_trap();"},
            ([80], []),
            "test_driver_knows_the_cuda_of_the_wheel",
            "the process that asks the driver was ended by signal 4 (SIGILL)",
        ),
    ],
    ids=["fits", "compiled", "too-old-gpu", "too-old-driver", "driver-crashes"],
)
def test_a_whole_run_on_a_pretended_gpu(
    tmp_path: Path,
    driver: dict[str, Any],
    code: tuple[list[int], list[int]],
    failed: str,
    said: str,
) -> None:
    """The shared part of every suite, from the wheel's bytes to the report."""
    files = {"demo.py": b"", "demo_core.abi3.so": device_code(*code)}
    made = wheel(tmp_path, "demo", files)
    suite = shipped() | {
        "smoke_suite.py": PLAIN + "def lost(): return False\n",
        "test_z.py": GPU_CASE,
    }
    outcome = run(tmp_path, suite, made, EXPECT, fake_driver(tmp_path / "driver", **driver))
    assert outcome.outcomes("failed", "error") == ([failed] if failed else [])
    properties = outcome.suite.properties
    if failed:
        assert said in outcome.case(failed).message
        assert said in outcome.case("test_on_the_gpu").message  # skipped, for the same reason
        return
    assert outcome.case("test_on_the_gpu").outcome == "passed"
    assert properties["gpu0_name"] == "NVIDIA Pretended"
    assert properties["system"] == sys.platform, "a case says nothing of that"
    assert properties["demo_core.abi3.so.sass"] == "80"
    assert ("warning1" in properties) == bool(said)
    if said:
        assert said in properties["warning1"]
        assert outcome.log.index(said) < outcome.log.index("passed")


@pytest.mark.parametrize(
    ("asked", "outcome", "said"),
    [
        (ANY | {"asked": ""}, "skipped", "no GPU was asked for on this host"),
        (ANY, "failed", "gpu: true was asked for, and no GPU is here: no NVIDIA driver"),
    ],
)
def test_a_gpu_that_was_asked_for_is_a_case(
    tmp_path: Path, asked: dict[str, Any], outcome: str, said: str
) -> None:
    """Where there is none the case fails: those that need one are skipped, as everywhere."""
    made = wheel(tmp_path, "demo", {"demo.py": b""})
    suite = shipped() | {"smoke_suite.py": PLAIN + "def lost(): return False\n"}
    ran = run(tmp_path, suite, made, EXPECT | {"archs": [], "gpu": asked})
    case = ran.case("test_gpus_are_those_that_were_asked_for")
    assert (case.outcome, said in case.message) == (outcome, True)
    assert bool(ran.result["exit"]) is (outcome == "failed")


@needs_cc
def test_a_pretended_gpu_that_nvml_knows(tmp_path: Path) -> None:
    """The second GPU of nvidia-smi's, of which CUDA is shown that one alone."""
    made = wheel(tmp_path, "demo", {"demo.py": b""})
    suite = shipped() | {"smoke_suite.py": PLAIN + "def lost(): return False\n"}
    expect = EXPECT | {"archs": [], "gpu": {"asked": "gpu: 1", "count": 1, "numbers": [1]}}
    for number, outcome in ((1, "passed"), (0, "failed")):
        folder = tmp_path / str(number)
        environment = fake_driver(folder, nvml=number)
        ran = run(folder, suite, made, expect, environment)
        assert ran.case("test_gpus_are_those_that_were_asked_for").outcome == outcome
        assert ran.suite.properties["gpu0_number"] == str(number)
        assert ran.suite.properties["driver_version"] == "580.1"


def test_flash_attn_without_torch_is_a_finished_report(tmp_path: Path) -> None:
    """The shipped suite, whole, where there is neither torch nor a GPU."""
    made = wheel(tmp_path, "flash_attn", {"flash_attn/__init__.py": b"import torch\n"}, "2.8.3")
    expect = EXPECT | {"distribution": "flash-attn", "version": "2.8.3", "archs": []}
    outcome = run(tmp_path, shipped("flash_attn"), made, expect)
    assert outcome.outcomes("failed", "error") == ["test_torch_is_there_and_has_cuda"]
    assert "No module named 'torch'" in outcome.case("test_torch_is_there_and_has_cuda").message
    gpu_cases = [c for c in outcome.suite.cases if c.classname.startswith("test_flash")]
    assert len(gpu_cases) > 250
    assert {case.outcome for case in gpu_cases} == {"skipped"}
    assert {case.message for case in gpu_cases} == {"no NVIDIA driver (libcuda.so.1) on this host"}
