"""Which wheel of an index ``which`` names for a machine, and what it says of indexes that lie."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from catalogues import machine_of
from loopback import listening
from packaging.version import Version

from pipelines.publish.index.catalogue import Catalogue
from pipelines.publish.which import listed
from pipelines.publish.which.choosing import Judged, choose_wheel, runs_python
from pipelines.publish.which.listed import fetch_rows, place_of, read_catalogue_rows
from pipelines.publish.which.machine import Machine
from pipelines.publish.which.texts import RefusalError, accepts_python, version_key
from pipelines.wheels.tags import wheel_tags

sys.path.insert(0, str(Path(__file__).parents[1] / "browser"))
import test_index_in_chromium as page

HASH = "ab" * 32
OWN = Machine("win_amd64", "3.12", "2.8.0+cu128", "12.8", "12.9", ("8.9",))


def wheel(local: str = "cu128torch2.8", tag: str = "cp312-cp312-win_amd64", **changes: Any) -> Any:
    """A row of a catalogue, as a publish writes it."""
    version = changes.pop("version", "2.8.3")
    file = f"flash_attn-{version}+{local}-{tag}.whl"
    row = {
        "file": file,
        "sha256": HASH,
        "url": f"files/ab/{HASH}/{file}",
        "requires_python": ">=3.9",
        "torch": "2.8",
        "cuda": "12.8",
        "sass": ["80", "90"],
        "ptx": [],
        "uploaded": "2026-11-01T00:00:00Z",
        "smoke": {"verdict": "passed", "gpus": ["RTX 4090"], "cases": 12},
        "yanked": None,
    }
    return {**row, **changes}


def catalogue(*wheels: Any, **changes: Any) -> bytes:
    return json.dumps({"schema_version": 1, "wheels": wheels, **changes}).encode()


def chosen(*wheels: Any, machine: Machine = OWN) -> Judged:
    best = choose_wheel(read_catalogue_rows(catalogue(*wheels)), machine)
    assert best is not None
    return best


def machine(**changes: Any) -> Machine:
    return Machine(**{**OWN.__dict__, **changes})


@pytest.mark.parametrize(
    ("row", "own", "missed"),
    [
        (wheel(), OWN, ""),
        (wheel(tag="cp312-cp312-manylinux_2_28_x86_64"), OWN, "it is for manylinux"),
        (wheel(tag="cp311-cp311-win_amd64"), OWN, "it is for Python cp311-cp311, but this is"),
        (wheel(tag="cp310-abi3-win_amd64"), OWN, ""),
        (wheel(tag="cp313-abi3-win_amd64"), OWN, "Python cp313-abi3"),
        (wheel(tag="py3-none-win_amd64"), OWN, ""),
        (wheel(tag="cp312-cp312-win_amd64.win_arm64"), OWN, ""),
        (
            wheel(requires_python=">=3.13"),
            OWN,
            "it requires Python >=3.13, but this is Python 3.12",
        ),
        (wheel(requires_python="odd"), OWN, "it requires Python odd"),
        (wheel(tag="cp313-cp313-win_amd64"), machine(python="3.13t"), "Python cp313-cp313"),
        (wheel(tag="cp313-cp313t-win_amd64"), machine(python="3.13t"), ""),
        (wheel(tag="cp314-cp314t-win_amd64"), machine(python="3.14"), "Python cp314-cp314t"),
        (wheel(tag="cp39-abi3-win_amd64"), machine(python="3.14t"), "Python cp39-abi3"),
        (wheel(tag="cp315-abi3t-win_amd64"), machine(python="3.15t"), ""),
        (wheel(tag="cp315-abi3t-win_amd64"), machine(python="3.15"), "Python cp315-abi3t"),
        (wheel(tag="cp39-abi3t-win_amd64"), machine(python="3.14t"), "Python cp39-abi3t"),
        (
            wheel(tag="cp312-cp312-win_arm64"),
            OWN,
            "it is for win_arm64, but this Python is for win_amd64",
        ),
        (wheel(), machine(platform="win_arm64"), "it is for win_amd64, but this Python is for"),
        (wheel(tag="cp312-cp312-win_arm64"), machine(platform="win_arm64"), ""),
        (wheel(sass=["121"]), machine(gpus=("12.1",)), ""),
        (wheel(sass=["120"]), machine(gpus=("12.1",)), ""),  # of one family, the older one's code
        (wheel(sass=["120a"]), machine(gpus=("12.1",)), "it has code for 120a"),
        (wheel(sass=["121"]), machine(gpus=("12.0",)), "it has code for 121"),
        (wheel(), machine(torch="2.8.1+cu128"), ""),
        (wheel(), machine(torch="2.9.0+cu128"), "for torch 2.8, but this is torch 2.9.0+cu128"),
        (wheel(stable=True), machine(torch="2.10.0+cu128"), ""),
        (wheel(stable=True), machine(torch="2.7.0+cu128"), "it is for torch 2.8 and later"),
        (wheel(torch=""), machine(torch="", cuda=""), ""),
        (wheel(), machine(torch="", cuda=""), "it is for torch 2.8, but no torch is installed"),
        (wheel(), machine(torch="2.8.0+cpu", cuda=""), "a build without CUDA"),
        (wheel(), machine(cuda="12.9"), ""),
        (wheel(), machine(cuda="12.6"), "it is for CUDA 12.8, but torch was built with CUDA 12.6"),
        (wheel(), machine(cuda="13.0", driver="13.0"), "torch was built with CUDA 13.0"),
        (wheel(any_cuda=True), machine(cuda="13.0", driver="13.0"), ""),
        (wheel(cuda="13.0", any_cuda=True), machine(driver="13.0"), ""),
        (wheel(cuda="13.0", any_cuda=True), machine(driver="12.9"), "needs a driver for CUDA 13"),
        (wheel(any_cuda=True), machine(torch="2.8.0+cpu", cuda=""), "a build without CUDA"),
        (wheel(any_cuda="yes"), machine(cuda="13.0", driver="13.0"), "built with CUDA 13.0"),
        (wheel(torch=""), machine(torch="", cuda="", driver="12.4"), ""),
        (wheel(), machine(driver="12.4"), ""),
        (wheel(), machine(driver="11.8"), "it needs a driver for CUDA 12.8, but this one is for"),
        (wheel(), machine(driver="13.2"), ""),
        (wheel(), machine(driver=""), "there is no NVIDIA driver"),
        (wheel(), machine(gpus=()), "it has code for 80, 90, but there is no GPU"),
        (wheel(), machine(gpus=("8.6", "9.0")), ""),
        (wheel(), machine(gpus=("8.6", "12.0")), "compute capability 8.6 and 12.0"),
        (wheel(), machine(gpus=("7.5",)), "the GPU has compute capability 7.5"),
        (wheel(sass=["90a"]), machine(gpus=("9.0",)), ""),
        (wheel(sass=["100a"]), machine(gpus=("10.3",)), "it has code for 100a"),
        (wheel(sass=["100f"]), machine(gpus=("10.3",)), ""),
        (wheel(ptx=["90"]), machine(gpus=("12.0",)), ""),
        (wheel(ptx=["90"]), machine(gpus=("12.0",), driver="12.6"), "its PTX needs a driver for"),
        (wheel(ptx=["90"]), machine(gpus=("7.5",)), "80, 90, 90 as PTX, but the GPU"),
    ],
)
def test_each_rule(row: Any, own: Machine, missed: str) -> None:
    found = chosen(row, machine=own)
    if not missed:
        assert found.fits
        return
    assert not found.fits
    (why,) = found.missed
    assert missed in why


def test_no_python_gets_a_wheel_that_pip_would_not_take() -> None:
    """Every Python from 3.8 to 3.16, with and without the global lock, against packaging's tags.

    pip takes abi3t of before 3.15 as well, which nobody can have made.
    """
    kinds = [(f"3.{minor}", minor) for minor in range(8, 17)]
    owns = [f"{name}{free}" for name, minor in kinds for free in ("", "t" * (minor > 12))]
    for own in dict.fromkeys(owns):
        taken = {(tag.interpreter, tag.abi) for tag in wheel_tags(own)}
        for python in [
            "py3",
            *(f"{kind}3{minor}" for kind in ("cp", "py") for minor in range(6, 18)),
        ]:
            for abi in {"none", "abi3", "abi3t", python, f"{python}t", "cp314", "cp314t"}:
                early = abi == "abi3t" and int(own.removesuffix("t")[2:]) < 15
                wanted = (python, abi) in taken and not early
                assert runs_python(python, abi, own) is wanted, (own, python, abi)


@pytest.mark.parametrize(
    ("better", "other"),
    [
        (wheel(sass=["89"], smoke={"verdict": "untested"}), wheel("b", sass=["75"], ptx=["75"])),
        (wheel(), wheel("b", version="2.8.4", smoke={"verdict": "untested"})),
        (wheel(version="2.8.10"), wheel("b", version="2.8.9")),
        (wheel(version="2.8.3.post1"), wheel("b", version="2.8.3")),
        (wheel(version="2.8.3"), wheel("b", version="2.8.3rc1")),
        (wheel(version="2.8.3"), wheel("b", version="2.9.0rc1")),
        (wheel(version="2.8.3.post1"), wheel("b", version="2.9.0.dev1")),
        (wheel("same"), wheel("same", "py3-none-win_amd64", cuda="12.6")),
        (wheel("same"), wheel("same", "py3-none-win_amd64", uploaded="2026-10-31T00:00:00Z")),
    ],
    ids=[
        "machine code",
        "tested",
        "number",
        "post",
        "pre",
        "later pre",
        "later dev",
        "CUDA",
        "upload",
    ],
)
def test_the_rank(better: Any, other: Any) -> None:
    for both in ((better, other), (other, better)):
        found = chosen(*both)
        assert found.fits
        assert found.row.file == better["file"]


@pytest.mark.parametrize("gpu", ["9.0", "12.0"])
def test_a_newer_release_of_ptx_alone_is_taken_where_there_is_no_other(gpu: str) -> None:
    """Its driver compiles whole units of it at their first use."""
    own = machine(torch="2.11.0+cu130", cuda="13.0", driver="13.0", gpus=(gpu,))
    both: Any = {"cuda": "13.0", "stable": True, "torch": "2.10"}
    newer = wheel("cu130", version="2.8.4", sass=["80"], ptx=["80"], **both)
    older = wheel("cu130", sass=["80", "90", "120"], ptx=["80"], **both)
    for rows, file, by in (((newer, older), older, "machine code"), ((newer,), newer, "PTX")):
        found = chosen(*rows, machine=own)
        assert found.fits
        assert (found.row.file, found.by) == (file["file"], by)


#: How each rule's words begin, by the name that the page gives it.
WORDS = {
    "platform": "it is for",
    "python": "it ",
    "torch": "it is for torch",
    "cuda": "it is for CUDA",
    "driver": "it",
    "gpu": "it has code for",
}


@pytest.mark.parametrize(("changes", "expected", "rules"), page.CASES)
def test_the_page_is_held_to_the_same(changes: dict[str, str], expected: str, rules: str) -> None:
    """What tests/browser/test_index_in_chromium.py wants of the page's script, this names too."""
    rows = read_catalogue_rows(Catalogue(wheels=tuple(page.WHEELS.values())).dump())
    best = choose_wheel(
        rows, machine_of(page.line(**changes)), {**page.MACHINE, **changes}["package"]
    )
    assert best is not None
    assert best.row.file == page.WHEELS[expected].file
    assert len(best.missed) == len(rules.split())
    for rule, said in zip(rules.split(), best.missed, strict=True):
        assert said.startswith(WORDS[rule])


def test_the_nearest_has_missed_least() -> None:
    far = wheel("b", torch="2.9", sass=["90"])
    found = chosen(far, wheel(torch="2.9"))
    assert found.missed == ("it is for torch 2.9, but this is torch 2.8.0+cu128",)


def test_variants_and_yanked_wheels_are_not_named() -> None:
    label = wheel(tag="cp312-cp312-win_amd64-cu128_sm80_90")
    rows = read_catalogue_rows(catalogue(label, wheel(yanked="crashes")))
    assert choose_wheel(rows, OWN) is None


def test_versions_sort_as_pip_sorts_them() -> None:
    texts = (
        "1.0.dev1 1.0a1 1.0a1.dev2 1.0b2 1.0rc1 1.0 1.0+abc 1.0+cu128 1.0+5 1.0.post1.dev1 v1.0-1 "
        "1.0.post1 1.1 2!0.1 1.0.0 1.0+cu128.torch2.8 2.8.3.post2 1.0.alpha.2"
    )
    for one in texts.split():
        for two in texts.split():
            left, right = version_key(one), version_key(two)
            assert (left < right) == (Version(one) < Version(two)), (one, two)
            assert (left == right) == (Version(one) == Version(two)), (one, two)


def test_requires_python() -> None:
    yes = (
        *(">=3.10", ">=3.10,<3.13", "~=3.12", "~=3.10", "==3.12.*", "!=3.12.4", ">=3.12.1"),
        *("<3.12.5", "", ">3.11", ">3.12", "==3.*"),
    )
    no = (
        *("<3.12", ">=3.13", "~=3.11.2", "!=3.12.*", "==3.11.*", ">3.13", "foo"),
        *(">=3.10;", "<=3.11"),
    )
    assert [one for one in yes if not accepts_python(one, "3.12")] == []
    assert [one for one in no if accepts_python(one, "3.12")] == []


def test_a_machine_as_a_line() -> None:
    two = machine(gpus=("8.9", "12.0"))
    assert two.line == (
        "wcw1:platform=win_amd64&python=3.12&torch=2.8.0%2Bcu128&cuda=12.8&driver=12.9&gpu=8.9,12.0"
    )
    for own in (OWN, two, machine(torch="", cuda="", driver="", gpus=())):
        assert machine_of(own.line) == own


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<!DOCTYPE html><title>404</title>",
        b"[]",
        b"null",
        b"[" * 100_000,
        b'{"schema_version": 2, "wheels": []}',
        b'{"schema_version": 1}',
        b'{"schema_version": 1, "wheels": [7]}',
        b'{"schema_version": 1, "wheels": [' + b"1" * 5000 + b"]}",
        catalogue(wheel())[:-40],
        catalogue(wheel(), wheel()),
        catalogue(*[wheel()] * 50_001),
        catalogue(wheel(sha256="ab")),
        catalogue(wheel(sha256=None)),
        catalogue(wheel(url="https://x/$(calc)/flash_attn.whl")),
        catalogue(wheel(url=f"files/../../{wheel()['file']}")),
        catalogue(wheel(url=f"http://evil/{wheel()['file']}")),
        catalogue(wheel(url=f"files/ab/{HASH}/other-1.0-py3-none-any.whl")),
        catalogue(wheel(url=f"files/ab/{HASH}/x\" & calc & \"/{wheel()['file']}")),
        catalogue(wheel(file="../x.whl")),
        catalogue(wheel(file="x.whl")),
        catalogue(wheel(version="2..8")),
        catalogue(wheel(sass=["90; calc"])),
        catalogue(wheel(sass=["90"] * 100)),
        catalogue(wheel(smoke={"verdict": "great"})),
        catalogue(wheel(smoke=[])),
        catalogue(wheel(torch="2.8; rm")),
        catalogue(wheel(requires_python="x" * 5000)),
        catalogue(wheel(requires_python=">=3.9\x1b]0;mine\x07")),
        catalogue(wheel(uploaded="yesterday")),
    ],
)  # fmt: skip
def test_a_catalogue_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(RefusalError, match="is not valid"):
        read_catalogue_rows(data)


Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """A server that answers so; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

    with listening(Handler) as address:
        yield f"{address}/index/"


def sends(data: bytes, code: int = 200, length: int | None = None) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        handler.send_header("Content-Length", str(len(data) if length is None else length))
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def endless(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b" " * (1 << 20))
    except OSError:
        return


def leads_away(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(302)
    handler.send_header("Location", "file:///etc/passwd")
    handler.end_headers()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (sends(b"no", 503), "HTTP status 503"),
        (sends(b"no", 404), "HTTP status 404"),
        (sends(b"<html>"), "it begins with '<html>'"),
        (sends(catalogue(wheel()), length=10_000), "bytes: try again"),
        (endless, "more than 64 MiB"),
        (leads_away, "HTTP status 302"),
        (lambda handler: handler.wfile.write(b"nonsense\r\n\r\n"), "cannot be read"),
    ],
    ids=["503", "404", "page", "cut", "endless", "elsewhere", "no HTTP"],
)
def test_a_server_that_lies(answer: Answer, says: str) -> None:
    with answering(answer) as address, pytest.raises(RefusalError) as caught:
        fetch_rows(address)
    assert says in caught.value.message


def test_a_server_that_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says something now and then: none of its pauses is too long."""
    monkeypatch.setattr(listed, "_PATIENCE", 0.5)
    ended = threading.Event()

    def slow(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not ended.wait(0.1):
            try:
                handler.wfile.write(b" ")
            except OSError:
                return

    with answering(slow) as address:
        with pytest.raises(RefusalError, match="takes longer than"):
            fetch_rows(address)
        ended.set()


def test_an_index_is_read_from_wherever_it_lies(tmp_path: Path) -> None:
    data = catalogue(wheel())
    (tmp_path / "catalogue.json").write_bytes(data)
    rows, base = fetch_rows(str(tmp_path))
    file = "flash_attn-2.8.3%2Bcu128torch2.8-cp312-cp312-win_amd64.whl"
    assert place_of(rows[0], base) == f"{tmp_path.as_uri()}/files/ab/{HASH}/{file}"
    with answering(sends(data)) as address:
        for name in (address, address.rstrip("/"), f"{address}index.html"):
            assert fetch_rows(name)[1] == address
    elsewhere = wheel(url="https://example.org/v1/" + wheel()["file"].replace("+", "%2B"))
    (row,) = read_catalogue_rows(catalogue(elsewhere))
    assert place_of(row, base) == elsewhere["url"]


def test_an_older_list_and_a_yank_that_vanished_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is a list that the index had, or one that whoever can write it there made up."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    bad = wheel(file="flash_attn-2.8.2+cu128torch2.8-cp312-cp312-win_amd64.whl")
    bad["url"] = wheel()["url"].replace("2.8.3", "2.8.2")

    def listed(generation: int, *wheels: dict[str, Any]) -> list[str]:
        told = json.loads(catalogue(*wheels)) | {"generation": generation}
        (tmp_path / "catalogue.json").write_text(json.dumps(told))
        return [row.version for row in fetch_rows(str(tmp_path))[0]]

    assert len(listed(3, wheel(), bad)) == 2
    assert len(listed(4, wheel(), bad | {"yanked": "wrong numbers"})) == 1
    assert len(listed(4, wheel(), bad | {"yanked": "wrong numbers"})) == 1
    for generation, says in ((3, "older"), (4, "differs"), (5, "was yanked")):
        with pytest.raises(RefusalError, match=says):
            listed(generation, wheel(), bad)
    assert len(listed(5, wheel(), bad | {"yanked": "wrong numbers"})) == 1
    assert capsys.readouterr().err == ""
    (tmp_path / "config/windows-cuda-wheels/seen.json").write_text("[")
    with pytest.raises(RefusalError, match="cannot be read"):
        listed(6, wheel())
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "catalogue.json"))  # no directory
    (tmp_path / "catalogue.json").write_bytes(catalogue(wheel()))
    with pytest.raises(RefusalError, match="cannot be read"):
        fetch_rows(str(tmp_path))


def test_where_nothing_can_be_kept_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "not/absolute")
    (tmp_path / "catalogue.json").write_bytes(catalogue(wheel()))
    assert len(fetch_rows(str(tmp_path))[0]) == 1
    assert "will not be noticed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("index", "says"),
    [
        ("https://me:secret@example.org/", "a user name or password"),
        ("http://example.org/", "expected an https address"),
        ("ftp://example.org/", "expected an https address"),
        ("/nowhere", "catalogue.json cannot be read"),
    ],
)
def test_an_index_that_is_none(index: str, says: str) -> None:
    with pytest.raises(RefusalError) as caught:
        fetch_rows(index)
    assert says in caught.value.message
    assert "secret" not in caught.value.message + caught.value.hint
