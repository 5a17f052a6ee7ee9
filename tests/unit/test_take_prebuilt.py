"""Wheels of others, taken into a run instead of a build."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plans import Lab, line_for, plan_for
from wheels import FILES, INFO, METADATA, NAME, pe, wheel

from pipelines.core.architectures.archs import parse_arch_list
from pipelines.core.errors import AuditError, ConfigError, LockError
from pipelines.hosts.base import Capabilities
from pipelines.plan.prebuilt import candidates
from pipelines.plan.prebuilt.candidates import Offer
from pipelines.recipe.load import load_recipe
from pipelines.recipe.model import Recipe
from pipelines.record.results import (
    AuditResult,
    PrebuiltResult,
    SkipResult,
    SmokeResult,
    StageRecord,
)
from pipelines.reports.load import load_view
from pipelines.stages.line import AUDIT, Line, run_build, run_test
from pipelines.stages.manifest import write_manifest
from pipelines.stages.prebuilt import TAKE
from pipelines.toolchain.lock import Cache, load_lock

VERSION = NAME.split("-")[1].partition("+")[0]


def recipe(**keys: Any) -> Recipe:
    return load_recipe("flash-attn").model_copy(
        update={"project": "pkg", "version": VERSION, "torch": "2.8", "cuda": "13.0", **keys}
    )


def line_of(tmp_path: Path, made: Recipe) -> Line:
    can = Capabilities(windows=True, msvc=True, gpu=False, publishable=True)
    host = Lab()
    host.capabilities = can
    line = line_for(plan_for(tmp_path, host, made, recipe="flash-attn", archs="90", python="3.11"))
    line.begin_run()
    return line


def take(line: Line) -> PrebuiltResult:
    done = line.do(TAKE)
    assert isinstance(done, PrebuiltResult)
    return done


def wheels_at(folder: Path, **files: bytes) -> Path:
    folder.mkdir()
    path = wheel(folder, {**FILES, **files})
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "SHA256SUMS").write_text(f"{digest}  {path.name}\n")
    return path


def test_a_wheel_is_taken_into_the_run(tmp_path: Path) -> None:
    source = wheels_at(tmp_path / "here")
    line = line_of(tmp_path, recipe(strategy="prebuilt", prebuilt=(str(source.parent),)))
    done = take(line)
    assert (line.run.path / "wheels" / NAME).is_file()
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    assert done.taken is not None
    assert done.taken.sha256 == done.taken.stated == digest
    assert done.origin == line.run.facts().origin == f"prebuilt {source} sha256 {digest}"
    assert not (line.run.path / "prebuilt").exists()
    audited = line.do(AUDIT)
    assert isinstance(audited, AuditResult)
    names = {check.label for check in audited.files[0].checks}
    assert {"sha256", "RECORD", "device code", "runs on requested GPUs"} <= names
    assert audited.files[0].sha256 == digest
    line.close()


def test_the_whole_way_of_a_wheel_that_is_taken(tmp_path: Path) -> None:
    source = wheels_at(tmp_path / "here")
    line = line_of(tmp_path, recipe(strategy="prebuilt", prebuilt=(str(source.parent),)))
    path = run_build(line)
    assert list(line.run.stages()) == ["prebuilt", "audit"]
    assert "prebuilt" in (path / "junit.xml").read_text()
    view = load_view(line.run)
    assert view.verdict == "untested"
    assert view.headline.startswith("external or prebuilt and audited; the wheel was not")
    passed = SmokeResult(outcomes={"passed": 1})
    line.run.put_stage(StageRecord(name="test", state="passed", started=9e9, result=passed))
    assert load_view(line.run).verdict == "passed"
    line.run.put_stage(StageRecord(name="build", state="running", started=8e9))
    assert load_view(line.run).verdict == "unfinished"
    line.close()


def test_what_is_wrong_inside_falls_to_the_next_and_then_to_a_build(tmp_path: Path) -> None:
    torch = METADATA.replace(b"\n\n", b"\nRequires-Dist: torch==2.7.0\n\n", 1)
    bad = wheels_at(tmp_path / "bad", **{f"{INFO}/METADATA": torch})
    good = wheels_at(tmp_path / "good")
    both = (str(bad.parent), str(good.parent))
    line = line_of(tmp_path, recipe(strategy="prebuilt-then-build", prebuilt=both))
    done = take(line)
    assert "it requires torch==2.7.0" in done.refused[NAME]
    assert done.taken is not None
    assert done.taken.place == str(good)
    line.close()

    line = line_of(tmp_path, recipe(strategy="prebuilt-then-build", prebuilt=both[:1]))
    done = take(line)
    assert done.taken is None
    assert done.origin.startswith(f"built: {NAME} is not used: ")
    assert not list(line.run.path.rglob("*.whl"))
    line.close()

    line = line_of(tmp_path, recipe(strategy="prebuilt", prebuilt=both[:1]))
    with pytest.raises(AuditError, match="it requires torch"):
        take(line)
    kept = line.run.result(PrebuiltResult)
    assert kept is not None
    assert NAME in kept.refused, "what was refused is in the record of the failure too"
    assert not (line.run.path / "prebuilt").exists()
    line.close()


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
    line = line_of(tmp_path, recipe(strategy="prebuilt", prebuilt=(str(bad.parent),)))
    with pytest.raises(AuditError, match=says):
        take(line)
    line.close()


def test_bytes_that_changed_since_they_were_summed(tmp_path: Path) -> None:
    source = wheels_at(tmp_path / "here")
    with source.open("ab") as file:
        file.write(b"x")
    line = line_of(tmp_path, recipe(strategy="prebuilt", prebuilt=(str(source.parent),)))
    with pytest.raises(AuditError, match="its sha256 is"):
        take(line)
    line.close()


def test_offline_no_index_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> list[Offer]:
        pytest.fail("the network was used")

    monkeypatch.setattr(candidates, "_index", never)
    monkeypatch.setattr(candidates, "download_from_sources", never)
    source = wheels_at(tmp_path / "here")
    places = ("https://wheels.example/simple/", str(source.parent))
    line = line_of(tmp_path, recipe(strategy="prebuilt", prebuilt=places))
    assert line.plan.cache.offline
    assert take(line).taken
    line.close()
    line = line_of(tmp_path, recipe(strategy="prebuilt", prebuilt=places[:1]))
    with pytest.raises(ConfigError, match="no prebuilt wheel fits"):
        take(line)
    line.close()
    offer = Offer(NAME, f"https://wheels.example/{NAME}", "0" * 64)
    with pytest.raises(LockError, match="is not cached, and --offline"):
        candidates.obtain_offer(offer, line.plan.cache)


def test_an_index_whose_links_are_not_https(tmp_path: Path) -> None:
    cache = Cache(load_lock(), tmp_path / "cache")
    with pytest.raises(AuditError, match="which is not https"):
        candidates.obtain_offer(Offer(NAME, f"http://wheels.example/{NAME}", "0" * 64), cache)


def test_the_manifest_names_no_tools_that_were_not_used(tmp_path: Path) -> None:
    source = wheels_at(tmp_path / "here")
    line = line_of(tmp_path, recipe(strategy="prebuilt", prebuilt=(str(source.parent),)))
    take(line)
    write_manifest(line.run)
    manifest = json.loads((line.run.path / "manifest.json").read_text())
    assert manifest["tools"] == {}
    assert manifest["inputs"]["origin"].startswith("prebuilt ")
    line.close()


def test_a_run_is_tested_for_its_own_architectures(tmp_path: Path) -> None:
    """Else the suite would say of a good wheel that it is wrong."""
    source = wheels_at(tmp_path / "here")
    line = line_of(tmp_path, recipe(strategy="prebuilt", prebuilt=(str(source.parent),)))
    target = line.plan.target.model_copy(update={"archs": parse_arch_list("80;90")})
    line.plan = replace(line.plan, target=target)
    with pytest.raises(ConfigError, match="is for archs 90, not 80;90") as caught:
        run_test(line)
    assert caught.value.hint == "Type: invoke test --archs '90'"
    line.close()


def test_none_fits(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    line = line_of(tmp_path, recipe(strategy="prebuilt", prebuilt=(str(empty),)))
    with pytest.raises(ConfigError, match="no prebuilt wheel fits"):
        take(line)
    line.close()
    line = line_of(tmp_path, recipe(strategy="prebuilt-then-build", prebuilt=(str(empty),)))
    done = take(line)
    assert done.taken is None
    assert "no wheels" in done.origin
    line.close()


def test_the_audit_of_what_was_changed_meanwhile(tmp_path: Path) -> None:
    source = wheels_at(tmp_path / "here")
    line = line_of(tmp_path, recipe(strategy="prebuilt", prebuilt=(str(source.parent),)))
    take(line)
    other = wheels_at(tmp_path / "other", **{"pkg/_C.cp311-win_amd64.pyd": pe()})
    shutil.copyfile(other, line.run.path / "wheels" / NAME)
    with pytest.raises(AuditError, match="its sha256 is"):
        line.do(AUDIT)
    line.close()


def test_a_skip_says_why(tmp_path: Path) -> None:
    made = recipe(strategy="skip", skip="use xformers, or torch's own attention")
    line = line_of(tmp_path, made)
    run_build(line)
    found = line.run.result(SkipResult)
    said = "flash-attn is skipped: use xformers, or torch's own attention"
    assert found == SkipResult(skipped=said)
    assert line.run.facts().origin == said
    assert run_test(line) == line.run.path, "there is nothing to test"
    assert list(line.run.stages()) == ["skip"]
    view = load_view(line.run)
    assert (view.verdict, view.headline) == (
        "untested",
        "not built: the recipe skips this cell",
    )
    line.close()
