"""``invoke audit`` of a page of an index, and of an index: what is taken, left out, and lies."""

from __future__ import annotations

import hashlib
import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from audited import finding
from foreign_wheels import foreign
from loopback import listening
from tls_keys import Authority

from pipelines.audit.examination import AuditOptions, examine_all
from pipelines.audit.inputs import Input, resolve_inputs
from pipelines.audit.listing import Listing, is_page
from pipelines.cli.program import run_command_line
from pipelines.core.errors import AuditError, ConfigError
from pipelines.plan.prebuilt import indexpage
from pipelines.toolchain.indexpage import parse_html
from pipelines.toolchain.lock import Cache, load_lock

pytestmark = pytest.mark.slow


PEP691 = "application/vnd.pypi.simple.v1+json"
WIN = "cp311-cp311-win_amd64"
Captured = pytest.CaptureFixture[str]


@dataclass
class Index:
    """A server behind TLS, and what it says of each path: status, type, bytes."""

    url: str
    says: dict[str, tuple[int, str, bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def page(self, path: str, text: str, kind: str = "text/html", status: int = 200) -> str:
        self.says[path] = (status, kind, text.encode())
        return self.url + path

    def wheel(self, path: Path) -> str:
        """Its address; the sha256 follows it."""
        data = path.read_bytes()
        self.says[f"/files/{path.name}"] = (200, "application/zip", data)
        return f"/files/{path.name}#sha256={hashlib.sha256(data).hexdigest()}"

    def links(self, *wheels: Path, more: str = "") -> str:
        return more + "".join(f'<a href="{self.wheel(one)}">{one.name}</a>\n' for one in wheels)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Authority().issue(tmp_path_factory.mktemp("keys") / "server", address="127.0.0.1")


@pytest.fixture
def index(keys: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked.append(self.path)
            status, kind, data = made.says.get(self.path, (404, "text/html", b""))
            self.send_response(status)
            self.send_header("Location" if status == 302 else "Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            for byte in data if self.path == "/slow/" else ():
                self.wfile.write(bytes([byte]))
                time.sleep(0.2)
            self.wfile.write(data)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys / "cert.pem", keys / "key.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(keys / "ca.pem"))
    with listening(Handler, context) as address:
        made = Index(address)
        yield made


@pytest.fixture
def taken(tmp_path: Path) -> Callable[..., tuple[tuple[Input, ...], Listing]]:
    def of(
        url: str, *, python: str = "", most: int | None = None
    ) -> tuple[tuple[Input, ...], Listing]:
        told: list[Listing] = []
        cache = Cache(load_lock(), tmp_path / "cache")
        found = resolve_inputs([url], cache, python=python, most=most, report=told.append)
        (listing,) = told
        return found, listing

    return of


Taking = Callable[..., tuple[tuple[Input, ...], Listing]]


def releases(folder: Path, *versions: str, tag: str = WIN, name: str = "other") -> list[Path]:
    return [foreign(folder, name, version, tag, files={}) for version in versions]


def test_a_page_of_links(tmp_path: Path, index: Index, taken: Taking) -> None:
    """PEP 503: what is there for Windows, by the sha256 that its fragments state."""
    made = releases(tmp_path / "w", "1.0", "2.0")
    linux = foreign(tmp_path / "w", version="2.0", tag="cp311-cp311-manylinux_2_28_x86_64")
    gone = "gone-1.0-py3-none-any.whl"
    more = '<a href="/files/other-2.0.tar.gz">other-2.0.tar.gz</a>'
    more += f'<a href="{gone}" data-yanked>{gone}</a>'
    url = index.page("/simple/other/", index.links(*made, linux, more=more))
    found, listing = taken(url)
    assert [one.file for one in found] == [made[1].name, made[0].name]
    assert listing.others == {"not wheels": 1, "yanked": 1, "for other platforms": 1}
    assert listing.complete
    seen = examine_all(found, AuditOptions())
    assert {finding(one, "sha256").level for one in seen} == {"ok"}
    assert seen[0].place == f"{index.url}/files/{made[1].name}"


def project(index: Index, *wheels: Path, change: Mapping[str, object] | None = None) -> str:
    """A page of PEP 691."""
    files = []
    for one in wheels:
        url, _, digest = index.wheel(one).partition("#sha256=")
        row: dict[str, object] = {"filename": one.name, "url": url, "hashes": {"sha256": digest}}
        files.append({**row, "size": one.stat().st_size, **(change or {})})
    return json.dumps({"meta": {"api-version": "1.1"}, "name": "other", "files": files})


def test_a_page_of_json_newest_first_and_what_is_left_out(
    tmp_path: Path, index: Index, taken: Taking
) -> None:
    made = releases(tmp_path / "w", "1.9", "1.10", "0.1")
    made += releases(tmp_path / "w", "1.10", tag="cp312-cp312-win_amd64")
    url = index.page("/simple/other", project(index, *made), PEP691)
    found, listing = taken(url, most=2)
    assert [one.file for one in found] == [made[1].name, made[3].name]
    assert (listing.wheels, listing.taken, listing.complete) == (4, 2, False)
    assert "--most 4" in listing.summary
    assert listing.size == sum(one.stat().st_size for one in (made[1], made[3]))
    found, listing = taken(url, python="3.12")
    assert [one.file for one in found] == [made[3].name]
    assert listing.others == {"not for Python 3.12": 3}
    with pytest.raises(ConfigError, match=r"no wheel for Windows and Python 3\.13"):
        taken(url, python="3.13")


def test_an_index_of_projects(
    tmp_path: Path, index: Index, taken: Taking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest release of each comes first; a missing page is reported with the wheels."""
    for name in ("a", "b"):
        made = releases(tmp_path / name, "1.0", "2.0", name=name)
        index.page(f"/simple/{name}/", index.links(*made))
    links = "".join(f'<a href="{name}/">{name}</a>' for name in ("a", "b", "gone"))
    url = index.page("/simple/", f'<a href="/">up</a>{links}')
    found, listing = taken(url, most=3)
    assert [one.file for one in found] == [
        *(
            f"{name}-{version}-{WIN}.whl"
            for name, version in (("a", "2.0"), ("b", "2.0"), ("a", "1.0"))
        ),
        "gone",
    ]
    assert "404" in found[-1].problem
    assert examine_all(found[-1:], AuditOptions())[0].worst == "error"
    assert (listing.projects, listing.looked_at, listing.taken, listing.wheels) == (3, 3, 3, 4)
    listed = {"meta": {"api-version": "1.0"}, "projects": [{"name": n} for n in ("a", "b")]}
    index.page("/simple/", json.dumps(listed), PEP691)
    monkeypatch.setattr("pipelines.audit.listing._PROJECTS", 1)
    found, listing = taken(url)
    assert {one.file[0] for one in found} == {"a"}
    assert not listing.complete
    assert "1 of 2 projects" in listing.summary


def test_lies_of_a_page(tmp_path: Path, index: Index, taken: Taking) -> None:
    (good,) = releases(tmp_path / "w", "1.0")
    (other,) = releases(tmp_path / "w", "2.0")
    index.wheel(other)
    zero, bare = "#sha256=" + "0" * 64, f"/files/{other.name}"
    evil = "evil-1.0-py3-none-any.whl"
    third = other.name.replace("2.0", "3.0")
    links = {
        f"{bare}{zero}": other.name,  # another file than was stated
        f"{bare}#sha256=../../..": other.name,  # a directory for a sum
        f"http://127.0.0.1/{third}": third,  # not behind TLS
        bare: third,  # the one is called as the other
        f"/files/..%2F{evil}": f"../{evil}",
    }
    text = "".join(f'<a href="{url}">{name}</a>' for url, name in links.items())
    found, listing = taken(index.page("/simple/other/", index.links(good, more=text)))
    assert [one.file for one in found if one.path] == [good.name]
    problems = " | ".join(one.problem for one in found)
    for said in (
        f"has sha256 {hashlib.sha256(other.read_bytes()).hexdigest()}",
        "states the sha256 '../../..'",
        "which is not https",
        "the page calls it",
    ):
        assert said in problems
    assert listing.others == {}
    assert {one.file for one in found} == {good.name, other.name, third, evil}
    assert len(found) == 6


@pytest.mark.parametrize(
    "fragment", ["egg=x&sha256={}", "sha256={}&egg=x", "SHA256={}", "egg=x&Sha256={}&a=b"]
)
def test_a_sha256_is_compared_wherever_it_stands_in_a_fragment(
    tmp_path: Path, index: Index, taken: Taking, fragment: str
) -> None:
    (made,) = releases(tmp_path / "w", "1.0")
    url, _, digest = index.wheel(made).partition("#sha256=")
    for stated in (digest, "0" * 64):
        text = f'<a href="{url}#{fragment.format(stated)}">{made.name}</a>'
        found, _ = taken(index.page("/simple/other/", text))
        assert (found[0].sha256, bool(found[0].path)) == (stated, stated == digest)


def test_what_cannot_be_had_hides_no_other(tmp_path: Path, index: Index, taken: Taking) -> None:
    """A name that no file can have, a host that none has, an invalid address."""
    good, bad = releases(tmp_path / "w", "1.0", "2.0")
    rows = json.loads(project(index, good, bad))["files"]
    lies = [
        {"filename": "o" * 300 + f"-1.0-{WIN}.whl"},
        {"url": f"https://{'a' * 70}.org/{bad.name}"},
        {"url": f"https://127.0.0.1:99999/{bad.name}"},
    ]
    files = [rows[0], *({**rows[1], **lie} for lie in lies)]
    page = json.dumps({"meta": {"api-version": "1.1"}, "name": "other", "files": files})
    found, listing = taken(index.page("/simple/other/", page, PEP691))
    assert len(found) == listing.taken == len(files)
    assert [one.file for one in found if one.path] == [good.name]
    assert all(one.problem for one in found if not one.path)


def test_two_names_of_one_file_are_both_told(tmp_path: Path, index: Index, taken: Taking) -> None:
    (made,) = releases(tmp_path / "w", "1.0")
    row = json.loads(project(index, made))["files"][0]
    other = made.name.replace("1.0", "9.0")
    rows = [row, {**row, "filename": other}]
    page = json.dumps({"meta": {"api-version": "1.1"}, "name": "other", "files": rows})
    found, listing = taken(index.page("/simple/other/", page, PEP691))
    assert {one.file for one in found} == {made.name, other}
    assert {one.file: one.worst for one in examine_all(found, AuditOptions())}[other] == "error"
    assert listing.taken == len(found)


def test_nothing_is_left_out_without_a_word(
    tmp_path: Path, index: Index, taken: Taking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages below one with wheels, or two levels below an index, and names that no wheel has."""
    (made,) = releases(tmp_path / "w", "1.0")
    strange = '<a href="other-2.0-win_amd64.whl">other-2.0-win_amd64.whl</a>'
    more = f'<a href="cu128/">cu128</a>{strange}'
    _, listing = taken(index.page("/simple/other/", index.links(made, more=more)))
    below = "pages below it, not read"
    assert listing.others == {below: 1, "wheels with invalid names": 1}
    index.page("/simple/deep/", '<a href="one/">one</a><a href="two/">two</a>')
    links = '<a href="other/">other</a><a href="deep/">deep</a>'
    for path in ("/simple/", "/simple/index.html", "/simple/?page=1"):
        _, listing = taken(index.page(path, links))
        assert listing.others[below] == 3
        assert below in listing.summary


def test_a_page_with_too_many_links_is_not_read_in_part(
    tmp_path: Path, index: Index, taken: Taking
) -> None:
    (made,) = releases(tmp_path / "w", "1.0")
    more = "".join(f'<a href="x{number}"></a>' for number in range(100_000))
    with pytest.raises(ConfigError, match="more than 100000 links"):
        taken(index.page("/simple/other/", index.links(made, more=more)))


def test_a_sha256_of_a_page_is_refused(tmp_path: Path, index: Index, taken: Taking) -> None:
    (made,) = releases(tmp_path / "w", "1.0")
    url = index.page("/simple/other/", index.links(made))
    with pytest.raises(ConfigError, match="sha256"):
        taken(f"{url}#sha256={'0' * 64}")


def test_a_size_is_compared_where_no_sha256_is(tmp_path: Path, index: Index, taken: Taking) -> None:
    made = releases(tmp_path / "w", "1.0")
    for more, there in ((0, True), (1, False)):
        size = made[0].stat().st_size + more
        page = project(index, *made, change={"hashes": {}, "size": size})
        found, _ = taken(index.page("/simple/other/", page, PEP691))
        assert bool(found[0].path) == there
        assert (f"its page states {size}" in found[0].problem) != there


def test_an_address_that_is_neither_a_page_nor_a_wheel_is_told_what_to_type(
    tmp_path: Path,
) -> None:
    cache = Cache(load_lock(), tmp_path / "cache")
    with pytest.raises(ConfigError, match=r"^https://h/simple/zope.interface: ") as caught:
        resolve_inputs(["https://h/simple/zope.interface"], cache)
    assert "ends with /" in caught.value.hint


@pytest.mark.parametrize("size", [-5, 0, 1 << 60, 7])
def test_sizes_that_are_lies(tmp_path: Path, index: Index, taken: Taking, size: int) -> None:
    made = releases(tmp_path / "w", "1.0")
    page = project(index, *made, change={"size": size})
    found, _ = taken(index.page("/simple/other/", page, PEP691))
    assert bool(found[0].path) == (size != 7)
    if size == 7:
        assert "more than the pinned 7 bytes came" in found[0].problem


def test_a_page_that_states_no_sha256_is_not_checked_by_it(
    tmp_path: Path, index: Index, taken: Taking
) -> None:
    (made,) = releases(tmp_path / "w", "1.0")
    index.wheel(made)
    page = index.page("/wheels.html", f'<a href="/files/{made.name}"><b>download</b></a>')
    found, _ = taken(page)
    (seen,) = examine_all(found, AuditOptions())
    assert finding(seen, "sha256").level == "unknown"


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("[" * 200_000, PEP691, "not an index page"),
        ('{"files": 3}', PEP691, "not an index page"),
        ('{"meta": {"api-version": "9.0"}, "name": "x", "files": []}', PEP691, "not an index page"),
        ("3", "application/json", "not an index page"),
        ('{"meta": {"api-version": "1.0"}}', PEP691, "not an index page"),
        ("<p>nothing", "text/html", "no wheel for Windows"),
        ("x" * (17 << 20), "text/html", "more than 16 MiB"),
    ],
)
def test_pages_that_are_none(
    index: Index, taken: Taking, *, text: str, kind: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        taken(index.page("/simple/other/", text, kind))


def test_a_page_that_never_ends_is_given_up(
    index: Index, taken: Taking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte now and then: no time limit of a connection sees that."""
    monkeypatch.setattr(indexpage, "_SECONDS", 4)
    url = index.page("/slow/", "x" * 1000)
    with pytest.raises(ConfigError, match="4 s"):
        taken(url)


def test_where_it_sends_on_to(index: Index, taken: Taking) -> None:
    index.page("/simple/other/", "", "http://127.0.0.1:1/", status=302)
    with pytest.raises(ConfigError, match="without TLS"):
        taken(f"{index.url}/simple/other/")
    with pytest.raises(ConfigError, match="expected https"):
        taken(f"http://127.0.0.1{'/simple/'}")
    with pytest.raises(ConfigError, match="404") as caught:
        taken(f"https://user:hunter2@{index.url.partition('//')[2]}/gone/?token=abc")
    assert "hunter2" not in caught.value.message
    assert "token" not in caught.value.message


def test_what_is_a_page() -> None:
    pages = ("https://h/simple/x/", "https://h/simple/x", "https://h/list.html", "https://h")
    assert all(map(is_page, pages))
    files = ("https://h/x-1.0-py3-none-any.whl", "https://h/x-1.0.tar.gz", "x", "simple/x/")
    assert not any(map(is_page, files))


@pytest.mark.usefixtures("own_directory")
def test_as_it_is_typed(
    tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    made = releases(tmp_path / "w", "1.0", "2.0")
    url = index.page("/simple/other/", index.links(*made))
    assert run_command_line(["audit", url, "--most", "1", "--html", "page.html"]) == 0
    left = "1 of 2 wheels for Windows; 1 older left out (--most 2 includes them)"
    assert left in " ".join(capsys.readouterr().out.split())
    assert left in (tmp_path / "page.html").read_text()
    assert run_command_line(["audit", url, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (listing,) = told["listings"]
    assert (listing["wheels"], listing["taken"], listing["whole"]) == (2, 2, True)
    assert run_command_line(["audit", url, "--most", "0"]) == ConfigError.exit_code
    assert run_command_line(["audit", url, "--offline"]) == ConfigError.exit_code
    index.page(f"/files/{made[0].name}", "another")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "anew"))
    assert run_command_line(["audit", url]) == AuditError.exit_code


@pytest.mark.parametrize(
    "piece",
    ["<a ", "<a b\n", "<a x=", "<a href='", "<!--", "--!>", "</", "<?", "<!", "<a", "<![CDATA["],
)
def test_a_page_that_has_readers_look_again_and_again(piece: str) -> None:
    """60 KB of these took ``HTMLParser`` minutes: https://github.com/python/cpython/issues/135462."""
    whole = '<a href="a-1.0-py3-none-any.whl">a-1.0-py3-none-any.whl</a>'
    began = time.process_time()
    page = parse_html(whole + piece * (200_000 // len(piece)), "https://h/simple/a/")
    assert time.process_time() - began < 5
    assert [one.name for one in page.files][:1] == ["a-1.0-py3-none-any.whl"]


def test_what_is_commented_out_is_not_on_a_page() -> None:
    text = (
        '<!-- <a href="b.whl">b.whl</a> --><a title="a > b" href="a.whl">a.whl</a><!-- <a href="c'
    )
    page = parse_html(text, "https://h/simple/a/")
    assert [one.name for one in page.files] == ["a.whl"]
