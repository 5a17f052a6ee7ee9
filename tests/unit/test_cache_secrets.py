"""Secrets of the compile cache reach sccache's server from the call that starts a job alone."""

from __future__ import annotations

import io
import json
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from pipelines.remote.jobs import launch, store
from pipelines.session.channel import bootstrap_command, open_session
from pipelines.session.transports.popen import PopenStream

if sys.platform == "win32":
    pytest.skip("the fake sccache is a POSIX script", allow_module_level=True)

pytestmark = pytest.mark.faults

WORD = "word-that-is-not-shown"
# It writes down what its server was given, and whether the build was given it too.
SCCACHE = """#!{python}
import json, os, socket, sys
if len(sys.argv) > 1: sys.exit()
open({seen!r}, "w").write(os.environ.get("SCCACHE_REDIS_PASSWORD", ""))
server = socket.socket(socket.AF_UNIX)
server.bind(os.environ["SCCACHE_SERVER_UDS"]); server.listen()
while True: server.accept()
"""
BACKEND = """import os, sys, pathlib
told = repr(dict(os.environ))
print("PYTORCH_NVCC" in os.environ, {word!r} in told)
def build_wheel(out, *_):
    pathlib.Path(out, "x-1-py3-none-any.whl").write_bytes(b"x"); return "x-1-py3-none-any.whl"
"""


def test_they_reach_the_server_alone(tmp_path: Path) -> None:
    sccache, seen, job = tmp_path / "sccache", tmp_path / "seen", tmp_path / "b" / "job"
    sccache.write_text(SCCACHE.format(python=sys.executable, seen=str(seen)))
    sccache.chmod(0o755)
    archive = tmp_path / "src.tar.gz"
    files = {
        "pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = 'it'\n"
        "backend-path = ['.']\n",
        "it.py": BACKEND.format(word=WORD),
    }
    with tarfile.open(archive, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    cache = {
        "kind": "redis",
        "executable": str(sccache),
        "directory": str(tmp_path / "cache"),
        "environment": {"SCCACHE_REDIS_ENDPOINT": "redis://r:1"},
        "remote": ["SCCACHE_REDIS_ENDPOINT"],
        "nvcc": "nvcc",
        "place": str(tmp_path / "b" / "s"),
        "packages": str(tmp_path / "b/p/site"),
        "pinned": True,
        "without": {},
    }
    spec = {
        "directory": str(job),
        "archive": str(archive),
        "installer": "",
        "python": sys.executable,
        "environment": {},
        "toolset": "",
        "timeout": 60,
        "cache": cache,
    }
    secrets = {"SCCACHE_REDIS_PASSWORD": WORD}
    with open_session(
        PopenStream(["sh", "-c", bootstrap_command(sys.executable)]), name="here"
    ) as session:
        told: Any = session.call(
            launch.start,
            directory=str(job),
            spec={"title": "t", "function": "builder.build", "arguments": {"spec": spec}},
            secrets=secrets,
        )
        deadline = time.monotonic() + 60
        while told["state"] == "running" and time.monotonic() < deadline:
            time.sleep(0.1)
            told = session.call(store.state, directory=str(job))
    log = (job / "log.1").read_text()
    assert "True False" in log, log
    assert f"redis, {tmp_path / 'cache'}" in log
    assert seen.read_text() == WORD
    seen.unlink()
    assert told["state"] == "ended"
    own = ("src.tar.gz", "it.py", f"it.{sys.implementation.cache_tag}.pyc")  # it holds the word
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.suffix != ".pyz":
            assert WORD.encode() not in path.read_bytes() or path.name in own
    assert WORD not in json.dumps(told)
