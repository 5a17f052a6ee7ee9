"""``invoke report`` and ``invoke compare``: runs by name and path, complete files, GitHub."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import report_samples as samples

from pipelines.cli.compare import run_compare
from pipelines.cli.find import find_runs
from pipelines.cli.report import run_report
from pipelines.core.errors import WORSE, ConfigError, StorageError
from pipelines.record.run import Run
from pipelines.reports.write import announce_outcome, write_run_reports


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)


def test_by_name(out: Path) -> None:
    first, second = samples.good(out), samples.failed_build(out)
    assert run_report([]) == second.path / "report.html"
    assert run_report(["latest"]).read_text().startswith("<!doctype html>")
    assert run_report([first.id]) == first.path / "report.html"
    assert "Passed: flash-attn" in (first.path / "report.html").read_text()
    assert (first.path / "summary.md").read_text().startswith("## ✅ passed")


def test_several_runs_in_one_page(out: Path) -> None:
    runs = [samples.good(out), samples.failed_build(out)]
    page = run_report([run.id for run in runs])
    assert page == out / "report.html"
    assert "1 of 2 runs passed" in page.read_text()
    twice = run_report([str(out), runs[0].id, str(runs[1].path)])
    assert "1 of 2 runs passed" in twice.read_text()


def test_no_run_is_left_out_where_there_are_many(out: Path) -> None:
    for number in range(2001):
        (out / f"{number}").mkdir(parents=True)
        (out / f"{number}/record.sqlite").touch()
    with pytest.raises(ConfigError, match="2001 runs"):
        find_runs(str(out))


def test_a_downloaded_run_needs_no_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = samples.good(tmp_path / "there")
    samples.good(tmp_path / "there")
    run.close()
    shutil.copytree(run.path, tmp_path / "artifacts" / "cell one")
    monkeypatch.setenv("WCW_CONFIG", str(tmp_path / "none.yaml"))
    page = run_report([str(tmp_path / "artifacts" / "cell one")])
    assert page == tmp_path / "artifacts" / "cell one" / "report.html"
    assert run_report([str(tmp_path / "artifacts")]) == page
    assert "All 2 runs passed" in run_report([str(tmp_path / "there")]).read_text()
    assert len(find_runs(str(tmp_path / "there"))) == 2  # "latest" is no third one


def test_what_is_no_run(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples.good(out)
    with pytest.raises(ConfigError, match="no run 'nonsense'"):
        run_report(["nonsense"])
    with pytest.raises(ConfigError, match="there is no directory"):
        run_report([str(tmp_path / "empty")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="neither it nor a directory in it"):
        run_report([str(tmp_path / "empty")])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="neither it nor a directory in it"):
        run_report(["empty"])


def test_a_damaged_run_among_others_is_no_pass(out: Path) -> None:
    samples.good(out)
    broken = samples.good(out)
    broken.close()
    for file in broken.path.glob("record.sqlite*"):
        file.write_bytes(b"damaged" * 500)
    page = run_report([str(out)]).read_text()
    assert "1 of 2 runs passed" in page
    assert "no readable record" in page


def test_a_directory_that_cannot_be_written(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = samples.good(out)

    def full(*_: object, **__: object) -> None:
        raise StorageError("no space", hint="Free some.")

    monkeypatch.setattr("pipelines.reports.write.write_atomic", full)
    with pytest.raises(StorageError, match="no space"):
        run_report([run.id])
    assert not list(run.path.glob("report.html*"))


def test_compare_prints_and_judges(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, failed = samples.good(out), samples.failed_build(out)
    assert run_compare(good.id, failed.id) == WORSE
    said = capsys.readouterr().out
    assert "worse" in said
    assert "passed" in said
    assert run_compare(failed.id, str(good.path)) == 0
    assert "worse" not in capsys.readouterr().out


def test_compare_wants_one_run_each(out: Path) -> None:
    samples.good(out)
    samples.good(out)
    with pytest.raises(ConfigError, match="2 runs") as caught:
        run_compare(str(out), "latest")
    assert all(run.id in caught.value.hint for run in find_runs(str(out)))


def test_compare_writes_nothing(out: Path) -> None:
    runs = [samples.good(out), samples.good(out)]
    before = sorted(out.rglob("*"))
    run_compare(runs[0].id, runs[1].id)
    assert [p for p in sorted(out.rglob("*")) if "sqlite-" not in p.name] == before


def test_every_report_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = samples.failed_smoke(tmp_path)
    assert write_run_reports(run) == run.path / "junit.xml"
    page = (run.path / "report.html").read_text()
    assert "test_backward[64]" in page
    assert "junit.xml" in page
    assert (run.path / "summary.md").is_file()
    assert capsys.readouterr().out == "", "it is told at the end of an order, once"
    announce_outcome(run)
    said = capsys.readouterr().out
    assert "failed  flash-attn 2.8.3" in said
    assert "::error" not in said
    again = run_report([str(run.path)]).read_text()
    assert again == page


@pytest.mark.parametrize("sample", ["good", "failed_build", "killed", "hostile"])
def test_reports_of_every_kind_of_run(tmp_path: Path, sample: str) -> None:
    run: Run = getattr(samples, sample)(tmp_path)
    write_run_reports(run)
    assert (run.path / "report.html").stat().st_size < 200_000


def test_github_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = samples.failed_smoke(tmp_path)
    step = tmp_path / "step.md"
    step.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(step))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    announce_outcome(run)
    assert step.read_text().startswith("before\n## ❌ failed")
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::")]
    assert len(lines) == 1  # the stage's own error is annotated by who prints it
    assert "test_backward[64]" in lines[0]
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "no" / "step.md"))
    run_report([str(run.path)])
    assert "step summary cannot be written" in capsys.readouterr().out


def test_no_line_of_a_host_is_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = samples.hostile(tmp_path)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setattr("pipelines.core.github.in_ci", True)
    write_run_reports(run)
    said = [line for line in capsys.readouterr().out.splitlines() if "::" in line or "##[" in line]
    assert all(line.startswith("::error ") for line in said)
