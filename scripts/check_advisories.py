#!/usr/bin/env python3
"""Known vulnerabilities of every pinned Python requirement, looked up by pip-audit.

Exits with 0 if each pin was looked up and none has an advisory, with 1 if one has, and with 77 if
they were not all looked up, as without a network: that is no pass.
    scripts/check_advisories.py    needs scripts/check-workflows --setup
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NOT_LOOKED_UP = 77
PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[.*?\])?==([\w.+!-]+)", re.MULTILINE)
AUDIT = (".venv-workflows/bin/pip-audit", "--no-deps", "--disable-pip", "--progress-spinner=off")


def verdict(report: str, pins: int) -> tuple[int, list[str]]:
    """The exit code for pip-audit's JSON on so many pins, and what is to be said."""
    try:
        rows: list[dict[str, Any]] = [*json.loads(report)["dependencies"]]
    except (ValueError, KeyError, TypeError):
        rows = []
    known = {row["name"]: row["vulns"] for row in rows if "vulns" in row}
    bad = [
        f"{name}: {', '.join([one['id'], *one.get('aliases', ())])}"
        for name, found in known.items()
        for one in found
    ]
    said = [f"{len(known)} of {pins} pins looked up, {len(bad)} advisories", *bad]
    if bad:
        return 1, said
    return (0 if pins and len(known) >= pins else NOT_LOOKED_UP), said


def rounds(locks: Iterable[str]) -> list[list[str]]:
    """All pins, also of other systems, as pip-audit takes them: each name once in a round."""
    versions: dict[str, set[str]] = defaultdict(set)
    for name, version in (pin for lock in locks for pin in PIN.findall(lock)):
        versions[name].add(version)
    columns = [[f"{name}=={one}" for one in sorted(found)] for name, found in versions.items()]
    return [[pin for pin in row if pin] for row in zip_longest(*columns, fillvalue="")]


def main() -> int:
    """Audit the pins of all locks; the worst exit code, a vulnerability's being the worst."""
    codes = set()
    for pins in rounds(path.read_text("utf-8") for path in ROOT.glob("requirements*.lock")):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("\n".join(pins))
            file.flush()
            command = [str(ROOT / AUDIT[0]), *AUDIT[1:], "--format", "json", "-r", file.name]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
        code, said = verdict(done.stdout, len(pins))
        codes.add(code)
        print("\n  ".join(said))
        if code == NOT_LOOKED_UP:
            print("NOT LOOKED UP:", *done.stderr.strip().splitlines()[-1:])
    return min(codes - {0}, default=0)


if __name__ == "__main__":
    sys.exit(main())
