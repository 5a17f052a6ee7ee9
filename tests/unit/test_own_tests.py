"""Tests of your own: what is sent of a folder, what is refused before a build, their page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import own_package
import pytest
from plans import at_desk
from report_samples import built, facts, stage
from rich.console import Console
from smoke_runs import run, wheel

from pipelines.core.errors import ConfigError
from pipelines.core.target import Target
from pipelines.recipe.checks import check_surroundings
from pipelines.recipe.load import load_recipe, recipe_names
from pipelines.recipe.model import Recipe
from pipelines.recipe.suite import SUITES, suite_of
from pipelines.record.results import AuditResult, SmokeResult
from pipelines.record.run import Run
from pipelines.reports import html, junit, markdown, runs, terminal
from pipelines.reports.load import load_view
from pipelines.reports.suites import junit_suites
from pipelines.stages.test import suite_wheel_paths
from pipelines.toolchain.lock import load_lock

BASE = load_recipe("smoke-attention")
TEST = "def test_a(): pass\n"
KNOB = "TORCH = False\nMODULES = ()\ndef facts(*, gpu): return {}\ndef lost(): return False\n"


def own(folder: Path, **files: str) -> Recipe:
    """A recipe whose suite is ``folder`` with these modules; ``X`` in a name is a ``/``."""
    for name, text in files.items():
        path = folder / f"{name.replace('X', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return BASE.model_copy(update={"smoke": str(folder)})


# -- what is sent ----------------------------------------------------------------------------------


def test_a_folder_of_plain_tests_is_a_suite(tmp_path: Path) -> None:
    recipe = own(tmp_path, test_a=TEST, helper="", conftest="", deepXb_test="", deepXconftest="")
    (tmp_path / "data.json").write_text("{}")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__/x.pyc").write_bytes(b"\xff")
    suite = suite_of(recipe)
    assert (suite.own, suite.instead) == (True, "")
    names = {name for name in suite.files if name.startswith("own/")}
    expected = ("test_a.py", "helper.py", "conftest.py", "deep/b_test.py", "deep/conftest.py")
    assert names == {f"own/{name}" for name in (*expected, "data.json")}
    shared = {"conftest.py", "pytest.ini", "test_wheel.py", "smoke_isolation.py", "fatbin.py"}
    assert shared < suite.files.keys()
    assert suite.files["smoke_suite.py"] == (SUITES / "default/smoke_suite.py").read_text()


def test_what_git_ignores_is_not_sent(tmp_path: Path) -> None:
    recipe = own(tmp_path, test_a=TEST)
    (tmp_path / "golden.npy").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"golden.npy is not UTF-8 text"):
        suite_of(recipe)
    (tmp_path / "golden.npy").unlink()
    assert "own/test_a.py" in suite_of(recipe).files


def test_a_smoke_suite_of_your_own_is_taken(tmp_path: Path) -> None:
    suite = suite_of(own(tmp_path, test_a=TEST, smoke_suite=KNOB))
    assert suite.files["smoke_suite.py"] == KNOB
    assert "own/smoke_suite.py" not in suite.files
    typed = KNOB.replace("MODULES =", "MODULES: tuple[str, ...] =")
    assert suite_of(own(tmp_path, smoke_suite=typed)).files["smoke_suite.py"] == typed


def test_a_path_is_seen_from_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pipeline.yaml").write_text("")
    own(tmp_path / "flash_attn", test_a=TEST)
    monkeypatch.chdir(tmp_path)
    mine = suite_of(BASE.model_copy(update={"smoke": "./flash_attn"}))
    assert mine.files["own/test_a.py"] == TEST
    assert not suite_of(BASE.model_copy(update={"smoke": "flash_attn"})).own, "a name is shipped"


@pytest.mark.parametrize("name", recipe_names())
def test_what_is_shipped_is_whole(name: str) -> None:
    check_surroundings(load_recipe(name), name)


# -- what is refused before a build ----------------------------------------------------------------


def test_a_path_of_windows_is_a_folder() -> None:
    with pytest.raises(ConfigError, match="there is no directory"):
        suite_of(BASE.model_copy(update={"smoke": r"C:\none"}))


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "there is no directory"),
        ({"helper": TEST}, "has no tests"),
        ({"test_a": TEST, "setup": ""}, "has a setup.py: the sources in it would be tested"),
        ({"test_a": TEST, "deepXtest_wheel": ""}, "test_wheel.py has the name of a shared"),
        ({"test_a": TEST, "fatbin": ""}, "fatbin.py has the name of a shared file"),
        ({"test_a": TEST, "smoke_suite": "TORCH = 1\ndef facts(): 0\n"}, "define MODULES, lost"),
        ({"test_a": TEST, "smoke_suite": "TORCH = \n"}, "smoke_suite.py, line 1"),
        ({"test_a": "#" * (5 << 20)}, "has 5.0 MiB, 4.0 MiB are possible"),
    ],
)
def test_folders_that_are_refused(tmp_path: Path, files: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        suite_of(own(tmp_path / "tests", **files))


@pytest.mark.parametrize("name", ["gone", "common", "default", "verify"])
def test_suites_that_are_none(name: str) -> None:
    with pytest.raises(ConfigError, match=f"no suite '{name}'") as caught:
        suite_of(BASE.model_copy(update={"smoke": name}))
    assert f"./{name}" in caught.value.hint


@pytest.mark.parametrize("broken", [{"smoke": "../gone"}, {"source": {"path": "../gone"}}])
def test_what_is_not_there_is_refused_when_it_is_loaded(broken: dict[str, Any]) -> None:
    """By every command that names the recipe, before a host is opened."""
    recipe = Recipe.model_validate(BASE.model_dump() | broken)
    with pytest.raises(ConfigError, match=r"^mine\.yaml: .*there is no directory"):
        check_surroundings(recipe, "mine.yaml")


def test_what_would_hide_the_wheel_is_found(tmp_path: Path) -> None:
    """Modules anywhere in it, packages; no plain directory, which gives way to a package."""
    recipe = own(tmp_path, test_a=TEST, deepXpkg="", pkgXtest_b="", packX__init__="")
    suite = suite_of(recipe)
    assert suite.shadows(["pkg"]) == ["own/deep/pkg.py"]
    assert suite.shadows(["pack", "test_b"]) == ["own/pack/__init__.py", "own/pkg/test_b.py"]
    assert suite.shadows(["other"]) == []


def test_what_runs_tests_is_installed_without_being_named(tmp_path: Path) -> None:
    line, _ = at_desk(tmp_path)
    lock = line.plan.cache.lock
    assert line.plan.recipe.test_requires == ()
    told = suite_wheel_paths(line.plan)
    files = {Path(path).name for path in told}
    assert {lock.tool(name).file for name in ("pytest", "execnet")} < files


# -- the verdict -----------------------------------------------------------------------------------


@pytest.mark.parametrize("instead", ["", "import", "verify"])
def test_a_test_of_the_import_is_called_so(tmp_path: Path, instead: Any) -> None:
    made = Run.create(tmp_path, facts())
    for name, result in (("build", built()), ("audit", AuditResult(files=()))):
        stage(made, name, "passed", result=result)
    stage(made, "test", "passed", result=SmokeResult(outcomes={"passed": 3}, instead=instead))
    view = load_view(made)
    console = Console(width=200, record=True, file=None, quiet=False)
    with console.capture() as captured:
        console.print(terminal.render([view]))
        console.print(terminal.render([view, view]))
    shown = captured.get()
    pages = [html.render([view]), html.render([view, view])]
    pages += [markdown.summary([view]), markdown.summary([view, view])]
    units = junit.render(junit_suites(made))
    if not instead:
        assert not [page for page in (*pages, units) if f"{instead} only" in page]
        assert view.headline == "built, audited and smoke-tested"
        assert "only" not in shown
        return
    assert view.headline.startswith("built and audited; only the ")
    assert view.headline.endswith("was tested: the recipe names no smoke suite")
    assert shown.count(f"✓ passed, {instead} only") == 3
    assert view.headline in shown
    for page in pages:
        assert f"assed, {instead} only" in page
    assert f"[[PROPERTY|limits={SmokeResult(instead=instead).limits}]]" in units


@pytest.mark.parametrize("many", [False, True])
def test_no_page_and_no_list_says_passed_alone(tmp_path: Path, many: bool) -> None:
    made = Run.create(tmp_path, facts())
    for name, result in (("build", built()), ("audit", AuditResult(files=()))):
        stage(made, name, "passed", result=result)
    stage(made, "test", "passed", result=SmokeResult(outcomes={"passed": 3}, instead="import"))
    view = load_view(made)
    views = [view, view] if many else [view]
    page, summary = html.render(views), markdown.summary(views)
    assert "Passed, import only" in page
    assert 'class="verdict passed"' not in page
    assert 'class="passed"' not in page
    assert "🟡 passed, import only" in summary
    assert ("(2 import only)" in page and "(2 import only)" in summary) == many
    (row,) = runs.runs_payload(runs.runs_in(tmp_path))["runs"]
    assert (row["verdict"], row["tested"]) == ("passed", "import only")


# -- the page --------------------------------------------------------------------------------------

ADD = """
from array import array
def add(a, b):
    if len(a * 1) != len(b * 1):
        raise ValueError("expected two buffers of as many floats")
    return array("f", [x + y for x, y in zip(a, b)]).tobytes()
"""


def test_the_page_names_what_the_lock_has() -> None:
    (names,) = re.findall(r"(?:`[\w-]+`, ){5,}`[\w-]+`", own_package.PAGE)
    named = re.findall(r"`([\w-]+)`", names)
    for python in ("3.10", "3.14"):
        assert load_lock().unavailable(named, Target(python=python)) == []


def test_the_page_s_package_is_whole(tmp_path: Path) -> None:
    recipe = own_package.make(tmp_path)
    suite_of(recipe)
    assert suite_of(recipe).own
    lines = suite_of(recipe).files["own/test_vecadd.py"].splitlines()
    assert len(lines) <= 20
    (tmp_path / "vecadd/smoke/smoke_suite.py").write_text(own_package.block("python", 3))
    assert "own/smoke_suite.py" not in suite_of(recipe).files


@pytest.mark.faults
@pytest.mark.parametrize("knob", [False, True])
def test_the_page_s_tests_run(tmp_path: Path, *, knob: bool) -> None:
    """With a stand-in for the extension; tests/sandbox builds the real one."""
    recipe = own_package.make(tmp_path)
    if knob:
        (tmp_path / "vecadd/smoke/smoke_suite.py").write_text(own_package.block("python", 3))
    init = (tmp_path / "vecadd/vecadd/__init__.py").read_bytes()
    made = wheel(tmp_path, "vecadd", {"vecadd/__init__.py": init, "vecadd/_add.py": ADD.encode()})
    expect: dict[str, Any] = {"distribution": "vecadd", "version": "1.0", "archs": [], "ptx": []}
    expect["platform"] = None
    outcome = run(tmp_path, suite_of(recipe).files, made, expect)
    assert outcome.outcomes("failed", "error") == []
    refused = [name for name in outcome.outcomes("passed") if "do_not_fit" in name]
    assert len(refused) == 3
    assert outcome.case("test_sums").outcome == "skipped"
    assert {case.classname for case in outcome.suite.cases if "fit" in case.name} == {
        "own.test_vecadd"
    }
    asked = outcome.suite.properties
    assert ("adds" in asked, "imported" in asked) == (knob, not knob)
