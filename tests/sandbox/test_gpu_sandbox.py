"""A sandbox with `gpu: bridge`, whole, over a stand-in driver: made, tested, asked, lied to."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Events, make_sandbox

from pipelines.core.errors import HostError, SetupError
from pipelines.core.paths import PACKAGE
from pipelines.hosts.sandbox.bridge import driver
from pipelines.hosts.sandbox.host import Sandbox
from pipelines.hosts.sandbox.wine import Prefix
from pipelines.remote.inspection import tools

SOURCES = Path(__file__).parent / "bridge"
ZIG = r"C:\zig\zig.exe"


def compiled(prefix: Prefix, source: str, target: Path, *flags: str) -> None:
    """A library for Linux, by the sandbox's compiler."""
    work = prefix.drive / "stand-in"
    work.mkdir(exist_ok=True)
    shutil.copy(SOURCES / source, work)
    system = ("--target=x86_64-linux-gnu", "-fPIC", "-fvisibility=hidden", "-O1", "-w")
    prefix.run([ZIG, "clang", *system, *flags, "-c", source, "-o", "a.o"], cwd=work)
    prefix.run([ZIG, "ld.lld", "-shared", "a.o", "-o", "a.so"], cwd=work)
    target.parent.mkdir(exist_ok=True)
    (work / "a.so").replace(target)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A driver that tells the truth in ``good``, and one that lies under Wine in ``bad``."""
    base = tmp_path_factory.mktemp("driver")
    plain = make_sandbox(base / "plain")
    plain._make()
    prefix = Prefix(plain.prefix)
    prefix.boot()
    for name, flags in (("good", ()), ("bad", ("-DWRONG",))):
        compiled(prefix, "pretended.c", base / name / "libcuda.so.1", *flags)
        compiled(prefix, "pretended-ml.c", base / name / "libnvidia-ml.so.1")
        shutil.copy(
            base / name / "libnvidia-ml.so.1", base / name / "libnvidia-ptxjitcompiler.so.1"
        )
    prefix.halt()
    yield base
    plain.teardown()


def on(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """This machine's driver is the one in ``folder``."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    driver.inspect_gpu_driver.cache_clear()


@pytest.fixture(scope="module")
def sandbox(libraries: Path) -> Iterator[Sandbox]:
    made = make_sandbox(libraries / "s", gpu="bridge")
    yield made
    made.close()
    made.stop()
    made.teardown()
    driver.inspect_gpu_driver.cache_clear()


def told(sandbox: Sandbox) -> list[str]:
    events = sandbox.events
    assert isinstance(events, Events)
    return events.steps


def asked(sandbox: Sandbox) -> dict[str, Any]:
    """What the suite's own program says of the driver, in that Windows."""
    script = sandbox.prefix / "drive_c/asks.py"
    shutil.copy(PACKAGE / "smoke/common/smoke_gpu.py", script)
    text = Prefix(sandbox.prefix).run([sandbox.executable, r"C:\asks.py"])
    answer: dict[str, Any] = json.loads(text.partition("ANSWER")[2])
    return answer


def test_it_starts_is_tested_and_tells_what_it_is(
    sandbox: Sandbox, libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, libraries / "good")
    before = sandbox.bridge()
    assert before is not None
    assert (before.built, before.selftest) == (False, "")
    session = sandbox.connect()
    assert sandbox.home.name == "s-py3.11-gpu"
    said = [step for step in told(sandbox) if step.startswith("GPU bridge: ")]
    assert said[0] == ("GPU bridge: driver 580.1, CUDA 13.0, GPU 0: NVIDIA Pretended (8.9, 24 GiB)")
    assert "kernel, callback, occupancy and error on the GPU as without the bridge" in said[1]
    print(said[1])
    known = sandbox.bridge()
    assert known is not None
    assert known.built
    assert "as without the bridge" in known.selftest
    assert known.warnings == ()
    assert session.call(tools.gpus) == [
        {
            "name": "NVIDIA Pretended",
            "capability": "8.9",
            "driver": "580.1",
            "model": "Linux, through a bridge",
            "memory": str(24 << 10),
        }
    ]
    answer = asked(sandbox)
    assert str(answer["bridge"]).endswith("libcuda.so.1")
    (gpu,) = answer["devices"]
    assert (gpu["driver_model"], gpu["number"]) == ("Linux", 0)
    assert answer["driver_version"] == "580.1"
    assert not answer.get("nvml")
    sandbox.connect().close()
    assert len([s for s in told(sandbox) if s.startswith("GPU bridge: ")]) == 2, "once a start"
    session.close()


def test_the_one_beside_it_has_no_driver(libraries: Path) -> None:
    plain = make_sandbox(libraries / "plain")
    assert plain.home.is_dir()
    assert asked(plain)["skip"] == "no NVIDIA driver (nvcuda.dll) on this host"
    Prefix(plain.prefix).halt()


def test_a_driver_that_computes_something_else_there(
    sandbox: Sandbox, libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.close()
    sandbox.stop()
    on(monkeypatch, libraries / "bad")
    with pytest.raises(HostError, match=r"GPU bridge: a kernel computes wrong numbers.*1000 of"):
        sandbox.connect()
    known = sandbox.bridge()
    assert known is not None
    assert known.selftest == ""


def test_a_driver_that_is_gone(
    sandbox: Sandbox, libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.close()
    sandbox.stop()
    on(monkeypatch, libraries / "nothing")
    if driver.inspect_gpu_driver().library is not None:
        pytest.skip("this machine has a driver of its own")
    with pytest.raises(SetupError, match="this machine has no NVIDIA driver"):
        sandbox.connect()
    assert sandbox.state() is None
