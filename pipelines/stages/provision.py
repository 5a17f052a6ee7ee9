"""Brings a host into the wanted state: check everything, then upload and apply what differs."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path, PureWindowsPath
from typing import Any

from rich.markup import escape
from rich.table import Table

from pipelines.console import bars, console, fold, say
from pipelines.errors import PipelineError, ProvisionError, RemoteError, StorageError
from pipelines.hosttext import safe
from pipelines.provisioning.resources import Wanted
from pipelines.remote import files
from pipelines.remote import provision as remote_provision
from pipelines.session.base import Bars
from pipelines.stages.work import Work

_LOG_LIMIT = 32 << 20  # bytes of a log that are brought home
_MIN_WIDTH = 12  # of a column, or a long neighbour folds it to nothing
_UNPACKED = 4  # a pinned archive and its content, in sizes of the archive


def provision(work: Work, *, dry_run: bool = False) -> list[dict[str, Any]]:
    """Check the wanted resources and apply those that differ; a row for each.

    A dry run changes nothing, prints what would be done, and returns no rows.
    Raises :class:`ProvisionError` at the first that cannot be brought about. Running it again
    goes on from there, and changes nothing once all is well.
    """
    began = time.monotonic()
    with fold(f"Provision {work.host.name}"):
        wanted = work.wanted
        checks = work.session.call(remote_provision.check_all, specs=[w.spec for w in wanted])
        rows = [_row(one, check) for one, check in zip(wanted, checks, strict=True)]
        if dry_run:
            console.print(_planned(rows))
            differ = sum(not row["ok"] for row in rows)
            say(f"{len(rows)} resources, {differ} would change", style="green")
            return []
        try:
            for one, row in zip(wanted, rows, strict=True):
                if one.spec["kind"] == "reboot":  # what went before may have asked for it
                    _restart(work, one, row)
                elif not row["ok"]:
                    _apply(work, one, row)
        finally:
            console.print(_table(rows))
        changed = sum(bool(row["changed"]) for row in rows)
        seconds = time.monotonic() - began
        say(f"{len(rows)} resources, {changed} changed, {seconds:.1f} s", style="green")
    return rows


def _row(wanted: Wanted, check: remote_provision.Row) -> dict[str, Any]:
    return {
        "id": wanted.id,
        "why": wanted.why,
        "wanted": wanted.summary,
        "found": str(check["found"]),
        "plan": str(check["plan"]),
        "changed": False,
        "ok": bool(check["ok"]),
        "seconds": 0.0,
    }


def _apply(work: Work, wanted: Wanted, row: dict[str, Any]) -> None:
    began = time.monotonic()
    _require_space(work, wanted)
    with bars() as show:
        for tool, target in wanted.uploads.items():
            _upload(work, tool, target, show)
        show(f"apply {wanted.id}", 0, 0)
        try:
            told = work.session.call(
                remote_provision.apply_one, spec=wanted.spec, marker=work.layout.marker
            )
        except RemoteError as error:
            raise _failed(wanted, row, error.message, error.advice) from error
    if told["error"]:
        logs = _bring_logs(work, wanted, told["logs"])
        raise _failed(wanted, row, str(told["error"]), str(told["advice"]), logs)
    if not told["ok"]:
        raise ProvisionError(
            f"{wanted.id}: wanted {wanted.summary}; after applying it the host still has "
            f"{told['found']}",
            advice="Something on the host undoes it: a policy, a virus scanner, another user.",
        )
    row |= {"changed": True, "ok": True, "seconds": time.monotonic() - began}
    row["reboot"] = str(told["reboot"])


def _require_space(work: Work, wanted: Wanted) -> None:
    """Refuse before anything is uploaded what the host's disk cannot hold unpacked as well."""
    need = _UNPACKED * sum(work.cache.lock.tool(tool).size for tool in wanted.uploads)
    if not need:
        return
    free = int(work.session.call(remote_provision.free_space, path=work.layout.temp))
    if free < need:
        raise StorageError(
            f"{wanted.id}: {work.host.name} has {free >> 20} MiB free, "
            f"about {need >> 20} MiB are needed",
            advice="Free space on the host; old jobs are in the build root.",
        )


def _failed(
    wanted: Wanted, row: dict[str, Any], why: str, advice: str, logs: Path | None = None
) -> ProvisionError:
    where = f"\nIts logs are in {logs}." if logs else ""
    return ProvisionError(
        f"{wanted.id}: wanted {wanted.summary}, found {row['found']}, "
        f"and it could not be changed: {why}{where}",
        advice=advice or "Mend that on the host; provision goes on from here.",
    )


def _bring_logs(work: Work, wanted: Wanted, paths: list[str]) -> Path | None:
    """Fetch an installer's logs; what cannot be had does not hide the failure itself."""
    folder = work.out / "provision" / work.host.name / wanted.id.replace(" ", "-")
    for path in paths:
        name = PureWindowsPath(str(path)).name
        try:
            stat = work.session.call(files.stat, path=path)
            if stat is not None and int(stat["size"]) <= _LOG_LIMIT:
                work.session.get(path, folder / name)
        except PipelineError as error:
            say(f"{name} could not be brought home: {error.message}", style="yellow")
    return folder if folder.is_dir() else None


def _restart(work: Work, wanted: Wanted, row: dict[str, Any]) -> None:
    """Restart Windows if something waits for that, and go on with a new session."""
    began = time.monotonic()
    (check,) = work.session.call(remote_provision.check_all, specs=[wanted.spec])
    row |= {"ok": bool(check["ok"]), "found": str(check["found"]), "plan": str(check["plan"])}
    if row["ok"]:
        return
    say(f"restarting {work.host.name}: {safe(row['found'], 200)}", style="yellow")
    work.adopt(work.host.restart(work.session))
    (check,) = work.session.call(remote_provision.check_all, specs=[wanted.spec])
    if not check["ok"]:
        raise ProvisionError(
            f"{wanted.id}: {work.host.name} is back, but still waits for: {check['found']}",
            advice="Restart it by hand, then provision again.",
        )
    row |= {"changed": True, "ok": True, "seconds": time.monotonic() - began}


def _upload(work: Work, tool: str, target: str, show: Bars) -> None:
    """Bring a pinned file to the host unless the very same is there already."""
    session, pin = work.session, work.cache.lock.tool(tool)
    stat = session.call(files.stat, path=target)
    same_size = stat is not None and stat.get("size") == pin.size
    if same_size and session.call(files.sha256, path=target) == pin.sha256:
        return
    source = work.cache.fetch(tool, lambda what, *done: show(f"fetch {what}", *done))
    session.put(source, target, progress=partial(show, f"upload {tool}"))


def _shown(text: str, limit: int = 2000) -> str:
    """What a host says, never as markup."""
    return escape(safe(text, limit))


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("resource", "wanted", "found", "changed"):
        table.add_column(column, overflow="fold", min_width=_MIN_WIDTH)
    for row in rows:
        if not row["ok"]:
            mark = "[red]not yet[/red]"
        elif row["changed"]:
            mark = f"[yellow]yes[/yellow] {row['seconds']:.1f} s"
        else:
            mark = "[dim]no[/dim]"
        table.add_row(row["id"], _shown(row["wanted"]), _shown(row["found"], 80), mark)
    return table


def _planned(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("resource", "found", "would do"):
        table.add_column(column, overflow="fold", min_width=_MIN_WIDTH)
    for row in rows:
        todo = "[dim]nothing[/dim]" if row["ok"] else f"[yellow]{_shown(row['plan'], 300)}[/yellow]"
        table.add_row(row["id"], _shown(row["found"], 80), todo)
    return table
