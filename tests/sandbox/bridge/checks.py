"""The bridge, asked by a Windows program: ``python checks.py NAME...``, over the stand-in driver.

Only the standard library: this runs in the sandbox's Python. What a check expects of the stand-in
is in ``libcuda.c`` beside it.
"""

import ctypes as c
import itertools
import os
import struct
import sys
import threading
import time
import traceback

U64, P = c.c_uint64, c.c_void_p
HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
RUN_TIME, HANDSHAKE = "6bd5fb6c5bf4e74a8987d93912fd9df9", "d4082055bde6704b8d34ba123c66e1f2"
STORAGE, LOG = "c693336e1121df11a8c368f355d89593", "f8cff95121468b4eb9e2fb469e7c0dd9"
UNDESCRIBED = "42d85a8123f6cb478298f6e78a3aecdc"  # known, and nothing is said of it
NOTICES, HYBRID = "195bcbf4d67d024aacc51d29cea631ae", "dd9e98a4f410484499b0e2aeb7b432b5"


class _Driver:
    """nvcuda.dll, loaded at its first use."""

    def __getattr__(self, name):
        dll = c.WinDLL("nvcuda.dll")
        self.__dict__["_handle"] = dll._handle
        function = getattr(dll, name)
        setattr(self, name, function)
        return function


D = _Driver()


def fn(address, *types, result=c.c_int):
    return c.WINFUNCTYPE(result, *types)(address)


def address_of(function):
    return c.cast(function, P).value


def proc(name, version=13000):
    where, status = P(), c.c_int(9)
    error = D.cuGetProcAddress_v2(name, c.byref(where), version, U64(0), c.byref(status))
    return error, where.value, status.value


def table(uuid):
    where = P()
    error = D.cuGetExportTable(
        c.byref(where), (c.c_ubyte * 16).from_buffer_copy(bytes.fromhex(uuid))
    )
    return error, where.value


def words(address, count):
    return list((U64 * count).from_address(address))


def windows_dll():
    return c.CDLL(os.path.join(HERE, "windows.dll"))  # noqa: PTH118


def host(function):
    return c.WINFUNCTYPE(None, P)(function)


# -- plain calls -----------------------------------------------------------------------------------


def check_plain_calls():
    assert D.cuInit(0) == 0
    assert D.cuInit(1) == 1
    version = c.c_int()
    assert D.cuDriverGetVersion(c.byref(version)) == 0
    assert version.value == 13000
    name = c.create_string_buffer(64)
    assert D.cuDeviceGetName(name, 64, 3) == 0
    assert name.value == b"stand-in 3"


def check_it_says_what_it_is():
    D.driver_bridge.restype = c.c_char_p
    assert D.driver_bridge() == b"1 libcuda.so.1"
    nvml = c.WinDLL("nvml.dll")
    nvml.driver_bridge.restype = c.c_char_p
    assert nvml.driver_bridge() == b"1 libnvidia-ml.so.1"


def check_it_stays_loaded():
    assert D.cuInit(0) == 0
    kernel = c.WinDLL("kernel32")
    for _ in range(5):
        kernel.FreeLibrary(P(D._handle))
    assert D.cuInit(0) == 0


def check_a_function_that_the_driver_lacks():
    assert D.cuStreamSynchronize(None) == 500
    assert D.cuStreamSynchronize(None) == 500
    assert D.cuD3D11GetDevice(None, None) == 801


def check_many_arguments():
    out = U64()
    params = (P * 1)(c.addressof(out))
    assert D.cuLaunchKernel(U64(1 << 40), 1, 2, 3, 4, 5, 6, 7, U64(8), params, P(9)) == 0
    assert out.value == (1 << 40) + 2 + 6 + 15 + 28 + 55 + 78 + 119 + 152 + 207
    values = [3 * i + (i << 33) for i in range(1, 15)]
    assert D.cuTensorMapEncodeIm2col(c.byref(out), *map(U64, values)) == 0
    assert out.value == sum(i * v for i, v in enumerate(values, 1)) % 2**64


def check_floats():
    three = (c.c_float * 3)()
    at = c.addressof(three)
    clamp = fn(address_of(D.cuTexRefSetMipmapLevelClamp), P, c.c_float, c.c_float)
    bias = fn(address_of(D.cuTexRefSetMipmapLevelBias), P, c.c_float)
    parameter = fn(address_of(D.cuParamSetf), P, c.c_int, c.c_float)
    assert clamp(at, 1.5, -2.25) == 0
    assert list(three) == [1.5, -2.25, 0]
    assert bias(at, 0.125) == 0
    assert parameter(at, 2, 3.5) == 0
    assert list(three) == [0.125, -2.25, 3.5]


def check_structures_by_value():
    class Handle(c.Structure):
        _fields_ = (("b", c.c_char * 64),)

    class Location(c.Structure):
        _fields_ = (("type", c.c_int), ("id", c.c_int))

    out = U64()
    handle = Handle.from_buffer_copy(b"\x05" + bytes(62) + b"\x07")
    ipc = fn(address_of(D.cuIpcOpenMemHandle_v2), P, Handle, c.c_uint)
    assert ipc(c.addressof(out), handle, 3) == 0
    assert out.value == 5 + 256 * 7 + 65536 * 3
    fetch = fn(address_of(D.cuMemPrefetchAsync_v2), P, c.c_size_t, Location, c.c_uint, U64)
    assert fetch(c.addressof(out), 1, Location(2, 3), 4, 5) == 0
    assert out.value == 1 + 20 + 300 + 4000 + 50000


def check_kept_registers():
    changed = windows_dll().changed_registers
    changed.argtypes = [P, P]
    value = c.c_int()
    for function, expected in (
        (address_of(D.cuDriverGetVersion), 13000),
        (proc(b"cuHidden")[1], 4711),
    ):
        for _ in range(2):  # the first call of an unknown one is another one
            assert changed(function, c.addressof(value)) == 0
            assert value.value == expected


def check_exceptions():
    """An access violation within the driver is an exception of who called it."""

    class Guarded(c.Structure):
        _fields_ = (("function", P), ("first", P), ("second", P), ("caught", c.c_uint32))

    dll = windows_dll()
    for function in (D.cuMemGetInfo_v2, D.cuOccupancyMaxPotentialBlockSize):  # plain and special
        what = Guarded(address_of(function), None, None, 0)
        changed = dll.changed_registers
        changed.argtypes = [P, P]
        for _ in range(3):
            what.caught = 0
            assert changed(address_of(dll.call_guarded), c.addressof(what)) == 0
            assert what.caught == 0xC0000005
    try:
        D.cuMemGetInfo_v2(None, None)
    except OSError as error:
        assert "access violation" in str(error)  # noqa: PT017
    else:
        raise AssertionError("nothing was raised")
    grid, block = c.c_int(), c.c_int()
    crashes = P(address_of(c.CDLL("ucrtbase.dll").strlen))  # of address 128
    call = D.cuOccupancyMaxPotentialBlockSize
    try:
        call(c.byref(grid), c.byref(block), None, crashes, c.c_size_t(0), 9)
    except OSError as error:
        assert "access violation" in str(error)  # noqa: PT017
    else:
        raise AssertionError("nothing was raised")
    left, total = c.c_size_t(), c.c_size_t()
    assert D.cuMemGetInfo_v2(c.byref(left), c.byref(total)) == 0
    assert (left.value, total.value) == (1, 2)


def check_small_stacks():
    """A thread that asks for little gets what the driver needs."""
    found = []
    threading.stack_size(64 << 10)
    thread = threading.Thread(
        target=lambda: found.append(D.cuCtxSetLimit(7, c.c_size_t(700 << 10)))
    )
    thread.start()
    thread.join()
    assert found == [7]


def check_speed():
    """Prints nanoseconds: a call with two arguments, and one through no bridge at all."""
    dll = windows_dll()
    dll.time_calls.argtypes, dll.time_calls.restype = [P, P, c.c_int], c.c_longlong
    version = c.c_int()
    own = c.WinDLL("kernel32").GetCurrentProcessId
    for what, function in (("bridged", D.cuDriverGetVersion), ("not bridged", own)):
        times = [
            dll.time_calls(address_of(function), c.addressof(version), 1_000_000) for _ in range(5)
        ]
        print(f"{what}: {min(times) / 1000:.1f} ns", flush=True)


# -- functions by name -----------------------------------------------------------------------------


def check_functions_by_name():
    value = c.c_int()
    error, hidden, status = proc(b"cuHidden")
    assert (error, status) == (0, 0)
    assert fn(hidden, P)(c.addressof(value)) == 0
    assert value.value == 4711
    assert proc(b"cuHidden")[1] == hidden
    assert proc(b"cuNothing") == (500, None, 1)
    again = fn(proc(b"cuGetProcAddress")[1], c.c_char_p, P, c.c_int, U64, P)
    where = P()
    assert again(b"cuHidden", c.addressof(where), 13000, 0, None) == 0
    assert where.value == hidden
    assert proc(b"cuGetExportTable")[1] not in (None, hidden)


def check_what_another_version_of_a_function_takes():
    seen = []
    function = host(seen.append)
    params = (U64 * 32)(3, 0, address_of(function), 66)
    node = U64()
    old = fn(proc(b"cuGraphAddNode", 12020)[1], P, P, P, U64, P)
    new = fn(proc(b"cuGraphAddNode", 12030)[1], P, P, P, P, U64, P)
    assert old(c.addressof(node), None, None, 0, c.addressof(params)) == 0
    assert D.cuGraphLaunch(U64(0), None) == 0
    params[3] = 67
    assert new(c.addressof(node), None, None, None, 0, c.addressof(params)) == 0
    assert D.cuGraphLaunch(U64(0), None) == 0
    assert seen == [66, 67]


def check_a_callback_for_an_unknown_function():
    """It is warned of, not passed over; the stand-in does not call it."""
    count = c.c_int()
    new = fn(proc(b"cuNew")[1], P, P)
    assert new(c.addressof(count), address_of(host(print))) == 0
    value = c.c_int()
    for uuid in ("01" * 16, UNDESCRIBED):
        plain, other = (fn(address, P, P) for address in words(table(uuid)[1], 3)[1:])
        assert plain(c.addressof(value), None) == 0
        assert other(c.addressof(count), address_of(host(print))) == 0
    assert (value.value, count.value) == (4711, 4)


# -- callbacks -------------------------------------------------------------------------------------


def check_callbacks_on_threads_of_the_driver():
    seen = []
    stream = c.WINFUNCTYPE(None, P, c.c_int, P)(lambda *a: seen.append((a, threading.get_ident())))
    for _ in range(20):
        assert D.cuStreamAddCallback(P(77), stream, P(88), 1) == 0
    assert {arguments for arguments, _ in seen} == {(77, 701, 88)}
    assert len({thread for _, thread in seen}) == 1
    assert threading.get_ident() not in {thread for _, thread in seen}
    function = host(seen.append)
    by_name = fn(proc(b"cuLaunchHostFunc")[1], P, P, P)
    assert by_name(None, address_of(function), 4321) == 0
    assert D.cuCtxSynchronize() == 0
    assert seen[-1] == 4321


def check_callbacks_on_our_own_thread():
    seen = []

    def size(block):
        seen.append(threading.get_ident())
        return block * 2

    grid, block = c.c_int(), c.c_int()
    wanted = c.WINFUNCTYPE(c.c_size_t, c.c_int)(size)
    call = D.cuOccupancyMaxPotentialBlockSize
    assert call(c.byref(grid), c.byref(block), None, wanted, c.c_size_t(4), 9) == 0
    assert (grid.value, block.value, seen) == (13, 256, [threading.get_ident()])
    assert call(c.byref(grid), c.byref(block), None, None, c.c_size_t(0), 9) == 0
    assert block.value == 0


def check_a_callback_that_waits_for_another():
    """Of 12 at once each waits for the one that is launched after it."""
    done = [threading.Event() for _ in range(12)]
    seen = []

    def run(number):
        if number + 1 < len(done):
            assert done[number + 1].wait(20)
        seen.append(number)
        done[number].set()

    function = host(lambda data: run(data - 1))
    for number in range(len(done)):
        assert D.cuLaunchHostFunc(None, function, P(number + 1)) == 0
    assert D.cuCtxSynchronize() == 0
    assert seen == list(reversed(range(len(done))))


def check_callbacks_that_call_the_driver():
    seen = []

    @host
    def inner(data):
        seen.append(data)

    size = c.WINFUNCTYPE(c.c_size_t, c.c_int)(lambda block: seen.append(block) or 1)

    @host
    def outer(data):
        version, grid, block = c.c_int(), c.c_int(), c.c_int()
        assert D.cuDriverGetVersion(c.byref(version)) == 0
        call = D.cuOccupancyMaxPotentialBlockSize
        assert call(c.byref(grid), c.byref(block), None, size, c.c_size_t(0), 0) == 0
        stream = c.WINFUNCTYPE(None, P, c.c_int, P)(lambda *a: inner(7))
        assert D.cuStreamAddCallback(None, stream, None, 0) == 0
        assert D.cuLaunchHostFunc(None, inner, P(data + 1)) == 0
        seen.append(version.value)

    assert D.cuLaunchHostFunc(None, outer, P(1)) == 0
    assert D.cuCtxSynchronize() == 0
    assert sorted(seen) == [2, 7, 128, 13000]


def check_a_callback_when_a_thread_has_ended():
    """Its stack is gone by then: another thread runs it."""
    seen = threading.Event()
    threads = []

    @c.WINFUNCTYPE(None, P, P, P)
    def ended(*arguments):
        threads.append((threading.get_ident(), arguments))
        seen.set()

    def work():
        threads.append(threading.get_ident())
        handle = U64()
        register = D.cuDeviceRegisterAsyncNotification
        assert register(5, ended, P(6), c.byref(handle)) == 0
        assert handle.value == 8

    threading.Thread(target=work).start()
    assert seen.wait(20)
    first, (second, arguments) = threads
    assert first != second
    assert arguments == (5, 6, 8)


def check_a_process_that_ends_in_a_callback():
    """One waits for ever; the process ends all the same."""
    started = threading.Event()
    function = host(lambda data: started.set() or threading.Event().wait())
    assert D.cuLaunchHostFunc(None, function, None) == 0
    assert started.wait(20)
    print("ok", flush=True)
    c.WinDLL("kernel32").ExitProcess(0)


def check_graph_nodes():
    seen = []
    function = host(seen.append)
    address = address_of(function)
    node, params = U64(), (U64 * 2)(address, 55)
    assert D.cuGraphAddHostNode(c.byref(node), None, None, U64(0), params) == 0
    assert list(params) == [address, 55]
    assert D.cuGraphLaunch(U64(1), None) == 0
    assert D.cuGraphLaunch(U64(0), None) == 0
    assert seen == [55, 55]
    got = (U64 * 32)()
    assert D.cuGraphHostNodeGetParams(node, got) == 0
    assert list(got[:2]) == [address, 55]
    whole = (U64 * 32)(3, 0, address, 66)
    assert D.cuGraphAddNode_v2(c.byref(node), None, None, None, U64(0), whole) == 0
    assert D.cuGraphLaunch(U64(1), None) == 0
    assert seen[-1] == 66
    assert whole[2] == address
    other = (U64 * 32)(1, 0, address, 67)  # a memcpy's: nothing in it is a function
    assert D.cuGraphAddNode_v2(c.byref(node), None, None, None, U64(0), other) == 0
    assert D.cuGraphHostNodeGetParams(node, got) == 0
    assert list(got[:2]) == [address, 67]


def check_node_parameters_that_the_driver_fills():
    function = host(print)
    node, params = U64(), (U64 * 2)(address_of(function), 55)
    assert D.cuGraphAddHostNode(c.byref(node), None, None, U64(0), params) == 0
    get = fn(address_of(D.cuGraphNodeGetParams), P, P)
    got = (U64 * 32)()
    assert get(None, c.addressof(got)) == 0
    assert list(got[:4]) == [3, 0, address_of(function), 55]


def check_more_callbacks_than_there_is_room_for():
    out = U64()
    errors = set()
    for address in range(0x10000, 0x10000 + 50_000):
        errors.add(D.cuUserObjectCreate(c.byref(out), P(1), P(address), 1, 0))
        if errors != {0}:
            break
    assert errors == {0, 2}
    assert address - 0x10000 == 49152
    assert D.cuUserObjectCreate(c.byref(out), P(1), P(0x10000), 1, 0) == 0  # that one is known
    assert D.cuDriverGetVersion(c.byref(out)) == 0


def check_threads():
    """32 at once, with calls, in-place callbacks and callbacks from the driver's threads."""
    failed = []
    lock = threading.Lock()
    seen = itertools.count()

    @host
    def counted(data):
        with lock:
            next(seen)

    size = c.WINFUNCTYPE(c.c_size_t, c.c_int)(lambda block: block + 1)

    def work(number):
        value, block = c.c_int(), c.c_int()
        for i in range(300):
            good = D.cuDeviceGetAttribute(c.byref(value), i, number) == 0
            good &= value.value == 10 * i + number
            if i % 30 == 0:
                call = D.cuOccupancyMaxPotentialBlockSize
                good &= call(c.byref(value), c.byref(block), P(i), size, c.c_size_t(1), number) == 0
                good &= (value.value, block.value) == (i + 1 + number, 129)
                good &= D.cuLaunchHostFunc(None, counted, None) == 0
            if not good:
                failed.append((number, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert D.cuCtxSynchronize() == 0
    assert not failed
    assert next(seen) == 32 * 10


def check_a_million_calls_without_growth():
    dll = windows_dll()
    dll.time_calls.argtypes, dll.time_calls.restype = [P, P, c.c_int], c.c_longlong
    version = c.c_int()
    size = c.WINFUNCTYPE(c.c_size_t, c.c_int)(lambda block: block)
    stream = c.WINFUNCTYPE(None, P, c.c_int, P)(lambda *a: None)

    class Memory(c.Structure):
        _fields_ = (("size", c.c_uint32), ("faults", c.c_uint32), ("sizes", c.c_size_t * 9))

    def private():
        memory = Memory(c.sizeof(Memory))
        query = c.WinDLL("kernel32").K32GetProcessMemoryInfo
        assert query(P(-1), c.byref(memory), memory.size)
        return memory.sizes[1]  # the working set

    def calls(count):
        dll.time_calls(address_of(D.cuDriverGetVersion), c.addressof(version), 100 * count)
        for _ in range(count // 20):
            two = c.byref(version), c.byref(version)
            assert D.cuOccupancyMaxPotentialBlockSize(*two, None, size, c.c_size_t(0), 0) == 0
            assert D.cuStreamAddCallback(None, stream, None, 0) == 0
            assert proc(b"cuHidden")[0] == 0
            assert table(RUN_TIME)[0] == 0
            assert D.cuStreamSynchronize(None) == 500

    calls(1_000)
    before = private()
    calls(10_000)
    assert private() - before < 1 << 20, (before, private())


# -- files, environment, handles -------------------------------------------------------------------


def check_paths():
    folder = r"C:\t\a b"
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103
    with open(folder + r"\module.cubin", "w") as file:  # noqa: PTH123
        file.write("A")
    module = U64()
    assert D.cuModuleLoad(c.byref(module), folder.encode() + b"\\module.cubin") == 0
    assert module.value == 65
    os.chdir(folder)
    assert D.cuModuleLoad(c.byref(module), b"module.cubin") == 0
    assert D.cuModuleLoad(c.byref(module), folder.encode() + b"\\none.cubin") == 301
    name = c.create_string_buffer(folder.encode() + b"\\module.cubin")
    size = c.c_size_t(len(name))
    assert D.cuCoredumpSetAttribute(5, name, c.byref(size)) == 0
    assert D.cuCoredumpSetAttribute(1, name, c.byref(size)) == 0
    assert size.value == len(name)


def check_environment():
    text = c.c_char_p()
    assert "CUDA_LEFT" in os.environ  # from the Linux side; gone when the driver starts
    del os.environ["CUDA_LEFT"]
    os.environ["CUDA_TEST"] = "1,2=3"
    os.environ["CUDA_FILE"] = r"C:\t\dump"
    assert D.cuInit(0) == 0
    assert D.cuGetErrorString(0, c.byref(text)) == 0
    assert text.value == b"1,2=3"
    assert D.cuGetErrorString(1, c.byref(text)) == 0
    assert text.value.startswith(b"/")
    assert text.value.endswith(b"/t/dump")
    os.environ["CUDA_TEST"] = "too late"
    assert D.cuInit(0) == 0
    assert D.cuGetErrorString(0, c.byref(text)) == 0
    assert text.value == b"1,2=3"


def check_variables_that_a_program_deleted():
    text = c.c_char_p(b"?")
    assert os.environ.pop("CUDA_TEST") == "from Linux"
    assert D.cuInit(0) == 0
    assert D.cuGetErrorString(0, c.byref(text)) == 0
    assert text.value is None


def check_variables_while_another_thread_starts_the_driver():
    """The driver reads them then: they are not removed and set again under it."""
    os.environ["CUDA_SLOW"] = "first"
    D.cuDriverGetVersion(c.byref(c.c_int()))  # loads the DLL
    results, entered = [], threading.Event()

    def first():
        entered.set()
        results.append(D.cuInit(0))

    thread = threading.Thread(target=first)
    thread.start()
    entered.wait()
    time.sleep(0.1)
    os.environ["CUDA_SLOW"] = "second"
    results.append(D.cuInit(0))
    thread.join()
    assert results == [0, 0], results


def check_handles_of_windows():
    out = U64()
    for kind, expected in ((0, 0), (1, 0), (2, 801), (4, 801), (8, 0)):
        properties = (c.c_int * 8)(1, kind)
        assert D.cuMemCreate(c.byref(out), c.c_size_t(5), properties, U64(0)) == expected
        export = D.cuMemExportToShareableHandle(c.byref(out), U64(1), kind, U64(0))
        assert export == expected
    found = [D.cuImportExternalMemory(c.byref(out), (c.c_int * 16)(kind)) for kind in range(1, 10)]
    assert found == [0, *[801] * 6, 0, 0]
    assert D.cuCheckpointProcessLock(1, None) == 801


# -- what Windows' driver has, and Linux' has not --------------------------------------------------


def check_tables_of_the_driver():
    error, at = table(RUN_TIME)
    assert error == 0
    size, empty, context, hidden = words(at, 4)
    assert (size, empty) == (32, 0)
    value = U64()
    assert fn(context, P, c.c_int)(c.addressof(value), 2) == 0
    assert value.value == 1002
    assert fn(hidden, P)(c.addressof(value)) == 0
    assert table(RUN_TIME) == (0, at)
    assert table("00" * 16)[0] == 1


def check_an_unknown_table():
    error, at = table("01" * 16)
    assert error == 0
    size, hidden, _, number, data = words(at, 5)
    assert (size, number) == (40, 7)
    assert c.string_at(data, 1) == b"\0"
    value = c.c_int()
    assert fn(hidden, P)(c.addressof(value)) == 0
    assert value.value == 4711
    assert table("01" * 16) == (0, at)


def check_tables_without_an_end():
    for first in (2, 3, 4, 5):
        for _ in range(2):
            assert table(f"{first:02x}" * 16) == (500, None)


def check_context_storage():
    seen = []
    error, at = table(STORAGE)
    assert error == 0
    put, erase, get, end = words(at, 4)
    assert end == 0
    destructor = c.WINFUNCTYPE(None, P, P, P)(lambda *a: seen.append(a))
    assert fn(put, P, P, P, P)(1, 2, 3, address_of(destructor)) == 0
    value = U64()
    assert fn(get, P, P, P)(c.addressof(value), 1, 2) == 0
    assert value.value == 3
    assert fn(erase, P, P)(1, 2) == 0
    assert seen == [(1, 2, 3)]


def check_notices_of_a_threads_end():
    error, at = table(NOTICES)
    assert error == 0
    size, add, remove = words(at, 3)
    assert size == 24
    kernel = c.WinDLL("kernel32")
    kernel.VirtualAlloc.restype = P
    # No Python in a thread that ends: the notice is (reason, event) -> SetEvent(event).
    event = kernel.CreateEventW(None, True, False, None)
    code = bytes.fromhex("4883ec28 4889d1 48b8") + struct.pack("<Q", address_of(kernel.SetEvent))
    code += bytes.fromhex("ffd0 4883c428 c3")
    place = kernel.VirtualAlloc(None, 4096, 0x3000, 0x40)
    c.memmove(place, code, len(code))

    def end_a_thread(milliseconds):
        kernel.ResetEvent(event)
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
        return kernel.WaitForSingleObject(event, milliseconds)

    first, second = P(), P()
    assert fn(add, P, P, P)(c.addressof(first), place, event) == 0
    assert first.value
    assert end_a_thread(2000) == 0
    assert fn(remove, P, P)(first, None) == 0
    assert end_a_thread(100) == 258
    assert fn(add, P, P, P)(c.addressof(second), place, event) == 0
    assert second.value == first.value  # used again
    assert end_a_thread(2000) == 0
    assert fn(remove, P, P)(12345, None) == 1


def check_the_error_log():
    error, at = table(LOG)
    assert error == 0
    write = fn(words(at, 2)[1], c.c_char_p, c.c_int, c.c_char_p, P)
    text = c.create_string_buffer(b"text")
    number = struct.unpack("<Q", struct.pack("<d", 2.5))[0]
    arguments = (U64 * 10)(1, 2, 3, 4, 5, 6, c.addressof(text), number, 9, 10)
    write(b"here", 0, b"%d %d %d %d %d %d %s %.2f %d %d", c.addressof(arguments))
    out = c.create_string_buffer(200)
    assert D.cuLogsCurrent(out) == 0
    assert out.value == b"1 2 3 4 5 6 text 2.50 9 10"


def check_a_luid_is_made_up():
    luid, nodes = c.create_string_buffer(8), c.c_uint()
    assert D.cuDeviceGetLuid(luid, c.byref(nodes), 0) == 0
    assert luid.raw == bytes(range(8))
    assert nodes.value == 1
    by_name = fn(proc(b"cuDeviceGetLuid")[1], P, P, c.c_int)
    assert by_name(c.addressof(luid), None, 1) == 0
    assert luid.raw == bytes(range(1, 9))


def check_the_hybrid_run_time():
    error, at = table(HYBRID)
    assert error == 0
    size, load, free = words(at, 3)
    assert size == 24
    function, token = P(), P()
    loaded = fn(load, c.c_char_p, P, P)
    where = c.addressof(function), c.addressof(token)
    assert loaded(b"nvcudart_hybrid64.dll", *where) == 0
    assert function.value
    assert token.value
    assert fn(free, P)(token) == 0
    assert loaded(b"nosuch.dll", *where) == 301
    assert loaded(b"kernel32.dll", *where) == 301  # it has no such function


def check_nvml():
    nvml = c.WinDLL("nvml.dll")
    count, text = c.c_uint(), c.create_string_buffer(80)
    assert nvml.nvmlInit_v2() == 0
    assert nvml.nvmlDeviceGetCount_v2(c.byref(count)) == 0
    assert count.value == 2
    assert nvml.nvmlSystemGetDriverVersion(text, 80) == 0
    assert text.value == b"580.0"
    time, duration = U64(), (c.c_uint32 * 2)(0, 5)  # a long has 4 bytes here, 8 on Linux
    for device, expected in ((None, 77), (P(1), 2**32 - 1)):
        asked = nvml.nvmlDeviceGetLastBBXFlushTime(device, c.byref(time), duration)
        assert (asked, time.value, list(duration)) == (0, 1 << 40, [expected, 5])
    assert nvml.nvmlDeviceGetCpuAffinity(None, 1, duration) == 3
    assert nvml.nvmlShutdown() == 13


# -- the handshake, computed again -----------------------------------------------------------------


def md2(message, pi):
    """RFC 1319."""
    message += bytes([16 - len(message) % 16] * (16 - len(message) % 16))
    checksum, last = bytearray(16), 0
    for at in range(0, len(message), 16):
        for j in range(16):
            last = checksum[j] = checksum[j] ^ pi[message[at + j] ^ last]
    state = bytearray(48)
    message += bytes(checksum)
    for at in range(0, len(message), 16):
        block = message[at : at + 16]
        state[16:32] = block
        state[32:48] = bytes(a ^ b for a, b in zip(block, state, strict=False))
        t = 0
        for j in range(18):
            for k in range(48):
                t = state[k] = state[k] ^ pi[t]
            t = (t + j) % 256
    return bytes(state[:16])


def table_of_pi():
    """0..255 shuffled by the digits of pi, as RFC 1319's table is said to be made."""
    count = 722
    one = 10 ** (count + 20)

    def arctan_of_inverse(x):
        total, term, n = 0, one // x, 1
        while term:
            total += term // n if n % 4 == 1 else -(term // n)
            term, n = term // (x * x), n + 2
        return total

    digits = str(4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239)))[:count]
    text = iter(digits)

    def below(n):
        while True:
            size = 1 if n <= 10 else 2 if n <= 100 else 3
            x = int("".join(next(text) for _ in range(size)))
            if x < n * (10**size // n):
                return x % n

    pi = list(range(256))
    for i in range(2, 257):
        j = below(i)
        pi[j], pi[i - 1] = pi[i - 1], pi[j]
    return pi


def check_the_handshake():
    pi = table_of_pi()
    assert pi[:4] == [41, 46, 67, 201]
    assert md2(b"abc", pi).hex() == "da853b0d3f88d99b30283a69e6ded6bb"  # both from the RFC
    _, run_time = table(RUN_TIME)
    error, at = table(HANDSHAKE)
    assert error == 0
    _, check, _ = words(at, 3)
    answer = (U64 * 2)()
    call = fn(check, c.c_uint, U64, P)
    assert call(13000, 99, c.addressof(answer)) == 0
    assert list(answer) == [13000, 99]  # the driver's
    assert call(13002, 1234567, c.addressof(answer)) == 0
    kernel = c.WinDLL("kernel32")
    ids = kernel.GetCurrentProcessId(), kernel.GetCurrentThreadId()
    told = struct.pack("<IIIIQQQQ", 13000, 13002, *ids, run_time, at, check, 1234567)
    for gpu in range(2):
        told += bytes(range(gpu, 16 + gpu)) + struct.pack("<III", 500 + gpu, 330 + gpu, 340 + gpu)
    key = bytes.fromhex("146addae53a9a752aa0841360bf55a9f")
    inner = md2(bytes(k ^ 0x36 for k in key) + told, pi)
    assert bytes(answer) == md2(bytes(k ^ 0x5C for k in key) + inner, pi)


# -- not a bridge ----------------------------------------------------------------------------------


def refused_as_without_a_driver():
    for name in ("nvcuda.dll", "nvml.dll"):
        try:
            c.WinDLL(name)
        except OSError:
            continue
        raise AssertionError(f"{name} was loaded")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        try:
            globals()[name]()
        except BaseException:
            traceback.print_exc(file=sys.stdout)
            sys.stdout.flush()
            os._exit(1)
        print("ok", flush=True)
