"""Brings a member's run home: whole, in its own directory, and only if it is what was asked for."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipelines.buildplan import resolve_recipe, resolve_target
from pipelines.errors import BuildError, PipelineError, TransferError
from pipelines.files import disk_errors, write_atomic
from pipelines.fleet.cluster import parcels
from pipelines.fleet.cluster.commission import Parcel
from pipelines.fleet.kept import differs, files_of
from pipelines.fleet.lines import JOBS, Order, group_of, pointer_of, request_for, run_of
from pipelines.fleet.looking import Hosts
from pipelines.fleet.model import Work
from pipelines.hosttext import line
from pipelines.paths import home
from pipelines.record import BuildResult, SmokeResult
from pipelines.run import Run
from pipelines.stages.manifest import write_manifest
from pipelines.stages.report import report

#: Gives the bytes of a packed run from an offset on; none is an error of whoever gives them.
Fetch = Callable[[Parcel, int], bytes]
#: Folders of a run whose files are what it was made for.
_RESULTS = ("wheels", "library")
#: What a test writes into its run.
_OF_TESTS = "smoke*"


@dataclass(frozen=True)
class Arrivals:
    """What comes home from one host of a member, for one fleet."""

    order: Order
    host: str
    """``member/host``."""
    hosts: Hosts

    def bring_home(self, parcel: Parcel, fetch: Fetch, work: Work, *, well: bool) -> Run:
        """Fetch the run of a work; where it went ``well`` it is noted as that of the work.

        Of a test its findings are put into the run that was tested. What is not what was asked for
        is not taken: raises :class:`TransferError`, and what :meth:`.Hosts.agree`
        does.
        """
        out, pointer = home() / self.order.settings.out, self._pointer(work)
        folder = out / f".arriving-{self.order.folder.name}-{pointer.stem}"
        try:
            archive = _fetched(parcel, fetch, folder)
            run = parcels.unpack(archive, parcel, folder / "run")
            if well:
                self.require_asked(run, work)
            if work.kind == "test":
                own = Run(Path(self.order.before(work)[0]))
                return _with_test(run, own, self.host, well=well)
            parcels.call_host(run, self.host)
            run = _placed(run, out, parcel.run)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if well:
            write_atomic(pointer, run.path.name.encode())
        return run

    def known(self, work: Work) -> Run | None:
        """The run of a work that came home before, if it is still as it was asked for."""
        run = run_of(self._pointer(work), home() / self.order.settings.out)
        if run is None or work.kind == "test":
            return None
        try:
            self.require_asked(run, work)
        except PipelineError:
            return None
        return run

    def _pointer(self, work: Work) -> Path:
        return pointer_of(self.order.folder, work, self.host)

    def require_asked(self, run: Run, work: Work) -> None:
        """Refuse a run that is of something else, is not whole, or was made with other tools."""
        settings, request = self.order.settings, request_for(self.order, work, self.host)
        recipe = resolve_recipe(settings, request)
        wanted, facts = resolve_target(settings, request, recipe), run.facts()
        for axis, value in wanted.values().items():
            if axis != "host":
                _require(run, axis, str(getattr(facts.target, axis)), value)
        if work.kind != "test":  # what was tested is here
            _require(run, "share", facts.share, request.share or "")
            linked = len(work.after) if work.kind == "link" else 0
            _require(run, "linked runs", str(len(facts.linked)), str(linked))
        _require(run, "given by others", str(facts.given), str(False))
        try:
            why = differs(run, share=work.kind == "shard") or _more(run, share=work.kind == "shard")
        except BuildError as error:
            why = error.message
        if why:
            raise TransferError(
                f"{why}, as it came from {self.host}",
                advice="It is fetched again when the work is begun again.",
            )
        if work.kind == "test":
            return
        if (built := run.result(BuildResult)) is not None:
            self.hosts.agree(self.host, group_of(wanted.python, recipe), built.materials)


def _fetched(parcel: Parcel, fetch: Fetch, folder: Path) -> Path:
    parcels.require_bounded(parcel)
    shutil.rmtree(folder, ignore_errors=True)
    with disk_errors(folder.parent):
        folder.mkdir(parents=True)
        path, size = folder / "run.tar", 0
        with path.open("wb") as file:
            while size < parcel.size:
                data = fetch(parcel, size)
                if not data or len(data) > parcels.PIECE:
                    raise TransferError(
                        f"{parcel.run}: after {size} of {parcel.size} bytes {len(data)} came",
                        advice="It is fetched again when the work is begun again.",
                    )
                file.write(data)
                size += len(data)
    parcels.require_whole(path, parcel)
    return path


def _require(run: Run, what: str, found: str, wanted: str) -> None:
    if found != wanted:
        raise TransferError(
            f"{run.id}: {what}: {line(found, 200) or 'none'}, and {line(wanted, 200) or 'none'} "
            "was asked for",
            advice="Nothing of it is taken. Look at what that member runs.",
        )


def _more(run: Run, *, share: bool) -> str:
    """A file that is called a result and is none: manifests would tell of it."""
    known = files_of(run, share=share)
    for folder in _RESULTS:
        for path in sorted((run.path / folder).rglob("*")):
            if path.is_file() and path.relative_to(run.path).as_posix() not in known:
                return f"{line(path.name, 100)} in run {run.id} was made by nobody"
    return ""


def _placed(run: Run, out: Path, name: str) -> Run:
    """Move it to its place among the runs, under its name or the first free one like it."""
    for number in range(100):
        place = out / f"{name}{f'-{number}' if number else ''}"
        if not place.exists():
            with disk_errors(out):
                run.path.rename(place)
            made = Run(place)
            _written(made)
            return made
    raise TransferError(f"there are 100 runs called {name}", advice="Remove some: invoke runs")


def _with_test(tested: Run, own: Run, host: str, *, well: bool) -> Run:
    """Put what a test found elsewhere into the run here, whose files were the ones that it had."""
    found = tested.stages().get(SmokeResult.stage)
    if found is None:
        raise TransferError(f"{tested.id} says nothing of a test", advice="It is tested again.")
    mine, theirs = (files_of(one, share=False) for one in (own, tested))
    if mine != theirs:
        raise TransferError(
            f"what {host} has tested is not what is in {own.id}",
            advice="Nothing of it is taken. Look at what that member runs.",
        )
    said = found.result if isinstance(found.result, SmokeResult) else SmokeResult()
    if well and (found.state != "passed" or said.sha256 not in mine.values()):
        raise TransferError(
            f"{host} says that {own.id} is tested, and its record does not",
            advice="Nothing of it is taken. Look at what that member runs.",
        )
    # All else of the run is here, as it was made here; reports are written anew.
    for path in sorted(tested.path.glob(_OF_TESTS)):
        if path.is_file():
            write_atomic(own.path / path.name, path.read_bytes())
    if (job := tested.job(JOBS[-1])) is not None:
        own.put_job(JOBS[-1], job.model_copy(update={"host": host}))
    own.put_stage(found)
    _written(own)
    return own


def _written(run: Run) -> None:
    """Have the reports tell what the record does."""
    report(run)
    write_manifest(run)
