"""The pages of an index below a path, behind a query, from a file, and as people type.

Needs scripts/setup-browser.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from catalogues import wheel
from pasted import filled

from pipelines.publish.index.catalogue import Catalogue
from pipelines.publish.index.pages import render_index_pages

HERE = Path(__file__).parent
ONE = wheel(version="1!2.8.3")
OTHER = wheel("apex", torch="2.9", cuda="13.0")
UNDER = "https://wheels.example.org/a%20b/sub+x"
LINE = (
    "wcw1:platform=win_amd64&python=3.12&torch=2.8.0%2Bcu128&cuda=12.8&driver=12.9&gpu=8.9"
    "&package=flash-attn"
)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("index")
    for path, data in render_index_pages(Catalogue(wheels=(ONE, OTHER))).items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return root


@pytest.fixture(scope="module")
def seen(index: Path) -> dict[str, Any]:
    browser = (
        os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    )
    if not (HERE / "node_modules" / "axe-core").is_dir() or browser is None:
        pytest.skip("scripts/setup-browser has not been run, or there is no Chromium")
    command = ["node", "elsewhere.mjs", browser, str(index), LINE]
    done = subprocess.run(command, capture_output=True, cwd=HERE, check=False)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("how", ["under", "asked", "slashes", "secret", "plain", "file"])
def test_wherever_the_page_lies_it_names_the_wheel_there(
    seen: dict[str, Any], index: Path, how: str
) -> None:
    """By a whole address, in which a terminal reads nothing, and without anybody's password."""
    base = {
        "slashes": UNDER.replace("org/", "org//"),
        "plain": UNDER.replace("https", "http"),
        "file": index.as_uri(),
    }.get(how, UNDER)
    found = seen["places"][how]
    place = ONE.url.replace("+", "%2B").replace("!", "%21")
    wanted = filled("PowerShell", base, f"{place}#sha256={ONE.sha256}")
    assert found["command"] == wanted, found["said"]
    assert found["link"].startswith(f"{base}/")
    assert found["link"].endswith(found["hash"])
    assert "hush" not in json.dumps(found)
    assert found["cleared"] == ""
    manifest = f"{base}/{OTHER.attached_url('manifest.json')}"  # wcw rebuild takes https alone
    named = manifest if base.startswith("https:") else "manifest.json"
    assert f"wcw rebuild {named}" in found["about"]
    assert seen["said"] == []


def test_what_people_paste_and_type(seen: dict[str, Any]) -> None:
    assert seen["quoted"]["command"] == seen["places"]["under"]["command"]
    assert seen["cudas"] == ["choose", "13.0", "12.8", "none: a CPU build"]
    wrong = seen["wrong"]
    assert (wrong["state"], wrong["hash"], wrong["chosen"], wrong["rows"]) == ("wrong", "", 0, 0)
