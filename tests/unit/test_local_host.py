"""The controller's own machine as a host, and environments that are used as they are."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli import lines
from pipelines.cli.wheelhouse import wheelhouse as gather
from pipelines.core.errors import ConfigError, HostError, ProvisionError, RemoteError
from pipelines.core.evidence import Evidence
from pipelines.core.finding import Finding
from pipelines.core.target import Target
from pipelines.core.toolsets import MSVC, STUB
from pipelines.doctor import run as doctor
from pipelines.hosts.base import Existing, OpenOptions, supply_of
from pipelines.hosts.gpus import host_gpu_way
from pipelines.hosts.live import visible_gpu_capabilities
from pipelines.hosts.local import config as local_config
from pipelines.hosts.local import host as local
from pipelines.hosts.local.config import LocalHost
from pipelines.hosts.local.host import ThisMachine
from pipelines.plan.provisioning.resources import (
    EXISTING_FILE,
    Place,
    desired_resources,
    layout_of,
    load_resources,
)
from pipelines.recipe.load import for_cell, load_recipe
from pipelines.record.results import ProvisionResult
from pipelines.remote import facts as remote_facts
from pipelines.remote import files, limits, usage
from pipelines.remote.inspection import kernel
from pipelines.remote.resources import Proof, RefusedError, distributions, program
from pipelines.stages.buildspec import build_spec
from pipelines.stages.line import Line, run_build, run_provision
from pipelines.toolchain.lock import Cache, ToolchainLock, load_lock

OPTIONS = OpenOptions("3.11", Cache(load_lock()))


def host(tmp_path: Path, **keys: Any) -> ThisMachine:
    settings = {"kind": "local", "python": sys.executable, "root": str(tmp_path)} | keys
    return ThisMachine("here", LocalHost.model_validate(settings), OPTIONS)


def toolkit(folder: Path, release: str = "13.0") -> Path:
    nvcc = folder / "bin/nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.48'\n")
    nvcc.chmod(0o755)
    return folder


def test_a_session_runs_our_code_in_that_python(tmp_path: Path) -> None:
    with host(tmp_path).connect() as session:
        facts = session.call(remote_facts.facts)
        assert facts["executable"] == sys.executable
        assert facts["pid"] != os.getpid()
        session.call(files.make_dirs, path=str(tmp_path / "b"))
        (tmp_path / "here").write_bytes(b"1234")
        session.put(tmp_path / "here", str(tmp_path / "b" / "there"))
        assert (tmp_path / "b" / "there").read_bytes() == b"1234"

        def nothing() -> None: ...

        nothing.__module__ = files.__name__
        with pytest.raises(RemoteError, match="defines no function"):
            session.call(nothing)


def test_a_python_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="python: /none/python"):
        host(tmp_path, python="/none/python")


def test_a_program_that_is_no_python(tmp_path: Path) -> None:
    with pytest.raises(HostError):
        host(tmp_path, python="/bin/true").connect()


def test_a_link_into_a_virtual_environment_stays_one(tmp_path: Path) -> None:
    """What it points to would not know the packages."""
    (tmp_path / "python").symlink_to(sys.executable)
    assert host(tmp_path, python=str(tmp_path / "python")).executable == str(tmp_path / "python")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows can be provisioned")
def test_without_python_only_windows_can_be_made_ready(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only Windows") as caught:
        host(tmp_path, python=None)
    assert "/path/to/" in caught.value.hint


def test_it_is_not_restarted(tmp_path: Path) -> None:
    made = host(tmp_path)
    with made.connect() as session, pytest.raises(HostError, match="cannot be restarted from here"):
        made.restart(session)


def test_where_the_toolkit_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_PATH", "CUDA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(shutil, "which", lambda name: sys.executable if "py" in name else "")
    one, two = toolkit(tmp_path / "one"), toolkit(tmp_path / "two")
    monkeypatch.setenv("CUDA_HOME", str(one))
    existing = host(tmp_path).existing
    assert existing is not None
    assert existing.toolkit == str(one)
    named = host(tmp_path, cuda=str(two)).existing
    assert named is not None
    assert named.toolkit == str(two)
    with pytest.raises(ConfigError, match="cuda: "):
        host(tmp_path, cuda=str(tmp_path / "three"))


def test_what_is_installed_here_is_what_it_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Python's release and its tool kit's, and no others."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    keys: dict[str, Any] = {"kind": "local", "python": sys.executable, "root": str(tmp_path)}
    cuda = toolkit(tmp_path / "cuda", "12.8")

    def given(**more: str) -> tuple[object, object]:
        found = LocalHost.model_validate(keys | more).supply(load_lock())
        return found.python, found.cuda

    assert given(cuda=str(cuda)) == ((own,), ("12.8",))
    (cuda / "bin/nvcc").write_text("#!/bin/sh\necho nonsense\n")
    assert given(cuda=str(cuda)) == ((own,), None), "it is left open: provisioning looks"
    (tmp_path / "python").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python").chmod(0o755)
    assert given(python=str(tmp_path / "python"), cuda=str(cuda))[0] is None
    monkeypatch.setattr(LocalHost, "toolkit", lambda *_: None)
    assert given()[1] == (() if sys.platform != "win32" else supply_of(load_lock()).cuda)
    with pytest.raises(ConfigError, match="python: "):
        given(python="/none/python")


def test_wine_is_no_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is built there is a stand-in's, as in the sandbox."""
    for module in (local, local_config):
        monkeypatch.setattr(module, "WINDOWS", True)
    keys = {"kind": "local", "python": sys.executable, "root": str(tmp_path)}
    found = []
    for version in (None, "10.0"):
        for module in (local, kernel):
            monkeypatch.setattr(module, "wine", lambda version=version: version)
        made = host(tmp_path)
        tools = LocalHost.model_validate(keys).supply(load_lock()).toolset
        found.append((made.capabilities.publishable, made.evidence, tools))
    assert found == [(True, Evidence.WRITTEN, MSVC), (False, Evidence.BINARIES, STUB)]


# -- what is wanted of it --------------------------------------------------------------------------

CAN = dict.fromkeys(
    ("windows", "msvc", "gpu", "publishable", "services", "toolkit", "emulated"), False
)
LINUX = Place(
    capabilities=CAN | {"toolkit": True},
    target=Target(python="3.12", cuda="13.0", torch="2.11"),
    executable="/env/bin/python",
    existing=Existing(root="/r", toolkit="/cuda", sccache="/bin/sccache"),
)
WINDOWS = Place(
    capabilities=CAN | {"windows": True, "msvc": True},
    target=Target(python="3.12", cuda="12.8", torch="2.8"),
    executable=r"C:\env\python.exe",
    existing=Existing(root="C:/wcw"),
)


def wanted(place: Place) -> dict[str, dict[str, Any]]:
    target = place.target
    recipe = for_cell(load_recipe("flash-attn"), cuda=target.cuda, torch=target.torch)
    made = desired_resources(load_resources(EXISTING_FILE), recipe, load_lock(), place)
    return {one.id: one.spec for one in made}


def test_on_linux_nothing_is_installed() -> None:
    specs = wanted(LINUX)
    assert [*specs] == [
        "build root",
        "temp",
        "environment",
        "CUDA compiler",
        "host's compilers",
    ]
    assert specs["CUDA compiler"]["path"] == "/cuda/bin/nvcc"
    assert specs["CUDA compiler"]["check"]["prints"] == "release 13.0,"
    environment = specs["environment"]
    assert environment["python"] == "/env/bin/python"
    assert {"torch", "ninja", "einops", "pytest"} <= set(environment["names"])
    assert "colorama" not in environment["names"]
    assert (environment["torch"], environment["cuda"]) == ("2.11", "13.0")
    layout = layout_of(load_resources(EXISTING_FILE), LINUX)
    assert layout.join(layout.build_root, "job") == "/r/b/job"
    assert (layout.uv, layout.sccache) == ("", "/bin/sccache")


def test_on_windows_a_toolkit_is_unpacked_where_there_is_none() -> None:
    specs = wanted(WINDOWS)
    assert [*specs] == ["build root", "temp", "environment of Windows", "CUDA toolkit"]
    assert specs["CUDA toolkit"]["path"] == r"C:\wcw\cuda\12.8"
    layout = layout_of(load_resources(EXISTING_FILE), WINDOWS)
    assert layout.cuda == r"C:\wcw\cuda\12.8"
    assert layout.join(layout.build_root, "job") == r"C:\wcw\b\job"


def test_releases_of_a_cell() -> None:
    recipe = load_recipe("flash-attn")
    assert for_cell(recipe, cuda="13.0", torch="2.11").torch == "2.11"
    assert for_cell(recipe) == recipe
    with pytest.raises(ConfigError, match=r"--cuda 11.8: flash-attn .* works with cuda >=12.0"):
        for_cell(recipe, cuda="11.8")
    with pytest.raises(ConfigError, match=r"--torch 2: expected MAJOR\.MINOR"):
        for_cell(recipe, torch="2")
    with pytest.raises(ConfigError, match="built without torch"):
        for_cell(load_recipe("smoke-attention"), torch="2.8")


# -- on the host -----------------------------------------------------------------------------------


def nvcc(tmp_path: Path, release: str) -> program.Spec:
    path = str(toolkit(tmp_path / release, release) / "bin/nvcc")
    check: Proof = {"command": [path, "--version"], "prints": r"release 13\.0,"}
    return {"path": path, "check": check, "otherwise": "ask for it with --cuda"}


def test_a_program_that_is_there(tmp_path: Path) -> None:
    found = program.check(nvcc(tmp_path, "13.0"))
    line = "Cuda compilation tools, release 13.0, V13.0.48"
    assert (found["ok"], found["found"]) == (True, line)
    assert found["values"] == {"version": line}, "the whole: it decides what is compiled"
    other = nvcc(tmp_path, "12.4")
    found = program.check(other)
    assert not found["ok"]
    assert "release 12.4" in found["found"]
    assert found["values"] == {}
    missing: program.Spec = {**other, "path": str(tmp_path / "none")}
    assert program.check(missing) == {"ok": False, "found": "nothing", "values": {}}
    assert "ask for it with --cuda" in program.plan(other)
    with pytest.raises(RefusedError, match="unchanged"):
        program.apply(other)


RELEASE = "{}.{}".format(*sys.version_info)


def environment(tmp_path: Path, torch: str | None, cuda: str = "13.0") -> distributions.Spec:
    """A Python whose packages are what it is said to have."""
    site = tmp_path / "site"
    for name, version in (("ninja", "1.13"), *([("torch", torch)] if torch else [])):
        folder = site / f"{name}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    if torch:
        (site / "torch").mkdir()
        (site / "torch/__init__.py").write_text("raise SystemExit('imported')")
        (site / "torch/version.py").write_text(f"__version__ = {torch!r}\ncuda = '{cuda}'\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return {
        "names": ["ninja", "torch"],
        "requires": {},
        "index": "https://wheels.example/cu130",
        "python": str(python),
        "torch": "2.11",
        "cuda": "13.0",
        "release": RELEASE,
    }


def test_distributions_that_are_there(tmp_path: Path) -> None:
    spec = environment(tmp_path, "2.11.0+cu130")
    found = distributions.check(spec)
    assert found["ok"]
    assert "torch 2.11.0+cu130" in found["found"]
    assert found["values"] == {
        "Python": RELEASE,
        "ninja": "1.13",
        "torch": "2.11.0+cu130",
        "torch's CUDA": "13.0",
    }


@pytest.mark.slow
@pytest.mark.parametrize("cuda", ["12.8", ""])
def test_of_torch_for_any_cuda(tmp_path: Path, cuda: str) -> None:
    """A wheel for several releases of torch: only the release counts."""
    spec = environment(tmp_path, "2.11.0", cuda)
    spec["cuda"] = ""
    assert distributions.check(spec)["ok"]
    spec["torch"] = "2.10"
    assert not distributions.check(spec)["ok"]
    assert "--torch 2.11; or" in distributions.plan(spec)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("torch", "cuda", "found", "hint"),
    [
        (
            None,
            "",
            "missing: torch",
            'install "torch==2.11.*" --index-url https://wheels.example/cu130',
        ),
        ("2.8.0+cu128", "12.8", "torch 2.8 for CUDA 12.8", "--torch 2.8 --cuda 12.8"),
        ("2.11.0+cpu", "", "for CUDA none", "has no CUDA: type: "),
    ],
)
def test_distributions_that_are_not(
    tmp_path: Path, torch: str | None, cuda: str, found: str, hint: str
) -> None:
    spec = environment(tmp_path, torch, cuda)
    told = distributions.check(spec)
    assert not told["ok"]
    assert found in told["found"]
    with pytest.raises(RefusedError) as caught:
        distributions.apply(spec)
    assert hint in caught.value.hint
    assert hint in distributions.plan(spec)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clauses", "met"),
    [
        ([[">=", "77"]], False),
        ([[">=", "1.13"]], True),
        ([[">=", "1.13.0"]], True),
        ([[">=", "1.2"], ["<", "1.14"]], True),
        ([[">", "1.13"]], False),
        ([["<=", "1.12.9"]], False),
        ([["!=", "1.13"]], False),
        ([["==", "1.*"]], True),
        ([["==", "1.14.*"]], False),
        ([["!=", "1.*"]], False),
        ([["~=", "1.12"]], True),
        ([["~=", "1.12.0"]], False),
        ([["===", "1.13"]], True),
    ],
)
def test_a_version_that_the_package_does_not_take(
    tmp_path: Path, clauses: list[list[str]], met: bool
) -> None:
    spec: distributions.Spec = {
        **environment(tmp_path, "2.11.0+cu130"),
        "requires": {"ninja": clauses},
    }
    told = distributions.check(spec)
    assert told["ok"] == met
    if not met:
        written = ",".join("".join(clause) for clause in clauses)
        assert told["found"].endswith(f"ninja 1.13 is not {written}")
        hint = f'type: {spec["python"]} -m pip install "ninja{written}"'
        assert distributions.plan(spec) == f"not managed by the pipeline: {hint}"


def test_all_that_is_missing_is_one_line_to_type(tmp_path: Path) -> None:
    spec: distributions.Spec = {
        **environment(tmp_path, None),
        "names": ["ninja", "setuptools", "torch"],
        "requires": {"setuptools": [[">=", "77"]]},
    }
    assert distributions.check(spec)["found"].endswith("; missing: setuptools, torch")
    pip = f"{spec['python']} -m pip install"
    assert distributions.plan(spec).endswith(
        f'type: {pip} "setuptools>=77" && '
        f'{pip} "torch==2.11.*" --index-url https://wheels.example/cu130'
    )


def test_a_python_of_another_release_is_refused(tmp_path: Path) -> None:
    """Its wheel would be one for itself, in a run that says it is for the other."""
    spec: distributions.Spec = {**environment(tmp_path, "2.11.0+cu130"), "release": "3.99"}
    told = distributions.check(spec)
    assert not told["ok"]
    assert told["found"].endswith(f"that is Python {RELEASE}")
    with pytest.raises(RefusedError) as caught:
        distributions.apply(spec)
    assert f"--python {RELEASE}" in caught.value.hint
    assert distributions.check({**spec, "release": ""})["ok"]


def test_only_wheels_are_for_one_python() -> None:
    assert wanted(LINUX)["environment"]["release"] == "3.12"
    crate = for_cell(load_recipe("candle-flash-attn"))
    made = desired_resources(load_resources(EXISTING_FILE), crate, load_lock(), LINUX)
    (spec,) = (one.spec for one in made if one.id == "environment")
    assert spec["release"] == ""


@pytest.mark.slow
def test_programs_that_a_recipe_needs(tmp_path: Path, typed: Path) -> None:
    """Refused before anything is built, shown by the doctor, and found where the build looks."""
    driver(typed)
    cuda, config = toolkit(tmp_path / "toolkit"), tmp_path / "pipeline.yaml"
    config.write_text(config.read_text().replace(" root: ", f" cuda: '{cuda}', root: "))
    line = lines.open_line({"archs": "80"})
    needs = {"build_requires": (), "test_requires": (), "host_requires": ("wcw-generator",)}
    line.plan = replace(line.plan, recipe=line.plan.recipe.model_copy(update=needs))
    with pytest.raises(ProvisionError, match="programs: expected wcw-generator") as caught:
        run_build(line)
    assert "install wcw-generator there" in caught.value.hint
    assert not [*tmp_path.glob("b/*")], "nothing was sent"

    def told() -> Finding:
        (verdict,) = [
            v
            for v in doctor.run_diagnosis(line.plan, line.session).findings
            if v.id == "programs-of-the-build"
        ]
        return verdict

    assert (told().level, told().actual) == ("error", "not there: wcw-generator")
    path = tmp_path / "bin/wcw-generator"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    run_provision(line)
    assert line.provisioned is not None
    done = line.provisioned.result
    assert isinstance(done, ProvisionResult)
    rows = {row.id: row for row in done.resources}
    assert rows["programs"].found == str(path)
    assert not rows["programs"].changed
    assert (told().level, told().actual) == ("ok", str(path))
    assert build_spec(line.plan, "d", "a", "", 1)["programs"] == [
        str(Path(sys.executable).parent),
        str(cuda / "bin"),
    ]


# -- how a build used the machine ------------------------------------------------------------------


def test_units_of_a_ninja_log(tmp_path: Path) -> None:
    rows = []
    began = 1_700_000_000.0
    for number, (start, end) in enumerate([(0, 2000), (500, 4000), (2000, 9000)]):
        out = tmp_path / f"unit{number}.o"
        out.touch()
        os.utime(out, (began + 10 + end / 1000,) * 2)
        rows.append(f"{start}\t{end}\t0\t{out}\tabc")
    old = tmp_path / "old.o"
    old.touch()
    os.utime(old, (began - 100,) * 2)
    rows += [f"0\t100\t0\t{old}\tabc", "0\t9\t0\tgone.o\tabc", "damaged", "x\ty\t0\tz.o\t0"]
    log = tmp_path / ".ninja_log"
    log.write_text("# ninja log v5\n" + "\n".join(rows) + "\n")
    units = usage.ninja_units(log, began)
    assert units == [["unit0.o", 10.0, 12.0], ["unit1.o", 10.5, 14.0], ["unit2.o", 12.0, 19.0]]


def test_a_gauge_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "_EVERY", 0.05)
    measured = usage.Gauge()
    deadline = 20
    while len(measured._samples) < 3 and deadline:
        sum(range(1_000_000))
        deadline -= 1
    told = measured.finish(tmp_path)
    json.dumps(told)
    assert told["units"] == []
    assert told["samples"]
    assert all(0 <= busy <= 1 and used > 0 for _, busy, used in told["samples"])
    assert told["cpus"] == limits.cores()
    assert told["memory"] > 100 << 20


def test_a_gauge_does_not_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "_MOST_SAMPLES", 8)
    monkeypatch.setattr(usage, "_EVERY", 0.001)
    measured = usage.Gauge()
    while len(measured._samples) < 7:
        pass
    measured._done.wait(0.2)
    assert len(measured.finish(tmp_path)["samples"]) < 8


# -- architectures of the host's own GPUs ----------------------------------------------------------


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A pipeline.yaml with this machine in it, and a driver's program of which tests say what."""
    config = tmp_path / "pipeline.yaml"
    python = f"3.{sys.version_info.minor}"
    config.write_text(
        f"default: {{host: here, python: '{python}'}}\n"
        f"hosts: {{here: {{kind: local, python: '{sys.executable}', root: '{tmp_path}'}}}}\n"
        f"out: {tmp_path}/out\n"
    )
    monkeypatch.setenv("WCW_CONFIG", str(config))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    yield tmp_path / "bin/nvidia-smi"
    lines.close_line()


def driver(path: Path, *rows: str) -> None:
    path.write_text("#!/bin/sh\n" + "".join(f"echo '{row}'\n" for row in rows))
    path.chmod(0o755)


def test_native_is_what_the_host_has(typed: Path) -> None:
    driver(typed, "NVIDIA H200, 9.0, 580, N/A, 1", "NVIDIA L4, 8.9, 580, N/A, 1", "odd, x, 1, 1, 1")
    line = lines.open_line({"archs": "native;75+PTX"})
    assert set(line.plan.target.archs.sass) == {"75", "89", "90"}
    assert line.plan.target.archs.ptx == ("75",)
    assert lines.open_line({"archs": "80"}) is line, "one session serves them all"
    assert str(line.plan.target.archs) == "80"


def test_native_is_of_the_gpus_that_are_asked_for(
    typed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver(typed, "NVIDIA H200, 9.0, 580, N/A, 1", "NVIDIA L4, 8.9, 580, N/A, 1")
    with lines.open_separate_line(None) as other:
        monkeypatch.setattr(other.plan.host, "gpu_way", host_gpu_way(1))
        assert visible_gpu_capabilities(other.session) == ("8.9",)


def test_a_host_is_asked_beside_the_open_line(typed: Path) -> None:
    driver(typed, "NVIDIA H200, 9.0, 580, N/A, 1")
    line = lines.open_line({"archs": "80"})
    with lines.open_separate_line(None) as other:
        assert visible_gpu_capabilities(other.session) == ("9.0",)
        assert other.session is not line.session
    assert lines.open_line({"archs": "90"}) is line


def test_native_without_a_gpu(typed: Path) -> None:
    driver(typed)
    with pytest.raises(ConfigError, match="it has none"):
        lines.open_line({"archs": "native"})


# -- a directory to carry away ---------------------------------------------------------------------


def wheelhouse(
    typed: Path, monkeypatch: pytest.MonkeyPatch, line: Line | None = None, **asked: str
) -> Path:
    """What ``invoke wheelhouse`` leaves; the pipeline's own packages are left out here."""
    monkeypatch.setattr("pipelines.toolchain.wheelhouse.gather_controller", lambda *_: 0)
    folder = typed.parent.parent / "house"
    gather.run(line or lines.open_line(asked), str(folder))
    return folder


def test_a_wheelhouse_has_the_source(typed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load_recipe("flash-attn", version="2.3.6")
    source, root = recipe.source, typed.parent.parent / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(root))
    fake = source.model_copy(
        update={"sha256": hashlib.sha256(b"tree").hexdigest(), "size": 4, "file": "x-1.tar.gz"}
    )
    line = lines.open_line({})
    line.plan = replace(line.plan, recipe=recipe.model_copy(update={"source": fake}))
    line.plan.__dict__["wanted"] = ()
    kept = line.plan.cache.place(fake.file, fake.sha256)  # type: ignore[union-attr]
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"tree")
    folder = wheelhouse(typed, monkeypatch, line)
    assert [path.name for path in folder.iterdir()] == ["x-1.tar.gz"]


def test_a_wheelhouse_has_what_the_host_itself_is_made_of(
    typed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"a compiler"
    pin = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "file": "zig.whl"}
    tool = {"version": "1", "sources": [{**pin, "url": "https://a.invalid/f"}]}
    lock = ToolchainLock.model_validate({"version": 1, "tools": {"zig": tool}})
    line = lines.open_line({})
    line.plan = replace(line.plan, cache=Cache(lock, typed.parent.parent / "cache", offline=True))
    line.plan.__dict__["wanted"] = ()
    monkeypatch.setattr(line.plan.host, "tools", ("zig",), raising=False)
    line.plan.cache.path("zig").parent.mkdir(parents=True)
    line.plan.cache.path("zig").write_bytes(data)
    folder = wheelhouse(typed, monkeypatch, line)
    assert [path.name for path in folder.iterdir()] == ["zig.whl"]


def test_a_commit_is_not_for_a_wheelhouse(typed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="comes from git"):
        wheelhouse(typed, monkeypatch, recipe="candle-flash-attn", archs="89")
