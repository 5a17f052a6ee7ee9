"""``invoke audit``: what is inside any wheel, and where it will work."""

from __future__ import annotations

from pipelines.cli.command import command
from pipelines.cli.options import (
    Flags,
    parse_output_path,
    parse_positive_number,
    parse_whole_number,
)
from pipelines.core.errors import AuditError, ConfigError


def _split_flag_values(flag: str, text: str | None) -> list[str]:
    """What is between the commas; nothing at all would look as if it had been checked."""
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    if text is not None and not words:
        raise ConfigError(f"--{flag}: the value is empty", hint=f"Leave --{flag} out, or name one.")
    return words


@command(
    shared=("python", "offline"),
    help={
        "wheel": "a wheel, a directory, an address of a wheel or of an index's page, "
        "or NAME==VERSION",
        "also": "more of them",
        "gpu": "exit with 9 unless all of it runs on these, such as 'RTX 4090,A100' or 12.0",
        "torch": "check whether it loads with these releases, wheels or directories of torch",
        "most": "wheels of an index's page, the newest releases first (default: 50)",
        "seconds": "give up a wheel after so long: it is not checked, the others go on "
        "(default: 600)",
        "junit": "write a JUnit report to this file",
        "html": "write a page that can be sorted and filtered to this file",
    },
    further="also",
    alone=True,
)
def audit(
    flags: Flags,
    wheel: str,
    *,
    also: list[str] | None = None,
    gpu: str | None = None,
    torch: str | None = None,
    most: str | None = None,
    seconds: str | None = None,
    json: bool = False,
    junit: str | None = None,
    html: str | None = None,
) -> int | None:
    """Examine any wheels: their GPUs and CUDA, what they require, and what is wrong.

    Exits with status 9 if something is wrong with one of them, or a question has no answer.
    """
    from pipelines.audit import show
    from pipelines.audit.cards import parse_gpu_option
    from pipelines.audit.examination import AuditOptions, examine_all
    from pipelines.audit.inputs import resolve_inputs
    from pipelines.audit.listing import Listing
    from pipelines.audit.load_checks import references_to
    from pipelines.core.console import print_json, say
    from pipelines.plan.config.model import load_config
    from pipelines.toolchain.lock import Cache, load_lock

    cards = tuple(map(parse_gpu_option, _split_flag_values("gpu", gpu)))
    count, limit = parse_whole_number("most", most), parse_positive_number("seconds", "60", seconds)
    torches = _split_flag_values("torch", torch)
    report, page = parse_output_path("junit", junit), parse_output_path("html", html)
    offline = bool(flags.get("offline")) or load_config().offline
    cache = Cache(load_lock(), offline=offline)
    if count is not None and count < 1:
        raise ConfigError(f"--most {most}: expected 1 or more", hint="Name 1.")
    listings: list[Listing] = []

    def report_listing(listing: Listing) -> None:
        """At once: what is fetched may be gigabytes."""
        listings.append(listing)
        if not json:
            show.print_listing(listing)

    python = flags.get("python") or ""
    named_all = [wheel, *(also or ())]
    taken = resolve_inputs(named_all, cache, python=python, most=count, report=report_listing)
    references = references_to(torches, [item.file for item in taken], cache) if torches else None
    options = AuditOptions(cards, references)
    with show.progress(len(taken)) as step:
        examined = examine_all(taken, options, step, seconds=limit)
    if json:
        print_json(show.json_payload(examined, listings))
    else:
        show.show(examined)
    if report:
        show.write_audit_junit(report, examined)
    if page:
        from pipelines.audit.page import write_wheels_page

        say(f"{page}  {write_wheels_page(page, examined, listings):,} bytes", style="bold")
    return AuditError.exit_code if any(wheel.failed for wheel in examined) else None
