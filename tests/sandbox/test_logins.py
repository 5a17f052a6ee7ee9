"""Logins and logouts while a sandbox runs: where Debian's Wine looks comes and goes with them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Events

from pipelines.hosts.sandbox.image import copy_image, make_image
from pipelines.toolchain.lock import Cache, load_lock

pytestmark = pytest.mark.skipif(
    subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode
    != 0,
    reason="only root can give the test a /run/user of its own",
)

#: In a /run/user that no other process sees: logged in between two programs, and out.
DURING = """
import json, os, re, shutil, sys
from pathlib import Path
from pipelines.core.errors import HostError
from pipelines.hosts.sandbox.wine import Prefix

prefix, runtime = Prefix(Path(sys.argv[1])), Path("/run/user/0")
servers = []

def write(name):
    add = ["reg.exe", "add", r"HKLM\\Software\\Logins", "/v", name, "/d", "written", "/f"]
    prefix.run(["C:\\\\windows\\\\system32\\\\" + add[0], *add[1:]])
    servers.append([*prefix._processes(server=True)])

prefix.boot()
write("before")
runtime.mkdir(0o700)
write("logged-in")
prefix.halt()
prefix.boot()
write("again")
prefix.halt()
shutil.rmtree(runtime)
prefix.boot()
write("without")
runtime.mkdir(0o700)
write("with")
shutil.rmtree(runtime)
write("logged-out")
prefix.halt()
runtime.mkdir(0o700)
prefix.boot()
write("booted-in")
shutil.rmtree(runtime)
refused = ""
try:
    write("lost")
except HostError as error:
    refused = error.hint
prefix.halt()
servers.append([*prefix._processes(server=True)])
kept = re.findall(r'"(\\S+)"="written"', (prefix.path / "system.reg").read_text(errors="replace"))
print(json.dumps({"servers": servers, "kept": kept, "refused": refused}))
"""


def test_one_server_whoever_logs_in(tmp_path: Path) -> None:
    copy_image(make_image(Cache(load_lock()), "3.11", Events().step), tmp_path / "prefix")
    alone = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /run/user && exec "$@"', "sh"]
    done = subprocess.run(
        [*alone, sys.executable, "-c", DURING, str(tmp_path / "prefix")],
        stdout=subprocess.PIPE,
        timeout=300,
        check=True,
    )
    said = json.loads(done.stdout)
    before, logged_in, _, without, with_, logged_out, _, _ = said["servers"]
    assert before == logged_in
    assert without == with_ == logged_out
    assert [len(one) for one in said["servers"]] == [1] * 7 + [0]
    assert {*said["kept"]} == {
        *("before", "logged-in", "again", "without", "with", "logged-out", "booted-in")
    }
    assert "enable-linger" in said["refused"]
