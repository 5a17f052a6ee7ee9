"""images/scripts in PowerShell, as the Dockerfile runs them; programs are windows_programs.py's."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from windows import ROOT, InWine, Result, Shell, call, literal, run_bodies
from windows_programs import SIGNATURE, SIGNED, content, knob, packed

from pipelines.toolchain.sync import DOCKERFILE, VARIABLES

_BEFORE = """
$ErrorActionPreference = 'Stop'
$env:Path = [Environment]::GetEnvironmentVariable('Path', [EnvironmentVariableTarget]::Machine)
"""
_WORDS = ("PREPARE", "ARGUMENTS", "COMPONENTS")
_PROOF = r"C:\image\proof.txt"


class Build:
    """A build of the image: its context, its arguments."""

    def __init__(self, wine: InWine, shell: Shell, place: str) -> None:
        self.wine, self.shell, self.place = wine, shell, place
        shutil.rmtree(wine.path(r"C:\image"), ignore_errors=True)
        shutil.copytree(ROOT / "images/scripts", wine.path(r"C:\image"))
        self.temp = wine.path(rf"{place}\temp [x]")
        self.temp.mkdir()
        self.arguments: dict[str, Any] = {"TEMP": rf"{place}\temp [x]"}

    def pin(self, pin: dict[str, Any], data: bytes) -> dict[str, Any]:
        """The pin of ``data``, which is served, or else staged."""
        folder = r"C:\scripts\served" if pin["url"] else r"C:\image\files"
        path = self.wine.path(rf"{folder}\{pin['file']}")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        url = f"https://example.org/{pin['file']}" if pin["url"] else None
        return {**pin, "url": url, "sha256": hashlib.sha256(data).hexdigest()}

    def run(self, text: str, **arguments: object) -> Result:
        given = {**self.arguments, **arguments}
        values = {n: v if isinstance(v, str) else json.dumps(v) for n, v in given.items()}
        lines = [f"$env:{name} = {literal(value)}" for name, value in values.items()]
        return self.shell.run("\n".join([*lines, _BEFORE, SIGNATURE, text]))

    def left(self, folder: str) -> list[str]:
        root = self.wine.path(rf"{self.place}\{folder}")
        return sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())


@pytest.fixture
def build(wine: InWine, shell: Shell, place: str) -> Build:
    return Build(wine, shell, place)


@pytest.fixture
def pinned(build: Build) -> Build:
    """With all pins of one CUDA and one Python, and a system without any of them."""
    lock = yaml.safe_load((ROOT / VARIABLES).read_text("utf-8"))
    tools = lock["toolchain_build_tools"]
    rows = {row["name"].rpartition("-")[2]: row for row in lock["toolchain_cuda"]["12.8"]}

    def pins(*rows: dict[str, Any]) -> list[dict[str, Any]]:
        return [build.pin(row, content(row, build.wine)) for row in rows]

    (runtime, bootstrapper, git) = pins(
        lock["toolchain_vc_redist"], tools["bootstrapper"], lock["toolchain_git"]
    )
    build.arguments |= {
        "VC_REDIST": runtime,
        "VS_BUILDTOOLS": bootstrapper,
        "MINGIT": git,
        "CUDA": "12.8",
        "PYTHONS": pins(lock["toolchain_pythons"]["3.11"]),
        "WHEELS": pins(*lock["toolchain_wheels"]),
        "CUDA_12_8": pins(rows["cuda_cudart"], rows["cuda_nvcc"]),
        **{f"VS_{name}": " ".join(tools[name.lower()]) for name in _WORDS},
        "VS_SIGNER": tools["signer"],
        "VS_TOOLSET": tools["toolset"],
        **dict.fromkeys(("TEMP", "TMP"), r"C:\t"),
        "CUDA_PATH": r"C:\cuda\12.8",
    }
    build.wine.path(r"C:\scripts\signature.txt").write_text(SIGNED)
    for name in ("VS", "cuda", "tools", "python"):
        shutil.rmtree(build.wine.path(rf"C:\{name}"), ignore_errors=True)
    # On Windows it is always there.
    key = r"HKLM:\SYSTEM\CurrentControlSet\Control\FileSystem"
    assert build.shell.run(f"$null = New-Item -Path '{key}' -Force").error == ""
    return build


def test_pins_without_a_hash_are_named(build: Build) -> None:
    good = {"name": "uv", "version": "1.2.3", "file": "uv.zip", "url": None, "sha256": "a" * 64}
    call_ = call(r"C:\image\Assert-Pins.ps1", Names=["UV"], Cuda="12.8", Proof=_PROOF)
    assert "UV is not set" in build.run(call_, UV="").error
    bad = [{**good, "name": "nvcc", "sha256": ""}, {**good, "name": "b"}]
    error = build.run(call_, UV=good, CUDA_12_8=bad).error
    assert "not pinned yet: nvcc 1.2.3." in error
    assert not build.wine.path(_PROOF).exists()


def _changes() -> Iterator[object]:
    for url in (None, "an address"):
        yield pytest.param(url, {"sha256": "0" * 64}, "pinned is 000", id=f"{url}-hash")
        yield pytest.param(url, {"sha256": ""}, "not pinned yet", id=f"{url}-no-hash")
    yield pytest.param("url", {"url": "https://example.org/b.zip"}, "curl exited with 22", id="22")
    yield pytest.param(None, {"file": "b.zip"}, "not in the build context", id="not-staged")
    yield pytest.param(None, {}, "hold no", id="proof")


@pytest.mark.parametrize(("url", "change", "said"), list(_changes()))
def test_archive_that_is_refused(
    build: Build, url: str | None, change: dict[str, str], said: str
) -> None:
    pin = {"name": "one", "version": "1.2.3", "file": "one.zip", "url": url}
    made = build.pin(pin, packed({"top/a.txt": b"1"})) | change
    given = {"Name": "TOOLS", "Root": rf"{build.place}\x", "Strip": 1, "Proof": "b.txt"}
    error = build.run(call(r"C:\image\Install-Archives.ps1", **given), TOOLS=made).error
    assert said in error
    assert build.left("x") == (["a.txt"] if not change else [])
    assert build.left("temp [x]") == []


#: The script, what is changed of arguments and of programs, and what it says.
WRONG: list[tuple[str, dict[str, str], dict[str, object], str]] = [
    ("Install-Runtime", {}, {"installer": 1603}, "1603"),
    ("Install-BuildTools", {"VS_PREPARE": " "}, {}, "VS_PREPARE"),
    ("Install-BuildTools", {"VS_SIGNER": "Microsoft"}, {}, "signature of Microsoft,"),
    ("Install-BuildTools", {}, {"update": 1603}, "1603"),
    ("Install-BuildTools", {}, {"installer": 1603}, "1603"),
    ("Install-BuildTools", {}, {"product": "17.9.1"}, "17.9.1"),
    ("Test-Image", {"TEMP": "C:\\"}, {}, "TEMP: found"),
    ("Test-Image", {"VS_TOOLSET": "14.99"}, {}, "14.99"),
    ("Test-Image", {"CUDA": "12.9"}, {}, "release 12"),
    ("Test-Image", {}, {"failing": ["uv"]}, "uv.exe --version exited with 1"),
    ("Test-Image", {}, {"failing": ["probe"]}, "probe.exe  exited with 1"),
]


def test_whole_image(pinned: Build) -> None:
    """Each command of the Dockerfile, then those that install and check with one thing wrong."""
    there, bodies = pinned.wine.path, run_bodies((ROOT / DOCKERFILE).read_text("utf-8"))
    for body in bodies:
        assert pinned.run(body).error == "", body
    assert [*there(r"C:\t").iterdir()] == []
    listed = json.loads(there(r"C:\cuda\12.8\.archives.json").read_bytes())
    assert listed == {pin["name"]: pin["sha256"] for pin in pinned.arguments["CUDA_12_8"]}
    assert there(r"C:\tools\uv\uv.exe").is_file()

    def run(script: str, **arguments: str) -> str:
        (body,) = (body for body in bodies if f"{script}.ps1" in body)
        return pinned.run(body, **arguments).error

    for script, arguments, knobs, said in WRONG:
        knob(pinned.wine, **knobs)
        assert said in run(script, **arguments), (script, arguments, knobs)
    knob(pinned.wine, installer=1638)  # a newer one is there
    assert run("Install-Runtime") == ""
    header = there(r"C:\python\3.11\Include\Python.h")
    header.rename(header.with_suffix(".x"))
    assert "Python.h" in run("Test-Image")
    header.with_suffix(".x").rename(header)
    knob(pinned.wine, runtime="v14.0.1")
    assert run("Install-Runtime") == ""
    assert "14.0.1" in run("Test-Image")
