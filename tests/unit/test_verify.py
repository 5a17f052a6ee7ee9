"""What a wheel without a suite is tested with: the recipe's ``verify``, else its import."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from smoke_runs import Outcome, run, wheel

from pipelines.recipe.load import load_recipe
from pipelines.recipe.model import Recipe
from pipelines.recipe.suite import suite_of

pytestmark = pytest.mark.faults
BARE = load_recipe("smoke-attention").model_copy(update={"smoke": "", "verify": ""})
EXPECT: dict[str, Any] = {"distribution": "demo", "version": "1.0", "archs": [], "ptx": []}
IMPORT = "test_package_imports_in_a_fresh_interpreter"


def verified(**changes: str) -> Recipe:
    return BARE.model_copy(update=changes)


def outcome_of(folder: Path, recipe: Recipe, files: dict[str, bytes]) -> Outcome:
    """The outcome of the recipe's suite for a wheel of these files."""
    expect = EXPECT | {"platform": None, "torch": recipe.torch, "verify": recipe.verify}
    return run(folder, suite_of(recipe).files, wheel(folder, "demo", files), expect)


@pytest.mark.parametrize(
    ("code", "outcome", "said"),
    [
        ("import json; assert json", "passed", ""),
        ("import no_such_module", "failed", "No module named 'no_such_module'"),
        ("import os; os.abort()", "failed", "was ended by signal 6 (SIGABRT)"),
    ],
)
def test_verify_is_a_case(tmp_path: Path, code: str, outcome: str, said: str) -> None:
    recipe = verified(verify=code)
    assert suite_of(recipe).instead == "verify"
    done = outcome_of(tmp_path, recipe, {"demo.py": b"raise RuntimeError\n"})
    case = done.case("test_verify")
    assert case.outcome == outcome
    assert said in case.detail + case.message
    assert done.case(IMPORT).outcome == "passed", "how it is loaded is verify's to say"
    assert done.case("test_files_have_the_hashes_of_record").outcome == "passed"


def test_without_verify_what_is_in_the_wheel_is_imported(tmp_path: Path) -> None:
    """Top packages and modules, and extension modules; not what tools would not import."""
    files = {
        "demo/__init__.py": b"",
        "demo/inner.py": b"raise RuntimeError('only what imports it may')\n",
        "demo/__main__.py": b"raise RuntimeError\n",
        "demo/data.so": b"no module",
        "space/part.py": b"",
        "single.py": b"",
        "demo-1.0.data/scripts/run.py": b"raise RuntimeError\n",
    }
    assert suite_of(BARE).instead == "import"
    done = outcome_of(tmp_path, BARE, files)
    assert done.case(IMPORT).outcome == "passed"
    assert done.suite.properties["imported"].split() == ["demo", "single", "space.part"]
    assert done.outcomes("failed", "error") == []


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"demo/__init__.py": b"import gone\n"}, "No module named 'gone'"),
        ({"demo/__init__.py": b"", "demo/_C.so": b"PyInit__C"}, "import demo._C failed"),
        ({"demo/__init__.py": b"import os; os.abort()\n"}, "signal 6 (SIGABRT)"),
        ({"demo.txt": b""}, "no module that could be imported"),
    ],
)
def test_what_cannot_be_imported_fails(tmp_path: Path, files: dict[str, bytes], said: str) -> None:
    done = outcome_of(tmp_path, BARE, files)
    assert done.case(IMPORT).outcome == "failed"
    assert said in done.case(IMPORT).message
