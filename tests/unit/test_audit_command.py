"""``invoke audit`` as it is typed: words, exit codes, and what programs and CI get."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml
from audited import with_member
from defusedxml import ElementTree
from fatbins import ELF, PTX, container, ptx
from foreign_wheels import foreign
from packaging.requirements import Requirement
from pes import msvc
from typed import calls, flags

from pipelines.cli.program import run_command_line
from pipelines.core.errors import AuditError, ConfigError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_directory")]


TAG = "cp311-cp311-win_amd64"
Captured = pytest.CaptureFixture[str]


def gpu_wheel(folder: Path, version: str = "1.0") -> Path:
    code = container((ELF, "80", 8), (PTX, "80", 8), cuda="12.8", isa="8.7")
    files = {"other/_C.cp311-win_amd64.pyd": msvc(code)}
    return foreign(folder, "other", version, TAG, files=files)


def test_every_further_word_is_a_wheel() -> None:
    (found,) = flags("audit a.whl b c==1 --gpu A100 d --json")
    assert (found["wheel"], found["also"]) == ("a.whl", ["b", "c==1", "d"])
    assert (found["gpu"], found["json"]) == ("A100", True)
    (found,) = flags("audit --html page.html a.whl --python 3.12 b.whl")
    assert (found["wheel"], found["also"], found["python"]) == ("a.whl", ["b.whl"], "3.12")


def test_it_stands_alone() -> None:
    with pytest.raises(ConfigError, match="only command"):
        calls("audit a.whl runs")
    with pytest.raises(ConfigError, match="only command"):
        calls("build audit dist")


def test_words_of_other_commands_stay_what_they_are() -> None:
    with pytest.raises(ConfigError, match="unknown command 'b'"):
        calls("report a b")


def test_flags_that_mean_something_else_there(capsys: Captured) -> None:
    assert run_command_line(["--gpu", "audit", "a.whl"]) == ConfigError.exit_code
    assert "--gpu: a value is missing" in capsys.readouterr().err


def test_nothing_to_look_at(capsys: Captured) -> None:
    assert run_command_line(["audit"]) == ConfigError.exit_code
    assert "WHEEL is missing" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["gpu", "torch"])
def test_a_flag_that_names_nothing_has_not_passed(
    tmp_path: Path, capsys: Captured, flag: str
) -> None:
    """As of a script whose variables are empty."""
    assert (
        run_command_line(["audit", str(gpu_wheel(tmp_path)), f"--{flag}= , "])
        == ConfigError.exit_code
    )
    assert f"--{flag}: the value is empty" in capsys.readouterr().err


def test_one_in_full(tmp_path: Path, capsys: Captured) -> None:
    assert run_command_line(["audit", str(gpu_wheel(tmp_path))]) == 0
    said = capsys.readouterr().out
    assert "8.9" in said
    assert "RTX 40xx" in said
    assert "528.33" in said


def test_a_gpu_on_which_it_does_not_run(tmp_path: Path, capsys: Captured) -> None:
    path = str(gpu_wheel(tmp_path))
    assert run_command_line(["audit", path, "--gpu", "RTX 4090, RTX 5090"]) == 0
    assert run_command_line(["audit", path, "--gpu", "GTX 1080"]) == AuditError.exit_code
    assert "does not run" in capsys.readouterr().out
    assert run_command_line(["audit", path, "--gpu", "RTX 9999"]) == ConfigError.exit_code
    pure = str(foreign(tmp_path, "pure"))  # there is nothing that could tell
    assert run_command_line(["audit", pure]) == 0
    assert run_command_line(["audit", pure, "--gpu", "A100"]) == AuditError.exit_code


def test_many_and_one_that_is_wrong(tmp_path: Path, capsys: Captured) -> None:
    for version in ("1.0", "2.0", "3.0"):
        gpu_wheel(tmp_path / "w", version)
    assert run_command_line(["audit", str(tmp_path / "w")]) == 0
    with_member(tmp_path / "w" / f"other-2.0-{TAG}.whl", "../evil")
    capsys.readouterr()
    assert run_command_line(["audit", str(tmp_path / "w")]) == AuditError.exit_code
    said = " ".join(capsys.readouterr().out.split())
    assert "outside its directory" in said
    assert "3 wheels: 1 error, " in said


def test_what_programs_are_told(tmp_path: Path, capsys: Captured) -> None:
    assert run_command_line(["audit", str(gpu_wheel(tmp_path)), "--gpu", "GTX 1080", "--json"]) == 9
    said = json.loads(capsys.readouterr().out)
    (wheel,) = said["wheels"]
    assert (said["schema"], wheel["level"]) == (1, "error")
    assert wheel["gpus"]["binaries"][0]["sass"] == {"80": 1}
    assert wheel["gpus"]["cards"][0]["names"] == ["GTX 1080"]
    assert {each["level"] for each in wheel["findings"]} <= {"ok", "warning", "unknown", "error"}


def test_what_ci_is_told(tmp_path: Path) -> None:
    path = gpu_wheel(tmp_path)
    assert (
        run_command_line(["audit", str(path), "--gpu", "GTX 1080,A100", "--junit", "out/junit.xml"])
        == 9
    )
    root = ElementTree.fromstring((tmp_path / "out/junit.xml").read_bytes())
    (suite,) = root
    assert suite.get("name") == path.name
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failed == ["GPU GTX 1080"]


def test_one_that_nobody_could_read_is_skipped_and_failed(tmp_path: Path) -> None:
    path = tmp_path / f"other-1.0-{TAG}.whl"
    path.write_bytes(b"PK")
    assert run_command_line(["audit", str(path), "--junit", "junit.xml"]) == 9
    root = ElementTree.fromstring((tmp_path / "junit.xml").read_bytes())
    assert (root.get("tests"), root.get("failures")) == ("2", "1")
    assert len(root.findall(".//skipped")) == 1


def test_what_was_asked_and_has_no_answer_has_failed(tmp_path: Path) -> None:
    path = foreign(tmp_path, "other", "1.0", TAG, files={"other/k.ptx": ptx()})
    assert run_command_line(["audit", str(path), "--gpu", "RTX 4090", "--junit", "junit.xml"]) == 9
    root = ElementTree.fromstring((tmp_path / "junit.xml").read_bytes())
    failed = {
        case.get("name") for case in root.iter("testcase") if case.find("failure") is not None
    }
    assert failed == {"device code elsewhere", "GPU RTX 4090"}


def test_a_page_that_cannot_be_written(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "file").write_text("")
    path = str(gpu_wheel(tmp_path))
    for name in ("file/page.html", "."):
        assert run_command_line(["audit", path, "--html", name]) == ConfigError.exit_code
        assert f"--html {name}: " in capsys.readouterr().err


def test_the_line_in_other_projects_ci(tmp_path: Path) -> None:
    """What the page says for cibuildwheel, and the hook of pre-commit."""
    root = Path(__file__).parents[2]
    (text,) = re.findall(
        r"```toml\n(.*?)```", (root / "docs/audit.md").read_text("utf-8"), re.DOTALL
    )
    table = tomllib.loads(text)["tool"]["cibuildwheel"]["windows"]
    (requirement,) = map(Requirement, [table["audit-requires"]])
    (hook,) = yaml.safe_load((root / ".pre-commit-hooks.yaml").read_text("utf-8"))
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    (extras,) = hook["additional_dependencies"]
    assert (requirement.name, f".[{','.join(sorted(requirement.extras))}]") == (
        project["name"],
        extras,
    )
    assert requirement.extras <= {*project["optional-dependencies"]}
    fine, wrong = gpu_wheel(tmp_path / "a"), with_member(gpu_wheel(tmp_path / "b"), "more.txt")
    assert re.search(hook["files"], str(fine))
    for command in (table["audit-command"], f"{hook['entry']} {{wheel}}"):
        program, *words = shlex.split(command)
        assert program in project["scripts"]
        for path, code in ((fine, 0), (wrong, AuditError.exit_code)):
            assert run_command_line([word.format(wheel=path) for word in words]) == code
