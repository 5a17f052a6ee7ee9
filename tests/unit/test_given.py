"""``invoke test --wheel``: what may be asked for, what is refused, what is shown of the wheel."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from foreign_wheels import foreign, index
from packaging.tags import parse_tag
from plans import LAB, PYTHON, Desk, Lab, line_for, wanting
from pydantic import ValidationError
from sessions import Here
from test_suite_stage import FAILED, PASSED, Suite
from typed import calls, flags
from wheels import FILES, NAME, checked, fatbin, pe, wheel

from pipelines.core import hosttext
from pipelines.core.errors import AuditError, ConfigError, LockError, SetupError, SmokeError
from pipelines.core.files import sha256_of
from pipelines.core.hosttext import redact
from pipelines.hosts.base import Capabilities, Host
from pipelines.hosts.gpus import by_bridge
from pipelines.plan.config.model import Config
from pipelines.plan.matrix.buildplan import BuildPlan, Request, resolve_build_plan
from pipelines.plan.prebuilt import closure
from pipelines.plan.prebuilt.candidates import Offer
from pipelines.plan.prebuilt.closure import find_uv, resolve_closure
from pipelines.plan.prebuilt.decide import examine_external
from pipelines.plan.prebuilt.downloads import fetch_all, fetch_url
from pipelines.plan.prebuilt.external import (
    ExternalWheel,
    read_external,
    recipe_of,
    refuse_incompatible,
    with_companions,
)
from pipelines.recipe.model import Recipe
from pipelines.recipe.suite import suite_of_given
from pipelines.record.results import AuditResult, PrebuiltResult, SmokeResult
from pipelines.record.run import StageLog
from pipelines.reports.load import load_view
from pipelines.reports.runs import runs_in
from pipelines.stages import given as stage
from pipelines.stages.given import cure_of, run_given, show_given
from pipelines.stages.hooks import Stage
from pipelines.stages.line import AUDIT, Line, run_build
from pipelines.stages.test import _refuse_shadows
from pipelines.toolchain.lock import Cache, load_lock
from pipelines.wheels.checking import Installation
from pipelines.wheels.libraries import (
    hint_for,
    library_providers,
    library_table,
    mentioned_cuda_libraries,
    missing_dlls,
)
from pipelines.wheels.tags import WINDOWS, tag_incompatibility

HASH = "0" * 64


@pytest.fixture(autouse=True)
def no_uv_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither the indexes of this machine's uv, nor its cache; and no second try."""
    for name in [name for name in os.environ if name.startswith(("UV_", "PIP_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))


# -- what is asked for -----------------------------------------------------------------------------


def test_a_release_of_an_index() -> None:
    given = read_external("Some_Name[b,a]==1.2+cu121")
    assert (given.name, given.version, given.extras) == ("some-name", "1.2+cu121", ("a", "b"))
    assert given.release == "some-name[a,b]==1.2+cu121"
    assert given.place == ""


def test_a_url_is_told_without_what_may_be_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosttext, "_secrets", set())  # "alone" is a word of other tests
    given = read_external(
        f"https://u:pw@h.example/a/{NAME.replace('+', '%2B')}?token=t#sha256={HASH}"
    )
    assert given.requested == f"https://h.example/a/{NAME.replace('+', '%2B')}"
    assert (given.name, given.version, given.stated) == ("pkg", "1.0+cu130", HASH)
    assert given.url.endswith("?token=t")
    assert read_external(f"https://h.example:8443/{NAME}").requested.startswith(
        "https://h.example:8443/"
    )
    read_external(f"https://u:unsaid@h.example/{NAME}?sig=untold")
    assert redact("https://u:unsaid@h.example/?sig=untold") == "https://u:***@h.example/?***"
    read_external(f"https://alone@h.example/{NAME}")
    read_external(f"https://u:un%40coded@h.example/{NAME}")
    assert redact("alone un%40coded un@coded") == "*** *** ***"


def test_a_sha256_in_capitals_is_compared_too() -> None:
    assert read_external(f"https://h.example/{NAME}#sha256={HASH.upper()}").stated == HASH


def test_a_file(tmp_path: Path) -> None:
    path = foreign(tmp_path)
    given = read_external(str(path))
    assert (given.name, given.version, given.place, given.url) == ("other", "1.0", str(path), "")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("xgboost", "expected one version"),
        ("xgboost>=1", "expected one version"),
        ("xgboost==1.*", "expected one version"),
        ("xgboost==1,<2", "expected one version"),
        ("xgboost==1; os_name=='nt'", "expected one version"),
        (
            "xgboost @ https://x.example/x.whl",
            "expected https|not the name of a wheel|no such file",
        ),
        ("-r x", "expected NAME==VERSION"),
        ("x==1!2.0", "cannot be used: 1!2.0"),
        (f"{'x' * 90}==1", "cannot be used"),
        ("gone-1.0-py3-none-any.whl", "no such file"),
        ("../../nowhere.whl", "no such file"),
        ("http://x.example/a-1-py3-none-any.whl", "expected https"),
        ("ftp://x.example/a-1-py3-none-any.whl", "expected https"),
        (f"https://x.example/{NAME}#sha256=ab", "expected sha256= and 64"),
        (f"https://x.example/{NAME}#md5=ab", "expected sha256= and 64"),
        (f"https://[x.example/{NAME}", "expected the address of a file"),
        (f"https:///{NAME}", "expected the address of a file"),
        (f"https://x.example:99999999/{NAME}", "expected the address of a file"),
        ("https://x.example/a.whl", "not the name of a wheel"),
        ("https://x.example/a-1.0.tar.gz", "a source distribution"),
        ("https://x.example/a-1-py3-none-any;x.whl", "invalid characters"),
    ],
)
def test_what_is_refused_as_it_is_typed(asked: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        read_external(asked)
    assert caught.value.hint
    assert caught.value.message.startswith("--wheel ")


def test_a_file_that_is_no_wheel(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a directory"):
        read_external(str(tmp_path))
    for name, said in (
        ("x.whl", "not the name of a wheel"),
        ("x-1.0.tar.gz", "source distribution"),
    ):
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(ConfigError, match=said):
            read_external(str(tmp_path / name))


@pytest.mark.parametrize(
    ("tag", "platforms", "why"),
    [
        ("cp311-cp311-win_amd64", WINDOWS, ""),
        ("cp39-abi3-win_amd64", WINDOWS, ""),
        ("py3-none-any", WINDOWS, ""),
        ("cp311-cp311-win32", WINDOWS, "32-bit, but Python on the hosts"),
        ("cp311-cp311-win_arm64", WINDOWS, "for Windows on ARM"),
        ("cp311-cp311-manylinux_2_28_x86_64", WINDOWS, "for Linux"),
        ("cp311-cp311-macosx_11_0_arm64", WINDOWS, "for macOS"),
        ("cp312-cp312-win_amd64", WINDOWS, "for cp312-cp312, not for Python 3.11"),
        ("cp312-abi3-win_amd64", WINDOWS, "for cp312-abi3, not for Python 3.11"),
        ("cp311-cp311-odd", WINDOWS, "for platform odd"),
        ("cp311-cp311-win_amd64", ("linux_x86_64",), "for Windows"),
    ],
)
def test_wheels_for_something_else(tag: str, platforms: tuple[str, ...], why: str) -> None:
    found = tag_incompatibility(parse_tag(tag), "3.11", platforms)
    assert found.startswith(why)
    assert bool(found) == bool(why)


def plan_given(
    tmp_path: Path, asked: str, host: Host | None = None, house: Path | None = None, **axes: Any
) -> BuildPlan:
    """A plan for this wheel; nothing is fetched for it but from ``house``."""
    settings = Config.model_validate(
        {
            "hosts": {"lab": LAB},
            "out": str(tmp_path / "out"),
            "offline": True,
            "wheelhouse": str(house) if house else None,
            "default": {"host": "lab", "python": "3.11"},
        }
    )
    plan = resolve_build_plan(settings, Request(axes=axes, wheel=asked), host=host or Lab())
    cache = Cache(load_lock(), tmp_path / "cache", wheelhouse=house, offline=True)
    return replace(plan, cache=cache)


def test_a_plan_is_of_the_wheel_and_never_publishable(tmp_path: Path) -> None:
    plan = plan_given(tmp_path, "xgboost==3.2.0")
    assert plan.target.id == "xgboost-3.2.0-cp311"
    assert plan.target.cuda == str(plan.target.archs) == ""
    assert plan.host.capabilities.publishable
    assert plan.facts.publishable is False
    ids = {one.id for one in plan.resources.resources if one.concerns(plan.place)}
    assert {"uv", "Python", "C run-time"} <= ids
    assert not {"Build Tools", "CUDA toolkit", "sccache", "build tools", "wheels"} & ids


@pytest.mark.parametrize(
    "axes", [{"cuda": "12.8"}, {"archs": "90"}, {"torch": "2.8"}, {"recipe": "x"}]
)
def test_flags_of_recipes_do_not_go_with_it(tmp_path: Path, axes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"--{next(iter(axes))} .* is for recipes"):
        plan_given(tmp_path, "xgboost==3.2.0", **axes)


@pytest.mark.parametrize("more", ["--select cp311", "--run latest"])
def test_other_wheels_do_not_go_with_it(more: str) -> None:
    with pytest.raises(ConfigError, match="--wheel names another wheel"):
        calls(f"test --wheel x==1 {more}")


def test_the_flags_reach_the_command() -> None:
    assert flags("test --wheel x==1 --with a==1 --with b==2 --script s.py") == [
        {"wheel": "x==1", "with_": ["a==1", "b==2"], "script": "s.py"}
    ]


def test_it_is_not_built(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is nothing to build"):
        run_build(line_for(plan_given(tmp_path, "xgboost==3.2.0")))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"companions": ["a>=1"]}, r"--with a>=1: expected one version"),
        ({"companions": ["a=1"]}, r"--with a=1: expected NAME==VERSION"),
        ({"companions": ["A==1", "a==2"]}, "--with a==2 conflicts with a==1"),
        ({"companions": ["XGBoost==3.1"]}, "--with xgboost==3.1: already"),
        ({"script": "gone.py"}, "--script gone.py: there is no such file"),
        ({"script": str(Path(__file__).parents[2] / "wcw")}, "expected a .py file"),
        ({"script": str(Path(__file__).parents[2] / "docs")}, "has no tests"),
    ],
)
def test_what_does_not_go_with_it_is_refused_before_a_run(
    tmp_path: Path, more: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        run_given(line_for(plan_given(tmp_path, "xgboost==3.2.0")), **more)
    assert "--wheel xgboost==" not in caught.value.hint, "that is not what is to be typed"
    assert not (tmp_path / "out").exists()


def test_what_is_asked_for_twice_is_installed_once() -> None:
    made = with_companions(read_external("x==1"), ["NumPy==1.26.4", "numpy==1.26.4"], None)
    assert made.companions == ("numpy==1.26.4",)


def test_a_dry_run_refuses_what_a_run_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show_given(line_for(plan_given(tmp_path, "xgboost==3.2.0")), companions=["a==1"], script=None)
    assert "a==1" in capsys.readouterr().out
    settings = Config.model_validate({"hosts": {"sandbox": {"kind": "sandbox"}}})
    plan = resolve_build_plan(settings, Request(axes={"python": "3.9"}, wheel="xgboost==3.2.0"))
    with pytest.raises(ConfigError, match=r"sandbox has Python .*, not 3\.9"):
        show_given(line_for(plan), companions=[], script=None)


@pytest.mark.parametrize(
    ("tag", "platforms", "hint"),
    [
        ("cp312-cp312-win_amd64", WINDOWS, "if the host has it, or name its wheel"),
        ("pp310-pypy310_pp73-win_amd64", WINDOWS, "Name its wheel for Python 3.11"),
        ("cp311-cp311-manylinux_2_28_x86_64", WINDOWS, "its win_amd64 wheel"),
        ("cp311-cp311-win_amd64", ("linux_x86_64",), "one for Windows"),
    ],
)
def test_a_wheel_that_does_not_fit_is_told_what_does(
    tmp_path: Path, tag: str, platforms: tuple[str, ...], hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        refuse_incompatible(read_external(str(foreign(tmp_path, tag=tag))), "3.11", platforms)
    assert hint in caught.value.hint


def test_a_wheel_for_another_platform_is_refused_before_a_run(tmp_path: Path) -> None:
    path = foreign(tmp_path, tag="cp311-cp311-win32")
    with pytest.raises(ConfigError, match="32-bit") as caught:
        run_given(line_for(plan_given(tmp_path, str(path))))
    assert "win_amd64" in caught.value.hint
    assert not (tmp_path / "out").exists()


# -- resolving -------------------------------------------------------------------------------------


def closed(house: Path, *wanted: str, python: str = "3.11", **more: Any) -> list[str]:
    given = {"platforms": WINDOWS, "folders": [house], "offline": True, **more}
    return sorted(one.file for one in resolve_closure(wanted, python=python, **given).offers)


def test_markers_are_those_of_windows_and_not_of_this_machine(tmp_path: Path) -> None:
    foreign(
        tmp_path,
        requires=[
            "win; sys_platform == 'win32'",
            "penguin; sys_platform == 'linux'",
            "cpy; implementation_name == 'cpython'",
            "pyp; implementation_name == 'pypy'",
        ],
    )
    for name in ("win", "penguin", "cpy", "pyp"):
        foreign(tmp_path, name)
    names = [file.partition("-")[0] for file in closed(tmp_path, "other==1.0")]
    assert names == ["cpy", "other", "win"]


def test_what_stands_for_a_wheel_is_a_recipe_that_was_checked() -> None:
    recipe = recipe_of(read_external("Some_Name[b]==1.2+cu121"))
    assert (recipe.name, recipe.version, recipe.torch) == ("some-name", "1.2+cu121", None)
    assert (recipe.cuda, recipe.archs, recipe.local_version) == ("", "", "cu{cuda}{stamp}")
    assert {*type(recipe).model_fields} == {*Recipe.model_fields}
    for field in Recipe.model_fields:
        getattr(recipe, field)  # each is there, also what only a build needs
    assert recipe.source is None
    for name, version in (("a/b", "1.0"), ("some-name", "1.0\n"), ("x" * 81, "1"), ("", "1")):
        with pytest.raises(ValidationError):
            recipe_of(ExternalWheel(requested="x", name=name, version=version))


def test_variables_for_uv_choose_no_other_wheels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that say where an index is, and how it is reached, do reach uv."""
    foreign(tmp_path, requires=["needs>=1"])
    elsewhere = tmp_path / "elsewhere"
    for version in ("1.0", "2.0"):
        foreign(tmp_path, "needs", version)
    foreign(elsewhere, "needs", "3.0")
    bounds = tmp_path / "bounds.txt"
    bounds.write_text("needs==1.0\n")
    names = ["needs-2.0-py3-none-any.whl", "other-1.0-py3-none-any.whl"]
    assert closed(tmp_path, "other==1.0") == names
    for variable, value in {
        "UV_RESOLUTION": "lowest",
        "UV_OVERRIDE": str(bounds),
        "UV_CONSTRAINT": str(bounds),
        "UV_FIND_LINKS": str(elsewhere),
        "UV_NO_DEPS": "1",
        "UV_PYTHON_PLATFORM": "linux",
    }.items():
        with monkeypatch.context() as patched:
            patched.setenv(variable, value)
            assert closed(tmp_path, "other==1.0") == names, variable
    monkeypatch.setenv("UV_RESOLUTION", "lowest")
    kept = ("UV_DEFAULT_INDEX", "UV_INDEX_MINE_PASSWORD", "UV_HTTP_TIMEOUT", "UV_EXTRA_INDEX_URL")
    for variable in kept:
        monkeypatch.setenv(variable, "7")
    environment = closure._uv_environment()
    assert {name: environment.get(name) for name in kept} == dict.fromkeys(kept, "7")
    assert "UV_RESOLUTION" not in environment


@pytest.mark.slow
def test_the_wheel_that_the_python_likes_best(tmp_path: Path) -> None:
    for tag in ("py3-none-any", "cp39-abi3-win_amd64", "cp311-cp311-win_amd64"):
        foreign(tmp_path, tag=tag)
    foreign(tmp_path, tag="cp311-cp311-manylinux_2_28_x86_64")
    assert closed(tmp_path, "other==1.0") == ["other-1.0-cp311-cp311-win_amd64.whl"]
    assert closed(tmp_path, "other==1.0", python="3.12") == ["other-1.0-cp39-abi3-win_amd64.whl"]


def test_a_limit_holds_unless_it_cannot(tmp_path: Path) -> None:
    foreign(tmp_path, requires=["numpy"])
    foreign(tmp_path, "numpy", "1.26.4")
    foreign(tmp_path, "numpy", "2.1.0")
    chosen = closed(tmp_path, "other==1.0", limits=["numpy<2"])
    assert chosen[0] == "numpy-1.26.4-py3-none-any.whl"
    foreign(tmp_path, requires=["numpy>=2"])
    with pytest.raises(ConfigError, match=r"cannot be resolved[\s\S]*numpy<2"):
        closed(tmp_path, "other==1.0", limits=["numpy<2"])


def _sdist(folder: Path) -> None:
    (folder / "other-1.0.tar.gz").write_bytes(b"")


@pytest.mark.parametrize(
    ("make", "said", "cured"),
    [
        (lambda _: None, "no wheel of other here", "--wheelhouse"),
        (_sdist, "other==1.0 is only available as a source distribution", "docs/recipes.md"),
        (lambda f: foreign(f, version="2.0"), "other==1.0 does not exist", "a version"),
        (
            lambda f: foreign(f, tag="cp311-cp311-manylinux_2_28_x86_64"),
            "no wheel of other==1.0 for this platform",
            "docs/recipes.md",
        ),
        (
            lambda f: foreign(f, tag="cp312-cp312-win_amd64"),
            "no wheel of other==1.0 for this Python",
            "--python",
        ),
        (lambda f: foreign(f, requires=["gone"]), "no wheel of gone here", "--wheelhouse"),
        (
            lambda f: (
                foreign(f, requires=["dep"]),
                foreign(f, "dep", tag="cp311-cp311-manylinux_2_28_x86_64"),
            ),
            "no wheel of dep==1.0 for this platform",
            "docs/recipes.md",
        ),
    ],
)
def test_what_cannot_be_had(
    tmp_path: Path, make: Callable[[Path], object], said: str, cured: str
) -> None:
    make(tmp_path)
    with pytest.raises(ConfigError, match=said) as caught:
        closed(tmp_path, "other==1.0")
    assert cured in caught.value.hint
    assert caught.value.message.startswith("other==1.0")


def test_an_index_is_asked_and_its_word_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tmp_path / "files"
    path = foreign(files)
    foreign(files, "alone")
    (files / "alone-1.0-py3-none-any.whl").rename(files / "alone-1.0.tar.gz")
    with index(tmp_path, yanked={path.name: "wrong numbers"}) as url:
        monkeypatch.setenv("PIP_INDEX_URL", url)
        found = resolve_closure(["other==1.0"], python="3.11", platforms=WINDOWS)
        (offer,) = found.offers
        assert offer.sha256 == sha256_of(path)
        assert found.warnings == ('`other==1.0` is yanked (reason: "wrong numbers")',)
        with pytest.raises(ConfigError, match="the index has no project gone"):
            resolve_closure(["gone==1.0"], python="3.11", platforms=WINDOWS)
        with pytest.raises(ConfigError, match="a source distribution"):
            resolve_closure(["alone==1.0"], python="3.11", platforms=WINDOWS)
        with pytest.raises(AuditError, match="which is not https"):
            fetch_all(found.offers, Cache(load_lock(), tmp_path / "cache"))
    with pytest.raises(LockError, match="the index is unreachable"):
        resolve_closure(["another==1.0"], python="3.11", platforms=WINDOWS)


def test_a_file_that_is_another_one_than_was_stated(tmp_path: Path) -> None:
    path, cache = foreign(tmp_path), Cache(load_lock(), tmp_path / "cache")
    with pytest.raises(LockError, match=f"{HASH}"):
        fetch_all([Offer(path.name, str(path), HASH)], cache)
    (kept,) = fetch_all([Offer(path.name, str(path), sha256_of(path))], cache)
    assert cache.has(cache.place(kept.file, str(kept.sha256)), str(kept.sha256))


def test_a_url_is_not_fetched_offline(tmp_path: Path) -> None:
    with pytest.raises(LockError, match="--offline"):
        fetch_url(NAME, f"https://x.invalid/{NAME}", "", Cache(load_lock(), tmp_path, offline=True))


def test_uv_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Path(find_uv()).is_file()
    monkeypatch.setitem(sys.modules, "uv", None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SetupError, match="uv is not installed") as caught:
        find_uv()
    assert " -m pip install uv" in caught.value.hint


# -- what is inside --------------------------------------------------------------------------------


def examined(path: Path, *companions: str, platforms: tuple[str, ...] = WINDOWS) -> Any:
    digest = sha256_of(path)
    return examine_external(path, digest, Installation("3.11", platforms, companions))


def wrong(path: Path) -> list[str]:
    return [check.label for check in examined(path).checks if check.failed]


def test_a_wheel_with_device_code_is_told_and_nothing_is_wrong(tmp_path: Path) -> None:
    one = examined(wheel(tmp_path, FILES))
    assert (one.cuda, one.version) == ("13.0", "1.0+cu130")
    found = {check.id: check for check in one.checks}
    assert not [check for check in one.checks if check.failed]
    assert {name for name, check in found.items() if check.level == "skipped"} == {"sass", "ptx"}
    assert {"sha256", "record", "installable", "machine"} <= found.keys()
    assert found["cuda"].actual == "CUDA 13.0"
    assert found["sass"].values == ("90a",)


def test_a_wheel_without_any_is_nothing_wrong(tmp_path: Path) -> None:
    assert wrong(foreign(tmp_path)) == []
    assert examined(foreign(tmp_path)).cuda == ""


def test_libraries_that_no_wheel_here_has(tmp_path: Path) -> None:
    tail = fatbin()
    pyd = {"pkg/_C.cp311-win_amd64.pyd": pe(imports=b"cublas64_12.dll", tail=tail)}
    path = wheel(tmp_path, {**FILES, **pyd})

    def look(*companions: str) -> Any:
        return next(one for one in examined(path, *companions).checks if one.id == "libraries")

    assert look().values == ("cublas64_12.dll",)
    assert look().hint.endswith("cublas64_12.dll is in nvidia-cublas-cu12 (nvidia/cublas/bin)")
    assert look().level == "warning"
    assert look("nvidia/cublas/bin/cublas64_12.dll").values == ()


@pytest.mark.parametrize(
    ("name", "projects"),
    [
        ("cublas64_12.dll", ["nvidia-cublas-cu12"]),
        ("cublasLt64_12.dll", ["nvidia-cublas-cu12"]),
        ("cublas64_13.dll", ["nvidia-cublas"]),
        ("cudart64_12.dll", ["nvidia-cuda-runtime-cu12"]),
        ("cudart64_13.dll", ["nvidia-cuda-runtime"]),
        ("nvrtc64_120_0.dll", ["nvidia-cuda-nvrtc-cu12"]),
        ("nvrtc-builtins64_129.dll", ["nvidia-cuda-nvrtc-cu12"]),
        ("nvrtc64_130_0.dll", ["nvidia-cuda-nvrtc"]),
        ("cufft64_11.dll", ["nvidia-cufft-cu12"]),
        ("cufft64_12.dll", ["nvidia-cufft"]),
        ("curand64_10.dll", ["nvidia-curand-cu12", "nvidia-curand", "nvidia-curand-cu11"]),
        ("cusolver64_11.dll", ["nvidia-cusolver-cu12", "nvidia-cusolver-cu11"]),
        ("cublasLt64_11.dll", ["nvidia-cublas-cu11"]),
        ("cudart64_110.dll", ["nvidia-cuda-runtime-cu11"]),
        ("cusparse64_12.dll", ["nvidia-cusparse-cu12", "nvidia-cusparse"]),
        ("nvJitLink_120_0.dll", ["nvidia-nvjitlink-cu12"]),
        ("nvJitLink_130_0.dll", ["nvidia-nvjitlink"]),
        ("cudnn64_9.dll", ["nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-cudnn-cu11"]),
        ("cudnn_ops64_9.dll", ["nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-cudnn-cu11"]),
        ("libcublasLt.so.12", ["nvidia-cublas-cu12"]),
        ("libnvrtc.so.13", ["nvidia-cuda-nvrtc"]),
        ("mine.dll", []),
    ],
)
def test_what_brings_a_library(name: str, projects: list[str]) -> None:
    assert [row.project for row in library_providers(name)] == projects


def test_libraries_in_a_text() -> None:
    text = "Library cublas64_12.dll is not found, see C:\\x\\own.dll; libcudnn.so.9: cannot open"
    assert hint_for(["curand64_10.dll"], cuda="13.0") == (
        "curand64_10.dll is in nvidia-curand (nvidia/cu13/bin/x86_64)"
    )
    assert mentioned_cuda_libraries(text) == ("cublas64_12.dll", "libcudnn.so.9")
    assert hint_for(["own.dll"]) == ""
    installed = {"nvidia-cublas-cu12"}
    assert "which is installed" in hint_for(["cublas64_12.dll"], installed)
    assert "which was searched" in hint_for(["cublas64_12.dll"], installed, named=installed)
    assert missing_dlls(["KERNEL32.dll", "VCRUNTIME140.dll", "a.dll", "b.dll"], ["x/A.DLL"]) == (
        "b.dll",
    )
    for row in library_table().libraries:
        assert all(name == name.lower() for name in row.names), "compared in lower case"


# -- a run -----------------------------------------------------------------------------------------


@pytest.fixture
def no_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs a suite is not to be had without a network."""
    monkeypatch.setattr(stage, "tools_of", lambda _: ([], []))


def at_desk_given(tmp_path: Path, asked: str, house: Path, job: Any) -> tuple[Line, Here]:
    session = Here(job)
    plan = plan_given(tmp_path, asked, Desk(tmp_path / "root", session), house, python=PYTHON)
    return wanting(line_for(plan)), session


@pytest.mark.usefixtures("no_tools")
def test_a_run_like_any_other_that_says_whose_it_is(tmp_path: Path) -> None:
    house = tmp_path / "house"
    path = foreign(house, requires=["dep"])
    dll = {"nvidia/lib/x.so": b"", "nvidia/lib/y.so.1": b"", "nvidia/__init__.py": b""}
    dep, tool = foreign(house, "dep"), foreign(house, "tool", files=dll)
    script = tmp_path / "numbers.py"
    script.write_text("print('a = 1')\n")
    suite = Suite(PASSED)
    line, session = at_desk_given(tmp_path, str(path), house, suite)
    folder = run_given(line, companions=["tool==1.0"], script=str(script))
    taken = line.run.result(PrebuiltResult)
    assert taken is not None
    assert taken.taken is not None
    assert taken.company is not None
    assert taken.taken.sha256 == sha256_of(folder / "wheels" / path.name) == sha256_of(path)
    assert sorted(one.file for one in taken.company.packages) == [dep.name, tool.name]
    assert taken.company.libraries == ("nvidia/lib",)
    assert {one.stated for one in taken.company.packages} == {None}, "of files nobody stated it"
    facts = line.run.facts()
    assert facts.publishable is False
    assert facts.origin.startswith(f"given, not built here: {path.name} from {path}, sha256 ")
    (spec,) = suite.specs
    assert spec["system"] is False
    assert sorted(Path(each).name for each in spec["packages"]) == [dep.name, tool.name]
    assert all(Path(each).is_file() for each in spec["packages"])
    assert spec["libraries"] == ["nvidia/lib"]
    assert spec["suite"]["script/numbers.py"] == "print('a = 1')\n"
    assert "test_script.py" in spec["suite"]
    assert spec["expect"]["given"] is True
    done = line.run.result(SmokeResult)
    assert done is not None
    assert (done.script, done.limits) == ("numbers.py", "")
    view = load_view(line.run)
    assert (view.verdict, view.word) == ("passed", "passed")
    assert view.headline == "external or prebuilt, audited and smoke-tested"
    assert {stage.state for stage in view.stages} == {"passed"}, "nothing of a build is missing"
    for text in (
        facts.origin[:40],
        "cannot be published",
        "PATH and os.add_dll_directory",
    ):
        assert any(text in said for said in view.caveats), text
    assert dict(view.provenance)["Installed with it"][0][0] == dep.name
    assert "not built here" in (folder / "report.html").read_text()
    assert "not built here" in (folder / "summary.md").read_text()
    junit = (folder / "junit.xml").read_text()
    assert "not built here" in junit
    assert re.search(r'name="other: SASS"[^>]*>\s*<skipped', junit), "not looked at"
    assert json.loads((folder / "manifest.json").read_text())["publishable"] is False
    (past,) = runs_in(tmp_path / "out")
    assert past.payload()["origin"] == facts.origin
    before = len(session.sent)
    run_given(line, companions=["tool==1.0"], script=str(script))
    assert len(session.sent) == before + 1, "only the wheel: the others are there"
    line.close()


@pytest.mark.usefixtures("no_tools")
def test_another_build_of_the_version_is_told(tmp_path: Path) -> None:
    house = tmp_path / "house"
    foreign(house, version="1.0+cu130")
    line, _ = at_desk_given(tmp_path, "other==1.0", house, Suite(PASSED))
    run_given(line)
    said = "1.0 was requested, 1.0+cu130 was found"
    assert said in load_view(line.run).caveats
    assert " from this machine (other==1.0), sha256 " in line.run.facts().origin
    line.close()


@pytest.mark.usefixtures("no_tools")
def test_without_a_script_it_is_said(tmp_path: Path) -> None:
    house = tmp_path / "house"
    path = foreign(house)
    line, _ = at_desk_given(tmp_path, str(path), house, Suite(PASSED))
    run_given(line)
    view = load_view(line.run)
    assert view.word == "passed, import only"
    assert "only the import of its packages" in view.headline
    line.close()


@pytest.mark.usefixtures("no_tools")
def test_a_script_that_wants_a_gpu_is_told_how_to_get_one(tmp_path: Path) -> None:
    house = tmp_path / "house"
    line, _ = at_desk_given(tmp_path, str(foreign(house)), house, Suite(PASSED))
    run_given(line)
    desk = line.plan.host
    text = "no CUDA-capable device is detected"
    assert cure_of(line.plan, line.run, text) == "", "a machine that is what it is"
    desk.capabilities = replace(desk.capabilities, emulated=True)
    assert "--gpu gives" in cure_of(line.plan, line.run, text)
    assert "--gpu" not in cure_of(line.plan, line.run, "wrong numbers")
    desk.gpu_way = by_bridge("bridge")
    assert "--gpu" not in cure_of(line.plan, line.run, text)
    line.close()


@pytest.mark.usefixtures("no_tools")
def test_a_failed_import_names_the_library_and_its_project(tmp_path: Path) -> None:
    house = tmp_path / "house"
    path = foreign(house)
    said = 'message="Could not find module cublas64_12.dll (or one of its dependencies)"'
    line, _ = at_desk_given(tmp_path, str(path), house, Suite(FAILED.replace('message="no"', said)))
    with pytest.raises(SmokeError) as caught:
        run_given(line)
    assert "cublas64_12.dll is in nvidia-cublas-cu12 (nvidia/cublas/bin)" in caught.value.hint
    assert "--with PROJECT==VERSION" in caught.value.hint
    line.close()


LACKING = "No module named 'cloud'"


def without_a_report(spec: dict[str, Any]) -> Iterator[Any]:
    """pytest itself could not begin, as when a conftest.py of the user's imports it."""
    yield f"ImportError: {LACKING}\n".encode()
    yield {"exit": 4, "step": "pytest", "junit": None, "timed_out": False}


@pytest.mark.usefixtures("no_tools")
@pytest.mark.parametrize(
    "job", [Suite(FAILED.replace('message="no"', f'message="{LACKING}"')), without_a_report]
)
def test_a_module_that_lacks_is_named_by_with(tmp_path: Path, job: Any) -> None:
    house = tmp_path / "house"
    line, _ = at_desk_given(tmp_path, str(foreign(house)), house, job)
    with pytest.raises(SmokeError) as caught:
        run_given(line)
    assert "Not installed there: cloud" in caught.value.hint
    assert "--with NAME==VERSION" in caught.value.hint
    assert "test_requires" not in caught.value.hint
    line.close()


@pytest.mark.usefixtures("no_tools")
def test_a_file_that_is_cut_off_ends_the_run_and_says_so(tmp_path: Path) -> None:
    house = tmp_path / "house"
    path = foreign(house)
    path.write_bytes(path.read_bytes()[:-40])
    line, session = at_desk_given(tmp_path, str(path), house, Suite(PASSED))
    with pytest.raises(AuditError, match="is not a wheel: File is not a zip file"):
        run_given(line)
    assert session.sent == []
    assert line.run.facts().origin.startswith("given, not built here: ")
    assert load_view(line.run).verdict == "failed"
    line.close()


@pytest.mark.usefixtures("no_tools")
def test_what_changed_after_it_was_taken_is_not_tested(tmp_path: Path) -> None:
    house = tmp_path / "house"
    path = foreign(house)
    line, _ = at_desk_given(tmp_path, str(path), house, Suite(PASSED))
    line.begin_run()
    line.do(Stage("prebuilt", stage.take_given))
    foreign(line.run.path / "wheels", files={"other/__init__.py": b"VALUE = 2\n"})
    with pytest.raises(AuditError, match="expected"):
        stage.examine_given_wheel(line.plan, StageLog(line.run), _taken(line))
    assert line.run.result(AuditResult) is None
    line.close()


def _taken(line: Line) -> PrebuiltResult:
    found = line.run.result(PrebuiltResult)
    assert found is not None
    return found


def emulated(tmp_path: Path, house: Path) -> Line:
    host = Lab()
    host.capabilities = Capabilities(
        windows=True, msvc=False, gpu=False, publishable=False, emulated=True
    )
    return line_for(plan_given(tmp_path, "other==1.0", host, house))


@pytest.mark.usefixtures("no_tools")
@pytest.mark.parametrize(
    ("companions", "chosen"), [([], "numpy-1.26.4"), (["numpy==2.1.0"], "numpy-2.1.0")]
)
def test_numpy_2_is_not_chosen_under_wine_by_itself(
    tmp_path: Path, companions: list[str], chosen: str
) -> None:
    house = tmp_path / "house"
    foreign(house, requires=["numpy"])
    foreign(house, "numpy", "1.26.4")
    foreign(house, "numpy", "2.1.0")
    line = emulated(tmp_path, house)
    line.plan = stage.apply_test_options(line.plan, companions=companions, script=None)
    line.begin_run()
    line.do(Stage("prebuilt", stage.take_given))
    company = _taken(line).company
    assert company is not None
    assert [one.file for one in company.packages] == [f"{chosen}-py3-none-any.whl"]
    assert any(note.startswith("numpy<2: ") for note in company.notes) == (not companions)
    line.do(AUDIT)
    hint = cure_of(line.plan, line.run, "ended by something")
    assert hint.startswith("numpy 2.1.0 is installed") == bool(companions)
    if companions:
        assert hint.endswith("Name a version below 2 with --with.")
    line.close()


@pytest.mark.parametrize("module", ["fatbin.py", "conftest.py", "smoke_gpu/__init__.py"])
def test_a_wheel_with_a_module_of_ours_is_not_called_imported(tmp_path: Path, module: str) -> None:
    """Python would import what is sent with the suite, and find nothing wrong with it."""
    path = wheel(tmp_path, FILES | {module: b"raise ImportError"})
    with pytest.raises(ConfigError, match=r"Python would import \w+\.py instead of what is in"):
        _refuse_shadows(suite_of_given(None), checked(path))


LOCK = """
lock-version = "1.0"
[[packages]]
name = "other"
wheels = [{{ url = "{url}" }}]
"""


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://x.example/another-1.0-py3-none-any.whl", "other: uv found no wheel"),
        ("https://x.example/..%5cother-1.0-py3-none-any.whl", "other: uv found no wheel"),
        ("https://[x/other-1.0-py3-none-any.whl", "invalid wheel address"),
    ],
)
def test_what_uv_chose_is_what_it_is_called(url: str, said: str) -> None:
    with pytest.raises((ConfigError, LockError), match=said):
        closure._choose_locked_wheels(LOCK.format(url=url), "3.11", WINDOWS)


@pytest.mark.parametrize(
    ("asked", "files", "right"),
    [
        ("other==1.0", ["other-1.0-py3-none-any.whl"], True),
        ("other==1.0", ["other-1.0+cu13-py3-none-any.whl", "a-1-py3-none-any.whl"], True),
        ("other==1.0+cu13", ["other-1.0-py3-none-any.whl"], False),
        ("other==1.0", ["other-2.0-py3-none-any.whl"], False),
        ("other==1.0", ["other-1.0-py3-none-any.whl", "other-1.0-cp311-none-any.whl"], False),
        ("other==1.0", [], False),
    ],
)
def test_the_release_that_uv_chose_is_compared(asked: str, files: list[str], right: bool) -> None:
    chosen = closure.Closure(tuple(Offer(file, f"https://x.example/{file}") for file in files))
    given = read_external(asked)
    if right:
        assert stage._chosen(chosen, given).file == files[0]
        return
    with pytest.raises(LockError, match="was requested, but uv chose"):
        stage._chosen(chosen, given)
