"""What the sandbox's stand-in can build of the recipes that come along, said before anything is."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.cli.program import run_command_line

SETTINGS = "hosts:\n  sandbox:\n    kind: sandbox\n    home: {home}\ndefault: {{host: sandbox}}\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the sandbox would be, of a project in a directory of its own."""
    place = tmp_path / "sandbox"
    (tmp_path / "pipeline.yaml").write_text(SETTINGS.format(home=place))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return place


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = run_command_line([*words])
    return code, " ".join("".join(capsys.readouterr()).split())


@pytest.mark.parametrize("recipe", ["causal-conv1d", "gsplat", "llama-cpp-python", "sageattention"])
@pytest.mark.parametrize("command", ["plan", "provision", "build"])
def test_what_needs_msvc_is_refused_before_anything_is_made(
    command: str, recipe: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not after minutes of compiling: neither a sandbox nor a download is there afterwards."""
    code, text = said(capsys, command, "--recipe", recipe, "--python", "3.11")
    assert code == 2, text
    assert f"{recipe} needs torch's C++ API or MSVC's STL" in text
    assert "'msvc' of this host in pipeline.yaml" in text
    assert "(kind: winrm)" in text
    assert not home.exists()
    assert not (home.parent / "cache").exists()


@pytest.mark.parametrize(
    ("recipe", "archs"), [("flash-attn-4", "90"), ("smoke-attention-torch", "80")]
)
def test_what_the_stand_in_can_build_is_planned(
    recipe: str, archs: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    axes = ("--python", "3.11", "--torch", "2.10", "--cuda", "13.0", "--archs", archs)
    code, text = said(capsys, "plan", "--recipe", recipe, *axes)
    assert code == 0, text
    assert "1 of 1 cells can be built" in text
    assert "lacks" not in text, "all that it takes is pinned"
    assert not home.exists()


def test_nothing_is_said_of_compilers_that_have_nothing_to_compile(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    axes = ("--python", "3.11", "--torch", "2.15", "--cuda", "13.0")
    _, text = said(capsys, "plan", "--recipe", "flash-attn-4", *axes)
    assert "C++20" not in text, text
    code, text = said(capsys, "plan", "--recipe", "smoke-attention-torch", *axes)
    assert (code, "C++20" in text) == (0, True), text
