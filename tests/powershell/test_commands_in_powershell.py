"""What PowerShell makes of the printed commands; tests/sandbox asks cmd."""

from __future__ import annotations

import json
import sys

import pytest
from windows import ROOT, Shell, Windows

from pipelines.publish.which.answer import format_for_shell, pip_installs

sys.path.insert(0, str(ROOT / "tests/unit"))
from pasted import URL, noting_pip


@pytest.mark.parametrize("blank", [False, True])
def test_powershell_gets_the_words_and_stops_after_a_failure(
    windows: Windows, shell: Shell, place: str, blank: bool
) -> None:
    folder = windows.path(place)
    noting_pip(folder)
    python = windows.python
    if blank:
        home = windows.path(python).parent
        (home.parent / "a Python").symlink_to(home)
        python = python.replace(home.name, "a Python")
    both = pip_installs(python, [URL], "2.8.0+cu128")
    words = [one[3:] for one in both]
    text = f"Set-Location '{place}'; {format_for_shell(both, 'PowerShell')}"
    for wanted in (words, words[:1]):  # the second time the first command fails
        (folder / "noted").unlink(missing_ok=True)
        shell.run(text)
        found = [json.loads(line) for line in (folder / "noted").read_text().splitlines()]
        assert found == wanted
        (folder / "fail").touch()
    if blank:
        (home.parent / "a Python").unlink()
