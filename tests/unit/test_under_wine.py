"""What is skipped under Wine is there: a renamed test would be run, and a removed one counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from under_wine import LISTED


@pytest.mark.parametrize("reason", LISTED)
def test_what_is_skipped_exists(reason: str) -> None:
    for name in LISTED[reason]:
        module, _, test = name.partition("::")
        source = Path(__file__).with_name(module).read_text("utf-8")
        assert not test or f"def {test}(" in source, name
