"""The playbook with Ansible's own modules, over WinRM, in genuine PowerShell; Windows is Wine.

What stands in, besides standins.ps1 (for the WSMan: drive, in the roles' own scripts) and the
programs of windows_programs.py:

| missing under Wine | here |
|-|-|
| SYSTEM, asynchronous tasks (CIM, pipes of .NET Framework) | the account that signs in, no async |
| Get-CimInstance, a restart | the number of restarts as the time of the last one |
| a service's triggers, what follows its failure | a win_service that knows two values |
| signatures of Microsoft | what a test says, unless it wants the genuine cmdlet |
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from setup_state import State
from windows import ROOT, InWine, powershell_folder
from windows_programs import (
    SIGNATURE,
    SIGNED,
    content,
    executable,
    install,
    knob,
    packed,
    ran,
)

from pipelines.hosts.base import OpenOptions, Silent
from pipelines.toolchain.lock import Cache, load_lock

BIN = ROOT / ".venv-ansible/bin"
VARIABLES = "group_vars/all/toolchain.yml"

pytestmark = pytest.mark.skipif(
    not (BIN / "ansible-playbook").exists(),
    reason="no .venv-ansible: scripts/check-provisioners --setup makes it",
)

#: A module, which PowerShell loads by itself where no other has the function.
_CIM = """
function Get-CimInstance {
    param($ClassName, $Property)
    $boots = [long] [System.IO.File]::ReadAllText('C:\\scripts\\boots.txt')
    [pscustomobject] @{ LastBootUpTime = [DateTime]::new(2026, 1, 1).AddHours($boots) }
}
"""
_SERVICE = r"""#!powershell
#AnsibleRequires -CSharpUtil Ansible.Basic
$text = @{ type = 'str' }
$options = @{ name = $text; state = $text; start_mode = $text }
$spec = @{ options = $options; supports_check_mode = $true }
$module = [Ansible.Basic.AnsibleModule]::Create($args, $spec)
$file = 'C:\scripts\service-' + $module.Params.name
foreach ($name in 'start_mode', 'state') {
    $wanted = $module.Params[$name]
    $found = @(Get-Content "$file-$name" -ErrorAction Ignore)
    if ($wanted -eq 'restarted' -or ($wanted -and $found -notcontains $wanted)) {
        $module.Result.changed = $true
        if (-not $module.CheckMode) { Add-Content "$file-$name" $wanted }
    }
}
$module.ExitJson()
"""


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
    """A copy of ansible/ whose pins are of small files on a server, and a bare Windows."""

    root: Path
    windows: InWine
    served: dict[str, bytes]
    state: dict[str, Any]
    http: int | None
    """The port of its other listener."""

    def there(self, path: str) -> Path:
        return self.windows.path(path)

    def ran(self) -> list[list[str]]:
        return ran(self.windows)

    def directories(self) -> set[str]:
        return {path.name for path in self.there("C:\\").iterdir() if path.is_dir()}

    def winrm(self) -> dict[str, Any]:
        return dict(json.loads(self.there(r"C:\scripts\state.json").read_text("utf-8")))

    def change_winrm(self, **values: object) -> None:
        self.there(r"C:\scripts\state.json").write_text(json.dumps(self.state | values))

    def change_pins(self, function: Callable[[dict[str, Any]], object]) -> None:
        path = self.root / "ansible" / VARIABLES
        pins = yaml.safe_load(path.read_text("utf-8"))
        function(pins)
        path.write_text(yaml.safe_dump(pins), "utf-8")

    def play(self, *flags: str) -> Outcome:
        environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
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
            timeout=900,
            check=False,
        )
        text = run.stdout + run.stderr
        recap = re.search(r"builder +: (.*)", run.stdout)
        counts = re.findall(r"(\w+)=(\d+)", recap[1]) if recap else []
        return Outcome(run.returncode, text, {name: int(count) for name, count in counts})


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    from pipelines.hosts.sandbox.config import SandboxHost
    from pipelines.hosts.sandbox.host import Sandbox
    from pipelines.hosts.sandbox.wine import Prefix

    powershell_folder()
    config = SandboxHost.model_validate({"kind": "sandbox", "home": str(tmp_path / "sandbox")})
    sandbox = Sandbox("builder", config, OpenOptions("3.11", Cache(load_lock()), Silent()))
    sandbox.make()
    running = sandbox.start(ephemeral=True)
    endpoint = sandbox.endpoint(running)
    windows = InWine(Prefix(sandbox.prefix))
    state = _stand_in(windows)
    served: dict[str, bytes] = {}
    server = _serving(served)
    address = urlsplit(endpoint.url)
    host = {
        "ansible_connection": "winrm",
        "ansible_host": address.hostname,
        "ansible_port": address.port,
        "ansible_winrm_scheme": "https",
        "ansible_winrm_transport": "ntlm",
        "ansible_winrm_ca_trust_path": str(endpoint.ca),
        "ansible_user": endpoint.username,
        "ansible_password": endpoint.secret(),
        "ansible_become": False,
    }
    inventory = {"windows_build": {"hosts": {"builder": host}}}
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump(inventory))
    quick = dict.fromkeys(("wsman_values_delay", "build_tools_timeout", "gpu_driver_timeout"), 0)
    (tmp_path / "quick.yml").write_text(yaml.safe_dump(quick))
    made = Site(tmp_path, windows, served, state, urlsplit(running["http"]).port)
    _copy_playbook(made, f"http://127.0.0.1:{server.server_port}")
    made.change_winrm()
    yield made
    server.shutdown()
    sandbox.teardown()


def _stand_in(windows: InWine) -> dict[str, Any]:
    """Put what Wine lacks into a Windows; what standins.ps1 knows of its WinRM."""
    from pipelines.hosts.sandbox.powershell import PLACE

    install(windows, "tar", "shutdown")
    windows.path(r"C:\scripts\boots.txt").write_text("0")
    windows.path(r"C:\scripts\signature.txt").write_text(SIGNED)
    shutil.copy(ROOT / "tests/powershell/standins.ps1", windows.path(r"C:\scripts"))
    modules = windows.prefix.drive / PLACE / "Modules"
    shutil.rmtree(modules / "CimCmdlets")
    (modules / "StandIns").mkdir()
    (modules / "StandIns/StandIns.psm1").write_text(_CIM)
    return State.fresh() | {
        "listeners": {
            "Listener_1": {"Transport": "HTTP", "Port": "5985", "CertificateThumbprint": ""},
            "Listener_2": {"Transport": "HTTPS", "Port": "5986", "CertificateThumbprint": "AB"},
        },
        "networks": {"4": "Public"},
        "quotas": {
            rf"{place}\{limit}": "1024"
            for place in ("Shell", r"Plugin\Microsoft.PowerShell\Quotas")
            for limit in ("MaxMemoryPerShellMB", "MaxProcessesPerShell", "MaxShellsPerUser")
        }
        | {r"Shell\IdleTimeout": "180000"}
        | {r"Client\AllowUnencrypted": "true", r"Client\Auth\Basic": "true"},
    }


def _serving(served: dict[str, bytes]) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = served.get(self.path.strip("/"))
            self.send_response(200 if data is not None else 404)
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            self.wfile.write(data or b"")

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def _copy_playbook(site: Site, url: str) -> None:
    target = site.root / "ansible"
    shutil.copytree(ROOT / "ansible", target)
    for script in target.glob("roles/*/files/*.ps1"):
        before = {"Get-Signature.ps1": SIGNATURE}.get(script.name, "")
        if "winrm" in script.parts[-3] or "wsman" in script.parts[-3]:
            before = ". C:\\scripts\\standins.ps1\n"
        head, first, rest = re.split(r"^(\$)", script.read_text(), maxsplit=1, flags=re.M)
        script.write_text(head + before + first + rest)
    (collection,) = BIN.parent.glob(
        "lib/python3*/site-packages/ansible_collections/ansible/windows"
    )
    copy = site.root / "collections/ansible_collections/ansible/windows"
    shutil.copytree(collection, copy, ignore=shutil.ignore_patterns("tests", "docs"))
    (copy / "plugins/modules/win_service.ps1").write_text(_SERVICE)
    handlers = target / "roles/wsman_values/handlers/main.yml"
    handlers.write_text(handlers.read_text().replace("  async: 120\n  poll: 0\n", ""))

    def pin(node: Any) -> None:
        if isinstance(node, dict) and "sha256" in node:
            data = content(node, site.windows)
            node["sha256"] = hashlib.sha256(data).hexdigest()
            if node["url"]:
                site.served[node["file"]] = data
                node["url"] = f"{url}/{node['file']}"
            else:
                (target / "files" / node["file"]).write_bytes(data)
        for child in node.values() if isinstance(node, dict) else node:
            if isinstance(child, dict | list):
                pin(child)

    def shorten(pins: dict[str, Any]) -> None:
        """One Python, one tool, two archives of CUDA go through the same loops as all of them."""
        pins["toolchain_pythons"] = {"3.11": pins["toolchain_pythons"]["3.11"]}
        pins["toolchain_wheels"] = pins["toolchain_wheels"][:1]
        rows = {row["name"].rpartition("-")[2]: row for row in pins["toolchain_cuda"]["12.8"]}
        pins["toolchain_cuda"] = {"12.8": [rows["cuda_cudart"], rows["cuda_nvcc"]]}

    site.change_pins(shorten)
    site.change_pins(pin)


#: Each value costs two PowerShells, of seconds each.
_FEW = {
    "winrm_hardening_values": [{"name": r"Service\Auth\Basic", "value": "false"}],
    "winrm_quotas_plugins": [],
}


def closed(site: Site, before: set[str]) -> set[str]:
    """The directories below C:\\ that are new; others may not even look into them."""
    made = site.directories() - before
    for name in made:  # Wine keeps the rights of Everyone as those of others
        assert site.there(rf"C:\{name}").stat().st_mode & 0o007 == 0, name
    return made


@pytest.mark.provisioners
def test_windows_and_build_tools_then_again(site: Site) -> None:
    """The first run changes everything, the second nothing."""
    shutil.rmtree(site.there(r"C:\VS"))  # the sandbox's own
    before = site.directories()
    flags = ("--tags", "winrm,long_paths,build_tools", "-e", json.dumps(_FEW))
    first = site.play(*flags)
    assert first.rc == 0, first.text
    assert closed(site, before) == {"b", "t", "VS"}
    winrm = site.winrm()
    assert [row["Transport"] for row in winrm["listeners"].values()] == ["HTTPS"]
    assert winrm["service"]["Auth\\Basic"] == "false"
    assert winrm["quotas"][r"Shell\MaxMemoryPerShellMB"] == "8192"
    assert winrm["networks"] == {"4": "Private"}
    assert site.there(r"C:\scripts\boots.txt").read_text() == "3"  # paths, run-time, Build Tools
    assert [*site.there(r"C:\t").iterdir()] == []
    update, setup = (words for words in site.ran() if words[0].endswith("vs_BuildTools.exe"))
    assert update[1:] == ["--quiet", "--wait", "--update"]
    assert setup[setup.index("--channelUri") + 1] == r"C:\doesntExist.chman"
    assert setup[setup.index("--installChannelUri") + 1].startswith("https://aka.ms/vs/17/release/")
    assert "Microsoft.VisualStudio.Component.VC.Tools.x86.x64" in setup
    assert not {"modify", "--nocache"} & {*setup}

    ran = len(site.ran())
    again = site.play(*flags)
    assert (again.rc, again.counts["changed"]) == (0, 0), again.text
    tools = {words[0].rpartition("\\")[2] for words in site.ran()[ran:]}
    assert tools == {"vswhere.exe", "cl.exe"}


@pytest.mark.faults
def test_archives_then_again(site: Site) -> None:
    """--check changes nothing, wrong bytes are not unpacked, and the next run goes on."""
    before = site.directories()
    checked = site.play("--tags", "cuda", "--check")
    assert checked.rc == 0, checked.text
    assert checked.counts["changed"] >= 3
    assert (site.directories(), site.ran()) == (before, [])
    (name,) = (name for name in site.served if name.startswith("MinGit"))
    right = site.served[name]
    site.served[name] = packed({"cmd/git.exe": b"another"})
    flags = ("--tags", "cuda,git,python")
    refused = site.play(*flags)
    assert refused.rc != 0
    assert "checksum" in refused.words
    assert [*site.there(r"C:\tools\git").iterdir()] == []
    site.served[name] = right
    first = site.play(*flags)
    assert first.rc == 0, first.text
    assert closed(site, before) == {"t", "cuda", "tools", "python"}
    listed = json.loads(site.there(r"C:\cuda\12.8\.archives.json").read_text())
    assert set(listed) == {"cuda-12.8-cuda_cudart", "cuda-12.8-cuda_nvcc"}
    assert [*site.there(r"C:\t").iterdir()] == []
    ran = len(site.ran())
    again = site.play(*flags)
    assert (again.rc, again.counts["changed"]) == (0, 0), again.text
    tools = {words[0].rpartition("\\")[2] for words in site.ran()[ran:]}
    assert tools == {"nvcc.exe", "git.exe", "uv.exe"}
    # Another pin unpacks that directory again.
    site.there(r"C:\tools\git\old.txt").touch()
    site.served[name] = packed({"cmd/git.exe": executable(), "new.txt": b""})
    digest = hashlib.sha256(site.served[name]).hexdigest()
    site.change_pins(lambda pins: pins["toolchain_git"].update(sha256=digest))
    assert site.play("--tags", "git").rc == 0
    left = {path.name for path in site.there(r"C:\tools\git").iterdir()}
    assert "new.txt" in left
    assert "old.txt" not in left


@pytest.mark.faults
def test_what_others_may_have_filled_is_refused(site: Site) -> None:
    for place, tag in (
        (r"C:\t", "build_tools"),
        (r"C:\b", "long_paths"),
        (r"C:\cuda", "cuda"),
        (r"C:\tools", "git"),
        (r"C:\python", "python"),
    ):
        folder = site.there(place)
        folder.mkdir()
        folder.chmod(0o777)
        refused = site.play("--tags", tag)
        assert refused.rc != 0
        assert f"{place} is not safe to use" in refused.words
        assert [*folder.iterdir()] == []
    assert site.ran() == []


@pytest.mark.provisioners
def test_what_is_asked_for_must_be_in_the_lock(site: Site) -> None:
    """All that is missing is named at once, and --tags decides what is needed."""
    for given in ({"cuda_minor": "9.9"}, {"python_minors": ["3.11", "3.9"]}):
        outcome = site.play("-e", json.dumps(given))
        assert outcome.rc != 0
        assert "toolchain.lock.yaml has CUDA 12.8 and Python 3.11" in outcome.words

    def unpin(pins: dict[str, Any]) -> None:
        pins["toolchain_vc_redist"].update(sha256="")
        pins["toolchain_pythons"]["3.11"].update(sha256="")

    site.change_pins(unpin)
    outcome = site.play()
    assert outcome.rc != 0
    assert "Not pinned yet: vc-redist, python-3.11. Run invoke lock" in outcome.words
    assert site.ran() == []


@pytest.mark.faults
def test_build_tools_that_are_not_the_wanted_ones(site: Site) -> None:
    def play() -> str:
        outcome = site.play("--tags", "build_tools")
        assert outcome.rc != 0
        return outcome.words

    script = site.root / "ansible/roles/build_tools/files/Get-Signature.ps1"
    stand_in = script.read_text()
    script.write_text(stand_in.replace(SIGNATURE, ""))
    wanted = "expected a valid signature of Microsoft Corporation, found"
    assert f"{wanted} ['NotSigned|']" in play()  # so Windows' own cmdlet says
    script.write_text(stand_in)
    site.there(r"C:\scripts\signature.txt").write_text("NotTrusted|CN=x, O=Microsoft Corporation")
    assert wanted in play()
    assert not any("vs_BuildTools" in words[0] for words in site.ran())
    site.there(r"C:\scripts\signature.txt").write_text(SIGNED)
    knob(site.windows, installer=1603)
    said = play()
    assert "vs_buildtools left with 1603" in said
    assert "the disk is full" in said
    knob(site.windows, product="17.9.1")
    assert "has 17.9.1+37710.0, wanted 17.14" in play()
    ran = len(site.ran())  # the next run does not modify what is not the pinned product
    assert "has 17.9.1+37710.0, wanted 17.14" in play()
    assert not any("vs_BuildTools" in words[0] for words in site.ran()[ran:])


@pytest.mark.faults
def test_what_is_found_in_the_end_is_what_was_asked_for(site: Site) -> None:
    """Each role has done its work, and a policy, an installer or a program says otherwise."""
    for tag, knobs, says in (
        ("long_paths", {"policy": True}, "LongPathsEnabled is 0: a group policy"),
        ("build_tools", {"installer": 1603}, "vc_redist left with 1603"),
        ("build_tools", {"runtime": "v14.0.1"}, "The C run-time is 14.0.1"),
        ("build_tools", {"toolset": "14.40"}, "No cl.exe of toolset 14.44"),
        ("cuda", {"release": "no"}, "nvcc says Cuda compilation tools, release no"),
        ("git", {"release": "no"}, "core.longpaths is"),
        ("python", {"release": "no"}, "ok 3.11"),
    ):
        shutil.rmtree(site.there(r"C:\VS"), ignore_errors=True)
        knob(site.windows, **knobs)
        outcome = site.play("--tags", tag)
        assert outcome.rc != 0
        assert says in outcome.words, outcome.text
    # What is staged on the controller is another file.
    (staged,) = (site.root / "ansible/files").glob("*.whl")
    staged.write_bytes(b"another")
    shutil.rmtree(site.there(r"C:\tools\uv"))
    assert "uv-" in (said := site.play("--tags", "python").words)
    assert "do not use it" in said


@pytest.mark.faults
def test_a_host_is_not_locked_out(site: Site) -> None:
    """Nothing is switched off where the next connection could fail, nor is a policy ignored."""
    for given, says in (
        ({"winrm_hardening_port": 443}, "no HTTPS listener with a certificate on port 443"),
        (
            {"ansible_winrm_scheme": "http", "ansible_port": site.http},
            "reaches this host over HTTP",
        ),
    ):
        outcome = site.play("--tags", "winrm", "-e", json.dumps(given))
        assert outcome.rc != 0
        assert says in outcome.words
    assert site.winrm() == site.state
    site.change_winrm(fixed=["Auth\\CbtHardeningLevel"])
    outcome = site.play("--tags", "winrm")
    assert outcome.rc != 0
    assert (
        r"Service\Auth\CbtHardeningLevel is Relaxed, wanted Strict: a group policy" in outcome.words
    )


@pytest.mark.provisioners
def test_driver(site: Site) -> None:
    quiet = site.play("--tags", "gpu_driver")
    assert quiet.rc == 0
    assert "the driver is left as it is" in quiet.words
    installer = site.there(r"C:\windows\driver.exe")
    installer.write_bytes(executable())
    digest = hashlib.sha256(executable()).hexdigest()
    given = {"gpu_driver_installer": r"C:\Windows\driver.exe", "gpu_driver_sha256": "d" * 64}
    given |= {"gpu_driver_version": "581.15"}
    flags = ["--tags", "gpu_driver", "-e", json.dumps(given)]
    damaged = site.play(*flags)
    assert damaged.rc != 0
    assert "pinned is" in damaged.words
    assert site.ran() == []
    flags += ["-e", json.dumps({"gpu_driver_sha256": digest})]
    knob(site.windows, installer=5)
    assert site.play(*flags).rc != 0
    assert site.there(r"C:\scripts\boots.txt").read_text() == "0"
    knob(site.windows)
    site.there(r"C:\windows\system32\nvidia-smi.exe").unlink()
    first = site.play(*flags)
    assert first.rc == 0, first.text
    assert site.there(r"C:\scripts\boots.txt").read_text() == "1"
    installs = [words[0] for words in site.ran() if words[1:] == ["-s", "-noreboot"]]
    assert installs == [r"C:\t\driver\installer.exe"] * 2
    assert not site.there(r"C:\t\driver").exists()
    again = site.play(*flags)
    assert again.counts["changed"] == 0, again.text
    wrong = site.play(*flags, "-e", json.dumps({"gpu_driver_models": ["WDDM"]}))
    assert wrong.rc != 0
    assert "NVIDIA L4, 581.15, MCDM" in wrong.words
