"""scripts/setup-docker with pretended programs: what it starts, what it says, what it leaves."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: The engine answers as long as its dockerd runs.
DOCKER = """#!/bin/sh
read -r pid 2>/dev/null <"$HERE/dockerd.pid" && kill -0 "$pid" 2>/dev/null && exit 0
echo "${DOCKER_SAYS:-Cannot connect to the Docker daemon}" >&2
exit 1
"""
DOCKERD = """#!/bin/sh
echo "level=info what dockerd says" >&2
[ -z "${DOCKERD_FAILS:-}" ] || exit 1
[ -z "${DOCKERD_HANGS:-}" ] || { echo $$ >"$HERE/hangs"; exec sleep 300; }
echo $$ >"$HERE/dockerd.pid"
exec sleep 300
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="starts an engine as root alone")
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "windows-cuda-wheels/bases/debian-bookworm.tar"
    path.parent.mkdir(parents=True)
    path.write_text("a Debian")
    return path


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("docker", DOCKER), ("dockerd", DOCKERD)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"

    def start(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if name != "DOCKER_HOST"}
        known = {**kept, "PATH": path, "XDG_CACHE_HOME": str(tmp_path), "HERE": str(tmp_path)}
        return subprocess.run(
            [ROOT / "scripts/setup-docker", *words],
            env={**known, **more},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    yield start
    if (tmp_path / "dockerd.pid").exists():
        number = int((tmp_path / "dockerd.pid").read_text())
        if (Path("/proc") / str(number)).exists():
            os.kill(number, signal.SIGKILL)


def test_an_engine_that_was_started_is_stopped_and_no_other(
    run: Run, tree: Path, tmp_path: Path
) -> None:
    done = run()
    assert (done.returncode, done.stdout) == (0, f"{tree}\n"), done.stderr
    assert "starting dockerd" in done.stderr
    again = run()
    assert (again.returncode, again.stderr) == (0, "")
    number = (tmp_path / "dockerd.pid").read_text().strip()
    assert run("--stop").returncode == 0
    assert not Path("/proc", number).exists()
    assert "no engine was started here" in run("--stop").stderr


def test_a_number_that_is_another_process_now_is_left_alone(
    run: Run, tree: Path, tmp_path: Path
) -> None:
    state = tmp_path / "windows-cuda-wheels/dockerd"
    state.mkdir(parents=True)
    with subprocess.Popen(["sleep", "300"]) as other:
        (state / "pid").write_text(f"{other.pid} 1\n")
        assert run("--stop").returncode == 0
        assert other.poll() is None
        other.kill()
    assert not (state / "pid").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"DOCKERD_FAILS": "1"}, "what dockerd says"),
        ({"DOCKER_HOST": "tcp://nowhere:2376"}, "DOCKER_HOST=tcp://nowhere:2376 does not answer"),
        ({"DOCKER_SAYS": "permission denied while trying"}, "usermod -aG docker"),
    ],
)
def test_where_there_can_be_none_it_says_why(
    run: Run, tree: Path, given: dict[str, str], said: str
) -> None:
    done = run(**given)
    assert (done.returncode, done.stdout) == (77, ""), done.stderr
    assert "no container engine" in done.stderr
    assert said in done.stderr


def test_an_engine_that_ends_before_it_is_looked_at(run: Run, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "bin/cut").write_text(
        "#!/bin/sh\nexit 1\n"
    )  # as with /proc of a process that is gone
    (tmp_path / "bin/cut").chmod(0o755)
    done = run(DOCKERD_FAILS="1")
    assert done.returncode == 77, done.stderr
    assert "what dockerd says" in done.stderr


def test_an_engine_that_does_not_come_up_is_not_left(run: Run, tree: Path, tmp_path: Path) -> None:
    done = run(DOCKERD_HANGS="1", WCW_ENGINE_SECONDS="2")
    assert done.returncode == 77
    assert "what dockerd says" in done.stderr
    assert not Path("/proc", (tmp_path / "hangs").read_text().strip()).exists()
    assert not (tmp_path / "windows-cuda-wheels/dockerd/pid").exists()


def test_an_engine_without_its_command(run: Run, tree: Path, tmp_path: Path) -> None:
    """From Debian 13 on docker.io has none: docker-cli does."""
    programs = tmp_path / "bin"
    (programs / "docker").rename(tmp_path / "docker")
    apt = '#!/bin/sh\ncase "$*" in *docker-cli*) cp "$HERE/docker" "$HERE/bin/docker";; esac\n'
    (programs / "apt-get").write_text(apt)
    (programs / "apt-get").chmod(0o755)
    for name in ("sh", "cut", "grep", "tail", "sleep", "mkdir", "rm", "uname", "id", "dirname"):
        (programs / name).symlink_to(shutil.which(name) or name)
    for name in ("nohup", "env", "mktemp", "cp", "cat"):
        (programs / name).symlink_to(shutil.which(name) or name)
    done = run(PATH=str(programs))
    assert (done.returncode, done.stdout) == (0, f"{tree}\n"), done.stderr
    assert run("--stop", PATH=str(programs)).returncode == 0


@pytest.mark.parametrize(
    ("rows", "site"),
    [
        ("http://a.example/debian bookworm Packages Debian", "http://a.example/debian"),
        ("http://b.example/debian trixie Packages Debian", "http://b.example/debian"),
        ("http://c.example/ubuntu noble Packages Ubuntu", ""),
    ],
)
def test_the_tree_comes_from_an_archive_of_debians(
    run: Run, tmp_path: Path, rows: str, site: str
) -> None:
    for name, text in (
        ("apt-get", f"echo '{rows}'"),
        ("debootstrap", 'echo "asked for $*" >&2; exit 1'),
    ):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "dockerd.pid").write_text(str(os.getpid()))  # an engine answers
    done = run()
    (tmp_path / "dockerd.pid").unlink()
    assert done.returncode == 4
    assert (f"root {site}\n" in done.stderr) == bool(site), done.stderr


def test_a_wrong_word_is_refused(run: Run) -> None:
    assert run("--start").returncode == 2


def test_without_this_machines_apt_it_says_how_a_tree_is_made(run: Run, tmp_path: Path) -> None:
    apt = tmp_path / "bin/apt-get"
    apt.write_text("#!/bin/sh\nexit 0\n")
    apt.chmod(0o755)
    (tmp_path / "dockerd.pid").write_text(str(os.getpid()))  # an engine answers
    done = run()
    (tmp_path / "dockerd.pid").unlink()
    assert done.returncode == 4
    assert "debootstrap --variant=minbase bookworm DIR" in done.stderr
