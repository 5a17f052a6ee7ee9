"""Brings a host into the wanted state: check everything, upload and apply what differs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rich.progress import Progress as Bars
from rich.table import Table

from pipelines.console import bytes_progress, console, fold, safe, say
from pipelines.errors import ProvisionError, RemoteError
from pipelines.hosts.base import Session
from pipelines.plan.resources import Wanted
from pipelines.stages.work import Work


def provision(work: Work, *, dry_run: bool = False) -> list[dict[str, Any]]:
    """Check the wanted resources and apply those that differ; a row for each.

    A dry run changes nothing and returns no rows.
    Raises :class:`ProvisionError` at the first that cannot be brought about. Running it again
    goes on from there, and changes nothing once all is well.
    """
    began = time.monotonic()
    with fold(f"Provision {work.host.name}"):
        session = work.session
        specs = [wanted.spec for wanted in work.wanted]
        checks = session.call("provision.check_all", specs=specs)
        rows: list[dict[str, Any]] = []
        for wanted, check in zip(work.wanted, checks, strict=True):
            row = {
                "id": wanted.id,
                "why": wanted.why,
                "wanted": wanted.summary,
                "found": str(check["found"]),
                "changed": False,
                "ok": bool(check["ok"]),
                "seconds": 0.0,
            }
            rows.append(row)
        if not dry_run:
            for wanted, row in zip(work.wanted, rows, strict=True):
                if not row["ok"]:
                    _apply(work, session, wanted, row)
        console.print(_table(rows, dry_run=dry_run))
        changed = sum(bool(row["changed"]) for row in rows)
        differ = sum(not row["ok"] for row in rows)
        said = f"{differ} would change" if dry_run else f"{changed} changed"
        say(f"{len(rows)} resources, {said}, {time.monotonic() - began:.1f} s", style="green")
    return [] if dry_run else rows


def _apply(work: Work, session: Session, wanted: Wanted, row: dict[str, Any]) -> None:
    began = time.monotonic()
    with bytes_progress() as progress:
        for tool, target in wanted.uploads.items():
            _upload(work, session, tool, target, progress)
        progress.add_task(f"apply {wanted.id}", total=None)
        try:
            check = session.call("provision.apply_one", spec=wanted.spec)
        except RemoteError as error:
            raise ProvisionError(
                f"{wanted.id}: wanted {wanted.summary}, found {row['found']}, "
                f"and it could not be changed: {error.message}",
                advice=error.advice or "Mend that on the host; provision goes on from here.",
            ) from error
    if not check["ok"]:
        raise ProvisionError(
            f"{wanted.id}: wanted {wanted.summary}; after applying it the host still has "
            f"{check['found']}",
            advice="Something on the host undoes it: a policy, a virus scanner, another user.",
        )
    row |= {"changed": True, "ok": True, "seconds": time.monotonic() - began}


def _upload(work: Work, session: Session, tool: str, target: str, progress: Bars) -> None:
    """Bring a pinned file to the host unless the very same is there already."""
    pin = work.cache.lock.tool(tool)

    def bar(verb: str) -> Callable[[int, int], None]:
        task = progress.add_task(f"{verb} {tool}", total=pin.size)
        return lambda done, total: progress.update(task, completed=done, total=total)

    stat = session.call("files.stat", path=target)
    same_size = stat is not None and stat.get("size") == pin.size
    if same_size and session.call("files.sha256", path=target) == pin.sha256:
        return
    fetched = bar("fetch")
    source = work.cache.fetch(tool, lambda _, done, total: fetched(done, total))
    session.put(source, target, progress=bar("upload"))


def _table(rows: list[dict[str, Any]], *, dry_run: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("resource", "wanted", "found", "would change" if dry_run else "changed"):
        table.add_column(column, overflow="fold")
    for row in rows:
        if dry_run:
            mark = "[dim]no[/dim]" if row["ok"] else "[yellow]yes[/yellow]"
        else:
            mark = (
                f"[yellow]yes[/yellow] {row['seconds']:.1f} s"
                if row["changed"]
                else "[dim]no[/dim]"
            )
        table.add_row(row["id"], safe(row["wanted"]), safe(row["found"], 80), mark)
    return table
