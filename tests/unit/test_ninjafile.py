"""What is read of a build.ninja, held against what ninja itself says of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies

from pipelines.remote.shards import ninjafile
from pipelines.remote.shards.calls import Call
from pipelines.remote.shards.compile_units import units

needs_ninja = pytest.mark.skipif(not shutil.which("ninja"), reason="ninja is not there")

HARD = r"""# a comment: build x: y
ninja_required_version = 1.3
root = deep
place = $root/er$
    st
rule cc
  command = cp $in $out
  # a comment among bindings
  description = build $out
rule late
  command = cp $in $out
  dyndep = late.dd
pool two
  depth = 2
build $
    a$ b.o $
    : cc $
    x$ y.c | head.h || first second
  flags = -O2
build ./c//d.o: cc ${place}/../q.c
build C$:$$/${place}.o: cc q.c
build local-$kind.o: cc q.c
  kind = z
build side.o | side.txt: cc q.c
build linked.o: cc a$ b.o
build precompiled.o: cc q.c | all.pch
build late.o: late q.c | late.dd
build first second head.h x$ y.c q.c all.pch late.dd deep/q.c: phony
build lib.a: cc a$ b.o ./c/d.o
build other.o: cc q.c
default lib.a
# the end
build tail.o: cc q.c
"""


def compdb(folder: Path, name: str = "build.ninja") -> dict[str, str]:
    command = ["ninja", "-f", name, "-t", "compdb"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=True)
    rows = {row["output"]: row["file"] for row in json.loads(done.stdout)}
    return {made: source for made, source in rows.items() if source}


@needs_ninja
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_every_edge_is_what_ninja_says(tmp_path: Path, ends: str) -> None:
    text = HARD.replace("\n", ends)
    (tmp_path / "build.ninja").write_bytes(text.encode())
    manifest = ninjafile.read(text)
    ours = {edge.outputs[0]: edge.inputs[0] for edge in manifest.edges if edge.sure and edge.inputs}
    told = compdb(tmp_path)
    assert ours.items() <= told.items()
    assert told.keys() - ours.keys() == {"local-z.o", "late.o"}
    assert [edge.outputs for edge in manifest.edges if len(edge.outputs) == 2] == [
        ("side.o", "side.txt")
    ]
    assert manifest.defaults == ("lib.a",)


def test_what_ninja_waits_for_is_read_too() -> None:
    first = ninjafile.read(HARD).edges[0]
    assert first.inputs == ("x y.c", "head.h")
    assert first.waits == ("first", "second")


def test_what_targets_need() -> None:
    manifest = ninjafile.read(HARD)
    assert {"a b.o", "c/d.o", "lib.a", "first"} <= manifest.needed([])
    assert "other.o" not in manifest.needed([])
    assert "c/d.o" in manifest.needed(["./c/d.o"])
    assert "a b.o" not in manifest.needed(["./c/d.o"])
    everything = manifest.needed(["in-a-file-that-is-included"])
    assert {"other.o", "tail.o", "a b.o"} <= everything


@needs_ninja
def test_units_stand_alone_and_nothing_else_is_one(tmp_path: Path) -> None:
    """Objects of objects, and what reads or leaves a precompiled header, are the link's."""
    (tmp_path / "build.ninja").write_text(HARD)
    _, every, rest = units(
        Call(str(tmp_path), targets=["tail.o", "other.o", "lib.a"]), str(tmp_path), os.environ
    )
    assert [unit.output for unit in every] == ["a b.o", "c/d.o", "other.o", "tail.o"]
    assert not rest, "the others are not asked for"
    _, none, rest = units(
        Call(str(tmp_path), targets=["linked.o", "late.o"]), str(tmp_path), os.environ
    )
    assert ([unit.output for unit in none], rest) == (["a b.o"], ["linked.o", "late.o"])
    _, default, _ = units(Call(str(tmp_path)), str(tmp_path), os.environ)
    assert [unit.output for unit in default] == ["a b.o", "c/d.o"]
    assert [unit.source for unit in default] == ["x y.c", "deep/q.c"]
    (tmp_path / "build.ninja").write_text(HARD.replace("cp $in", "cp -p $in"))
    _, others, _ = units(Call(str(tmp_path)), str(tmp_path), os.environ)
    assert not {unit.id for unit in others} & {unit.id for unit in default}


@needs_ninja
def test_a_variable_that_an_included_file_changes(tmp_path: Path) -> None:
    """It is unknown what it is: ninja does not know the output, so it is no unit."""
    (tmp_path / "more.ninja").write_text("where = there\n")
    (tmp_path / "build.ninja").write_text(
        "rule cc\n  command = cp $in $out\nwhere = here\n"
        "include more.ninja\nbuild $where/a.o: cc a.c\nbuild b.o: cc b.c\n"
    )
    _, found, rest = units(Call(str(tmp_path)), str(tmp_path), os.environ)
    assert [unit.output for unit in found] == ["b.o"]
    assert rest == ["there/a.o"]


@needs_ninja
def test_edges_taken_out_make_nothing_and_others_still_wait(tmp_path: Path) -> None:
    (tmp_path / "build.ninja").write_text(
        "rule cc\n  command = cat $in > $out && echo $out >> made\n"
        "rule gen\n  command = echo made > $out\n"
        "build gen.h: gen\n"
        "build a$ b.o: $\n  cc a.c || gen.h\n  flags = x\n"
        "build c.o: cc c.c\nbuild lib.a: cc a$ b.o c.o\n"
    )
    for name in ("a.c", "c.c"):
        (tmp_path / name).write_text(name)
    manifest = ninjafile.read((tmp_path / "build.ninja").read_text())
    (tmp_path / "mine.ninja").write_text(manifest.without(frozenset({"a b.o"})))
    (tmp_path / "a b.o").write_text("another host's")
    subprocess.run(["ninja", "-f", "mine.ninja"], cwd=tmp_path, check=True)
    assert (tmp_path / "a b.o").read_text() == "another host's"
    assert (tmp_path / "gen.h").exists(), "what the unit waits for is made as before"
    assert (tmp_path / "lib.a").read_text() == "another host'sc.c"
    assert (tmp_path / "made").read_text().split() == ["c.o", "lib.a"]


@pytest.mark.parametrize(
    "text", ["", "\n\n", "build", "build x", "build x:", "build : y z", "build x: y $", "rule", "$"]
)
def test_what_is_no_manifest_has_no_units(text: str) -> None:
    assert not [edge for edge in ninjafile.read(text).edges if edge.inputs]


NAMES = strategies.lists(
    strategies.text("ab$ :#=.\\'\"&é", min_size=1, max_size=6).filter(
        lambda name: name.strip(".") and "$" * len(name) != name
    ),
    min_size=2,
    max_size=6,
    unique=True,
)


@needs_ninja
@settings(max_examples=25, deadline=None)
@given(names=NAMES, broken=strategies.booleans())
def test_any_name_is_written_and_read_as_ninja_does(names: list[str], broken: bool) -> None:
    between = " $\n  " if broken else " "
    text = "rule cc\n  command = cp $in $out\n"
    for number, name in enumerate(names):
        words = [f"{ninjafile.escaped(name)}.o:", "cc", ninjafile.escaped(f"{number}{name}.c")]
        text += f"build{between}{between.join(words)}\n"
    manifest = ninjafile.read(text)
    assert [edge.outputs for edge in manifest.edges] == [(f"{name}.o",) for name in names]
    with tempfile.TemporaryDirectory() as room:
        (Path(room) / "build.ninja").write_text(text, "utf-8")
        told = compdb(Path(room))
    assert told == {edge.outputs[0]: edge.inputs[0] for edge in manifest.edges}
    taken = ninjafile.read(manifest.without(frozenset({f"{names[0]}.o"})))
    assert [edge.rule for edge in taken.edges] == ["phony"] + ["cc"] * (len(names) - 1)
    assert [edge.outputs for edge in taken.edges] == [edge.outputs for edge in manifest.edges]
