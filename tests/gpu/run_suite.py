"""Runs a shipped smoke suite on this machine, over an environment used as it is.

``python tests/gpu/run_suite.py --suite flash_attn --wheel X.whl --out DIRECTORY``

Needs the standard library alone; the environment of ``--python`` (this one if not given) needs
pytest, pytest-xdist, and what the wheel needs (torch). Leaves ``smoke.xml`` and ``smoke.log`` in
the output directory and exits with pytest's code.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from pipelines.remote import tester  # noqa: E402  the checkout need not be installed


def suite_files(name: str) -> dict[str, str]:
    """The suite as it is sent to a host."""
    smoke = ROOT / "pipelines" / "smoke"
    paths = [path for each in ("common", name) for path in sorted((smoke / each).glob("*"))]
    files = {path.name: path.read_text("utf-8") for path in paths if path.suffix in (".py", ".ini")}
    beside = [ROOT / "pipelines" / name for name in ("wheels/fatbin.py", "remote/awake.py")]
    return files | {path.name: path.read_text("utf-8") for path in beside}


def run(
    suite: str | dict[str, str],
    wheel: Path | None,
    out: Path,
    *,
    python: str = sys.executable,
    environment: dict[str, str] | None = None,
    expect: dict[str, Any] | None = None,
    timeout: float = 900.0,
) -> dict[str, Any]:
    """The run's result; ``smoke.xml`` (if there is a report) and ``smoke.log`` are in ``out``.

    ``suite`` is the name of a shipped one, or the files of another.
    """
    out.mkdir(parents=True, exist_ok=True)
    parts = wheel.name.split("-") if wheel else ["", ""]
    told = {"distribution": parts[0].replace("_", "-"), "version": parts[1]}
    told |= {"archs": [], "ptx": [], "platform": None} | (expect or {})
    result: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory(prefix="smoke-") as folder,
        (out / "smoke.log").open("wb") as log,
    ):
        spec: tester.Spec = {
            "directory": str(Path(folder) / "t"),
            "installer": "",
            "python": python,
            "system": True,
            "wheel": str(wheel) if wheel else "",
            "packages": [],
            "suite": suite_files(suite) if isinstance(suite, str) else suite,
            "expect": told,
            "environment": environment or {},
            "timeout": timeout,
        }
        for item in tester.run_suite(spec):
            if isinstance(item, dict):
                result = dict(item)
            else:
                log.write(item)
        if result["junit"]:
            shutil.copy(result["junit"], out / "smoke.xml")
    return result


def main() -> int:
    """Read the arguments, run, print the end of the log and the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--suite", required=True)
    parser.add_argument("--wheel", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--expect", default="{}", help="JSON, added to what the wheel's name says")
    parser.add_argument("--timeout", type=float, default=900.0)
    told = parser.parse_args()
    wheel = told.wheel.resolve() if told.wheel else None
    expect = json.loads(told.expect)
    result = run(
        told.suite, wheel, told.out, python=told.python, expect=expect, timeout=told.timeout
    )
    print((told.out / "smoke.log").read_text("utf-8", "replace")[-8000:])
    print(json.dumps(result))
    return int(result["exit"])


if __name__ == "__main__":
    sys.exit(main())
