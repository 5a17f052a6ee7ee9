"""``invoke audit``: what is inside any wheel, and where it will work."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

from pipelines.commands.command import Command
from pipelines.commands.options import Flag, Json, Options, amount, target, whole
from pipelines.errors import AuditError, ConfigError


def _card(text: Any) -> Any:
    """``--gpu`` of other commands takes no value, and may stand before this one."""
    if text is True:
        raise ConfigError(
            "--gpu: a value is missing", advice="Such as audit FILE --gpu 'RTX 4090'."
        )
    return text


def _words(flag: str, text: str | None) -> list[str]:
    """What is between the commas; nothing at all would look as if it had been checked."""
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    if text is not None and not words:
        raise ConfigError(f"--{flag}: nothing is named", advice=f"Leave --{flag} out, or name one.")
    return words


class AuditOptions(Options):
    """Flags of ``audit``."""

    axes = ("python",)
    shared = ("offline",)
    wheel: Annotated[
        str,
        Flag("a wheel, a directory, an address of a wheel or of an index's page, or NAME==VERSION"),
    ]
    also: Annotated[
        tuple[str, ...], Flag("one more; every further word is one as well", words=True)
    ] = ()
    gpu: Annotated[
        str | None,
        Flag("leave with 9 unless all of it runs on these, such as 'RTX 4090,A100' or 12.0"),
        BeforeValidator(_card),
    ] = None
    torch: Annotated[
        str | None,
        Flag("will it load beside these: releases, wheels, directories of torch, by commas"),
    ] = None
    most: Annotated[
        int | None,
        Flag("wheels of an index's page, the newest releases first (default: 50)"),
        BeforeValidator(whole("most")),
    ] = None
    seconds: Annotated[
        float | None,
        Flag("give up a wheel after so long: it is not checked, the others go on (default: 600)"),
        BeforeValidator(amount("seconds", "60")),
    ] = None
    as_json: Json = False
    junit: Annotated[str | None, Flag("write a JUnit report to this file")] = None
    html: Annotated[str | None, Flag("write one page to this file, to be sorted and filtered")] = (
        None
    )


def audit(options: AuditOptions, given: dict[str, Any]) -> int | None:
    """Look into any wheels, ours or not: which GPUs, which CUDA, what is needed, what is wrong.

    Leaves with 9 where something is wrong with one of them, or what was asked has no answer.
    """
    from pipelines.config import load_config
    from pipelines.console import answer, say
    from pipelines.examine import show
    from pipelines.examine.cards import named
    from pipelines.examine.examining import Asked, examine_all
    from pipelines.examine.listing import Listing
    from pipelines.examine.loading import beside
    from pipelines.examine.taking import take
    from pipelines.toolchain.lock import Cache, load_lock

    cards = tuple(map(named, _words("gpu", options.gpu)))
    torches = _words("torch", options.torch)
    report, html = target("junit", options.junit), target("html", options.html)
    offline = bool(given.get("offline")) or load_config().offline
    cache = Cache(load_lock(), offline=offline)
    if options.most is not None and options.most < 1:
        raise ConfigError(f"--most {options.most}: nothing would be looked at", advice="Name 1.")
    listings: list[Listing] = []

    def told(listing: Listing) -> None:
        """At once: what is fetched may be gigabytes."""
        listings.append(listing)
        if not options.as_json:
            show.listed(listing)

    python = given.get("python") or ""
    named_all = [options.wheel, *options.also]
    taken = take(named_all, cache, python=python, most=options.most, told=told)
    held = beside(torches, [one.file for one in taken], cache) if torches else None
    asked = Asked(cards, held)
    with show.progress(len(taken)) as step:
        examined = examine_all(taken, asked, step, seconds=options.seconds)
    if options.as_json:
        answer(show.told(examined, listings))
    else:
        show.show(examined)
    if report:
        show.junit(report, examined)
    if html:
        from pipelines.examine.page import write

        say(f"{html}  {write(html, examined, listings):,} bytes", style="bold")
    return AuditError.exit_code if any(one.failed for one in examined) else None


COMMAND = Command(audit, AuditOptions, alone=True)
