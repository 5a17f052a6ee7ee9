"""``invoke survey``: parts of wheels, servers and sources that lie, and what has changed."""

from __future__ import annotations

import hashlib
import io
import json
import random
import re
import ssl
import struct
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from fatbins import ELF, PTX, container
from foreign_wheels import foreign
from loopback import listening
from pes import MSVC_DLLS, dll, msvc
from tls_keys import Authority

from pipelines.audit import page, survey
from pipelines.audit.examination import AuditOptions, audit_wheel
from pipelines.audit.findings import WheelReport
from pipelines.audit.inputs import Input
from pipelines.audit.listing import Listing
from pipelines.cli.program import run_command_line
from pipelines.core.errors import ConfigError
from pipelines.core.finding import Finding
from pipelines.plan.prebuilt import repositories
from pipelines.plan.prebuilt.candidates import Offer
from pipelines.plan.prebuilt.repositories import read_repository
from pipelines.toolchain.indexpage import IndexPageError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_directory")]

WIN = "cp311-cp311-win_amd64"
MODULE = "other/_C.cp311-win_amd64.pyd"
#: Bytes that are fetched of a wheel, and those that follow the tables in its binaries.
MOST, NOISE = 1_900_000, random.Random(7).randbytes(2 << 20)
CODE = container((ELF, "80", 8), (PTX, "80", 8), cuda="12.8", isa="8.7")
Captured = pytest.CaptureFixture[str]


@dataclass
class Server:
    """Behind TLS: files with ranges and answers of APIs, unless it is to lie."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    says: dict[str, tuple[int, Mapping[str, str], bytes]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    lie: str = ""

    def offer(self, path: Path, *, stated: bool = True) -> Offer:
        data = path.read_bytes()
        self.files[f"/{path.name}"] = data
        sha256, size = (hashlib.sha256(data).hexdigest(), len(data)) if stated else (None, None)
        return Offer(path.name, f"{self.url}/{path.name}", sha256, size)

    def report(self, path: Path, most: int = MOST, *, stated: bool = True) -> WheelReport:
        """What is found in parts of it."""
        offer = self.offer(path, stated=stated)
        return audit_wheel(taken(offer), AuditOptions(most=most))

    def answers(self, path: str, data: Any, status: int = 200, **headers: str) -> None:
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.says[path] = (status, headers, body)


def taken(offer: Offer) -> Input:
    return Input(offer.file, offer.place, sha256=offer.sha256 or "", remote=True, offer=offer)


class Handler(BaseHTTPRequestHandler):
    server_of: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        own, wanted = self.server_of, self.headers.get("Range", "")
        own.asked.append((self.path, wanted))
        if self.path in own.says:
            status, headers, data = own.says[self.path]
            self._send(status, data, headers)
            return
        data = own.files.get(self.path, b"")
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", wanted)
        if not data or match is None or own.lie == "no ranges":
            self._send(200 if data else 404, data, {})
            return
        first, last = int(match[1]), min(int(match[2]), len(data) - 1)
        many = sum(path == self.path for path, _ in own.asked)
        head = {"ETag": '"one"'} if own.lie != "swaps" else {}
        if many > 2 and own.lie in ("changes", "swaps"):
            data, head = bytes(reversed(data)), head and {"ETag": '"two"'}
        total = len(data) + {"longer": 9999, "shorter": -9999}.get(own.lie, 0)
        head["Content-Range"] = f"bytes {first}-{last}/{total}"
        self._send(206, data[first : last + 1], head)

    def _send(self, status: int, data: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Authority().issue(tmp_path_factory.mktemp("keys") / "server", address="127.0.0.1")


@pytest.fixture
def server(keys: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    made = Server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys / "cert.pem", keys / "key.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(keys / "ca.pem"))
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    with listening(type("Own", (Handler,), {"server_of": made}), context) as made.url:
        for name in ("GITHUB_API_URL", "HF_ENDPOINT", "GITHUB_SERVER_URL"):
            monkeypatch.setenv(name, made.url)
        yield made


def deflated(path: Path, change: Callable[[str, bytes], bytes] = lambda _, data: data) -> Path:
    """The same wheel, packed as build tools pack one; ``change`` spoils members."""
    file = io.BytesIO()
    with (
        zipfile.ZipFile(path) as old,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, True) as new,
    ):
        for member in old.infolist():
            new.writestr(member.filename, change(member.filename, old.read(member)))
    path.write_bytes(file.getvalue())
    return path


def wheel(
    folder: Path, data: bytes | None = None, name: str = MODULE, version: str = "1.0", **more: Any
) -> Path:
    files = {name: msvc(CODE + NOISE) if data is None else data}
    files |= more.pop("files", {})
    tag = more.pop("tag", WIN)
    return deflated(foreign(folder, "other", version, tag, files=files, **more))


def importing(*libraries: str, **more: Any) -> bytes:
    imports = {**MSVC_DLLS, **{library: ["f"] for library in libraries}}
    return dll(imports, tail=CODE + NOISE, linker=(14, 44), **more)


def as_machine(number: int) -> bytes:
    data = bytearray(importing())
    at = struct.unpack_from("<I", data, 0x3C)[0] + 4
    data[at : at + 2] = struct.pack("<H", number)
    return bytes(data)


def flipped(at: int) -> Callable[[str, bytes], bytes]:
    def change(name: str, data: bytes) -> bytes:
        changed = bytearray(data)
        if name == MODULE:
            changed[at] ^= 0xFF
        return bytes(changed)

    return change


#: Wheels, and the checks whose verdict is found in parts of them.
WHEELS: dict[str, tuple[Callable[[Path], Path], dict[str, str]]] = {
    "fine": (wheel, {"libraries": "ok", "machine": "ok"}),
    "CUDA's library, required by nothing": (
        lambda to: wheel(to, importing("cublas64_13.dll")),
        {"libraries": "warning"},
    ),
    "CUDA's library, required": (
        lambda to: wheel(to, importing("cublas64_13.dll"), requires=["nvidia-cublas"]),
        {"libraries": "ok"},
    ),
    "required on Linux only": (
        lambda to: wheel(
            to, importing("cublas64_12.dll"), requires=["torch; sys_platform == 'linux'"]
        ),
        {"libraries": "warning"},
    ),
    "torch, not required": (
        lambda to: wheel(to, importing("torch_cpu.dll")),
        {"libraries": "warning"},
    ),
    "imported late": (
        lambda to: wheel(to, importing(late={"cufft64_11.dll": ["f"]})),
        {"libraries": "warning"},
    ),
    "of unknown origin": (lambda to: wheel(to, importing("strange.dll")), {"libraries": "warning"}),
    "another machine": (lambda to: wheel(to, as_machine(0xAA64)), {"machine": "error"}),
    "another Python": (
        lambda to: wheel(to, importing("python310.dll")),
        {"python-abi": "error"},
    ),
    "not limited": (
        lambda to: wheel(to, importing("python311.dll"), "other/_C.pyd", tag="cp39-abi3-win_amd64"),
        {"python-abi": "error"},
    ),
    "own DLL without a name": (
        lambda to: wheel(
            to, importing("helper.dll"), files={"other/helper.dll": dll({}, ["g"]) + NOISE}
        ),
        {"imported-names": "warning"},
    ),
    "own DLL with it": (
        lambda to: wheel(
            to, importing("helper.dll"), files={"other/helper.dll": dll({}, ["f"]) + NOISE}
        ),
        {"imported-names": "ok"},
    ),
    "an invalid requirement": (lambda to: wheel(to, requires=["!?"]), {"requirements": "error"}),
    "no Python fits": (lambda to: wheel(to, python=">=3.12"), {"requirements": "error"}),
    "a long path": (
        lambda to: wheel(to, files={f"other/{'x' * 230}.txt": b"x"}),
        {"paths": "error"},
    ),
    "for any platform": (
        lambda to: wheel(to, tag="py3-none-any"),
        {"tags-true": "error"},
    ),
    "a local version": (lambda to: wheel(to, version="1.0+cu128"), {"upload": "ok"}),
    "an SBOM that is none": (
        lambda to: wheel(to, files={"other-1.0.dist-info/sboms/x.cdx.json": b"{"}),
        {"sbom": "error"},
    ),
    "Linux's module": (
        lambda to: wheel(to, files={"other/_D.so": b"\x7fELF" + NOISE}),
        {"tags-true": "error"},
    ),
    "pure": (
        lambda to: wheel(to, NOISE, "other/data.bin", tag="py3-none-any"),
        {"tags-true": "ok"},
    ),
    # What is wrong is in what is not read.
    "a changed byte, after the tables": (
        lambda to: deflated(wheel(to), flipped(-100)),
        {"record": "unknown", "libraries": "ok"},
    ),
    "a binary that is none": (
        lambda to: wheel(to, b"MZ" + NOISE),
        {"machine": "unknown", "libraries": "unknown"},
    ),
    "a path that Windows refuses": (
        lambda to: wheel(to, files={"other/aux.txt": b"x"}),
        {"files": "unknown"},
    ),
}


@pytest.mark.parametrize("name", WHEELS)
def test_the_verdict_is_that_of_the_whole_wheel(tmp_path: Path, server: Server, name: str) -> None:
    make, expected = WHEELS[name]
    path = make(tmp_path)
    offer = server.offer(path)
    part = server.report(path)
    whole = audit_wheel(
        Input(path.name, offer.place, path, offer.sha256 or "", remote=True), AuditOptions()
    )
    assert (part.partial, whole.partial) == (True, False)
    assert part.fetched < MOST < offer.size + 4096 * 3  # type: ignore[operator]
    found = {(one.id, one.subject): one for one in part.findings}
    known = {(one.id, one.subject): one for one in whole.findings}
    assert {key: one for key, one in found.items() if one.level != "unknown"} == {
        key: known[key] for key, one in found.items() if one.level != "unknown"
    }
    assert {id_: found[id_, ""].level for id_ in expected} == expected
    assert {*known} - {("coverage", "")} <= {*found}, "what was not read is said to be unknown"
    assert part.worst != "ok"
    assert {card.runs for card in part.gpus.cards} == {"unknown"}
    assert not part.gpus.sass
    same = audit_wheel(taken(offer), AuditOptions(most=offer.size * 2))  # type: ignore[operator]
    assert same.model_copy(update={"fetched": 0}) == whole
    assert offer.size < same.fetched < offer.size + 9000  # type: ignore[operator]


def level(report: WheelReport, id_: str = "readable") -> str:
    (found,) = [one for one in report.findings if one.id == id_]
    return found.level


@pytest.mark.parametrize("most", [MOST, 9 << 20])
@pytest.mark.parametrize("lie", ["no ranges", "longer", "shorter", "changes", "swaps"])
@pytest.mark.parametrize("stated", [True, False])
def test_servers_that_lie(
    tmp_path: Path, server: Server, lie: str, most: int, *, stated: bool
) -> None:
    """Nothing is said of the wheel; ``swaps`` has no ETag."""
    server.lie = lie
    path = wheel(tmp_path, importing("cublas64_13.dll"))
    if lie == "shorter" and not stated and most > MOST:
        pytest.skip("it is the file that every client gets")
    report = server.report(path, most, stated=stated)
    assert {one.level for one in report.findings} == {"unknown"}
    assert not report.gpus.cards


def test_a_file_of_other_bytes_than_stated(tmp_path: Path, server: Server) -> None:
    offer = server.offer(wheel(tmp_path))
    data = bytearray(server.files[f"/{offer.file}"])
    server.files[f"/{offer.file}"] = bytes(reversed(data))
    assert level(audit_wheel(taken(offer), AuditOptions(most=MOST))) == "unknown"
    report = audit_wheel(taken(offer), AuditOptions(most=9 << 20))
    assert level(report) == "error"


def test_hostile_wheels(tmp_path: Path, server: Server) -> None:
    """No more is fetched than allowed, whatever the directory says."""
    path = wheel(tmp_path)
    data = bytearray(path.read_bytes())
    data[-22 + 12 : -22 + 16] = struct.pack("<I", len(data) - 22)  # of the directory
    data[-22 + 16 : -22 + 20] = bytes(4)
    path.write_bytes(data)
    report = server.report(path)
    assert level(report) == "unknown"
    bomb = tmp_path / "bomb-1.0-py3-none-any.whl"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb/x.bin", bytes(300 << 20))
    assert level(server.report(bomb, 50_000)) == "error"
    escapes = tmp_path / "escapes-1.0-py3-none-any.whl"
    with zipfile.ZipFile(escapes, "w") as archive:
        archive.writestr("../x.py", NOISE)
    assert level(server.report(escapes)) == "error"


def test_many_tables_or_none_are_bounded(tmp_path: Path, server: Server) -> None:
    """The second binary is beyond the bound: of it nothing is known."""
    files = {f"other/{n}.dll": importing("cublas64_13.dll") for n in "ab"}
    report = server.report(wheel(tmp_path, files=files), 900_000)
    assert report.fetched <= 900_000 + 4096
    assert level(report, "machine") == level(report, "python-abi") == "unknown"
    assert level(report, "name") == "ok"


GITHUB = "/repos/me/mine/releases?per_page=30"
HUGGING = "/api/models/me/mine/tree/main?recursive=true"


def asset(server: Server, name: str, **more: Any) -> dict[str, Any]:
    url = f"{server.url}/me/mine/releases/download/v1/{name}"
    return {"name": name, "size": 5, "browser_download_url": url, "digest": None, **more}


def test_repositories(server: Server) -> None:
    one = "mine-1.0-cp311-cp311-win_amd64.whl"
    digest = f"sha256:{'a' * 64}"
    first = [{"assets": [asset(server, one, digest=digest)]}]
    following = f'<{server.url}{GITHUB}&page=2>; rel="next"'
    server.answers(GITHUB, first, Link=following)
    server.answers(f"{GITHUB}&page=2", [{"assets": [asset(server, "two.zip")]}])
    found = read_repository("github:me/mine").files
    assert [(file.name, file.sha256, file.size) for file in found] == [
        (one, "a" * 64, 5),
        ("two.zip", None, 5),
    ]
    lfs = {"oid": "b" * 64, "size": 7}
    entries = [
        {"type": "directory", "path": "w"},
        {"type": "file", "path": f"w/{one}", "size": 1, "lfs": lfs},
    ]
    server.answers(HUGGING, entries)
    (file,) = read_repository("huggingface:me/mine").files
    assert (file.name, file.sha256, file.size) == (one, "b" * 64, 7)
    assert file.url == f"{server.url}/me/mine/resolve/main/w/{one}"
    server.answers(HUGGING.replace("models", "datasets"), [])
    assert read_repository("huggingface:datasets/me/mine").files == ()


def lies(server: Server) -> dict[str, Callable[[], None]]:
    """Hostile answers of GitHub's API."""

    def says(data: Any, status: int = 200, **headers: str) -> Callable[[], None]:
        return lambda: server.answers(GITHUB, data, status, **headers)

    elsewhere = {"browser_download_url": "https://elsewhere.example/x.whl"}
    escape = {"browser_download_url": f"{server.url}/me/mine/releases/../../you/x.whl"}
    return {
        "a flood": says(b"[" + b" " * (17 << 20) + b"]"),
        "a loop": says([], Link=f'<{server.url}{GITHUB}>; rel="next"'),
        "pages elsewhere": says([], Link='<https://elsewhere.example/x>; rel="next"'),
        "pages without TLS": says([], Link='<http://127.0.0.1/x>; rel="next"'),
        "files elsewhere": says([{"assets": [asset(server, "x", **elsewhere)]}]),
        "files of others": says([{"assets": [asset(server, "x", **escape)]}]),
        "redirects elsewhere": says(b"", 302, Location="https://elsewhere.example/"),
        "HTML": says(b"<html>"),
        "other JSON": says({"message": "x"}),
        "deep JSON": says(b"[" * 100_000),
        "wrong types": says([{"assets": [asset(server, "x", size="many")]}]),
        "a limit": says({}, 403),
        "nothing": says({}, 404),
    }


@pytest.mark.parametrize("number", range(13))
def test_apis_that_lie(server: Server, number: int) -> None:
    name, say = [*lies(server).items()][number]
    say()
    with pytest.raises(IndexPageError):
        read_repository("github:me/mine")
    assert len(server.asked) <= 2, name


def test_pages_without_end(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repositories, "_PAGES", 5)
    for page_ in range(9):
        where = GITHUB if not page_ else f"{GITHUB}&page={page_}"
        server.answers(where, [], Link=f'<{server.url}{GITHUB}&page={page_ + 1}>; rel="next"')
    with pytest.raises(IndexPageError):
        read_repository("github:me/mine")
    assert len(server.asked) == 5


@pytest.mark.parametrize("path", ["../../../you/x.whl", "a/./x.whl", "a/../x.whl"])
def test_paths_of_other_repositories(server: Server, path: str) -> None:
    server.answers(HUGGING, [{"type": "file", "path": path}])
    with pytest.raises(IndexPageError):
        read_repository("huggingface:me/mine")


@pytest.mark.parametrize(
    "text", ["github:me", "github:../mine", "github:me/mine/x", "huggingface:a"]
)
def test_what_is_no_repository(text: str) -> None:
    with pytest.raises(IndexPageError, match="expected"):
        read_repository(text)


def test_the_token_is_for_github_alone(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "ghp_hunter2hunter2")
    seen: list[Mapping[str, str]] = []

    def fetched(url: str, headers: Mapping[str, str], allowed: tuple[str, ...]) -> Any:
        seen.append(headers)
        assert allowed == (f"{server.url}/",)
        raise IndexPageError("stop")

    monkeypatch.setattr(repositories, "fetch_limited_response", fetched)
    for text in ("github:me/mine", "huggingface:me/mine"):
        with pytest.raises(IndexPageError, match="stop"):
            read_repository(text)
    assert ["Authorization" in headers for headers in seen] == [True, False]


def published(server: Server, folder: Path, *versions: str, **more: Any) -> list[Path]:
    """A page of an index with these."""
    data = importing("cublas64_13.dll")
    paths = [wheel(folder, data, version=each, **more) for each in versions]
    files = [
        {"filename": one.file, "url": one.place, "hashes": {"sha256": one.sha256}, "size": one.size}
        for one in map(server.offer, paths)
    ]
    kind = {"Content-Type": "application/vnd.pypi.simple.v1+json"}
    server.answers("/simple/other/", {"meta": {"api-version": "1.1"}, "files": files}, 200, **kind)
    return paths


def typed(words: str, capsys: Captured) -> tuple[int, dict[str, Any]]:
    """The exit code, and the JSON."""
    code = run_command_line([*f"survey {words} --megabytes 1.9 --json".split()])
    return code, json.loads(capsys.readouterr().out)


def test_a_survey_continued_and_compared(tmp_path: Path, server: Server, capsys: Captured) -> None:
    paths = published(server, tmp_path / "w", "1.0", "2.0")
    page_ = f"{server.url}/simple/other/"
    code, answer = typed(f"{page_} --to a.jsonl --html a.html", capsys)
    assert (code, [one["level"] for one in answer["wheels"]]) == (0, ["warning"] * 2)
    assert all(one["partial"] and 0 < one["fetched"] < MOST for one in answer["wheels"])
    lines = Path("a.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == 2
    text = Path("a.html").read_text("utf-8")
    assert text.count("For an issue report") == 2
    assert "cublas64_13.dll" in text
    # Interrupted while it wrote the second one.
    Path("a.jsonl").write_bytes(lines[0] + lines[1][:50])
    server.asked.clear()
    assert typed(f"{page_} --to a.jsonl", capsys)[1]["wheels"] == answer["wheels"]
    assert {path for path, _ in server.asked} < {f"/{path.name}" for path in paths} | {
        "/simple/other/"
    }
    assert sorted(Path("a.jsonl").read_bytes().splitlines(keepends=True)) == sorted(lines)
    # Later: one is gone, one is new, one has other bytes.
    published(server, tmp_path / "w", "2.0", "3.0", requires=["!?"])
    code, answer = typed(f"{page_} --to b.jsonl --since a.jsonl", capsys)
    assert code == 0
    assert [(one["id"], one["subject"].split("-")[1]) for one in answer["notes"]] == [
        ("new", "3.0"),
        ("bytes", "2.0"),
        ("worse", "2.0"),
        ("worse", "2.0"),
        ("gone", "1.0"),
    ]
    # What was not listed whole is not said to be gone.
    code, answer = typed(f"{page_} --most 1 --since a.jsonl", capsys)
    assert [one["level"] for one in answer["notes"] if one["id"] == "gone"] == ["unknown"] * 2


def test_sources_that_cannot_be_read(tmp_path: Path, server: Server, capsys: Captured) -> None:
    published(server, tmp_path / "w", "1.0")
    Path("sources.txt").write_text(f"# the field\n{server.url}/simple/other/\n\ngithub:me/none\n")
    code, answer = typed("sources.txt --html page.html", capsys)
    assert code == 9
    assert [(one["id"], one["subject"]) for one in answer["notes"]] == [
        ("source", "github:me/none")
    ]
    assert len(answer["wheels"]) == 1
    server.lie = "no ranges"
    code, answer = typed(f"{server.url}/simple/other/ --to x.jsonl", capsys)
    assert (code, answer["wheels"][0]["level"]) == (9, "unknown")
    server.lie = ""
    code, answer = typed(f"{server.url}/simple/other/ --to x.jsonl", capsys)
    assert (code, answer["wheels"][0]["level"]) == (0, "warning")


def test_opt_outs(tmp_path: Path, server: Server, capsys: Captured) -> None:
    published(server, tmp_path / "w", "1.0")
    source = f"{server.url}/simple/other/"
    assert typed(f"{source} --to a.jsonl", capsys)[0] == 0
    for entry in ("Other", f"{server.url}/"):
        Path("out.txt").write_text(f"# who asked\n{entry}\n")
        server.asked.clear()
        _, answer = typed(f"{source} --without out.txt --since a.jsonl", capsys)
        assert (answer["wheels"], answer["notes"]) == ([], [])
        assert "1 left out" in answer["summary"]
        assert [path for path, _ in server.asked] == ["/simple/other/"]


@pytest.mark.parametrize("text", ["", "notes", "{}\n", '{"file": 1}\n', '{"file":"x"}\nnotes'])
def test_files_of_no_survey(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    if not text:
        assert survey.start_survey(path) == {}
        return
    with pytest.raises(ConfigError):
        survey.start_survey(path)
    assert path.read_text() == text


def test_what_a_page_says_of_hostile_texts() -> None:
    evil = "<script>alert(1)</script>"
    found = Finding(id="x", level="error", actual=evil, hint=evil)
    report = WheelReport(file=f"{evil}.whl", place=evil, findings=(found,), partial=True)
    note = Finding(id="source", level="unknown", subject=evil, actual=evil)
    more = page.Survey(evil, (note,), (survey.issue_sentence(report),))
    listing = Listing(place=evil, wheels=1, taken=1)
    text = page.render([report], [listing], more)
    assert evil not in text
    assert text.count("&lt;script&gt;alert(1)") > 6


def test_of_a_published_wheel_its_size_is_no_problem() -> None:
    big = Finding(id="upload", level="warning", actual="1 GiB")
    assert survey.issue_sentence(WheelReport(file="x.whl", findings=(big,))) == ""
    bad = Finding(id="libraries", level="warning", actual="CUDA: cublas64_13.dll", hint="why")
    said = survey.issue_sentence(WheelReport(file="x.whl", place="p", findings=(big, bad)))
    assert "cublas64_13.dll" in said
    assert "GiB" not in said
    part = WheelReport(file="x.whl", sha256="a" * 64, partial=True, findings=(bad,))
    assert "stated sha256 aaa" in survey.issue_sentence(part)
    assert "stated" not in survey.issue_sentence(part.model_copy(update={"partial": False}))


def test_a_survey_takes_no_time_for_what_is_known(tmp_path: Path, server: Server) -> None:
    """Ranges are a few requests, however large the wheel is."""
    path = wheel(tmp_path, importing() + random.Random(1).randbytes(30 << 20))
    begun = time.monotonic()
    report = server.report(path)
    assert report.partial
    assert report.fetched < MOST
    assert len(server.asked) < 20
    assert time.monotonic() - begun < 30


def test_a_hash_that_was_not_stated_is_no_other_one() -> None:
    old = WheelReport(file="x.whl", size=1, partial=True)
    new = old.model_copy(update={"sha256": "a" * 64, "partial": False})
    assert not [*survey.survey_changes([new], [old], complete=True)]
    other = new.model_copy(update={"sha256": "b" * 64})
    assert [one.id for one in survey.survey_changes([other], [new], complete=True)] == ["bytes"]
