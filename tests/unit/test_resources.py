"""resources.yaml: what is wanted of a host, in order, with the lock's pins."""

from __future__ import annotations

import importlib
import io
import re
import typing
from dataclasses import replace
from pathlib import Path, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pipelines.core.errors import ConfigError, LockError
from pipelines.core.paths import PACKAGE
from pipelines.core.target import Target
from pipelines.hosts.base import Existing
from pipelines.plan.provisioning import resource_models
from pipelines.plan.provisioning.base import Resource
from pipelines.plan.provisioning.resources import (
    EXISTING_FILE,
    RESOURCES_FILE,
    DesiredResource,
    Place,
    desired_resources,
    in_order,
    layout_of,
    load_resources,
)
from pipelines.recipe.load import load_recipe
from pipelines.record.results import ResourceResult
from pipelines.stages import provision as provision_stage
from pipelines.toolchain.lock import ToolchainLock, load_lock
from pipelines.toolchain.variants import distribution_name

SANDBOX = Place(
    capabilities={"windows": True, "msvc": False, "gpu": False, "publishable": False}
    | {"services": False, "emulated": True},
    target=Target(python="3.11", cuda="13.0"),
    executable=r"C:\Python311\python.exe",
)
SERVER = Place(
    capabilities=dict.fromkeys(SANDBOX.capabilities, True) | {"emulated": False},
    target=Target(python="3.12", cuda="12.8"),
    executable=r"C:\wcw\python\python.exe",
)


def wanted_of(place: Place, lock: ToolchainLock | None = None) -> dict[str, DesiredResource]:
    made = desired_resources(
        load_resources(), load_recipe("smoke-attention"), lock or load_lock(), place
    )
    return {wanted.id: wanted for wanted in made}


def complete(lock: ToolchainLock) -> ToolchainLock:
    """The lock as it is after ``invoke lock``, with hashes that are not used here."""
    data = lock.model_dump(mode="json")
    for tool in data["tools"].values():
        for source in tool["sources"]:
            source["sha256"] = source["sha256"] or tool["sources"][0]["sha256"] or "0" * 64
            source["size"] = source["size"] or tool["sources"][0]["size"] or 1
    return ToolchainLock.model_validate(data | {"unpinned": []})


def test_the_shipped_file_uses_every_kind() -> None:
    made = [r for file in (RESOURCES_FILE, EXISTING_FILE) for r in load_resources(file).resources]
    known = typing.get_args(typing.get_args(resource_models.AnyResource)[0])
    assert {type(resource) for resource in made} == set(known)
    remote = PACKAGE / "remote/resources"
    assert {r.kind for r in made} <= {path.stem for path in remote.glob("*.py")}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("kind: registry", "kind: service", "service"),
        ("  temp: C:\\t", "  temq: C:\\t", "layout.temq: unknown key"),
        ("    proof: uv.exe\n", "", "proof"),
        ("  - id: uv\n", "  - id: uv\n    colour: red\n", "colour: unknown key"),
        ("resources:\n", "resources: [\n", "resources.yaml"),
        ("after: [build root]", "after: [build rot]", "'build rot'"),
        (
            "    why: where setup",
            "    after: [CUDA_PATH]\n    why: where setup",
            "'CUDA_PATH' after 'CUDA_PATH'",
        ),
        ("- id: ninja", "- id: uv", "two resources are called 'uv'"),
        ("needs: [msvc]", "needs: [mscv]", "needs"),
        ("prints: '^uv \\d'", "prints: '('", "invalid regular expression"),
        ("value: 1\n", "value: 1.5\n", "value"),
    ],
)
def test_wrong_files(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = RESOURCES_FILE.read_text()
    assert old in text
    path = tmp_path / "resources.yaml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        load_resources(path)
    assert said in caught.value.message
    assert "resources.yaml" in caught.value.message
    assert caught.value.hint


def directory(name: str, *after: str) -> resource_models.Directory:
    return resource_models.Directory(kind="directory", id=name, why="-", path=name, after=after)


def test_a_cycle_is_told_in_order() -> None:
    with pytest.raises(ConfigError, match=r"'\w' after '\w' after '\w' after '\w'"):
        in_order([directory("a", "c"), directory("b", "a"), directory("c", "b")])


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=20))
def test_order(edges: list[tuple[int, int]]) -> None:
    """Dependencies first; whatever is free stays as it was written."""
    after = {n: sorted({low for low, high in edges if high == n and low < n}) for n in range(9)}
    backwards = [directory(str(n), *map(str, after[n])) for n in reversed(range(9))]
    place = {r.id: number for number, r in enumerate(in_order(backwards))}
    assert all(place[str(low)] < place[str(n)] for n in after for low in after[n])
    if not any(after.values()):
        assert list(place) == [r.id for r in backwards]


def test_the_sandbox_needs_nothing_that_it_cannot_have() -> None:
    wanted = wanted_of(SANDBOX)
    assert "CUDA compiler" in wanted
    assert not {"CUDA toolkit", "Build Tools", "page file", "restart"} & set(wanted)


def test_nothing_is_found_by_a_wildcard_in_the_root_of_a_drive() -> None:
    """Every user may make a directory there."""
    wanted = wanted_of(SERVER, complete(load_lock()))
    globs = [one.spec["detect"] for one in wanted.values() if one.spec["kind"] == "installer"]
    globs += [glob for one in wanted.values() for glob in one.spec.get("logs", ())]
    assert len(globs) >= 4
    assert not [glob for glob in globs if {*"*?["} & {*glob.split("\\")[1]}]


def test_the_machine_gets_no_temp_and_defender_leaves_out_the_builds_alone() -> None:
    """What is in the machine's TEMP is every user's, and SYSTEM runs installers from there."""
    wanted = wanted_of(SERVER, complete(load_lock())).values()
    variables = {one.spec["name"] for one in wanted if one.spec["kind"] == "environment"}
    assert not variables & {"TEMP", "TMP"}
    excluded = [one.spec["path"] for one in wanted if one.spec["kind"] == "defender_exclusion"]
    assert excluded == [r"C:\b"]


def test_what_an_installer_fills_below_the_root_is_ours_to_make() -> None:
    specs = [one.spec for one in wanted_of(SERVER, complete(load_lock())).values()]
    places = {s["name"]: s["path"] for s in specs if s["kind"] == "installer"}
    assert places == {"vc-redist": "", "vs-buildtools-2022": r"C:\VS"}
    for spec in specs:
        if spec["kind"] == "installer":  # what runs is hashed where it is copied
            assert all(len(pin["sha256"]) == 64 for pin in spec["files"])


def test_a_server_gets_everything() -> None:
    wanted = wanted_of(SERVER, complete(load_lock()))
    assert len(wanted) >= 21
    assert "CUDA compiler" not in wanted
    order = list(wanted)
    assert order[-1] == "restart"
    assert order.index("C run-time") < order.index("Build Tools") < order.index("restart")
    assert order.index("C run-time") < order.index("sccache")
    toolkit = wanted["CUDA toolkit"]
    assert toolkit.spec["path"] == r"C:\cuda\12.8"
    strips = {archive["name"]: archive["strip"] for archive in toolkit.spec["archives"]}
    assert strips["cuda-12.8-cuda_nvcc"].startswith("cuda_nvcc-windows-x86_64-12.8")
    assert strips["cuda-12.8-cuda_nvcc"].endswith("-archive")
    assert wanted["Python"].spec["check"]["prints"] == r"^Python 3.12\.(?!.*free-threading)"
    tools = wanted["Build Tools"].spec
    assert "Microsoft.VisualStudio.Workload.VCTools" in tools["arguments"]
    assert tools["arguments"].count("--add") == len(
        load_lock().tools["vs-buildtools-2022"].components
    )
    assert (
        tools["arguments"][tools["arguments"].index("--channelUri") + 1] == r"C:\doesntExist.chman"
    )
    assert tools["prepare"] == ["--quiet", "--wait", "--update"]
    assert "--nocache" not in tools["arguments"]
    assert (tools["signer"], tools["toolset"], tools["path"]) == (
        "Microsoft Corporation", "14.44", r"C:\VS",
    )  # fmt: skip
    assert tools["detect"] == r"C:\VS\VC\Tools\MSVC\14.44.*\bin\Hostx64\x64\cl.exe"
    assert {*wanted["Build Tools"].uploads} == {"vs-buildtools-2022"}
    assert wanted["build tools"].spec["base"] == r"C:\python\3.12\python.exe"
    assert layout_of(load_resources(), SERVER).cuda == r"C:\cuda\12.8"


def test_pins_come_from_the_lock() -> None:
    lock, recipe = load_lock(), load_recipe("smoke-attention")
    wanted = wanted_of(SANDBOX)
    for archive in wanted["CUDA compiler"].spec["archives"]:
        tool = lock.tool(archive["name"])
        assert (archive["version"], archive["sha256"]) == (tool.version, tool.sha256)
        assert wanted["CUDA compiler"].uploads[archive["name"]] == archive["file"]
        assert archive["file"].endswith(tool.file)
    (uv,) = wanted["uv"].spec["archives"]
    assert uv["strip"] == f"uv-{lock.tool('uv').version}.data/scripts"
    files = wanted["wheels"].spec["files"]
    named, asked = [f["name"] for f in files], [*recipe.build_requires, *recipe.test_tools]
    assert named[: len(asked)] == asked
    assert {*named} - {*asked} == {"colorama", "execnet", "iniconfig"} | (
        {"packaging", "pluggy", "pygments"}
    ), "what runs tests, whole"
    assert wanted["build tools"].spec["packages"] == {
        name: lock.tool(name).version for name in recipe.build_requires
    }
    made = wanted["build tools"].spec
    assert made["base"] == SANDBOX.executable
    assert made["python"] == made["path"] + r"\Scripts\python.exe"
    assert re.fullmatch(r"C:\\b\\e\\[0-9a-f]{8}", made["path"])


def test_another_set_of_packages_is_another_environment() -> None:
    """What one recipe's build needs is not there for another's to find."""
    lock, recipe = load_lock(), load_recipe("smoke-attention")
    sets = [recipe.build_requires, (*recipe.build_requires, "numpy"), recipe.build_requires[:1]]
    paths = set()
    for names in sets:
        changed = recipe.model_copy(update={"build_requires": names})
        made = desired_resources(load_resources(), changed, lock, SANDBOX)
        paths |= {one.spec["path"] for one in made if one.id == "build tools"}
    assert len(paths) == len(set(sets))


@pytest.mark.parametrize("place", [SANDBOX, SERVER])
def test_what_is_sent(place: Place) -> None:
    lock = complete(load_lock())
    for row in wanted_of(place, lock).values():
        assert row.summary
        assert "{" not in row.summary
        assert "{" not in str(row.spec).replace("{'", "")
        assert not Resource.LOCAL & set(row.spec)
        assert set(row.uploads) <= set(lock.tools)


def with_torch(place: Place, release: str) -> Place:
    return replace(place, target=place.target.model_copy(update={"torch": release}))


EXISTING = replace(
    with_torch(SERVER, "2.8"),
    capabilities={**SERVER.capabilities, "windows": False, "toolkit": True},
    existing=Existing(root="/x", toolkit="/cuda"),
    executable="/env/bin/python",
)


@pytest.mark.parametrize("place", [SANDBOX, SERVER, EXISTING])
def test_the_host_is_sent_what_its_module_reads(place: Place) -> None:
    resources = load_resources(EXISTING_FILE if place.existing else RESOURCES_FILE)
    recipe = load_recipe("smoke-attention").model_copy(update={"host_requires": ("git",)})
    for row in desired_resources(resources, recipe, complete(load_lock()), place):
        module = importlib.import_module(f"pipelines.remote.resources.{row.spec['kind']}")
        assert module.Spec.__required_keys__ <= set(row.spec), row.id
        assert set(row.spec) <= set(typing.get_type_hints(module.Spec)), row.id


def test_a_place_stands_once(tmp_path: Path) -> None:
    """Moved in the layout it is moved everywhere."""
    text = RESOURCES_FILE.read_text()
    for name in ("b", "t", "w", "tools", "cuda", "python", "VS"):
        old, new = f": C:\\{name}\n", f": D:\\x\\{name}\n"
        assert text.count(old) == 1, name
        text = text.replace(old, new)
    path = tmp_path / "resources.yaml"
    path.write_text(text)
    recipe, lock = load_recipe("smoke-attention"), complete(load_lock())
    before = desired_resources(load_resources(), recipe, lock, SERVER)
    after = desired_resources(load_resources(path), recipe, lock, SERVER)
    moved = re.compile(r"C:\\\\(b|t|w|tools|cuda|python|VS)\b")
    for old_row, new_row in zip(before, after, strict=True):
        expected = moved.sub(r"D:\\\\x\\\\\1", repr((old_row.spec, old_row.uploads)))
        # An environment is called by what it is made of, which is elsewhere now.
        called = [PureWindowsPath(one.spec.get("path", "")).name for one in (old_row, new_row)]
        if old_row.spec["kind"] == "packages":
            expected = expected.replace(called[0], called[1])
        assert repr((new_row.spec, new_row.uploads)) == expected


@pytest.mark.parametrize(
    ("place", "required", "places"),
    [
        (SERVER, ("git",), [r"C:\tools\git\cmd"]),
        (SERVER, ("cargo",), []),
        (SANDBOX, ("git",), []),
        (EXISTING, ("git", "cargo"), ["/env/bin", "/cuda/bin"]),
        (SERVER, (), None),
        (EXISTING, (), None),
    ],
)
def test_programs_that_the_build_starts(
    place: Place, required: tuple[str, ...], places: list[str] | None
) -> None:
    resources = load_resources(EXISTING_FILE if place.existing else RESOURCES_FILE)
    recipe = load_recipe("smoke-attention").model_copy(update={"host_requires": required})
    made = desired_resources(resources, recipe, complete(load_lock()), place)
    found = [row.spec for row in made if row.id == "programs"]
    spec = {"kind": "commands", "names": [*required], "places": places}
    assert found == ([] if places is None else [spec])


def test_a_tool_named_twice_is_one() -> None:
    recipe = load_recipe("smoke-attention")
    recipe = recipe.model_copy(update={"test_requires": (*recipe.build_requires, "iniconfig")})
    made = desired_resources(load_resources(), recipe, load_lock(), SANDBOX)
    (files,) = [w.spec["files"] for w in made if w.id == "wheels"]
    named = [f["name"] for f in files]
    assert sorted(named) == sorted({*named})
    assert {*recipe.build_requires, "iniconfig", "pytest"} <= {*named}


TORCH = with_torch(SERVER, "2.8")


@pytest.mark.parametrize("name", ["flash-attn", "xformers"])
def test_the_wheels_are_those_of_the_cell(name: str) -> None:
    lock, recipe = complete(load_lock()), load_recipe(name)
    made = {w.id: w for w in desired_resources(load_resources(), recipe, lock, TORCH)}
    files = made["wheels"].spec["files"]
    names = [row["name"] for row in files]
    assert len(set(names)) == len(names)
    assert {"torch-2.8-cu128-cp312", "markupsafe-cp312", "mpmath", "filelock"} <= {*names}
    assert not [n for n in names if n.startswith(("torch-", "markupsafe-")) and "cp312" not in n]
    assert ("numpy-cp312" in names) == (name == "xformers")
    assert set(made["wheels"].uploads) == {*names}
    for row in files:
        tool = lock.tool(row["name"])
        assert (row["version"], row["sha256"]) == (tool.version, tool.sha256)
        assert row["file"] == made["wheels"].uploads[row["name"]] == rf"C:\w\{tool.file}"
    # What is installed is named as its distribution is, and complete: no index is asked.
    packages = made["build tools"].spec["packages"]
    assert packages["torch"] == "2.8.0+cu128"
    assert {*recipe.build_requires, "markupsafe", "mpmath", "typing-extensions"} <= set(packages)
    assert not [name for name in packages if "cp312" in name]
    for distribution, entry in lock.entries_for(recipe.build_requires, TORCH.target).items():
        assert packages[distribution] == lock.tool(entry).version
    assert set(packages) <= {distribution_name(lock.tool(name).file) for name in names}


def test_a_torch_that_the_lock_does_not_have_is_told_with_the_nearest() -> None:
    recipe = load_recipe("flash-attn")
    with pytest.raises(LockError) as caught:
        desired_resources(load_resources(), recipe, complete(load_lock()), with_torch(TORCH, "2.5"))
    assert "no torch for CUDA 12.8, torch 2.5, Python 3.12: " in caught.value.message
    assert "there are torch-2.7-cu128-cp312" in caught.value.message


def test_an_environment_used_as_it_is_needs_no_entries() -> None:
    """There the names are the recipe's own, whatever the lock has for this cell."""
    place = with_torch(EXISTING, "2.99")
    recipe = load_recipe("flash-attn")
    made = desired_resources(load_resources(EXISTING_FILE), recipe, load_lock(), place)
    (found,) = [wanted for wanted in made if wanted.id == "environment"]
    asked = [*recipe.build_requires, *recipe.test_tools]
    assert "torch" in found.spec["names"]
    assert set(found.spec["names"]) <= {*asked}
    assert found.uploads == {}


def test_what_a_host_found_is_no_markup() -> None:
    row = ResourceResult(
        id="x", kind="directory", wanted="[a]", found="[/red]\x1b[31m", plan="[/]", ok=False
    )
    for table in (
        provision_stage._provision_result_table([row]),
        provision_stage._provision_plan_table([row]),
    ):
        console = Console(width=80, record=True, file=io.StringIO())
        console.print(table)
        said = console.export_text()
        assert "[/red]" in said
        assert "\x1b" not in said
