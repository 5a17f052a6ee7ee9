r"""Runs the unit tests with the sandbox's Windows Python, under Wine.

    python scripts/test_windows.py [FILES]

Two Windows of their own get the locked requirements, resolved for Windows, and a copy of this tree
at ``C:\src``. Each takes a few modules at a time; if that process hangs or ends early, each of
these modules is run alone. ``tests/under_wine.yaml`` lists what is not run, with the reason. The
results are in ``build/test-windows.xml``.
"""

from __future__ import annotations

import select
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from threading import Event

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pipelines.core.yamlfile import read_yaml  # noqa: E402
from pipelines.hosts.sandbox import image  # noqa: E402
from pipelines.hosts.sandbox.wine import Prefix  # noqa: E402
from pipelines.toolchain.lock import Cache, load_lock  # noqa: E402

PYTHON = "3.11"
SHORT = PYTHON.replace(".", "")
PROGRAMS = rf"C:\Python{SHORT}\Lib\site-packages\bin"
SOURCE = "src"
RESULT = ROOT / "build/test-windows.xml"
NOT_RUN = ROOT / "tests/under_wine.yaml"
LANES = 2
TOGETHER = 6
#: Without a result of a test. An idle machine needs a tenth of it for the slowest.
SILENCE = 900
#: Interrupted, or done.
STOPPED = Event()
#: Pytest's exit codes of a run that came to its end.
ENDED = {0: "passed", 1: "failed", 5: "nothing to run"}


def install(site: Path) -> None:
    """The requirements, for Windows: but for numpy 2, which Wine's C run-time cannot load."""
    uv = Path(sys.executable).with_name("uv")
    platform = ("--python-version", PYTHON, "--python-platform", "x86_64-pc-windows-msvc")
    locks = ("-r", ROOT / "requirements-dev.lock", "-r", ROOT / "requirements-uv.lock")
    subprocess.run([uv, "pip", "install", "-q", *platform, "--target", site, *locks], check=True)
    for left in site.glob("numpy*"):
        shutil.rmtree(left)


def copy_tree(target: Path) -> None:
    """What git has, or would take."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)


def make_windows(cache: Cache, home: Path) -> Prefix:
    """A started Windows with the requirements and the tree."""
    image.copy_image(image.make_image(cache, PYTHON, print), home)
    prefix = Prefix(home)
    install(prefix.drive / f"Python{SHORT}/Lib/site-packages")
    copy_tree(prefix.drive / SOURCE)
    prefix.boot()
    return prefix


@dataclass
class Outcome:
    """What one process of pytest has left."""

    names: list[str]
    verdict: str
    output: str
    suite: ET.Element | None = None


def run(prefix: Prefix, names: list[str]) -> Outcome:
    """Pytest with these files; its output goes through a pipe, as Wine needs it."""
    (result := prefix.drive / "result.xml").unlink(missing_ok=True)
    options = ["-q", "-p", "no:cacheprovider", "--durations=3", "--junitxml", r"C:\result.xml"]
    process = subprocess.Popen(
        [*prefix.command(), rf"C:\Python{SHORT}\python.exe", "-m", "pytest", *options, *names],
        cwd=prefix.drive / SOURCE,
        env=prefix.environment({"PYTHONUTF8": "1", "WINEPATH": PROGRAMS}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
    )
    pipe, written = process.stdout, b""
    assert pipe is not None  # noqa: S101 - for mypy
    while select.select([pipe], [], [], SILENCE)[0]:
        if not (piece := pipe.read(1 << 16)):
            verdict = ENDED.get(process.wait(), f"exit code {process.returncode}")
            break
        written += piece
    else:
        prefix.halt()
        prefix.boot()
        written, verdict = written + process.communicate()[0], "hung"
    output = written.decode(errors="replace")
    if verdict not in ENDED.values() or not result.is_file():
        return Outcome(names, verdict, output)
    suites = list(ET.parse(result).getroot())  # noqa: S314 - pytest's own
    return Outcome(names, verdict, output, suites[0])


def work(prefix: Prefix, waiting: Queue[list[str]]) -> Iterator[Outcome]:
    """Run what waits; of a process without a result, each module alone."""
    while not STOPPED.is_set():
        try:
            names = waiting.get_nowait()
        except Empty:
            return
        done = run(prefix, names)
        if done.suite is not None or len(names) == 1:
            yield done
            continue
        print(f"{done.verdict}: {' '.join(names)}; each alone", flush=True)
        for name in names:
            if not STOPPED.is_set():
                yield run(prefix, [name])


def show(outcome: Outcome) -> Outcome:
    """Print it, with the output of what did not pass."""
    seconds = float(outcome.suite.get("time", 0)) if outcome.suite is not None else 0
    print(f"{outcome.verdict:8} {seconds:6.1f} s  {' '.join(outcome.names)}", flush=True)
    if outcome.verdict not in ("passed", "nothing to run"):
        print(outcome.output, flush=True)
    return outcome


def chosen(files: list[str], left_out: dict[str, str]) -> list[str]:
    """The modules to run: those named, or all but those that are left out."""
    found = sorted((ROOT / "tests/unit").glob("test_*.py"))
    names = [str(path.relative_to(ROOT)) for path in found if path.name not in left_out]
    return files or names


def summarize(outcomes: list[Outcome], left_out: dict[str, str]) -> int:
    """Print the numbers and what was skipped by reason; the exit code."""
    suites = [outcome.suite for outcome in outcomes if outcome.suite is not None]
    root = ET.Element("testsuites")
    root.extend(suites)
    ET.ElementTree(root).write(RESULT, encoding="utf-8", xml_declaration=True)
    cases = [case for suite in suites for case in suite.iter("testcase")]
    skips = [found for case in cases if (found := case.find("skipped")) is not None]
    bad = [c for c in cases if c.find("failure") is not None or c.find("error") is not None]
    lost = [outcome for outcome in outcomes if outcome.suite is None]
    reasons = Counter(one.get("message", "") for one in skips)
    reasons += Counter(f"{why} (module)" for why in left_out.values())
    print("skipped, by reason:")
    for reason, number in reasons.most_common():
        print(f"{number:5} {reason}")
    passed = len(cases) - len(skips) - len(bad)
    print(f"{passed} passed, {len(skips)} skipped, {len(bad)} failed")
    for case in bad:
        print(f"failed: {case.get('classname')}::{case.get('name')}")
    for outcome in lost:
        print(f"{outcome.verdict}: {outcome.names[0]}")
    return 1 if bad or lost or not passed else 0


def main() -> int:
    """Make the Windows, run the tests, remove them."""
    listed = read_yaml(NOT_RUN)
    left_out = {n: why for why, names in listed.items() for n in names if "::" not in n}
    names = chosen(sys.argv[1:], left_out)
    waiting: Queue[list[str]] = Queue()
    for first in range(0, len(names), TOGETHER):
        waiting.put(names[first : first + TOGETHER])
    cache = Cache(load_lock())
    RESULT.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="test-windows-", dir=RESULT.parent) as scratch:
        lanes = range(min(LANES, waiting.qsize()))
        machines = [make_windows(cache, Path(scratch, f"windows{number}")) for number in lanes]
        pool = ThreadPoolExecutor(LANES)
        try:
            done = pool.map(lambda prefix: [*map(show, work(prefix, waiting))], machines)
            outcomes = [outcome for lane in done for outcome in lane]
        finally:
            STOPPED.set()
            for prefix in machines:
                prefix.halt()
            pool.shutdown()
    return summarize(outcomes, {} if sys.argv[1:] else left_out)


if __name__ == "__main__":
    sys.exit(main())
