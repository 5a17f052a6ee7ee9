"""Why a build failed and what was changed before a retry, as recorded."""

from __future__ import annotations

from pipelines.core.model import Model


class DiagnosisResult(Model):
    """Why a build failed, as its log shows it."""

    id: str
    """The signature's id in the catalogue."""
    is_cause: bool
    """Whether it is a cause; otherwise a symptom of an unknown one."""
    cause: str
    hint: str
    links: tuple[str, ...] = ()
    line: int
    """In the log, from 1."""
    text: str = ""
    unit: str = ""
    confidence: str = "certain"
    """Of the cause: certain, likely or possible."""

    @property
    def title(self) -> str:
        """The cause, or that no known one was found."""
        return self.cause if self.is_cause else f"no known cause: {self.cause}"

    @property
    def summary(self) -> str:
        """One line, for messages: ``line 1203: cause (oom-edg)``."""
        return f"line {self.line}: {self.title} ({self.id})"


class HealedResult(Model):
    """A change that was made automatically before a retry."""

    what: str
    why: str
    """The signature that it responds to, and its cause."""
    line: int
    """In the log."""
