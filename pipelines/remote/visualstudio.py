"""Whose program an installer is, and what Visual Studio's has left behind."""

from __future__ import annotations

import contextlib
import glob
import re

from .inspection import tools
from .process import POWERSHELL, capture
from .resources import RefusedError

_TIMEOUT = 120.0


def require_signer(file: str, signer: str) -> None:
    """Raise :class:`RefusedError` unless the file has a signature of theirs that Windows trusts.

    https://learn.microsoft.com/powershell/module/microsoft.powershell.security/get-authenticodesignature
    """
    said = _ask(
        f"$s = Get-AuthenticodeSignature -LiteralPath {_quoted(file)}; "
        '"$($s.Status)|$($s.SignerCertificate.Subject)"'
    )
    if not re.search(rf'^Valid\|(?:.*, )?O="?{re.escape(signer)}"?(?:,|$)', said):
        raise RefusedError(
            f"{file} was not started: expected a valid signature of {signer}, found {said!r}",
            hint="Something on the host has changed it, its list of trusted roots is old, or "
            "a policy keeps powershell.exe from saying so.",
        )


def product(place: str) -> dict[str, str]:
    """``product``, such as 17.14.41, and ``engine``, the installer's version; of nothing, {}.

    ``incomplete`` where the installer is not done with it: it was stopped, or has failed.
    """
    rows = []
    with contextlib.suppress(OSError, ValueError, TimeoutError):  # it only tells more
        rows = tools.visual_studio()
    for row in rows:
        if str(row["path"]).rstrip("\\").lower() == place.rstrip("\\").lower() and row["product"]:
            engine = f"(Get-Item -LiteralPath {_quoted(row['engine'])}).VersionInfo.FileVersion"
            found = {"product": row["product"].partition("+")[0], "engine": _ask(engine)}
            return found | ({"incomplete": "yes"} if row["complete"] is False else {})
    return {}


def require_product(version: str, place: str, toolset: str, compilers: str) -> None:
    """Raise :class:`RefusedError` unless that product is in ``place``, and its compiler runs."""
    found = product(place).get("product", "nothing")
    wanted = f"19.{toolset.partition('.')[2]}."  # of cl.exe, whose banner is in any language
    paths = glob.glob(compilers)  # noqa: PTH207 - an absolute pattern
    if found != version or not any(wanted in capture([p], timeout=_TIMEOUT)[1] for p in paths):
        raise RefusedError(
            f"expected {version} and a cl.exe {wanted}x in {place}; vswhere finds {found}, and "
            f"cl.exe there are {paths}",
            hint=f"Uninstall what is in {place}, then provision again.",
        )


def _quoted(path: str) -> str:
    return "'" + path.replace("'", "''") + "'"


def _ask(script: str) -> str:
    """What PowerShell answers; its last line, empty when it does not."""
    try:
        _, said = capture([*POWERSHELL, script], timeout=_TIMEOUT)
    except (OSError, TimeoutError):
        return ""
    return "".join(said.strip().splitlines()[-1:])
