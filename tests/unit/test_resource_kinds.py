"""Every kind of resource: check, plan, apply, verify; and applied twice is applied once."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import sys
import tarfile
import threading
from pathlib import Path
from typing import Any

import fake_winreg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plans import installer_spec

from pipelines.remote import provision, scheduler, visualstudio
from pipelines.remote.inspection import tools as inspected
from pipelines.remote.resources import (
    RefusedError,
    commands,
    defender_exclusion,
    installer,
    page_file,
    reboot,
    registry,
    winrm_quota,
)

PLUGIN = (
    "HKLM",
    r"software\microsoft\windows\currentversion\wsman\plugin\microsoft.powershell",
)
QUOTAS = (
    '<PlugInConfiguration xmlns="urn:x" Name="microsoft.powershell"><InitializationParameters/>'
    '<Quotas MaxMemoryPerShellMB="1024" MaxShells="25"/></PlugInConfiguration>'
)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> dict[Any, Any]:
    monkeypatch.setitem(sys.modules, "winreg", fake_winreg)
    monkeypatch.setattr(fake_winreg, "keys", {})
    return fake_winreg.keys


@pytest.fixture
def marker(tmp_path: Path) -> str:
    return str(tmp_path / "restart.json")


def program(folder: Path, name: str, code: str) -> str:
    """A Python program called ``name``."""
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{code}\n")
    path.chmod(0o755)
    return str(path)


# -- the registry kinds ----------------------------------------------------------------------------

KEY = r"HKLM\SOFTWARE\Here"
SPECS: list[dict[str, Any]] = [
    {"kind": "registry", "key": KEY, "name": "number", "value": 1},
    {"kind": "registry", "key": KEY, "name": "text", "value": "1"},
    {"kind": "registry", "key": KEY, "name": "list", "value": ["a", "b c"]},
    {"kind": "environment", "name": "WCW_TEST_TEMP", "value": r"C:\t"},
    {"kind": "defender_exclusion", "path": r"C:\b"},
    {"kind": "page_file", "path": r"C:\pagefile.sys", "initial_mb": 16, "maximum_mb": 64},
    {"kind": "winrm_quota", "place": "plugin", "name": "MaxMemoryPerShellMB", "at_least": 8192},
    {"kind": "winrm_quota", "place": "plugin", "name": "MaxProcessesPerShell", "at_least": 200},
]

#: What a machine may have there already, right or wrong, of the right type or not.
VALUES = st.one_of(
    st.integers(0, 9).map(lambda n: (n, fake_winreg.REG_DWORD)),
    st.sampled_from(["1", r"C:\t", "0", r"C:\pagefile.sys 1 2"]).map(
        lambda text: (text, fake_winreg.REG_SZ)
    ),
    st.lists(
        st.sampled_from(["a", "b c", r"?:\pagefile.sys", r"C:\pagefile.sys 99 99", r"D:\p 0 0"]),
        max_size=3,
    ).map(lambda lines: (lines, fake_winreg.REG_MULTI_SZ)),
)
ENVIRONMENT = r"system\currentcontrolset\control\session manager\environment"
MEMORY = r"system\currentcontrolset\control\session manager\memory management"
EXCLUSIONS = r"software\policies\microsoft\windows defender\exclusions"
PLACES = [
    (r"software\here", "number"),
    (r"software\here", "text"),
    (r"software\here", "list"),
    (ENVIRONMENT, "wcw_test_temp"),
    (EXCLUSIONS, "exclusions_paths"),
    (rf"{EXCLUSIONS}\paths", r"c:\b"),
    (MEMORY, "pagingfiles"),
]
STATES = st.dictionaries(st.sampled_from(PLACES), VALUES)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(state=STATES, wanted=st.lists(st.sampled_from(SPECS), min_size=1, max_size=8))
def test_applied_twice_is_applied_once(
    state: dict[tuple[str, str], tuple[Any, int]],
    wanted: list[dict[str, Any]],
    keys: dict[Any, Any],
    marker: str,
) -> None:
    keys.clear()
    keys[PLUGIN] = {"configxml": (QUOTAS, fake_winreg.REG_SZ)}
    for (key, name), value in state.items():
        keys.setdefault(("HKLM", key), {})[name] = value
    for spec, check in zip(wanted, provision.check_all(wanted), strict=True):
        assert check["ok"] or check["plan"]
        if not check["ok"]:
            told = provision.apply_one(spec, marker)
            assert told["ok"], (spec, told)
            assert not told["error"]
    once = copy.deepcopy(keys)
    assert all(check["ok"] for check in provision.check_all(wanted))
    for spec in wanted:
        assert provision.apply_one(spec, marker)["ok"]
    assert keys == once
    for (key, name), value in state.items():  # what was not requested is as it was
        if not any(_concerns(spec, name) for spec in wanted):
            assert keys["HKLM", key][name] == value


def _concerns(spec: dict[str, Any], name: str) -> bool:
    own = {
        "environment": {"wcw_test_temp"},
        "defender_exclusion": {"exclusions_paths", r"c:\b"},
        "page_file": {"pagingfiles"},
    }
    return name in own.get(spec["kind"], {str(spec.get("name", "")).lower()})


def test_another_type_is_another_value(keys: dict[Any, Any]) -> None:
    keys["HKLM", r"software\here"] = {"number": ("1", fake_winreg.REG_SZ)}
    (check,) = provision.check_all(SPECS[:1])
    assert not check["ok"]
    assert check["plan"] == rf"set {KEY}\number to 1"


def test_a_larger_page_file_and_other_drives(keys: dict[Any, Any], marker: str) -> None:
    lines = [r"D:\pagefile.sys 5 5", r"c:\PAGEFILE.SYS 16 99"]
    keys["HKLM", MEMORY] = {"pagingfiles": (lines, fake_winreg.REG_MULTI_SZ)}
    spec = SPECS[5]
    assert provision.check_all([spec])[0]["ok"]
    told = provision.apply_one({**spec, "initial_mb": 17}, marker)
    assert told["ok"]
    assert told["reboot"] == "the page file was changed"
    (changed, _) = keys["HKLM", MEMORY]["pagingfiles"]
    assert changed == [r"C:\pagefile.sys 17 64", lines[0]]


def test_quota_of_a_plugin_without_quotas(keys: dict[Any, Any], marker: str) -> None:
    assert provision.apply_one(SPECS[6], marker)["ok"], "there is no plugin"
    keys[PLUGIN] = {"configxml": ("<PlugInConfiguration/>", fake_winreg.REG_SZ)}
    told = provision.apply_one(SPECS[6], marker)
    assert not told["ok"]
    assert "Enable-PSRemoting" in told["hint"]


def test_quota_of_shells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marker: str) -> None:
    """powershell.exe is a stand-in that keeps the value."""
    program(
        tmp_path,
        "powershell.exe",
        "import pathlib, re, sys\n"
        f"state = pathlib.Path({str(tmp_path)!r}, 'value')\n"
        "*flags, line = sys.argv[1:]\n"
        "assert flags == ['-NoProfile', '-NonInteractive', '-Command']\n"
        "item = r\"-LiteralPath 'WSMan:\\\\localhost\\\\Shell\\\\MaxM\\w+'\"\n"
        "if m := re.search(rf'; Set-Item {item} (\\d+) -Force$', line):\n"
        "    state.write_text(m[1])\n"
        "elif re.search(rf'; \\(Get-Item {item}\\)\\.Value$', line):\n"
        "    print(state.read_text() + '\\r')\n"
        "else:\n"
        "    sys.exit(f'wrong: {line}')\n",
    )
    (tmp_path / "value").write_text("1024")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("TEMP", str(tmp_path))
    spec: winrm_quota.Spec = {
        "kind": "winrm_quota",
        "place": "shell",
        "name": "MaxMemoryPerShellMB",
        "at_least": 8192,
    }
    told = {"MaxMemoryPerShellMB": "1024"}
    assert winrm_quota.check(spec) == {"ok": False, "found": "1024", "values": told}
    assert provision.apply_one(spec, marker)["ok"]
    (tmp_path / "value").write_text("0")
    assert winrm_quota.check(spec)["ok"], "no limit is enough"
    with pytest.raises(RefusedError, match="exited with 1"):
        winrm_quota.apply({**spec, "name": "Other"})


def test_a_policy_goes_before_the_quota_of_shells(
    keys: dict[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"MaxProcessesPerShell": "25\r\n"}
    monkeypatch.setattr(winrm_quota, "_access_shell_quota", lambda name: values.get(name, ""))
    keys["HKLM", r"software\policies\microsoft\windows\winrm\service\winrs"] = {
        "maxmemorypershellmb": (4096, fake_winreg.REG_DWORD)
    }
    memory: winrm_quota.Spec
    memory = {"place": "shell", "name": "MaxMemoryPerShellMB", "at_least": 8192}
    assert winrm_quota.check(memory)["values"] == {"MaxMemoryPerShellMB": "4096"}
    assert not winrm_quota.check(memory)["ok"]
    processes: winrm_quota.Spec = {**memory, "name": "MaxProcessesPerShell", "at_least": 25}
    assert winrm_quota.check(processes)["ok"]
    other = winrm_quota.check({**memory, "name": "MaxShells"})
    assert other == {"ok": False, "found": "not set", "values": {}}


def test_quotas_of_the_plugin_are_those_of_its_element(keys: dict[Any, Any]) -> None:
    config = (
        '<PlugInConfiguration Name="microsoft.powershell" MaxMemoryPerShellMB="1">'
        '<Quotas MaxMemoryPerShellMB="2147483647" MaxIdleTimeoutms="43200000" '
        'MaxProcessesPerShell="15"/></PlugInConfiguration>'
    )
    spec: winrm_quota.Spec
    spec = {"place": "plugin", "name": "MaxMemoryPerShellMB", "at_least": 8192}
    assert winrm_quota.check(spec) == {"ok": True, "found": "no plugin", "values": {}}
    keys[PLUGIN] = {"configxml": (config, fake_winreg.REG_SZ)}
    assert winrm_quota.check(spec)["values"] == {"MaxMemoryPerShellMB": "2147483647"}
    assert winrm_quota.check({**spec, "name": "MaxProcessesPerShell"})["found"] == "15"


DEFENDER = r"software\microsoft\windows defender"
ABOVE = r"software\policies\microsoft\windows defender"


def listed(*paths: str) -> dict[str, tuple[str, int]]:
    return dict.fromkeys(paths, ("0", fake_winreg.REG_SZ))


def number(value: int, *names: str) -> dict[str, tuple[int, int]]:
    return dict.fromkeys(names, (value, fake_winreg.REG_DWORD))


NO_REAL_TIME = number(1, "disablerealtimemonitoring")


@pytest.mark.parametrize(
    ("state", "told", "excluded"),
    [
        ({}, "scans", "no"),
        ({ABOVE: number(1, "disableantispyware")}, "off", "no"),
        ({rf"{ABOVE}\real-time protection": NO_REAL_TIME}, "off", "no"),
        (
            {rf"{DEFENDER}\real-time protection": number(1, "disablerealtimemonitoring")},
            "off",
            "no",
        ),
        ({rf"{DEFENDER}\exclusions\paths": listed(r"c:\B")}, "scans", "yes"),
        ({rf"{DEFENDER}\exclusions\paths": listed("C:\\")}, "scans", "yes"),
        ({rf"{DEFENDER}\exclusions\paths": listed(r"C:\bb", r"C:\b\c")}, "scans", "no"),
        ({rf"{ABOVE}\exclusions\paths": listed("C:\\b\\")}, "scans", "no"),
        (
            {
                rf"{ABOVE}\exclusions\paths": listed("C:\\b\\"),
                rf"{ABOVE}\exclusions": number(1, "exclusions_paths"),
            },
            "scans",
            "yes",
        ),
        (
            {
                rf"{DEFENDER}\exclusions\paths": listed(r"C:\b"),
                ABOVE: number(1, "disablelocaladminmerge"),
            },
            "scans",
            "no",
        ),
    ],
)
def test_what_defender_leaves_out(
    keys: dict[Any, Any], state: dict[str, Any], told: str, excluded: str
) -> None:
    spec: defender_exclusion.Spec = {"path": r"C:\b"}
    for key, values in state.items():
        keys["HKLM", key] = values
    found = defender_exclusion.check(spec)
    assert found["values"] == {"Defender": "not installed", "excluded": excluded}
    keys["HKLM", r"system\currentcontrolset\services\windefend"] = number(2, "start")
    found = defender_exclusion.check(spec)
    assert found["values"] == {"Defender": told, "excluded": excluded}
    assert found["ok"] == (excluded == "yes")
    keys["HKLM", r"system\currentcontrolset\services\windefend"] = number(4, "start")
    assert defender_exclusion.check(spec)["values"]["Defender"] == "off"


def test_who_may_not_see_defenders_list(
    keys: dict[Any, Any], monkeypatch: pytest.MonkeyPatch, marker: str
) -> None:
    def names(key: str) -> list[str]:
        if "Policies" not in key:
            raise PermissionError(5, "Access is denied")
        return [r"C:\b"]

    monkeypatch.setattr(registry, "names", names)
    spec: defender_exclusion.Spec = {"kind": "defender_exclusion", "path": r"C:\b"}
    found = defender_exclusion.check(spec)
    assert (found["ok"], found["values"]) == (False, {"Defender": "not installed"})
    assert "Access is denied" in found["found"]
    told = provision.apply_one(spec, marker)
    assert (told["ok"], told["error"]) == (True, "")
    assert told["values"]["excluded"] == "yes", "the policy is enough"


def test_values_are_facts(keys: dict[Any, Any]) -> None:
    lines = [r"C:\pagefile.sys 16 64", r"?:\pagefile.sys"]
    keys["HKLM", MEMORY] = {"pagingfiles": (lines, fake_winreg.REG_MULTI_SZ)}
    keys["HKLM", r"software\here"] = number(1, "number")
    wanted: page_file.Spec
    wanted = {"path": r"C:\pagefile.sys", "initial_mb": 16, "maximum_mb": 64}
    found = page_file.check(wanted)
    assert found["values"] == {r"C:\pagefile.sys": "16 64", r"?:\pagefile.sys": ""}
    assert page_file.setting(wanted) == lines[0]
    rows = provision.check_all([SPECS[0], SPECS[1], {"kind": "none"}])
    assert [row["values"] for row in rows] == [{"number": "1"}, {}, {}]
    assert [bool(row["error"]) for row in rows] == [False, False, True]


# -- programs that a build starts ------------------------------------------------------------------


def test_programs_of_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marker: str) -> None:
    for folder in ("tools", "path", "home/bin"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("CARGO_HOME", str(tmp_path / "home"))
    spec: commands.Spec
    spec = {"kind": "commands", "names": ["git", "cargo"], "places": [str(tmp_path / "tools")]}
    (row,) = provision.check_all([spec])
    assert (row["ok"], row["found"], row["values"]) == (False, "missing: git, cargo", {})
    assert "install git, cargo there" in row["plan"]
    git = program(tmp_path / "path", "git", "")
    told = provision.apply_one(spec, marker)
    assert told["error"] == "the build runs cargo, which is missing"
    assert told["hint"] == f"install cargo there; searched: {tmp_path / 'tools'}, PATH"
    assert told["found"] == f"{git}; missing: cargo"
    cargo = program(tmp_path / "home/bin", "cargo", "")
    assert commands.check(spec)["values"] == {"git": git, "cargo": cargo}
    git = program(tmp_path / "tools", "git", "")
    assert commands.check(spec) == {
        "ok": True,
        "found": f"{git}; {cargo}",
        "values": {"git": git, "cargo": cargo},
    }


# -- files and programs ----------------------------------------------------------------------------


def test_a_file_where_a_directory_is_wanted(tmp_path: Path, marker: str) -> None:
    (tmp_path / "b").write_text("")
    told = provision.apply_one({"kind": "directory", "path": str(tmp_path / "b")}, marker)
    assert "is a file" in told["error"]
    assert told["hint"]


def test_git_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marker: str) -> None:
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", str(tmp_path / "gitconfig"))
    spec = {"kind": "git_config", "git": "git", "name": "core.longpaths", "value": "true"}
    (check,) = provision.check_all([spec])
    assert (check["ok"], check["found"]) == (False, "not set")
    for _ in range(2):
        assert provision.apply_one(spec, marker)["ok"]
    assert (tmp_path / "gitconfig").read_text().count("longpaths") == 1
    (check,) = provision.check_all([{**spec, "git": "no-such-git"}])
    assert (check["ok"], check["found"]) == (False, "no git")


def tarred(path: Path, **members: str) -> dict[str, Any]:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in members.items():
            source = path.with_name("member")
            source.write_text(text)
            archive.add(source, name)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"name": "a", "sha256": sha256, "file": str(path), "strip": "python"}


def test_a_tar_with_its_proof(tmp_path: Path, marker: str) -> None:
    target = tmp_path / "target"
    spec: dict[str, Any] = {
        "kind": "archive",
        "path": str(target),
        "proof": "bin/x",
        "unwatched": [],
        "archives": [tarred(tmp_path / "a.tar.gz", **{"python/bin/x": "x", "other": "y"})],
        "check": {"command": [sys.executable, "-c", "print('v 1')"], "prints": r"^v \d"},
    }
    assert provision.apply_one(spec, marker)["ok"]
    assert {p.name for p in target.rglob("*")} == {"bin", "x", ".archives.json", ".files.json"}
    (target / "bin/x").unlink()
    spec["archives"] = [tarred(tmp_path / "a.tar.gz", **{"python/bin/x": "x"})]
    spec["check"] = {"command": [sys.executable, "-c", "print('other')"], "prints": r"^v \d"}
    told = provision.apply_one(spec, marker)
    assert r"printed 'other', expected '^v \\d'" in told["error"]
    assert not provision.check_all([spec])[0]["ok"], "it must not pass the next time either"
    spec["archives"] = [tarred(tmp_path / "a.tar.gz", **{"python/bin/x": "x"})]
    spec["check"] = {"command": [str(target / "bin/x")], "prints": ""}
    assert "does not run" in provision.apply_one(spec, marker)["error"]


def test_a_tar_that_would_leave_its_directory(tmp_path: Path, marker: str) -> None:
    row = tarred(tmp_path / "a.tar.gz", **{"python/../../x": "x"})
    spec = {"kind": "archive", "path": str(tmp_path / "t"), "proof": "x", "archives": [row]}
    spec["unwatched"] = []
    with pytest.raises(ValueError, match="leaves the directory"):
        provision.apply_one(spec, marker)


# -- installers ------------------------------------------------------------------------------------


def pinned(path: str) -> dict[str, str]:
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return {"name": Path(path).name, "version": "1", "sha256": digest, "file": path}


def running(words: bytes) -> bool:
    """Whether any process has this in its command line."""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if words in process.read_bytes():
                return True
    return False


def setup_program(tmp_path: Path, code: str, **spec: Any) -> dict[str, Any]:
    """An installer that first makes what is detected, unless ``code`` leaves before."""
    pin = pinned(program(tmp_path, "setup", code.replace("HERE", str(tmp_path))))
    made = {
        "arguments": ["--quiet", "two words"],
        "detect": str(tmp_path / "installed*"),
        "reboot": [3010],
        "logs": [str(tmp_path / "*.log")],
    }
    return installer_spec(pin["file"], pin["sha256"], **made | spec)


DONE = "import os, sys\nopen('HERE/installed-1', 'w').close()\n"
# exit codes above 255 do not exist here: 194 stands for 3010 & 0xff


def test_an_installer(tmp_path: Path, marker: str) -> None:
    spec = setup_program(tmp_path, f"{DONE}assert sys.argv[1:] == ['--quiet', 'two words']")
    (check,) = provision.check_all([spec])
    assert not check["ok"]
    assert "setup --quiet two words" in check["plan"]
    told = provision.apply_one(spec, marker)
    assert (told["ok"], told["reboot"], told["error"]) == (True, "", "")
    assert told["found"].endswith("installed-1")


@pytest.mark.parametrize(
    ("version", "ok"),
    [
        ("v14.44.35211.00", True),
        ("v14.50.1.00", True),
        ("v14.44.35208.00", False),
        ("v14.32.31332.00", False),
        ("v9.0.0.0", False),
        (None, False),
    ],
)
def test_a_file_of_an_older_release_is_not_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None, ok: bool
) -> None:
    """The C run-time's file is there since 2019; code of a newer MSVC ends with an older one."""
    (tmp_path / "installed-1").touch()
    spec = setup_program(tmp_path, "", version="14.44.35211.0", registered=r"HKLM\SOFTWARE\x64")
    value = {} if version is None else {"version": (version, fake_winreg.REG_SZ)}
    keys = {("HKLM", r"software\x64"): value}
    monkeypatch.setitem(sys.modules, "winreg", fake_winreg)
    monkeypatch.setattr(fake_winreg, "keys", keys)
    (check,) = provision.check_all([spec])
    assert (check["ok"], check["found"]) == (ok, version or "no version")


def test_an_installer_that_wants_a_restart(
    tmp_path: Path, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.remote.reboot.pending_reboot", list)
    told = provision.apply_one(
        setup_program(tmp_path, f"{DONE}sys.exit(194)", reboot=[194]), marker
    )
    assert told["ok"]
    assert "194" in told["reboot"]
    wanted = {"kind": "reboot", "marker": marker}
    (check,) = provision.check_all([wanted])
    assert not check["ok"]
    assert "tool requires it" in check["found"]
    monkeypatch.setattr("pipelines.remote.reboot.boot_identity", lambda: "another")
    assert provision.check_all([wanted])[0]["ok"], "a restart fulfils the wish"


@pytest.mark.parametrize(
    ("code", "said", "hint"),
    [
        ("sys.exit(1)", "tool exited with 1: it said so", "See its logs"),
        ("sys.exit(5)", "tool exited with 5, access denied", "as_task"),
    ],
)
def test_an_installer_that_fails(
    tmp_path: Path, marker: str, code: str, said: str, hint: str
) -> None:
    (tmp_path / "older.log").write_text("of another day")
    os.utime(tmp_path / "older.log", (1, 1))
    lines = "import os, sys\nopen('HERE/new.log', 'w').close()\n"
    told = provision.apply_one(
        setup_program(tmp_path, f"{lines}print('it said so', flush=True)\n{code}"), marker
    )
    assert not told["ok"]
    assert said in told["error"]
    assert hint in told["hint"]
    assert told["logs"] == [str(tmp_path / "new.log")]


class Studio:
    """A host on which PowerShell says who has signed a file, and vswhere what is installed.

    The latter's answers have the form of its -format json
    (https://github.com/microsoft/vswhere/wiki/Examples).
    """

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = tmp_path
        self.place = str(tmp_path / "VS")
        self.subject = "CN=Microsoft Corporation, O=Microsoft Corporation, L=Redmond, C=US"
        self.status = "Valid"
        self.found: str | None = "17.14.41+37710.0"
        self.banner = "Microsoft (R) C/C++ Optimizing Compiler Version 19.44.35211 for x64"
        self.ran: list[list[str]] = []
        self.code = 0
        self.state = {"isComplete": True, "isRebootRequired": False}
        monkeypatch.setenv("ProgramFiles(x86)", str(tmp_path))
        locator = tmp_path / "Microsoft Visual Studio/Installer/vswhere.exe"
        locator.parent.mkdir(parents=True)
        locator.touch()
        for module in (installer, visualstudio, inspected):
            monkeypatch.setattr(module, "capture", self.capture)

    def capture(self, command: list[str], **_: Any) -> tuple[int, str]:
        name = Path(command[0]).name
        if name == "powershell.exe":
            if "Get-AuthenticodeSignature" in command[-1]:
                return 0, f"{self.status}|{self.subject}\r\n"
            return 0, "4.10.30.62513\r\n"
        if name == "vswhere.exe":
            row = {
                "installationPath": self.place,
                "catalog": {"productSemanticVersion": self.found},
                "properties": {"setupEngineFilePath": r"C:\x\setup.exe"},
                **self.state,
            }
            return 0, json.dumps([row] if self.found else [])
        if name == "cl.exe":
            return 0, self.banner
        self.ran.append(command[1:])
        program = Path(self.place, "VC/Tools/MSVC/14.44.35207/cl.exe")
        program.parent.mkdir(parents=True, exist_ok=True)
        program.touch()
        return self.code, ""

    @property
    def spec(self) -> dict[str, Any]:
        return setup_program(
            self.root,
            "",
            version="17.14.41",
            signer="Microsoft Corporation",
            prepare=["--update"],
            arguments=["--add"],
            path=self.place,
            toolset="14.44",
            detect=f"{self.place}/VC/Tools/MSVC/14.44.*/cl.exe",
        )


@pytest.fixture
def studio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Studio:
    return Studio(tmp_path, monkeypatch)


def test_what_visual_studio_has_left_is_what_was_asked_for(studio: Studio, marker: str) -> None:
    told = provision.apply_one(studio.spec, marker)
    assert (told["ok"], told["error"]) == (True, "")
    assert studio.ran == [["--update"], ["--add"]]
    assert told["values"]["product"] == "17.14.41"
    assert told["values"]["engine"] == "4.10.30.62513"


@pytest.mark.parametrize(
    ("status", "subject"),
    [
        ("Valid", "CN=Microsoft Corporation, O=Somebody Else, C=US"),
        ("Valid", "CN=x, O=Microsoft Corporation Ltd, C=US"),
        ("Valid", ""),
        ("NotTrusted", "CN=Microsoft Corporation, O=Microsoft Corporation, C=US"),
        ("HashMismatch", "CN=Microsoft Corporation, O=Microsoft Corporation, C=US"),
        ("NotSigned", ""),
    ],
)
def test_what_somebody_else_has_signed_is_not_started(
    studio: Studio, marker: str, status: str, subject: str
) -> None:
    studio.status, studio.subject = status, subject
    told = provision.apply_one(studio.spec, marker)
    assert not told["ok"]
    assert status in told["error"]
    assert told["hint"]
    assert studio.ran == []


def test_without_powershell_nothing_is_started(
    studio: Studio, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: Any, **__: Any) -> tuple[int, str]:
        raise FileNotFoundError("powershell.exe")

    monkeypatch.setattr(visualstudio, "capture", none)
    told = provision.apply_one(studio.spec, marker)
    assert not told["ok"]
    assert "was not started" in told["error"]
    assert studio.ran == []


@pytest.mark.parametrize(
    "change",
    [{"found": "17.14.35+1.0"}, {"found": "17.14.4+1.0"}, {"found": None}, {"banner": "19.38.1"}],
)
def test_another_version_is_refused_the_next_time_as_well(
    studio: Studio, marker: str, change: dict[str, Any]
) -> None:
    for name, value in change.items():
        setattr(studio, name, value)
    told = provision.apply_one(studio.spec, marker)
    assert not told["ok"]
    assert told["error"]
    assert told["hint"]
    (check,) = provision.check_all([studio.spec])
    assert not check["ok"], "its cl.exe is there, and is not what was asked for"
    studio.found, studio.banner = "17.14.41+37710.0", "Version 19.44.35211"
    assert provision.apply_one(studio.spec, marker)["ok"]


def test_a_host_that_has_a_toolset_already_is_left_alone(studio: Studio, marker: str) -> None:
    """Whatever product it is of: the compiler is what a build needs."""
    studio.found = "17.14.35+1.0"
    program = Path(studio.place, "VC/Tools/MSVC/14.44.35207/cl.exe")
    program.parent.mkdir(parents=True)
    program.touch()
    told = provision.apply_one(studio.spec, marker)
    assert (told["ok"], studio.ran) == (True, [])
    assert told["values"]["product"] == "17.14.35"


def test_a_toolset_whose_installation_was_stopped_is_none(studio: Studio, marker: str) -> None:
    """Its cl.exe is there long before the SDK, the libraries and what registers them."""
    program = Path(studio.place, "VC/Tools/MSVC/14.44.35207/cl.exe")
    program.parent.mkdir(parents=True)
    program.touch()
    studio.state = {"isComplete": False, "isRebootRequired": False}
    (check,) = provision.check_all([studio.spec])
    assert not check["ok"]
    assert not provision.apply_one(studio.spec, marker)["ok"], "nor when it ends like that again"
    assert studio.ran == [["--update"], ["--add"]]
    studio.state = {"isComplete": False, "isRebootRequired": True}
    assert provision.apply_one(studio.spec, marker)["ok"]
    assert provision.check_all([studio.spec])[0]["ok"]


def test_a_controller_that_dies_while_it_installs(
    studio: Studio, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = studio.capture

    def killed(command: list[str], **named: Any) -> tuple[int, str]:
        done = genuine(command, **named)
        if command[1:] == ["--add"]:
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(installer, "capture", killed)
    with pytest.raises(KeyboardInterrupt):
        provision.apply_one(studio.spec, marker)
    assert not provision.check_all([studio.spec])[0]["ok"], "where vswhere is none, too"


@pytest.mark.parametrize("code", [5002, 5008])
def test_what_stops_the_first_run_stops_the_second(studio: Studio, marker: str, code: int) -> None:
    studio.code = code
    told = provision.apply_one(studio.spec, marker)
    assert f"exited with {code}, {installer._MEANING[code]}" in told["error"]
    assert told["hint"] == installer._HINT[code]
    assert studio.ran == [["--update"]]


@pytest.mark.parametrize("code", [1641, 3010])
def test_a_restart_is_a_success(
    studio: Studio, marker: str, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr("pipelines.remote.reboot.pending_reboot", list)
    studio.code = code
    told = provision.apply_one(studio.spec | {"reboot": [1641, 3010]}, marker)
    assert told["ok"]
    assert installer._MEANING[code] in told["reboot"]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("Item has already been added. Key in dictionary: 'http_proxy'", "environment variables"),
        ("System.Net.WebException ... HRESULT: 0x80131509", "certificates"),
    ],
)
def test_what_only_the_log_tells_is_told(tmp_path: Path, marker: str, line: str, word: str) -> None:
    code = f"import sys\nopen('HERE/a.log', 'w').write({line!r})\n"
    told = provision.apply_one(setup_program(tmp_path, f"{code}sys.exit(1)"), marker)
    assert word in told["error"]
    assert told["hint"] != "Its See its logs."


@pytest.mark.parametrize("number", [1602, 1603, 740, 3221246609])
def test_codes_have_a_meaning(
    tmp_path: Path, marker: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(installer, "capture", lambda *_, **__: (number, "x" * 9999))
    told = provision.apply_one(setup_program(tmp_path, ""), marker)
    assert f"exited with {number}, {installer._MEANING[number]}" in told["error"]
    assert len(told["error"]) < 2000


def test_another_installation_is_waited_for(
    tmp_path: Path, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [1618, 1618, 0]

    def capture(*_: object, **__: object) -> tuple[int, str]:
        if len(answers) == 1:
            (tmp_path / "installed-1").touch()
        return answers.pop(0), ""

    monkeypatch.setattr(installer, "capture", capture)
    monkeypatch.setattr(installer, "_BUSY_PAUSE", 0.01)
    assert provision.apply_one(setup_program(tmp_path, ""), marker)["ok"]
    assert answers == []


def test_an_installer_that_never_ends(tmp_path: Path, marker: str) -> None:
    code = "import os, time\nos.spawnlp(os.P_NOWAIT, 'sleep', 'sleep', '61')\ntime.sleep(60)"
    told = provision.apply_one(setup_program(tmp_path, code, minutes=0.01), marker)
    assert "did not finish within 0.01 minutes" in told["error"]
    assert "dialog" in told["hint"]
    assert not running(b"sleep\0" + b"61")


def test_one_that_is_not_there(tmp_path: Path, marker: str) -> None:
    spec = setup_program(tmp_path, "")
    Path(spec["files"][0]["file"]).unlink()
    assert "cannot be copied" in provision.apply_one(spec, marker)["error"]
    empty = tmp_path / "no program"
    empty.touch()
    told = provision.apply_one({**spec, "files": [pinned(str(empty))]}, marker)
    assert "cannot be started" in told["error"]


def test_what_was_changed_after_the_upload_is_never_run(tmp_path: Path, marker: str) -> None:
    """F1: the hash that counts is that of the copy, right before it is started."""
    other = tmp_path / "channel.chman"
    for changed in (0, 1):
        other.write_text("as pinned")
        spec = setup_program(tmp_path, DONE)
        spec["files"].append(pinned(str(other)))
        file = Path(spec["files"][changed]["file"])
        file.write_text(file.read_text() + "# planted\n")
        told = provision.apply_one(spec, marker)
        assert spec["files"][changed]["sha256"] in told["error"]
        assert not (tmp_path / "installed-1").exists()


def test_an_installer_runs_where_nobody_else_can_enter(tmp_path: Path, marker: str) -> None:
    other = tmp_path / "channel.chman"
    other.write_text("as pinned")
    code = (
        "import os, stat\n"
        "place = os.path.dirname(sys.argv[0])\n"
        "assert stat.S_IMODE(os.stat(place).st_mode) == 0o700, place\n"
        "assert sys.argv[1] == place + '/channel.chman', sys.argv\n"
        "print(place, flush=True); sys.exit(7)\n"
    )
    spec = setup_program(tmp_path, "import sys\n" + code, arguments=[str(other)])
    spec["files"].append(pinned(str(other)))
    told = provision.apply_one(spec, marker)
    place = Path(told["error"].split()[-1])
    assert "exited with 7" in told["error"]
    assert place != tmp_path
    assert not place.exists()


def test_what_an_installer_fills_is_made_before_it_runs(
    tmp_path: Path, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F5: the installer would make it, with the rights that it inherits."""
    order: list[str] = []

    def make(path: str, *, readable: bool) -> None:
        order.append(path)

    def capture(*_: object, **__: object) -> tuple[int, str]:
        order.append("ran")
        return 0, ""

    monkeypatch.setattr("pipelines.remote.protected_dirs.make", make)
    monkeypatch.setattr(installer, "capture", capture)
    provision.apply_one(setup_program(tmp_path, "", path="C:\\VS"), marker)
    assert order == ["C:\\VS", "ran"]


# -- the Task Scheduler ----------------------------------------------------------------------------

SCHTASKS = r"""
import json, pathlib, shlex, subprocess, sys, xml.etree.ElementTree as ET
store = pathlib.Path(__file__).parent / "tasks"
store.mkdir(exist_ok=True)
verb, name = sys.argv[1], sys.argv[3]
file = store / name
if verb == "/Create":
    data = pathlib.Path(sys.argv[5]).read_bytes()
    assert data[:2] in (b"\xff\xfe", b"\xfe\xff"), "schtasks reads UTF-16 only"
    ET.fromstring(data)
    file.write_bytes(data)
elif not file.exists():
    sys.exit("ERROR: The system cannot find the file specified.")
elif verb == "/Delete":
    file.unlink()
elif verb == "/Run":
    run = next(e for e in ET.fromstring(file.read_bytes()).iter() if e.tag.endswith("Exec"))
    words = [run[0].text, *shlex.split(run[1].text)]
    subprocess.Popen(words, start_new_session=True, stdin=-3, stdout=-3, stderr=-3)
"""


@pytest.fixture
def schtasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in that keeps tasks in files and starts them as the real one would."""
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin", "schtasks.exe", SCHTASKS)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path / "bin/tasks"


@pytest.mark.slow
def test_an_installer_as_a_task(tmp_path: Path, marker: str, schtasks: Path) -> None:
    spec = setup_program(tmp_path, f"{DONE}print('hello'); sys.exit(194)", as_task=True)
    told = provision.apply_one({**spec, "reboot": [194]}, marker)
    assert told["ok"]
    assert told["reboot"]
    assert list(schtasks.iterdir()) == [], "the task is gone"
    (tmp_path / "installed-1").unlink()
    spec = setup_program(tmp_path, "print('why'); raise SystemExit(7)", as_task=True)
    told = provision.apply_one(spec, marker)
    assert "exited with 7: why" in told["error"]
    spec = setup_program(tmp_path, "import time; time.sleep(62)", as_task=True, minutes=0.02)
    told = provision.apply_one(spec, marker)
    assert "did not finish" in told["error"]
    assert list(schtasks.iterdir()) == []


def test_a_task_that_never_starts(
    tmp_path: Path, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy keeps SYSTEM from starting Python: two hours are not waited for it."""
    program(tmp_path, "schtasks.exe", "")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(scheduler, "_SILENCE", 0.3)
    told = provision.apply_one(setup_program(tmp_path, "", as_task=True, minutes=120), marker)
    assert "has not reported anything" in told["error"]
    assert "Task Scheduler" in told["hint"]


def test_a_cancelled_job_ends_its_task(
    tmp_path: Path, marker: str, schtasks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = threading.Event()
    monkeypatch.setattr(scheduler, "cancelled", event)
    threading.Timer(0.7, event.set).start()
    spec = setup_program(tmp_path, "import time; time.sleep(63)", as_task=True, minutes=5)
    assert "did not finish" in provision.apply_one(spec, marker)["error"]
    assert list(schtasks.iterdir()) == []
    assert not running(str(tmp_path).encode())


def test_of_endless_output_the_end_is_kept(tmp_path: Path, marker: str, schtasks: Path) -> None:
    code = "print('x' * 300000 + 'the end'); raise SystemExit(7)"
    told = provision.apply_one(setup_program(tmp_path, code, as_task=True), marker)
    assert told["error"].endswith("the end")
    _, output = scheduler.run([sys.executable, "-c", "print('y' * 300000)"], timeout=20)
    assert len(output) == scheduler._OUTPUT_LIMIT


def test_a_task_scheduler_that_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marker: str
) -> None:
    program(tmp_path, "schtasks.exe", "import sys; sys.exit('ERROR: Access is denied.')")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    told = provision.apply_one(setup_program(tmp_path, "", as_task=True), marker)
    assert "Access is denied" in told["error"]
    assert "administrator" in told["hint"]


# -- restarts --------------------------------------------------------------------------------------


def test_reasons_are_kept_once_each(marker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.remote.reboot.pending_reboot", lambda: ["Windows Update"])
    reboot.ask(marker, "one")
    reboot.ask(marker, "two")
    reboot.ask(marker, "one")
    assert reboot.requested(marker) == ["one", "two"]
    spec: reboot.Spec = {"kind": "reboot", "marker": marker}
    assert reboot.check(spec) == {
        "ok": False,
        "found": "one; two; Windows Update",
        "values": {"reasons": "one; two"},
    }
    assert "restart needed" in provision.apply_one(spec, marker)["error"]
    Path(marker).write_text(json.dumps({"boot": "x"}))
    assert reboot.check(spec) == {"ok": True, "found": "Windows Update", "values": {}}
