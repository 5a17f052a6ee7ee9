"""Corruptions of a genuine wheel, with every record made true: none stays green.

``CORRUPTED_WHEELS`` says how many; 1,000 take two minutes.
"""

from __future__ import annotations

import os
import random
import tempfile
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from corruptions import CORRUPTIONS, Members, packed

from pipelines.audit.examination import AuditOptions, audit_wheel
from pipelines.audit.inputs import Input
from pipelines.core.architectures.archs import parse_arch_list
from pipelines.core.errors import AuditError
from pipelines.stages.line import Line, run_build
from pipelines.wheels.checked import check_copy
from pipelines.wheels.checking import Kernels
from pipelines.wheels.checking import Order as Built
from pipelines.wheels.checks import check_wheel
from pipelines.wheels.metadata import inspect_wheel

CASES = int(os.environ.get("CORRUPTED_WHEELS", "270"))
#: What was asked for is known to the build alone: with an architecture less it is a wheel as well.
ASKED = frozenset({"SASS", "PTX", "CUDA", "PyInit", "device code", "library", "Python"})


def members_of(wheel: Path) -> Members:
    with zipfile.ZipFile(wheel) as archive:
        return {one.filename: archive.read(one) for one in archive.infolist() if not one.is_dir()}


@dataclass(frozen=True)
class Order:
    """What was asked for."""

    archs: str
    cuda: str
    python: str


def found_by(path: Path, order: Order) -> dict[str, list[str]]:
    """What each of the three that look at a wheel has against it."""
    audit = audit_wheel(Input(path.name, "", path), AuditOptions())
    found = {"audit": [one.label for one in audit.findings if one.level in ("error", "warning")]}
    try:
        facts = inspect_wheel(path)
    except AuditError:
        return found | {"build": ["refused"], "publish": ["refused"]}
    tag = "py3-none" if "-py3-none-" in path.name else None
    checks = check_wheel(
        facts,
        order=Built("win_amd64", order.python, tag),
        kernels=Kernels(parse_arch_list(order.archs), order.cuda),
    )
    found["build"] = [one.label for one in checks if one.failed]
    try:
        check_copy(path, Path(tempfile.mkdtemp()))
        found["publish"] = []
    except AuditError:
        found["publish"] = ["contents"]
    return found


def campaign(wheel: Path, room: Path, order: Order, cases: int) -> Counter[tuple[str, str]]:
    """How often each check of a build has found each kind."""
    members, path = members_of(wheel), room / wheel.name
    path.write_bytes(packed(members))
    good = found_by(path, order)
    assert (good["build"], good["publish"]) == ([], [])
    caught: Counter[tuple[str, str]] = Counter()
    for case in range(cases):
        kind = [*CORRUPTIONS][case % len(CORRUPTIONS)]
        made = CORRUPTIONS[kind](random.Random(case), members)
        if made is None:  # a wheel without such a part
            caught[kind, "none"] += 1
            continue
        path.write_bytes(made if isinstance(made, bytes) else packed(made))
        found = found_by(path, order)
        assert found["build"], (kind, case)
        if not ASKED.issuperset(found["build"]):
            assert {*found["audit"]} - {*good["audit"]}, (kind, case)
            assert found["publish"], (kind, case)
        for check in found["build"]:
            caught[kind, check] += 1
    return caught


def test_none_stays_green(line: Line, tmp_path: Path) -> None:
    (wheel,) = (run_build(line) / "wheels").glob("*.whl")
    target = line.plan.target
    order = Order(str(line.plan.archs.effective), target.cuda, target.python)
    caught = campaign(wheel, tmp_path, order, CASES)
    assert {kind for kind, _ in caught} == {*CORRUPTIONS}
    without = {kind for kind, check in caught if check == "none"}
    assert without <= {"swap"}  # of one architecture no labels can be swapped
    for (kind, check), count in sorted(caught.items()):
        print(f"| {kind} | {check} | {count} |")


@pytest.mark.skipif("CORRUPTED_OTHERS" not in os.environ, reason="CORRUPTED_OTHERS names none")
@pytest.mark.parametrize(
    "name", ["xformers-0.0.30-cp311-cp311-win_amd64.whl", "xgboost-3.0.0-py3-none-win_amd64.whl"]
)
def test_none_of_others_does(name: str, tmp_path: Path) -> None:
    """``CORRUPTED_OTHERS`` is a directory with these wheels, of PyPI."""
    wheel = Path(os.environ["CORRUPTED_OTHERS"], name)
    campaign(wheel, tmp_path, Order("80", "12", "3.11"), CASES // 10)
