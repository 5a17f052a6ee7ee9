"""What a run has shown of a wheel, as files for people to look at; and of one that was there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from pipelines.core.errors import AuditError, ConfigError
from pipelines.core.evidence import Evidence
from pipelines.core.hosttext import safe_line
from pipelines.core.jsonfile import json_differences
from pipelines.core.units import join_first
from pipelines.publish.index.catalogue import Kind, Rebuilt, format_timestamp
from pipelines.publish.provenance.statement import SIGNED, encode_statement, make_statement
from pipelines.publish.provenance.verifying import read_signed
from pipelines.record.results import AuditedFile, RebuildResult, SmokeResult
from pipelines.record.run import Run
from pipelines.reports import junit
from pipelines.reports.levels import evidence_of
from pipelines.reports.load import read_smoke
from pipelines.stages.manifest import require_manifest
from pipelines.wheels.checked import CheckedWheel

_REPORT = "smoke.xml"


def shown_of(
    run: Run, audited: AuditedFile, wheel: CheckedWheel, *, tested: bool
) -> dict[Kind, bytes]:
    """Audit, smoke test, manifest and signed statement, as far as there are such.

    ``tested``: whether the run's smoke test is of this wheel. Its report is written again, so that
    no host's own markup is published. Raises :class:`AuditError` for a statement on another wheel
    or manifest, and for a missing report.
    """
    found: dict[Kind, bytes] = {"audit.json": audited.model_dump_json(indent=1).encode() + b"\n"}
    if tested:
        result = run.result(SmokeResult)
        suite, why = read_smoke(run.path, result)
        if result is None or not result.report:
            why = f"its record has no sha256 of {_REPORT}"
        if suite is None or why:
            raise AuditError(
                f"{audited.file}: the report of its smoke test cannot be published: "
                + safe_line(why, 200),
                hint="Test it again.",
            )
        found["smoke.xml"] = junit.render([replace(suite, host="")]).encode()
    found["manifest.json"] = require_manifest(run)
    signed = run.path / f"{audited.file}{SIGNED}"
    if signed.is_file():
        found["intoto.jsonl"] = signed.read_bytes()
        _require_stated(wheel, found)
    return found


def _require_stated(wheel: CheckedWheel, shown: Mapping[Kind, bytes]) -> None:
    """The statement is of this wheel, and says what the manifest says, which is published too."""
    signed = wheel.path.with_name(f"{wheel.name}{SIGNED}")
    signed.write_bytes(shown["intoto.jsonl"])
    try:
        said, expected = read_signed(signed), make_statement(shown["manifest.json"], wheel.name)
        if said.sealed is None:
            raise ValueError("it has no signature")  # noqa: TRY301
        if encode_statement(said.whole) != encode_statement(expected):
            found = join_first(json_differences(said.whole, expected), most=3)
            raise ValueError(f"it differs from the manifest: {found}")  # noqa: TRY301
    except ValueError as error:
        raise AuditError(
            f"{signed.name}: {safe_line(error, 500)}",
            hint="Sign it again: wcw attest RUN. If a run is tested after it was signed, its "
            "manifest changes.",
        ) from None


def evidence_words(level: Evidence | None) -> str:
    """A level of proof as an index tells it."""
    return f"{level.value}: {level.meaning}" if level else "not recorded"


def rebuilt_of(run: Run) -> tuple[str, Rebuilt]:
    """The sha256 of the published wheel that a run rebuilt, and the verdict.

    Raises :class:`ConfigError` for a run without a verdict.
    """
    result, facts = run.result(RebuildResult), run.facts()
    if result is None or result.compared is None:
        raise ConfigError(
            f"{run.id} is a rebuild without a verdict on the published wheel",
            hint="Read its report, then run wcw rebuild again.",
        )
    if result.compared.published != facts.rebuilds:
        raise ConfigError(f"{run.id} compared a different wheel from the one requested")
    stage = run.stages()[RebuildResult.stage]
    return result.compared.published, Rebuilt(
        verdict=result.compared.verdict,
        run=run.id,
        evidence=evidence_words(evidence_of(facts, None)),
        when=format_timestamp(datetime.fromtimestamp(stage.started + (stage.seconds or 0), UTC)),
    )
