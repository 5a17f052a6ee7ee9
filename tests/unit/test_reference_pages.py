"""The pages of docs/reference are what the program goes by today, and have all of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipelines.cli.program import COMMANDS
from pipelines.core import errors
from pipelines.core.architectures.gpus import load_gpu_table
from pipelines.core.evidence import Evidence
from pipelines.diagnosis.model import load_catalogue
from pipelines.plan.matrix.compat import load_compat
from pipelines.recipe.load import RECIPES, load_recipe, recipe_names
from scripts.reference import commands, markdown, pages
from scripts.reference.pages import DOCS, FOLDER, files, stale

PAGES = files()
MADE = {
    path.relative_to(FOLDER).as_posix(): text
    for path, text in PAGES.items()
    if path.is_relative_to(FOLDER)
}
CONTEXTS = {name: one.context(name) for name, one in COMMANDS.items()}


def test_what_is_kept_is_of_today() -> None:
    """After a change of flags, errors, rules, GPUs or recipes: python -m scripts.reference."""
    for path, text in PAGES.items():
        assert path.read_text("utf-8") == text, f"{path.name}: python -m scripts.reference"
    assert stale() == [], "python -m scripts.reference"


def test_the_repositorys_address_is_one_setting(tmp_path: Path) -> None:
    root = DOCS.parent
    printing = [path.relative_to(root).as_posix() for path in pages.with_address(root)]
    assert {"README.md", "docs/install.md", "docs/init.md", "docs/start/wheel.md"} <= {*printing}
    assert {"docs/hosts/windows-workstation.md", "docs/start/first-run.md"} <= {*printing}
    for name in (*printing, "pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        text = (root / name).read_text("utf-8")
        (tmp_path / name).write_text(
            text.replace('"ADDRESS_OF_THIS_REPOSITORY"', '"https://git.example/wcw"')
        )
    changed = pages.with_address(tmp_path)
    assert len(changed) == len(printing)
    for text in changed.values():
        assert "git clone https://git.example/wcw windows-cuda-wheels" in text
        assert "git clone ADDRESS" not in text


def test_nothing_else_is_there() -> None:
    there = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
    assert there == {*MADE}


def test_a_page_of_what_is_gone_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "FOLDER", tmp_path)
    (tmp_path / "commands").mkdir()
    (tmp_path / "commands/gone.md").write_text(f"# wcw gone\n\n{markdown.MADE}\n")
    (tmp_path / "by-hand.md").write_text("# Of somebody\n")
    assert stale() == [tmp_path / "commands/gone.md"]


@pytest.mark.parametrize("name", CONTEXTS)
def test_a_command_has_every_flag_and_word(name: str) -> None:
    file = f"{name.partition('.')[0]}.md"
    text = MADE[f"commands/{file}"]
    part = text.partition(f"## {name.replace('.', ' ')}\n")[2] if "." in name else text
    part = part.partition("\n## ")[0]
    assert f"Usage: wcw {name.replace('.', ' ')}" in part
    words = {str(one.name) for one in CONTEXTS[name].positional_args if one.kind is not list}
    flags = {flag for flag in CONTEXTS[name].flags if flag.startswith("--")}
    flags -= {f"--{word}" for word in words}
    for typed in {word.upper() for word in words} | flags:
        assert re.search(rf"^\| `(-\w, )?{typed}( VALUE)?` \| \S", part, re.MULTILINE), typed
    assert f"]({file}{commands._anchor(name)}) |" in MADE["commands/README.md"]


def test_every_exit_code_is_told() -> None:
    rows = dict(re.findall(r"^\| (\d+) \| ([^|]*)\| \S", MADE["exit-codes.md"], re.MULTILINE))
    kinds = [one for one in vars(errors).values() if isinstance(one, type)]
    kinds = [one for one in kinds if issubclass(one, errors.PipelineError)][1:]
    assert len(kinds) > 10
    assert {str(one.exit_code): one.title for one in kinds}.items() <= {
        code: title.strip() for code, title in rows.items()
    }.items()
    assert rows.keys() - {str(one.exit_code) for one in kinds} == {*map(str, errors.ANSWERS)}
    assert not {one.exit_code for one in kinds} & {*errors.ANSWERS}


def test_every_failure_has_its_place() -> None:
    text = MADE["failures.md"]
    signatures = [one for one in load_catalogue().signatures if one.kind != "fact"]
    for one in signatures:
        part = text.partition(f"\n### {one.id}\n")[2].partition("\n### ")[0]
        assert one.sample in part
        assert "**Cause:**" in part
        assert "**Hint:**" in part
        assert all(f"]({link})" in part for link in one.evidence), one.id
        assert ("**Heals by itself:**" in part) is bool(one.heals)
    assert text.count("\n### ") == len(signatures)


def test_rules_gpus_and_recipes_are_all_there() -> None:
    for rule in load_compat().rules:
        assert f"| [{rule.id}]({rule.source}): " in MADE["matrix.md"]
    assert all(
        f"| `{gpu.show}` | {gpu.capability} |" in MADE["gpus.md"] for gpu in load_gpu_table().gpus
    )
    names = recipe_names(RECIPES)
    assert re.findall(r"^## (.+)$", MADE["packages.md"], re.MULTILINE) == [*names]
    for name in names:
        part = MADE["packages.md"].partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert load_recipe(name, RECIPES).license in part


def test_what_is_hostile_in_a_text_stays_text() -> None:
    said = "a | b <script> [x](y) *z* `c|d` docs/shards.md#how-many, https://x.org/a_b."
    made = markdown.cell(said)
    assert made == (
        r"a \| b \<script\> \[x\](y) \*z\* `c\|d` [shards.md](../shards.md#how-many), "
        "<https://x.org/a_b>."
    )
    fenced = markdown.block(["a", "```", "b"])
    assert fenced.startswith("````\n")
    assert fenced.endswith("\n````")


def test_the_levels_are_those_of_the_program() -> None:
    text = (DOCS / "evidence/levels.md").read_text("utf-8").partition("| capability |")[0]
    assert re.findall(r"^\| ([A-Z][^|]*?) \|", text, re.MULTILINE) == [
        one.value for one in Evidence
    ]
