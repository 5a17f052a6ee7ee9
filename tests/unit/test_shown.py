"""What was shown of a published wheel: audit, report, manifest and signature; and rebuilds."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import report_samples as samples
from indexes import finished, record
from loopback import listening
from pes import msvc
from plans import at_desk
from records import rewrite
from test_between_stages import good
from test_publish import catalogue, published
from test_published_at import AT
from test_rebuild import party, tree, we

from pipelines.cli import program
from pipelines.core.comparison import Comparison
from pipelines.core.errors import AuditError, ConfigError
from pipelines.core.files import sha256_of
from pipelines.publish.index.catalogue import Catalogue, Wheel
from pipelines.publish.rebuild.address import published_at
from pipelines.publish.rebuild.run import run_rebuild
from pipelines.record.results import AuditedFile, RebuildResult, SmokeResult
from pipelines.record.run import Run
from pipelines.reports.junit import read_pytest
from pipelines.stages.line import run_build
from pipelines.stages.manifest import write_manifest
from pipelines.toolchain import obtaining
from pipelines.toolchain.lock import Cache, load_lock

pytestmark = pytest.mark.usefixtures("own_directory")

Said = pytest.CaptureFixture[str]


@pytest.fixture
def built(tmp_path: Path) -> Run:
    """By the real stages, with all that a statement says."""
    line, _ = at_desk(tmp_path, good(tmp_path))
    run_build(line)
    return line.run


def sign(run: Run, tmp_path: Path, name: str = "key") -> None:

    key = tmp_path / f"{name}.pem"
    if not key.exists():
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
    assert program.run_command_line(["attest", str(run.path), "--key", str(key)]) == 0


def plain(tmp_path: Path) -> Wheel:
    rows = Catalogue.model_validate(catalogue(tmp_path)).wheels
    return next(one for one in rows if not one.name.label)


def beside(tmp_path: Path) -> dict[str, bytes]:
    """What the catalogue names, each with the hash that it has there."""
    row = plain(tmp_path)
    found = {k: (tmp_path / "index" / row.attached_url(k)).read_bytes() for k in row.attached}
    for kind, data in found.items():
        assert hashlib.sha256(data).hexdigest() == row.attached[kind]
    return {str(kind): data for kind, data in found.items()}


def test_audit_report_and_manifest_lie_beside_a_wheel(tmp_path: Path) -> None:
    run = finished(tmp_path / "out")
    assert published(tmp_path, str(run.path)) == 0
    found = beside(tmp_path)
    assert found.keys() == {"audit.json", "smoke.xml", "manifest.json"}
    row = plain(tmp_path)
    audited = AuditedFile.model_validate_json(found["audit.json"])
    assert (audited.sha256, len(audited.checks)) == (row.sha256, row.checks)
    assert len(read_pytest(found["smoke.xml"]).cases) == row.smoke.cases
    assert found["manifest.json"] == (run.path / "manifest.json").read_bytes()
    variant = next(one for one in catalogue(tmp_path)["wheels"] if one["made_from"])
    assert variant["attached"] == {}, "they speak of the plain wheel"


def test_a_report_is_written_anew(tmp_path: Path) -> None:
    """Neither a host's name nor markup of its own is published."""
    run = finished(tmp_path / "out")
    report = run.path / "smoke.xml"
    text = report.read_text().replace(
        "<testsuites", '<testsuites xmlns:h="http://www.w3.org/1999/xhtml"'
    )
    more = "<h:script>alert(1)</h:script></testsuite>"
    text = text.replace("</testsuite>", more).replace("<testsuite ", '<testsuite hostname="lab7" ')
    report.write_text(text)
    test = run.stages()["test"]
    assert isinstance(test.result, SmokeResult)
    result = test.result.model_copy(update={"report": sha256_of(report)})
    run.put_stage(test.model_copy(update={"result": result}))
    write_manifest(run)
    assert published(tmp_path, str(run.path)) == 0
    said = beside(tmp_path)["smoke.xml"].decode()
    assert "script" not in said
    assert "lab7" not in said


def fewer_cases(run: Run) -> None:
    report = run.path / "smoke.xml"
    text = report.read_text()
    cut = text.index("<testcase", text.index("<testcase") + 1)
    report.write_text(text[:cut] + "</testsuite></testsuites>")


def as_many_of_others(run: Run) -> None:
    """Another run's: its counts are those of the record, and the manifest knows its hash."""
    report, manifest = run.path / "smoke.xml", run.path / "manifest.json"
    was = sha256_of(report)
    report.write_text(report.read_text().replace("test_1", "test_of_another_wheel_1"))
    document = json.loads(manifest.read_text())
    (row,) = (row for row in document["files"] if row["sha256"] == was)
    row |= {"sha256": sha256_of(report), "size": report.stat().st_size}
    manifest.write_text(json.dumps(document, indent=2) + "\n")


@pytest.mark.parametrize(
    "damage",
    [
        lambda run: (run.path / "smoke.xml").unlink(),
        lambda run: (run.path / "smoke.xml").write_text("<html>"),
        fewer_cases,
        as_many_of_others,
    ],
)
def test_another_report_than_the_records_is_refused(
    tmp_path: Path, capsys: Said, damage: Any
) -> None:
    run = finished(tmp_path / "out")
    damage(run)
    assert published(tmp_path, str(run.path)) == AuditError.exit_code
    assert "the report of its smoke test cannot be published" in capsys.readouterr().err


def test_what_was_tested_later_gets_its_report(tmp_path: Path) -> None:
    run = finished(tmp_path / "out", tested_on="")
    assert published(tmp_path, str(run.path), "--untested") == 0
    assert "smoke.xml" not in beside(tmp_path)
    (path,) = (run.path / "wheels").glob("*.whl")
    record(run, path, "80;90", "H100")
    assert published(tmp_path, str(run.path)) == 0
    found = beside(tmp_path)
    assert "smoke.xml" in found
    assert found["manifest.json"] == (run.path / "manifest.json").read_bytes()
    (run.path / "smoke.xml").unlink()
    samples.stage(run, "test", "interrupted")
    write_manifest(run)
    assert published(tmp_path, str(run.path), "--untested") == 0
    assert beside(tmp_path) == found, "what was seen stays seen"


def test_a_signed_statement_is_published_with_its_manifest(tmp_path: Path, built: Run) -> None:
    assert published(tmp_path, str(built.path), "--untested") == 0
    assert "intoto.jsonl" not in beside(tmp_path)
    sign(built, tmp_path)
    assert published(tmp_path, str(built.path), "--untested") == 0
    found = beside(tmp_path)
    there = tmp_path / "downloads"
    there.mkdir()
    row = plain(tmp_path)
    for url in (row.url, row.attached_url("manifest.json"), row.attached_url("intoto.jsonl")):
        shutil.copy(tmp_path / "index" / url, there)
    public = tmp_path / "public.pem"

    subprocess.run(
        ["openssl", "pkey", "-in", tmp_path / "key.pem", "-pubout", "-out", public], check=True
    )
    assert program.run_command_line(["verify", str(there / row.file), "--key", str(public)]) == 0
    write_manifest(built)  # with another time: what was signed speaks of the one before
    assert beside(tmp_path) == found


def test_a_statement_of_another_manifest_is_refused(
    tmp_path: Path, built: Run, capsys: Said
) -> None:
    sign(built, tmp_path)
    built.note(source_sha256="ab" * 32, toolset="another")
    write_manifest(built)
    assert published(tmp_path, str(built.path), "--untested") == AuditError.exit_code
    assert "differs from the manifest" in " ".join(capsys.readouterr().err.split())


def test_a_statement_of_another_wheel_is_refused(tmp_path: Path, built: Run, capsys: Said) -> None:
    sign(built, tmp_path)
    (envelope,) = built.path.glob("*.intoto.jsonl")
    envelope.write_text('{"_type": "https://in-toto.io/Statement/v1"}\n')
    assert published(tmp_path, str(built.path), "--untested") == AuditError.exit_code
    assert "intoto.jsonl" in capsys.readouterr().err


def test_a_statement_that_nobody_signed_is_not_published_as_signed(
    tmp_path: Path, built: Run, capsys: Said
) -> None:
    (unsigned,) = built.path.glob("*.statement.json")
    shutil.copy(
        unsigned, unsigned.with_name(unsigned.name.replace(".statement.json", ".intoto.jsonl"))
    )
    assert published(tmp_path, str(built.path), "--untested") == AuditError.exit_code
    assert "it has no signature" in " ".join(capsys.readouterr().err.split())


def test_a_file_beside_that_is_gone_breaks_the_index(tmp_path: Path, capsys: Said) -> None:
    run = finished(tmp_path / "out")
    published(tmp_path, str(run.path))
    (tmp_path / "index" / plain(tmp_path).attached_url("audit.json")).unlink()
    assert published(tmp_path, str(run.path)) == ConfigError.exit_code
    assert "is damaged" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("name", "stable"), [("aoti_torch_get_dim", True), ("?empty@at@@YAXXZ", False), ("", False)]
)
def test_whether_later_torches_do_is_read_from_the_binaries(
    tmp_path: Path, name: str, stable: bool
) -> None:
    more = {"demo_attn/_D.pyd": msvc(imports={"torch_cpu.dll": [name]})} if name else None
    assert published(tmp_path, str(finished(tmp_path / "out", more=more).path)) == 0
    assert {one["stable"] for one in catalogue(tmp_path)["wheels"]} == {stable}


def again(tmp_path: Path, published_sha: str, verdict: Any, compared: str = "") -> Run:
    run = finished(tmp_path / "again", facts={"rebuilds": published_sha})
    one = Comparison(
        file="x.whl", published=compared or published_sha, rebuilt="cd" * 32, verdict=verdict
    )
    samples.stage(run, "rebuild", "passed", 1.0, RebuildResult(compared=one))
    return run


@pytest.mark.parametrize("verdict", ["identical", "different"])
def test_the_verdict_of_a_rebuild_is_published_and_its_wheel_is_not(
    tmp_path: Path, verdict: str
) -> None:
    published(tmp_path, str(finished(tmp_path / "out").path))
    before = plain(tmp_path)
    run = again(tmp_path, before.sha256, verdict)
    for _ in range(2):
        assert published(tmp_path, str(run.path)) == 0
        (rebuilt,) = plain(tmp_path).rebuilt
        assert (rebuilt.verdict, rebuilt.run) == (verdict, run.id)
        assert len(catalogue(tmp_path)["wheels"]) == 2


def test_verdicts_of_other_wheels_are_refused(tmp_path: Path, capsys: Said) -> None:
    published(tmp_path, str(finished(tmp_path / "out").path))
    before = catalogue(tmp_path)
    here = plain(tmp_path).sha256
    runs = {
        "the index has no such wheel": again(tmp_path, "ab" * 32, "identical"),
        "compared a different wheel": again(tmp_path / "two", here, "identical", "ab" * 32),
        "without a verdict": finished(tmp_path / "three", facts={"rebuilds": here}),
    }
    for said, run in runs.items():
        assert published(tmp_path, str(run.path)) == ConfigError.exit_code
        assert said in " ".join(capsys.readouterr().err.split())
    assert catalogue(tmp_path) == before


def test_a_verdict_of_another_controller_needs_its_key(tmp_path: Path, capsys: Said) -> None:
    """Else whoever edits a record could have a wheel called identical."""
    published(tmp_path, str(finished(tmp_path / "out").path))
    before = catalogue(tmp_path)
    run = again(tmp_path, plain(tmp_path).sha256, "identical")
    key = rewrite(run, """UPDATE facts SET value = '"W"' WHERE key = 'evidence'""").identity
    assert published(tmp_path, str(run.path)) == AuditError.exit_code
    assert key in capsys.readouterr().err
    assert published(tmp_path, str(run.path), "--trust", f"{key}=sandbox") == AuditError.exit_code
    assert catalogue(tmp_path) == before
    assert published(tmp_path, str(run.path), "--trust", f"{key}=windows") == 0


@pytest.mark.slow
def test_from_an_index_to_a_rebuild_and_its_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others only have the address of the manifest in the index."""
    first = run_build(party(tmp_path, "they", tree(tmp_path)))
    assert published(tmp_path, str(first), "--untested") == 0
    row = plain(tmp_path)
    with listening(SimpleHTTPRequestHandler, directory=tmp_path / "index") as address:
        real = obtaining._http

        def here(url: str, *rest: Any) -> None:
            real(f"{address}{url.removeprefix(AT)}", *rest)

        monkeypatch.setattr(obtaining, "_http", here)
        cache = Cache(load_lock(), tmp_path / "cache")
        found = published_at(f"{AT}/{row.attached_url('manifest.json')}", cache)
    assert found.wheel is not None
    assert found.sha256 == row.sha256
    line = we(tmp_path)
    run_rebuild(line, found)
    assert published(tmp_path, str(line.run.path)) == 0
    (rebuilt,) = plain(tmp_path).rebuilt
    assert (rebuilt.verdict, rebuilt.run) == ("identical", line.run.id)
