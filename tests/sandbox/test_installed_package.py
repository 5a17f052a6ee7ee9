"""The wheel, installed into an empty environment: the whole line in an empty directory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import parse

import pytest

from pipelines.core.paths import PACKAGE, default_cache

LOG = "[1/3] one.cu\nnvcc fatal   : Unsupported gpu architecture 'compute_999'\n"


class Installed:
    """A machine of somebody who typed ``pip install`` and nothing else."""

    def __init__(self, base: Path, wheel: Path) -> None:
        self.venv, self.home, self.project = base / "venv", base / "home", base / "project"
        for folder in (self.home, self.project, base / "temp"):
            folder.mkdir()
        self.env = {
            "PATH": f"{self.venv / 'bin'}{os.pathsep}/usr/local/bin{os.pathsep}/usr/bin:/bin",
            "HOME": str(self.home),
            "XDG_CACHE_HOME": str(default_cache().parent),
            "TMPDIR": str(base / "temp"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        uv = [sys.executable, "-m", "uv"]
        _run([*uv, "venv", "--quiet", "--python", sys.executable, str(self.venv)])
        pins = str(PACKAGE.parent / "requirements.lock")
        python = str(self.venv / "bin/python")
        options = ["--quiet", "--system-certs", "--python", python, "--constraint", pins]
        _run([*uv, "pip", "install", *options, str(wheel)])

    def run(self, *command: str) -> str:
        """What a command says that was typed in the empty directory; it must not fail."""
        return _run([*command], cwd=self.project, env=self.env)

    def files(self) -> set[str]:
        """What is in the environment and in the user's own directory."""
        places = (self.venv, self.home)
        return {str(path) for place in places for path in place.rglob("*") if path.is_file()}


def _run(command: list[str], cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, built_wheel: Path) -> Iterator[Installed]:
    made = Installed(tmp_path_factory.mktemp("installed"), built_wheel)
    before = made.files()
    yield made
    key = made.home / ".config/windows-cuda-wheels/seal.pem"  # what records are sealed with
    assert made.files() - before <= {str(key)}, "more was written outside directory and cache"
    assert before <= made.files()


def test_it_reads_its_data_from_the_package(installed: Installed) -> None:
    said = installed.run(
        *("python", "-c"),
        "import pipelines, pipelines.core.paths as paths\n"
        "from pipelines.plan.config.model import load_config\n"
        "from pipelines.recipe.load import load_recipe, recipe_names\n"
        "from pipelines.plan.config.schema import RECIPE_SCHEMA\n"
        "from pipelines.toolchain.command import run_sync\n"
        "from pipelines.toolchain.lock import load_lock\n"
        "from pipelines.toolchain.wheelhouse import installed_requirements\n"
        "assert paths.CHECKOUT is None, paths.CHECKOUT\n"
        "assert all(load_recipe(name) for name in recipe_names())\n"
        "assert RECIPE_SCHEMA.is_file() and load_lock().tools and load_config().host('sandbox')\n"
        "needs = [*installed_requirements()]\n"
        "assert any(need.startswith('execnet==') for need in needs), needs\n"
        "try:\n    run_sync(check=True)\n"
        "except pipelines.core.errors.LockError as error:\n    print(error.message)\n",
    )
    assert said.startswith("images/ and ansible/ are only in the repository")
    assert not [*installed.project.iterdir()]


@pytest.mark.parametrize("program", ["wcw", "windows-cuda-wheels", "python -m pipelines"])
def test_plan(installed: Installed, program: str) -> None:
    said = installed.run(*program.split(), "plan", "--recipe", "smoke-attention")
    assert "smoke-attention" in said
    assert not [*installed.project.iterdir()]


def test_diagnose(installed: Installed, tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_text(LOG)
    assert "compute_999" in installed.run("wcw", "diagnose", str(log))


def test_provision_build_test(installed: Installed) -> None:
    try:
        installed.run("wcw", "provision", "build", "test", "--recipe", "smoke-attention")
        out = installed.project / "out"
        (wheel,) = out.glob("latest/wheels/*.whl")
        assert wheel.name.endswith("win_amd64.whl")
        suites = parse(out / "latest/junit.xml").getroot()  # noqa: S314 - we wrote it
        assert {"build", "audit", "test"} <= {str(s.get("name")).split(".")[-1] for s in suites}
        assert {path.name for path in installed.project.iterdir()} == {".sandbox", "out"}
    finally:
        installed.run("wcw", "host.remove", "--force")
