"""Tests the collected wheel on the host: clean environment, shipped suite, JUnit home."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from packaging.utils import canonicalize_name
from pydantic import BaseModel, Field, ValidationError

from pipelines.core.console import console, host_line, log_group, say
from pipelines.core.errors import ConfigError, HostError, RemoteError, SmokeError
from pipelines.core.evidence import GpuResult
from pipelines.core.files import sha256_of
from pipelines.core.hosttext import safe_line, safe_text
from pipelines.core.model import first_problem
from pipelines.core.versions import minor_release
from pipelines.diagnosis import load_catalogue
from pipelines.hosts.base import GpuWay
from pipelines.hosts.live import LiveSession
from pipelines.plan.matrix.buildplan import BuildPlan
from pipelines.recipe.load import shown_file
from pipelines.recipe.suite import OWN, Suite, suite_of, suite_of_given
from pipelines.record.results import AuditedFile, SmokeResult, TorchSuite
from pipelines.record.run import Run, StageLog
from pipelines.remote import files, tester
from pipelines.remote.jobs.prune import WHEEL
from pipelines.reports.figures import SCRIPT
from pipelines.reports.junit import read_pytest, write_junit_file
from pipelines.reports.model import Case
from pipelines.reports.model import Suite as ReadSuite
from pipelines.session.base import UnfitHostError
from pipelines.stages.audit import audited_wheel
from pipelines.stages.detached import TAIL, Job, JobSpec, decode_log_lines, read_log_tail
from pipelines.stages.hooks import SuiteHooks, requested_features
from pipelines.wheels.checked import CheckedWheel
from pipelines.wheels.checks import EXTERNAL, OURS

_TIMEOUT = 1800.0  # seconds a step
_SCRIPT = 1500.0  # seconds that a script of the user's may take


def test(session: LiveSession, plan: BuildPlan, log: StageLog) -> SmokeResult:
    """Run the recipe's smoke suite against the run's wheel; :class:`SmokeError` if a case fails.

    Only the audited wheel is sent to the host. It runs with each torch of the recipe's
    ``tested_with``, until one of them fails.
    """
    given = plan.given
    suite = suite_of(plan.recipe) if given is None else suite_of_given(given.script)
    script = given.script.name if given and given.script else ""
    with TemporaryDirectory(prefix="wcw-test-") as room:
        file, policy = _only_wheel(log.run), OURS if given is None else EXTERNAL
        wheel, audited = audited_wheel(log.run, file, Path(room), policy)
        _refuse_shadows(suite, wheel)
        done = log.keep(
            SmokeResult(wheel=wheel.name, sha256=wheel.sha256, instead=suite.instead, script=script)
        )
        for cell in plan.tested:
            recipe = plan.recipe.model_copy(update={"torch": cell.torch or None})
            of_cell = replace(plan, target=cell, recipe=recipe)
            done = _run_suite(session, of_cell, log, suite, wheel=wheel, audited=audited)
    return keep_untested(log, plan.recipe.tested_with, done)


def _run_suite(
    session: LiveSession,
    plan: BuildPlan,
    log: StageLog,
    suite: Suite,
    *,
    wheel: CheckedWheel,
    audited: AuditedFile,
) -> SmokeResult:
    """One suite in an environment of its own."""
    given, expected, layout = plan.given, suite_expectations(plan, audited), plan.layout
    # Also its packages: one that was interrupted is taken up only if it imports what it would now.
    order = suite_spec(plan, "", "", suite.files, expected)
    inputs = json.dumps([log.run.id, order], sort_keys=True)
    name = hashlib.sha256(inputs.encode()).hexdigest()[:12]
    directory = layout.join(layout.build_root, f"smoke-{name}")
    torch = f", torch {plan.target.torch}" if plan.recipe.tested_with else ""
    with log_group(f"Smoke test {wheel.name} on {plan.host.name}{torch}"):
        target = _send_wheel(session, plan, f"{directory}{WHEEL}", wheel)
        spec = suite_spec(plan, directory, target, suite.files, expected)
        for one in requested_features(SuiteHooks, plan):
            spec = one.spec(session, log.run, spec)
        if given is not None and given.script is not None:
            spec["environment"]["SMOKE_CASE_SECONDS"] = str(_SCRIPT)
        job = Job(
            session,
            log.run,
            JobSpec(directory, log.run.id, tester.run_suite, {"spec": spec}),
            log.run.path / "smoke.log",
            error=SmokeError,
        )
        try:
            done = _judge_suite_report(session, log, suite, _follow_suite(job, log), plan)
        except UnfitHostError:
            _remove_test_folders(session, directory)  # once the host is fit, the suite is run again
            raise
        except (HostError, KeyboardInterrupt):
            raise  # the suite goes on there: the next time it is taken up
        except BaseException:
            _remove_test_folders(session, directory)
            raise
        _remove_test_folders(session, directory)
    return done


def _only_wheel(run: Run) -> str:
    wheels = sorted((run.path / "wheels").glob("*.whl"))
    if len(wheels) != 1:
        raise ConfigError(
            f"run {run.id} has {len(wheels)} wheels, expected one", hint="Type: invoke build"
        )
    return wheels[0].name


def _send_wheel(session: LiveSession, plan: BuildPlan, folder: str, wheel: CheckedWheel) -> str:
    target = plan.layout.join(folder, wheel.name)
    session.call(files.make_dirs, path=folder)
    session.send(wheel.path, target, wheel.sha256)
    return target


def suite_spec(
    plan: BuildPlan, directory: str, wheel: str, suite: dict[str, str], expected: dict[str, Any]
) -> tester.Spec:
    """The order to run a suite, whose files are ``suite``, against the wheel at ``wheel`` there."""
    layout, system = plan.layout, plan.host.existing is not None
    return {
        "directory": layout.join(directory, "t"),
        "installer": layout.uv,
        "python": layout.python,
        "wheel": wheel,
        "packages": [] if system else suite_wheel_paths(plan),
        "system": system,
        "suite": suite,
        "expect": expected,
        "environment": {
            "TEMP": layout.temp,
            "TMP": layout.temp,
            "PYTHONUTF8": "1",
            "CUDA_MODULE_LOADING": "LAZY",
            **plan.host.gpu_way.environment,
        },
        "timeout": _TIMEOUT,
    }


def _remove_test_folders(session: LiveSession, directory: str) -> None:
    for folder in (directory, f"{directory}{WHEEL}"):
        session.call(files.remove_tree, path=folder)


def _refuse_shadows(suite: Suite, wheel: CheckedWheel) -> None:
    """Refuse tests that would be given their own files, or ours, instead of the wheel's."""
    tops = {name.partition("/")[0].partition(".")[0] for name in wheel.facts.members}
    if found := suite.shadows(tops):
        raise ConfigError(
            f"smoke: Python would import {found[0]} instead of what is in {wheel.name}",
            hint="Rename that file or directory, so that the tests import the wheel."
            if found[0].startswith(f"{OWN}/")
            else "It belongs to the test environment itself, so this wheel cannot be tested.",
        )


def suite_wheel_paths(plan: BuildPlan) -> list[str]:
    """The wheels on the host that the suite imports, and those that they require.

    Not by name: what other builds have left there could match, too.
    """
    lock, layout = plan.cache.lock, plan.layout
    entries = lock.entries_for(plan.recipe.test_tools, plan.target, plan.host.replacements)
    return [layout.join(layout.wheels, lock.tool(entry).file) for entry in entries.values()]


def suite_expectations(plan: BuildPlan, wheel: AuditedFile) -> dict[str, Any]:
    """What the suite compares the installed wheel with."""
    archs, gpu = plan.archs.effective, plan.host.gpu_way
    return {
        "distribution": plan.recipe.distribution,
        "version": wheel.version,
        "cuda": plan.recipe.cuda or wheel.cuda,
        "torch": plan.recipe.torch,
        "verify": "" if plan.recipe.smoke else plan.recipe.verify,
        "archs": list(archs.sass),
        "ptx": list(archs.ptx),
        "platform": "win_amd64" if plan.host.capabilities.windows else None,
        "gpu": {
            "asked": gpu.requested,
            "count": gpu.count,
            "numbers": list(gpu.visible),
            "bridged": gpu.bridged,
        },
        **({"given": True} if plan.given else {}),
        **({"cpu_torch": True} if plan.recipe.torch and "torch" in plan.host.replacements else {}),
    }


class _Ended(BaseModel):
    """What a host says of a suite that has ended, as far as it is relied on."""

    exit: Annotated[int, Field(ge=-(2**32), le=2**32)]
    step: Annotated[str, Field(max_length=40)]
    junit: Annotated[str, Field(max_length=1000)] | None = None
    timed_out: bool = False
    resets: Annotated[tuple[str, ...], Field(max_length=100)] = ()


def _follow_suite(job: Job, log: StageLog) -> _Ended:
    tail: list[str] = []
    try:
        with job.log.open("ab") as sink:
            for line in decode_log_lines(job.follow(), sink):
                if isinstance(line, dict):
                    tail = read_log_tail(job.log, TAIL)
                    return _Ended.model_validate(line)
                tail.append(safe_text(line, 500))
                del tail[:-TAIL]
                if not console.is_terminal and line.strip():
                    host_line(line)
    except ValidationError as error:
        raise HostError(
            f"{job.host} sent an invalid test result: {safe_text(first_problem(error), 200)}"
        ) from None
    except RemoteError as error:
        raise SmokeError(
            f"the smoke test could not be run: {error.message}", hint="Try: invoke provision"
        ) from error
    finally:
        _update_smoke_result(log, tail=tuple(tail))
    raise SmokeError("the smoke test ended without a result", hint="Run the command again.")


def _update_smoke_result(log: StageLog, **changes: object) -> SmokeResult:
    known = log.result
    assert isinstance(known, SmokeResult)  # noqa: S101 - kept before the suite is followed
    return log.keep(known.model_copy(update=changes))


def _judge_suite_report(
    session: LiveSession, log: StageLog, suite: Suite, ended: _Ended, plan: BuildPlan
) -> SmokeResult:
    """What its report says of a suite; :class:`SmokeError` unless every case passed.

    :class:`UnfitHostError` if Windows did not load what was to be tested because it is unsigned.
    """
    gpu = plan.host.gpu_way
    done = _update_smoke_result(log, exit=ended.exit, step=safe_text(ended.step, 40))
    if ended.resets:
        raise HostError(
            f"{plan.host.name} reset the display driver while the suite ran, twice: "
            f"{safe_text(ended.resets[0], 200)}",
            hint="This says nothing about the wheel. Windows resets the driver when a kernel takes "
            "over 2 s (TdrDelay) or the GPU fails: see docs/hosts/windows-host.md.",
        )
    if not ended.junit:
        cause = "ran out of time" if ended.timed_out else f"exited with {ended.exit}"
        tail = "\n".join(done.tail[-15:])
        _require_loadable(plan, tail)
        raise SmokeError(
            f"{done.step} {cause} without a report:\n{tail}", hint=why_no_report(plan, done)
        )
    done, read = _read_report(session, log, ended.junit, plan)
    cases, of_torch = read.cases, ""
    if plan.recipe.tested_with:
        done, of_torch = (
            keep_apart(log, plan.target.torch, read),
            f" with torch {plan.target.torch}",
        )
        require_torch(plan.target.torch, read)
    bad = [case for case in cases if case.outcome in ("failed", "error")]
    if not cases:
        raise SmokeError(
            f"the smoke suite ran no cases{of_torch}", hint="A suite without tests proves nothing."
        )
    if bad or ended.exit:
        text = "\n".join(f"{case.message}\n{case.detail}" for case in bad)
        _require_loadable(plan, text)
        raise SmokeError(
            f"{len(bad)} of {len(cases)} smoke cases failed{of_torch} "
            f"(pytest exited with {ended.exit})",
            hint=f"{cure_of_cases(plan, log.run, text)} See {log.run.path / 'junit.xml'}".strip(),
        )
    if not any(case.outcome == "passed" for case in cases):
        raise SmokeError(
            f"all {len(cases)} smoke cases were skipped{of_torch}: nothing was tested",
            hint="The reasons are above. Test on a host that has what they need.",
        )
    if gpu.requested and not done.gpus:
        raise SmokeError(
            f"{gpu.requested} was requested, but the smoke suite reports no GPU",
            hint="To see what is missing: invoke doctor. To test without a GPU: 'gpu: false'.",
        )
    for one in requested_features(SuiteHooks, plan):
        one.require(read.properties, done)
    own = [case for case in cases if case.classname.startswith(f"{OWN}.")]
    if suite.own and not own:
        raise SmokeError(
            f"none of your own tests ran: all {len(cases)} cases are the built-in ones",
            hint="Name your test functions test_*; for examples see docs/own-tests.md.",
        )
    if suite.own and all(case.outcome == "skipped" for case in own):
        done = _update_smoke_result(log, instead="skipped")
    if done.limits:
        say(done.limits, style="yellow")
    return done


def _require_loadable(plan: BuildPlan, text: str) -> None:
    blocked = load_catalogue().by_id["blocked-by-policy"]
    if found := next(filter(blocked.pattern.search, text.splitlines()), ""):
        raise UnfitHostError(
            f"{plan.host.name} cannot run this test, which says nothing about the wheel: "
            f"{safe_text(found, 300)}",
            hint=blocked.hint,
        )


def _read_report(
    session: LiveSession, log: StageLog, junit: str, plan: BuildPlan
) -> tuple[SmokeResult, ReadSuite]:
    """The report, home, kept and shown."""
    report = log.run.path / "smoke.xml"
    session.get(junit, report)
    read = read_pytest(report.read_bytes())
    outcomes = Counter(case.outcome for case in read.cases)
    counted = {str(name): count for name, count in outcomes.items()}
    machine = _tested_machine_fields(read.properties, plan.host.gpu_way)
    before = log.result  # of several torches each must have seen a GPU
    if isinstance(before, SmokeResult) and before.torches and not before.gpus:
        machine = {**machine, "gpus": (), "gpu_way": before.gpu_way}
    done = _update_smoke_result(log, report=sha256_of(report), outcomes=counted, **machine)
    for one in requested_features(SuiteHooks, plan):
        done = _update_smoke_result(log, **one.read(read.properties, done))
    _say_outcomes(read.cases, outcomes)
    return done, read


def _tested_machine_fields(properties: Mapping[str, str], gpu: GpuWay) -> Mapping[str, object]:
    """What a suite's report says of GPUs and system, as the record has it."""
    found = [
        GpuResult(
            name=safe_line(name, 120),
            capability=properties.get(f"{prefix}_compute_capability", ""),
            driver_model=safe_line(properties.get(f"{prefix}_driver_model"), 40),
        )
        for number in range(32)  # of one host
        if (name := properties.get(f"{(prefix := f'gpu{number}')}_name"))
    ]
    way = gpu.way if found else "none"
    if found and way == "none":
        way = "unknown: the host is configured without a GPU"
    elif not found and "gpu_count" not in properties:
        way = ""  # it did not look, or says nothing of it
    seen = {"gpus": tuple(found), "gpu_way": way, "gpu_asked": gpu.requested}
    return seen | {"system": safe_line(properties.get("system"), 80)}


def _say_outcomes(cases: tuple[Case, ...], outcomes: Counter[Any]) -> None:
    for reason, count in Counter(c.message for c in cases if c.outcome == "skipped").items():
        say(f"  {count} skipped: {safe_text(reason, 200)}", style="yellow")
    for case in cases:
        for name, value in case.properties.items():
            if name.startswith(SCRIPT):
                say(f"  {safe_text(name.removeprefix(SCRIPT), 80)} = {safe_text(value, 80)}")
    bad = [case for case in cases if case.outcome in ("failed", "error")]
    for case in bad[:10]:
        say(
            f"  {case.outcome}: {safe_text(case.name)}: {safe_text(case.message, 200)}", style="red"
        )
    said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    say(f"{len(cases)} cases: {said}", style="red" if bad else "green")


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
        return _missing_requirement_hint(plan, tail)
    if done.step != "pytest":
        return "The Python there could not create an environment. Try again, or: invoke doctor"
    if absent := _missing_module_hint(plan, tail):
        return absent
    if done.exit is not None and (done.exit < 0 or done.exit >= _CRASHED):
        return "Python crashed before the first case. The log is in the JUnit report."
    return "pytest could not start; the reason is in its last lines."


def cure_of_cases(plan: BuildPlan, run: Run, text: str) -> str:
    """What to do about what failed cases tell; empty where they tell nothing that is known."""
    known = (one.hint(run, text) for one in requested_features(SuiteHooks, plan))
    return " ".join(filter(None, (*known, _missing_module_hint(plan, text))))


def _missing_requirement_hint(plan: BuildPlan, text: str) -> str:
    """The hint for requirements that are not among the wheels that are installed."""
    found = [name for match in _UNFOUND.findall(text) for name in match if name]
    if not found or plan.given is not None:
        return "The suite's requirements could not be installed: see docs/own-tests.md."
    name = canonicalize_name(found[0])
    return f"Add it to {shown_file(plan.recipe.name)}: test_requires: [{name}]"


def _missing_module_hint(plan: BuildPlan, text: str) -> str:
    """The hint for a module that the suite imports and its environment does not have."""
    names = dict.fromkeys(name.partition(".")[0] for name in _ABSENT.findall(text))
    if not names:
        return ""
    where = "as --with NAME==VERSION."
    if plan.given is None:
        where = "in test_requires of the recipe: see docs/own-tests.md."
    found = ", ".join([*names][:5])
    return (
        f"Not installed there: {found}. Unless the wheel should contain it, add its package {where}"
    )


_REPORT = "smoke.xml"
_LOADED = "torch"  # the property of the suite that says what it imported


def keep_apart(log: StageLog, asked: str, read: ReadSuite) -> SmokeResult:
    """Keep ``smoke.xml`` as the report of the torch that was ``asked``, and write one of all.

    That one has the torch in the names of cases, and of properties that differ.
    """
    run, known = log.run, log.result
    assert isinstance(known, SmokeResult)  # noqa: S101 - kept before the suite is followed
    one = TorchSuite(
        asked=asked,
        loaded=safe_line(read.properties.get(_LOADED, ""), 80),
        report=f"smoke-torch{asked}.xml",
        outcomes={**Counter(case.outcome for case in read.cases)},
    )
    (run.path / _REPORT).replace(run.path / one.report)
    torches = (*known.torches, one)
    suites = {t.asked: read_pytest((run.path / t.report).read_bytes()) for t in torches}
    write_junit_file(run.path / _REPORT, [_merged(suites)])
    total = sum((Counter(t.outcomes) for t in torches), Counter[str]())
    made = {"torches": torches, "outcomes": {**total}, "report": sha256_of(run.path / _REPORT)}
    return log.keep(known.model_copy(update=made))


def require_torch(asked: str, read: ReadSuite) -> None:
    """Refuse a report of another torch than ``asked``, or of none."""
    loaded = safe_line(read.properties.get(_LOADED, ""), 80)
    if minor_release(loaded) != minor_release(asked):
        raise SmokeError(
            f"the smoke suite should have used torch {asked}, but used {loaded or 'none'}",
            hint="To recreate its environment from the lock: invoke provision",
        )


def keep_untested(log: StageLog, wanted: tuple[str, ...], done: SmokeResult) -> SmokeResult:
    """Keep and say with which of ``wanted`` it did not run: the host has none of it."""
    left = tuple(one for one in wanted if one not in [t.asked for t in done.torches])
    if left:
        say(f"not tested with torch {', '.join(left)}: it is not available here", style="yellow")
    return log.keep(done.model_copy(update={"untested": left}))


def _merged(suites: Mapping[str, ReadSuite]) -> ReadSuite:
    first = next(iter(suites.values()))
    properties = dict(first.properties)
    for torch, read in suites.items():
        properties |= {
            f"torch{torch}.{name}": value
            for name, value in read.properties.items()
            if name == _LOADED or first.properties.get(name) != value
        }
    cases = tuple(
        replace(case, classname=f"torch{torch}.{case.classname}".rstrip("."))
        for torch, read in suites.items()
        for case in read.cases
    )
    return replace(first, cases=cases, properties=properties)
