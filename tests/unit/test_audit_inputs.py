"""What ``invoke audit`` is given: files, directories, releases, addresses that lie."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from audited import finding
from foreign_wheels import foreign
from loopback import listening
from pes import msvc

from pipelines.audit import inputs
from pipelines.audit.examination import AuditOptions, audit_wheel, examine_all
from pipelines.audit.findings import WheelReport
from pipelines.audit.inputs import Input, resolve_inputs
from pipelines.core.errors import ConfigError, StorageError
from pipelines.core.workers import run_isolated
from pipelines.plan.prebuilt.candidates import Offer
from pipelines.toolchain import obtaining, sources
from pipelines.toolchain.lock import Cache, load_lock

pytestmark = pytest.mark.slow


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(load_lock(), tmp_path / "cache")


def test_files_and_directories_no_file_twice(tmp_path: Path, cache: Cache) -> None:
    one = foreign(tmp_path / "a", "one")
    two = foreign(tmp_path / "a" / "deep", "two")
    (tmp_path / "a" / "notes.txt").write_text("x")
    found = resolve_inputs([str(tmp_path / "a"), str(one)], cache)
    assert [each.path for each in found] == [two, one]
    assert not any(each.remote or each.problem for each in found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nowhere.whl", "no such file"),
        ("xformers", "NAME==VERSION"),
        ("xformers>=1", "one version"),
        ("http://example.org/a-1-py3-none-any.whl", "https"),
        ("https://example.org/notes.txt", "notes.txt"),
    ],
)
def test_what_names_no_wheel(cache: Cache, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_inputs([text], cache)
    assert said in caught.value.message


@pytest.mark.skipif(os.name == "nt", reason="pipes there have no place among files")
def test_what_is_no_file_is_told_and_not_waited_for(tmp_path: Path, cache: Cache) -> None:
    os.mkfifo(tmp_path / "a-1.0-py3-none-any.whl")
    (taken,) = resolve_inputs([str(tmp_path)], cache)
    assert audit_wheel(taken, AuditOptions()).failed


def test_a_directory_that_cannot_be_listed_hides_no_wheel(
    tmp_path: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign(tmp_path)
    (tmp_path / "more").mkdir()
    listed = os.scandir

    def refused(path: str) -> Any:
        if path.endswith("more"):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", refused)
        with pytest.raises(ConfigError, match="more cannot be listed: Permission denied"):
            resolve_inputs([str(tmp_path)], cache)


def test_a_directory_without_any(tmp_path: Path, cache: Cache) -> None:
    with pytest.raises(ConfigError, match="no wheel in that directory"):
        resolve_inputs([str(tmp_path)], cache)


def test_a_file_that_is_no_wheel_is_a_finding(tmp_path: Path, cache: Cache) -> None:
    path = tmp_path / "other-1.0.tar.gz"
    path.write_bytes(b"x")
    (seen,) = examine_all(resolve_inputs([str(path)], cache), AuditOptions())
    assert seen.worst == "error"


def test_an_index_that_may_not_be_asked(cache: Cache) -> None:
    cache.offline = True
    with pytest.raises(ConfigError, match="--offline"):
        resolve_inputs(["other==1.0"], cache)


@pytest.fixture
def offers(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Offer]], None]:
    def listed(found: list[Offer]) -> None:
        monkeypatch.setattr(inputs, "list_wheel_offers", lambda *_, **__: found)

    return listed


def test_a_release_has_a_wheel_for_each_python(
    tmp_path: Path, cache: Cache, offers: Callable[[list[Offer]], None]
) -> None:
    tags = ("cp311-cp311-win_amd64", "cp312-cp312-win_amd64", "cp312-cp312-manylinux_2_28_x86_64")
    made = [foreign(tmp_path / "i", tag=tag) for tag in tags]
    made.append(foreign(tmp_path / "i", version="2.0", tag=tags[0]))
    offers(
        [
            Offer(path.name, str(path), hashlib.sha256(path.read_bytes()).hexdigest())
            for path in made
        ]
    )
    found = resolve_inputs(["other==1.0"], cache)
    assert [each.file for each in found] == [made[0].name, made[1].name]
    assert [each.file for each in resolve_inputs(["other==1.0"], cache, python="3.12")] == [
        made[1].name
    ]
    with pytest.raises(ConfigError, match="Python 3"):
        resolve_inputs(["other==1.0"], cache, python="3.10")
    with pytest.raises(ConfigError, match="for Windows") as caught:
        resolve_inputs(["other==3.0"], cache)
    assert caught.value.hint == "It has: wheels of 2.0, 1.0."


def test_names_of_an_index_become_no_paths(
    cache: Cache, offers: Callable[[list[Offer]], None]
) -> None:
    offers([Offer("../other-1.0-py3-none-any.whl", "https://example.org/x", "0" * 64)])
    with pytest.raises(ConfigError, match="for Windows"):
        resolve_inputs(["other==1.0"], cache)


def serving(data: bytes, length: int) -> AbstractContextManager[str]:
    """A wheel at an address, which says that it is ``length`` bytes long."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(data)

    return listening(Handler)


@pytest.fixture
def fetched(
    tmp_path: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., WheelReport]:
    """What is found at an https address whose server says and sends this."""
    real = obtaining._http

    def at(data: bytes, length: int, stated: str = "") -> WheelReport:
        with serving(data, length) as url:

            def plain(_: str, *rest: Any) -> None:
                real(url, *rest)

            monkeypatch.setattr(obtaining, "_http", plain)
            named = f"https://example.org/other-1.0-py3-none-any.whl{stated}"
            (taken,) = resolve_inputs([named], cache)
        return audit_wheel(taken, AuditOptions())

    return at


def test_an_address(tmp_path: Path, fetched: Callable[..., WheelReport]) -> None:
    data = foreign(tmp_path).read_bytes()
    seen = fetched(data, len(data))
    assert (seen.name, finding(seen, "sha256").level) == ("other", "unknown")
    seen = fetched(data, len(data), f"#sha256={hashlib.sha256(data).hexdigest()}")
    assert finding(seen, "sha256").level == "ok"
    assert seen.place == "https://example.org/other-1.0-py3-none-any.whl"


@pytest.mark.parametrize("more", [-100, 100, 1 << 40])
def test_an_address_that_lies_about_its_size(
    tmp_path: Path, fetched: Callable[..., WheelReport], more: int
) -> None:
    data = foreign(tmp_path).read_bytes()
    assert fetched(data, len(data) + more).worst == "error"


@pytest.mark.parametrize(("slowest", "words"), [(1 << 30, "less than"), (0.001, "")])
def test_an_address_that_drips(
    tmp_path: Path,
    fetched: Callable[..., WheelReport],
    monkeypatch: pytest.MonkeyPatch,
    slowest: float,
    words: str,
) -> None:
    """Each read is in time, all of them together never: no wait is without an end."""
    monkeypatch.setattr(sources, "_PATIENCE", 0.0)
    monkeypatch.setattr(sources, "_SLOWEST", slowest)
    data = foreign(tmp_path).read_bytes()
    seen = fetched(data, len(data))
    assert seen.worst == ("error" if words else "unknown")
    if words:
        said = finding(seen, "taken")
        assert words in said.text + said.hint
    else:
        assert seen.name == "other"


def test_an_address_with_another_file(tmp_path: Path, fetched: Callable[..., WheelReport]) -> None:
    data = foreign(tmp_path).read_bytes()
    seen = fetched(data, len(data), f"#sha256={'1' * 64}")
    assert finding(seen, "taken").level == "error"
    assert finding(seen, "everything else").level == "unknown"


def test_a_full_disk_is_nothing_that_is_wrong_with_a_wheel(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StorageError("no space left on device")

    monkeypatch.setattr(obtaining, "_http", full)
    with pytest.raises(StorageError, match="no space left"):
        resolve_inputs(["https://example.org/other-1.0-py3-none-any.whl"], cache)


def test_many_in_processes_of_their_own(tmp_path: Path) -> None:
    made = [foreign(tmp_path, "other", f"1.{n}", files={"other/a.dll": msvc()}) for n in range(6)]
    made[3].write_bytes(made[3].read_bytes()[:200])
    taken = [Input(path.name, str(path), path) for path in made]
    done: list[WheelReport] = []
    seen = examine_all(taken, AuditOptions(), done.append, workers=2)
    assert [each.file for each in seen] == [path.name for path in made]
    assert seen[3].worst == "error"
    assert len(done) == 6
    alone = [audit_wheel(one, AuditOptions()) for one in taken]
    assert json.dumps([each.model_dump(mode="json") for each in seen]) == json.dumps(
        [each.model_dump(mode="json") for each in alone]
    )


class _Deadly(Input):
    """Ends the process that reads it, as the kernel ends one that takes all memory."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (1,)


def test_a_worker_that_dies_is_a_finding_of_its_wheel_alone(tmp_path: Path) -> None:
    made = [foreign(tmp_path, "other", f"1.{n}") for n in range(4)]
    taken = [Input(path.name, str(path), path) for path in made]
    taken[1] = _Deadly("deadly.whl", "deadly.whl", made[1])
    seen = examine_all(taken, AuditOptions(), workers=2)
    assert [each.worst for each in seen] == ["ok", "error", "ok", "ok"]
    assert "died" in finding(seen[1], "readable").text


class _Endless(Input):
    """Keeps the process that reads it busy, as a wheel that somebody made for that would."""

    @property
    def path(self) -> Path:
        time.sleep(60)
        raise AssertionError


def test_a_wheel_that_takes_too_long_is_given_up_and_the_others_are_not(tmp_path: Path) -> None:
    made = [foreign(tmp_path, "other", f"1.{n}") for n in range(4)]
    taken = [Input(path.name, str(path), path) for path in made]
    taken[1] = object.__new__(_Endless)
    for key in ("file", "place"):
        object.__setattr__(taken[1], key, "endless.whl")
    began = time.monotonic()
    seen = examine_all(taken, AuditOptions(), workers=2, seconds=3)
    assert time.monotonic() - began < 55, "it would have taken 60 s"
    assert [each.worst for each in seen] == ["ok", "unknown", "ok", "ok"]
    found = finding(seen[1], "readable")
    assert (found.text, found.failed) == ("timed out after 3 s", True)


class _NoError(Exception):
    """Cannot be made again of what it was pickled as, like some of other libraries."""

    def __init__(self, text: str, *, more: int) -> None:
        super().__init__(text)
        self.more = more


def _worked(number: int) -> int:
    if number == 1:
        raise _NoError("x", more=1)
    return number


@pytest.mark.parametrize("seconds", [60, 1e12])
def test_work_whose_error_cannot_be_sent_ends_no_other(seconds: float) -> None:
    """Nor does a time limit that no selector takes."""
    found = dict(run_isolated(_worked, [0, 1, 2], 1, seconds))
    assert (found[0], found[2]) == (0, 2)
    assert isinstance(found[1], TypeError)


def test_a_reader_that_breaks_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RecursionError("deep \x1b[31m")

    monkeypatch.setattr("pipelines.audit.examination.inspect_wheel", broken)
    path = foreign(tmp_path)
    seen = audit_wheel(Input(path.name, str(path), path), AuditOptions())
    assert "RecursionError" in finding(seen, "readable").text
    assert "\x1b" not in finding(seen, "readable").text
