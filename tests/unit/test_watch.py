"""``invoke watch``: what is out, against an index; pages that lie; from new torch to wheels."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from indexes import finished
from packaging.version import Version
from released import (
    DAY,
    NEXT,
    OUT,
    PEP691,
    PYTHONS,
    builds,
    commit_of,
    names,
    recorded,
    refs,
    sdist,
    standalone,
)
from released import with_release as later
from test_audit_index import Index, index, keys  # noqa: F401 - fixtures
from test_workflows import GITHUB, read

from pipelines.cli import program
from pipelines.core import workers
from pipelines.core.console import console
from pipelines.core.errors import ConfigError, LockError
from pipelines.core.target import Target
from pipelines.core.units import GIB
from pipelines.core.versions import python_tags
from pipelines.plan.matrix.compat import load_compat
from pipelines.plan.matrix.torches import load_torches
from pipelines.plan.prebuilt import indexpage
from pipelines.plan.prebuilt.candidates import Offer
from pipelines.publish.index.catalogue import Catalogue, Wheel
from pipelines.publish.watch import held, look, pages, released
from pipelines.publish.watch.cells import compare_recipe
from pipelines.recipe.load import load_recipe
from pipelines.remote import limits
from pipelines.toolchain.generate import generate_lock
from pipelines.toolchain.intent import INTENT_FILE, WATCHED, load_intent
from pipelines.toolchain.lock import ToolchainLock, load_lock

pytestmark = pytest.mark.slow


Said = pytest.CaptureFixture[str]
OUT_CUDA = ("12.6", "13.0", "13.2")
FLASH = load_recipe("flash-attn")
CONFIG = """\
default: {host: lab}
hosts:
  lab: {kind: winrm, endpoint: "https://lab.invalid:5986/wsman", username: u, password_env: NOT_SET}
"""


@dataclass
class World:
    """Everything that watch asks, behind one server; and an index in a directory."""

    server: Index
    folder: Path

    def says(self, project: str, page: dict[str, Any]) -> None:
        self.server.page(f"/simple/{project}/", json.dumps(page), PEP691)

    def builds(self, text: str) -> None:
        self.server.page("/whl/torch/", text)

    def tags(self, tags: dict[str, str], head: str = commit_of("flash-attn", "main")) -> None:
        path = "/flash.git/info/refs?service=git-upload-pack"
        self.server.page(path, refs(head, tags), "application/x-git-upload-pack-advertisement")

    def file(self, name: str, data: bytes) -> dict[str, Any]:
        """A row of a page, and the file behind it."""
        path = f"/files/{name}"
        self.server.says[path] = (200, "application/gzip", data)
        hashes = {"sha256": hashlib.sha256(data).hexdigest()}
        return {"filename": name, "hashes": hashes, "url": self.server.url + path, "yanked": False}

    def pythons(self, *older: str, **releases: Sequence[str]) -> None:
        """What pbs-installer's newest release lists."""
        listed = {"src/pbs_installer/versions.json": standalone(releases)} if releases else {}
        new = self.file("pbs_installer-2026.10.25.tar.gz", sdist("pbs_installer", listed))
        files = [new | {"filename": name} for name in older] + [new]
        self.says(
            "pbs-installer", recorded("flash-attn") | {"name": "pbs-installer", "files": files}
        )

    def next_day(self) -> None:
        """torch 2.16 is out."""
        self.says("torch", later(recorded("torch"), "2.16.0", NEXT["2.16.0"][1]))
        self.builds(builds(names(OUT | NEXT)))

    def metadata(self, change: Callable[[str], str] = str, version: str = "2.16.0") -> None:
        """Next to every wheel of that release, as genuine 2.15 has it."""
        real = (DAY / "torch.METADATA").read_text()
        for folder, name in names(NEXT):
            full = version + "+" + folder
            text = change(real.replace("Version: 2.15.0", f"Version: {full}"))
            self.server.page(
                f"/whl/{folder}/{name.replace('+', '%2B')}.metadata", text, "text/plain"
            )

    @property
    def index(self) -> str:
        return str(self.folder / "index")

    def publish(self, *cells: tuple[str, str, str], untested: bool = False, **more: Any) -> None:
        """Wheels of flash-attn for these cells: Python, torch, CUDA."""
        told = {"name": "flash_attn", "version": FLASH.version, "facts": {"recipe": "flash-attn"}}
        words = ["--untested"] if untested else []
        runs = [
            finished(
                self.folder / "out",
                python=p,
                torch=t,
                cuda=c,
                **({"archs": "80;90;120"} | told | more),
            )
            for p, t, c in cells
        ]
        assert (
            program.run_command_line(
                ["publish", *(str(r.path) for r in runs), "--to", self.index, *words]
            )
            == 0
        )

    def watch(self, *words: str) -> int:
        return program.run_command_line(["watch", "--index", self.index, *words])


def _here(
    work: Callable[[Any], Any], items: Sequence[Any], workers: int, seconds: float
) -> Generator[tuple[int, Any]]:
    """In this process."""
    for number, item in enumerate(items):
        try:
            yield number, work(item)
        except Exception as error:
            yield number, error


@pytest.fixture
def world(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:  # noqa: F811
    made = World(index, tmp_path)
    (tmp_path / "pipeline.yaml").write_text(CONFIG)
    (tmp_path / "index").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WCW_CONFIG", str(tmp_path / "pipeline.yaml"))
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{index.url}/simple")
    tags = pages.read_tags
    for module in (look, released):
        monkeypatch.setattr(module, "TORCH_BUILDS", f"{index.url}/whl/torch/")
    monkeypatch.setattr(
        look, "read_tags", lambda all_: dict.fromkeys(all_, *tags([f"{index.url}/flash"]).values())
    )
    for module in (pages, indexpage):
        monkeypatch.setattr(module, "run_isolated", _here)
    monkeypatch.setattr(console, "quiet", False)
    monkeypatch.setattr(console, "width", 160)
    monkeypatch.setattr(limits, "memory", lambda _: 16 * GIB)  # a runner's, wherever this runs
    for project in ("torch", "flash-attn", "xformers", "nvidia-cuda-nvcc"):
        made.says(project, recorded(project))
    made.says("triton-windows", tritons())
    made.builds(builds(names(OUT)))
    made.tags({"v2.8.3.post2": "1" * 40})
    made.pythons(**{"20261021": ("3.10", "3.11", "3.12", "3.13", "3.14", "3.14t")})
    return made


def tritons(*more: str, platform: str = "win_amd64") -> dict[str, Any]:
    """A page with the lock's wheels of triton-windows, and of these releases."""
    pins = [tool for tool in load_lock().tools.values() if tool.name == "triton-windows"]
    files = {one.file: one.sha256 for tool in pins for one in tool.sources}
    files |= {f"triton_windows-{new}-cp312-cp312-{platform}.whl": "1" * 64 for new in more}
    rows = [
        {"filename": name, "hashes": {"sha256": sha256}, "url": f"https://x.org/{name}"}
        for name, sha256 in sorted(files.items())
    ]
    return recorded("flash-attn") | {"name": "triton-windows", "files": rows}


def told(capsys: Said) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def cells(answer: dict[str, Any], *states: str) -> dict[str, str]:
    return {
        cell["cell"]: cell["why"]
        for recipe in answer["recipes"]
        for cell in recipe["cells"]
        if cell["state"] in (states or ("build", "later", "pin", "no"))
    }


def notes(answer: dict[str, Any]) -> str:
    return "\n".join(f"{note['actual']} -> {note['hint']}" for note in answer["findings"])


def locked(file: Path, folder: Path, fresh: set[str]) -> ToolchainLock:
    """The lock that the rows of ``file`` give, of which ``fresh`` is new."""
    intent = folder / INTENT_FILE.name
    folder.mkdir()
    intent.write_text(INTENT_FILE.read_text())
    intent.with_name(WATCHED).write_text(file.read_text())
    lock = generate_lock(load_intent(intent), load_lock())
    assert fresh == {*lock.tools} - {*load_lock().tools}
    assert lock.unpinned == ()
    for name in fresh:
        added = lock.tools[name]
        assert added.version == f"2.16.0+{name.split('-')[2]}"
        assert added.sha256
        required = ("filelock", "fsspec", "jinja2", "networkx", "setuptools", "sympy")
        assert added.requires == (*required, "typing-extensions")
    return lock


def test_from_new_torch_to_nothing_left(
    world: World, capsys: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way: out, watched, pinned, planned, taken by the workflow, built, published."""
    old = [(p, t, c) for t in ("2.13", "2.14", "2.15") for c in OUT_CUDA for p in FLASH.pythons]
    world.publish(*(cell for cell in old if cell[:2] != ("3.10", "2.15")))
    capsys.readouterr()
    assert world.watch("--json") == 0
    answer = told(capsys)
    assert cells(answer, "build", "later", "pin") == {}
    assert "the lock has toolkits of 12.4" in notes(answer)

    world.next_day()
    assert world.watch("--json") == 0
    answer = told(capsys)
    assert answer["torch"]["2.16"] == "2.16.0"
    reason = "torch 2.16.0 is out; flash-attn 2.8.3.post2 has no wheel for it"
    new = [f"cp3{minor}-torch2.16-cu13{cuda}" for cuda in (0, 2) for minor in (12, 13, 14)]
    assert cells(answer, "pin") == dict.fromkeys(new, reason)
    assert cells(answer, "build") == {}
    assert answer["matrix"] == {"include": []}

    world.metadata()
    file = tmp_path / "pins/watched.yaml"
    assert world.watch("--format", "gha", "--pins", str(file)) == 0
    said = capsys.readouterr()
    matrix = json.loads(said.out)
    assert reason in said.err
    (order,) = matrix["include"]
    assert order == {
        "recipe": "flash-attn",
        "recipe-version": "2.8.3.post2",
        "python": "3.12,3.13,3.14",
        "torch": "2.16",
        "cuda": "13.0,13.2",
        "archs": "",
        "select": ",".join(new),
    }
    lock = locked(
        file,
        tmp_path / "toolchain",
        {f"torch-2.16-cu13{cuda}-cp3{minor}" for minor in (12, 13, 14) for cuda in (0, 2)},
    )

    # With these pinned, the plan has everything and watch needs no file.
    with monkeypatch.context() as patch:
        patch.setattr("pipelines.toolchain.lock.load_lock", lambda *_: lock)
        patch.setattr("pipelines.plan.matrix.buildplan.load_lock", lambda *_: lock)
        assert world.watch("--json") == 0
        assert cells(told(capsys), "build").keys() == {*new}

    # The workflow's own words, with those inputs, make a plan of exactly these cells.
    inputs = read(GITHUB / "workflows/wheels.yml")["on"]["workflow_call"]["inputs"]
    assert order.keys() <= inputs.keys()
    words = [word for key, value in order.items() if value for word in (f"--{key}", value)]
    with monkeypatch.context() as patch:
        patch.setattr("pipelines.toolchain.lock.load_lock", lambda *_: lock)
        patch.setattr("pipelines.plan.matrix.buildplan.load_lock", lambda *_: lock)
        assert program.run_command_line(["plan", *words, "--format", "gha"]) == 0
    planned = json.loads(capsys.readouterr().out)["include"]
    assert {cell["cell"] for cell in planned} == {*new}

    world.publish(*((cell["python"], cell["torch"], cell["cuda"]) for cell in planned))
    capsys.readouterr()
    assert world.watch("--json", "--pins", str(file)) == 0
    answer = told(capsys)
    assert cells(answer, "build", "later", "pin") == {}
    assert yaml.safe_load(file.read_text())["groups"] == []


def wrong(
    world: World, capsys: Said, said: str, *words: str, code: int = LockError.exit_code
) -> None:
    """With that code, in these words, and without one that anything is new or is not."""
    capsys.readouterr()
    assert world.watch("--recipe", "flash-attn", "--format", "gha", *words) == code
    got = capsys.readouterr()
    assert got.out == ""
    assert said in " ".join(got.err.replace("│", "").split())


def cut(page: dict[str, Any]) -> str:
    text = json.dumps(page)
    return text[: len(text) // 2]


def test_pages_that_cannot_be_read(world: World, capsys: Said) -> None:
    server, html = world.server, "<html><body><h1>Sorry</h1></body></html>"
    for project in ("torch", "flash-attn", "nvidia-cuda-nvcc"):
        place = f"/simple/{project}/"
        server.page(place, cut(recorded(project)), PEP691)
        wrong(world, capsys, f"{place}: not an index page")
        server.page(place, html)
        wrong(world, capsys, f"{place}: it has no file of {project}")
        server.page(place, "", status=503)
        wrong(world, capsys, f"{place}: HTTP status 503")
        world.says(project, recorded("flash-attn" if project == "torch" else "torch"))
        wrong(world, capsys, f"it has no file of {project}")
        world.says(project, recorded(project))
    text = builds(names(OUT))
    for part in (text[: len(text) // 2], text.replace("</html>", "")):
        world.builds(part)
        wrong(world, capsys, "/whl/torch/: the page is truncated")
    world.builds(html)
    wrong(world, capsys, "/whl/torch/: it has no file of torch")


def test_an_index_without_tls(world: World, capsys: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://me:s3cret@127.0.0.1:9/simple")
    where = "http://127.0.0.1:9/simple/flash-attn/"
    wrong(world, capsys, f"{where}: only indexes with TLS are supported")
    assert not [path for path in world.server.asked if path.startswith("/simple")]


def test_pages_that_lie(world: World, capsys: Said) -> None:
    old = (line for line in builds(names(OUT)).splitlines() if "torch-2.11.0+cu130" not in line)
    world.builds("\n".join(old))
    wrong(
        world, capsys, "does not list torch-2.11.0+cu130-cp310-cp310-win_amd64.whl, which is pinned"
    )
    (pin,) = (s for s in load_lock().tools["torch-2.10-cu128-cp312"].sources)
    world.builds(builds(names(OUT)).replace(str(pin.sha256), "0" * 64))
    wrong(
        world, capsys, f"states sha256 {'0' * 64} for torch-2.10.0+cu128-cp312-cp312-win_amd64.whl"
    )
    twice = f'<a href="/whl/cu128/{pin.file.replace("+", "%2B")}#sha256={"1" * 64}">{pin.file}</a>'
    text = builds(names(OUT))
    for both in (text.replace("<h1>", twice + "<h1>"), text.replace("</body>", twice + "</body>")):
        world.builds(both)
        wrong(world, capsys, f"states sha256 {'1' * 64} for {pin.file}")
    other = f'<a href="/whl/cu130/torch-2.9.0-cp313-cp313-win_amd64.whl">{pin.file}</a>'
    world.builds(builds(names(OUT), more=other))
    wrong(world, capsys, f"the page calls it {pin.file}")
    world.builds(builds(names(OUT)))
    page = recorded("flash-attn")
    lost = [one for one in page["files"] if "2.8.3.post2" not in one["filename"]]
    world.says("flash-attn", page | {"files": lost})
    wrong(world, capsys, "does not list flash_attn-2.8.3.post2.tar.gz, which is pinned here")
    for one in page["files"]:
        one["hashes"] = {"sha256": "1" * 64}
    world.says("flash-attn", page)
    wrong(world, capsys, f"states sha256 {'1' * 64} for flash_attn-")


@pytest.mark.parametrize(
    "text", ["", "0000", "<html></html>", "001e# service=git-upload-pack\n0000"]
)
def test_lists_of_tags_that_are_none(world: World, capsys: Said, text: str) -> None:
    world.server.page("/flash.git/info/refs?service=git-upload-pack", text)
    wrong(world, capsys, "/flash.git/info/refs: ")
    whole = refs("2" * 40, {"v2.8.4": "3" * 40})
    world.server.page("/flash.git/info/refs?service=git-upload-pack", whole[:-4])
    wrong(world, capsys, "references is incomplete")
    world.server.page("/flash.git/info/refs?service=git-upload-pack", whole[: len(whole) // 2])
    wrong(world, capsys, "references is incomplete")


def answered(world: World, capsys: Said, *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert world.watch("--recipe", "flash-attn", "--json", *words) == 0
    return told(capsys)


def test_what_is_no_release(world: World, capsys: Said) -> None:
    """Nothing new to build, and what there is of it is said."""
    before = answered(world, capsys)
    page = later(recorded("torch"), "2.16.0", NEXT["2.16.0"][1])
    # On the package index alone.
    world.says("torch", page)
    answer = answered(world, capsys)
    assert cells(answer) == cells(before)
    assert "torch 2.16.0 is out, without a build with CUDA for Windows" in notes(answer)
    # With CUDA, for Linux alone.
    world.builds(builds([*names(OUT), *names(NEXT, "manylinux_2_28_x86_64")]))
    answer = answered(world, capsys)
    assert cells(answer) == cells(before)
    assert "torch 2.16.0 is out, without a build with CUDA for Windows" in notes(answer)
    # Every file yanked by the package index.
    world.builds(builds(names(OUT | NEXT)))
    for one in page["files"]:
        one["yanked"] = "2.16" in one["filename"] and "silent corruption"
    world.says("torch", page)
    answer = answered(world, capsys)
    assert cells(answer) == cells(before)
    assert re.search(
        r"torch 2.16.0 is on https\S+/whl/torch/, but missing or yanked on", notes(answer)
    )
    # For Pythons without the GIL alone.
    world.says("torch", later(recorded("torch"), "2.16.0", NEXT["2.16.0"][1]))
    free = [(f, re.sub(r"-(cp3\d+)-\1-", r"-\1-\1t-", n)) for f, n in names(NEXT)]
    world.builds(builds([*names(OUT), *free]))
    assert cells(answered(world, capsys)) == cells(before)
    # The same release spelled in another way.
    world.says("torch", later(recorded("torch"), "2.15", PYTHONS))
    spelled = builds([*names(OUT), *((f, n.replace("-2.15.0", "-2.15")) for f, n in names(OUT))])
    world.builds(spelled)
    assert cells(answered(world, capsys)) == cells(before)


def test_an_index_that_knows_more_than_the_pages(world: World, capsys: Said) -> None:
    """Old copies of the pages, which have all that the lock has."""
    world.publish(("3.12", "2.16", "13.0"))
    said = "the index has wheels for torch 2.16, but the newest release is 2.15"
    assert said in notes(answered(world, capsys))
    world.next_day()
    assert "the index has wheels for torch" not in notes(answered(world, capsys))


def test_a_prerelease_is_taken_when_asked_for(world: World, capsys: Said) -> None:
    world.says("torch", later(recorded("torch"), "2.16.0rc1", PYTHONS))
    world.builds(builds(names(OUT | {"2.16.0rc1": (("13.0",), PYTHONS)})))
    assert not [one for one in cells(answered(world, capsys)) if "2.16" in one]
    found = cells(answered(world, capsys, "--pre"))
    assert found["cp313-torch2.16-cu130"] == "the index has no wheel of flash-attn 2.8.3.post2"


def test_no_clock_decides(world: World, capsys: Said) -> None:
    before = answered(world, capsys)
    for project in ("torch", "flash-attn"):
        page = recorded(project)
        for one in page["files"]:
            one["upload-time"] = "2099-01-01T00:00:00Z"
        world.says(project, page)
    assert answered(world, capsys) == before


def test_upstreams(world: World, capsys: Said) -> None:
    page = recorded("flash-attn")
    (first, *_) = page["files"]
    empty = world.file("empty.tar.gz", sdist("empty", {}))["url"]
    for one in page["files"]:
        one["url"] = empty
    new = first | {"filename": "flash_attn-2.8.4.tar.gz", "hashes": {"sha256": "a" * 64}}
    same = first | {"filename": "flash_attn-2.8.3.POST2.tar.gz"}
    world.says("flash-attn", page | {"files": [*page["files"], new, same]})
    tags = {"v2.9.0": "b", "v2.9.0^{}": "c", "v3.0.0rc1": "f", "fa4-v4.0.0": "d"}
    world.tags({name: commit * 40 for name, commit in tags.items()}, head="e" * 40)
    said = notes(answered(world, capsys))
    assert "flash-attn 2.8.4 is out; the recipe ends with 2.8.3.post2" in said
    assert f"with sha256 {'a' * 64}" in said
    assert "flash-attn 2.9.0 is tagged; the recipe ends with 2.8.3.post2 -> " in said
    assert f"commit {'c' * 40}" in said
    assert f"flash-attn main: the main branch is at {'e' * 12}, the recipe at " in said
    assert said.count("is out; the recipe") == 1
    assert "4.0.0" not in said
    assert "flash-attn 3.0.0rc1 (and 1 before it) is tagged" in notes(
        answered(world, capsys, "--pre")
    )
    world.tags({"fa4-v4.0.0": "d" * 40, "fa2-v3.0.0": "d" * 40})
    wrong(world, capsys, "none of its 2 tags is a release; for example fa2-v3.0.0")
    world.tags({"v2.9.0": "b" * 40})
    for one in page["files"]:
        one["yanked"] = "2.8.3.post2" in one["filename"]
    world.says("flash-attn", page)
    answer = answered(world, capsys)
    assert cells(answer) == {}
    assert "flash-attn 2.8.3.post2 was yanked upstream, so it is not built" in notes(answer)


def test_a_new_release_that_is_built_otherwise(world: World, capsys: Said) -> None:
    """What stands at the top of both source distributions is compared, and nothing below it."""
    page = recorded("flash-attn")
    same = {"setup.py": "setup()", "csrc/setup.py": "1", "README.md": "1"}
    new = same | {"csrc/setup.py": "2", "README.md": "2"}
    for files, differ in (
        (new, []),
        (new | {"setup.py": "setup(2)"}, ["setup.py"]),
        (new | {"pyproject.toml": "[build-system]"}, ["pyproject.toml"]),
        ({}, ["setup.py"]),
    ):
        old = world.file("flash_attn-2.8.3.post2.tar.gz", sdist("flash_attn-2.8.3.post2", same))
        (pinned,) = (one for one in page["files"] if one["filename"] == old["filename"])
        others = [one for one in page["files"] if one is not pinned]
        rows = [*others, pinned | {"url": old["url"]}]
        row = world.file("flash_attn-2.8.4.tar.gz", sdist("flash_attn-2.8.4", files))
        world.says("flash-attn", page | {"files": [*rows, row]})
        (note,) = (one for one in answered(world, capsys)["findings"] if " 2.8.4 " in one["actual"])
        assert [n for n in ("setup.py", "pyproject.toml") if n in note["actual"]] == differ
        assert row["hashes"]["sha256"] in note["hint"]
    world.server.says["/files/flash_attn-2.8.4.tar.gz"] = (200, "application/gzip", b"no archive")
    (note,) = (one for one in answered(world, capsys)["findings"] if " 2.8.4 " in one["actual"])
    assert "could not be read" in note["actual"]


def of(answer: dict[str, Any], about: str) -> list[str]:
    return [note["actual"] for note in answer["findings"] if note["subject"] == about]


def wheels(version: str, cudas: Sequence[str], pythons: Sequence[str]) -> list[pages.File]:
    """Of a release of torch for Windows, on PyTorch's own index."""
    made = []
    for cuda in cudas:
        for python in pythons:
            interpreter, abi = python_tags(python)
            full = Version(f"{version}+cu{cuda.replace('.', '')}")
            tags = frozenset({f"{interpreter}-{abi}-win_amd64"})
            made.append(pages.File(f"torch-{full}-{interpreter}", full, tags, "", "", False))
    return made


def test_rows_of_torch_that_differ_from_the_indexes(world: World, capsys: Said) -> None:
    """What one patch release alone has counts; what was yanked does not, nor what has no row."""
    rows = {name: row for name, row in load_torches().items() if name in ("2.13", "2.14")}
    one, two = rows["2.13"], rows["2.14"]
    out = [
        *wheels("2.13.0", one.cuda, one.python[:2]),
        *wheels("2.13.1", one.cuda[:1], one.python[2:]),
        *wheels("2.14.1", two.cuda, two.python),
        *wheels("2.99.0", two.cuda, two.python),
    ]

    def differs(files: Sequence[pages.File]) -> list[str]:
        pages_ = (pages.Project("torch", "", ()), pages.Project("torch", "", tuple(files)))
        return [note.actual.split(",")[0] for note in released.find_torch_drift(pages_, rows)]

    assert differs(out) == []
    gone = [replace(f, yanked="cp315" in str(f.tags) or "2.13.0+cu132" in f.name) for f in out]
    more = wheels("2.14.2", ["13.4"], ["3.16t"])
    assert differs([*gone, *more]) == [
        "torch 2.13 for CUDA 13.2 is no longer there",
        "torch 2.14 for CUDA 13.4 is out",
        "torch 2.14 for Python 3.15 is no longer there",
        "torch 2.14 for Python 3.15t is no longer there",
        "torch 2.14 for Python 3.16t is out",
    ]
    assert "torch 2.15 for CUDA 13.2 is out" in "".join(of(answered(world, capsys), "torch"))


def test_a_python_that_is_made_no_more(world: World, capsys: Said) -> None:
    """As 3.10 ended in October 2026: a last release of its own, and others without it."""
    assert not of(answered(world, capsys), "Python")
    rest = ("3.11", "3.12", "3.13", "3.14", "3.14t", "3.15")
    world.pythons(**{"20261009": ("3.10",), "20260930": ("3.10", *rest)})
    assert not of(answered(world, capsys), "Python")
    world.pythons(**{"20261009": ("3.10",), "20260930": ("3.10", *rest), "20261021": rest})
    (said,) = of(answered(world, capsys), "Python")
    assert "20261021 no longer has Python 3.10" in said
    world.pythons(**{"20261021": ("3.10", *rest[:3], *rest[5:])})
    assert len(of(answered(world, capsys), "Python")) == 2
    world.pythons()
    wrong(world, capsys, "python-build-standalone's releases is empty")


def test_a_tool_and_a_driver_that_came_after_what_is_known(world: World, capsys: Said) -> None:
    """triton-windows as the lock has it, and one more; CUDA after the last driver of a table."""
    assert not of(answered(world, capsys), "triton-windows")
    world.says("triton-windows", tritons("9.9.0.post1", "9.9.0.post2", "9.9.1.dev1"))
    (said,) = of(answered(world, capsys), "triton-windows")
    assert "9.9.0.post2 (and 1 before it)" in said
    world.says("triton-windows", tritons("9.9.0.post1", platform="linux_x86_64"))
    assert not of(answered(world, capsys), "triton-windows")
    lost = tritons()
    world.says("triton-windows", lost | {"files": lost["files"][1:]})
    wrong(world, capsys, f"does not list {lost['files'][0]['filename']}, which is pinned here")
    world.says("triton-windows", tritons())
    tags = frozenset({"py3-none-win_amd64"})
    known = [*load_compat().toolkit_drivers]
    for cuda, told in ((known[-1], []), ("14.7", ["driver-missing", "toolkit-missing"])):
        file = pages.File("nvcc", Version(f"{cuda}.9"), tags, "", "", False)
        found = released.find_missing_cudas(pages.Project("x", "", (file,)), {}, load_lock())
        assert sorted(note.id for note in found) == told


def test_the_form_of_pytorchs_own_index(world: World) -> None:
    """As it was in 2026: files lie on another host, old ones have no hash, some no time."""
    world.builds((DAY.parent / "pytorch-torch.html").read_text())
    (page,) = pages.read_projects({"torch": f"{world.server.url}/whl/torch/"}).values()
    assert len(page.files) == 8
    found = {one.name: one for one in page.files}
    wheel = found["torch-2.13.0+cu126-cp311-cp311-win_amd64.whl"]
    assert wheel.url == (
        "https://download-r2.pytorch.org/whl/cu126/torch-2.13.0%2Bcu126-cp311-cp311-win_amd64.whl"
    )
    assert (len(wheel.sha256), wheel.yanked) == (64, False)
    assert not found["torch-0.4.1-cp27-cp27mu-linux_x86_64.whl"].sha256
    pypi = pages.Project("torch", "", tuple(f for f in page.files if "+" not in f.name))
    out, lone = released.find_torch_releases(pypi, page)
    builds = {release: {c: [*p] for c, p in one.builds.items()} for release, one in out.items()}
    assert builds == {"2.13": {"12.6": ["3.11"], "13.0": ["3.14t"]}}
    assert not lone


def test_a_cuda_among_those_of_the_lock_is_told_where_a_torch_is_built_with_it() -> None:
    """Releases older than the lock's do not matter, and newer ones are on CUDA's own pages."""
    builds: dict[str, dict[str, pages.File]] = {
        cuda: {} for cuda in ("11.8", "12.8", "13.1", "13.2", "13.9")
    }
    out = {"2.15": released.Torch("2.15.0", builds), "2.16": released.Torch("2.16.0", builds)}
    none = pages.Project("nvidia-cuda-nvcc", "", ())
    (note,) = released.find_missing_cudas(none, out, load_lock())
    assert note.actual.startswith("CUDA 13.1: torch 2.15, torch 2.16, ")
    assert "toolchain.yaml" in note.hint


def test_what_an_index_holds(world: World, capsys: Said) -> None:
    cell = ("3.12", "2.15", "13.0")
    name = "cp312-torch2.15-cu130"
    world.publish(cell, untested=True, tested_on="")
    answer = answered(world, capsys)
    assert name not in cells(answer)
    assert [(one["held"], one["untested"]) for one in answer["recipes"]] == [(1, 1)]
    why = cells(answer)
    assert why["cp313-torch2.15-cu130"].endswith(
        "no wheel for Python 3.13 and CUDA 13.0 with torch 2.15"
    )
    assert why["cp312-torch2.15-cu126"].endswith("no wheel for CUDA 12.6 with torch 2.15")
    assert why["cp312-torch2.14-cu130"].startswith("torch 2.14.1 is out; ")
    # A yanked name is not built again; nor one with missing code.
    (wheel,) = (one for one in _wheels(world) if not one["made_from"])
    words = ["--to", world.index, "--yank", wheel["file"], "--because", "wrong numbers"]
    assert program.run_command_line(["publish", *words]) == 0
    answer = answered(world, capsys)
    assert name not in cells(answer)
    assert f"{name}: {wheel['file']} was yanked: wrong numbers -> Its file name is taken" in notes(
        answer
    )
    world.publish(("3.12", "2.14", "13.0"), archs="80")
    assert "in the index has no code for 120, 90 -> Its file name is taken" in notes(
        answered(world, capsys)
    )
    # As a build here would take them: pipeline.yaml's before the recipe's.
    config = world.folder / "pipeline.yaml"
    config.write_text(CONFIG.replace("host: lab", 'host: lab, archs: "80"'))
    assert "in the index has no code" not in notes(answered(world, capsys))
    config.write_text(CONFIG)
    # Of another release, and of another project, nothing is held.
    held = answered(world, capsys)["recipes"][0]["held"]
    world.publish(("3.13", "2.15", "13.0"), version="2.8.2")
    world.publish(("3.12", "2.15", "13.0"), name="other_attn", version="2.8.3.post2")
    answer = answered(world, capsys)
    assert answer["recipes"][0]["held"] == held


def _wheels(world: World) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Path(world.index, "catalogue.json").read_text())[
        "wheels"
    ]
    return found


def test_several_recipes(world: World, capsys: Said) -> None:
    """Each has its own order; what is no wheel of a release is said."""
    names = "xformers,flash-attn,smoke-attention,smoke-attention-torch,candle-flash-attn"
    words = ("--torch", "2.10", "--cuda", "13.0", "--python", "3.11,3.13", "--most", "4")
    assert world.watch("--recipe", names, *words, "--json") == 0
    answer = told(capsys)
    counts = {one["recipe"]: [c["state"] for c in one["cells"]] for one in answer["recipes"]}
    assert counts == {
        "xformers": ["build", "build"],
        "flash-attn": ["build", "build"],
        "smoke-attention": ["later", "later"],
        "smoke-attention-torch": ["later"],
        "candle-flash-attn": [],
    }
    assert [one["recipe"] for one in answer["matrix"]["include"]] == ["xformers", "flash-attn"]
    said = notes(answer)
    assert "xformers 0.0." not in said  # the recipe has the newest, if not as its default
    assert "no wheel of candle-flash-attn is built here" in said
    assert "smoke-attention-torch: its one wheel for every torch is not tested with 2.14" in said


def test_indexes_that_are_none(world: World, capsys: Said, tmp_path: Path) -> None:
    code = ConfigError.exit_code
    capsys.readouterr()
    assert world.watch() == code
    assert "the index has no wheel of any recipe" in capsys.readouterr().err
    place = tmp_path / "index"
    place.rmdir()
    wrong(world, capsys, "is not a wcw index: it has no catalogue.json", code=code)
    place.mkdir()
    (place / "files").mkdir()  # of a first publish that broke off
    for name in (".git", "CNAME"):  # of a branch of pages that is new
        (place / name).touch()
    assert world.watch("--recipe", "flash-attn", "--torch", "2.15") == 0
    (place / "notes.txt").touch()  # somebody else's directory
    wrong(world, capsys, "is not a wcw index: it has no catalogue.json", code=code)
    (place / "notes.txt").unlink()
    (place / "index.html").write_text("<html></html>")
    wrong(world, capsys, "is not a wcw index: it has no catalogue.json", code=code)
    for text in ("{", "[]", '{"wheels": 1}', '{"schema_version": 2}', "<html>"):
        (place / "catalogue.json").write_text(text)
        wrong(world, capsys, "catalogue.json cannot be read: ", code=code)
    world.server.page("/i/catalogue.json", "<html></html>")
    world.folder = tmp_path / "gone"
    for url, said, ends in (
        (f"{world.server.url}/i/", "catalogue.json cannot be read: ", code),
        (f"{world.server.url}/none", "/none/catalogue.json: it cannot be fetched: HTTPError", 3),
        ("http://127.0.0.1/i", "--index http://127.0.0.1/i: without https anyone could", code),
        ("s3://bucket/i", "/i: catalogue.json: ", 11),
    ):
        secret = url.replace("://", "://me:s3cret@")
        assert (
            program.run_command_line(["watch", "--index", secret, "--recipe", "flash-attn"]) == ends
        )
        told = capsys.readouterr()
        assert said in " ".join(told.err.split())
        assert "s3cret" not in told.err + told.out


def test_an_index_at_an_address(world: World, capsys: Said) -> None:
    world.publish(("3.12", "2.15", "13.0"))
    world.server.page("/i/catalogue.json", Path(world.index, "catalogue.json").read_text())
    capsys.readouterr()
    assert program.run_command_line(["watch", "--index", f"{world.server.url}/i", "--json"]) == 0
    (recipe,) = told(capsys)["recipes"]
    assert (recipe["recipe"], recipe["held"]) == ("flash-attn", 1)


def test_a_bound_on_cells(world: World, capsys: Said) -> None:
    world.metadata()
    words = ("--torch", "2.8", "--cuda", "12.8")
    answer = answered(world, capsys, *words, "--most", "3")
    assert [*cells(answer, "build")] == [f"cp{p}-torch2.8-cu128" for p in ("310", "311", "312")]
    assert [*cells(answer, "later")] == ["cp313-torch2.8-cu128"]
    assert answer["matrix"]["include"][0]["select"].count(",") == 2
    capsys.readouterr()
    assert world.watch("--recipe", "flash-attn", *words, "--most", "3") == 0
    assert "3 cells to build, 1 more after these (--most)" in capsys.readouterr().out
    for most in ("0", "257", "x"):
        wrong(world, capsys, f"--most {most}: ", "--most", most, code=ConfigError.exit_code)
    several = ("--archs", "80|90")
    wrong(world, capsys, "architecture '80|90' is not understood", *several, code=2)
    asked = answered(world, capsys, *words, "--archs", "90;80")["matrix"]["include"]
    assert [one["archs"] for one in asked] == ["90;80"]
    wrong(world, capsys, "--pins .: that is a directory", "--pins", ".", code=2)
    wrong(world, capsys, "--torch 2.99: no such release", "--torch", "2.99", code=2)
    wrong(world, capsys, "--json and --format gha exclude each other", "--json", code=2)
    assert world.watch("--format", "xml") == ConfigError.exit_code


def test_no_cell_waits_for_ever(world: World, capsys: Said) -> None:
    """Where the first ones fail every day, the others are built all the same."""
    words = ("--torch", "2.8,2.10", "--cuda", "12.8", "--most", "4")
    seen: dict[str, int] = {}
    for turn in range(3):
        found = [*cells(answered(world, capsys, *words, "--turn", str(turn)), "build")]
        assert len(found) == 4
        seen |= {name: seen.get(name, 0) + 1 for name in found}
    assert len(seen) == 8
    assert sorted(seen.values()) == [1, 1, 1, 1, 1, 1, 3, 3]
    wrong(world, capsys, "--turn -1: expected 0 or more", "--turn", "-1", code=2)


def test_what_was_named_and_is_nowhere(world: World, capsys: Said) -> None:
    """A slip of the pen is not "nothing to build"."""
    for flag, value in (
        ("cuda", "13"),
        ("cuda", "13.1"),
        ("python", "3.9"),
    ):
        said = f"--{flag} {value}: torch 2.15, 2.14, 2.13 has no build for it"
        wrong(world, capsys, said, f"--{flag}", value, code=ConfigError.exit_code)
    wrong(world, capsys, "Available: 12.6, 13.0, 13.2.", "--cuda", "13", code=2)
    # What there is, and not for this recipe, or not together, is said.
    answer = answered(world, capsys, "--python", "3.15", "--cuda", "13.0")
    assert cells(answer) == {}
    assert "supports no build of torch 2.15, 2.14, 2.13 --python 3.15" in notes(answer)
    answer = answered(world, capsys, "--torch", "2.8,2.15", "--cuda", "12.8", "--python", "3.15")
    assert "supports no build of torch 2.15, 2.8" in notes(answer)


def test_names_of_files_that_are_made_to_break_a_reader(world: World, capsys: Said) -> None:
    before = answered(world, capsys)
    page = recorded("torch")
    many = ".".join(f"c{number}" for number in range(30))
    made = [
        "torch-2." + "9" * 5000 + "-cp312-cp312-win_amd64.whl",
        f"torch-2.9.0-{many}-cp312-win_amd64.whl",
        "torch-2." + "9" * 5000 + ".tar.gz",
    ]
    files = [page["files"][0] | {"filename": name} for name in made]
    world.says("torch", page | {"files": [*page["files"], *files]})
    assert answered(world, capsys) == before
    (one,) = [
        pages._parse_listed_file("torch", indexpage.Listed(Offer(name, "")), "")
        for name in made[1:2]
    ]
    assert one is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("setuptools>=77.0.3", "setuptools<82"), "requires setuptools<82, but the lock has 84."),
        (
            ("Requires-Dist: fsspec", "Requires-Dist: newcomer"),
            "requires newcomer, which has no pin",
        ),
    ],
)
def test_torch_that_needs_a_hand(
    world: World, capsys: Said, tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    world.next_day()
    world.metadata(lambda text: text.replace(*change))
    file = tmp_path / "watched.yaml"
    answer = answered(world, capsys, "--torch", "2.16", "--cuda", "13.0", "--pins", str(file))
    assert said in notes(answer)
    assert cells(answer, "build") == {}
    assert len(cells(answer, "pin")) == 3
    assert yaml.safe_load(file.read_text())["groups"] == []


def test_new_torch_that_lies_elsewhere(world: World, capsys: Said, tmp_path: Path) -> None:
    """Nothing is taken, or even asked for, from another domain than the index's."""
    world.next_day()
    text = builds(names(OUT | NEXT))
    world.builds(re.sub(r'href="(/whl/cu\d+/torch-2\.16)', r'href="https://other.invalid\1', text))
    file = tmp_path / "watched.yaml"
    answer = answered(world, capsys, "--torch", "2.16", "--cuda", "13.0", "--pins", str(file))
    assert "its wheel is on other.invalid, but the index is on 127.0.0.1" in notes(answer)
    assert cells(answer, "build") == {}
    assert len(cells(answer, "pin")) == 3


def test_lies_of_new_torch(world: World, capsys: Said, tmp_path: Path) -> None:
    world.next_day()
    pins = ("--torch", "2.16", "--pins", str(tmp_path / "watched.yaml"))
    wrong(world, capsys, ".metadata: it cannot be fetched: HTTPError", *pins)
    world.metadata(version="2.15.0")
    wrong(world, capsys, "is for torch 2.15.0+cu130", *pins)
    world.metadata(lambda text: text.replace("Name: torch", "Name: tortch"))
    wrong(world, capsys, "is for tortch 2.16.0+cu130", *pins)
    world.metadata(lambda _: "\0\1\2")
    wrong(world, capsys, "METADATA of torch-2.16.0+cu130-cp312-cp312-win_amd64.whl", *pins)
    world.metadata(lambda text: text + "x" * (1 << 20))
    wrong(world, capsys, ".metadata: it has more than 1048576 bytes", *pins)
    assert not (tmp_path / "watched.yaml").exists()
    world.metadata()
    world.builds(re.sub(r"(torch-2\.16\S+?)#sha256=\w+", r"\1", builds(names(OUT | NEXT))))
    assert "the index states no sha256 for torch-2.16" in notes(answered(world, capsys, *pins))


def test_recipes_that_do_not_go_with_it(world: World) -> None:
    """What a recipe does not support, or is tested with, is said and becomes no cell."""
    places = {"torch": f"{world.server.url}/simple/torch/"}
    (project,) = pages.read_projects(places).values()
    (built,) = pages.read_projects({"torch": f"{world.server.url}/whl/torch/"}).values()
    out, lone = released.find_torch_releases(project, built)
    assert [*out] == ["2.8", "2.10", "2.11", "2.12", "2.13", "2.14", "2.15"]
    assert lone == []
    assert [*out["2.15"].builds["13.0"]] == [*("3.11", "3.12", "3.13", "3.14", "3.14t", "3.15")]
    old = FLASH.model_copy(
        update={"supports": FLASH.supports.model_copy(update={"torch": "<2.13"})}
    )
    wanted, left = released.choose_torch_releases(old, out, [], 2)
    assert wanted == ["2.12", "2.11"]
    assert [note.actual for note in left] == [
        "flash-attn 2.8.3.post2 supports torch <2.13, and 2.13, 2.14, 2.15 is out",
        "flash-attn: older releases of torch are skipped: 2.8, 2.10",
    ]
    one = load_recipe("smoke-attention-torch")
    found = compare_recipe(
        one, out, released.choose_torch_releases(one, out, [], 2)[0], Catalogue()
    )
    assert {cell.name for cell in found.cells} == {"cp311-torch2.10-cu130"}
    assert "is not tested with 2.14, 2.13, 2.12, 2.11" in found.notes[0].actual


def test_a_wheel_on_the_stable_abi_is_for_later_torches(world: World) -> None:
    world.publish(("3.12", "2.10", "13.0"))
    wheels = held.wheels_of_recipe(held.catalogue_of(world.index), FLASH)
    target = Target(python="3.12", torch="2.15", cuda="13.0")
    assert held.wheels_for_cell(wheels, target) == []
    (plain,) = wheels
    stable = plain.model_copy(update={"stable": True})
    assert held.wheels_for_cell([stable], target) == [stable]
    assert held.wheels_for_cell([stable], target.model_copy(update={"torch": "2.9"})) == []
    for name, count in (
        ("cp312-cp312-win_arm64", 0),
        ("cp312-cp312-linux_x86_64", 0),
        ("cp312-none-win_amd64", 1),
        ("cp312-cp312t-win_amd64", 0),
        ("py3-none-any", 1),
    ):
        file = plain.file.replace("cp312-cp312-win_amd64", name)
        other = Wheel.model_validate(plain.model_dump() | {"file": file})
        asked = Target(python="3.12", torch="2.10", cuda="13.0")
        assert (name, len(held.wheels_for_cell([other], asked))) == (name, count)
    file = plain.file.replace("cp312-cp312", "cp310-abi3")
    limited = Wheel.model_validate(plain.model_dump() | {"file": file})
    for python, count in (("3.14", 1), ("3.10", 1), ("3.9", 0)):
        asked = Target(python=python, torch="2.10", cuda="13.0")
        assert len(held.wheels_for_cell([limited], asked)) == count


def test_in_processes_of_its_own(
    world: World, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is typed: pages, tags and the catalogue are read where they can be ended."""
    for module in (pages, indexpage):
        monkeypatch.setattr(module, "run_isolated", workers.run_isolated)
    world.publish(("3.12", "2.15", "13.0"))
    world.server.page("/i/catalogue.json", Path(world.index, "catalogue.json").read_text())
    capsys.readouterr()
    assert program.run_command_line(["watch", "--index", f"{world.server.url}/i"]) == 0
    assert "flash-attn 2.8.3.post2: 1 cell in the index, 41 not" in capsys.readouterr().out
    world.server.page("/flash.git/info/refs?service=git-upload-pack", "0000")
    wrong(world, capsys, "references is incomplete")
