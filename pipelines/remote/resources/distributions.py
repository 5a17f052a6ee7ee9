"""Python packages that must be there already, in a Python that is the one to build for.

Never installed. Nothing is imported: torch takes seconds, and a broken one ends the process that
asks. Its version and CUDA release are read from ``torch/version.py``.
"""

from __future__ import annotations

import json
import re

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
    python: str
    """The program."""
    release: str
    """Its own, such as 3.12; empty is any."""
    torch: str
    cuda: str
    """Releases, such as 2.8 and 12.8."""


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
    wrong, _ = _judge(spec, have)
    found = ", ".join(f"{name} {version}" for name, version in have.items())
    said = f"{found}{'; ' if found and wrong else ''}{wrong}" or "none"
    return {"ok": not wrong, "found": said, "values": have}


def plan(spec: Spec) -> str:
    """What a person has to do."""
    return f"not ours to install: {_advice(spec)}"


def apply(spec: Spec) -> None:
    """Refuse, with the command that would help."""
    raise RefusedError("this environment is used as it is", advice=_advice(spec))


def _advice(spec: Spec) -> str:
    return _judge(spec, installed(spec["python"], spec["names"]))[1]


def _judge(spec: Spec, have: dict[str, str]) -> tuple[str, str]:
    """The first thing that is wrong, and what helps; both empty when nothing is."""
    ask = "ask for what is there"
    if spec["release"] and have["Python"] != spec["release"]:
        other = f"{ask}: --python {have['Python']}, or name another 'python'"
        return f"that is Python {have['Python']}", other
    if missing := [name for name in spec["names"] if name not in have]:
        install = f"type: {spec['python']} -m pip install {' '.join(missing)}"
        return f"not there: {', '.join(missing)}", install
    if "torch" in spec["names"]:
        torch, cuda = _release(have["torch"]), _release(have["torch's CUDA"])
        if (torch, cuda) != (spec["torch"], spec["cuda"]):
            advice = f"{ask}: --torch {torch} --cuda {cuda}"
            if not cuda:
                advice = "this torch has no CUDA: install one of its CUDA builds"
            return f"that is torch {torch} for CUDA {cuda or 'none'}", advice
    return "", ""


def _release(version: str) -> str:
    found = re.match(r"\d+\.\d+", version)
    return found[0] if found else ""
