"""Recipes without a smoke suite of their own are tested by their ``verify``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.errors import ConfigError
from pipelines.recipe.load import load_recipe
from pipelines.stages.test import suite_files

BARE = load_recipe("flash-attn").model_copy(update={"smoke": ""})


@pytest.mark.parametrize(
    ("code", "exit_code", "said"),
    [
        ("import json; assert json", 0, "1 passed"),
        ("import no_such_module", 1, "No module named 'no_such_module'"),
        ("import os; os.abort()", 1, "left with -6"),
    ],
)
def test_verify_is_a_case(tmp_path: Path, code: str, exit_code: int, said: str) -> None:
    for name, text in suite_files(BARE.model_copy(update={"verify": code})).items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == exit_code, done.stdout
    assert said in done.stdout


def test_nothing_to_test_with() -> None:
    with pytest.raises(ConfigError, match="neither smoke nor verify"):
        suite_files(BARE.model_copy(update={"verify": ""}))
