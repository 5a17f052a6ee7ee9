"""Whatever becomes of standard output, what is done is done: encodings, pipes, disks, no output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pipelines.core import output

ROOT = Path(__file__).parents[2]
START = "from pipelines.core import output; output.install_safe_streams(); import sys\n"
#: A stage of a run that says more than any buffer or pipe holds, as the builds of hosts do.
BUILD = f"""{START}
from pathlib import Path
from pipelines.core.console import host_line, log_group, say
from pipelines.record.results import RunFacts
from pipelines.record.run import Run
run = Run.create(Path(sys.argv[1]), RunFacts())
with run.stage("build"), log_group("Build ✓"):
    for number in range(3000):
        host_line(f"[{{number}}/3000] ✓ attention.cu 漢" + "." * 40)
    say("✓ passed", style="green")
assert output.stdout_error() is None or "space" in str(output.stdout_error()), output.stdout_error()
print(run.stages()["build"].state, file=sys.stderr)
"""
posix = pytest.mark.skipif(sys.platform == "win32", reason="descriptors of POSIX")


def start(code: str, *words: str, stdout: int, **env: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "", **env},
        stdout=stdout,
        stderr=subprocess.PIPE,
    )


def done(process: subprocess.Popen[bytes]) -> tuple[int, bytes, str]:
    out, err = process.communicate(timeout=60)
    said = err.decode()
    assert "Traceback" not in said
    assert "Exception" not in said
    return process.returncode, out or b"", said


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("utf-8", "│ ✓ ✗ ◐ → … 漢 é"),
        ("cp1252", "| + x ~ -> … ? é"),
        ("latin-1", "| + x ~ -> ... ? é"),
        ("ascii", "| + x ~ -> ... ? ?"),
    ],
)
def test_an_encoding_that_lacks_characters(encoding: str, shown: str) -> None:
    code = START + "print('│ ✓ ✗ ◐ → … 漢 é'); print('│ ✗ é', file=sys.stderr)"
    process = start(code, stdout=subprocess.PIPE, PYTHONIOENCODING=encoding)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out.decode(encoding).rstrip() == shown
    assert err.decode(encoding).rstrip() in ("│ ✗ é", "| x é", "| x ?")


def test_a_terminal_that_says_it_has_no_columns() -> None:
    code = "from pipelines.core.console import say; say('a word')"
    assert done(start(code, stdout=subprocess.PIPE, COLUMNS="0")) == (0, b"a word\n", "")


def test_half_a_character_is_no_error() -> None:
    code = START + "print('a\\udc80b')"
    assert done(start(code, stdout=subprocess.PIPE)) == (0, b"a?b\n", "")


def test_decoding_is_not_ours() -> None:
    with pytest.raises(UnicodeDecodeError):
        output.replace_unencodable(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"))


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_a_build_is_not_decided_by_an_encoding(tmp_path: Path, encoding: str) -> None:
    process = start(BUILD, str(tmp_path), stdout=subprocess.PIPE, PYTHONIOENCODING=encoding)
    code, out, said = done(process)
    assert (code, said) == (0, "passed\n" if sys.platform != "win32" else "passed\r\n")
    assert b"[2999/3000] + attention.cu ?" in out
    assert b"+ passed" in out


@pytest.mark.slow
@posix
def test_a_build_is_not_decided_by_who_reads(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    process = start(BUILD, str(tmp_path), stdout=writer)
    os.close(writer)
    os.read(reader, 10)
    os.close(reader)
    assert done(process) == (0, b"", "passed\n")


@pytest.mark.slow
@posix
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_build_is_not_decided_by_a_full_disk(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        assert done(start(BUILD, str(tmp_path), stdout=full.fileno())) == (0, b"", "passed\n")


@posix
def test_no_output_at_all(tmp_path: Path) -> None:
    """A descriptor that is closed is the next file's: prints must not land in that."""
    mine = tmp_path / "mine"
    code = (
        f"{START}file = open({str(mine)!r}, 'w'); print('lost'); sys.stdout.flush()\n"
        "import subprocess; subprocess.run(['sh', '-c', 'echo lost, too'], check=True)\n"
        "whole = file.fileno() > 2 and output.stdout_error() is None\n"
        "sys.exit(0 if whole and not sys.stdin.read() else 1)"
    )
    process = subprocess.run(
        ["sh", "-c", 'exec "$0" -c "$1" >&- 2>&- <&-', sys.executable, code],
        cwd=ROOT,
        timeout=60,
        check=False,
    )
    assert process.returncode == 0
    assert mine.read_text() == ""


@posix
def test_a_pipe_that_others_made_non_blocking() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    code = START + "print('x' * 1000000); print(output.stdout_error(), file=sys.stderr)"
    process = start(code, stdout=writer)
    os.close(writer)
    got: list[int] = []

    def read() -> None:
        while data := os.read(reader, 1 << 16):
            got.append(len(data))

    thread = threading.Thread(target=read)
    thread.start()
    assert done(process) == (0, b"", "None\n")
    thread.join()
    os.close(reader)
    assert sum(got) == 1000001


@posix
def test_what_is_lost_is_known_unless_nobody_wants_it(tmp_path: Path) -> None:
    code = START + "print('x'); e = output.stdout_error(); print(e and e.errno, file=sys.stderr)"
    reader, writer = os.pipe()
    os.close(reader)
    process = start(code, stdout=writer)
    os.close(writer)
    assert done(process)[2] == "None\n"
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        assert done(start(code, stdout=full.fileno()))[2] == "28\n"


@posix
def test_programs_that_inherit_it_go_on_as_well() -> None:
    code = (
        START + "import subprocess; print('x' * 100000)\n"
        "sys.exit(subprocess.run([sys.executable, '-c', 'print(1)']).returncode)"
    )
    reader, writer = os.pipe()
    os.close(reader)
    process = start(code, stdout=writer)
    os.close(writer)
    assert done(process) == (0, b"", "")


@pytest.mark.slow
@pytest.mark.parametrize("term", ["dumb", "unknown", ""])
def test_a_terminal_that_can_do_nothing(term: str) -> None:
    code = START + (
        "from pipelines.core.console import console, transfer_progress, units_progress\n"
        "console._force_terminal = True\n"
        "with transfer_progress() as show: show('a', 1, 2); show('a', 2, 2)\n"
        "with units_progress() as p: p.add_task('b', total=2, unit='c', left='')\n"
    )
    assert done(start(code, stdout=subprocess.PIPE, TERM=term, PYTHONIOENCODING="ascii"))[0] == 0


def test_answers_are_json_in_ascii() -> None:
    code = START + (
        "from pipelines.core.console import print_json, reserve_stdout, say\n"
        "from pipelines.core.hosttext import remember_secret\n"
        "remember_secret('correct-horse')\n"
        "with reserve_stdout():\n"
        "    say('starting'); print('more')\n"
        "    with reserve_stdout(): print_json({'a': '漢 │', 'b': 'a correct-horse'})\n"
    )
    ended, out, said = done(
        start(code, stdout=subprocess.PIPE, PYTHONIOENCODING="ascii", GITHUB_ACTIONS="")
    )
    assert ended == 0
    assert json.loads(out) == {"a": "漢 │", "b": "a ***"}
    assert said.split() == ["starting", "more"]
