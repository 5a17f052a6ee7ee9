"""An index is whole at every moment: names, interruptions, full disks, two publishers, damage."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from defusedxml import ElementTree
from fatbins import ELF, container
from foreign_wheels import foreign
from indexes import cuda_wheel, finished, offers_of
from pes import msvc
from wheels import checked

from pipelines.core.errors import AuditError, ConfigError, StorageError
from pipelines.core.files import sha256_of
from pipelines.publish.index.catalogue import Rebuilt, Smoke, Wheel, WheelName, parse_catalogue
from pipelines.publish.index.lock import LOCK
from pipelines.publish.index.pages import index_views, render_index_pages
from pipelines.publish.index.publishing import Done, Order, entry_of, publish_wheels
from pipelines.publish.index.store import Store
from pipelines.publish.index.variants import (
    label_of,
    make_variant,
    variant_properties,
    variant_version,
)
from pipelines.record.run import Run
from pipelines.record.seal import Sealer
from pipelines.wheels.checked import CheckedWheel, check_copy


def quiet(_: Wheel) -> None:
    """It is not read."""


def put(root: Path, *runs: Any, store: Store | None = None, **order: Any) -> Done:
    offers = offers_of(runs, untested=True) if runs else ()
    return publish_wheels(store or Store(str(root)), Order(offers, **order), say=quiet)


def tree(root: Path) -> dict[str, bytes]:
    """Every file of an index but its lock."""
    found = (path for path in root.rglob("*") if path.is_file() and path.name != LOCK)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}


def test_publishing_again_changes_nothing(tmp_path: Path) -> None:
    run = finished(tmp_path / "out")
    put(tmp_path / "index", run)
    before = tree(tmp_path / "index")
    done = put(tmp_path / "index", run)
    assert (done.fresh, done.pages) == ((), ())
    assert tree(tmp_path / "index") == before
    assert not (tmp_path / "index" / LOCK).exists()


def test_one_more_wheel_touches_only_what_it_must(tmp_path: Path) -> None:
    put(tmp_path / "index", finished(tmp_path / "out", name="other_kernels", cuda="12.6"))
    before = tree(tmp_path / "index")
    done = put(tmp_path / "index", finished(tmp_path / "two"))
    assert not [path for path in done.pages if "other-kernels" in path or "cu126" in path]
    after = tree(tmp_path / "index")
    changed = {path for path in before if after[path] != before[path]}
    roots = {f"{place}/index.{kind}" for place in ("simple", "plain") for kind in ("html", "json")}
    assert changed == {"catalogue.json", "index.html", *roots}


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("demo_attn", "2.8.3"),
        ("Demo_Attn", "2.8.3"),
        ("demo.attn", "2.8.3"),
        ("demo_attn", "2.8.3.0"),
    ],
)
def test_a_name_never_gets_other_bytes(tmp_path: Path, name: str, version: str) -> None:
    """Nor does one that is the same to an installer."""
    put(tmp_path / "index", finished(tmp_path / "out"))
    before = tree(tmp_path / "index")
    other = finished(tmp_path / "two", name=name, version=version, more={"demo_attn/x.py": b"1"})
    with pytest.raises(AuditError, match=r"is already published.*with sha256 .* from run"):
        put(tmp_path / "index", other)
    assert tree(tmp_path / "index") == before


class BrokenError(Exception):
    """The power is cut."""


def cut_at(monkeypatch: pytest.MonkeyPatch, number: int, error: Exception) -> Callable[[], int]:
    """Let the so-many-th write to a store fail; how many there were."""
    count = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Store, path: str, *more: Any) -> Any:
            nonlocal count
            if path != LOCK:
                count += 1
                if count == number:
                    raise error
            return real(self, path, *more)

        return call

    for name in ("write", "place"):
        monkeypatch.setattr(Store, name, counted(getattr(Store, name)))
    return lambda: count


def require_whole(root: Path) -> None:
    """Whatever a page links to is there, with the bytes that its hash says."""
    pages = [path for path in root.rglob("index.json") if path.parent.name == "demo-attn"]
    for page in pages:
        for file in json.loads(page.read_text())["files"]:
            kept = page.parent / file["url"].replace("%2B", "+")
            assert sha256_of(kept) == file["hashes"]["sha256"]
            if kept.suffix == ".whl":
                beside = kept.with_name(f"{kept.name}.metadata")
                assert sha256_of(beside) == file["core-metadata"]["sha256"]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 21))
def test_wherever_it_is_cut_off_the_index_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """And what was begun is brought to its end by the next one, as if nothing had been."""
    runs = [finished(tmp_path / "out"), finished(tmp_path / "out", cuda="12.6", archs="75;80")]
    for root in ("index", "whole"):
        put(tmp_path / root, runs[0])
    before = tree(tmp_path / "index")
    with monkeypatch.context() as patched:
        count = cut_at(patched, number, BrokenError())
        try:
            put(tmp_path / "index", *runs)
        except BrokenError:
            assert count() == number
        else:
            assert count() < number, "nothing was cut"
    require_whole(tmp_path / "index")
    left = tree(tmp_path / "index")
    if left["catalogue.json"] == before["catalogue.json"]:
        assert {path: left[path] for path in before} == before
    put(tmp_path / "index", *runs)
    put(tmp_path / "whole", *runs)
    require_whole(tmp_path / "index")
    made, meant = tree(tmp_path / "index"), tree(tmp_path / "whole")
    assert made.keys() == meant.keys()
    assert not any(".part" in path for path in made)


def test_a_full_disk_is_an_error_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "index", finished(tmp_path / "out"))
    before = tree(tmp_path / "index")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left on device"):
        put(tmp_path / "index", finished(tmp_path / "two", cuda="12.6"))
    assert tree(tmp_path / "index") == before


def test_two_at_once(tmp_path: Path) -> None:
    run = finished(tmp_path / "out")
    store = Store(str(tmp_path / "index"))
    there = json.dumps({"host": "elsewhere", "pid": 1, "since": "today"}).encode()
    assert store.create(LOCK, there)
    with pytest.raises(StorageError, match=r"another publish .*elsewhere"):
        put(tmp_path / "index", run)
    assert set(tree(tmp_path / "index")) == set()
    assert (tmp_path / "index" / LOCK).read_bytes() == there, "a lock of another's was taken away"
    assert len(put(tmp_path / "index", run, unlock=True).fresh) == 2
    assert not (tmp_path / "index" / LOCK).exists()


def test_nothing_is_written_that_cannot_be_read_again(tmp_path: Path) -> None:
    done = put(tmp_path / "index", finished(tmp_path / "out"))
    before = tree(tmp_path / "index")
    sha256 = done.catalogue.wheels[0].sha256
    when = "2026-11-22T10:15:00Z"
    verdicts = [
        (sha256, Rebuilt(verdict="identical", run=f"run {at}", evidence="R", when=when))
        for at in range(101)
    ]
    store = Store(str(tmp_path / "index"))
    for dry_run in (False, True):
        with pytest.raises(ConfigError, match=r"rebuilt.* at most 100"):
            publish_wheels(store, Order(rebuilt=verdicts), say=quiet, dry_run=dry_run)
    assert tree(tmp_path / "index") == before
    publish_wheels(store, Order(rebuilt=verdicts[1:]), say=lambda _: None)
    assert len(parse_catalogue((tmp_path / "index/catalogue.json").read_bytes(), "").wheels) == 2


def test_whoever_died_here_holds_nothing(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    store = Store(str(tmp_path / "index"))
    told = {"host": socket.gethostname(), "pid": os.getpid(), "token": "x"}
    store.create(LOCK, json.dumps(told).encode())
    with pytest.raises(StorageError, match="another publish"):
        put(tmp_path / "index", finished(tmp_path / "out"))
    store.write(LOCK, json.dumps(told | {"pid": ended.pid}).encode())
    assert put(tmp_path / "index", finished(tmp_path / "two")).fresh


def test_a_lock_that_was_taken_away_ends_the_publish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so does a catalogue that has changed meanwhile: no wheels are forgotten."""
    runs = [finished(tmp_path / "out", cuda=cuda) for cuda in ("12.6", "12.8", "13.0")]
    root = tmp_path / "index"
    put(root, runs[0])
    real = Store.place

    def stolen(self: Store, *args: Any) -> bool:
        monkeypatch.setattr(Store, "place", real)
        put(root, runs[1], unlock=True)
        return real(self, *args)

    monkeypatch.setattr(Store, "place", stolen)
    with pytest.raises(StorageError, match=r"changed by another publish"):
        put(root, runs[2])
    kept = parse_catalogue((root / "catalogue.json").read_bytes(), "")
    assert {one.cuda for one in kept.wheels} == {"12.6", "12.8"}
    put(root, runs[2])
    assert len(parse_catalogue((root / "catalogue.json").read_bytes(), "").wheels) == 6


def started(root: Path, run: Path) -> subprocess.Popen[bytes]:
    """The command as a process of its own."""
    command = [sys.executable, "-m", "pipelines", "publish", str(run), "--to", str(root)]
    return subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.DEVNULL)


@pytest.mark.slow
def test_three_processes_at_once(tmp_path: Path) -> None:
    """Each has published whole or not at all; who was refused types it again."""
    root = tmp_path / "index"
    runs = [finished(tmp_path / "out", cuda=cuda) for cuda in ("12.6", "12.8", "13.0")]
    codes = [process.wait() for process in [started(root, run.path) for run in runs]]
    assert set(codes) <= {0, StorageError.exit_code}
    assert 0 in codes
    require_whole(root)
    kept = parse_catalogue((root / "catalogue.json").read_bytes(), "")
    done = {run.facts().target.cuda for run, code in zip(runs, codes, strict=True) if code == 0}
    assert {one.cuda for one in kept.wheels} == done
    put(root, *runs)
    assert len(parse_catalogue((root / "catalogue.json").read_bytes(), "").wheels) == 6


@pytest.mark.slow
@pytest.mark.parametrize("files", [1, 3, 9])
def test_a_process_that_is_killed(tmp_path: Path, files: int) -> None:
    """In the middle, with nothing to clean up after it: the next one needs no --unlock."""
    root = tmp_path / "index"
    for cuda in ("12.6", "12.8", "13.0"):
        finished(tmp_path / "out", cuda=cuda)
    process = started(root, tmp_path / "out")
    while process.poll() is None and len([*root.rglob("*.whl")]) < files:
        time.sleep(0.002)
    process.kill()
    process.wait()
    if (root / "catalogue.json").exists():
        require_whole(root)
    put(root, *map(Run, sorted((tmp_path / "out").glob("2*"))))
    require_whole(root)
    assert len(parse_catalogue((root / "catalogue.json").read_bytes(), "").wheels) == 6
    assert not (root / LOCK).exists()


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no JSON": (lambda root: (root / "catalogue.json").write_text("{"), "cannot be read"),
    "deep": (lambda root: (root / "catalogue.json").write_text("[" * 10**6), "cannot be read"),
    "lost": (lambda root: (root / "catalogue.json").unlink(), "no catalogue"),
    "wheel lost": (lambda root: next(root.rglob("*.whl")).unlink(), "files of 1 wheels"),
    "wheel cut": (lambda root: next(root.rglob("*.whl")).write_bytes(b"PK"), "is damaged"),
    "metadata lost": (lambda root: next(root.rglob("*.metadata")).unlink(), "is damaged"),
    "another schema": (lambda root: told(root, schema_version=2), "schema_version"),
    "a name twice": (lambda root: told(root, twice=True), "two wheels have the same name"),
    "out of the index": (lambda root: wheel(root, url="files/../../x.whl"), "a path below"),
    "a script": (lambda root: wheel(root, url="javascript:alert(1)"), "a path below"),
    "no wheel": (lambda root: wheel(root, file="x.exe"), "not a wheel name"),
}


def told(root: Path, *, twice: bool = False, **changes: Any) -> None:
    path = root / "catalogue.json"
    data = json.loads(path.read_text()) | changes
    data["wheels"] *= 2 if twice else 1
    path.write_text(json.dumps(data))


def wheel(root: Path, **changes: Any) -> None:
    path = root / "catalogue.json"
    data = json.loads(path.read_text())
    data["wheels"][0] |= changes
    path.write_text(json.dumps(data))


@pytest.mark.parametrize("how", DAMAGE)
def test_nothing_is_built_on_a_broken_index(tmp_path: Path, how: str) -> None:
    damage, said = DAMAGE[how]
    put(tmp_path / "index", finished(tmp_path / "out"))
    damage(tmp_path / "index")
    before = tree(tmp_path / "index")
    with pytest.raises(ConfigError, match=said):
        put(tmp_path / "index", finished(tmp_path / "two", cuda="12.6"))
    assert tree(tmp_path / "index") == before


def test_a_place_that_has_other_bytes_is_no_place(tmp_path: Path) -> None:
    """What lies at a path that tells a hash is read, not believed."""
    run = finished(tmp_path / "out")
    put(tmp_path / "whole", run)
    (path,) = (p for p in tree(tmp_path / "whole") if p.endswith("win_amd64.whl"))
    swapped = tmp_path / "index" / path
    swapped.parent.mkdir(parents=True)
    swapped.write_bytes(b"PK something else")
    with pytest.raises(StorageError, match=r"has sha256 .*, expected"):
        put(tmp_path / "index", run)
    assert not (tmp_path / "index/catalogue.json").exists()


def test_somebody_elses_index_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "index/simple/thing/index.html"
    page.parent.mkdir(parents=True)
    page.write_text("theirs")
    with pytest.raises(ConfigError, match="not a wcw index"):
        put(tmp_path / "index", finished(tmp_path / "out"))
    assert tree(tmp_path / "index") == {"simple/thing/index.html": b"theirs"}


def variant_of(plain: CheckedWheel, folder: Path, *sass: str) -> Path | None:
    """The variant of a wheel for Python 3.12, torch 2.8 and CUDA 12.8."""
    entry = entry_of(
        plain.path,
        plain.facts.dist_info,
        python="3.12",
        torch="2.8",
        cuda="12.8",
        sass=sass,
        ptx=(),
        run="run",
        evidence="W",
        checks=1,
        smoke=Smoke(verdict="untested"),
    )
    return make_variant(plain, entry, folder)


def test_a_variant_is_its_plain_wheel_but_for_the_metadata(tmp_path: Path) -> None:
    files = {"demo_attn-2.8.3+cu128torch2.8.data/scripts/tool": b"#!python\n"}
    plain = cuda_wheel(tmp_path, more=files)
    made = variant_of(check_copy(plain, tmp_path), tmp_path, "80", "90")
    assert made is not None
    assert made.name == "demo_attn-2.8.3+torch2.8-cp312-cp312-win_amd64-cu128_sm80_90.whl"
    with zipfile.ZipFile(plain) as one, zipfile.ZipFile(made) as other:
        old = {name: one.read(name) for name in one.namelist()}
        new = {name: other.read(name) for name in other.namelist()}
    info = "demo_attn-2.8.3+torch2.8.dist-info"
    variant = json.loads(new.pop(f"{info}/variant.json"))
    text = new.pop(f"{info}/METADATA").decode()
    assert "\nVersion: 2.8.3+torch2.8\nRequires-Dist: torch==2.8.*\n" in text
    assert text.count("Version: ") == 2  # with Metadata-Version
    assert new.pop(f"{info}/RECORD")
    renamed = {name.replace("+cu128torch2.8.d", "+torch2.8.d"): data for name, data in old.items()}
    for name in ("METADATA", "RECORD"):
        renamed.pop(f"{info}/{name}")
    assert new == renamed
    assert variant["variants"] == {
        "cu128_sm80_90": {
            "nvidia": {"cuda_version_lower_bound": ["12.8"], "sm_arch": ["80_real", "90_real"]}
        }
    }


def test_a_variant_on_the_stable_abi_requires_no_release_of_torch(tmp_path: Path) -> None:
    """It is for later ones, too, which an installer would replace by that release."""
    (offer,) = offers_of([finished(tmp_path / "out")], untested=False)
    entry = offer.entry.model_copy(update={"stable": True})
    order = Order([replace(offer, entry=entry)])
    publish_wheels(Store(str(tmp_path / "index")), order, say=quiet)
    (made,) = (tmp_path / "index/files").rglob("*+torch2.8-*.whl.metadata")
    assert re.findall("(?m)^Requires-Dist: (.+)", made.read_text()) == ["einops", "torch"]


def test_a_description_that_speaks_of_versions_stays_as_it_is(tmp_path: Path) -> None:
    plain = cuda_wheel(tmp_path)
    text = b"Metadata-Version: 2.1\r\nName: demo_attn\r\nVersion: 2.8.3+cu128torch2.8\r\n"
    text += b"\r\n\xff Version: 1\r\n"
    made = rewritten(plain, tmp_path, text)
    with zipfile.ZipFile(made) as archive:
        found = archive.read("demo_attn-2.8.3+torch2.8.dist-info/METADATA")
    assert found.endswith(b"\r\n\r\n\xff Version: 1\r\n")
    assert found.count(b"2.8.3+torch2.8") == 1


def rewritten(plain: Path, folder: Path, metadata: bytes) -> Path:
    """The variant of a wheel with that METADATA."""
    info = "demo_attn-2.8.3+cu128torch2.8.dist-info"
    with zipfile.ZipFile(plain) as archive:
        files = {n: archive.read(n) for n in archive.namelist() if not n.endswith("RECORD")}
    files[f"{info}/METADATA"] = metadata
    with zipfile.ZipFile(plain, "w") as archive:
        rows = ""
        for name, data in files.items():
            archive.writestr(name, data)
            rows += f"{name},{digest(data)},{len(data)}\n"
        archive.writestr(f"{info}/RECORD", f"{rows}{info}/RECORD,,\n")
    made = variant_of(checked(plain), folder, "80")
    assert made is not None
    return made


def digest(data: bytes) -> str:
    value = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
    return f"sha256={value.rstrip('=')}"


@pytest.mark.parametrize(
    ("sass", "said"),
    [
        (("80", "90a"), ["80_real", "90_real"]),
        (("90", "90a"), ["90_real"]),
        (("100a", "80"), ["80_real"]),
        (("120f",), ["120_real"]),
    ],
)
def test_properties_never_say_too_much(sass: tuple[str, ...], said: list[str]) -> None:
    assert variant_properties("12.8", sass)["nvidia"]["sm_arch"] == said


def test_what_no_property_can_tell_is_published_plain(tmp_path: Path) -> None:
    assert variant_properties("12.8", ("100a", "120a")) == {}
    assert variant_properties("", ("80",)) == {}
    done = put(tmp_path / "index", finished(tmp_path / "out", archs="100a", tested_on="B200"))
    assert [one.name.label for one in done.fresh] == [""]


def test_one_label_means_one_thing(tmp_path: Path) -> None:
    """Wheels of one release for other GPUs have another label, for another Python the same."""
    runs = [
        finished(tmp_path / "out"),
        finished(tmp_path / "out", python="3.13"),
        finished(tmp_path / "out", python="3.11", archs="80;120"),
    ]
    done = put(tmp_path / "index", *runs)
    labels = {one.name.label for one in done.fresh if one.name.label}
    assert labels == {"cu128_sm80_90", "cu128_sm80_120"}
    (told_,) = (path for path in tree(tmp_path / "index") if path.endswith("-variants.json"))
    known = json.loads((tmp_path / "index" / told_).read_text())["variants"]
    assert known == {label: variant_properties("12.8", label[8:].split("_")) for label in labels}
    assert label_of("12.8", ("90", "80")) == "cu128_sm80_90"
    assert (variant_version("1.0.post1+cu128", ""), variant_version("1+x", "2.9")) == (
        "1.0.post1",
        "1+torch2.9",
    )


def test_old_pages_keep_what_they_link_to(tmp_path: Path) -> None:
    """Another variant gives the release another list of labels; the old one stays where it is."""
    put(tmp_path / "index", finished(tmp_path / "out"))
    old = tree(tmp_path / "index")
    put(tmp_path / "index", finished(tmp_path / "two", cuda="12.6"))
    new = tree(tmp_path / "index")
    assert {path: new[path] for path in old if path.startswith("files/")} == {
        path: data for path, data in old.items() if path.startswith("files/")
    }


def test_places_have_the_wheels_of_their_cell(tmp_path: Path) -> None:
    runs = [
        finished(tmp_path / "out"),
        finished(tmp_path / "out", torch="2.9"),
        finished(tmp_path / "out", torch="", local="cu128", requires=()),
    ]
    done = put(tmp_path / "index", *runs)
    found = {place: len(wheels) for place, wheels in index_views(done.catalogue).items()}
    assert found == {
        "simple": 3,
        "plain": 3,
        "cu128/torch2.8": 1,
        "cu128/torch2.9": 1,
        "cu128/any-torch": 1,
    }
    free = next(one for one in done.fresh if one.name.label and not one.torch)
    assert str(free.name.version) == "2.8.3"


@pytest.mark.parametrize(
    ("file", "label", "build"),
    [
        ("a_b-1.0-cp312-cp312-win_amd64.whl", "", ()),
        ("a_b-1.0-1-cp312-cp312-win_amd64.whl", "", (1, "")),
        ("a_b-1.0-cp312-cp312-win_amd64-cu128.whl", "cu128", ()),
        ("a_b-1.0-2x-cp312-cp312-win_amd64-x.y_z.whl", "x.y_z", (2, "x")),
    ],
)
def test_names_of_variants(file: str, label: str, build: tuple[Any, ...]) -> None:
    name = WheelName.read(file)
    assert (name.label, name.build, name.project) == (label, build, "a-b")


@pytest.mark.parametrize(
    "file",
    ["a.whl", "a-1-x.whl", "a-1-cp312-cp312-win_amd64-A.whl", "a" * 300, "a-x-py3-none-any.whl"],
)
def test_names_that_are_none(file: str) -> None:
    with pytest.raises(ValueError, match="name"):
        WheelName.read(file)


def test_pages_are_a_function_of_the_catalogue(tmp_path: Path) -> None:
    done = put(tmp_path / "index", finished(tmp_path / "out"))
    kept = parse_catalogue(done.catalogue.dump(), "")
    assert kept == done.catalogue
    assert render_index_pages(kept) == render_index_pages(done.catalogue)


def test_signed_records_have_no_variant(tmp_path: Path) -> None:
    info = "demo_attn-2.8.3+cu128torch2.8.dist-info"
    plain = cuda_wheel(tmp_path, more={f"{info}/RECORD.jws": b"{}"})
    with pytest.raises(AuditError, match="RECORD is signed"):
        variant_of(checked(plain), tmp_path, "80")


def test_a_wheel_without_a_name_is_refused(tmp_path: Path) -> None:
    code = {"x/_C.cp312-win_amd64.pyd": msvc(container((ELF, "80", 8), cuda="12.8"))}
    made = foreign(tmp_path, "x", "1.0", "cp312-cp312-win_amd64", files=code)
    renamed = made.rename(tmp_path / "x-2.0-cp312-cp312-win_amd64.whl")
    with pytest.raises(AuditError, match=r"METADATA x 1\.0"):
        check_copy(renamed, tmp_path)


def test_iis_serves_every_file_of_an_index(tmp_path: Path) -> None:
    """It knows no wheels, and refuses a plus sign in a path: 404.3 and 404.11."""
    run = finished(tmp_path / "out")
    publish_wheels(
        Store(str(tmp_path / "index")), Order(offers_of([run], untested=False)), say=quiet
    )
    config = ElementTree.fromstring((tmp_path / "index/web.config").read_bytes())
    own = {one.get("fileExtension") for one in config.iter("mimeMap")}
    removed = {one.get("fileExtension") for one in config.iter("remove")}
    assert own == removed  # one that it knows already would be an error of the server (500.19)
    known = {".html", ".xml", ".txt", ".config"}  # of these it never shows the last
    there = {path.suffix for path in (tmp_path / "index").rglob("*") if path.is_file()}
    assert there - known <= own
    assert next(config.iter("requestFiltering")).get("allowDoubleEscaping") == "true"


def older(room: Path) -> bytes:
    """The catalogue before a wheel was yanked."""
    path = room / "index/catalogue.json"
    before = path.read_bytes()
    file = next(one["file"] for one in json.loads(before)["wheels"] if not one["made_from"])
    publish_wheels(Store(str(room / "index")), Order(yank=file, because="it crashes"), say=quiet)
    assert path.read_bytes() != before
    return before


@pytest.mark.parametrize("what", ["older", "wheel", "metadata", "beside", "row", "unsigned", "key"])
def test_what_somebody_has_changed_in_an_index_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """By its next publish: other bytes of the same size, an older catalogue, another row or index.

    The last is whole: wheels, catalogue and pages, signed with another key.
    """
    root = tmp_path / "index"
    put(root, finished(tmp_path / "out"))
    path, before = root / "catalogue.json", older(tmp_path)
    found = json.loads(path.read_bytes())
    if what == "older":
        path.write_bytes(before)
    elif what == "key":
        shutil.rmtree(root)
        theirs = Sealer(Ed25519PrivateKey.generate())
        with monkeypatch.context() as patched:
            patched.setattr(
                "pipelines.publish.index.publishing.load_or_create_sealer", lambda: theirs
            )
            patched.setenv("XDG_CONFIG_HOME", str(tmp_path / "theirs"))
            put(root, finished(tmp_path / "evil", more={"demo_attn/x.py": b"evil = 1\n"}))
            for tracks in ("https://a.example/", "https://b.example/"):
                put(root, tracks=tracks)
    elif what in ("wheel", "metadata", "beside"):
        pattern = {"wheel": "**/*.whl", "metadata": "**/*.metadata", "beside": "**/*.audit.json"}
        file = next(root.glob(pattern[what]))
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    else:
        if what == "row":
            found["wheels"][0]["evidence"] = "R: run on a better Windows"
        else:
            found |= {"sealer": "", "signature": ""}
        path.write_text(json.dumps(found))
    with pytest.raises(ConfigError):
        put(root, finished(tmp_path / "two", cuda="12.6"))
