"""The first page of an index in a Chromium: which wheel it names, and how it is used.

Needs scripts/setup-browser.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from catalogues import UNTESTED, machine_of, passed_on, wheel
from indexes import served
from pasted import filled

from pipelines.publish.index.catalogue import Catalogue, Wheel
from pipelines.publish.index.pages import render_index_pages
from pipelines.publish.which.choosing import choose_wheel
from pipelines.publish.which.listed import read_catalogue_rows

HERE = Path(__file__).parent
OLD = {"sass": ("80",), "ptx": ("80",)}
NEW = wheel(cuda="13.0", ptx=("120",))
WHEELS: dict[str, Wheel] = {
    "128": wheel(),
    "128 untested": wheel(version="2.8.4", smoke=UNTESTED),
    "128 yanked": wheel(version="2.9.0", yanked="wrong numbers"),
    "126": wheel(cuda="12.6"),
    "130": NEW,
    "2.9": wheel(torch="2.9"),
    "stable": wheel("flash-attn-3", "3.0.0", "cp39-abi3-win_amd64", "2.9", stable=True),
    "any CUDA": wheel("flash-attn-any", "1.0", "py3-none-win_amd64", "2.8", "13.0", any_cuda=True),
    "lockless": wheel(tag="cp313-cp313t-win_amd64"),
    "old": wheel("natten", "0.20", "cp310-cp310-win_amd64", "2.4", "11.8", **OLD),
    "old tested less": wheel(
        "natten", "0.21", "cp310-cp310-win_amd64", "2.4", "11.8", **OLD, smoke=UNTESTED
    ),
    "old newer": wheel("natten", "0.19", "cp310-cp310-win_amd64", "2.4", "12.6", **OLD),
    "any": wheel("bitsandbytes", "0.50", "py3-none-any", "", requires_python=">=3.10"),
    "one gpu": wheel("sage", "1.0", sass=("90a",), smoke=passed_on("90a")),
    "family": wheel("sage", "0.9", sass=("100f",), smoke=passed_on("100f")),
    "exact": wheel("exact", "1.0", sass=("100a",)),
    "jit": wheel("jit", "2.0", sass=("80",), ptx=("80",)),
    "native": wheel("jit", "1.0", sass=("80", "120")),
    "jit of a family": wheel("jit-family", "1.0", sass=("80",), ptx=("100f",)),
    "odd": wheel(
        "odd", "1.0", url="https://::/%zz/odd-1.0+cu128torch2.8-cp312-cp312-win_amd64.whl"
    ),
    "linux": wheel("sage", "1.1", "cp312-cp312-manylinux_2_28_x86_64.linux_x86_64"),
}
MACHINE = {
    "platform": "win_amd64",
    "python": "3.12",
    "torch": "2.8.0+cu128",
    "cuda": "12.8",
    "driver": "12.9",
    "gpu": "8.9",
    "package": "flash-attn",
}
FA3 = {"package": "flash-attn-3"}
ATTN = {"package": "flash-attn-any"}
SAGE = {"package": "sage"}
NATTEN = {"package": "natten", "python": "3.10", "torch": "2.4.1+cu118", "cuda": "11.8"}
#: What a machine differs by, the wheel that is named, and the rules that it breaks.
CASES: list[tuple[dict[str, str], str, str]] = [
    ({}, "128", ""),  # tested before newer, and never one that was yanked
    ({"gpu": "12.0"}, "128", ""),
    ({"gpu": "8.9,12.0"}, "128", ""),
    ({"gpu": "8.7"}, "128", ""),  # of the same major, older than the GPU
    ({"gpu": "6.1"}, "128", "gpu"),
    ({"gpu": "8.9,6.1"}, "128", "gpu"),
    ({"gpu": ""}, "128", "gpu"),
    ({"driver": ""}, "128", "driver"),
    ({"driver": "12.0"}, "128", ""),  # minor-version compatibility
    ({"driver": "11.8"}, "128", "driver"),
    ({"driver": "13.4"}, "128", ""),
    ({"cuda": "12.6", "torch": "2.8.0+cu126"}, "126", ""),
    ({"cuda": "12.9", "torch": "2.8.0+cu129"}, "128", ""),
    ({"cuda": "", "torch": "2.8.0+cpu"}, "128", "cuda"),
    ({"cuda": "", "torch": ""}, "2.9", "torch"),
    ({"cuda": "11.8", "torch": "2.8.0+cu118"}, "128", "cuda"),
    ({"cuda": "13.0", "torch": "2.8.0+cu130", "driver": "13.0"}, "130", ""),
    ({"cuda": "13.0", "torch": "2.8.0+cu130"}, "130", "driver"),
    ({"cuda": "13.0", "torch": "2.8.1+cu130", "driver": "13.0", "gpu": "12.1"}, "130", ""),
    ({"torch": "2.9.1+cu128"}, "2.9", ""),
    ({"torch": "2.10.0+cu128"}, "2.9", "torch"),
    ({"torch": "2.10+cu128"}, "2.9", "torch"),  # whatever follows the minor release
    ({"torch": "2.9rc1+cu128"}, "2.9", ""),
    ({"torch": "2.7-5"}, "2.9", "torch"),
    ({"python": "3.13"}, "lockless", "python"),
    ({"python": "3.13t"}, "lockless", ""),
    ({"python": "3.12t"}, "lockless", "python"),
    ({"platform": "linux_x86_64"}, "128", "platform"),
    ({"platform": "win_arm64", "gpu": "12.1"}, "128", "platform"),
    (FA3, "stable", "torch"),
    (FA3 | {"torch": "2.9.0+cu128"}, "stable", ""),
    (FA3 | {"torch": "2.15.0+cu128", "python": "3.14"}, "stable", ""),
    (FA3 | {"torch": "2.15.0+cu128", "python": "3.8"}, "stable", "python"),
    (FA3 | {"torch": "2.15.0+cu128", "python": "3.13t"}, "stable", "python"),
    (ATTN | {"driver": "13.0"}, "any CUDA", ""),
    (ATTN | {"driver": "12.9"}, "any CUDA", "driver"),
    (NATTEN | {"gpu": "8.0"}, "old", ""),
    (NATTEN | {"gpu": "12.0"}, "old", ""),  # by PTX
    (NATTEN | {"gpu": "12.0", "driver": "11.4"}, "old", "driver"),
    (NATTEN | {"gpu": "8.0", "driver": "11.4"}, "old", ""),
    (NATTEN | {"gpu": "7.5"}, "old", "gpu"),
    (NATTEN | {"cuda": "12.6", "torch": "2.4.1+cu126"}, "old newer", ""),
    ({"package": "bitsandbytes"}, "any", ""),
    ({"package": "bitsandbytes", "torch": "", "cuda": ""}, "any", ""),
    ({"package": "bitsandbytes", "platform": "win_arm64", "python": "3.15t"}, "any", ""),
    ({"package": "bitsandbytes", "python": "3.9"}, "any", "python"),
    (SAGE | {"gpu": "9.0"}, "one gpu", ""),
    (SAGE | {"gpu": "10.0"}, "family", ""),
    (SAGE | {"gpu": "10.3"}, "family", ""),
    ({"package": "exact", "gpu": "10.0"}, "exact", ""),
    ({"package": "exact", "gpu": "10.3"}, "exact", "gpu"),
    ({"package": "jit", "gpu": "8.0"}, "jit", ""),
    ({"package": "jit", "gpu": "12.0"}, "native", ""),  # machine code before what is newer
    ({"package": "jit", "gpu": "9.0"}, "jit", ""),
    ({"package": "jit-family", "gpu": "10.3"}, "jit of a family", ""),
    ({"package": "jit-family", "gpu": "12.0"}, "jit of a family", "gpu"),
    (SAGE | {"gpu": "9.0", "platform": "linux_x86_64"}, "linux", ""),
    (SAGE | {"gpu": "9.0", "platform": "linux_aarch64"}, "linux", "platform"),
]
#: Lines that are not understood, and what of them is named.
REFUSED = [
    ("wcw1:python=3.12&gpu=RTX", "gpu"),
    ("wcw1:python=<img src=x onerror=alert(1)>", "python"),
    ("wcw1:torch=2.8.0%22%20%26%20calc", "torch"),
    ("wcw1:python=3.12&python=3.13", "python is given 2 times"),
    ("wcw1:package=nothing-here", "package"),
    ("wcw1:cuda=twelve", "cuda"),
    (f"wcw1:driver={'9' * 3000}", "driver"),
    ("wcw1:platform=..%2F..%2Fetc", "platform"),
]


def line(**changes: str) -> str:
    return "wcw1:" + urlencode(MACHINE | changes)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("index")
    for path, data in render_index_pages(Catalogue(wheels=tuple(WHEELS.values()))).items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return root


def asked(root: Path, lines: list[str], folder: Path) -> dict[str, Any]:
    """What the page answers to each line, and to somebody who uses it by hand."""
    browser = (
        os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    )
    if not (HERE / "node_modules" / "axe-core").is_dir() or browser is None:
        pytest.skip("scripts/setup-browser has not been run, or there is no Chromium")
    (folder / "lines.json").write_text(json.dumps(lines))
    with served(root) as address:
        command = ["node", "choose.mjs", browser, f"{address}/", str(folder / "lines.json")]
        done = subprocess.run(command, capture_output=True, cwd=HERE, check=False)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.replace(address.encode(), b"INDEX"))
    return found


@pytest.fixture(scope="module")
def seen(index: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    lines = [line(**changes) for changes, _, _ in CASES]
    lines += [text for text, _ in REFUSED]
    lines += [line(**changes) for changes in OTHERS]
    return asked(index, lines, tmp_path_factory.mktemp("asked"))


def test_each_machine_gets_its_wheel_or_why_not(seen: dict[str, Any]) -> None:
    for (changes, name, missed), answer in zip(CASES, seen["answers"], strict=False):
        got = (answer["file"], answer["missed"])
        assert got == (WHEELS[name].file, missed), (changes, answer["said"])
        assert (answer["state"] == "none") == bool(missed)
        assert bool(answer["command"]) == answer["copy"] == (not missed)
        assert answer["overflow"] == 0


#: What machines differ by, one at a time and two at a time.
VALUES = {
    "platform": ("linux_x86_64", "win_arm64"),
    "python": ("3.8", "3.9", "3.10", "3.13", "3.13t", "3.14"),
    "torch": (
        "",
        "2.4.1+cu118",
        "2.7.0",
        "2.8.0.dev1+cu130",
        "2.9.1+cu128",
        "2.15.0+cu132",
        "3.0.0",
    ),
    "cuda": ("", "11.8", "12.6", "12.9", "13.0", "13.2"),
    "driver": ("", "11.4", "11.8", "12.6", "13.0", "13.4"),
    "gpu": ("", "5.2", "7.5", "8.0", "8.7", "9.0", "10.3", "12.0", "12.1", "8.0,12.0", "6.1,9.0"),
    "package": ("natten", "bitsandbytes", "sage", "flash-attn-3", "jit", "jit-family"),
}
OTHERS = [
    dict(changes)
    for many in (0, 1, 2)
    for names in itertools.combinations(VALUES, many)
    for changes in itertools.product(*([(name, one) for one in VALUES[name]] for name in names))
]


def test_a_line_that_is_none_gets_no_command(seen: dict[str, Any]) -> None:
    for (text, named), answer in zip(REFUSED, seen["answers"][len(CASES) :], strict=False):
        assert answer["state"] == "wrong", text
        assert named in answer["said"]
        assert (answer["command"], answer["copy"], answer["file"]) == ("", False, "")
        assert (answer["scripts"], answer["overflow"]) == (0, 0)


def test_it_chooses_as_which_does(seen: dict[str, Any]) -> None:
    """On every machine the same wheel, or the same nearest one with as many rules broken."""
    table = read_catalogue_rows(Catalogue(wheels=tuple(WHEELS.values())).dump())
    fitting = 0
    for changes, answer in zip(OTHERS, seen["answers"][-len(OTHERS) :], strict=True):
        package = (MACHINE | changes)["package"]
        best = choose_wheel(table, machine_of(line(**changes)), package)
        assert best is not None
        said = (best.row.file, len(best.missed))
        assert (answer["file"], len(answer["missed"].split())) == said, (changes, answer["said"])
        fitting += best.fits
    assert 50 < fitting < len(OTHERS) - 50


def test_the_command_names_the_wheel_its_hash_and_the_torch_that_is_there(
    seen: dict[str, Any],
) -> None:
    one = WHEELS["128"]
    link = f"{one.url.replace('+', '%2B')}#sha256={one.sha256}"
    assert (
        seen["answers"][0]["command"]
        == filled("PowerShell", "INDEX", link)
        == seen["copied"]
        == seen["unsecured"]
    )
    (bare,) = (
        answer["command"]
        for (changes, _, _), answer in zip(CASES, seen["answers"], strict=False)
        if changes == {"package": "bitsandbytes", "torch": "", "cuda": ""}
    )
    assert bare.endswith(f'#sha256={WHEELS["any"].sha256}" }}')
    assert seen["started"]["command"] == seen["copied"].replace("python -m", "py -3.12 -m")


def test_what_is_chosen_by_hand(seen: dict[str, Any]) -> None:
    assert seen["said"] == []
    assert seen["first"]["state"] == seen["cleared"]["state"] == "ask"
    assert seen["first"]["hash"] == seen["cleared"]["hash"] == ""
    assert seen["pasted"]["file"] == WHEELS["128"].file
    assert seen["link"] == f"INDEX/{seen['pasted']['hash']}"
    assert seen["pasted"]["gpu"] == "8.9"  # and not the name of a card of that capability
    assert seen["chosen"]["gpu"] == seen["started"]["gpu"] == "RTX 40xx (8.9)"
    assert seen["cuda"] == "12.8"
    assert (seen["partly"]["state"], seen["partly"]["command"]) == ("ask", "")
    assert "Still missing: GPU, package" in seen["partly"]["said"]
    assert "Which package?" in seen["asked"]["said"]
    assert "flash-attn-3: nothing fits" in seen["asked"]["said"]
    assert seen["chosen"]["command"] == seen["copied"]


def test_what_is_typed_wrongly_gets_no_command_or_a_word_on_it(seen: dict[str, Any]) -> None:
    for how in ("wrong", "driver", "none"):
        said = seen[how]
        assert (said["state"], said["command"], said["copy"], said["file"]) == (
            "wrong",
            "",
            False,
            "",
        )
    assert seen["wrong"]["hash"] == ""
    assert "not the version of the driver" in seen["driver"]["said"]
    assert seen["contradicted"]["state"] == seen["bare"]["state"] == "mind"
    assert "ends with +cu128, but the chosen CUDA is 12.6" in seen["contradicted"]["said"]
    assert "names no CUDA" in seen["bare"]["said"]
    jit = next(
        answer
        for (changes, _, _), answer in zip(CASES, seen["answers"], strict=False)
        if changes == {"package": "jit", "gpu": "9.0"}
    )
    assert (jit["state"], "compiles its PTX" in jit["said"]) == ("mind", True)


def test_the_table_is_filtered_and_sorted(seen: dict[str, Any]) -> None:
    assert seen["fitting"] == 3  # tested, newer, and of an older CUDA
    assert seen["untested"] == 2
    assert seen["up"] == sorted(seen["up"], key=lambda one: [*map(int, one.split("."))])
    assert seen["down"] == seen["up"][::-1] != seen["up"]


def test_without_a_script_the_table_is_there(seen: dict[str, Any]) -> None:
    still = seen["unscripted"]
    assert (still["rows"], still["chooser"]) == (len(WHEELS), 0)
    assert "Scripts are disabled" in still["told"]
    hashes = {link.rpartition("#sha256=")[2] for link in still["links"]}
    assert hashes == {one.sha256 for one in WHEELS.values()}


def test_the_verdicts_are_a_click_away(seen: dict[str, Any]) -> None:
    about, first = seen["about"], WHEELS["any"]
    assert first.file in about["target"]
    assert "wcw rebuild manifest.json" in about["commands"], "it takes no address but by https"
    assert f"wcw verify {first.file} --key PUBLIC.pem" in about["commands"]
    assert about["overflow"] == 0
