"""Ships the source to the host, builds the wheel there and follows the log."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from pipelines.config import ROOT
from pipelines.console import console, fold, host_line, safe, say, units_progress
from pipelines.errors import BuildError, ConfigError, RemoteError
from pipelines.plan.resources import Layout
from pipelines.stages.detached import Job
from pipelines.stages.logs import TAIL, log_lines
from pipelines.stages.work import Work

_IGNORED = {"build", "dist", "__pycache__", ".pytest_cache"}
_DIGITS = 10  # of a count; a host's line may hold more than int() takes
_EPOCH = 1704067200  # 2024-01-01: sources get one time, so that equal trees are equal archives


def pack_source(tree: Path) -> bytes:
    """A reproducible .tar.gz of a source tree, without what a build leaves in it."""
    if not (tree / "pyproject.toml").is_file() and not (tree / "setup.py").is_file():
        raise ConfigError(
            f"{tree} is no source tree: it has neither pyproject.toml nor setup.py",
            advice="Mend source.path in the recipe.",
        )
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(tree.rglob("*")):
            parts = path.relative_to(tree).parts
            if not path.is_file() or _IGNORED & set(parts) or parts[0].endswith(".egg-info"):
                continue
            info = tarfile.TarInfo("/".join(parts))
            info.size, info.mtime, info.mode = path.stat().st_size, _EPOCH, 0o644
            with path.open("rb") as stream:
                archive.addfile(info, stream)
    return gzip.compress(buffer.getvalue(), mtime=0)


def job_id(source: bytes, work: Work, environment: dict[str, str]) -> str:
    """The hash of everything that decides the wheel: source, tools, Python, environment."""
    digest = hashlib.sha256(source)
    pins = [
        f"{tool}={sha}" for w in work.wanted for tool in w.uploads for sha in [_pin(work, tool)]
    ]
    wheel = sorted(f"{k}={v}" for k, v in environment.items() if k != "MAX_JOBS")
    for text in (*pins, work.order.python, *wheel):
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:12]


def _pin(work: Work, tool: str) -> str:
    return work.cache.lock.tool(tool).sha256


def job_environment(work: Work, layout: Layout, jobs: int) -> dict[str, str]:
    """The variables a build gets on top of the host's and the compiler's."""
    stamp = "" if work.host.capabilities.publishable else f".{work.host.name}".replace("-", "")
    recipe, cuda = work.recipe, work.recipe.cuda.replace(".", "")
    values = {
        "archs": str(work.order.archs),
        "jobs": str(jobs),
        "local_version": recipe.local_version.format(cuda=cuda, stamp=stamp),
    }
    try:
        asked = {key: text.format(**values) for key, text in recipe.environment.items()}
    except (KeyError, IndexError, ValueError) as error:
        raise ConfigError(
            f"recipe {recipe.name}: environment: unknown field {error}",
            advice=f"There are: {', '.join(values)}",
        ) from None
    fixed = {
        "TEMP": layout.temp,
        "TMP": layout.temp,
        "CUDA_PATH": layout.cuda,
        "CUDA_HOME": layout.cuda,
        # The CUDA wheels keep their DLLs one level deeper than a toolkit does.
        "SOURCE_DATE_EPOCH": str(_EPOCH),
        "PYTHONUNBUFFERED": "1",
    }
    return {**fixed, **asked}


def build(work: Work, detail: dict[str, Any]) -> None:
    """Build on the host; ``detail`` gets the job, the wheels there and the log.

    The log streams into ``build.log`` of the run as it comes, so that it is kept whatever happens.
    Raises :class:`BuildError` with the log's last lines.
    """
    session, layout = work.session, work.layout
    jobs = work.order.jobs or int(work.facts["cpus"])
    environment = job_environment(work, layout, jobs)
    source = pack_source(ROOT / work.recipe.source.path)
    job = job_id(source, work, environment)
    directory = rf"{layout.build_root}\{job}"
    detail |= {"job": job, "directory": directory, "jobs": jobs, "environment": environment}
    detail["source_sha256"] = hashlib.sha256(source).hexdigest()
    with fold(
        f"Build {work.recipe.name} for cp{work.order.python.replace('.', '')}: {work.order.archs}"
    ):
        say(f"job {job}, {jobs} compile units at a time, in {directory} of {work.host.name}")
        session.call("files.make_dirs", path=directory)
        archive = rf"{directory}\src.tar.gz"
        with tempfile.TemporaryDirectory() as scratch:
            packed = Path(scratch) / "src.tar.gz"
            packed.write_bytes(source)
            session.put(packed, archive)
        spec = {
            "directory": directory,
            "archive": archive,
            "installer": layout.uv,
            "python": layout.python,
            "environment": environment,
            "timeout": None,
        }
        result = _follow(work, spec, detail)
    detail |= {"exit": result["exit"], "wheels": result["wheels"]}
    if result["exit"]:
        tail = "\n".join(detail["tail"][-12:])
        raise BuildError(
            f"the build left with exit code {result['exit']}:\n{tail}",
            advice=f"The whole log is {work.run.path / 'build.log'}. Finished units are kept: "
            "invoke build goes on from them.",
        )
    if not result["wheels"]:
        raise BuildError("the build succeeded but left no wheel", advice="Is it a wheel project?")


def _follow(work: Work, spec: dict[str, Any], detail: dict[str, Any]) -> dict[str, Any]:
    pattern = re.compile(work.recipe.progress)
    units: dict[str, int] = {"done": 0, "total": 0}
    tail: list[str] = []
    detail["tail"] = tail
    path = work.run.path / "build.log"
    job = Job(
        work,
        spec["directory"],
        {"title": work.order.label, "function": "builder.build", "arguments": {"spec": spec}},
        path,
        keep=lambda left: (
            not left.get("exit", 1) and work.session.call("builder.whole", wheels=left["wheels"])
        ),
    )
    try:
        with path.open("ab") as log, units_progress() as progress:
            task = progress.add_task("compile units", total=None, unit="")
            for line in log_lines(job.follow(), log):
                if isinstance(line, dict):
                    detail |= {"units": units, "attempt": job.attempt, "lost": job.lost}
                    return line
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
