"""``which`` on Windows Pythons, each broken in one way: it names that, and how to fix it."""

from __future__ import annotations

import ast
import shutil
import string
from collections.abc import Callable
from pathlib import Path

import pytest
from environments import ARM64, IMPORTS, RTX_4090, X86, Windows, machine, module
from pes import dll

from pipelines.publish.which import data, loading
from pipelines.publish.which.causes import Finding
from pipelines.publish.which.looking import Driver, Place
from pipelines.publish.which.reporting import Report, build_report

Breaks = Callable[[Windows], Place | None]


def seen(windows: Windows, place: Place | None = None, driver: Driver = RTX_4090) -> Report:
    return build_report(place or windows.place(), [], "flash-attn", driver=driver, load=False)


def causes(found: Report) -> list[Finding]:
    return [*found.findings, *(cause for one in found.packages for cause in one.findings)]


def test_a_whole_one_has_nothing_wrong(tmp_path: Path) -> None:
    windows = Windows(tmp_path)
    windows.flash()
    found = seen(windows)
    assert causes(found) == []
    assert found.machine.line == (
        "wcw1:platform=win_amd64&python=3.12&torch=2.8.0%2Bcu128&cuda=12.8&driver=12.9&gpu=8.9"
    )
    assert [one.installed.version for one in found.packages] == ["2.8.3+cu128torch2.8"]
    assert found.packages[0].loads is None
    assert found.strays == ()


def missing_dll(windows: Windows) -> None:
    windows.flash(module({**IMPORTS, "helper.dll": ["go"]}))


def missing_further_dll(windows: Windows) -> None:
    more = {"flash_attn/own.dll": dll({"zlib9.dll": ["inflate"]}, ("go",))}
    windows.flash(module({**IMPORTS, "own.dll": ["go"]}), more=more)


def missing_export(windows: Windows) -> None:
    windows.flash(module({**IMPORTS, "torch_cpu.dll": ["?gone@at@@YAXXZ"]}))


def missing_number(windows: Windows) -> None:
    windows.flash(module({**IMPORTS, "cudart64_12.dll": ["#77"]}))


def old_runtime(windows: Windows) -> None:
    windows.flash(module({**IMPORTS, "msvcp140.dll": ["_Thrd_new"]}))


def no_runtime(windows: Windows) -> None:
    windows.flash()
    (windows.system / "msvcp140.dll").unlink()


def wrong_gpu(windows: Windows) -> None:
    windows.flash(module(archs="90;120"))


def ptx_of_a_newer_cuda(windows: Windows) -> None:
    windows.flash(module(archs="90", ptx="80", cuda="13.0"))


def cpu_torch(windows: Windows) -> None:
    shutil.rmtree(windows.site / "torch")
    shutil.rmtree(next(windows.site.glob("torch-*")))
    windows.torch("2.8.0+cpu", "")
    windows.flash(module({**IMPORTS, "c10_cuda.dll": ["stream"]}))


def cuda_beside_cpu_torch(windows: Windows) -> None:
    cpu_torch(windows)
    cublas_of_nobody(windows)


def other_cuda(windows: Windows) -> None:
    windows.flash(
        module({**IMPORTS, "cudart64_13.dll": ["cudaLaunch"]}), version="2.8.3+cu130torch2.8"
    )


def other_cuda_unsaid(windows: Windows) -> None:
    windows.flash(module({**IMPORTS, "cublas64_13.dll": ["gemm"]}), version="2.8.3")


def other_torch(windows: Windows) -> None:
    windows.flash(version="2.8.3+cu128torch2.9")


def other_torch_required(windows: Windows) -> None:
    windows.flash(version="2.8.3", requires=("torch==2.7.*",))


def other_python(windows: Windows) -> None:
    windows.flash(module({**IMPORTS, "python311.dll": ["X"]}), suffix=".cp311-win_amd64.pyd")


def other_kind_of_python(windows: Windows) -> Place:
    windows.flash(suffix=".cp312-win_amd64.pyd")
    return windows.place("3.12t")


def other_python_inside(windows: Windows) -> None:
    wanted = {name: names for name, names in IMPORTS.items() if name != "python312.dll"}
    windows.flash(module({**wanted, "python311.dll": ["X"]}), suffix=".pyd")


def python_of_32_bits(windows: Windows) -> Place:
    return windows.place(platform="win32")


def windows_on_arm(windows: Windows) -> Place:
    return windows.place(platform="win_arm64")


def half_installed(windows: Windows) -> None:
    windows.flash(more={"flash_attn/bert.py": b"x", "flash_attn/layers.py": b"y"})
    (windows.site / "flash_attn/bert.py").unlink()


def copied_by_hand(windows: Windows) -> None:
    windows.flash()
    next(windows.site.glob("flash_attn-*/RECORD")).unlink()


def folder_in_the_way(windows: Windows) -> None:
    windows.flash()
    windows.folder("work/flash_attn").joinpath("__init__.py").write_text("")


def two_versions(windows: Windows) -> None:
    windows.flash()
    windows.flash(version="2.7.4+cu128torch2.8")


def users_own(windows: Windows) -> None:
    windows.flash()
    windows.flash(version="2.7.4+cu128torch2.8", site=windows.user)


def for_linux(windows: Windows) -> None:
    windows.flash(b"\x7fELF\2\1\1", suffix=".cpython-312-x86_64-linux-gnu.so")


def no_torch(windows: Windows) -> None:
    windows.flash()
    shutil.rmtree(windows.site / "torch")
    shutil.rmtree(next(windows.site.glob("torch-*")))


def half_a_torch(windows: Windows) -> None:
    (windows.site / "torch/version.py").unlink()


def torn_torch(windows: Windows) -> None:
    windows.torch("2.9.0+cu128")
    (next(windows.site.glob("torch-2.8*")) / "METADATA").unlink()
    shutil.rmtree(next(windows.site.glob("torch-2.9*")))


def other_machine(windows: Windows) -> None:
    windows.flash(machine(module(), ARM64))


def dll_of_another_machine(windows: Windows) -> None:
    more = {"flash_attn/own.dll": machine(dll({}, ("go",)), X86)}
    windows.flash(module({**IMPORTS, "own.dll": ["go"]}), more=more)


def cut_off(windows: Windows) -> None:
    path = windows.flash()
    path.write_bytes(path.read_bytes()[:700])


def cut_off_and_listed_so(windows: Windows) -> None:
    windows.flash(module()[:700])


def no_binary_at_all(windows: Windows) -> None:
    windows.flash(b"<!DOCTYPE html>404")


def hostile_tables(windows: Windows) -> None:
    data = bytearray(module())
    start = int.from_bytes(data[0x3C:0x40], "little")
    data[start + 24 + 112 + 8 : start + 24 + 112 + 12] = b"\xff\xff\xff\x7f"
    windows.flash(bytes(data))


def cublas_of_nobody(windows: Windows) -> None:
    windows.flash(module({**IMPORTS, "cublas64_12.dll": ["gemm"]}))


@pytest.mark.parametrize(
    ("breaks", "kind", "says"),
    [
        (missing_dll, "missing-dll", "helper.dll, which Windows cannot find"),
        (missing_further_dll, "missing-dll", "own.dll imports zlib9.dll"),
        (missing_export, "missing-export", "?gone@at@@YAXXZ from torch_cpu.dll"),
        (missing_number, "missing-export", "#77 from cudart64_12.dll"),
        (old_runtime, "missing-export", "_Thrd_new from msvcp140.dll"),
        (no_runtime, "no-msvc-runtime", "msvcp140.dll"),
        (wrong_gpu, "wrong-gpu", "it has code for 90, 120, but the GPU has compute capability 8.9"),
        (ptx_of_a_newer_cuda, "old-driver", "PTX from CUDA 13.0, but the driver is for"),
        (cpu_torch, "cpu-torch", "torch 2.8.0+cpu is a build without CUDA"),
        (cuda_beside_cpu_torch, "cpu-torch", "cublas64_12.dll from CUDA 12, which torch 2.8.0+cpu"),
        (other_cuda, "cuda-mismatch", "built with CUDA 13.0, but torch with CUDA 12.8"),
        (other_cuda_unsaid, "cuda-mismatch", "cublas64_13.dll from CUDA 13, but torch is built"),
        (other_torch, "torch-mismatch", "was built for torch 2.9, but torch 2.8.0+cu128"),
        (other_torch_required, "torch-mismatch", "was built for torch 2.7"),
        (other_python, "python-mismatch", "is for Python 3.11, but this is Python 3.12"),
        (other_kind_of_python, "python-mismatch", "is for Python 3.12, but this is Python 3.12t"),
        (other_python_inside, "python-mismatch", "is for Python 3.11, but this is Python 3.12"),
        (python_of_32_bits, "32-bit-python", "32-bit"),
        (windows_on_arm, "windows-on-arm", "is built for ARM64"),
        (half_installed, "half-installed", "1 of 7 files are missing, such as flash_attn/bert.py"),
        (copied_by_hand, "half-installed", "has no readable RECORD"),
        (folder_in_the_way, "shadowed", "imports a folder called flash_attn"),
        (for_linux, "linux-files", "_C.cpython-312-x86_64-linux-gnu.so, but this is Windows"),
        (no_torch, "no-torch", "no torch is installed in this Python"),
        (half_a_torch, "broken-torch", "has no valid version.py"),
        (torn_torch, "torn-torch", "files are version 2.9.0+cu128, but its metadata says 2.8"),
        (other_machine, "wrong-machine", "is for ARM64, but this Python is for x64"),
        (dll_of_another_machine, "wrong-machine", "own.dll is for 32-bit x86"),
        (cut_off, "truncated", "flash_attn/_C.cp312-win_amd64.pyd (700 of"),
        (cut_off_and_listed_so, "truncated", "is truncated"),
        (no_binary_at_all, "unreadable-dll", "not a Windows binary"),
        (hostile_tables, "unreadable-dll", "0x7fffffff"),
        (cublas_of_nobody, "missing-dll", "cublas64_12.dll, which Windows cannot"),
    ],
    ids=lambda one: one.__name__ if callable(one) else "",
)
def test_what_is_broken_is_named(tmp_path: Path, breaks: Breaks, kind: str, says: str) -> None:
    windows = Windows(tmp_path)
    found = causes(seen(windows, breaks(windows)))
    fitting = [one for one in found if one.id == kind and says in one.actual]
    assert fitting, found
    assert fitting[0].failed
    assert fitting[0].hint


@pytest.mark.parametrize(
    ("breaks", "kind", "says"),
    [
        (two_versions, "side-by-side", "2.7.4+cu128torch2.8 in"),
        (users_own, "user-site", "uninstall one of them"),
    ],
    ids=lambda one: one.__name__ if callable(one) else "",
)
def test_what_may_work_is_only_to_be_minded(
    tmp_path: Path, breaks: Breaks, kind: str, says: str
) -> None:
    windows = Windows(tmp_path)
    breaks(windows)
    (own,) = (one for one in causes(seen(windows)) if one.id == kind)
    assert not own.failed
    assert says in f"{own.actual} {own.hint}"


@pytest.mark.parametrize(
    ("driver", "kind", "says"),
    [
        (Driver(), "no-driver", "no NVIDIA driver can be reached"),
        (Driver("12.9"), "no-gpu", "shows no GPU"),
        (Driver("11.8", ("8.9",)), "old-driver", "built with CUDA 12.8, but the driver"),
        (Driver("12.9", ("8.9",), trouble="cuInit says 999"), "driver-trouble", "cuInit says 999"),
        (Driver("12.9", ("8.9",), native="ARM64"), "windows-on-arm", "on Windows for ARM64"),
    ],
    ids=["none", "no-gpu", "old", "trouble", "arm"],
)
def test_what_is_wrong_with_the_machine_is_named(
    tmp_path: Path, driver: Driver, kind: str, says: str
) -> None:
    found = [one for one in seen(Windows(tmp_path), driver=driver).findings if one.id == kind]
    assert says in found[0].actual


def test_a_late_import_is_only_to_be_minded(tmp_path: Path) -> None:
    windows = Windows(tmp_path)
    windows.flash(module(late={"cudnn64_9.dll": ["go"]}))
    (own,) = causes(seen(windows))
    assert (own.id, own.failed) == ("missing-dll", False)
    assert "when it is first called" in own.actual


def test_a_torch_whose_metadata_names_no_cuda_is_whole(tmp_path: Path) -> None:
    """As PyPI has it for Linux; and pip keeps it only by the version that it knows."""
    windows = Windows(tmp_path)
    shutil.rmtree(windows.site / "torch")
    shutil.rmtree(next(windows.site.glob("torch-*")))
    windows.torch("2.11.0+cu128", "12.8", known="2.11.0")
    found = build_report(windows.place(), [], driver=RTX_4090, load=False)
    assert (found.findings, found.machine.torch, found.machine.cuda) == ((), "2.11.0", "12.8")


def test_nvidias_packages_count_where_the_package_adds_them(tmp_path: Path) -> None:
    windows = Windows(tmp_path)
    folder = windows.folder("python/Lib/site-packages/nvidia/cublas/bin")
    (folder / "cublas64_12.dll").write_bytes(dll({}, ("gemm",)))
    binary = module({**IMPORTS, "cublas64_12.dll": ["gemm"]})
    windows.flash(binary)
    (own,) = causes(seen(windows))
    assert "only found by a program that adds that folder itself" in own.actual
    windows.flash(binary, more={"flash_attn/dlls.py": b"import os\nos.add_dll_directory('x')\n"})
    assert causes(seen(windows)) == []
    (folder / "cublas64_12.dll").write_bytes(machine(dll({}, ("gemm",)), X86))
    assert [one.id for one in causes(seen(windows))] == ["wrong-machine"]


def test_what_a_package_brings_counts_where_it_adds_the_folder(tmp_path: Path) -> None:
    """As delvewheel leaves it: DLLs under names of their own in a folder next to the package."""
    windows = Windows(tmp_path)
    own = "msvcp140-a4c2229bdc2a2a63.dll"
    binary = module({**IMPORTS, own: ["go"]})
    brought = {f"flash_attn.libs/{own}": dll({}, ("go",))}
    windows.flash(binary, more=brought)
    (cause,) = causes(seen(windows))
    assert cause.id == "missing-dll"
    assert "only found by a program that adds that folder itself" in cause.actual
    adds = {"flash_attn/dlls.py": b"import os\nos.add_dll_directory('x')\n"}
    windows.flash(binary, more={**brought, **adds})
    assert causes(seen(windows)) == []


def test_a_bare_folder_hides_nothing(tmp_path: Path) -> None:
    """Without ``__init__.py`` Python takes it only where nothing else is called so."""
    windows = Windows(tmp_path)
    windows.folder("work/flash_attn")
    windows.flash()
    assert causes(seen(windows)) == []


def test_what_a_package_has_besides_may_be_called_alike(tmp_path: Path) -> None:
    windows = Windows(tmp_path)
    windows.folder("work/tests").joinpath("__init__.py").write_text("")
    windows.flash(more={"tests/__init__.py": b""})
    assert causes(seen(windows)) == []


def test_what_is_not_installed_and_hidden_by_a_folder_is_told(tmp_path: Path) -> None:
    windows = Windows(tmp_path)
    windows.folder("work/flash_attn").joinpath("run.py").write_text("")
    assert [Path(one).parent.name for one in seen(windows).strays] == ["work"]


def test_a_leftover_of_pips_is_told(tmp_path: Path) -> None:
    windows = Windows(tmp_path)
    windows.flash()
    windows.folder("python/Lib/site-packages/~lash_attn-2.8.2.dist-info")
    (own,) = causes(seen(windows))
    assert (own.id, own.failed) == ("leftover", False)


def test_parts_without_code_for_the_gpu_are_to_be_minded(tmp_path: Path) -> None:
    windows = Windows(tmp_path)
    windows.flash(more={"flash_attn/_D.pyd": module(archs="90")})
    (own,) = causes(seen(windows))
    assert (own.id, own.failed) == ("some-gpu-code", False)
    assert own.actual == "1 of its 2 parts have no code for compute capability 8.9"


def test_dlls_that_no_module_wants_are_only_to_be_minded(tmp_path: Path) -> None:
    """A package may have one for each release of CUDA, and load that which fits."""
    windows = Windows(tmp_path)
    windows.flash(more={"flash_attn/for11.dll": dll({"cudart64_110.dll": ["go"]}, ("go",))})
    (own,) = causes(seen(windows))
    assert (own.id, own.failed) == ("cuda-mismatch", False)
    more = {f"flash_attn/{n}.dll": dll({f"cudart64_{n}.dll": ["go"]}, ("go",)) for n in "ab"}
    windows.flash(more=more)
    (own,) = causes(seen(windows))
    assert (own.id, own.failed) == ("missing-dll", False)
    assert own.actual.endswith("which Windows cannot find (and 1 more like it)")


def test_what_was_not_looked_at_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    windows = Windows(tmp_path)
    monkeypatch.setattr(loading, "_MOST_DLLS", 1)
    windows.flash(more={"flash_attn/_D.pyd": module()})
    (own,) = causes(seen(windows))
    assert (own.id, own.failed) == ("not-checked", False)


def test_each_cause_is_looked_for_and_filled_in() -> None:
    said: set[str] = set()
    for file in Path(data.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                said.add(node.value)
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "cause":
                given = {word.arg for word in node.keywords}
                keys = [
                    one.value for one in ast.walk(node.args[0]) if isinstance(one, ast.Constant)
                ]
                for key in keys if None not in given else ():
                    text = "".join(data.CAUSES[str(key)][:2])
                    slots = {slot for _, slot, _, _ in string.Formatter().parse(text) if slot}
                    assert slots <= given, key
    assert not data.CAUSES.keys() - said
    assert not set(data.REFUTED) - {key.partition(".")[0] for key in data.CAUSES}
