"""Genuine Windows wheels of torch in the sandbox, as provisioning brings them: they compute."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.finding import worst_level
from pipelines.doctor import diagnose_facts
from pipelines.doctor.inspect import inspect_host
from pipelines.doctor.run import purpose_of
from pipelines.plan.matrix.buildplan import BuildPlan
from pipelines.recipe.origin import PathSource
from pipelines.record.results import BuildResult, ProvisionResult
from pipelines.remote import files, process
from pipelines.stages.line import BUILD, COLLECT, PROVISION, Line
from pipelines.wheels.fatbin import inventory

MATHS = Path(__file__).with_name("torch_maths.py")
EXTENSION = MATHS.with_name("torch_extension")
RUNTIME = r"C:\Python311\msvcp140.dll"
#: Seconds that an import takes at most; 3 to 10 were measured, 15 the first time.
SLOW = 90


def with_torch(plan: BuildPlan, release: str) -> BuildPlan:
    """The plan for a package that is built with torch."""
    requires = ("setuptools", "ninja", "torch")
    made = {"torch": release, "api": "stable", "build_requires": requires}
    target = plan.target.model_copy(update={"torch": release})
    return replace(
        plan,
        recipe=plan.recipe.model_copy(update=made),
        target=target,
        place=replace(plan.place, target=target),
    )


def provisioned(line: Line) -> dict[str, str]:
    """Provision, and tell what was changed and what was found before."""
    done = line.do(PROVISION)
    assert isinstance(done, ProvisionResult)
    return {row.id: row.found for row in done.resources if row.changed}


@pytest.fixture(scope="module")
def torch_line(line: Line, libcxx_there: None) -> Iterator[Line]:
    """The line with torch 2.10; what it was comes back."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("provisioned", "_run", "_unreported"):
            patch.setattr(line, name, None)
        patch.setattr(line, "plan", with_torch(line.plan, "2.10"))
        line.begin_run()
        provisioned(line)
        yield line


def python(line: Line, *words: str) -> tuple[int, str]:
    """Exit code and output of Windows' Python."""
    command = [line.plan.building_python, *words]
    return line.session.call(process.capture, command=command, timeout=300)


def maths(line: Line) -> dict[str, Any]:
    """What torch_maths.py tells."""
    line.session.put(MATHS, r"C:\t\torch_maths.py")
    code, text = python(line, r"C:\t\torch_maths.py")
    assert code == 0, text[-2000:]
    answer: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    return answer


def unpacked(line: Line) -> str:
    """The level of what the doctor says of the unpacked files there, the run-time's among them."""
    host = inspect_host(line.plan, line.session)
    found = diagnose_facts({"controller": {}, "host": host}, purpose_of(line.plan))
    return worst_level(one.level for one in found if one.id == "unpacked-tools")


def test_torch_computes(torch_line: Line, record_property: Any) -> None:
    answer = maths(torch_line)
    assert answer["torch"] == "2.10.0+cpu"
    assert answer["cuda"] is None
    assert answer["wrong"] == {}
    assert answer["checks"] == 13
    assert answer["seconds"] < SLOW
    record_property("import_seconds", round(answer["seconds"], 1))
    assert unpacked(torch_line) == "ok"


def test_a_run_time_that_is_gone_is_noticed_and_put_back(torch_line: Line) -> None:
    """Wine's own takes its place, without a word of the loader's."""
    assert torch_line.session.call(files.remove_tree, path=RUNTIME)
    assert unpacked(torch_line) == "warning"
    changed = provisioned(torch_line)
    assert list(changed) == ["C++ run-time"]
    assert "msvcp140.dll missing" in changed["C++ run-time"]
    assert unpacked(torch_line) == "ok"


def test_another_run_time_in_its_place_is_put_right(torch_line: Line, tmp_path: Path) -> None:
    """A file that is no DLL, whatever it is called: the loader passes it over for Wine's own."""
    (tmp_path / "msvcp140.dll").write_bytes(b"MZ" * 999)
    torch_line.session.put(tmp_path / "msvcp140.dll", RUNTIME)
    assert unpacked(torch_line) == "warning"
    assert list(provisioned(torch_line)) == ["C++ run-time"]
    assert unpacked(torch_line) == "ok"


def test_a_damaged_wheel_on_the_host_is_sent_again(torch_line: Line) -> None:
    layout = torch_line.plan.layout
    lock = torch_line.plan.cache.lock
    file = layout.join(layout.wheels, lock.tool("torch-cpu-2.10-cp311").file)
    code, _ = python(torch_line, "-c", f"f = open({file!r}, 'r+b'); f.seek(9999); f.write(b'?')")
    assert code == 0
    assert list(provisioned(torch_line)) == ["wheels"]
    assert (
        torch_line.session.call(files.sha256, path=file) == lock.tool("torch-cpu-2.10-cp311").sha256
    )


def test_its_build_extension_drives_the_compilers(
    torch_line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ninja, cl, nvcc and link as on a host; CUDA_HOME and the headers that no CPU build has."""
    plan = torch_line.plan
    made = {
        "name": "torch-extension",
        "source": PathSource(path=str(EXTENSION)),
        "environment": {"TORCH_CUDA_ARCH_LIST": "8.0+PTX", "MAX_JOBS": "{jobs}"},
        "costs": (),
    }
    monkeypatch.setattr(
        torch_line, "plan", replace(plan, recipe=plan.recipe.model_copy(update=made))
    )
    built = torch_line.do(BUILD)
    assert isinstance(built, BuildResult)
    assert built.made_up == "a CPU build of torch was presented as one with CUDA 13.0"
    log = (torch_line.run.path / "build.log").read_text("utf-8")
    assert "torch 2.10.0+cpu is a CPU build: used as one with CUDA 13.0" in log
    assert re.search(r"^\[1/2\] cl /showIncludes .*bind\.c", log, re.MULTILINE)
    assert re.search(r"^\[2/2\] \S+nvcc --generate-dependencies.*kernel\.cu", log, re.MULTILINE)
    torch_line.do(COLLECT)
    (wheel,) = (torch_line.run.path / "wheels").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        module = archive.read("torch_extension.cp311-win_amd64.pyd")
    assert [*inventory(module).sass] == ["80"]
    lib = rf"{built.directory}\src\build\lib.win-amd64-cpython-311"
    toolkit = rf"{plan.layout.cuda}\bin\x86_64"
    load = f"import os, sys; os.add_dll_directory({toolkit!r}); sys.path.insert(0, {lib!r})"
    code, text = python(
        torch_line, "-c", f"{load}; import torch_extension; print(torch_extension.devices() <= 0)"
    )
    assert (code, text.strip()) == (0, "True"), text


def test_the_newer_torch_takes_its_place(torch_line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """2.15 imports a DLL of the run-time that Wine does not have."""
    monkeypatch.setattr(torch_line, "plan", with_torch(torch_line.plan, "2.15"))
    assert list(provisioned(torch_line)) == ["wheels", "build tools"]
    answer = maths(torch_line)
    assert answer["torch"] == "2.15.0+cpu"
    assert answer["wrong"] == {}
