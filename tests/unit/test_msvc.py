"""The sandbox's slot for MSVC: a whole tree is taken, half of one never."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import msvc_trees as trees
import pytest
from pydantic import ValidationError

from pipelines.core.errors import ConfigError, HostError
from pipelines.hosts.base import Silent
from pipelines.hosts.live import LiveSession
from pipelines.hosts.sandbox.config import SandboxHost
from pipelines.hosts.sandbox.host import Sandbox
from pipelines.hosts.sandbox.msvc import slot
from pipelines.hosts.sandbox.msvc.finder import find_msvc_tree, program_version_info
from pipelines.hosts.sandbox.msvc.slot import Slot, vcvarsall_script
from pipelines.plan.config.model import Config
from pipelines.plan.matrix.buildplan import BuildPlan, Request, resolve_build_plan
from pipelines.stages.buildspec import environment_of
from pipelines.stages.line import Line, run_provision
from pipelines.toolchain.lock import load_lock

TOOLS, KITS = f"VC/Tools/MSVC/{trees.TOOLSET}", "Windows Kits/10"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return trees.write(tmp_path / "vs", trees.files())


# -- the finder ------------------------------------------------------------------------------------


def test_a_whole_tree(tree: Path) -> None:
    found = find_msvc_tree(tree)
    assert (found.version, found.sdk) == (trees.TOOLSET, trees.SDK)
    assert (found.compiler, found.maker) == ("14.44.35211.0", trees.MICROSOFT)
    assert [path.name for path in found.include] == ["include", "ucrt", "um", "shared"]
    assert [path.parent.name for path in found.lib] == ["lib", "ucrt", "um"]
    assert str(found) == ("MSVC 14.44.35207 (cl.exe 14.44.35211.0), Windows SDK 10.0.26100.0")


def test_msvc_wines_names(tree: Path) -> None:
    """It writes ``vc`` and ``kits`` and links the names of before."""
    (tree / "VC/Tools").rename(tree / "VC/tools")
    (tree / "VC/tools/MSVC").rename(tree / "VC/tools/msvc")
    (tree / "VC").rename(tree / "vc")
    (tree / "Windows Kits").rename(tree / "kits")
    (tree / "kits/10/Include").rename(tree / "kits/10/include")
    assert find_msvc_tree(tree).version == trees.TOOLSET
    for link, name in (("VC", "vc"), ("Windows Kits", "kits"), ("vc/Tools", "tools")):
        (tree / link).symlink_to(name)
    assert find_msvc_tree(tree).sdk == trees.SDK


#: What is taken away, or put there, and what is then said.
HALVES: dict[str, tuple[Callable[[Path], object], str]] = {
    "not there": (shutil.rmtree, "is not a directory"),
    "empty": (lambda p: (p / "VC").rename(p / "x"), "no VC/Tools/MSVC"),
    "without an SDK": (lambda p: shutil.rmtree(p / "Windows Kits"), "no Windows SDK"),
    "without a version": (lambda p: (p / TOOLS).rename(p / "x"), "has toolset none"),
    "without a compiler": (
        lambda p: (p / TOOLS / "bin/Hostx64/x64/cl.exe").unlink(),
        "no cl.exe for x64",
    ),
    "x86 alone": (
        lambda p: (p / TOOLS / "bin/Hostx64/x64").rename(p / TOOLS / "bin/Hostx64/x86"),
        "no cl.exe for x64",
    ),
    "a pass": (
        lambda p: (p / TOOLS / "bin/Hostx64/x64/c2.dll").unlink(),
        r"is incomplete: it has no c2\.dll \(bin\)",
    ),
    "without headers": (lambda p: shutil.rmtree(p / TOOLS / "include"), r"vector \(include\)"),
    "a file cut off": (
        lambda p: (p / KITS / "Lib" / trees.SDK / "um/x64/kernel32.Lib").write_bytes(b""),
        r"kernel32\.lib \(um lib\)",
    ),
    "another cl.exe": (
        lambda p: (p / TOOLS / "bin/Hostx64/x64/cl.exe").write_bytes(trees.program("14.38.1.0")),
        r"cl\.exe of version 14\.38\.1\.0, but the directory is named 14\.44\.35207",
    ),
    "no program": (
        lambda p: (p / TOOLS / "bin/Hostx64/x64/cl.exe").write_bytes(b"#!/bin/sh\n"),
        "not a 64-bit Windows program",
    ),
    "for ARM": (
        lambda p: (p / TOOLS / "bin/Hostx64/x64/cl.exe").write_bytes(trees.program(machine=0xAA64)),
        "its machine is 0xaa64",
    ),
}


@pytest.mark.parametrize("lie", HALVES)
def test_half_a_tree_is_refused(tree: Path, lie: str) -> None:
    change, says = HALVES[lie]
    change(tree)
    with pytest.raises(ConfigError, match=says) as caught:
        find_msvc_tree(tree)
    assert caught.value.hint


@pytest.mark.parametrize("name", ["msvcprt.lib", "msvcrt.lib", "vcruntime.lib"])
def test_without_the_store_package(tree: Path, name: str) -> None:
    (tree / TOOLS / "lib/x64" / name).unlink()
    with pytest.raises(ConfigError, match=r"CRT\.x64\.Store"):
        find_msvc_tree(tree)


def test_a_tree_of_xwin(tmp_path: Path) -> None:
    trees.write(tmp_path / "a", {"crt/include/vector": b"//", "sdk/include/ucrt/stdio.h": b"//"})
    with pytest.raises(ConfigError, match=r"xwin tree.*without cl\.exe"):
        find_msvc_tree(tmp_path / "a")


def test_two_versions(tree: Path) -> None:
    trees.write(tree, trees.files("14.38.33130", "10.0.22621.0", "14.38.33145.0"))
    with pytest.raises(ConfigError, match=r"2 versions of the toolset: 14\.38.*14\.44") as caught:
        find_msvc_tree(tree)
    assert "msvc_version: 14.44.35207" in caught.value.hint
    with pytest.raises(ConfigError, match=r"2 versions of the Windows SDK"):
        find_msvc_tree(tree, version="14.44")
    found = find_msvc_tree(tree, version="14.38", sdk="10.0.26100")
    assert (found.version, found.sdk) == ("14.38.33130", trees.SDK)
    with pytest.raises(ConfigError, match=r"has toolset 14\.38\.33130, 14\.44\.35207, not 14\.4$"):
        find_msvc_tree(tree, version="14.4", sdk="10.0.26100")


@pytest.mark.parametrize("name", ["VC/Tools/MSVC", "Windows Kits/10/Include"])
def test_a_file_in_place_of_a_folder(tree: Path, name: str) -> None:
    shutil.rmtree(tree / name)
    (tree / name).write_bytes(b"")
    with pytest.raises(ConfigError, match="cannot be read: Not a directory"):
        find_msvc_tree(tree)


# -- what is made of it ----------------------------------------------------------------------------


def test_the_tree_in_a_windows(tree: Path, tmp_path: Path) -> None:
    drive = tmp_path / "prefix/drive_c"
    trees.write(drive, {"VS/VC/Tools/MSVC/14.40.33807/bin/Hostx64/x64/cl.exe": b"the stand-in"})
    for _ in range(2):
        slot.install_msvc_tree(find_msvc_tree(tree), tmp_path / "prefix")
    there = find_msvc_tree(drive / "VS")
    assert (there.version, there.sdk, there.maker) == (trees.TOOLSET, trees.SDK, trees.MICROSOFT)
    names = {path.name for path in there.bin.iterdir()}
    assert {"cl.exe", "c2.dll", "1033"} <= names
    assert "vctip.exe" not in names
    assert (tree / TOOLS / "bin/Hostx64/x64/vctip.exe").exists(), "the user's own stays as it is"
    assert [path.name for path in (drive / "VS/VC/Tools/MSVC").iterdir()] == [trees.TOOLSET]
    for _ in range(2):
        slot.remove_msvc_tree(tmp_path / "prefix")
        assert (drive / "VS/VC/Tools/MSVC/14.40.33807/bin/Hostx64/x64/cl.exe").is_file()
    assert [path.name for path in drive.iterdir()] == ["VS"]
    slot.install_msvc_tree(find_msvc_tree(tree), tmp_path / "prefix")
    assert (drive / "VS/VC/Auxiliary/Build/vcvarsall.bat").is_file()


def test_a_sandbox_that_runs_with_another_tree(tree: Path, tmp_path: Path) -> None:
    """Of the same version, from another place; of another version; none."""
    (tmp_path / "prefix/drive_c/VS").mkdir(parents=True)
    mine = Slot(msvc=str(tree))
    with pytest.raises(HostError, match="different compiler"):
        mine.check(tmp_path / "prefix")
    mine.install(tmp_path / "prefix", Silent())
    mine.check(tmp_path / "prefix")
    same = trees.write(tmp_path / "same", trees.files())
    new = trees.write(tmp_path / "new", trees.files("14.44.36000"))
    for other in (same, new):
        with pytest.raises(HostError, match="different compiler"):
            Slot(msvc=str(other)).check(tmp_path / "prefix")


def test_every_directory_of_vcvars_is_there(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "prefix/drive_c/VS").mkdir(parents=True)
    slot.install_msvc_tree(find_msvc_tree(tree), tmp_path / "prefix")
    text = vcvarsall_script(find_msvc_tree(tree))
    assert "DISTUTILS" not in text  # nor does Microsoft's set it, nor MSSdk
    assert "MSSdk" not in text
    paths = [
        one
        for line in text.splitlines()
        if line.startswith(("@set INCLUDE=", "@set LIB=", "@set PATH="))
        for one in line.partition("=")[2].split(";")
        if one != "%PATH%"
    ]
    assert len(paths) == 9
    for path in paths:
        here = tmp_path / "prefix/drive_c" / path.removeprefix("C:\\").replace("\\", "/")
        assert here.is_dir(), path


# -- pipeline.yaml ---------------------------------------------------------------------------------


def host(**keys: object) -> SandboxHost:
    return SandboxHost.model_validate({"kind": "sandbox", **keys})


@pytest.mark.parametrize(
    "keys",
    [
        {"msvc_version": "14.44"},
        {"windows_sdk": "10.0.26100"},
        {"msvc": ""},
    ],
)
def test_keys_that_mean_nothing(keys: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        host(**keys)


def test_what_a_sandbox_with_msvc_gives(tree: Path) -> None:
    lock = load_lock()
    plain, full = host().supply(lock), host(msvc=str(tree)).supply(lock)
    assert (full.toolset.name, full.toolset.version) == ("MSVC", trees.TOOLSET)
    assert (full.missing, full.programs, dict(full.replacements)) == ((), False, {})
    assert full.python == plain.python
    assert {"12.8", "13.0"} <= {*(full.cuda or ())}
    assert list(host(msvc=str(tree)).notes("x")) == [f"compiler: {find_msvc_tree(tree)}"]


def test_trees_of_one_version_are_told_apart(tree: Path) -> None:
    """So that no job of one is taken for the other's: the compiler is serviced, the SDK another."""
    found = {host(msvc=str(tree)).supply(load_lock()).toolset}
    trees.write(tree, trees.files(compiler="14.44.35214.0"))
    found.add(host(msvc=str(tree)).supply(load_lock()).toolset)
    (tree / KITS / "Include" / trees.SDK).rename(tree / KITS / "Include/10.0.22621.0")
    for name in ("Lib", "bin"):
        (tree / KITS / name / trees.SDK).rename(tree / KITS / name / "10.0.22621.0")
    found.add(host(msvc=str(tree)).supply(load_lock()).toolset)
    assert len(found) == 3
    assert {one.version for one in found} == {trees.TOOLSET}


def test_a_tree_that_will_not_do_is_a_lack(tree: Path) -> None:
    (tree / TOOLS / "bin/Hostx64/x64/cl.exe").unlink()
    (lack,) = host(msvc=str(tree)).supply(load_lock()).missing
    assert "no cl.exe" in lack.actual
    assert lack.raises == "ConfigError"


def test_a_tree_of_a_user_that_there_is_not() -> None:
    (lack,) = host(msvc="~nobody-of-that-name/vs").supply(load_lock()).missing
    assert lack.actual.startswith("msvc: ~nobody-of-that-name/vs: ")


@pytest.mark.parametrize(
    ("maker", "says"), [("", "names no company"), ("A\x1b[31m & Co", "A.* & Co as its maker")]
)
def test_a_stand_in_is_not_taken_for_msvc(tree: Path, maker: str, says: str) -> None:
    """By its name alone: who forges the maker is found out by what is in the wheel."""
    program = trees.program(maker=maker)
    (tree / TOOLS / "bin/Hostx64/x64/cl.exe").write_bytes(program)
    with pytest.raises(ConfigError, match=says) as caught:
        Slot(msvc=str(tree)).require()
    assert "\x1b" not in caught.value.message


def test_a_damaged_program_is_refused_whatever_pefile_makes_of_it(tmp_path: Path) -> None:
    whole, path, chance = trees.program(), tmp_path / "cl.exe", random.Random(16)
    refused = 0
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 4, 40))):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0xFF))
        path.write_bytes(data[: chance.choice((len(data), chance.randrange(len(data))))])
        try:
            version, maker = program_version_info(path)
        except ConfigError as error:
            refused += error.message.startswith(f"{path} is not a 64-bit Windows program: ")
        else:
            assert len(version) <= 23
            assert len(maker) <= 260
    assert refused > 50


@pytest.mark.parametrize("error", [AttributeError("e_lfanew"), RecursionError(), MemoryError()])
def test_what_pefile_raises_by_accident(
    tree: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("pefile.PE.parse_data_directories", fail)
    with pytest.raises(ConfigError, match=r"cl\.exe is not a 64-bit Windows program: \w+"):
        find_msvc_tree(tree)


# -- plan, doctor and build ------------------------------------------------------------------------


def planned(tmp_path: Path, axes: dict[str, str], **keys: object) -> BuildPlan:
    config = {
        "hosts": {"vs": {"kind": "sandbox", "home": str(tmp_path / "home"), **keys}},
        "out": str(tmp_path / "out"),
        "default": {"host": "vs"},
    }
    return resolve_build_plan(Config.model_validate(config), Request(axes=axes))


def test_flash_attn_is_built_as_on_windows(tree: Path, tmp_path: Path) -> None:
    plan = planned(tmp_path, {"recipe": "flash-attn"}, msvc=str(tree))
    assert [finding.actual for finding in plan.refused() if finding.failed] == []
    wanted = {one.id: one for one in plan.wanted}
    assert {"CUDA toolkit", "C++ run-time", "ninja", "build tools"} <= wanted.keys()
    # Installers are not run there, and its Python is the image's.
    assert not {"Build Tools", "C run-time", "Python", "git", "CUDA compiler"} & wanted.keys()
    assert plan.layout.python == plan.host.executable
    # c10_cuda.lib and torch_cuda.lib are in torch with CUDA alone.
    assert "torch-2.8.0+cu128-cp311-cp311-win_amd64.whl" in str(wanted["wheels"].spec)
    assert plan.host.capabilities.msvc
    assert not plan.host.capabilities.publishable
    assert ".sandbox.msvc" in environment_of(plan, 1)["FLASH_ATTN_LOCAL_VERSION"]


def test_without_msvc_the_same_is_refused(tmp_path: Path) -> None:
    (finding,) = planned(tmp_path, {"recipe": "flash-attn"}).refused()
    assert "which requires MSVC" in finding.actual


@pytest.mark.parametrize("cuda", ["13.0", "12.8"])
def test_a_tree_of_visual_studio_2026(tree: Path, tmp_path: Path, cuda: str) -> None:
    new = trees.write(tmp_path / "new", trees.files("14.50.35717", compiler="14.50.35717.0"))
    for root, rules in ((new, ["host-config-1950"]), (tree, [])):
        found = planned(tmp_path, {"cuda": cuda}, msvc=str(root)).refused()
        assert [finding.id for finding in found if finding.failed] == rules


def test_nothing_is_started_for_half_a_tree(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def touched(*_: object, **__: object) -> None:
        raise AssertionError("something was fetched or started")

    monkeypatch.setattr("pipelines.hosts.sandbox.host.Sandbox.connect", touched)
    monkeypatch.setattr("pipelines.toolchain.lock.Cache.fetch", touched)
    (tree / TOOLS / "lib/x64/msvcprt.lib").unlink()
    plan = planned(tmp_path, {}, msvc=str(tree))
    with pytest.raises(ConfigError, match=r"CRT\.x64\.Store"):
        run_provision(Line(plan, LiveSession(plan.host)))


def test_each_compiler_has_a_windows_of_its_own(tree: Path, tmp_path: Path) -> None:
    both = [planned(tmp_path, {}, **keys).host for keys in ({}, {"msvc": str(tree)})]
    homes = [one.home.name for one in both if isinstance(one, Sandbox)]
    assert homes == ["home-py3.11", "home-py3.11-msvc"]
