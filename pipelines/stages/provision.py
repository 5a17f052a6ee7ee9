"""Brings a host into the wanted state: check everything, then upload and apply what differs."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path, PureWindowsPath

from rich.markup import escape
from rich.table import Table

from pipelines.core.console import console, log_group, say, transfer_progress
from pipelines.core.errors import (
    PipelineError,
    ProvisionError,
    RemoteError,
    StorageError,
)
from pipelines.core.hosttext import safe_text
from pipelines.core.logs import is_verbose
from pipelines.core.units import join_first, pluralize
from pipelines.hosts.live import LiveSession
from pipelines.plan.matrix.buildplan import BuildPlan
from pipelines.plan.provisioning.resources import DesiredResource
from pipelines.record.results import ProvisionResult, ResourceResult
from pipelines.record.run import StageNotes
from pipelines.remote import files, reboot
from pipelines.remote import provision as remote_provision
from pipelines.session.base import Bars

_log = logging.getLogger(__name__)
_LOG_LIMIT = 32 << 20  # bytes of a log that are downloaded
_MIN_WIDTH = 12  # of a column, or a long neighbour folds it to nothing
_SHA256 = re.compile(r"[0-9a-f]{64}")
_UNPACKED = 4  # a pinned archive and its content, in sizes of the archive


def provision(
    session: LiveSession, plan: BuildPlan, log: StageNotes, *, repair: bool = False
) -> ProvisionResult:
    """Check the desired resources and apply those that differ.

    ``repair``: verify every unpacked byte. Raises :class:`ProvisionError` for the first that cannot
    be applied; the next run continues from there, and changes nothing once all are right.
    """
    began = time.monotonic()
    with log_group(f"Provision {plan.host.name}"):
        session.prepare(repair=repair)
        every = _asked(plan, repair=repair)
        rows = check_resources(session, every)
        _refuse_unpinned(plan, every, rows)
        try:
            for number, wanted in enumerate(every):
                log.keep(ProvisionResult(resources=tuple(rows)))
                if wanted.spec["kind"] == "reboot":  # what went before may have asked for it
                    rows[number] = _restart(session, wanted, plan.layout.build_root)
                elif not rows[number].ok:
                    rows[number] = _apply(session, plan, wanted, rows[number])
        finally:
            if shown := [row for row in rows if row.changed or not row.ok or is_verbose()]:
                console.print(_provision_result_table(shown))
        changed = sum(row.changed for row in rows)
        seconds = time.monotonic() - began
        say(f"{len(rows)} resources, {changed} changed, {seconds:.1f} s", style="green")
    return log.keep(ProvisionResult(resources=tuple(rows)))


def show_changes(session: LiveSession, plan: BuildPlan, *, repair: bool = False) -> None:
    """Print what provisioning would do, and change nothing."""
    with log_group(f"Provision {plan.host.name}"):
        if unmade := session.host.unmade():
            count = pluralize(len(_asked(plan, repair=repair)), "resource")
            say(f"{unmade}; then {count} would be checked", style="yellow")
            return
        rows = check_resources(session, _asked(plan, repair=repair))
        if shown := [row for row in rows if not row.ok or is_verbose()]:
            console.print(_provision_plan_table(shown))
        _refuse_unpinned(plan, plan.wanted, rows)
        differ = sum(not row.ok for row in rows)
        say(f"{len(rows)} resources, {differ} would change", style="green")


def _asked(plan: BuildPlan, *, repair: bool) -> list[DesiredResource]:
    """What is wanted; for a repair the host looks at every byte."""
    thorough = {"thorough": True} if repair else {}
    return [replace(one, spec={**one.spec, **thorough}) for one in plan.wanted]


def check_resources(session: LiveSession, every: list[DesiredResource]) -> list[ResourceResult]:
    """Every wanted resource as it is now: one question to the host."""
    answers = session.call(remote_provision.check_all, specs=[one.spec for one in every])
    return [_resource_result(one, found) for one, found in zip(every, answers, strict=True)]


def _refuse_unpinned(
    plan: BuildPlan, every: Iterable[DesiredResource], rows: Iterable[ResourceResult]
) -> None:
    """Raise :class:`LockError` with all that the host does not have and the lock has not pinned."""
    missing = (one.uploads for one, row in zip(every, rows, strict=True) if not row.ok)
    names = dict.fromkeys(name for uploads in missing for name in uploads)
    tools = plan.cache.lock.tools
    if unpinned := [name for name in names if not tools[name].pinned]:
        raise plan.cache.lock.not_pinned(unpinned)


def _resource_result(
    wanted: DesiredResource, answer: remote_provision.Row | remote_provision.Outcome
) -> ResourceResult:
    values = answer.get("values") or {}
    uploads = answer.get("uploads")
    hashes = {tool: values.get(tool, values.get(path)) for tool, path in wanted.uploads.items()}
    if answer.get("doubt"):  # hashes from a list were not computed from the files
        hashes = {}
    return ResourceResult(
        id=wanted.id,
        kind=wanted.spec["kind"],
        why=wanted.why,
        wanted=wanted.summary,
        found=safe_text(str(answer["found"])),
        plan=safe_text(str(answer.get("plan") or "")),
        uploads=None if uploads is None else tuple(t for t in wanted.uploads if t in uploads),
        sha256={t: str(sha) for t, sha in hashes.items() if _SHA256.fullmatch(str(sha))},
        values={
            safe_text(str(key), 80): safe_text(str(value), 200) for key, value in values.items()
        },
        ok=bool(answer["ok"]),
    )


def _apply(
    session: LiveSession, plan: BuildPlan, wanted: DesiredResource, row: ResourceResult
) -> ResourceResult:
    began = time.monotonic()
    _log.info("%s: applying %s", plan.host.name, wanted.id)
    tools = wanted.uploads if row.uploads is None else row.uploads
    with transfer_progress() as show:
        pins = {tool: plan.cache.lock.tool(tool) for tool in tools}
        fresh = [
            tool
            for tool, pin in pins.items()
            if not session.has(wanted.uploads[tool], pin.sha256, pin.size)
        ]
        _require_space(session, plan, wanted, fresh)
        plan.cache.fetch_all(fresh, lambda what, *done: show(f"fetch {what}", *done))
        if not all(plan.cache.lock.tool(tool).size for tool in fresh):
            _require_space(session, plan, wanted, fresh)  # now all sizes are known
        for tool in fresh:
            _upload_pinned_tool(session, plan, tool, wanted.uploads[tool], show)
        sent = {tool: plan.cache.lock.tool(tool).sha256 for tool in tools}
        show(f"apply {wanted.id}", 0, 0)
        try:
            answer = session.call(
                remote_provision.apply_one, spec=wanted.spec, marker=plan.layout.marker
            )
        except RemoteError as error:
            raise _resource_change_error(wanted, row, error.message, error.hint) from error
    if answer["error"]:
        logs = _bring_logs(session, plan, wanted, answer["logs"])
        raise _resource_change_error(wanted, row, str(answer["error"]), str(answer["hint"]), logs)
    if not answer["ok"]:
        raise ProvisionError(
            f"{wanted.id}: expected {wanted.summary}; after applying it the host still has "
            f"{answer['found']}",
            hint="Something on the host reverts it: a policy, a virus scanner or another user.",
        )
    now = _resource_result(wanted, answer)
    return now.model_copy(
        update={
            "found": row.found,  # what it was before
            "changed": True,
            "sha256": now.sha256 | sent,
            "seconds": time.monotonic() - began,
            "reboot": safe_text(str(answer["reboot"])),
        }
    )


def _require_space(
    session: LiveSession, plan: BuildPlan, wanted: DesiredResource, tools: Iterable[str]
) -> None:
    """Refuse before anything is uploaded what the host's disk cannot hold unpacked as well."""
    need = _UNPACKED * sum(plan.cache.size(tool) for tool in tools)
    if not need:
        return
    free = int(session.call(remote_provision.free_space, path=plan.layout.temp))
    if free < need:
        raise StorageError(
            f"{wanted.id}: {plan.host.name} has {free >> 20} MiB free, "
            f"but needs about {need >> 20} MiB",
            hint="Free space there. To remove old builds: invoke cache --prune --days 1",
        )


def _resource_change_error(
    wanted: DesiredResource, row: ResourceResult, why: str, hint: str, logs: Path | None = None
) -> ProvisionError:
    where = f"\nLogs: {logs}" if logs else ""
    return ProvisionError(
        f"{wanted.id}: expected {wanted.summary}, found {row.found}, "
        f"and it could not be changed: {why}{where}",
        hint=hint or "Fix that on the host, then run provision again: it continues from here.",
    )


def _bring_logs(
    session: LiveSession, plan: BuildPlan, wanted: DesiredResource, paths: list[str]
) -> Path | None:
    """Fetch an installer's logs; what cannot be had does not hide the failure itself."""
    folder = plan.out / "provision" / plan.host.name / wanted.id.replace(" ", "-")
    for path in paths:
        name = PureWindowsPath(str(path)).name
        try:
            stat = session.call(files.stat, path=path)
            if stat is not None and int(stat["size"]) <= _LOG_LIMIT:
                session.get(path, folder / name)
        except PipelineError as error:
            say(f"{name} could not be downloaded: {error.message}", style="yellow")
    return folder if folder.is_dir() else None


def _restart(session: LiveSession, wanted: DesiredResource, build_root: str) -> ResourceResult:
    """Restart Windows if something requires it.

    Not while jobs run below ``build_root`` or users are signed in: :class:`ProvisionError`.
    """
    began = time.monotonic()
    row = _check_again(session, wanted)
    if row.ok:
        return row
    if found := session.call(reboot.interrupts, root=build_root):
        named = join_first([safe_text(one, 200) for one in found], "; ")
        raise ProvisionError(
            f"{wanted.id}: {session.host.name} needs a restart ({safe_text(row.found, 200)}), "
            "which "
            f"would interrupt others there: {named}",
            hint="Run the same command again once the jobs have ended and the users have signed "
            "out, or after you have restarted the host: it continues from here.",
        )
    say(f"restarting {session.host.name}: {safe_text(row.found, 200)}", style="yellow")
    session.restart()
    now = _check_again(session, wanted)
    if not now.ok:
        raise ProvisionError(
            f"{wanted.id}: {session.host.name} was restarted, but still waits for: {now.found}",
            hint="Restart it by hand, then provision again.",
        )
    done = {"changed": True, "ok": True, "seconds": time.monotonic() - began}
    return row.model_copy(update=done)


def _check_again(session: LiveSession, wanted: DesiredResource) -> ResourceResult:
    (answer,) = session.call(remote_provision.check_all, specs=[wanted.spec])
    return _resource_result(wanted, answer)


def _upload_pinned_tool(
    session: LiveSession, plan: BuildPlan, tool: str, target: str, show: Bars
) -> None:
    """Bring a pinned file to the host."""
    source = plan.cache.fetch(tool)  # here already, and looked at once more
    shown = partial(show, f"upload {tool}")
    session.send(source, target, plan.cache.lock.tool(tool).sha256, progress=shown)


def _escape_host_text(text: str, limit: int = 2000) -> str:
    """What a host says, never as markup."""
    return escape(safe_text(text, limit))


def _provision_result_table(rows: list[ResourceResult]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("resource", "wanted", "found", "changed"):
        table.add_column(column, overflow="fold", min_width=_MIN_WIDTH)
    for row in rows:
        if not row.ok:
            mark = "[red]not yet[/red]"
        elif row.changed:
            mark = f"[yellow]yes[/yellow] {row.seconds:.1f} s"
        else:
            mark = "[dim]no[/dim]"
        table.add_row(row.id, _escape_host_text(row.wanted), _escape_host_text(row.found, 80), mark)
    return table


def _provision_plan_table(rows: list[ResourceResult]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("resource", "found", "would do"):
        table.add_column(column, overflow="fold", min_width=_MIN_WIDTH)
    for row in rows:
        todo = (
            "[dim]nothing[/dim]"
            if row.ok
            else f"[yellow]{_escape_host_text(row.plan, 300)}[/yellow]"
        )
        table.add_row(row.id, _escape_host_text(row.found, 80), todo)
    return table
