"""The sandbox dies under a build, in each way: known within seconds, and the build ends green."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipelines.core.paths import PACKAGE

#: Seconds until a death is known. They are more than it takes, for a busy machine.
KNOWN = 10.0


class Checkout:
    """Commands as they are typed, on a sandbox of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.sandbox = home / "s-py3.11"
        config = home / "pipeline.yaml"
        config.write_text(
            f"hosts: {{sandbox: {{kind: sandbox, home: {home}/s}}}}\nout: {home}/out\n"
        )
        self.environment = {**os.environ, "WCW_CONFIG": str(config), "COLUMNS": "200"}

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "invoke", *words],
            cwd=PACKAGE.parent,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def invoke(self, *words: str) -> tuple[int, str]:
        process = self.start(*words)
        said, _ = process.communicate(timeout=240)
        return process.returncode, said

    def service(self) -> int:
        return int(json.loads((self.sandbox / "run/state.json").read_text())["pid"])

    def wineserver(self) -> int:
        """The one whose parent is not the service: that one only waits for it."""
        prefix = f"WINEPREFIX={self.sandbox}/prefix".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                mine = prefix in (entry / "environ").read_bytes().split(b"\0")
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if mine and b"wineserver" in words[0] and b"-w" not in words:
                return int(entry.name)
        raise AssertionError("no wineserver")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    made = Checkout(tmp_path_factory.mktemp("death"))
    code, said = made.invoke("provision")
    assert code == 0, said
    yield made
    made.invoke("host.remove", "--force")


def kill_service(checkout: Checkout) -> None:
    os.kill(checkout.service(), signal.SIGKILL)


def kill_wineserver(checkout: Checkout) -> None:
    os.kill(checkout.wineserver(), signal.SIGKILL)


def stop(checkout: Checkout) -> None:
    code, said = checkout.invoke("host.stop")
    assert code == 2, "not while a build runs"
    job = re.search(r"would end with it: (\w{12}) smoke-attention", said)
    assert job, said
    code, said = checkout.invoke("host.stop", "--force")
    assert (code, "stopped" in said) == (0, True), said


@pytest.mark.parametrize(
    ("end", "archs"),
    # The last takes two command lines, within which the build must not come to its end.
    [(kill_service, "75"), (kill_wineserver, "80"), (stop, "80;86;89")],
)
def test_a_build_outlives_its_sandbox(
    checkout: Checkout, end: Callable[[Checkout], None], archs: str
) -> None:
    build = checkout.start("build", "--archs", archs, "--jobs", "1")
    assert build.stdout is not None
    before: list[str] = []
    for line in build.stdout:
        before.append(line)
        if re.search(r"\[2/5\]", line):
            break
    else:
        raise AssertionError("".join(before))
    end(checkout)
    died, known, after = time.monotonic(), 0.0, []
    for line in build.stdout:
        after.append(line)
        if "has stopped, and the job with it" in line:
            known = time.monotonic() - died
    assert build.wait(30) == 0, "".join([*before, *after])
    said = "".join(after)
    assert known, said
    assert known < KNOWN
    assert "the host was restarted: continuing with the finished units" in said
    assert "the job continues" not in said
    assert len(re.findall(r"\.cu is up to date", said)) >= 2, "finished units are kept"


def test_reading_after_a_crash_loses_nothing(checkout: Checkout) -> None:
    code, said = checkout.invoke("build", "--archs", "89")
    assert code == 0, said
    jobs = checkout.invoke("jobs")[1]
    assert "smoke-attention" in jobs
    assert checkout.invoke("host.start")[0] == 0
    kill_service(checkout)
    assert "crashed" in checkout.invoke("host.status")[1]
    for words in (("jobs",), ("doctor",), ("jobs",)):
        code, said = checkout.invoke(*words)
        assert code == 0, said
    names = re.findall(r"^\w{12}", jobs, re.MULTILINE)
    assert names
    assert re.findall(r"^\w{12}", said, re.MULTILINE) == names
    code, said = checkout.invoke("provision")
    assert code == 0
    assert "0 changed" in said
    assert not (checkout.sandbox / "prefix.aside").exists()
