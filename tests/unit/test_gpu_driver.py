"""What is missing in this machine's driver for a bridge: each by its name, with its fix."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from smoke_runs import fake_driver
from test_smoke_facts import needs_cc

from pipelines.core.errors import ConfigError, HostError, PipelineError, SetupError
from pipelines.hosts.sandbox.bridge import driver
from pipelines.hosts.sandbox.bridge.driver import Driver, inspect_gpu_driver
from pipelines.hosts.sandbox.bridge.problems import find_driver_problems, require_usable_driver

GPU = {
    "index": 0,
    "number": 0,
    "name": "NVIDIA Pretended",
    "compute_capability": "8.9",
    "memory_mib": 24 << 10,
    "bus": "0000:01:00.0",
    "uuid": "0" * 32,
    "compute_mode": 0,
}
WELL: dict[str, Any] = {
    "skip": "",
    "broken": "",
    "cuda": "13.0",
    "driver_version": "580.1",
    "devices": [GPU],
    "libraries": {
        "libcuda": "/usr/lib/libcuda.so.580.1",
        "libnvidia-ml": "/usr/lib/libnvidia-ml.so.580.1",
    },
}
WSL = ("dev/dxg",)
NODES = ("dev/nvidiactl", "dev/nvidia0", "dev/nvidia-uvm", "proc/driver/nvidia/version")


def seen(tmp_path: Path, *nodes: str, **changes: Any) -> Driver:
    """The driver that tells so, on a machine with these files."""
    for name in nodes:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return inspect_gpu_driver(tmp_path, lambda: WELL | changes)


def failing(code: int, **changes: Any) -> dict[str, Any]:
    broken = f"the NVIDIA driver does not answer: cuInit returned {code}"
    return {"broken": broken, "code": code, "devices": [], **changes}


def test_a_driver_that_is_well(tmp_path: Path) -> None:
    found = seen(tmp_path, *NODES)
    assert find_driver_problems(found) == find_driver_problems(found, (0,)) == ()
    require_usable_driver(found)
    assert find_driver_problems(seen(tmp_path / "wsl", *WSL)) == ()
    assert str(found) == "driver 580.1, CUDA 13.0"
    assert [path.name for path in found.libraries] == [
        "libcuda.so.580.1",
        "libnvidia-ml.so.580.1",
    ]
    assert [str(gpu) for gpu in found.chosen(())] == ["GPU 0: NVIDIA Pretended (8.9, 24 GiB)"]
    assert found.chosen((1,)) == ()


NONE = {"skip": "no NVIDIA driver (libcuda.so.1) on this host", "devices": [], "libraries": {}}


@pytest.mark.parametrize(
    ("nodes", "told", "kind", "said", "hint"),
    [
        ((), NONE, SetupError, "has no NVIDIA driver", "Install NVIDIA's driver"),
        (WSL, NONE, SetupError, "driver from Windows", "none in WSL"),
        (WSL, failing(100), SetupError, "driver from Windows", "wsl --update"),
        (WSL, failing(34), SetupError, "the toolkit's stub", "LD_LIBRARY_PATH"),
        (NODES, NONE, SetupError, "there is no libcuda.so.1", "NVIDIA_DRIVER_CAPABILITIES=compute"),
        ((), failing(999), SetupError, "not /dev/nvidiactl and /dev/nvidia0", "--gpus all"),
        (NODES[:1], failing(100), SetupError, "not /dev/nvidiactl and /dev/nvidia0", "modprobe"),
        (NODES[:2], failing(999), SetupError, "/dev/nvidia-uvm is", "--device /dev/nvidia-uvm"),
        (NODES[:2], failing(999), SetupError, "/dev/nvidia-uvm is", "sudo nvidia-modprobe -u"),
        ((), failing(803), SetupError, "different versions", "Reboot"),
        (NODES, failing(803), SetupError, "different versions", "Reboot"),
        (NODES, failing(804), SetupError, "compatibility package", "Remove the package"),
        (NODES, failing(34), SetupError, "the toolkit's stub", "LD_LIBRARY_PATH"),
        (NODES, failing(304), SetupError, "does not let the driver", "/dev/nvidia"),
        (NODES, failing(46), HostError, "exclusive access", "nvidia-smi -c 0"),
        (NODES, failing(802), HostError, "fabric manager", "start nvidia-fabricmanager"),
        (NODES, failing(999), HostError, "fallen off the bus", "--gpu-reset"),
        (NODES, failing(100), HostError, "finds no GPU", "nvidia-smi lists one"),
        (NODES, failing(77), HostError, r"does not work \(.*returned 77\)", "See nvidia-smi"),
        (NODES, {"devices": []}, HostError, "does not work", "See nvidia-smi"),
        (NODES, {"compiler": "no such file"}, SetupError, "compile PTX: no such", "ptxjitcompiler"),
        (
            NODES,
            {"devices": [GPU | {"compute_mode": 3}]},
            HostError,
            "GPU 0: NVIDIA Pretended .* is exclusive to a process",
            "nvidia-smi -c 0",
        ),
        (NODES, {"devices": [GPU | {"compute_mode": 2}]}, HostError, "prohibited", "-c 0"),
    ],
)
def test_each_lack_has_its_cure(  # noqa: PLR0917 - as the table has its columns
    tmp_path: Path,
    nodes: tuple[str, ...],
    told: dict[str, Any],
    kind: type[PipelineError],
    said: str,
    hint: str,
) -> None:
    found = seen(tmp_path, *nodes, **told)
    with pytest.raises(kind, match=said) as caught:
        require_usable_driver(found)
    assert type(caught.value) is kind
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("numbers", "devices", "kind", "said"),
    [
        ((1,), [GPU], ConfigError, "no GPU 1 here, available: 0"),
        ((0, 3), [GPU, GPU | {"number": 1}], ConfigError, "no GPU 3 here, available: 0, 1"),
        ((0,), [GPU | {"number": -1}], SetupError, "unknown: not asked: no NVML"),
    ],
)
def test_numbers_that_are_not_there(
    tmp_path: Path, numbers: tuple[int, ...], devices: list[Any], kind: type, said: str
) -> None:
    found = seen(tmp_path, *NODES, devices=devices, nvml="not asked: no NVML")
    assert find_driver_problems(found) == ()
    with pytest.raises(kind, match=said):
        require_usable_driver(found, numbers)


def test_only_the_gpus_that_were_asked_for_are_judged(tmp_path: Path) -> None:
    found = seen(tmp_path, devices=[GPU, GPU | {"number": 1, "compute_mode": 3}])
    assert find_driver_problems(found, (0,)) == ()
    assert [one.id for one in find_driver_problems(found, (1,))] == ["gpu-compute-mode"]
    assert [one.id for one in find_driver_problems(found)] == ["gpu-compute-mode"]


@pytest.mark.parametrize(
    "told",
    [{}, {"skip": 5}, WELL | {"devices": [{"name": "x"}]}, WELL | {"devices": "\x1b[31m"}],
)
def test_nonsense_is_no_driver(tmp_path: Path, told: Mapping[str, object]) -> None:
    found = inspect_gpu_driver(tmp_path, lambda: told)
    with pytest.raises(HostError, match=r"cannot determine .* invalid output") as caught:
        require_usable_driver(found)
    assert "\x1b" not in caught.value.message


def test_what_the_driver_says_is_harmless(tmp_path: Path) -> None:
    evil = "\x1b[31m" + "x" * 5000
    found = seen(tmp_path, *NODES, devices=[GPU | {"name": evil}], driver_version=evil, cuda=evil)
    assert "\x1b" not in f"{found}{found.gpus[0]}"
    assert len(f"{found}{found.gpus[0]}") < 400


def test_no_version_is_no_version(tmp_path: Path) -> None:
    found = seen(tmp_path, driver_version="unknown", cuda="")
    assert str(found) == "driver of an unknown version, CUDA unknown"


def test_a_library_that_only_a_variable_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "lib/libcuda.so.580.1"
    real.parent.mkdir()
    real.touch()
    (tmp_path / "lib/libcuda.so.1").symlink_to(real.name)
    libraries = {"libcuda": str(real)}
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert seen(tmp_path / "a", libraries=libraries).directory is None
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere::{tmp_path / 'lib'}")
    assert seen(tmp_path / "b", libraries=libraries).directory == tmp_path / "lib"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "was ended by SIGSEGV"),
        ("raise SystemExit(3)", "exited with 3 and no output"),
        ("print('ANSWER{')", "invalid output"),
    ],
)
def test_a_driver_that_ends_the_process_which_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    path = tmp_path / "asks.py"
    path.write_text(script)
    monkeypatch.setattr(driver, "_SCRIPT", path)
    found = inspect_gpu_driver(tmp_path, driver._query_driver)
    assert said in found.failure


def test_a_driver_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "asks.py").write_text("import time; time.sleep(60)")
    monkeypatch.setattr(driver, "_SCRIPT", tmp_path / "asks.py")
    monkeypatch.setattr(driver, "_SECONDS", 0.2)
    assert "hung for" in inspect_gpu_driver(tmp_path, driver._query_driver).failure


def test_a_machine_without_a_driver_is_asked_for_real() -> None:
    """On any machine: the answer is complete, and a problem has a hint."""
    found = inspect_gpu_driver()
    assert found.library is not None or "no NVIDIA driver" in found.failure
    assert all(lack.actual and lack.hint for lack in find_driver_problems(found))


@pytest.mark.slow
@needs_cc
@pytest.mark.parametrize(
    ("init", "rule"),
    [("return 0;", ""), ("return 803;", "driver-mismatch"), ("return 46;", "gpu-taken")],
)
def test_a_library_made_here_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, init: str, rule: str
) -> None:
    """The very program that suites use, and a driver that answers or does not."""
    for name, value in fake_driver(tmp_path / "lib", init=init, nvml=0).items():
        monkeypatch.setenv(name, value)
    for name in NODES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = inspect_gpu_driver(tmp_path, driver._query_driver)
    assert found.library == (tmp_path / "lib/libcuda.so.1").resolve()
    assert found.directory == tmp_path / "lib"
    rules = [lack.id for lack in find_driver_problems(found)]
    if rule:
        assert rules == [rule]
        return
    assert (found.version, found.cuda) == ("580.1", "13.0")
    assert [(gpu.number, gpu.bus) for gpu in found.gpus] == [(0, "0000:01:00.0")]
    assert rules == ["driver-compiler"], "none is beside it"


def test_every_gpu_is_seen_whatever_the_caller_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    code = (
        "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ['CUDA_DEVICE_ORDER'])"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], env=driver.every_gpu(), capture_output=True, check=True
    )
    assert told.stdout.split() == [b"None", b"PCI_BUS_ID"]
