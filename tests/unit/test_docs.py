"""What the documents name is there: files, links, rooms, floors."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from documents import BASH, Block, blocks, mistakes, unread
from test_architecture import ORDER
from typed import calls

from pipelines.cli.program import COMMANDS
from pipelines.plan.config.model import load_config
from pipelines.recipe.model import Recipe, Vendored
from pipelines.toolchain.intent import load_intent

ROOT = Path(__file__).parents[2]
TOPS = (".github", "ansible", "docs", "images", "pipelines", "scripts", "tests")
DOCS = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(p for top in TOPS for p in (ROOT / top).rglob("*.md")))
    if "node_modules" not in path.parts
)
#: Of people's own: what a document says is not here.
THEIRS = {"pipelines/recipes/my-conv1d.yaml", "pipelines/recipes/vecadd.yaml", "fleet.yaml"}
THEIRS |= {"pipelines/toolchain/watched.yaml", "watched.yaml"}
THEIRS |= {"docs/classcutlass_1_1epilogue.html"}  # of a log
#: Of a user's repository.
THEIRS |= {".github/workflows/windows-wheels.yml", "signatures.yaml"}
#: A file that is named without its folder, or a path, anywhere in the text.
FILE = re.compile(r"`([\w./*-]*[\w*]\.(?:py|ya?ml|ps1|psm1|j2|c|cuh))`")
PATH = re.compile(rf"(?<![\w./-])(?:{'|'.join(map(re.escape, TOPS))})/[\w./*-]*[\w*/]")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
#: What ends the path of a file or directory.
ENDS = {
    "/".join(path.parts[at:])
    for top in TOPS
    for path in (ROOT / top).rglob("*")
    for at in range(len(ROOT.parts) + 1, len(path.parts))
}


def there(name: str, near: Path) -> bool:
    """Whether a file is called so: from the root, the document or the package on, or by its end."""
    if any([*base.glob(name)] for base in (ROOT, near, ROOT / "pipelines")):
        return True
    return name in ENDS or ("*" in name and any([*(ROOT / top).rglob(name)] for top in TOPS))


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_what_is_named_is_there(path: Path) -> None:
    text = path.read_text("utf-8")
    links = [link for link in LINK.findall(text) if not (path.parent / link).exists()]
    text = re.sub(r"\[[^]]*\]\(https?://[^)]*\)|https?://\S+", "", text)
    named = {*FILE.findall(text), *PATH.findall(text)} - THEIRS
    named = {name for name in named if not name.startswith(".wcw/")}  # of a user's repository
    assert not links + sorted(name for name in named if not there(name.rstrip("/"), path.parent))


#: Files without an end of their own, and what is no document: programs, their settings, workflows.
PROGRAMS = sorted(
    path
    for path in (
        ROOT / "Makefile",
        *(ROOT / "scripts").iterdir(),
        *ROOT.glob("*.toml"),
        *ROOT.glob("*.y*ml"),
        *(
            p
            for top in TOPS
            for end in ("py", "y*ml", "Dockerfile")
            for p in (ROOT / top).rglob(f"*.{end}")
        ),
    )
    if path.is_file() and path != Path(__file__)
)


def moved(text: str) -> list[str]:
    """Paths below the package that are not there, by their first two names."""
    found = re.findall(r"(?<![\w.-])pipelines((?:/[a-z_]+){1,2})", text)
    return sorted({f"pipelines{one}" for one in found if not [*ROOT.glob(f"pipelines{one}*")]})


def test_no_program_names_a_package_where_it_was() -> None:
    """Such as ``make check``, which must not silently check nothing."""
    wrong = {path: moved(path.read_text("utf-8", "replace")) for path in PROGRAMS}
    wrong.pop(ROOT / "tests/browser/test_site_in_chromium.py", None)  # one that is not there
    assert not {path: names for path, names in wrong.items() if names}
    assert moved("vermin pipelines/which pipelines/publish/which") == ["pipelines/which"]


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_merge_was_left_half_done(path: Path) -> None:
    assert re.findall(r"^[<>|]{7}(?: .*)?$", path.read_text("utf-8"), re.MULTILINE) == []


#: A command as a document prints it, in a block or within a line.
TYPED = re.compile(r"(?:^(?:\$ | {4})?|`)(?:\./wcw|wcw|invoke) ([a-z][^`#\n]*)", re.MULTILINE)


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_what_is_to_be_typed_can_be(path: Path) -> None:
    """Every command with its flags, as the program reads them; `...` stands for more."""
    for text in TYPED.findall(path.read_text("utf-8").replace("\\\n", " ")):
        words = [word for word in shlex.split(text) if word != "..."]
        if {"--help", "|", "/"} & {*words}:
            continue
        if len(words) == 1:  # only named, maybe without what it is given
            assert words[0] in COMMANDS, text
        else:
            assert calls(words), text


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_command_is_read_or_labelled(path: Path) -> None:
    """What no test can look at says so in the block's first line: ``# not run by a test: why``."""
    for block in blocks(path, "sh", "powershell"):
        assert unread(block) == [], block.source
        assert mistakes(block) == [], block.source


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_block_is_in_a_language_that_nobody_looks_at(path: Path) -> None:
    """Output has none; commands of a shell are ``sh`` or ``powershell``, and nothing near it."""
    fences = re.findall(r"^ *```(.*)$", path.read_text("utf-8"), re.MULTILINE)
    known = {"", "sh", "powershell", "yaml", "toml", "python", "c", "cuda"}
    assert {*fences} <= known
    assert fences[1::2] == [""] * (len(fences) // 2)


def test_a_command_that_nobody_read_is_found() -> None:
    bad = Block("sh", "invoke doctor\nmake wheel\nmake nothing\nscripts/none\ndocker info # why\n")
    assert unread(bad) == ["make nothing", "scripts/none", "docker info"]
    assert unread(Block("sh", "# not run by a test: needs Windows\ndocker info\n")) == []
    assert unread(Block("sh", "# not run by a test:\ndocker info\n")) == ["docker info"]
    assert unread(Block("powershell", "wcw doctor `\n    --host a\nGet-Item b\n")) == ["Get-Item b"]


@pytest.mark.skipif(BASH is None, reason="no bash here to read it")
def test_a_block_that_bash_does_not_take_is_found() -> None:
    assert mistakes(Block("sh", "for name in a b; do\n"))


#: Their YAML is recipes, which test_recipes.py and test_own_tests.py read.
OF_RECIPES = {"recipes.md", "own-tests.md"}


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_yaml_is_taken(path: Path, tmp_path: Path) -> None:
    """By the models of pipeline.yaml; a call of a workflow by that workflow's inputs."""
    for block in blocks(path, "yaml"):
        read = yaml.safe_load(block.source)
        if "hosts" in read:
            taken(block.source, tmp_path)
        elif "jobs" in read:
            called(read["jobs"])
        elif "steps" in read:
            (step,) = read["steps"]
            place = step["uses"].removeprefix("OWNER/REPOSITORY/").removesuffix("@COMMIT")
            action = yaml.safe_load((ROOT / place / "action.yml").read_text("utf-8"))
            assert step["with"].keys() <= action["inputs"].keys()
            assert calls(["audit", *shlex.split(step["with"]["arguments"])])
        elif "repos" in read:
            known = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
            assert read["repos"][0]["hooks"] == [{"id": known[0]["id"]}]
        elif "gpu-config" in read:
            taken(read["gpu-config"], tmp_path)
        elif "groups" in read:
            file = tmp_path / "toolchain.yaml"
            file.write_text(block.source, "utf-8")
            assert load_intent(file)
        elif "vendored" in read:
            assert [Vendored.model_validate(row) for row in read["vendored"]]
        elif path.name == "package.md":
            assert Recipe.model_validate(read)
        else:
            assert path.name in OF_RECIPES, block.source


def taken(config: str, folder: Path) -> None:
    path = folder / "pipeline.yaml"
    path.write_text(config, "utf-8")
    load_config(path)


def called(jobs: dict[str, Any]) -> None:
    for job in jobs.values():
        found = re.fullmatch(r"OWNER/REPOSITORY/(\S+)@COMMIT", job["uses"])
        assert found
        # YAML 1.1 takes `on` for a boolean; GitHub does not.
        given = yaml.safe_load((ROOT / found[1]).read_text("utf-8"))[True]["workflow_call"]
        assert job["with"].keys() <= given["inputs"].keys()
        assert job.get("secrets", {}).keys() <= given.get("secrets", {}).keys()


#: The cell of a page of docs/hosts that says what we say, `so`.
SAYS = re.compile(r"^\| (`[^|]+`)[^|`]*\|", re.MULTILINE)


def our_words() -> str:
    """Every text in the code of hosts, doctor and reports, and in what data says for them."""
    folders = [
        ROOT / "pipelines" / name
        for name in ("hosts", "doctor", "cli", "session", "plan", "stages", "reports")
    ]
    texts = [path.read_text("utf-8") for folder in folders for path in folder.rglob("*.yaml")]
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text("utf-8")))
        texts += [
            n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)
        ]
    return "\n".join(texts)


def test_what_goes_wrong_is_said_so() -> None:
    words, pages = our_words(), sorted((ROOT / "docs/hosts").glob("*.md"))
    pages.append(ROOT / "docs/gpu-bridge.md")
    said = [
        (page.name, part)
        for page in pages
        for cell in SAYS.findall(page.read_text("utf-8").partition("\n## What goes wrong")[2])
        for part in re.findall(r"`([^`]+)`", cell)
    ]
    assert len(said) > 20
    assert [(page, part) for page, part in said if part not in words] == []


def test_the_map_has_every_package() -> None:
    text = (ROOT / "docs/architecture.md").read_text("utf-8").partition("\n## Packages")[2]
    table = text.partition("|-|-|\n")[2].partition("\n\n")[0]
    rows = [row.split("|")[1] for row in table.splitlines()]
    named = [name for row in rows for name in re.findall(r"`([a-z]+)`", row)]
    packages = {name.partition(".")[0] for name in ORDER} - {"__main__", "tasks"}
    assert sorted(named) == sorted({*packages, "remote"})
