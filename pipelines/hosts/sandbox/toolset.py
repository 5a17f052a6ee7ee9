"""The stand-in for Visual Studio: compiled inside the prefix, laid out where nvcc looks for it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from pipelines.hosts.sandbox.pe import export_definitions
from pipelines.hosts.sandbox.wine import Prefix

SDK = Path(__file__).resolve().parent / "sdk"
_BIN = "VS/VC/Tools/MSVC/14.40.33807/bin/Hostx64/x64"
_ZIG = r"C:\zig\zig.exe"
_OBJ, _LIB = "C:\\sdk\\obj\\", "C:\\sdk\\lib\\"
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
    work = _lay_out(prefix)
    made = _Compiler(prefix, work)
    with ThreadPoolExecutor(2) as pool:  # two cores are what a small machine has
        libraries = _libraries(prefix, python, python_dir)
        _all(pool.submit(made.import_library, dll, lib) for dll, lib in libraries.items())
        _all(
            [
                pool.submit(made.program, "cl", "launcher.c", "/DTOOL_CL"),
                pool.submit(made.program, "link", "launcher.c", "/DTOOL_LINK"),
                pool.submit(made.program, "lib", "launcher.c", "/DTOOL_LIB"),
                pool.submit(made.program, "winrshost", "winrshost.c"),
                pool.submit(made.archive, "msvcrt", "crt.c"),
                pool.submit(made.archive, "oldnames", "empty.c"),
                pool.submit(made.archive, "uuid", "empty.c"),
                pool.submit(made.prng),
            ]
        )
    _install(prefix, work)


def _all(jobs: Iterable[Future[None]]) -> None:
    """Begin them all, then wait for each; raises what the first one to fail raised."""
    for job in list(jobs):
        job.result()


def _lay_out(prefix: Prefix) -> Path:
    """Put headers, sources and vcvarsall.bat in their places; returns where objects are made."""
    drive = prefix.drive
    sdk, work = drive / "sdk", drive / "sdk/obj"
    for folder in (sdk / "lib", work, drive / _BIN, drive / "VS/VC/Auxiliary/Build"):
        folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(SDK / "cxx", sdk / "cxx")
    shutil.copytree(prefix.wine.headers / "msvcrt", sdk / "ucrt")
    _strip_attributes(sdk / "ucrt/corecrt.h")
    shutil.copytree(prefix.wine.headers / "windows", sdk / "win32")
    has = [
        f"/D{macro}"
        for macro, (header, sign) in _WINE_HAS.items()
        if sign in (sdk / "ucrt" / header).read_text("utf-8")
    ]
    variables = (SDK / "vcvarsall.bat").read_text() + f"@set CL=%CL% {' '.join(has)}\n"
    (drive / "VS/VC/Auxiliary/Build/vcvarsall.bat").write_text(variables)
    for source in (*SDK.glob("*.c"), *SDK.glob("*.h")):
        shutil.copy(source, work)
    (work / "empty.c").write_text("")
    return work


def _libraries(prefix: Prefix, python: str, python_dir: Path) -> dict[Path, str]:
    """DLL here -> path there of its import library."""
    libraries = {prefix.wine.libraries / dll: f"{_LIB}{lib}" for dll, lib in _LIBRARIES.items()}
    libraries[python_dir / "vcruntime140.dll"] = f"{_LIB}vcruntime.lib"
    for name in ("python3", f"python{python}"):
        libraries[python_dir / f"{name}.dll"] = rf"C:\Python{python}\libs\{name}.lib"
    return libraries


class _Compiler:
    """zig's clang, linker and librarian inside the prefix."""

    _COMPILE = (
        *(_ZIG, "clang", "--driver-mode=cl", "/nologo", "/c", "/O2", "/GS-", "/Zl"),
        *(r"/IC:\sdk\ucrt", r"/IC:\sdk\win32"),
    )
    _LINK = (_ZIG, "lld-link", "/nologo", "/Brepro", "/nodefaultlib")

    def __init__(self, prefix: Prefix, work: Path) -> None:
        self.prefix = prefix
        self.work = work

    def import_library(self, dll: Path, target: str) -> None:
        definition = self.work / f"{dll.stem}.def"
        definition.write_text(export_definitions(dll))
        tool = [_ZIG, "dlltool", "-m", "i386:x86-64"]
        self.prefix.run([*tool, "-d", _OBJ + definition.name, "-l", target])

    def compiled(self, source: str, *flags: str, name: str = "") -> str:
        target = f"{_OBJ}{name or source}.obj"
        self.prefix.run([*self._COMPILE, *flags, f"/Fo{target}", _OBJ + source])
        return target

    def program(self, name: str, source: str, *flags: str) -> None:
        target = self.compiled(source, *flags, name=name)
        entry = ["/subsystem:console", "/entry:start", f"/out:{_OBJ}{name}.exe"]
        self.prefix.run([*self._LINK, *entry, target, f"{_LIB}kernel32.lib"])

    def archive(self, name: str, source: str) -> None:
        member = self.compiled(source, name=name)
        self.prefix.run([_ZIG, "lib", "/nologo", f"/out:{_LIB}{name}.lib", member])

    def prng(self) -> None:
        """bcryptprimitives.dll, which older Wines lack."""
        dll = ["/dll", "/noentry", "/export:ProcessPrng", f"/out:{_OBJ}bcryptprimitives.dll"]
        self.prefix.run([*self._LINK, *dll, self.compiled("prng.c"), f"{_LIB}advapi32.lib"])


def _install(prefix: Prefix, work: Path) -> None:
    """Move what was made to where it is looked for, and remove ``work``."""
    for tool in ("cl", "link", "lib"):
        (work / f"{tool}.exe").rename(prefix.drive / _BIN / f"{tool}.exe")
    system = prefix.drive / "windows/system32"
    (work / "winrshost.exe").replace(system / "winrshost.exe")
    if not (prefix.wine.libraries / "bcryptprimitives.dll").exists():
        (work / "bcryptprimitives.dll").replace(system / "bcryptprimitives.dll")
    shutil.rmtree(work)
