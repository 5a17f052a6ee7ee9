"""A Windows as Ansible's modules see it: one file of state, no Windows.

Stands in for every module of ``ansible.windows`` and ``community.windows`` that the roles use. It
knows no more of Windows than the roles rely on: what it shows is their logic (order, conditions,
templates, repetition, ``--check``), never that the real modules or tools do as assumed here. It is
imported by the Python of ``.venv-ansible``: nothing but the standard library.
"""

import base64
import fnmatch
import json
import os
import pathlib
import re
import sys
from collections.abc import Callable
from typing import Any

STATE = pathlib.Path(os.environ["FAKE_WINDOWS"])
MACHINE = r"HKLM:\SYSTEM\CurrentControlSet\Control\Session Manager\Environment"
ACCOUNT = r"HKCU:\Environment"

#: A module's result, or its arguments.
Values = dict[str, Any]
#: Exit code, standard output, standard error.
Said = tuple[int, str, str]


class RefusedError(Exception):
    """What the module would fail with."""


def starts(path: str, root: str) -> bool:
    return path.lower() == root.lower() or path.lower().startswith(root.lower() + "\\")


class Windows:
    def __init__(self, state: Values, check: bool) -> None:
        self.state = state
        self.files: dict[str, str] = state["files"]
        self.check = check

    def put(self, area: str, key: str, value: object) -> Values:
        """Set it unless checking; whether it differed."""
        changed = self.state[area].get(key) != value
        if changed and not self.check:
            self.state[area][key] = value
        return {"changed": changed}

    def remove(self, root: str) -> Values:
        found = [path for path in self.files if starts(path, root)]
        for path in found if not self.check else ():
            del self.files[path]
        return {"changed": bool(found)}

    def win_file(self, path: str, state: str) -> Values:
        if state == "absent":
            return self.remove(path)
        if any(starts(found, path) for found in self.files):
            return {"changed": False}
        return self.put("files", path, "<directory>")

    def inside(self, path: str) -> None:
        """Refuse to write where nothing was protected: Windows would do it, and users too."""
        own = [r"C:\Windows", r"C:\Program Files", r"C:\Program Files (x86)"]
        if not self.check and path[:2] == "C:" and not any(starts(path, one) for one in own):
            assert any(starts(path, one) for one in self.state["protected"]), path

    def win_get_url(self, url: str, dest: str, checksum: str, **_: Any) -> Values:
        if self.state["knobs"].get("corrupt", "\0") in url:
            checksum = "0" * 64
        self.inside(dest)
        return self.put("files", dest, checksum)

    def win_copy(
        self, dest: str, src: str | None = None, content: Any = None, remote_src: bool = False
    ) -> Values:
        self.inside(dest)
        if remote_src:
            content = self.files[str(src)]
        elif src is not None:
            content = pathlib.Path(src).read_text("ascii").strip()
        return self.put("files", dest, content)

    def win_stat(self, path: str, **_: Any) -> Values:
        found = self.files.get(path)
        if found is None:
            return {"stat": {"exists": any(starts(other, path) for other in self.files)}}
        return {"stat": {"exists": True, "checksum": found}}

    def slurp(self, src: str) -> Values:
        return {"content": base64.b64encode(self.files[src].encode()).decode()}

    def win_find(self, paths: str, patterns: str, file_type: str) -> Values:
        assert file_type == "directory"
        below = [path[len(paths) + 1 :].split("\\") for path in self.files if starts(path, paths)]
        names = {parts[0] for parts in below if len(parts) > 1}
        found = sorted(name for name in names if fnmatch.fnmatch(name.lower(), patterns.lower()))
        return {"files": [{"path": f"{paths}\\{name}"} for name in found]}

    def win_regedit(self, path: str, name: str, data: int, **_: Any) -> Values:
        return self.put("registry", f"{path}!{name}", data)

    def win_reg_stat(self, path: str, name: str | None = None) -> Values:
        values = self.state["registry"]
        if name is not None:
            found = values.get(f"{path}!{name}")
            return {"exists": found is not None} | ({} if found is None else {"value": found})
        rows = {k.partition("!")[2]: {"value": v} for k, v in values.items() if k.startswith(path)}
        return {"exists": bool(rows), "properties": rows} if rows else {"exists": False}

    def win_environment(self, variables: Values, level: str) -> Values:
        root = MACHINE if level == "machine" else ACCOUNT
        changed = [self.put("registry", f"{root}!{k}", v)["changed"] for k, v in variables.items()]
        return {"changed": any(changed)}

    def win_path(self, elements: list[str], **_: Any) -> Values:
        changed = [self.put("path", element, True)["changed"] for element in elements]
        return {"changed": any(changed)}

    def win_service(self, name: str, state: str, start_mode: str | None = None) -> Values:
        if state == "restarted":
            self.state["restarts"] = self.state.get("restarts", 0) + 1
            return {"changed": True}
        return self.put("settings", f"service {name}", start_mode)

    def win_firewall_rule(self, name: str, **rule: Any) -> Values:
        return self.put("settings", f"rule {name}", rule)

    def win_reboot(self, **_: Any) -> Values:
        if not self.check:
            self.state["reboots"] = self.state.get("reboots", 0) + 1
        return {"changed": True, "rebooted": True}

    def win_powershell(self, path: str, parameters: Values | None = None, **_: Any) -> Values:
        scripts: dict[str, Callable[..., Values]] = {
            "Set-WSManValue.ps1": self.set_wsman,
            "Get-WSManValue.ps1": self.get_wsman,
            "Get-MemoryLimits.ps1": self.memory_limits,
            "Get-Listeners.ps1": lambda: {"output": self.state["listeners"]},
            "Remove-Listener.ps1": self.remove_listener,
            "Protect-Directory.ps1": self.protect,
            "Set-PrivateNetwork.ps1": lambda: self.put("settings", "network", "private"),
            "Get-Signature.ps1": lambda path: {"output": [self.state["knobs"]["signature"]]},
            "Get-SetupErrors.ps1": lambda **_: {"output": ["dd_errors.log", "the disk is full"]},
        }
        given = {name.lower(): value for name, value in (parameters or {}).items()}
        return scripts[path](**given)

    def protect(self, path: str, readable: bool) -> Values:
        r"""As New-ProtectedDirectory, by path: ``unsafe`` names what others may have filled."""
        assert readable or not starts(path, r"C:\tools"), "the machine's PATH leads there"
        parts = path.split("\\")
        above = ["\\".join(parts[: count + 1]) for count in range(1, len(parts))]
        if wrong := [one for one in above if one.lower() in self.state["unsafe"]]:
            raise RefusedError(f"{wrong[0]} is not safe to use")
        changed = self.win_file(path, "directory")
        if not self.check and changed["changed"]:
            self.state["protected"] += [one.lower() for one in above]
        return changed

    def set_wsman(self, path: str, value: str) -> Values:
        return self.put("wsman", path, value)

    def get_wsman(self, path: str) -> Values:
        return {"output": [self.state["wsman"].get(path, "")]}

    def memory_limits(self, plugins: list[str]) -> Values:
        places = ["Shell", *(rf"Plugin\{plugin}\Quotas" for plugin in plugins)]
        keys = [rf"WSMan:\localhost\{place}\MaxMemoryPerShellMB" for place in places]
        return {"output": [int(self.state["wsman"].get(key, 1024)) for key in keys]}

    def remove_listener(self, name: str) -> Values:
        if not self.check:
            kept = [row for row in self.state["listeners"] if row["name"] != name]
            self.state["listeners"] = kept
        return {"changed": True}

    def win_command(self, argv: list[str], stdin: str | None = None) -> Values:
        tool, *arguments = argv
        name = tool.rpartition("\\")[2].lower().removesuffix(".exe").replace(".", "_")
        if "\\" in tool and tool not in self.files and not starts(tool, r"C:\Windows\System32"):
            raise RefusedError(f"{tool} is not there")
        self.state["ran"].append(argv)
        self.inside(tool)
        program: Callable[..., Said] = getattr(self, "run_" + name.replace("-", "_"))
        rc, out, err = program(tool, arguments, stdin)
        said = {"rc": rc, "stdout": out, "stdout_lines": out.splitlines(), "stderr": err}
        return said | {"changed": True, "failed": rc != 0}

    def run_tar(self, tool: str, arguments: list[str], stdin: str | None) -> Said:
        target = arguments[arguments.index("-C") + 1]
        self.inside(target)
        for pattern, files in self.state["archives"].items():
            if re.search(pattern, arguments[1]):
                self.files.update({f"{target}\\{file}": "" for file in files})
        return 0, "", ""

    def run_git(self, tool: str, arguments: list[str], stdin: str | None) -> Said:
        settings = self.state["settings"]
        if arguments == ["--version"]:
            return 0, "git version 2.0", ""
        if "--get" in arguments:
            return (0, settings["longpaths"], "") if "longpaths" in settings else (1, "", "")
        settings["longpaths"] = arguments[-1]
        return 0, "", ""

    def run_vswhere(self, tool: str, arguments: list[str], stdin: str | None) -> Said:
        if "-path" in arguments:
            return 0, f"{self.state['knobs'].get('vs_product', '17.14.41')}+37710.0", ""
        return 0, self.state["settings"].get("vs", ""), ""

    def run_vs_buildtools(self, tool: str, arguments: list[str], stdin: str | None) -> Said:
        if self.state["knobs"].get("vs_fails"):
            return 1603, "", ""
        if "--update" in arguments:
            return 0, "", ""
        root = arguments[arguments.index("--installPath") + 1]
        self.inside(root)
        self.state["settings"]["vs"] = root
        compilers = rf"{root}\VC\Tools\MSVC\{self.state['knobs']['toolset']}.35207\bin\Hostx64"
        vswhere = r"C:\Program Files (x86)\Microsoft Visual Studio\Installer\vswhere.exe"
        made = [rf"{compilers}\x64\cl.exe", rf"{compilers}\x86\cl.exe", vswhere]
        self.files.update(dict.fromkeys([*made, rf"{root}\Common7\Tools\VsDevCmd.bat"], ""))
        return 3010, "", ""

    def run_vc_redist_x64(self, tool: str, arguments: list[str], stdin: str | None) -> Said:
        key = r"HKLM:\SOFTWARE\Microsoft\VisualStudio\14.0\VC\Runtimes\x64"
        self.state["registry"] |= {f"{key}!Installed": 1, f"{key}!Version": "v14.44.35211.00"}
        return 3010, "", ""

    def run_cl(self, tool: str, arguments: list[str], stdin: str | None) -> Said:
        return 0, "", "Microsoft (R) C/C++ Optimizing Compiler Version 19.44 for x64"

    def run_nvcc(self, tool: str, arguments: list[str], stdin: str | None) -> Said:
        minor = tool.split("\\")[2]
        return 0, f"Cuda compilation tools, release {minor}, V{minor}.93", ""

    def run_python(self, tool: str, arguments: list[str], stdin: str | None) -> Said:
        minor = tool.split("\\")[2]
        return (0, f"ok {minor} 312", "") if stdin else (2, "", "no script came")

    def run_uv(self, tool: str, arguments: list[str], stdin: str | None) -> Said:
        return 0, "1.2.3", ""

    run_ninja = run_sccache = run_uv

    def run_installer(self, tool: str, arguments: list[str], stdin: str | None) -> Said:
        self.files[r"C:\Windows\System32\nvidia-smi.exe"] = ""
        return 1, "", ""

    def run_nvidia_smi(self, tool: str, arguments: list[str], stdin: str | None) -> Said:
        full = f"NVIDIA L4, 581.15, {self.state['knobs']['model']}"
        return 0, full if "name" in arguments[0] else "581.15", ""


def simulate(module: str, arguments: Values, check: bool) -> Values:
    """What module ``module`` does and returns; the state is read from and written to its file."""
    if check and module == "win_command":
        return {"changed": False, "skipped": True}
    state = json.loads(STATE.read_text("utf-8"))
    try:
        result: Values = getattr(Windows(state, check), module)(**arguments)
    except RefusedError as error:
        result = {"failed": True, "msg": str(error)}
    STATE.write_text(json.dumps(state), "utf-8")
    return {"changed": False} | result


def main(module: str) -> None:
    """Be ``module`` in a process of its own: its arguments are in the file that is named."""
    arguments = json.loads(pathlib.Path(sys.argv[1]).read_text("utf-8"))
    given = {k: v for k, v in arguments.items() if not k.startswith("_ansible")}
    print(json.dumps(simulate(module, given, bool(arguments.get("_ansible_check_mode")))))
