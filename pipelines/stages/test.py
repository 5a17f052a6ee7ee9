"""Tests the collected wheel on the host: clean environment, shipped suite, JUnit home."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

from pipelines.console import console, fold, host_line, say
from pipelines.errors import ConfigError, HostError, RemoteError, SmokeError
from pipelines.hosttext import safe
from pipelines.paths import PACKAGE
from pipelines.recipe.model import Recipe
from pipelines.remote import files as remote_files
from pipelines.reports.junit import read_pytest
from pipelines.stages.detached import Job
from pipelines.stages.logs import TAIL, last_lines, log_lines
from pipelines.stages.work import Work
from pipelines.wheels import fatbin
from pipelines.wheels.metadata import inspect

_SUITES = PACKAGE / "smoke"
_TIMEOUT = 1800.0  # seconds a step
# In a process of its own: what does not load may end the one that tries.
_VERIFY = """
import subprocess
import sys

CODE = {code!r}

def test_verify():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{{CODE}} left with {{done.returncode}}: {{done.stderr[-3000:]}}"
"""


def test(work: Work, detail: dict[str, Any]) -> None:
    """Run the recipe's smoke suite against the run's wheel; :class:`SmokeError` if a case fails."""
    wheels = sorted((work.run.path / "wheels").glob("*.whl"))
    if len(wheels) != 1:
        raise ConfigError(
            f"run {work.run.id} has {len(wheels)} wheels, one is expected",
            advice="Type: invoke build",
        )
    (wheel,) = wheels
    layout = work.layout
    suite, expected = suite_files(work.recipe), expectations(work, wheel)
    told = json.dumps([work.run.id, suite, expected], sort_keys=True)
    name = hashlib.sha256(told.encode()).hexdigest()[:12]
    directory = layout.join(layout.build_root, f"smoke-{name}")
    with fold(f"Smoke test {wheel.name} on {work.host.name}"):
        target = layout.join(f"{directory}-wheel", wheel.name)
        work.session.call(remote_files.make_dirs, path=f"{directory}-wheel")
        work.session.put(wheel, target)
        spec = {
            "directory": layout.join(directory, "t"),
            "installer": layout.uv,
            "python": layout.python,
            "wheels": layout.wheels,
            "wheel": target,
            "packages": [] if work.host.existing else packages(work),
            "system": work.host.existing is not None,
            "suite": suite,
            "expect": expected,
            "environment": {
                "TEMP": layout.temp,
                "TMP": layout.temp,
                "PYTHONUTF8": "1",
                "CUDA_MODULE_LOADING": "LAZY",
                # Only what the virtual environment holds may be found, no toolkit.
                "CUDA_PATH": "",
                "CUDA_HOME": "",
            },
            "timeout": _TIMEOUT,
        }
        job = Job(
            work,
            directory,
            {"title": work.run.id, "function": "tester.run_suite", "arguments": {"spec": spec}},
            work.run.path / "smoke.log",
            error=SmokeError,
        )
        try:
            result = _follow(job, detail)
            _keep(work, result, detail)
        except (HostError, KeyboardInterrupt):
            raise  # the suite goes on there: the next time it is taken up
        except BaseException:
            _clean(work, directory)
            raise
        _clean(work, directory)


def _clean(work: Work, directory: str) -> None:
    for folder in (directory, f"{directory}-wheel"):
        work.session.call(remote_files.remove_tree, path=folder)


def suite_files(recipe: Recipe) -> dict[str, str]:
    """The suite as it is shipped: the shared files, its own, and the fat-binary reader.

    A recipe without one is tested by its ``verify`` alone.
    """
    if not recipe.smoke:
        if recipe.verify:
            return {"test_verify.py": _VERIFY.format(code=recipe.verify)}
        raise ConfigError(
            f"recipe {recipe.name} says neither smoke nor verify: there is nothing to test with",
            advice="Name a folder of pipelines/smoke in it, or Python that shows that it loads.",
        )
    files: dict[str, str] = {}
    for folder in (_SUITES / "common", _SUITES / recipe.smoke):
        kept = [path for path in sorted(folder.glob("*")) if path.suffix in (".py", ".ini")]
        if not kept:
            raise ConfigError(f"no smoke suite in {folder}", advice="Mend smoke in the recipe.")
        files |= {path.name: path.read_text("utf-8") for path in kept}
    return files | {"fatbin.py": Path(fatbin.__file__).read_text("utf-8")}


def packages(work: Work) -> list[str]:
    """What the suite imports, ``name==version`` each, with all that must come along."""
    lock = work.cache.lock
    entries = lock.entries_for(work.recipe.test_requires, work.place.lock_cell)
    return [f"{name}=={lock.tool(entry).version}" for name, entry in entries.items()]


def expectations(work: Work, wheel: Path) -> dict[str, Any]:
    """What the suite compares the installed wheel with."""
    facts, archs = inspect(wheel), work.archs.effective
    return {
        "distribution": work.recipe.name,
        "version": str(facts.version),
        "cuda": work.recipe.cuda,
        "torch": work.recipe.torch,
        "archs": list(archs.sass),
        "ptx": list(archs.ptx),
        "platform": "win_amd64" if work.host.capabilities.windows else None,
    }


def _follow(job: Job, detail: dict[str, Any]) -> dict[str, Any]:
    tail: list[str] = []
    detail["tail"] = tail
    try:
        with job.log.open("ab") as log:
            for line in log_lines(job.follow(), log):
                if isinstance(line, dict):
                    tail[:] = last_lines(job.log, TAIL)
                    return line
                tail.append(safe(line, 500))
                del tail[:-TAIL]
                if not console.is_terminal and line.strip():
                    host_line(line)
    except RemoteError as error:
        raise SmokeError(
            f"the smoke test could not be run: {error.message}", advice="Try: invoke provision"
        ) from error
    raise SmokeError("the smoke test ended without a result", advice="Run the command again.")


def _keep(work: Work, result: dict[str, Any], detail: dict[str, Any]) -> None:
    detail |= {"exit": result["exit"], "step": result["step"]}
    tail = "\n".join(detail["tail"][-15:])
    if not result["junit"]:
        cause = "ran out of time" if result["timed_out"] else f"left with {result['exit']}"
        raise SmokeError(
            f"{result['step']} {cause} and there is no report:\n{tail}",
            advice="A crash of the interpreter looks like this. The log is in the JUnit report.",
        )
    report = work.run.path / "smoke.xml"
    work.session.get(result["junit"], report)
    suite = read_pytest(report.read_bytes())
    outcomes = Counter(case.outcome for case in suite.cases)
    detail["outcomes"] = dict(outcomes)
    said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    bad = [case for case in suite.cases if case.outcome in ("failed", "error")]
    for reason, count in Counter(c.message for c in suite.cases if c.outcome == "skipped").items():
        say(f"  {count} skipped: {safe(reason, 200)}", style="yellow")
    for case in bad[:10]:
        say(f"  {case.outcome}: {safe(case.name)}: {safe(case.message, 200)}", style="red")
    say(f"{len(suite.cases)} cases: {said}", style="red" if bad else "green")
    if not suite.cases:
        raise SmokeError(
            "the smoke suite ran no case", advice="A suite without tests proves nothing."
        )
    if bad or result["exit"]:
        raise SmokeError(
            f"{len(bad)} of {len(suite.cases)} smoke cases failed (pytest left with "
            f"{result['exit']})",
            advice=f"See {work.run.path / 'junit.xml'}",
        )
