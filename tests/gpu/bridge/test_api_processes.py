"""Several processes and threads, much work, and ends that are not good ones."""

from __future__ import annotations

import ctypes as c
import threading
import time
from collections.abc import Callable

from children import begin, end
from driver import (
    CALLBACK,
    ILLEGAL_ADDRESS,
    U32,
    U64,
    Gpu,
    P,
    Parameters,
    Taken,
    call,
    driver,
    kernel,
    launch,
    made,
    put,
    wait,
    words,
)
from kernels import BASIC
from structures import IpcHandle
from usage import Usage

_MIB = 1 << 20


def test_memory_of_another_process(memory: Taken) -> None:
    """A handle of 64 bytes, passed by value."""
    p, handle = memory(2 * _MIB), IpcHandle()
    put(p, list(range(100, 108)))
    wait()
    call("cuIpcGetMemHandle", c.byref(handle), p)
    code, said, noise = end(begin("open_memory", bytes(handle).hex()))
    assert (code, said) == (0, {"code": 0, "found": list(range(100, 108))}), noise
    assert words(p, 8) == [2 * each for each in range(100, 108)]


def test_an_event_of_another_process(stream: int) -> None:
    event, handle = made("cuEventCreate", 2 | 4), IpcHandle()  # untimed, between processes
    call("cuIpcGetEventHandle", c.byref(handle), event)
    launch(kernel("spin", BASIC), 8_000_000_000, stream=stream)
    call("cuEventRecord", event, stream)
    code, said, noise = end(begin("open_event", bytes(handle).hex()))
    assert (code, said["code"]) == (0, 0), noise
    assert 0.05 < said["seconds"] < 9  # it has waited for us
    call("cuEventDestroy_v2", event)


def test_two_processes_at_once() -> None:
    children = [begin("work", first, "3") for first in ("1000", "500000")]
    ended = [end(each) for each in children]
    for code, said, noise in ended:
        assert code == 0, noise
        assert said["rounds"] > 10
        assert said["good"] == said["rounds"]
    one, two = (said for _, said, _ in ended)
    assert min(one["ended"], two["ended"]) - max(one["began"], two["began"]) > 0.5  # together


def test_a_gpu_is_hidden_by_the_program_itself() -> None:
    code, said, noise = end(begin("hidden"))
    assert (code, said) == (0, {"code": 100}), noise  # CUDA_ERROR_NO_DEVICE
    code, said, noise = end(begin("hidden", CUDA_VISIBLE_DEVICES="0"))
    assert (code, said) == (0, {"code": 100}), noise


def _still_good(memory: Taken) -> None:
    p = memory(16)
    launch(kernel("fill", BASIC), p, U32(4), U32(9), block=4)
    assert words(p, 4) == [9, 10, 11, 12]


def test_a_lost_context_stays_lost_and_is_nobody_elses(memory: Taken) -> None:
    code, said, noise = end(begin("lost_context"))
    assert said is not None, noise
    assert said["codes"] == [ILLEGAL_ADDRESS] * 5
    assert said["version"][0] == 0
    assert code == 0, noise  # and it ended as programs do
    _still_good(memory)


def test_a_crash_in_the_driver_is_one_process_end(memory: Taken) -> None:
    code, said, noise = end(begin("crash"))
    assert code != 0, noise
    assert said is None, "the driver has read from address 8"
    _still_good(memory)


def test_the_end_of_a_process_whose_gpu_is_busy(memory: Taken) -> None:
    began = time.monotonic()
    code, said, noise = end(begin("pending", "2"))
    assert (code, said) == (0, {"launched": True}), noise
    assert time.monotonic() - began < 60
    _still_good(memory)


def test_a_context_is_reset_and_made_anew() -> None:
    code, said, noise = end(begin("reset"))
    assert code == 0, noise
    assert (said["gone"], said["found"]) == (True, [1, 2, 3, 4])


def test_thirty_two_threads(gpu: Gpu, memory: Taken) -> None:
    """Each with a stream, a module and numbers of its own, all at once."""
    threads, rounds = 32, 200
    p, ready = memory(4 * threads), threading.Barrier(threads)
    failed: list[BaseException] = []

    def run(index: int) -> None:
        try:
            gpu.use()
            stream = made("cuStreamCreate", 1)
            own = made("cuModuleLoadData", f"{BASIC}// thread {index}\n".encode())
            add = made("cuModuleGetFunction", own, b"add")
            ready.wait(60)
            for _ in range(rounds):
                launch(add, p + 4 * index, U32(index + 1), stream=stream)
                wait(stream)
            call("cuModuleUnload", own)
            call("cuStreamDestroy_v2", stream)
        except BaseException as error:
            failed.append(error)
            ready.abort()

    started = [threading.Thread(target=run, args=[index]) for index in range(threads)]
    for each in started:
        each.start()
    for each in started:
        each.join()
    assert failed == []
    assert words(p, threads) == [rounds * (index + 1) for index in range(threads)]


def test_threads_come_and_go(gpu: Gpu, memory: Taken) -> None:
    """300 short ones with a host function each: what is kept for a thread is given back."""
    p = memory(4)
    heard: list[int] = []
    host = CALLBACK(None, P)(heard.append)

    def run(index: int) -> None:
        gpu.use()
        call("cuLaunchHostFunc", 0, host, index)
        launch(kernel("add", BASIC), p, U32(1))
        wait()

    for index in range(1, 301):
        thread = threading.Thread(target=run, args=[index])
        thread.start()
        thread.join()
    assert heard == list(range(1, 301))
    assert words(p, 1) == [300]


def test_a_million_launches_without_growth(
    memory: Taken, stream: int, record_property: Callable[[str, object], None]
) -> None:
    warm, count = 100_000, 1_000_000
    p, add = memory(4), kernel("add", BASIC)
    given = Parameters(p, U32(1))
    start = driver().cuLaunchKernel
    arguments = (c.c_void_p(add), 1, 1, 1, 1, 1, 1, 0, c.c_void_p(stream), given.list, None)

    def run(times: int) -> None:
        for number in range(times):
            if start(*arguments):
                raise AssertionError(f"launch {number}")
            if number % 1000 == 999:
                wait(stream)

    run(warm)
    before = Usage.now()
    run(count)
    after = Usage.now()
    assert words(p, 1) == [warm + count]
    grown = after.since(before)
    record_property("grown", str(grown))
    assert grown.memory < 8 * _MIB, grown
    assert grown.handles <= 2, grown
    assert abs(grown.gpu) <= 4 * _MIB, grown


def test_a_hundred_contexts_of_work_without_growth(gpu: Gpu) -> None:
    """Modules, streams, events, memory and callbacks that are made and given back."""
    heard: list[int] = []
    host = CALLBACK(None, P)(heard.append)

    def run(times: int) -> None:
        for _ in range(times):
            own = made("cuModuleLoadData", BASIC.encode())
            stream, event = made("cuStreamCreate", 1), made("cuEventCreate", 2)
            p = made("cuMemAlloc_v2", _MIB, kind=U64)
            launch(made("cuModuleGetFunction", own, b"empty"), stream=stream)
            call("cuLaunchHostFunc", stream, host, 7)
            call("cuEventRecord", event, stream)
            wait(stream)
            call("cuMemFree_v2", p)
            call("cuEventDestroy_v2", event)
            call("cuStreamDestroy_v2", stream)
            call("cuModuleUnload", own)

    run(50)
    before = Usage.now()
    run(200)
    grown = Usage.now().since(before)
    assert heard == [7] * 250
    assert grown.memory < 32 * _MIB, grown
    assert grown.handles <= 4, grown
    assert abs(grown.gpu) <= 8 * _MIB, grown
