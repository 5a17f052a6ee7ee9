"""Whose program an installer is, and what Visual Studio's has left behind."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import pathlib
import re
from typing import TypedDict

from .process import capture
from .resources import RefusedError

_TIMEOUT = 120.0
#: Words in an installer's output or logs -> what they mean, and what to do. The codes that come
#: with them say no more than that it failed.
_IN_LOGS = {
    r"already been added\. Key in dictionary": (
        "two environment variables differ in nothing but upper and lower case",
        "Remove one of each pair on the host, those of the machine and of the account.",
    ),
    r"0x80131509": (
        "the host cannot check Microsoft's certificates",
        "The host must reach the addresses of docs/hosts/windows-host.md.",
    ),
}


class Product(TypedDict):
    """An installation."""

    version: str
    """Such as 17.14.41."""
    engine: str
    """Version of the installer that made it, which Microsoft serves and nobody can choose."""


def require_signer(file: str, signer: str) -> None:
    """Raise :class:`RefusedError` unless the file has a signature of theirs that Windows trusts.

    https://learn.microsoft.com/powershell/module/microsoft.powershell.security/get-authenticodesignature
    """
    found = _ask(
        f"$s = Get-AuthenticodeSignature -LiteralPath {_quoted(file)}; ConvertTo-Json -Compress "
        '@{status = "$($s.Status)"; subject = "$($s.SignerCertificate.Subject)"}'
    )
    status, subject = found.get("status", "unknown"), found.get("subject", "")
    if status != "Valid" or not re.search(rf'(?:^|, )O="?{re.escape(signer)}"?(?:,|$)', subject):
        raise RefusedError(
            f"{file} was not started: expected a valid signature of {signer}, "
            f"found {status} of {subject or 'nobody'}",
            advice="Something on the host has changed it, or its list of trusted roots is old.",
        )


def product(place: str) -> Product | None:
    """What Visual Studio's own locator knows in ``place``; None where that is nothing.

    https://github.com/microsoft/vswhere/wiki
    """
    base = os.environ.get("ProgramFiles(x86)", r"C:\Program Files (x86)")  # noqa: SIM112
    locator = pathlib.Path(base, "Microsoft Visual Studio", "Installer", "vswhere.exe")
    if not locator.is_file():
        return None
    flags = ("-all", "-products", "*", "-format", "json", "-utf8", "-nologo")
    code, text = capture([str(locator), *flags], timeout=_TIMEOUT)
    rows = json.loads(text) if code == 0 else []
    for row in rows:
        if str(row.get("installationPath")).rstrip("\\").lower() == place.rstrip("\\").lower():
            version = str((row.get("catalog") or {}).get("productSemanticVersion") or "unknown")
            engine = str((row.get("properties") or {}).get("setupEngineFilePath") or "")
            return {"version": version.partition("+")[0], "engine": _file_version(engine)}
    return None


def require_product(name: str, version: str, place: str, toolset: str, compiler: str) -> None:
    """Raise :class:`RefusedError` unless that product is in ``place``, and its compiler runs."""
    found = product(place)
    if found is None or found["version"] != version:
        has = found["version"] if found else "nothing"
        raise RefusedError(
            f"{name} was to leave {version} in {place}, and vswhere finds {has} there",
            advice=f"Uninstall what is in {place}, then provision again.",
        )
    programs = glob.glob(compiler)  # noqa: PTH207 - an absolute pattern
    wanted = f"19.{toolset.partition('.')[2]}."  # https://learn.microsoft.com/cpp/overview/compiler-versions
    for program in programs:
        _, said = capture([program], timeout=_TIMEOUT)  # its banner, in the system's language
        if wanted in said:
            return
    raise RefusedError(
        f"{name} has left no cl.exe {wanted}x in {place}",
        advice="Its logs say what was not installed.",
    )


def told_by(texts: list[str]) -> tuple[str, str]:
    """What an installer's output and logs mean, and what to do; empty where that is not known."""
    for pattern, meaning in _IN_LOGS.items():
        if any(re.search(pattern, text) for text in texts):
            return meaning
    return "", ""


def _file_version(path: str) -> str:
    if not path:
        return "unknown"
    script = f"$v = (Get-Item -LiteralPath {_quoted(path)}).VersionInfo.FileVersion"
    found: dict[str, str] = {}
    with contextlib.suppress(RefusedError):
        found = _ask(f'{script}; ConvertTo-Json -Compress @{{version = "$v"}}')
    return found.get("version") or "unknown"


def _quoted(path: str) -> str:
    return "'" + path.replace("'", "''") + "'"


def _ask(script: str) -> dict[str, str]:
    """What a line of PowerShell answers, as JSON."""
    command = ["powershell.exe", "-NoProfile", "-NonInteractive", "-Command", script]
    try:
        _, said = capture(command, timeout=_TIMEOUT)
        found = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
        return {str(key): str(value) for key, value in found.items()}
    except (OSError, TimeoutError, ValueError, StopIteration, AttributeError) as error:
        raise RefusedError(
            f"PowerShell does not say what was asked: {type(error).__name__}: {error}",
            advice="See whether powershell.exe starts on the host, and which policy forbids it.",
        ) from error
