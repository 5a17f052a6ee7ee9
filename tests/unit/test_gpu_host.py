"""A sandbox with a bridge: how it is asked for, what refuses it, what is said of it."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plans import LAB
from test_config import refused
from test_gpu_driver import NODES, NONE, failing, seen
from test_gpu_selftest import CARD
from wheels import wheel_here

from pipelines.cli import lines
from pipelines.cli import plan as plan_command
from pipelines.cli.options import Shared
from pipelines.cli.program import run_command_line as typed
from pipelines.core.console import console
from pipelines.core.errors import ConfigError, HostError, PipelineError, SetupError
from pipelines.core.target import Target
from pipelines.doctor.run import run_diagnosis
from pipelines.hosts.base import GpuWay, OpenOptions, Supply
from pipelines.hosts.gpus import bridged_numbers, by_bridge
from pipelines.hosts.live import LiveSession, visible_gpu_capabilities
from pipelines.hosts.sandbox import health, image, powershell, wine
from pipelines.hosts.sandbox import host as sandbox_host
from pipelines.hosts.sandbox.bridge import attachment, building, driver
from pipelines.hosts.sandbox.bridge.driver import Driver
from pipelines.hosts.sandbox.bridge.problems import find_driver_problems
from pipelines.hosts.sandbox.config import SandboxHost
from pipelines.hosts.sandbox.host import Sandbox
from pipelines.hosts.sandbox.inventory import list_sandboxes
from pipelines.hosts.sandbox.state import State
from pipelines.hosts.sandbox.wine import SEAL, Wine
from pipelines.plan.config.model import Config, load_config
from pipelines.plan.matrix.buildplan import BuildPlan, Request, resolve_build_plan
from pipelines.plan.matrix.judge import host_rules
from pipelines.recipe.load import load_recipe
from pipelines.remote import compilecache
from pipelines.remote.inspection import nvml
from pipelines.stages import audit, jobs, kept
from pipelines.stages.dryrun import show_build, show_test
from pipelines.stages.line import Line, run_build, run_provision, run_test
from pipelines.stages.preflight import refuse_ungiven
from pipelines.toolchain.lock import Cache, load_lock

PLAIN = {"kind": "sandbox"}
GOOD = Driver(library=Path("/l"), version="580.1", cuda="13.0", gpus=(CARD,))


def settings(out: Path, **keys: Any) -> Config:
    hosts = {"sandbox": PLAIN | {"home": str(out / "sandbox")} | keys, "lab": LAB}
    return Config.model_validate({"hosts": hosts, "out": str(out / "out"), "offline": True})


def planned(out: Path, **keys: Any) -> BuildPlan:
    return resolve_build_plan(settings(out, **keys), Request())


def opened(out: Path, **keys: Any) -> Sandbox:
    host = (
        settings(out, **keys)
        .host("sandbox")
        .open("sandbox", OpenOptions("3.11", Cache(load_lock())))
    )
    assert isinstance(host, Sandbox)
    return host


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[Driver], None]:
    """What this machine's driver is found to be; its Wine is not looked for."""
    wines = Path("/wine")
    found_wine = Wine(wines, wines, wines, wines, "wine-8.0")
    monkeypatch.setattr(wine, "find_wine", lambda: found_wine)

    def put(found: Driver) -> None:
        monkeypatch.setattr(driver, "inspect_gpu_driver", lambda: found)

    return put


# -- how it is asked for ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "numbers", "count"),
    [("bridge", (), None), ("bridge:0", (0,), 1), ("bridge:2,0", (2, 0), 2)],
)
def test_what_may_be_given(given: str, numbers: tuple[int, ...], count: int | None) -> None:
    host = SandboxHost.model_validate(PLAIN | {"gpu": given})
    assert host.gpu == given
    assert bridged_numbers(given) == numbers
    way = by_bridge(given)
    assert (way.requested, way.count, way.visible, way.bridged) == (
        f"gpu: {given}",
        count,
        numbers,
        True,
    )
    expected = ",".join(map(str, numbers))
    assert way.environment.get("CUDA_VISIBLE_DEVICES", "") == expected
    assert by_bridge(False) == GpuWay()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("true", "expected bridge"),
        ("0", "expected bridge, bridge:0,1"),
        ("all", "expected bridge"),
        ("'bridge:'", "expected bridge"),
        ("'bridge: 0'", "expected bridge"),
        ("'bridge:0,'", "expected bridge"),
        ("'bridge:32'", "0 to 31"),
        ("'bridge:0,0'", "twice"),
        ("", "expected bridge"),
    ],
)
def test_what_may_not(tmp_path: Path, given: str, said: str) -> None:
    message = refused(tmp_path, f"hosts:\n  a: {{kind: sandbox, gpu: {given}}}\n")
    assert said in message
    assert "hosts.a.gpu" in message


def test_other_kinds_have_no_bridge(tmp_path: Path) -> None:
    assert "gpu" in refused(tmp_path, "hosts:\n  a: {kind: local, gpu: bridge}\n")
    said = refused(tmp_path, "hosts:\n  a: {kind: container, gpu: true}\n")
    assert "gpu: bridge" in said


def test_it_has_a_windows_of_its_own(tmp_path: Path) -> None:
    plain, bridged = opened(tmp_path), opened(tmp_path, gpu="bridge")
    assert (plain.home.name, bridged.home.name) == ("sandbox-py3.11", "sandbox-py3.11-gpu")
    assert (plain.capabilities.gpu, bridged.capabilities.gpu) == (False, True)
    assert plain.gpu_way == GpuWay()
    assert plain.bridge() is None
    assert {*bridged.tools} - {*plain.tools} == {"nvidia-cuda-runtime"}
    assert plain.evidence == bridged.evidence, "what a run has shown is told by its suite"


def test_both_are_of_the_host_that_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # this checkout may have a sandbox of its own
    for name in ("s-py3.11", "s-py3.11-gpu", "other-py3.11-gpu", "s-py3.11-gpus"):
        (tmp_path / name / "prefix").mkdir(parents=True)
    found = {Path(one.name).name: one.host for one in list_sandboxes({"mine": tmp_path / "s"})}
    assert found == {"s-py3.11": "mine", "s-py3.11-gpu": "mine"}


# -- the flag --------------------------------------------------------------------------------------


def flagged(tmp_path: Path, host: str) -> Any:
    path = tmp_path / "pipeline.yaml"
    path.write_text(f"hosts:\n  a: {host}\n  b: {{kind: sandbox}}\n")
    made = load_config(path).with_gpu("a")
    assert getattr(made.host("b"), "gpu") is False, "another host is as it was"  # noqa: B009
    return getattr(made.host("a"), "gpu")  # noqa: B009 - not every kind has it


LAB_KEYS = "kind: winrm, endpoint: 'https://h:5986/wsman', username: u, password_env: PW"


@pytest.mark.parametrize(
    ("host", "gpu"),
    [
        ("{kind: sandbox}", "bridge"),
        ("{kind: sandbox, gpu: false}", "bridge"),
        ("{kind: sandbox, gpu: 'bridge:1'}", "bridge:1"),
        ("{kind: local}", True),
        ("{kind: local, gpu: 0}", 0),
        (f"{{{LAB_KEYS}}}", True),
        (f"{{{LAB_KEYS}, gpu: [0, 1]}}", (0, 1)),
        ("{kind: container, image: windows}", True),
    ],
)
def test_a_flag_asks_for_it(tmp_path: Path, host: str, gpu: object) -> None:
    found = flagged(tmp_path, host)
    assert (type(found), found) == (type(gpu), gpu)


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("{kind: container}", "--gpu: host 'a': .*gpu: bridge"),
        (
            "{kind: container, image: windows, isolation: hyperv}",
            "--gpu: host 'a': .*hyperv and gpu",
        ),
        ("{kind: vm, windows: '2025', kvm: false}", "--gpu: host 'a': .*gpu requires kvm: true"),
    ],
)
def test_a_flag_for_what_can_have_none(tmp_path: Path, host: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        flagged(tmp_path, host)
    assert caught.value.hint


def test_a_kind_without_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = settings(tmp_path)
    bare = type("Bare", (type(made.host("lab")).__mro__[1],), {})
    config = made.model_copy(update={"hosts": {"x": bare(kind="bare")}})
    with pytest.raises(ConfigError, match="host 'x' is of kind bare, which has no GPU"):
        config.with_gpu("x")


def test_the_flag_is_of_the_host_of_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text("hosts: {sandbox: {kind: sandbox}, box: {kind: container}}\n")
    monkeypatch.setenv("WCW_CONFIG", str(path))
    for host in (None, "sandbox"):
        host_now = lines.effective_settings(Shared(gpu=True), host).host("sandbox")
        assert isinstance(host_now, SandboxHost)
        assert host_now.gpu == "bridge"
    plain = lines.effective_settings(Shared()).host("sandbox")
    assert isinstance(plain, SandboxHost)
    assert plain.gpu is False
    with pytest.raises(ConfigError, match="--gpu: host 'box'"):
        lines.effective_settings(Shared(gpu=True), "box")


# -- what is missing on this machine: one rule for all commands ------------------------------------


COMMANDS = ("provision", "build", "test", "provision build test", "doctor", "host start", "plan")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_machine_without_a_driver_is_refused_before_anything_is_done(
    command: str,
    tmp_path: Path,
    machine: Callable[[Driver], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def touched(*_: object, **__: object) -> None:
        raise AssertionError("something was fetched or started")

    monkeypatch.setattr("pipelines.recipe.sourcetree.SourceTree.fetch", touched)
    monkeypatch.setattr(image, "make_image", touched)
    monkeypatch.setattr(Cache, "fetch", touched)
    monkeypatch.setattr(Cache, "fetch_all", touched)
    monkeypatch.setattr(Sandbox, "connect", touched)
    host = f"{{kind: sandbox, home: '{tmp_path / 's'}'}}"
    (tmp_path / "pipeline.yaml").write_text(
        f"hosts: {{sandbox: {host}}}\nout: {tmp_path / 'out'}\n"
    )
    monkeypatch.setenv("WCW_CONFIG", str(tmp_path / "pipeline.yaml"))
    machine(seen(tmp_path, **NONE))
    code = typed([*command.split(), "--gpu"])
    said = " ".join("".join(capsys.readouterr()).split())
    if command == "test":  # there is no run yet, which is said first
        assert code != 0
        return
    assert "this machine has no NVIDIA driver: there is no libcuda.so.1" in said
    assert "nstall NVIDIA's driver" in said
    assert code == {"doctor": 14, "plan": 2}.get(command, SetupError.exit_code)
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "s-py3.11-gpu").exists()


@pytest.mark.parametrize(
    ("told", "numbers", "kind"),
    [
        (NONE, "", SetupError),
        (failing(46), "", HostError),
        ({}, ":3", ConfigError),
    ],
)
def test_the_class_of_the_error_is_that_of_the_lack(
    tmp_path: Path,
    machine: Callable[[Driver], None],
    told: dict[str, Any],
    numbers: str,
    kind: type[PipelineError],
) -> None:
    machine(seen(tmp_path, *NODES, **told))
    plan = planned(tmp_path, gpu=f"bridge{numbers}")
    line = Line(plan, LiveSession(plan.host))
    for work in (run_provision, run_build, show_test):
        with pytest.raises(kind) as caught:
            work(line)
        assert type(caught.value) is kind
    with pytest.raises(kind):
        opened(tmp_path, gpu=f"bridge{numbers}")._make()
    refuse_ungiven(plan, here=False)  # a wheelhouse is for another machine


def test_without_a_bridge_the_driver_is_nobodys_business(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def touched() -> None:
        raise AssertionError("the driver was asked")

    monkeypatch.setattr(driver, "inspect_gpu_driver", touched)
    plan = planned(tmp_path)
    assert plan.refused() == []
    assert plan.host.bridge() is None
    assert [*settings(tmp_path).host("sandbox").notes("sandbox")] == []


@pytest.mark.parametrize(
    ("driver_cuda", "wheel", "error", "said"),
    [
        (
            "12.8",
            "13.0",
            True,
            "this machine's driver knows CUDA 12.8 and the wheel is for CUDA 13.0",
        ),
        ("11.4", "12.8", True, "knows CUDA 11.4 and the wheel is for CUDA 12.8"),
        ("12.4", "12.8", False, "its PTX will not be compiled"),
        ("12.8", "12.8", None, ""),
        ("13.0", "12.8", None, ""),
        ("", "12.8", None, ""),
    ],
)
def test_a_driver_older_than_the_wheels_cuda(
    driver_cuda: str, wheel: str, error: bool | None, said: str
) -> None:
    supply = Supply(origin="x", driver=driver_cuda)
    found = host_rules(load_recipe("smoke-attention"), Target(host="s", cuda=wheel), supply)
    assert [(one.id, one.failed) for one in found] == (
        [] if error is None else [("driver-cuda", error)]
    )
    assert all(said in one.actual for one in found)
    assert all("install a driver for CUDA" in one.hint for one in found)
    assert all(one.raises == ("SetupError" if error else "ConfigError") for one in found)


def test_an_old_driver_refuses_and_a_nearly_new_one_does_not(
    tmp_path: Path, machine: Callable[[Driver], None]
) -> None:
    machine(seen(tmp_path, *NODES, cuda="12.8"))
    plan = planned(tmp_path, gpu="bridge")
    with pytest.raises(SetupError, match=r"sandbox: this machine's driver knows CUDA 12\.8"):
        run_build(Line(plan, LiveSession(plan.host)))


def test_others_that_lack_something_are_not_recommended() -> None:
    target = Target(host="s", cuda="99.9")
    lacking = Supply(origin="x", cuda=("13.0",))
    (lack,) = find_driver_problems(seen(Path("/nowhere"), **NONE))
    others = {"good": Supply(origin="x"), "bad": Supply(origin="x", missing=(lack,))}
    found = host_rules(load_recipe("smoke-attention"), target, lacking, lambda: others)
    assert "--host good" in found[0].hint
    assert "bad" not in found[0].hint


# -- its life --------------------------------------------------------------------------------------


class Counted:
    """In place of the bridge: what is done with it, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def require(self) -> Driver:
        self.done.append("required")
        return GOOD

    def install(self, _: Cache) -> None:
        self.done.append("installed")

    def test(self, python: str, pid: int) -> None:
        self.done.append(f"tested {python} {pid}")


def test_it_is_put_there_before_windows_starts_and_tested_after(
    tmp_path: Path, machine: Callable[[Driver], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(GOOD)
    sandbox, bridge = opened(tmp_path, gpu="bridge"), Counted()
    monkeypatch.setattr(sandbox, "_bridge", bridge)
    state = State(pid=7, https="h", http="h", certificate_sha256="")

    def made(*_: object) -> Path:
        bridge.done.append("image")
        return tmp_path

    def copied(_: Path, target: Path) -> None:
        target.mkdir(parents=True)
        (target / SEAL).write_text(json.dumps({"python": "3.11", "image": "today's"}))

    def process(*_: object, **__: object) -> Any:
        bridge.done.append("started")
        return type("Process", (), {"pid": 7})

    monkeypatch.setattr(Cache, "missing", lambda *_: [])
    monkeypatch.setattr(Cache, "fetch_all", lambda *_: None)
    monkeypatch.setattr(powershell, "find_powershell", lambda _: None)
    monkeypatch.setattr(image, "make_image", made)
    monkeypatch.setattr(image, "image_key", lambda *_: "today's")
    monkeypatch.setattr(image, "copy_image", copied)
    monkeypatch.setattr("subprocess.Popen", process)
    monkeypatch.setattr(sandbox_host, "await_service", lambda *_: state)
    monkeypatch.setattr(sandbox, "endpoint", lambda _: None)
    monkeypatch.setattr("pipelines.session.channel.over_winrs", lambda *_, again: again)
    again: Any = sandbox.connect()
    python = r"C:\Python311\python.exe"
    assert bridge.done == ["required", "image", "installed", "started", f"tested {python} 7"]
    sandbox._tied = None
    monkeypatch.setattr(sandbox, "state", lambda: state)
    bridge.done.clear()
    again()
    assert bridge.done == [f"tested {python} 7"], "which looks whether it was tested"


# -- what is said of it ----------------------------------------------------------------------------


def test_plan_and_dry_runs_say_what_there_is(
    tmp_path: Path,
    machine: Callable[[Driver], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BuildPlan, "offline_rules", lambda _: ())
    machine(GOOD)
    with console.capture() as shown:
        assert plan_command.run_plan(settings(tmp_path, gpu="bridge"), Request()) == 0
    said = " ".join(shown.get().split())
    assert "GPU through a bridge: GPU 0: NVIDIA Pretended (8.9, 24 GiB); driver 580.1" in said
    assert "bridge: not built yet; it is built and tested when the sandbox starts" in said
    with console.capture() as shown:
        plan_command.run_plan(settings(tmp_path), Request())
    assert "bridge" not in shown.get()
    plan = planned(tmp_path, gpu="bridge")
    line = Line(plan, LiveSession(plan.host))
    show_build(line)
    show_test(line)
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("GPU GPU 0: NVIDIA Pretended (8.9, 24 GiB); driver 580.1, CUDA 13.0") == 2
    assert said.count("would be built and tested at the start") == 2
    assert not (tmp_path / "sandbox-py3.11-gpu").exists()


def bridge_rows(plan: BuildPlan) -> dict[str, tuple[str, str]]:
    outcome = run_diagnosis(plan, None)
    return {v.id: (v.level, v.actual) for v in outcome.findings if v.subject == "GPU bridge"}


def test_the_doctor_says_what_there_is(
    tmp_path: Path, machine: Callable[[Driver], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(GOOD)
    plan = planned(tmp_path, gpu="bridge")
    rows = bridge_rows(plan)
    assert rows["driver"] == ("ok", "580.1, CUDA 13.0")
    assert rows["gpu"] == ("ok", "GPU 0: NVIDIA Pretended (8.9, 24 GiB)")
    assert rows["bridge"] == ("unknown", "not built yet: it is when the sandbox starts")
    assert rows["self-test"][0] == "unknown", "what was not looked at has not passed"
    known = plan.host.bridge()
    assert known is not None
    told = {"built": True, "selftest": "kernel as without", "warnings": ("table 0a1b unknown",)}
    monkeypatch.setattr(plan.host, "bridge", lambda: known.model_copy(update=told))
    rows = bridge_rows(plan)
    assert rows["bridge"] == ("ok", "built")
    assert rows["self-test"] == ("ok", "kernel as without")
    assert rows["warning"] == ("warning", "table 0a1b unknown")
    assert bridge_rows(planned(tmp_path)) == {}


def test_the_doctor_starts_nothing_that_lacks_a_driver(
    tmp_path: Path, machine: Callable[[Driver], None]
) -> None:
    machine(seen(tmp_path, **NONE))
    plan = planned(tmp_path, gpu="bridge")
    outcome = run_diagnosis(plan, LiveSession(plan.host))
    assert outcome.facts["host"] == {
        "skipped": "this machine has no NVIDIA driver: there is no libcuda.so.1, "
        "and nothing was started"
    }
    assert outcome.level == "error"
    lack = next(v for v in outcome.findings if v.id == "no-driver")
    assert (lack.level, "install NVIDIA's driver" in lack.hint) == ("error", True)


def test_bridges_in_the_cache_are_of_today_or_not(
    tmp_path: Path, machine: Callable[[Driver], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(load_lock(), root=tmp_path)
    machine(GOOD)
    assert [*attachment.cache_entries(cache)] == []
    for name in ("3.11", "old", ".3.11.new"):
        (tmp_path / "bridges" / name).mkdir(parents=True)
    (tmp_path / "bridges/.3.11.lock").touch()

    def key(_: Cache, python: str, libraries: tuple[Path, ...]) -> str:
        assert libraries == GOOD.libraries
        return python

    monkeypatch.setattr(building, "current_bridge_key", key)
    found = [*attachment.cache_entries(cache)]
    assert [(one.what, one.path.name, one.useful) for one in found] == [
        ("GPU bridges", "3.11", True),
        ("GPU bridges", "old", False),
    ]

    def broken(*_: object) -> str:
        raise HostError("no library of a driver")

    monkeypatch.setattr(building, "current_bridge_key", broken)
    assert not any(one.useful for one in attachment.cache_entries(cache)), (
        "what is no driver has none"
    )
    machine(Driver())
    assert not any(one.useful for one in attachment.cache_entries(cache)), (
        "without a driver none is"
    )


# -- GPUs where there is no nvidia-smi -------------------------------------------------------------


class Library:
    """NVML in Python, with two GPUs."""

    def __init__(self, model: int = 3) -> None:
        self.model = model
        self.shut = 0

    def nvmlInit_v2(self) -> int:  # noqa: N802
        return 0

    def nvmlShutdown(self) -> int:  # noqa: N802 - NVML's
        self.shut += 1
        return 0

    def nvmlSystemGetDriverVersion(self, text: Any, _: int) -> int:  # noqa: N802
        text.value = b"580.1"
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, number: int, handle: Any) -> int:  # noqa: N802
        handle._obj.value = 100 + number
        return 0

    def nvmlDeviceGetName(self, handle: Any, text: Any, _: int) -> int:  # noqa: N802
        text.value = f"NVIDIA {handle.value}".encode()
        return 0

    def nvmlDeviceGetCudaComputeCapability(  # noqa: N802
        self, _: Any, major: Any, minor: Any
    ) -> int:
        major._obj.value, minor._obj.value = 9, 0
        return 0

    def nvmlDeviceGetMemoryInfo(self, _: Any, memory: Any) -> int:  # noqa: N802
        memory[0] = 24 << 30
        return 0

    def nvmlDeviceGetDriverModel(self, _: Any, current: Any, pending: Any) -> int:  # noqa: N802
        current._obj.value = 1
        assert isinstance(pending._obj, ctypes.c_int)
        return self.model


@pytest.mark.parametrize(("code", "model"), [(3, "Linux, through a bridge"), (0, "TCC"), (999, "")])
def test_the_library_tells_what_nvidia_smi_would(code: int, model: str) -> None:
    library = Library(code)
    first = {"name": "NVIDIA 100", "capability": "9.0", "driver": "580.1"}
    rows = nvml.report(library)
    assert rows[0] == first | {"model": model, "memory": str(24 << 10)}
    assert rows[1]["name"] == "NVIDIA 101"
    assert library.shut == 1


def test_the_driver_model_of_a_driver_that_knows_mcdm() -> None:
    """Where the second version is there the first is not asked: it has no word for MCDM."""

    def newer(_: Any, current: Any, __: Any) -> int:
        current._obj.value = 2
        return 0

    library: Any = Library(3)
    library.nvmlDeviceGetDriverModel_v2 = newer
    assert {row["model"] for row in nvml.report(library)} == {"MCDM"}


def test_a_library_that_fails() -> None:
    library = Library()
    library.nvmlDeviceGetHandleByIndex_v2 = lambda *_: 15  # type: ignore[method-assign]
    with pytest.raises(OSError, match="nvmlDeviceGetHandleByIndex_v2 returned 15"):
        nvml.report(library)
    assert library.shut == 1


def test_which_architectures_are_native(tmp_path: Path, machine: Callable[[Driver], None]) -> None:
    machine(GOOD)
    host = planned(tmp_path, gpu="bridge:1").host

    class Session:
        def __init__(self) -> None:
            self.host = host

        def call(self, _: object) -> list[dict[str, str]]:
            return [{"capability": "8.9"}, {"capability": "9.0"}]

    assert visible_gpu_capabilities(Session()) == ("9.0",)  # type: ignore[arg-type]


def test_a_test_without_a_run_says_so(tmp_path: Path, machine: Callable[[Driver], None]) -> None:
    machine(GOOD)
    plan = planned(tmp_path, gpu="bridge")
    with pytest.raises(ConfigError, match="no run"):
        run_test(Line(plan, LiveSession(plan.host)))


def test_the_audit_asks_nothing_of_a_bridged_host(
    tmp_path: Path, machine: Callable[[Driver], None]
) -> None:
    """It looks at the bytes that came home: neither the session nor the driver is needed."""
    machine(GOOD)

    class Nobody:
        def __getattr__(self, name: str) -> object:
            raise AssertionError(f"the host was asked for {name}")

    plan = planned(tmp_path, gpu="bridge")
    nobody: Any = Nobody()
    one = audit._audited(nobody, plan, wheel_here(tmp_path), None)
    assert one.version
    assert len(one.checks) > 3


class Windows:
    """A session with a host on which nothing is kept, and nothing runs."""

    def call(self, function: Callable[..., object], **_: object) -> object:
        return {"entries": 0, "bytes": 0} if function is compilecache.stats else []


def test_what_is_kept_and_runs_there_is_told_without_a_driver(
    tmp_path: Path, machine: Callable[[Driver], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking, and stopping it, need no GPU; a test does."""
    running: Any = {"pid": 1, "http": "http://h", "https": "https://h"}
    monkeypatch.setattr(Sandbox, "state", lambda _: running)
    monkeypatch.setattr(Sandbox, "endpoint", lambda *_: None)
    monkeypatch.setattr("pipelines.session.channel.over_winrs", lambda *_, **__: Windows())
    monkeypatch.setattr(health, "check_image", lambda *_, **__: None)
    machine(seen(tmp_path, **NONE))

    def line() -> Line:
        plan = planned(tmp_path, gpu="bridge")
        return Line(plan, LiveSession(plan.host))

    with pytest.raises(SetupError, match="no NVIDIA driver"):
        line().session.connect()
    jobs.show(line())
    assert jobs.running_jobs(line()) == []
    assert {shelf.entries for shelf in kept.iter_shelves(line(), [])} == {0}


def test_a_driver_that_is_there_is_not_spared(
    tmp_path: Path, machine: Callable[[Driver], None]
) -> None:
    """Commands of one line share a host: what is tested after a look has its bridge."""
    machine(GOOD)
    host = opened(tmp_path, gpu="bridge")
    assert not host.inspect_only()
    assert host.bridge() is not None
    machine(seen(tmp_path, **NONE))
    assert host.inspect_only()
    assert host.bridge() is None
