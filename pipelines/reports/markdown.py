"""A Markdown summary of runs for a GitHub job, and annotations for its log.

GitHub shows at most 1 MiB of a step's summary and ten errors of a step:
https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from pipelines.core import github, units
from pipelines.reports.failures import group_failure_causes
from pipelines.reports.views import (
    VERDICTS,
    WORDS,
    Excerpt,
    Failure,
    RunView,
    Verdict,
    start_time_text,
    unique_run_names,
)

#: Bytes of a summary; the rest of GitHub's 1 MiB is left to other steps' output.
MOST = 900 << 10
_ANNOTATIONS = 10
_DETAILED = 20  # causes shown individually
_STRUCK = 100  # runs named for each
_MARKUP = re.compile(r"([\\`*_{}\[\]()#+!|~$@:-])")
_LIGHTS: dict[Verdict, str] = {"passed": "✅", "untested": "🟡", "unfinished": "🟡", "failed": "❌"}


def summary(views: Sequence[RunView]) -> str:
    """A summary of ``views``, at least one; at most :data:`MOST` bytes."""
    parts = _run_summary_lines(views[0]) if len(views) == 1 else _overview_table_lines(views)
    text = "\n".join(parts) + "\n"
    if len(text.encode()) > MOST:
        note = "\n\n(Truncated; the rest is in report.html.)\n"
        cut = text.encode()[: MOST - len(note.encode())].decode("utf-8", "ignore")
        fence = "\n```" if cut.count("\n```") % 2 else ""
        text = cut.rpartition("\n")[0] + fence + note
    return text


def escape_markdown(text: str, limit: int = 300) -> str:
    """Text escaped for Markdown and HTML, on one line."""
    cut = text if len(text) <= limit else text[:limit] + " ..."
    escaped = _MARKUP.sub(r"\\\1", " ".join(cut.split()))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _verdict_mark(view: RunView) -> str:
    return f"{_LIGHTS[view.tone]} {view.word}"


def _run_summary_lines(view: RunView) -> list[str]:
    title = escape_markdown(f"{view.target.package} for {view.target.label}")
    parts = [f"## {_verdict_mark(view)}: {title}", "", escape_markdown(view.headline, 600), ""]
    parts += [f"- {escape_markdown(caveat)}" for caveat in view.caveats]
    parts += ["", "| Stage | State | Took |", "|-|-|-:|"]
    parts += [
        f"| {escape_markdown(stage.name)} | {escape_markdown(stage.state)} | "
        f"{units.format_seconds(stage.seconds) or '-'} |"
        for stage in view.stages
    ]
    if view.counts:
        counts = ", ".join(f"{count} {word}" for word, count in view.counts.items())
        parts += ["", f"Smoke cases: {counts}."]
    if view.gpu_way:
        parts += ["", f"GPU: {escape_markdown(view.gpu_summary)}."]
    parts += _failures(view.failures[:15])
    if view.timeline is not None and view.timeline.units:
        parts += ["", "| Slowest units | Took |", "|-|-:|"]
        parts += [
            f"| {escape_markdown(unit.name, 100)} | {units.format_seconds(unit.seconds)} |"
            for unit in view.timeline.slowest[:5]
        ]
    if view.files:
        parts += ["", "<details><summary>Files</summary>", ""]
        parts += ["| File | Size | sha256 |", "|-|-:|-|"]
        parts += [
            f"| {escape_markdown(file.path)} | {units.format_size(file.size)} | `{file.sha256}` |"
            for file in view.files[:100]
        ]
        parts += ["", "</details>"]
    return parts


def _overview_table_lines(views: Sequence[RunView]) -> list[str]:
    tally = Counter(view.verdict for view in views)
    cases = ", ".join(
        f"{tally[kind]} {_LIGHTS[kind]} {WORDS[kind]}" for kind in VERDICTS if tally[kind]
    )
    weak = Counter(view.tested for view in views if view.tone != view.verdict)
    cases += "".join(f" ({count} {tested})" for tested, count in weak.items())
    parts = [f"## {tally['passed']} of {units.pluralize(len(views), 'run')} passed", "", cases, ""]
    parts += ["| Package | Cell | Host | Started (UTC) | Verdict | Smoke cases | Took |"]
    parts += ["|-|-|-|-|-|-|-:|"]
    for view in sorted(views, key=lambda view: -VERDICTS.index(view.verdict)):
        counts = ", ".join(f"{count} {word}" for word, count in view.counts.items()) or "-"
        cells = (view.target.package, view.target.label, view.target.host, start_time_text(view))
        named = " | ".join(escape_markdown(cell, 100) for cell in cells)
        parts.append(
            f"| {named} | {_verdict_mark(view)} | {counts} | {units.format_seconds(view.seconds)} |"
        )
    return parts + _failure_cause_lines(views)


def _failure_cause_lines(views: Sequence[RunView]) -> list[str]:
    """Failures by cause, with all affected runs and the details of the first."""
    parts, known = [], unique_run_names(views)
    for cause in group_failure_causes(views)[:_DETAILED]:
        where = ", ".join(filter(None, (*cause.where, cause.first.signature)))
        parts += ["", f"### {escape_markdown(cause.title)} ({escape_markdown(where)})", ""]
        struck = [escape_markdown(known[number]) for number in cause.runs[:_STRUCK]]
        more = len(cause.runs) - len(struck)
        struck += [f"{more} more"] if more else []
        parts.append(f"{len(cause.runs)} of {len(views)} runs: {'; '.join(struck)}")
        parts += _failure_detail_lines(cause.first)
    return parts


def _failures(failures: Sequence[Failure]) -> list[str]:
    parts: list[str] = []
    for failure in failures:
        where = f"{failure.where}, {failure.signature}" if failure.signature else failure.where
        parts += [
            "",
            f"**{escape_markdown(failure.title)}** ({escape_markdown(where)})",
            *_failure_detail_lines(failure),
        ]
    return parts


def _failure_detail_lines(failure: Failure) -> list[str]:
    parts = ["", escape_markdown(failure.message, 1000)] if failure.message else []
    if failure.hint:
        parts += ["", f"→ {escape_markdown(failure.hint, 600)}"]
    if failure.excerpt is not None:
        parts += ["", *_fenced(failure.excerpt)]
    return parts


def _fenced(excerpt: Excerpt) -> list[str]:
    """The lines in a fence that they cannot close."""
    lines = [
        f"{'>' if excerpt.mark and n == excerpt.mark else ' '} {line}"
        for n, line in enumerate(excerpt.lines, excerpt.first)
    ]
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    where = f"{excerpt.source}, line {excerpt.mark}" if excerpt.mark else excerpt.source
    head = f"<details><summary>{escape_markdown(where)}</summary>"
    return [head, "", f"{fence}text", *lines[:40], fence, "", "</details>"]


def error_annotations(views: Sequence[RunView], *, stages: bool = True) -> list[str]:
    """Workflow commands, a line each, for the first ten failures of ``views``.

    ``stages=False`` leaves out a stage's own error where no diagnosis adds to it: whoever raised
    it prints that one.
    """
    made = []
    for view in views:
        for failure in view.failures:
            if stages or failure.kind != "stage" or failure.signature:
                made.append(_annotation(view, failure))
    return made[:_ANNOTATIONS]


def _annotation(view: RunView, failure: Failure) -> str:
    fields = {"file": failure.file, "line": str(failure.line) if failure.line else ""}
    fields["title"] = f"{view.target.label}: {failure.title}"[:200]
    text = "\n".join(filter(None, (failure.message[:1500], failure.hint[:600]))) or failure.title
    return github.workflow_command("error", text, **fields)
