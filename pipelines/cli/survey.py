"""``invoke survey``: what is inside published wheels, without fetching all of them."""

from __future__ import annotations

from pathlib import Path

from pipelines.cli.command import command
from pipelines.cli.options import (
    Flags,
    parse_output_path,
    parse_positive_number,
    parse_whole_number,
)
from pipelines.core.errors import AuditError, ConfigError


@command(
    shared=("python",),
    help={
        "source": "an index's page, github:OWNER/REPO, huggingface:OWNER/REPO, "
        "a wheel's address, NAME==VERSION, or a text file with one of these in each line",
        "also": "more of them",
        "megabytes": "how much of each wheel is fetched at most; a smaller wheel is read whole "
        "(default: 10)",
        "most": "wheels of a page or repository, the newest releases first (default: 50)",
        "to": "keep each result in this file; wheels that are in it are not read again",
        "since": "the file of an earlier survey, to show what has changed",
        "without": "a text file of wheels to leave out: projects, or beginnings of addresses",
        "html": "write a page that can be sorted and filtered to this file",
    },
    further="also",
    alone=True,
)
def survey(
    flags: Flags,
    source: str,
    *,
    also: list[str] | None = None,
    megabytes: str | None = None,
    most: str | None = None,
    to: str | None = None,
    since: str | None = None,
    without: str | None = None,
    json: bool = False,
    html: str | None = None,
) -> int | None:
    """Examine published wheels by parts of each: what they require, what is wrong or new.

    Exits with status 9 if a source or a wheel could not be read.
    """
    from pipelines.audit import page, show, survey
    from pipelines.audit.examination import AuditOptions, examine_all
    from pipelines.audit.findings import WheelReport
    from pipelines.audit.listing import Listing
    from pipelines.core import units
    from pipelines.core.console import console, print_json, say
    from pipelines.core.files import write_atomic
    from pipelines.reports.findings import findings_table

    bound = int((parse_positive_number("megabytes", "10", megabytes) or 10) * 1_000_000)
    count = parse_whole_number("most", most)
    if count is not None and count < 1:
        raise ConfigError(f"--most {most}: expected 1 or more", hint="Name 1.")
    results, place = parse_output_path("to", to), parse_output_path("html", html)
    out = survey.read_list_file(Path(without)) if without else []
    earlier = survey.read_survey_file(Path(since)) if since else []
    known = survey.start_survey(results) if results else {}
    listings: list[Listing] = []
    words, python = [source, *(also or ())], flags.get("python") or ""
    listed, notes = survey.list_survey_wheels(words, python, count, listings.append)
    items = [item for item in listed if not survey.is_out(item, out)]
    left = [one for one in items if (one.place, one.file, one.sha256) not in known]
    with show.progress(len(left)) as step:

        def keep(one: WheelReport) -> None:
            if results:
                survey.append_report(results, one)
            step(one)

        read = iter(examine_all(left, AuditOptions(most=bound), keep, workers=6))  # most wait
    wheels = [known.get((one.place, one.file, one.sha256)) or next(read) for one in items]
    unread = bool(notes) or not all(map(survey.is_read, wheels))
    if since:
        complete = not notes and all(listing.complete for listing in listings)
        kept = [one for one in earlier if not survey.is_out(one, out)]
        notes += survey.survey_changes(wheels, kept, complete=complete)
    summary = (
        f"{units.pluralize(len(wheels), 'wheel')}, {len(listed) - len(items)} left out on request; "
        f"{units.format_size(sum(wheel.fetched for wheel in wheels))} of "
        f"{units.format_size(sum(wheel.size for wheel in wheels))} fetched"
    )
    if json:
        rows = [one.model_dump(mode="json") for one in notes]
        print_json(show.json_payload(wheels, listings) | {"notes": rows, "summary": summary})
    else:
        for listing in listings:
            say(listing.summary, style="dim")
        show.show(wheels)
        console.print(findings_table(notes))
        say(summary, style="bold")
    if place and wheels:
        more = page.Survey(summary, tuple(notes), tuple(map(survey.issue_sentence, wheels)))
        write_atomic(place, page.render(wheels, listings, more).encode())
    return AuditError.exit_code if unread else None
