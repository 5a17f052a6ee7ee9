"""What of Dask can be reached over a network: nothing, with its page and without."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet_shown import machine

from pipelines.fleet import dask_engine
from pipelines.fleet.dask_engine import DaskEngine
from pipelines.fleet.model import Ended, Work

_LISTENS, _LOOPBACK = "0A", {"0100007F", "00000000000000000000000001000000"}


class Idle:
    """A driver that nobody gives work."""

    def do(self, work: Work, attempt: int) -> Ended:
        """Nothing."""
        raise NotImplementedError

    def withdraw(self, work: Work, attempt: int) -> Ended:
        """Nothing."""
        raise NotImplementedError

    def reach(self) -> str:
        """It is there."""
        return ""

    def cancel(self, key: str) -> None:
        """Nothing."""

    def leave(self) -> None:
        """Nothing."""

    def release(self) -> None:
        """Nothing."""


def listening() -> set[str]:
    """Addresses, as the kernel has them, at which this process can be reached."""
    own = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            own.add(os.readlink(entry))  # noqa: PTH115 - it is no path
        except FileNotFoundError:
            continue
    found = set()
    for table in ("tcp", "tcp6"):
        for row in Path(f"/proc/self/net/{table}").read_text("ascii").splitlines()[1:]:
            columns = row.split()
            if columns[3] == _LISTENS and f"socket:[{columns[9]}]" in own:
                found.add(columns[1].partition(":")[0])
    return found


@pytest.fixture
def engine() -> Iterator[DaskEngine]:
    made = DaskEngine({"lab1": Idle()}, {"lab1": machine(1)})
    yield made
    made.close()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says who listens")
def test_nobody_listens_to_a_network(engine: DaskEngine) -> None:
    assert listening() <= _LOOPBACK


def test_without_bokeh_there_is_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_engine, "_has_pages", lambda: False)
    made = DaskEngine({"lab1": Idle()}, {"lab1": machine(1)})
    try:
        assert made.dashboard == ""
    finally:
        made.close()


def test_with_bokeh_there_is_one(engine: DaskEngine) -> None:
    pytest.importorskip("bokeh", reason="the extra 'dashboard' is not installed")
    assert engine.dashboard.startswith("http://127.0.0.1:")
