"""What hosts, archives and the network may not do; the sign-in itself is in test_winrs*.py."""

from __future__ import annotations

import ast
import io
import os
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import installer_spec, line_for, plan_for, wanting
from winrm_programs import launch

from pipelines.core import console, github, hosttext
from pipelines.core.errors import ProvisionError
from pipelines.core.files import sha256_of
from pipelines.core.hosttext import safe_text
from pipelines.hosts.base import OpenOptions
from pipelines.hosts.sandbox.wsman.auth import write_credentials
from pipelines.hosts.sandbox.wsman.certificate import create_certificate
from pipelines.hosts.sandbox.wsman.server import WsmanServer
from pipelines.hosts.winrm.config import WinRMHost
from pipelines.plan.provisioning.resources import DesiredResource
from pipelines.record.results import ProvisionResult
from pipelines.remote import builder
from pipelines.remote.resources import archive
from pipelines.reports.write import announce_outcome, write_run_reports
from pipelines.session.transports import signins
from pipelines.stages.line import PROVISION, Line
from pipelines.toolchain.lock import Cache, load_lock

ROOT = Path(__file__).parents[2]

# -- what a host says ------------------------------------------------------------------------------


@given(st.text(st.characters(exclude_categories=())))
def test_what_a_host_says_is_only_text(text: str) -> None:
    shown = safe_text(text, 50)
    assert len(shown) <= 54
    assert "\x1b" not in shown
    assert not [c for c in shown if ord(c) < 32 and c not in "\t\n"]
    shown.encode("utf-8")  # what cannot be encoded would end the program that prints it


@pytest.mark.parametrize("mark", ["\u061c", "\u200e", "\u200f", "\u2028", "\u2029", "\ufeff"])
def test_marks_that_turn_or_break_a_line_are_made_visible(mark: str) -> None:
    assert mark not in safe_text(f"a{mark}b")


def test_half_characters_can_be_printed() -> None:
    """json gives them to whoever asks: a host may send \\ud800."""
    assert safe_text("a\ud800b") == "a\\xd800b"


@pytest.mark.parametrize("between", ["\r", "\x1b[0m", "\x1b]0;t\x07"])
def test_secret_in_pieces_is_blanked(monkeypatch: pytest.MonkeyPatch, between: str) -> None:
    monkeypatch.setattr(hosttext, "_secrets", {"correct-horse", "correct-horse-battery"})
    assert safe_text(f"correct-{between}horse-battery") == "***"


def test_masks_are_escaped_for_the_runner(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hosttext, "_secrets", set())
    monkeypatch.setattr(github, "in_ci", True)
    hosttext.remember_secret("50%25\nof")
    assert capsys.readouterr().out == "::add-mask::50%2525%0Aof\n"


# -- archives --------------------------------------------------------------------------------------

HOSTILE = [
    "../out",
    "a/../../out",
    "a/..",
    "/etc/out",
    "//server/share/out",
    "C:/out",
    "C:out",
    "a/C:/out",
    "a\\..\\..\\out",
    "\\\\server\\share\\out",
    "a//b",
    "a/b:stream",
    "a/NUL",
    "nul.txt",
    "aux.tar.gz",
    "CON/x",
    "Com1.h",
    "LPT9",
    "com\u00b9",
    "a/CONIN$",
    "prn .txt",
    "trailing.",
    "trailing ",
    "a./b",
    "a /b",
    "a/...",
    "./a",
    "a/?",
    'a/"b"',
    "a/b|c",
    "a/\x01",
    "a\nb",
]
FINE = [
    "a",
    "a/b.txt",
    ".hidden",
    "..a",
    "a..b/c",
    "comb",
    "com10",
    "console.c",
    "nulls/auxiliary.h",
]


def as_tar(path: Path, *members: tuple[str, bytes, str]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, kind, link in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, link
            content = b"x" if kind == tarfile.REGTYPE else b""
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def as_zip(path: Path, name: str, mode: int = 0o100644) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        info = zipfile.ZipInfo("placeholder")
        info.filename, info.external_attr = name, mode << 16
        made.writestr(info, b"/etc/passwd")
    return path


def by_builder(file: Path, target: Path) -> None:
    builder.unpack_source(str(file), str(target))


def by_archive(file: Path, target: Path) -> None:
    archive._unpack_archive(file, target, "")


def from_tar(tmp_path: Path, name: str) -> Path:
    return as_tar(tmp_path / "a.tar.gz", (name, tarfile.REGTYPE, ""))


def from_zip(tmp_path: Path, name: str) -> Path:
    return as_zip(tmp_path / "a.zip", name)


READERS = pytest.mark.parametrize(
    ("make", "unpack"),
    [(from_tar, by_builder), (from_tar, by_archive), (from_zip, by_archive)],
    ids=["source", "tar", "zip"],
)
Make = Callable[[Path, str], Path]
Unpack = Callable[[Path, Path], None]


def files(place: Path) -> list[str]:
    return sorted(p.relative_to(place).as_posix() for p in place.rglob("*") if not p.is_dir())


@READERS
@pytest.mark.parametrize("name", HOSTILE)
def test_members_that_would_leave_are_refused(
    tmp_path: Path, name: str, make: Make, unpack: Unpack
) -> None:
    file = make(tmp_path, name)
    target = tmp_path / "deep" / "target"
    with pytest.raises(ValueError, match="member"):
        unpack(file, target)
    assert files(tmp_path) == [file.name], "nothing may be written"


@READERS
@pytest.mark.parametrize("name", FINE)
def test_ordinary_members_are_unpacked(
    tmp_path: Path, name: str, make: Make, unpack: Unpack
) -> None:
    unpack(make(tmp_path, name), tmp_path / "target")
    assert files(tmp_path / "target") == [name]


@pytest.mark.parametrize("unpack", [by_builder, by_archive], ids=["source", "archive"])
@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
)
@pytest.mark.parametrize("link", ["../outside", "/etc/passwd", "b"])
def test_links_and_devices_are_refused(
    tmp_path: Path, kind: bytes, link: str, unpack: Unpack
) -> None:
    file = as_tar(tmp_path / "a.tar.gz", ("a", kind, link), ("a/b", tarfile.REGTYPE, ""))
    with pytest.raises(ValueError, match="member 'a'"):
        unpack(file, tmp_path / "target")
    assert files(tmp_path) == [file.name]


def test_links_in_zips_are_refused(tmp_path: Path) -> None:
    file = as_zip(tmp_path / "a.zip", "a", 0o120777)
    with pytest.raises(ValueError, match="member 'a'"):
        by_archive(file, tmp_path / "target")


# -- XML -------------------------------------------------------------------------------------------

#: Modules that may import the standard library's parsers, and what for.
EXCEPTIONS = {
    "pipelines/reports/junit.py": "writes; what hosts send is read with defusedxml",
    "pipelines/hosts/sandbox/wsman/service.py": "the type Element",
    "pipelines/hosts/sandbox/wsman/soap.py": "the type Element, and escape of sax.saxutils",
    "pipelines/remote/scheduler.py": "runs on the host, which has no defusedxml, on its own text",
    "pipelines/remote/events.py": "the same, on what Windows' event log has rendered: no DTD",
}
READS = {"parse", "iterparse", "fromstring", "fromstringlist", "XML", "XMLID", "XMLParser"}


def sources() -> list[Path]:
    found = [*(ROOT / "pipelines").rglob("*.py"), ROOT / "tasks.py"]
    assert len(found) > 50
    return found


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.slow
def test_xml_of_others_is_read_with_defusedxml() -> None:
    found = {}
    for path in sources():
        names = set(imported(ast.parse(path.read_text("utf-8"))))
        if parsers := {n for n in names if n.startswith(("xml.", "lxml", "xmltodict"))}:
            found[path.relative_to(ROOT).as_posix()] = parsers
    assert set(found) <= set(EXCEPTIONS), f"read it with defusedxml: {found}"
    for name in found:
        tree = ast.parse((ROOT / name).read_text("utf-8"))
        calls = {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and ast.unparse(node.value).endswith(("ET", "minidom"))
        }
        if not name.startswith("pipelines/remote/"):
            assert not calls & READS, name


# -- a password on its way through a whole provision -----------------------------------------------

CANARY = "c4nary-Pa55word-\u00e4\"'\\%0A"


class Watch:
    """Looks at the command line of every process, as often as it can."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self._stop.is_set():
            for entry in os.listdir("/proc"):  # noqa: PTH208 - quick
                if entry.isdigit():
                    try:
                        with open(f"/proc/{entry}/cmdline", "rb") as file:  # noqa: PTH123
                            self.seen.add(file.read())
                    except OSError:
                        continue
            time.sleep(0.002)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A host's entry in pipeline.yaml; its service runs, its password is in the environment."""
    place = tmp_path / "service"
    place.mkdir()
    pin = create_certificate(place / "cert.pem", place / "key.pem")
    monkeypatch.setenv("LAB_PASSWORD", CANARY)
    monkeypatch.setattr(hosttext, "_secrets", set())
    monkeypatch.setattr(signins, "_accounts", {})
    with WsmanServer(
        launch,
        write_credentials(place / "users", "builder", CANARY),
        certificate=place / "cert.pem",
        key=place / "key.pem",
    ) as server:
        yield {
            "kind": "winrm",
            "endpoint": server.https_url,
            "username": "builder",
            "password_env": "LAB_PASSWORD",
            "pin": pin,
            "python": sys.executable,
        }


def installer(tmp_path: Path, code: str) -> DesiredResource:
    """A program on the host that says what it likes."""
    path = tmp_path / "setup"
    path.write_text(f"#!{sys.executable}\nimport os, sys, time\ntime.sleep(0.05)\n{code}\n")
    path.chmod(0o755)
    detect = str(tmp_path / "installed*")
    spec = installer_spec(str(path), sha256_of(path), detect=detect, minutes=0.5)
    return DesiredResource("tool", "a test", spec, {}, "tool 1")


def lab_line(tmp_path: Path, settings: dict[str, Any], *wanted: DesiredResource) -> Line:
    options = OpenOptions("3.11", Cache(load_lock()), register_secret=hosttext.remember_secret)
    host = WinRMHost.model_validate(settings).open("lab", options)
    line = line_for(plan_for(tmp_path, host, archs="80"))
    temp = str(tmp_path / "t")
    names = ("build_root", "temp", "wheels", "cuda", "sccache", "ninja", "compile_cache")
    places = dict.fromkeys(names, temp) | {"uv": "uv", "python": sys.executable}
    return wanting(line, *wanted, **places, marker=str(tmp_path / "restart.json"))


def holds_canary(data: bytes) -> bool:
    """The password itself, or as JSON and XML write it."""
    text = data.decode("utf-8", "replace")
    return "c4nary-Pa55word" in text or "c4nary-Pa55word" in data.decode("utf-16-le", "replace")


def test_password_is_nowhere_after_a_provision(
    tmp_path: Path,
    lab: dict[str, Any],
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not on a command line, in a log, a record, a report, nor in what is printed."""
    caplog.set_level("DEBUG")
    folder = DesiredResource(
        "folder", "a test", {"kind": "directory", "path": str(tmp_path / "t")}, {}, ""
    )
    hint = str(tmp_path / "installed-1")
    code = f"open({hint!r}, 'w').write('1')\nprint('all is well')"
    line = lab_line(tmp_path, lab, folder, installer(tmp_path, code))
    with Watch() as watch:
        run = line.begin_run()
        try:
            done = line.do(PROVISION)
            write_run_reports(run)
            announce_outcome(run)
        finally:
            line.close()
    assert isinstance(done, ProvisionResult)
    assert [row.changed for row in done.resources] == [True, True]
    assert any(b"sys.stdin.readline" in words for words in watch.seen), "the host's Python was seen"
    assert any(words.endswith(b"setup\0") for words in watch.seen), "so was the installer"
    assert not [words for words in watch.seen if holds_canary(words)]
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert {"record.sqlite", "junit.xml"} <= {path.name for path in written}
    assert not [path for path in written if holds_canary(path.read_bytes())]
    said = capfd.readouterr()
    assert "2 resources, 2 changed" in said.out
    assert not holds_canary((said.out + said.err + caplog.text).encode())


def test_password_that_a_host_repeats_is_blanked(
    tmp_path: Path, lab: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    """A program on the host may know it, and print it in its error."""
    code = "sys.exit('cannot sign in with ' + os.environ['LAB_PASSWORD'] + '\\x1b[2J')"
    line = lab_line(tmp_path, lab, installer(tmp_path, code))
    run = line.begin_run()
    try:
        with pytest.raises(ProvisionError) as caught:
            line.do(PROVISION)
        write_run_reports(run)
        announce_outcome(run)
        console.print_error(caught.value)
    finally:
        line.close()
    assert "cannot sign in with" in caught.value.message, "or this test shows nothing"
    said = capfd.readouterr()
    assert not holds_canary((said.out + said.err).encode())
    assert "\x1b[2J" not in said.out + said.err
    for path in (tmp_path / "out").rglob("*"):
        assert not (path.is_file() and holds_canary(path.read_bytes())), path
