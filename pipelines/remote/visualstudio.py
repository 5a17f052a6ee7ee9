"""Who signed an installer, and what Visual Studio's has installed."""

from __future__ import annotations

import contextlib
import glob
import re

from .inspection import tools
from .process import POWERSHELL, capture
from .resources import RefusedError

_TIMEOUT = 120.0


def require_signer(file: str, signer: str) -> None:
    """Raise :class:`RefusedError` unless the file has that signer's signature, trusted by Windows.

    https://learn.microsoft.com/powershell/module/microsoft.powershell.security/get-authenticodesignature
    """
    signature = _query_powershell(
        f"$s = Get-AuthenticodeSignature -LiteralPath {_quote_powershell(file)}; "
        '"$($s.Status)|$($s.SignerCertificate.Subject)"'
    )
    if not re.search(rf'^Valid\|(?:.*, )?O="?{re.escape(signer)}"?(?:,|$)', signature):
        raise RefusedError(
            f"{file} was not started: expected a valid signature of {signer}, found {signature!r}",
            hint="It was changed on the host, the host's list of trusted roots is outdated, or "
            "a policy blocks powershell.exe.",
        )


def product(place: str) -> dict[str, str]:
    """``product``, such as 17.14.41, and ``engine``, the installer's version; {} without one.

    ``incomplete`` if the installation was interrupted or has failed.
    """
    rows = []
    with contextlib.suppress(OSError, ValueError, TimeoutError):  # it only adds details
        rows = tools.visual_studio()
    for row in rows:
        if str(row["path"]).rstrip("\\").lower() == place.rstrip("\\").lower() and row["product"]:
            path = _quote_powershell(row["engine"])
            engine = f"(Get-Item -LiteralPath {path}).VersionInfo.FileVersion"
            values = {
                "product": row["product"].partition("+")[0],
                "engine": _query_powershell(engine),
            }
            return values | ({"incomplete": "yes"} if row["complete"] is False else {})
    return {}


def require_product(version: str, place: str, toolset: str, compilers: str) -> None:
    """Raise :class:`RefusedError` unless that product is in ``place``, and its compiler runs."""
    actual = product(place).get("product", "nothing")
    compiler = f"19.{toolset.partition('.')[2]}."  # of cl.exe, whose banner is in any language
    paths = glob.glob(compilers)  # noqa: PTH207 - an absolute pattern
    if actual != version or not any(compiler in capture([p], timeout=_TIMEOUT)[1] for p in paths):
        raise RefusedError(
            f"expected {version} and a cl.exe {compiler}x in {place}; vswhere reports {actual}, "
            f"and cl.exe exists in {paths}",
            hint=f"Uninstall what is in {place}, then provision again.",
        )


def _quote_powershell(path: str) -> str:
    return "'" + path.replace("'", "''") + "'"


def _query_powershell(script: str) -> str:
    """PowerShell's answer: its last line, empty if it fails."""
    try:
        _, output = capture([*POWERSHELL, script], timeout=_TIMEOUT)
    except (OSError, TimeoutError):
        return ""
    return "".join(output.strip().splitlines()[-1:])
