"""Tests an external wheel: used as it is, examined and run, but never published.

It has a run like any other, whose record and reports state the wheel's origin.
"""

from __future__ import annotations

import re
import shutil
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from pipelines.core import units
from pipelines.core.console import console, log_group, say, transfer_progress
from pipelines.core.errors import AuditError, ConfigError, LockError
from pipelines.core.files import atomic_output, disk_errors
from pipelines.core.finding import failure_lines, values_of
from pipelines.core.hosttext import safe_line, safe_text
from pipelines.hosts.live import LiveSession
from pipelines.plan.matrix.buildplan import BuildPlan
from pipelines.plan.prebuilt.candidates import Offer
from pipelines.plan.prebuilt.closure import Closure, resolve_closure
from pipelines.plan.prebuilt.decide import examine_external, platforms_of
from pipelines.plan.prebuilt.downloads import fetch_all, fetch_url
from pipelines.plan.prebuilt.external import ExternalWheel, refuse_incompatible, with_companions
from pipelines.plan.prebuilt.wine_limits import Limit, load_limits
from pipelines.recipe.suite import suite_of_given
from pipelines.record.prebuilt import COMPANIONS, Dependencies, PrebuiltFile
from pipelines.record.results import AuditedFile, AuditResult, PrebuiltResult
from pipelines.record.run import Run, StageLog
from pipelines.remote import files, tester
from pipelines.reports.findings import findings_table
from pipelines.stages.dryrun import NOTHING, print_dry_run_row, show_host
from pipelines.stages.hooks import AuditHooks, Stage, SuiteHooks
from pipelines.stages.line import AUDIT, TEST, Line, make_ready
from pipelines.stages.preflight import refuse_ungiven
from pipelines.wheels.checking import Installation
from pipelines.wheels.libraries import hint_for, mentioned_cuda_libraries

_NO_GPU = re.compile(r"\b(?:GPUs?|CUDA|cuda|nvcuda)\b")
_NOT_LOADED = re.compile(r"DLL load failed|[Ee]rror 126\b|Could not find module")


class WithCompany(SuiteHooks):
    """An external wheel is tested with what it requires, in an environment of its own."""

    def spec(self, session: LiveSession, run: Run, spec: tester.Spec) -> tester.Spec:
        """With the wheels of its requirements, which are sent first."""
        taken = run.result(PrebuiltResult)
        if taken is None or taken.company is None:
            raise ConfigError(f"run {run.id} has no record of its --wheel", hint="Start a new run.")
        return {
            **spec,
            "packages": upload_companions(session, self.plan, taken.company),
            "libraries": list(taken.company.libraries),
            "system": False,
        }

    def hint(self, run: Run, text: str) -> str:
        """What of it is missing, or does not go with the host."""
        return cure_of(self.plan, run, text)


def library_names(plan: BuildPlan, company: Dependencies) -> Iterator[str]:
    """Every file of the wheels that are installed with it, by its path in the wheel."""
    for one in company.packages:
        with zipfile.ZipFile(plan.cache.place(one.file, one.sha256)) as archive:
            yield from archive.namelist()


def cure_of(plan: BuildPlan, run: Run, text: str) -> str:
    """What to do about what failed cases tell of a wheel that was given; empty: nothing known."""
    taken, audit = run.result(PrebuiltResult), run.result(AuditResult)
    if taken is None or taken.taken is None or taken.company is None or audit is None:
        return ""
    company = taken.company
    installed = dict(map(_release_of, [taken.taken, *company.packages]))
    found = [*mentioned_cuda_libraries(text)]
    if not found and _NOT_LOADED.search(text):  # Windows does not say which
        found += [name for one in audit.files for name in values_of(one.checks, "libraries")]
    said = []
    cuda = next((one.cuda for one in audit.files), "")
    named = {canonicalize_name(Requirement(one).name) for one in company.companions}
    if projects := hint_for(found, installed, cuda, named):
        said = [f"Libraries that were not found: {projects}. Add: --with PROJECT==VERSION."]
    for one in load_limits() if plan.host.capabilities.emulated else ():
        version = installed.get(one.project)
        if version is not None and version >= Version(one.below):
            said.append(
                f"{one.project} {version} is installed, but {one.why}. "
                f"Name a version below {one.below} with --with."
            )
    if plan.host.capabilities.emulated and not plan.host.gpu_way.requested and _NO_GPU.search(text):
        said.append("No GPU was requested: --gpu gives a sandbox the GPU of this machine.")
    return " ".join(said)


def _release_of(one: PrebuiltFile) -> tuple[str, Version]:
    name, version, *_ = parse_wheel_filename(one.file)
    return name, version


def upload_companions(session: LiveSession, plan: BuildPlan, company: Dependencies) -> list[str]:
    """The wheels of its requirements on the host, each sent once by its sha256; their paths."""
    layout, made = plan.layout, []
    with transfer_progress() as show:
        for one in company.packages:
            folder = layout.join(layout.wheels, COMPANIONS, one.sha256[:16])
            target = layout.join(folder, one.file)
            source = plan.cache.place(one.file, one.sha256)
            if not session.has(target, one.sha256, source.stat().st_size):
                session.call(files.make_dirs, path=folder)
                shown = partial(show, f"upload {one.file}")
                session.send(source, target, one.sha256, progress=shown)
            made.append(target)
    return made


_GIVEN = "given, not built here"
_LIBRARIES = (".dll", ".so")
#: What runs the suite; the lock says which release.
_TOOLS = ("pytest", "pytest-xdist")


class AuditGiven(AuditHooks):
    """The audit of an external wheel, with what is installed with it."""

    def instead(self, log: StageLog) -> AuditedFile | None:
        """What it found, shown."""
        taken = log.run.result(PrebuiltResult)
        if taken is None or taken.taken is None:
            return None
        with log_group(f"Audit {taken.taken.file}"):
            one = examine_given_wheel(self.plan, log, taken)
            console.print(findings_table(one.checks))
        return one


def run_given(line: Line, *, companions: Iterable[str] = (), script: str | None = None) -> Path:
    """Test a wheel that others have built: take, audit, install and run it; the run's directory."""
    line.plan = apply_test_options(line.plan, companions=companions, script=script)
    refuse_ungiven(line.plan)
    run = line.begin_run()
    with line.reported():
        line.do(Stage(PrebuiltResult.stage, take_given))
        line.do(AUDIT)
        make_ready(line, run)
        line.do(TEST)
    return run.path


def show_given(line: Line, *, companions: Iterable[str], script: str | None) -> None:
    """Print what :func:`run_given` would do with this line; no index is asked.

    Raises what it would before it begins.
    """
    plan = apply_test_options(line.plan, companions=companions, script=script)
    assert plan.given is not None  # noqa: S101 - `order` has it
    suite = suite_of_given(plan.given.script)
    refuse_ungiven(plan)
    with log_group(f"Would test {plan.given.release} for {plan.target.label}, built by others"):
        show_host(plan.host)
        print_dry_run_row("wheel", safe_text(plan.given.requested, 300))
        print_dry_run_row("with", ", ".join(plan.given.companions) or "its requirements")
        print_dry_run_row("suite", "import only" if suite.instead else str(plan.given.script))
    say(NOTHING, style="green")


def apply_test_options(
    plan: BuildPlan, *, companions: Iterable[str], script: str | None
) -> BuildPlan:
    """The plan with all that was asked for; :class:`ConfigError` for what cannot be."""
    assert plan.given is not None  # noqa: S101 - whoever calls has looked
    given = with_companions(plan.given, companions, script)
    refuse_incompatible(given, plan.target.python, _host_platform_tags(plan))
    suite_of_given(given.script)
    return replace(plan, given=given)


def take_given(_: LiveSession, plan: BuildPlan, log: StageLog) -> PrebuiltResult:
    """Put the wheel into the run and its requirements into the cache: resolved and verified.

    Raises :class:`ConfigError` for what this platform does not have, :class:`LockError` for a file
    that differs from its statement, :class:`AuditError` for one that is not a wheel.
    """
    given = plan.given
    assert given is not None  # noqa: S101 - of a plan with a wheel that is given
    log.run.note(origin=f"{_GIVEN}: {safe_line(given.requested, 300)}")
    with log_group(f"Get {given.release}"):
        own, closure, notes = _closed(plan, given)
        for note in notes:
            say(note, "yellow")
        rest = [one for one in closure.offers if not _is_requested_wheel(one, given)]
        total = sum(one.size or 0 for one in rest)
        size = f", {units.format_size(total)}" if total else ""  # a directory of wheels states none
        say(f"and {units.pluralize(len(rest), 'wheel')} that it needs{size}")
        fetched = fetch_all(rest, plan.cache)
        kept = _into_run(plan, log, own)
        origin = f"{_GIVEN}: {own.file} from {_wheel_origin(given, own)}, sha256 {own.sha256}"
        say(origin)
    log.run.note(origin=origin)
    return log.keep(
        PrebuiltResult(
            origin=origin,
            taken=_external_file_entry(given, kept, own),
            company=Dependencies(
                packages=tuple(
                    _external_file_entry(given, _cached_wheel_path(plan, one), one)
                    for one in fetched
                ),
                libraries=tuple(dict.fromkeys(_companion_library_folders(plan, given, fetched))),
                companions=given.companions,
                notes=tuple(notes),
            ),
        )
    )


def _cached_wheel_path(plan: BuildPlan, offer: Offer) -> Path:
    """Where a wheel that was fetched is."""
    return plan.cache.place(offer.file, str(offer.sha256))


def _companion_library_folders(
    plan: BuildPlan, given: ExternalWheel, fetched: Iterable[Offer]
) -> Iterator[str]:
    """The directories, below site-packages, with libraries of what --with names."""
    named = {canonicalize_name(Requirement(text).name) for text in given.companions}
    for one in fetched:
        if parse_wheel_filename(one.file)[0] in named:
            yield from _library_folders(_cached_wheel_path(plan, one))


def _closed(plan: BuildPlan, given: ExternalWheel) -> tuple[Offer, Closure, list[str]]:
    """The wheel itself, in the cache; what was resolved; what is to be said of it."""
    wanted, own = given.release, None
    if given.place:
        own = _file_of(plan, given)
        extras = f"[{','.join(given.extras)}]" if given.extras else ""
        wanted = f"{given.name}{extras} @ {_cached_wheel_path(plan, own).as_uri()}"
    pins, folders = tools_of(plan)
    limits = list(_limits(plan, given))
    house = plan.cache.wheelhouse
    closure = resolve_closure(
        [wanted, *given.companions, *pins],
        python=plan.target.python,
        platforms=_host_platform_tags(plan),
        executable="" if plan.host.existing is None else plan.host.executable,
        limits=[f"{one.project}<{one.below}" for one in limits],
        folders=[*folders, *([house] if house else [])],
        offline=plan.cache.offline,
    )
    if own is None:
        own = fetch_all([_chosen(closure, given)], plan.cache)[0]
        _require_zip(_cached_wheel_path(plan, own))
    names = {parse_wheel_filename(one.file)[0] for one in closure.offers}
    found = str(parse_wheel_filename(own.file)[1])
    notes = [f"{one.project}<{one.below}: {one.why}" for one in limits if one.project in names]
    if found != given.version:  # 1.0 is 1.0.0 to an index, and 1.0+cu121
        notes.append(f"{given.version} was requested, {found} was found")
    return own, closure, [*closure.warnings, *notes]


def _chosen(closure: Closure, given: ExternalWheel) -> Offer:
    """The one wheel of it that was asked for: of that project, and of that release."""
    found = [one for one in closure.offers if _is_requested_wheel(one, given)]
    versions = [parse_wheel_filename(one.file)[1] for one in found]
    asked = Version(given.version)
    if len(versions) != 1 or asked not in (versions[0], Version(versions[0].public)):
        names = ", ".join(safe_line(one.file, 100) for one in found) or "no wheel"
        raise LockError(
            f"{given.release} was requested, but uv chose {names}",
            hint="Download the wheel that you want, and name the file.",
        )
    return found[0]


def tools_of(plan: BuildPlan) -> tuple[list[str], list[Path]]:
    """What runs the suite, pinned by the lock, and the directories in which its wheels are."""
    lock = plan.cache.lock
    tools = lock.entries_for(_TOOLS, plan.target)
    pins = [f"{name}=={lock.tool(tools[name]).version}" for name in _TOOLS]
    return pins, [plan.cache.fetch(entry).parent for entry in tools.values()]


def _limits(plan: BuildPlan, given: ExternalWheel) -> Iterator[Limit]:
    """What is not chosen by itself on such a host; who names a release, is given it."""
    if not plan.host.capabilities.emulated:
        return
    named = {given.name, *(canonicalize_name(Requirement(text).name) for text in given.companions)}
    yield from (one for one in load_limits() if one.project not in named)


def _file_of(plan: BuildPlan, given: ExternalWheel) -> Offer:
    """The file or URL that was named, in the cache."""
    file = PurePosixPath(given.place.partition("?")[0]).name
    if given.url:
        own = fetch_url(file, given.url, given.stated, plan.cache)
    else:
        file = Path(given.place).name
        _require_zip(Path(given.place))
        (own,) = fetch_all([Offer(file, given.place)], plan.cache)
    _require_zip(_cached_wheel_path(plan, own))
    return own


def _require_zip(path: Path) -> None:
    try:
        with zipfile.ZipFile(path):
            pass
    except (zipfile.BadZipFile, OSError) as error:
        raise AuditError(
            f"{path.name} is not a wheel: {safe_line(error, 200)}",
            hint="It is damaged or truncated: download it again.",
        ) from None


def _is_requested_wheel(offer: Offer, given: ExternalWheel) -> bool:
    return parse_wheel_filename(offer.file)[0] == given.name


def _host_platform_tags(plan: BuildPlan) -> tuple[str, ...]:
    return platforms_of(windows=plan.host.capabilities.windows)


def _offer_hostname(offer: Offer) -> str:
    """Of its address, without anything that may be a password; empty for a file of this machine."""
    return urlsplit(offer.place).hostname or "" if "://" in offer.place else ""


def _wheel_origin(given: ExternalWheel, offer: Offer) -> str:
    """Where the wheel itself is from."""
    asked = safe_line(given.requested, 300)
    host = _offer_hostname(offer) or ("" if given.place else "this machine")
    return f"{host} ({asked})" if host else asked


def _external_file_entry(given: ExternalWheel, kept: Path, offer: Offer) -> PrebuiltFile:
    own, host = _is_requested_wheel(offer, given), _offer_hostname(offer)
    # Nothing states the hash of a local file: it is computed from the file itself.
    stated = given.stated if own and given.place else offer.sha256 if host else None
    return PrebuiltFile(
        file=kept.name,
        place=_wheel_origin(given, offer) if own else host or "this machine",
        sha256=str(offer.sha256),
        stated=stated or None,
    )


def _into_run(plan: BuildPlan, log: StageLog, own: Offer) -> Path:
    folder = log.run.path / "wheels"
    with disk_errors(folder), atomic_output(folder / own.file) as part:
        shutil.copyfile(_cached_wheel_path(plan, own), part)
    return folder / own.file


def _library_folders(wheel: Path) -> list[str]:
    """The directories below site-packages in which a wheel has libraries."""
    with zipfile.ZipFile(wheel) as archive:
        paths = [PurePosixPath(name) for name in archive.namelist()]
    kept = (p for p in paths if any(part in _LIBRARIES for part in p.suffixes))
    found = dict.fromkeys(str(path.parent) for path in kept)
    return [folder for folder in found if folder != "." and safe_text(folder, 300) == folder]


def examine_given_wheel(plan: BuildPlan, log: StageLog, taken: PrebuiltResult) -> AuditedFile:
    """The audit of it: an error is an :class:`AuditError`, what was not requested a message."""
    assert taken.taken is not None  # noqa: S101 - checked by the caller
    assert taken.company is not None  # noqa: S101 - it comes with the other
    one = examine_external(
        log.run.path / "wheels" / taken.taken.file,
        taken.taken.sha256,
        Installation(
            plan.target.python, _host_platform_tags(plan), tuple(library_names(plan, taken.company))
        ),
    )
    log.keep(AuditResult(files=(one,)))
    if wrong := failure_lines(one.checks):
        raise AuditError(
            f"{one.file}: {'; '.join(wrong)}",
            hint="It was not built here: report this to its maintainers, or try another wheel.",
        )
    return one
