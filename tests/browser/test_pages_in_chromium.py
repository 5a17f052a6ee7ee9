"""The pages in a Chromium: no script, no request, no overflow, keyboard, print, axe's rules.

Needs scripts/setup-browser. With ``REPORT_SHOTS=DIR`` the screenshots are kept: 1280 and 390
pixels wide, light and dark.
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

import report_samples as samples
from audited import one
from catalogues import hostile, large
from fatbins import ELF, PTX, container
from foreign_wheels import foreign
from pes import msvc

from pipelines.audit.examination import AuditOptions, audit_wheel
from pipelines.audit.inputs import Input
from pipelines.audit.listing import Listing
from pipelines.audit.loads import Loads, Missing
from pipelines.audit.page import render as render_wheels
from pipelines.publish.index.catalogue import PREVIEW, Catalogue
from pipelines.publish.index.pages import render_index_pages as pages_of
from pipelines.record.run import Run
from pipelines.reports.html import render
from pipelines.reports.load import load_view

HERE = Path(__file__).parent
ONE = ("good", "failed_build", "failed_smoke", "killed", "hostile")
#: Those with a script, which their policy names.
SCRIPTED = {"wheels", "index", "about", "preview", "preview-about"}
PAGES = (*ONE, "matrix", *sorted(SCRIPTED))
MODULE = "other/_C.cp311-win_amd64.pyd"


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What Chromium found on every page, in both themes and widths."""
    browser = (
        os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    )
    if not (HERE / "node_modules" / "axe-core").is_dir() or browser is None:
        pytest.skip("scripts/setup-browser has not been run, or there is no Chromium")
    folder = tmp_path_factory.mktemp("pages")
    for name in ONE:
        run: Run = getattr(samples, name)(folder / name)
        (folder / f"{name}.html").write_text(render([load_view(run)]), "utf-8")
    runs = samples.matrix(folder / "m", 8)
    page = render([load_view(run) for run in runs])
    (folder / "matrix.html").write_text(page, "utf-8")
    (folder / "wheels.html").write_text(wheels(folder), "utf-8")
    pages = pages_of(Catalogue(wheels=(*large(60).wheels, hostile())))
    (folder / "index.html").write_bytes(pages["index.html"])
    (folder / "about.html").write_bytes(pages["about/hostile.html"])
    one = large(1).wheels[0].model_copy(update={"yanked": PREVIEW})
    pages = pages_of(Catalogue(wheels=(one,)))
    (folder / "preview.html").write_bytes(pages["index.html"])
    (folder / "preview-about.html").write_bytes(pages[f"about/{one.name.project}.html"])
    shots = os.environ.get("REPORT_SHOTS", "-")
    paths = [str(folder / f"{name}.html") for name in PAGES]
    done = subprocess.run(
        ["node", str(HERE / "check.mjs"), browser, shots, *paths],
        capture_output=True,
        cwd=HERE,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    found: list[dict[str, Any]] = json.loads(done.stdout)
    assert len(found) == 4 * len(PAGES)
    return found


def wheels(folder: Path) -> str:
    """A page of three wheels: one for new GPUs, one for old ones, one that is cut off."""
    new = container((ELF, "80", 8), (PTX, "80", 8), cuda="12.8", isa="8.7")
    old = container((ELF, "60", 8), cuda="12.8")
    broken = foreign(folder, "cut")
    broken.write_bytes(b"PK")
    seen = [
        one(folder, {MODULE: msvc(old)}, version="2.0"),
        one(folder, {MODULE.replace("11", "12"): msvc(new)}, tag="cp312-cp312-win_amd64"),
        audit_wheel(Input(broken.name, "here", broken), AuditOptions()),
    ]
    gone = Missing(binary=MODULE, library="c10.dll", symbol="x", demangled="x")
    loads = (
        Loads(against="torch 2.8.0 (cp311)", sha256="ab" * 32, checked=3, missing=(gone,)),
        Loads(against="torch 2.9.0 in C:/ComfyUI/python_embeded", table="cd" * 32, checked=3),
    )
    seen[0] = seen[0].model_copy(update={"loads": loads})
    return render_wheels(seen, [Listing(place="https://h/simple/", wheels=9, taken=3)])


def test_the_table_of_wheels_is_filtered_and_sorted(seen: list[dict[str, Any]]) -> None:
    boards = [each["board"] for each in seen if "board" in each]
    assert len(boards) == 4
    for board in boards:
        assert board["all"] == ["other 2.0", "other 1.0", "cut-1.0-py3-none-any.whl"]
        assert (board["runs"], board["articles"]) == (["other 1.0"], 1)
        assert board["fails"] == ["other 2.0"]
        assert board["python"] == ["other 1.0"]
        assert board["none"] == []
    for board in (each for each in boards if "up" in each):
        assert board["up"] == sorted(board["all"]) != board["all"]
        assert board["down"] == board["up"][::-1]


def wrong(seen: list[dict[str, Any]], key: str, *allowed: Any) -> list[Any]:
    """Where ``key`` is none of ``allowed``."""
    return [
        (Path(one["path"]).stem, one["colorScheme"], one["width"], one[key])
        for one in seen
        if key in one and one[key] not in allowed
    ]


@pytest.mark.parametrize(
    ("key", "allowed"),
    [
        ("violations", ([],)),
        ("said", ([],)),  # the console: a refused style, an error, a dialog
        ("loaded", ([],)),
        ("executable", (0,)),
        ("overflow", (0,)),
        ("skip", (["#main", True],)),
        ("main", ("main",)),
        ("toggles", (True,)),
        ("outline", ("solid", "past the end")),
        ("dangling", ([],)),
        ("answered", (1,)),
        ("unprinted", (0,)),
        ("paper", ("rgb(255, 255, 255)",)),
    ],
)
def test_every_page(seen: list[dict[str, Any]], key: str, allowed: tuple[Any, ...]) -> None:
    assert any(key in one for one in seen)
    if key == "executable":
        scripted = [one for one in seen if Path(one["path"]).stem in SCRIPTED]
        assert {one[key] for one in scripted} == {1}
        seen = [one for one in seen if one not in scripted]
    if key == "answered":  # no machine is named a wheel of a preview
        previews = [one for one in seen if Path(one["path"]).stem == "preview"]
        assert {one[key] for one in previews} == {0}
        seen = [one for one in seen if one not in previews]
    assert not wrong(seen, key, *allowed)


def test_axe_had_something_to_say(seen: list[dict[str, Any]]) -> None:
    assert all(one["rules"] > 25 for one in seen)
