"""What cmd makes of the printed commands, pasted into it and into a .bat file: Wine's cmd.

That a failure of the first stops the second is not asked: cmd of Wine 8 runs what follows && in any
case. Windows' own does not:
https://learn.microsoft.com/windows-server/administration/windows-commands/cmd
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import make_sandbox

from pipelines.hosts.live import LiveSession
from pipelines.publish.which.answer import format_for_shell, pip_installs
from pipelines.remote import process

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from pasted import URL, noting_pip

#: An interactive cmd and a file, with the words of this program as the text.
PASTED = (
    "import subprocess as s, sys; sys.exit(s.run('cmd', input=sys.argv[1].encode()).returncode)"
)
#: A folder with a blank in its name has the same Python.
PYTHONS = (r"C:\Python311\python.exe", r"C:\Python 311\python.exe")


@dataclass
class Windows:
    """The sandbox, and a folder in which ``-m pip`` notes its words."""

    session: LiveSession
    folder: Path

    def noted(self, form: str, text: str) -> list[list[str]]:
        """The words of each call of pip."""
        (self.folder / "noted").unlink(missing_ok=True)
        # A console's input ends with Enter; a file may end without.
        command = [PYTHONS[0], "-c", PASTED, f"{text}\r\n"]
        if form == ".bat":
            (self.folder / "pasted.bat").write_text(text)
            command = ["cmd", "/c", "pasted.bat"]
        _, said = self.session.call(
            process.capture, command=command, timeout=120, cwd=r"C:\commands"
        )
        assert (self.folder / "noted").is_file(), said
        return [json.loads(line) for line in (self.folder / "noted").read_text().splitlines()]


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Windows]:
    sandbox = make_sandbox(tmp_path_factory.mktemp("commands") / "sandbox")
    with LiveSession(sandbox) as session:
        session.call(process.capture, command=["cmd", "/c", "ver"], timeout=120)  # it is made
        drive = sandbox.prefix / "drive_c"
        (drive / "Python 311").symlink_to("Python311")
        noting_pip(drive / "commands")
        yield Windows(session, drive / "commands")
    assert sandbox.lifecycle is not None
    sandbox.lifecycle.teardown()


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("form", ["cmd", ".bat"])
def test_cmd_gets_the_words(windows: Windows, form: str, python: str) -> None:
    both = pip_installs(python, [URL], "2.8.0+cu128")
    assert windows.noted(form, format_for_shell(both, form)) == [one[3:] for one in both]


def test_a_file_needs_its_own_form(windows: Windows) -> None:
    """The text for a console loses %2 in a file: without the other form this would not matter."""
    both = pip_installs(PYTHONS[0], [URL], "")
    ((_, console), _) = windows.noted(".bat", format_for_shell(both, "cmd"))
    assert console == URL.replace("%2", "")
