"""The walk over fat-binary containers: synthetic files, hostile files, and nvcc's own."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fatbins import ELF, LTO, PTX, Entry, container, entry
from hypothesis import given, settings
from hypothesis import strategies as st
from timing import cost

from pipelines.wheels import fatbin
from pipelines.wheels.fatbin import MAGIC, Container, Inventory, format_archs, inventory
from pipelines.wheels.toolkit import CudaEvidence


def test_a_file_with_two_units() -> None:
    data = b"MZ" + container((ELF, "75", 24), (ELF, "90a", 8), (PTX, "120", 16)) + b"\0" * 40
    second = len(data)
    data += container((ELF, "75", 8), (ELF, "100f", 0), (LTO, "90", 8)) + b"tail"
    assert inventory(data) == Inventory(
        (
            Container(2, frozenset({"75", "90a"}), frozenset({"120"}), isas=frozenset({"9.0"})),
            Container(second, frozenset({"75", "100f"}), frozenset(), frozenset({"lto_90"})),
        )
    )
    assert inventory(data).sass == {"75", "90a", "100f"}
    assert inventory(data).ptx == {"120"}
    assert inventory(data).uneven() == {"90a": 1, "100f": 1}
    assert format_archs(inventory(data).sass) == "75 90a 100f"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        MAGIC,
        MAGIC * 50,
        b"code " + MAGIC + b" a constant in the code that checks for it",
        container(),
        struct.pack("<IHHQ", 0xBA55ED50, 2, 16, 80) + entry(ELF, "75"),
        struct.pack("<IHHQ", 0xBA55ED50, 1, 0, 80) + entry(ELF, "75"),
    ],
)
def test_false_hits_are_no_containers(data: bytes) -> None:
    assert inventory(data) == Inventory()


@pytest.mark.parametrize("size", [2**64 - 1, 10_000, 150, 1])
def test_a_wrong_container_size_is_seen_and_hides_nothing(size: int) -> None:
    broken = container((ELF, "75", 8), (ELF, "80", 8), size=size)
    found = inventory(broken + container((ELF, "90", 8)))
    assert "90" in found.sass
    assert not all(unit.intact for unit in found.containers if "90" not in unit.sass)


def test_a_cut_file_keeps_what_is_whole() -> None:
    found = inventory(container((ELF, "75", 8), (ELF, "80", 100))[:-1])
    assert [(unit.sass, unit.intact) for unit in found.containers] == [(frozenset({"75"}), False)]


def test_the_walk_of_a_hostile_file_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fatbin, "MAX_STEPS", 1000)
    found = inventory(MAGIC * 5000)
    assert not found.complete
    found = inventory(container(*[(ELF, "75", 0)] * 5000))
    assert not found.complete or not found.containers[0].intact


def test_a_big_file_is_scanned_fast() -> None:
    """About as fast as one search for four bytes; a loop in Python takes a hundred times that."""
    data = bytes(16 << 20) + container((ELF, "75", 8))
    assert inventory(data).sass == {"75"}
    assert cost(lambda: inventory(data)) < 8 * cost(lambda: data.find(MAGIC))


@settings(derandomize=True, max_examples=30, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=90), st.just(MAGIC), st.just(MAGIC + b"\1\0\x10\0"))))
def test_never_raises(parts: list[bytes]) -> None:
    found = inventory(b"".join(parts))
    assert all(unit.sass or unit.ptx or unit.other or not unit.intact for unit in found.containers)


@settings(derandomize=True, max_examples=25, deadline=None)
@given(st.binary(max_size=400), st.integers(0, 300), st.binary(max_size=20))
def test_damage_never_raises(noise: bytes, at: int, patch: bytes) -> None:
    data = bytearray(container((ELF, "75", 40), (PTX, "90a", 40)) + noise)
    data[at : at + len(patch)] = patch
    inventory(bytes(data))


ENTRIES = st.tuples(
    st.sampled_from([ELF, PTX]),
    st.sampled_from(["75", "80", "90", "90a", "100f", "120"]),
    st.integers(0, 5).map(lambda n: n * 8),
)
FILLER = st.binary(max_size=30).filter(lambda data: MAGIC[0] not in data)


@settings(derandomize=True, max_examples=25, deadline=None)
@given(st.lists(st.tuples(FILLER, st.lists(ENTRIES, min_size=1, max_size=6)), max_size=6))
def test_round_trip(units: list[tuple[bytes, list[Entry]]]) -> None:
    data = b"".join(filler + container(*entries) for filler, entries in units)
    found = inventory(data).containers
    assert [unit.sass for unit in found] == [
        {arch for kind, arch, _ in entries if kind == ELF} for _, entries in units
    ]
    assert [unit.ptx for unit in found] == [
        {arch for kind, arch, _ in entries if kind == PTX} for _, entries in units
    ]
    assert all(unit.intact for unit in found)


# --- the tool kit that made it --------------------------------------------------------------


@pytest.mark.parametrize("cuda", ["11.8", "12.4", "12.8", "13.0", "13.1"])
def test_sass_tells_the_release_that_made_it(cuda: str) -> None:
    (unit,) = inventory(container((ELF, "80", 0), (ELF, "90a", 0), cuda=cuda)).containers
    assert unit.releases == {cuda}
    assert (unit.isas, unit.intact) == (frozenset(), True)


def test_two_releases_in_one_file() -> None:
    both = entry(ELF, "80", cuda="12.8") + entry(ELF, "90", cuda="13.0") + entry(PTX, "90")
    (unit,) = inventory(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(both)) + both).containers
    assert unit.releases == {"12.8", "13.0"}
    assert unit.isas == {"9.0"}


#: What fatbinary of CUDA 13.1 makes of a cubin of CUDA 12.4 with -compress-mode=speed: its start.
LZ4 = bytes.fromhex("a27f454c46020101330700010066 0200be007c000100 2380090800".replace(" ", ""))


@pytest.mark.parametrize(
    ("payload", "flags", "release"),
    [
        (LZ4, 0x2011, {"12.4"}),
        (LZ4, 0x11, set()),  # not said to be packed, and no ELF
        (LZ4[:9], 0x2011, set()),
        (b"\xf0" + b"\xff" * 30, 0x2011, set()),
        (b"\0\0\0", 0x2011, set()),  # copies from before its start
        (b"\x28\xb5\x2f\xfd" + bytes(40), 0x8011, set()),  # Zstandard
        (b"\x7fELF", 0x11, set()),
        (b"Cuda compilation tools, release 13.0, V13.0.88", 0x11, set()),
    ],
)
def test_of_packed_sass_what_can_be_read(payload: bytes, flags: int, release: set[str]) -> None:
    head = struct.pack("<HHIQQIIQQ", ELF, 0x0101, 64, len(payload), 0, 0x10007, 80, 0, flags)
    body = head.ljust(64, b"\0") + payload
    (unit,) = inventory(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body).containers
    assert unit.releases == release
    assert unit.sass == {"80"}


zstd = fatbin.ZSTD
CUBIN = (b"\x7fELF" + bytes([2, 1, 1, 0x41, 8])).ljust(40_000, b"\0") + (
    b"Cuda compilation tools, release 13.0, V13.0.88" + bytes(range(256)) * 200
)


@pytest.mark.parametrize(
    ("change", "release"),
    [
        (lambda packed: packed, {"13.0"}),
        (lambda packed: packed + bytes(5), {"13.0"}),  # filled up
        (lambda packed: packed[:8], set()),
        (lambda packed: packed[:4] + b"\xff" * 40, set()),
        (lambda packed: CUBIN, set()),  # said to be packed, and is not
        (lambda packed: zstd.compress(bytes(100_000_000)), set()),  # a bomb, and no cubin
    ],
)
def test_zstandard_is_unpacked(change: Callable[[bytes], bytes], release: set[str]) -> None:
    (unit,) = inventory(_packed(change(zstd.compress(CUBIN + os.urandom(9000))))).containers
    assert unit.releases == release
    assert unit.sass == {"90"}
    other = CudaEvidence("12.8")
    other.add([unit])
    assert set(other.conflicting) == {f"CUDA {one}" for one in release}


def test_of_zstandard_only_a_part_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing where there is no module for it, as on most hosts: not seen, and no error."""
    bomb = zstd.compress(b"\x7fELF" + bytes(100_000_000))
    assert len(fatbin._unpacked_zstd(bomb)) <= len(bomb) * 16
    monkeypatch.setattr(fatbin, "_MOST_UNPACKED", 1000)
    assert len(fatbin._unpacked_zstd(bomb)) == 1000
    monkeypatch.setattr(fatbin, "ZSTD", None)
    (unit,) = inventory(_packed(zstd.compress(CUBIN))).containers
    assert not unit.releases
    assert unit.sass == {"90"}


def _packed(payload: bytes) -> bytes:
    """A container with one cubin of sm_90, as ``-compress-mode=size`` writes it."""
    head = struct.pack("<HHIQQIIQQ", ELF, 0x0101, 64, len(payload), 0, 0x10007, 90, 0, 0x8011)
    body = head.ljust(64, b"\0") + payload
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


# --- the real compiler --------------------------------------------------------------------

NVCC = shutil.which("nvcc")
TARGETS = [
    "-gencode=arch=compute_90a,code=sm_90a",
    "-gencode=arch=compute_120f,code=[sm_120f,compute_120f]",
]


def _cuobjdump() -> str | None:
    """On PATH, or where the wheel nvidia-cuda-cuobjdump puts it."""
    packages = Path(sysconfig.get_path("purelib"))
    return shutil.which("cuobjdump") or next(
        map(str, packages.glob("nvidia/*/bin/cuobjdump")), None
    )


CUOBJDUMP = _cuobjdump()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fat binary with every entry compressed."""
    if NVCC is None:
        pytest.skip("no nvcc on PATH: the walk is not compared with a real compiler's output")
    source = tmp_path_factory.mktemp("nvcc") / "k.cu"
    source.write_text("__global__ void k(float *x) { x[threadIdx.x] *= 2.f; }\n")
    made = source.with_suffix(".fatbin")
    told = subprocess.run(
        [NVCC, "-fatbin", "-Xfatbin", "-compress-all", "-o", made, *TARGETS, source],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    if "Unsupported gpu architecture" in told.stderr:
        pytest.skip(f"this nvcc is older than the architectures compared: {told.stderr}")
    assert told.returncode == 0, told.stderr
    return made


@pytest.mark.slow
def test_real_containers(compiled: Path) -> None:
    (unit,) = inventory(compiled.read_bytes()).containers
    assert replace(unit, isas=frozenset(), releases=frozenset()) == Container(
        0, frozenset({"90a", "120f"}), frozenset({"120f"})
    )
    told = CudaEvidence(release_of_nvcc())
    told.add([unit])
    assert (told.stating, told.conflicting) == (1, {})


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["default", "none", "size"])
def test_a_real_cubin_tells_its_release(mode: str, tmp_path: Path) -> None:
    if NVCC is None:
        pytest.skip("no nvcc on PATH")
    (tmp_path / "k.cu").write_text("__global__ void k(float *x) { *x = 1.f; }\n")
    made = tmp_path / "k.fatbin"
    archs = "-gencode=arch=compute_90,code=sm_90"
    command = [NVCC, "-fatbin", "-o", str(made), archs, str(tmp_path / "k.cu")]
    if mode != "default":
        command.append(f"-compress-mode={mode}")
    told = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    if "Unknown option" in told.stderr:
        pytest.skip("this nvcc has no -compress-mode")
    assert told.returncode == 0, told.stderr
    data = made.read_bytes()
    (unit,) = inventory(data).containers
    assert (b"\x28\xb5\x2f\xfd" in data) == (mode == "size"), "packed or not"
    assert unit.releases == {release_of_nvcc()}
    assert not unit.isas


def release_of_nvcc() -> str:
    text = subprocess.run([str(NVCC), "--version"], check=True, capture_output=True, text=True)
    found = re.search(r"release (\d+\.\d+),", text.stdout)
    assert found
    return found[1]


@pytest.mark.skipif(
    CUOBJDUMP is None, reason="no cuobjdump to compare with (pip: its NVIDIA wheel)"
)
def test_cuobjdump_agrees(compiled: Path) -> None:
    told = subprocess.run(
        [str(CUOBJDUMP), "--list-elf", "--list-ptx", compiled],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    found = inventory(compiled.read_bytes())
    # cuobjdump lists the SASS of sm_120f as sm_120, its PTX as sm_120f.
    assert set(re.findall(r"\.sm_(\w+)\.cubin", told)) == {arch.rstrip("f") for arch in found.sass}
    assert set(re.findall(r"\.sm_(\w+)\.ptx", told)) == found.ptx


def test_it_travels_alone() -> None:
    """By value to a host: no import but the standard library's."""
    source = Path(fatbin.__file__).read_text(encoding="utf-8")
    imports = re.findall(r"^(?:from|import) (\w+)", source, re.MULTILINE)
    assert set(imports) <= sys.stdlib_module_names
