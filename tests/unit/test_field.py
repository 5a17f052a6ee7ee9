"""Public reports and their diagnoses, and logs that only look like a failure."""

from __future__ import annotations

import re
import sys

import pytest
import yaml
from recipefiles import SHIPPED

from pipelines.core.paths import CHECKOUT
from pipelines.diagnosis import diagnose, diagnose_file, load_catalogue

assert CHECKOUT
FIELD = CHECKOUT / "tests/field"
sys.path.append(str(FIELD))

import score  # noqa: E402

REPORTS = score.reports()
UNLIKE = yaml.load((FIELD / "unlike.yaml").read_bytes(), yaml.CSafeLoader)
SIGNATURES = {s.id: s for s in load_catalogue().signatures if s.kind != "fact"}


@pytest.mark.parametrize("name", [name for name, one in REPORTS.items() if "judged" not in one])
def test_report(name: str) -> None:
    answer = REPORTS[name]
    diagnosis = diagnose_file(FIELD / name / "build.log")
    cause = diagnosis and diagnosis.cause
    given = (cause.signature.id, cause.confidence, cause.line) if cause else ("", "", 0)
    assert given == (answer["id"], answer["confidence"], answer["line"])
    assert all(source.startswith("https://") for source in answer["sources"])


def test_later_reports_are_answered() -> None:
    """Their verdicts are of one day; since then each has an answer."""
    later = [name for name, one in REPORTS.items() if "judged" in one]
    assert len(later) >= 30
    for name in later:
        assert REPORTS[name]["judged"] in score.VERDICTS
        assert diagnose_file(FIELD / name / "build.log"), name


def test_page_is_up_to_date() -> None:
    assert score.page() == score.PAGE.read_text("utf-8"), "run: python tests/field/score.py"


def test_every_signature_has_two_logs_that_are_unlike_it() -> None:
    assert UNLIKE.keys() == SIGNATURES.keys()
    assert all(len(set(logs)) >= 2 for logs in UNLIKE.values())


@pytest.mark.parametrize("name", UNLIKE)
def test_unlike(name: str) -> None:
    for log in UNLIKE[name]:
        diagnosis = diagnose(log.splitlines())
        findings = (diagnosis.cause, *diagnosis.others) if diagnosis else ()
        assert name not in [finding.signature.id for finding in findings], log


#: Packages that a hint may name with a release only where the signature is theirs.
PACKAGES = {*SHIPPED, "flash-attn", "xformers", "bitsandbytes", "spconv", "mmcv", "nunchaku"}


def test_no_hint_names_the_release_of_another_package() -> None:
    for name, signature in SIGNATURES.items():
        text = f"{signature.cause} {signature.hint}".lower()
        for package in PACKAGES:
            if re.search(rf"\b{package}\b\W{{0,3}}(?:[<>=~]=?|before|from)? ?v?\d", text):
                own = package in (*signature.scope.get("package", ()), signature.sample.lower())
                assert own or package in signature.sample.lower(), (name, package)
