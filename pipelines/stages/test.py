"""Tests the collected wheel on the host: clean environment, shipped suite, JUnit home."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from pipelines.buildplan import BuildPlan
from pipelines.console import console, fold, host_line, say
from pipelines.errors import AuditError, ConfigError, HostError, RemoteError, SmokeError
from pipelines.files import sha256_of
from pipelines.hosts.live import LiveSession
from pipelines.hosttext import safe
from pipelines.model import first_problem
from pipelines.paths import PACKAGE
from pipelines.recipe.model import Recipe
from pipelines.record import AuditedFile, AuditResult, SmokeResult
from pipelines.remote import files, tester
from pipelines.reports.junit import read_pytest
from pipelines.reports.model import Case
from pipelines.run import Run, StageLog
from pipelines.stages.detached import Job, JobSpec
from pipelines.stages.logs import TAIL, last_lines, log_lines
from pipelines.wheels import fatbin

_SUITES = PACKAGE / "smoke"
_TIMEOUT = 1800.0  # seconds a step
# In a process of its own: what does not load may end the one that tries.
_VERIFY = """
import subprocess
import sys

CODE = {code!r}

def test_verify():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{{CODE}} left with {{done.returncode}}: {{done.stderr[-3000:]}}"
"""


def test(session: LiveSession, plan: BuildPlan, log: StageLog) -> SmokeResult:
    """Run the recipe's smoke suite against the run's wheel; :class:`SmokeError` if a case fails.

    The wheel that reaches the host is the one that the audit has looked at, or none.
    """
    wheel, audited = _audited_wheel(log.run)
    suite, expected = suite_files(plan.recipe), expectations(plan, audited)
    layout = plan.layout
    told = json.dumps([log.run.id, suite, expected], sort_keys=True)
    name = hashlib.sha256(told.encode()).hexdigest()[:12]
    directory = layout.join(layout.build_root, f"smoke-{name}")
    with fold(f"Smoke test {wheel.name} on {plan.host.name}"):
        target = _send_wheel(session, plan, f"{directory}-wheel", wheel, audited)
        log.keep(SmokeResult(wheel=wheel.name, sha256=audited.sha256))
        spec = _suite_spec(plan, directory, target, suite, expected)
        job = Job(
            session,
            log.run,
            JobSpec(directory, log.run.id, tester.run_suite, {"spec": spec}),
            log.run.path / "smoke.log",
            error=SmokeError,
        )
        try:
            done = _judge(session, log, _follow(job, log))
        except (HostError, KeyboardInterrupt):
            raise  # the suite goes on there: the next time it is taken up
        except BaseException:
            _clean(session, directory)
            raise
        _clean(session, directory)
    return done


def _audited_wheel(run: Run) -> tuple[Path, AuditedFile]:
    """The run's wheel, which must be the very file that was audited."""
    wheels = sorted((run.path / "wheels").glob("*.whl"))
    if len(wheels) != 1:
        raise ConfigError(
            f"run {run.id} has {len(wheels)} wheels, one is expected", advice="Type: invoke build"
        )
    (wheel,) = wheels
    audit = run.result(AuditResult) or AuditResult()
    audited = next((one for one in audit.files if one.file == wheel.name), None)
    found = sha256_of(wheel)
    if audited is None or audited.sha256 != found:
        looked = audited.sha256 if audited else "another wheel"
        raise AuditError(
            f"{wheel.name} has sha256 {found}, the audit of run {run.id} looked at {looked}",
            advice="Build again, or take the wheel that belongs to this run.",
        )
    return wheel, audited


def _send_wheel(
    session: LiveSession, plan: BuildPlan, folder: str, wheel: Path, audited: AuditedFile
) -> str:
    target = plan.layout.join(folder, wheel.name)
    session.call(files.make_dirs, path=folder)
    sent = session.put(wheel, target)
    if sent != audited.sha256:
        raise AuditError(
            f"{wheel.name} reached {plan.host.name} with sha256 {sent}, not {audited.sha256}",
            advice="Something changed the wheel while it was sent: build again.",
        )
    return target


def _suite_spec(
    plan: BuildPlan, directory: str, wheel: str, suite: dict[str, str], expected: dict[str, Any]
) -> dict[str, Any]:
    """What ``tester.run_suite`` is given, see there."""
    layout, system = plan.layout, plan.host.existing is not None
    return {
        "directory": layout.join(directory, "t"),
        "installer": layout.uv,
        "python": layout.python,
        "wheels": layout.wheels,
        "wheel": wheel,
        "packages": [] if system else packages(plan),
        "system": system,
        "suite": suite,
        "expect": expected,
        "environment": {
            "TEMP": layout.temp,
            "TMP": layout.temp,
            "PYTHONUTF8": "1",
            "CUDA_MODULE_LOADING": "LAZY",
            # Only what the virtual environment holds may be found, no toolkit.
            "CUDA_PATH": "",
            "CUDA_HOME": "",
        },
        "timeout": _TIMEOUT,
    }


def _clean(session: LiveSession, directory: str) -> None:
    for folder in (directory, f"{directory}-wheel"):
        session.call(files.remove_tree, path=folder)


def suite_files(recipe: Recipe) -> dict[str, str]:
    """The suite as it is shipped: the shared files, its own, and the fat-binary reader.

    A recipe without one is tested by its ``verify`` alone.
    """
    if not recipe.smoke:
        if recipe.verify:
            return {"test_verify.py": _VERIFY.format(code=recipe.verify)}
        raise ConfigError(
            f"recipe {recipe.name} says neither smoke nor verify: there is nothing to test with",
            advice="Name a folder of pipelines/smoke in it, or Python that shows that it loads.",
        )
    found: dict[str, str] = {}
    for folder in (_SUITES / "common", _SUITES / recipe.smoke):
        kept = [path for path in sorted(folder.glob("*")) if path.suffix in (".py", ".ini")]
        if not kept:
            raise ConfigError(f"no smoke suite in {folder}", advice="Mend smoke in the recipe.")
        found |= {path.name: path.read_text("utf-8") for path in kept}
    return found | {"fatbin.py": Path(fatbin.__file__).read_text("utf-8")}


def packages(plan: BuildPlan) -> list[str]:
    """What the suite imports, ``name==version`` each, with all that must come along."""
    lock = plan.cache.lock
    entries = lock.entries_for(plan.recipe.test_requires, plan.target)
    return [f"{name}=={lock.tool(entry).version}" for name, entry in entries.items()]


def expectations(plan: BuildPlan, wheel: AuditedFile) -> dict[str, Any]:
    """What the suite compares the installed wheel with."""
    archs = plan.archs.effective
    return {
        "distribution": plan.recipe.name,
        "version": wheel.version,
        "cuda": plan.recipe.cuda,
        "torch": plan.recipe.torch,
        "archs": list(archs.sass),
        "ptx": list(archs.ptx),
        "platform": "win_amd64" if plan.host.capabilities.windows else None,
    }


class _Ended(BaseModel):
    """What a host says of a suite that has ended, as far as it is relied on."""

    exit: Annotated[int, Field(ge=-(2**32), le=2**32)]
    step: Annotated[str, Field(max_length=40)]
    junit: Annotated[str, Field(max_length=1000)] | None = None
    timed_out: bool = False


def _follow(job: Job, log: StageLog) -> _Ended:
    tail: list[str] = []
    try:
        with job.log.open("ab") as sink:
            for line in log_lines(job.follow(), sink):
                if isinstance(line, dict):
                    tail = last_lines(job.log, TAIL)
                    return _Ended.model_validate(line)
                tail.append(safe(line, 500))
                del tail[:-TAIL]
                if not console.is_terminal and line.strip():
                    host_line(line)
    except ValidationError as error:
        raise HostError(
            f"{job.host} sent what is no result of a suite: {safe(first_problem(error), 200)}"
        ) from None
    except RemoteError as error:
        raise SmokeError(
            f"the smoke test could not be run: {error.message}", advice="Try: invoke provision"
        ) from error
    finally:
        _keep(log, tail=tuple(tail))
    raise SmokeError("the smoke test ended without a result", advice="Run the command again.")


def _keep(log: StageLog, **changes: object) -> SmokeResult:
    known = log.result
    assert isinstance(known, SmokeResult)  # noqa: S101 - kept before the suite is followed
    return log.keep(known.model_copy(update=changes))


def _judge(session: LiveSession, log: StageLog, ended: _Ended) -> SmokeResult:
    """The suite's report, home and read; :class:`SmokeError` unless every case passed."""
    done = _keep(log, exit=ended.exit, step=safe(ended.step, 40))
    if not ended.junit:
        cause = "ran out of time" if ended.timed_out else f"left with {ended.exit}"
        tail = "\n".join(done.tail[-15:])
        raise SmokeError(
            f"{done.step} {cause} and there is no report:\n{tail}",
            advice="A crash of the interpreter looks like this. The log is in the JUnit report.",
        )
    report = log.run.path / "smoke.xml"
    session.get(ended.junit, report)
    cases = read_pytest(report.read_bytes()).cases
    outcomes = Counter(case.outcome for case in cases)
    done = _keep(log, outcomes={str(name): count for name, count in outcomes.items()})
    bad = [case for case in cases if case.outcome in ("failed", "error")]
    _say_outcomes(cases, bad, outcomes)
    if not cases:
        raise SmokeError(
            "the smoke suite ran no case", advice="A suite without tests proves nothing."
        )
    if bad or ended.exit:
        raise SmokeError(
            f"{len(bad)} of {len(cases)} smoke cases failed (pytest left with {ended.exit})",
            advice=f"See {log.run.path / 'junit.xml'}",
        )
    return done


def _say_outcomes(cases: tuple[Case, ...], bad: list[Case], outcomes: Counter[Any]) -> None:
    for reason, count in Counter(c.message for c in cases if c.outcome == "skipped").items():
        say(f"  {count} skipped: {safe(reason, 200)}", style="yellow")
    for case in bad[:10]:
        say(f"  {case.outcome}: {safe(case.name)}: {safe(case.message, 200)}", style="red")
    said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    say(f"{len(cases)} cases: {said}", style="red" if bad else "green")
