"""``invoke publish``: wheels of runs into an index that pip and uv install from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from pipelines.commands.command import Command
from pipelines.commands.options import Flag, Json, Options
from pipelines.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.index.catalogue import Wheel
    from pipelines.index.publishing import Done
    from pipelines.index.releases import Release
    from pipelines.index.store import Store

_GITHUB = "github:"


class PublishOptions(Options):
    """Flags of ``publish``."""

    runs: Annotated[
        tuple[str, ...],
        Flag("runs below out/, their directories, or a directory of runs", words=True),
    ] = ()
    to: Annotated[
        str | None, Flag("a directory, s3://BUCKET/PATH, or github:OWNER/REPO@TAG for the wheels")
    ] = None
    pages: Annotated[
        str | None, Flag("with github: where the pages go, such as a checkout of gh-pages")
    ] = None
    untested: Annotated[
        bool, Flag("also wheels that no GPU has run; pages and catalogue say it of them")
    ] = False
    no_variants: Annotated[bool, Flag("plain wheels alone")] = False
    yank: Annotated[str | None, Flag("take this file back: installers pass it over")] = None
    because: Annotated[str | None, Flag("with --yank: why, in a line")] = None
    tracks: Annotated[
        str | None,
        Flag("address of the index of which the projects here are the same (PEP 708)"),
    ] = None
    unlock: Annotated[bool, Flag("take away the lock of a publish that has died")] = False
    check: Annotated[
        str | None, Flag("fetch all of the index at this address as its users do, and compare it")
    ] = None
    as_json: Json = False
    dry_run: Annotated[bool, Flag("only say what would be published, or why not")] = False


def publish(options: PublishOptions) -> None:
    """Publish the wheels of runs: add them to an index, which is whole at every moment.

    Leaves with 9 for a wheel that must not be published, with 11 where the index cannot be written
    or somebody else is at it: then nothing was changed that anybody sees. With --check it leaves
    with 9 for other bytes, with 11 for what is not served, with 5 where there is no answer.
    """
    from pipelines.commands.find import find
    from pipelines.console import answer, say
    from pipelines.hosttext import line
    from pipelines.index.outside import look
    from pipelines.index.publishing import Order, planned
    from pipelines.index.publishing import publish as do
    from pipelines.stages.publish import offers_of
    from pipelines.stages.shown import rebuilt_of

    if options.check and not (options.to or options.runs):
        seen = look(options.check)
        if options.as_json:
            problems = [problem._asdict() for problem in seen.problems]
            counts = {"listed": dict(seen.listed), "fetched": dict(seen.fetched)}
            answer({"schema": 1, "check": options.check, **counts, "problems": problems})
        seen.require()
        for agent, many in seen.fetched.items():
            say(f"{agent}: {many} pages and files, all as the catalogue has them", "green")
        return
    _require_sense(options)
    runs = [run for name in options.runs for run in find(name)]
    offers = offers_of(runs, untested=options.untested)
    store, release = _places(options)
    order = Order(
        offers=offers,
        rebuilt=[rebuilt_of(run) for run in runs if run.facts().rebuilds],
        variants=not options.no_variants,
        yank=options.yank or "",
        because=line(options.because or "", 300),
        tracks=options.tracks,
        unlock=options.unlock,
    )
    if options.dry_run:
        done = planned(store, order, release=release)
    else:
        done = do(store, order, release=release, say=_tell_wheel)
    _tell(done, options)


def _require_sense(options: PublishOptions) -> None:
    from pipelines.hosttext import line
    from pipelines.index.catalogue import ADDRESS

    if not options.to or options.check:
        raise ConfigError(
            "publish: one of --to and --check is expected: an index to publish to, or to look at",
            advice="Name a directory, s3://BUCKET/PATH or github:OWNER/REPO@TAG.",
        )
    if bool(options.yank) != bool(options.because):
        raise ConfigError(
            "--yank and --because go together: who has the file installed reads why",
            advice="Such as --yank FILE --because 'crashes on sm_89'.",
        )
    if not options.runs and not options.yank and options.tracks is None:
        raise ConfigError(
            "publish: no run is named", advice="Such as: wcw publish latest --to DIRECTORY"
        )
    if options.tracks and not re.fullmatch(ADDRESS, options.tracks):
        raise ConfigError(
            f"--tracks {line(options.tracks, 200)}: no address of an index",
            advice="Such as https://example.org/simple/, with / at its end.",
        )
    if options.to.startswith(_GITHUB) != bool(options.pages):
        raise ConfigError(
            "--pages goes with --to github:...: a release holds files, and shows no pages",
            advice="Name a directory that GitHub Pages or another server shows.",
        )


def _places(options: PublishOptions) -> tuple[Store, Release | None]:
    from pipelines.index.releases import Release
    from pipelines.index.store import Store

    to = options.to or ""
    if options.pages:
        return Store(options.pages), Release(to)
    return Store(to), None


def _tell_wheel(wheel: Wheel) -> None:
    from pipelines import units
    from pipelines.console import say
    from pipelines.hosttext import safe
    from pipelines.index.rows import smoke_words

    say(safe(wheel.file))
    style = "yellow" if wheel.smoke.verdict == "untested" else "dim"
    say(f"  {units.size(wheel.size)}, {safe(smoke_words(wheel))}", style)


def _tell(done: Done, options: PublishOptions) -> None:
    from pipelines import units
    from pipelines.console import answer, say
    from pipelines.index.pages import views

    if options.as_json:
        answer(
            {
                "schema": 1,
                "to": options.to,
                "dry_run": options.dry_run,
                "generation": done.catalogue.generation,
                "published": [one.model_dump(mode="json") for one in done.fresh],
                "wheels": len(done.catalogue.wheels),
                "pages": list(done.pages),
            }
        )
        return
    would = "would be " if options.dry_run else ""
    if options.dry_run:
        for one in done.fresh:
            _tell_wheel(one)
    say(
        f"{units.counted(len(done.fresh), 'wheel')} {would}published, "
        f"{len(done.catalogue.wheels)} in all; "
        f"{units.counted(len(done.pages), 'page')} {would}written",
        "green",
    )
    say(f"Indexes in it: {', '.join(f'{place}/' for place in sorted(views(done.catalogue)))}")


COMMAND = Command(publish, PublishOptions, alone=True)
