r"""Runs the unit tests with the sandbox's Windows Python, under Wine: what pytest takes.

    python scripts/test_windows.py [PYTEST'S ARGUMENTS]

A Windows of its own gets the locked requirements, resolved for Windows, and a copy of this tree at
``C:\src``. It is removed afterwards; ``build/test-windows.xml`` stays.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pipelines.hosts.sandbox import image  # noqa: E402
from pipelines.hosts.sandbox.wine import Prefix  # noqa: E402
from pipelines.toolchain.lock import Cache, load_lock  # noqa: E402

PYTHON = "3.11"
SOURCE = "src"
RESULT = ROOT / "build/test-windows.xml"


def install(site: Path) -> None:
    """The requirements, for Windows: but for numpy 2, which Wine's C run-time cannot load."""
    uv = Path(sys.executable).with_name("uv")
    platform = ("--python-version", PYTHON, "--python-platform", "x86_64-pc-windows-msvc")
    lock = ROOT / "requirements-dev.lock"
    subprocess.run(
        [uv, "pip", "install", "-q", *platform, "--target", site, "-r", lock], check=True
    )
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


def run(prefix: Prefix, arguments: list[str]) -> int:
    """Pytest's exit code; its output goes through a pipe, as Wine needs it."""
    program = rf"C:\Python{PYTHON.replace('.', '')}\python.exe"
    options = ["-p", "no:cacheprovider", "--junitxml", r"C:\result.xml"]
    words = [*prefix.command(), program, "-m", "pytest", *options, *arguments]
    environment = prefix.environment({"PYTHONUTF8": "1"})
    process = subprocess.Popen(
        words,
        cwd=prefix.drive / SOURCE,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    process.stdin.close()
    for line in process.stdout:
        sys.stdout.buffer.write(line)
        sys.stdout.flush()
    return process.wait()


def main() -> int:
    """Make that Windows, run the tests, remove it."""
    cache = Cache(load_lock())
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="test-windows-", dir=ROOT / "build") as scratch:
        home = Path(scratch, "prefix")
        image.copy_image(image.make_image(cache, PYTHON, print), home)
        prefix = Prefix(home)
        install(prefix.drive / f"Python{PYTHON.replace('.', '')}/Lib/site-packages")
        copy_tree(prefix.drive / SOURCE)
        try:
            prefix.boot()
            code = run(prefix, sys.argv[1:] or ["-n", "auto", "tests/unit"])
        finally:
            prefix.halt()
        if (made := prefix.drive / "result.xml").is_file():
            shutil.copy(made, RESULT)
    return code


if __name__ == "__main__":
    sys.exit(main())
