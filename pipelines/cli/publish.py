"""``invoke publish``: wheels of runs into an index that pip and uv install from."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.cli.command import command
from pipelines.cli.options import Flags
from pipelines.core.errors import ConfigError
from pipelines.core.evidence import ANY, TRUST

if TYPE_CHECKING:
    from pipelines.publish.index.catalogue import Wheel
    from pipelines.publish.index.publishing import Done


@command(
    help={
        "runs": "runs below out/, their directories, or a directory of runs",
        "to": "a directory, s3://BUCKET/PATH, or github:OWNER/REPO@TAG for the wheels",
        "pages": "with github: where the pages go, such as a checkout of gh-pages",
        "untested": "also wheels that were not run on a GPU, marked in pages and catalogue",
        "preview": "a preview index of sandbox wheels, which installers do not choose",
        "no_variants": "only plain wheels",
        "yank": "yank this file: installers skip it",
        "because": "with --yank: the reason, in one line",
        "tracks": "address of the index whose projects these are (PEP 708)",
        "unlock": "remove the lock of a publish that was killed",
        "trust": "KEY=KIND: records of another controller (or 'any') on windows, linux or sandbox "
        "hosts are believed; may be repeated",
        "check": "download the whole index at this address as its users do, and compare it",
        "dry_run": "only say what would be published, or why not",
    },
    further="runs",
    alone=True,
    many=("trust",),
)
def publish(
    _: Flags,
    *,
    runs: list[str] | None = None,
    to: str | None = None,
    pages: str | None = None,
    untested: bool = False,
    preview: bool = False,
    no_variants: bool = False,
    yank: str | None = None,
    because: str | None = None,
    tracks: str | None = None,
    unlock: bool = False,
    trust: list[str] | None = None,
    check: str | None = None,
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """Publish the wheels of runs to an index, which is consistent at any moment.

    Exits with status 9 for a wheel that must not be published, with 11 where the index cannot be
    written or another publish is running: then nothing was changed. With --check it exits with 9
    for other bytes, with 11 for what is not served, with 5 without an answer.
    """
    from pipelines.cli.find import find_runs
    from pipelines.core.console import print_json, say
    from pipelines.core.hosttext import safe_line
    from pipelines.plan.config.model import load_config
    from pipelines.publish.index.catalogue import ADDRESS
    from pipelines.publish.index.outside import inspect_published_index
    from pipelines.publish.index.publishing import Order, publish_wheels
    from pipelines.publish.index.releases import Release
    from pipelines.publish.index.store import Store
    from pipelines.publish.offers import collect_offers
    from pipelines.publish.shown import rebuilt_of

    if check and not (to or runs):
        seen = inspect_published_index(check)
        if json:
            problems = [problem._asdict() for problem in seen.problems]
            counts = {"listed": dict(seen.listed), "fetched": dict(seen.fetched)}
            print_json({"schema": 1, "check": check, **counts, "problems": problems})
        seen.require()
        for agent, many in seen.fetched.items():
            say(f"{agent}: {many} pages and files, all as in the catalogue", "green")
        return
    if not to or check:
        raise ConfigError(
            "publish: one of --to and --check is expected: an index to publish to, or to look at",
            hint="Name a directory, s3://BUCKET/PATH or github:OWNER/REPO@TAG.",
        )
    named = bool(runs or yank) or tracks is not None
    _require_valid_usage(
        named, "publish: no run is named", "Such as: wcw publish latest --to DIRECTORY"
    )
    _require_valid_usage(
        bool(yank) == bool(because),
        "--yank and --because go together: users of the file see the reason",
        "Such as --yank FILE --because 'crashes on sm_89'.",
    )
    _require_valid_usage(
        re.fullmatch(ADDRESS, tracks or "") is not None,
        f"--tracks {safe_line(tracks or '', 200)}: not the address of an index",
        "Such as https://example.org/simple/, with / at its end.",
    )
    _require_valid_usage(
        to.startswith("github:") == bool(pages),
        "--pages goes with --to github:...: a release has files, but no pages",
        "Name a directory that GitHub Pages or another server serves.",
    )
    found = [run for name in runs or () for run in find_runs(name)]
    trusted = [*load_config().provenance.trust, *map(_validate_trust_key, trust or ())]
    with tempfile.TemporaryDirectory(prefix="wcw-publish-") as room:
        order = Order(
            offers=collect_offers(
                found, Path(room), untested=untested, preview=preview, trusted=trusted
            ),
            rebuilt=[rebuilt_of(run) for run in found if run.facts().rebuilds],
            variants=not no_variants,
            yank=yank or "",
            because=safe_line(because or "", 300),
            tracks=tracks,
            unlock=unlock,
            trusted=trusted,
        )
        store, release = Store(pages or to), Release(to) if pages else None
        done = publish_wheels(store, order, release=release, say=_tell_wheel, dry_run=dry_run)
    if json:
        print_json(
            {
                "schema": 1,
                "to": to,
                "dry_run": dry_run,
                "generation": done.catalogue.generation,
                "published": [one.model_dump(mode="json") for one in done.fresh],
                "wheels": len(done.catalogue.wheels),
                "pages": list(done.pages),
            }
        )
    else:
        _report_published(done, dry_run=dry_run)


def _require_valid_usage(holds: bool, message: str, hint: str) -> None:
    if not holds:
        raise ConfigError(message, hint=hint)


def _validate_trust_key(text: str) -> str:
    good = re.fullmatch(TRUST, text.replace(f"{ANY}=", "0" * 64 + "=")) is not None
    message = f"--trust {text[:80]!r}: expected KEY=KIND with the 64 hex digits of a key, or {ANY}"
    _require_valid_usage(good, message, "A refusal names the key, and the kinds of hosts.")
    return text


def _tell_wheel(wheel: Wheel) -> None:
    from pipelines.core import units
    from pipelines.core.console import say
    from pipelines.core.hosttext import safe_text
    from pipelines.publish.index.rows import smoke_words

    say(safe_text(wheel.file))
    style = "yellow" if wheel.smoke.verdict == "untested" else "dim"
    say(f"  {units.format_size(wheel.size)}, {safe_text(smoke_words(wheel))}", style)


def _report_published(done: Done, *, dry_run: bool) -> None:
    from pipelines.core import units
    from pipelines.core.console import say
    from pipelines.publish.index.pages import index_views

    would = "would be " if dry_run else ""
    if dry_run:
        for one in done.fresh:
            _tell_wheel(one)
    say(
        f"{units.pluralize(len(done.fresh), 'wheel')} {would}published, "
        f"{len(done.catalogue.wheels)} in all; "
        f"{units.pluralize(len(done.pages), 'page')} {would}written",
        "green",
    )
    if done.catalogue.preview:
        say("It is a preview: every page says so, and no installer chooses its wheels.", "yellow")
    say(f"Indexes in it: {', '.join(f'{place}/' for place in sorted(index_views(done.catalogue)))}")
