"""Ships the source to the host, builds the wheel there and follows the log."""

from __future__ import annotations

import hashlib
import re
import tempfile
from pathlib import Path
from typing import Any

from pipelines.compilecache import spec as compile_cache
from pipelines.console import bars, console, fold, host_line, say, units_progress
from pipelines.diagnosis import Settings
from pipelines.errors import BuildError, RemoteError, TimeUpError
from pipelines.hosttext import safe
from pipelines.recipe.sourcetree import source_tree
from pipelines.remote import builder, files
from pipelines.stages.buildspec import build_spec, job_budget, job_environment, job_id
from pipelines.stages.detached import Job
from pipelines.stages.logs import TAIL, last_lines, log_lines
from pipelines.stages.retry import until_healed
from pipelines.stages.work import Work

#: Kind of a recipe -> the function of ``pipelines/remote`` that builds it.
FUNCTIONS = {"wheel": "builder.build", "cargo": "cargo.build"}
_DIGITS = 10  # of a count; a host's line may hold more than int() takes


def build(work: Work, detail: dict[str, Any]) -> None:
    """Build on the host; ``detail`` gets the job, the wheels there and the log.

    The log streams into ``build.log`` of the run as it comes, so that it is kept whatever happens.
    Raises :class:`BuildError` with the log's last lines.
    """
    session, layout, order = work.session, work.layout, work.order
    jobs, threads = job_budget(work)
    environment = job_environment(work, jobs, threads)
    with bars() as show:
        source = source_tree(work.recipe, work.cache, show)
    job = job_id(source, work, job_environment(work, 1))
    directory = layout.join(layout.build_root, job)
    detail |= {"job": job, "directory": directory, "jobs": jobs, "environment": environment}
    detail["source_sha256"] = hashlib.sha256(source).hexdigest()
    with fold(f"Build {order.label}: {order.archs}"):
        say(f"job {job}, {jobs} compile units at a time, in {directory} of {work.host.name}")
        session.call(files.make_dirs, path=directory)
        archive = layout.join(directory, f"src-{detail['source_sha256'][:12]}.tar.gz")
        if session.call(files.stat, path=archive) is None:  # it lands whole, or not at all
            with tempfile.TemporaryDirectory() as scratch:
                packed = Path(scratch) / "src.tar.gz"
                packed.write_bytes(source)
                session.put(packed, archive)
        spec = build_spec(work, directory, archive, detail)
        settings = Settings(
            jobs=jobs,
            build_root=layout.build_root,
            nvcc_threads=threads,
            environment=environment,
        )
        result = until_healed(
            settings,
            lambda now, fresh: _follow(work, _changed(spec, settings, now), detail, fresh=fresh),
            work.run.path / "build.log",
            detail,
        )
    if result.get("timed_out"):
        raise TimeUpError(
            f"the build was ended after {order.minutes:g} minutes, as --minutes says: "
            f"{detail['units'].get('done', 0)} of {detail['units'].get('total') or '?'} units",
            advice="Finished units are kept: the same command goes on from them.",
        )
    if work.recipe.kind == "wheel" and not result["wheels"]:
        raise BuildError("the build succeeded but left no wheel", advice="Is it a wheel project?")


def _left(result: dict[str, Any]) -> list[builder.Left]:
    """The files that a build left: path, size, sha256."""
    library = result.get("library")
    return [*result.get("wheels", []), *([library] if library else [])]


def _changed(spec: dict[str, Any], before: Settings, now: Settings) -> dict[str, Any]:
    """The build's specification with healed settings; another root is another directory."""
    directory = now.build_root + spec["directory"].removeprefix(before.build_root)
    changes = {"environment": dict(now.environment), "toolset": now.toolset or ""}
    return spec | changes | {"directory": directory}


def _follow(
    work: Work, spec: dict[str, Any], detail: dict[str, Any], *, fresh: bool
) -> tuple[dict[str, Any], int]:
    """Run the build and show its log; the result, and where in build.log this attempt begins."""
    pattern = re.compile(work.recipe.progress)
    units: dict[str, int] = {"done": 0, "total": 0}
    tail: list[str] = []
    detail["tail"] = tail
    path, kind = work.run.path / "build.log", work.recipe.kind
    job = Job(
        work,
        spec["directory"],
        {"title": work.order.label, "function": FUNCTIONS[kind], "arguments": {"spec": spec}},
        path,
        keep=lambda left: (
            not left.get("exit", 1) and work.session.call(builder.whole, wheels=_left(left))
        ),
        fresh=fresh,
        secrets=compile_cache.secrets(work.config.compile_cache) if spec["cache"] else {},
    )
    try:
        with path.open("ab") as log, units_progress() as progress:
            task = progress.add_task("compile units", total=None, unit="")
            for line in log_lines(job.follow(), log):
                if isinstance(line, dict):
                    detail |= {"units": units, "attempt": job.attempt, "lost": job.lost}
                    detail["kept"] = job.kept
                    detail |= {"exit": line["exit"], "wheels": line["wheels"]}
                    told = ("timeline", "cache", "library", "programs")
                    detail |= {key: line[key] for key in told if line.get(key)}
                    detail["process_seconds"] = line["seconds"]  # without anything of ours
                    tail[:] = last_lines(path, TAIL)  # also what came before we did
                    return line, job.base
                tail.append(safe(line, 500))
                del tail[:-TAIL]
                match = pattern.match(line)
                if match and max(len(match["done"]), len(match["total"])) < _DIGITS:
                    units |= {"done": int(match["done"]), "total": int(match["total"])}
                    progress.update(
                        task,
                        completed=units["done"],
                        total=units["total"],
                        unit=safe(match["unit"], 40),
                    )
                if not console.is_terminal or match:
                    host_line(line)
    except RemoteError as error:
        raise BuildError(
            f"the build could not be run: {error.message}", advice="Try: invoke provision"
        ) from error
    raise BuildError("the log ended without a result", advice="Run the same command again.")
