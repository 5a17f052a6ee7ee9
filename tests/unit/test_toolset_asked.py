"""Which toolset of MSVC a build takes, asked of the host before anything is sent there."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from fnmatch import fnmatch
from pathlib import Path, PureWindowsPath
from types import SimpleNamespace
from typing import Any

import pytest
from plans import Lab
from sessions import Here

from pipelines.core.errors import ConfigError
from pipelines.core.target import Target
from pipelines.diagnosis import diagnose
from pipelines.hosts.base import Capabilities
from pipelines.remote import builder, process, protected_dirs
from pipelines.remote.protected_dirs import UnsafeError
from pipelines.stages.toolset import default_toolset, list_host_toolsets, toolset_for

V2026, V2022, V2019 = "14.50.35717", "14.44.35207", "14.29.30133"


class Plan:
    """As far as it decides the toolset."""

    def __init__(self, cuda: str, torch: str = "", **host: Any) -> None:
        self.target = Target(cuda=cuda, torch=torch)
        self.host = Lab()
        if host:
            self.host.capabilities = Capabilities(**{"gpu": False, "publishable": True, **host})


class Telling(Here):
    """A host with these toolsets, the default first."""

    def __init__(self, *there: Any) -> None:
        super().__init__()
        self.there = [*there]

    def call(self, function: Any, /, *args: Any, **arguments: Any) -> Any:
        assert function is builder.toolsets
        return self.there


def chosen(cuda: str, *there: Any, torch: str = "", **host: Any) -> str | None:
    plan: Any = Plan(cuda, torch, **host)
    session: Any = Telling(*there)
    return toolset_for(list_host_toolsets(session, plan.host), plan)


@pytest.mark.parametrize(
    ("cuda", "there", "taken"),
    [
        ("12.8", (V2022, V2019), None),  # the default goes with it
        ("13.2", (V2026, V2022), None),
        ("13.0", (V2026, V2019, V2022), "14.29"),  # the first that does, in the given order
        ("12.8", (V2026, V2022), "14.44"),
        ("12.1", (V2026, V2022, "14.38.33130"), "14.38"),
        ("12.8", (), None),  # no Visual Studio, or one that does not say: the build will
        ("12.8", ("nonsense", V2026), None),
        ("12.8", (7, V2022), None),
    ],
)
def test_one_that_goes_with_cuda(
    cuda: str, there: tuple[Any, ...], taken: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chosen(cuda, *there) == taken
    assert ("which is also installed" in capsys.readouterr().out) is (taken is not None)


@pytest.mark.parametrize(
    ("cuda", "there", "hint"),
    [
        ("13.1", (V2026,), "-vcvars_ver=14.44"),
        ("12.4", (V2026, "14.51.36231"), "-vcvars_ver=14.44"),
        ("12.3", (V2026, V2022), "-vcvars_ver=14.38"),
        ("13.0", ("14.16.27023",), "-vcvars_ver=14.44"),
    ],
)
def test_none_that_goes_with_cuda(cuda: str, there: tuple[str, ...], hint: str) -> None:
    """Refused before anything is sent: nvcc would say so of its first file."""
    with pytest.raises(ConfigError, match=r"host_config\.h") as refused:
        chosen(cuda, *there)
    assert there[0] in refused.value.message
    assert hint in refused.value.hint


def test_who_is_not_asked() -> None:
    """A host without MSVC, and one that is no Windows."""
    assert chosen("12.8", V2026, windows=True, msvc=False) is None
    assert chosen("12.8", V2026, windows=False, msvc=False) is None
    linux = Plan("12.8", windows=False, msvc=False).host
    assert default_toolset(Telling(V2026), linux) is None  # type: ignore[arg-type]
    assert default_toolset(Telling(V2026, V2022), Lab()) == V2026  # type: ignore[arg-type]


def made(root: Path, year: str, default: str, *others: str) -> Path:
    """A Visual Studio of that year below ``root``; its vcvarsall.bat."""
    build = root / year / "BuildTools" / "VC/Auxiliary/Build"
    build.mkdir(parents=True)
    for version in (default, *others):
        (root / year / "BuildTools/VC/Tools/MSVC" / version).mkdir(parents=True)
    (build / "Microsoft.VCToolsVersion.default.txt").write_text(default + "\r\n")
    (build / "vcvarsall.bat").touch()
    return build / "vcvarsall.bat"


def test_what_a_host_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """2022 goes before 18, which is 2026; without either there is no answer."""
    patterns = [str(tmp_path / p / "*/VC/Auxiliary/Build/vcvarsall.bat") for p in
                ("20*", "[1-9][0-9]")]  # fmt: skip
    monkeypatch.setattr(builder, "_VCVARS", patterns)
    assert builder.toolsets() == []
    newer = made(tmp_path, "18", V2026, V2022)
    assert builder.find_vcvars() == str(newer)
    assert builder.toolsets() == [V2026, V2022]
    older = made(tmp_path, "2022", V2022, V2019, "14.38.33130")
    assert builder.find_vcvars() == str(older)
    assert builder.toolsets() == [V2022, "14.38.33130", V2019]
    (older.parent / "Microsoft.VCToolsVersion.default.txt").unlink()
    assert builder.toolsets() == []


def test_no_folder_that_a_user_may_make_is_looked_into() -> None:
    r"""``C:\Program Files*`` is also ``C:\Program Filesz``, which was the last in order and won."""
    for pattern in builder._VCVARS:
        assert not {*"*?["} & {*PureWindowsPath(pattern).parts[1]}, pattern
        assert not any(fnmatch(stranger, pattern) for stranger in STRANGERS)


STRANGERS = [
    rf"C:\Program Files{end}\Microsoft Visual Studio\2022\Z\VC\Auxiliary\Build\vcvarsall.bat"
    for end in ("z", " (x87)", " x", "(x86)", "s")
]


def cmd(command: list[str], timeout: float) -> tuple[int, str]:
    """As far as the batch file goes: a command that fails ends it only where it says so.

    Whatever was called before, the exit code is that of the last command.
    """
    environment, output, code = dict(os.environ), "", 0
    for line in Path(command[-1]).read_text("utf-8").splitlines():
        if line.startswith("@set "):
            name, _, setting = line.removeprefix("@set ").partition("=")
            environment[name] = setting
        elif line.startswith("@call "):
            code = 0 if " x64 -vcvars_ver=14.44" in line else 1
            output += f"{TOOLSET_ABSENT}\n" * code
        elif line == "@if errorlevel 1 exit /b 1":
            if code:
                return 1, output
        elif line.startswith("@echo "):
            output += line.removeprefix("@echo ") + "\n"
        else:
            output += json.dumps(environment)
            code = 0
    return code, output


TOOLSET_ABSENT = "[ERROR:vcvars.bat] Toolset directory for version '14.38' was not found."


@pytest.fixture
def windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "sys", SimpleNamespace(platform="win32", executable="python"))
    monkeypatch.setattr(builder, "find_vcvars", lambda: r"C:\VS\vcvarsall.bat")
    monkeypatch.setattr(protected_dirs, "private", lambda: nullcontext(tmp_path))
    monkeypatch.setattr(process, "capture", cmd)


@pytest.mark.usefixtures("windows")
def test_a_vcvarsall_that_fails_is_no_compiler() -> None:
    with pytest.raises(RuntimeError) as caught:
        builder.compiler_environment("14.38")
    found = diagnose(str(caught.value).splitlines())
    assert found is not None
    assert found.signature.id == "toolset-absent"


@pytest.mark.usefixtures("windows")
def test_setuptools_takes_the_compiler_that_is_set_up() -> None:
    """Microsoft's vcvarsall.bat sets neither; without DISTUTILS_USE_SDK it runs once more."""
    made = builder.compiler_environment("14.44")
    names = ("DISTUTILS_USE_SDK", "MSSdk", "VSCMD_SKIP_SENDTELEMETRY")
    assert [made.get(name) for name in names] == ["1", "1", "1"]
    assert "WCW_PYTHON" not in os.environ


def test_one_that_others_may_have_made_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "_VCVARS", [str(made(tmp_path, "2022", V2022))])
    looked: list[Path] = []

    def inspect(path: Path) -> None:
        looked.append(path)
        raise UnsafeError(str(path), "it is somebody's", "")

    monkeypatch.setattr("pipelines.remote.protected_dirs.inspect", inspect)
    with pytest.raises(UnsafeError):
        builder.find_vcvars()
    assert looked == [tmp_path / "2022/BuildTools/VC/Auxiliary/Build"]
