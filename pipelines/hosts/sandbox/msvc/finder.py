"""Finds compiler, headers, import libraries and Windows SDK in a tree like Visual Studio's.

Visual Studio's own ``VC`` and ``Windows Kits``, side by side; msvc-wine's ``vc`` and ``kits``; also
the sandbox's stub toolchain. Names are compared as on Windows, ignoring case. Nothing is run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pefile

from pipelines.core.errors import ConfigError
from pipelines.core.hosttext import safe_line

_TOOLSET = re.compile(r"14\.\d+\.\d+")
_SDK = re.compile(r"10\.0\.\d+\.\d+")
_AMD64 = 0x8664
_NAME = 260  # characters to show of a name
#: Path in a tree -> the files without which it is incomplete.
Parts = Mapping[str, Sequence[str]]

#: For any toolset the sandbox builds with.
BASE: Parts = {
    "bin": ("cl.exe", "link.exe", "lib.exe"),
    "include": ("cstddef",),
    "lib": ("msvcrt.lib", "vcruntime.lib"),
    "ucrt": ("stdio.h",),
    "um": ("windows.h",),
    "ucrt lib": ("ucrt.lib",),
    "um lib": ("kernel32.lib",),
}
#: For Microsoft's, additionally: its compiler's passes, its linker's helpers, its STL, the SDK's
#: tools.
MSVC: Parts = {
    "bin": (*BASE["bin"], "c1.dll", "c1xx.dll", "c2.dll", "cvtres.exe", "mspdbcore.dll"),
    "include": (*BASE["include"], "vcruntime.h", "vector", "yvals_core.h"),
    "lib": (*BASE["lib"], "msvcprt.lib", "oldnames.lib"),
    "ucrt": (*BASE["ucrt"], "corecrt.h"),
    "um": (*BASE["um"], "winnt.h"),
    "shared": ("basetsd.h",),
    "ucrt lib": BASE["ucrt lib"],
    "um lib": (*BASE["um lib"], "uuid.lib"),
    "sdk bin": ("rc.exe", "mt.exe"),
}
#: Microsoft's package of the import libraries for /MD, separate from that of the static ones.
_STORE = frozenset({"msvcrt.lib", "msvcprt.lib", "vcruntime.lib"})


@dataclass(frozen=True)
class Tree:
    """A complete tree; every path is on this machine."""

    root: Path
    version: str
    """Of the toolset, from its directory's name: 14.44.35207."""
    sdk: str
    """Of the Windows SDK: 10.0.26100.0."""
    compiler: str
    """The version in cl.exe itself: 14.44.35211.0; empty if it has none."""
    maker: str
    """The company name in cl.exe; empty if it has none."""
    bin: Path
    include: tuple[Path, ...]
    """The toolset's, then the SDK's, in search order."""
    lib: tuple[Path, ...]
    sdk_bin: Path | None
    """Directory of rc.exe and mt.exe; the stub toolchain has neither."""

    def __str__(self) -> str:
        """For a plan."""
        return f"MSVC {self.version} (cl.exe {self.compiler}), Windows SDK {self.sdk}"


def find_child_ignoring_case(folder: Path, name: str) -> Path | None:
    """The entry ``name`` of ``folder``, ignoring case; an exact match first."""
    if (same := folder / name).exists():
        return same
    try:
        children = sorted(path for path in folder.iterdir() if path.name.lower() == name.lower())
    except OSError:
        return None
    return children[0] if children else None


def find_descendant(folder: Path, *names: str) -> Path | None:
    """As :func:`find_child_ignoring_case`, several levels down."""
    place: Path | None = folder
    for name in names:
        place = find_child_ignoring_case(place, name) if place is not None else None
    return place


def find_msvc_tree(root: Path, parts: Parts = MSVC, *, version: str = "", sdk: str = "") -> Tree:
    """The tree below ``root``, which has all of ``parts``.

    ``version`` and ``sdk`` select one of several, such as 14.44 and 10.0.26100. Raises
    :class:`ConfigError` for no tree, an incomplete one, or several, and if cl.exe has another
    version than its directory.
    """
    tools = find_descendant(root, "VC", "Tools", "MSVC")
    if tools is None:
        raise _no_tree(root)
    folder = _only_version(tools, _TOOLSET, version, "msvc_version", "toolset")
    kits = find_descendant(root, "Windows Kits", "10") or find_descendant(root, "kits", "10")
    if kits is None or (headers := find_child_ignoring_case(kits, "Include")) is None:
        raise ConfigError(
            f"{root} has MSVC {folder.name}, but no Windows SDK: no 'Windows Kits/10/Include'",
            hint="Visual Studio keeps it elsewhere: copy 'C:\\Program Files (x86)\\Windows Kits' "
            f"into {root}, next to VC.",
        )
    sdk_folder = _only_version(headers, _SDK, sdk, "windows_sdk", "Windows SDK")
    places = _toolchain_directories(folder, kits, sdk_folder.name)
    _refuse_half(root, folder.name, places, parts)
    compiler, maker = program_version_info(_there(places["bin"], "cl.exe"))
    if compiler and not _is_same_minor_version(compiler, folder.name):
        raise ConfigError(
            f"{folder} has a cl.exe of version {compiler}, but the directory is named "
            f"{folder.name}",
            hint="The tree is a mix of two: copy it again.",
        )
    include = ("include", "ucrt", "um", "shared", "winrt", "cppwinrt")  # as Microsoft's vcvars
    return Tree(
        root=root,
        version=folder.name,
        sdk=sdk_folder.name,
        compiler=compiler,
        maker=maker,
        bin=_assert_found(places["bin"]),
        include=tuple(p for name in include if (p := places[name]) is not None),
        lib=tuple(p for name in ("lib", "ucrt lib", "um lib") if (p := places[name]) is not None),
        sdk_bin=places["sdk bin"],
    )


def program_version_info(program: Path) -> tuple[str, str]:
    """Version and company name in a program's resources, each empty if absent.

    Raises :class:`ConfigError` for anything but a 64-bit Windows program.
    """
    try:
        with closing(pefile.PE(str(program), fast_load=True)) as image:
            image.parse_data_directories(pefile.DIRECTORY_ENTRY["IMAGE_DIRECTORY_ENTRY_RESOURCE"])
            machine, version_and_company = (
                image.FILE_HEADER.Machine,
                (_pe_file_version(image), _company(image)),
            )
    # pefile raises PEFormatError on purpose and, on damaged files, others by accident.
    except Exception as error:
        raise _no_program(program, safe_line(str(error), 200) or type(error).__name__) from None
    if machine != _AMD64:
        raise _no_program(program, f"its machine is {machine:#06x}")
    return version_and_company


def _pe_file_version(image: pefile.PE) -> str:
    fixed = next(iter(getattr(image, "VS_FIXEDFILEINFO", ())), None)
    if fixed is None:
        return ""
    high, low = fixed.FileVersionMS, fixed.FileVersionLS
    return f"{high >> 16}.{high & 0xFFFF}.{low >> 16}.{low & 0xFFFF}"


def _company(image: pefile.PE) -> str:
    for entry in (e for info in getattr(image, "FileInfo", ()) for e in info):
        for table in getattr(entry, "StringTable", ()):
            if name := table.entries.get(b"CompanyName"):
                return str(name.decode("utf-8", "replace"))[:_NAME]
    return ""


def _no_program(program: Path, why: str) -> ConfigError:
    return ConfigError(
        f"{program} is not a 64-bit Windows program: {why}",
        hint="msvc-wine's own wrappers are scripts in bin/: use the directory above vc/.",
    )


def _no_tree(root: Path) -> ConfigError:
    if not root.is_dir():
        return ConfigError(f"{root} is not a directory", hint="Set msvc to a directory.")
    if find_descendant(root, "crt", "include") and find_descendant(root, "sdk", "include"):
        return ConfigError(
            f"{root} is an xwin tree: headers and libraries only, without cl.exe",
            hint="Use a tree of Visual Studio or msvc-wine.",
        )
    return ConfigError(
        f"{root} has no VC/Tools/MSVC: it is not a tree of Visual Studio or msvc-wine",
        hint="Use the directory that contains VC and 'Windows Kits' (msvc-wine: vc and kits).",
    )


def _only_version(
    folder: Path, pattern: re.Pattern[str], requested: str, key: str, what: str
) -> Path:
    """The only version in ``folder``, or the requested one."""
    try:
        folders = sorted(p for p in folder.iterdir() if p.is_dir() and pattern.fullmatch(p.name))
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be read: {error.strerror}", hint="Copy the tree again."
        ) from None
    names = ", ".join(path.name for path in folders) or "none"
    fitting = [p for p in folders if not requested or f"{p.name}.".startswith(f"{requested}.")]
    if not fitting:
        raise ConfigError(
            f"{folder} has {what} {names}" + (f", not {requested}" if requested else ""),
            hint=f"Change {key} in pipeline.yaml." if requested else "The tree is incomplete.",
        )
    if len(fitting) > 1:
        raise ConfigError(
            f"{folder} has {len(fitting)} versions of the {what}: "
            + ", ".join(path.name for path in fitting),
            hint=f"Choose one in pipeline.yaml: {key}: {fitting[-1].name}",
        )
    return fitting[0]


def _toolchain_directories(folder: Path, kits: Path, sdk: str) -> dict[str, Path | None]:
    return {
        "bin": find_descendant(folder, "bin", "Hostx64", "x64"),
        "include": find_child_ignoring_case(folder, "include"),
        "lib": find_descendant(folder, "lib", "x64"),
        **{
            n: find_descendant(kits, "Include", sdk, n)
            for n in ("ucrt", "um", "shared", "winrt", "cppwinrt")
        },
        "ucrt lib": find_descendant(kits, "Lib", sdk, "ucrt", "x64"),
        "um lib": find_descendant(kits, "Lib", sdk, "um", "x64"),
        "sdk bin": find_descendant(kits, "bin", sdk, "x64"),
    }


def _refuse_half(root: Path, version: str, places: Mapping[str, Path | None], parts: Parts) -> None:
    """Raise :class:`ConfigError` naming what is missing, and the package that has it."""
    missing = [
        f"{name} ({place})"
        for place, names in parts.items()
        for name in names
        if not _is_file(places[place], name)
    ]
    if not missing:
        return
    names = {path.partition(" ")[0] for path in missing}
    if "cl.exe" in names:
        raise ConfigError(
            f"{root} has headers and libraries of MSVC {version}, but no cl.exe for x64 on x64",
            hint="xwin does not include the compiler: use a tree of Visual Studio or msvc-wine.",
        )
    if names <= _STORE:
        raise ConfigError(
            f"{root} has no {', '.join(sorted(names))}: the import libraries for /MD are in "
            "Microsoft's package CRT.x64.Store, not in CRT.x64.Desktop",
            hint="Add that package; Visual Studio's installer includes it in VC.Tools.x86.x64.",
        )
    shown = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if missing[8:] else "")
    raise ConfigError(f"{root} is incomplete: it has no {shown}", hint="Copy it again.")


def _is_file(folder: Path | None, name: str) -> bool:
    """Whether it exists and is not empty: interrupted copies leave empty files."""
    path = find_child_ignoring_case(folder, name) if folder is not None else None
    return path is not None and path.is_file() and path.stat().st_size > 0


def _there(folder: Path | None, name: str) -> Path:
    return _assert_found(find_child_ignoring_case(_assert_found(folder), name))


def _assert_found(path: Path | None) -> Path:
    assert path is not None  # noqa: S101 - _refuse_half has checked
    return path


def _is_same_minor_version(compiler: str, folder: str) -> bool:
    """Servicing changes only the third number: 14.44.35207 has a cl.exe 14.44.35211."""
    return compiler.split(".")[:2] == folder.split(".")[:2]
