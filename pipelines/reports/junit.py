"""Writes JUnit XML for Jenkins, GitHub, GitLab and Azure, and reads pytest's.

``junit-xml`` makes the elements; three of its habits need a hand, so this module finishes the
tree and writes it out itself (all shown in the tests):

* it removes raw control characters after serialising, but leaves ``&#65534;`` or a lone
  surrogate's reference in, and then fails on its own output: text is cleaned before it;
* it writes ``disabled``, and times of any precision, which the Jenkins schema refuses;
* a failure without message and output counts as a pass: an empty one gets a message here.

It has no properties of cases, and that schema (``junit-10.xsd``, the one pytest tests
against) allows ``<properties>`` only in a suite. So a case's properties go first into its
``system-out``, as lines ``[[PROPERTY|name=value]]``: the convention for tools that read
properties from output, visible as text in viewers that do not.
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET  # writing only; what hosts send is read with defusedxml
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

import junit_xml
from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from pipelines.core.errors import SmokeError
from pipelines.core.files import write_atomic
from pipelines.core.hosttext import MAX_MESSAGE, MAX_NAME, clean_line, clean_xml_text, redact
from pipelines.reports.model import Case, Outcome, Suite

MAX_REPORT = 64 << 20
MAX_CASES = 100_000
MAX_PROPERTIES = 200
_PROPERTY = re.compile(r"\[\[PROPERTY\|([^=\]]+)=(.*)\]\]")
_NOT_IN_NAMES = re.compile(r"[=\]]")  # they end the name in such a line
_COUNTED = ("tests", "failures", "errors")


def render(suites: Iterable[Suite]) -> str:
    """The JUnit XML document of ``suites``, valid whatever their texts contain.

    Known secrets are blanked in them.
    """
    root = ET.Element("testsuites")
    for suite in suites:
        root.append(_suite_element(suite))
    for name in _COUNTED:
        root.set(name, str(sum(int(element.get(name, "0")) for element in root)))
    root.set("time", f"{sum(float(element.get('time', '0')) for element in root):.3f}")
    ET.indent(root)
    body = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def write_junit_file(path: Path, suites: Iterable[Suite]) -> None:
    """Write the document atomically.

    Raises ``StorageError`` when it cannot.
    """
    write_atomic(path, render(suites).encode())


def read_pytest(xml_bytes: bytes) -> Suite:
    """The suite in a JUnit file that pytest (or any other tool) wrote; several become one.

    Raises ``SmokeError`` when it is too large, no XML, uses entities, or is no JUnit.
    Attributes that are absent or odd are read as empty or zero; texts come cleaned and bounded.
    """
    if len(xml_bytes) > MAX_REPORT:
        raise _unreadable_junit_error(f"{len(xml_bytes)} bytes, more than {MAX_REPORT}")
    try:
        root = fromstring(xml_bytes, forbid_dtd=True)
    except (ET.ParseError, DefusedXmlException, ValueError, LookupError) as error:
        start = clean_line(xml_bytes[:80].decode(errors="replace"))
        raise _unreadable_junit_error(
            f"{error or type(error).__name__}; it begins {start!r}"
        ) from error
    if root.tag not in {"testsuites", "testsuite"}:
        raise _unreadable_junit_error(
            f"its root element is {clean_line(str(root.tag))}, expected testsuites"
        )
    suites = [root] if root.tag == "testsuite" else root.findall("testsuite")
    if not suites:
        raise _unreadable_junit_error(
            "it has no testsuite: pytest was stopped before it ran a test"
        )
    elements = [case for suite in suites for case in suite.iter("testcase")]
    if len(elements) > MAX_CASES:
        raise _unreadable_junit_error(f"{len(elements)} test cases, more than {MAX_CASES}")
    return Suite(
        name=suites[0].get("name") or "pytest",
        cases=_merge_repeated_cases(_parse_test_case(element) for element in elements),
        properties=_parse_suite_properties(suites[0]),
        timestamp=suites[0].get("timestamp", ""),
        host=suites[0].get("hostname", ""),
    )


def _merge_repeated_cases(cases: Iterable[Case]) -> tuple[Case, ...]:
    """Each failed case once, with all its messages.

    Where a case's process ends after the case was reported (it lost the GPU's context, say),
    pytest-xdist reports the same case again, as crashed.
    """
    made: list[Case] = []
    places: dict[tuple[str, str], int] = {}
    for case in cases:
        place = places.setdefault((case.classname, case.name), len(made))
        if place == len(made) or case.outcome not in ("failed", "error"):
            made.append(case)
        elif made[place].outcome not in ("failed", "error"):
            made[place] = case
        else:
            parts = (made[place].detail, case.message, case.detail)
            text = "\n".join(dict.fromkeys(filter(None, parts)))
            made[place] = replace(made[place], detail=text)
    return tuple(made)


def _suite_element(suite: Suite) -> ET.Element:
    made = junit_xml.TestSuite(
        _clean_xml_line(suite.name) or "suite",
        [_test_case(case) for case in suite.cases],
        hostname=_clean_xml_line(suite.host),
        timestamp=_clean_xml_line(suite.timestamp),
        properties=dict(_limit_properties(suite.properties)),
    )
    element: ET.Element = made.build_xml_doc()
    element.attrib.pop("disabled")
    cases = element.findall("testcase")
    for made_case, case in zip(cases, suite.cases, strict=True):
        made_case.set("time", _format_case_time(case.seconds))
    element.set("time", f"{sum(float(case.get('time', '0')) for case in cases):.3f}")
    return element


def _test_case(case: Case) -> junit_xml.TestCase:
    lines = [f"[[PROPERTY|{name}={value}]]\n" for name, value in _limit_properties(case.properties)]
    made = junit_xml.TestCase(
        _clean_xml_line(case.name) or "unnamed",
        _clean_xml_line(case.classname) or None,
        stdout="".join(lines) + clean_xml_text(redact(case.stdout)),
    )
    message = _clean_xml_line(case.message, MAX_MESSAGE)
    detail = clean_xml_text(redact(case.detail))
    if case.outcome == "failed":
        made.add_failure_info(message or "failed without a message", detail)
    elif case.outcome == "error":
        made.add_error_info(message or "error without a message", detail)
    elif case.outcome == "skipped":
        made.add_skipped_info(message or "skipped without a reason", detail)
    return made


def _limit_properties(properties: Mapping[str, str]) -> list[tuple[str, str]]:
    """Cleaned names and values, the first ``MAX_PROPERTIES`` of them."""
    return [
        (_NOT_IN_NAMES.sub("_", _clean_xml_line(name)) or "_", _clean_xml_line(value, MAX_MESSAGE))
        for name, value in islice(properties.items(), MAX_PROPERTIES)
    ]


def _clean_xml_line(text: str, limit: int = MAX_NAME) -> str:
    return clean_line(redact(text), limit)


def _format_case_time(value: float) -> str:
    """Three decimals, as the schema requires; invalid times become 0."""
    return f"{value if math.isfinite(value) and 0 < value < 1e9 else 0.0:.3f}"  # noqa: PLR2004


def _parse_test_case(element: ET.Element) -> Case:
    outcome, text = _worst_outcome(element)
    properties = _parse_suite_properties(element)
    stdout: list[str] = []
    for line in (element.findtext("system-out") or "").splitlines(keepends=True):
        match = _PROPERTY.fullmatch(line.strip())
        if match and not stdout:
            properties.setdefault(match[1], match[2])
        else:
            stdout.append(line)
    errors = element.findtext("system-err")
    return Case(
        name=element.get("name", ""),
        classname=element.get("classname", ""),
        seconds=_parse_case_time(element.get("time", "")),
        outcome=outcome,
        message=clean_line(_unescape_pytest_text(text.get("message")), MAX_MESSAGE)
        if text is not None
        else "",
        detail=clean_xml_text(_unescape_pytest_text(text.text)) if text is not None else "",
        stdout=clean_xml_text(
            _unescape_pytest_text("".join(stdout))
            + (f"\n[stderr]\n{_unescape_pytest_text(errors)}" if errors else "")
        ),
        properties=properties,
    )


def _worst_outcome(element: ET.Element) -> tuple[Outcome, ET.Element | None]:
    """The worst outcome: pytest writes two for a test that fails and whose teardown fails."""
    outcomes: tuple[tuple[str, Outcome], ...] = (
        ("error", "error"),
        ("failure", "failed"),
        ("skipped", "skipped"),
    )
    for tag, outcome in outcomes:
        if (child := element.find(tag)) is not None:
            return outcome, child
    return "passed", None


def _parse_suite_properties(element: ET.Element) -> dict[str, str]:
    return {
        entry.get("name", ""): entry.get("value") or entry.text or ""
        for entry in element.findall("properties/property")
    }


def _unescape_pytest_text(text: str | None) -> str:
    """Text as the test printed it: pytest writes an escape character as ``#x1B``."""
    return (text or "").replace("#x1B", "\x1b")


def _parse_case_time(text: str) -> float:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return 0.0
    return value if math.isfinite(value) and value > 0 else 0.0


def _unreadable_junit_error(why: str) -> SmokeError:
    return SmokeError(
        f"the host's test report is not JUnit XML: {why}",
        hint="Read the test log of this run: pytest may have crashed before it wrote the file.",
    )
