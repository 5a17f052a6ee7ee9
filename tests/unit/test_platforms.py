"""Cells for Windows on Arm: named in every way like others, and told what they lack."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.architectures.archs import ArchList, parse
from pipelines.buildplan import Request, resolve_target
from pipelines.commands.program import run
from pipelines.config import Config
from pipelines.errors import ConfigError
from pipelines.matrix import platforms
from pipelines.matrix.cells import expand
from pipelines.recipe.load import load_recipe
from pipelines.target import Target
from pipelines.toolchain.lock import Tool, load_lock

LOCK = load_lock()
ARM = Target(
    host="lab", recipe="flash-attn", version="1", python="3.14", torch="2.14", cuda="13.4",
    platform="win_arm64", archs=parse("121"),
)  # fmt: skip


def lacking(target: Target = ARM, lock: object = LOCK) -> list[str]:
    return [one.rule for one in platforms.misses(target, lock)]  # type: ignore[arg-type]


def test_the_usual_one_lacks_nothing() -> None:
    assert lacking(ARM.model_copy(update={"platform": ""})) == []
    assert platforms.check_platform("win_amd64") == ""


@pytest.mark.parametrize(
    ("changes", "more", "less"),
    [
        ({}, [], []),
        ({"torch": ""}, [], ["arm64-torch"]),
        ({"cuda": "13.2"}, ["platform-cuda"], []),
        ({"python": "3.10"}, ["platform-python"], []),
        ({"python": "3.14t"}, [], []),
        ({"archs": parse("80;90")}, ["platform-archs"], []),
        ({"archs": parse("120")}, [], []),  # of one family: its code runs there
        ({"archs": parse("90+PTX")}, [], []),  # which the driver compiles
        ({"archs": parse("120a")}, ["platform-archs"], []),
        ({"archs": ArchList(())}, ["platform-archs"], []),
    ],
)
def test_what_a_cell_lacks(changes: dict[str, object], more: list[str], less: list[str]) -> None:
    every = {"arm64-msvc", "arm64-cuda", "arm64-python", "arm64-torch", "arm64-cross"}
    assert {*lacking(ARM.model_copy(update=changes))} == (every | {*more}) - {*less}


def test_what_the_lock_has_is_not_missing() -> None:
    """Each need by itself; what no code of ours does stays, whatever the lock has."""

    def tool(name: str, file: str) -> Tool:
        source = {"url": f"https://example.org/{file}", "file": file}
        return Tool.model_validate({"name": name, "version": "1", "sources": [source]})

    tools = dict(LOCK.tools)
    build = tools["vs-buildtools-2022"]
    component = "Microsoft.VisualStudio.Component.VC.Tools.ARM64"
    tools["vs-buildtools-2022"] = build.model_copy(
        update={"components": (*build.components, component)}
    )
    tools["a"] = tool("nvidia-cuda-runtime", "nvidia_cuda_runtime-13.4.92-py3-none-win_arm64.whl")
    tools["b"] = tool("python", "cpython-3.14.7-aarch64-pc-windows-msvc-install_only.tar.gz")
    tools["c"] = tool("torch", "torch-2.14.0+cu134-cp314-cp314-win_arm64.whl")
    assert lacking(lock=LOCK.model_copy(update={"tools": tools})) == ["arm64-cross"]
    tools["a"] = tool("nvidia-cuda-runtime", "nvidia_cuda_runtime-13.4.92-py3-none-win_amd64.whl")
    assert lacking(lock=LOCK.model_copy(update={"tools": tools})) == ["arm64-cuda", "arm64-cross"]


def test_a_cell_is_called_for_its_platform() -> None:
    recipe = load_recipe("smoke-attention")
    asked = {"python": ["3.13"], "cuda": ["13.4"], "platform": ["win_arm64", "win_amd64"]}
    both = expand(recipe, asked, [parse("121")])
    assert [one.name for one in both] == ["cp313-cu134-win_arm64", "cp313-cu134"]
    assert [one.target.platform for one in both] == ["win_arm64", ""]
    assert both[0].target.label == "cp313, CUDA 13.4, win_arm64, 121"
    with pytest.raises(ConfigError, match="did you mean win_arm64"):
        expand(recipe, {"platform": ["win_arm"]}, [parse("121")])


def test_a_host_that_is_no_windows_has_no_other_platform() -> None:
    """Its wheel would be one of Linux, whatever it was called."""
    recipe = load_recipe("smoke-attention")
    hosts = {"lx": {"kind": "local"}, "sandbox": {"kind": "sandbox"}}
    settings = Config.model_validate({"hosts": hosts})
    asked = {"python": "3.13", "platform": "win_arm64"}
    with pytest.raises(ConfigError, match="lx is no Windows"):
        resolve_target(settings, Request(axes={**asked, "host": "lx"}), recipe)
    made = resolve_target(settings, Request(axes={**asked, "host": "sandbox"}), recipe)
    assert made.platform == "win_arm64"
    usual = Request(axes={**asked, "host": "sandbox", "platform": "win_amd64"})
    assert resolve_target(settings, usual, recipe).platform == ""


def test_a_build_is_refused_before_it_begins(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["build", "--recipe", "smoke-attention", "--platform", "win_arm64", "--archs", "121"]
    assert run([*words, "--python", "3.13", "--dry-run"]) == 2
    assert "CUDA 13.0 has nothing for Windows on Arm" in capsys.readouterr().err


def test_a_plan_lists_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "--recipe", "smoke-attention", "--platform", "win_arm64", "--archs", "121"]
    assert run([*words, "--python", "3.13", "--cuda", "13.4"]) == 2
    said = " ".join(capsys.readouterr().out.split())
    for rule in ("arm64-msvc", "arm64-cuda", "arm64-python", "arm64-cross"):
        assert f"{rule} rejects all cells" in said
    assert "arm64-torch" not in said
    assert "0 of 1 cells can be built" in said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tag": "win_arm64"}, "expected tool and tag"),
        ({"tool": "torch"}, "expected tool and tag"),
        ({"tool": "torch", "tag": "win_arm64", "component": "X"}, "expected tool and tag"),
    ],
)
def test_a_need_that_makes_no_sense(change: dict[str, str], said: str) -> None:
    need = {"id": "x", "says": "x", "cure": "x", "source": "https://x.org/"} | change
    with pytest.raises(ValueError, match=said):
        platforms.Need.model_validate(need)


def test_the_file_of_another(tmp_path: Path) -> None:
    path = tmp_path / "platforms.yaml"
    path.write_text("platforms: {linux_x86_64: {}}")
    with pytest.raises(ConfigError, match=r"platforms\.yaml"):
        platforms.load_platforms.__wrapped__(path)
