"""The wheel has all that the pipeline needs where it is installed, and nothing else."""

from __future__ import annotations

import configparser
import re
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

import pipelines
from pipelines.core.paths import PACKAGE

pytestmark = pytest.mark.slow

ROOT = PACKAGE.parent
INFO = f"windows_cuda_wheels-{pipelines.__version__}.dist-info"


@pytest.fixture(scope="module")
def files(built_wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(built_wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_has_every_file_of_the_package_and_no_other(files: dict[str, bytes]) -> None:
    wanted = {
        f"pipelines/{path.relative_to(PACKAGE).as_posix()}": path.read_bytes()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    found = {name: data for name, data in files.items() if name.startswith("pipelines/")}
    assert found.keys() == wanted.keys()
    assert found == wanted


def test_every_page_that_a_message_names_is_in_it(files: dict[str, bytes]) -> None:
    data = INFO.replace(".dist-info", ".data/data/share/windows-cuda-wheels/")
    texts = [path.read_text("utf-8") for path in PACKAGE.rglob("*.py")]
    named = {page for text in texts for page in re.findall(r"[^/`\w](docs/[\w/-]+\.md)", text)}
    assert len(named) > 15
    assert not {page for page in named if data + page not in files}
    others = {name for name in files if not name.startswith(("pipelines/", f"{INFO}/"))}
    pages = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md")}
    assert {name.removeprefix(data) for name in others} <= pages


@pytest.mark.parametrize(
    "name",
    [
        "py.typed",
        "__main__.py",
        "toolchain/toolchain.yaml",
        "toolchain/toolchain.lock.yaml",
        "plan/provisioning/resources.yaml",
        "recipes/smoke-attention.yaml",
        "recipes/schema.json",
        "smoke/common/pytest.ini",
        "smoke/smoke_attention/test_gpu.py",
        "examples/smoke_attention/pyproject.toml",
        "examples/smoke_attention/src/attention_fp16_wide.cu",
        "reports/templates/report.html.j2",
        "reports/templates/report.css",
        "hosts/sandbox/sdk/include/cmath",
        "hosts/sandbox/sdk/vcvarsall.bat",
        "hosts/sandbox/bridge/source/calls.def",
        "hosts/sandbox/bridge/source/linux/thunks.c",
        "hosts/windows/bootstrap.ps1",
        "remote/loader.py",
    ],
)
def test_what_is_read_at_run_time_is_in_it(files: dict[str, bytes], name: str) -> None:
    assert f"pipelines/{name}" in files


def test_two_names_for_one_program(files: dict[str, bytes]) -> None:
    parser = configparser.ConfigParser()
    parser.read_string(files[f"{INFO}/entry_points.txt"].decode())
    program = "pipelines.__main__:main"
    assert dict(parser["console_scripts"]) == {"wcw": program, "windows-cuda-wheels": program}


def test_the_version_is_said_once(files: dict[str, bytes], built_wheel: Path) -> None:
    told = message_from_string(files[f"{INFO}/METADATA"].decode())
    assert (told["Name"], told["Version"]) == ("windows-cuda-wheels", pipelines.__version__)
    assert told["License-Expression"] == "Apache-2.0"
    assert f"{INFO}/licenses/LICENSE" in files
    assert built_wheel.name == f"windows_cuda_wheels-{pipelines.__version__}-py3-none-any.whl"
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["dynamic"] == ["version"]
