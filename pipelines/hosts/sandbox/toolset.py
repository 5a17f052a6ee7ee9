"""The stand-in for Visual Studio: compiled inside the prefix, laid out where nvcc looks for it."""

from __future__ import annotations

import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pipelines.hosts.sandbox.pe import export_definitions
from pipelines.hosts.sandbox.wine import Prefix

SDK = Path(__file__).resolve().parent / "sdk"
_BIN = "VS/VC/Tools/MSVC/14.40.33807/bin/Hostx64/x64"
_ZIG = r"C:\zig\zig.exe"
#: DLL -> import library. The C run-time is Wine's, the rest is what programs here link with.
_LIBRARIES = {
    "ucrtbase.dll": "ucrt.lib",
    "kernel32.dll": "kernel32.lib",
    "user32.dll": "user32.lib",
    "advapi32.dll": "advapi32.lib",
}


#: What Wine's headers have in later versions, else our C++ headers: macro -> (header, sign of it).
_WINE_HAS = {
    "WINE_HAS_ABS": ("stdlib.h", "inline long abs("),
    "WINE_HAS_ISNAN": ("math.h", "inline bool isnan(T "),
}


def _strip_attributes(header: Path) -> None:
    """Wine 9 and later give clang GNU's format attributes, over which cudafe++ stumbles."""
    text = header.read_text("utf-8")
    plain = re.sub(r"(#\s*define __WINE_CRT_\w+_ATTR\(fmt,\s*args\)).*", r"\1", text)
    header.write_text(plain, "utf-8")


def make_toolset(prefix: Prefix, python: str, python_dir: Path) -> None:
    """Compile the SDK into the prefix, and the import libraries of ``python`` ("313")."""
    drive = prefix.drive
    sdk, work = drive / "sdk", drive / "sdk/obj"
    for folder in (sdk / "lib", work, drive / _BIN, drive / "VS/VC/Auxiliary/Build"):
        folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(SDK / "cxx", sdk / "cxx")
    shutil.copytree(prefix.wine.headers / "msvcrt", sdk / "ucrt")
    _strip_attributes(sdk / "ucrt/corecrt.h")
    shutil.copytree(prefix.wine.headers / "windows", sdk / "win32")
    has = [
        macro
        for macro, (header, sign) in _WINE_HAS.items()
        if sign in (sdk / "ucrt" / header).read_text("utf-8")
    ]
    variables = (
        SDK / "vcvarsall.bat"
    ).read_text() + f"@set CL=%CL% {' '.join(f'/D{macro}' for macro in has)}\n"
    (drive / "VS/VC/Auxiliary/Build/vcvarsall.bat").write_text(variables)
    for source in (*SDK.glob("*.c"), *SDK.glob("*.h")):
        shutil.copy(source, work)
    (work / "empty.c").write_text("")

    libraries = {
        prefix.wine.libraries / dll: rf"C:\sdk\lib\{lib}" for dll, lib in _LIBRARIES.items()
    }
    libraries[python_dir / "vcruntime140.dll"] = r"C:\sdk\lib\vcruntime.lib"
    for name in ("python3", f"python{python}"):
        libraries[python_dir / f"{name}.dll"] = rf"C:\Python{python}\libs\{name}.lib"

    compile_c = [_ZIG, "clang", "--driver-mode=cl", "/nologo", "/c", "/O2", "/GS-", "/Zl"]
    compile_c += [r"/IC:\sdk\ucrt", r"/IC:\sdk\win32"]
    link = [_ZIG, "lld-link", "/nologo", "/Brepro", "/nodefaultlib"]
    obj, lib = r"C:\sdk\obj" + "\\", r"C:\sdk\lib" + "\\"

    def import_library(dll: Path, target: str) -> None:
        definition = work / f"{dll.stem}.def"
        definition.write_text(export_definitions(dll))
        prefix.run(
            [_ZIG, "dlltool", "-m", "i386:x86-64", "-d", obj + definition.name, "-l", target]
        )

    def compiled(source: str, *flags: str, name: str = "") -> str:
        target = f"{obj}{name or source}.obj"
        prefix.run([*compile_c, *flags, f"/Fo{target}", obj + source])
        return target

    def program(name: str, source: str, flag: str = "") -> None:
        target = compiled(source, *([flag] if flag else []), name=name)
        entry = ["/subsystem:console", "/entry:start", f"/out:{obj}{name}.exe"]
        prefix.run([*link, *entry, target, lib + "kernel32.lib"])

    def archive(name: str, source: str) -> None:
        member = compiled(source, name=name)
        prefix.run([_ZIG, "lib", "/nologo", f"/out:{lib}{name}.lib", member])

    def prng() -> None:
        dll = ["/dll", "/noentry", "/export:ProcessPrng", f"/out:{obj}bcryptprimitives.dll"]
        prefix.run([*link, *dll, compiled("prng.c"), lib + "advapi32.lib"])

    with ThreadPoolExecutor(2) as pool:  # two cores are what a small machine has
        for job in [pool.submit(import_library, dll, lib) for dll, lib in libraries.items()]:
            job.result()
        jobs = [
            pool.submit(program, "cl", "launcher.c", "/DTOOL_CL"),
            pool.submit(program, "link", "launcher.c", "/DTOOL_LINK"),
            pool.submit(program, "lib", "launcher.c", "/DTOOL_LIB"),
            pool.submit(program, "winrshost", "winrshost.c"),
            pool.submit(archive, "msvcrt", "crt.c"),
            pool.submit(archive, "oldnames", "empty.c"),
            pool.submit(archive, "uuid", "empty.c"),
            pool.submit(prng),
        ]
        for job in jobs:
            job.result()

    for tool in ("cl", "link", "lib"):
        (work / f"{tool}.exe").rename(drive / _BIN / f"{tool}.exe")
    system = drive / "windows/system32"
    (work / "winrshost.exe").replace(system / "winrshost.exe")
    if not (prefix.wine.libraries / "bcryptprimitives.dll").exists():
        (work / "bcryptprimitives.dll").replace(system / "bcryptprimitives.dll")
    shutil.rmtree(work)
