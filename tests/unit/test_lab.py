"""Records of external wheels on GPUs: what is recorded, what is not, what has moved, who lies."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import report_samples as samples
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pipelines.cli import lab as command
from pipelines.core.errors import WORSE, ConfigError, HostError, SetupError, SmokeError
from pipelines.core.evidence import Bridge, Evidence, GpuResult
from pipelines.record.prebuilt import Dependencies, PrebuiltFile
from pipelines.record.results import PrebuiltResult, SmokeResult
from pipelines.record.run import Run
from pipelines.record.seal import Sealer
from pipelines.reports import lab
from pipelines.reports.junit import write_junit_file
from pipelines.reports.load import load_view
from pipelines.reports.model import Case, Suite
from pipelines.stages import rented

WHEEL = "other-1.0-py3-none-win_amd64.whl"
SUITE = "cd" * 32
GPU = "NVIDIA L4"
DETAIL = "    assert code == 0\nE   AssertionError: wrong: a\nE     b\n"


def run_of(
    out: Path,
    *,
    outcome: Any = "passed",
    state: Any = "",
    driver: str = "580.1",
    cases: int = 1,
    gpus: tuple[str, ...] = (GPU,),
    sha256: str = "ab" * 32,
    **numbers: str,
) -> Run:
    """A run of somebody's wheel in a sandbox with a bridge."""
    run = Run.create(out, samples.facts(given=True, evidence=Evidence.BINARIES, publishable=False))
    taken = PrebuiltFile(file=WHEEL, place="an index", sha256=sha256, stated=None)
    company = Dependencies(packages=(), companions=("cupy-cuda13x==13.6.0",))
    samples.stage(run, "prebuilt", result=PrebuiltResult(taken=taken, company=company))
    samples.audit(run)
    samples.provisioned(run)
    printed = {f"script.{name}": text for name, text in numbers.items()}
    script = Case(
        "test_script", "test_script", 1.0, outcome, "wrong: a b", DETAIL, properties=printed
    )
    properties = {"driver_version": driver, "gpu_cases": str(cases)}
    write_junit_file(run.path / "smoke.xml", [Suite("pytest", (script,), properties)])
    result = SmokeResult(
        wheel=WHEEL,
        sha256=sha256,
        outcomes={outcome: 1},
        script="numbers.py",
        system="Wine 10.0",
        gpus=tuple(GpuResult(name=name, capability="8.9") for name in gpus),
        bridge=Bridge(
            name="1 libcuda.so.1", cases=cases, driver="580.1", selftest="passed", gpus=gpus
        ),
    )
    state = state or outcome
    failed = samples.error("another", "SmokeError") if state == "failed" else None
    samples.stage(run, "test", state, result=result, failed=failed)
    return run


def of(run: Run, suite: str = SUITE) -> lab.LabRecord:
    record = lab.lab_record_of_run(run, suite)
    assert record is not None
    return record


def test_a_record_says_what_the_run_says(tmp_path: Path) -> None:
    printed: Any = {"mm worst error": "1.5e-3", "mm seconds": "2.5"}
    record = of(run_of(tmp_path, **printed))
    assert (record.project, record.version, record.sha256) == ("other", "1.0", "ab" * 32)
    assert (record.gpu, record.driver, record.capability) == (GPU, "580.1", "8.9")
    assert (record.passed, record.evidence) == (True, Evidence.BRIDGED)
    assert record.numbers == {"mm worst error": "1.5e-3", "mm seconds": "2.5"}
    assert (record.worst, record.companions) == ("1.5e-3", ("cupy-cuda13x==13.6.0",))
    signed = record.model_copy(update={"numbers": {"error": "0.1", "difference": "-3"}})
    assert signed.worst == "-3"
    page = lab.store_lab_record(record, tmp_path / "lab").read_text()
    for text in (GPU, "580.1", record.sha256, SUITE, "1.5e-3", "B + GPU", "signed here"):
        assert text in page
    assert lab.read_records(tmp_path / "lab") == ([record], [])


def test_a_suite_that_failed_on_the_gpu_is_not_said_to_have_missed_it(tmp_path: Path) -> None:
    """Cases on the GPU are counted where they passed; why one failed is in its own message."""
    view = load_view(run_of(tmp_path, outcome="failed", cases=0))
    (note,) = (text for text in view.caveats if text.startswith("not tested on the available GPU"))
    assert "context" not in note


def test_a_failure_is_given_in_the_suites_own_words(tmp_path: Path) -> None:
    """With a nan as the largest error."""
    printed: Any = {"a error": "nan", "b error": "3"}
    record = of(run_of(tmp_path, outcome="failed", **printed))
    assert (record.why, record.worst) == ("AssertionError: wrong: a", "nan")


@pytest.mark.parametrize(
    "run",
    [
        {"gpus": (), "cases": 0},
        {"state": "failed"},  # its cases have passed: the stage says that the GPU is another
        {"outcome": "failed", "driver": "575.9"},  # which this machine has not
    ],
    ids=["no GPU", "no failed case", "another driver"],
)
def test_what_is_not_a_verdict_is_not_recorded(run: dict[str, Any], tmp_path: Path) -> None:
    assert lab.lab_record_of_run(run_of(tmp_path, **run), SUITE) is None


def test_a_pass_without_the_gpu_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SmokeError, match="used no GPU"):
        lab.lab_record_of_run(run_of(tmp_path, cases=0), SUITE)


def test_an_edited_record_is_left_out_and_named(tmp_path: Path) -> None:
    record = of(run_of(tmp_path, outcome="failed"))
    folder = tmp_path / "lab"
    lab.store_lab_record(record, folder)
    path = folder / record.name
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"passed": True}))
    (folder / "other.json").write_text("{}")
    found, wrong = lab.read_records(folder)
    assert found == []
    assert len(wrong) == 2
    page = lab.store_lab_record(of(run_of(tmp_path), "ef" * 32), folder).read_text()
    assert page.count("Ignored") == 2
    assert "1 record" in page


@pytest.mark.parametrize(
    ("before", "after", "worse", "moved"),
    [
        ({"sum": "1"}, {"sum": "1.0"}, [], []),
        ({"sum": "1"}, {"sum": "1.02"}, [], ["sum"]),
        ({"sum": "1"}, {"sum": "nan"}, ["sum"], ["sum"]),
        ({"sum": "1"}, {}, ["sum"], ["sum"]),
        ({"mm seconds": "1"}, {"mm seconds": "2"}, [], []),
        ({"mm seconds": "1"}, {"mm seconds": "inf"}, ["mm seconds"], ["mm seconds"]),
        ({}, {"outcome": "failed"}, [WHEEL], [WHEEL]),
        ({"outcome": "failed"}, {}, [], [WHEEL]),
    ],
)
def test_what_has_moved(
    before: dict[str, Any],
    after: dict[str, Any],
    worse: list[str],
    moved: list[str],
    tmp_path: Path,
) -> None:
    known, now = (of(run_of(tmp_path, **one)) for one in (before, after))
    found = list(lab.lab_record_differences(now, [known]))
    assert [one.subject for one in found] == moved
    assert [one.subject for one in found if one.judgement == "worse"] == worse


def test_only_the_same_suite_on_such_a_gpu_is_compared(tmp_path: Path) -> None:
    now = of(run_of(tmp_path, sum="2"))
    others = [
        of(run_of(tmp_path, sum="1"), "ef" * 32),
        of(run_of(tmp_path, gpus=("A100",), sum="1")),
    ]
    assert list(lab.lab_record_differences(now, others)) == []
    # Of another wheel and driver, but the same project: that is what one wants to know.
    known = of(run_of(tmp_path, sum="1", sha256="12" * 32))
    strange = signed_by_another(
        known.model_copy(update={"created": "9999", "numbers": now.numbers})
    )
    others.append(strange)
    assert [one.subject for one in lab.lab_record_differences(now, [*others, known])] == ["sum"]


def signed_by_another(record: lab.LabRecord) -> lab.LabRecord:
    key = Sealer(Ed25519PrivateKey.generate())
    record = record.model_copy(update={"sealer": key.identity})
    return record.model_copy(update={"signature": key.sign(record.text)})


def test_whoever_signs_is_named_and_numbers_are_numbers(tmp_path: Path) -> None:
    record, folder = of(run_of(tmp_path, sum="1")), tmp_path / "lab"
    strange = signed_by_another(record.model_copy(update={"gpu": "A100"}))
    wrong = signed_by_another(record.model_copy(update={"gpu": "B200", "numbers": {"error": "x"}}))
    lab.store_lab_record(strange, folder)
    (folder / wrong.name).write_text(wrong.model_dump_json())
    page = lab.store_lab_record(record, folder).read_text()
    assert f"signed by {strange.sealer[:16]}" in page
    assert page.count("Ignored") == 1
    found, _ = lab.read_records(folder)
    assert {one.gpu for one in found} == {GPU, "A100"}


def test_two_drivers_are_two_records(tmp_path: Path) -> None:
    record = of(run_of(tmp_path))
    other = record.model_copy(update={"driver": "590.2"})
    assert record.name != other.name


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "numbers.py").write_text("print('a = 1')\n")
    return tmp_path


def asked(**more: Any) -> int | None:
    return command.lab.run({}, "other==1.0", **({"suite": "numbers.py"} | more))


def test_the_command_records_failures_too(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [
        (run_of(project / "out", sum="1"), None),
        (run_of(project / "out", sum="3"), None),
        (run_of(project / "out", outcome="failed", sum="3"), SmokeError("it is wrong")),
    ]
    monkeypatch.setattr(rented, "test_there", lambda *_: runs.pop(0))
    assert asked(at="gpu1") == 0
    assert asked(at="gpu1") == 0
    with pytest.raises(SmokeError, match="it is wrong"):
        asked(at="gpu1")
    (record,), _ = lab.read_records(project / "out/lab")
    assert not record.passed
    runs = [(run_of(project / "out", sum="3"), None), (run_of(project / "out", sum="nan"), None)]
    assert (asked(at="gpu1"), asked(at="gpu1")) == (0, WORSE)


def test_a_suite_that_changes_while_it_runs_is_not_recorded(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: object) -> tuple[Run, None]:
        (project / "numbers.py").write_text("print('a = 2')\n")
        return run_of(project / "out", sum="1"), None

    monkeypatch.setattr(rented, "test_there", run)
    with pytest.raises(ConfigError):
        asked(at="gpu1")
    assert lab.read_records(project / "out/lab") == ([], [])


def test_a_suite_is_all_that_is_shipped_of_it(tmp_path: Path) -> None:
    for name in ("test_a.py", "limits.json", "__pycache__/x", ".pytest_cache/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1")
    first = lab.digest_of(tmp_path)
    (tmp_path / "__pycache__/x").write_bytes(b"\xff")
    assert lab.digest_of(tmp_path) == first
    (tmp_path / "limits.json").write_text("2")
    assert lab.digest_of(tmp_path) != first


def test_what_cannot_be_is_refused_first(project: Path) -> None:
    for wrong in ({"suite": "nothing.py"}, {"give_back": "true"}):
        with pytest.raises(ConfigError):
            asked(**wrong)
    with pytest.raises(ConfigError):
        command.lab.run({"offline": True}, "other==1.0", suite="numbers.py", at="gpu1")
    assert not (project / "out").exists()


# -- another machine, by an ssh that is none --------------------------------------------------


def test_without_ssh_there_is_no_other_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError):
        rented.test_there("gpu1", *files(tmp_path), [], tmp_path / "out")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its directory for temporary files; its checkout has a wcw that leaves a run."""
    if os.name != "posix":
        pytest.skip("the stand-in for ssh is a script of a shell")
    root, there, programs = (tmp_path / name for name in ("checkout", "there", "programs"))
    for folder in (root / "scripts", there, programs):
        folder.mkdir(parents=True)
    run = run_of(tmp_path / "made")
    scripts = {
        root / "scripts/setup": "echo preparing",
        root / "wcw": f'echo "$@" >{tmp_path}/order; cat given/* suite/* >{tmp_path}/sent; '
        f"mkdir -p out; cp -r {run.path} out/; ln -s {run.id} out/latest; touch out/x.whl; "
        f'echo "$HOME" >{tmp_path}/home; test ! -e {tmp_path}/hang || sleep 60; exit 10',
        programs / "ssh": f'while [ "$1" != -- ]; do shift; done; TMPDIR={there} exec sh -c "$3"',
    }
    for path, text in scripts.items():
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755 if path.parent == programs else 0o644)  # a checkout on Windows
    monkeypatch.setattr(rented, "CHECKOUT", root)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return there


def files(tmp_path: Path) -> tuple[str, Path]:
    """A wheel and a suite."""
    for name in (WHEEL, "numbers.py"):
        (tmp_path / name).write_text(f"{name}\n")
    return str(tmp_path / WHEEL), tmp_path / "numbers.py"


def test_a_run_comes_back_and_nothing_stays(machine: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run, failed = rented.test_there("gpu1", *files(tmp_path), ["a b"], out)
    assert failed is not None
    assert "ended with 10" in failed.message
    assert run.path.parent == out
    assert of(run).gpu == GPU
    assert (tmp_path / "order").read_text() == (
        f"test --gpu --wheel given/{WHEEL} --script suite/numbers.py --with a b\n"
    )
    assert (tmp_path / "sent").read_text() == f"{WHEEL}\nnumbers.py\n"
    assert (tmp_path / "home").read_text().startswith(f"{machine}/wcw-lab.")
    assert list(machine.iterdir()) == []


@pytest.mark.parametrize(
    "fault",
    [
        "exit 255",
        "head -c 9 >/dev/null; echo lost",
        "head -c 9 >/dev/null; tar c /etc/hostname 2>/dev/null",
    ],
    ids=["unreachable", "no archive", "another archive"],
)
def test_a_machine_that_lies_or_is_lost(fault: str, machine: Path, tmp_path: Path) -> None:
    (tmp_path / "programs/ssh").write_text(f"#!/bin/sh\n{fault}\n")
    with pytest.raises(HostError):
        rented.test_there("gpu1", *files(tmp_path), [], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert list(machine.iterdir()) == []


def test_a_preparation_that_fails_leaves_nothing(machine: Path, tmp_path: Path) -> None:
    (tmp_path / "checkout/scripts/setup").write_text("#!/bin/sh\nexit 4\n")
    with pytest.raises(HostError, match="ended with 4"):
        rented.test_there("gpu1", *files(tmp_path), [], tmp_path / "out")
    assert list(machine.iterdir()) == []


def test_killed_in_the_middle_nothing_stays_and_the_machine_is_given_back(
    machine: Path, tmp_path: Path
) -> None:
    """Not by a signal that the program could answer."""
    (tmp_path / "hang").touch()
    wheel, suite = files(tmp_path)
    program = (
        "from pathlib import Path; from pipelines.stages import rented\n"
        f"rented.CHECKOUT = Path({str(tmp_path / 'checkout')!r})\n"
        f"with rented.given_back({shlex.join(['touch', str(tmp_path / 'back')])!r}):\n"
        f"    suite, out = Path({str(suite)!r}), Path({str(tmp_path / 'out')!r})\n"
        f"    rented.test_there('gpu1', {wheel!r}, suite, [], out)\n"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", program], cwd=root) as process:
        until((tmp_path / "home").exists)
        assert list(machine.iterdir()) != []
        process.kill()
    until(lambda: not list(machine.iterdir()))
    until((tmp_path / "back").exists)
    assert not (tmp_path / "out").exists()


def until(there: Any) -> None:
    end = time.monotonic() + 30
    while not there():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_it_is_given_back_after_an_error_and_a_failure_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "give_back.py").write_text("open('back', 'w'); raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HostError), rented.given_back(f'"{sys.executable}" give_back.py'):
        raise HostError("lost")
    assert (tmp_path / "back").exists()
    assert "NOT GIVEN BACK" in "".join(capsys.readouterr())


@pytest.mark.parametrize("folder", ["lab", "lab/spoiled"])
def test_the_evidence_is_signed_and_of_the_suites_of_today(folder: str) -> None:
    root = Path(__file__).parents[2]
    records, wrong = lab.read_records(root / "docs/evidence/gpu-bridge" / folder)
    assert (bool(records), wrong) == (True, [])
    for record in records:
        suite = lab.digest_of(root / "tests/gpu/foreign" / record.suite)
        assert record.suite_sha256 == suite, f"{record.suite} was changed after it ran"
