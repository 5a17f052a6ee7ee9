"""Programs that scripts and roles run, for a Windows in Wine: one script that goes by its name.

What each prints and leaves is what its callers rely on, with its source; what was run is in
``C:\\scripts\\ran.txt``, and ``C:\\scripts\\knobs.json`` says what is to go wrong.
"""

from __future__ import annotations

import io
import json
import zipfile
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from windows import InWine

_SCRIPTS = r"C:\scripts"
#: Versions that programs name, exit codes of installers that fail and that do not, a policy that
#: takes long paths back at a restart, and which programs fail.
_KNOBS = {
    "product": "17.14.41",
    "toolset": "14.44",
    "runtime": "v14.44.35211.00",
    "installer": 0,
    "restart": 3010,
    "update": 3010,
    "release": "",
    "policy": False,
    "failing": [],
}
SIGNED = "Valid|CN=Microsoft Corporation, O=Microsoft Corporation, L=Redmond, C=US"
#: Signatures of Microsoft are what a test says.
SIGNATURE = """
function Get-AuthenticodeSignature {
    param($LiteralPath)
    $status, $subject = [System.IO.File]::ReadAllText('C:\\scripts\\signature.txt') -split '\\|'
    $certificate = [pscustomobject] @{ Subject = $subject }
    [pscustomobject] @{ Status = $status; SignerCertificate = $certificate }
}
"""

_TEXT = r"""
import json, os, pathlib, shutil, sys, winreg, zipfile

own, words = pathlib.Path(sys.argv[0]), sys.argv[1:]
scripts = pathlib.Path(r"C:\scripts")
knobs = json.loads((scripts / "knobs.json").read_text())
with (scripts / "ran.txt").open("a") as file:
    file.write(json.dumps([str(own), *words]) + "\n")
if own.stem.lower() in knobs["failing"]:
    sys.exit(1)

def copy(*places):
    for place in map(pathlib.Path, places):
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(own, place)

def write(key, **values):
    with winreg.CreateKey(winreg.HKEY_LOCAL_MACHINE, key) as opened:
        for name, (kind, value) in values.items():
            winreg.SetValueEx(opened, name, 0, kind, value)

match own.stem.lower():
    case "nvcc":
        print(f"Cuda compilation tools, release {knobs['release'] or own.parts[2]}, V1")
        if "-o" in words:
            copy(words[words.index("-o") + 1])
    case "probe":
        assert not words
    case "git":  # git-config(1): 1 for a key that is not set
        kept = own.with_name("longpaths")
        if words == ["--version"]:
            print("git version 2.55.0.windows.5")
        elif words in [["config", "--system", *get, "core.longpaths"] for get in ([], ["--get"])]:
            print(kept.read_text()) if kept.exists() else sys.exit(1)
        else:
            assert words == ["config", "--system", "core.longpaths", "true"], words
            knobs["release"] or kept.write_text(words[-1])
    case "uv" | "ninja" | "sccache":
        print(knobs["release"] or "1.2.3")
    case "cl":  # who it is, on the error stream, and 0
        print("Microsoft (R) C/C++ Optimizing Compiler Version 19.44 for x64", file=sys.stderr)
    case "vswhere":
        if (root := scripts / "installed").exists():
            print(knobs["product"] + "+37710.0" if "-path" in words else root.read_text())
    case "vs_buildtools":  # 1603: https://learn.microsoft.com/windows/win32/msi/error-codes
        if "--update" in words:
            sys.exit(knobs["update"])
        if knobs["installer"]:
            pathlib.Path(r"C:\windows\temp\dd_setup_errors.log").write_text("the disk is full")
            sys.exit(knobs["installer"])
        root = words[words.index("--installPath") + 1]
        tools = rf"{root}\VC\Tools\MSVC\{knobs['toolset']}.35207\bin\Hostx64"
        installer = r"C:\Program Files (x86)\Microsoft Visual Studio\Installer"
        copy(rf"{tools}\x64\cl.exe", rf"{tools}\x86\cl.exe", rf"{installer}\vswhere.exe")
        pathlib.Path(root, r"Common7\Tools").mkdir(parents=True, exist_ok=True)
        pathlib.Path(root, r"Common7\Tools\VsDevCmd.bat").touch()
        (scripts / "installed").write_text(root)
        sys.exit(knobs["restart"])
    case "vc_redist.x64":
        key = r"SOFTWARE\Microsoft\VisualStudio\14.0\VC\Runtimes\x64"
        if knobs["installer"]:
            sys.exit(knobs["installer"])
        write(key, Version=(winreg.REG_SZ, knobs["runtime"]), Installed=(winreg.REG_DWORD, 1))
        sys.exit(knobs["restart"])
    case "installer":  # of the driver: 1 is done, restart needed
        copy(r"C:\windows\system32\nvidia-smi.exe")
        sys.exit(knobs["installer"] or 1)
    case "nvidia-smi":
        print("NVIDIA L4, 581.15, MCDM" if "name" in words[0] else "581.15")
    case "sc":  # Wine's has no `config`
        if words != ["config", "WinRM", "start=", "delayed-auto"]:
            sys.exit(1639)
        start = {"Start": (winreg.REG_DWORD, 2), "DelayedAutoStart": (winreg.REG_DWORD, 1)}
        write(r"SYSTEM\CurrentControlSet\Services\WinRM", **start)
    case "tzutil":  # it knows one zone
        assert words == ["/s", "UTC"], words
    case "tar":  # Windows' is bsdtar, which reads zips as well
        flag, archive, change, folder, strip, *members = words
        assert (flag, change) == ("-xf", "-C"), words
        depth = int(strip.removeprefix("--strip-components="))
        opened = zipfile.ZipFile(archive)
        files = {n: opened.read(n) for n in opened.namelist() if not n.endswith("/")}
        for name, data in files.items():
            parts = name.split("/")
            if len(parts) > depth and (not members or any(name.startswith(m) for m in members)):
                path = pathlib.Path(folder, *parts[depth:])
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
    case "curl":  # the server is a folder; 22 is for what is not there, as with --fail
        url, target = words[-1], words[words.index("--output") + 1]
        needed = {"--fail", "--proto", "=https", "--proto-redir"}
        source = scripts / "served" / url.rpartition("/")[2]
        if not needed <= {*words} or not url.startswith("https://") or not source.is_file():
            sys.exit(22)
        shutil.copy(source, target)
    case "shutdown":
        kept = scripts / "boots.txt"
        kept.write_text(str(int(kept.read_text()) + 1) if kept.exists() else "1")
        if knobs["policy"]:
            key = r"SYSTEM\CurrentControlSet\Control\FileSystem"
            write(key, LongPathsEnabled=(winreg.REG_DWORD, 0))
        # What the sign-in screen makes, for which win_reboot waits.
        write(r"SOFTWARE\Microsoft\Windows NT\CurrentVersion\Winlogon\AutoLogonChecked")
    case _:
        sys.exit(f"no program {own}")
"""


@cache
def executable() -> bytes:
    """An .exe that runs the script with the Python of sandboxes, as pip makes them for scripts."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("__main__.py", _TEXT)
    launcher = Path(str(distribution("distlib").locate_file("distlib"))) / "t64.exe"
    return launcher.read_bytes() + b"#!C:\\Python311\\python.exe\r\n" + archive.getvalue()


def install(windows: InWine, *names: str) -> None:
    """Put programs into system32, in place of Wine's own if it has them."""
    windows.path(_SCRIPTS).mkdir(exist_ok=True)
    knob(windows)
    for name in names:
        place = windows.path(rf"C:\windows\system32\{name}.exe")
        place.unlink(missing_ok=True)
        place.write_bytes(executable())
        key = r"HKCU\Software\Wine\DllOverrides"
        windows.prefix.run(["reg", "add", key, "/v", place.name, "/d", "native", "/f"])


def knob(windows: InWine, **values: object) -> None:
    """What is to be different in the programs from now on."""
    windows.path(rf"{_SCRIPTS}\knobs.json").write_text(json.dumps(_KNOBS | values))


def ran(windows: InWine) -> list[list[str]]:
    """The programs that were run so far, with what they were given."""
    file = windows.path(rf"{_SCRIPTS}\ran.txt")
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def packed(files: dict[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        for name, data in files.items():
            made.writestr(name, data)
    return archive.getvalue()


def content(pin: dict[str, Any], windows: InWine) -> bytes:
    """What is served, or staged, for a pin: the programs that are asked for, and little else."""
    match pin["name"].partition("-")[0], pin["name"].rpartition("-")[2]:
        case "cuda", "cuda_nvcc":
            return packed({"top/bin/nvcc.exe": executable()})
        case "cuda", part:
            return packed({f"top/include/{part}.h": b""})
        case "mingit", _:
            return packed({"cmd/git.exe": executable()})
        case "python", _:
            return _python(windows.path(windows.python).parent)
        case "vs" | "vc", _:
            return executable()
        case name, _:
            return packed({f"{name}-{pin['version']}.data/scripts/{name}.exe": executable()})


@cache
def _python(home: Path) -> bytes:
    left_out = {"site-packages", "test", "idlelib", "tkinter", "ensurepip", "__pycache__", "Doc"}
    files = {
        f"python/{path.relative_to(home).as_posix()}": path.read_bytes()
        for path in home.rglob("*")
        if path.is_file() and not left_out & {*path.parts}
    }
    return packed(files)
