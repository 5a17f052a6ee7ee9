"""The slot for MSVC with the stand-in's programs under Microsoft's names: no caller sees that.

What cl.exe itself does under Wine is not shown here: there is no copy of it.
"""

from __future__ import annotations

import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import make_sandbox

from pipelines.core.errors import HostError
from pipelines.core.toolsets import STUB
from pipelines.doctor.model import Facts
from pipelines.hosts.sandbox.host import Sandbox
from pipelines.hosts.sandbox.msvc.finder import BASE, find_msvc_tree
from pipelines.hosts.sandbox.wine import Prefix
from pipelines.remote.inspection import tools
from pipelines.wheels.checking import Order
from pipelines.wheels.checks import check_wheel
from pipelines.wheels.metadata import inspect_wheel

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
import msvc_trees as trees

_MODULE = """
#include <Python.h>
#include <stdlib.h>
static struct PyModuleDef told = {PyModuleDef_HEAD_INIT, "told", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_told(void)
{
    PyObject *module = PyModule_Create(&told);
    if (module && getenv("PATH")) PyModule_AddIntConstant(module, "msc_ver", _MSC_VER);
    return module;
}
"""
#: As setuptools does it, which takes the compiler from the prompt's variables.
_SETUP = """
from distutils.core import Extension, setup
setup(name="told", version="1", ext_modules=[Extension("told", ["told.c"])])
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in's headers, libraries and programs as a tree of Microsoft's, of this version."""
    base = tmp_path_factory.mktemp("tree")
    plain = make_sandbox(base / "plain")
    plain._make()
    drive = plain.prefix / "drive_c"
    found = find_msvc_tree(drive / "VS", BASE)
    tools_, kits = base / f"VC/Tools/MSVC/{trees.TOOLSET}", base / "Windows Kits/10"
    trees.write(base, {n: d for n, d in trees.files().items() if not n.endswith("cl.exe")})
    for source, target in (
        (found.bin, tools_ / "bin/Hostx64/x64"),
        (found.include[0], tools_ / "include"),
        (found.lib[0], tools_ / "lib/x64"),
        *((p, kits / "Include" / trees.SDK / p.name) for p in found.include[1:]),
        *((p, kits / "Lib" / trees.SDK / p.parent.name / "x64") for p in found.lib[1:]),
        # clang's own, last in the order of vcvars
        (drive / "zig/lib/include", kits / "Include" / trees.SDK / "cppwinrt"),
    ):
        shutil.copytree(source, target, dirs_exist_ok=True)
    (kits / "Lib" / trees.SDK / "um/x64/kernel32.Lib").unlink(missing_ok=True)
    cl = tools_ / "bin/Hostx64/x64/cl.exe"
    cl.write_bytes(trees.branded(cl.read_bytes(), "14.44.35211.0"))
    plain.teardown()
    return base


@pytest.fixture(scope="module")
def sandbox(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    made = make_sandbox(tmp_path_factory.mktemp("home") / "sandbox", msvc=str(tree))
    made.start(ephemeral=True)
    yield made
    made.teardown()


def in_prompt(sandbox: Sandbox, arguments: str, command: str) -> str:
    """What a command prints after vcvarsall.bat."""
    script = sandbox.prefix / "drive_c/t.bat"
    script.write_text(
        f"@call C:\\VS\\VC\\Auxiliary\\Build\\vcvarsall.bat {arguments}\r\n"
        f"@if errorlevel 1 exit /b 1\r\n@{command}\r\n"
    )
    return Prefix(sandbox.prefix).run(["cmd", "/c", r"C:\t.bat"], timeout=120)


def test_the_prompt_takes_what_the_tree_is(sandbox: Sandbox) -> None:
    assert sandbox.capabilities.msvc
    for arguments in ("x64", "amd64", "x64 -vcvars_ver=14.44", "x64 -vcvars_ver=14.44.35207"):
        told = in_prompt(sandbox, arguments, "echo %VCToolsVersion% %WindowsSDKVersion%")
        assert told.split() == [trees.TOOLSET, f"{trees.SDK}\\"], arguments


@pytest.mark.parametrize("arguments", ["x64 -vcvars_ver=14.38", "x86", "x64 -vcvars_ver=14.4"])
def test_the_prompt_refuses_another(sandbox: Sandbox, arguments: str) -> None:
    with pytest.raises(HostError, match=r"was not found: 14\.44\.35207 is there|not understood"):
        in_prompt(sandbox, arguments, "echo never")


def test_the_compiler_is_found_by_its_name(sandbox: Sandbox) -> None:
    assert "Version 19." in in_prompt(sandbox, "x64", "cl")
    with pytest.raises(HostError, match="exited with"):
        in_prompt(sandbox, "x64", "vctip.exe")


def test_doctor_sees_one_tool_set(sandbox: Sandbox) -> None:
    with sandbox.connect() as session:
        told = session.call(tools.tools, cuda="", programs={})
    rows = Facts(told).rows("visual_studio") or []
    assert [row.text("path") for row in rows] == ["C:\\VS"]
    assert [text.text() for text in rows[0].rows("toolsets") or []] == [trees.TOOLSET]


def test_a_module_is_built_and_its_maker_is_told_apart(sandbox: Sandbox, tmp_path: Path) -> None:
    """It builds and loads; and the audit says who has built it, whatever cl.exe says of itself."""
    work = sandbox.prefix / "drive_c/work"
    work.mkdir()
    (work / "told.c").write_text(_MODULE)
    (work / "setup.py").write_text(_SETUP)
    python = sandbox.executable
    chosen = "set DISTUTILS_USE_SDK=1&& set MSSdk=1"  # as builds do; vcvarsall.bat does not
    build = f"{chosen}&& cd /d C:\\work&& {python} setup.py -q build_ext --inplace"
    in_prompt(sandbox, "x64 -vcvars_ver=14.44", build)
    load = [
        python,
        "-c",
        r"import sys; sys.path.insert(0, r'C:\work'); import told; print(told.msc_ver)",
    ]
    assert int(Prefix(sandbox.prefix).run(load)) >= 1940
    (module,) = work.glob("told*.pyd")
    assert module.stat().st_size > 0
    info = "told-1+cu130.sandbox.msvc.dist-info"
    wheel = tmp_path / "told-1+cu130.sandbox.msvc-cp311-cp311-win_amd64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(module, module.name)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: told\nVersion: 1\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: cp311-cp311-win_amd64\n")
        archive.writestr(f"{info}/RECORD", "")
    asked = sandbox.config.supply(sandbox.cache.lock).toolset
    assert asked.label == f"MSVC {trees.TOOLSET}"
    checks = check_wheel(inspect_wheel(wheel), order=Order("win_amd64", "3.11", toolset=asked))
    (check,) = (one for one in checks if one.id == "toolset")
    assert check.failed
    assert f"built with {STUB.name}, not with MSVC" in check.hint
