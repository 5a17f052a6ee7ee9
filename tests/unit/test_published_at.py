"""What is rebuilt may be at an address: what is fetched from there, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from loopback import listening
from test_rebuild import lied, tree, we, wheel_of
from test_rebuild import party as party_of

from pipelines.core.errors import AuditError, ConfigError, LockError, PipelineError
from pipelines.publish.rebuild.address import published_at
from pipelines.publish.rebuild.published import read_published
from pipelines.publish.rebuild.run import rebuild_verdict_json, run_rebuild
from pipelines.stages.line import run_build
from pipelines.toolchain import obtaining
from pipelines.toolchain.lock import Cache, load_lock

pytestmark = pytest.mark.slow


AT = "https://example.org"


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """The run of who has published."""
    return run_build(party_of(tmp_path, "they", tree(tmp_path)))


@pytest.fixture
def served(published: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The run, as it is found at :data:`AT`: a real server, only without TLS."""
    real = obtaining._http

    def plain(url: str, *rest: Any) -> None:
        assert url.startswith(AT)
        real(f"{address}{url.removeprefix(AT)}", *rest)

    with listening(SimpleHTTPRequestHandler, directory=published) as address:
        monkeypatch.setattr(obtaining, "_http", plain)
        yield published


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(load_lock(), tmp_path / "cache")


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("named", ["manifest", "wheel"])
def test_a_second_party_rebuilds_what_it_has_only_the_address_of(
    tmp_path: Path, served: Path, cache: Cache, beside: bool, named: str
) -> None:
    wheel = wheel_of(served)
    place = f"{AT}/wheels/{wheel.name}"
    if beside:  # as releases have them
        shutil.move(wheel, served / wheel.name)
        place = f"{AT}/{wheel.name}"
    found = published_at(f"{AT}/manifest.json" if named == "manifest" else place, cache)
    assert found.manifest == f"{AT}/manifest.json"
    assert found.wheel is not None
    assert found.wheel.is_relative_to(cache.root)
    line = we(tmp_path)
    run_rebuild(line, found)
    assert rebuild_verdict_json(line.run)["verdict"] == "identical"


def test_without_the_wheel_its_sha256_is_compared(
    served: Path, cache: Cache, capsys: pytest.CaptureFixture[str]
) -> None:
    local = read_published(str(served / "manifest.json"))
    wheel_of(served).unlink()
    found = published_at(f"{AT}/manifest.json", cache)
    assert (found.wheel, found.sha256) == (None, local.sha256)
    assert "only its sha256 is compared" in " ".join(capsys.readouterr().out.split())


def test_a_plus_is_written_as_object_stores_read_it(
    served: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 takes a bare one in an address for a blank, and has no such file."""
    wheel = wheel_of(served)
    project, version, tags = wheel.name.split("-", 2)
    name = f"{project}-{version}+cu128-{tags}"
    manifest = served / "manifest.json"
    manifest.write_text(manifest.read_text().replace(wheel.name, name))
    wheel.rename(wheel.with_name(name))
    real, asked = obtaining._http, []

    def noted(url: str, *rest: Any) -> None:
        asked.append(url)
        real(url, *rest)

    monkeypatch.setattr(obtaining, "_http", noted)
    assert published_at(f"{AT}/manifest.json", cache).wheel is not None
    assert asked == [f"{AT}/manifest.json", f"{AT}/wheels/{name.replace('+', '%2B')}"]


def test_another_wheel_than_the_manifest_speaks_of(served: Path, cache: Cache) -> None:
    wheel = wheel_of(served)
    manifest = (served / "manifest.json").read_text()
    lied(served, __init___py=b"import os; os.abort()\n")
    (served / "manifest.json").write_text(manifest)
    for address in (f"{AT}/manifest.json", f"{AT}/wheels/{wheel.name}"):
        with pytest.raises(AuditError, match=rf"but {AT}/manifest\.json states"):
            published_at(address, cache)


def test_an_address_that_states_another_hash(served: Path, cache: Cache) -> None:
    with pytest.raises(AuditError, match=f"states sha256 {'0' * 64}"):
        published_at(f"{AT}/wheels/{wheel_of(served).name}#sha256={'0' * 64}", cache)


def test_a_damaged_file_of_the_cache_is_not_believed(served: Path, cache: Cache) -> None:
    found = published_at(f"{AT}/manifest.json", cache)
    assert found.wheel is not None
    found.wheel.write_bytes(b"x" * found.wheel.stat().st_size)
    again = published_at(f"{AT}/manifest.json", cache)
    assert again.wheel is not None
    assert again.wheel.read_bytes() == wheel_of(served).read_bytes()


@pytest.mark.parametrize(
    ("address", "kind", "said"),
    [
        (f"{AT}/other.json", LockError, "no manifest was found: https://example.org/other.json"),
        (f"{AT}/no/where/p-1.0-py3-none-any.whl", LockError, "no manifest was found"),
        (f"{AT}/large.json", LockError, "more than the pinned 1048576 bytes came"),
        (f"{AT}/page.html", ConfigError, "page.html is not a valid manifest"),
        (f"{AT}/p-1.0-py3-none-any.whl", ConfigError, "has 0 wheels called p-1.0"),
        ("http://example.org/manifest.json", ConfigError, "expected https"),
        ("http://example.org/p-1.0-py3-none-any.whl", ConfigError, "expected https"),
        (f"{AT}/p-1.0-py3-none-any.whl#md5=3", ConfigError, "expected sha256="),
        (f"{AT}/manifest.json#sha256=0", ConfigError, "expected sha256="),
        ("https://[x/manifest.json", ConfigError, "expected the address"),
    ],
)
def test_what_is_refused(
    served: Path, cache: Cache, address: str, kind: type[PipelineError], said: str
) -> None:
    (served / "page.html").write_text("<html>")
    with (served / "large.json").open("wb") as file:
        file.truncate((8 << 20) + 1)
    with pytest.raises(kind) as caught:
        published_at(address, cache)
    assert said in caught.value.message
    assert "--wheel" not in str(caught.value.message) + str(caught.value.hint)


def test_a_password_is_not_shown(served: Path, cache: Cache) -> None:
    assert served
    with pytest.raises(LockError) as caught:
        published_at(f"{AT}/other.json?token=hush-hush-hush", cache)
    assert "hush" not in caught.value.message + caught.value.hint


def test_nothing_is_fetched_offline(served: Path, tmp_path: Path) -> None:
    assert json.loads((served / "manifest.json").read_text())
    offline = Cache(load_lock(), tmp_path / "cache", offline=True)
    with pytest.raises(LockError, match="--offline"):
        published_at(f"{AT}/manifest.json", offline)


@pytest.mark.parametrize("name", ["a b.whl", "-p.whl", "\u00fc.whl", "p?x.whl", "a" * 300 + ".whl"])
def test_a_name_that_no_wheel_has_is_refused(served: Path, cache: Cache, name: str) -> None:
    """It would become a file here, and a part of an address."""
    manifest = served / "manifest.json"
    old = wheel_of(served).name
    manifest.write_text(manifest.read_text().replace(old, name))
    with pytest.raises(ConfigError, match="not a wheel name") as caught:
        published_at(f"{AT}/manifest.json", cache)
    assert caught.value.hint
