"""The sandbox's life and the main job on it, with genuine Windows binaries."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import sysconfig
import time
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import make_sandbox

from pipelines.core.architectures.archs import parse_arch_list
from pipelines.core.errors import (
    AuditError,
    AuthError,
    BuildError,
    HostError,
    StorageError,
)
from pipelines.core.finding import Finding
from pipelines.core.paths import PACKAGE
from pipelines.core.toolsets import MSVC, STUB, Toolset
from pipelines.diagnosis import diagnose
from pipelines.hosts.sandbox.host import RESTARTS, Sandbox
from pipelines.hosts.sandbox.image import make_image
from pipelines.hosts.sandbox.state import IN_USE, DamagedSandboxError
from pipelines.hosts.sandbox.wine import SEAL, Prefix
from pipelines.recipe.archmap import translate_archs
from pipelines.record.results import ProvisionResult, ResourceResult, SmokeResult
from pipelines.remote import facts, files
from pipelines.remote import process as remote_process
from pipelines.remote.safe_paths import tree_faults
from pipelines.session.base import DeadHostError
from pipelines.session.channel import over_winrs
from pipelines.session.transports.endpoint import Secret
from pipelines.stages.line import AUDIT, Line, run_build, run_provision, run_test
from pipelines.wheels.checking import Order
from pipelines.wheels.checks import check_wheel
from pipelines.wheels.metadata import WheelFacts, inspect_wheel


def processes_of(home: Path) -> list[str]:
    """Command lines of every process that belongs to the sandbox."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(home).encode() in text and int(entry.name) != os.getpid():
                found.append((entry / "cmdline").read_text().replace("\0", " "))
    return found


def provisioned(line: Line) -> tuple[ResourceResult, ...]:
    assert line.provisioned is not None
    found = line.provisioned.result
    assert isinstance(found, ProvisionResult)
    return found.resources


def test_provision_changes_nothing_the_second_time(line: Line) -> None:
    run_provision(line)
    assert all(row.ok for row in provisioned(line))
    run_provision(line)
    assert not any(row.changed for row in provisioned(line))


def test_the_main_job(line: Line) -> None:
    path = run_build(line)
    (wheel,) = (path / "wheels").glob("*.whl")
    assert wheel.name.endswith("+cu130.sandbox-cp311-cp311-win_amd64.whl")
    assert run_test(line) == path
    stages = line.run.stages()
    assert list(stages) == ["provision", "build", "collect", "audit", "test"]
    assert {stage.state for stage in stages.values()} == {"passed"}
    tested = line.run.result(SmokeResult)
    assert tested is not None
    assert tested.outcomes["passed"] > 20
    for name in ("junit.xml", "manifest.json", "build.log", "smoke.xml"):
        assert (path / name).stat().st_size > 0
    assert not list(path.rglob("*.part"))
    host = line.plan.host.lifecycle
    assert isinstance(host, Sandbox)
    for made in (host.prefix / "drive_c/b", path):
        names = [one.relative_to(made).as_posix() for one in made.rglob("*") if one.is_file()]
        assert len(names) > 10
        assert not tree_faults(names)
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["toolset"] == {"asked": "stand-in", "found": ["stand-in 14.0"]}


def test_every_directory_of_a_bare_host_was_made_the_one_way(line: Line) -> None:
    """By provisioning and by the build before this: others may not even read what is new there.

    Wine makes a directory without an access list of its own readable by everybody, as the image's.
    """
    sandbox = line.plan.host.lifecycle
    assert isinstance(sandbox, Sandbox)
    image = {path.name for path in make_image(sandbox.cache, "3.11", str).glob("drive_c/*")}
    drive = sandbox.prefix / "drive_c"
    made = {path.name: path for path in drive.iterdir() if path.name not in image}
    assert {"b", "t", "w", "tools", "cuda"} <= set(made)
    assert [name for name, path in made.items() if path.stat().st_mode & 0o007] == []


def test_every_user_of_a_shared_cache_can_copy_the_image(line: Line) -> None:
    sandbox = line.plan.host.lifecycle
    assert isinstance(sandbox, Sandbox)
    files = make_image(sandbox.cache, "3.11", str).rglob("*")
    closed = [path for path in files if not path.is_symlink() and not path.stat().st_mode & 0o004]
    assert closed == []


def test_what_built_a_wheel_is_read_from_genuine_binaries(line: Line) -> None:
    """One of the sandbox, and one that MSVC has built; each passed off as the other."""
    (built,) = (run_build(line) / "wheels").glob("*.whl")
    bought = line.plan.cache.fetch("markupsafe-cp311")
    published = replace(MSVC, stamp="")
    for path, true, lie, tool in (
        (built, STUB, MSVC, "stand-in 14"),
        (bought, published, STUB, "MSVC 14"),
    ):
        facts = inspect_wheel(path)
        right, wrong = toolset(facts, true), toolset(facts, lie)
        assert right.level == "ok"
        assert [one.rpartition(".")[0] for one in right.values] == [tool]
        assert wrong.failed
        assert f"was built with {true.name}, not with {lie.name}" in wrong.hint
        local = f"{facts.version.partition('+')[0]}+cu130{lie.stamp}"
        assert toolset(replace(facts, version=local), None).failed
        assert toolset(replace(facts, version=local), true).failed


def toolset(facts: WheelFacts, expected: Toolset | None) -> Finding:
    order = Order("win_amd64", "3.11", toolset=expected)
    (found,) = (one for one in check_wheel(facts, order=order) if one.id == "toolset")
    return found


def test_a_wheel_of_the_stand_in_does_not_pass_for_one_of_msvc(line: Line) -> None:
    (wheel,) = (run_build(line) / "wheels").glob("*.whl")
    plan = line.plan
    line.plan = replace(plan, supply=lambda: replace(plan.supply(), toolset=MSVC))
    try:
        with pytest.raises(AuditError, match="was built with stand-in, not with MSVC"):
            line.do(AUDIT)
    finally:
        line.plan = plan
    assert not wheel.exists()


def test_a_wheel_without_the_asked_device_code_is_rejected(line: Line) -> None:
    path = run_build(line)
    (wheel,) = (path / "wheels").glob("*.whl")
    plan = line.plan
    more = translate_archs(
        plan.recipe.arch_map, parse_arch_list("80;90"), plan.recipe.cuda, plan.recipe.name
    )
    line.plan = replace(plan, archs=more)
    try:
        with pytest.raises(AuditError, match="90"):
            line.do(AUDIT)
    finally:
        line.plan = plan
    assert not wheel.exists()
    assert (path / "rejected" / wheel.name).exists()


def test_a_failing_build_keeps_its_log(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = line.plan
    broken = {**plan.recipe.environment, "SMOKE_ATTENTION_ARCHS": "none-such"}
    recipe = plan.recipe.model_copy(update={"environment": broken})
    monkeypatch.setattr(line, "plan", replace(plan, recipe=recipe))
    with pytest.raises(BuildError, match="none-such"):
        run_build(line)
    assert b"none-such" in (line.run.path / "build.log").read_bytes()
    assert "none-such" in (line.run.path / "junit.xml").read_text()
    assert line.run.stages()["build"].state == "failed"


def test_what_provision_set_is_there_for_a_new_process(line: Line) -> None:
    run_provision(line)
    lines = list(line.session.stream(remote_process.stream, command=["cmd", "/c", "set"]))
    text = b"".join(item for item in lines if isinstance(item, bytes)).decode()
    assert "TEMP=C:\\t" not in text, "that is for what builds alone"
    assert "CUDA_PATH=C:\\cuda" in text


def test_no_heap_where_windows_has_its_shared_data(line: Line) -> None:
    """A process that has one at KUSER_SHARED_DATA is gone before its first instruction."""
    run_provision(line)
    sandbox = line.plan.host
    assert isinstance(sandbox, Sandbox)
    heaps = []
    for pid in Prefix(sandbox.home / "prefix")._processes():
        mapped = Path(f"/proc/{pid}/maps").read_text().splitlines()
        heaps += [row.partition(" ")[0] for row in mapped if row.endswith("[heap]")]
        assert any(row.startswith("7ffe0000-") for row in mapped), mapped
    spans = [[int(end, 16) for end in heap.split("-")] for heap in heaps]
    # Below it or far above, or none at all where glibc does without.
    assert not any(start <= 0x7FFE0000 < end for start, end in spans), heaps


def test_a_32_bit_program_has_failed(line: Line, tmp_path: Path) -> None:
    """There is no 32-bit Windows: it must not end with 0 as if it had run; diagnosed as what it is.

    That of 64 bits begins: it says what it misses.
    """
    layout, programs = line.plan.layout, Path(sysconfig.get_path("purelib"), "setuptools")
    directory = layout.join(layout.build_root, "bits")
    line.session.call(files.make_dirs, path=directory)
    sent = [layout.join(directory, f"cli-{bits}.exe") for bits in (64, 32)]
    for there in sent:
        line.session.put(programs / there.rpartition("\\")[2].rpartition("/")[2], there)
    code, text = line.session.call(remote_process.capture, command=[sent[0]], timeout=60)
    assert (code, "cli-64-script.py" in text) == (2, True)
    run = f"import subprocess; subprocess.run([{sent[1]!a}], check=True)"
    command = [layout.python, "-c", run]
    code, text = line.session.call(remote_process.capture, command=command, timeout=60)
    assert code == 1
    diagnosis = diagnose(text.splitlines())
    assert diagnosis is not None
    assert diagnosis.signature.id == "program-not-begun", text
    assert "32-bit" in diagnosis.signature.cause
    line.session.call(files.remove_tree, path=directory)


def test_two_side_by_side_and_nothing_left(tmp_path: Path) -> None:
    first, second = make_sandbox(tmp_path / "a"), make_sandbox(tmp_path / "b", listener="http")
    with first.connect() as one, second.connect() as two:
        assert one.call(facts.facts)["platform"] == "win32"
        assert two.call(facts.facts)["platform"] == "win32"
        assert first.start(ephemeral=True)["https"] != second.start(ephemeral=True)["https"]
        assert first.status() == "running"
    first.close()
    second.close()
    assert first.status() == second.status() == "stopped"
    assert processes_of(tmp_path) == []
    assert not list(tmp_path.glob("*/run/credentials"))


def kill_service(sandbox: Sandbox) -> None:
    state = sandbox.state()
    assert state is not None
    os.kill(state["pid"], signal.SIGKILL)
    deadline = time.monotonic() + 10
    while sandbox.status() in ("running", "changing") and time.monotonic() < deadline:
        time.sleep(0.02)


def test_a_crashed_sandbox_goes_on_with_its_files(tmp_path: Path) -> None:
    sandbox = make_sandbox(tmp_path / "s")
    with sandbox.connect() as session:
        session.put(Path(__file__), r"C:\mine.py")
        kill_service(sandbox)
        assert sandbox.status() == "crashed"
        assert len(processes_of(sandbox.home)) > 1, "Windows is left behind"
    again = make_sandbox(tmp_path / "s")
    with again.connect() as session:
        assert session.call(files.stat, path=r"C:\mine.py")
    again.close()
    sandbox.close()
    assert again.status() == "stopped"
    assert processes_of(sandbox.home) == []
    again.teardown()
    assert sandbox.status() == "absent"


def test_what_does_not_come_up_is_moved_aside_by_provisioning_alone(tmp_path: Path) -> None:
    sandbox = make_sandbox(tmp_path / "s")
    sandbox._make()
    (sandbox.prefix / "drive_c/mine").touch()
    for damage in (damage_registry, damage_seal, damage_python, make_older):
        damage(sandbox)
        with pytest.raises(DamagedSandboxError, match=r"damaged|of another release") as caught:
            sandbox.connect()
        assert "invoke provision" in caught.value.hint
        assert sandbox.status() in ("broken", "crashed", "stopped")
        sandbox.prepare()
        assert sandbox.status() == "running"
        sandbox.close()
        assert (sandbox.aside / "drive_c").is_dir()
        assert (sandbox.aside / "drive_c/mine").exists() is (damage is damage_registry)
    sandbox.teardown()
    assert not sandbox.home.exists()


def damage_registry(sandbox: Sandbox) -> None:
    (sandbox.prefix / "system.reg").write_bytes(b"")


def damage_seal(sandbox: Sandbox) -> None:
    (sandbox.prefix / SEAL).unlink()


def make_older(sandbox: Sandbox) -> None:
    """As an update of the project leaves one that is there."""
    seal = sandbox.prefix / SEAL
    seal.write_text(json.dumps(json.loads(seal.read_text()) | {"image": "0123456789abcdef"}))


def damage_python(sandbox: Sandbox) -> None:
    """Seen after a crash only."""
    sandbox.run.mkdir(exist_ok=True)
    (sandbox.run / IN_USE).touch()
    shutil.rmtree(sandbox.prefix / "drive_c/Python311/Lib/ctypes")


def test_a_host_that_dies_half_way_is_started_again(tmp_path: Path) -> None:
    sandbox = make_sandbox(tmp_path / "s")
    with sandbox.connect() as session:
        for _ in range(RESTARTS):
            kill_service(sandbox)
            assert sandbox.ended()
            session.put(Path(__file__), r"C:\x.bin")
            assert sandbox.ended() == ""
        kill_service(sandbox)
        with pytest.raises(DeadHostError, match=f"{RESTARTS + 1} times") as caught:
            session.put(Path(__file__), r"C:\y.bin")
        assert caught.value.exit_code == 5
    sandbox.teardown()


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sandbox = make_sandbox(tmp_path / "s", http_port=port)
        with pytest.raises(HostError, match=str(port)) as caught:
            sandbox.connect()
        assert "port" in caught.value.hint
    sandbox.teardown()


def test_a_wrong_password_is_refused(tmp_path: Path) -> None:
    sandbox = make_sandbox(tmp_path / "s")
    state = sandbox.start(ephemeral=True)
    endpoint = sandbox.endpoint(state)
    wrong = type(endpoint)(endpoint.url, endpoint.username, Secret("not-it"), ca=endpoint.ca)
    with pytest.raises(AuthError) as caught:
        over_winrs(wrong, sandbox.executable, "s")
    assert caught.value.exit_code == 6
    assert "not-it" not in str(caught.value)
    sandbox.close()
    sandbox.teardown()


def test_an_unwritable_cache_is_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> str:
        raise OSError(28, "No space left on device")

    sandbox = make_sandbox(tmp_path / "s")
    monkeypatch.setattr("shutil.copytree", full)
    with pytest.raises(StorageError, match="No space"):
        sandbox._make()
    assert not sandbox.home.joinpath("prefix").exists()


def test_ctrl_c_leaves_nothing_running(tmp_path: Path) -> None:
    config = tmp_path / "pipeline.yaml"
    config.write_text(
        f"hosts: {{sandbox: {{kind: sandbox, home: {tmp_path}/s}}}}\nout: {tmp_path}/out\n"
    )
    # A shell's background jobs ignore it, and what they start inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-m", "invoke", "build", "--archs", "75"],
        cwd=PACKAGE.parent,
        env={**os.environ, "WCW_CONFIG": str(config)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "nvcc.exe -c" in line:
            break
    process.send_signal(signal.SIGINT)
    rest = process.stdout.read()
    assert process.wait(30) == 130
    assert "Interrupted" in rest
    assert processes_of(tmp_path) == []
    with sqlite3.connect(next((tmp_path / "out").glob("*-cp311-cu130/record.sqlite"))) as record:
        states = dict(record.execute("SELECT name, state FROM stages").fetchall())
    assert states["build"] == "interrupted"
    make_sandbox(tmp_path / "s").teardown()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_on_the_host(tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(os.urandom(4 << 20))
    sandbox = make_sandbox(tmp_path / "s")
    with sandbox.connect() as session:
        disk = sandbox.home / "prefix/drive_c/disk"
        disk.mkdir()
        mount = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", disk],
            capture_output=True,
            check=False,
        )
        if mount.returncode:
            pytest.skip(f"no disk to fill: {mount.stderr.decode()}")
        try:
            with pytest.raises(StorageError, match="the host's disk is full") as caught:
                session.put(big, r"C:\disk\big.bin")
            assert caught.value.exit_code == 11
            assert list(disk.iterdir()) == []
        finally:
            subprocess.run(["umount", "--lazy", disk], check=True)
    sandbox.close()
    sandbox.teardown()
