"""One list of checks: what is added to it is seen by everybody who looks into a wheel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from audited import finding, look
from foreign_wheels import foreign
from plans import at_desk
from test_custody import home
from wheels import FILES, wheel, wheel_here

from pipelines.core.architectures.archs import parse
from pipelines.core.errors import AuditError
from pipelines.core.files import sha256_of
from pipelines.core.finding import failures
from pipelines.prebuilt.candidates import Offer
from pipelines.prebuilt.decide import examine, examine_external
from pipelines.publish.index.publishing import facts_of
from pipelines.record.target import Target
from pipelines.stages.line import AUDIT
from pipelines.wheels import checks
from pipelines.wheels.checking import Installation, Policy, Result, check
from pipelines.wheels.metadata import WheelFacts, inspect
from pipelines.wheels.tags import WINDOWS


@check("demo", "demonstration")
def demo(facts: WheelFacts) -> Iterator[Result]:
    yield Result("error", f"{facts.name}\x1b[31m", "nothing", "leave it out")


def test_an_added_check_is_made_of_every_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, target = wheel(tmp_path, FILES), Target(python="3.11", cuda="13.0", archs=parse("90"))
    sha256, said = sha256_of(path), r"demonstration: found pkg \(expected nothing\): leave it out"
    there = Installation("3.11", WINDOWS)
    assert not failures(examine_external(path, sha256, there).checks)
    examine(path, Offer(path.name, str(path), sha256), target)
    facts_of(path)
    monkeypatch.setattr(checks, "CHECKS", (*checks.CHECKS, demo))
    assert finding(look(path), "demonstration").level == "error"
    assert [one.id for one in examine_external(path, sha256, there).checks if one.failed] == [
        "demo"
    ]
    with pytest.raises(AuditError, match=said):
        examine(path, Offer(path.name, str(path), sha256), target)
    with pytest.raises(AuditError, match=said):
        facts_of(path)
    line, _ = at_desk(tmp_path)
    home(line, wheel_here(tmp_path))
    with pytest.raises(AuditError, match=said):
        line.do(AUDIT)


def test_a_check_needs_what_there_is() -> None:
    with pytest.raises(TypeError, match="moon"):
        check("m", "moon phase")(lambda moon: [Result("ok", moon)])


def test_a_wheel_that_breaks_a_check_has_not_passed(tmp_path: Path) -> None:
    """packaging parses markers by recursion."""
    deep = f"a; {'(' * 3000}os_name == 'x'{')' * 3000}"
    facts = inspect(foreign(tmp_path, requires=[deep]))
    broken = {one.id: one.actual for one in checks.check_wheel(facts) if one.failed}
    assert broken.keys() == {"metadata", "requirements"}
    assert all("RecursionError" in actual for actual in broken.values())


def test_names_are_unique_and_policies_know_them() -> None:
    ids = [one.id for one in checks.CHECKS]
    titles = [one.title for one in checks.CHECKS]
    assert len({*ids}) == len({*titles}) == len(ids)
    for policy in (checks.OURS, checks.EXTERNAL):
        assert {name for name, _ in policy.errors} | policy.tolerated <= {*ids}


def test_a_policy_changes_the_level_alone() -> None:
    policy = Policy(errors=frozenset({("a", "warning")}), tolerated=frozenset({"b"}))
    assert (policy.level("a", "warning"), policy.level("b", "error")) == ("error", "warning")
    assert policy.level("c", "error") == "error"
