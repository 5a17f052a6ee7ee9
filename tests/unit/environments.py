"""Windows Pythons with packages in them, made of files: whole, or broken in one way each."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from fatbins import ELF, PTX, Entry, container
from pes import dll

from pipelines.publish.which.looking import Driver, Place

RTX_4090 = Driver("12.9", ("8.9",), ("NVIDIA GeForce RTX 4090",))
TORCH_NAMES = ("aoti_torch_empty", "?make@at@@YAXXZ")
RUNTIME = ("memcpy", "?_Xlength_error@std@@YAXPEBD@Z")
KERNEL = ("Sleep", "GetProcAddress")
#: What a module imports that works everywhere here.
IMPORTS = {
    "torch_cpu.dll": ["?make@at@@YAXXZ"],
    "cudart64_12.dll": ["cudaLaunch"],
    "msvcp140.dll": ["?_Xlength_error@std@@YAXPEBD@Z"],
    "python312.dll": ["PyModule_Create2"],
    "api-ms-win-crt-heap-l1-1-0.dll": ["malloc"],
    "KERNEL32.dll": ["Sleep"],
}
X86, ARM64 = 0x14C, 0xAA64


def machine(data: bytes, kind: int) -> bytes:
    """The same binary, said to be for another machine."""
    at = struct.unpack_from("<I", data, 0x3C)[0] + 4
    return data[:at] + struct.pack("<H", kind) + data[at + 2 :]


def module(
    imports: Mapping[str, Sequence[str]] | None = None,
    *,
    archs: str = "80;90",
    ptx: str = "",
    late: Mapping[str, Sequence[str]] | None = None,
    cuda: str = "12.8",
) -> bytes:
    """An extension module for Python 3.12 with machine code for ``archs``."""
    code: list[Entry] = [(ELF, one, 8) for one in archs.split(";") if one]
    code += [(PTX, one, 8) for one in ptx.split(";") if one]
    tail = container(*code, cuda=cuda) if code else b""
    return dll(IMPORTS if imports is None else imports, ("PyInit__C",), tail=tail, late=late)


class Windows:
    """A folder with a Python, Windows' DLLs, a torch of CUDA 12.8 and flash-attn, all whole."""

    def __init__(self, room: Path) -> None:
        self.room = room
        self.site = self.folder("python/Lib/site-packages")
        self.system = self.folder("Windows/System32")
        self.python = self.folder("python")
        self.user = room / "user/site-packages"
        self.cwd = self.folder("work")
        for name, exports in (
            ("kernel32.dll", KERNEL),
            ("msvcp140.dll", RUNTIME),
            ("nvcuda.dll", ("cuInit",)),
        ):
            (self.system / name).write_bytes(dll({}, exports))
        (self.python / "python312.dll").write_bytes(dll({}, ("PyModule_Create2",)))
        self.torch()

    def folder(self, path: str) -> Path:
        made = self.room / path
        made.mkdir(parents=True, exist_ok=True)
        return made

    def place(self, python: str = "3.12", platform: str = "win_amd64") -> Place:
        """As ``which`` sees it."""
        digits = python.replace(".", "")
        return Place(
            executable=str(self.python / "python.exe"),
            python=python,
            platform=platform,
            paths=(
                str(self.cwd),
                *([str(self.user)] if self.user.is_dir() else ()),
                str(self.site),
            ),
            suffixes=(f".cp{digits}-win_amd64.pyd", ".pyd"),
            user=str(self.user),
            system=str(self.system),
            dll_folders=(str(self.python),),
        )

    def package(
        self,
        project: str,
        version: str,
        files: Mapping[str, bytes],
        *,
        site: Path | None = None,
        requires: Sequence[str] = (),
        tag: str = "cp312-cp312-win_amd64",
    ) -> Path:
        """Install it, as pip does; its ``.dist-info``."""
        site = site or self.site
        info = f"{project.replace('-', '_')}-{version}.dist-info"
        metadata = f"Metadata-Version: 2.4\nName: {project}\nVersion: {version}\n"
        metadata += "".join(f"Requires-Dist: {one}\n" for one in requires)
        every = {
            **files,
            f"{info}/METADATA": metadata.encode(),
            f"{info}/WHEEL": f"Wheel-Version: 1.0\nTag: {tag}\n".encode(),
        }
        rows = [f"{path},sha256=x,{len(data)}" for path, data in every.items()]
        every[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,"]).encode()
        for path, data in every.items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_bytes(data)
        return site / info

    def torch(
        self,
        version: str = "2.8.0+cu128",
        cuda: str = "12.8",
        names: Sequence[str] = TORCH_NAMES,
        known: str = "",
    ) -> None:
        """Install torch; ``known``: the version in its metadata."""
        said = f"__version__ = '{version}'\ncuda: Optional[str] = {cuda or None!r}\n"
        files = {
            "torch/__init__.py": b"",
            "torch/version.py": said.encode(),
            "torch/lib/torch_cpu.dll": dll({}, names),
        }
        if cuda:
            files[f"torch/lib/cudart64_{cuda.partition('.')[0]}.dll"] = dll({}, ("cudaLaunch",))
            files["torch/lib/c10_cuda.dll"] = dll({}, ("stream",))
        self.package("torch", known or version, files)

    def flash(
        self,
        binary: bytes | None = None,
        *,
        version: str = "2.8.3+cu128torch2.8",
        suffix: str = ".cp312-win_amd64.pyd",
        more: Mapping[str, bytes] | None = None,
        site: Path | None = None,
        requires: Sequence[str] = ("torch",),
    ) -> Path:
        """Install flash-attn; its module's path."""
        name = f"flash_attn/_C{suffix}"
        files = {
            "flash_attn/__init__.py": b"import torch\n",
            name: module() if binary is None else binary,
            **(more or {}),
        }
        self.package("flash-attn", version, files, site=site, requires=requires)
        return (site or self.site) / name
