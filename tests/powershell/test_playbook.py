"""The playbook with Ansible's own modules, over WinRM, in genuine PowerShell; Windows is Wine.

What stands in, besides standins.ps1 (for the WSMan: drive, in the roles' own scripts) and the
programs of windows_programs.py:

| missing under Wine | here |
|-|-|
| SYSTEM, asynchronous tasks (CIM, pipes of .NET Framework) | the account that signs in, no async |
| Get-CimInstance, a restart | the number of restarts as the time of the last one |
| a service's triggers, what follows its failure | a win_service that knows two values |
| signatures of Microsoft | what a test says, unless it wants the genuine cmdlet |

C# of the modules, two thirds of a task's time, is compiled once and then loaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
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
_INSTALLER = r"C:\Program Files (x86)\Microsoft Visual Studio"
_SETUP_LOG = r"C:\windows\temp\dd_setup_errors.log"
_SMI = r"C:\windows\system32\nvidia-smi.exe"

pytestmark = [
    pytest.mark.provisioners,
    pytest.mark.skipif(
        not (BIN / "ansible-playbook").exists(),
        reason="no .venv-ansible: scripts/check-provisioners --setup makes it",
    ),
]

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


_COMPILE = "    if ($is_coreclr) {\n"
_COMPILED = "            $code_ms.Seek("
_LOAD = r"""    # Their order is that of a set of strings: another one in each run of Ansible.
    $bytes = [System.Text.Encoding]::UTF8.GetBytes(-join ($References | Sort-Object))
    $digest = [System.Convert]::ToHexString([System.Security.Cryptography.SHA256]::HashData($bytes))
    $kept = "C:\compiled\$digest.dll"
    if ([System.IO.File]::Exists($kept)) {
        foreach ($match in $type_pattern.Matches(-join $References)) {
            $name, $type = $match.Groups['Name', 'TypeName'].Value
            $type_accelerators.Add(@{ Name = $name; TypeName = $type })
        }
        $compiled_assembly = [System.Reflection.Assembly]::LoadFrom($kept)
    }
    else"""
_KEEP = "            [System.IO.File]::WriteAllBytes($kept, $code_ms.ToArray())\n"
_LINK = "    Add-Type -TypeDefinition $link_util\n"
_LINK_ONCE = r"""    $kept = 'C:\compiled\link.dll'
    if (-not [System.IO.File]::Exists($kept)) {
        Add-Type -TypeDefinition $link_util -OutputAssembly $kept
    }
    Add-Type -Path $kept
"""
_COMPILED_ONCE = {
    "Ansible.ModuleUtils.AddType.psm1": (
        (_COMPILE, _LOAD + _COMPILE.strip(" ")),
        (_COMPILED, _KEEP + _COMPILED),
    ),
    "Ansible.ModuleUtils.LinkUtil.psm1": ((_LINK, _LINK_ONCE),),
}


@dataclass
class Site:
    """A copy of ansible/ whose pins are of small files on a server, and a bare Windows."""

    root: Path
    windows: InWine
    served: Path
    """What the server has."""
    state: dict[str, Any]
    http: int | None
    """The port of its other listener."""

    def there(self, path: str) -> Path:
        return self.windows.path(path)

    def ran(self) -> list[list[str]]:
        return ran(self.windows)

    def boots(self) -> str:
        return self.there(r"C:\scripts\boots.txt").read_text()

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

    def start(self, tags: str, *flags: str, **given: object) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "ANSIBLE_COLLECTIONS_PATH": str(self.root / "collections"),
            "ANSIBLE_MODULE_UTILS": str(self.root / "utils"),
            "ANSIBLE_HOME": str(self.root / "home"),
            "ANSIBLE_LOCAL_TEMP": str(self.root / "tmp"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_DEPRECATION_WARNINGS": "0",
        }
        variables = [f"@{self.root / 'quick.yml'}", json.dumps(given)]
        return subprocess.Popen(
            [
                *(str(BIN / "ansible-playbook"), "site.yml"),
                *("-i", str(self.root / "inventory.yml"), "--tags", tags),
                *(word for text in variables for word in ("-e", text)),
                *flags,
            ],
            cwd=self.root / "ansible",
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )

    def play(self, tags: str, *flags: str, **given: object) -> int:
        """Play it to its end; how many tasks changed something."""
        run = self.start(tags, *flags, **given)
        text, _ = run.communicate(timeout=1800)
        assert run.returncode == 0, text
        recap = re.search(r"builder +:.* changed=(\d+)", text)
        assert recap is not None
        return int(recap[1])

    def refused(self, tags: str, says: str, **given: object) -> None:
        """Play it until it fails with these words."""
        run = self.start(tags, **given)
        text, _ = run.communicate(timeout=1800)
        assert run.returncode != 0, text
        assert says in " ".join(text.split()), text

    def checked(self, tags: str, **given: object) -> None:
        """Under --check something would change, and nothing does."""
        before = self.directories(), self.winrm(), self.ran(), self.boots()
        assert self.play(tags, "--check", **given) > 0
        assert (self.directories(), self.winrm(), self.ran(), self.boots()) == before

    def again(self, tags: str, **given: object) -> set[str]:
        """Nothing changes any more; the programs that this takes."""
        ran = len(self.ran())
        assert self.play(tags, **given) == 0
        return {words[0].rpartition("\\")[2] for words in self.ran()[ran:]}


@dataclass
class Builder:
    """A sandbox that the tests share, with what Wine does not have."""

    windows: InWine
    inventory: dict[str, Any]
    http: int | None
    clean: set[str]
    """What is in C:\\ before a test."""


@pytest.fixture(scope="session")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    from pipelines.hosts.sandbox.config import SandboxHost
    from pipelines.hosts.sandbox.host import Sandbox
    from pipelines.hosts.sandbox.powershell import PLACE
    from pipelines.hosts.sandbox.wine import Prefix

    powershell_folder()
    home = tmp_path_factory.mktemp("builder") / "sandbox"
    config = SandboxHost.model_validate({"kind": "sandbox", "home": str(home)})
    sandbox = Sandbox("builder", config, OpenOptions("3.11", Cache(load_lock()), Silent()))
    sandbox._make()
    running = sandbox.start(ephemeral=True)
    endpoint = sandbox.endpoint(running)
    windows = InWine(Prefix(sandbox.prefix))
    install(windows, "tar", "shutdown")
    modules = windows.prefix.drive / PLACE / "Modules"
    shutil.rmtree(modules / "CimCmdlets")
    (modules / "StandIns").mkdir()
    (modules / "StandIns/StandIns.psm1").write_text(_CIM)
    windows.path(r"C:\compiled").mkdir()
    shutil.rmtree(windows.path(r"C:\VS"))  # the sandbox's own
    address = urlsplit(endpoint.url)
    host = {
        "ansible_connection": "winrm",
        "ansible_host": address.hostname,
        "ansible_port": address.port,
        "ansible_winrm_scheme": "https",
        "ansible_winrm_transport": "ntlm",
        "ansible_winrm_operation_timeout_sec": 240,  # of a busy machine
        "ansible_winrm_read_timeout_sec": 300,
        "ansible_winrm_ca_trust_path": str(endpoint.ca),
        "ansible_user": endpoint.username,
        "ansible_password": endpoint.secret(),
        "ansible_become": False,
    }
    inventory = {"windows_build": {"hosts": {"builder": host}}}
    clean = {path.name for path in windows.path("C:\\").iterdir()} - {"scripts"}
    yield Builder(windows, inventory, urlsplit(running["http"]).port, clean)
    sandbox.teardown()


@pytest.fixture
def site(tmp_path: Path, builder: Builder) -> Iterator[Site]:
    served = tmp_path / "served"
    served.mkdir()
    serve = partial(SimpleHTTPRequestHandler, directory=str(served))
    server = ThreadingHTTPServer(("127.0.0.1", 0), serve)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump(builder.inventory))
    quick = dict.fromkeys(("wsman_values_delay", "build_tools_timeout", "gpu_driver_timeout"), 0)
    (tmp_path / "quick.yml").write_text(yaml.safe_dump(quick))
    made = Site(tmp_path, builder.windows, served, _as_before(builder), builder.http)
    _copy_playbook(made, f"http://127.0.0.1:{server.server_port}")
    made.change_winrm()
    yield made
    server.shutdown()


#: What roles and programs write, besides files below C:\\.
_REGISTRY = r"""Windows Registry Editor Version 5.00

[-HKEY_LOCAL_MACHINE\SOFTWARE\Microsoft\VisualStudio\14.0]

[HKEY_LOCAL_MACHINE\SYSTEM\CurrentControlSet\Control\FileSystem]
"LongPathsEnabled"=dword:00000000
"""


def _as_before(builder: Builder) -> dict[str, Any]:
    """Take back what other tests did to a Windows; what standins.ps1 knows of its WinRM."""
    windows = builder.windows
    for path in windows.path("C:\\").iterdir():
        if path.name not in builder.clean:
            shutil.rmtree(path)
    shutil.rmtree(windows.path(_INSTALLER), ignore_errors=True)
    for name in (_SMI, _SETUP_LOG):
        windows.path(name).unlink(missing_ok=True)
    windows.path(r"C:\scripts").mkdir()
    knob(windows)
    windows.path(r"C:\scripts\boots.txt").write_text("0")
    windows.path(r"C:\scripts\signature.txt").write_text(SIGNED)
    windows.path(r"C:\scripts\clean.reg").write_text(_REGISTRY)
    windows.prefix.run(["reg", "import", r"C:\scripts\clean.reg"])
    shutil.copy(ROOT / "tests/powershell/standins.ps1", windows.path(r"C:\scripts"))
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
    (utils,) = BIN.parent.glob("lib/python3*/site-packages/ansible/module_utils/powershell")
    (site.root / "utils").mkdir()
    for name, changes in _COMPILED_ONCE.items():
        text = (utils / name).read_text()
        for before, after in changes:
            assert text.count(before) == 1
            text = text.replace(before, after)
        (site.root / "utils" / name).write_text(text)
    handlers = target / "roles/wsman_values/handlers/main.yml"
    handlers.write_text(handlers.read_text().replace("  async: 120\n  poll: 0\n", ""))

    def pin(node: Any) -> None:
        if isinstance(node, dict) and "sha256" in node:
            data = content(node, site.windows)
            node["sha256"] = hashlib.sha256(data).hexdigest()
            if node["url"]:
                (site.served / node["file"]).write_bytes(data)
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


def closed(site: Site, before: set[str]) -> set[str]:
    """The directories below C:\\ that are new; others may not even look into them."""
    made = site.directories() - before
    for name in made:  # Wine keeps the rights of Everyone as those of others
        assert site.there(rf"C:\{name}").stat().st_mode & 0o007 == 0, name
    assert [*site.there(r"C:\t").iterdir()] == []
    return made


# The longest first: none is left to one of two workers in the end.


def variables(site: Site) -> str:
    key = r"HKLM\SYSTEM\CurrentControlSet\Control\Session Manager\Environment"
    return site.windows.prefix.run(["reg", "query", key])


def test_git(site: Site) -> None:
    """Wrong bytes are not unpacked, nor is anything into a directory that others may change."""
    tag, before, place = "git", site.directories(), site.there(r"C:\tools\git")
    site.checked(tag)
    place.parent.mkdir()
    place.parent.chmod(0o777)
    site.refused(tag, r"C:\tools is not safe to use")
    assert [*place.parent.iterdir()] == []
    place.parent.rmdir()
    (archive,) = site.served.glob("MinGit*")
    right = archive.read_bytes()
    archive.write_bytes(packed({"cmd/git.exe": b"another"}))
    site.refused(tag, "checksum")
    assert [*place.iterdir()] == []
    archive.write_bytes(right)
    assert site.ran() == []
    knob(site.windows, failing=["tar"])
    site.refused(tag, f"tar exited with 1, unpacking {archive.name}")
    knob(site.windows, release="no")
    site.refused(tag, "core.longpaths is")
    knob(site.windows)
    site.play(tag)
    assert closed(site, before) == {"t", "tools"}
    assert r"C:\tools\git\cmd" in variables(site)
    assert site.again(tag) == {"git.exe"}
    # Another pin unpacks that directory again.
    (place / "old.txt").touch()

    def pin(*names: str) -> None:
        archive.write_bytes(packed(dict.fromkeys(names, executable())))
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        site.change_pins(lambda pins: pins["toolchain_git"].update(sha256=digest))

    pin("new.txt")
    site.refused(tag, r"lacks cmd\git.exe: the archives")
    pin("new.txt", "cmd/git.exe")
    site.play(tag)
    assert {path.name for path in place.iterdir()} == {"cmd", "new.txt", ".archives.json"}


def test_windows(site: Site) -> None:
    """A host is not locked out, and a policy is not ignored."""
    tags, before = "winrm,long_paths", site.directories()
    says = "no HTTPS listener with a certificate on port 443"
    site.refused("winrm", says, winrm_hardening_port=443)
    http = {"ansible_winrm_scheme": "http", "ansible_port": site.http}
    site.refused("winrm", "reaches this host over HTTP", **http)
    assert site.winrm() == site.state
    site.checked(tags)
    site.change_winrm(fixed=[r"Auth\CbtHardeningLevel"])
    says = r"Service\Auth\CbtHardeningLevel is Relaxed, wanted Strict: a group policy"
    site.refused("winrm", says)
    site.change_winrm()
    knob(site.windows, policy=True)
    site.refused("long_paths", "LongPathsEnabled is 0: a group policy")
    assert site.boots() == "1"
    knob(site.windows)
    site.play(tags)
    assert site.boots() == "2"
    assert closed(site, before) == {"b", "t"}
    winrm = site.winrm()
    assert [row["Transport"] for row in winrm["listeners"].values()] == ["HTTPS"]
    assert winrm["service"][r"Auth\CbtHardeningLevel"] == "Strict"
    assert winrm["quotas"][r"Shell\MaxMemoryPerShellMB"] == "8192"
    assert winrm["networks"] == {"4": "Private"}
    assert site.again(tags) == set()


def test_build_tools_that_are_not_the_wanted_ones(site: Site) -> None:
    """Another signer, an installer that fails, another product or toolset in the end."""
    tag = "build_tools"
    runtime = r"HKLM\SOFTWARE\Microsoft\VisualStudio\14.0\VC\Runtimes\x64"
    site.windows.prefix.run(["reg", "add", runtime, "/v", "Version", "/d", "v15", "/f"])
    script = site.root / "ansible/roles/build_tools/files/Get-Signature.ps1"
    stand_in = script.read_text()
    script.write_text(stand_in.replace(SIGNATURE, ""))
    wanted = "expected a valid signature of Microsoft Corporation, found"
    site.refused(tag, f"{wanted} ['NotSigned|']")  # so Windows' own cmdlet says
    script.write_text(stand_in)
    signature = site.there(r"C:\scripts\signature.txt")
    signature.write_text("NotTrusted|CN=x, O=Microsoft Corporation")
    site.refused(tag, wanted)
    assert not any("vs_BuildTools" in words[0] for words in site.ran())
    signature.write_text(SIGNED)
    knob(site.windows, update=1603)
    site.refused(tag, "vs_buildtools exited with 1603")
    knob(site.windows, product="17.9.1", toolset="14.40", restart=0)
    site.refused(tag, "has 17.9.1+37710.0, wanted 17.14")
    ran = len(site.ran())  # the next run does not modify what is not the pinned product
    site.refused(tag, "has 17.9.1+37710.0, wanted 17.14")
    assert not any("vs_BuildTools" in words[0] for words in site.ran()[ran:])
    knob(site.windows, failing=["vswhere"])
    site.refused(tag, "vswhere.exe exited with 1")
    knob(site.windows)
    site.refused(tag, "No cl.exe of toolset 14.44")
    site.there(r"C:\scripts\installed").write_text("an installation with all components")
    knob(site.windows, installer=1603)
    site.refused(tag, "the disk is full")
    assert site.ran()[-1][1] == "modify"


def test_build_tools(site: Site) -> None:
    """A C run-time that fails or is too old, then both, then nothing."""
    tag, before = "build_tools", site.directories()
    site.checked(tag)
    knob(site.windows, installer=1603)
    site.refused(tag, "vc_redist exited with 1603")
    knob(site.windows, runtime="v14.0.1", restart=0)
    site.refused(tag, "The C run-time is 14.0.1")
    assert site.boots() == "0"
    assert not any("vs_BuildTools" in words[0] for words in site.ran())
    knob(site.windows)
    site.play(tag)
    assert site.boots() == "2"
    assert closed(site, before) == {"t", "VS"}
    update, setup = (words for words in site.ran() if words[0].endswith("vs_BuildTools.exe"))
    assert update[1:] == ["--quiet", "--wait", "--update"]
    assert setup[setup.index("--channelUri") + 1] == r"C:\doesntExist.chman"
    assert setup[setup.index("--installChannelUri") + 1].startswith("https://aka.ms/vs/17/release/")
    assert "Microsoft.VisualStudio.Component.VC.Tools.x86.x64" in setup
    assert not {"modify", "--nocache"} & {*setup}
    assert site.again(tag) == {"vswhere.exe", "cl.exe"}


def test_python(site: Site) -> None:
    """What is staged on the controller is compared as well."""
    tag, before = "python", site.directories()
    site.checked(tag)
    (staged,) = (site.root / "ansible/files").glob("*.whl")
    right = staged.read_bytes()
    staged.write_bytes(b"another")
    site.refused(tag, "do not use it")
    staged.write_bytes(right)
    knob(site.windows, release="no")
    site.refused(tag, "ok 3.11")
    knob(site.windows)
    assert site.again(tag) == {"uv.exe"}
    assert closed(site, before) == {"t", "tools", "python"}
    assert r"C:\tools\uv" in variables(site)


def test_driver(site: Site) -> None:
    tag = "gpu_driver"
    assert site.play(tag) == 0  # no installer is named
    installer = site.there(r"C:\windows\driver.exe")
    installer.write_bytes(executable())
    given: dict[str, object] = {
        "gpu_driver_installer": r"C:\Windows\driver.exe",
        "gpu_driver_version": "581.15",
    }
    site.refused(tag, "pinned is", gpu_driver_sha256="d" * 64, **given)
    given["gpu_driver_sha256"] = hashlib.sha256(executable()).hexdigest()
    shutil.rmtree(site.there(r"C:\t"))
    site.checked(tag, **given)
    assert site.ran() == []
    knob(site.windows, installer=5)
    site.refused(tag, "non-zero return code", **given)
    assert site.boots() == "0"
    knob(site.windows)
    site.there(_SMI).unlink()
    site.play(tag, **given)
    assert site.boots() == "1"
    installs = [words[0] for words in site.ran() if words[1:] == ["-s", "-noreboot"]]
    assert installs == [r"C:\t\driver\installer.exe"] * 2
    assert not site.there(r"C:\t\driver").exists()
    assert site.again(tag, **given) == {"nvidia-smi.exe"}
    site.refused(tag, "NVIDIA L4, 581.15, MCDM", gpu_driver_models=["WDDM"], **given)


def test_cuda(site: Site) -> None:
    """What was interrupted is made whole by the next run."""
    tag, before, nvcc = "cuda", site.directories(), site.there(r"C:\cuda\12.8\bin\nvcc.exe")
    site.checked(tag)
    run = site.start(tag)
    while not site.ran():
        assert run.poll() is None
        time.sleep(0.1)
    os.killpg(run.pid, signal.SIGKILL)
    run.communicate()
    assert not nvcc.exists()
    site.play(tag)
    assert closed(site, before) == {"t", "cuda"}
    listed = json.loads(site.there(r"C:\cuda\12.8\.archives.json").read_text())
    assert set(listed) == {"cuda-12.8-cuda_cudart", "cuda-12.8-cuda_nvcc"}
    assert r"C:\cuda\12.8" in variables(site)
    assert site.again(tag) == {"nvcc.exe"}
    knob(site.windows, release="no")
    site.refused(tag, "release no")
    nvcc.unlink()
    site.refused(tag, r"lacks bin\nvcc.exe")


def test_what_is_asked_for_must_be_in_the_lock(site: Site) -> None:
    """All that is missing is named at once, and --tags decides what is needed."""
    says = "toolchain.lock.yaml has CUDA 12.8 and Python 3.11"
    site.refused("all", says, cuda_minor="9.9")
    site.refused("all", says, python_minors=["3.11", "3.9"])

    def unpin(pins: dict[str, Any]) -> None:
        pins["toolchain_vc_redist"].update(sha256="")
        pins["toolchain_pythons"]["3.11"].update(sha256="")

    site.change_pins(unpin)
    site.refused("all", "Not pinned yet: vc-redist, python-3.11. Run invoke lock")
    site.refused("python", "Not pinned yet: python-3.11. Run invoke lock")
    assert site.ran() == []
