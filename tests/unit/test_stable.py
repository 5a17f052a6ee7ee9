"""What of torch's and Python's stable ABIs a wheel uses, and so what it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from foreign_wheels import foreign
from pes import dll

from pipelines.wheels.metadata import inspect_wheel
from pipelines.wheels.stable import Stable, stable_of, wants_toolkit

NAMES = Mapping[str, Sequence[str]]


def stable(
    room: Path, imports: NAMES, late: NAMES | None = None, files: Mapping[str, bytes] | None = None
) -> Stable:
    files = {"pkg/_C.pyd": dll(imports, late=late), **(files or {})}
    path = foreign(room, "pkg", "1.0", "cp311-cp311-win_amd64", files=files)
    found = stable_of(inspect_wheel(path))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("imports", "said"),
    [
        ({"KERNEL32.dll": ["Sleep"]}, {"torch": "none", "least_torch": ""}),
        ({"torch_cpu.dll": ["aoti_torch_get_dim"]}, {"torch": "stable", "least_torch": "2.9.0"}),
        (
            {"torch_cpu.dll": ["aoti_torch_get_dim", "torch_call_dispatcher"]},
            {"torch": "stable", "least_torch": "2.10.0"},
        ),
        (
            {"torch_cpu.dll": ["torch_call_dispatcher", "torch_of_tomorrow"]},
            {"torch": "unknown", "least_torch": "", "beyond_torch": ("torch_of_tomorrow",)},
        ),
        (
            {"torch_cpu.dll": ["torch_call_dispatcher"], "c10.dll": ["?f@c10@@YAXH@Z"]},
            {
                "torch": "unstable",
                "least_torch": "",
                "beyond_torch": ("void __cdecl c10::f(int)",),
            },
        ),
        ({"torch_cpu.dll": ["#7"]}, {"torch": "unstable", "beyond_torch": ("#7",)}),
        ({"c10_cuda.dll": ["f"]}, {"torch": "unstable"}),
        ({"python3.dll": ["PyObject_Call"]}, {"python": "limited", "least_python": "3.2"}),
        (
            {"python3.dll": ["PyObject_Call", "PyType_GetModule"]},
            {"python": "limited", "least_python": "3.10"},
        ),
        (
            {"python3.dll": ["PyObject_Call", "PyOf_Tomorrow"]},
            {"python": "unknown", "least_python": "", "beyond_python": ("PyOf_Tomorrow",)},
        ),
        (
            {"python3.dll": ["PyObject_Call"], "Python311.dll": ["PyLong_Type"]},
            {"python": "bound", "bound_to": ("3.11",), "least_python": ""},
        ),
        ({"python313t.dll": ["PyLong_Type"]}, {"python": "bound", "bound_to": ("3.13t",)}),
        (
            {"python39.dll": ["f"], "python310.dll": ["f"]},
            {"python": "bound", "bound_to": ("3.9", "3.10")},
        ),
    ],
)
def test_what_is_imported(tmp_path: Path, imports: NAMES, said: dict[str, Any]) -> None:
    found = stable(tmp_path, imports)
    said = {"torch": "none", "python": "none"} | said
    assert {key: getattr(found, key) for key in said} == said


def test_what_is_called_late_counts(tmp_path: Path) -> None:
    late = {"c10.dll": ["?f@c10@@YAXH@Z"], "python312.dll": ["PyLong_Type"]}
    found = stable(tmp_path, {"torch_cpu.dll": ["aoti_torch_get_dim"]}, late)
    assert (found.torch, found.python, found.bound_to) == ("unstable", "bound", ("3.12",))


@pytest.mark.parametrize(
    ("imports", "late", "wanted"),
    [
        ({"torch_cpu.dll": ["aoti_torch_get_dim"], "nvcuda.dll": ["cuInit"]}, {}, False),
        ({"CUDART64_13.dll": ["cudaMalloc"]}, {}, True),
        ({"KERNEL32.dll": ["Sleep"]}, {"cublasLt64_13.dll": ["cublasLtCreate"]}, True),
        ({"torch_cuda.dll": ["aoti_torch_get_current_cuda_stream"]}, {}, True),
    ],
)
def test_who_wants_cuda_of_a_release(
    tmp_path: Path, imports: NAMES, late: NAMES, wanted: bool
) -> None:
    files = {"pkg/_C.pyd": dll(imports, late=late)}
    path = foreign(tmp_path, "pkg", "1.0", "cp311-cp311-win_amd64", files=files)
    assert wants_toolkit(inspect_wheel(path)) is wanted
    unread = foreign(tmp_path, "pkg", "1.1", "cp311-cp311-win_amd64", files={"pkg/_C.pyd": b"MZ"})
    assert wants_toolkit(inspect_wheel(unread))


def test_what_was_not_read_is_not_stable(tmp_path: Path) -> None:
    imports = {"torch_cpu.dll": ["aoti_torch_get_dim"], "python3.dll": ["PyObject_Call"]}
    found = stable(tmp_path, imports, files={"pkg/_D.pyd": b"MZ"})
    assert (found.torch, found.python) == ("unknown", "unknown")
    assert (found.least_torch, found.least_python) == ("", "")
    assert found.unread == ("pkg/_D.pyd",)
    nothing = stable(tmp_path, {}, files={"pkg/_D.pyd": b"MZ"})
    assert (nothing.torch, nothing.python) == ("unknown", "unknown")
