"""Resolves a wheel and its dependencies for another platform, with uv.

uv evaluates markers for the requested platform; pip with ``--platform`` evaluates them for the
machine that it runs on: https://github.com/pypa/pip/issues/11664. Indexes are those of the user's
uv configuration, or ``PIP_INDEX_URL``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from packaging.markers import InvalidMarker, Marker
from packaging.tags import Tag
from packaging.utils import canonicalize_name, parse_wheel_filename
from pydantic import BaseModel, Field, StringConstraints, ValidationError

from pipelines.core.errors import (
    ConfigError,
    LockError,
    PipelineError,
    SetupError,
    error_class,
)
from pipelines.core.hosttext import safe_block, safe_line
from pipelines.core.model import FileName, Model, first_problem, read_data
from pipelines.core.shell import pip_install
from pipelines.core.versions import python_release
from pipelines.plan.prebuilt.candidates import Offer
from pipelines.wheels.tags import WINDOWS, wheel_tags

_PATTERNS = Path(__file__).with_name("error_patterns.yaml")
_SECONDS = 600
_YANKED = re.compile(r"^warning: (.* is yanked.*)$", re.MULTILINE)
_MOST = 500  # packages
#: The user's variables that are passed to uv: indexes and how to reach them. Others would change
#: the choice of wheels (UV_OVERRIDE, UV_EXCLUDE_NEWER ...) without a trace in reports.
_REACHES = re.compile(
    r"UV_(?:(?:DEFAULT_|EXTRA_)?INDEX(?:_URL|_STRATEGY|_\w+_USERNAME|_\w+_PASSWORD)?|HTTP_\w+"
    r"|KEYRING_PROVIDER|INSECURE_HOST|SYSTEM_CERTS|NATIVE_TLS|REQUEST_TIMEOUT|OFFLINE"
    r"|CONFIG_FILE|NO_CONFIG|CACHE_DIR|NO_CACHE|CONCURRENT_DOWNLOADS)"
)


@dataclass(frozen=True)
class Closure:
    """The resolved wheels, and uv's warnings."""

    offers: tuple[Offer, ...]
    warnings: tuple[str, ...] = ()


class ErrorPattern(Model):
    """A pattern in uv's errors, and our message and hint for it."""

    pattern: str
    message: str
    """May contain the pattern's groups: {0}."""
    hint: str
    kind: Literal["ConfigError", "LockError"] = "ConfigError"
    """A class of :mod:`pipelines.core.errors`."""


class ErrorPatterns(Model):
    """``error_patterns.yaml``; the first matching pattern is used."""

    patterns: tuple[ErrorPattern, ...]


class _Hashes(BaseModel):
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = None


class _Wheel(BaseModel):
    url: str = ""
    path: str = ""
    size: int | None = None
    hashes: _Hashes = _Hashes()

    def offer(self) -> Offer:
        """As an :class:`Offer`."""
        try:
            parts = urlsplit(self.url)
        except ValueError:
            raise LockError("uv returned an invalid wheel address") from None
        path = self.path or (url2pathname(parts.path) if parts.scheme == "file" else "")
        file = Path(path).name or unquote(parts.path).rpartition("/")[2]
        return Offer(file, path or self.url, self.hashes.sha256, self.size)


class _Package(BaseModel):
    name: str
    marker: str = ""
    wheels: tuple[_Wheel, ...] = ()
    archive: _Wheel | None = None


class _Lock(BaseModel):
    """A lock file of PEP 751, as far as it is used."""

    packages: Annotated[tuple[_Package, ...], Field(max_length=_MOST)] = ()


class _File(BaseModel):
    name: FileName


def find_uv() -> str:
    """The program; :class:`SetupError` says how to get it."""
    try:
        from uv import find_uv_bin

        path: str | None = find_uv_bin()
    except (ImportError, FileNotFoundError):
        path = shutil.which("uv")
    if not path:
        raise SetupError(
            "uv is not installed here, which resolves what a wheel requires on another platform",
            hint=f"Type: {pip_install('uv')}",
        )
    return path


def resolve_closure(
    requirements: Sequence[str],
    *,
    python: str,
    platforms: Sequence[str],
    executable: str = "",
    limits: Sequence[str] = (),
    folders: Iterable[Path] = (),
    offline: bool = False,
) -> Closure:
    """The wheels of ``requirements`` and of all dependencies.

    ``executable`` is the Python of a host that is this machine; otherwise the host is Windows.
    ``limits`` are uv constraints; ``folders`` are additional sources of wheels, the only ones
    with ``offline``. Raises :class:`ConfigError` if there is no solution, :class:`LockError` if an
    index is unreachable.
    """
    windows = [*platforms] == [*WINDOWS]
    command = [find_uv(), "pip", "compile", "--only-binary", ":all:", "--format", "pylock.toml"]
    command += ["--no-header", "--color", "never", "--python-version", python_release(python)]
    command += ["--python-platform", "x86_64-pc-windows-msvc"] if windows else []
    # uv wants one in any case, and on Windows it does not see this one by itself.
    command += ["--python", executable if executable and not windows else sys.executable]
    command += [word for folder in folders for word in ("--find-links", str(folder))]
    command += ["--offline", "--no-index"] if offline else []
    with TemporaryDirectory(prefix="wcw-uv-") as scratch:
        requested, bounds = Path(scratch, "asked.in"), Path(scratch, "bounds.in")
        requested.write_text("".join(f"{text}\n" for text in requirements), "utf-8")
        bounds.write_text("".join(f"{text}\n" for text in limits), "utf-8")
        try:
            done = subprocess.run(
                [*command, *(["--constraint", str(bounds)] if limits else []), str(requested)],
                env=_uv_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise LockError(f"uv could not resolve {requirements[0]}: {error}") from None
    if done.returncode:
        raise _explain_uv_failure(requirements[0], done.stderr, offline=offline)
    offers = _choose_locked_wheels(done.stdout, python, platforms)
    return Closure(offers, tuple(safe_line(text, 300) for text in _YANKED.findall(done.stderr)))


def _uv_environment() -> Mapping[str, str]:
    """The user's environment, with pip's index if uv has none, and the system's certificates."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.upper().startswith("UV_") or _REACHES.fullmatch(name.upper())
    }
    index = own.get("PIP_INDEX_URL")
    if index and not {"UV_DEFAULT_INDEX", "UV_INDEX_URL"} & own.keys():
        own["UV_DEFAULT_INDEX"] = index
    return {"UV_SYSTEM_CERTS": "true", **own}


def _explain_uv_failure(first: str, stderr: str, *, offline: bool) -> PipelineError:
    text = safe_block(stderr, 1500)
    flat = " ".join(stderr.split())
    where = " (--offline: only the wheelhouse was searched)" if offline else ""
    for known in read_data(_PATTERNS, ErrorPatterns).patterns:
        if match := re.search(known.pattern, flat):
            reason = known.message.format(*(safe_line(part, 200) for part in match.groups()))
            message = f"{safe_line(first, 200)}: {reason}{where}\n{text}"
            return error_class(known.kind)(message, hint=known.hint)
    return ConfigError(
        f"{safe_line(first, 200)} cannot be resolved{where}\n{text}",
        hint="Its requirements conflict: choose other versions with --with.",
    )


def _choose_locked_wheels(text: str, python: str, platforms: Sequence[str]) -> tuple[Offer, ...]:
    """Uv's choice: for each package the wheel with the best tags for this Python."""
    try:
        lock = _Lock.model_validate(tomllib.loads(text))
    except ValidationError as error:
        raise LockError(f"uv returned an invalid lock: {first_problem(error)}") from None
    except tomllib.TOMLDecodeError as error:
        raise LockError(f"uv returned an invalid lock: {safe_line(error, 200)}") from None
    tags = wheel_tags(python, platforms)
    made = []
    for package in lock.packages:
        if not _applies(package.marker):
            continue
        every = [*package.wheels, *([package.archive] if package.archive else [])]
        files = [each.offer().file for each in every]
        fits = {
            file: [tags[t] for t in _tags_of(file, package.name) if t in tags] for file in files
        }
        ranked = sorted((min(fit, default=len(tags)), file) for file, fit in fits.items())
        if not ranked or ranked[0][0] == len(tags):
            raise ConfigError(
                f"{safe_line(package.name, 80)}: uv found no wheel for Python {python} there",
                hint="Choose another version with --with.",
            )
        made.append(next(o for each in every if (o := each.offer()).file == ranked[0][1]))
    return tuple(made)


def _tags_of(file: str, project: str) -> Iterable[Tag]:
    """The tags of a wheel's file name, which must be plain as it becomes a local file name.

    Empty for a wheel of another project.
    """
    try:
        name, _, _, tags = parse_wheel_filename(_File(name=file).name)
        return tags if name == canonicalize_name(project) else ()
    except ValueError:  # from pydantic or packaging
        return ()


def _applies(marker: str) -> bool:
    """Whether a marker holds for CPython; uv has evaluated everything else."""
    if "implementation" not in marker:
        return True
    own = {"implementation_name": "cpython", "platform_python_implementation": "CPython"}
    try:
        return Marker(marker).evaluate(own)
    except InvalidMarker:
        return True
