"""One list of checks: what is added to it is seen by everybody who looks into a wheel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from audited import finding, look
from foreign_wheels import foreign
from pes import msvc
from plans import at_desk
from test_custody import home
from wheels import FILES, INFO, METADATA, fatbin, pe, wheel, wheel_here

from pipelines.core.architectures.archs import parse_arch_list
from pipelines.core.errors import AuditError
from pipelines.core.files import sha256_of
from pipelines.core.finding import failure_lines
from pipelines.core.target import Target
from pipelines.plan.prebuilt.candidates import Offer
from pipelines.plan.prebuilt.decide import audit_prebuilt_wheel, examine_external
from pipelines.stages.line import AUDIT
from pipelines.wheels import checks
from pipelines.wheels.checked import check_copy
from pipelines.wheels.checking import Installation, Order, Policy, Result, wheel_check
from pipelines.wheels.metadata import WheelFacts, inspect_wheel
from pipelines.wheels.tags import WINDOWS


@wheel_check("demo", "demonstration")
def demo(facts: WheelFacts) -> Iterator[Result]:
    yield Result("error", f"{facts.name}\x1b[31m", "nothing", "leave it out")


def test_an_added_check_is_made_of_every_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, target = (
        wheel(tmp_path, FILES),
        Target(python="3.11", cuda="13.0", archs=parse_arch_list("90")),
    )
    sha256, said = sha256_of(path), r"demonstration: found pkg \(expected nothing\): leave it out"
    there = Installation("3.11", WINDOWS)
    assert not failure_lines(examine_external(path, sha256, there).checks)
    audit_prebuilt_wheel(path, Offer(path.name, str(path), sha256), target)
    check_copy(path, tmp_path)
    monkeypatch.setattr(checks, "CHECKS", (*checks.CHECKS, demo))
    assert finding(look(path), "demonstration").level == "error"
    assert [one.id for one in examine_external(path, sha256, there).checks if one.failed] == [
        "demo"
    ]
    with pytest.raises(AuditError, match=said):
        audit_prebuilt_wheel(path, Offer(path.name, str(path), sha256), target)
    with pytest.raises(AuditError, match=said):
        check_copy(path, tmp_path)
    line, _ = at_desk(tmp_path)
    home(line, wheel_here(tmp_path))
    with pytest.raises(AuditError, match=said):
        line.do(AUDIT)


def test_a_check_needs_what_there_is() -> None:
    with pytest.raises(TypeError, match="moon"):
        wheel_check("m", "moon phase")(lambda moon: [Result("ok", moon)])


def test_a_wheel_that_breaks_a_check_has_not_passed(tmp_path: Path) -> None:
    """packaging parses markers by recursion."""
    deep = f"a; {'(' * 3000}os_name == 'x'{')' * 3000}"
    facts = inspect_wheel(foreign(tmp_path, requires=[deep]))
    for policy in (checks.ANY, checks.EXTERNAL):  # which tolerates errors that these find
        found = checks.check_wheel(facts, policy=policy)
        broken = {one.id for one in found if one.failed and "RecursionError" in one.actual}
        assert broken == {"metadata", "requirements"}


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


def tagged(room: Path, tags: str, module: bytes, name: str = "_C.pyd") -> WheelFacts:
    """Of a wheel for Windows with that module."""
    python, abi, platform = tags.split("-")
    every = [
        f"Tag: {p}-{a}-{s}"
        for p in python.split(".")
        for a in abi.split(".")
        for s in platform.split(".")
    ]
    text = "\n".join(["Wheel-Version: 1.0", "Root-Is-Purelib: false", *every, ""]).encode()
    files = {f"pkg/{name}": module, f"{INFO}/METADATA": METADATA, f"{INFO}/WHEEL": text}
    return inspect_wheel(wheel(room, files, name=f"pkg-1.0+cu130-{tags}.whl"))


def wrong(facts: WheelFacts, python: str = "") -> tuple[set[str], ...]:
    """Checks that refuse it, of a build or of a wheel that is tested, for that Python; of any."""
    order, there = Order("win_amd64", python), Installation(python, WINDOWS)
    found = (
        (
            checks.check_wheel(facts, order=order),
            checks.check_wheel(facts, checks.EXTERNAL, installation=there),
        )
        if python
        else (checks.check_wheel(facts, checks.ANY),)
    )
    return tuple({one.id for one in each if one.failed} for each in found)


@pytest.mark.parametrize(
    "tags",
    ["cp311.cp312-cp311.cp312-win_amd64", "cp312.pp312-cp312-win_amd64"],
)
def test_no_further_tag_makes_a_module_one_of_the_python_that_was_asked_for(
    tmp_path: Path, tags: str
) -> None:
    facts = tagged(tmp_path, tags, pe(tail=fatbin()), "_C.cp311-win_amd64.pyd")
    assert all("python-abi" in ids for ids in wrong(facts, "3.12"))
    other = "cp311" not in tags
    assert [("python-abi" in ids) for ids in wrong(facts)] == [other]
    if not other:
        assert not any("python-abi" in ids for ids in wrong(facts, "3.11"))


def test_of_another_interpreter_nothing_is_known(tmp_path: Path) -> None:
    facts = tagged(tmp_path, "pp311-pypy311_pp73-win_amd64", pe(tail=fatbin()))
    assert wrong(facts) == (set(),)


def test_no_further_tag_makes_a_module_one_of_the_machine_that_was_asked_for(
    tmp_path: Path,
) -> None:
    small = pe(machine=0x14C, tail=fatbin())
    facts = tagged(tmp_path, "cp311-cp311-win32.win_amd64", small)
    assert all("machine" in ids for ids in (*wrong(facts, "3.11"), *wrong(facts)))


@pytest.mark.parametrize(
    ("late", "id_"),
    [({"python311.dll": ["PyErr_Print"]}, "python-abi"), ({"python3.dll": ["PyType_GetName"]}, "")],
)
def test_what_is_loaded_when_it_is_called_is_bound_to_its_python_too(
    tmp_path: Path, late: dict[str, list[str]], id_: str
) -> None:
    module = msvc(fatbin(), imports={"KERNEL32.dll": ["Sleep"]}, late=late, exports=["PyInit__C"])
    facts = tagged(tmp_path, "cp311-abi3-win_amd64", module)
    assert wrong(facts) == ({id_} - {""},)


def test_no_further_tag_hides_the_least_python(tmp_path: Path) -> None:
    module = msvc(fatbin(), imports={"python3.dll": ["PyType_GetName"]}, exports=["PyInit__C"])
    facts = tagged(tmp_path, "cp38.py3-abi3-win_amd64", module)
    assert "stable-abi" in wrong(facts)[0]


def test_the_torch_that_it_requires_is_found_behind_any_other(tmp_path: Path) -> None:
    others = "".join(f"Requires-Dist: a{number}\n" for number in range(600)).encode()
    text = METADATA.replace(b"\n\n", b"\n" + others + b"Requires-Dist: torch==2.7.0\n\n", 1)
    facts = inspect_wheel(wheel(tmp_path, {**FILES, f"{INFO}/METADATA": text}))
    order = Order("win_amd64", "3.11", torch="2.8")
    assert [one.id for one in checks.check_wheel(facts, order=order) if one.failed] == ["torch"]
