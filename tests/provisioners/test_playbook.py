"""The playbook against a simulated Windows: the roles' own logic, without any real module.

Evidence level F (simulator): order, conditions, templates, repetition and ``--check`` are shown;
that the real modules and installers do as fake_windows.py assumes is not.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.toolchain.lock import load_lock

ROOT = Path(__file__).parents[2]
BIN = ROOT / ".venv-ansible/bin"
HERE = Path(__file__).parent
VARIABLES = Path("group_vars/all/toolchain.yml")

pytestmark = [
    pytest.mark.provisioners,
    pytest.mark.skipif(
        not (BIN / "ansible-playbook").exists(),
        reason="no .venv-ansible: scripts/check-provisioners --setup makes it",
    ),
]

COLLECTIONS = {
    "ansible": "win_command win_copy win_environment win_file win_find win_get_url win_path "
    "win_powershell win_reboot win_reg_stat win_regedit win_service win_stat slurp",
    "community": "win_firewall_rule",
}
# In Ansible's own process, which is many times faster than a module; what is asynchronous has to be
# a module. WANT_JSON tells Ansible to hand over the arguments as a file.
ACTION = """
from ansible.plugins.action import ActionBase
from fake_windows import simulate

class ActionModule(ActionBase):
    _supports_async = True

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        task = self._task
        if task.async_val:
            return self._execute_module(
                module_name=task.action, module_args=task.args, task_vars=task_vars, wrap_async=True
            )
        if "path" in task.args and task.action.endswith("win_powershell"):
            self._find_needle("files", task.args["path"])
        return simulate(task.action.rpartition(".")[2], task.args, task.check_mode)
"""
MODULE = """#!/usr/bin/python
# WANT_JSON
from fake_windows import main
main({module!r})
"""
ARCHIVES = {
    "cuda_nvcc-": [r"bin\nvcc.exe"],
    r"MinGit-": [r"cmd\git.exe"],
    r"cpython-": ["python.exe"],
    r"\\uv-": ["uv.exe"],
    r"\\ninja-": ["ninja.exe"],
    r"\\sccache-": ["sccache.exe"],
}
BARE: dict[str, Any] = {
    "files": {},
    "registry": {
        rf"HKCU:\Environment!{name}": r"C:\Users\builder\AppData\Local\Temp"
        for name in ("TEMP", "TMP")
    },
    "wsman": {
        r"WSMan:\localhost\Service\AllowUnencrypted": "true",
        r"WSMan:\localhost\Service\Auth\Basic": "true",
    },
    "settings": {},
    "path": {},
    "listeners": [
        {"name": "Listener_1", "transport": "HTTP", "port": "5985", "certificatethumbprint": ""},
        {"name": "Listener_2", "transport": "HTTPS", "port": "5986", "certificatethumbprint": "AB"},
    ],
    "archives": ARCHIVES,
    "ran": [],
    "unsafe": [],
    "protected": [],
    "knobs": {
        "toolset": "14.44",
        "model": "MCDM",
        "signature": "Valid|CN=Microsoft Corporation, O=Microsoft Corporation, L=Redmond, C=US",
    },
}


@dataclass
class Outcome:
    rc: int
    text: str
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """The text without Ansible's line breaks."""
        return " ".join(self.text.split())


@dataclass
class Site:
    """A copy of ansible/ with every pin in place, and a bare simulated Windows."""

    root: Path
    state_file: Path

    @property
    def state(self) -> dict[str, Any]:
        return dict(json.loads(self.state_file.read_text("utf-8")))

    def change(self, function: Callable[[dict[str, Any]], object]) -> None:
        state = self.state
        function(state)
        self.state_file.write_text(json.dumps(state), "utf-8")

    def change_pins(self, function: Callable[[dict[str, Any]], object]) -> None:
        path = self.root / "ansible" / VARIABLES
        pins = yaml.safe_load(path.read_text("utf-8"))
        function(pins)
        path.write_text(yaml.safe_dump(pins), "utf-8")

    def play(self, *flags: str) -> Outcome:
        environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "FAKE_WINDOWS": str(self.state_file),
            "PYTHONPATH": str(HERE),
            "ANSIBLE_COLLECTIONS_PATH": str(self.root / "collections"),
            "ANSIBLE_HOME": str(self.root / "home"),
            "ANSIBLE_LOCAL_TEMP": str(self.root / "tmp"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_DEPRECATION_WARNINGS": "0",
        }
        run = subprocess.run(
            [
                *(str(BIN / "ansible-playbook"), "site.yml"),
                *("-i", str(self.root / "inventory.yml")),
                *("-e", f"@{self.root / 'quick.yml'}"),
                *flags,
            ],
            cwd=self.root / "ansible",
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        text = run.stdout + run.stderr
        recap = re.search(r"builder +: (.*)", run.stdout)
        counts = re.findall(r"(\w+)=(\d+)", recap[1]) if recap else []
        return Outcome(run.returncode, text, {name: int(count) for name, count in counts})


@pytest.fixture
def site(tmp_path: Path) -> Site:
    shutil.copytree(ROOT / "ansible", tmp_path / "ansible")
    for namespace, modules in COLLECTIONS.items():
        base = tmp_path / f"collections/ansible_collections/{namespace}/windows"
        for kind in ("modules", "action"):
            (base / "plugins" / kind).mkdir(parents=True)
        (base / "galaxy.yml").write_text(
            f"namespace: {namespace}\nname: windows\nversion: 99.0.0\nreadme: x\nauthors: [x]\n"
        )
        for module in modules.split():
            (base / f"plugins/modules/{module}.py").write_text(MODULE.format(module=module))
            (base / f"plugins/action/{module}.py").write_text(ACTION)
    host = {"ansible_connection": "local", "ansible_python_interpreter": str(BIN / "python")}
    # runas itself does nothing on a POSIX host, but Ansible would give its files to "SYSTEM".
    host["ansible_become_user"] = "root"
    # Written under $HOME and looked for under the account's home, which may differ.
    host["ansible_async_dir"] = str(tmp_path / "async")
    (tmp_path / "inventory.yml").write_text(
        yaml.safe_dump({"windows_build": {"hosts": {"builder": host}}})
    )
    (tmp_path / "quick.yml").write_text(
        yaml.safe_dump({"wsman_values_delay": 0, "build_tools_poll": 1, "gpu_driver_poll": 1})
    )
    made = Site(tmp_path, tmp_path / "windows.json")
    made.state_file.write_text(json.dumps(BARE), "utf-8")

    def pin(node: Any) -> None:
        if isinstance(node, dict) and node.get("sha256") == "":
            node["sha256"] = "a" * 64
        for child in node.values() if isinstance(node, dict) else node:
            if isinstance(child, dict | list):
                pin(child)

    def shorten(pins: dict[str, Any]) -> None:
        """Two Pythons and three archives of CUDA go through the same loops as all of them."""
        pythons, cuda = pins["toolchain_pythons"], pins["toolchain_cuda"]
        pins["toolchain_pythons"] = {minor: pythons[minor] for minor in ("3.10", "3.12")}
        rows = {row["name"].rpartition("-")[2]: row for row in cuda["12.8"]}
        cuda["12.8"] = [rows[name] for name in ("cuda_cudart", "cuda_nvcc", "libcublas")]

    made.change_pins(pin)
    made.change_pins(shorten)
    for wheel in yaml.safe_load((tmp_path / "ansible" / VARIABLES).read_text())["toolchain_wheels"]:
        (tmp_path / "ansible/files" / wheel["file"]).write_text(wheel["sha256"])
    return made


def test_check_changes_nothing_on_a_bare_host(site: Site) -> None:
    before = site.state
    checked = site.play("--check")
    assert checked.rc == 0, checked.text
    assert checked.counts["changed"] > 10
    after = site.state
    assert after.pop("ran") == before.pop("ran") == []
    assert after == before, "--check changed something"


def test_a_bare_host_then_again(site: Site) -> None:
    first = site.play()
    assert first.rc == 0, first.text
    state = site.state
    assert state["wsman"][r"WSMan:\localhost\Service\Auth\Basic"] == "false"
    assert state["wsman"][r"WSMan:\localhost\Service\AllowUnencrypted"] == "false"
    assert [row["transport"] for row in state["listeners"]] == ["HTTPS"]
    quota = r"WSMan:\localhost\{}\MaxMemoryPerShellMB"
    for place in ("Shell", r"Plugin\Microsoft.PowerShell\Quotas"):
        assert state["wsman"][quota.format(place)] == "8192"
    assert state["restarts"] == 2  # once for each role that changed the service
    assert state["reboots"] == 3  # long paths, C run-time, Build Tools
    assert "rule WinRM over HTTPS for windows-cuda-wheels" not in state["settings"]
    assert state["registry"][r"HKCU:\Environment!TEMP"] != r"C:\t"
    assert {place for place in state["protected"] if place.count("\\") == 1} == {
        *(r"c:\b", r"c:\t", r"c:\vs", r"c:\cuda", r"c:\tools", r"c:\python")
    }
    wanted = [r"C:\cuda\12.8\bin\nvcc.exe", r"C:\tools\git\cmd\git.exe", r"C:\tools\uv\uv.exe"]
    wanted += [rf"C:\python\3.{minor}\python.exe" for minor in (10, 12)]
    assert not [path for path in wanted if path not in state["files"]]
    listed = json.loads(state["files"][r"C:\cuda\12.8\.archives.json"])
    assert set(listed) == {f"cuda-12.8-{n}" for n in ("cuda_cudart", "cuda_nvcc", "libcublas")}
    assert not [path for path in state["files"] if path.startswith((r"C:\t\setup", r"C:\t\archi"))]
    first, setup = (argv for argv in state["ran"] if argv[0].endswith("vs_BuildTools.exe"))
    assert first[1:] == ["--quiet", "--wait", "--update"]
    assert setup[setup.index("--channelUri") + 1] == r"C:\doesntExist.chman"
    assert setup[setup.index("--installChannelUri") + 1].startswith("https://aka.ms/vs/17/release/")
    assert "--nocache" not in setup
    assert "Microsoft.VisualStudio.Component.VC.Tools.x86.x64" in setup
    assert "modify" not in setup

    ran = len(state["ran"])
    again = site.play()
    assert again.rc == 0, again.text
    assert again.counts["changed"] == 0, again.text
    tools = {argv[0].rpartition("\\")[2] for argv in site.state["ran"][ran:]}
    assert not tools & {"vs_BuildTools.exe", "VC_redist.x64.exe", "tar.exe"}
    assert site.play("--check").counts["changed"] == 0


@pytest.mark.parametrize(
    ("place", "tag"),
    [
        (r"C:\b", "long_paths"),
        (r"C:\t", "build_tools"),
        (r"C:\VS", "build_tools"),
        (r"C:\cuda", "cuda"),
        (r"C:\tools\git", "git"),
        (r"C:\python\3.12", "python"),
    ],
)
def test_what_others_may_have_filled_is_refused(site: Site, place: str, tag: str) -> None:
    """Also where it looks finished: the list of what is unpacked can be planted as well."""
    assert site.play("--tags", tag).rc == 0
    ran = len(site.state["ran"])
    site.change(lambda state: state["unsafe"].append(place.lower()))
    if tag == "build_tools":  # nothing is brought to a host that has everything
        gone = "registry" if place == r"C:\t" else "settings"
        site.change(lambda state: state[gone].clear())
    for flags in ((), ("--check",)):
        refused = site.play("--tags", tag, *flags)
        assert refused.rc != 0
        assert f"{place} is not safe to use" in refused.words
    # Windows' own, and no program that lies there or came from there.
    assert {argv[0].rpartition("\\")[2] for argv in site.state["ran"][ran:]} <= {"vswhere.exe"}


def test_a_changed_pin_unpacks_that_directory_anew(site: Site) -> None:
    assert site.play("--tags", "git").rc == 0
    site.change(lambda state: state["files"].update({r"C:\tools\git\old.txt": ""}))
    site.change_pins(lambda pins: pins["toolchain_git"].update(sha256="b" * 64))
    assert site.play("--tags", "git").counts["changed"] > 0
    assert r"C:\tools\git\old.txt" not in site.state["files"]
    assert "b" * 64 in site.state["files"][r"C:\tools\git\.archives.json"]


def test_nothing_is_done_without_every_hash(site: Site) -> None:
    """All that lack one are named at once, and --tags decides which are needed."""
    before = site.state

    def unpin(pins: dict[str, Any]) -> None:
        pins["toolchain_vc_redist"].update(sha256="")
        pins["toolchain_pythons"]["3.12"].update(sha256="")
        pins["toolchain_cuda"]["13.0"][0].update(sha256="")  # not asked for

    site.change_pins(unpin)
    outcome = site.play()
    assert outcome.rc != 0
    said = "Not pinned yet: vc-redist, python-3.12. Run invoke lock on a connected machine"
    assert said in outcome.words
    assert site.state == before

    other = site.play("--tags", "git")
    assert other.rc == 0, other.text


def test_the_committed_pins_are_enough_or_refused(site: Site) -> None:
    """With the lock as it is: nothing is done while anything is unpinned."""
    shutil.copy(ROOT / "ansible" / VARIABLES, site.root / "ansible" / VARIABLES)
    used = (ROOT / "ansible" / VARIABLES).read_text()
    unpinned = [name for name, tool in load_lock().tools.items() if not tool.pinned]
    missing = [name for name in unpinned if name in used]  # torch's wheels are a build's matter
    before = site.state
    outcome = site.play()
    assert (outcome.rc == 0) == (not missing), outcome.text
    if missing:
        assert not [name for name in missing if name not in outcome.words]
        assert site.state == before


@pytest.mark.parametrize("given", [{"cuda_minor": "9.9"}, {"python_minors": ["3.12", "3.9"]}])
def test_versions_that_the_lock_lacks(site: Site, given: dict[str, Any]) -> None:
    before = site.state
    outcome = site.play("-e", json.dumps(given))
    assert outcome.rc != 0
    assert "toolchain.lock.yaml has CUDA 12.4, " in outcome.words
    assert site.state == before


def test_wrong_bytes_are_not_used(site: Site) -> None:
    site.change(lambda s: s["knobs"].update(corrupt="MinGit"))
    outcome = site.play("--tags", "git")
    assert outcome.rc != 0
    assert re.search(r"MinGit-\S+ has sha256 0{64}, pinned is .* do not use it", outcome.words)
    assert not [argv for argv in site.state["ran"] if argv[0].endswith("tar.exe")]


def test_a_wheel_that_is_not_staged(site: Site) -> None:
    for wheel in (site.root / "ansible/files").glob("ninja-*.whl"):
        wheel.unlink()
    outcome = site.play("--tags", "python", "-e", '{"python_minors": ["3.12"]}')
    assert outcome.rc != 0
    assert re.search(r"lacks ninja-\S+: run invoke lock --stage ansible/files", outcome.words)
    assert r"C:\tools\ninja\ninja.exe" not in site.state["files"]


def test_an_installer_that_fails_shows_its_log(site: Site) -> None:
    site.change(lambda state: state["knobs"].update(vs_fails=True))
    outcome = site.play("--tags", "build_tools")
    assert outcome.rc != 0
    assert "vs_buildtools left with 1603" in outcome.words
    assert "the disk is full" in outcome.words


@pytest.mark.parametrize(
    "signature",
    [
        "Valid|CN=x, O=Microsoft Corporation Ltd, C=US",
        "NotTrusted|CN=x, O=Microsoft Corporation",
        "NotSigned|",
    ],
)
def test_another_signer_is_refused(site: Site, signature: str) -> None:
    site.change(lambda state: state["knobs"].update(signature=signature))
    outcome = site.play("--tags", "build_tools")
    assert outcome.rc != 0
    assert "expected a valid signature of Microsoft Corporation" in outcome.words
    assert not any("vs_BuildTools" in argv[0] for argv in site.state["ran"])


def test_another_toolset_is_noticed(site: Site) -> None:
    site.change(lambda state: state["knobs"].update(toolset="14.29"))
    outcome = site.play("--tags", "build_tools")
    assert outcome.rc != 0
    assert "No cl.exe of toolset 14.44" in outcome.words


@pytest.mark.parametrize(
    ("listeners", "given", "says"),
    [
        (slice(0, 1), {}, "no HTTPS listener"),
        (
            slice(0, 2),
            {"winrm_hardening_port": 443},
            "no HTTPS listener with a certificate on port",
        ),
        (slice(0, 2), {"ansible_port": 5985}, "reaches this host over HTTP"),
        (slice(0, 2), {"ansible_winrm_scheme": "http"}, "reaches this host over HTTP"),
    ],
)
def test_a_host_is_not_locked_out(
    site: Site, listeners: slice, given: dict[str, Any], says: str
) -> None:
    site.change(lambda state: state.update(listeners=state["listeners"][listeners]))
    before = site.state
    outcome = site.play("--tags", "winrm", "-e", json.dumps(given))
    assert outcome.rc != 0
    assert says in outcome.words
    assert site.state == before


def test_what_the_firewall_and_the_network_are_told(site: Site) -> None:
    given = {
        "winrm_hardening_controllers": ["192.0.2.10", "198.51.100.0/24"],
        "winrm_hardening_private_network": False,
        "winrm_hardening_remove_http": False,
    }
    outcome = site.play("--tags", "winrm", "-e", json.dumps(given))
    assert outcome.rc == 0, outcome.text
    rule = site.state["settings"]["rule WinRM over HTTPS for windows-cuda-wheels"]
    assert rule["remoteip"] == "192.0.2.10,198.51.100.0/24"
    assert int(rule["localport"]) == 5986
    assert "network" not in site.state["settings"]
    assert [row["transport"] for row in site.state["listeners"]] == ["HTTP", "HTTPS"]


def test_driver(site: Site) -> None:
    quiet = site.play("--tags", "gpu_driver")
    assert quiet.rc == 0
    assert "the driver is left as it is" in quiet.words
    assert not site.state["ran"]

    site.change(lambda state: state["files"].update({r"D:\driver.exe": "c" * 64}))
    given = {"gpu_driver_installer": r"D:\driver.exe", "gpu_driver_sha256": "c" * 64}
    given |= {"gpu_driver_version": "581.15"}
    flags = ("--tags", "gpu_driver", "-e", json.dumps(given))
    first = site.play(*flags)
    assert first.rc == 0, first.text
    assert site.state["reboots"] == 1
    assert [argv[0] for argv in site.state["ran"] if argv[1:] == ["-s", "-noreboot"]] == [
        r"C:\t\driver\installer.exe"
    ]
    assert r"C:\t\driver\installer.exe" not in site.state["files"]
    again = site.play(*flags)
    assert again.counts["changed"] == 0, again.text
    wrong = site.play(*flags, "-e", json.dumps({"gpu_driver_models": ["WDDM"]}))
    assert wrong.rc != 0
    assert "NVIDIA L4, 581.15, MCDM" in wrong.words
    damaged = site.play(
        *flags, "-e", json.dumps({"gpu_driver_sha256": "d" * 64, "gpu_driver_version": "999.99"})
    )
    assert damaged.rc != 0
    assert "pinned is" in damaged.words
