"""What is installed with an external wheel: copied to the host and checked for what is missing."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from functools import partial

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from pipelines.core.console import bars
from pipelines.core.errors import ConfigError
from pipelines.core.finding import values_of
from pipelines.hosts.live import LiveSession
from pipelines.matrix.buildplan import BuildPlan
from pipelines.prebuilt.wine_limits import load_limits
from pipelines.record.prebuilt import COMPANIONS, Dependencies, PrebuiltFile
from pipelines.record.results import AuditResult, PrebuiltResult
from pipelines.record.run import Run
from pipelines.remote import files, tester
from pipelines.stages.hooks import SuiteHooks
from pipelines.wheels.libraries import hint_for, mentioned

_NO_GPU = re.compile(r"\b(?:GPUs?|CUDA|cuda|nvcuda)\b")
_NOT_LOADED = re.compile(r"DLL load failed|[Ee]rror 126\b|Could not find module")


class WithCompany(SuiteHooks):
    """An external wheel is tested with what it requires, in an environment of its own."""

    def spec(self, session: LiveSession, run: Run, spec: tester.Spec) -> tester.Spec:
        """With the wheels beside it, which are sent first."""
        taken = run.result(PrebuiltResult)
        if taken is None or taken.company is None:
            raise ConfigError(f"run {run.id} has no wheel that was given", hint="Begin anew.")
        return {
            **spec,
            "packages": bring(session, self.plan, taken.company),
            "libraries": list(taken.company.libraries),
            "system": False,
        }

    def hint(self, run: Run, told: str) -> str:
        """What of it is missing, or does not go with the host."""
        return cure_of(self.plan, run, told)


def library_names(plan: BuildPlan, company: Dependencies) -> Iterator[str]:
    """Every file of the wheels that are installed with it, by its path in the wheel."""
    for one in company.packages:
        with zipfile.ZipFile(plan.cache.place(one.file, one.sha256)) as archive:
            yield from archive.namelist()


def cure_of(plan: BuildPlan, run: Run, told: str) -> str:
    """What to do about what failed cases tell of a wheel that was given; empty: nothing known."""
    taken, audit = run.result(PrebuiltResult), run.result(AuditResult)
    if taken is None or taken.taken is None or taken.company is None or audit is None:
        return ""
    company = taken.company
    installed = dict(map(_release_of, [taken.taken, *company.packages]))
    found = [*mentioned(told)]
    if not found and _NOT_LOADED.search(told):  # Windows does not say which
        found += [name for one in audit.files for name in values_of(one.checks, "libraries")]
    said = []
    cuda = next((one.cuda for one in audit.files), "")
    named = {canonicalize_name(Requirement(text).name) for text in company.beside}
    if projects := hint_for(found, installed, cuda, named):
        said = [f"Libraries that were not found: {projects}. Name them as --with PROJECT==VERSION."]
    for one in load_limits() if plan.host.capabilities.emulated else ():
        version = installed.get(one.project)
        if version is not None and version >= Version(one.below):
            said.append(
                f"{one.project} {version} is installed, and {one.why}. "
                f"Name a release below {one.below} with --with."
            )
    if plan.host.capabilities.emulated and not plan.host.gpu_way.requested and _NO_GPU.search(told):
        said.append("No GPU was asked for: --gpu gives a host of kind sandbox this machine's.")
    return " ".join(said)


def _release_of(one: PrebuiltFile) -> tuple[str, Version]:
    name, version, *_ = parse_wheel_filename(one.file)
    return name, version


def bring(session: LiveSession, plan: BuildPlan, company: Dependencies) -> list[str]:
    """The wheels beside it, on the host: each sent once, compared by its sha256; their paths."""
    layout, made = plan.layout, []
    with bars() as show:
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
