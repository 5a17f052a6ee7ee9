"""What all cases have: the GPU, memory that is freed, and facts that both sides must agree on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from driver import U64, Agree, Gpu, Taken, call, made, wait


@pytest.fixture(scope="session")
def gpu() -> Gpu:
    """The GPU. A case without it fails: nothing here may pass without having looked."""
    return Gpu()


@pytest.fixture(autouse=True)
def _current(gpu: Gpu) -> None:
    gpu.use()


@pytest.fixture
def memory(gpu: Gpu) -> Iterator[Taken]:
    """``memory(bytes)``: zeros on the GPU."""
    taken: list[int] = []

    def take(size: int) -> int:
        taken.append(made("cuMemAlloc_v2", size, kind=U64))
        call("cuMemsetD8_v2", taken[-1], 0, size)
        return taken[-1]

    yield take
    wait()
    for each in taken:
        call("cuMemFree_v2", each)


@pytest.fixture
def stream(gpu: Gpu) -> Iterator[int]:
    """A stream that does not wait for the default one."""
    one = made("cuStreamCreate", 1)
    yield one
    call("cuStreamDestroy_v2", one)


@pytest.fixture
def agree(record_property: Callable[[str, object], None]) -> Agree:
    """``agree(name, value)``: both sides must have found the same; compared by who runs them."""
    return lambda name, value: record_property(
        f"agree.{name}", json.dumps(value, sort_keys=True, default=str)
    )
