"""A GPU whose context is lost, without a GPU: the driver is tests/sandbox/bridge/pretended.c."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from smoke_runs import EXPECT, run, shipped, wheel

from pipelines.recipe.suite import SUITES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.name == "nt" or not shutil.which("cc"), reason="makes a shared library with cc"
    ),
]

DRIVER = Path(__file__).parents[1] / "sandbox/bridge/pretended.c"
#: What a package does with the driver, without torch.
USES = """
import ctypes
import threading
driver = ctypes.CDLL("libcuda.so.1")
context, number = ctypes.c_void_p(), ctypes.c_int()
def primary():
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
def in_this_thread():
    primary()
    assert driver.cuCtxSetCurrent(context) == 0
def in_another_thread():
    thread = threading.Thread(target=in_this_thread)
    thread.start()
    thread.join()
def lose():
    return driver.cuMemcpyDtoH_v2(ctypes.byref(number), ctypes.c_uint64(0), ctypes.c_size_t(4))
"""
CASES = """
import demo
import pytest
import threading
def test_before(): demo.BEGIN()
def test_loses_it():
    demo.BEGIN()
    assert demo.lose() == 0
def test_after():
    demo.BEGIN()
    assert demo.driver.cuCtxSetCurrent(demo.context) == 0
    assert demo.driver.cuCtxSynchronize() == 0
def test_fails_of_something_else(record_suite):
    demo.BEGIN()
    demo.stays = True
    assert 1 == 2
def test_in_the_same_process():
    assert demo.stays
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("driver")
    library = str(folder / "libcuda.so.1")
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", library, str(DRIVER)], check=True)
    return {"LD_LIBRARY_PATH": str(folder)}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("", "False"),
        ("assert driver.cuInit(0) == 0", "False"),
        ("primary()", "False"),
        ("in_this_thread()", "False"),
        ("in_another_thread()", "False"),
        ("primary(); lose()", "True"),
        ("in_this_thread(); lose()", "True"),
        ("in_another_thread(); lose()", "True"),
    ],
)
def test_the_driver_knows(
    tmp_path: Path, environment: dict[str, str], steps: str, expected: str
) -> None:
    """And is left as it was: with the context that this thread had, and none held longer."""
    (tmp_path / "smoke_gpu.py").write_text(shipped()["smoke_gpu.py"], "utf-8")
    (tmp_path / "uses.py").write_text(
        USES
        + steps
        + """
def state():
    current, flags, active = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_int()
    driver.cuCtxGetCurrent(ctypes.byref(current))
    driver.cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active))
    return current.value, active.value
import smoke_gpu
before = state()
found = smoke_gpu.lost()
assert state() == before, (before, state())
if before[1]:
    driver.cuDevicePrimaryCtxRelease_v2(0)
    assert not state()[1], "it is held longer than its user does"
print(found)
""",
        "utf-8",
    )
    done = subprocess.run(
        [sys.executable, "uses.py"],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == (expected, "")


@pytest.mark.parametrize("begin", ["in_this_thread", "in_another_thread"])
def test_a_wheel_of_others_without_torch(
    tmp_path: Path, environment: dict[str, str], begin: str
) -> None:
    """The default suite: one failed case, and those after it get a new process."""
    made = wheel(tmp_path, "demo", {"demo.py": USES.encode()})
    suite = shipped("default") | {"test_z.py": CASES.replace("BEGIN", begin)}
    outcome = run(tmp_path, suite, made, EXPECT, environment)
    assert outcome.outcomes("failed", "error") == ["test_loses_it", "test_fails_of_something_else"]
    assert "the GPU's context was lost" in outcome.case("test_loses_it").detail
    assert outcome.case("test_after").outcome == "passed"
    assert outcome.case("test_in_the_same_process").outcome == "passed"


def test_every_suite_for_a_gpu_asks_the_driver() -> None:
    """But for candle's, each case of which is a process of its own."""
    for path in SUITES.glob("*/smoke_suite.py"):
        own = path.parent.name == "candle_flash_attn"
        assert ("return smoke_gpu.lost()" in path.read_text("utf-8")) is not own, path
