r"""vcvarsall.bat for the tree at ``C:\VS``: Microsoft's needs reg and findstr, stubs in Wine."""

from __future__ import annotations

from pipelines.hosts.sandbox.msvc.finder import Tree

#: The path of a tree in every sandbox.
VS = r"C:\VS"


def vcvars(tree: Tree) -> str:
    """The batch file: sets the variables of an x64 prompt.

    It accepts Microsoft's arguments ``x64`` and ``-vcvars_ver=14.44``, and fails for other
    architectures and versions.
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
        *_arguments(tree.version),
        *(f"@set {name}={value}" for name, value in variables.items()),
        "@exit /b 0",
    ]
    return "\r\n".join(lines) + "\r\n"


def _arguments(version: str) -> list[str]:
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
