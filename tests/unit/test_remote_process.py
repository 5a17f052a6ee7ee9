"""What runs on the host, run here: programs and their trees, archives, sources."""

from __future__ import annotations

import ctypes
import hashlib
import io
import os
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from projects import project
from timing import until

from pipelines.remote import awake, builder, process, provision
from pipelines.remote.resources import RefusedError, archive

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="looks at Linux processes")

# Prints its own and its grandchild's process ids, then sleeps.
FAMILY = (
    "import os, subprocess, sys, time\n"
    "code = 'import os,time;print(os.getpid(), flush=True);time.sleep(60)'\n"
    "subprocess.Popen([sys.executable, '-c', code])\n"
    "print(os.getpid(), flush=True); time.sleep(60)\n"
)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def gone(pids: list[int]) -> None:
    until(lambda: not any(map(alive, pids)), 30)  # half of what they would sleep


def family(items: Iterator[bytes | process.Ended]) -> list[int]:
    """The process ids that it prints."""
    seen = b""
    while seen.count(b"\n") < 2:
        piece = next(items)
        assert isinstance(piece, bytes)
        seen += piece
    return [int(line) for line in seen.split()]


def run(code: str, **options: Any) -> tuple[bytes, process.Ended]:
    *pieces, end = process.stream([sys.executable, "-c", code], **options)
    assert isinstance(end, dict)
    return b"".join(piece for piece in pieces if isinstance(piece, bytes)), end


def test_output_and_exit(tmp_path: Path) -> None:
    code = "import os,sys;os.write(1,b'out '+os.environb[b'A']+sys.stdin.buffer.read());"
    code += "os.write(2,os.getcwd().encode());sys.exit(3)"
    began = time.monotonic()
    output, end = run(code, cwd=str(tmp_path), env={"A": "1"})
    assert output == b"out 1" + os.fsencode(tmp_path), "of an empty input nothing was read"
    assert (end["exit"], end["timed_out"]) == (3, False)
    assert 0 <= end["seconds"] <= time.monotonic() - began


def test_much_output_is_whole() -> None:
    output, end = run("import sys;sys.stdout.buffer.write(bytes(range(256))*20000)")
    assert output == bytes(range(256)) * 20000
    assert end["exit"] == 0


def test_output_comes_as_it_is_made() -> None:
    code = "import os,time;os.write(1, b'%d' % os.getpid());time.sleep(60)"
    items = process.stream([sys.executable, "-c", code])
    piece = next(items)
    assert isinstance(piece, bytes)
    assert alive(int(piece))
    items.close()


def test_timeout_ends_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = 0.0
    monkeypatch.setattr(awake, "seconds", lambda: time.monotonic() + ahead)
    items = process.stream([sys.executable, "-c", FAMILY], timeout=3600)
    pids = family(items)
    ahead = 3601
    *_, end = items
    assert isinstance(end, dict)
    assert end["timed_out"]
    assert end["exit"] != 0
    gone(pids)


def test_closing_ends_the_tree() -> None:
    items = process.stream([sys.executable, "-c", FAMILY])
    pids = family(items)
    assert all(map(alive, pids))
    items.close()
    gone(pids)


def test_no_such_program() -> None:
    with pytest.raises(FileNotFoundError):
        next(process.stream(["/none/such"]))


def test_a_job_gives_way_to_who_sits_at_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's own functions take any arguments and note them."""
    asked: list[tuple[str, tuple[Any, ...]]] = []

    class Kernel:
        def __getattr__(self, name: str) -> Any:
            def function(*words: Any) -> int:
                asked.append((name, words))
                return 7

            setattr(self, name, function)  # what is set on it stays
            return function

    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(ctypes, "WinDLL", lambda _: Kernel(), raising=False)
    monkeypatch.setattr(process, "_confines", [])
    process.confine()
    assert ("SetPriorityClass", (7, 0x4000)) in asked


def test_capture() -> None:
    assert process.capture([sys.executable, "-c", "print('é')"], timeout=60) == (0, "é\n")
    with pytest.raises(TimeoutError, match="did not end"):
        process.capture([sys.executable, "-c", "import time;time.sleep(60)"], timeout=0.2)


# -- archives ----------------------------------------------------------------------------------


def zipped(path: Path, **members: str) -> archive.Packed:
    with zipfile.ZipFile(path, "w") as made:
        for name, text in members.items():
            made.writestr(zipfile.ZipInfo(name), text)  # of no time: the same bytes always
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"name": path.stem, "version": "1", "sha256": sha256, "file": str(path), "strip": "top"}


def spec(tmp_path: Path, *archives: archive.Packed) -> archive.Spec:
    return {
        "kind": "archive",
        "path": str(tmp_path / "target"),
        "proof": "bin/x",
        "archives": list(archives),
        "unwatched": ["etc/*"],
    }


def test_archive_is_applied_twice(tmp_path: Path) -> None:
    row = zipped(tmp_path / "a.zip", **{"top/bin/x": "x", "other/y": "y", "top2/z": "z"})
    wanted = spec(tmp_path, row)
    target = tmp_path / "target"
    assert archive.check(wanted) == {"ok": False, "found": "missing", "values": {}}
    for _ in range(2):
        zipped(tmp_path / "a.zip", **{"top/bin/x": "x", "other/y": "y", "top2/z": "z"})
        assert provision.apply_one(wanted, str(tmp_path / "marker"))["ok"]
        assert not (tmp_path / "a.zip").exists()
        (target / "stray").write_text("of another version")
        (target / ".archives.json").unlink()
    assert (target / "bin/x").read_text() == "x"
    assert not (target / "y").exists()
    assert not (target / "z").exists()


def test_archive_half_unpacked(tmp_path: Path) -> None:
    wanted = spec(tmp_path, zipped(tmp_path / "a.zip", **{"top/bin/x": "x"}))
    (tmp_path / "target/bin").mkdir(parents=True)
    (tmp_path / "target/bin/x").write_text("half")
    assert archive.check(wanted) == {"ok": False, "found": "half-unpacked", "values": {}}
    assert provision.apply_one(wanted, str(tmp_path / "marker"))["ok"]
    (tmp_path / "target/.archives.json").write_text("{")
    assert not archive.check(wanted)["ok"]


def test_archive_interrupted_between_two(tmp_path: Path) -> None:
    first = zipped(tmp_path / "a.zip", **{"top/bin/x": "x"})
    lost: archive.Packed = {**first, "name": "b", "file": str(tmp_path / "none.zip")}
    wanted = spec(tmp_path, first, lost)
    with pytest.raises(FileNotFoundError):
        archive.apply(wanted)
    assert archive.check(wanted) == {"ok": False, "found": "half-unpacked", "values": {}}
    assert (tmp_path / "a.zip").exists()


def test_archive_other_version_or_lost_proof(tmp_path: Path) -> None:
    wanted = spec(tmp_path, zipped(tmp_path / "a.zip", **{"top/bin/x": "x"}))
    archive.apply(wanted)
    (row,) = wanted["archives"]
    there = {row["name"]: row["sha256"]}
    newer = spec(tmp_path, {**row, "sha256": "0" * 64})
    assert archive.check(newer) == {"ok": False, "found": "0 of 1 archives", "values": there}
    (tmp_path / "target/bin/x").unlink()
    said = "1 of 1 files have changed: bin/x missing"
    assert archive.check(wanted) == {"ok": False, "found": said, "values": there, "uploads": ["a"]}


@pytest.mark.parametrize(
    "name", ["top/../../out", "top/a/../../../out", "top//out", "top/..\\..\\out", "top/C:out"]
)
def test_archive_members_stay_inside(tmp_path: Path, name: str) -> None:
    wanted = spec(tmp_path, zipped(tmp_path / "a.zip", **{"top/bin/x": "x", name: "bad"}))
    with pytest.raises(ValueError, match="leaves the directory"):
        archive.apply(wanted)
    assert not archive.check(wanted)["ok"]
    assert not list(tmp_path.rglob("*out"))


def test_archive_without_its_proof(tmp_path: Path) -> None:
    wanted = spec(tmp_path, zipped(tmp_path / "a.zip", **{"top/y": "y"}))
    with pytest.raises(RefusedError, match="hold no bin/x"):
        archive.apply(wanted)
    assert not archive.check(wanted)["ok"]


def test_check_all_goes_on() -> None:
    odd, directory = {"kind": "none"}, {"kind": "directory", "path": "/"}
    first, second = provision.check_all([odd, directory])
    assert not first["ok"]
    assert "ModuleNotFoundError" in first["found"]
    assert second["found"] == "there"


#: A build system whose wheel has what its PATH was.
SHOWS_PATH = """
import os, pathlib
def build_wheel(out):
    pathlib.Path(out, "made.whl").write_text(os.environ["PATH"])
    return "made.whl"
"""


def test_a_build_finds_programs_where_they_were_looked_for(tmp_path: Path) -> None:
    project(tmp_path / "source", SHOWS_PATH)
    with tarfile.open(tmp_path / "source.tar.gz", "w:gz") as made:
        for path in (tmp_path / "source").iterdir():
            made.add(path, path.name)
    spec: builder.Spec = {
        "directory": str(tmp_path / "job"),
        "archive": str(tmp_path / "source.tar.gz"),
        "python": sys.executable,
        "environment": {},
        "timeout": 60,
    }
    places: list[list[str]] = [[], [str(tmp_path / "elsewhere")]]
    for programs in places:
        *_, result = builder.build({**spec, "programs": programs})
        assert isinstance(result, dict)
        (wheel,) = result["wheels"]
        beside = str(Path(sys.executable).parent)
        wanted = [beside, f"{beside}/Scripts", *programs, os.environ["PATH"]]
        assert Path(wheel["path"]).read_text() == os.pathsep.join(wanted)


def test_a_build_after_a_restart_drops_what_was_written_last(tmp_path: Path) -> None:
    made, sent = (tmp_path / "job" / place for place in ("src/build/x.obj", "objects/y.obj"))
    for path in (made, sent):
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(100))
    (tmp_path / "job" / "boot").write_text("another start")
    spec: builder.Spec = {
        "directory": str(tmp_path / "job"),
        "archive": packed(tmp_path / "a.tar.gz", ("a", tarfile.REGTYPE)),
        "python": sys.executable,
        "environment": {},
        "timeout": 60,
    }
    items = builder.build(spec)
    next(items)
    assert not made.exists()
    assert sent.exists(), "its hash is vcvarsall.bat"
    items.close()


# -- sources -------------------------------------------------------------------------------------


def packed(path: Path, *members: tuple[str, bytes]) -> str:
    with tarfile.open(path, "w:gz") as made:
        for name, kind in members:
            info = tarfile.TarInfo(name)
            info.type, info.mtime, info.linkname = kind, 1704067200, "/etc/passwd"
            info.size = 4 if kind == tarfile.REGTYPE else 0
            made.addfile(info, io.BytesIO(b"text"))
    return str(path)


def test_source_keeps_its_times(tmp_path: Path) -> None:
    source = packed(tmp_path / "s.tgz", ("a.c", tarfile.REGTYPE), ("d/e/b.c", tarfile.REGTYPE))
    target = tmp_path / "src"
    for _ in range(2):
        builder.unpack_source(source, str(target))
        assert (target / "d/e/b.c").read_bytes() == b"text"
        assert (target / "a.c").stat().st_mtime == 1704067200
    (target / "built.obj").write_text("kept")
    builder.unpack_source(source, str(target))
    assert (target / "built.obj").exists()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("../out", tarfile.REGTYPE),
        ("a/../../out", tarfile.REGTYPE),
        ("/out", tarfile.REGTYPE),
        ("C:/out", tarfile.REGTYPE),
        ("a//out", tarfile.REGTYPE),
        ("out", tarfile.SYMTYPE),
        ("out", tarfile.LNKTYPE),
        ("out", tarfile.FIFOTYPE),
    ],
)
def test_source_members_stay_inside(tmp_path: Path, name: str, kind: bytes) -> None:
    with pytest.raises(ValueError, match="is refused"):
        builder.unpack_source(packed(tmp_path / "s.tgz", (name, kind)), str(tmp_path / "src"))
    assert not list(tmp_path.rglob("out"))


def test_no_compiler() -> None:
    with pytest.raises(FileNotFoundError, match="vcvarsall"):
        builder.find_vcvars()


def test_a_helper_that_holds_the_pipe_does_not_hold_the_build() -> None:
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True)"
    )
    began = time.monotonic()
    output, result = run(code)
    assert result["exit"] == 0
    assert time.monotonic() - began < 120, "it waited for a helper that takes 600 s"
    gone([int(output)])
