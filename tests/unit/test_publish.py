"""Which wheels are published: what is refused, and that nothing is written then."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import report_samples as samples
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fatbins import ELF, container
from indexes import cuda_wheel, finished, offers_of, record, served
from packaging.utils import parse_wheel_filename
from pes import stand_in
from plans import at_desk
from pypi_simple import ACCEPT_JSON_PREFERRED, PyPISimple
from records import rewrite
from test_between_stages import good

from pipelines.cli import program
from pipelines.core.errors import AuditError, ConfigError
from pipelines.core.evidence import HOSTS, PUBLISHING, Bridge, Evidence, GpuResult
from pipelines.core.files import sha256_of
from pipelines.hosts.container.backends import SandboxBackend, WindowsBackend
from pipelines.hosts.sandbox.host import Sandbox
from pipelines.hosts.winrm.host import WindowsHost
from pipelines.publish.index.catalogue import PREVIEW
from pipelines.publish.index.publishing import Order, publish_wheels
from pipelines.publish.index.store import Store
from pipelines.record.results import AuditedFile, AuditResult, BuildResult, ErrorResult, SmokeResult
from pipelines.record.run import Run
from pipelines.record.seal import Sealer
from pipelines.record.shards import ObjectSource, ShardsResult
from pipelines.stages.line import run_build
from pipelines.stages.manifest import write_manifest

Said = pytest.CaptureFixture[str]


pytestmark = pytest.mark.usefixtures("own_directory")


def published(tmp_path: Path, *words: str) -> int:
    return program.run_command_line(["publish", *words, "--to", str(tmp_path / "index")])


def catalogue(tmp_path: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((tmp_path / "index/catalogue.json").read_text())
    return told


def refused(tmp_path: Path, run: Run, capsys: Said, said: str, *words: str) -> None:
    """With 9, in these words; and there is nothing of an index afterwards."""
    assert published(tmp_path, str(run.path), *words) == AuditError.exit_code
    assert said in " ".join(capsys.readouterr().err.replace("│", "").split())
    assert not (tmp_path / "index/files").exists()
    assert not (tmp_path / "index/catalogue.json").exists()


def test_a_tested_wheel_is_published(tmp_path: Path, capsys: Said) -> None:
    run = finished(tmp_path / "out")
    assert published(tmp_path, str(run.path)) == 0
    assert "2 wheels published, 2 in all; 16 pages written" in capsys.readouterr().out
    plain, variant = catalogue(tmp_path)["wheels"]
    (kept,) = (run.path / "wheels").glob("*.whl")
    assert (tmp_path / "index" / plain["url"]).read_bytes() == kept.read_bytes()
    assert plain["evidence"].startswith("R: run on real Windows")
    assert plain["smoke"] == {
        "verdict": "passed",
        "why": "",
        "gpus": ["NVIDIA GeForce RTX 4090"],
        "archs": ["89"],
        "cases": 12,
    }
    assert variant["made_from"] == plain["sha256"]


def test_an_index_that_was_removed_is_named(tmp_path: Path, capsys: Said) -> None:
    """And what to remove for a new one at its place."""
    run, root = finished(tmp_path / "out"), tmp_path / "index"
    assert published(tmp_path, str(run.path)) == 0
    shutil.rmtree(root)
    assert published(tmp_path, str(run.path)) == ConfigError.exit_code
    said = " ".join(capsys.readouterr().err.replace("│", "").split())
    assert f"remove {root} from" in said


def test_an_index_client_reads_pages_and_metadata(tmp_path: Path) -> None:
    """By another's code: names, hashes, sizes, times, and METADATA whose hash is checked."""
    published(tmp_path, str(finished(tmp_path / "out").path), "--tracks", "https://else.where/s/")
    with served(tmp_path / "index") as root:
        for kind in ("simple", "plain", "cu128/torch2.8"):
            with PyPISimple(f"{root}/{kind}/", accept=ACCEPT_JSON_PREFERRED) as client:
                assert client.get_index_page().projects == ["demo-attn"]
                page = client.get_project_page("demo-attn")
                assert page.tracks == ["https://else.where/s/demo-attn/"]
                wheels = [one for one in page.packages if one.filename.endswith(".whl")]
                for one in wheels:
                    text = client.get_package_metadata(one, verify=True)
                    assert "Name: demo_attn" in text
                    client.download_package(one, tmp_path / "got", verify=True)
                assert len(wheels) == 1
    told = json.loads((tmp_path / "index/plain/demo-attn/index.json").read_text())
    (only,) = told["files"]
    assert told["meta"] == {"api-version": "1.2", "tracks": ["https://else.where/s/demo-attn/"]}
    assert told["versions"] == [str(parse_wheel_filename(only["filename"])[1])]
    assert (
        only["size"]
        == (tmp_path / "index/plain/demo-attn" / only["url"].replace("%2B", "+")).stat().st_size
    )
    assert only["yanked"] is False
    assert only["core-metadata"].keys() == {"sha256"}
    assert "dist-info-metadata" not in only, "which pip 22.3 to 23.0.1 stumble over"


UNTESTED: dict[str, tuple[dict[str, Any], str]] = {
    "never": ({"tested_on": ""}, "no smoke test has passed"),
    "other file": ({"smoke": {"sha256": "ab" * 32}}, "the smoke test ran with another file"),
    "import": ({"smoke": {"instead": "import"}}, "only the import of its modules was tested"),
    "skipped": ({"smoke": {"instead": "skipped"}}, "were skipped"),
    "no GPU": ({"smoke": {"gpus": ()}}, "the smoke test saw no GPU"),
    "nothing passed": ({"smoke": {"outcomes": {"skipped": 3}}}, "saw no GPU"),
    "older GPU": ({"tested_on": "RTX 2080"}, "(75), for which it has no machine code"),
    "newer GPU": ({"tested_on": "RTX 5090"}, "(120), for which it has no machine code"),
    "unknown GPU": ({"tested_on": "Banana 9"}, "Banana 9 (not known)"),
    "cut off": ({"smoke": {"state": "interrupted"}}, "no smoke test has passed"),
}


@pytest.mark.parametrize("how", UNTESTED)
def test_an_untested_wheel_is_refused_or_says_so(tmp_path: Path, capsys: Said, how: str) -> None:
    changes, why = UNTESTED[how]
    run = finished(tmp_path / "out", **changes)
    refused(tmp_path, run, capsys, why)
    assert published(tmp_path, str(run.path), "--untested") == 0
    capsys.readouterr()
    for wheel in catalogue(tmp_path)["wheels"]:
        assert wheel["smoke"]["verdict"] == "untested"
        assert why in wheel["smoke"]["why"]
    for page in (
        "index.html",
        "simple/demo-attn/index.html",
        "cu128/torch2.8/demo-attn/index.html",
    ):
        assert f"UNTESTED: {wheel['smoke']['why']}" in (tmp_path / "index" / page).read_text()


def test_a_wheel_that_was_untested_may_be_tested_later(tmp_path: Path) -> None:
    run = finished(tmp_path / "out", tested_on="")
    assert published(tmp_path, str(run.path), "--untested") == 0
    (path,) = (run.path / "wheels").glob("*.whl")
    record(run, path, "80;90", "H100")
    assert published(tmp_path, str(run.path)) == 0
    told = catalogue(tmp_path)
    assert {one["smoke"]["verdict"] for one in told["wheels"]} == {"passed"}
    assert len(told["wheels"]) == 2
    assert "UNTESTED" not in (tmp_path / "index/index.html").read_text()
    samples.stage(run, "test", "interrupted")
    write_manifest(run)
    assert published(tmp_path, str(run.path), "--untested") == 0
    assert catalogue(tmp_path) == told, "what was seen stays seen"


def test_an_older_state_of_a_run_is_refused(tmp_path: Path, capsys: Said) -> None:
    """A whole copy of its directory, from before it was tested once more: all of it is true."""
    run = finished(tmp_path / "out").path
    shutil.copytree(run, tmp_path / "older")
    samples.stage(Run(run), "test", "passed", 99.0, Run(run).result(SmokeResult))
    write_manifest(Run(run))
    assert published(tmp_path, str(run)) == 0
    told = catalogue(tmp_path)
    assert published(tmp_path, str(tmp_path / "older")) == AuditError.exit_code
    assert "an older state" in capsys.readouterr().err
    assert catalogue(tmp_path) == told
    assert published(tmp_path, str(run)) == 0


def failed_smoke(run: Run) -> None:
    samples.stage(
        run,
        "test",
        "failed",
        1.0,
        SmokeResult(),
        ErrorResult(kind="SmokeError", title="t", message="3 of 9 failed"),
    )


def audit_says(**changes: Any) -> Callable[[Run], None]:
    def change(run: Run) -> None:
        was = run.result(AuditResult)
        assert was is not None
        row = AuditedFile.model_validate(was.files[0].model_dump() | changes)
        samples.stage(run, "audit", result=AuditResult(files=(row,)))

    return change


def other_bytes(run: Run) -> None:
    """As good a wheel, which the manifest knows."""
    (path,) = (run.path / "wheels").glob("*.whl")
    cuda_wheel(path.parent, more={"demo_attn/more.py": b"evil = 1\n"})
    other_manifest(run, sha256=sha256_of(path), size=path.stat().st_size)


def other_manifest(run: Run, **changes: Any) -> None:
    told = json.loads((run.path / "manifest.json").read_text())
    told["files"][0] |= changes or {"sha256": "cd" * 32}
    (run.path / "manifest.json").write_text(json.dumps(told, indent=2) + "\n")


def rewritten(path: Path, member: str, data: bytes) -> None:
    """The same wheel with other bytes of one file, of which RECORD knows nothing."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, kept in (files | {member: data}).items():
            archive.writestr(name, kept)


def lying(member: str, data: bytes) -> Callable[[Run], None]:
    """The wheel says something else than its name; record and manifest know it so."""

    def change(run: Run) -> None:
        (path,) = (run.path / "wheels").glob("*.whl")
        rewritten(path, member, data)
        record(run, path, "80;90", "RTX 4090")

    return change


def of_stand_in(run: Run) -> None:
    """Linked by the sandbox's tools; name, record, manifest and test say MSVC and an H100."""
    code = b"".join(container((ELF, arch, 8), cuda="12.8") for arch in ("80", "90"))
    module = {"demo_attn/_C.cp312-win_amd64.pyd": stand_in(code)}
    record(run, cuda_wheel(run.path / "wheels", more=module), "80;90", "H100")


INFO = "demo_attn-2.8.3+cu128torch2.8.dist-info"
NEVER: dict[str, tuple[Callable[[Run], None], str]] = {
    "smoke failed": (failed_smoke, "its smoke test failed: 3 of 9 failed"),
    "audit failed": (lambda run: samples.stage(run, "audit", "failed"), "its audit did not pass"),
    "audit of other bytes": (other_bytes, "the file audited"),
    "manifest of other bytes": (other_manifest, "differs from the run's record: files"),
    "no manifest": (lambda run: (run.path / "manifest.json").unlink(), "differs from the run's"),
    "no wheel": (lambda run: next((run.path / "wheels").glob("*")).unlink(), "no audited wheel"),
    "given": (lambda run: run.note(given=True), "built by others"),
    "prebuilt": (lambda run: run.note(origin="an index"), "built by others"),
    "sandbox": (lambda run: run.note(publishable=False), "cannot be published"),
    "host unknown": (lambda run: run.note(publishable=None), "cannot be published"),
    "archs unknown": (audit_says(archs=None), "which GPU architectures the audit judged"),
    "other archs": (audit_says(archs="80;120"), "has no machine code for 120"),
    "no check": (audit_says(checks=()), "no checks were run"),
    "checks that could not look": (
        audit_says(
            checks=[
                samples.check("SASS", level, "75").model_dump()
                for level in ("unknown", "skipped", "warning")
            ]
        ),
        "no checks were run",
    ),
    "a check": (
        audit_says(checks=[samples.check("SASS", "error", "75").model_dump()]),
        "the audit found: SASS",
    ),
    "stand-in inside": (of_stand_in, "is marked as built by a stand-in"),
    "METADATA lies": (
        lying(f"{INFO}/METADATA", b"Metadata-Version: 2.1\nName: demo-attn\nVersion: 9.9\n\n"),
        "name and version: found METADATA demo-attn 9.9",
    ),
    "RECORD lies": (lying("demo_attn/__init__.py", b"import os\n"), "found 1 with different"),
}  # fmt: skip


@pytest.mark.parametrize("how", NEVER)
def test_what_is_never_published(tmp_path: Path, capsys: Said, how: str) -> None:
    change, said = NEVER[how]
    run = finished(tmp_path / "out")
    change(run)
    refused(tmp_path, run, capsys, said, "--untested")


def test_a_stamped_wheel_is_never_published(tmp_path: Path, capsys: Said) -> None:
    run = finished(tmp_path / "out", local="cu128torch2.8.sandbox.msvc")
    refused(tmp_path, run, capsys, "is marked as built by a stand-in", "--untested")


WINDOWS: dict[str, Any] = {
    "system": "Windows 10.0.26100",
    "gpus": (GpuResult(name="RTX 4090", capability="8.9", driver_model="WDDM"),),
}


def of_the_sandbox(out: Path, **smoke: Any) -> Run:
    """A stand-in's wheel, with what the suite saw that has run it."""
    facts = {"evidence": Evidence.BINARIES, "publishable": False}
    return finished(out, local="cu128torch2.8.sandbox", facts=facts, smoke=WINDOWS | smoke)


def test_a_wheel_of_the_sandbox_that_windows_has_run(tmp_path: Path) -> None:
    run = of_the_sandbox(tmp_path / "out")
    assert published(tmp_path, str(run.path)) == 0
    (wheel,) = catalogue(tmp_path)["wheels"]  # no variant, which would not say what built it
    assert wheel["evidence"].startswith("B: ")
    assert wheel["evidence"].endswith("its suite passed on Windows 10.0.26100")
    assert ".sandbox" in wheel["file"]


@pytest.mark.parametrize(
    "seen",
    [
        {"system": "Wine 10.0"},
        {"system": ""},
        {"gpus": ()},
        {"gpus": (*WINDOWS["gpus"], GpuResult(name="H100", capability="9.0"))},
        {"bridge": Bridge()},
        {"untested": ("2.15",)},
    ],
    ids=["wine", "unknown", "no-gpu", "driver", "bridge", "a-torch-left-out"],
)
def test_a_wheel_of_the_sandbox_that_windows_has_not_run(
    tmp_path: Path, capsys: Said, seen: dict[str, Any]
) -> None:
    run = of_the_sandbox(tmp_path / "out", **seen)
    refused(tmp_path, run, capsys, "cannot be published", "--untested")


def test_a_wheel_of_the_sandbox_that_windows_has_run_for_other_gpus(
    tmp_path: Path, capsys: Said
) -> None:
    turing = GpuResult(name="T4", capability="7.5", driver_model="TCC")
    run = of_the_sandbox(tmp_path / "out", gpus=(turing,))
    refused(tmp_path, run, capsys, "for which it has no machine code", "--untested")


def test_a_preview_is_marked_in_every_page_and_is_no_real_index(
    tmp_path: Path, capsys: Said
) -> None:
    run = of_the_sandbox(tmp_path / "out", system="Wine 10.0", gpus=())
    assert published(tmp_path, str(run.path), "--preview") == 0
    (wheel,) = catalogue(tmp_path)["wheels"]
    assert wheel["yanked"] == PREVIEW
    assert ".sandbox" in wheel["file"]
    root = tmp_path / "index"
    pages = [path for path in root.rglob("*") if path.name.endswith((".html", "index.json"))]
    assert len(pages) > 8
    for page in pages:
        assert "preview" in page.read_text("utf-8").lower(), page
    other = finished(tmp_path / "out", python="3.13")
    assert published(tmp_path, str(other.path)) == ConfigError.exit_code
    assert published(tmp_path, str(other.path), "--preview") == AuditError.exit_code
    yank = ("--yank", wheel["file"], "--because", "another reason")
    assert published(tmp_path, *yank) == ConfigError.exit_code, "it would no longer be a preview"
    assert catalogue(tmp_path)["wheels"] == [wheel]
    real = tmp_path / "real"
    assert published(real, str(other.path)) == 0
    assert published(real, str(run.path), "--preview") == ConfigError.exit_code
    assert not [one for one in catalogue(real)["wheels"] if one["yanked"]]
    text = (real / "index/cu128/torch2.8/index.html").read_text("utf-8")
    assert "PREVIEW" not in text
    assert "Requires-Python" not in text


def test_a_preview_refuses_what_is_wrong_with_a_wheel(tmp_path: Path, capsys: Said) -> None:
    """Only that a stand-in has built it, and that no GPU has run it, is no reason."""
    bad = of_the_sandbox(tmp_path / "out", state="failed")
    refused(tmp_path, bad, capsys, "its smoke test failed", "--preview")
    given = of_the_sandbox(tmp_path / "other")
    given.note(given=True)
    given.close()
    refused(tmp_path, given, capsys, "built by others", "--preview")


def test_the_page_for_variants_says_where_pip_finds_wheels(tmp_path: Path) -> None:
    run = finished(tmp_path / "out")
    assert published(tmp_path, str(run.path)) == 0
    for page in ("simple/index.html", "simple/demo-attn/index.html"):
        assert "pip finds nothing here" in (tmp_path / "index" / page).read_text("utf-8")
    assert "pip finds nothing" not in (tmp_path / "index/plain/index.html").read_text("utf-8")
    assert "This page is not" in (tmp_path / "index/index.html").read_text("utf-8")


def test_one_bad_run_of_many_publishes_none(tmp_path: Path, capsys: Said) -> None:
    finished(tmp_path / "out")
    bad = finished(tmp_path / "out", cuda="12.6", tested_on="")
    assert published(tmp_path, str(tmp_path / "out")) == AuditError.exit_code
    said = capsys.readouterr().err
    assert bad.id in said
    assert not (tmp_path / "index").exists()


def test_a_dry_run_writes_nothing_and_refuses_the_same(tmp_path: Path, capsys: Said) -> None:
    run = finished(tmp_path / "out")
    assert published(tmp_path, str(run.path), "--dry-run", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (len(told["published"]), told["dry_run"], told["generation"]) == (2, True, 0)
    assert not (tmp_path / "index").exists()
    other = finished(tmp_path / "two", more={"demo_attn/x.py": b"1\n"})
    assert published(tmp_path, str(run.path)) == 0
    assert published(tmp_path, str(other.path), "--dry-run") == AuditError.exit_code


def test_yanked_wheels_say_why_and_stay(tmp_path: Path) -> None:
    run = finished(tmp_path / "out")
    published(tmp_path, str(run.path))
    file = catalogue(tmp_path)["wheels"][0]["file"]
    assert published(tmp_path, "--yank", file, "--because", 'wrong <b>"numbers"') == 0
    assert {one["yanked"] for one in catalogue(tmp_path)["wheels"]} == {'wrong <b>"numbers"'}
    page = (tmp_path / "index/plain/demo-attn/index.html").read_text()
    assert 'data-yanked="wrong &lt;b&gt;&#34;numbers&#34;"' in page
    told = json.loads((tmp_path / "index/simple/demo-attn/index.json").read_text())
    assert told["files"][0]["yanked"] == 'wrong <b>"numbers"'
    assert published(tmp_path, "--yank", "no.whl", "--because", "x") == ConfigError.exit_code


def test_a_variant_of_a_yanked_wheel_is_yanked(tmp_path: Path) -> None:
    """Made by a later publish of the same wheel, which had none."""
    run = finished(tmp_path / "out")
    published(tmp_path, str(run.path), "--no-variants")
    (plain,) = catalogue(tmp_path)["wheels"]
    assert published(tmp_path, "--yank", plain["file"], "--because", "wrong numbers") == 0
    assert published(tmp_path, str(run.path)) == 0
    wheels = catalogue(tmp_path)["wheels"]
    assert [one["yanked"] for one in wheels] == ["wrong numbers"] * 2


def test_a_catalogue_that_was_emptied_is_refused(tmp_path: Path) -> None:
    """By whoever has no key, to have a yanked wheel offered again."""
    run = finished(tmp_path / "out")
    published(tmp_path, str(run.path))
    file = catalogue(tmp_path)["wheels"][0]["file"]
    published(tmp_path, "--yank", file, "--because", "wrong numbers")
    (tmp_path / "index/catalogue.json").write_text(json.dumps({"generation": 99}))
    assert published(tmp_path, str(run.path)) == ConfigError.exit_code
    assert catalogue(tmp_path) == {"generation": 99}


@pytest.mark.parametrize(
    "words",
    [
        ["publish", "latest"],
        ["publish", "--to", "index"],
        ["publish", "--to", "index", "--yank", "x"],
        ["publish", "latest", "--to", "github:o/r@t"],
        ["publish", "latest", "--to", "index", "--pages", "p"],
        ["publish", "latest", "--to", "banana://x/y"],
        ["publish", "out", "--to", "out/{run}/manifest.json"],
        ["publish", "--to", "index", "--tracks", "javascript:alert(1)"],
        ["publish", "nothing/there", "--to", "index"],
    ],
)  # fmt: skip
def test_orders_that_make_no_sense(tmp_path: Path, words: list[str]) -> None:
    run = finished(tmp_path / "out").path.name
    assert (
        program.run_command_line([word.format(run=run) for word in words]) == ConfigError.exit_code
    )
    assert not (tmp_path / "index").exists()


def test_every_further_word_is_a_run(tmp_path: Path) -> None:
    runs = [finished(tmp_path / "out", cuda=cuda) for cuda in ("12.6", "12.8", "13.0")]
    assert published(tmp_path, *[str(run.path) for run in runs]) == 0
    assert len(catalogue(tmp_path)["wheels"]) == 6


def test_gpus_of_the_family_count(tmp_path: Path) -> None:
    """Machine code for 8.0 runs on 8.6; the verdict names the card that was seen."""
    run = finished(tmp_path / "out", smoke={"gpus": (GpuResult(name="NVIDIA GeForce RTX 3090"),)})
    (offer,) = offers_of([run], untested=False)
    assert (offer.entry.smoke.verdict, offer.entry.smoke.archs) == ("passed", ("86",))


@pytest.mark.parametrize(("capability", "archs"), [("8.6", ("86",)), ("8.9", ("89",)), ("7.5", ())])
def test_a_gpus_own_word_counts_before_its_name(
    capability: str, archs: tuple[str, ...], tmp_path: Path
) -> None:
    """An RTX 2050 is an Ampere; its name is of Turing's."""
    gpu = GpuResult(name="NVIDIA GeForce RTX 3090", capability=capability)
    run = finished(tmp_path / "out", smoke={"gpus": (gpu,)})
    (offer,) = offers_of([run], untested=True)
    assert offer.entry.smoke.archs == archs


def test_nothing_of_a_run_is_trusted_twice(tmp_path: Path) -> None:
    """Its manifest was rewritten with the changed wheel: the audit still notices."""
    run = finished(tmp_path / "out")
    other_bytes(run)
    with pytest.raises(AuditError):
        write_manifest(run)
    with pytest.raises(AuditError, match="the file audited"):
        offers_of([run], untested=True)


def test_what_the_real_stages_leave_can_be_published(tmp_path: Path) -> None:
    """Build, collect, audit and manifest, as they are: no record of a test's own."""
    line, _ = at_desk(tmp_path, good(tmp_path))
    run_build(line)
    with pytest.raises(AuditError, match="no smoke test has passed"):
        offers_of([line.run], untested=False)
    (offer,) = offers_of([line.run], untested=True)
    audited = line.run.result(AuditResult)
    assert audited is not None
    assert offer.entry.sass == line.plan.archs.effective.sass == ("90a",)
    assert offer.wheel.sha256 == audited.files[0].sha256
    assert offer.entry.smoke.verdict == "untested"
    done = publish_wheels(Store(str(tmp_path / "index")), Order([offer]), say=lambda _: None)
    assert {one.name.label for one in done.fresh} == {"", "cu130_sm90"}


def resealed(run: Run, level: str, *, publishable: bool) -> str:
    """A record of another controller, which agrees with its manifest; its key."""
    key = rewrite(
        run,
        "UPDATE facts SET value = CASE key WHEN 'evidence' THEN ? ELSE ? END "
        "WHERE key IN ('evidence', 'publishable')",
        (json.dumps(level), json.dumps(publishable)),
    )
    write_manifest(run)
    return key.identity


@pytest.mark.parametrize(
    ("level", "publishable", "kinds"),
    [
        ("W", True, {"windows", "linux"}),
        ("G", True, {"linux"}),
        ("B", True, set()),
        ("R", True, set()),
    ],
)
def test_a_record_of_another_controller_is_worth_what_its_kind_of_host_is(
    tmp_path: Path, capsys: Said, level: str, publishable: bool, kinds: set[str]
) -> None:
    """Whatever it says, and even if sealed again: its key is trusted for kinds of hosts."""
    run = finished(tmp_path / "out")
    key = resealed(run, level, publishable=publishable)
    refused(tmp_path, run, capsys, key)
    assert published(tmp_path, str(run.path), "--trust", key) == ConfigError.exit_code
    taken = {
        (name, kind)
        for name in (key, "any", "0" * 64)
        for kind in HOSTS
        if published(tmp_path, str(run.path), "--dry-run", "--trust", f"{name}={kind}") == 0
    }
    assert taken == {(name, kind) for name in (key, "any") for kind in kinds}


def test_a_test_of_another_controller_is_worth_what_its_kind_of_host_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in is published where Windows has run it: only a controller that has one says so."""
    run = of_the_sandbox(tmp_path / "out")
    other = Sealer(Ed25519PrivateKey.generate())
    with monkeypatch.context() as theirs:
        theirs.setattr("pipelines.record.run.load_or_create_sealer", lambda: other)
        samples.stage(run, "test", "passed", 4.0, run.result(SmokeResult))
    write_manifest(run)
    for kind in ("sandbox", "linux", "windows"):
        code = published(tmp_path, str(run.path), "--trust", f"{other.identity}={kind}")
        assert code == (0 if kind == "windows" else AuditError.exit_code)


def test_a_wheel_linked_from_objects_of_another_controller_needs_its_key(tmp_path: Path) -> None:
    run = finished(tmp_path / "out", facts={"evidence": Evidence.WRITTEN})
    divided = ShardsResult(
        mode="link",
        lent=(ObjectSource(run="r", host="h", share="1/2", units=1, sealers=("ab" * 32,)),),
    )
    built = BuildResult(job="0123456789ab", directory="d", jobs=1, divided=divided)
    samples.stage(run, "build", result=built)
    write_manifest(run)
    assert published(tmp_path, str(run.path)) == AuditError.exit_code
    for kind in ("sandbox", "windows"):
        code = published(tmp_path, str(run.path), "--trust", f"{'ab' * 32}={kind}")
        assert code == (0 if kind == "windows" else AuditError.exit_code)


def test_kinds_of_hosts_are_worth_what_their_hosts_say() -> None:
    assert HOSTS["windows"] == {WindowsHost.evidence}
    assert HOSTS["sandbox"] == {Sandbox.evidence}
    assert not Sandbox.capabilities.publishable
    assert {*HOSTS} - {"sandbox"} == PUBLISHING
    assert (SandboxBackend.evidence, WindowsBackend.evidence) == (
        Sandbox.evidence,
        WindowsHost.evidence,
    )


def test_what_is_published_are_the_bytes_that_were_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another wheel in its place, once the first file of the index is written, changes nothing."""
    run = finished(tmp_path / "out")
    (path,) = (run.path / "wheels").glob("*.whl")
    expected, create = sha256_of(path), Store.create

    def swapped(self: Store, name: str, data: bytes) -> bool:
        cuda_wheel(path.parent, more={"demo_attn/more.py": b"evil = 1\n"})
        return create(self, name, data)

    monkeypatch.setattr(Store, "create", swapped)
    assert published(tmp_path, str(run.path)) == 0
    assert sha256_of(path) != expected
    (row,) = [one for one in catalogue(tmp_path)["wheels"] if not one["made_from"]]
    assert row["sha256"] == expected == sha256_of(tmp_path / "index" / row["url"])
