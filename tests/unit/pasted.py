"""Commands as the page of an index has them, and a pip that notes how it was called."""

from __future__ import annotations

import re
from pathlib import Path

from pipelines.publish.index.front import install_command_forms

PAGE = tuple(name for name, *_ in install_command_forms())
WANTED, TORCH = "2.8.3+cu128torch2.8", "2.8.0+cu128"
URL = "https://x.org/files/ab/demo_attn-2.8.3%2Bcu128torch2.8-cp312-cp312-win_amd64.whl#sha256=ab"
_NOTES = """import json, os, sys
with open("noted", "a") as notes:
    notes.write(json.dumps(sys.argv[1:]) + chr(10))
sys.exit(os.path.exists("fail"))
"""


def noting_pip(folder: Path) -> None:
    """A pip that notes its words, and fails if there is a file of that name."""
    (folder / "pip").mkdir(parents=True)
    (folder / "pip/__init__.py").touch()
    (folder / "pip/__main__.py").write_text(_NOTES)


def filled(form: str, base: str, link: str, torch: str = TORCH, start: str = "python") -> str:
    """The page's command, as its script fills it in; Chromium is held against this."""
    ((text, swap, by),) = (rest for name, *rest in install_command_forms() if name == form)
    values = {"url": f"{base}/{link}", "index": f"{base}/plain/", "start": start, "torch": torch}
    values |= {"project": "demo-attn", "version": WANTED}
    text = text if torch else text.replace(' "torch==~torch~"', "")
    text = re.sub(r"~(\w+)~", lambda found: values[found[1]], text)
    return text.replace(swap, by) if swap else text
