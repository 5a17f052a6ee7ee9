"""``--for``: what a program brings, as axes that it sets, and its Python when one is looked at."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from environments import RTX_4090, Windows

from pipelines.cli.program import run_command_line
from pipelines.core import model
from pipelines.core.errors import ConfigError
from pipelines.plan.config import presets
from pipelines.plan.matrix.torches import load_torches
from pipelines.publish.which.answer import as_object, as_text
from pipelines.publish.which.data import PRESETS
from pipelines.publish.which.looking import Place
from pipelines.publish.which.reporting import Report, build_report
from pipelines.publish.which.texts import RefusalError

SETS = "--for comfyui: --python 3.13 --cuda 13.0"


def test_each_is_a_cell_that_there_is() -> None:
    """A preset without a build of torch would be useless."""
    for name, one in presets.load_presets().items():
        if one.refused:
            continue
        assert {"python", "cuda"} <= one.axes.flags.keys(), name
        python, cuda = one.axes.python, one.axes.cuda
        assert any(python in t.python and cuda in t.cuda for t in load_torches().values()), name


def test_what_is_typed_wins() -> None:
    axes, words = presets.apply_preset("comfyui", {"cuda": "12.8", "recipe": "xformers"})
    assert axes == {"cuda": "12.8", "recipe": "xformers", "python": "3.13"}
    assert words.startswith("--for comfyui: --python 3.13 (ComfyUI's")
    assert words.endswith("; --cuda 12.8 is typed, and not 13.0")
    assert "pull/10508" in words
    axes, words = presets.apply_preset("comfyui", {"python": "3.13", "cuda": "13.0"})
    assert "nothing more" in words  # and nothing is said of what is the same
    assert "is typed" not in words


def test_one_for_which_nothing_is_built() -> None:
    """``which`` knows the same Python by the name that fits an x64 one."""
    with pytest.raises(ConfigError) as refused:
        presets.apply_preset("comfyui-arm64", {})
    assert presets.load_presets()["comfyui-arm64"].source in refused.value.hint
    assert "comfyui-arm64" not in {name for name, *_ in PRESETS}


def test_one_that_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    one = presets.load_presets()["comfyui"]
    said = []
    for days in (90, 91):
        today = one.date + timedelta(days=days)
        monkeypatch.setattr(model, "current_date", lambda today=today: today)
        said.append(presets.apply_preset("comfyui", {})[1])
    assert said[0] != said[1]


@pytest.mark.parametrize(("typed", "near"), [("comfy", "comfyui"), ("comfyui-cu128", "comfyui")])
def test_an_unknown_one(typed: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"did you mean {near}") as refused:
        presets.apply_preset(typed, {})
    assert "There are: comfyui, comfyui-cu126" in refused.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("presets: {x: {axes: {python: '3.13'}}}", "says: is missing"),
        ("presets: {x: {axes: {pythn: '3.13'}}}", "unknown key; did you mean 'python'"),
        ("presets: {x: {axes: {python: '3.13.1'}}}", "python"),
        ("presets: {}", "presets"),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "presets.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"presets\.yaml") as refused:
        presets.load_presets(path)
    assert said in refused.value.message


def test_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    """The cells, and what was set, which is not a part of the answer for programs."""
    assert (
        run_command_line(["plan", "--for", "comfyui", "--recipe", "smoke-attention", "--json"]) == 0
    )
    said = capsys.readouterr()
    assert [cell["id"] for cell in json.loads(said.out)["cells"]] == ["cp313-cu130"]
    assert SETS in said.err
    assert (
        run_command_line(
            ["plan", "--for=comfyui", "--recipe", "smoke-attention", "--python", "3.11"]
        )
        == 0
    )
    said = capsys.readouterr()
    text = " ".join((said.out + said.err).split())
    assert "cp311-cu130" in text
    assert "--python 3.11 is typed, and not 3.13" in text
    assert run_command_line(["plan", "--for", "comfi", "--recipe", "smoke-attention"]) == 2
    assert "did you mean comfyui" in capsys.readouterr().err


def test_a_line_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """One order: said once, and meant by each."""
    assert run_command_line(["build", "--for", "comfyui", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert text.count(SETS) == 1
    assert "Would build smoke-attention for cp313, CUDA 13.0" in text


def portable(room: Path, *beside: str, folder: str = "python_embeded") -> tuple[Windows, Place]:
    windows = Windows(room)
    home = room / "ComfyUI_windows_portable"
    for name in (folder, *beside):
        (home / name).mkdir(parents=True)
    program = home / folder / "python.exe"
    program.touch()
    return windows, replace(windows.place(python="3.13"), executable=str(program))


def seen(place: Place, preset: str = "") -> Report:
    return build_report(place, [], driver=RTX_4090, load=False, preset=preset)


def test_which_knows_its_python(tmp_path: Path) -> None:
    """The portable one of another release: which preset is nearest, and what is other."""
    _, place = portable(tmp_path, "ComfyUI")  # torch is one of CUDA 12.8
    found = seen(place)
    assert found.portable is not None
    assert found.portable.preset == "comfyui"
    text = as_text(found, "")
    assert "this is ComfyUI's portable Python for Windows: --for comfyui" in text
    assert "- torch's CUDA is 12.8, but the preset has 13.0" in text
    assert "to build for this Python: --cuda 12.8" in text
    preset = as_object(found, "")["preset"]
    assert preset["name"] == "comfyui"
    assert preset["instead"] == ["--cuda", "12.8"]
    older = seen(replace(place, python="3.12"))
    assert older.portable is not None
    assert older.portable.preset == "comfyui-cu126"  # one axis is other, of the first it is two


@pytest.mark.parametrize(
    ("beside", "folder"),
    [((), "python_embeded"), (("ComfyUI",), "python"), (("comfy",), "python_embeded")],
)
def test_a_python_that_is_none(tmp_path: Path, beside: tuple[str, ...], folder: str) -> None:
    _, place = portable(tmp_path, *beside, folder=folder)
    found = seen(place)
    assert found.portable is None
    assert as_object(found, "")["preset"] is None


def test_a_python_that_is_not_what_it_was_said_to_be(tmp_path: Path) -> None:
    """With --for any difference is an error; without, it is only reported."""
    windows, place = portable(tmp_path, "ComfyUI")
    windows.flash()
    loaded = seen(place)
    asked = seen(place, "comfyui")
    assert "! torch's CUDA is 12.8, but the preset has 13.0" in as_text(asked, "")
    assert not asked.good
    assert as_object(asked, "")["preset"]["said"]
    assert not loaded.named
    plain = seen(replace(place, executable=str(windows.python / "python.exe")), "comfyui")
    assert plain.portable is not None
    assert "is not where the preset's Python is" in plain.portable.differs[0]
    with pytest.raises(RefusalError, match="no such preset"):
        seen(place, "comfi")
