"""``publish --check``: an index from outside, as it should be and in every way that it may lie."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from indexes import finished, offers_of, served
from loopback import listening

from pipelines.cli import program
from pipelines.core.errors import AuditError, ConfigError, HostError, StorageError
from pipelines.publish.index.publishing import Order, publish_wheels
from pipelines.publish.index.store import Store

Said = pytest.CaptureFixture[str]
WHEEL = "files/*/*/demo_attn-2.8.3+cu128torch2.8-cp312-cp312-win_amd64.whl"
VARIANT = "files/*/*/demo_attn-2.8.3+torch2.8-*.whl"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    room = tmp_path_factory.mktemp("made")
    runs = [finished(room / "out"), finished(room / "out", version="2.8.4")]
    store = Store(str(room / "index"))
    publish_wheels(store, Order(offers_of(runs, untested=False)), say=lambda _: None)
    file = "demo_attn-2.8.4+cu128torch2.8-cp312-cp312-win_amd64.whl"
    publish_wheels(store, Order(yank=file, because="wrong numbers"), say=lambda _: None)
    return room / "index"


@pytest.fixture
def index(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "index"))


def check(address: str, *words: str) -> int:
    return program.run_command_line(["publish", "--check", address, *words])


def test_a_whole_index_is_counted(index: Path, capsys: Said) -> None:
    with served(index) as address:
        assert check(address, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    pages = [one for one in index.rglob("index.html") if one.parts[-2] not in ("about", "index")]
    wheels = [one for one in index.rglob("*.whl") if "simple" not in one.parts]
    variants = [one for one in wheels if "+torch" in one.name]
    plain = len(wheels) - len(variants)
    assert (plain, len(variants)) == (2, 2)
    lists = len([*index.rglob("*-variants.json")])
    beside = [one for one in index.glob("files/*/*/*") if one.suffix in (".json", ".xml")]
    people = [*index.rglob("index.json"), *index.glob("about/*"), index / "index.html"]
    assert answer["fetched"] == {
        "pip": len(pages) + 2 * plain,
        "uv": len(pages) + 2 * len(variants) + lists,
        "browser": len(people) + len(beside) - lists,
        "which.py": 1,
    }


def swapped(index: Path, pattern: str) -> None:
    (path,) = index.glob(pattern)
    path.write_bytes(path.read_bytes()[::-1])


def cut(index: Path, pattern: str) -> None:
    (path,) = index.glob(pattern)
    path.write_bytes(path.read_bytes()[:-1])


def longer(index: Path, pattern: str) -> None:
    (path,) = index.glob(pattern)
    path.write_bytes(path.read_bytes() + b"x")


def gone(index: Path, pattern: str) -> None:
    (path,) = index.glob(pattern)
    path.unlink()


def without(text: str) -> Callable[[Path, str], None]:
    def change(index: Path, pattern: str) -> None:
        before = (index / pattern).read_text()
        assert text in before
        (index / pattern).write_text(before.replace(text, ""))

    return change


def other_hash(index: Path, pattern: str) -> None:
    answer = json.loads((index / pattern).read_text())
    answer["wheels"][0]["sha256"] = "ab" * 32
    (index / pattern).write_text(json.dumps(answer))


LIES: list[tuple[Callable[[Path, str], None], str, type[Any], str]] = [
    (swapped, WHEEL, AuditError, "bytes: pip: files/"),
    (cut, WHEEL, AuditError, "bytes: pip: files/"),
    (longer, WHEEL, AuditError, "bytes: pip: files/"),
    (swapped, VARIANT, AuditError, "bytes: uv: files/"),
    (swapped, f"{WHEEL}.metadata", AuditError, "bytes: pip: files/"),
    (swapped, f"{WHEEL}.audit.json", AuditError, "bytes: browser: files/"),
    (swapped, "which.py", AuditError, "bytes: which.py: which.py"),
    (without(' data-yanked="wrong numbers"'), "plain/demo-attn/index.html", AuditError,
     "bytes: pip: plain/demo-attn/"),
    (without("2.8.3"), "plain/demo-attn/index.json", AuditError, "bytes: browser: plain/"),
    (without("cu128"), "index.html", AuditError, "bytes: browser: the first page"),
    (other_hash, "catalogue.json", AuditError, "bytes: pip: plain/demo-attn/"),
    (gone, WHEEL, StorageError, "status: pip: files/"),
    (gone, f"{WHEEL}.metadata", StorageError, "status: pip: files/"),
    (gone, "cu128/torch2.8/demo-attn/index.json", StorageError, "status: browser: cu128/"),
    (gone, "catalogue.json", ConfigError, "status: "),
]  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_an_index_that_lies_is_refused(
    index: Path, capsys: Said, lie: tuple[Callable[[Path, str], None], str, type[Any], str]
) -> None:
    change, pattern, kind, said = lie
    change(index, pattern)
    with served(index) as address:
        assert check(address) == kind.exit_code
    assert said in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_program_reads_what_is_wrong(index: Path, capsys: Said) -> None:
    gone(index, WHEEL)
    swapped(index, VARIANT)
    with served(index) as address:
        assert check(address, "--json") == AuditError.exit_code
    answer = json.loads(capsys.readouterr().out)
    problems = {(one["kind"], one["agent"], Path(one["path"]).suffix) for one in answer["problems"]}
    assert problems == {("status", "pip", ".whl"), ("bytes", "uv", ".whl")}
    assert sum(answer["listed"].values()) == sum(answer["fetched"].values()) + 1


def front(root: Path, **more: Any) -> AbstractContextManager[str]:
    """A server whose handler has these methods in place of its own."""
    return listening(type("Handler", (SimpleHTTPRequestHandler,), more), directory=root)


def answering(when: Callable[[Any], bool], code: int, *head: tuple[str, str]) -> Any:
    def answer(self: Any) -> None:
        if not when(self):
            SimpleHTTPRequestHandler.do_GET(self)
            return
        self.send_response(code)
        for name, value in (*head, ("Content-Length", "0")):
            self.send_header(name, value)
        self.end_headers()

    return answer


FRONTS: dict[str, tuple[Callable[[Any], bool], int, tuple[tuple[str, str], ...], str]] = {
    # An object store: https://docs.aws.amazon.com/AmazonS3/latest/userguide/IndexDocumentSupport.html
    "no index pages": (lambda one: one.path.endswith("/"), 404, (), "status: pip: "),
    "refuses pip": (lambda one: "pip/" in one.headers["User-Agent"], 403, (), "status: pip: "),
    "refuses uv": (lambda one: "uv/" in one.headers["User-Agent"], 403, (), "status: uv: "),
    "refuses browsers": (lambda one: "Mozilla" in one.headers["User-Agent"], 503, (), "browser: "),
    # IIS: https://learn.microsoft.com/troubleshoot/developer/webapps/iis/health-diagnostic-performance/http-status-code
    "no plus signs": (lambda one: "+" in one.path or "%2B" in one.path, 404, (), "status: pip: "),
    "leaves TLS": (lambda one: one.path.endswith(".metadata"), 302,
                   (("Location", "http://localhost:9/"),), "redirect: pip: "),
}  # fmt: skip


def hugging_face(one: Any) -> None:
    """``https://huggingface.co/OWNER/REPO/resolve/main/``: no directories, wheels by a redirect.

    https://huggingface.co/docs/xet/file-id; a repository's wheels:
    https://huggingface.co/Kijai/PrecompiledWheels/tree/main
    """
    missing = answering(
        lambda self: self.path.endswith("/"), 404, ("X-Error-Code", "EntryNotFound")
    )
    place = f"{one.path}?X-Xet-Signed=1"
    moved = answering(lambda self: self.path.endswith(".whl"), 302, ("Location", place))
    (missing if one.path.endswith("/") else moved)(one)


def gitlab(one: Any) -> None:
    """``https://gitlab.com/api/v4/projects/ID/packages/pypi``: pages made from what was uploaded.

    A project's page links to ``files/SHA256/NAME``; one that it does not have is PyPI's, and there
    is no other path: lib/api/pypi_packages.rb of https://gitlab.com/gitlab-org/gitlab.
    """
    wheels = [*Path(one.directory).glob("files/*/*/*.whl")]
    _, _, place = one.path.partition("/packages/pypi/")
    found = [file for file in wheels if place == f"files/{file.parent.name}/{file.name}"]
    page = "".join(f'<a href="../../files/{f.parent.name}/{f.name}">{f.name}</a>' for f in wheels)
    body = found[0].read_bytes() if found else page.encode()
    code = 200 if found or place == "simple/demo-attn/" else 302 if "simple/" in place else 404
    one.send_response(code)
    for name, value in (
        ("Content-Type", "text/html" if code == 200 else "application/json"),
        ("Content-Length", str(len(body) if code == 200 else 0)),
        *([("Location", "https://pypi.example.org/simple/")] if code == 302 else []),
    ):
        one.send_header(name, value)
    one.end_headers()
    one.wfile.write(body if code == 200 else b"")


def folders(index: Path) -> set[str]:
    pages = (page.parent.relative_to(index).as_posix() for page in index.rglob("*/index.html"))
    return {page for page in pages if page not in ("about", ".")}


def test_a_repository_of_hugging_face_has_wheels_and_no_pages(index: Path, capsys: Said) -> None:
    with front(index, do_GET=hugging_face) as address:
        assert check(address, "--json") == StorageError.exit_code
    answer = json.loads(capsys.readouterr().out)
    missing = {one["path"] for one in answer["problems"] if one["kind"] == "status"}
    assert len(answer["problems"]) == 2 * len(missing) - 1  # pip and uv for all but the first page
    assert missing - {"the first page"} == {f"{place}/" for place in folders(index)}


def test_a_registry_of_gitlab_is_no_index(index: Path, capsys: Said) -> None:
    with front(index, do_GET=gitlab) as address:
        assert check(f"{address}/api/v4/projects/1/packages/pypi/") == ConfigError.exit_code
    assert "status" in capsys.readouterr().err


def test_nothing_is_sent_where_no_index_can_be(tmp_path: Path, capsys: Said) -> None:
    run = str(finished(tmp_path / "out").path)
    asked: list[Any] = []
    heard = {f"do_{method}": asked.append for method in ("GET", "HEAD", "POST", "PUT")}
    with front(tmp_path, **heard) as address:
        registry = f"http://me:secret@{address.rpartition('/')[2]}/api/v4/projects/1/packages/pypi"
        for to in (registry, "https://gitlab.com/x", "hf://datasets/me/wheels"):
            assert program.run_command_line(["publish", run, "--to", to]) == ConfigError.exit_code
            said = capsys.readouterr().err
            assert "secret" not in said
    assert not asked


@pytest.mark.parametrize("kind", FRONTS)
def test_a_server_that_does_not_serve_it(index: Path, capsys: Said, kind: str) -> None:
    when, code, head, said = FRONTS[kind]
    with front(index, do_GET=answering(when, code, *head)) as address:
        assert check(address) == StorageError.exit_code
    answer = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert said in answer
    assert "pages and files" in answer


def test_a_redirect_without_tls_is_refused_though_the_bytes_are_right(
    index: Path, capsys: Said
) -> None:
    with front(index) as other:
        port = other.rpartition(":")[2]

        def onward(self: Any) -> None:
            place = f"http://localhost:{port}{self.path}"
            moved = answering(lambda one: one.path.endswith(".whl"), 302, ("Location", place))
            moved(self)

        with front(index, do_GET=onward) as address:
            assert check(address) == StorageError.exit_code
    assert "redirect: pip: " in " ".join(capsys.readouterr().err.split())


def test_pages_that_are_not_html(index: Path, capsys: Said) -> None:
    with front(index, guess_type=lambda *_: "application/octet-stream") as address:
        assert check(address) == StorageError.exit_code
    assert "type: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("address", "kind"),
    [("http://127.0.0.1:9", HostError), ("ftp://x.org/", ConfigError), ("x", ConfigError)],
)
def test_where_there_is_no_answer(address: str, kind: type[Any], capsys: Said) -> None:
    assert check(address) == kind.exit_code
    assert ("network" in capsys.readouterr().err) == (kind is HostError)


def test_an_empty_index_and_no_index_do_not_pass(tmp_path: Path, index: Path) -> None:
    (tmp_path / "empty").mkdir()
    publish_wheels(Store(str(tmp_path / "empty")), Order(tracks=""), say=lambda _: None)
    (index / "catalogue.json").write_text("{")
    for folder in (tmp_path / "empty", index, tmp_path):
        with served(folder) as address:
            assert check(address) == ConfigError.exit_code


def test_it_goes_with_nothing_else(index: Path) -> None:
    for words in (["--to", str(index)], ["latest"]):
        assert check("http://127.0.0.1:9", *words) == ConfigError.exit_code
