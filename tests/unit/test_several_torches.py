"""One wheel for several releases of torch: what its recipe may say, its audit, its suites."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from pes import dll
from plans import Desk, audited, line_for, plan_for, recipe_of, wanting
from projects import project
from sessions import Here
from test_gate import FACTS, GOOD
from wheels import FILES, INFO, WHEEL, wheel, wheel_here

from pipelines.core.architectures.archs import parse_arch_list
from pipelines.core.errors import ConfigError, SmokeError
from pipelines.core.target import Target
from pipelines.hosts.base import IN_SANDBOX
from pipelines.plan.config.model import Config
from pipelines.plan.matrix.buildplan import Request
from pipelines.plan.matrix.hostfacts import HostFacts
from pipelines.plan.matrix.plan import plan_matrix
from pipelines.recipe.load import load_recipe
from pipelines.recipe.model import Recipe
from pipelines.recipe.naming import expected_wheel_name
from pipelines.recipe.sourcetree import SourceTree, directories_of
from pipelines.recipe.tested import cells_of_tests
from pipelines.record.results import SmokeResult
from pipelines.reports.load import load_view, read_smoke
from pipelines.stages.line import TEST, Line
from pipelines.stages.manifest import write_manifest
from pipelines.toolchain.lock import Cache, load_lock
from pipelines.wheels.binary import Binary
from pipelines.wheels.checking import Kernels, Order
from pipelines.wheels.checks import check_wheel
from pipelines.wheels.fatbin import Inventory
from pipelines.wheels.metadata import inspect_wheel
from pipelines.wheels.pe import PeFacts

CASES = {
    "2.10": '<testcase classname="t" name="a"/>',
    "2.15": '<testcase classname="t" name="a"/><testcase classname="t" name="b"/>',
}
NO = '<testcase classname="t" name="a"><failure message="no"/></testcase>'


class OneForAll(Desk):
    """This machine as a host on which environments are made of the lock's wheels."""

    replacements = IN_SANDBOX

    def __init__(self, root: Path, session: Here) -> None:
        super().__init__(root, session)
        self.existing = None


class Suites:
    """A suite on the host, a report for each torch; ``loads`` is what is imported instead."""

    def __init__(
        self,
        cases: dict[str, str] = CASES,
        loads: dict[str, str] | None = None,
        gpu: tuple[str, ...] = (),
    ) -> None:
        """``gpu``: with which of them it sees one."""
        self.cases, self.loads, self.gpu = cases, loads or {}, gpu
        self.specs: list[dict[str, Any]] = []

    def __call__(self, spec: dict[str, Any]) -> Iterator[Any]:
        self.specs.append(spec)
        asked = spec["expect"]["torch"]
        loaded = self.loads.get(asked, f"{asked}.0+cpu")
        told = (
            f'<property name="torch" value="{loaded}"/><property name="warning1" value="W{asked}"/>'
        )
        told += '<property name="gpu0_name" value="L4"/>' * (asked in self.gpu)
        told = f"<properties>{told}</properties>"
        junit = Path(spec["directory"]) / "junit.xml"
        junit.parent.mkdir(parents=True)
        junit.write_text(
            f"<testsuites><testsuite>{told}{self.cases[asked]}</testsuite></testsuites>"
        )
        yield {"exit": 0, "step": "pytest", "junit": str(junit), "timed_out": False}


def at_test(tmp_path: Path, suites: Suites, *, existing: bool = False) -> Line:
    """A line whose wheel, which is for both, is about to be tested."""
    tree = tmp_path / "tree"
    project(tree, "")
    session = Here(suites)
    host = (Desk if existing else OneForAll)(tmp_path / "root", session)
    made = recipe_of(tree, torch="2.10", tested_with=("2.10", "2.15"))
    plan = plan_for(tmp_path, host, made, python="3.11", archs="90a")
    build_root = str(tmp_path / "root" / "b")
    line = wanting(line_for(plan), build_root=build_root, temp=str(tmp_path), wheels="w")
    audited(line, wheel_here(tmp_path))
    return line


def kept(line: Line) -> SmokeResult:
    found = line.run.result(SmokeResult)
    assert found is not None
    return found


def test_the_suite_runs_with_each_of_them(tmp_path: Path) -> None:
    suites = Suites()
    line = at_test(tmp_path, suites)
    line.do(TEST)
    done = kept(line)
    assert [(t.asked, t.loaded, t.outcomes) for t in done.torches] == [
        ("2.10", "2.10.0+cpu", {"passed": 1}),
        ("2.15", "2.15.0+cpu", {"passed": 2}),
    ]
    assert done.outcomes == {"passed": 3}
    assert done.untested == ()
    files = {row["path"] for row in write_manifest(line.run)}
    assert {"smoke.xml", "smoke-torch2.10.xml", "smoke-torch2.15.xml"} <= files
    first, second = suites.specs
    assert any(Path(one).name.startswith("torch-2.10.0-") for one in first["packages"])
    assert any(Path(one).name.startswith("torch-2.15.0-") for one in second["packages"])
    assert first["directory"] != second["directory"], "an environment each"
    told = (line.run.path / "smoke.xml").read_text("utf-8")
    assert 'classname="torch2.10.t"' in told
    assert 'classname="torch2.15.t"' in told
    read, why = read_smoke(line.run.path, done)
    assert read is not None, why
    assert [case.name for case in read.cases] == ["a", "a", "b"]
    assert read.properties["torch2.15.torch"] == "2.15.0+cpu"
    assert {"W2.10", "W2.15"} <= {*load_view(line.run).caveats}, "of each what it warns of"
    for one in done.torches:
        assert "torch2." not in (line.run.path / one.report).read_text("utf-8"), (
            "as pytest wrote it"
        )


@pytest.mark.parametrize(
    ("loads", "said"),
    [
        ({"2.10": "2.15.0"}, "should have used torch 2.10, but used 2.15.0"),
        ({"2.15": "2.10.0"}, "should have used torch 2.15, but used 2.10.0"),
        ({"2.15": "2.1.5"}, "should have used torch 2.15, but used 2.1.5"),
        ({"2.15": ""}, "should have used torch 2.15, but used none"),
    ],
)
def test_another_torch_than_asked_is_a_failure(
    tmp_path: Path, loads: dict[str, str], said: str
) -> None:
    line = at_test(tmp_path, Suites(loads=loads))
    with pytest.raises(SmokeError, match=said):
        line.do(TEST)


@pytest.mark.parametrize(
    ("gpu", "seen"), [((), 0), (("2.10",), 0), (("2.15",), 0), (("2.10", "2.15"), 1)]
)
def test_a_gpu_counts_that_each_of_them_has_used(
    tmp_path: Path, gpu: tuple[str, ...], seen: int
) -> None:
    line = at_test(tmp_path, Suites(gpu=gpu))
    line.do(TEST)
    assert len(kept(line).gpus) == seen


def test_the_second_that_fails_is_named(tmp_path: Path) -> None:
    line = at_test(tmp_path, Suites(CASES | {"2.15": NO}))
    with pytest.raises(SmokeError, match=r"1 of 1 smoke cases failed with torch 2\.15"):
        line.do(TEST)
    assert kept(line).outcomes == {"passed": 1, "failed": 1}, "of both, and told apart"
    assert 'classname="torch2.15.t"' in (line.run.path / "smoke.xml").read_text("utf-8")


def test_after_one_that_fails_there_is_no_other(tmp_path: Path) -> None:
    suites = Suites(CASES | {"2.10": NO})
    line = at_test(tmp_path, suites)
    with pytest.raises(SmokeError, match=r"failed with torch 2\.10"):
        line.do(TEST)
    assert len(suites.specs) == len(kept(line).torches) == 1


def test_an_environment_that_has_one_torch_says_what_was_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = at_test(tmp_path, Suites(), existing=True)
    line.do(TEST)
    assert [t.asked for t in kept(line).torches] == ["2.10"]
    assert "not tested with torch 2.15" in capsys.readouterr().out
    assert kept(line).untested == ("2.15",)
    assert "not tested with torch 2.15" in load_view(line.run).caveats


def test_the_cells_of_its_tests() -> None:
    recipe = load_recipe("smoke-attention-torch")
    target = Target(recipe=recipe.name, python="3.11", torch="2.10", cuda="13.0")
    lock = load_lock()
    cells = cells_of_tests(recipe, target, lock, IN_SANDBOX, existing=False)
    assert [cell.torch for cell in cells] == ["2.10", "2.15"]
    assert cells_of_tests(recipe, target, lock, {}, existing=True) == (target,)
    other = load_recipe("flash-attn")
    assert cells_of_tests(other, target, lock, IN_SANDBOX, existing=False) == (target,)
    # Of torch with CUDA the lock has the one, pinned or not; the other is not requested.
    assert cells_of_tests(recipe, target, lock, {}, existing=False) == (target,)
    unknown = target.model_copy(update={"cuda": "13.9"})
    assert cells_of_tests(recipe, unknown, lock, {}, existing=False) == (unknown,), "it is refused"


WINRM = {"kind": "winrm", "endpoint": "https://h:5986/wsman", "username": "u", "password_env": "P"}


@pytest.mark.parametrize(
    ("host", "untested"),
    [
        ({"kind": "sandbox"}, ""),
        (WINRM, "torch 2.15: toolchain.lock.yaml names none for this cell"),
        ({"kind": "local", "python": sys.executable}, "torch 2.15: its environment has one"),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_a_plan_says_which_torch_a_host_cannot_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: dict[str, str], untested: str
) -> None:
    """It would ask for a pin that no `invoke lock` could find, or that nothing there would use."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    settings = Config.model_validate({"hosts": {"h": host}, "default": {"host": "h"}})
    asked = Request(axes={"recipe": "smoke-attention-torch"})
    facts = HostFacts(cores=2, memory=1 << 34)
    plan = plan_matrix(settings, asked, facts=facts)
    found = plan.rows[0].judged.findings
    assert "tool-not-pinned" not in {finding.id for finding in found}
    (*_, mind) = ["", *(finding.actual for finding in found if finding.id == "torch-untested")]
    assert untested in mind
    assert bool(untested) is bool(mind)


def test_its_name_is_for_every_python() -> None:
    recipe = load_recipe("smoke-attention-torch").model_copy(update={"version": "0.1.0"})
    names = {expected_wheel_name(recipe, "cu130", python) for python in recipe.pythons}
    assert names == {"smoke_attention_torch-0.1.0+cu130-py3-none-win_amd64.whl"}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"wheel_tag": "py2.py3-none"}, "wheel_tag"),
        ({"wheel_tag": "cp311-cp311"}, "wheel_tag"),
        ({"wheel_tag": "cp312-abi3"}, "pythons: 3.11: a wheel of cp312-abi3 is for 3.12 and later"),
        ({"tested_with": ["2.9"]}, "tested_with: 2.9 is not in supports: torch: >=2.10"),
        ({"tested_with": ["2.15", "2.15"]}, "tested_with: 2.15 is there twice"),
        ({"torch": None, "api": "plain", "supports": {}}, "tested_with: 2.10 is not in supports"),
    ],
)
def test_recipes_that_cannot_be(keys: dict[str, Any], said: str) -> None:
    recipe = load_recipe("smoke-attention-torch").model_dump()
    with pytest.raises(ValueError, match=said):
        Recipe.model_validate(recipe | keys)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(load_lock(), tmp_path / "cache", offline=True)


def test_the_kernels_are_those_of_the_other_example(cache: Cache) -> None:
    packed = SourceTree(load_recipe("smoke-attention-torch"), cache).pack().data
    with tarfile.open(fileobj=BytesIO(packed)) as members:
        names = {name for name in members.getnames() if name.startswith("kernels/")}
    theirs = directories_of(load_recipe("smoke-attention").source)[0] / "src"  # type: ignore[arg-type]
    assert names == {f"kernels/{p.name}" for p in theirs.iterdir() if p.suffix != ".c"}


def test_a_directory_that_would_hide_another_is_refused(tmp_path: Path, cache: Cache) -> None:
    recipe = load_recipe("smoke-attention-torch")
    shutil.copytree(directories_of(recipe.source)[0], tmp_path / "tree")  # type: ignore[arg-type]
    source = recipe.source.model_copy(
        update={"path": str(tmp_path / "tree"), "also": {"src": str(tmp_path / "other")}}
    )
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "check.h").write_text("")
    with pytest.raises(ConfigError, match=r"has a src/check\.h of its own"):
        SourceTree(recipe.model_copy(update={"source": source}), cache).pack()
    gone = source.model_copy(update={"also": {"kernels": str(tmp_path / "gone")}})
    with pytest.raises(ConfigError, match="there is no directory"):
        SourceTree(recipe.model_copy(update={"source": gone}), cache).pack()


# -- the audit -------------------------------------------------------------------------------------

TAG = "py3-none-win_amd64"
LIBRARY = Binary(
    "pkg/_cuda.dll", Inventory((GOOD,)), PeFacts(0x8664, (), imports=("torch_cpu.dll",))
)
ALL = replace(
    FACTS, filename=f"pkg-1.0+cu130-{TAG}.whl", tags=(TAG,), wheel_tags=(TAG,), binaries=(LIBRARY,)
)


def failed(tag: str | None = "py3-none", **changes: Any) -> dict[str, str]:
    """The checks that a wheel for every Python does not pass, and what they found."""
    facts = replace(ALL, **changes)
    archs = parse_arch_list("75;90a+PTX")
    order = Order("win_amd64", "3.11", tag)
    checks = check_wheel(facts, order=order, kernels=Kernels(archs, "13.0"))
    return {check.label: check.actual for check in checks if check.failed}


def test_a_library_for_every_python_passes() -> None:
    assert failed() == {}


@pytest.mark.parametrize(
    "pe",
    [
        PeFacts(0x8664, (), imports=("torch_cpu.dll", "python311.dll")),
        PeFacts(0x8664, (), imports=("PYTHON3.dll",)),
        PeFacts(0x8664, ("PyInit__cuda",)),
        None,
    ],
)
def test_what_is_pythons_is_found(pe: PeFacts | None) -> None:
    assert set(failed(binaries=(replace(LIBRARY, pe=pe),))) >= {"no Python"}


def test_other_tags_than_the_recipe_says() -> None:
    tag = "cp311-cp311-win_amd64"
    assert set(failed(tags=(tag,), wheel_tags=(tag,))) == {"Python"}
    both = (tag, TAG)
    assert set(failed(tags=both, wheel_tags=both)) == {"Python"}
    assert set(failed(wheel_tags=(tag,))) == {"tags"}
    abi3 = "cp313-abi3-win_amd64"
    assert set(failed("cp313-abi3", tags=(abi3,), wheel_tags=(abi3,))) >= {"Python"}, (
        "3.11 is older"
    )
    assert set(failed(binaries=())) >= {"library"}


def test_a_module_is_still_to_have_its_entry() -> None:
    """Without the key a wheel is for Python as ever: a library is no extension module."""
    assert set(failed(None)) == {"extension module"}
    module = replace(LIBRARY, name="pkg/_cuda.pyd")
    assert set(failed(None, binaries=(module,))) == {"PyInit"}


def read_back(tmp_path: Path, library: bytes, name: str = "_cuda.dll") -> Binary:
    platform = "win_amd64" if name.endswith(".dll") else "linux_x86_64"
    files = {k: v for k, v in FILES.items() if not k.endswith(".pyd")} | {f"pkg/{name}": library}
    files[f"{INFO}/WHEEL"] = WHEEL.replace(
        b"cp311-cp311-win_amd64", f"py3-none-{platform}".encode()
    )
    (binary,) = inspect_wheel(
        wheel(tmp_path, files, name=f"pkg-1.0+cu130-py3-none-{platform}.whl")
    ).binaries
    return binary


def test_what_a_dll_has_of_python_is_read(tmp_path: Path) -> None:
    plain = dll({"torch_cpu.dll": ["aoti_torch_get_dim"]}, ["smoke_attention_launch"])
    assert read_back(tmp_path, plain).of_python == ()
    bound = dll({"python311.dll": ["PyErr_Occurred"]}, ["smoke_attention_launch"])
    assert read_back(tmp_path, bound).of_python == ("python311.dll",)
    module = dll({"KERNEL32.dll": ["Sleep"]}, ["PyInit__cuda"])
    assert read_back(tmp_path, module).of_python == ("PyInit__cuda",)


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
def test_what_a_linux_library_has_of_python_is_read(tmp_path: Path) -> None:
    def compiled(text: str) -> bytes:
        (tmp_path / "x.c").write_text(text)
        out = tmp_path / "x.so"
        command = ["gcc", "-shared", "-fPIC", "-o", str(out), str(tmp_path / "x.c")]
        subprocess.run(command, check=True)
        return out.read_bytes()

    plain = compiled("int smoke(void) { return 1; }")
    assert read_back(tmp_path, plain, "_cuda.so").of_python == ()
    calls = compiled("void *PyErr_Occurred(void); void *smoke(void) { return PyErr_Occurred(); }")
    assert read_back(tmp_path, calls, "_cuda.so").of_python == ("PyErr_Occurred",)
    damaged = read_back(tmp_path, plain[:200], "_cuda.so")
    assert damaged.of_python is None
    assert damaged.problem
