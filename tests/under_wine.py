"""What the sandbox's Windows Python does not run under Wine, and why; a real Windows runs it.

Five reasons are seen by themselves: a program that is not installed there, a script of a Linux
shell that Windows cannot start, a symbolic link that a test makes, a file name and a function of
``os`` or ``signal`` that Windows does not have. ``under_wine.yaml`` lists the others.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.remote.inspection import kernel

FOLDER = Path(__file__).parent
#: Reason -> modules of tests/unit, or tests in them.
LISTED: dict[str, list[str]] = yaml.safe_load((FOLDER / "under_wine.yaml").read_text("utf-8"))
#: Those that no Windows can import.
POSIX = LISTED["cannot be imported on Windows: POSIX alone"] if os.name == "nt" else []
_PROGRAMS = {"git", "sh", "bash", "node", "gcc", "g++", "ninja", "gpg", "openssl"}
_NOT_FOUND, _NO_PROGRAM = 2, 193
_NO_NAME = re.compile(r'[<>:"|?*\x00-\x1f]')


def is_here() -> bool:
    return kernel.wine() is not None


class Skips:
    """The plugin of pytest that skips them."""

    def __init__(self) -> None:
        self.why = {name: reason for reason, names in LISTED.items() for name in names}
        self.link = os.symlink
        os.symlink = self.symlink

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        name = f"{item.path.name}::{getattr(item, 'originalname', item.name)}"
        if name in self.why:
            item.add_marker(pytest.mark.skip(reason=self.why[name]))

    def symlink(self, *arguments: Any, **more: Any) -> None:
        """Wine reports a link that it does not make; the product looks whether there is one."""
        frame, pathlib = sys._getframe(1), Path.symlink_to.__code__.co_filename
        while frame.f_back is not None and frame.f_code.co_filename == pathlib:
            frame = frame.f_back
        if Path(frame.f_code.co_filename).is_relative_to(FOLDER):
            pytest.skip("makes a symbolic link, which Wine only reports")
        self.link(*arguments, **more)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed and call.excinfo and (reason := impossible(call.excinfo)):
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.reportinfo()[1] or 0, reason)
        return report


def impossible(excinfo: pytest.ExceptionInfo[BaseException]) -> str:
    """What the test itself did that Windows cannot; in the product it would be a fault."""
    code = getattr(excinfo.value, "winerror", None)
    if _NO_NAME.search(Path(str(getattr(excinfo.value, "filename", ""))).name):
        return "needs a file name that Windows does not have"
    start = subprocess.Popen.__init__.__code__
    own = [e for e in excinfo.traceback if e.frame.code.raw.co_filename != start.co_filename]
    if not Path(own[-1].path).is_relative_to(FOLDER):
        return ""
    if isinstance(excinfo.value, AttributeError) and excinfo.value.obj in (os, signal):
        return f"calls {excinfo.value.name}, which Windows does not have"
    started = [entry.locals["args"] for entry in excinfo.traceback if entry.frame.code.raw is start]
    if code is None or not started:
        return ""
    program = Path(started[0] if isinstance(started[0], str) else started[0][0]).name
    if code == _NOT_FOUND and program in _PROGRAMS:
        return f"runs {program}, which is not installed there"
    return "starts a script of a Linux shell" if code == _NO_PROGRAM else ""
