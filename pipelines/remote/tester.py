"""Runs a smoke suite against a wheel: in a clean virtual environment, from an empty directory."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
from collections.abc import Generator
from typing import Any

from . import process


def run_suite(spec: dict[str, Any]) -> Generator[Any, None, None]:
    """Yield log bytes, then ``{"exit", "seconds", "timed_out", "junit"}``.

    ``spec``: ``directory`` (made anew), ``installer`` (uv.exe), ``python``, ``wheels`` (directory
    with the pinned wheels), ``wheel`` (the one to test), ``packages`` (what else to install),
    ``suite`` (file name -> text), ``expect`` (what the suite reads from ``SMOKE_EXPECT``),
    ``environment``, ``timeout``. ``junit`` is the report's path, or ``None`` if there is none.
    """
    root = pathlib.Path(spec["directory"])
    if root.exists():
        shutil.rmtree(root)
    suite, empty = root / "suite", root / "empty"
    for folder in (suite, empty):
        folder.mkdir(parents=True)
    for name, text in spec["suite"].items():
        (suite / name).write_text(text, "utf-8")
    (root / "expect.json").write_text(json.dumps(spec["expect"]), "utf-8")

    windows = os.name == "nt"
    python = root / "venv" / ("Scripts/python.exe" if windows else "bin/python")
    junit = root / "junit.xml"
    uv = [
        spec["installer"],
        "--quiet",
        "--offline",
        "--no-cache",
        "--no-config",
        "--color",
        "never",
    ]
    steps = [
        [*uv, "venv", "--python", spec["python"], str(root / "venv")],
        [
            *(*uv, "pip", "install", "--python", str(python), "--no-index"),
            *("--find-links", spec["wheels"], spec["wheel"], *spec["packages"]),
        ],
        [
            *(str(python), "-m", "pytest", str(suite), "--rootdir", str(suite)),
            *("-p", "no:cacheprovider", "-q", "-ra", "--color=no", "--tb=short"),
            f"--junitxml={junit}",
        ],
    ]
    environment = {**os.environ, **spec["environment"], "SMOKE_EXPECT": str(root / "expect.json")}
    for number, command in enumerate(steps, 1):
        for item in process.stream(
            command, env=environment, cwd=str(empty), timeout=spec["timeout"]
        ):
            if not isinstance(item, dict):
                yield item
            elif number == len(steps) or item["exit"] or item["timed_out"]:
                item["step"] = ("venv", "install", "pytest")[number - 1]
                item["junit"] = str(junit) if junit.is_file() else None
                yield item
                return
