"""A wheel in shares: real ninja and g++, and torch's way to start them."""

from __future__ import annotations

import hashlib
import re
import shutil
import threading
import time
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given as supposed
from hypothesis import strategies
from projects import project
from sharebuilds import LACKING, Builds, compiled, extensions, given, wheels, without_wheels

from pipelines.recipe.progress import make_progress_parser
from pipelines.remote import builder, cargo, process, sharding
from pipelines.remote.shards import balance, calls

pytestmark = pytest.mark.slow


needs_compiler = pytest.mark.skipif(bool(LACKING), reason=f"not there: {', '.join(LACKING)}")


# -- who compiles what ----------------------------------------------------------------------------

WEIGHTS = strategies.dictionaries(
    strategies.text("abcdef", min_size=1, max_size=4), strategies.floats(0, 400), max_size=90
)


@supposed(WEIGHTS, strategies.integers(1, 25))
def test_every_unit_is_in_one_share(weights: dict[str, float], count: int) -> None:
    shares = balance.divided(weights, count)
    assert len(shares) == count
    assert sorted(unit for share in shares for unit in share) == sorted(weights)
    backwards = dict(reversed(weights.items()))
    assert balance.divided(backwards, count) == shares, "the order of the list does not matter"
    loads = [sum(weights[unit] for unit in share) for share in shares]
    # Graham's bound: no share is worse than the mean and one unit more.
    assert max(loads) <= sum(loads) / count + max([*weights.values(), 0.0]) + 1e-6


def test_shares_of_what_came_before_are_kept_in_mind() -> None:
    assert balance.divided({"a": 2.0, "b": 1.0}, 2, [5.0, 0.0]) == [[], ["a", "b"]]


@pytest.mark.parametrize(
    ("source", "seconds"),
    [("csrc/flash_bwd_x.cu", 300.0), (r"C:\b\flash_api.cpp", 30.0), ("flash_bwd/other.cpp", 7.0)],
)
def test_the_first_glob_that_fits_says_how_long(source: str, seconds: float) -> None:
    costs = [["flash_bwd*", 300], ["flash_*", 30]]
    assert balance.weight(source, costs, 7.0) == seconds


# -- what is a start of ninja ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        (["ninja", "-v", "-j", "4"], ("/w", "build.ninja", ["-v", "-j", "4"], [])),
        (["/x/ninja.exe", "-C", "b", "-fother.ninja", "all"], ("/w/b", "other.ninja", [], ["all"])),
        ("ninja -j4 -k 0 one", ("/w", "build.ninja", ["-j", "4", "-k", "0"], ["one"])),
        (["python3", "-m", "ninja", "one"], ("/w", "build.ninja", [], ["one"])),
        (["meson", "compile", "-C", "b", "-j", "3"], ("/w/b", "build.ninja", ["-j", "3"], [])),
        (
            ["meson", "compile", "--ninja-args=['-v', '-l2']", "mine"],
            ("/w", "build.ninja", ["-v", "-l", "2"], ["mine"]),
        ),
    ],
)
def test_a_start_of_ninja(command: object, wanted: tuple[object, ...]) -> None:
    call = calls.read(calls.words(command), "/w", {})
    assert call is not None
    assert (call.directory, call.manifest, sorted(call.flags), call.targets) == (
        *wanted[:2],
        sorted(cast("list[str]", wanted[2])),
        wanted[3],
    )
    assert not call.reason


@pytest.mark.parametrize(
    "command",
    [
        ["ninja", "--version"],
        ["ninja", "-t", "clean"],
        ["ninja", "-n"],
        ["cmake", "-S", ".", "-B", "b"],
        ["meson", "setup", "b"],
        ["g++", "-c", "ninja"],
        "cd b && ninja",
        [],
    ],
)
def test_what_is_none(command: object) -> None:
    assert calls.read(calls.words(command), "/w", {}) is None


def cache_of_cmake(folder: Path, generator: str = "Ninja") -> None:
    (folder / "b").mkdir()
    (folder / "b/CMakeCache.txt").write_text(
        f"CMAKE_GENERATOR:INTERNAL={generator}\nCMAKE_MAKE_PROGRAM:FILEPATH=/n/ninja\n"
    )


@pytest.mark.parametrize(
    ("words", "flags", "targets"),
    [
        ("", [], []),
        ("-j 3 --config Release", ["-j", "3"], []),
        ("--parallel --target one two -v", ["-v"], ["one", "two"]),
        ("--target=one -j4 -- -k 0", ["-j", "4", "-k", "0"], ["one"]),
        ("-j --verbose", ["-v"], []),
    ],
)
def test_what_cmake_would_start(
    tmp_path: Path, words: str, flags: list[str], targets: list[str]
) -> None:
    cache_of_cmake(tmp_path)
    call = calls.read(["cmake", "--build", "b", *words.split()], str(tmp_path), {})
    assert call is not None
    assert (call.program, call.directory) == (["/n/ninja"], str(tmp_path / "b"))
    assert (call.flags, call.targets, call.reason) == (flags, targets, "")


def test_the_variable_for_jobs_of_cmake(tmp_path: Path) -> None:
    cache_of_cmake(tmp_path)
    told = {"CMAKE_BUILD_PARALLEL_LEVEL": "5"}
    call = calls.read(["cmake", "--build", "b"], str(tmp_path), told)
    assert call is not None
    assert call.flags == ["-j", "5"]


@pytest.mark.parametrize("generator", ["Unix Makefiles", "Ninja Multi-Config", ""])
def test_another_generator_is_told(tmp_path: Path, generator: str) -> None:
    cache_of_cmake(tmp_path, generator)
    call = calls.read(["cmake", "--build", "b"], str(tmp_path), {})
    assert call is not None
    assert f"{generator or 'unknown'}, not Ninja" in call.reason


# -- torch's BuildExtension -----------------------------------------------------------------------


@pytest.fixture
def builds(tmp_path: Path) -> Builds:
    """Two extensions: torch gives them one manifest, one after another."""
    return Builds(tmp_path, extensions(tmp_path / "tree", one=4, two=1))


@pytest.fixture(scope="module")
def made(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, list[str], list[sharding.ForeignObject]]:
    """A room, the wheel that was built whole there, and the objects of two shares.

    The place is in the objects: who links them does so in that room.
    """
    room = tmp_path_factory.mktemp("room")
    builds = Builds(room, extensions(room / "tree", one=4, two=1))
    whole = builds.run("whole")
    assert whole["exit"] == 0, builds.log
    assert "units" not in whole
    shutil.rmtree(room / "whole")
    return room, wheels(whole), builds.shares(2)


@needs_compiler
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_the_wheel_is_the_one_that_is_built_whole(
    made: tuple[Path, list[str], list[sharding.ForeignObject]], count: int
) -> None:
    """7 shares of 5 units: two of them have nothing to do, which is no error."""
    room, whole, objects = made
    builds = Builds(room, room / "tree")
    if count != 2:
        objects = builds.shares(count)
    assert without_wheels(room), "no share leaves a wheel, not even aside"
    assert len(objects) == 5
    linked = builds.link(builds.sent(objects, f"link{count}"), f"link{count}")
    shutil.rmtree(room / f"link{count}")
    assert wheels(linked) == whole, builds.log
    assert len(whole) == 1
    assert sorted(linked["placed"]) == sorted(row["unit"] for row in objects)
    assert linked["compiled"] == []
    assert compiled(builds.log) == 0


@needs_compiler
def test_what_a_share_tells(builds: Builds) -> None:
    costs = [["one_2*", 30.0], ["one_*", 10.0]]
    first = builds.share(1, 2, costs)
    steps = [
        step
        for step in map(make_progress_parser("[{done}/{total}]"), builds.log.splitlines())
        if step
    ]
    assert (steps[0].done, steps[0].total) == (1, len(steps) - 1), "its own units are counted"
    second = builds.share(2, 2, costs)
    assert first["units"] == second["units"], "every host sees the same list"
    sources = {row["id"]: row["source"] for row in first["units"]}
    assert list(sources.values()) == [f"src dir/one_{n}.cpp" for n in range(4)] + [
        "src dir/two_0.cpp"
    ]
    assert [row["seconds"] for row in first["units"]] == [10.0, 10.0, 30.0, 10.0, 1.0]
    mine = [[sources[row["unit"]] for row in done["objects"]] for done in (first, second)]
    assert mine[0][0] == "src dir/one_2.cpp"
    assert len(mine[1]) == 3 or len(mine[0]) == 2, mine
    for row in first["objects"]:
        assert Path(row["path"]).name == row["sha256"]
        assert builder.left(Path(row["path"])) == {
            "path": row["path"],
            "size": row["size"],
            "sha256": row["sha256"],
        }
        assert row["seconds"] > 0
    assert {len(unit["command"]) for unit in first["units"]} == {64}
    assert first["timeline"]["units"], "what it did with its time"


@needs_compiler
def test_units_that_nobody_gave_are_compiled_and_told(
    made: tuple[Path, list[str], list[sharding.ForeignObject]],
) -> None:
    room, whole, objects = made
    builds = Builds(room, room / "tree")
    linked = builds.link(objects[:2], "some")
    shutil.rmtree(room / "some")
    assert wheels(linked) == whole
    assert {*linked["compiled"]} == {row["id"] for row in linked["units"]} - {*linked["placed"]}
    assert compiled(builds.log) == len(linked["compiled"]) == 3
    assert "compiled here, missing from other hosts" in builds.log


@needs_compiler
def test_a_unit_that_fails_ends_the_share_with_its_own_words(builds: Builds) -> None:
    path = builds.tree / "src dir/one_1.cpp"
    path.write_text('#error "not today"\n')
    ends = {number: builds.share(number, 2) for number in (1, 2)}
    assert sorted(done["exit"] for done in ends.values()) == [0, 1]
    (bad,) = (number for number, done in ends.items() if done["exit"])
    again = builds.share(bad, 2)
    assert again["exit"] == 1
    assert "objects" not in again
    assert "not today" in builds.log
    assert "FAILED" in builds.log
    assert without_wheels(builds.room)


@needs_compiler
def test_headers_are_known_when_a_share_goes_on(builds: Builds) -> None:
    """The job of another source is another job; here one source is changed below it."""
    first = builds.share(1, 1)
    assert builds.share(1, 1)["exit"] == 0
    assert compiled(builds.log) == 0, "what is done is kept"
    time.sleep(1.1)  # tar's times have whole seconds
    (builds.tree / "common.h").write_text("#define PLUS 40\n")
    changed = builds.share(1, 1)
    assert compiled(builds.log) == 5, builds.log
    assert len(changed["objects"]) == 5
    assert {row["sha256"] for row in changed["objects"]} & {
        row["sha256"] for row in first["objects"]
    } == set()


@needs_compiler
def test_a_share_that_was_killed_goes_on(builds: Builds, tmp_path: Path) -> None:
    """The third unit waits; ninja, and all with it, is ended then."""
    wait, reached = tmp_path / "wait", tmp_path / "reached"
    wait.touch()
    slow = tmp_path / "slow-g++"
    slow.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *one_2.cpp*) touch {reached}; while [ -e {wait} ]; do sleep 0.05; done;; '
        'esac\nexec g++ "$@"\n'
    )
    slow.chmod(0o755)
    builds.environment |= {"CXX": str(slow), "MAX_JOBS": "1"}

    def end() -> None:
        while not reached.exists():
            time.sleep(0.05)
        process.cancelled.set()

    killer = threading.Thread(target=end)
    killer.start()
    try:
        cut = builds.share(1, 1, job="job")
    finally:
        killer.join()
        process.cancelled.clear()
    assert cut["exit"] != 0
    assert "objects" not in cut
    wait.unlink()
    done = builds.share(1, 1, job="job")
    assert done["exit"] == 0, builds.log
    assert len(done["objects"]) == 5
    assert "one_0.cpp" not in "".join(re.findall(r"^\[.*", builds.log, re.MULTILINE))


@needs_compiler
def test_objects_of_the_second_extension_alone(
    made: tuple[Path, list[str], list[sharding.ForeignObject]],
) -> None:
    """Those of the first are known, but lost: its hosts have died."""
    room, whole, objects = made
    builds = Builds(room, room / "tree")
    linked = builds.link(objects, "every")
    (last,) = (row["id"] for row in linked["units"] if "two_0" in row["source"])
    known = [row["unit"] for row in objects]
    some = [row for row in objects if row["unit"] == last]
    units = {"mode": "link", "objects": some, "known": known, "cost": 1.0}
    linked = builds.run("alone", units)
    assert wheels(linked) == whole, builds.log
    assert (linked["placed"], len(linked["compiled"])) == ([last], 4)
    for job in ("every", "alone"):
        shutil.rmtree(room / job)


@needs_compiler
def test_a_link_that_was_cut_off_goes_on(
    made: tuple[Path, list[str], list[sharding.ForeignObject]],
) -> None:
    """Its libraries are there, so setuptools would leave out what it has to look at again."""
    room, whole, objects = made
    builds = Builds(room, room / "tree")
    for _ in range(2):
        again = builds.link(objects[1:], "cut-off")
        assert wheels(again) == whole, builds.log
    assert len(again["placed"]) == 4
    assert compiled(builds.log) == 0, "what it has compiled itself is kept"
    shutil.rmtree(room / "cut-off")


# -- lies -----------------------------------------------------------------------------------------


@pytest.fixture
def lied(
    made: tuple[Path, list[str], list[sharding.ForeignObject]], tmp_path: Path
) -> Iterator[tuple[Builds, list[sharding.ForeignObject]]]:
    """Source and objects to be changed."""
    room, _, objects = made
    shutil.copytree(room / "tree", tmp_path / "tree")
    copies = [copy(row) for row in objects]
    for row in copies:
        row["path"] = str(shutil.copy(row["path"], str(tmp_path)))
    yield Builds(room, tmp_path / "tree"), copies
    for left in room.glob("link*/"):
        shutil.rmtree(left, ignore_errors=True)


def refused(builds: Builds, linked: builder.Built, *words: str) -> None:
    """The link ended with these words, and no wheel is anywhere."""
    assert linked["exit"] == 1, builds.log
    assert without_wheels(builds.room)
    assert "placed" not in linked
    for word in words:
        assert word in builds.log


@needs_compiler
def test_a_damaged_object(lied: tuple[Builds, list[sharding.ForeignObject]]) -> None:
    builds, objects = lied
    path = Path(objects[0]["path"])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    now = builder.left(path)["sha256"]
    refused(builds, builds.link(objects), "damaged", now, objects[0]["sha256"])
    path.unlink()
    refused(builds, builds.link(objects), "No such file")


@needs_compiler
def test_a_unit_given_twice(lied: tuple[Builds, list[sharding.ForeignObject]]) -> None:
    builds, objects = lied
    same = [*objects, objects[0]]
    assert builds.link(same, "link-same")["exit"] == 0, "the same bytes twice are no contradiction"
    shutil.rmtree(builds.room / "link-same")
    other = {**objects[1], "unit": objects[0]["unit"]}
    linked = builds.link([*objects, cast("sharding.ForeignObject", other)])
    refused(builds, linked, "given twice", objects[0]["sha256"], objects[1]["sha256"])


@needs_compiler
def test_an_object_of_another_build(lied: tuple[Builds, list[sharding.ForeignObject]]) -> None:
    builds, objects = lied
    strange = cast("sharding.ForeignObject", {**objects[0], "unit": "f" * 32})
    refused(builds, builds.link([*objects, strange]), "1 of 6 objects", "f" * 32)
    builds.environment["CXX"] = "g++ -DOTHER"
    done = builds.link(objects, "link-flags")
    refused(builds, done, "5 of 5 objects", objects[0]["unit"], "different source, directory, tool")
    assert compiled(builds.log) == 0, "it is not built first"


@needs_compiler
def test_a_source_that_another_host_has_generated_otherwise(
    lied: tuple[Builds, list[sharding.ForeignObject]],
) -> None:
    builds, objects = lied
    source = builds.tree / "src dir/one_0.cpp"
    source.write_text(source.read_text() + "// made on another day\n")
    refused(builds, builds.link(objects), "1 of 5 objects")


SWAPS = """
import builtins, pathlib
from torch.utils import cpp_extension
def swap():
    for path in pathlib.Path("build").rglob("one_1.o"):
        path.write_bytes(path.read_bytes() + b"more")
inner = cpp_extension.subprocess.run
def run(command, **named):
    done = inner(command, **named)
    if command[0] == "ninja" and "-v" in command:
        swap()
    return done
cpp_extension.subprocess.run = run
"""


@pytest.fixture
def outside(tmp_path: Path) -> Builds:
    """A project whose header is that of its host, and not its own."""
    include = tmp_path / "include"
    include.mkdir()
    (include / "outer.h").write_text("#define OUTER 1\n")
    tree = extensions(tmp_path / "tree", one=2)
    (tree / "common.h").write_text("#include <outer.h>\n#define PLUS OUTER\n")
    builds = Builds(tmp_path, tree)
    builds.environment["CPATH"] = str(include)
    return builds


@needs_compiler
def test_a_header_of_the_host_that_is_another_one_at_the_link(
    outside: Builds, tmp_path: Path
) -> None:
    done = outside.share(1, 1)
    header = tmp_path / "include/outer.h"
    assert done["read"][str(header)] == hashlib.sha256(header.read_bytes()).hexdigest()
    assert str(tmp_path / "fixed/src/src dir/one_0.cpp") in done["read"]
    assert wheels(outside.link(given(done), read=done["read"]))
    header.write_text("#define OUTER 2\n")
    linked = outside.link(given(done), "another", done["read"])
    assert linked["exit"] == 1
    assert not wheels(linked)
    assert f"1 of {len(done['read'])} files that other hosts have compiled" in outside.log
    assert str(header) in outside.log


@needs_compiler
def test_a_variable_that_compilers_read_is_in_the_id(outside: Builds, tmp_path: Path) -> None:
    done = outside.share(1, 1)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/outer.h").write_text("#define OUTER 7\n")
    outside.environment["CPATH"] = str(tmp_path / "elsewhere")
    linked = outside.link(given(done))
    assert linked["exit"] == 1
    assert not wheels(linked)
    assert "objects are of units that this build does not have" in outside.log


@needs_compiler
def test_an_object_swapped_between_its_place_and_the_linker(
    lied: tuple[Builds, list[sharding.ForeignObject]],
) -> None:
    """Who may write there meanwhile is noticed: the second extension's ninja looks at the first."""
    builds, objects = lied
    setup = builds.tree / "setup.py"
    setup.write_text(SWAPS + setup.read_text())
    refused(builds, builds.link(objects), "changed while the wheel was linked")


COMPILES = """
from torch.utils import cpp_extension
inner = cpp_extension.subprocess.run
def run(command, **named):
    done = inner(command, **named)
    if command[0] == "ninja" and "-v" in command:
        cpp_extension.subprocess.run(["sh", "-c", "exec ninja"], cwd=named["cwd"], check=True)
    return done
cpp_extension.subprocess.run = run
"""


@needs_compiler
def test_a_ninja_that_nobody_sees_compiles_what_others_did(
    lied: tuple[Builds, list[sharding.ForeignObject]],
) -> None:
    """The bytes are the same, so the hash is none the wiser; ninja's log is."""
    builds, objects = lied
    setup = builds.tree / "setup.py"
    setup.write_text(
        COMPILES.replace("cpp_extension.subprocess.run([", "inner([") + setup.read_text()
    )
    refused(builds, builds.link(objects), "which another host compiled")


SWALLOWS = """
import subprocess
def build_wheel(out):
    try:
        subprocess.run(["ninja"], check=True)
    except BaseException:
        pass
    open(out + "/bogus.whl", "w").close()
    return "bogus.whl"
"""
PACKS = """
    import zipfile
    with zipfile.ZipFile(out + "/m-1-py3-none-any.whl", "w") as wheel:
        wheel.write("lib.so", "lib.so")
        wheel.writestr("m-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        wheel.writestr("m-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: m\\nVersion: 1\\n")
        wheel.writestr("m-1.dist-info/RECORD", "")
    return "m-1-py3-none-any.whl"
"""
NINJA = "rule cc\n  command = {command}\nbuild a.o: cc a.c\nbuild b.o: cc b.c\n"


def swallowing(tmp_path: Path, command: str = "cp $in $out") -> Builds:
    tree = tmp_path / "tree"
    project(tree, SWALLOWS)
    for name in ("a.c", "b.c"):
        (tree / name).write_text(name)
    (tree / "build.ninja").write_text(NINJA.format(command=command))
    return Builds(tmp_path, tree)


@needs_compiler
def test_a_build_system_that_swallows_errors(tmp_path: Path) -> None:
    builds = swallowing(tmp_path, "false")
    assert builds.share(1, 1)["exit"] == 1
    assert "ninja exited with 1" in builds.log
    refused(builds, builds.link([]), "ninja exited with 1")
    strange = {"unit": "f" * 32, "path": "/nowhere", "sha256": "0" * 64}
    done = builds.link([cast("sharding.ForeignObject", strange)], "strange")
    refused(builds, done, "f" * 32)


FAILS = """
import pathlib, subprocess
def build_wheel(out):
    subprocess.run(["ninja"], check=True)
    raise {what}
"""


@needs_compiler
def test_a_build_system_that_stumbles_over_the_missing_link(tmp_path: Path) -> None:
    """Its units are compiled: that it finds no library then is no fault of the share."""
    builds = swallowing(tmp_path)
    text = FAILS.format(what="SystemExit(pathlib.Path('lib.so').read_bytes())")
    (builds.tree / "mine.py").write_text(text)
    done = builds.share(1, 1)
    assert done["exit"] == 0, builds.log
    assert len(done["objects"]) == 2
    assert "without a link it ends here, with FileNotFoundError" in builds.log
    linked = builds.link(given(done))
    refused(builds, linked, "FileNotFoundError")
    (builds.tree / "mine.py").write_text(FAILS.format(what="SystemExit(0)"))
    refused(builds, builds.link(given(done), "zero"), "exited with 0 but built no wheel")


# -- what cannot be divided -----------------------------------------------------------------------


@needs_compiler
@pytest.mark.parametrize("mode", ["compile", "link"])
def test_a_build_without_ninja(tmp_path: Path, mode: str) -> None:
    project(
        tmp_path / "tree",
        "def build_wheel(out):\n    open(out + '/x.whl', 'w')\n    return 'x.whl'\n",
    )
    builds = Builds(tmp_path, tmp_path / "tree")
    done = builds.share(1, 1) if mode == "compile" else builds.link([])
    assert done["exit"] == 1
    assert "units: nothing to shard: this build has started no ninja" in builds.log
    assert without_wheels(tmp_path)


@needs_compiler
def test_cmake_with_makefiles(tmp_path: Path) -> None:
    """It is not even begun: all of it would be compiled on every host."""
    project(
        tmp_path / "tree",
        "import subprocess\ndef build_wheel(out):\n"
        "    subprocess.run(['cmake', '--build', 'b'], check=True)\n    return 'x'\n",
    )
    cache_of_cmake(tmp_path / "tree", "Unix Makefiles")
    builds = Builds(tmp_path, tmp_path / "tree")
    assert builds.share(1, 2)["exit"] == 1
    assert "nothing to shard: CMake's generator is Unix Makefiles, not Ninja" in builds.log


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    builds = Builds(tmp_path, tmp_path)
    for share in ((0, 3), (4, 3)):
        with pytest.raises(ValueError, match=f"shard {share[0]}/3: expected one of 1/3 to 3/3"):
            builds.share(*share)
    spec = builds.spec("x", {"mode": "link", "objects": []})
    del spec["fixed"]
    with pytest.raises(ValueError, match="only reproducible builds"):
        next(builder.build(spec))
    with pytest.raises(ValueError, match="cannot be sharded"):
        next(cargo.build(cast("cargo.Spec", builds.spec("y", {"mode": "link"}))))


@needs_compiler
def test_one_name_of_an_object_in_two_extensions(tmp_path: Path) -> None:
    """Of one source with two sets of flags: the second is written over the first."""
    tree = extensions(tmp_path / "tree", one=1, two=1)
    setup = tree / "setup.py"
    one, two, last = setup.read_text().replace("two_0.cpp", "one_0.cpp").rpartition("[os.getcwd()]")
    setup.write_text(one + two + ", extra_compile_args=['-O2']" + last)
    builds = Builds(tmp_path, tree)
    whole = builds.run("whole")
    assert whole["exit"] == 0, builds.log
    objects = builds.shares(2)
    assert len({row["unit"] for row in objects}) == len({row["sha256"] for row in objects}) == 2
    assert wheels(builds.link(objects)) == wheels(whole), builds.log


@needs_compiler
def test_only_what_is_asked_for_is_divided(tmp_path: Path) -> None:
    """A project's tests are units of its manifest, and of no wheel."""
    builds = swallowing(tmp_path)
    (builds.tree / "mine.py").write_text(SWALLOWS.replace('["ninja"]', '["ninja", "b.o"]'))
    done = builds.share(1, 1)
    assert [row["source"] for row in done["units"]] == ["b.c"]


@needs_compiler
def test_what_a_manifest_includes_is_made_by_the_link(tmp_path: Path) -> None:
    """It is reported, and the wheel is the same."""
    builds = swallowing(tmp_path)
    tree = builds.tree
    (tree / "more.ninja").write_text("rule cc\n  command = cp $in $out\nbuild c.o: cc c.c\n")
    (tree / "c.c").write_text("c.c")
    with (tree / "build.ninja").open("a") as file:
        file.write("rule cat\n  command = cat $in > $out\nsubninja more.ninja\n")
        file.write("build lib.so: cat a.o b.o c.o\n")
    text = SWALLOWS.partition("    open(")[0] + PACKS
    (tree / "mine.py").write_text(text.replace('["ninja"]', '["ninja", "lib.so"]'))
    whole = builds.run("whole")
    assert whole["exit"] == 0, builds.log
    done = builds.share(1, 1)
    assert [row["source"] for row in done["units"]] == ["a.c", "b.c"]
    assert "units: not sharded, the link builds them: c.o" in builds.log
    assert not (tmp_path / "share1of1/src/c.o").exists()
    linked = builds.link(given(done))
    assert wheels(linked) == wheels(whole)
    assert len(linked["placed"]) == 2


TWO = """
import subprocess
def build_wheel(out):
    subprocess.check_call(["ninja", "-C", "one"])
    subprocess.Popen(args=["ninja", "a.o"], cwd="two").wait()
    subprocess.run("cat one/a.o one/b.o two/a.o > lib.so", shell=True, check=True)
"""


@needs_compiler
def test_two_manifests_with_the_same_names(tmp_path: Path) -> None:
    """The place makes them others. What a shell does with objects is the share's own affair."""
    builds = swallowing(tmp_path)
    for name in ("one", "two"):
        (builds.tree / name).mkdir()
        for part in ("a.c", "b.c", "build.ninja"):
            shutil.copy(builds.tree / part, builds.tree / name)
        (builds.tree / name / "a.c").write_text(name)
    (builds.tree / "mine.py").write_text(TWO + PACKS)
    whole = builds.run("whole")
    assert whole["exit"] == 0, builds.log
    shutil.rmtree(tmp_path / "whole")
    objects = builds.shares(2)
    assert len({row["unit"] for row in objects}) == 3
    linked = builds.link(objects)
    assert wheels(linked) == wheels(whole), builds.log
    sources = [row["source"] for row in linked["units"]]
    assert sources == ["one/a.c", "one/b.c", "two/a.c"]
