"""``python -m scripts.reference.first_run ZIP``: import a first run on Windows as evidence.

What ``scripts/first_run.py`` left is believed as far as it can be checked: every file by its
sha256, the commit by this repository's history, a step that made a wheel by the sealed record of
its run, and the whole by GitHub's attestation of ``first-run.json``. Then ``windows-runs.yaml`` of
``docs/evidence`` gets an entry, and ``levels.md`` the level R for what was shown.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError

from pipelines.core.errors import AuditError, ConfigError, PipelineError
from pipelines.core.evidence import Evidence
from pipelines.core.jsonfile import parse_json_object
from pipelines.core.model import Model, format_validation_error
from pipelines.core.paths import CHECKOUT
from pipelines.record.prebuilt import Sha256
from pipelines.record.results import BuildResult, RunFacts, SmokeResult
from pipelines.record.run import Run
from scripts.reference.levels import WindowsRun, levels_page, load

_NAME, _BUNDLE = "first-run.json", "first-run.sigstore.json"
_FILES, _BYTES = 2000, 200 << 20
_WORKFLOW = ".github/workflows/first-run.yml"


class StepResult(Model):
    """A step's result, as the script writes it."""

    id: str
    verdict: Literal["passed", "failed", "unfinished", "timeout", "skipped"]
    code: int | None
    seconds: float
    reason: str


class Manifest(Model):
    """``first-run.json``."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    commit: Annotated[str, Field(pattern="^[0-9a-f]{40}$")]
    changed: bool
    """Whether files of the checkout differed from that commit."""
    repository: Annotated[str, Field(pattern=r"^([\w.-]+/[\w.-]+)?$")]
    run: Annotated[str, Field(pattern=r"^(https://github\.com/[\w./-]+)?$")]
    ref: Annotated[str, Field(pattern=r"^(refs/[\w./-]+)?$")]
    attempt: int
    image: Annotated[str, Field(pattern=r"^[\w. -]{0,80}$")]
    full: bool
    facts: dict[str, Any]
    started: datetime
    ended: datetime
    steps: tuple[StepResult, ...]
    files: dict[str, Sha256]


def unpack(archive: Path, folder: Path) -> tuple[Manifest, str]:
    """The manifest and its sha256, after each file was compared; they are below ``folder``."""
    try:
        with zipfile.ZipFile(archive) as opened:
            entries = opened.infolist()
            if len(entries) > _FILES or sum(one.file_size for one in entries) > _BYTES:
                raise ConfigError(f"{archive}: larger than a first run's files")
            contents = {one.filename: opened.read(one) for one in entries}
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise ConfigError(
            f"{archive}: expected a first-run.zip as scripts/first_run.py makes it: {error}"
        ) from error
    if len(contents) != len(entries):
        raise AuditError(f"{archive}: a name occurs twice")
    try:
        text = contents.pop(_NAME, b"")
        manifest = Manifest.model_validate(parse_json_object(text))
    except ValidationError as error:
        raise ConfigError(format_validation_error(Path(_NAME), error, Manifest)) from error
    except ValueError as error:
        raise ConfigError(f"{archive}: {_NAME}: {error}") from error
    found = {name: sha256(data).hexdigest() for name, data in contents.items()}
    if wrong := {name for name, _ in {*found.items()} ^ {*manifest.files.items()}}:
        raise AuditError(
            f"{archive}: not as it was made: {', '.join(sorted(wrong)[:5])}",
            hint="Files were added, removed or changed. Import the file that the run uploaded.",
        )
    for name, data in contents.items():
        place = folder / name
        if not place.resolve().is_relative_to(folder.resolve()):
            raise AuditError(f"{archive}: {name!r} is outside of its folder")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return manifest, sha256(text).hexdigest()


def examine(manifest: Manifest, folder: Path, checkout: Path) -> tuple[str, ...]:
    """The steps that have passed, as far as their logs and records agree.

    Raises :class:`AuditError` for what is not of this repository, not of Windows, or not shown.
    """
    known = {step.id: step for step in _script(checkout).STEPS}
    ids = [step.id for step in manifest.steps]
    if manifest.changed or not _in_history(manifest.commit, checkout):
        raise AuditError(
            f"it is of commit {manifest.commit[:12]}{' with changes' if manifest.changed else ''}, "
            "which is not in this repository's history",
            hint="Evidence counts for the commit that was run. Fetch it, or run this one.",
        )
    if manifest.facts.get("system") != "Windows" or manifest.facts.get("wine") is not False:
        raise AuditError("it was not run on Windows")
    if len({*ids}) != len(ids) or not {*ids} <= {*known}:
        raise AuditError(f"its steps are not those of scripts/first_run.py: {', '.join(ids)}")
    passed = tuple(step.id for step in manifest.steps if step.verdict == "passed")
    runs = tuple(_runs(folder))
    for name in passed:
        if f"{name}.log" not in manifest.files:
            raise AuditError(f"step {name} has passed and left no log")
        for command in known[name].commands:
            _require_record(name, command, manifest, runs)
    return passed


def _require_record(step: str, command: str, manifest: Manifest, runs: Iterable[Run]) -> None:
    """What a command that builds has recorded then: this recipe, on this host, on Windows."""
    if " build " not in command:
        return
    words = dict(re.findall(r"--(\w+) (\S+)", command))
    recipe, tested = words.get("recipe", "smoke-attention"), " test " in command
    for run in runs:
        facts, suite = run.facts(), run.result(SmokeResult)
        of_it = (facts.target.recipe, facts.target.host) == (recipe, words["host"])
        then = manifest.started <= datetime.fromisoformat(facts.created) <= manifest.ended
        build = run.stages().get(BuildResult.stage)
        if not (
            of_it
            and then
            and _on_windows(facts, manifest)
            and build is not None
            and build.state == "passed"
        ):
            continue
        if not tested or (suite is not None and _passed(run, suite, manifest)):
            return
    raise AuditError(
        f"step {step} is said to have passed, and no record of a run on Windows shows it",
        hint=f"Expected below out/: {recipe} on host {words['host']}, "
        f"{'built and tested' if tested else 'built'}.",
    )


def _on_windows(facts: RunFacts, manifest: Manifest) -> bool:
    """On the Windows of the manifest; neither in a sandbox nor on a GPU under Linux."""
    version = facts.host.windows if facts.host is not None else ""
    # A real host's runs are "written" until one was seen to pass: this import is how it is seen.
    return facts.evidence is Evidence.WRITTEN and _same(version, manifest)


def _same(version: str, manifest: Manifest) -> bool:
    return version.split(".")[:3] == str(manifest.facts.get("version", "")).split(".")[:3]


def _passed(run: Run, suite: SmokeResult, manifest: Manifest) -> bool:
    passed = run.stages()[SmokeResult.stage].state == "passed"
    name, _, version = suite.system.partition(" ")
    cases = suite.outcomes.get("passed", 0)
    return passed and cases > 0 and name == "Windows" and _same(version, manifest)


def _runs(folder: Path) -> Iterator[Run]:
    """Those with a record whose seal is intact: an edited one is refused."""
    for path in sorted(folder.glob("out/*/record.sqlite")):
        run = Run(path.parent)
        if run.sealers:
            yield run


def _in_history(commit: str, checkout: Path) -> bool:
    words = ["git", "merge-base", "--is-ancestor", commit, "HEAD"]
    return not subprocess.run(words, cwd=checkout, capture_output=True, check=False).returncode


def _script(checkout: Path) -> Any:
    path = checkout / "scripts/first_run.py"
    spec = importlib.util.spec_from_file_location("first_run", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path}: cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def require_attested(manifest: Manifest, digest: str, bundle: Path) -> None:
    """GitHub has attested ``first-run.json`` in a run of our workflow, at that commit."""
    workflow = f"{manifest.repository}/{_WORKFLOW}@{manifest.ref}"
    done = verify(digest, bundle, manifest.repository, manifest.commit, workflow)
    if done.returncode:
        raise AuditError(
            f"{bundle}: no attestation of this file by {manifest.repository} at "
            f"{manifest.commit[:12]}: {done.stderr.strip()[-300:]}"
        )


def verify(
    digest: str, bundle: Path, repository: str, commit: str, workflow: str, *more: str
) -> subprocess.CompletedProcess[str]:
    """Sigstore's own program: whether that workflow, for that repository's commit, has signed."""
    words = [sys.executable, "-m", "sigstore", "verify", "github", "--bundle", str(bundle)]
    words += ["--repository", repository, "--sha", commit]
    words += ["--cert-identity", f"https://github.com/{workflow}", *more, f"sha256:{digest}"]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def import_run(archive: Path, checkout: Path, bundle: Path | None) -> WindowsRun:
    """Check it and write it into ``docs/evidence``."""
    evidence = checkout / "docs/evidence"
    with tempfile.TemporaryDirectory() as name:
        manifest, digest = unpack(archive, Path(name))
        passed = examine(manifest, Path(name), checkout)
    if bundle is not None:
        require_attested(manifest, digest, bundle)
    levels, runs = load(evidence)
    entry = WindowsRun(
        commit=manifest.commit,
        date=manifest.started.date(),
        repository=manifest.repository,
        run=manifest.run,
        image=manifest.image,
        windows=str(manifest.facts["version"])[:40],
        passed=passed,
        attested=bundle is not None,
    )
    if entry in runs:
        raise ConfigError(f"{archive}: it was imported before")
    runs = (*runs, entry)
    rows = [run.model_dump(mode="json") for run in runs]
    (evidence / "windows-runs.yaml").write_text(yaml.safe_dump(rows, sort_keys=False), "utf-8")
    (evidence / "levels.md").write_text(levels_page(levels, runs), "utf-8")
    return entry


def main(words: list[str]) -> int:
    """0 if it was imported; otherwise the exit code of the error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("archive", type=Path, help="first-run.zip")
    parser.add_argument("--bundle", type=Path, help=f"GitHub's attestation, {_BUNDLE}")
    parser.add_argument("--unattested", action="store_true", help="import it without one")
    given = parser.parse_args(words)
    if bool(given.bundle) == given.unattested:
        parser.error("expected --bundle FILE, or --unattested for a run on a machine of your own")
    if CHECKOUT is None:
        parser.error("only in a checkout: an installed package has no docs/evidence")
    try:
        entry = import_run(given.archive, CHECKOUT, given.bundle)
    except PipelineError as error:
        print(f"{error.label}: {error.message}\n{error.hint}".rstrip(), file=sys.stderr)
        return error.exit_code
    print(f"{len(entry.passed)} steps on Windows {entry.windows}: {', '.join(entry.passed)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
