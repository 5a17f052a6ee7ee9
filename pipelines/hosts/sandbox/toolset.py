"""The stand-in for Visual Studio: compiled inside the prefix, laid out where nvcc looks for it."""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from pipelines.hosts.sandbox.wine import Prefix

_PAGE = 4096
_EXECUTABLE = 0x20000000  # IMAGE_SCN_MEM_EXECUTE
#: COM entry points every DLL has; a linker refuses them in an import library.
_NOT_IMPORTED = {"DllMain", "DllEntryPoint", "DllGetClassObject", "DllCanUnloadNow"}


def export_definitions(path: Path, wanted: Callable[[str], bool]) -> str:
    """A module-definition text (.def) of what a DLL really exports, for making its import library.

    Of names that are not ``wanted`` nothing is said. Data exports are marked ``DATA``: the linker
    must not make a jump stub for them.
    """
    lines = [f"LIBRARY {path.name}", "EXPORTS"]
    for name, code in read_dll_exports(path).items():
        if name not in _NOT_IMPORTED and wanted(name):
            lines.append(f"  {name}{'' if code else ' DATA'}")
    return "\n".join(lines) + "\n"


def read_dll_exports(path: Path) -> dict[str, bool]:
    """Each name that a DLL exports -> whether it is code."""
    import pefile  # only an image that is made needs it

    image = pefile.PE(str(path), fast_load=True, max_symbol_exports=0x10000)
    image.parse_data_directories(pefile.DIRECTORY_ENTRY["IMAGE_DIRECTORY_ENTRY_EXPORT"])
    found = {}
    for symbol in image.DIRECTORY_ENTRY_EXPORT.symbols:
        if symbol.name:  # else it has a number only
            section = image.get_section_by_rva(symbol.address)
            executable = section and section.Characteristics & _EXECUTABLE
            found[symbol.name.decode("ascii")] = bool(symbol.forwarder or executable)
    image.close()
    return found


def align_sections(source: Path, target: Path) -> None:
    """Write the same PE image with every section at a page boundary of the file.

    Wine maps such sections and reads all others into memory: a start of zig.exe (168 MB) takes
    0.12 s instead of 0.24 s, and a CUDA unit starts it eight times.
    """
    with source.open("rb") as image, target.open("wb") as out:
        start = image.read(_PAGE)
        (header,) = struct.unpack_from("<I", start, 0x3C)
        sections, optional_size = struct.unpack_from("<H12xH", start, header + 6)
        optional = header + 24
        (headers_size,) = struct.unpack_from("<I", start, optional + 60)
        if headers_size > _PAGE:
            raise ValueError(f"{source}: {headers_size} bytes of headers are more than a page")
        head = bytearray(start[:headers_size].ljust(_PAGE, b"\0"))
        struct.pack_into("<I", head, optional + 36, _PAGE)  # FileAlignment
        struct.pack_into("<I", head, optional + 60, _PAGE)  # SizeOfHeaders
        position = _PAGE
        for index in range(sections):
            entry = optional + optional_size + 40 * index
            size, begin = struct.unpack_from("<II", start, entry + 16)
            if not size:
                continue
            aligned = -(-size // _PAGE) * _PAGE
            struct.pack_into("<II", head, entry + 16, aligned, position)
            image.seek(begin)
            out.seek(position)
            left = size
            while left and (piece := image.read(min(left, 1 << 20))):
                out.write(piece)
                left -= len(piece)
            position += aligned
        out.truncate(position)
        out.seek(0)
        out.write(head)


SDK = Path(__file__).resolve().parent / "sdk"
_CRT = SDK / "crt"
#: Where Visual Studio has its things on drive C:, by the versions that the stand-in claims.
_VC = "VS/VC/Tools/MSVC/14.40.33807"
_KITS = "VS/Windows Kits/10"
_SDK_VERSION = "10.0.0.0"
_BIN = f"{_VC}/bin/Hostx64/x64"
_UCRT_H, _UM_H, _SHARED_H = (
    f"{_KITS}/Include/{_SDK_VERSION}/{n}" for n in ("ucrt", "um", "shared")
)
_VC_LIB = f"{_VC}/lib/x64"
_UCRT_LIB, _UM_LIB = (f"{_KITS}/Lib/{_SDK_VERSION}/{name}/x64" for name in ("ucrt", "um"))
#: The C library's headers and Win32's, as clang is told.
HEADERS = ("-isystem", f"C:/{_UCRT_H}", "-isystem", f"C:/{_UM_H}")
#: libc++, its headers and libraries, where it is installed.
LIBCXX = f"{_VC}/libcxx"
LIBCXX_LIBRARY = "lib/libcxx.lib"
#: The compiler, which is told what vcvarsall.bat has in INCLUDE, and the librarian.
CL = (
    f"C:/{_BIN}/cl.exe",
    *(w for folder in (f"{_VC}/include", _UCRT_H, _UM_H) for w in ("-imsvc", f"C:/{folder}")),
)
LIBRARIAN = (f"C:/{_BIN}/lib.exe", "/nologo")
_ZIG = r"C:\zig\zig.exe"
_WORK = "sdk-build"
_OBJ = f"C:/{_WORK}/"
#: Import library -> the DLL of Wine's that it is made from, and the folder it goes to.
_LIBRARIES = {
    "ucrt": ("ucrtbase.dll", _UCRT_LIB),
    "kernel32": ("kernel32.dll", _UM_LIB),
    "user32": ("user32.dll", _UM_LIB),
    "advapi32": ("advapi32.dll", _UM_LIB),
    # CMake links these with whatever it makes.
    "gdi32": ("gdi32.dll", _UM_LIB),
    "winspool": ("winspool.drv", _UM_LIB),
    "shell32": ("shell32.dll", _UM_LIB),
    "ole32": ("ole32.dll", _UM_LIB),
    "oleaut32": ("oleaut32.dll", _UM_LIB),
    "comdlg32": ("comdlg32.dll", _UM_LIB),
    "msvcprt": ("msvcp140.dll", _VC_LIB),
}
#: Library made from our own sources -> the folder it goes to.
_OWN = {"msvcrt": _VC_LIB, "oldnames": _VC_LIB, "vcruntime": _VC_LIB, "uuid": _UM_LIB}


#: Microsoft's other run-times, the static one and that for debugging: msvcrt.lib stands for them
#: where a program only has to be linked.
_AS_MSVCRT = ("libcmt", "msvcrtd")


def import_library_path(name: str) -> str:
    """The path there of one of the stand-in's libraries, such as ``kernel32``."""
    folder = _LIBRARIES[name][1] if name in _LIBRARIES else _OWN[name]
    return f"C:/{folder}/{name}.lib"


#: What is said otherwise in our copy of Wine's C headers: header -> (what is there, what we say).
_MENDED = {
    # It gives clang GNU's format attributes, over which cudafe++ stumbles.
    "corecrt.h": (r"(#\s*define __WINE_CRT_\w+_ATTR\(fmt,\s*args\)).*", r"\1"),
    # offsetof: cudafe++ knows the built-in as well, and clang takes a null pointer's member for no
    # constant (<cuda/barrier>).
    "stddef.h": (r"#if defined\(__GNUC__\) \|\| defined\(__clang__\)", "#if 1"),
    # It has these for clang, GCC and 32 bits. https://learn.microsoft.com/cpp/build/x64-calling-convention
    "vadefs.h": (
        r"(?<=typedef char \*va_list;\n)",
        """
#ifdef __cplusplus
extern "C"
#endif
void __cdecl __va_start(va_list *, ...);
#define _crt_va_start(v, last) ((void)__va_start(&(v), last))
#define _crt_va_arg(v, t) (sizeof(t) > 8 || sizeof(t) & (sizeof(t) - 1) \\
    ? **(t **)(((v) += 8) - 8) : *(t *)(((v) += 8) - 8))
#define _crt_va_end(v) ((void)((v) = (va_list)0))
#define _crt_va_copy(to, v) ((void)((to) = (v)))
""",
    ),
    # ucrtbase.dll of a real Windows writes eight bytes; Wine's, four.
    "wchar.h": (
        r"typedef int mbstate_t;",
        "typedef struct _Mbstatet "
        "{ unsigned long _Wchar; unsigned short _Byte, _State; } mbstate_t;",
    ),
}


def make_toolset(prefix: Prefix, python: str, python_dir: Path) -> None:
    """Compile the SDK into the prefix, and the import libraries of ``python`` ("313")."""
    work = _lay_out_toolset(prefix)
    made = _Compiler(prefix, work)
    with ThreadPoolExecutor(2) as pool:  # two cores are what a small machine has
        libraries = _libraries(prefix, python, python_dir)
        _wait_for_all(
            pool.submit(made.import_library, dll, *what) for dll, what in libraries.items()
        )
        _wait_for_all(
            [
                pool.submit(made.program, "cl", "launcher.c", "/DTOOL_CL"),
                pool.submit(made.program, "link", "launcher.c", "/DTOOL_LINK"),
                pool.submit(made.program, "lib", "launcher.c", "/DTOOL_LIB"),
                pool.submit(made.program, "winrshost", "winrshost.c"),
                pool.submit(made.archive, "msvcrt", *(p.name for p in sorted(_CRT.iterdir()))),
                pool.submit(made.archive, "oldnames", "empty.c"),
                pool.submit(made.archive, "uuid", "empty.c"),
            ]
        )
    _install_built_tools(prefix, work)


def _wait_for_all(jobs: Iterable[Future[None]]) -> None:
    """Begin them all, then wait for each; raises what the first one to fail raised."""
    for job in list(jobs):
        job.result()


def _lay_out_toolset(prefix: Prefix) -> Path:
    """Put headers, sources and vcvarsall.bat in their places; returns where objects are made."""
    drive = prefix.drive
    work, scripts = drive / _WORK, drive / "VS/VC/Auxiliary/Build"
    for folder in (
        work,
        drive / _BIN,
        drive / _VC_LIB,
        drive / _UCRT_LIB,
        drive / _UM_LIB,
        scripts,
    ):
        folder.mkdir(parents=True, exist_ok=True)
    (drive / "stand-in").symlink_to(_VC)  # see launcher.c
    ucrt = drive / _UCRT_H
    for name in ("include", "nvcc"):
        shutil.copytree(SDK / name, drive / _VC / name)
    shutil.copytree(prefix.wine.headers / "msvcrt", ucrt)
    for header, (found, ours) in _MENDED.items():
        text = (ucrt / header).read_text("utf-8")
        (ucrt / header).write_text(re.sub(found, ours, text), "utf-8")
    shutil.copytree(prefix.wine.headers / "windows", drive / _UM_H)
    (drive / _SHARED_H).mkdir()  # Wine has those of both in one folder
    for script in SDK.glob("*.bat"):
        shutil.copy(script, scripts)
    for source in (*SDK.glob("*.c"), *SDK.glob("*.h"), *_CRT.iterdir()):
        shutil.copy(source, work)
    (work / "empty.c").write_text("")
    return work


def _libraries(
    prefix: Prefix, python: str, python_dir: Path
) -> dict[Path, tuple[str, Callable[[str], bool]]]:
    """DLL here -> path there of its import library, and whether a name belongs into it."""
    runtime = read_dll_exports(python_dir / "vcruntime140.dll")
    some: dict[str, Callable[[str], bool]] = {
        # Wine's C library has vcruntime's names too. A program that takes its exception handling
        # from there, and whose other DLLs do not, loses what is thrown.
        "ucrt": lambda name: name not in runtime,
        # Of Microsoft's C++ library what is behind std::exception_ptr; libc++ has all the rest.
        "msvcprt": lambda name: "__ExceptionPtr" in name,
    }
    libraries = {
        prefix.wine.libraries / dll: (import_library_path(name), some.get(name, _all_names))
        for name, (dll, _) in _LIBRARIES.items()
    }
    own = {"vcruntime140": import_library_path("vcruntime")}
    own |= {n: f"C:/Python{python}/libs/{n}.lib" for n in ("python3", f"python{python}")}
    return libraries | {python_dir / f"{n}.dll": (lib, _all_names) for n, lib in own.items()}


def _all_names(_: str) -> bool:
    return True


class _Compiler:
    """zig's clang, linker and librarian inside the prefix."""

    _COMPILE = (
        *(_ZIG, "clang", "--driver-mode=cl", "/nologo", "/c", "/O2", "/GS-", "/Zl"),
        *(f"/IC:/{_UCRT_H}", f"/IC:/{_UM_H}"),
    )
    _LINK = (_ZIG, "lld-link", "/nologo", "/Brepro", "/nodefaultlib")

    def __init__(self, prefix: Prefix, work: Path) -> None:
        self.prefix = prefix
        self.work = work

    def import_library(self, dll: Path, target: str, wanted: Callable[[str], bool]) -> None:
        """Make it of what ``dll`` exports and is ``wanted``."""
        definition = self.work / f"{dll.stem}.def"
        definition.write_text(export_definitions(dll, wanted))
        tool = [_ZIG, "dlltool", "-m", "i386:x86-64"]
        self.prefix.run([*tool, "-d", _OBJ + definition.name, "-l", target])

    def compiled(self, source: str, *flags: str, name: str = "") -> str:
        target = f"{_OBJ}{name or source}.obj"
        self.prefix.run([*self._COMPILE, *flags, f"/Fo{target}", _OBJ + source])
        return target

    def _flags(self, source: str) -> tuple[str, ...]:
        if not source.endswith(".cpp"):
            return ()
        flags = ("/EHsc", "/std:c++17", "/D_CRTIMP=", "/D_ACRTIMP=", f"/IC:/{_VC}/include")
        return (*flags, "/GR-") if source == "type_info.cpp" else flags

    def program(self, name: str, source: str, *flags: str) -> None:
        target = self.compiled(source, *flags, name=name)
        entry = ["/subsystem:console", "/entry:start", f"/out:{_OBJ}{name}.exe"]
        self.prefix.run([*self._LINK, *entry, target, import_library_path("kernel32")])

    def archive(self, name: str, *sources: str) -> None:
        members = [
            self.compiled(source, *self._flags(source), name=f"{name}-{source}")
            for source in sources
        ]
        self.prefix.run([_ZIG, "lib", "/nologo", f"/out:{import_library_path(name)}", *members])


def _install_built_tools(prefix: Prefix, work: Path) -> None:
    """Move what was made to where it is looked for, and remove ``work``."""
    from pipelines.hosts.sandbox.msvc.finder import BASE, find_msvc_tree  # not for a dry run

    for tool in ("cl", "link", "lib"):
        (work / f"{tool}.exe").rename(prefix.drive / _BIN / f"{tool}.exe")
    system = prefix.drive / "windows/system32"
    (work / "winrshost.exe").replace(system / "winrshost.exe")
    for name in _AS_MSVCRT:
        shutil.copy(prefix.drive / _VC_LIB / "msvcrt.lib", prefix.drive / _VC_LIB / f"{name}.lib")
    shutil.rmtree(work)
    find_msvc_tree(prefix.drive / "VS", BASE)  # as any tool set: whole, and one
