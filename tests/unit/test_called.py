"""Advice names the program as it can be typed where it was started."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.core import called, shell


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(called, "_typed", "")
    called.commands_are(["build", "provision", "host.stop"])


@pytest.mark.parametrize(
    ("program", "on_path", "typed"),
    [
        ("./wcw", False, "./wcw"),
        ("/a b/wcw", False, "'/a b/wcw'"),
        ("/x/.venv/bin/../../wcw", True, "wcw"),
        (".venv/bin/../../wcw", False, "./wcw"),
        ("/usr/local/bin/wcw", True, "wcw"),
        ("invoke", False, "./wcw"),
    ],
)
def test_what_is_typed(
    program: str,
    typed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    on_path: bool,
) -> None:
    if on_path:
        (tmp_path / Path(program).name).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    called.started_as(program)
    assert called.as_typed("Type: invoke build test") == f"Type: {typed} build test"
    assert called.as_typed("wcw --help.") == f"{typed} --help."
    for words in ("host.stop --force", "host stop --force"):
        assert called.as_typed(f"invoke {words}") == f"{typed} {words}"


@pytest.mark.parametrize(
    "text", ["could not invoke nvcc", "invoke building", "C:\\wcw build", "x/wcw build", "wcw"]
)
def test_what_is_no_command_stays(text: str) -> None:
    called.started_as("/a/wcw")
    assert called.as_typed(text) == text


def test_with_invoke_they_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "invoke").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    called.started_as("invoke")
    text = "Type: invoke build, or wcw --help"  # invoke --help is another program's
    assert called.as_typed(text) == text


def test_pages_have_the_path_at_which_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path(__file__).parents[2] / "docs/use.md"
    monkeypatch.chdir(tmp_path)
    assert called.with_pages("See docs/use.md.") == f"See {page}."
    for text in ("docs/none.md", "https://e.org/docs/use.md", "mine/docs/use.md"):
        assert called.with_pages(text) == text
    monkeypatch.chdir(page.parents[1])
    assert called.with_pages("See docs/use.md.") == "See docs/use.md."


def test_until_it_was_started_messages_stay() -> None:
    assert called.as_typed("invoke build") == "invoke build"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([r"C:\py\python.exe", "-m", "pip"], r"C:\py\python.exe -m pip"),
        ([r"C:\my py\python.exe", "it's"], r"& 'C:\my py\python.exe' 'it''s'"),
    ],
)
def test_what_is_typed_in_powershell(words: list[str], line: str) -> None:
    assert shell.in_powershell(words) == line
