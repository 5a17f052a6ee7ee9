"""``invoke audit --torch``: findings on the DLLs a wheel is loaded with, and on stable ABIs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from audited import TAG, finding
from foreign_wheels import foreign
from pes import dll, msvc

from pipelines.audit import show
from pipelines.audit.examination import AuditOptions, audit_wheel, examine_all
from pipelines.audit.findings import WheelReport, references_of
from pipelines.audit.inputs import Input
from pipelines.audit.load_checks import References, python_of_tags, references_to
from pipelines.audit.lookup import torch_exports
from pipelines.audit.page import render
from pipelines.cli.program import run_command_line
from pipelines.core.console import console
from pipelines.core.errors import AuditError, ConfigError, LockError
from pipelines.core.files import sha256_of
from pipelines.toolchain.lock import Cache, load_lock
from pipelines.wheels.exports.cache import CacheEntry
from pipelines.wheels.exports.table import ExportTable

SHIM = {"torch_cpu.dll": ["torch_call_dispatcher"]}
Captured = pytest.CaptureFixture[str]


def torch(room: Path, version: str, *names: str, tag: str = TAG) -> str:
    files = {"torch/lib/c10.dll": dll({}, names)}
    return str(foreign(room, "torch", version, tag, files=files))


def wheel(
    room: Path,
    imports: Mapping[str, Sequence[str]],
    late: Mapping[str, Sequence[str]] | None = None,
    tag: str = TAG,
    requires: Sequence[str] = (),
) -> Input:
    files = {"other/_C.pyd": msvc(imports=imports, late=late)}
    path = foreign(room, "other", "1.0", tag, files=files, requires=requires)
    return Input(path.name, str(path), path)


def held(room: Path, *torches: str, wheels: Sequence[Input]) -> References:
    cache = Cache(load_lock(), room / "cache", offline=True)
    return references_to(torches, [one.file for one in wheels], cache)


def seen(room: Path, taken: Input, *torches: str) -> WheelReport:
    given = held(room, *torches, wheels=[taken]) if torches else None
    return audit_wheel(taken, AuditOptions(references=given))


def test_one_torch_of_two_is_to_be_minded(tmp_path: Path) -> None:
    old, new = torch(tmp_path, "2.7.0", "a", "b"), torch(tmp_path, "2.8.0", "a")
    taken = wheel(tmp_path, {"c10.dll": ["a", "b"]})
    both = seen(tmp_path, taken, old, new)
    levels = [finding(both, f"torch {v} (cp311)").level for v in ("2.7.0", "2.8.0")]
    assert levels == ["ok", "warning"]
    found = finding(both, "torch 2.8.0 (cp311)")
    assert found.text.startswith("1 imported")
    assert (found.hint, found.values) == ("c10.dll: b missing", ("b",))
    assert {one.against: one.verdict for one in both.loads} == {
        "torch 2.7.0 (cp311)": "ok",
        "torch 2.8.0 (cp311)": "error",
    }
    assert finding(seen(tmp_path, taken, new), "torch 2.8.0 (cp311)").level == "error"


def test_a_torch_that_was_not_looked_at_excuses_no_other(tmp_path: Path) -> None:
    taken = wheel(tmp_path, {"c10.dll": ["b"]})
    given = held(tmp_path, torch(tmp_path, "2.8.0", "a"), wheels=[taken])
    given = replace(given, torches=(*given.torches, ("2.9.0", "3.11", "the index has none")))
    assert (
        finding(audit_wheel(taken, AuditOptions(references=given)), "torch 2.8.0 (cp311)").level
        == "error"
    )


def test_what_is_called_late_does_not_keep_it_from_loading(tmp_path: Path) -> None:
    taken = wheel(tmp_path, {"c10.dll": ["a"]}, late={"c10.dll": ["b"]})
    found = finding(seen(tmp_path, taken, torch(tmp_path, "2.8.0", "a")), "torch 2.8.0 (cp311)")
    assert found.level == "warning"
    assert found.text.endswith("when called")


def test_what_was_not_looked_at_has_not_passed(tmp_path: Path) -> None:
    imports = {"c10.dll": ["a"], "c10_cuda.dll": ["b"], "cudart64_12.dll": ["c"]}
    taken = wheel(tmp_path, imports)
    every = seen(tmp_path, taken, torch(tmp_path, "2.8.0", "a"))
    found = finding(every, "torch 2.8.0 (cp311)")
    assert found.level == "unknown"
    assert found.text == "1 imported symbol found; not checked: c10_cuda.dll"
    assert "a build without CUDA" in found.hint
    assert finding(every, "DLLs of CUDA 12").level == "unknown"  # nothing is fetched here
    shared = wheel(tmp_path, {"curand64_10.dll": ["c"], "nvjitlink_130_0.dll": ["d"]})
    found = finding(seen(tmp_path, shared, torch(tmp_path, "2.8.0", "a")), "DLLs of CUDA 13")
    assert found.level == "unknown"
    shared = wheel(tmp_path, {"curand64_10.dll": ["c"]})
    found = finding(seen(tmp_path, shared, torch(tmp_path, "2.8.0", "a")), "DLLs of CUDA")
    assert (found.level, found.hint) == (
        "unknown",
        "not checked: from CUDA 11 or 12 or 13, not known which",
    )
    alone = seen(tmp_path, taken)
    assert alone.loads == ()


def test_of_a_wheel_for_another_machine_nothing_has_passed(tmp_path: Path) -> None:
    arm = bytearray(dll({"c10.dll": ["a"]}))
    start = arm.index(b"PE\0\0") + 4
    arm[start : start + 2] = (0xAA64).to_bytes(2, "little")
    for platform, files in (
        ("linux_x86_64", {"other/_C.so": b""}),
        ("win_arm64", {"other/_C.pyd": bytes(arm)}),
    ):
        path = foreign(tmp_path, "other", tag=f"cp311-cp311-{platform}", files=files)
        given = torch(tmp_path, "2.8.0", "a")
        found = finding(seen(tmp_path, Input(path.name, str(path), path), given), f"torch {given}")
        assert found.level == "unknown"
        assert found.text.startswith("not checked: ")
        assert found.requested  # and has no answer


def kept_release(room: Path, given: str) -> Path:
    """As an index has it whose wheel was fetched before; the file of its names."""
    table = torch_exports(given, Cache(load_lock(), room / "cache", offline=True))
    return CacheEntry(table.path).listed(room / "cache", Path(given).name, "some index").path


@pytest.mark.slow
def test_a_python_that_this_torch_has_no_wheel_for(tmp_path: Path) -> None:
    """Of several wheels each is held against the torch of its own Python."""
    kept_release(tmp_path, torch(tmp_path, "2.8.0", "a"))
    other = "cp314-cp314-win_amd64"
    wheels = [
        wheel(tmp_path, {"c10.dll": ["a"]}),
        wheel(tmp_path, {"c10.dll": ["a"]}, tag=other),
    ]
    both = held(tmp_path, "2.8.0", wheels=wheels)
    first, second = examine_all(wheels, AuditOptions(references=both), workers=2)
    assert finding(first, "torch 2.8.0 (cp311)").level == "ok"
    found = finding(second, "torch 2.8.0")
    assert (found.level, found.text) == (
        "unknown",
        "not checked: the exports of torch are not cached, and --offline forbids fetching them",
    )
    with pytest.raises(LockError, match="--offline"):
        held(tmp_path, "2.8.0", wheels=wheels[1:])


def test_a_file_answers_no_release_of_its_name(tmp_path: Path) -> None:
    """Whatever its name: only an index or the lock says what a release has."""
    given = torch(tmp_path, "2.8.0", "a")
    taken = wheel(tmp_path, {"c10.dll": ["a"]})
    assert finding(seen(tmp_path, taken, given), "torch 2.8.0 (cp311)").level == "ok"
    with pytest.raises(LockError, match="--offline"):
        held(tmp_path, "2.8.0", wheels=[taken])
    kept_release(tmp_path, given)
    assert finding(seen(tmp_path, taken, "2.8.0"), "torch 2.8.0 (cp311)").level == "ok"


def test_of_two_that_indexes_have_called_alike_none_is_chosen(tmp_path: Path) -> None:
    for name in ("one", "two"):
        kept_release(tmp_path, torch(tmp_path / name, "2.8.0", name))
    with pytest.raises(ConfigError, match="ambiguous"):
        held(tmp_path, "2.8.0", wheels=[])


def test_each_torch_is_named_by_its_sha256(tmp_path: Path, capsys: Captured) -> None:
    """Of two with one name, and of a directory, it would be unknown which it was."""
    taken = wheel(tmp_path, {"c10.dll": ["a"]})
    one, two = torch(tmp_path / "1", "2.8.0", "a"), torch(tmp_path / "2", "2.8.0", "b")
    folder = tmp_path / "site" / "torch" / "lib"
    folder.mkdir(parents=True)
    (folder / "c10.dll").write_bytes(dll({}, ["a"]))
    (folder.parent / "version.py").write_text("__version__ = '2.8.0'\n")
    found = seen(tmp_path, taken, one, two, str(tmp_path / "site"), one)
    first, second = (sha256_of(Path(each)) for each in (one, two))
    (said,) = {f"sha256 {load.table}" for load in found.loads if load.table}
    torches = {
        "torch 2.8.0 (cp311)": f"sha256 {first}",
        f"torch 2.8.0 (cp311) {second[:8]}": f"sha256 {second}",
        f"torch 2.8.0 in {tmp_path / 'site'}": f"a directory; its table of exports has {said}",
    }
    assert {k: v for k, v in references_of([found]).items() if k in torches} == torches
    assert [f.level for f in found.findings if f.label in torches] == ["ok", "warning", "ok"]
    page = render([found])
    for against, which in torches.items():
        assert (
            page.count(f'<th scope="col" class="torch">{against.removesuffix(" (cp311)")}</th>')
            == 1
        )
        assert which in page
    console.quiet = False
    show.show([found])
    assert f"torch 2.8.0 (cp311): sha256 {first}" in capsys.readouterr().out
    path = tmp_path / "junit.xml"
    show.write_audit_junit(path, [found])
    assert second in path.read_text()


def test_two_directories_whose_names_are_cut_alike_are_two(tmp_path: Path) -> None:
    taken = wheel(tmp_path, {"c10.dll": ["a"]})
    folders = []
    for name in "ab":
        folder = tmp_path / ("x" * 120) / name
        folder.mkdir(parents=True)
        (folder / "c10.dll").write_bytes(dll({}, [name]))
        folders.append(str(folder))
    found = seen(tmp_path, taken, *folders)
    assert len({one.against for one in found.loads if one.table}) == 2
    assert len([one for one in references_of([found]) if one.startswith("torch ")]) == 2


def test_a_table_that_was_swapped_is_not_looked_up(tmp_path: Path) -> None:
    """Of a directory it is called by what is in it, of a wheel by the wheel's sha256."""
    taken = wheel(tmp_path, {"c10.dll": ["b"]})
    for number, lie in enumerate((["a", "b"], ["a"])):
        folder = tmp_path / f"site{number}"
        folder.mkdir()
        (folder / "c10.dll").write_bytes(dll({}, lie))
    rich, poor = (
        held(tmp_path, str(tmp_path / f"site{n}"), wheels=[taken]).torches[0][2] for n in (0, 1)
    )
    assert isinstance(rich, ExportTable)
    assert isinstance(poor, ExportTable)
    poor.path.write_bytes(rich.path.read_bytes())
    given = References(Cache(load_lock(), tmp_path / "cache", offline=True), (("x", "3.11", poor),))
    assert (
        finding(audit_wheel(taken, AuditOptions(references=given)), poor.against).level == "unknown"
    )


@pytest.mark.parametrize(
    ("tags", "python"),
    [
        (["cp311-cp311-win_amd64"], "3.11"),
        (["cp313-cp313t-win_amd64"], "3.13t"),
        (["cp39-abi3-win_amd64"], ""),
        (["py3-none-win_amd64"], ""),
        (["cp311-cp311-win_amd64", "cp312-cp312-win_amd64"], ""),
    ],
)
def test_whose_torch_a_wheel_is_held_against(tags: list[str], python: str) -> None:
    assert python_of_tags(tags) == python


@pytest.mark.parametrize(
    ("imports", "tag", "requires", "level", "said"),
    [
        (SHIM, "py3-none-win_amd64", ["torch>=2.10"], "ok", ""),
        (SHIM, "py3-none-win_amd64", ["torch>=2.8"], "warning", "accepts torch 2.8.0"),
        (SHIM, "py3-none-win_amd64", ["torch"], "ok", ""),
        (
            {"python3.dll": ["PyType_GetModule"]},
            "cp39-abi3-win_amd64",
            [],
            "error",
            "tagged for Python 3.9",
        ),
        ({"python3.dll": ["PyType_GetModule"]}, "cp310-abi3-win_amd64", [], "ok", ""),
        (
            {"torch_cpu.dll": ["torch_of_tomorrow"]},
            "py3-none-win_amd64",
            [],
            "unknown",
            "torch_of_tomorrow",
        ),
        ({"c10.dll": ["?f@c10@@YAXH@Z"]}, TAG, ["torch==2.8.0"], "ok", ""),
    ],
)
def test_what_tags_and_metadata_promise(
    tmp_path: Path,
    *,
    imports: Mapping[str, Sequence[str]],
    tag: str,
    requires: list[str],
    level: str,
    said: str,
) -> None:
    found = finding(seen(tmp_path, wheel(tmp_path, imports, None, tag, requires)), "stable ABI")
    assert found.level == level
    assert said in found.hint
    assert bool(said) == bool(found.hint)


@pytest.mark.slow
@pytest.mark.usefixtures("own_directory")
def test_as_it_is_typed(tmp_path: Path, capsys: Captured) -> None:
    taken = wheel(tmp_path, {"c10.dll": ["a", "b"]})
    old, new = torch(tmp_path, "2.7.0", "a", "b"), torch(tmp_path, "2.8.0", "a")
    typed = ["audit", str(taken.path), "--offline", "--json", "--torch"]
    assert run_command_line([*typed, f"{old},{new}"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["wheels"]
    assert [(one["against"], one["verdict"]) for one in told["loads"]] == [
        ("torch 2.7.0 (cp311)", "ok"),
        ("torch 2.8.0 (cp311)", "error"),
    ]
    (lack,) = told["loads"][1]["missing"]
    assert (lack["library"], lack["symbol"]) == ("c10.dll", "b")
    assert told["stable"]["torch"] == "unstable"
    assert run_command_line([*typed, new]) == AuditError.exit_code
    assert run_command_line([*typed, "2.6.0"]) == LockError.exit_code
    assert run_command_line([*typed, "nonsense"]) == ConfigError.exit_code
