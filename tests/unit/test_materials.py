"""What decides a wheel, compared with what decided another."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pipelines.record.materials import (
    SBOM,
    Material,
    Materials,
    format_differences,
    join_difference_labels,
)

MINE = [
    Material("tool", "ninja", "1"),
    Material("place", "temp", "/tmp"),  # noqa: S108 - only a text
    Material(*SBOM, "a"),
]


def changed(*rows: Material) -> list[str]:
    return [str(one) for one in Materials.of(MINE).differences(Materials.of([*MINE, *rows]))]


def test_differences_are_named_and_the_sbom_only_where_it_is_the_cause() -> None:
    sbom, place = Material(*SBOM, "b"), Material("place", "temp", "/t")
    assert changed() == []
    assert changed(sbom) == ["wheel sbom: there a, here b"]
    assert len(changed(sbom, place)) == 2, "a place is not the cause"
    more = Material("tool", "new\x1b", "")
    assert changed(sbom, more) == ["tool new\\x1b: there nothing, here empty"]
    every = Materials.of(Material("found", f"{n}", "") for n in range(10)).differences(Materials())
    assert join_difference_labels(every) == "found 0, found 1, found 2, ..."
    assert format_differences(every).endswith("found 7: there empty, here nothing\n  and 2 more")


def test_as_json_an_object_for_each_kind() -> None:
    made = Materials.of(MINE)
    assert made.model_dump()["tool"] == {"ninja": "1"}
    assert Materials.model_validate_json(made.model_dump_json()) == made
    assert made
    assert not Materials({"tool": {}})
    wrong: object
    for wrong in ({"tools": {}}, {"tool": "x"}, {"tool": {"x": 1}}, []):
        with pytest.raises(ValidationError):
            Materials.model_validate(wrong)
