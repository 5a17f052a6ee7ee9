"""loader.ps1 and bootstrap.ps1 in a PowerShell, in what a host may be found in."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import random
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import pytest
from windows import InWine, Lines, Windows

from pipelines.hosts.windows import firstpython
from pipelines.hosts.windows.firstpython import Answer

_BOOTSTRAP = Path(firstpython.__file__).with_name("bootstrap.ps1")
_LINE = 48 * 1024
A, B, C = ("a" * 64, "b" * 64, "c" * 64)

#: What stands for Python: setuptools' launcher, a genuine program, which starts this.
_SCRIPT = """#!{python}
import pathlib, sys, time
if pathlib.Path(__file__).with_name("broken").exists():
    sys.exit("a DLL is missing")
if "hold" in sys.argv:
    print("held", flush=True)
    sys.stdin.read()
print("3.11.9 64")
"""

Files = dict[str, bytes]
Change = Callable[[bytes], bytes]


@dataclass
class Talk:
    """What was answered, in order."""

    answers: list[Answer]
    code: int

    @property
    def states(self) -> list[str]:
        return [answer.state for answer in self.answers]

    @property
    def kind(self) -> str:
        return self.answers[-1].kind


class Host:
    """Gives a host what the pipeline would, or something else."""

    def __init__(self, windows: Windows, target: str) -> None:
        self.windows = windows
        self.target = target
        setuptools = Path(str(distribution("setuptools").locate_file("setuptools")))
        self.python: Files = {
            "python.exe": (setuptools / "cli-64.exe").read_bytes(),
            "python-script.py": _SCRIPT.format(python=windows.python).encode(),
            "DLLs/_ssl.pyd": random.Random(1).randbytes(3 * _LINE),
        }

    def talk(
        self,
        marker: str = A,
        files: Files | None = None,
        *,
        target: str = "",
        change: Change = bytes,
        unpacked: int = 0,
        raw: bytes | None = None,
        replace: bool = False,
        look: bool = False,
        patience: bytes = b"120000",
        at_need: Callable[[], object] = lambda: None,
    ) -> Talk:
        """Start PowerShell, as the pipeline does, until it ends; with ``look`` nothing is sent."""
        files = files or self.python
        data = _zip(files)
        size = len(data)
        given = {"Target": target or self.target, "Marker": marker, "Replace": replace}
        if not look:
            given |= {
                "Digest": hashlib.sha256(data).hexdigest(),
                "Size": size,
                "Unpacked": unpacked or sum(map(len, files.values())),
            }
        process = self.windows.start(firstpython.loader_command_line())
        lines = Lines(process)
        assert process.stdin is not None
        assert process.stderr is not None
        text = _BOOTSTRAP.read_bytes()
        assert b"WaitForExit(120000)" in text
        script = base64.b64encode(text.replace(b"120000", patience))
        answers = []
        with process.stdin as stdin:
            stdin.write(script + b"\n" + json.dumps(given).encode() + b"\n")
            stdin.flush()
            answers += _answer(lines)
            if not look and [answer.state for answer in answers] == ["need"]:
                at_need()
                data = change(data)
                try:
                    for start in range(0, len(data), _LINE):
                        stdin.write(base64.b64encode(data[start : start + _LINE]) + b"\n")
                    stdin.write(raw or b"")
                    stdin.flush()
                    if raw is not None or len(data) < size:
                        stdin.close()
                except OSError:
                    pass  # it has answered before the end
                answers += _answer(lines)
        return Talk(answers, process.wait(60))

    def left(self) -> list[str]:
        """What is in the target and next to it."""
        parent = self.windows.path(self.target).parent
        return sorted(
            path.relative_to(parent).as_posix() for path in parent.rglob("*") if path.is_file()
        )


def _answer(lines: Lines) -> list[Answer]:
    line = lines.after(b"wcw-bootstrap ")
    return [] if line is None else [Answer.model_validate_json(line)]


def _zip(files: Files) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


@pytest.fixture
def host(windows: Windows, place: str) -> Host:
    return Host(windows, rf"{place}\wcw\python")


WHOLE = [f"python/{n}" for n in ("DLLs/_ssl.pyd", "python-script.py", "python.exe")]
WHOLE += ["python/wcw-python.txt"]


def test_fresh_then_present_then_another(host: Host) -> None:
    first = host.talk()
    assert first.states == ["need", "installed"]
    assert first.answers[-1].python == rf"{host.target}\python.exe"
    assert (first.answers[-1].version, first.answers[-1].bits, first.code) == ("3.11.9", 64, 0)
    assert host.left() == WHOLE
    assert host.talk().states == ["present"]
    assert host.talk(B).states == ["need", "installed"]
    assert host.left() == WHOLE
    # A Python that does not start leaves the one that does.
    broken = host.talk(C, {**host.python, "broken": b""})
    assert (broken.states, broken.kind) == (["need", "failed"], "other")
    assert "a DLL is missing" in broken.answers[-1].message
    assert host.left() == WHOLE
    assert host.talk(B).states == ["present"]


def test_python_that_does_not_run_any_more_is_made_anew(host: Host) -> None:
    host.talk()
    host.windows.path(rf"{host.target}\broken").touch()
    assert host.talk().states == ["need", "installed"]
    assert host.left() == WHOLE


@pytest.mark.parametrize(
    ("said", "arguments"),
    [
        ("sha256", {"change": lambda data: data[:1000] + bytes([data[1000] ^ 1]) + data[1001:]}),
        ("the input ended after", {"change": lambda data: data[: 2 * _LINE]}),
        ("more than", {"change": lambda data: data + b"x" * 10}),
        ("sha256", {"change": lambda data: bytes(len(data))}),
        ("ase-64", {"change": lambda data: b"", "raw": b"!!!! not\n"}),
    ],
    ids=["flipped", "cut", "longer", "zeros", "not-base64"],
)
def test_damage_on_the_way(host: Host, said: str, arguments: dict[str, object]) -> None:
    talk = host.talk(**arguments)  # type: ignore[arg-type]
    assert (talk.states, talk.kind) == (["need", "failed"], "damaged")
    assert said in talk.answers[-1].message
    assert host.left() == []


@pytest.mark.parametrize("name", ["../../evil.txt", "readme"])
def test_archive_with_a_name_outside_or_without_a_python(host: Host, name: str) -> None:
    talk = host.talk(files={name: b"x", **({} if name == "readme" else host.python)})
    assert talk.states == ["need", "failed"]
    assert host.left() == []
    assert not list(host.windows.path(host.target).parents[1].rglob("evil.txt"))


def test_directories_are_made_closed_and_looked_at_first(host: Host, wine: InWine) -> None:
    """Wine keeps the rights of Everyone as those of others, and another owner as ANONYMOUS."""
    place = wine.path(host.target).parent
    assert host.talk(look=True).states == ["need"]
    assert not place.exists()
    assert host.talk().states == ["need", "installed"]
    assert place.stat().st_mode & 0o007 == 0
    assert host.talk(look=True).states == ["present"]
    assert host.talk(replace=True).states == ["need", "installed"]
    for folder in (place, place / "python"):
        folder.chmod(0o777)
        for talk in (host.talk(look=True), host.talk(replace=True)):
            assert (talk.states, talk.kind) == (["failed"], "unsafe")
            assert "S-1-1-0 0x1301ff" in talk.answers[-1].message
        folder.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(place, 65534, 65534)
        assert host.talk(look=True).kind == "unsafe"
        os.chown(place, 0, 0)
    assert host.talk(look=True).states == ["present"]


@pytest.mark.parametrize(
    ("where", "kind"),
    [("inside", "foreign"), ("instead", "foreign"), ("above", "file-in-the-way")],
)
def test_file_of_somebody_else(host: Host, where: str, kind: str) -> None:
    target = host.windows.path(host.target)
    file = {"inside": target / "file", "instead": target, "above": target.parent}[where]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x")
    talk = host.talk()
    assert (talk.states, talk.kind) == (["failed"], kind)
    assert talk.answers[-1].message.startswith(host.target.rpartition("\\")[0])
    assert file.read_text() == "x"


def test_no_such_drive(host: Host) -> None:
    talk = host.talk(target=r"Q:\a\python")
    assert (talk.states, talk.kind) == (["failed"], "no-drive")
    assert "Q:" in talk.answers[-1].message


def test_place_that_may_not_be_written(host: Host) -> None:
    """Opening a directory as a file is refused as a place without permission is."""
    host.windows.path(f"{host.target}.wcw-lock").mkdir(parents=True)
    talk = host.talk()
    assert (talk.states, talk.kind) == (["failed"], "denied")


def test_path_with_a_space_an_umlaut_and_a_pattern(windows: Windows, place: str) -> None:
    host = Host(windows, rf"{place}\Prögrämme [x]\py thon")
    talk = host.talk()
    assert talk.states == ["need", "installed"]
    assert talk.answers[-1].python == rf"{host.target}\python.exe"
    assert host.talk().states == ["present"]
    assert host.talk(B).states == ["need", "installed"]  # in its place


def test_relative_target(host: Host) -> None:
    """The controller refuses it, and so does the script: no answer, no file."""
    talk = host.talk(target="relative")
    assert (talk.states, talk.code) == ([], 1)


def test_two_at_once(host: Host) -> None:
    second: list[Talk] = []
    first = host.talk(at_need=lambda: second.append(host.talk()))
    assert (second[0].states, second[0].kind) == (["failed"], "busy")
    assert first.states == ["need", "installed"]
    assert host.left() == WHOLE


def test_work_directory_in_use(host: Host) -> None:
    """A scanner that does not let go: it is tried for some seconds."""
    file = rf"{host.target}.wcw-new\held"
    host.windows.path(file).parent.mkdir(parents=True)
    hold = f"f = open(r'{file}', 'w'); print('held', flush=True); input()"
    held = host.windows.start(f'{host.windows.python} -c "{hold}"')
    assert held.stdin is not None
    assert held.stdout is not None
    assert held.stdout.readline().strip() == b"held"
    talk = host.talk()
    held.stdin.close()
    held.wait(30)
    assert (talk.states, talk.kind) == (["failed"], "busy")


def test_python_that_does_not_run_in_its_place(host: Host) -> None:
    """It did before it was moved there: what was there comes back."""
    host.talk()
    moved = host.python["python-script.py"] + b"assert 'wcw-new' in __file__, 'moved'\n"
    talk = host.talk(B, {**host.python, "python-script.py": moved})
    assert (talk.states, talk.kind) == (["need", "failed"], "other")
    assert host.left() == WHOLE
    assert host.talk().states == ["present"]


def test_python_that_says_something_else(host: Host) -> None:
    odd = host.python["python-script.py"].replace(b"3.11.9 64", b"odd")
    talk = host.talk(files={**host.python, "python-script.py": odd})
    assert (talk.states, talk.kind) == (["need", "failed"], "other")
    assert "answered: odd" in talk.answers[-1].message


def test_python_that_does_not_end(host: Host) -> None:
    slow = host.python["python-script.py"] + b"time.sleep(30)\n"
    talk = host.talk(files={**host.python, "python-script.py": slow}, patience=b"3000")
    assert (talk.states, talk.kind) == (["need", "failed"], "other")
    assert "did not end" in talk.answers[-1].message


def test_python_in_use(host: Host) -> None:
    host.talk()
    held = host.windows.start(rf"{host.target}\python.exe hold")
    assert held.stdin is not None
    assert held.stdout is not None
    assert held.stdout.readline().strip() == b"held"
    talk = host.talk(B)
    held.stdin.close()
    held.wait(30)
    if os.name != "nt":  # Windows may not let its directory go
        assert talk.states == ["need", "installed"]
    assert host.talk(B).states[-1] in ("present", "installed")


def test_drive_that_is_too_small(windows: Windows) -> None:
    if not isinstance(windows, InWine) or not windows.path("S:").exists():
        pytest.skip("a drive of 1 MiB needs Wine and the right to mount one")
    host = Host(windows, r"S:\wcw\python")
    host.python["big"] = random.Random(2).randbytes(800_000)
    before = host.talk()
    assert (before.states, before.kind) == (["failed"], "disk-full")
    # Less was announced than there is.
    midway = host.talk(unpacked=10)
    assert (midway.states, midway.kind) == (["need", "failed"], "disk-full")
    assert host.left() == []
