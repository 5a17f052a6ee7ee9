"""The slot for the user's MSVC: the meaning of ``msvc`` in pipeline.yaml, and what is missing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipelines.core.errors import ConfigError, HostError
from pipelines.core.files import disk_errors
from pipelines.core.finding import Finding
from pipelines.core.hosttext import safe_line
from pipelines.core.paths import project_dir
from pipelines.hosts.base import HERE, Events
from pipelines.hosts.sandbox.msvc.finder import Tree, find_msvc_tree

#: The path of a tree in every sandbox.
VS = r"C:\VS"


def vcvarsall_script(tree: Tree) -> str:
    """vcvarsall.bat, which sets the variables of an x64 prompt.

    Microsoft's needs reg and findstr, which are stubs in Wine. This one accepts Microsoft's
    arguments ``x64`` and ``-vcvars_ver=14.44``, and fails for other architectures and versions.
    """
    tools = rf"{VS}\VC\Tools\MSVC\{tree.version}"
    kits, sdk = rf"{VS}\Windows Kits\10", tree.sdk
    bins = [rf"{tools}\bin\Hostx64\x64"]
    if tree.sdk_bin is not None:
        bins.append(rf"{kits}\bin\{sdk}\x64")
    headers = [p.name.lower() for p in tree.include[1:]]
    variables = {
        "VSINSTALLDIR": f"{VS}\\",
        "VCINSTALLDIR": f"{VS}\\VC\\",
        "VCToolsInstallDir": f"{tools}\\",
        "VCToolsVersion": tree.version,
        "WindowsSdkDir": f"{kits}\\",
        "WindowsSDKVersion": f"{sdk}\\",
        "UCRTVersion": sdk,
        "VSCMD_ARG_HOST_ARCH": "x64",
        "VSCMD_ARG_TGT_ARCH": "x64",
        "INCLUDE": ";".join(
            [rf"{tools}\include", *(rf"{kits}\Include\{sdk}\{name}" for name in headers)]
        ),
        "LIB": ";".join(
            [rf"{tools}\lib\x64", *(rf"{kits}\Lib\{sdk}\{name}\x64" for name in ("ucrt", "um"))]
        ),
        "LIBPATH": rf"{tools}\lib\x64",
        "PATH": ";".join([*bins, "%PATH%"]),
    }
    lines = [
        "@rem Written by windows-cuda-wheels for the tree in C:\\VS.",
        *_vcvars_argument_checks(tree.version),
        *(f"@set {name}={value}" for name, value in variables.items()),
        "@exit /b 0",
    ]
    return "\r\n".join(lines) + "\r\n"


def _vcvars_argument_checks(version: str) -> list[str]:
    """Refuse another architecture or version; cmd splits arguments at the ``=``."""
    numbers = version.split(".")
    known = [".".join(numbers[:length]) for length in range(1, len(numbers) + 1)]
    return [
        '@if not "%~1"=="x64" if not "%~1"=="amd64" if not "%~1"=="" goto other',
        '@if "%~2"=="" goto set',
        '@if not "%~2"=="-vcvars_ver" goto other',
        *(f'@if "%~3"=="{version_}" goto set' for version_ in known),
        f"@echo [ERROR:vcvars.bat] Toolset directory for version '%~3' was not found: {version} is"
        " there.",
        "@exit /b 1",
        ":other",
        f"@echo [ERROR:vcvarsall.bat] %* is not understood: this tree is x64, {version}.",
        "@exit /b 1",
        ":set",
    ]


#: Microsoft's telemetry, which cl.exe starts and which hangs in Wine:
#: https://github.com/mstorsjo/msvc-wine/issues/23
LEFT_OUT = frozenset({"vctip.exe"})
#: Where the stub toolchain is moved meanwhile.
_ASIDE = "VS.stand-in"


def install_msvc_tree(tree: Tree, prefix: Path) -> None:
    r"""Put ``tree`` at ``C:\VS`` of the Windows in ``prefix``, in place of what is there.

    With the tree's own names, its parts linked and not copied. Only ``bin`` is a directory of the
    prefix: it omits what cl.exe should not find there. For each start of a sandbox. Raises
    :class:`StorageError` on a full disk.
    """
    drive = prefix / "drive_c"
    new = drive / ".VS.new"
    with disk_errors(drive):
        shutil.rmtree(new, ignore_errors=True)
        tools = new / "VC/Tools/MSVC" / tree.version
        _link_directory_contents(tools / "bin/Hostx64/x64", tree.bin)
        _symlink_resolved(tools / "include", tree.include[0])
        _symlink_resolved(tools / "lib/x64", tree.lib[0])
        kits = new / "Windows Kits/10"
        for folder in tree.include[1:]:
            _symlink_resolved(kits / "Include" / tree.sdk / folder.name.lower(), folder)
        for name, folder in zip(("ucrt", "um"), tree.lib[1:], strict=True):
            _symlink_resolved(kits / "Lib" / tree.sdk / name / "x64", folder)
        if tree.sdk_bin is not None:
            _symlink_resolved(kits / "bin" / tree.sdk / "x64", tree.sdk_bin)
        script = new / "VC/Auxiliary/Build/vcvarsall.bat"
        script.parent.mkdir(parents=True)
        script.write_bytes(vcvarsall_script(tree).encode("ascii"))
        remove_msvc_tree(prefix)
        (drive / "VS").rename(drive / _ASIDE)
        new.rename(drive / "VS")


def is_msvc_installed(tree: Tree, prefix: Path) -> bool:
    """Whether the Windows in ``prefix`` has ``tree``, and no other."""
    place = prefix / "drive_c/VS/VC"
    include = place / "Tools/MSVC" / tree.version / "include"
    try:
        script = (place / "Auxiliary/Build/vcvarsall.bat").read_bytes()
        linked = include.readlink() == tree.include[0].resolve()
    except OSError:
        return False
    return linked and script == vcvarsall_script(tree).encode("ascii")


def remove_msvc_tree(prefix: Path) -> None:
    """Restore the stub toolchain, which compiles the GPU bridge; harmless without a tree."""
    drive = prefix / "drive_c"
    if (drive / _ASIDE).is_dir():
        shutil.rmtree(drive / "VS", ignore_errors=True)
        (drive / _ASIDE).rename(drive / "VS")


def _link_directory_contents(place: Path, folder: Path) -> None:
    place.mkdir(parents=True)
    for path in sorted(folder.iterdir()):
        if path.name.lower() not in LEFT_OUT:
            _symlink_resolved(place / path.name, path)


def _symlink_resolved(place: Path, target: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target.resolve())


_MICROSOFT = "Microsoft Corporation"


@dataclass(frozen=True, kw_only=True)
class Slot:
    """As written in pipeline.yaml."""

    msvc: str
    version: str = ""
    sdk: str = ""

    def require(self) -> Tree:
        """The tree of the user's directory; :class:`ConfigError` for an unusable one."""
        try:
            place = project_dir() / Path(self.msvc).expanduser()
        except RuntimeError as error:  # for an unknown user
            raise ConfigError(f"msvc: {self.msvc}: {error}", hint="Write it without ~.") from None
        return require_microsoft(find_msvc_tree(place, version=self.version, sdk=self.sdk))

    def missing(self) -> tuple[Finding, ...]:
        """What :meth:`require` would raise, for plan and doctor."""
        try:
            self.require()
        except ConfigError as error:
            return (
                Finding(
                    id="msvc",
                    level="error",
                    actual=error.message,
                    hint=error.hint,
                    source=HERE,
                    raises=type(error).__name__,
                ),
            )
        return ()

    def notes(self) -> Iterator[str]:
        """For a plan: what is available; a rule reports what is missing."""
        if not self.missing():
            yield f"compiler: {self.require()}"

    def which(self) -> tuple[str, str]:
        """The toolset's version, and what distinguishes its files from others of that version."""
        tree = self.require()
        return tree.version, str(tree)

    def remove(self, prefix: Path) -> None:
        """Remove the tree from the Windows in ``prefix``, if it is there."""
        remove_msvc_tree(prefix)

    def check(self, prefix: Path) -> None:
        """Raise :class:`HostError` unless the running Windows has the tree of pipeline.yaml."""
        tree = self.require()
        if not is_msvc_installed(tree, prefix):
            raise HostError(
                f"the running sandbox has a different compiler from pipeline.yaml: {tree}",
                hint="Type: invoke host stop, then the same command again.",
            )

    def install(self, prefix: Path, events: Events) -> None:
        """Install the tree into the Windows in ``prefix``; raises what :meth:`require` does."""
        tree = self.require()
        install_msvc_tree(tree, prefix)
        events.step(f"compiler: {tree}")


def require_microsoft(tree: Tree) -> Tree:
    """``tree`` if its cl.exe is Microsoft's; otherwise :class:`ConfigError`."""
    if tree.maker != _MICROSOFT:
        raise ConfigError(
            f"{tree.bin / 'cl.exe'} names {safe_line(tree.maker, 80) or 'no company'} as its "
            "maker, not "
            f"{_MICROSOFT}",
            hint="The sandbox's own stub toolchain needs no msvc: remove the key.",
        )
    return tree
