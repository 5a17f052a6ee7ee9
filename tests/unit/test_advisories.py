"""``scripts/check_advisories.py``: what was not looked up is no pass."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/check_advisories.py"
GOOD = {"name": "a", "version": "1", "vulns": []}
BAD = {"name": "b", "version": "1", "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-1"]}]}
SKIPPED = {"name": "c", "skip_reason": "Dependency not found on PyPI"}


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("check_advisories", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize(
    ("rows", "pins", "code"),
    [
        ([GOOD], 1, 0),
        ([GOOD, BAD], 2, 1),
        ([BAD, SKIPPED], 2, 1),
        ([GOOD, SKIPPED], 2, 77),
        ([SKIPPED], 1, 77),
        ([GOOD], 2, 77),
        ([], 1, 77),
        ([], 0, 77),
    ],
)
def test_only_what_was_looked_up_passes(script: Any, rows: Any, pins: int, code: int) -> None:
    assert script.verdict(json.dumps({"dependencies": rows}), pins)[0] == code


@pytest.mark.parametrize("report", ["", "no network", "[]", "{}", '{"dependencies": null}'])
def test_no_report_is_no_pass(script: Any, report: str) -> None:
    """A service that cannot be reached: pip-audit then says nothing, or that nothing is known."""
    assert script.verdict(report, 1)[0] == 77


def test_every_pin_is_asked_about(script: Any) -> None:
    """Those of other systems too; of two releases of one name each in a round of its own."""
    locks = [path.read_text("utf-8") for path in SCRIPT.parents[1].glob("requirements*.lock")]
    lines = {row.split()[0] for lock in locks for row in lock.splitlines() if row[:1].isalnum()}
    found = script.rounds(locks)
    assert {pin for pins in found for pin in pins} == {row for row in lines if "==" in row}
    assert len(found) > 1
    for pins in found:
        assert len({pin.partition("==")[0] for pin in pins}) == len(pins) > 0
