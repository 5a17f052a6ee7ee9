"""What went wrong in a build and what was done about it, as the record keeps them."""

from __future__ import annotations

from pipelines.core.model import Model


class DiagnosisResult(Model):
    """Why a build failed, as its log shows it."""

    id: str
    """Of the signature in the catalogue."""
    is_cause: bool
    """Whether it is a cause; otherwise the first sign of an unknown one."""
    cause: str
    hint: str
    links: tuple[str, ...] = ()
    line: int
    """In the log, from 1."""
    text: str = ""
    unit: str = ""

    @property
    def title(self) -> str:
        """The cause, or that no known one was found."""
        return self.cause if self.is_cause else f"no known cause: {self.cause}"

    @property
    def summary(self) -> str:
        """One line, for messages: ``line 1203: cause (oom-edg)``."""
        return f"line {self.line}: {self.title} ({self.id})"


class HealedResult(Model):
    """A change that a build made by itself before it went on."""

    what: str
    why: str
    """The signature that it answers, and its cause."""
    line: int
    """In the log."""
