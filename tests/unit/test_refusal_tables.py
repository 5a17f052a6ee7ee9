"""Errors whose words are data: each row is used, and all that it names is filled in."""

from __future__ import annotations

import ast
import string
from pathlib import Path

import pytest

from pipelines.core.errors import ConfigError, LockError
from pipelines.core.paths import CHECKOUT
from pipelines.core.refusals import load_refusals, refusal_error

assert CHECKOUT
ROOT = CHECKOUT / "pipelines"
#: Each file, and the modules that use it.
USED = {
    "hosts/engine/unreachable.yaml": [ROOT / "hosts/engine/reach.py"],
    "session/transports/winrs_errors.yaml": [ROOT / "session/transports/winrs_errors.py"],
}


def slots(file: str, key: str) -> set[str]:
    row = load_refusals(ROOT / file)[key]
    texts = string.Formatter().parse(row.message + row.hint)
    return {slot for _, slot, _, _ in texts if slot}


@pytest.mark.parametrize("file", USED)
def test_each_row_is_used_and_filled_in(file: str) -> None:
    said: set[str] = set()
    given: set[str] = set()
    for module in USED[file]:
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                said.add(node.value)
            if isinstance(node, ast.keyword) and node.arg:
                given.add(node.arg)
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "refusal":
                words = {word.arg for word in node.keywords}
                for arg in (one for one in node.args if isinstance(one, ast.Constant)):
                    assert None in words or slots(file, str(arg.value)) <= words, arg.value
    for key in load_refusals(ROOT / file):
        # Those of WinRM also by the number of a fault and the way to sign in.
        whole = key if file.startswith("hosts") else key.partition("-")[0]
        assert any(one == whole or one.startswith(whole) for one in said), key
        assert slots(file, key) <= given | said, key


def test_it_is_the_error_that_the_row_names(tmp_path: Path) -> None:
    file = tmp_path / "rows.yaml"
    file.write_text(
        "refusals:\n  one: {message: 'a {b}', hint: 'c {d}'}\n"
        "  other: {message: m, hint: h, raises: LockError}\n"
    )
    error = refusal_error(file, "one", b="{b}", d=2)
    assert (type(error), error.message, error.hint) == (ConfigError, "a {b}", "c 2")
    assert type(refusal_error(file, "other")) is LockError
