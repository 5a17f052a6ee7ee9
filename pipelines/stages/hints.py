"""What to do about a smoke suite that failed, or ended before its report."""

from __future__ import annotations

import re

from packaging.utils import canonicalize_name

from pipelines.matrix.buildplan import BuildPlan
from pipelines.recipe.load import shown_file
from pipelines.record.results import SmokeResult
from pipelines.record.run import Run
from pipelines.stages.hooks import SuiteHooks, features

_CRASHED = 0x80000000  # from here on Windows' exit codes are exceptions
_UNFOUND = re.compile(  # as uv and pip say it
    r"Because (?:only )?([\w.-]{1,80}) was not found in the provided"
    r"|No matching distribution found for ([\w.-]{1,80})"
)
_ABSENT = re.compile(r"No module named '([\w.]{1,80})'")


def why_no_report(plan: BuildPlan, done: SmokeResult) -> str:
    """What to do about a suite that ended before its report."""
    tail = "\n".join(done.tail)
    if done.step == "install":
        return _missing(plan, tail)
    if done.step != "pytest":
        return "No environment could be made with the Python there. Try it again, or: invoke doctor"
    if absent := _absent(plan, tail):
        return absent
    if done.exit is not None and (done.exit < 0 or done.exit >= _CRASHED):
        return "The interpreter crashed before the first case. The log is in the JUnit report."
    return "pytest itself could not begin: its last lines say why."


def cure_of_cases(plan: BuildPlan, run: Run, told: str) -> str:
    """What to do about what failed cases tell; empty where they tell nothing that is known."""
    known = (one.hint(run, told) for one in features(SuiteHooks, plan))
    return " ".join(filter(None, (*known, _absent(plan, told))))


def _missing(plan: BuildPlan, text: str) -> str:
    """The hint for requirements that are not among the wheels that are installed."""
    found = [name for match in _UNFOUND.findall(text) for name in match if name]
    if not found or plan.given is not None:
        return "What the suite needs could not be installed: docs/own-tests.md says what there is."
    name = canonicalize_name(found[0])
    return f"Add it to {shown_file(plan.recipe.name)}: test_requires: [{name}]"


def _absent(plan: BuildPlan, text: str) -> str:
    """The hint for a module that the suite imports and its environment does not have."""
    names = dict.fromkeys(name.partition(".")[0] for name in _ABSENT.findall(text))
    if not names:
        return ""
    where = "as --with NAME==VERSION."
    if plan.given is None:
        where = "in test_requires of the recipe: docs/own-tests.md says what there is."
    found = ", ".join([*names][:5])
    return (
        f"Not installed there: {found}. If it is no part of the wheel, name what brings it {where}"
    )
