"""The driver's files in a Windows container, in a made-up driver store. It was not run on one."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from pipelines.remote import cudafiles, process

INF = r"""
; a driver as it describes itself
[Version]
Signature = "$WINDOWS NT$"
[nv_vm]
HKR,"CopyToVmOverwrite",nvcuda,%REG_MULTI_SZ%,"nvcuda_loader64.dll","nvcuda.dll"
HKR, CopyToVmWhenNewer, nvml, %REG_MULTI_SZ%, nvml_loader.dll, nvml.dll ; a comment
HKR,"sub\CopyToVmWhenNewer",ptx,%REG_MULTI_SZ%,"Sub\nvptxJitCompiler64.dll",""
HKR,CopyToVmWhenNewer,gone,%REG_SZ%,"gone.dll"
HKR,CopyToVmWhenNewer,again,%REG_MULTI_SZ%,"other.dll","NVCUDA.dll"
HKR,CopyToVmWhenNewer,out,%REG_MULTI_SZ%,"..\..\evil.dll","evil.dll"
HKR,CopyToVmWhenNewer,out,%REG_MULTI_SZ%,"evil.dll","..\evil.dll"
HKR,CopyToVmOverwriteWow64,old,%REG_MULTI_SZ%,"nvcuda_loader32.dll","nvcuda.dll"
HKR,UserModeDriverName,%REG_MULTI_SZ%,"nvldumdx.dll"
;HKR,CopyToVmWhenNewer,off,%REG_MULTI_SZ%,"other.dll","off.dll"
"""
FILES = (
    *("nvcuda_loader64.dll", "nvcuda64.dll", "nvml_loader.dll", "nvidia-smi.exe", "other.dll"),
    *("Sub/nvptxJitCompiler64.dll", "nvcuda_loader32.dll", "evil.dll"),
)


def store(root: Path, name: str = "nv_dispi.inf_amd64_1", inf: bytes = INF.encode()) -> Path:
    """A System32 with that driver's directory below it."""
    folder = root / "HostDriverStore/FileRepository" / name
    for file in FILES:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(f"{name} {file}")
    (folder / "nv_dispi.inf").write_bytes(inf)
    return folder


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_what_the_inf_names_is_brought(tmp_path: Path, encoding: str) -> None:
    place = store(tmp_path, inf=INF.replace("\n", "\r\n").encode(encoding))
    told = cudafiles.bring(str(tmp_path))
    wanted = {
        "nvcuda.dll": "nvcuda_loader64.dll",
        "nvml.dll": "nvml_loader.dll",
        "nvptxJitCompiler64.dll": "Sub/nvptxJitCompiler64.dll",
        "nvidia-smi.exe": "nvidia-smi.exe",
    }
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert made == {name: (place / source).read_bytes() for name, source in wanted.items()}
    assert told["files"] == {n: hashlib.sha256(data).hexdigest() for n, data in made.items()}
    assert told["missing"] == ["gone.dll"]
    assert told["store"] == str(place)
    assert cudafiles.bring(str(tmp_path)) == told, "twice is as once"


def test_a_driver_whose_inf_names_nothing(tmp_path: Path) -> None:
    store(tmp_path, inf=b"[Version]\n")
    assert set(cudafiles.bring(str(tmp_path))["files"]) == {"nvcuda.dll", "nvidia-smi.exe"}


def test_no_driver_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="the container has no GPU"):
        cudafiles.bring(str(tmp_path))


def test_of_two_drivers_the_one_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(tmp_path)
    place = store(tmp_path, "nv_dispi.inf_amd64_2")
    with pytest.raises(RuntimeError, match="in use: nv_dispi"):
        cudafiles.bring(str(tmp_path))
    path = r"C:\Windows\System32\DriverStore\FileRepository\NV_dispi.inf_amd64_2\nvldumdx.dll,x"
    monkeypatch.setattr(process, "capture", lambda *_, **__: (0, path))
    assert cudafiles.bring(str(tmp_path))["store"] == str(place)
    assert (tmp_path / "nvcuda.dll").read_text().startswith("nv_dispi.inf_amd64_2 ")
