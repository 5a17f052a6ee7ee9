"""``scripts/first_run.py`` in the genuine Windows Python; from Wine its archive is refused."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from pipelines.core.errors import AuditError
from pipelines.core.paths import PACKAGE
from pipelines.remote import process
from pipelines.stages.line import Line
from scripts.reference import first_run as importing

pytestmark = pytest.mark.sandbox

ROOT = PACKAGE.parent
PLACE = r"C:\t\first-run"
#: The script with steps of its own: what it does with processes, logs and files is the same.
STEPS = """
import sys
sys.path.insert(0, r"{place}\\scripts")
import first_run
first_run.PROGRAMS["{{wcw}}"] = [sys.executable, "-c", "print('nothing is known')"]
child = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', "
child += "'import time; time.sleep(4); open(chr(109), chr(119)).close()']); time.sleep(60)"
first_run.PROGRAMS["{{child}}"] = [sys.executable, "-c", child]
home = "import pathlib; print(pathlib.Path.home() / 'x')"
first_run.PROGRAMS["{{home}}"] = [sys.executable, "-c", home]
first_run.STEPS = (
    first_run.Step("home", "names", 1, ("{{home}}",)),
    first_run.Step("slow", "time", 0.05, ("{{child}}",)),
    first_run.Step("after", "needs it", 1, ("{{home}}",), needs=("slow",)),
    first_run.Step("none", "no program", 1, ("no-such-program.exe",)),
)
origin = first_run.origin
first_run.origin = lambda: origin() | {{"commit": "{commit}", "changed": False}}
code = first_run.main(["--full", "--output", r"{place}\\found"])
import time
time.sleep(5)
print("CODE", code, first_run.Path(r"{place}\\m").exists())
"""


def test_it_runs_in_windows_python(line: Line, tmp_path: Path) -> None:
    session = line.session
    session.put(ROOT / "scripts/first_run.py", rf"{PLACE}\scripts\first_run.py")
    git = ["git", "rev-parse", "HEAD"]
    done = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True)
    program = STEPS.format(place=PLACE, commit=done.stdout.strip())
    command = [r"C:\Python311\python.exe", "-c", program]
    code, said = session.call(process.capture, command=command, timeout=200)
    assert code == 0, said
    assert "CODE 1 False" in said, said  # a step failed, and no grandchild went on
    session.get(rf"{PLACE}\found\first-run.zip", tmp_path / "first-run.zip")
    with zipfile.ZipFile(tmp_path / "first-run.zip") as archive:
        manifest = json.loads(archive.read("first-run.json"))
        log = archive.read("home.log").decode()
    found = {row["id"]: row["verdict"] for row in manifest["steps"]}
    assert found == {"home": "passed", "slow": "timeout", "after": "skipped", "none": "failed"}
    assert "\n~\\x" in log
    assert (manifest["facts"]["system"], manifest["facts"]["wine"]) == ("Windows", True)
    # Consistent, and of a commit of ours: still not Windows.
    read, _ = importing.unpack(tmp_path / "first-run.zip", tmp_path / "files")
    with pytest.raises(AuditError, match="not run on Windows"):
        importing.examine(read, tmp_path / "files", ROOT)
