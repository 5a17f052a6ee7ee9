"""What a recipe sets for some releases only: for MSVC, and for no other compiler."""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from recipefiles import SHIPPED

from pipelines.cli import program
from pipelines.core.architectures.archs import parse_arch_list
from pipelines.core.errors import ConfigError
from pipelines.core.finding import Finding
from pipelines.core.target import Target
from pipelines.core.toolsets import NATIVE
from pipelines.core.versions import release_in_range
from pipelines.diagnosis.heal import Settings, heal
from pipelines.diagnosis.matcher import diagnose
from pipelines.hosts.base import Supply, supply_of
from pipelines.plan.config.presets import load_presets
from pipelines.plan.matrix.compat import load_compat
from pipelines.plan.matrix.hostfacts import HostFacts
from pipelines.plan.matrix.judge import Ground, Judged, judge_targets
from pipelines.recipe.load import for_cell, load_recipe, load_versions
from pipelines.recipe.model import Fix, Recipe, known_fixes
from pipelines.recipe.naming import with_fixes
from pipelines.recipe.patches import apply_patches, read_patch
from pipelines.recipe.reproducible import reproducible_environment
from pipelines.recipe.sourcetree import archive_if_here
from pipelines.stages.buildspec import environment_of
from pipelines.toolchain.lock import Cache, load_lock

FLASH = load_recipe("flash-attn")
ZC, MATHS, CXX20 = "-Xcompiler=/Zc:preprocessor", "-D_USE_MATH_DEFINES", "-std=c++20"


@pytest.mark.parametrize(
    ("cuda", "torch", "nvcc", "cl"),
    [
        ("12.8", "2.8", [MATHS], None),
        ("13.0", "2.12", [MATHS], None),
        ("13.0", "2.13", [MATHS, CXX20], None),
        ("13.2", "2.12", [ZC, MATHS], "/Zc:preprocessor"),
        ("13.4", "2.15", [ZC, MATHS, CXX20], "/Zc:preprocessor"),
    ],
)
def test_flags_go_by_the_releases(cuda: str, torch: str, nvcc: list[str], cl: str | None) -> None:
    made = with_fixes(FLASH, {"MAX_JOBS": "2"}, cuda, torch)
    assert made["NVCC_APPEND_FLAGS"].split() == nvcc
    assert made.get("CL") == cl
    assert made["MAX_JOBS"] == "2"
    # /std: in CL reaches the cl that nvcc starts, and cudafe++ dies of it.
    assert "/std:" not in str(made.get("CL"))
    assert "_CL_" not in made


def test_what_stands_there_already_stays() -> None:
    """nvcc takes the last of two -std; another package's own flags come first."""
    made = with_fixes(FLASH, {"NVCC_APPEND_FLAGS": "-lineinfo", "CL": ""}, "13.2", "2.14")
    assert made["NVCC_APPEND_FLAGS"] == f"-lineinfo {ZC} {MATHS} {CXX20}"
    assert made["CL"] == "/Zc:preprocessor"
    both = reproducible_environment(made, "MSVC", "13.2", {"environment": "e", "toolkit": "t"})
    assert both["NVCC_APPEND_FLAGS"].endswith(CXX20)
    assert "--objdir-as-tempdir" in both["NVCC_APPEND_FLAGS"]
    assert both["CL"].startswith("/Brepro")
    assert both["CL"].endswith("/Zc:preprocessor")


def test_a_package_without_torch() -> None:
    fix = Fix(torch=">=2.13", flags={"CL": "/x"}, why="x", source="https://x.org/")
    assert not fix.applies("13.0", None)
    assert not fix.applies("13.0", "2.12")
    assert fix.applies("13.0", "2.13")
    assert not Fix(cuda=">=13.2", flags={"CL": "/x"}, why="x", source="https://x.org/").applies(
        "13.0", None
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"flags": {}},
        {"flags": {"PATH": "C:\\evil"}},
        {"flags": {"CL": ""}},
        {"cuda": "new"},
        {"rule": "No Rule"},
        {"source": "http://x.org/"},
    ],
)
def test_a_fix_that_makes_no_sense(wrong: dict[str, object]) -> None:
    good = {"flags": {"CL": "/x"}, "why": "x", "source": "https://x.org/"}
    Fix.model_validate(good)
    with pytest.raises(ValueError, match="validation error"):
        Fix.model_validate(good | wrong)


def test_a_fix_by_its_name() -> None:
    """Those of fixes.yaml are named by their rule; another name is refused with these."""
    small = {"torch-small-macro", "zc-preprocessor"}
    assert {one.rule for one in FLASH.fixes} > small == {*known_fixes()}
    keys = FLASH.model_dump(exclude={"fixes"}, exclude_defaults=True)
    named = Recipe.model_validate(keys | {"fixes": ["zc-preprocessor"]})
    assert with_fixes(named, {}, "13.2", "2.8") == {
        "NVCC_APPEND_FLAGS": ZC,
        "CL": "/Zc:preprocessor",
    }
    with pytest.raises(ValueError, match="expected torch-small-macro, zc-preprocessor, or"):
        Recipe.model_validate(keys | {"fixes": ["zc"]})


def judged_with(recipe: Recipe, cuda: str, torch: str, msvc: str = "14.44.35207") -> list[Judged]:
    cell = Target(host="lab", recipe=recipe.name, version=recipe.version, python="3.13",
                  torch=torch, cuda=cuda, archs=parse_arch_list("90"))  # fmt: skip
    supply: Supply = supply_of(load_lock())
    ground = Ground(HostFacts(16, 1 << 40, msvc=msvc), "C:\\b", supply)
    return judge_targets(recipe, [cell], ground)


def findings(recipe: Recipe, cuda: str, torch: str) -> list[Finding]:
    (row,) = judged_with(recipe, cuda, torch)
    return [one for one in row.findings if one.id in ("zc-preprocessor", "torch-cxx20")]


def test_a_plan_says_that_the_recipe_answers_a_rule() -> None:
    """And goes on to warn of those that no fix is for."""
    both = findings(FLASH, "13.2", "2.14")
    assert {one.id for one in both} == {"zc-preprocessor", "torch-cxx20"}
    assert all("the recipe sets" in one.actual and not one.hint for one in both)


@pytest.mark.parametrize("version", [*load_versions("flash-attn")])
def test_every_version_of_flash_attn_answers_torch_s_cxx20_or_is_not_for_it(version: str) -> None:
    """Each pins C++17 for nvcc, with which the headers of torch 2.13 do not compile."""
    recipe = load_recipe("flash-attn", version=version)
    (judged,) = judged_with(recipe, "13.0", "2.13")
    found = {one.id: one for one in judged.findings}
    if "recipe-torch" in found:
        assert found["recipe-torch"].failed
        assert release_in_range("2.12", recipe.supports.torch)
        return
    assert f"the recipe sets NVCC_APPEND_FLAGS={CXX20}" in found["torch-cxx20"].actual
    assert not found["torch-cxx20"].hint
    # Where setup.py tells cl.exe, it tells C++17; where it does not, torch tells C++20.
    assert bool(recipe.patches) is (version != "2.7.4.post1")
    (older,) = judged_with(recipe, "13.0", "2.12")
    assert "torch-cxx20" not in {one.id for one in older.findings}


def test_a_compiler_that_gets_no_fixes_is_warned_of() -> None:
    """``environment`` of a build sets them for MSVC alone, and a plan is not to promise more."""
    cell = Target(host="here", recipe="flash-attn", version=FLASH.version, python="3.13",
                  torch="2.14", cuda="13.0", archs=parse_arch_list("90"))  # fmt: skip
    supply = replace(supply_of(load_lock()), toolset=NATIVE)
    (row,) = judge_targets(FLASH, [cell], Ground(HostFacts(16, 1 << 40), "/b", supply))
    (finding,) = [one for one in row.findings if one.id == "torch-cxx20"]
    assert finding.hint
    assert "the recipe sets" not in finding.actual
    cell = cell.model_copy(update={"torch": "2.11"})
    (row,) = judge_targets(FLASH, [cell], Ground(HostFacts(16, 1 << 40), "/b", supply))
    assert not {*known_fixes()} & {one.id for one in row.findings}  # of cl and Windows' headers


def test_a_package_whose_recipe_says_nothing_is_warned_of() -> None:
    silent = FLASH.model_copy(update={"fixes": ()})
    (finding,) = [one for one in findings(silent, "13.0", "2.14") if one.id == "torch-cxx20"]
    assert finding.hint
    assert "the recipe sets" not in finding.actual


def test_rules_that_fixes_name_are_there() -> None:
    from pipelines.plan.matrix.compat import load_compat

    known = {rule.id: rule for rule in load_compat().rules}
    for name in ("flash-attn", "xformers"):
        for recipe in load_versions(name).values():
            for fix in recipe.fixes:
                assert fix.rule is None or known[fix.rule].level == "warning"


def test_healing_adds_nothing_that_is_there() -> None:
    """The same flag twice would be another build, and no better one."""
    log = (
        b"preprocessor.h(20): fatal error C1189: #error: "
        b"MSVC/cl.exe with traditional preprocessor is used.\n"
    )
    found = diagnose(io.BytesIO(log))
    assert found
    fixed = Settings(1, "C:\\b", environment=with_fixes(FLASH, {}, "13.2", "2.8"))
    assert heal(found, fixed, []) is None
    change = heal(found, Settings(1, "C:\\b"), [])
    assert change is not None
    assert change.settings.environment["NVCC_APPEND_FLAGS"] == ZC


def members(name: str) -> Iterator[tuple[str, bytes]]:
    """The files of the pinned source distribution, where it was fetched once."""
    recipe = load_recipe("flash-attn", version=name)
    archive = archive_if_here(recipe, Cache(load_lock()))
    if archive is None:
        pytest.skip("the source distribution is not in the download cache")
    with tarfile.open(archive) as inside:
        for member in inside:
            if member.name.endswith("/setup.py") and member.name.count("/") == 1:
                file = inside.extractfile(member)
                assert file is not None
                yield "setup.py", file.read()


def test_the_patch_fits_the_source_it_is_for() -> None:
    """And no other release of it."""
    ((_, old),) = members("2.8.3.post2")
    ((_, new),) = apply_patches(FLASH, [("setup.py", old)])
    compile(new, "setup.py", "exec")
    added = [one for one in new.splitlines() if one not in old.splitlines()]
    assert any(b"/std:c++20" in one for one in added)
    assert len(new.splitlines()) == len(old.splitlines()) + 4
    with pytest.raises(ConfigError, match="does not fit setup"):
        list(apply_patches(FLASH, [("setup.py", old.replace(b'"/std:c++17"', b'"/std:c++14"'))]))
    with pytest.raises(ConfigError, match="does not fit setup"):
        list(apply_patches(FLASH, [("setup.py", b"# upstream moved on\n" + old)]))
    ((_, older),) = members("2.7.4.post1")
    with pytest.raises(ConfigError, match="does not fit setup"):
        list(apply_patches(FLASH, [("setup.py", older)]))


@pytest.mark.parametrize(
    ("torch", "flags"),
    [
        ("2.12.1+cu130", ["-O2", "/std:c++17", "/Zc:__cplusplus"]),
        ("2.13.0+cu130", ["-O2", "/std:c++20", "/permissive-", "/Zc:__cplusplus"]),
        ("2.15.0", ["-O2", "/std:c++20", "/permissive-", "/Zc:__cplusplus"]),
    ],
)
def test_what_the_patch_does(torch: str, flags: list[str]) -> None:
    """Its added lines, run as setup.py would run them."""
    from types import SimpleNamespace

    from packaging.version import Version

    (patch,) = FLASH.patches
    ((_, (hunk,)),) = read_patch(patch).items()
    start = next(at for at, one in enumerate(hunk.new) if "compiler_c17_flag=" in one)
    body = "".join(one[8:] if one.strip() else one for one in hunk.new[start : start + 5])
    names = {"torch": SimpleNamespace(__version__=torch), "Version": Version}
    exec(compile(body, "patch", "exec"), names)  # noqa: S102 - our own patch
    assert names["compiler_c17_flag"] == flags


def test_nothing_of_it_reaches_another_compiler(tmp_path: Path) -> None:
    """gcc, and clang that stands in for MSVC, would stop at /Zc:preprocessor."""
    from plans import Lab

    from pipelines.plan.config.model import Config
    from pipelines.plan.matrix.buildplan import Request, resolve_build_plan

    lab = {"kind": "winrm", "endpoint": "https://lab.invalid:5986/wsman", "username": "u"}
    lab["password_env"] = "NOT_SET"
    local = {"kind": "local", "python": sys.executable, "root": str(tmp_path)}
    hosts = {"lx": local, "sandbox": {"kind": "sandbox"}, "lab": lab}
    settings = Config.model_validate({"hosts": hosts, "out": str(tmp_path)})
    axes = {"recipe": "flash-attn", "python": "3.13", "torch": "2.14", "cuda": "13.2"}
    said = {}
    for name in ("lx", "sandbox", "lab"):
        plan = resolve_build_plan(settings, Request(axes={**axes, "host": name}),
                       host=Lab() if name == "lab" else None)  # fmt: skip
        said[name] = environment_of(plan, 1).get("NVCC_APPEND_FLAGS", "")
    assert said == {"lx": "", "sandbox": "", "lab": f"{ZC} {MATHS} {CXX20}"}


#: Kernels with TMA, which no recipe of ours has for Windows: said, and nothing to answer.
NOT_OURS = {"align-c2719"}


@pytest.mark.parametrize("name", [*SHIPPED, "smoke-attention-torch"])
def test_no_default_of_ours_breaks_a_rule_of_ours(name: str) -> None:
    """Every version of every recipe, as it is and in the cells of every preset."""
    for recipe in load_versions(name).values():
        axes = [{}, *(one.axes.flags for one in load_presets().values())]
        for asked in axes:
            cuda, torch = asked.get("cuda", recipe.cuda), asked.get("torch", recipe.torch or "")
            if not release_in_range(cuda, recipe.supports.cuda) or cuda not in str(
                supply_of(load_lock()).cuda
            ):
                continue  # that is another rule's
            found = unanswered(for_cell(recipe, cuda=cuda), torch, "80" if asked else recipe.archs)
            assert found <= NOT_OURS, (recipe.version, cuda, torch)


def unanswered(recipe: Recipe, torch: str, archs: str) -> set[str]:
    """The rules of compat.yaml that a cell breaks and its recipe does not answer."""
    rules = {rule.id for rule in load_compat().rules}
    python = recipe.pythons[-1] if recipe.pythons else "3.12"
    cell = Target(host="lab", recipe=recipe.name, version=recipe.version, python=python,
                  torch=torch, cuda=recipe.cuda, archs=parse_arch_list(archs))  # fmt: skip
    ground = Ground(HostFacts(16, 1 << 40, msvc="14.44.35207"), "C:\\b", supply_of(load_lock()))
    (row,) = judge_targets(recipe, [cell], ground)
    return {one.id for one in row.findings if one.id in rules and "recipe sets" not in one.actual}


def test_what_init_writes_by_default_breaks_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "setup.py").write_text(
        "from setuptools import setup\nfrom torch.utils.cpp_extension import CUDAExtension\n"
        "setup(name='mine', version='1', ext_modules=[CUDAExtension('mine._C', ['a.cu'])])\n"
    )
    (tmp_path / "a.cu").touch()
    assert program.run_command_line(["init", "--yes"]) == 0
    recipe = load_recipe("mine")
    assert unanswered(recipe, str(recipe.torch), recipe.archs) <= NOT_OURS
    assert {one.rule for one in recipe.fixes} == {"torch-small-macro"}
