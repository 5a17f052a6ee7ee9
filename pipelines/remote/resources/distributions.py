"""Python packages that must be there already, in a Python that is the one to build for.

Never installed. Nothing is imported: torch takes seconds, and a broken one ends the process that
asks. Its version and CUDA release are read from ``torch/version.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from ..process import capture
from . import Check, Kind, RefusedError

_TIMEOUT = 60.0
# Run by the very Python that builds: it alone knows where it looks.
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
    """What is wanted."""

    names: list[str]
    requires: dict[str, list[list[str]]]
    """By name: clauses such as [">=", "77"], all of which its version must meet."""
    python: str
    """The program."""
    release: str
    """Its own, such as 3.12; empty is any."""
    torch: str
    cuda: str
    """Releases, such as 2.8 and 12.8; of CUDA an empty one is any, or none."""
    index: str
    """Where pip finds that torch."""


def installed(python: str, names: list[str]) -> dict[str, str]:
    """Versions of ``Python`` and of those of ``names`` that are there, and of ``torch's CUDA``."""
    code, output = capture([python, "-c", _ASK, *names], timeout=_TIMEOUT)
    for line in output.splitlines():
        if line.startswith("ANSWER"):
            told = json.loads(line[len("ANSWER") :])
            extra = {"torch's CUDA": str(told["cuda"])} if "torch" in told["found"] else {}
            return {"Python": str(told["release"]), **told["found"], **extra}
    raise RuntimeError(f"{python} left with {code}: {output.strip()[-300:]}")


def check(spec: Spec) -> Check:
    """Compare with what is there; values as :func:`installed` gives them."""
    have = installed(spec["python"], spec["names"])
    wrong, _ = judge(spec, have)
    found = ", ".join(f"{name} {version}" for name, version in have.items())
    said = f"{found}{'; ' if found and wrong else ''}{wrong}" or "none"
    return {"ok": not wrong, "found": said, "values": have}


def plan(spec: Spec) -> str:
    """What a person has to do."""
    return f"not ours to install: {_hint(spec)}"


def apply(spec: Spec) -> None:
    """Refuse, with the command that would help."""
    raise RefusedError("this environment is used as it is", hint=_hint(spec))


def _hint(spec: Spec) -> str:
    return judge(spec, installed(spec["python"], spec["names"]))[1]


def judge(spec: Spec, have: Mapping[str, str]) -> tuple[str, str]:
    """The first thing that is wrong with what :func:`installed` found, and what helps.

    Both are empty when nothing is.
    """
    python = have.get("Python", "unknown")
    if spec["release"] and python != spec["release"]:
        other = f"ask for what is there: --python {python}, or name another 'python'"
        return f"that is Python {python}", other
    missing = [name for name in spec["names"] if name not in have]
    there = {name: have[name] for name in spec["requires"] if name in have}
    unfit = [name for name, version in there.items() if not _meets(version, spec, name)]
    if missing or unfit:
        wrong = [f"not there: {', '.join(missing)}"] if missing else []
        wrong += [f"{name} {there[name]} is not {_clauses(spec, name)}" for name in unfit]
        return "; ".join(wrong), f"type: {_install(spec, [*missing, *unfit])}"
    if "torch" in spec["names"]:
        torch, cuda = _release(have["torch"]), _release(have.get("torch's CUDA", ""))
        if torch != spec["torch"] or spec["cuda"] not in ("", cuda):
            both = f"--torch {torch} --cuda {cuda}" if spec["cuda"] else f"--torch {torch}"
            hint = f"ask for what is there: {both}; or "
            if spec["cuda"] and not cuda:
                hint = "this torch has no CUDA: "
            return (
                f"that is torch {torch} for CUDA {cuda or 'none'}",
                f"{hint}type: {_install(spec, ['torch'])}",
            )
    return "", ""


def _install(spec: Spec, names: list[str]) -> str:
    """The commands that install them; torch from the index of its CUDA, or it is another one."""
    pip = f"{spec['python']} -m pip install"
    others = [f'"{name}{_clauses(spec, name)}"' for name in names if name != "torch"]
    commands = [f"{pip} {' '.join(others)}"] if others else []
    if "torch" in names:
        commands.append(f'{pip} "torch=={spec["torch"]}.*" --index-url {spec["index"]}')
    return " && ".join(commands)


def _clauses(spec: Spec, name: str) -> str:
    return ",".join(f"{sign}{version}" for sign, version in spec["requires"].get(name, []))


def _meets(version: str, spec: Spec, name: str) -> bool:
    return all(_is(version, sign, wanted) for sign, wanted in spec["requires"][name])


def _is(version: str, sign: str, wanted: str) -> bool:
    """Whether a version meets a clause of PEP 440, by the numbers of its release alone."""
    have, other = _numbers(version), _numbers(wanted.removesuffix(".*"))
    if sign == "~=":
        return _is(version, ">=", wanted) and have[: len(other) - 1] == other[:-1]
    if wanted.endswith(".*"):
        return (have[: len(other)] == other) == (sign == "==")
    width = max(len(have), len(other))
    have, other = ([*one, *[0] * (width - len(one))] for one in (have, other))
    return {
        ">=": have >= other,
        "<=": have <= other,
        ">": have > other,
        "<": have < other,
        "==": have == other,
        "===": version == wanted,
        "!=": have != other,
    }[sign]


def _numbers(version: str) -> list[int]:
    found = re.match(r"(?:\d+!)?v?(\d+(?:\.\d+)*)", version)
    return [int(part) for part in found[1].split(".")] if found else []


def _release(version: str) -> str:
    found = re.match(r"\d+\.\d+", version)
    return found[0] if found else ""
