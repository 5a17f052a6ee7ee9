"""Which wheels of which runs may be published: what their records, manifests and files say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from pipelines.core.architectures.archs import ArchList
from pipelines.core.architectures.gpus import arch_of
from pipelines.core.architectures.serving import arch_number, code_runs_on
from pipelines.core.errors import AuditError, ConfigError
from pipelines.core.finding import values_of
from pipelines.core.hosttext import safe_line, safe_text
from pipelines.core.toolsets import STUB, local_version_toolset
from pipelines.core.units import join_first
from pipelines.core.versions import minor_release
from pipelines.publish.index.catalogue import PREVIEW, Smoke
from pipelines.publish.index.publishing import Offer, entry_of
from pipelines.publish.provenance.statement import read_manifest
from pipelines.publish.shown import evidence_words, shown_of
from pipelines.record.results import AuditedFile, AuditResult, RunFacts, SmokeResult
from pipelines.record.run import Run
from pipelines.reports.levels import evidence_of
from pipelines.stages.audit import audited_wheel
from pipelines.wheels.stable import is_stable, wants_toolkit

#: How Windows runs a GPU, as nvidia-smi calls it.
_WINDOWS_DRIVERS = ("WDDM", "TCC", "MCDM")


def collect_offers(
    runs: Sequence[Run],
    room: Path,
    *,
    untested: bool,
    preview: bool = False,
    trusted: Sequence[str] = (),
) -> list[Offer]:
    """The wheels of ``runs``, copied into ``room``; one that must not be published refuses all.

    ``untested``: accept wheels that were not run on a GPU, which are marked. ``preview``: only
    wheels of the stub toolchain. ``trusted``: keys of other controllers. Rebuilds have no wheel to
    publish. Raises :class:`AuditError` with the problems of every run.
    """
    found: list[Offer] = []
    wrong: list[str] = []
    for run in runs:
        rebuilds = run.facts().rebuilds
        try:
            run.require_sealed_by(trusted)
            # Of one that rebuilds, rebuilt_of publishes the verdict, and never the wheel.
            found += (
                () if rebuilds else _iter_run_offers(run, room, untested=untested, preview=preview)
            )
        except (AuditError, ConfigError) as error:
            wrong.append(f"{run.id}: {error.message}" + (f" ({error.hint})" * bool(error.hint)))
    if wrong:
        raise AuditError(
            "\n".join(wrong),
            hint="Nothing was published. Exclude these runs or fix the problems above. To try an "
            "index with wheels of the sandbox, use --preview.",
        )
    return found


def _iter_run_offers(run: Run, room: Path, *, untested: bool, preview: bool) -> Iterator[Offer]:
    facts = run.facts()
    windows = "" if preview else _windows_of(run)
    _require_publishable(facts, shown=preview or bool(windows))
    stages = run.stages()
    audit = stages.get("audit")
    if audit is None or audit.state != "passed" or not isinstance(audit.result, AuditResult):
        raise AuditError(
            f"its audit did not pass: {audit.state if audit else 'it was not run'}",
            hint="Build it again.",
        )
    wheels = [one for one in audit.result.files if one.file.endswith(".whl")]
    if not wheels:
        raise AuditError("it has no wheel")
    for one in wheels:
        yield _make_wheel_offer(
            run, facts, one, room, untested=untested or preview, preview=preview, windows=windows
        )


def _windows_of(run: Run) -> str:
    """The Windows, if its own GPU driver ran the suite with every torch of the recipe."""
    test = run.result(SmokeResult)
    if test is None or test.bridge or test.untested or not test.gpus:
        return ""
    own = all(gpu.driver_model in _WINDOWS_DRIVERS for gpu in test.gpus)
    return test.system if own and test.system.startswith("Windows ") else ""


def _require_publishable(facts: RunFacts, *, shown: bool) -> None:
    """Built here to be published: not somebody else's, nor a stand-in's that is not ``shown``."""
    if facts.given or facts.origin:
        raise AuditError("its wheel was built by others and only tested here")
    if facts.publishable is not True and not shown:
        raise AuditError(
            "wheels from its host cannot be published: its compiler or its Windows is a stand-in "
            "for the real one (genuine Windows binaries under Wine)",
            hint="Build it on a Windows host, or run its tests on one with a GPU: wcw test --host "
            "HOST. docs/evidence/levels.md describes what is required.",
        )


def _make_wheel_offer(
    run: Run,
    facts: RunFacts,
    audited: AuditedFile,
    room: Path,
    *,
    untested: bool,
    preview: bool,
    windows: str,
) -> Offer:
    wheel, _ = audited_wheel(run, audited.file, room)
    inside = wheel.facts
    bad = [check.label for check in audited.checks if check.failed]
    passed = [check for check in audited.checks if check.level == "ok"]
    if bad or not passed:
        raise AuditError(
            f"{audited.file}: the audit found: {join_first(bad) or 'no checks were run'}"
        )
    tools = values_of(wheel.findings, "toolset")  # as the bytes have it, whatever the record says
    local = inside.version.partition("+")[2]
    stand_in = (
        facts.publishable is not True
        or local_version_toolset(local) is not None
        or any(tool.startswith(STUB.name) for tool in tools)
    )
    if stand_in and not (windows or preview):
        raise AuditError(f"{audited.file} is marked as built by a stand-in")
    if preview and local_version_toolset(local) is None:
        raise AuditError(
            f"the name of {audited.file} does not show that a stand-in built it",
            hint="Publish it without --preview.",
        )
    if audited.archs is None:
        raise AuditError(
            f"{audited.file}: the record does not say which GPU architectures the audit judged"
        )
    units = [unit for binary in inside.binaries for unit in binary.inventory.containers]
    if missing := set(audited.archs.sass) - {arch for unit in units for arch in unit.sass}:
        raise AuditError(
            f"{audited.file} has no machine code for {join_first(sorted(missing))}, although "
            "its audit "
            "lists it",
            hint="Its record and its wheel are from different builds: build again.",
        )
    smoke = smoke_of(run, audited, audited.archs)
    if smoke.verdict != "passed" and (stand_in > preview or not untested):
        raise AuditError(
            f"{audited.file}: {smoke.why}",
            hint="Test it on such a GPU"
            + ("." if stand_in else ", or publish it with --untested: the page then says so."),
        )
    words = evidence_words(evidence_of(facts, run.result(SmokeResult)))
    words += f"; its suite passed on {windows}" if windows and stand_in else ""
    shown = shown_of(run, audited, wheel, tested=smoke.verdict == "passed")
    target = facts.target
    if not target.cuda or not target.python:
        raise AuditError(f"{audited.file}: its run does not say for which CUDA and Python it is")
    stable = is_stable(inside)
    entry = entry_of(
        wheel.path,
        inside.dist_info,
        python=minor_release(target.python),
        torch=minor_release(target.torch),
        cuda=minor_release(target.cuda),
        sass=audited.archs.sass,
        ptx=audited.archs.ptx,
        run=run.id,
        serial=read_manifest(shown["manifest.json"]).serial,
        evidence="; ".join(filter(None, (words, run.recorded_by))),
        toolset=join_first(tools) or facts.toolset,
        checks=len(passed),
        smoke=smoke,
        stable=stable,
        any_cuda=stable and not wants_toolkit(inside),
        attached={kind: sha256(data).hexdigest() for kind, data in shown.items()},
        yanked=PREVIEW if preview else None,
    )
    return Offer(wheel, entry, shown)


def smoke_of(run: Run, audited: AuditedFile, archs: ArchList) -> Smoke:
    """The suite's result for that file, on a GPU for which it has machine code.

    Raises :class:`AuditError` if it failed: such a wheel is never published.
    """
    stage = run.stages().get("test")
    if stage is not None and stage.state == "failed":
        said = stage.error.message if stage.error else ""
        raise AuditError(f"{audited.file}: its smoke test failed: {safe_line(said, 200)}")
    result = stage.result if stage is not None else None
    if stage is None or stage.state != "passed" or not isinstance(result, SmokeResult):
        return Smoke(verdict="untested", why="no smoke test has passed")
    if result.sha256 != audited.sha256:
        return Smoke(verdict="untested", why="the smoke test ran with another file")
    if result.limits:
        return Smoke(verdict="untested", why=safe_line(result.limits, 200))
    seen = {
        safe_text(gpu.name, 80): gpu.capability.replace(".", "") or arch_of(gpu.name)
        for gpu in result.gpus
    }
    if not seen or not result.outcomes.get("passed"):
        return Smoke(verdict="untested", why="the smoke test saw no GPU")
    own = {
        name: arch
        for name, arch in seen.items()
        if arch is not None and any(code_runs_on(code, arch) for code in archs.sass)
    }
    if not own:
        said = join_first(f"{name} ({arch or 'not known'})" for name, arch in seen.items())
        return Smoke(
            verdict="untested", why=f"it ran on {said}, for which it has no machine code"[:400]
        )
    cases = result.outcomes["passed"]
    return Smoke(
        verdict="passed",
        gpus=tuple(own),
        archs=tuple(sorted(set(own.values()), key=arch_number)),
        cases=cases,
    )
