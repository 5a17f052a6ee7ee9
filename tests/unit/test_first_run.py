"""``scripts/first_run.py`` with stand-ins for its programs, and the import of what it leaves."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import report_samples as samples
import yaml
from typed import calls

from pipelines.core.errors import AuditError, ConfigError
from pipelines.core.evidence import Evidence
from pipelines.core.paths import PACKAGE
from pipelines.hosts.base import OpenOptions
from pipelines.hosts.local import config as local_config
from pipelines.hosts.local import host as local
from pipelines.hosts.local.config import LocalHost
from pipelines.hosts.winrm.host import WindowsHost
from pipelines.record.results import HostFacts, SmokeResult
from pipelines.record.run import Run
from pipelines.toolchain.lock import Cache, load_lock
from scripts.reference import first_run as importing
from scripts.reference.levels import WindowsRun, levels_page, load

ROOT = PACKAGE.parent
SCRIPT = importing._script(ROOT)
EVIDENCE = ROOT / "docs/evidence"
IDS = [step.id for step in SCRIPT.STEPS]
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/first-run.yml").read_text("utf-8"))


# -- the steps ------------------------------------------------------------------------------------


def test_steps_follow_what_they_need_within_the_time_of_a_job() -> None:
    assert len({*IDS}) == len(IDS)
    for at, step in enumerate(SCRIPT.STEPS):
        assert {*step.needs} <= {*IDS[:at]}, step.id
    minutes = sum(step.minutes for step in SCRIPT.STEPS)
    assert minutes + 20 <= WORKFLOW["jobs"]["windows"]["timeout-minutes"]
    page = (ROOT / "docs/start/first-run.md").read_text("utf-8")
    assert f"{minutes} minutes in all" in page
    for name in IDS:
        assert name in page, name


@pytest.mark.parametrize("step", SCRIPT.STEPS, ids=IDS)
def test_the_program_takes_each_command(step: Any) -> None:
    for command in step.commands:
        if command.startswith("{wcw} "):
            calls(command.removeprefix("{wcw} "))
            host = command.partition("--host ")[2].split()[0]
            known = {"runner": ".github/runner.yaml", "real": ".github/windows-winrm.yaml"}
            assert step.config == known.get(host, "host.yaml")
        for word in command.split():
            if word.endswith((".ps1", ".py")):
                assert (ROOT / word).is_file(), word


def test_the_workflow_needs_no_input_and_runs_the_script() -> None:
    inputs = WORKFLOW[True]["workflow_dispatch"]["inputs"]
    assert {name: one["default"] for name, one in inputs.items()} == {"runner": ""}
    (run,) = (s for s in WORKFLOW["jobs"]["windows"]["steps"] if s.get("name") == "Every step")
    assert '"scripts/first_run.py", "--full"' in run["run"]
    assert "env." not in json.dumps(WORKFLOW)
    assert "secrets." not in json.dumps(WORKFLOW)


# -- what the script does -------------------------------------------------------------------------

#: Notes its words; a command of the step that is to fail ends with 3.
_STAND_IN = """
import os, sys
words = " ".join(sys.argv[1:])
print("ran", words)
bad = os.environ.get("BAD")
sys.exit(int(os.environ.get("CODE", "3")) if bad and bad in words else 0)
"""


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every program of the steps is one that only notes its words; every step may run."""
    program = tmp_path / "program.py"
    program.write_text(_STAND_IN)
    for name in SCRIPT.PROGRAMS:
        monkeypatch.setitem(SCRIPT.PROGRAMS, name, [sys.executable, str(program), name.strip("{}")])
    steps = [dataclasses.replace(step, unless=str) for step in SCRIPT.STEPS]
    monkeypatch.setattr(SCRIPT, "STEPS", steps)
    monkeypatch.setattr(SCRIPT, "ROOT", tmp_path / "checkout")
    monkeypatch.setattr(SCRIPT, "VENV", tmp_path / "checkout/.venv")
    (tmp_path / "checkout").mkdir()
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    return tmp_path / "first-run"


def left(output: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The manifest, and each file's text."""
    with zipfile.ZipFile(output / "first-run.zip") as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    text = texts.pop("first-run.json")
    assert (output / "first-run.json").read_text() == text
    manifest = json.loads(text)
    assert manifest["files"] == {k: sha256(v.encode()).hexdigest() for k, v in texts.items()}
    return manifest, texts


def verdicts(manifest: dict[str, Any]) -> dict[str, str]:
    return {row["id"]: row["verdict"] for row in manifest["steps"]}


@pytest.mark.slow
def test_every_step_runs_and_leaves_its_log(stand_ins: Path) -> None:
    assert SCRIPT.main(["--full", "--output", str(stand_ins)]) == 0
    manifest, texts = left(stand_ins)
    assert verdicts(manifest) == dict.fromkeys(IDS, "passed")
    assert {f"{name}.log" for name in IDS} <= {*texts}
    assert (
        "ran wcw provision build test --host runner --recipe causal-conv1d"
        in (texts["causal-conv1d.log"])
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bad", "step"),
    [(c.replace("{", "").replace("}", ""), s.id) for s in SCRIPT.STEPS for c in s.commands],
)
def test_a_failure_in_each_command_hides_no_other_step(
    stand_ins: Path, monkeypatch: pytest.MonkeyPatch, bad: str, step: str
) -> None:
    bad = bad.replace("powershell ", "powershell ").replace(" password", "")
    monkeypatch.setenv("BAD", bad)
    assert SCRIPT.main(["--full", "--output", str(stand_ins)]) == 1
    manifest, texts = left(stand_ins)
    found = verdicts(manifest)
    failed = [name for name, verdict in found.items() if verdict == "failed"]
    assert step in failed
    needs = {one.id: {*one.needs} for one in SCRIPT.STEPS}
    skipped: set[str] = set()
    for name in IDS:
        if needs[name] & ({*failed} | skipped):
            skipped.add(name)
    assert {name for name, verdict in found.items() if verdict == "skipped"} == skipped
    assert f"| {step} (" in texts["issue.md"]
    assert f"### {step}\n" in texts["issue.md"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "verdict", "exit_code"), [("14", "passed", 0), ("75", "unfinished", 0)]
)
def test_codes_that_are_no_failure(
    stand_ins: Path, monkeypatch: pytest.MonkeyPatch, code: str, verdict: str, exit_code: int
) -> None:
    monkeypatch.setenv("BAD", "wcw doctor --host runner" if code == "14" else "causal-conv1d")
    monkeypatch.setenv("CODE", code)
    assert SCRIPT.main(["--full", "--output", str(stand_ins)]) == exit_code
    name = "doctor" if code == "14" else "causal-conv1d"
    assert verdicts(left(stand_ins)[0])[name] == verdict


def test_without_full_nothing_is_changed(stand_ins: Path) -> None:
    assert SCRIPT.main(["--output", str(stand_ins)]) == 0
    found = verdicts(left(stand_ins)[0])
    changing = {step.id for step in SCRIPT.STEPS if step.changes}
    assert {name for name, verdict in found.items() if verdict == "skipped"} == changing
    inside = SCRIPT.ROOT / "out/first-run"
    for refused in (stand_ins, inside):  # an earlier run, what would be copied into itself
        with pytest.raises(SystemExit):
            SCRIPT.main(["--output", str(refused)])
    assert not inside.exists()


def test_a_step_ends_when_its_time_is_up_and_so_do_its_children(tmp_path: Path) -> None:
    if sys.platform == "win32":
        pytest.skip("sh")
    mark = tmp_path / "mark"
    step = SCRIPT.Step("slow", "", 0.02, (f"sh -c '(sleep 4; touch {mark}) & sleep 60'",))
    runner = SCRIPT.Runner(tmp_path, [step], full=True)
    begun = time.monotonic()
    runner.run()
    assert runner.results["slow"].verdict == "timeout"
    assert time.monotonic() - begun < 30
    time.sleep(4)
    assert not mark.exists()


def test_logs_are_bounded_and_without_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SCRIPT, "MOST", 2000)
    text = f"print({str(Path.home() / 'x')!r}); [print('y' * 99) for _ in range(100)]"
    words = [sys.executable, "-c", text]
    monkeypatch.setattr(SCRIPT.Path, "home", lambda: Path("/home/somebody"))
    words[2] = words[2].replace(str(Path("/root")), "/home/somebody")
    with (tmp_path / "log").open("w+") as log:
        assert SCRIPT.run(words, {}, log, 30) == 0
        log.seek(0)
        kept = log.read()
    assert "somebody" not in kept.partition("\n")[2]
    assert len(kept) < 4000
    assert "are left out" in kept


def test_a_program_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    step = SCRIPT.Step("none", "", 1, ("no-such-program-anywhere",))
    runner = SCRIPT.Runner(tmp_path, [step], full=True)
    runner.run()
    assert (runner.results["none"].verdict, runner.results["none"].code) == ("failed", 127)


# -- the import -----------------------------------------------------------------------------------


def git(place: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *words]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with what the import reads, and one commit."""
    place = tmp_path_factory.mktemp("checkout")
    for name in ("scripts/first_run.py", "docs/evidence/levels.yaml"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, place / name)
    (place / "docs/evidence/windows-runs.yaml").write_text("[]\n")
    git(place, "init", "-q")
    git(place, "add", ".")
    git(place, "commit", "-qm", "all")
    return place


def record(out: Path, recipe: str, host: str, **changes: Any) -> Run:
    """A run as a Windows host leaves it."""
    about = {"recipe": recipe, "host": host, "evidence": Evidence.WRITTEN} | changes
    windows = str(about.pop("windows", "10.0.26100"))
    system = str(about.pop("system", "Windows 10.0.26100"))
    outcomes = about.pop("outcomes", {"passed": 9})
    created = about.pop("created", "2026-12-01T11:00:00+00:00")
    run = Run.create(out, samples.facts(**about))
    run.note(created=created, host=HostFacts(platform="win32", windows=windows))
    samples.stage(run, "build", "passed", 60.0, samples.built())
    result = SmokeResult(outcomes=outcomes, exit=0, step="pytest", system=system)
    samples.stage(run, "test", "passed", 9.0, result)
    return run


#: Step -> the recipe and host of what it builds.
BUILDS = {
    "smoke-attention": ("smoke-attention", "runner"),
    "smoke-attention-torch": ("smoke-attention-torch", "runner"),
    "causal-conv1d": ("causal-conv1d", "runner"),
    "flash-attn-stable": ("flash-attn-stable", "runner"),
    "flash-attn-shard": ("flash-attn", "runner"),
    "winrm": ("smoke-attention", "real"),
}


@dataclasses.dataclass
class Artifact:
    folder: Path
    commit: str
    manifest: dict[str, Any] = dataclasses.field(default_factory=dict)

    def pack(self) -> Path:
        """As the script packs it; the zip."""
        self.manifest["commit"] = self.manifest.get("commit", self.commit)
        SCRIPT.pack(self.folder, self.manifest, self.folder.parent / "first-run.zip")
        return self.folder.parent / "first-run.zip"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("recorded")
    for recipe, host in {*BUILDS.values()}:
        record(out, recipe, host)
    (out / "latest").unlink(missing_ok=True)
    return out


@pytest.fixture
def artifact(tmp_path: Path, checkout: Path, recorded: Path) -> Artifact:
    """Of a run in which every step passed, on GitHub."""
    folder = tmp_path / "artifact/files"
    folder.mkdir(parents=True)
    for name in IDS:
        (folder / f"{name}.log").write_text(f"$ {name}\n")
    shutil.copytree(recorded, folder / "out")
    step = {"verdict": "passed", "code": 0, "seconds": 1.0, "reason": ""}
    facts = {"system": "Windows", "version": "10.0.26100", "wine": False, "gpus": []}
    facts |= {"python": "3.12.1", "cores": 4, "visual_studio": ["17.14"], "docker": ""}
    manifest = {
        "schema": 1,
        "changed": False,
        "repository": "somebody/fork",
        "run": "https://github.com/somebody/fork/actions/runs/1",
        "ref": "refs/heads/main",
        "attempt": 1,
        "image": "win25 20261101.1",
        "full": True,
        "facts": facts,
        "started": "2026-12-01T10:00:00Z",
        "ended": "2026-12-01T13:00:00Z",
        "steps": [{"id": name} | step for name in IDS],
    }
    return Artifact(folder, git(checkout, "rev-parse", "HEAD").strip(), manifest)


def imported(artifact: Artifact, checkout: Path, place: Path) -> WindowsRun:
    """In a copy of the checkout."""
    copy = place / "copy"
    if not copy.exists():
        shutil.copytree(checkout, copy)
    return importing.import_run(artifact.pack(), copy, None)


def test_a_run_raises_what_it_has_shown(artifact: Artifact, checkout: Path, tmp_path: Path) -> None:
    entry = imported(artifact, checkout, tmp_path)
    assert entry.passed == tuple(IDS)
    levels, runs = load(tmp_path / "copy/docs/evidence")
    assert runs == (entry,)
    page = (tmp_path / "copy/docs/evidence/levels.md").read_text("utf-8")
    raised = [row for row in levels.capabilities if row.windows]
    assert page.count("| R: Windows 10.0.26100 (win25 20261101.1), [2026-12-01]") == len(raised) > 5
    assert page.count("not attested") == len(raised)
    with pytest.raises(ConfigError, match="imported before"):
        imported(artifact, checkout, tmp_path)


def test_a_step_that_failed_raises_nothing(
    artifact: Artifact, checkout: Path, tmp_path: Path
) -> None:
    for row in artifact.manifest["steps"]:
        if row["id"] == "winrm":
            row |= {"verdict": "failed", "code": 5}
    entry = imported(artifact, checkout, tmp_path)
    assert "winrm" not in entry.passed
    levels, _ = load(EVIDENCE)
    rows = {row.capability: row.level for row in levels.capabilities if "winrm" in row.windows}
    page = (tmp_path / "copy/docs/evidence/levels.md").read_text("utf-8")
    for capability, level in rows.items():
        assert f"| {capability} | {level} |" in page


def _edit_record(one: Artifact) -> None:
    import sqlite3

    path = next(one.folder.glob("out/*smoke-attention-*/record.sqlite"), None)
    path = path or next(one.folder.glob("out/*/record.sqlite"))
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE stages SET state = 'failed' WHERE name = 'build'")


def _replace(step: str, **changes: Any) -> Callable[[Artifact], None]:
    """The record of a step's build is another one."""
    recipe, host = BUILDS[step]

    def change(one: Artifact) -> None:
        for path in one.folder.glob("out/*/record.sqlite"):
            target = Run(path.parent).facts().target
            if (target.recipe, target.host) == (recipe, host):
                shutil.rmtree(path.parent)
        record(one.folder / "out", **({"recipe": recipe, "host": host} | changes))
        (one.folder / "out/latest").unlink(missing_ok=True)

    return change


def _manifest(**values: Any) -> Callable[[Artifact], None]:
    return lambda one: one.manifest.update(values)


def _facts(**values: Any) -> Callable[[Artifact], None]:
    return lambda one: one.manifest["facts"].update(values)


_ANOTHER = {"id": "gpu", "verdict": "passed", "code": 0, "seconds": 1.0, "reason": ""}
#: Each is consistent: every file's sha256 is that of the changed file.
LIES: dict[str, Callable[[Artifact], None]] = {
    "another commit": _manifest(commit="0" * 40),
    "a changed checkout": _manifest(changed=True),
    "Linux": _facts(system="Linux"),
    "Wine": _facts(wine=True),
    "Wine unknown": lambda one: one.manifest["facts"].pop("wine"),
    "a step that there is not": lambda one: one.manifest["steps"].append(dict(_ANOTHER)),
    "a step twice": lambda one: one.manifest["steps"].append(dict(one.manifest["steps"][0])),
    "no log": lambda one: (one.folder / "doctor.log").unlink(),
    "no records": lambda one: shutil.rmtree(one.folder / "out"),
    "an edited record": _edit_record,
    "of another recipe": _replace("causal-conv1d", recipe="gsplat"),
    "of another host": _replace("winrm", host="runner"),
    "a record of the sandbox": _replace("causal-conv1d", evidence=Evidence.BINARIES),
    "a record of Linux": _replace("causal-conv1d", windows="", evidence=Evidence.GPU),
    "a record without Windows": _replace("causal-conv1d", windows=""),
    "of another Windows": _replace("causal-conv1d", windows="10.0.20348"),
    "a suite on another Windows": _replace("causal-conv1d", system="Windows 10.0.20348"),
    "an earlier record": _replace("causal-conv1d", created="2026-11-30T11:00:00+00:00"),
    "a suite under Wine": _replace("causal-conv1d", system="Wine 10.0"),
    "a suite without cases": _replace("causal-conv1d", outcomes={"skipped": 9}),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_consistent_lie_is_refused(
    artifact: Artifact, checkout: Path, tmp_path: Path, lie: str
) -> None:
    LIES[lie](artifact)
    with pytest.raises((AuditError, ConfigError)):
        imported(artifact, checkout, tmp_path)
    assert load(tmp_path / "copy/docs/evidence")[1] == ()


def _rezip(archive: Path, change: Callable[[dict[str, bytes]], None]) -> None:
    with zipfile.ZipFile(archive) as opened:
        contents = {name: opened.read(name) for name in opened.namelist()}
    change(contents)
    with zipfile.ZipFile(archive, "w") as made:
        for name, data in contents.items():
            made.writestr(name, data)


EDITS: dict[str, Callable[[dict[str, bytes]], None]] = {
    "a file more": lambda files: files.update({"more.log": b""}),
    "a file less": lambda files: files.__delitem__("plan.log"),
    "another file": lambda files: files.update({"plan.log": b"edited"}),
    "no manifest": lambda files: files.__delitem__("first-run.json"),
    "a manifest that is none": lambda files: files.update({"first-run.json": b"[]"}),
    "an unknown key": lambda files: files.update(
        {"first-run.json": files["first-run.json"].replace(b'"changed"', b'"more": 1, "changed"')}
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_archive_is_refused(
    artifact: Artifact, checkout: Path, tmp_path: Path, edit: str
) -> None:
    archive = artifact.pack()
    _rezip(archive, EDITS[edit])
    with pytest.raises((AuditError, ConfigError)):
        importing.import_run(archive, checkout, None)


def test_names_that_lead_out_of_the_folder_are_refused(artifact: Artifact, tmp_path: Path) -> None:
    archive = artifact.pack()

    def change(files: dict[str, bytes]) -> None:
        manifest = json.loads(files["first-run.json"])
        manifest["files"]["../out.txt"] = sha256(b"x").hexdigest()
        files |= {"../out.txt": b"x", "first-run.json": json.dumps(manifest).encode()}

    _rezip(archive, change)
    with pytest.raises(AuditError, match="outside"):
        importing.unpack(archive, tmp_path / "place")
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.slow
def test_attestations_are_verified_by_sigstore(artifact: Artifact, checkout: Path) -> None:
    """GitHub's own, as in ``test_github_attestation.py``; of another file, it is refused."""
    bundle = ROOT / "tests/unit/attestation/reusable-workflow.sigstore.json"
    signer = "09b495c3f12c7881b3cc17209a327792065c1a1d"
    workflow = f"github/artifact-attestations-workflows/.github/workflows/attest.yml@{signer}"
    digest = "49a3aa6075e0f49f82843e74b5baa614ad2a588e6675612bf108a0a008c5ac25"
    caller, commit = "malancas/attest-demo", "95baf27389e83e6a5c48f42e190d48d7abcea19e"

    def code(digest: str, *words: str) -> int:
        return importing.verify(digest, bundle, *words, "--offline").returncode

    right = (digest, caller, commit, workflow)
    assert code(*right) == 0
    for at, wrong in enumerate(("0" * 64, "somebody/fork", "0" * 40, f"{workflow[:-1]}0")):
        assert code(*right[:at], wrong, *right[at + 1 :]) != 0
    with pytest.raises(AuditError):
        importing.import_run(artifact.pack(), checkout, bundle)


def test_the_hosts_of_the_steps_write_such_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the import asks of a record's level is what these hosts have on Windows."""
    for module in (local, local_config):
        monkeypatch.setattr(module, "WINDOWS", True)
    monkeypatch.setattr(local, "wine", lambda: None)
    runner = LocalHost.model_validate({"kind": "local", "gpu": True})
    opened = runner.open("runner", OpenOptions("3.11", Cache(load_lock())))
    assert opened.evidence is Evidence.WRITTEN
    assert WindowsHost.evidence is Evidence.WRITTEN


# -- the page -------------------------------------------------------------------------------------


def test_rows_name_steps_that_there_are() -> None:
    levels, runs = load(EVIDENCE)
    for row in levels.capabilities:
        assert {*row.windows} <= {*IDS}, row.capability
    page = levels_page(levels, runs)
    assert ("Nothing has reached R" in page) is not any(run.passed for run in runs)
