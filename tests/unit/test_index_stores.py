"""The same index in other places: an object store, GitHub's releases; and when they fail."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import fsspec
import pytest
from github_releases import TOKEN, GitHub, github
from indexes import finished, offers_of, served
from pypi_simple import PyPISimple
from tls_keys import Authority

from pipelines.cli import program
from pipelines.core.errors import AuthError, ConfigError, PipelineError, SetupError, StorageError
from pipelines.core.hosttext import redact
from pipelines.publish.index import releases
from pipelines.publish.index.catalogue import Wheel
from pipelines.publish.index.lock import LOCK
from pipelines.publish.index.publishing import Order, publish_wheels
from pipelines.publish.index.releases import Release
from pipelines.publish.index.store import Store
from pipelines.record.run import Run

ADDRESS = "github:owner/wheels@v1"


def order(*runs: Run) -> Order:
    return Order(offers_of(runs, untested=True))


def quiet(_: Wheel) -> None:
    """It is not read."""


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """A simulated S3 on this machine's loopback, with a bucket; its address."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "a-name")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        fsspec.filesystem("s3").mkdir("bucket")
        yield f"http://{host}:{port}"
        server.stop()


@pytest.mark.slow
def test_an_object_store_has_the_same_index(s3: str, tmp_path: Path) -> None:
    """And what is in it is served as pages: a client reads it from there."""
    runs = [finished(tmp_path / "out"), finished(tmp_path / "out", cuda="12.6")]
    store = Store("s3://bucket/wheels")
    for run in runs:
        publish_wheels(store, order(run), say=quiet)
    assert store.read(LOCK, 10) is None
    assert not publish_wheels(store, order(*runs), say=quiet).pages
    local = Store(str(tmp_path / "index"))
    for run in runs:
        publish_wheels(local, order(run), say=quiet)
    there, here = store.listed("files"), local.listed("files")
    assert {path: size for path, (size, _) in there.items()} == {
        path: size for path, (size, _) in here.items()
    }
    assert all(tag for _, tag in there.values())
    for page in ("simple/demo-attn/index.html", "cu126/torch2.8/index.html"):
        assert store.read(page, 10**6) == local.read(page, 10**6)
    fs = fsspec.filesystem("s3")
    assert fs.info("bucket/wheels/simple/index.html")["ContentType"] == "text/html"
    assert fs.info("bucket/wheels/simple/index.json")["ContentType"] == "application/json"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["*.whl", "*.metadata", "*.audit.json"])
def test_other_bytes_of_the_same_size_in_an_object_store(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """They are found by the next publish, which reads only what the store states otherwise."""
    address = f"s3://bucket/{kind[2:]}"
    publish_wheels(Store(address), order(finished(tmp_path / "out")), say=quiet)
    read: list[str] = []
    real = Store.sha256

    def noted(store: Store, path: str) -> str | None:
        read.append(path)
        return real(store, path)

    monkeypatch.setattr(Store, "sha256", noted)
    publish_wheels(Store(address), order(finished(tmp_path / "two", cuda="12.6")), say=quiet)
    assert read
    assert not [path for path in read if "cu128" in path]
    fs = fsspec.filesystem("s3", skip_instance_cache=True)
    path = next(path for path in fs.find(address) if fnmatch(path, kind) and "cu128" in path)
    data = bytearray(fs.cat_file(path))
    data[len(data) // 2] ^= 1
    fs.pipe_file(path, bytes(data))
    before = fs.cat_file(f"{address}/catalogue.json")
    more = order(finished(tmp_path / "three", cuda="13.0"))
    for how in (
        partial(publish_wheels, say=quiet),
        partial(publish_wheels, say=quiet, dry_run=True),
    ):
        with pytest.raises(ConfigError, match="files of 1 wheels"):
            how(Store(address), more)
    assert fs.cat_file(f"{address}/catalogue.json") == before
    data[len(data) // 2] ^= 1
    fs.pipe_file(path, bytes(data))
    assert publish_wheels(Store(address), more, say=quiet).fresh


@pytest.mark.slow
def test_an_object_store_behind_tls_that_takes_no_trailers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """botocore would send a CRC32 behind the bytes, over https alone; others refuse it."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    application = DomainDispatcherApplication(create_backend_app)
    refused: list[str] = []

    def front(environ: dict[str, Any], start: Callable[..., object]) -> Any:
        if "HTTP_X_AMZ_TRAILER" in environ or "aws-chunked" in environ.get(
            "HTTP_CONTENT_ENCODING", ""
        ):
            refused.append(environ["PATH_INFO"])
            start("501 Not Implemented", [("Content-Length", "0")])
            return [b""]
        return application(environ, start)

    keys = Authority().issue(tmp_path / "keys", address="127.0.0.1")
    server = make_server(
        "127.0.0.1",
        0,
        front,
        threaded=True,
        ssl_context=(str(keys / "cert.pem"), str(keys / "key.pem")),
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "a-name",
        "AWS_SECRET_ACCESS_KEY": "a-secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"https://127.0.0.1:{server.port}",
        "AWS_CA_BUNDLE": str(keys / "ca.pem"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(
        fsspec.get_filesystem_class("s3"), "_cache", {}
    )  # each has its own endpoint
    fsspec.filesystem("s3").mkdir("behind-tls")
    store = Store("s3://behind-tls/x")
    store.write("index.html", b"a page")
    (tmp_path / "wheel").write_bytes(b"x" * 100_000)
    digest = hashlib.sha256(b"x" * 100_000).hexdigest()
    assert store.place("files/wheel", tmp_path / "wheel", digest)
    assert store.create("lock", b"mine")
    assert (store.read("index.html", 100), refused) == (b"a page", [])
    server.shutdown()


@pytest.mark.slow
def test_only_one_publisher_has_the_lock_of_an_object_store(s3: str) -> None:
    one, other = Store("s3://bucket/locks"), Store("s3://bucket/locks")
    assert one.create(LOCK, b"one")
    assert not other.create(LOCK, b"other")
    assert other.read(LOCK, 10) == b"one"


def test_an_object_store_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    store = Store("s3://bucket/none")
    store._fs = fsspec.filesystem("s3", skip_instance_cache=True)
    store._fs.retries = 1
    with pytest.raises(StorageError, match="s3://bucket/none"):
        store.read("catalogue.json", 10)


@pytest.mark.slow
def test_a_bucket_that_is_not_there(s3: str, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="bucket does not exist"):
        publish_wheels(Store("s3://nothere/x"), order(finished(tmp_path / "out")), say=quiet)


def test_a_store_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(_: str, **__: object) -> None:
        raise ImportError("Install s3fs")

    monkeypatch.setattr(fsspec.core, "url_to_fs", lacking)
    with pytest.raises(SetupError, match="s3:// needs s3fs"):
        Store("s3://bucket/x")


@pytest.mark.parametrize("path", ["../x", "/etc/x", "files/../../x"])
def test_nothing_is_written_outside_of_an_index(tmp_path: Path, path: str) -> None:
    with pytest.raises(ConfigError, match="outside the index"):
        Store(str(tmp_path / "index")).write(path, b"x")
    assert not [*tmp_path.rglob("x")]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHub]:
    with github() as made:
        monkeypatch.setenv("GITHUB_API_URL", made.address)
        monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
        monkeypatch.setattr(releases.Release._retried.retry, "sleep", lambda _: None)
        yield made


def test_wheels_in_a_release_and_pages_that_point_there(hub: GitHub, tmp_path: Path) -> None:
    run = finished(tmp_path / "out")
    words = [str(run.path), "--to", ADDRESS, "--pages", str(tmp_path / "pages")]
    assert program.run_command_line(["publish", *words]) == 0
    (plain,) = (run.path / "wheels").glob("*.whl")
    assert hub.named()[plain.name] == plain.read_bytes()
    assert len(hub.named()) == 4  # plain and variant, each with its metadata
    assert not [*(tmp_path / "pages").rglob("*.whl")]
    with served(tmp_path / "pages") as root, PyPISimple(f"{root}/plain/") as client:
        (one,) = client.get_project_page("demo-attn").packages
        assert one.url.startswith(f"{hub.address}/owner/wheels/releases/download/v1/")
        assert client.get_package_metadata(one, verify=True)
        client.download_package(one, tmp_path / "got", verify=True)
    hub.seen.clear()
    assert program.run_command_line(["publish", *words]) == 0
    assert not [what for what in hub.seen if what.startswith(("POST", "DELETE"))]


@pytest.mark.parametrize("digests", [True, False])
def test_an_asset_is_never_replaced(hub: GitHub, tmp_path: Path, digests: bool) -> None:
    """Where GitHub tells no digest, the asset is read; what is the same is taken as it is."""
    hub.digests = digests
    run = finished(tmp_path / "out")
    (plain,) = (run.path / "wheels").glob("*.whl")
    hub.add(plain.name, plain.read_bytes())
    publish_wheels(Store(str(tmp_path / "one")), order(run), release=Release(ADDRESS), say=quiet)
    assert len(hub.named()) == 4
    other = next(number for number, one in hub.assets.items() if one["name"] == plain.name)
    hub.data[other] = bytes(len(hub.data[other]))
    if digests:
        hub.assets[other]["digest"] = f"sha256:{'0' * 64}"
    with pytest.raises(StorageError, match="there, but"):
        publish_wheels(
            Store(str(tmp_path / "two")), order(run), release=Release(ADDRESS), say=quiet
        )
    assert not (tmp_path / "two/catalogue.json").exists()


def test_an_upload_that_broke_off_is_begun_anew(hub: GitHub, tmp_path: Path) -> None:
    run = finished(tmp_path / "out")
    hub.faults = [("POST", 502)]
    store = Store(str(tmp_path / "pages"))
    with pytest.raises(StorageError, match="GitHub responded 502"):
        publish_wheels(store, order(run), release=Release(ADDRESS), say=quiet)
    assert [one["state"] for one in hub.assets.values()] == ["starter"]
    assert not (tmp_path / "pages/catalogue.json").exists()
    publish_wheels(store, order(run), release=Release(ADDRESS), say=quiet)
    assert {one["state"] for one in hub.assets.values()} == {"uploaded"}
    assert len(hub.named()) == 4


def test_a_server_that_is_not_well_is_asked_again(hub: GitHub, tmp_path: Path) -> None:
    hub.faults = [("/tags/", 503), ("/tags/", 500), ("GET /repos/owner/wheels/releases/7", 502)]
    run = finished(tmp_path / "out")
    publish_wheels(Store(str(tmp_path / "pages")), order(run), release=Release(ADDRESS), say=quiet)
    assert len(hub.named()) == 4


@pytest.mark.parametrize("how", ["gone", "other bytes", "other bytes without a digest"])
@pytest.mark.parametrize("what", [".whl", ".metadata"])
def test_an_asset_that_is_not_what_it_was_breaks_the_index(
    hub: GitHub, tmp_path: Path, how: str, what: str
) -> None:
    store = Store(str(tmp_path / "pages"))
    publish_wheels(store, order(finished(tmp_path / "out")), release=Release(ADDRESS), say=quiet)
    name, number = next((a["name"], n) for n, a in hub.assets.items() if a["name"].endswith(what))
    data = bytes(len(hub.data[number]))
    del hub.assets[number]
    hub.digests = "without" not in how
    if how != "gone":
        hub.add(name, data)
    with pytest.raises(ConfigError, match="files of 1 wheels"):
        publish_wheels(
            store, order(finished(tmp_path / "x", cuda="12.6")), release=Release(ADDRESS), say=quiet
        )


def test_a_draft_is_filled_and_then_published(hub: GitHub, tmp_path: Path) -> None:
    """As immutable releases want it; the catalogue has the addresses that are in force then."""
    hub.draft = hub.freezes = True
    run = finished(tmp_path / "out")
    store = Store(str(tmp_path / "pages"))
    publish_wheels(store, order(run), release=Release(ADDRESS), say=quiet)
    assert (hub.draft, len(hub.named())) == (False, 4)
    assert hub.seen.index("PATCH /repos/owner/wheels/releases/7") == len(hub.seen) - 1
    catalogue = json.loads((tmp_path / "pages/catalogue.json").read_text())
    urls = {one["browser_download_url"] for one in hub.assets.values()}
    assert {one["url"] for one in catalogue["wheels"]} < urls
    assert all("/download/v1/" in one for one in urls)
    assert not publish_wheels(store, order(run), release=Release(ADDRESS), say=quiet).fresh


def test_a_draft_without_files_stays_one(hub: GitHub, tmp_path: Path) -> None:
    hub.draft = True
    store = Store(str(tmp_path / "pages"))
    publish_wheels(store, Order(tracks=""), release=Release(ADDRESS), say=quiet)
    assert hub.draft


@pytest.mark.parametrize("why", ["immutable", "full"])
@pytest.mark.parametrize("dry", [True, False])
def test_what_takes_no_more_is_refused_before_anything_is_sent(
    hub: GitHub, tmp_path: Path, why: str, dry: bool
) -> None:
    hub.freezes = why == "immutable"
    for number in range(997 if why == "full" else 0):
        hub.add(f"{number}.txt", b"x")
    words = [str(finished(tmp_path / "out").path), "--to", ADDRESS, "--pages", str(tmp_path / "x")]
    code = program.run_command_line(["publish", *words, *(["--dry-run"] if dry else [])])
    assert code == ConfigError.exit_code
    assert not [one for one in hub.seen if one.startswith(("POST", "PATCH"))]
    assert not (tmp_path / "x/catalogue.json").exists()


def test_the_last_room_is_used(hub: GitHub, tmp_path: Path) -> None:
    for number in range(996):
        hub.add(f"{number}.txt", b"x")
    run = finished(tmp_path / "out")
    store = Store(str(tmp_path / "pages"))
    publish_wheels(store, order(run), release=Release(ADDRESS), say=quiet)
    assert len(hub.assets) == 1000
    assert not publish_wheels(store, order(run), release=Release(ADDRESS), say=quiet).fresh


def test_an_asset_under_another_name_is_none(hub: GitHub, tmp_path: Path) -> None:
    hub.renames = True
    with pytest.raises(StorageError, match=r"its name there is demo_attn-2\.8\.3\.cu128torch2\.8"):
        publish_wheels(
            Store(str(tmp_path / "pages")),
            order(finished(tmp_path / "out")),
            release=Release(ADDRESS),
            say=quiet,
        )


@pytest.mark.parametrize(
    ("address", "token", "kind"),
    [
        ("github:owner/wheels@v2", TOKEN, ConfigError),
        ("github:owner/wheels", TOKEN, ConfigError),
        ("github:owner/../x@v1", TOKEN, ConfigError),
        (ADDRESS, "", AuthError),
        (ADDRESS, "ghp_of_somebody_else", AuthError),
    ],
)
def test_releases_that_cannot_be_written(
    hub: GitHub,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    token: str,
    kind: type[PipelineError],
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", token)
    monkeypatch.delenv("GH_TOKEN", raising=False)
    with pytest.raises(kind) as found:
        Release(address)
    assert not token or token not in found.value.message


def test_the_token_is_a_secret(hub: GitHub) -> None:
    Release(ADDRESS)
    assert TOKEN not in redact(f"Authorization: Bearer {TOKEN}")


def test_many_assets_are_all_seen(hub: GitHub) -> None:
    for number in range(250):
        hub.add(f"{number}.whl", b"x")
    made = Release(ADDRESS)
    assert all(made.sha256(one["browser_download_url"]) for one in hub.assets.values())


@pytest.mark.parametrize("told", [b"[]", b"{", b'{"id": "x"}', b"[" * 10**6])
def test_answers_that_are_none(hub: GitHub, monkeypatch: pytest.MonkeyPatch, told: bytes) -> None:
    monkeypatch.setattr(
        "github_releases._Handler._say",
        lambda self, *_: (
            self.send_response(200),
            self.send_header("Content-Length", str(len(told))),
            self.end_headers(),
            self.wfile.write(told),
        ),
    )
    with pytest.raises(StorageError):
        Release(ADDRESS)


def test_catalogue_and_pages_tell_the_same(hub: GitHub, tmp_path: Path) -> None:
    store = Store(str(tmp_path / "pages"))
    publish_wheels(store, order(finished(tmp_path / "out")), release=Release(ADDRESS), say=quiet)
    told = json.loads((tmp_path / "pages/catalogue.json").read_text())
    page = json.loads((tmp_path / "pages/plain/demo-attn/index.json").read_text())
    assert page["files"][0]["url"] == told["wheels"][0]["url"]
    assert unquote(told["wheels"][0]["url"]).endswith(told["wheels"][0]["file"])
