"""Packages that only some features need: extras of ours, which name themselves when missing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
import tomllib
from collections.abc import Iterator

from packaging.requirements import Requirement

from pipelines.core.errors import SetupError
from pipelines.core.paths import CHECKOUT
from pipelines.core.shell import pip_install

DISTRIBUTION = "windows-cuda-wheels"
#: Module -> the extra in ``pyproject.toml`` that brings it.
MODULES = {
    "fsspec": "publish",
    "google": "publish",  # protobuf, which in-toto-attestation needs
    "in_toto_attestation": "publish",
    "securesystemslib": "publish",
    "cyclonedx": "sbom",
    "jsonschema": "sbom",
    "torch_abi_audit": "abi",
    "abi3info": "abi",
    "demangle": "abi",
    "spnego": "sandbox",
}
EXTRAS = tuple(dict.fromkeys(MODULES.values()))


def install_extra(name: str) -> str:
    """The command that installs an extra: in a checkout, or else into this environment.

    There by its packages' own names: ours is on no index, and there could be anybody's.
    """
    if CHECKOUT is not None and sys.platform != "win32":  # whose environment has no uv
        return (
            ".venv/bin/uv pip install --system-certs --python .venv/bin/python -r pyproject.toml "
            f"--extra {name}"
        )
    return pip_install(
        *(f"{one.name}{_extras(one)}{one.specifier}" for one in extra_requirements(name))
    )


def extra_requirements(extra: str) -> Iterator[Requirement]:
    """What an extra adds to what is required anyway; a checkout need not be installed."""
    if CHECKOUT is not None:
        project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]
        yield from map(Requirement, project["optional-dependencies"][extra])
        return
    for text in importlib.metadata.requires(DISTRIBUTION) or ():
        one = Requirement(text)
        if one.marker and one.marker.evaluate({"extra": extra}) and not one.marker.evaluate():
            yield one


def find_missing(extra: str) -> SetupError | None:
    """The error for the first of its modules that is not installed."""
    for module, name in MODULES.items():
        if name == extra and not _is_installed(module):
            return _missing_extra_error(module, extra)
    return None


def require_extra(extra: str) -> None:
    """:class:`SetupError` unless its modules are installed."""
    if (missing := find_missing(extra)) is not None:
        raise missing


def missing_extra(error: Exception) -> SetupError | None:
    """What an import error of an extra's module means to a user; ``None`` for any other error."""
    if not isinstance(error, ModuleNotFoundError):
        return None
    module = (error.name or "").partition(".")[0]
    return _missing_extra_error(module, MODULES[module]) if module in MODULES else None


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # of None in sys.modules: it is kept from being imported
        return False


def _missing_extra_error(module: str, extra: str) -> SetupError:
    return SetupError(
        f"the Python package {module} is not installed, which the extra '{extra}' brings",
        hint=f"Type: {install_extra(extra)}",
    )


def _extras(requirement: Requirement) -> str:
    return f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
