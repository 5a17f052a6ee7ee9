"""Nothing a host says reaches the terminal as anything but text, and no secret at all."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from pipelines.core import console, github, hosttext
from pipelines.core.errors import BuildError, HostError


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    made = io.StringIO()
    plain = Console(file=made, force_terminal=False, soft_wrap=True, highlight=False)
    monkeypatch.setattr(console, "errors", plain)
    monkeypatch.setattr(console, "console", plain)
    monkeypatch.setattr(hosttext, "_secrets", set())
    monkeypatch.setattr(github, "in_ci", False)
    return made


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 漢\tx", "plain ü 漢\tx"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b[2J\x1b[Hgone", "gone"),
        ("a\rb", "ab"),
        ("bell\x07", "bell\\x07"),
        ("nul\x00", "nul\\x00"),
        ("c1\x9b31m", "c1\\x9b31m"),
        ("lone\x1b", "lone\\x1b"),
        ("a\nb", "a\nb"),
    ],
)
def test_safe(text: str, shown: str) -> None:
    assert hosttext.safe_text(text) == shown


@pytest.mark.parametrize(
    "mark", [*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))]
)
def test_bidi_is_made_visible(mark: str) -> None:
    assert mark not in hosttext.safe_text(f"a{mark}b")


def test_safe_bounds() -> None:
    assert hosttext.safe_text("x" * 5000) == "x" * 2000 + " ..."
    assert hosttext.safe_text("abcdef", 3) == "abc ..."


def test_secrets_are_blanked(output: io.StringIO) -> None:
    assert hosttext.remember_secret("hunter22") == "hunter22"
    hosttext.remember_secret("ab")  # too short to blank
    assert hosttext.safe_text("with hunter22 and ab") == "with *** and ab"
    console.say("my hunter22")
    console.host_line("its hunter22")
    console.print_error(HostError("hunter22 was wrong", hint="not hunter22"))
    assert "hunter22" not in output.getvalue()
    assert output.getvalue().count("***") == 4


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://user:pass@host:8443/a", "https://host:8443/a"),
        ("https://host/a?token=1#2", "https://host/a"),
        ("https://user:pa/ss@host/", "an invalid address"),  # a password ends the address
        ("http://[::1]:80/a", "http://[::1]:80/a"),
        ("some/folder", "some/folder"),
    ],
)
def test_an_address_is_shown_with_its_port_and_without_a_password(address: str, shown: str) -> None:
    assert hosttext.shown_url(address) == shown


def test_markup_of_hosts_is_text(output: io.StringIO) -> None:
    console.host_line("[red]no[/red] [/]")
    assert "[red]no[/red] [/]" in output.getvalue()


def test_print_error(output: io.StringIO) -> None:
    console.print_error(BuildError("it broke\nat \x1b[1mline[/] 3", hint="Mend [it]."))
    shown = output.getvalue()
    assert "build error: it broke\n│ at line[/] 3" in shown
    assert "→ Mend [it]." in shown
    assert "\x1b" not in shown


def test_print_error_in_ci(
    output: io.StringIO, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(github, "in_ci", True)
    console.print_error(BuildError("100% broken\n::set-output name=x::y"))
    assert capsys.readouterr().out == (
        "::error title=build::100%25 broken%0A::set-output name=x::y\n"
    )


def test_fold(
    output: io.StringIO, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with console.log_group("Build [x]"):
        pass
    assert "Build [x]" in output.getvalue()
    monkeypatch.setattr(github, "in_ci", True)
    with pytest.raises(ValueError, match="x"), console.log_group("Build"):
        raise ValueError("x")
    assert capsys.readouterr().out == "::group::Build\n::endgroup::\n"


@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_terminal_breaks_no_word_and_no_path(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a terminal of that width shows it; what is piped has one line."""
    path = f"/{'deep/' * 30}smoke_attention.whl"
    text = "  a sentence that is much longer than any of these terminals is wide, " * 3 + path
    for terminal, in_ci in ((True, False), (False, False), (True, True)):
        monkeypatch.setattr(github, "in_ci", in_ci)
        shown = io.StringIO()
        made = Console(
            file=shown,
            width=width,
            force_terminal=terminal,
            soft_wrap=True,
            highlight=False,
            color_system=None,
        )
        monkeypatch.setattr(console, "console", made)
        console.say(text)
        lines = shown.getvalue().splitlines()
        assert shown.getvalue().split() == text.split()
        wrapped = terminal and not in_ci
        assert (len(lines) > 1) is wrapped
        assert not wrapped or all(len(one) <= width or one.strip() == path for one in lines)
