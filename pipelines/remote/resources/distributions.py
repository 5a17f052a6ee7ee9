"""Python packages that must already be installed, in a Python that is also the build target.

Never installed. Nothing is imported: torch takes seconds, and a broken one crashes the process.
Its version and CUDA version are read from ``torch/version.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from ..process import capture
from . import Check, Kind, RefusedError

_TIMEOUT = 60.0
# Run by the building Python itself, which knows its own search path.
_ASK = """
import importlib.metadata, importlib.util, json, pathlib, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
cuda = ""
if "torch" in found:
    place = importlib.util.find_spec("torch").submodule_search_locations[0]
    for line in (pathlib.Path(place) / "version.py").read_text().splitlines():
        if line.startswith("cuda"):
            cuda = line.partition("=")[2].strip().strip("'\\"")
release = "%d.%d" % sys.version_info[:2]
print("ANSWER" + json.dumps({"found": found, "cuda": cuda, "release": release}))
"""


class Spec(Kind):
    """The desired state."""

    names: list[str]
    requires: dict[str, list[list[str]]]
    """By name: clauses such as [">=", "77"], all of which its version must satisfy."""
    python: str
    """The program."""
    release: str
    """Its version, such as 3.12; empty is any."""
    torch: str
    cuda: str
    """Versions, such as 2.8 and 12.8; an empty CUDA version is any, or none."""
    index: str
    """Where pip finds that torch."""


def installed(python: str, names: list[str]) -> dict[str, str]:
    """Versions of ``Python``, of the installed ones of ``names``, and of ``torch's CUDA``."""
    code, output = capture([python, "-c", _ASK, *names], timeout=_TIMEOUT)
    for line in output.splitlines():
        if line.startswith("ANSWER"):
            answer = json.loads(line[len("ANSWER") :])
            extra = {"torch's CUDA": str(answer["cuda"])} if "torch" in answer["found"] else {}
            return {"Python": str(answer["release"]), **answer["found"], **extra}
    raise RuntimeError(f"{python} exited with {code}: {output.strip()[-300:]}")


def check(spec: Spec) -> Check:
    """Compare with the installed ones; values as from :func:`installed`."""
    have = installed(spec["python"], spec["names"])
    wrong, _ = judge(spec, have)
    versions = ", ".join(f"{name} {version}" for name, version in have.items())
    text = f"{versions}{'; ' if versions and wrong else ''}{wrong}" or "none"
    return {"ok": not wrong, "found": text, "values": have}


def plan(spec: Spec) -> str:
    """What the user has to do."""
    return f"not managed by the pipeline: {_distributions_hint(spec)}"


def apply(spec: Spec) -> None:
    """Refuse, with the command that helps."""
    raise RefusedError("this environment is used unchanged", hint=_distributions_hint(spec))


def _distributions_hint(spec: Spec) -> str:
    return judge(spec, installed(spec["python"], spec["names"]))[1]


def judge(spec: Spec, have: Mapping[str, str]) -> tuple[str, str]:
    """The first problem with the result of :func:`installed`, and a hint.

    Both are empty if there is none.
    """
    python = have.get("Python", "unknown")
    if spec["release"] and python != spec["release"]:
        other = f"use what is installed: --python {python}, or name another 'python'"
        return f"that is Python {python}", other
    missing = [name for name in spec["names"] if name not in have]
    there = {name: have[name] for name in spec["requires"] if name in have}
    unfit = [name for name, version in there.items() if not _meets(version, spec, name)]
    if missing or unfit:
        wrong = [f"missing: {', '.join(missing)}"] if missing else []
        wrong += [f"{name} {there[name]} is not {_clauses(spec, name)}" for name in unfit]
        return "; ".join(wrong), f"type: {_pip_install_commands(spec, [*missing, *unfit])}"
    if "torch" in spec["names"]:
        torch, cuda = (
            _major_minor_release(have["torch"]),
            _major_minor_release(have.get("torch's CUDA", "")),
        )
        if torch != spec["torch"] or spec["cuda"] not in ("", cuda):
            both = f"--torch {torch} --cuda {cuda}" if spec["cuda"] else f"--torch {torch}"
            hint = f"use what is installed: {both}; or "
            if spec["cuda"] and not cuda:
                hint = "this torch has no CUDA: "
            return (
                f"that is torch {torch} for CUDA {cuda or 'none'}",
                f"{hint}type: {_pip_install_commands(spec, ['torch'])}",
            )
    return "", ""


def _pip_install_commands(spec: Spec, names: list[str]) -> str:
    """The commands that install them; torch from the index for its CUDA version."""
    pip = f"{spec['python']} -m pip install"
    others = [f'"{name}{_clauses(spec, name)}"' for name in names if name != "torch"]
    commands = [f"{pip} {' '.join(others)}"] if others else []
    if "torch" in names:
        commands.append(f'{pip} "torch=={spec["torch"]}.*" --index-url {spec["index"]}')
    return " && ".join(commands)


def _clauses(spec: Spec, name: str) -> str:
    return ",".join(f"{sign}{version}" for sign, version in spec["requires"].get(name, []))


def _meets(version: str, spec: Spec, name: str) -> bool:
    return all(
        _satisfies_clause(version, sign, required) for sign, required in spec["requires"][name]
    )


def _satisfies_clause(version: str, sign: str, required: str) -> bool:
    """Whether a version satisfies a clause of PEP 440, comparing release numbers only."""
    have, other = _release_numbers(version), _release_numbers(required.removesuffix(".*"))
    if sign == "~=":
        return _satisfies_clause(version, ">=", required) and have[: len(other) - 1] == other[:-1]
    if required.endswith(".*"):
        return (have[: len(other)] == other) == (sign == "==")
    width = max(len(have), len(other))
    have, other = ([*version_, *[0] * (width - len(version_))] for version_ in (have, other))
    return {
        ">=": have >= other,
        "<=": have <= other,
        ">": have > other,
        "<": have < other,
        "==": have == other,
        "===": version == required,
        "!=": have != other,
    }[sign]


def _release_numbers(version: str) -> list[int]:
    match = re.match(r"(?:\d+!)?v?(\d+(?:\.\d+)*)", version)
    return [int(part) for part in match[1].split(".")] if match else []


def _major_minor_release(version: str) -> str:
    match = re.match(r"\d+\.\d+", version)
    return match[0] if match else ""
