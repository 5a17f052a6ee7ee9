"""Streams and events: order, time, a thread's default stream, callbacks, capture, waiting."""

from __future__ import annotations

import ctypes as c
import threading
import time

from driver import (
    CALLBACK,
    CAPTURE_INVALIDATED,
    F32,
    I32,
    NOT_READY,
    U32,
    U64,
    Agree,
    Gpu,
    P,
    Parameters,
    Taken,
    call,
    kernel,
    launch,
    made,
    prototype,
    put,
    status,
    wait,
    words,
)
from kernels import BASIC

_LEGACY, _PER_THREAD = 1, 2  # CU_STREAM_LEGACY, CU_STREAM_PER_THREAD
_MS = 1_000_000


def test_streams_and_their_properties(gpu: Gpu, agree: Agree) -> None:
    least, greatest = I32(), I32()
    call("cuCtxGetStreamPriorityRange", c.byref(least), c.byref(greatest))
    assert greatest.value < least.value
    one = made("cuStreamCreateWithPriority", 1, greatest.value)
    assert made_at_end("cuStreamGetPriority", one, I32) == greatest.value
    assert made_at_end("cuStreamGetFlags", one, U32) == 1
    assert made_at_end("cuStreamGetCtx", one, P) == gpu.context
    other = made("cuStreamCreate", 0)
    assert made_at_end("cuStreamGetId", one, U64) != made_at_end("cuStreamGetId", other, U64)
    for each in (one, other):
        call("cuStreamDestroy_v2", each)
    agree("priorities", [least.value, greatest.value])


def made_at_end(name: str, handle: int, kind: type) -> int:
    found = kind()
    call(name, handle, c.byref(found))
    return int(found.value)


def test_a_stream_is_busy_and_then_is_not(stream: int, memory: Taken) -> None:
    p = memory(4)
    launch(kernel("spin", BASIC), 200 * _MS, stream=stream)
    launch(kernel("add", BASIC), p, U32(1), stream=stream)
    assert status("cuStreamQuery", stream) == NOT_READY
    wait(stream)
    assert status("cuStreamQuery", stream) == 0
    assert words(p, 1) == [1]


def test_events_and_time(stream: int) -> None:
    first, last = made("cuEventCreate", 0), made("cuEventCreate", 0)
    call("cuEventRecord", first, stream)
    launch(kernel("spin", BASIC), 50 * _MS, stream=stream)
    call("cuEventRecord", last, stream)
    assert status("cuEventQuery", last) == NOT_READY
    call("cuEventSynchronize", last)
    for name in ("cuEventElapsedTime", "cuEventElapsedTime_v2"):  # the two clocks tick apart
        assert 49.9 <= made(name, first, last, kind=F32) < 1000
    untimed = made("cuEventCreate", 2)
    call("cuEventRecord", untimed, stream)
    wait(stream)
    assert status("cuEventElapsedTime", c.byref(F32()), first, untimed) == 400
    for each in (first, last, untimed):
        call("cuEventDestroy_v2", each)


def test_one_stream_waits_for_another(stream: int, memory: Taken) -> None:
    p, other, event = memory(4), made("cuStreamCreate", 1), made("cuEventCreate", 2)
    launch(kernel("spin", BASIC), 50 * _MS, stream=stream)
    launch(kernel("fill", BASIC), p, U32(1), U32(40), stream=stream)
    call("cuEventRecord", event, stream)
    call("cuStreamWaitEvent", other, event, 0)
    launch(kernel("add", BASIC), p, U32(2), stream=other)
    wait(other)
    assert words(p, 1) == [42]  # else the addition came first and is overwritten
    call("cuStreamDestroy_v2", other)
    call("cuEventDestroy_v2", event)


def test_a_stream_waits_for_a_value(stream: int, memory: Taken) -> None:
    p = memory(16)
    call("cuStreamWaitValue32_v2", stream, p, 5, 1)  # until it is 5
    launch(kernel("add", BASIC), p + 4, U32(9), stream=stream)
    call("cuStreamWriteValue64_v2", stream, p + 8, 0x1122334455667788, 0)
    time.sleep(0.05)
    assert status("cuStreamQuery", stream) == NOT_READY
    other = made("cuStreamCreate", 1)
    call("cuStreamWriteValue32_v2", other, p, 5, 0)
    wait(stream)
    assert words(p, 2) == [5, 9]
    assert words(p + 8, 1, U64) == [0x1122334455667788]
    call("cuStreamDestroy_v2", other)


def test_host_functions_come_in_order(stream: int, memory: Taken) -> None:
    p, heard = memory(4), []
    found = (U32 * 50)()
    host = CALLBACK(None, P)(lambda data: heard.append((data, found[(data or 1) - 1])))
    for number in range(1, 51):
        launch(kernel("add", BASIC), p, U32(2), stream=stream)
        call("cuMemcpyDtoHAsync_v2", c.addressof(found) + 4 * number - 4, p, 4, stream)
        call("cuLaunchHostFunc", stream, host, number)
    wait(stream)
    assert heard == [(number, 2 * number) for number in range(1, 51)]


def test_a_callback_of_a_stream(stream: int) -> None:
    heard = []
    told = CALLBACK(None, P, I32, P)(lambda *a: heard.append((*a, threading.get_ident())))
    call("cuStreamAddCallback", stream, told, 77, 0)
    wait(stream)
    assert [each[:3] for each in heard] == [(stream, 0, 77)]


def test_a_callback_may_take_its_time(stream: int, memory: Taken) -> None:
    p, ended = memory(4), []

    def slow(data: int | None) -> None:
        time.sleep(0.1)
        ended.append(time.monotonic())

    host = CALLBACK(None, P)(slow)
    began = time.monotonic()
    call("cuLaunchHostFunc", stream, host, None)
    launch(kernel("add", BASIC), p, U32(3), stream=stream)
    asked = time.monotonic() - began
    wait(stream)
    assert time.monotonic() - began >= 0.1 > asked
    assert len(ended) == 1
    assert words(p, 1) == [3]


def test_the_default_stream_of_a_thread(memory: Taken) -> None:
    """By flag and by handle: two threads' default streams do not wait for each other."""
    found, told = P(), I32()
    call("cuGetProcAddress_v2", b"cuLaunchKernel", c.byref(found), 13000, 2, c.byref(told))
    assert told.value == 0
    plain = P()
    call("cuGetProcAddress_v2", b"cuLaunchKernel", c.byref(plain), 13000, 1, None)
    assert found.value != plain.value
    start = prototype(found.value, P, *[U32] * 7, P, P, P)
    p, spin, fill = memory(4), kernel("spin", BASIC), kernel("fill", BASIC)
    busy = Parameters(300 * _MS)
    assert start(spin, 1, 1, 1, 1, 1, 1, 0, None, busy.list, None) == 0
    assert status("cuStreamQuery", _PER_THREAD) == NOT_READY
    told_there = []

    def elsewhere(context: int) -> None:
        call("cuCtxSetCurrent", context)
        given = Parameters(p, U32(1), U32(6))
        code = start(fill, 1, 1, 1, 1, 1, 1, 0, None, given.list, None)
        told_there.extend([code, status("cuStreamSynchronize", _PER_THREAD)])

    began = time.monotonic()
    thread = threading.Thread(target=elsewhere, args=[made("cuCtxGetCurrent")])
    thread.start()
    thread.join()
    assert told_there == [0, 0]
    assert time.monotonic() - began < 0.25  # it has not waited for ours
    assert status("cuStreamQuery", _PER_THREAD) == NOT_READY
    wait(_PER_THREAD)
    assert words(p, 1) == [6]
    by_name = P()
    call("cuGetProcAddress_v2", b"cuStreamSynchronize", c.byref(by_name), 13000, 2, None)
    assert prototype(by_name.value, P)(None) == 0


def test_capture(stream: int, memory: Taken) -> None:
    p, add = memory(4), kernel("add", BASIC)
    heard: list[int] = []
    host = CALLBACK(None, P)(heard.append)
    call("cuStreamBeginCapture_v2", stream, 1)
    call("cuMemsetD32Async", p, 100, 1, stream)
    launch(add, p, U32(5), stream=stream)
    call("cuLaunchHostFunc", stream, host, 31)
    launch(add, p, U32(6), stream=stream)
    active, number, graph = I32(), U64(), P()
    call(
        "cuStreamGetCaptureInfo_v3",
        stream,
        c.byref(active),
        c.byref(number),
        c.byref(graph),
        *[None] * 3,
    )
    assert active.value == 1
    assert number.value > 0
    made_graph = made_at_end("cuStreamEndCapture", stream, P)
    assert made_graph == graph.value
    assert words(p, 1) == [0]  # nothing has run
    executable = made("cuGraphInstantiateWithFlags", made_graph, 0)
    for times in range(1, 4):
        call("cuGraphLaunch", executable, stream)
        wait(stream)
        assert (words(p, 1), len(heard)) == ([111], times)
    assert set(heard) == {31}
    call("cuGraphExecDestroy", executable)
    call("cuGraphDestroy", made_graph)


def test_what_may_not_be_captured(stream: int) -> None:
    call("cuStreamBeginCapture_v2", stream, 1)
    assert status("cuStreamSynchronize", stream) == 900  # CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    graph = P(1)
    assert status("cuStreamEndCapture", stream, c.byref(graph)) == CAPTURE_INVALIDATED
    assert graph.value is None
    assert made_at_end("cuStreamIsCapturing", stream, I32) == 0


def test_the_legacy_stream_waits_for_all(memory: Taken) -> None:
    blocking, p = made("cuStreamCreate", 0), memory(4)
    launch(kernel("spin", BASIC), 50 * _MS, stream=blocking)
    launch(kernel("fill", BASIC), p, U32(1), U32(3), stream=blocking)
    launch(kernel("add", BASIC), p, U32(1), stream=_LEGACY)
    wait(_LEGACY)
    assert words(p, 1) == [4]
    put(p, [9])
    assert words(p, 1) == [9]
    call("cuStreamDestroy_v2", blocking)
