"""The lock is what toolchain.yaml wants, with the pins that were there."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.core.errors import LockError, StorageError
from pipelines.toolchain import command
from pipelines.toolchain.generate import describe_lock_changes, generate_lock, lock_text
from pipelines.toolchain.intent import load_bases, load_intent
from pipelines.toolchain.lock import LOCK_FILE, ToolchainLock, load_lock

ONE, TWO = ("1" * 64, 11), ("2" * 64, 22)
EMPTY = ToolchainLock.model_validate({"version": 1, "tools": {}})
INDEX = [{"pypi": "{name}=={version}"}]


def intent(path: Path, **group: Any) -> Path:
    """A file with one group; its wheels are for everything unless it says otherwise."""
    made = {"sources": INDEX, "tag": "py3-none-any"} | group
    path.write_text(yaml.safe_dump({"version": 1, "groups": [made]}))
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "toolchain.yaml"


def lock_of(wanted: Path, **pins: tuple[str, int]) -> ToolchainLock:
    """The lock that ``wanted`` gives, with these sha256 and sizes (``_`` for ``-``)."""
    made = yaml.safe_load(lock_text(generate_lock(load_intent(wanted), EMPTY)))
    for name, (sha256, size) in pins.items():
        for source in made["tools"][name.replace("_", "-")]["sources"]:
            source |= {"sha256": sha256, "size": size}
        made["unpinned"].remove(name.replace("_", "-"))
    return ToolchainLock.model_validate(made)


# -- the shipped ones ------------------------------------------------------------------------------


def test_the_committed_lock_is_what_the_intent_gives() -> None:
    lock = load_lock()
    made = generate_lock(load_intent(), lock, load_bases())
    assert not describe_lock_changes(lock, made)
    assert lock_text(made) == LOCK_FILE.read_text("utf-8"), "type: invoke lock"


def test_the_intent_alone_has_no_pins() -> None:
    made = generate_lock(load_intent(), EMPTY)
    assert set(made.unpinned) == set(made.tools)
    assert "sha256" not in lock_text(made).partition("\ntools:\n")[2]


# -- entries ---------------------------------------------------------------------------------------


def test_entries_of_every_shape(file: Path) -> None:
    tools = {
        "uv": "1.0",
        "numpy": {"python": {"3.9": "1", "3.12": "2"}, "tag": "cp{cp}-cp{cp}-win_amd64"},
        "setuptools": [{"version": "9"}, {"torch": {"2.11": "8"}}],
        "torch": {
            "version": "2.8+cu128",
            "torch": "2.8",
            "cuda": ["12.8"],
            "python": ["3.11", "3.12"],
            "requires": ["numpy"],
            "sources": [{"url": "https://a.invalid/cu{cu}/t-{version}-cp{cp}.whl"}],
        },
        "cudart": {"cuda": {"12.8": "3"}, "id": "cuda-{cuda}-{name}"},
        "headers": {"version": "4", "sources": [{"apt": "h", "file": "h_{version}.tar.gz"}]},
    }
    made = load_intent(intent(file, tools=tools))
    for_all = (None, None, None)
    assert {id_: (t.name, t.torch, t.cuda, t.python, t.version) for id_, t in made.items()} == {
        "uv": ("uv", *for_all, "1.0"),
        "numpy-cp39": ("numpy", None, None, "3.9", "1"),
        "numpy-cp312": ("numpy", None, None, "3.12", "2"),
        "setuptools": ("setuptools", *for_all, "9"),
        "setuptools-torch2.11": ("setuptools", "2.11", None, None, "8"),
        "torch-2.8-cu128-cp311": ("torch", "2.8", "12.8", "3.11", "2.8+cu128"),
        "torch-2.8-cu128-cp312": ("torch", "2.8", "12.8", "3.12", "2.8+cu128"),
        "cuda-12.8-cudart": ("cudart", None, "12.8", None, "3"),
        "headers": ("headers", *for_all, "4"),
    }
    where = "https://a.invalid/cu128/t-2.8%2Bcu128-cp31"
    assert {id_: (t.sources[0].place, t.file) for id_, t in made.items()} == {
        "uv": ("uv==1.0", "uv-1.0-py3-none-any.whl"),
        "numpy-cp39": ("numpy==1", "numpy-1-cp39-cp39-win_amd64.whl"),
        "numpy-cp312": ("numpy==2", "numpy-2-cp312-cp312-win_amd64.whl"),
        "setuptools": ("setuptools==9", "setuptools-9-py3-none-any.whl"),
        "setuptools-torch2.11": ("setuptools==8", "setuptools-8-py3-none-any.whl"),
        "torch-2.8-cu128-cp311": (f"{where}1.whl", "t-2.8+cu128-cp311.whl"),
        "torch-2.8-cu128-cp312": (f"{where}2.whl", "t-2.8+cu128-cp312.whl"),
        "cuda-12.8-cudart": ("cudart==3", "cudart-3-py3-none-any.whl"),
        "headers": ("apt source h", "h_4.tar.gz"),
    }
    assert made["torch-2.8-cu128-cp312"].requires == ("numpy",)


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ({"uv": {"version": "1", "vers": "2"}}, "groups.0.tools.uv.0.vers: unknown key"),
        ({"uv": {"version": [1.5]}}, "groups.0.tools.uv.0.version: "),
        ({"uv": None}, "groups.0.tools.uv.0: .*one version"),
        ({"uv": {}}, "groups.0.tools.uv.0: .*one version"),
        ({"uv": {"version": "1", "python": {"3.12": "2"}}}, "groups.0.tools.uv.0: .*one version"),
        ({"uv": {"python": ["3.12"]}}, "groups.0.tools.uv.0: .*one version"),
        ({"uv": {"python": {"3.12": ""}}}, "groups.0.tools.uv.0: .*one version"),
        ({"uv": {"python": {"3.11": "1", "3.12": ""}}}, "groups.0.tools.uv.0: .*one version"),
        ({"uv": {"version": "1", "python": []}}, "groups.0.tools.uv.0.python"),
        ({"uv": {"version": "1", "python": [["3.12"]]}}, "groups.0.tools.uv.0.python"),
        ({"uv": {"version": "1", "torch": "2.8x"}}, "groups.0.tools.uv.torch"),
        ({"uv": {"version": "1", "torch": "2.8.0"}}, "groups.0.tools.uv.torch: "),
        ({"uv": {"version": "1", "python": "2.7"}}, "groups.0.tools.uv.python: "),
        ({"uv": {"version": "1", "toolset": "14"}}, "groups.0.tools.uv.toolset: "),
        ({"uv": {"version": "1", "tag": "{abi}"}}, "groups.0.tools.uv: cannot fill in '{abi}'"),
        ({"uv": {"version": "1", "tag": "{"}}, "groups.0.tools.uv: cannot fill in '{'"),
        ({"uv": {"version": "1", "id": "{cu}"}}, "groups.0.tools.uv: cannot fill in '{cu}': 'cu'"),
        ({"uv": {"version": "1", "sources": [{"apt": "uv"}]}}, "groups.0.tools.uv.file"),
        (
            {"uv": {"version": "1", "sources": [{"file": "uv"}]}},
            "groups.0.tools.uv: exactly one of",
        ),
        ({"uv": {"version": "1", "sources": [{"url": "http://a/b"}]}}, "groups.0.tools.uv.url"),
        ({"uv": {"version": "1", "sha256": "abc"}}, "groups.0.tools.uv.0.sha256"),
        (
            {"uv": {"version": "1", "sha256": "1" * 64, "python": ["3.11", "3.12"]}},
            "groups.0.tools.uv: one sha256, but 2 files",
        ),
        ({"uv": [{"version": "1"}, {"version": "2"}]}, "groups.0.tools.uv: 'uv' is what groups.0"),
        ({"a": {"version": "1", "id": "x"}, "x": "1"}, "groups.0.tools.x: 'x' is what .*tools.a"),
        (["uv"], "groups.0.tools"),
    ],
)
def test_wrong_intents_name_file_and_key(file: Path, tools: Any, said: str) -> None:
    with pytest.raises(LockError, match=rf"toolchain\.yaml: {said}") as caught:
        load_intent(intent(file, tools=tools))
    assert caught.value.hint
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("version: 2\ngroups: []\n", "version"),
        ("version: 1\ngroups: []\ntools: {}\n", "tools: unknown key"),
        (
            "version: 1\ngroups:\n  - {tools: {uv: '1', uv: '2'}}\n",
            "uv: appears twice",
        ),
        ("version: 1\ngroups:\n  - {tools: {? [a] : '1'}}\n", "unhashable"),
        ("version: 1\ngroups: [\n", ":3: not YAML"),
        ("", "expected keys and values"),
    ],
)
def test_other_wrong_files(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(LockError, match=rf"toolchain\.yaml(?s:.*){said}"):
        load_intent(file)
    with pytest.raises(LockError, match=r"none\.yaml"):
        load_intent(file.with_name("none.yaml"))


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        (
            {"uv": {"version": "1", "requires": ["pip"]}},
            "tools.uv requires 'pip', which does not exist",
        ),
        (
            {"uv": [{"version": "1"}, {"version": "2", "id": "other"}]},
            "tools.other and uv are the same tool for the same cell",
        ),
    ],
)
def test_what_the_lock_would_not_take(file: Path, tools: Any, said: str) -> None:
    with pytest.raises(LockError, match=rf"toolchain\.yaml: .*{said}") as caught:
        generate_lock(load_intent(intent(file, tools=tools)), EMPTY)
    assert caught.value.hint


# -- pins ------------------------------------------------------------------------------------------


def test_pins_stay_come_and_go_with_their_files(file: Path) -> None:
    lock = lock_of(intent(file, tools={"a": "1", "b": "1", "c": "1"}), a=ONE, b=TWO)
    assert lock.unpinned == ("c",)
    made = generate_lock(load_intent(intent(file, tools={"d": "1", "b": "2", "a": "1"})), lock)
    assert list(made.tools) == ["a", "b", "d"]
    assert (made.tools["a"].sha256, made.tools["a"].size) == ONE
    assert made.unpinned == ("b", "d")  # another version, and a new one
    assert describe_lock_changes(lock, made) == "added: d; dropped: c; changed: b"
    assert describe_lock_changes(made, made) == ""


def test_a_pin_is_of_name_version_and_file(file: Path) -> None:
    """Whatever the entry is called, and wherever the file comes from."""
    lock = lock_of(intent(file, tools={"a": "1"}), a=ONE)
    mirror = [{"url": "https://b.invalid/a-1-py3-none-any.whl"}, *INDEX]
    moved = {"a": [{"version": "1", "sources": mirror}, {"version": "1", "python": ["3.11"]}]}
    made = generate_lock(load_intent(intent(file, tools=moved)), lock)
    assert made.unpinned == ()
    assert [source.sha256 for source in made.tools["a"].sources] == [ONE[0]] * 2
    for other in ({"version": "1", "tag": "py2-none-any"}, "2"):
        assert generate_lock(load_intent(intent(file, tools={"a": other})), lock).unpinned == ("a",)
    named = {"b": {"version": "1", "sources": [{"pypi": "a==1"}]}}
    assert generate_lock(load_intent(intent(file, tools=named)), lock).unpinned == ("b",)


def test_a_pin_of_any_source_is_that_of_all(file: Path) -> None:
    both = {"a": {"version": "1", "sources": [{"apt": "a", "file": "a.tar"}, *INDEX]}}
    wanted = load_intent(intent(file, tools=both))
    one = yaml.safe_load(lock_text(generate_lock(wanted, EMPTY)))
    one["tools"]["a"]["sources"][1] |= {"sha256": ONE[0], "size": ONE[1]}
    made = generate_lock(wanted, ToolchainLock.model_validate(one))
    assert made.unpinned == ()
    assert [(s.sha256, s.size) for s in made.tools["a"].sources] == [ONE, ONE]


def test_a_sha256_in_the_intent_must_agree(file: Path) -> None:
    lock = lock_of(intent(file, tools={"a": "1"}), a=ONE)
    same = {"a": {"version": "1", "sha256": ONE[0]}, "b": {"version": "1", "sha256": TWO[0]}}
    made = generate_lock(load_intent(intent(file, tools=same)), lock)
    assert made.tools["a"] == lock.tools["a"]
    assert (made.unpinned, made.tools["b"].sha256) == ((), TWO[0]), "what it states is a pin"
    other = {"a": {"version": "1", "sha256": TWO[0]}}
    with pytest.raises(LockError, match=rf"toolchain\.yaml: a: sha256 is {TWO[0]}.* {ONE[0]}"):
        generate_lock(load_intent(intent(file, tools=other)), lock)


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`invoke lock` outside a checkout, with a lock of one pinned tool."""
    lock = tmp_path / "toolchain.lock.yaml"
    lock.write_text(lock_text(lock_of(intent(file, tools={"a": "1"}), a=ONE)))
    monkeypatch.setattr(command, "INTENT_FILE", file)
    monkeypatch.setattr(command, "LOCK_FILE", lock)
    monkeypatch.setattr(command, "CHECKOUT", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return lock


def test_nothing_to_do(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = place.stat().st_mtime_ns
    command.run_complete()
    assert capsys.readouterr().out == "every tool is pinned\n"
    command.run_complete(only="a")
    with pytest.raises(LockError, match="no tool 'z'"):
        command.run_complete(only="z")
    assert place.stat().st_mtime_ns == before


def test_the_wheels_of_an_image_need_a_directory(place: Path) -> None:
    with pytest.raises(StorageError, match="cannot create"):
        command.run_stage(place)


def test_what_is_wanted_no_more_is_dropped(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = place.read_text()
    rows = yaml.safe_load(wanted)
    rows["tools"]["z"] = {"version": "1", "sources": rows["tools"]["a"]["sources"]}
    place.write_text(yaml.safe_dump(rows))
    with pytest.raises(LockError, match=r"not what toolchain\.yaml gives: dropped: z") as caught:
        command.run_sync(check=True)
    assert caught.value.hint == "Type: invoke lock"
    command.run_complete()
    assert "toolchain.lock.yaml: dropped: z" in capsys.readouterr().out
    assert place.read_text() == wanted


def test_an_edit_by_hand_is_found_and_mended(place: Path) -> None:
    wanted = place.read_text()
    place.write_text(wanted.replace("# Generated", "# Edited"))
    with pytest.raises(LockError, match="it was edited by hand"):
        command.run_sync(check=True)
    command.run_complete()
    assert place.read_text() == wanted


def test_what_is_new_is_fetched_and_pinned(
    place: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    intent(file, tools={"a": "1", "b": "1"})
    data = b"the wheel"
    monkeypatch.setattr(
        "pipelines.toolchain.obtaining.download_source",
        lambda source, target, step: target.write_bytes(data),
    )
    with pytest.raises(LockError, match="no tool 'c'"):
        command.run_complete(only="c")
    assert load_lock(place).unpinned == ("b",)
    command.run_complete(only="b, ")
    tool = load_lock(place).tool("b")
    assert (tool.sha256, tool.size) == (hashlib.sha256(data).hexdigest(), len(data))
    assert load_lock(place).tool("a").sha256 == ONE[0]


@pytest.mark.parametrize("check", [False, True])
def test_outside_a_checkout_there_is_nothing_to_sync(place: Path, *, check: bool) -> None:
    with pytest.raises(LockError, match=r"^images/ and ansible/ are only in the repository"):
        command.run_sync(check=check)


def test_here_everything_agrees(capsys: pytest.CaptureFixture[str]) -> None:
    command.run_sync(check=True)
    assert "image and playbook agree with the lock" in capsys.readouterr().out


def test_two_pins_of_one_file_are_not_mixed() -> None:
    tool = next(tool for tool in load_lock().tools.values() if tool.pinned)
    other = tool.model_copy(
        update={
            "sources": tuple(
                source.model_copy(update={"sha256": "0" * 64}) for source in tool.sources
            )
        }
    )
    lock = EMPTY.model_copy(update={"tools": {"one": tool, "two": other}})
    with pytest.raises(LockError, match="two pins"):
        generate_lock({}, lock)
