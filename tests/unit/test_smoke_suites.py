"""The suites for xFormers and candle, as far as they go without a GPU; and all suites as sent."""

from __future__ import annotations

import importlib.util
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
from smoke_runs import SMOKE, device_code, fake_driver, run, shipped, wheel

from pipelines.wheels.fatbin import inventory
from pipelines.wheels.metadata import inspect_wheel

posix = pytest.mark.skipif(os.name == "nt", reason="programs made here are shell scripts")
needs_cc = pytest.mark.skipif(not shutil.which("cc"), reason="makes a shared library with cc")


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[path.stem] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


info = load(SMOKE / "xformers" / "xformers_info.py")

# The table of 0.0.28.post3 on Windows 11, from huggingface/diffusers issue 10070; the ends of its
# rows as in the table of 0.0.34's info.py.
WINDOWS = """\
xFormers 0.0.28.post3
memory_efficient_attention.ckF:                    unavailable
memory_efficient_attention.ckB:                    unavailable
memory_efficient_attention.ck_decoderF:            unavailable
memory_efficient_attention.ck_splitKF:             unavailable
memory_efficient_attention.cutlassF-pt:            available
memory_efficient_attention.cutlassB-pt:            available
memory_efficient_attention.fa2F@v2.6.3-24-gbdf733b: available
memory_efficient_attention.fa2B@v2.6.3-24-gbdf733b: available
memory_efficient_attention.fa3F@0.0.0:             unavailable
memory_efficient_attention.fa3B@0.0.0:             unavailable
memory_efficient_attention.triton_splitKF:         unavailable
indexing.scaled_index_addF:                        unavailable
swiglu.fused.p.cpp:                                available
is_triton_available:                               False
pytorch.version:                                   2.5.1+cu124
pytorch.cuda:                                      available
gpu.name:                                          NVIDIA GeForce RTX 4070
build.info:                                        available
build.torch_version:                               2.5.1+cu124
build.env.TORCH_CUDA_ARCH_LIST:                    6.0+PTX 7.0 7.5 8.0+PTX 9.0a
"""
# xFormers 0.0.22.post7, facebookresearch/xformers issue 939: a wheel for another torch.
WRONG_TORCH = """\
xFormers 0.0.22.post7+cu118
memory_efficient_attention.cutlassF:               unavailable
memory_efficient_attention.cutlassB:               unavailable
memory_efficient_attention.flshattF@0.0.0:         unavailable
swiglu.fused.p.cpp:                                not built
is_triton_available:                               True
"""


def verdicts(text: str, *, windows: bool, arch: int) -> dict[str, str]:
    return {
        row: info.missing(row, status, windows=windows, arch=arch)[0]
        for row, status in info.parse(text).items()
        if info.is_status(status)
    }


def test_the_table_is_read() -> None:
    rows = info.parse(WINDOWS)
    assert rows["version"] == "0.0.28.post3"
    assert rows["memory_efficient_attention.fa2F@v2.6.3-24-gbdf733b"] == "available"
    assert rows["build.env.TORCH_CUDA_ARCH_LIST"].startswith("6.0+PTX 7.0")
    assert not info.is_status(rows["gpu.name"])
    assert not info.is_status(rows["pytorch.version"])


def test_what_may_be_missing_on_windows_is_skipped() -> None:
    told = verdicts(WINDOWS, windows=True, arch=89)
    assert "fail" not in told.values()
    assert told["is_triton_available"] == "skip"
    assert told["memory_efficient_attention.cutlassF-pt"] == ""


def test_torch_for_windows_has_no_flash_attention() -> None:
    """xFormers 0.0.34 takes torch's; on Linux that must be there."""
    table = "memory_efficient_attention.fa2F@0.0.0: unavailable\n"
    assert [*verdicts(table, windows=True, arch=89).values()] == ["skip"]
    assert [*verdicts(table, windows=False, arch=89).values()] == ["fail"]


NO_OPERATOR = """\
No operator found for `memory_efficient_attention_forward` with inputs:
`cutlassF-pt` is not supported because:
    requires device with capability <= (9, 0) but your GPU has capability (12, 0) (too new)
"""


@pytest.mark.parametrize(
    ("problem", "named", "flash", "excused"),
    [
        (NO_OPERATOR, False, False, True),
        (NO_OPERATOR, False, True, False),
        (NO_OPERATOR, True, True, True),
        (NO_OPERATOR.replace("too new", "too old"), False, False, False),
        ("an illegal memory access", True, False, False),
    ],
)
def test_no_operator_for_a_gpu_newer_than_cutlass(
    problem: str, named: bool, flash: bool, excused: bool
) -> None:
    assert info.unsupported(problem, named=named, flash=flash) is excused


def test_triton_must_be_there_on_linux() -> None:
    told = verdicts(WINDOWS, windows=False, arch=89)
    failed = [row for row, verdict in told.items() if verdict == "fail"]
    assert failed == ["memory_efficient_attention.triton_splitKF", "is_triton_available"]


def test_a_wheel_for_another_torch_fails() -> None:
    told = verdicts(WRONG_TORCH, windows=True, arch=80)
    assert told["memory_efficient_attention.cutlassF"] == "fail"
    assert told["memory_efficient_attention.flshattF@0.0.0"] == "fail"
    # FlashAttention is not for Turing: that is no fault of the wheel.
    turing = verdicts(WRONG_TORCH, windows=True, arch=75)
    assert turing["memory_efficient_attention.flshattF@0.0.0"] == "skip"


FAKE_TORCH = """
__version__ = "2.11.0+cu130"
class version: cuda = "13.0"; hip = None
def compiled_with_cxx11_abi(): return True
class cuda:
    init = staticmethod(lambda: None)
    get_arch_list = staticmethod(lambda: ["sm_89"])
    device_count = staticmethod(lambda: 1)
    is_initialized = staticmethod(lambda: False)
"""


@pytest.mark.slow
@posix
@needs_cc
def test_the_rows_become_cases(tmp_path: Path) -> None:
    """The real suite over a table printed here: only the way from text to cases is shown."""
    table = WINDOWS.replace("cutlassB-pt:            available", "cutlassB-pt: unavailable")
    files = {
        "torch.py": FAKE_TORCH.encode(),
        "xformers/__init__.py": b"",
        "xformers/ops.py": b"",
        "xformers/_cpp_lib.py": b"_cpp_library_load_exception = None\n",
        "xformers/info.py": f"print({table!r})\n".encode(),
    }
    made = wheel(tmp_path, "xformers", files, "0.0.28")
    expect = {"distribution": "xformers", "version": "0.0.28", "archs": [], "ptx": []}
    suite = shipped("xformers")
    suite["test_xformers.py"] = suite["test_xformers.py"].replace(
        '@pytest.mark.usefixtures("gpu")', '@pytest.mark.skip("no GPU")'
    )
    driver = fake_driver(tmp_path / "driver")
    outcome = run(tmp_path, suite, made, expect, driver)
    failed = outcome.outcomes("failed", "error")
    triton = ["memory_efficient_attention.triton_splitKF", "is_triton_available"]
    names = ["memory_efficient_attention.cutlassB-pt", *triton]
    assert failed == [f"test_info[{name}]" for name in names]
    assert "test_info[cpp_library]" in outcome.outcomes("passed")
    assert outcome.suite.properties["info.build.torch_version"] == "2.5.1+cu124"


CANDLE = """#!/bin/sh
case "$*" in
*--list*) echo "flash_attn_acausal: test"; echo "flash_attn_varlen: test";;
*flash_attn_acausal*) echo "test result: ok. 1 passed; 0 failed";;
*) echo "assertion failed: left == right"; kill -SEGV $$;;
esac
exit 0
"""


@pytest.mark.slow
@posix
@needs_cc
def test_candle_s_tests_are_cases_of_their_own(tmp_path: Path) -> None:
    deps = tmp_path / "target" / "release" / "deps"
    deps.mkdir(parents=True)
    program = deps / "flash_attn_tests-0123456789abcdef"
    program.write_bytes(CANDLE.encode() + b"\n" + device_code([89], []))
    program.chmod(0o755)
    (deps / "flash_attn_tests-0123456789abcdef.d").write_text("no program")
    expect = {"distribution": "", "version": "", "archs": ["89"], "ptx": []}
    expect |= {"artifacts": str(tmp_path / "target")}
    driver = fake_driver(tmp_path / "driver")
    outcome = run(tmp_path, shipped("candle_flash_attn"), None, expect, driver)
    (failed,) = outcome.outcomes("failed", "error")
    assert failed.endswith("flash_attn_varlen]")
    assert "signal 11 (SIGSEGV)" in outcome.case(failed).message
    assert [name for name in outcome.outcomes("passed") if name.endswith("acausal]")]
    assert outcome.suite.properties[f"{program.name}.gpu0_runs"] == "sm_89 in 1 of 1 units"


@pytest.mark.slow
def test_candle_without_a_program_says_so(tmp_path: Path) -> None:
    expect = {"distribution": "", "version": "", "archs": [], "ptx": [], "artifacts": ""}
    outcome = run(tmp_path, shipped("candle_flash_attn"), None, expect)
    assert outcome.outcomes("failed", "error") == []
    case = outcome.case("test_of_the_crate[none]")
    assert case.outcome == "skipped"
    assert "no artifacts directory was named" in case.message


@pytest.mark.parametrize(
    "name",
    ["smoke_attention", "smoke_attention_torch", "flash_attn", "xformers", "candle_flash_attn"],
)
def test_a_suite_is_whole_as_sent(name: str) -> None:
    files = shipped(name)
    assert {"conftest.py", "pytest.ini", "smoke_suite.py", "fatbin.py"} <= set(files)
    # Nothing may shadow what is tested: the suite's own folder comes first on the path.
    assert not {f"{each}.py" for each in ("torch", "flash_attn", "xformers")} & set(files)
    text = files["smoke_suite.py"]
    assert all(word in text for word in ("TORCH", "MODULES", "def facts", "def lost"))
    for file, body in files.items():
        if file.startswith(("test_", "conftest", "smoke_facts", "smoke_isolation")):
            heads = [line for line in body.splitlines() if line.startswith(("import ", "from "))]
            taken = {line.split()[1].split(".")[0] for line in heads}
            assert not taken & {"torch", "flash_attn", "xformers", "smoke_reference"}, file


def test_broken_wheels_are_broken_in_one_way(tmp_path: Path) -> None:
    """What the GPU tests rely on: the fault is in, and RECORD fits the rest."""
    broken = load(Path(__file__).parents[1] / "gpu" / "broken_wheels.py")
    code = device_code([80, 90], [90]) + b"_ZN3c106detail14torchCheckFailEPKc"
    files = {
        "flash_attn/__init__.py": b"x = 1\n",
        "flash_attn_2_cuda.so": code,
        "smoke_attention/__init__.py": b"x = 1\n",
    }
    good = wheel(tmp_path, "flash_attn", files, "2.8.3")
    for fault in broken.FAULTS | broken.SMOKE_FAULTS:
        bad = broken.break_wheel(good, tmp_path, fault)
        with zipfile.ZipFile(good) as old, zipfile.ZipFile(bad) as new:
            assert set(old.namelist()) == set(new.namelist())
            changed = {name for name in old.namelist() if old.read(name) != new.read(name)}
            found = inventory(new.read("flash_attn_2_cuda.so"))
        assert len(changed) == 2, fault  # the file and RECORD
        assert inspect_wheel(bad).record.true
        if fault == "wrong_arch":
            assert (set(found.sass), set(found.ptx)) == ({"75"}, set())
