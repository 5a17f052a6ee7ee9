"""Every command's output on terminals of three widths: no word is broken, no path cut short."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import report_samples as samples
from screens import broken, command, environment, screen
from wheels import wheel_here

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("sys.platform == 'win32'", reason="needs a pty"),
]

CONFIG = """
hosts:
  sandbox: {kind: sandbox}
  workstation-in-the-lab: {kind: winrm, endpoint: "https://workstation.example.org:5986/wsman",
                           username: builder, password_env: LAB_PASSWORD}
  virtual: {kind: vm, windows: "2025", memory: 32g, cpus: 8}
"""
COMMANDS = {
    "help": "--help",
    "help of build": "build --help",
    "help of publish": "publish --help",
    "plan": "plan --recipe flash-attn --python 3.12 --torch 2.8",
    "plan of another host": "plan --host virtual --recipe smoke-attention",
    "plan of shards": "plan --host virtual --recipe smoke-attention-torch --shards 2",
    "runs": "runs",
    "report": "report {good}",
    "report of a failed build": "report {build}",
    "compare": "compare {good} {test}",
    "diagnose": "diagnose {log}",
    "hosts": "hosts",
    "audit": "audit {wheel}",
    "an unknown command": "biuld",
    "an unknown host": "plan --host lab",
    "a build that cannot be": "build --recipe flash-attn",
}


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("a-project-with-a-name-of-its-own")
    (root / "pipeline.yaml").write_text(CONFIG, "utf-8")
    for name in ("good", "failed_build", "failed_smoke", "killed"):
        run = getattr(samples, name)(root / "out")
        (root / f"{name}.txt").write_text(str(run.path.relative_to(root)))
        run.close()
    return root


def filled(line: str, project: Path) -> list[str]:
    names = {"{good}": "good", "{build}": "failed_build", "{test}": "failed_smoke"}
    words, wheel = shlex.split(line), project / "wheels"
    if "{wheel}" in words and not wheel.exists():
        wheel.mkdir()
        shutil.copy(wheel_here(wheel.parent), wheel)
    known = {key: (project / f"{name}.txt").read_text() for key, name in names.items()}
    known |= {"{wheel}": "wheels", "{log}": f"{known['{build}']}/build.log"}
    return [known.get(word, word) for word in words]


@pytest.mark.parametrize("name", COMMANDS)
def test_no_word_is_broken_and_no_path_is_cut(name: str, project: Path) -> None:
    words = filled(COMMANDS[name], project)
    done = subprocess.run(
        command(words),
        cwd=project,
        env=environment(COLUMNS="4000"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert len(done.stdout.splitlines()) > 1, done.stdout
    for columns in (80, 100, 120):
        rows = screen(words, project, columns)
        assert broken(rows, done.stdout, columns) == [], "\n".join([f"{columns} columns", *rows])


@pytest.mark.parametrize(
    ("columns", "shown", "found"),
    [
        (80, ["a path/to/a/wheel.whl of it"], []),
        (
            80,
            ["a path/to/a/whe", "el.whl of it"],
            ["el.whl", "path/to/a/whe", "path/to/a/wheel.whl"],
        ),
        (80, ["a path/to/a/w... of it"], ["path/to/a/w...", "path/to/a/wheel.whl"]),
        (15, ["of it a path/to/a/wheel.whl"], ["path/to/a/wheel.whl"]),
        (15, ["of it a", "path/to/a/wheel.whl"], []),
        (80, ["of it a", "Columns hidden to fit: path"], []),
    ],
    ids=["whole", "cut by us", "cut short", "cut by the terminal", "a line of its own", "left out"],
)
def test_what_is_broken_is_found(columns: int, shown: list[str], found: list[str]) -> None:
    assert broken(shown, "a path/to/a/wheel.whl of it", columns) == found
