"""Graphs: nodes of each kind, children, conditions, clones, updates, owned objects, pictures."""

from __future__ import annotations

import ctypes as c
import threading
from pathlib import Path

import pytest
from driver import (
    CALLBACK,
    I32,
    U32,
    U64,
    Gpu,
    P,
    Parameters,
    Taken,
    call,
    kernel,
    made,
    status,
    wait,
    words,
)
from driver import module as loaded
from kernels import BASIC, CONDITION
from structures import (
    Conditional,
    Copy3D,
    HostNode,
    HostNodeParams,
    KernelNode,
    MemsetNode,
    UpdateResult,
)

_HOST, _DEVICE = 1, 2  # CUmemorytype


class Graph:
    """A graph under construction: each node comes after the given ones."""

    def __init__(self, handle: int | None = None, *, context: int) -> None:
        self.handle = handle or made("cuGraphCreate", 0)
        self.context = context

    def add(self, name: str, *arguments: object, after: tuple[int, ...] = ()) -> int:
        before = (P * max(1, len(after)))(*after)
        return int(made(name, self.handle, before, len(after), *arguments))

    def kernel(self, function: int, *values: object, after: tuple[int, ...] = ()) -> int:
        given = Parameters(*values)
        node = KernelNode(
            function=function, grid=(1, 1, 1), block=(1, 1, 1),
            parameters=c.addressof(given.list),
        )  # fmt: skip
        return self.add("cuGraphAddKernelNode_v2", c.byref(node), after=after)

    def memset(self, address: int, value: int, after: tuple[int, ...] = ()) -> int:
        node = MemsetNode(address=address, value=value, element=4, width=1, height=1)
        return self.add("cuGraphAddMemsetNode", c.byref(node), self.context, after=after)

    def host(self, function: object, data: int, after: tuple[int, ...] = ()) -> int:
        node = HostNode(c.cast(function, P), data)  # type: ignore[arg-type]
        return self.add("cuGraphAddHostNode", c.byref(node), after=after)

    def run(self, stream: int, times: int = 1) -> None:
        executable = made("cuGraphInstantiateWithFlags", self.handle, 0)
        for _ in range(times):
            call("cuGraphLaunch", executable, stream)
        wait(stream)
        call("cuGraphExecDestroy", executable)

    def count(self) -> int:
        size = c.c_size_t()
        call("cuGraphGetNodes", self.handle, None, c.byref(size))
        return size.value


@pytest.fixture
def graph(gpu: Gpu) -> Graph:
    return Graph(context=gpu.context)


def _to_host(address: int, place: c.Array[U32]) -> Copy3D:
    return Copy3D(
        source_type=_DEVICE, source_address=address, target_type=_HOST,
        source_pitch=4, source_rows=1, target_host=c.addressof(place), target_pitch=4,
        target_rows=1, width=4, height=1, depth=1,
    )  # fmt: skip


def test_nodes_of_each_kind(graph: Graph, memory: Taken, stream: int) -> None:
    p, found, heard = memory(4), (U32 * 1)(), []
    host = CALLBACK(None, P)(lambda data: heard.append((data, found[0])))
    add = kernel("add", BASIC)
    first = graph.memset(p, 1000)
    second = graph.kernel(add, p, U32(1), after=(first,))
    third = graph.kernel(add, p, U32(10), after=(first,))
    join = graph.add("cuGraphAddEmptyNode", after=(second, third))
    copy = graph.add(
        "cuGraphAddMemcpyNode", c.byref(_to_host(p, found)), graph.context, after=(join,)
    )
    last = graph.host(host, 55, after=(copy,))
    assert graph.count() == 6
    kinds = [_kind(node) for node in (second, copy, first, last, join)]
    assert kinds == [0, 1, 2, 3, 5]  # CUgraphNodeType
    graph.run(stream, 3)
    assert heard == [(55, 1011)] * 3
    assert words(p, 1) == [1011]
    edges = c.c_size_t()
    call("cuGraphGetEdges", graph.handle, None, None, c.byref(edges))
    assert edges.value == 6
    call("cuGraphDestroy", graph.handle)


def _kind(node: int) -> int:
    found = I32(-1)
    call("cuGraphNodeGetType", node, c.byref(found))
    return found.value


def test_what_a_node_says_of_itself(graph: Graph, memory: Taken) -> None:
    """A host node names the application's own function, a kernel node its parameters."""
    host = CALLBACK(None, P)(lambda data: None)
    node = graph.host(host, 77)
    told = HostNode()
    call("cuGraphHostNodeGetParams", node, c.byref(told))
    assert (told.function, told.data) == (c.cast(host, P).value, 77)
    other = CALLBACK(None, P)(lambda data: None)
    changed = HostNode(c.cast(other, P), 78)
    call("cuGraphHostNodeSetParams", node, c.byref(changed))
    call("cuGraphHostNodeGetParams", node, c.byref(told))
    assert (told.function, told.data) == (c.cast(other, P).value, 78)
    p, add = memory(4), kernel("add", BASIC)
    launched, said = graph.kernel(add, p, U32(9)), KernelNode()
    call("cuGraphKernelNodeGetParams_v2", launched, c.byref(said))
    assert (said.function, tuple(said.grid), tuple(said.block)) == (add, (1, 1, 1), (1, 1, 1))
    values = (P * 2).from_address(said.parameters or 0)
    assert U64.from_address(values[0] or 0).value == p
    assert U32.from_address(values[1] or 0).value == 9
    call("cuGraphDestroy", graph.handle)


def test_a_host_node_by_the_general_function(graph: Graph, stream: int) -> None:
    heard: list[int] = []
    host = CALLBACK(None, P)(heard.append)
    node = HostNodeParams(type=3, host=HostNode(c.cast(host, P), 91))
    name = "cuGraphAddNode_v2"  # (node, graph, dependencies, edges, how many, parameters)
    added = made(name, graph.handle, None, None, 0, c.byref(node))
    assert _kind(added) == 3
    graph.run(stream, 2)
    assert heard == [91, 91]
    node.host.data = 92
    call("cuGraphNodeSetParams", added, c.byref(node))
    graph.run(stream)
    assert heard == [91, 91, 92]
    call("cuGraphDestroy", graph.handle)


def test_a_child_and_a_clone(graph: Graph, gpu: Gpu, memory: Taken, stream: int) -> None:
    p, add = memory(4), kernel("add", BASIC)
    child = Graph(context=gpu.context)
    child.kernel(add, p, U32(5), after=(child.kernel(add, p, U32(3)),))
    first = graph.memset(p, 100)
    node = graph.add("cuGraphAddChildGraphNode", child.handle, after=(first,))
    assert _kind(node) == 4
    call("cuGraphDestroy", child.handle)  # the node has a copy of its own
    graph.run(stream)
    assert words(p, 1) == [108]
    clone = Graph(made("cuGraphClone", graph.handle), context=gpu.context)
    same = made("cuGraphNodeFindInClone", first, clone.handle)
    changed = MemsetNode(address=p, value=500, element=4, width=1, height=1)
    call("cuGraphMemsetNodeSetParams", same, c.byref(changed))
    clone.run(stream)
    assert words(p, 1) == [508]
    graph.run(stream)
    assert words(p, 1) == [108]  # the original is as it was
    for each in (graph, clone):
        call("cuGraphDestroy", each.handle)


def test_updates(graph: Graph, gpu: Gpu, memory: Taken, stream: int) -> None:
    p, add = memory(4), kernel("add", BASIC)
    node = graph.kernel(add, p, U32(1))
    executable = made("cuGraphInstantiateWithFlags", graph.handle, 0)
    given = Parameters(p, U32(20))
    shape = KernelNode(
        function=add, grid=(2, 1, 1), block=(3, 1, 1), parameters=c.addressof(given.list)
    )
    call("cuGraphExecKernelNodeSetParams_v2", executable, node, c.byref(shape))
    call("cuGraphLaunch", executable, stream)
    wait(stream)
    assert words(p, 1) == [20 * 6]
    other, said = Graph(context=gpu.context), UpdateResult()
    other.kernel(add, p, U32(7))
    call("cuGraphExecUpdate_v2", executable, other.handle, c.byref(said))
    assert said.result == 0
    call("cuGraphLaunch", executable, stream)
    wait(stream)
    assert words(p, 1) == [127]
    other.memset(p, 0)
    assert status("cuGraphExecUpdate_v2", executable, other.handle, c.byref(said)) == 910
    assert said.result == 2  # CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED
    call("cuGraphExecDestroy", executable)
    for each in (graph, other):
        call("cuGraphDestroy", each.handle)


def test_a_host_node_of_an_executable_is_changed(graph: Graph, stream: int) -> None:
    heard: list[tuple[str, int]] = []
    one = CALLBACK(None, P)(lambda data: heard.append(("one", data)))
    two = CALLBACK(None, P)(lambda data: heard.append(("two", data)))
    node = graph.host(one, 1)
    executable = made("cuGraphInstantiateWithFlags", graph.handle, 0)
    call("cuGraphLaunch", executable, stream)
    wait(stream)
    changed = HostNode(c.cast(two, P), 2)
    call("cuGraphExecHostNodeSetParams", executable, node, c.byref(changed))
    call("cuGraphLaunch", executable, stream)
    wait(stream)
    assert heard == [("one", 1), ("two", 2)]
    call("cuGraphExecDestroy", executable)
    call("cuGraphDestroy", graph.handle)


def test_a_node_is_switched_off(graph: Graph, memory: Taken, stream: int) -> None:
    p, add = memory(4), kernel("add", BASIC)
    first = graph.kernel(add, p, U32(1))
    graph.kernel(add, p, U32(100), after=(first,))
    executable = made("cuGraphInstantiateWithFlags", graph.handle, 0)
    call("cuGraphNodeSetEnabled", executable, first, 0)
    enabled = U32(9)
    call("cuGraphNodeGetEnabled", executable, first, c.byref(enabled))
    assert enabled.value == 0
    call("cuGraphLaunch", executable, stream)
    wait(stream)
    assert words(p, 1) == [100]
    call("cuGraphExecDestroy", executable)
    call("cuGraphDestroy", graph.handle)


def test_a_loop_with_a_condition(graph: Graph, memory: Taken, stream: int) -> None:
    p, count = memory(4), made("cuModuleGetFunction", loaded(CONDITION), b"count")
    create = "cuGraphConditionalHandleCreate"
    handle = made(create, graph.handle, graph.context, 1, 1, kind=U64)  # 1 at each launch
    loop = Conditional(type=13, handle=handle, kind=1, size=1, context=graph.context)  # while
    made("cuGraphAddNode_v2", graph.handle, None, None, 0, c.byref(loop))
    body = Graph(loop.graphs[0], context=graph.context)
    body.kernel(count, U64(handle), p, U32(7))
    graph.run(stream)
    assert words(p, 1) == [7]
    call("cuMemsetD32_v2", p, 5, 1)
    graph.run(stream)
    assert words(p, 1) == [7]
    call("cuGraphDestroy", graph.handle)


def test_an_object_that_a_graph_owns(graph: Graph, stream: int) -> None:
    """Its destructor is called once, when the last of its owners is gone."""
    gone, heard = threading.Event(), []

    def end(data: int) -> None:
        heard.append(data)
        gone.set()

    destroyed = CALLBACK(None, P)(end)
    thing = made("cuUserObjectCreate", 1234, destroyed, 1, 1)
    call("cuGraphRetainUserObject", graph.handle, thing, 1, 1)  # the graph takes ours
    host = CALLBACK(None, P)(lambda data: None)
    graph.host(host, 0)
    executable = made("cuGraphInstantiateWithFlags", graph.handle, 0)
    call("cuGraphLaunch", executable, stream)
    wait(stream)
    call("cuGraphDestroy", graph.handle)
    assert not gone.wait(0.1)  # the executable has it too
    call("cuGraphExecDestroy", executable)
    for _ in range(200):
        if gone.wait(0.05):
            break
        wait(stream)
    assert heard == [1234]


def test_a_picture_for_people(graph: Graph, memory: Taken, tmp_path: Path) -> None:
    p = memory(4)
    graph.kernel(kernel("saxpy", BASIC), p, p, c.c_float(1), U32(0), after=(graph.memset(p, 1),))
    file = tmp_path / "a graph.dot"
    call("cuGraphDebugDotPrint", graph.handle, str(file).encode(), 1)  # verbose
    text = file.read_text("utf-8")
    assert text.startswith("digraph")
    assert "saxpy" in text
    call("cuGraphDestroy", graph.handle)


def test_a_graph_with_a_ring_is_refused(graph: Graph, memory: Taken) -> None:
    p, add = memory(4), kernel("add", BASIC)
    first = graph.kernel(add, p, U32(1))
    second = graph.kernel(add, p, U32(1), after=(first,))
    ends = (P * 1)(second), (P * 1)(first)
    added = status("cuGraphAddDependencies", graph.handle, *ends, 1)
    assert added or status("cuGraphInstantiateWithFlags", c.byref(P()), graph.handle, 0)
    call("cuGraphDestroy", graph.handle)
