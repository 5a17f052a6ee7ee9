"""Catalogues of indexes, made up: wheels as they look, machines that want them."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from pipelines.publish.index.catalogue import Catalogue, Wheel, stored_path
from pipelines.publish.which.machine import PREFIX, Machine

ARCHS = {
    "11.8": ("75", "80", "86", "89", "90"),
    "12.6": ("75", "80", "86", "89", "90"),
    "12.8": ("75", "80", "86", "89", "90a", "100", "120"),
    "13.0": ("75", "80", "86", "89", "90a", "100f", "120f"),
}
CARDS = {"80": "NVIDIA A100-SXM4-80GB", "89": "NVIDIA GeForce RTX 4090", "90a": "NVIDIA H200"}
WHY = "its smoke suite has run on no GPU of an architecture that it has machine code for"


def wheel(
    project: str = "flash-attn",
    version: str = "2.8.3",
    tag: str = "cp312-cp312-win_amd64",
    torch: str = "2.8",
    cuda: str = "12.8",
    **changes: Any,
) -> Wheel:
    """One, with everything shown of it, tested on an RTX 4090."""
    local = f"cu{cuda.replace('.', '')}" + (f"torch{torch}" if torch else "")
    file = changes.pop("file", f"{project.replace('-', '_')}-{version}+{local}-{tag}.whl")
    sha256 = hashlib.sha256(file.encode()).hexdigest()
    row: dict[str, Any] = {
        "file": file,
        "sha256": sha256,
        "size": 180_000_000,
        "url": stored_path(file, sha256),
        "metadata_sha256": sha256,
        "requires_python": ">=3.9",
        "python": "3.12",
        "torch": torch,
        "cuda": cuda,
        "sass": ARCHS[cuda],
        "ptx": (),
        "run": "20261121-101500-flash-attn-lab1-3f2a",
        "uploaded": "2026-11-21T10:15:00Z",
        "evidence": "R: run on real Windows",
        "toolset": "MSVC 14.44.35207",
        "checks": 31,
        "smoke": passed_on("89"),
        "attached": {
            kind: hashlib.sha256((file + kind).encode()).hexdigest()
            for kind in ("audit.json", "smoke.xml", "manifest.json", "intoto.jsonl")
        },
    }
    return Wheel.model_validate(row | changes)


def passed_on(*archs: str) -> dict[str, Any]:
    """A smoke test that has passed on cards of these architectures."""
    gpus = tuple(CARDS.get(one, f"GPU {one}") for one in archs)
    return {"verdict": "passed", "gpus": gpus, "archs": archs, "cases": 412}


UNTESTED: Mapping[str, Any] = {"verdict": "untested", "why": WHY}


HOSTILE = """</td></script><script>alert(1)</script>"'><img src=x onerror=alert(1)>{{7*7}}${x}"""


def hostile(text: str = HOSTILE) -> Wheel:
    """One whose every text is somebody's attempt, as far as the catalogue lets it pass."""
    texts = dict.fromkeys(("requires_python", "run", "evidence", "toolset", "yanked"), text)
    again = {"verdict": "different", "run": text, "evidence": text, "when": "2026-11-22T10:15:00Z"}
    smoke = {"verdict": "untested", "why": text, "gpus": (text,)}
    return wheel("hostile", "1!2.0", smoke=smoke, rebuilt=[again], **texts)


def large(count: int = 500) -> Catalogue:
    """As an index of five projects looks after a year: cells by Python, torch and CUDA."""
    cells = itertools.product(
        ("2.8.3", "2.8.2", "2.7.4.post1", "2.8.4"),
        ("flash-attn", "natten", "sageattention", "xformers", "causal-conv1d"),
        ("2.8", "2.9", "2.10"),
        ("12.6", "12.8", "13.0"),
        ("310", "311", "312", "313"),
    )
    made = []
    for at, (version, project, torch, cuda, python) in enumerate(itertools.islice(cells, count)):
        changes: dict[str, Any] = {"uploaded": f"2026-10-{1 + at % 28:02}T10:15:00Z"}
        if cuda == "13.0":
            changes["ptx"] = ("120",)
        if at % 5 == 0:
            changes |= {"smoke": UNTESTED, "evidence": "B: run with genuine Windows binaries"}
            changes["attached"] = {"audit.json": "ab" * 32, "manifest.json": "cd" * 32}
        if at % 50 == 7:
            changes["yanked"] = "wrong numbers on sm_89 with head dimension 96"
        tag = f"cp{python}-cp{python}-win_amd64"
        made.append(wheel(project, version, tag, torch, cuda, **changes))
    return Catalogue(wheels=tuple(made))


def machine_of(line: str) -> Machine:
    """The machine in a line that ``which.py --share`` printed."""
    values = dict(parse_qsl(line.removeprefix(PREFIX), keep_blank_values=True))
    gpus = tuple(filter(None, values.get("gpu", "").split(",")))
    keys = ("platform", "python", "torch", "cuda", "driver")
    return Machine(**{key: values.get(key, "") for key in keys}, gpus=gpus)
