"""Reports: always well-formed, valid for the common schema, and pytest's own read back."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import junit_xml
import pytest
import report_samples as samples
import xmlschema
from defusedxml.ElementTree import fromstring
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.core.errors import LockError, SmokeError, StorageError
from pipelines.core.hosttext import MAX_TEXT, clean_line, clean_xml_text
from pipelines.reports import junit
from pipelines.reports.junit import read_pytest, render, write_junit_file
from pipelines.reports.model import Case, Suite
from pipelines.reports.suites import junit_suites
from pipelines.toolchain.lock import Cache, Tool, ToolchainLock
from pipelines.toolchain.sources import Source

# The Jenkins xunit schema, as pytest's source distribution carries it; not copied in here.
SCHEMA = ToolchainLock(
    version=1,
    tools={
        "schema": Tool(
            version="9.2.0",
            sources=(
                Source(
                    pypi="pytest==9.2.0",
                    file="pytest-9.2.0.tar.gz",
                    sha256="97c4f3b1f3c7414aa36465e09b8220f1d03627993bd51b1282e193753c80557b",
                    size=1797555,
                ),
            ),
        )
    },
)
MEMBER = "pytest-9.2.0/testing/example_scripts/junit-10.xsd"


@pytest.fixture(scope="module")
def schema() -> xmlschema.XMLSchema:
    try:
        path = Cache(SCHEMA).fetch("schema")
    except LockError as error:
        pytest.skip(f"no network: {error.message}")
    with tarfile.open(path) as archive:
        member = archive.extractfile(MEMBER)
        assert member is not None
        return xmlschema.XMLSchema(member.read().decode())


HOSTILE = "\x1b[31mred\x1b[0m \x00\x08\x7f\x9b \ud800 \ufffe\U0001ffff ]]> & <b> \r\nnext\rlast"
SUITES = [
    Suite(
        "smoke on win-gpu-1",
        (
            Case("test_ok", "tests.smoke", 0.1234567, properties={"gpu": "H200", "a=b]": HOSTILE}),
            Case("test_bad", "tests.smoke", 1e-9, "failed", "assert 1 == 2", "trace\n" + HOSTILE),
            Case("test_broken", "", float("nan"), "error", HOSTILE, HOSTILE, HOSTILE),
            Case("test_skipped", "x", -1.0, "skipped", "no GPU: cudaGetDeviceCount says 0"),
            Case("", outcome="failed"),
            Case("", outcome="error"),
            Case("", outcome="skipped"),
        ),
        {"cuda": "13.0", HOSTILE: HOSTILE},
        "2026-01-02T03:04:05Z",
        "WIN-GPU-1",
    ),
    Suite(HOSTILE, (Case(HOSTILE, HOSTILE, 0.1, stdout="x" * (MAX_TEXT * 5)),)),
    Suite("empty"),
]


def test_render_is_valid(schema: xmlschema.XMLSchema) -> None:
    schema.validate(render(SUITES))
    schema.validate(render([]))


#: Of the schema, what can be checked without it: attributes and elements that it knows.
SHAPE = {
    "testsuites": ({"name", "time", "tests", "failures", "disabled", "errors"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors", "group", "time", "skipped", "timestamp"}
        | {"hostname", "id", "package", "file", "log", "url", "version"},
        {"properties", "testcase", "system-out", "system-err"},
    ),
    "properties": (set(), {"property"}),
    "property": ({"name", "value"}, set()),
    "testcase": (
        {"name", "time", "classname", "group"},
        {"skipped", "error", "failure", "rerunFailure", "system-out", "system-err"},
    ),
    **{tag: ({"type", "message"}, set()) for tag in ("skipped", "error", "failure")},
    "system-out": (set(), set()),
}
EVIDENCE = sorted((Path(__file__).parents[2] / "docs" / "evidence").glob("*.xml"))


@pytest.mark.parametrize("path", EVIDENCE, ids=lambda path: path.stem)
def test_evidence_has_the_common_shape(path: Path) -> None:
    root = fromstring(path.read_bytes())
    assert root.tag == "testsuites"
    for element in root.iter():
        attributes, children = SHAPE[element.tag]
        assert set(element.attrib) <= attributes
        assert {child.tag for child in element} <= children
    cases = root.findall(".//testcase")
    told = {"tests": len(cases), "failures": len(root.findall(".//failure"))}
    told["errors"] = len(root.findall(".//error"))
    for name, count in told.items():
        assert sum(int(suite.get(name, "")) for suite in root) == count


@pytest.mark.parametrize("path", EVIDENCE, ids=lambda path: path.stem)
def test_evidence_is_valid(path: Path, schema: xmlschema.XMLSchema) -> None:
    schema.validate(path.read_text("utf-8"))


def test_a_run_is_valid(tmp_path: Path, schema: xmlschema.XMLSchema) -> None:
    for sample in (samples.good, samples.failed_build, samples.failed_smoke, samples.killed):
        schema.validate(render(junit_suites(sample(tmp_path))))
    schema.validate(render(junit_suites(samples.hostile(tmp_path))))


def test_render_counts_and_texts() -> None:
    root = fromstring(render(SUITES))
    assert {name: root.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": "8",
        "failures": "2",
        "errors": "2",
    }
    suite = root[0]
    assert (suite.get("skipped"), suite.get("hostname")) == ("2", "WIN-GPU-1")
    cases = suite.findall("testcase")
    assert [case.get("time") for case in cases[:4]] == ["0.123", "0.000", "0.000", "0.000"]
    assert cases[0].findtext("system-out", "").startswith("[[PROPERTY|gpu=H200]]\n[[PROPERTY|a_b_=")
    assert cases[1].findtext("failure", "").startswith("trace\nred  \ufffd \ufffd\ufffd ]]> & <b>")
    assert cases[4].find("failure") is not None, "an empty failure must not count as a pass"
    assert root[1].get("name") == "red \ufffd \ufffd\ufffd ]]> & <b> next last"


def test_why_junit_xml_alone_will_not_do() -> None:
    """The library's habits that the module's docstring names; when one goes, so may our code."""
    silent = junit_xml.TestCase("t")
    silent.add_failure_info()
    assert not silent.is_failure()
    assert "disabled" in junit_xml.TestSuite("s", [silent]).build_xml_doc().attrib
    broken = junit_xml.TestSuite("s", [junit_xml.TestCase("t", stdout="\ufffe")])
    with pytest.raises(Exception, match="invalid"):
        junit_xml.to_xml_report_string([broken])


def test_round_trip_through_a_file(tmp_path: Path) -> None:
    cases = (
        Case("a", "m.T", 1.5, properties={"gpu": "H200", "note": "x=]]y"}, stdout="line\nlast"),
        Case("b", "m.T", 0.25, "failed", "why", "trace\n  here"),
        Case("c", "m", 0.0, "error", "broke", "d"),
        Case("d", "m", 0.0, "skipped", "no GPU", ""),
    )
    suite = Suite("name", cases, {"k": "v"}, "2026-01-02T03:04:05", "host")
    path = tmp_path / "new" / "junit.xml"
    write_junit_file(path, [suite])
    assert read_pytest(path.read_bytes()) == suite
    assert [file.name for file in path.parent.iterdir()] == ["junit.xml"]
    assert path.stat().st_mode & 0o444 == 0o444


def test_an_interrupted_write_leaves_the_old_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "junit.xml"
    path.write_text("old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        write_junit_file(path, SUITES)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("junit.xml", "old")]


TESTS = """
import pytest
def test_ok(record_property):
    record_property("gpu", "H200")
    print("said \\x1b[31mred\\x1b[0m")
def test_bad():
    assert 1 == 2, "\\x00\\ud800 ]]>"
@pytest.mark.skip(reason="no GPU")
def test_skipped(): pass
@pytest.fixture
def broken(): raise RuntimeError("fixture")
def test_broken(broken): pass
"""


@pytest.fixture(scope="module")
def pytest_report(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    room = tmp_path_factory.mktemp("pytest")
    (room / "test_x.py").write_text(TESTS)
    out = room / "out.xml"
    ask = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
    ]
    ask += [f"--junit-xml={out}", f"--rootdir={room}", "-o", "junit_logging=system-out", str(room)]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    subprocess.run(ask, capture_output=True, check=False, cwd=room, env=environment, timeout=60)
    return out.read_bytes()


def test_pytest_is_read_and_merged(pytest_report: bytes, schema: xmlschema.XMLSchema) -> None:
    suite = read_pytest(pytest_report)
    assert suite.name == "pytest"
    assert suite.host
    assert [(case.name, case.outcome) for case in suite.cases] == [
        ("test_ok", "passed"),
        ("test_bad", "failed"),
        ("test_skipped", "skipped"),
        ("test_broken", "error"),
    ]
    assert suite.cases[0].properties == {"gpu": "H200"}
    assert "said" in suite.cases[0].stdout
    assert suite.cases[2].message == "no GPU"
    assert "RuntimeError: fixture" in suite.cases[3].detail
    merged = render([suite, *SUITES])
    schema.validate(merged)
    assert "said red" in merged
    # pytest puts properties into cases, which this schema does not have: ours must not.
    assert not schema.is_valid(pytest_report.decode())


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "no element found"),
        (b"Traceback (most recent call last):", "it begins 'Traceback"),
        (b"<html></html>", "root element is html"),
        (b"<testsuites/>", "no testsuite"),
        (b"<testsuite", "it begins"),
        (b'<!DOCTYPE x [<!ENTITY a "b">]><testsuite>&a;</testsuite>', "DTD"),
        (b'<?xml version="1.0" encoding="no-such"?><testsuite/>', "encoding"),
        (b"\xff\xfe\x00", "it begins"),
    ],
)
def test_what_is_no_junit_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(SmokeError, match=text):
        read_pytest(data)


def test_a_report_out_of_bounds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"<testsuite>" + b"<testcase/>" * 3 + b"</testsuite>"
    assert len(read_pytest(data).cases) == 3
    monkeypatch.setattr(junit, "MAX_CASES", 2)
    with pytest.raises(SmokeError, match="3 test cases"):
        read_pytest(data)
    monkeypatch.setattr(junit, "MAX_REPORT", 10)
    with pytest.raises(SmokeError, match="more than 10"):
        read_pytest(data)


def test_odd_reports_are_read() -> None:
    suite = read_pytest(
        b'<testsuites><testsuite name="a"><testcase time="1,000.5"/><testcase time="soon">'
        b"<system-out>o</system-out><system-err>e</system-err></testcase></testsuite>"
        b'<testsuite name="b"><testcase name="n"><failure/><error message="m"/></testcase>'
        b"</testsuite></testsuites>"
    )
    assert [case.seconds for case in suite.cases] == [1000.5, 0.0, 0.0]
    assert suite.cases[1].stdout == "o\n[stderr]\ne"
    assert (suite.cases[2].outcome, suite.cases[2].message) == ("error", "m")


def test_long_logs_keep_their_end() -> None:
    log = "".join(f"line {number}\n" for number in range(100_000))
    kept = clean_xml_text(log, 1000)
    assert kept.endswith("line 99998\nline 99999\n")
    assert len(kept.encode()) <= 1000
    first, second = kept.splitlines()[:2]
    assert first.startswith("[only the end of")
    assert second.startswith("line 99")
    assert clean_xml_text("short\n") == "short\n"
    assert clean_line("a" * 5000, 10) == "aaaaaaa..."


def test_escapes_go() -> None:
    text = "\x1b[1;31mE\x1b[0m\x1b]0;title\x07x\x1b]8;;u\x1b\\y\x1b(B\x1b=\x1b[?25h\x1bMz\x1b[9"
    assert clean_xml_text(text) == "Exyz9"
    assert clean_xml_text("10%\r20%\r\nend\x85") == "10%\n20%\nend\n"


ANY = st.text(st.characters(exclude_categories=()), max_size=60)
NASTY = st.lists(st.one_of(ANY, st.sampled_from([*HOSTILE, "\x1b[", "\x1b]", "]]>", "é" * 9])))


@settings(derandomize=True, max_examples=30, deadline=None)
@given(NASTY.map("".join), st.integers(0, 200))
def test_any_text_becomes_well_formed(text: str, limit: int) -> None:
    assert len(clean_xml_text(text, limit).encode()) <= limit
    assert len(clean_line(text, limit).encode()) <= limit
    kept = clean_xml_text(text)
    assert clean_xml_text(kept) == kept
    case = Case(text, text, 0.0, "failed", text, text, text, {text: text})
    root = fromstring(render([Suite(text, (case,), {text: text}, text, text)]))
    assert root.findtext("testsuite/testcase/failure", "") == kept


def test_a_case_whose_process_ended_after_it_had_failed_is_one_case() -> None:
    """pytest-xdist tells it twice: as failed, and as crashed."""
    told = """<testsuites><testsuite name="pytest">
      <testcase classname="t" name="good"/>
      <testcase classname="t" name="lost"><failure message="CUDA error 700">at line 1</failure>
      </testcase>
      <testcase classname="t" name="lost"><failure message="the context was lost">gone</failure>
      </testcase>
      <testcase classname="t" name="crashed"/>
      <testcase classname="t" name="crashed"><failure message="was ended">gone</failure>
      </testcase>
    </testsuite></testsuites>"""
    good, lost, crashed = junit.read_pytest(told.encode()).cases
    assert (good.name, good.outcome) == ("good", "passed")
    assert (lost.name, lost.outcome, lost.message) == ("lost", "failed", "CUDA error 700")
    assert lost.detail == "at line 1\nthe context was lost\ngone"
    assert (crashed.name, crashed.outcome) == ("crashed", "failed")
