"""The real pip and the real, pinned uv install from what ``publish`` wrote, for Windows.

The machine is simulated: uv's provider is told a driver and a GPU. No file is run.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from foreign_wheels import foreign
from indexes import finished, offers_of, served

from pipelines.core.evidence import Evidence
from pipelines.publish import offers as publish_stage
from pipelines.publish.index.publishing import Order, publish_wheels
from pipelines.publish.index.store import Store
from pipelines.publish.which.choosing import choose_wheel
from pipelines.publish.which.listed import fetch_rows
from pipelines.publish.which.machine import Machine

pytestmark = pytest.mark.slow


DRIVER = "NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION"
GPU = "NV_VARIANT_PROVIDER_FORCE_SM_ARCH"
UV = Path(sys.executable).with_name("uv.exe" if os.name == "nt" else "uv")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Three CUDA releases, two of torch, two Pythons; its address."""
    room = tmp_path_factory.mktemp("index")
    cells = [
        ("2.8", "12.6", "75;80;90"),
        ("2.8", "12.8", "80;90;120"),
        ("2.9", "12.8", "80;90;120"),
        ("2.9", "13.0", "90;120"),
    ]
    runs = [
        finished(room / "out", torch=torch, cuda=cuda, archs=archs, tested_on="H100", python=python)
        for torch, cuda, archs in cells
        for python in ("3.12", "3.13")
    ]
    publish_wheels(
        Store(str(room / "index")), Order(offers_of(runs, untested=False)), say=lambda _: None
    )
    with served(room / "index") as address:
        yield address


@pytest.mark.parametrize("pinned", ["", "==2.8.3", "==2.8.3+cu128torch2.8.sandbox"])
def test_no_installer_takes_a_wheel_of_a_preview(
    pinned: str, torches: Path, tmp_path: Path
) -> None:
    """Whichever version is asked for; real wheels in the same way are taken below."""
    facts = {"evidence": Evidence.BINARIES, "publishable": False}
    run = finished(tmp_path / "out", local="cu128torch2.8.sandbox", facts=facts)
    room = tmp_path / "room"
    room.mkdir()
    offers = publish_stage.collect_offers([run], room, untested=False, preview=True)
    publish_wheels(Store(str(tmp_path / "index")), Order(offers), say=lambda _: None)
    wanted = f"demo-attn{pinned}"
    with served(tmp_path / "index") as address:
        url = f"{address}/plain/"
        code, said, found = uv(
            tmp_path, url, torches, wanted, machine=("13.0", "8.9"), python="3.12"
        )
        assert (code, found) == (1, ""), said
        command = [sys.executable, "-m", "pip", "--isolated", "install", "--index-url", url]
        command += ["--no-deps", "--target", str(tmp_path / "got"), "--only-binary=:all:"]
        command += ["--platform=win_amd64", "--python-version=3.12", wanted]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    assert "Requires-Python >=99" in done.stderr
    assert not built(tmp_path / "got")


@pytest.fixture
def torches(tmp_path: Path) -> Path:
    """Two releases of torch, as far as an installer is concerned, and what else is required."""
    folder = tmp_path / "torches"
    for version in ("2.8.0+cu128", "2.9.1+cu128"):
        foreign(folder, "torch", version)
    foreign(folder, "einops", "0.8")
    return folder


def uv(
    folder: Path, url: str, torches: Path, *words: str, machine: tuple[str, str], python: str
) -> tuple[int, str, str]:
    """Exit code, what it said, and what the wheel says that it was built as."""
    own = {"UV_NO_CONFIG": "1", "UV_CACHE_DIR": str(folder / "cache")}
    told = dict(zip((DRIVER, GPU), machine, strict=True))
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("UV_", "NV_", "PIP_"))}
    kept |= own | {name: value for name, value in told.items() if value}
    command = [
        str(UV),
        "pip",
        "install",
        "--preview-features",
        "wheel-variants",
        "--index-url",
        url,
    ]
    command += ["--find-links", str(torches), "--target", str(folder / "got"), "--no-progress"]
    command += ["--python-platform", "x86_64-pc-windows-msvc", "--python-version", python, *words]
    done = subprocess.run(command, env=kept, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr, built(folder / "got")


def built(folder: Path) -> str:
    path = folder / "demo_attn/__init__.py"
    return path.read_text().split("'")[1].partition("+")[2] if path.is_file() else ""


#: Driver and GPU, torch, and the wheel of whose variant uv takes.
MACHINES = [
    (("12.8", "8.6"), "2.8.0", "cu128torch2.8"),  # RTX 3090
    (("12.8", "8.9"), "2.9.1", "cu128torch2.9"),  # RTX 4090
    (("12.6", "8.9"), "2.8.0", "cu126torch2.8"),  # the same with an older driver
    (("13.0", "9.0"), "2.9.1", "cu130torch2.9"),  # H100, driver of CUDA 13
    (("13.0", "9.0"), "2.8.0", "cu128torch2.8"),
    (("13.2", "8.0"), "2.9.1", "cu128torch2.9"),  # A100: that of CUDA 13 has no code for it
    (("13.0", "7.5"), "2.8.0", "cu126torch2.8"),  # T4
    (("12.8", "12.0"), "2.8.0", "cu128torch2.8"),  # RTX 5090
    (("13.0", "12.1"), "2.9.1", "cu130torch2.9"),  # GB10
    (("12.6", "12.0"), "2.8.0", ""),  # no wheel of a CUDA that its driver knows
    (("12.4", "9.0"), "2.8.0", ""),
    (("13.0", "7.5"), "2.9.1", ""),
    (("13.0", "6.1"), "2.8.0", ""),
    (("13.0", "10.0"), "2.9.1", ""),  # B200
    (("", ""), "2.8.0", ""),  # no GPU
]
#: Where `which` names another one, for a driver of the same major version is enough: no GPU that
#: has machine code needs a newer one. https://docs.nvidia.com/deploy/cuda-compatibility/
MINOR_VERSIONS = {
    ("12.6", "8.9"): "cu128torch2.8",
    ("12.6", "12.0"): "cu128torch2.8",
    ("12.4", "9.0"): "cu128torch2.8",
}


@pytest.mark.parametrize(("machine", "torch", "wheel"), MACHINES)
def test_each_machine_gets_its_wheel(  # noqa: PLR0917 - as the table has its columns
    index: str, torches: Path, tmp_path: Path, machine: tuple[str, str], torch: str, wheel: str
) -> None:
    words = ("demo-attn", f"torch=={torch}")
    code, said, got = uv(
        tmp_path, f"{index}/simple/", torches, *words, machine=machine, python="3.12"
    )
    assert got == wheel, said
    if wheel:
        assert code == 0
        assert f"demo-attn==2.8.3+torch{torch[:3]}" in said
        assert f"torch=={torch}+cu128" in said
    else:
        assert code != 0
        assert "wheel" in said
        assert "demo-attn" in said


@pytest.mark.parametrize(("machine", "torch", "wheel"), MACHINES)
def test_which_names_the_wheel_of_that_variant(
    index: str, machine: tuple[str, str], torch: str, wheel: str
) -> None:
    """Of a torch whose CUDA is that of the wheel, for variants do not look at it."""
    rows, _ = fetch_rows(index)
    cuda = "13.0" if wheel.startswith("cu130") else "12.8"
    installed = f"{torch}+cu{cuda.replace('.', '')}"
    driver, gpu = machine
    own = Machine("win_amd64", "3.12", installed, cuda, driver, (gpu,) if gpu else ())
    found = choose_wheel(rows, own, "demo-attn")
    named = found.row.version.partition("+")[2] if found and found.fits else ""
    assert named == MINOR_VERSIONS.get(machine, wheel)


def test_which_looks_at_the_cuda_of_torch(index: str) -> None:
    """As variants do not: uv would take the one of CUDA 13 here."""
    rows, _ = fetch_rows(index)
    own = Machine("win_amd64", "3.12", "2.9.1+cu128", "12.8", "13.0", ("9.0",))
    found = choose_wheel(rows, own, "demo-attn")
    assert found is not None
    assert found.fits
    assert found.row.version.endswith("+cu128torch2.9")


def test_no_torch_is_replaced_unasked(index: str, torches: Path, tmp_path: Path) -> None:
    """Who names the torch that is there keeps it, though a newer wheel wants another."""
    pin = tmp_path / "constraints.txt"
    pin.write_text("torch==2.8.0\n")
    words = ("demo-attn", "--constraint", str(pin))
    code, said, got = uv(
        tmp_path, f"{index}/simple/", torches, *words, machine=("13.0", "9.0"), python="3.12"
    )
    assert (code, got) == (0, "cu128torch2.8"), said


def test_another_python_gets_its_own(index: str, torches: Path, tmp_path: Path) -> None:
    for python, fits in (("3.13", True), ("3.11", False)):
        folder = tmp_path / python
        code, said, got = uv(
            folder, f"{index}/simple/", torches, "demo-attn", machine=("13.0", "9.0"), python=python
        )
        assert (code == 0, bool(got)) == (fits, fits), said
        assert len([*folder.glob(f"got/demo_attn/_C.cp{python.replace('.', '')}-*")]) == fits


def pip(folder: Path, url: str, torches: Path, *words: str) -> tuple[int, str, str]:
    """As on Windows with Python 3.12; what it reports to have installed, and what that is."""
    command = [sys.executable, "-m", "pip", "--isolated", "install", "--index-url", url]
    command += ["--find-links", str(torches), "--target", str(folder / "got"), "--quiet"]
    command += ["--platform", "win_amd64", "--python-version", "3.12", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--no-cache-dir", "--report", str(folder / "told")]
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr, built(folder / "got")


@pytest.mark.parametrize(
    ("place", "wanted", "wheel"),
    [
        ("cu128/torch2.8", "demo-attn", "cu128torch2.8"),
        ("cu126/torch2.8", "demo-attn", "cu126torch2.8"),
        ("cu130/torch2.9", "demo-attn==2.8.3", "cu130torch2.9"),
        ("plain", "demo-attn==2.8.3+cu128torch2.9", "cu128torch2.9"),
        ("plain", "demo-attn==2.8.3+cu124torch2.9", ""),
        ("simple", "demo-attn", ""),  # there are variants alone, which pip does not know
    ],
)
def test_pip_takes_the_plain_ones(  # noqa: PLR0917 - as the table has its columns
    index: str, torches: Path, tmp_path: Path, place: str, wanted: str, wheel: str
) -> None:
    code, said, got = pip(tmp_path, f"{index}/{place}/", torches, wanted)
    assert got == wheel, said
    assert (code == 0) == bool(wheel)
    if not wheel:
        assert "No matching distribution found for demo-attn" in said
        return
    told = json.loads((tmp_path / "told").read_text())
    (own,) = (one for one in told["install"] if one["metadata"]["name"] == "demo_attn")
    assert own["download_info"]["archive_info"]["hashes"]["sha256"] in own["download_info"]["url"]


def test_pip_checks_the_hash_of_the_page(tmp_path: Path, torches: Path) -> None:
    """A wheel that was swapped on the server is not installed."""
    run = finished(tmp_path / "out")
    publish_wheels(
        Store(str(tmp_path / "index")), Order(offers_of([run], untested=False)), say=lambda _: None
    )
    for path in (tmp_path / "index/files").rglob("*+cu128torch2.8*.whl"):
        path.write_bytes(next((tmp_path / "torches").glob("einops*")).read_bytes())
    with served(tmp_path / "index") as address:
        code, said, got = pip(tmp_path, f"{address}/plain/", torches, "demo-attn")
    assert (code != 0, got) == (True, "")
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in said


@pytest.mark.parametrize(
    ("torch", "swapped", "said"),
    [
        ("2.8.0+cu128", False, ""),
        ("2.8.1+cu128", False, "No matching distribution found for torch==2.8.1+cu128"),
        ("2.8.0+cu128", True, "DO NOT MATCH THE HASHES"),
    ],
)
def test_pip_takes_what_the_first_page_names(
    tmp_path: Path, torches: Path, torch: str, swapped: bool, said: str
) -> None:
    """Torch as it is there, or none; the wheel whose hash stands in the command, or none."""
    offers = offers_of([finished(tmp_path / "out")], untested=False)
    publish_wheels(Store(str(tmp_path / "index")), Order(offers), say=lambda _: None)
    page = (tmp_path / "index/index.html").read_text()
    (link,) = re.findall('<th scope="row"><a href="([^"]+)"', page)
    if swapped:
        path = tmp_path / "index" / link.partition("#")[0].replace("%2B", "+")
        path.write_bytes(path.read_bytes() + b"x")
    with served(tmp_path / "index") as address:
        url = f"{address}/simple/"
        code, told, got = pip(tmp_path, url, torches, f"{address}/{link}", f"torch=={torch}")
    assert (code == 0, got) == (not said, "" if said else "cu128torch2.8")
    assert said in told


def test_yanked_wheels_are_passed_over(tmp_path: Path, torches: Path) -> None:
    runs = [finished(tmp_path / "out"), finished(tmp_path / "out", version="2.8.4")]
    store = Store(str(tmp_path / "index"))
    publish_wheels(store, Order(offers_of(runs, untested=False)), say=lambda _: None)
    file = "demo_attn-2.8.4+cu128torch2.8-cp312-cp312-win_amd64.whl"
    publish_wheels(store, Order(yank=file, because="wrong numbers on sm_89"), say=lambda _: None)
    with served(tmp_path / "index") as address:
        url = f"{address}/cu128/torch2.8/"
        assert pip(tmp_path, url, torches, "demo-attn")[0] == 0
        told = json.loads((tmp_path / "told").read_text())
        assert "demo_attn 2.8.3+cu128torch2.8" in {
            f"{one['metadata']['name']} {one['metadata']['version']}" for one in told["install"]
        }
        url = f"{address}/simple/"
        code, said, _ = uv(
            tmp_path / "uv", url, torches, "demo-attn", machine=("12.8", "8.9"), python="3.12"
        )
        assert code == 0
        assert "demo-attn==2.8.3+torch2.8" in said
