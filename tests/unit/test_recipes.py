"""Recipes: what is shipped, what is refused, what is published about them."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from recipefiles import DOCUMENTED, SHIPPED, VERSIONS, written

from pipelines.core.architectures.gpus import parse_gpu_archs
from pipelines.core.errors import ConfigError, LockError
from pipelines.core.target import Target
from pipelines.plan.matrix.paths import included_files
from pipelines.recipe.archmap import translate_archs
from pipelines.recipe.commits import commit_files
from pipelines.recipe.library import library_build_steps, library_key
from pipelines.recipe.load import RECIPES, load_recipe, load_versions, recipe_names
from pipelines.recipe.model import Recipe
from pipelines.recipe.naming import expected_wheel_name, local_version, recipe_environment
from pipelines.recipe.origin import FileSource, GitSource
from pipelines.recipe.progress import Step, make_progress_parser
from pipelines.recipe.sourcetree import SourceTree, pack_source_tree
from pipelines.toolchain.lock import Cache, load_lock

_FILE = {"url": "https://x.example/a.tar.gz", "file": "a.tar.gz", "sha256": "0" * 64, "size": 1}
PINNED = {"source": _FILE}
SMOKE = yaml.safe_load((RECIPES / "smoke-attention.yaml").read_text())


def test_what_is_shipped() -> None:
    assert {*SHIPPED} <= {*recipe_names()}
    assert list(load_versions("flash-attn")) == ["2.8.3.post2", "2.7.4.post1", "2.3.6", "main"]
    assert load_recipe("flash-attn", version="2.3.6").pythons == ("3.10", "3.11")


@pytest.mark.parametrize(("name", "version"), VERSIONS)
def test_every_version_is_told_how_many_jobs_and_what_it_is_called(name: str, version: str) -> None:
    recipe = load_recipe(name, version=version)
    archs = translate_archs(recipe.arch_map, parse_gpu_archs(recipe.archs), recipe.cuda, name)
    local = local_version(recipe, recipe.cuda, recipe.torch)
    made = recipe_environment(recipe, archs, local=local, jobs=7, threads=2)
    assert ("7" in made.values()) == (recipe.kind != "pure"), "nothing is compiled for that one"
    if recipe.kind == "wheel":
        assert any(local in value for value in made.values()) != recipe.restamp
        assert re.fullmatch(r"cu\d+(torch\d\.\d+)?", local)


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_what_runs_suites_comes_by_itself(tmp_path: Path, python: str) -> None:
    """A recipe that names nothing gets it whole and pinned; one for torch gets torch as well."""
    bare = change(tmp_path, test_requires=None)
    assert bare.test_tools == ("pytest", "pytest-xdist")
    lock = load_lock()
    assert lock.unavailable(bare.test_tools, Target(python=python)) == []
    needed = {"execnet", "iniconfig", "packaging", "pluggy", "pygments", "colorama"}
    assert needed < {*lock.entries_for(bare.test_tools, Target(python=python))}
    both = bare.model_copy(update={"torch": "2.8", "test_requires": ("torch", "einops")})
    assert both.test_tools == ("pytest", "pytest-xdist", "torch", "einops")


def change(tmp_path: Path, **keys: Any) -> Recipe:
    text = {k: v for k, v in (SMOKE | keys).items() if v is not None}
    (tmp_path / "smoke-attention.yaml").write_text(yaml.safe_dump(text))
    return load_recipe("smoke-attention", tmp_path)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"strategy": "skip"}, "skip needs 'skip'"),
        ({"skip": "xformers instead"}, "skip needs 'skip'"),
        ({"strategy": "prebuilt"}, "needs 'prebuilt'"),
        ({"supports": {"cuda": ">=12,<13"}}, "cuda: 13.0 is not in supports"),
        ({"supports": {"torch": ">=2"}}, "there is no torch"),
        ({"supports": {"cuda": ">=13,<12"}}, "contradicts itself"),
        ({"local_version": "torch{torch}"}, "there is no torch"),
        ({"pythons": []}, "a wheel needs at least one"),
        ({"kind": "cargo"}, "a cargo build has a library"),
        ({"api": "stable"}, "api: stable: torch has it from 2.10 on"),
        ({"api": "stable", "torch": "2.10"}, "write supports: {torch: '>=2.10'}"),
        (
            {"api": "stable", "torch": "2.10", "supports": {"torch": ">=2.9"}},
            "write supports: {torch: '>=2.10'}",
        ),
        ({"api": "c++"}, "api: expected 'plain', 'cxx', 'stable' or 'torch'"),
        ({"progress": "(?P<done>x)"}, "progress: expected {done} and {total}, each once"),
        ({"progress": "[{done}/{total}] {unit}"}, "progress: expected {done} and {total}"),
        ({"progress": "[{done:>9}/{total}]"}, "progress: expected {done} and {total}"),
        ({"progress": "[{done}/{done}{total}]"}, "progress: expected {done} and {total}"),
        ({"progress": "[{done}/{total"}, "progress: not a template"),
        ({"progress": "^(?P<done>(a+)+)(?P<total>)(?P<unit>)$"}, "progress: expected {done}"),
        ({"archs": "compute_90"}, "PTX of 90 without its machine code"),
        ({"archs": "85"}, "the nearest valid one is 86"),
        ({"arch_map": {"kind": "plain", "least": "80"}}, "no code for 75"),
        ({"arch_map": {"kind": "guess"}}, "arch_map"),
        ({"source": {"pypi": "x==1", "file": "x-1.tar.gz"}}, "source.sha256: is missing"),
        ({"source": {"gti": "https://x/y"}}, "one of the keys path, git, pypi, url, apt"),
        ({"source": {"path": "x", "submodule": []}}, "source.submodule: unknown key"),
        ({"source": {"git": "http://x/y", "commit": "a" * 40}}, "git"),
        ({"source": {"git": "https://x/y", "commit": "main"}}, "source.commit: expected"),
        ({"version": "1.0"}, "version: a directory has none"),
        ({"environment": {"max_jobs": "1"}}, "environment"),
        ({"environment": {"A": "{archz}"}}, "environment.A: unknown field {archz}; did you mean"),
        ({"environment": {"A": "{jobs:>9}"}}, "environment.A: unknown field {jobs:>9}"),
        ({"environment": {"A": "{archs.real}"}}, "environment.A: unknown field {archs.real}"),
        ({"environment": {"A": "{"}}, "environment.A: '{' is not a template"),
        (
            {"local_version": "cu{cudas}"},
            "local_version: unknown field {cudas}; did you mean",
        ),
        ({"local_version": "a b"}, "local_version: 'a b' is not a local version"),
        ({"verify": "import ("}, "verify: not valid Python"),
        ({"source": {"path": "examples/smoke_atention"}}, "source.path: there is no directory"),
        ({"source": {"path": "smoke"}}, "source.path: "),
        (
            {"smoke": "smoke_atention"},
            "smoke: there is no suite 'smoke_atention'; did you mean 'smoke_a",
        ),
        ({"smoke": "common"}, "smoke: there is no suite 'common'"),
        ({"smoke": "../stages"}, "smoke: there is no directory"),
        (
            {"test_requires": ["pytets"]},
            "test_requires: there is no 'pytets'; did you mean",
        ),
        (
            {"build_requires": ["setuptool"]},
            "build_requires: there is no 'setuptool'; did you",
        ),
        ({"build_requires": ["cuda_nvcc"]}, "build_requires: there is no 'cuda_nvcc'"),
        ({"license": None, "licence": "MIT"}, "licence: unknown key; did you mean 'license'?"),
        ({"costs": [{"unit": 1}]}, "costs.0.unit: unknown key; did you mean 'units'?"),
        (
            {"arch_map": {"kind": "single", "varable": "X"}},
            "arch_map.varable: unknown key; did",
        ),
        ({"environment": {"ENVIRONMENT": [1]}}, "environment.ENVIRONMENT"),
        ({"version": [1.5]}, "version: "),
        ({"versions": {}}, "expected one or more"),
        ({"versions": {"1": {"name": "x"}}}, "does not vary"),
        ({"versions": {"1": []}}, "expected a name and keys"),
        ({"versions": {"1": {}}, "default": "2"}, "unknown default version '2'"),
    ],
)
def test_contradictions_are_refused(tmp_path: Path, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        change(tmp_path, **keys)
    assert said in caught.value.message
    assert "smoke-attention.yaml" in caught.value.message
    assert caught.value.hint


def test_a_mistake_is_said_once(tmp_path: Path) -> None:
    """Of the kind of source that is meant, and nothing that only follows from it."""
    with pytest.raises(ConfigError) as caught:
        change(tmp_path, source={"git": "https://x/y", "commit": "main"}, local_version=None)
    (line,) = caught.value.message.splitlines()
    assert line.startswith(f"{tmp_path}/smoke-attention.yaml: source.commit: ")
    assert line.endswith("(found 'main')")


@pytest.mark.parametrize("torch", [None, "2.8"])
def test_the_default_name_depends_on_torch(tmp_path: Path, torch: str | None) -> None:
    recipe = change(tmp_path, local_version=None, torch=torch)
    found = local_version(recipe, "13.0", torch, ".sandbox")
    assert found == ("cu130torch2.8.sandbox" if torch else "cu130.sandbox")


def test_the_version_is_named_in_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"yaml: versions\.2: environment\.A: unknown field"):
        change(tmp_path, versions={"1": PINNED, "2": PINNED | {"environment": {"A": "{x}"}}})
    with pytest.raises(ConfigError, match=r"yaml: versions\.2: smoke: there is no suite 'x'"):
        change(tmp_path, versions={"1": PINNED, "2": PINNED | {"smoke": "x"}})


def test_a_project_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    with pytest.raises(ConfigError, match="has neither pyproject"):
        change(tmp_path, source={"path": str(tmp_path / "tree")})
    (tmp_path / "tree/pyproject.toml").touch()
    assert change(tmp_path, source={"path": str(tmp_path / "tree")})
    with pytest.raises(ConfigError, match="; did you mean 'tree'"):
        change(tmp_path, source={"path": str(tmp_path / "trees")})


def test_what_the_wheel_requires_is_installed_for_its_test(tmp_path: Path) -> None:
    """Before anything is built; it failed after hours, and only where no other had left it."""
    requires = (
        "torch",
        "pytest",
        "Iniconfig",  # comes with pytest
        "resource-only; sys_platform == 'linux'",
        "more; extra == 'dev'",
    )
    own = {"source": {"path": str(tmp_path)}, "torch": "2.10"}
    file = tmp_path / "pyproject.toml"
    file.write_text(f"[project]\nname = 'x'\ndependencies = {[*requires]}\n", "utf-8")
    assert change(tmp_path, **own)
    file.write_text(f"[project]\ndependencies = {[*requires, 'NumPy>=1.20']}\n", "utf-8")
    with pytest.raises(ConfigError, match=r"test_requires: .* requires numpy") as caught:
        change(tmp_path, **own, test_requires=["jinja2"])
    assert caught.value.hint == "Add it: test_requires: [jinja2, numpy]"
    assert change(tmp_path, **own, test_requires=["numpy"])


def test_a_version_replaces_keys_and_merges_the_environment(tmp_path: Path) -> None:
    own = {"archs": "80", "environment": {"A": "{version}"}}
    made = change(tmp_path, versions={"1": PINNED | own})
    assert (made.version, made.archs) == ("1", "80")
    assert made.environment == {**SMOKE["environment"], "A": "{version}"}
    with pytest.raises(ConfigError, match="unknown version '2'"):
        load_recipe("smoke-attention", tmp_path, version="2")


def test_the_documented_example_compiles_what_it_says(tmp_path: Path) -> None:
    recipe = load_versions(DOCUMENTED, written(tmp_path / "recipes"))["1.7.0"]
    assert (recipe.version, recipe.torch) == ("1.7.0", "2.8")
    archs = translate_archs(
        recipe.arch_map, parse_gpu_archs(recipe.archs), recipe.cuda, recipe.name
    )
    assert str(archs.effective) == "75;80;87;89;90;100;120"


# -- how far a build is ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("[3/73] attention.cu 10.0s", Step(3, 73, "attention.cu")),
        # as ninja says it when torch asks for all
        (
            r"[3/73] C:\cuda\bin\nvcc -c C:\b\1\src\csrc\flash.cu -o C:\b\flash.obj",
            Step(3, 73, "flash.cu"),
        ),
        (r"[4/5] cl.exe /c D:\x\a-b_1.cpp /Foa.obj", Step(4, 5, "a-b_1.cpp")),
        ("[5/5] link", Step(5, 5, "link")),
        ("[5/5]", Step(5, 5, "")),
        (f"[{'9' * 30}/{'9' * 30}] x", None),  # more than any build has
        ("[\u0663/\u0667] x", None),
        ("x [3/73] a.cu", None),
    ],
)
def test_lines_that_say_how_far_a_build_is(line: str, found: Step | None) -> None:
    assert make_progress_parser(load_recipe("flash-attn").progress)(line) == found


def test_other_words_for_it() -> None:
    read_line = make_progress_parser("Compiling {done} of {total} (*): ")
    assert read_line("Compiling 2 of 9 (*): a.cu") == Step(2, 9, "a.cu")
    assert read_line("Compiling 2 of 9 (xx): a.cu") is None


def test_no_line_takes_long() -> None:
    """A regular expression of the recipe's own could take for ever, here the cost is bounded."""
    began = time.monotonic()
    for hostile in ("a" * 10**6, "a." * 10**6, "a.c" * 10**6, "[1/2]" * 10**6):
        make_progress_parser("[{done}/{total}]")("[1/2] " + hostile)
    assert time.monotonic() - began < 5  # milliseconds, on an idle machine


# -- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "local"),
    [
        ("cu{cuda}torch{torch}{stamp}", "cu128torch2.8.sandbox"),
        ("cu{cuda_major}torch{torch}cxx11abiFALSE", "cu12torch2.8cxx11abifalse"),
        ("cu{cuda}torch{torch_full}cxx11abiFALSE", "cu128torch2.8.1cxx11abifalse"),
    ],
)
def test_conventions_of_names(template: str, local: str) -> None:
    recipe = load_recipe("flash-attn").model_copy(update={"local_version": template})
    found = local_version(recipe, "12.8", "2.8.1", ".sandbox")
    assert found == local
    assert expected_wheel_name(recipe, found, "3.12") == (
        f"flash_attn-2.8.3.post2+{local}-cp312-cp312-win_amd64.whl"
    )


@pytest.mark.parametrize("template", ["{cudas}", "cu {cuda}", "{0}", "cu{cuda"])
def test_templates_that_give_no_name(template: str) -> None:
    recipe = load_recipe("flash-attn").model_copy(update={"local_version": template})
    with pytest.raises(ConfigError, match="local_version"):
        local_version(recipe, "12.8", "2.8")


def test_the_two_ways_to_set_archs_do_not_meet(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="set by arch_map"):
        change(tmp_path, arch_map={"kind": "torch"}, environment={"TORCH_CUDA_ARCH_LIST": "x"})


# -- sources --------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(load_lock(), tmp_path / "cache")


def file_recipe(tmp_path: Path, cache: Cache, members: dict[str, bytes], **keys: Any) -> Recipe:
    import hashlib
    import io
    import tarfile

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    data = buffer.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    place = cache.place("a-1.tar.gz", digest)
    place.parent.mkdir(parents=True)
    place.write_bytes(data)
    source = {"url": "https://a.invalid/a-1.tar.gz", "file": "a-1.tar.gz"}
    pin = {"sha256": digest, "size": len(data)}
    return change(tmp_path, versions={"1": {"source": source | pin}}, **keys)


def test_a_directory_packs_the_same_each_time(cache: Cache) -> None:
    recipe = load_recipe("smoke-attention")
    packed = SourceTree(recipe, cache).pack().data
    assert packed == SourceTree(recipe, cache).pack().data
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        names = archive.getnames()
    assert names == sorted(names)
    assert "pyproject.toml" in names
    assert not [name for name in names if "__pycache__" in name]
    assert "setup.py" in (SourceTree(recipe, cache).names() or [])


def test_a_pinned_file_packs_without_its_top_directory(tmp_path: Path, cache: Cache) -> None:
    members = {"a-1/setup.py": b"x", "a-1/amd/long.cu": b"y", "a-1/k.cu": b"z"}
    recipe = file_recipe(tmp_path, cache, members, exclude=["amd/*"])
    made = SourceTree(recipe, cache).pack().data
    assert made == pack_source_tree([("k.cu", b"z"), ("setup.py", b"x")])
    assert made == SourceTree(recipe, cache).pack().data
    assert included_files(SourceTree(recipe, cache).names() or [], recipe.exclude) == [
        "setup.py",
        "k.cu",
    ]


def test_a_commit_that_was_damaged_in_the_cache_is_packed_anew(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []

    def commit(source: GitSource) -> Iterator[tuple[str, bytes]]:
        fetched.append(source.commit)
        yield "Cargo.toml", b"x"

    monkeypatch.setattr("pipelines.recipe.sourcetree.commit_files", commit)
    recipe = load_recipe("candle-flash-attn")
    whole = SourceTree(recipe, cache).pack().data
    assert SourceTree(recipe, cache).pack().data == whole
    assert SourceTree(recipe, cache).names() == ("Cargo.toml",)
    assert len(fetched) == 1
    (path,) = cache.root.rglob("*.tar.gz")
    path.write_bytes(whole[:-1] + b"!")
    assert SourceTree(recipe, cache).names() is None
    with pytest.raises(LockError, match=r"\.tar\.gz is damaged"):
        SourceTree(recipe, Cache(cache.lock, cache.root, offline=True)).pack()
    assert SourceTree(recipe, cache).pack().data == whole
    assert len(fetched) == 2


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("setup.py", LockError, "not a regular file"),
        ("a-1/../../setup.py", LockError, "not a regular file"),
        ("a-1/readme", ConfigError, "not a source tree"),
    ],
)
def test_archives_with_odd_members_are_refused(
    tmp_path: Path, cache: Cache, name: str, error: type[Exception], said: str
) -> None:
    recipe = file_recipe(tmp_path, cache, {name: b"x"})
    with pytest.raises(error, match=said):
        SourceTree(recipe, cache).pack()


def test_a_file_whose_bytes_are_others_is_refused(tmp_path: Path, cache: Cache) -> None:
    recipe = file_recipe(tmp_path, cache, {"a-1/setup.py": b"x"})
    assert isinstance(recipe.source, FileSource)
    cache.place(recipe.source.file, recipe.source.sha256).write_bytes(b"short")
    with pytest.raises(LockError, match="could not be fetched"):
        SourceTree(recipe, cache).pack()  # it is fetched again, from a place that does not exist


def git(tree: Path, *words: str) -> str:
    import subprocess

    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_a_commit_with_its_submodule(tmp_path: Path) -> None:
    for name in ("inner", "outer"):
        tree = tmp_path / name
        tree.mkdir()
        git(tree, "init", "--quiet")
        (tree / "setup.py").write_text(name)
        if name == "outer":
            inner = f"file://{tmp_path}/inner"
            git(tree, "-c", "protocol.file.allow=always", "submodule", "add", inner, "dep")
        git(tree, "add", ".")
        git(tree, "commit", "--quiet", "-m", name)
    commit = git(tmp_path / "outer", "rev-parse", "HEAD").strip()

    def source(commit: str, *submodules: str) -> GitSource:
        url = f"file://{tmp_path}/outer"
        return GitSource.model_construct(git=url, commit=commit, submodules=submodules)

    whole = dict(commit_files(source(commit, "dep"), "file"))
    assert (whole["setup.py"], whole["dep/setup.py"]) == (b"outer", b"inner")
    assert "dep/setup.py" not in dict(commit_files(source(commit), "file"))
    with pytest.raises(LockError, match="fetch failed"):
        list(commit_files(source(commit)))  # only https, unless a test says so
    with pytest.raises(LockError, match="fetch failed"):
        list(commit_files(source("0" * 40), "file"))


def test_links_of_a_commit_are_the_files_that_they_lead_to(tmp_path: Path) -> None:
    """The same on a Windows, which makes none without a privilege."""
    tree = tmp_path / "there"
    (tree / "a/b").mkdir(parents=True)
    git(tree, "init", "--quiet")
    (tree / "setup.py").write_text("here")
    (tree / "a/b/file").write_text("deep")
    links = {
        "to-file": "a/b/file",
        "a/up": "../setup.py",
        "folder": "a/b",
        "through": "folder/file",
        "chain": "through",
        "nowhere": "not/there",
        "round": "round",
    }
    for name, to in links.items():
        (tree / name).symlink_to(to)
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "-m", "x")
    commit = git(tree, "rev-parse", "HEAD").strip()
    source = GitSource.model_construct(git=f"file://{tree}", commit=commit, submodules=())
    deep = dict.fromkeys(("a/b/file", "to-file", "through", "chain"), b"deep")
    assert dict(commit_files(source, "file")) == deep | {"setup.py": b"here", "a/up": b"here"}
    for out in ("/etc/hostname", "../outside", "a/../../outside"):
        (tree / "to-file").unlink()
        (tree / "to-file").symlink_to(out)
        git(tree, "commit", "--quiet", "-am", "out")
        source = source.model_copy(update={"commit": git(tree, "rev-parse", "HEAD").strip()})
        with pytest.raises(ConfigError, match="to-file of that commit is a link out of the tree"):
            list(commit_files(source, "file"))


def test_a_commit_has_its_own_line_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows those of text would be CRLF (core.eol is native there), here by a setting."""
    git(tmp_path, "init", "--quiet")
    (tmp_path / ".gitattributes").write_text("* text=auto\n")
    (tmp_path / "setup.py").write_bytes(b"a\nb\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "a")
    for name, value in (("COUNT", "1"), ("KEY_0", "core.eol"), ("VALUE_0", "crlf")):
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    commit = git(tmp_path, "rev-parse", "HEAD").strip()
    source = GitSource.model_construct(git=f"file://{tmp_path}", commit=commit, submodules=())
    assert dict(commit_files(source, "file"))["setup.py"] == b"a\nb\n"


# -- a cargo build's library ----------------------------------------------------------------------


@pytest.mark.parametrize("error", ["None", "OSError('no such procedure')"])
def test_xformers_has_one_library_from_0_0_35_on(tmp_path: Path, error: str) -> None:
    """``xformers._C`` is no module there, and what does not load is no error of the import."""
    recipe = load_recipe("xformers", version="0.0.35")
    assert {part.name for part in recipe.vendored} == {"CUTLASS"}
    for name, text in {
        "torch.py": "",
        "xformers/__init__.py": "",
        "xformers/_cpp_lib.py": f"_cpp_library_load_exception = {error}",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    own = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", recipe.verify]
    done = subprocess.run(command, env=own, capture_output=True, check=False)
    assert (done.returncode == 0) == (error == "None")


def test_the_library_is_made_before_cargo_runs() -> None:
    recipe = load_recipe("candle-flash-attn")
    base = "candle-flash-attn/kernels"
    names = ["flash_api.cu", "flash_fwd_hdim32_sm80.cu", "flash_fwd_hdim256_sm80.cu", "flash.h"]
    tree = [*(f"{base}/{name}" for name in names), "candle-core/a.cu"]
    made = library_build_steps(recipe, tree, key="k", arch="89")
    assert [unit.source for unit in made.units] == [
        "kernels/flash_fwd_hdim256_sm80.cu",
        "kernels/flash_fwd_hdim32_sm80.cu",
        "kernels/flash_api.cu",
    ]
    assert made.units[-1].object == "flash_api.obj"
    assert made.compiler[:3] == ("nvcc", "--gpu-architecture=sm_89", "-c")
    assert "-fPIC" not in made.compiler
    assert made.archiver == ("lib", "/NOLOGO", "/OUT:{out}")
    assert made.library == ("libflashattention.a", "flashattention.lib")
    assert made.variable == "CANDLE_FLASH_ATTN_BUILD_DIR"
    assert made.directory == "candle-flash-attn"
    assert json.loads(json.dumps(made.spec()))["units"][0]["object"].endswith(".obj")
    elsewhere = library_build_steps(recipe, tree, key="k", arch="89", windows=False)
    assert elsewhere.compiler[-2:] == ("-Xcompiler", "-fPIC")
    assert elsewhere.archiver[0] == "ar"
    with pytest.raises(ConfigError, match="0 kernels"):
        library_build_steps(recipe, [], key="k", arch="89")


def test_the_key_has_all_that_decides_the_objects() -> None:
    recipe = load_recipe("candle-flash-attn")
    assert recipe.library is not None
    given = {"cuda": "12.8", "arch": "89"}
    key = library_key(recipe, "a", **given)
    assert key == library_key(recipe, "a", **given)
    flags = recipe.library.model_copy(update={"flags": ("-O2",)})
    others = [library_key(recipe, "b", **given)]
    others += [library_key(recipe, "a", **{**given, name: "x"}) for name in given]
    others.append(library_key(recipe.model_copy(update={"library": flags}), "a", **given))
    assert len({key, *others}) == 5


def test_gsplat_has_two_modules_from_1_6_on() -> None:
    """The second is of an experimental renderer, and its suite needs nvtx."""
    recipe = load_recipe("gsplat", version="1.6.0")
    assert "nvtx" in recipe.test_requires
    assert any("experimental" in path for path in recipe.objects.relative)
