"""A one-line summary of a run, from its record only."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.core import units
from pipelines.core.errors import ConfigError
from pipelines.core.hosttext import safe_line
from pipelines.record.results import RunFacts, SmokeResult
from pipelines.record.run import Run
from pipelines.reports.levels import evidence_of
from pipelines.reports.load import result_of, stand_in_of, summarize_outcome
from pipelines.reports.views import Verdict, verdict_text


@dataclass(frozen=True, slots=True)
class Brief:
    """The outcome of a run."""

    id: str
    facts: RunFacts
    verdict: Verdict
    headline: str
    seconds: float
    """Total of all stages."""
    tested: str = ""
    """``import only`` or the like, if no test of the package ran."""
    recorded_by: str = ""
    """That another controller did, with its key; empty: this one."""

    @property
    def word(self) -> str:
        """The verdict in words, including that no suite ran."""
        return verdict_text(self.verdict, self.tested)

    def __str__(self) -> str:
        """``not tested, 1 min 12 s``, and the reason if it did not pass."""
        text = f"{self.word}, {units.format_seconds(self.seconds)}"
        text += f", {self.recorded_by}" if self.recorded_by else ""
        well = self.verdict in ("passed", "untested")
        return text if well else f"{text}: {self.headline}"


def brief_of(run: Run) -> Brief:
    """Summarise its record; an unreadable one counts as an unfinished run."""
    try:
        facts, stages = run.facts(), list(run.stages().values())
    except ConfigError as error:
        return Brief(
            safe_line(run.id, 120), RunFacts(), "unfinished", safe_line(error.message), 0.0
        )
    shown, verdict, headline = summarize_outcome(stages)
    seconds = sum(stage.seconds or 0.0 for stage in shown)
    test = result_of(stages, SmokeResult)
    facts = facts.model_copy(update={"evidence": evidence_of(facts, test)})
    return Brief(
        safe_line(run.id, 120),
        facts,
        verdict,
        headline,
        seconds,
        stand_in_of(test),
        run.recorded_by,
    )
