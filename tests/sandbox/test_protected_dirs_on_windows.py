r"""The calls behind directories of ours, by genuine Windows programs under Wine.

Wine keeps an access list as a Unix mode: others' bits are Everyone's, another owner is ANONYMOUS,
and a link to a directory has no reparse point. So what is shown is that the calls are right, and
that what Wine can tell is told; the decisions are tests/unit/test_protected_dirs.py. With
``PWSH_FOR_WINDOWS``, the folder of an unpacked PowerShell 7 for Windows, bootstrap.ps1 runs too.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.hosts.sandbox.image import copy_image, make_image
from pipelines.hosts.sandbox.wine import Prefix
from pipelines.hosts.windows import firstpython
from pipelines.remote import protected_dirs
from pipelines.toolchain.lock import Cache, load_lock

ROOT = Path(__file__).parents[2]
PYTHON = r"C:\Python311\python.exe"
PWSH = os.environ.get("PWSH_FOR_WINDOWS", "")
#: What is asked of Windows: a line of JSON for each path.
ASK = """
import json, sys
sys.path.insert(0, sys.argv[1])
from remote import protected_dirs

def told(function, path):
    try:
        function(path)
    except OSError as error:
        return type(error).__name__
    return "made"

look = lambda path: print(json.dumps(protected_dirs._look(path)))
print(json.dumps(protected_dirs._account()))
for path in sys.argv[3:]:
    if sys.argv[2] == "look":
        look(path)
    elif sys.argv[2] == "private":
        with protected_dirs.private() as folder:
            look(str(folder))
        print(json.dumps(folder.exists()))
    else:
        print(json.dumps(told(getattr(protected_dirs, sys.argv[2]), path)))
"""
ME = "S-1-5-21-0-0-0-1000"  # every Wine's


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prefix]:
    home = tmp_path_factory.mktemp("windows") / "prefix"
    copy_image(make_image(Cache(load_lock()), "3.11", lambda _: None), home)
    prefix = Prefix(home)
    prefix.boot()
    package = prefix.drive / "shipped/remote"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    shutil.copy(protected_dirs.__file__, package)
    (prefix.drive / "shipped/ask.py").write_text(ASK)
    yield prefix
    prefix.halt()


def ask(windows: Prefix, what: str, *paths: str) -> list[Any]:
    command = [PYTHON, "-I", r"C:\shipped\ask.py", r"C:\shipped", what, *paths]
    account, *told = map(json.loads, windows.run(command).splitlines())
    assert account == [ME, True]
    return told


def test_a_directory_is_made_together_with_its_access_list(windows: Prefix) -> None:
    """Everyone may read what is made without one there; what is made with ours, nobody else."""
    (windows.drive / "plain").mkdir()
    paths = [r"C:\one\two", r"\\?\C:\three\four", "C:/five"]
    assert ask(windows, "make", *paths, r"C:\one\two\deeper") == ["made"] * 4
    for name in ("one", "three", "five"):
        assert (windows.drive / name).stat().st_mode & 0o007 == 0
    seen = ask(windows, "look", r"C:\plain", r"C:\one", r"C:\one\two", r"\\?\C:\three\four")
    everyone = [{sid for sid, _ in rights} >= {"S-1-1-0"} for *_, rights in seen]
    assert everyone[:2] == [True, False]
    assert {owner for _, _, owner, _ in seen} == {ME}


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory to another account")
def test_what_others_may_change_or_own_is_refused(windows: Prefix) -> None:
    for name, mode, owner in (("open", 0o777, 0), ("theirs", 0o755, 65534), ("good", 0o755, 0)):
        (windows.drive / name).mkdir()
        (windows.drive / name).chmod(mode)
        os.chown(windows.drive / name, owner, owner)
    (windows.drive / "a-file").touch()
    names = ["open", "theirs", "a-file", "good"]
    paths = [rf"C:\{name}" for name in names]
    refused = ["UnsafeError", "UnsafeError", "FileExistsError", "made"]
    assert ask(windows, "make", *paths) == refused
    assert ask(windows, "make", *(rf"{path}\python\3.12" for path in paths)) == refused
    assert ask(windows, "inspect", *(rf"{path}\x" for path in paths))[:2] == refused[:2]
    assert [sorted((windows.drive / name).iterdir()) for name in names[:2]] == [[], []]


def test_a_private_directory_is_nobody_elses_and_then_gone(windows: Prefix) -> None:
    (_, _, owner, rights), left = ask(windows, "private", "")
    assert owner == ME
    assert {sid for sid, mask in rights if mask} == {ME, "S-1-5-18"}
    assert left is False


# -- bootstrap.ps1 ---------------------------------------------------------------------------------

START = """
import subprocess, sys
sys.exit(subprocess.call(sys.argv[1:], stdin=0, stdout=1, stderr=2, creationflags=0x08000000))
"""


class Shell:
    """PowerShell, as the bootstrap starts it; .NET wants a console, which a service has too."""

    def __init__(self, windows: Prefix, target: str) -> None:
        self.windows, self.target = windows, target
        self.zip = io.BytesIO()
        home = windows.drive / "Python311"
        files = [home / "python.exe", *home.glob("*.dll")]
        files += [path for name in ("DLLs", "Lib") for path in (home / name).rglob("*")]
        with zipfile.ZipFile(self.zip, "w", zipfile.ZIP_STORED) as archive:
            for path in files:
                if path.is_file() and not {"site-packages", "__pycache__"} & {*path.parts}:
                    archive.write(path, path.relative_to(home).as_posix())
        with zipfile.ZipFile(self.zip) as archive:
            self.unpacked = sum(item.file_size for item in archive.infolist())

    def start(self, words: list[str], data: bytes) -> subprocess.CompletedProcess[bytes]:
        environment = self.windows.environment({"DOTNET_EnableWriteXorExecute": "0"})
        environment["WINEDLLOVERRIDES"] = "mshtml="
        program = [PYTHON, "-I", "-c", START, r"C:\pwsh\powershell.exe"]
        return subprocess.run(
            [*self.windows.wine.command, *program, *words],
            cwd=self.windows.drive,
            env=environment,
            input=data,
            capture_output=True,
            timeout=240,
            check=False,
        )

    def run(self, text: str) -> str:
        """What a script prints, or the error that ended it."""
        code = base64.b64encode(f"$ErrorActionPreference = 'Stop'\n{text}".encode("utf-16-le"))
        words = ["-NoProfile", "-NonInteractive", "-OutputFormat", "Text", "-EncodedCommand"]
        done = self.start([*words, code.decode()], b"")
        return done.stdout.decode() + done.stderr.decode()

    def ask(self, *, send: bool = True, **more: object) -> list[dict[str, Any]]:
        """What it answers; with ``send`` it is given the payload."""
        data = self.zip.getvalue()
        told: dict[str, object] = {"Target": self.target, "Marker": "a" * 64} | more
        if send:
            digest = hashlib.sha256(data).hexdigest()
            told |= {"Digest": digest, "Size": len(data), "Unpacked": self.unpacked}
        script = (Path(firstpython.__file__).parent / "bootstrap.ps1").read_bytes()
        lines = [base64.b64encode(script), json.dumps(told).encode()]
        if send:
            lines += [base64.b64encode(data[at : at + 49152]) for at in range(0, len(data), 49152)]
        words = firstpython.command_line().split()
        done = self.start(words[1:], b"\n".join([*lines, b""]))
        mark = b"wcw-bootstrap "
        found = [json.loads(x.partition(mark)[2]) for x in done.stdout.splitlines() if mark in x]
        assert found, done.stdout[-2000:] + done.stderr[-2000:]
        return found


@pytest.fixture(scope="module")
def shell(windows: Prefix) -> Shell:
    if not PWSH:
        pytest.skip("PWSH_FOR_WINDOWS names no PowerShell 7 for Windows")
    (windows.drive / "pwsh").symlink_to(PWSH)
    return Shell(windows, r"C:\wcw\python")


def test_bootstrap_makes_its_directories_closed_and_looks_first(
    windows: Prefix, shell: Shell
) -> None:
    place = windows.drive / "wcw"
    assert [said["state"] for said in shell.ask(send=False)] == ["need"]
    assert not place.exists(), "to look is to make nothing"
    assert [said["state"] for said in shell.ask()] == ["need", "installed"]
    assert place.stat().st_mode & 0o007 == 0
    assert [said["state"] for said in shell.ask(send=False)] == ["present"]
    assert [said["state"] for said in shell.ask(Replace=True)] == ["need", "installed"]
    # Now it is another user's to change: what is in it is neither started nor believed.
    for folder in (place, place / "python"):
        folder.chmod(0o777)
        (said,) = shell.ask(send=False)
        assert (said["state"], said["kind"]) == ("failed", "unsafe")
        assert "S-1-1-0 0x1301ff" in said["message"]
        (said,) = shell.ask(Replace=True)
        assert (said["state"], said["kind"]) == ("failed", "unsafe")
        folder.chmod(0o755)
    assert [said["state"] for said in shell.ask(send=False)] == ["present"]
    if os.geteuid() == 0:
        os.chown(place, 65534, 65534)
        (said,) = shell.ask(send=False)
        assert said["kind"] == "unsafe"
        os.chown(place, 0, 0)
    shutil.rmtree(place)
    place.touch()
    (said,) = shell.ask()
    assert said["state"] == "failed", "a file is in its place"


def test_the_playbooks_script(windows: Prefix, shell: Shell) -> None:
    script = ROOT / "ansible/roles/protected_directories/files/Protect-Directory.ps1"
    shutil.copy(script, windows.drive / "shipped/protect.ps1")
    (windows.drive / "open").mkdir(exist_ok=True)
    (windows.drive / "open").chmod(0o777)
    calls = [r"C:\roles\git' -WhatIf", r"C:\roles\git'", r"C:\roles\git'", r"C:\open\git'"]
    lines = [
        f"$Ansible = @{{}}; try {{ & $protect -Path '{call} -Readable $true; "
        "'changed ' + $Ansible.Changed + ' ' + (Test-Path C:\\roles) } "
        "catch { 'refused ' + $_.Exception.GetBaseException().Message }"
        for call in calls
    ]
    read = r"[IO.File]::ReadAllText('C:\shipped\protect.ps1')"
    text = f"$protect = [ScriptBlock]::Create({read})\n" + "\n".join(lines)
    said = [x for x in shell.run(text).splitlines() if x.startswith(("changed", "refused"))]
    assert said[:3] == ["changed True False", "changed True True", "changed False True"], said
    assert said[3].startswith(r"refused C:\open is not safe to use")
    assert (windows.drive / "roles").stat().st_mode & 0o007 == 0
    assert not [*(windows.drive / "open").iterdir()]


def test_the_certificates_file_is_never_a_users(windows: Prefix, shell: Shell) -> None:
    """What enable-winrm-https.ps1 does with the file that a user has put there before."""
    script = (ROOT / "scripts/enable-winrm-https.ps1").read_text()
    (function,) = re.findall(r"^function Write-ProtectedFile .*?^\}\n", script, re.M | re.S)
    (use,) = re.findall(r"^ +\[System.IO.File\]::Delete\(.*?\n.*?\n", script, re.M)
    place = windows.drive / "ProgramData/wcw-winrm.pem"
    place.write_text("of a user")
    place.chmod(0o666)
    given = r"$CertificateFile = 'C:\ProgramData\wcw-winrm.pem'; $certificate = 1" + "\n"
    given += "function ConvertTo-Pem { param($Certificate) 'ours' }\n"
    shell.run(function + given + use)
    assert place.read_text() == "ours"
    assert place.stat().st_mode & 0o002 == 0
    # Whoever is faster than the second call is not overwritten: it fails.
    place.write_text("of a user")
    said = shell.run(function + given + use.splitlines()[1])
    assert place.read_text() == "of a user", said
