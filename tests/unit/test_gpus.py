"""``gpu`` of a host: what may stand there, and what a test on that host must then see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from test_config import refused

from pipelines.hosts.base import GpuWay, OpenOptions
from pipelines.hosts.gpus import (
    Gpu,
    by_class,
    by_vfio,
    gpu_option_text,
    host_gpu_way,
    is_wanted,
    requested_gpu_addresses,
    requested_gpu_indexes,
)
from pipelines.plan.config.model import load_config
from pipelines.toolchain.lock import Cache, load_lock

GPU: TypeAdapter[Any] = TypeAdapter(Gpu)
CARD, AUDIO = "0000:01:00.0", "0000:01:00.1"


@pytest.mark.parametrize(
    ("given", "read", "told"),
    [
        (True, True, "gpu: true"),
        (False, False, ""),
        ("all", "all", "gpu: all"),
        (0, 0, "gpu: 0"),
        (1, 1, "gpu: 1"),
        ([2, 0], (2, 0), "gpu: [2, 0]"),
        (CARD, CARD, f"gpu: {CARD}"),
        ("01:00.0", CARD, f"gpu: {CARD}"),
        ("0001:0A:1F.7", "0001:0a:1f.7", "gpu: 0001:0a:1f.7"),
        ([CARD, "01:00.1"], (CARD, AUDIO), f"gpu: [{CARD}, {AUDIO}]"),
    ],
)
def test_what_may_be_given(given: object, read: Any, told: str) -> None:
    found = GPU.validate_python(given)
    assert found == read
    assert type(found) is type(read), "the number 1 is not true, and 0 not false"
    assert gpu_option_text(found) == told
    assert is_wanted(found) == bool(told)
    each = read if isinstance(read, tuple) else (read,)
    assert requested_gpu_indexes(found) == tuple(one for one in each if type(one) is int)
    assert requested_gpu_addresses(found) == tuple(
        one for one in each if isinstance(one, str) and one != "all"
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("bridge", "kind sandbox; expected true, false, all"),
        ("bridge:0", "kind sandbox"),
        ("first", "expected true, false, all, a GPU's number"),
        ("1", "expected true, false, all, a GPU's number"),
        ("0000:01:00", "expected true, false, all"),
        ("01:00.8", "expected true, false, all"),
        ("01:20.0", "expected true, false, all"),
        (60.0, "expected true, false, all"),
        (-1, "0 to 31"),
        (32, "0 to 31"),
        ([], "the list is empty"),
        ([0, 0], "twice"),
        (["01:00.0", CARD], "twice"),
        ([0, CARD], "numbers or PCI addresses, not both"),
        ([True], "expected true, false, all"),
        (["all"], "expected true, false, all"),
        ({}, "expected true, false, all"),
        (None, "expected true, false, all"),
    ],
)
def test_what_may_not(given: object, said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        GPU.validate_python(given)
    (problem,) = caught.value.errors()
    assert said in problem["msg"]


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("{kind: local, gpu: '01:00.0'}", "hosts.a.gpu: PCI addresses are for kind vm"),
        ("{kind: local, gpu: 01:00.0}", "hosts.a.gpu: PCI addresses are for kind vm"),
        ("{kind: local, gpu: some}", "hosts.a.gpu: expected true, false, all"),
        ("{kind: container, gpu: true}", "gpu is for Windows engines"),
        (
            "{kind: container, image: windows, isolation: hyperv, gpu: 0}",
            "isolation: hyperv and gpu",
        ),
    ],
)
def test_the_key_is_named(tmp_path: Path, host: str, said: str) -> None:
    assert said in refused(tmp_path, f"hosts:\n  a: {host}\n")


def test_ways() -> None:
    one = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1"}
    assert host_gpu_way(1) == GpuWay(
        way="the host's own", requested="gpu: 1", count=1, visible=(1,)
    )
    assert host_gpu_way(1).environment == one
    assert host_gpu_way((2, 0)).environment["CUDA_VISIBLE_DEVICES"] == "2,0"
    assert host_gpu_way((2, 0)).count == 2
    for gpu, asked in ((True, "gpu: true"), ("all", "gpu: all"), (False, ""), (None, "")):
        assert host_gpu_way(gpu) == GpuWay(way="the host's own", requested=asked)
        assert host_gpu_way(gpu).environment == {}
    assert by_class(0).way == "class device in a process-isolated container"
    assert by_class(0).environment["CUDA_VISIBLE_DEVICES"] == "0"
    assert by_class(False) == by_vfio(False, 0) == GpuWay()
    # The guest numbers its own from 0.
    assert by_vfio(1, 1) == GpuWay(way="VFIO in a virtual machine", requested="gpu: 1", count=1)
    assert by_vfio((CARD, AUDIO), 1).environment == {}


@pytest.mark.parametrize(
    ("gpu", "has", "asked"),
    [("", False, ""), (", gpu: true", True, "gpu: true"), (", gpu: 0", True, "gpu: 0")],
)
def test_a_host_says_what_it_was_asked_for(
    tmp_path: Path, gpu: str, has: bool, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_PW", "x")
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        "hosts: {lab: {kind: winrm, endpoint: 'https://h:5986/wsman', username: u, "
        f"password_env: LAB_PW{gpu}}}}}\n"
    )
    host = load_config(path).host("lab").open("lab", OpenOptions("3.11", Cache(load_lock())))
    assert host.capabilities.gpu is has
    assert (host.gpu_way.way, host.gpu_way.requested) == ("the host's own", asked)
