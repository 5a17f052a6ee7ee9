"""Programs that roles install and run, for a Windows in Wine: one script that goes by its name.

What each prints and leaves is what the roles rely on, with its source; what was run is in
``C:\\scripts\\ran.txt``, and ``C:\\scripts\\knobs.json`` says what is to go wrong.
"""

from __future__ import annotations

import io
import zipfile
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

_TEXT = r"""
import json, os, pathlib, shutil, sys, winreg

own, words = pathlib.Path(sys.argv[0]), sys.argv[1:]
scripts = pathlib.Path(r"C:\scripts")
knobs = json.loads((scripts / "knobs.json").read_text())
with (scripts / "ran.txt").open("a") as file:
    file.write(json.dumps([str(own), *words]) + "\n")

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
        print(f"Cuda compilation tools, release {own.parts[2]}, V{own.parts[2]}.93")
    case "git":  # git-config(1): 1 for a key that is not set
        kept = own.with_name("longpaths")
        if words == ["--version"]:
            print("git version 2.55.0.windows.5")
        elif words == ["config", "--system", "--get", "core.longpaths"]:
            print(kept.read_text()) if kept.exists() else sys.exit(1)
        else:
            assert words == ["config", "--system", "core.longpaths", "true"], words
            kept.write_text(words[-1])
    case "uv" | "ninja" | "sccache":
        print("1.2.3")
    case "cl":  # who it is, on the error stream, and 0
        print("Microsoft (R) C/C++ Optimizing Compiler Version 19.44 for x64", file=sys.stderr)
    case "vswhere":
        if (root := scripts / "installed").exists():
            print(knobs["product"] + "+37710.0" if "-path" in words else root.read_text())
    case "vs_buildtools":  # 1603: https://learn.microsoft.com/windows/win32/msi/error-codes
        if knobs["installer"]:
            pathlib.Path(r"C:\windows\temp\dd_setup_errors.log").write_text("the disk is full")
            sys.exit(knobs["installer"])
        if "--update" not in words:
            root = words[words.index("--installPath") + 1]
            tools = rf"{root}\VC\Tools\MSVC\{knobs['toolset']}.35207\bin\Hostx64"
            installer = r"C:\Program Files (x86)\Microsoft Visual Studio\Installer"
            copy(rf"{tools}\x64\cl.exe", rf"{tools}\x86\cl.exe", rf"{installer}\vswhere.exe")
            pathlib.Path(root, r"Common7\Tools").mkdir(parents=True)
            pathlib.Path(root, r"Common7\Tools\VsDevCmd.bat").touch()
            (scripts / "installed").write_text(root)
            sys.exit(3010)
    case "vc_redist.x64":
        key = r"SOFTWARE\Microsoft\VisualStudio\14.0\VC\Runtimes\x64"
        write(key, Version=(winreg.REG_SZ, "v14.44.35211.00"))
        sys.exit(3010)
    case "installer":  # of the driver: 1 is done, restart needed
        copy(r"C:\windows\system32\nvidia-smi.exe")
        sys.exit(1)
    case "nvidia-smi":
        print("NVIDIA L4, 581.15, MCDM" if "name" in words[0] else "581.15")
    case "shutdown":
        boots = int((scripts / "boots.txt").read_text()) + 1
        (scripts / "boots.txt").write_text(str(boots))
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
