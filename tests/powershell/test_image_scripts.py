"""images/scripts in PowerShell; tar.exe and curl.exe are stand-ins, see setup_state.py."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile

import pytest
from windows import ROOT, InWine, Result, Shell, call, literal

Pin = dict[str, str | None]


class Build:
    """A build of the image: its context, its arguments."""

    def __init__(self, wine: InWine, shell: Shell, place: str) -> None:
        self.wine, self.shell, self.place = wine, shell, place
        for script in (ROOT / "images/scripts").glob("*.ps*1"):
            shell.put(script, rf"images\{script.name}")
        self.folder = rf"{shell.folder}\images"
        self.temp = wine.path(rf"{place}\temp")
        self.temp.mkdir()
        self.arguments: dict[str, str] = {"TEMP": rf"{place}\temp"}

    def pin(self, name: str, file: str, data: bytes, *, url: bool = False) -> Pin:
        folder = rf"{self.shell.folder}\served" if url else rf"{self.folder}\files"
        path = self.wine.path(rf"{folder}\{file}")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        address = f"https://example.org/{file}" if url else None
        sha256 = hashlib.sha256(data).hexdigest()
        return {"name": name, "version": "1.2.3", "file": file, "url": address, "sha256": sha256}

    def run(self, script: str, **parameters: object) -> Result:
        lines = [f"$env:{name} = {literal(text)}" for name, text in self.arguments.items()]
        return self.shell.run("\n".join([*lines, call(rf"{self.folder}\{script}", **parameters)]))

    def left(self, folder: str) -> list[str]:
        root = self.wine.path(rf"{self.place}\{folder}")
        return sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())


@pytest.fixture
def build(wine: InWine, shell: Shell, place: str) -> Build:
    return Build(wine, shell, place)


def _zip(**files: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(f"top/{name}", text)
    return buffer.getvalue()


def _tar(**files: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"top/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


def test_pins_without_a_hash_are_named(build: Build) -> None:
    good = build.pin("uv", "uv.zip", b"x")
    build.arguments |= {
        "UV": json.dumps(good),
        "CUDA_12_8": json.dumps([{**good, "name": "nvcc", "sha256": ""}, {**good, "name": "b"}]),
    }
    proof = rf"{build.place}\proof.txt"
    result = build.run("Assert-Pins.ps1", Names=["UV"], Cuda="12.8", Proof=proof)
    assert "nvcc 1.2.3" in result.error
    assert "uv" not in result.error.partition("Run")[0]
    assert not build.wine.path(proof).exists()
    build.arguments["CUDA_12_8"] = json.dumps(good)
    assert build.run("Assert-Pins.ps1", Names=["UV"], Cuda="12.8", Proof=proof).error == ""
    assert build.wine.path(proof).exists()


def test_argument_that_is_not_set(build: Build) -> None:
    proof = rf"{build.place}\proof.txt"
    assert (
        "NO_SUCH" in build.run("Assert-Pins.ps1", Names=["NO_SUCH"], Cuda="12.8", Proof=proof).error
    )


def test_system(build: Build) -> None:
    # On Windows it is always there.
    key = r"HKLM:\SYSTEM\CurrentControlSet\Control\FileSystem"
    assert build.shell.run(f"$null = New-Item -Path '{key}' -Force").error == ""
    directories = [rf"{build.place}\b", rf"{build.place}\t"]
    result = build.run("Initialize-System.ps1", Directories=directories, SearchPath=[r"C:\x\bin"])
    assert result.error == ""
    assert all(build.wine.path(one).is_dir() for one in directories)
    query = ["reg", "query", r"HKLM\SYSTEM\CurrentControlSet\Control\FileSystem"]
    assert "LongPathsEnabled    REG_DWORD    0x1" in build.wine.prefix.run(query)
    key = r"HKLM\SYSTEM\CurrentControlSet\Control\Session Manager\Environment"
    path = build.wine.prefix.run(["reg", "query", key, "/v", "Path"])
    assert r"C:\x\bin;" in path
    assert "system32" in path


def test_archives(build: Build) -> None:
    pins = [
        build.pin("one", "one.zip", _zip(**{"bin/one.exe": "1"})),
        build.pin("two", "two.tar.gz", _tar(**{"bin/two.exe": "2"}), url=True),
    ]
    build.arguments["TOOLS"] = json.dumps(pins)
    told = {"Name": "TOOLS", "Root": rf"{build.place}\tools", "Strip": 1}
    result = build.run("Install-Archives.ps1", **told, Proof=r"bin\{name}.exe")
    assert result.error == ""
    assert build.left("tools") == [".archives.json", "bin/one.exe", "bin/two.exe"]
    listed = build.wine.path(rf"{build.place}\tools\.archives.json").read_bytes()
    assert json.loads(listed) == {pin["name"]: pin["sha256"] for pin in pins}
    assert build.left("temp") == []


@pytest.mark.parametrize(("url", "proof"), [(False, "a.txt"), (True, "a.txt")])
def test_file_with_another_hash(build: Build, url: bool, proof: str) -> None:
    pin = build.pin("one", "one.zip", _zip(**{"a.txt": "1"}), url=url)
    build.arguments["TOOLS"] = json.dumps({**pin, "sha256": "0" * 64})
    result = build.run("Install-Archives.ps1", Name="TOOLS", Root=rf"{build.place}\x", Proof=proof)
    assert str(pin["sha256"]) in result.error
    assert build.left("x") == []
    assert build.left("temp") == []


def test_file_that_nobody_serves(build: Build) -> None:
    pin = build.pin("one", "one.zip", b"x", url=True)
    build.arguments["TOOLS"] = json.dumps({**pin, "url": "https://example.org/other.zip"})
    result = build.run("Install-Archives.ps1", Name="TOOLS", Root=rf"{build.place}\x", Proof="a")
    assert "22" in result.error


def test_archive_that_does_not_hold_what_it_should(build: Build) -> None:
    pin = build.pin("one", "one.zip", _zip(**{"a.txt": "1"}))
    build.arguments["TOOLS"] = json.dumps(pin)
    result = build.run(
        "Install-Archives.ps1", Name="TOOLS", Root=rf"{build.place}\x", Strip=1, Proof="b.txt"
    )
    assert "b.txt" in result.error
    assert build.left("x") == ["a.txt"]


def test_errors_of_the_setup_program(build: Build) -> None:
    """Ansible's build_tools shows the end of the installer's error logs."""
    script = build.shell.put(ROOT / "ansible/roles/build_tools/files/Get-SetupErrors.ps1")
    (build.temp / "dd_setup_errors.log").write_text("first\nsecond\n")
    told = call(script, Directories=[rf"{build.place}\temp"], Patterns=["dd_*errors*.log"])
    result = build.shell.run("$Ansible = [pscustomobject] @{ Changed = $true }\n" + told)
    assert result.error == ""
    assert "second" in result.text
