"""``which.py`` on the genuine Windows Python under Wine, with packages whole and broken.

What the loader says is held against the cause that is named. There is no driver of NVIDIA's: a DLL
in its place answers as one.
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from conftest import make_sandbox

from pipelines.hosts.live import LiveSession
from pipelines.hosts.sandbox.host import Sandbox
from pipelines.publish.which.joining import build_which_script
from pipelines.remote import process
from pipelines.toolchain.lock import Cache, load_lock

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from environments import ARM64, X86, machine, module
from fatbins import ELF, container
from pes import dll

TORCH = "torch-cpu-2.10-cp311"
WHEELS = (TORCH, "typing-extensions", "sympy", "mpmath", "networkx", "jinja2", "markupsafe-cp311",
          "fsspec", "filelock")  # fmt: skip
#: PYTHONPATH, the current folder, and the words of a Python.
RUN = (
    "import os, subprocess, sys; os.environ['PYTHONPATH'] = sys.argv[1]; os.chdir(sys.argv[2]);"
    "sys.exit(subprocess.call([sys.executable, *sys.argv[3:]]))"
)
UNZIP = "import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall(sys.argv[2])"
#: What the driver's functions do: CUDA 12.9, one GPU of 8.9. In edx is the attribute, 75 or 76.
DONE = b"\x31\xc0\xc3"
DRIVER = {
    "cuInit": DONE,
    "cuDriverGetVersion": b"\xc7\x01" + (12090).to_bytes(4, "little") + DONE,
    "cuDeviceGetCount": b"\xc7\x01\x01\0\0\0" + DONE,
    "cuDeviceGet": b"\xc7\x01\0\0\0\0" + DONE,
    "cuDeviceGetName": b"\xc7\x01RTX\0" + DONE,
    "cuDeviceGetAttribute": b"\x8d\x42\xbd\x89\x01" + DONE,
}
IMPORTS = {"python311.dll": ["PyModule_Create2"], "KERNEL32.dll": ["Sleep"]}
Files = Mapping[str, bytes]


@dataclass
class Windows:
    """The sandbox, and what is in it."""

    session: LiveSession
    python: str
    room: Path
    made: dict[str, str] = field(default_factory=dict)

    def call(self, *words: str, timeout: float = 300) -> tuple[int, str]:
        return self.session.call(process.capture, command=[self.python, *words], timeout=timeout)

    def unzip(self, archive: Path, folder: str) -> str:
        self.session.put(archive, r"C:\t\sent.zip")
        code, said = self.call("-c", UNZIP, r"C:\t\sent.zip", folder)
        assert code == 0, said
        return folder

    def files(self, name: str, files: Files) -> str:
        """A folder with these files."""
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as archive:
            for path, content in files.items():
                archive.writestr(path, content)
        (self.room / "sent.zip").write_bytes(data.getvalue())
        return self.unzip(self.room / "sent.zip", rf"C:\t\{name}")

    def which(self, *folders: str, cwd: str = r"C:\t", words: tuple[str, ...] = ()) -> Any:
        """What it says, with these folders on the path."""
        path = ";".join(folders)
        code, said = self.call("-c", RUN, path, cwd, r"C:\t\which.py", "--json", *words)
        assert code in (0, 9), said
        return json.loads(said)


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Windows]:
    room = tmp_path_factory.mktemp("which")
    sandbox: Sandbox = make_sandbox(room / "sandbox")
    with LiveSession(sandbox) as session:
        made = Windows(session, sandbox.executable, room)
        made.files(".", {"which.py": build_which_script()})
        yield made
    assert sandbox.lifecycle is not None
    sandbox.lifecycle.teardown()


@pytest.fixture(scope="module")
def torch(windows: Windows) -> str:
    """A folder with genuine torch and its requirements; Microsoft's runtime next to Python."""
    cache = Cache(load_lock())
    for name in WHEELS:
        folder = windows.unzip(cache.fetch(name), r"C:\t\torch")
    runtime = cache.fetch("msvc-runtime-3.11")
    with zipfile.ZipFile(runtime) as archive:
        files = {Path(n).name: archive.read(n) for n in archive.namelist() if "msvcp140" in n}
    windows.files(r"..\Python311", files)
    return folder


def package(
    files: Files, version: str = "2.8.3", *, listed: Files | None = None, requires: str = ""
) -> Files:
    """flash-attn as pip installs it; ``listed``: what RECORD has besides."""
    info = f"flash_attn-{version}.dist-info"
    metadata = f"Metadata-Version: 2.4\nName: flash-attn\nVersion: {version}\n{requires}"
    every = {"flash_attn/__init__.py": b"", **files, f"{info}/METADATA": metadata.encode()}
    rows = [f"{path},,{len(data)}" for path, data in {**every, **(listed or {})}.items()]
    return {**every, f"{info}/RECORD": "\n".join(rows).encode()}


def with_module(data: bytes, suffix: str = ".cp311-win_amd64.pyd") -> Files:
    return package({f"flash_attn/_C{suffix}": data})


def own(imports: Mapping[str, list[str]] = IMPORTS) -> bytes:
    data: bytes = module(imports, archs="")
    return data


BROKEN: dict[str, tuple[Files, str, str]] = {
    "missing DLL": (
        with_module(own({**IMPORTS, "helper.dll": ["go"]})), "missing-dll", "DLL load failed"
    ),
    "missing DLL of a DLL": (
        package({
            "flash_attn/_C.pyd": own({**IMPORTS, "own.dll": ["go"]}),
            "flash_attn/own.dll": dll({"zlib9.dll": ["inflate"]}, ("go",)),
        }),
        "missing-dll",
        "DLL load failed",
    ),
    "truncated": (with_module(own()[:700]), "truncated", "DLL load failed"),
    "ARM64": (with_module(machine(own(), ARM64)), "wrong-machine", "DLL load failed"),
    "DLL of 32 bits": (
        package({
            "flash_attn/_C.pyd": own({**IMPORTS, "own.dll": ["go"]}),
            "flash_attn/own.dll": machine(dll({}, ("go",)), X86),
        }),
        "wrong-machine",
        "DLL load failed",
    ),
    "page of an error": (with_module(b"<!DOCTYPE html>"), "unreadable-dll", "DLL load failed"),
    "CUDA 12 of nobody": (
        with_module(own({**IMPORTS, "cublas64_12.dll": ["gemm"]})),
        "missing-dll",
        "DLL load failed",
    ),
    "no driver": (
        with_module(own({**IMPORTS, "nvcuda.dll": ["cuInit"]})),
        "no-driver",
        "DLL load failed",
    ),
    "module without torch": (
        with_module(own({**IMPORTS, "torch_cpu.dll": ["x"]})), "no-torch", "DLL load failed"
    ),
    "other Python": (
        package({
            "flash_attn/__init__.py": b"from flash_attn import _C",
            "flash_attn/_C.cp312-win_amd64.pyd": own(),
        }),
        "python-mismatch",
        "ImportError",
    ),
    "other Python inside": (
        with_module(own({"python312.dll": ["X"]}), ".pyd"),
        "python-mismatch",
        "DLL load failed",
    ),
    "Linux": (
        package({
            "flash_attn/__init__.py": b"from flash_attn import _C",
            "flash_attn/_C.cpython-311-x86_64-linux-gnu.so": b"\x7fELF",
        }),
        "linux-files",
        "ImportError",
    ),
    "half installed": (
        package(
            {"flash_attn/__init__.py": b"from flash_attn import bert"},
            listed={"flash_attn/bert.py": b"x"},
        ),
        "half-installed",
        "ImportError",
    ),
    "requirement": (
        package({"flash_attn/__init__.py": b"import einops"}),
        "missing-requirement",
        "No module named 'einops'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_the_loader_fails_and_the_cause_is_named(windows: Windows, name: str) -> None:
    files, kind, says = BROKEN[name]
    (found,) = windows.which(windows.files(name.replace(" ", "-"), files))["packages"]
    assert found["loads"] is False
    assert says in " ".join(found["errors"])
    causes = {one["id"]: one for one in found["findings"] if one["level"] == "error"}
    assert kind in causes, found
    assert causes[kind]["hint"]


def test_a_whole_one_loads(windows: Windows) -> None:
    """A module of Python's own, under another name."""
    code, said = windows.call(
        "-c", r"import sys; print(open(r'C:\Python311\DLLs\_queue.pyd', 'rb').read().hex())"
    )
    assert code == 0
    files = package({"flash_attn/_queue.pyd": bytes.fromhex(said.strip())})
    (found,) = windows.which(windows.files("whole", files))["packages"]
    assert (found["loads"], found["errors"], found["findings"]) == (True, [], [])


def test_a_module_that_crashes_is_told(windows: Windows) -> None:
    """Its function lies where nothing may be run; the process that looks lives on."""
    (found,) = windows.which(windows.files("crash", with_module(own())))["packages"]
    assert found["loads"] is False
    assert "its process exited with" in found["errors"][0]


def test_a_folder_in_the_way_is_told(windows: Windows) -> None:
    site = windows.files("behind", package({}))
    work = windows.files("work", {"flash_attn/__init__.py": b"raise ImportError('mine')"})
    (found,) = windows.which(site, cwd=work)["packages"]
    assert [one["id"] for one in found["findings"]] == ["shadowed", "no-binary"]
    assert "mine" in found["errors"][0]


def test_a_python_that_is_embedded(windows: Windows) -> None:
    """Its search path stands in a file, as in the Pythons that programs bring along."""
    site = windows.files("embedded", package({}))
    paths = ("DLLs", "Lib", ".", site)
    windows.files(r"..\Python311", {"python311._pth": "\n".join(paths).encode()})
    try:
        code, said = windows.call(r"C:\t\which.py", "--json")
        told = json.loads(said)
        assert code == 9
        (found,) = told["packages"]
        assert (found["folder"], found["loads"]) == (site, True)
        text = r"exec(compile(open(r'C:\t\which.py').read(), 'C:/t/which.py', 'exec'))"
        _, said = windows.call("-c", text)
        assert "flash-attn 2.8.3 is installed and loads" in said
    finally:
        gone, said = windows.call("-c", r"import os; os.remove(r'C:\Python311\python311._pth')")
        assert gone == 0, said


def test_two_versions_are_told(windows: Windows) -> None:
    one = windows.files("one", package({}))
    other = windows.files("other", package({}, "2.7.4"))
    (found,) = windows.which(one, other)["packages"]
    assert [cause["id"] for cause in found["findings"]] == ["side-by-side", "no-binary"]
    assert (found["version"], found["loads"]) == ("2.8.3", True)


def test_genuine_torch_is_read_and_holds_names(windows: Windows, torch: str) -> None:
    """2.10 of it exports one of the two names; a CPU build has no DLLs of CUDA."""
    there = {"torch_cpu.dll": ["aoti_torch_empty_strided"]}
    files = package({"flash_attn/_C.pyd": dll(there, ("x",))}, "2.8.3+torch2.10")
    told = windows.which(windows.files("with-torch", files), torch)
    assert (told["machine"]["torch"], told["machine"]["cuda"]) == ("2.10.0", "")
    assert "cpu-torch" in {one["id"] for one in told["findings"]}
    (found,) = told["packages"]
    assert (found["loads"], found["errors"], found["findings"]) == (True, [], [])
    gone = {"torch_cpu.dll": ["aoti_torch_empty_strided", "?gone@at@@YAXXZ"]}
    files = package({"flash_attn/_C.pyd": dll(gone, ("x",))}, "2.8.3+torch2.9")
    (found,) = windows.which(windows.files("lacking", files), torch)["packages"]
    # Wine loads a DLL with such a name all the same: on Windows it is WinError 127.
    causes = {one["id"]: one["actual"] for one in found["findings"]}
    assert [*causes] == ["torch-mismatch", "missing-export"]
    assert (
        "?gone@at@@YAXXZ from torch_cpu.dll, but that of torch 2.10.0+cpu"
        in (causes["missing-export"])
    )
    files = with_module(own({**IMPORTS, "c10_cuda.dll": ["stream"]}), ".pyd")
    (found,) = windows.which(windows.files("cuda", files), torch)["packages"]
    assert found["loads"] is False
    assert "cpu-torch" in {one["id"] for one in found["findings"]}


def test_a_driver_is_asked(windows: Windows) -> None:
    """By genuine Windows Python in a process of its own; the GPU's machine code is compared."""
    windows.files(r"..\Windows\System32", {"nvcuda.dll": dll({}, [*DRIVER], code=DRIVER)})
    try:
        said = "__version__ = '2.8.0+cu128'\ncuda = '12.8'\n"
        about = "Metadata-Version: 2.4\nName: torch\nVersion: 2.8.0+cu128\n"
        made = {"torch/__init__.py": b"", "torch/version.py": said.encode(),
                "torch-2.8.0+cu128.dist-info/METADATA": about.encode(),
                "torch-2.8.0+cu128.dist-info/RECORD": b""}  # fmt: skip
        torch = windows.files("made-torch", made)
        code = container((ELF, "90", 8), cuda="12.8")
        site = windows.files("gpu", package({"flash_attn/code.dll": dll({}, ("x",), tail=code)}))
        index = windows.files("index", {"catalogue.json": catalogue()})
        told = windows.which(site, torch, words=("--index", index))
        assert told["machine"]["line"] == (
            "wcw1:platform=win_amd64&python=3.11&torch=2.8.0%2Bcu128&cuda=12.8&driver=12.9&gpu=8.9"
        )
        assert told["machine"]["names"] == ["RTX"]
        assert told["findings"] == []
        (found,) = told["packages"]
        assert {one["id"] for one in found["findings"]} == {"wrong-gpu"}
        fits = told["wheels"]["flash-attn"]
        assert fits["fits"] == "flash_attn-2.8.3+cu128torch2.8-cp311-cp311-win_amd64.whl"
        assert fits["command"][0].lower() == r"c:\python311\python.exe"
        assert fits["command"][1:4] == ["-m", "pip", "install"]
        assert fits["command"][4].startswith("file:///C:/t/index/files/ab/")
        assert fits["command"][5:] == ["torch==2.8.0+cu128"]
    finally:
        code_, said_ = windows.call(
            "-c", r"import os; os.remove(r'C:\Windows\System32\nvcuda.dll')"
        )
        assert code_ == 0, said_


def catalogue() -> bytes:
    """An index with one wheel that fits, and one for another Python."""
    rows = []
    for digits in ("311", "312"):
        file = f"flash_attn-2.8.3+cu128torch2.8-cp{digits}-cp{digits}-win_amd64.whl"
        rows.append(
            {
                "file": file,
                "sha256": "ab" * 32,
                "url": f"files/ab/{'ab' * 32}/{file}",
                "torch": "2.8",
                "cuda": "12.8",
                "sass": ["80", "90"],
                "uploaded": "2026-11-01T00:00:00Z",
                "smoke": {"verdict": "passed", "gpus": ["RTX 4090"]},
            }
        )
    return json.dumps({"schema_version": 1, "wheels": rows}).encode()
