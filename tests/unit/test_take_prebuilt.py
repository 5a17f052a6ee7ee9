"""Wheels of others, taken into a run instead of a build."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from test_wheel_metadata import FILES, INFO, METADATA, NAME, pe, wheel

from pipelines.architectures.archs import parse
from pipelines.config import Config
from pipelines.errors import AuditError, ConfigError, LockError
from pipelines.hosts.base import Capabilities, Host
from pipelines.pipeline import run_test
from pipelines.prebuilt import candidates
from pipelines.prebuilt.candidates import Offer
from pipelines.recipe.load import load_recipe
from pipelines.recipe.model import Recipe
from pipelines.stages.collect import write_manifest
from pipelines.stages.prebuilt import audit_prebuilt, skipped, take_prebuilt
from pipelines.stages.work import Order, Work
from pipelines.toolchain.lock import Cache, load_lock

VERSION = NAME.split("-")[1].partition("+")[0]


def recipe(**keys: Any) -> Recipe:
    return load_recipe("flash-attn").model_copy(
        update={"project": "pkg", "version": VERSION, "torch": "2.8", "cuda": "13.0", **keys}
    )


def work_of(tmp_path: Path, made: Recipe) -> Work:
    config = Config.model_validate({"hosts": {"lab1": {"kind": "sandbox"}}, "out": str(tmp_path)})
    can = Capabilities(windows=True, msvc=True, gpu=False, publishable=True)
    host = SimpleNamespace(name="lab1", capabilities=can, evidence="W", existing=None)
    order = Order("lab1", "flash-attn", "3.11", parse("90"), None, VERSION, "2.8", "13.0")
    work = Work(order, config, made, cast(Host, host), Cache(load_lock(), tmp_path / "cache"))
    work.new_run()
    return work


def wheels_at(folder: Path, **files: bytes) -> Path:
    folder.mkdir()
    path = wheel(folder, {**FILES, **files})
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "SHA256SUMS").write_text(f"{digest}  {path.name}\n")
    return path


def test_a_wheel_is_taken_into_the_run(tmp_path: Path) -> None:
    source = wheels_at(tmp_path / "here")
    made = recipe(strategy="prebuilt", prebuilt=(str(source.parent),))
    work, detail = work_of(tmp_path, made), dict[str, Any]()
    taken = take_prebuilt(work, detail)
    assert taken == [work.run.path / "wheels" / NAME]
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    assert detail["prebuilt"]["sha256"] == detail["prebuilt"]["stated"] == digest
    assert detail["origin"] == f"prebuilt {source} sha256 {digest}"
    assert not (work.run.path / "prebuilt").exists()
    rows: dict[str, Any] = {}
    audit_prebuilt(work, taken, rows)
    names = [check["name"] for check in rows["wheels"][0]["checks"]]
    assert {"sha256", "RECORD", "device code", "runs on what was asked for"} <= {*names}
    assert json.loads(json.dumps(detail)) == detail
    work.run.close()


def test_what_is_wrong_inside_falls_to_the_next_and_then_to_a_build(tmp_path: Path) -> None:
    torch = METADATA.replace(b"\n\n", b"\nRequires-Dist: torch==2.7.0\n\n", 1)
    bad = wheels_at(tmp_path / "bad", **{f"{INFO}/METADATA": torch})
    good = wheels_at(tmp_path / "good")
    both = (str(bad.parent), str(good.parent))
    work = work_of(tmp_path, recipe(strategy="prebuilt-then-build", prebuilt=both))
    detail: dict[str, Any] = {}
    assert take_prebuilt(work, detail)
    assert "it requires torch==2.7.0" in detail["refused"][NAME]
    assert detail["prebuilt"]["place"] == str(good)
    work.run.close()

    work = work_of(tmp_path, recipe(strategy="prebuilt-then-build", prebuilt=both[:1]))
    detail = {}
    assert take_prebuilt(work, detail) is None
    assert detail["origin"].startswith(f"built: {NAME} is not used: ")
    assert not list(work.run.path.rglob("*.whl"))
    work.run.close()

    work = work_of(tmp_path, recipe(strategy="prebuilt", prebuilt=both[:1]))
    with pytest.raises(AuditError, match="it requires torch"):
        take_prebuilt(work, {})
    assert not (work.run.path / "prebuilt").exists()
    work.run.close()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"pkg/_C.cp311-win_amd64.pyd": pe()}, "device code"),
        ({"pkg/_C.cp311-win_amd64.pyd": b"\x7fELF" + bytes(64)}, "x64"),
    ],
)
def test_wheels_for_nothing_here_are_refused(
    tmp_path: Path, change: dict[str, bytes], says: str
) -> None:
    bad = wheels_at(tmp_path / "bad", **change)
    work = work_of(tmp_path, recipe(strategy="prebuilt", prebuilt=(str(bad.parent),)))
    with pytest.raises(AuditError, match=says):
        take_prebuilt(work, {})
    work.run.close()


def test_bytes_that_changed_since_they_were_summed(tmp_path: Path) -> None:
    source = wheels_at(tmp_path / "here")
    with source.open("ab") as file:
        file.write(b"x")
    work = work_of(tmp_path, recipe(strategy="prebuilt", prebuilt=(str(source.parent),)))
    with pytest.raises(AuditError, match="its sha256 is"):
        take_prebuilt(work, {})
    work.run.close()


def test_offline_no_index_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> list[Offer]:
        pytest.fail("the network was used")

    monkeypatch.setattr(candidates, "_index", never)
    monkeypatch.setattr(candidates, "obtain", never)
    source = wheels_at(tmp_path / "here")
    places = ("https://wheels.example/simple/", str(source.parent))
    work = work_of(tmp_path, recipe(strategy="prebuilt", prebuilt=places))
    work.cache.offline = True
    assert take_prebuilt(work, {})
    work.run.close()
    work = work_of(tmp_path, recipe(strategy="prebuilt", prebuilt=places[:1]))
    work.cache.offline = True
    with pytest.raises(ConfigError, match="nothing prebuilt fits"):
        take_prebuilt(work, {})
    work.run.close()
    with pytest.raises(LockError, match="nothing is fetched"):
        candidates.obtain_offer(Offer(NAME, f"https://wheels.example/{NAME}", "0" * 64), work.cache)


def test_an_index_whose_links_are_not_https(tmp_path: Path) -> None:
    cache = Cache(load_lock(), tmp_path / "cache")
    with pytest.raises(AuditError, match="which is not https"):
        candidates.obtain_offer(Offer(NAME, f"http://wheels.example/{NAME}", "0" * 64), cache)


def test_the_manifest_names_no_tools_that_were_not_used(tmp_path: Path) -> None:
    source = wheels_at(tmp_path / "here")
    made = recipe(strategy="prebuilt", prebuilt=(str(source.parent),))
    work, detail = work_of(tmp_path, made), dict[str, Any]()
    assert take_prebuilt(work, detail)
    work.run.note(origin=detail["origin"])
    manifest = json.loads(write_manifest(work).read_text())
    assert manifest["tools"] == {}
    assert manifest["inputs"]["origin"].startswith("prebuilt ")
    work.run.close()


def test_a_run_is_tested_for_its_own_architectures(tmp_path: Path) -> None:
    """Else the suite would say of a good wheel that it is wrong."""
    source = wheels_at(tmp_path / "here")
    work = work_of(tmp_path, recipe(strategy="prebuilt", prebuilt=(str(source.parent),)))
    work.order = replace(work.order, archs=parse("80;90"))
    with pytest.raises(ConfigError, match="is for 90, not 80;90") as caught:
        run_test(work)
    assert caught.value.advice == "Type: invoke test --archs '90'"
    work.run.close()


def test_none_fits(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    work = work_of(tmp_path, recipe(strategy="prebuilt", prebuilt=(str(empty),)))
    with pytest.raises(ConfigError, match="nothing prebuilt fits"):
        take_prebuilt(work, {})
    work.run.close()
    work = work_of(tmp_path, recipe(strategy="prebuilt-then-build", prebuilt=(str(empty),)))
    detail: dict[str, Any] = {}
    assert take_prebuilt(work, detail) is None
    assert "no wheels" in detail["origin"]
    work.run.close()
    work = work_of(tmp_path, recipe())
    assert take_prebuilt(work, detail) is None
    assert detail["origin"] == "built"
    work.run.close()


def test_the_audit_of_what_was_changed_meanwhile(tmp_path: Path) -> None:
    source = wheels_at(tmp_path / "here")
    work = work_of(tmp_path, recipe(strategy="prebuilt", prebuilt=(str(source.parent),)))
    taken = take_prebuilt(work, {})
    assert taken
    other = wheels_at(tmp_path / "other", **{"pkg/_C.cp311-win_amd64.pyd": pe()})
    shutil.copyfile(other, taken[0])
    rows: dict[str, Any] = {}
    with pytest.raises(AuditError, match="device code"):
        audit_prebuilt(work, taken, rows)
    assert rows["wheels"][0]["checks"]
    work.run.close()


def test_a_skip_says_why(tmp_path: Path) -> None:
    made = recipe(strategy="skip", skip="use xformers, or torch's own attention")
    work, detail = work_of(tmp_path, made), dict[str, Any]()
    said = skipped(work, detail)
    assert said == "flash-attn is skipped: use xformers, or torch's own attention"
    assert detail == {"skipped": said}
    assert skipped(work_of(tmp_path, recipe()), detail) is None
    work.run.close()
