"""The bridge's self-test: what is asked of a driver, and that a bridge which lies is caught."""

from __future__ import annotations

import ctypes
import json
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.errors import HostError
from pipelines.hosts.sandbox.bridge import attachment, driver, probe, selftest
from pipelines.hosts.sandbox.bridge.attachment import Attachment
from pipelines.hosts.sandbox.bridge.driver import Driver, Gpu
from pipelines.hosts.sandbox.bridge.selftest import NUMBERS

UUID = bytes(range(16))
PLACE = "0000:01:00.0"
CARD = Gpu(
    number=0,
    name="NVIDIA Pretended",
    compute_capability="8.9",
    memory_mib=24 << 10,
    bus=PLACE,
    uuid=UUID.hex(),
)


def put(target: Any, value: Any) -> int:
    target._obj.value = value
    return 0


class Pretended:
    """A driver in Python that gets wrong what it is configured to."""

    def __init__(self, **wrong: Any) -> None:
        self.wrong = wrong
        self.memory: list[int] = []
        self.pending: list[threading.Thread] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name == "driver_bridge":
            raise AttributeError(name)
        return lambda *_: self.wrong.get(name, 0)

    def cuDriverGetVersion(self, version: Any) -> int:  # noqa: N802 - CUDA's
        return put(version, 13000)

    def cuDeviceGet(self, _: Any, number: int) -> int:  # noqa: N802
        return 101 if number else 0

    def cuGetErrorName(self, code: int, text: Any) -> int:  # noqa: N802
        return put(text, b"CUDA_ERROR_INVALID_DEVICE" if code == 101 else b"?")

    def cuGetErrorString(self, _: int, text: Any) -> int:  # noqa: N802
        return put(text, b"invalid device ordinal")

    def cuDeviceGetByPCIBusId(self, device: Any, place: Any) -> int:  # noqa: N802
        return put(device, 0) if place.value == PLACE.encode() else 101

    def cuDeviceGetName(self, text: Any, *_: Any) -> int:  # noqa: N802
        text.value = b"NVIDIA Pretended"
        return 0

    def cuDeviceGetUuid(self, text: Any, _: Any) -> int:  # noqa: N802
        text.raw = UUID
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, _: Any) -> int:  # noqa: N802
        return put(value, {75: 8, 76: 9}[attribute])

    def cuModuleLoadData(self, _: Any, text: Any) -> int:  # noqa: N802
        assert b".target sm_75" in text.value
        return int(self.wrong.get("cuModuleLoadData", 0))

    def cuLaunchKernel(self, function: Any, *given: Any) -> int:  # noqa: N802
        grid, block, pointers = given[0].value, given[3].value, given[8]
        kinds: tuple[Any, ...] = (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_float, ctypes.c_uint32)
        _, factor, scale, count = (
            ctypes.cast(pointer, ctypes.POINTER(kind))[0]
            for pointer, kind in zip(pointers, kinds, strict=True)
        )
        threads = range(min(grid * block, count))
        self.memory = [i * factor + int(i * scale) for i in threads]
        return 0

    def cuMemcpyDtoH_v2(self, target: Any, *_: Any) -> int:  # noqa: N802
        target[:] = self.memory
        return 0

    def cuLaunchHostFunc(self, _: Any, function: Any, word: Any) -> int:  # noqa: N802
        self.pending.append(threading.Thread(target=function, args=(word,)))
        return 0

    def cuStreamSynchronize(self, _: Any) -> int:  # noqa: N802
        for thread in self.pending:
            thread.start()
            thread.join()
        return 0

    def cuOccupancyMaxPotentialBlockSize(  # noqa: N802
        self, grid: Any, block: Any, _: Any, size: Any, *__: Any
    ) -> int:
        best = max(n for n in range(32, 1025, 32) if size(n) <= 8192)
        return put(grid, 84) or put(block, best)


def told(**wrong: Any) -> dict[str, Any]:
    return probe.Probe(Pretended(**wrong)).answers([PLACE])


# -- the questions ---------------------------------------------------------------------------------


def test_every_question_is_answered() -> None:
    found = told()
    assert found["error"] == [101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"]
    (gpu,) = found["gpus"]
    assert tuple(gpu["numbers"]) == NUMBERS
    assert gpu["callback"] == [7001, True]
    assert gpu["occupancy"] == [84, 512, list(range(32, 1025, 32))]
    assert (gpu["uuid"], gpu["name"]) == (UUID.hex(), "NVIDIA Pretended")
    assert (found["driver"], found["bridge"]) == (13000, "")
    selftest.Answers.model_validate(json.loads(json.dumps(found)))


@pytest.mark.parametrize("call", ["cuInit", "cuModuleLoadData", "cuMemAlloc_v2"])
def test_a_call_that_fails_is_named(call: str) -> None:
    with pytest.raises(probe.FailedError, match=f"{call} returned 719"):
        told(**{call: 719})


def test_without_a_driver_the_answer_is_that_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Any:
        raise OSError("libcuda.so.1: no such file")

    monkeypatch.setattr(probe, "_load_cuda_driver", none)
    assert probe.probe_cuda_driver([PLACE])["failed"] == "OSError: libcuda.so.1: no such file"


# -- the comparison --------------------------------------------------------------------------------

PLAIN: dict[str, Any] = told()
BRIDGED: dict[str, Any] = PLAIN | {"platform": "win32", "bridge": "1 libcuda.so.1"}


def of_gpu(given: dict[str, Any], **changes: Any) -> dict[str, Any]:
    (gpu,) = given["gpus"]
    return given | {"gpus": [gpu | changes]}


class Windows:
    """A prefix in which the probe says ``answer``."""

    def __init__(self, path: Path, answer: object) -> None:
        self.drive = path / "drive_c"
        self.answer = answer
        self.ran: list[Sequence[str]] = []

    def run(self, arguments: Sequence[str], *, timeout: float) -> str:
        assert timeout
        self.ran.append(arguments)
        if isinstance(self.answer, Exception):
            raise self.answer
        return f"fixme\n{said(self.answer)}"


def said(answer: object) -> str:
    return answer if isinstance(answer, str) else f"{probe.MARK}{json.dumps(answer)}\n"


def run(tmp_path: Path, plain: object, bridged: object) -> selftest.PassedTest:
    windows = Windows(tmp_path, bridged)
    return selftest.run_bridge_selftest(
        windows, r"C:\Python311\python.exe", [CARD], lambda _: said(plain)
    )


def test_a_bridge_that_tells_the_truth(tmp_path: Path) -> None:
    windows = Windows(tmp_path, BRIDGED)
    asked: list[list[str]] = []

    def native(places: list[str]) -> str:
        asked.append(places)
        return said(PLAIN)

    passed = selftest.run_bridge_selftest(windows, r"C:\Python311\python.exe", [CARD], native)
    assert (passed.bridge, passed.gpus) == ("1 libcuda.so.1", 1)
    assert "kernel, callback, occupancy and error on the GPU as without the bridge" in str(passed)
    script = r"C:\windows\temp\driver-probe.py"
    assert windows.ran == [[r"C:\Python311\python.exe", "-I", script, PLACE]]
    assert asked == [[PLACE]]
    there = windows.drive / "windows/temp/driver-probe.py"
    assert there.read_bytes() == Path(probe.__file__).read_bytes(), "the same questions"


WRONG = [*NUMBERS[:-1], 0]


@pytest.mark.parametrize(
    ("bridged", "expected"),
    [
        (of_gpu(BRIDGED, numbers=WRONG), "bridge: a kernel computes wrong numbers.*first is 999"),
        (of_gpu(BRIDGED, numbers=[0] * 1000), "999 of them, the first is 1"),
        (of_gpu(BRIDGED, numbers=NUMBERS[:10]), "wrong numbers.*some are missing"),
        (of_gpu(BRIDGED, callback=[7001, False]), r"a callback arrived as \(7001, False\)"),
        (of_gpu(BRIDGED, callback=[7002, True]), "a callback arrived as"),
        (of_gpu(BRIDGED, callback=[]), "invalid output"),
        (of_gpu(BRIDGED, occupancy=[84, 512, []]), "occupancy"),
        (of_gpu(BRIDGED, occupancy=[84, 256, [32]]), "different occupancy of NVIDIA Pretended"),
        (of_gpu(BRIDGED, uuid="ff" * 16), "has the GPU f{32} on 0000:01:00.0, not 0001"),
        (of_gpu(BRIDGED, name="another"), "different name of NVIDIA Pretended"),
        (BRIDGED | {"driver": 12080}, "different driver version .*: 12080, not 13000"),
        (BRIDGED | {"error": [101, "CUDA_ERROR_INVALID_DEVICE", "?"]}, "has a different error"),
        (BRIDGED | {"error": [0, "CUDA_SUCCESS", "no error"]}, "has a different error"),
        (BRIDGED | {"bridge": ""}, "does not identify itself"),
        (BRIDGED | {"platform": "linux"}, "not called by Windows' Python but on linux"),
        (BRIDGED | {"gpus": []}, "reports 0 GPUs, but 1 were requested"),
        ({"platform": "win32", "failed": "cuInit returned 100"}, "bridge fails: cuInit returned"),
        (HostError("exited with 3221225477 under Wine"), "fails its self-test: exited with 32212"),
        ("nothing at all", "the GPU bridge printed nothing in its self-test"),
        (f"{probe.MARK}{{", "invalid output"),
        (f"{probe.MARK}[1]", "invalid output"),
        ({"failed": "\x1b[31m" + "x" * 9000}, "the GPU bridge fails"),
    ],
)
def test_a_bridge_that_lies(tmp_path: Path, bridged: object, expected: str) -> None:
    with pytest.raises(HostError, match=expected) as caught:
        run(tmp_path, PLAIN, bridged)
    assert "\x1b" not in caught.value.message
    assert len(caught.value.message) < 1000
    assert "--gpu" in caught.value.hint
    assert "please report" in caught.value.hint


@pytest.mark.parametrize(
    ("plain", "expected"),
    [
        (of_gpu(PLAIN, numbers=WRONG), "NVIDIA's driver itself: a kernel computes wrong numbers"),
        ({"platform": "linux", "failed": "cuInit returned 999"}, "itself fails: cuInit returned 9"),
        (
            PLAIN | {"error": [0, "CUDA_SUCCESS", "no error"]},
            "itself reports for a nonexistent GPU",
        ),
        (PLAIN | {"error": [101, "CUDA_ERROR_INVALID_DEVICE", ""]}, "for a nonexistent GPU"),
        (PLAIN | {"bridge": "1 libcuda.so.1"}, "libcuda.so.1 is itself a bridge"),
        ("", "NVIDIA's driver itself printed nothing"),
    ],
)
def test_a_driver_that_is_wrong_by_itself(tmp_path: Path, plain: object, expected: str) -> None:
    """Also where the bridge says the very same."""
    same = dict(plain) | {"platform": "win32"} if isinstance(plain, dict) else BRIDGED
    with pytest.raises(HostError, match=expected) as caught:
        run(tmp_path, plain, same)
    assert "See nvidia-smi" in caught.value.hint


def test_without_a_gpu_nothing_was_tested() -> None:
    nobody = selftest.Answers.model_validate(PLAIN | {"gpus": []})
    found = next(selftest.find_answer_differences(nobody, nobody, ()))
    assert found.side is selftest.Side.DRIVER
    assert "not asked about any GPU" in found.what


def test_the_native_side_is_another_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "probe.py"
    monkeypatch.setattr(probe, "__file__", str(script))
    script.write_text("import sys; print(sys.argv[1:])")
    assert selftest._run_probe_on_linux([PLACE]) == f"['{PLACE}']\n"
    script.write_text("import os; os.abort()")
    with pytest.raises(HostError, match="itself exited with -6"):
        selftest._run_probe_on_linux([PLACE])
    monkeypatch.setattr(selftest, "_SECONDS", 0.2)
    script.write_text("import time; time.sleep(60)")
    with pytest.raises(HostError, match="hung for"):
        selftest._run_probe_on_linux([PLACE])


# -- once a start ----------------------------------------------------------------------------------


@pytest.fixture
def bridge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Attachment, list[str], list[int]]:
    """One whose self-test is counted, on a machine whose driver is well."""
    steps: list[str] = []
    runs: list[int] = []
    (tmp_path / "run").mkdir()
    found = Driver(library=Path("/l"), version="580.1", cuda="13.0", gpus=(CARD,))
    monkeypatch.setattr(driver, "inspect_gpu_driver", lambda: found)
    monkeypatch.setattr(attachment, "Prefix", lambda path: path)

    def tested(*_: Any) -> selftest.PassedTest:
        runs.append(1)
        return selftest.PassedTest("1 libcuda.so.1", 1, 1.2)

    monkeypatch.setattr(selftest, "run_bridge_selftest", tested)
    return Attachment(tmp_path, (), steps.append), steps, runs


def test_it_is_tested_once_a_start(
    bridge: tuple[Attachment, list[str], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, steps, runs = bridge
    assert made.summary().selftest == ""
    made.test("python.exe", 17)
    made.test("python.exe", 17)
    assert len(runs) == 1
    assert steps == [
        "GPU bridge: driver 580.1, CUDA 13.0, GPU 0: NVIDIA Pretended (8.9, 24 GiB)",
        "GPU bridge: kernel, callback, occupancy and error on the GPU as without the bridge, 1.2 s",
    ]
    made.test("python.exe", 18)
    assert len(runs) == 2, "another start"
    other = Driver(library=Path("/l"), version="581.0", cuda="13.0", gpus=(CARD,))
    monkeypatch.setattr(driver, "inspect_gpu_driver", lambda: other)
    made.test("python.exe", 18)
    assert len(runs) == 3, "another driver"


def test_what_was_not_tested_has_not_passed(
    bridge: tuple[Attachment, list[str], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another GPU of a service that runs on, and another service with the number of the last."""
    made, _, runs = bridge
    monkeypatch.setattr(attachment, "read_live_state", lambda _: {"pid": 17})
    both = CARD, CARD.model_copy(update={"number": 1, "bus": "0000:02:00.0", "uuid": "ff" * 16})
    monkeypatch.setattr(
        driver, "inspect_gpu_driver", lambda: Driver(library=Path("/l"), version="580.1", gpus=both)
    )
    made.numbers = (0,)
    made.test("python.exe", 17)
    assert made.summary().selftest
    made.numbers = (1,)
    assert made.summary().selftest == ""
    made.test("python.exe", 17)
    assert len(runs) == 2
    monkeypatch.setattr(attachment, "_process_start_time", lambda _: "later")
    assert made.summary().selftest == ""
    made.test("python.exe", 17)
    assert len(runs) == 3


def test_a_self_test_is_of_the_start_that_goes_on(
    bridge: tuple[Attachment, list[str], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _, _ = bridge
    made.test("python.exe", 17)
    assert made.summary().selftest == "", "no service runs"
    monkeypatch.setattr(attachment, "read_live_state", lambda _: {"pid": 17})
    assert made.summary().selftest.startswith("kernel, callback")
    monkeypatch.setattr(attachment, "read_live_state", lambda _: {"pid": 18})
    assert made.summary().selftest == ""
    (made.home / "run/bridge.json").write_text("{")
    assert made.summary().selftest == "", "what is damaged says nothing"


def test_one_that_fails_is_not_remembered(
    bridge: tuple[Attachment, list[str], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _, runs = bridge

    def fails(*_: Any) -> selftest.PassedTest:
        runs.append(1)
        raise HostError("it lies")

    monkeypatch.setattr(selftest, "run_bridge_selftest", fails)
    for _ in range(2):
        with pytest.raises(HostError, match="it lies"):
            made.test("python.exe", 17)
    assert len(runs) == 2


def test_what_is_told_without_a_start(bridge: tuple[Attachment, list[str], list[int]]) -> None:
    made, _, _ = bridge
    assert made.summary().gpus == ("GPU 0: NVIDIA Pretended (8.9, 24 GiB)",)
    assert (made.summary().driver, made.summary().cuda, made.summary().built) == (
        "580.1",
        "13.0",
        False,
    )
    (made.prefix / "bridge").mkdir(parents=True)
    assert not made.summary().built
    (made.prefix / "bridge/installed.json").touch()
    assert made.summary().built
    base = made.home.with_name("sandbox")
    lines = [*attachment.bridge_plan_notes(base, ())]
    assert lines[0] == (
        "GPU through a bridge: GPU 0: NVIDIA Pretended (8.9, 24 GiB); driver 580.1, CUDA 13.0"
    )
    assert lines[1] == "bridge: not built yet; it is built and tested when the sandbox starts"
    there = base.parent / "sandbox-py3.11-gpu/prefix/bridge/installed.json"
    there.parent.mkdir(parents=True)
    there.touch()
    assert [*attachment.bridge_plan_notes(base, ())][1:] == [
        "bridge in sandbox-py3.11-gpu: not tested yet"
    ]


def test_the_probe_needs_nothing_but_a_python() -> None:
    text = Path(probe.__file__).read_text("utf-8")
    wanted = {"ctypes", "json", "sys", "threading", "typing", "__future__"}
    found = {row.split()[1] for row in text.splitlines() if row.startswith(("import ", "from "))}
    assert found <= wanted
    assert "pipelines" not in text
    assert sys.version_info >= (3, 10)
