r"""The calls behind directories of ours, by genuine Windows programs under Wine.

Wine keeps an access list as a Unix mode: others' bits are Everyone's, another owner is ANONYMOUS,
and a link to a directory has no reparse point. So what is shown is that the calls are right, and
that what Wine can tell is told; the decisions are tests/unit/test_protected_dirs.py. Those
of the scripts are in tests/powershell.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from pipelines.hosts.sandbox.image import copy_image, make_image
from pipelines.hosts.sandbox.wine import Prefix
from pipelines.remote import protected_dirs
from pipelines.toolchain.lock import Cache, load_lock

PYTHON = r"C:\Python311\python.exe"
#: What is asked of Windows: a line of JSON for each path.
ASK = """
import json, sys
sys.path.insert(0, sys.argv[1])
from remote import protected_dirs

def told(function, path):
    try:
        function(path)
    except OSError as error:
        return type(error).__name__
    return "made"

look = lambda path: print(json.dumps(protected_dirs._read_directory_access(path)))
print(json.dumps(protected_dirs._account()))
for path in sys.argv[3:]:
    if sys.argv[2] == "look":
        look(path)
    elif sys.argv[2] == "private":
        with protected_dirs.private() as folder:
            look(str(folder))
        print(json.dumps(folder.exists()))
    else:
        print(json.dumps(told(getattr(protected_dirs, sys.argv[2]), path)))
"""
ME = "S-1-5-21-0-0-0-1000"  # every Wine's


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prefix]:
    home = tmp_path_factory.mktemp("windows") / "prefix"
    copy_image(make_image(Cache(load_lock()), "3.11", lambda _: None), home)
    prefix = Prefix(home)
    prefix.boot()
    package = prefix.drive / "shipped/remote"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    shutil.copy(protected_dirs.__file__, package)
    (prefix.drive / "shipped/ask.py").write_text(ASK)
    yield prefix
    prefix.halt()


def ask(windows: Prefix, what: str, *paths: str) -> list[Any]:
    command = [PYTHON, "-I", r"C:\shipped\ask.py", r"C:\shipped", what, *paths]
    account, *told = map(json.loads, windows.run(command).splitlines())
    assert account == [ME, True]
    return told


def test_a_directory_is_made_together_with_its_access_list(windows: Prefix) -> None:
    """Everyone may read what is made without one there; what is made with ours, no one else."""
    (windows.drive / "plain").mkdir()
    paths = [r"C:\one\two", r"\\?\C:\three\four", "C:/five"]
    assert ask(windows, "make", *paths, r"C:\one\two\deeper") == ["made"] * 4
    for name in ("one", "three", "five"):
        assert (windows.drive / name).stat().st_mode & 0o007 == 0
    seen = ask(windows, "look", r"C:\plain", r"C:\one", r"C:\one\two", r"\\?\C:\three\four")
    everyone = [{sid for sid, _ in rights} >= {"S-1-1-0"} for *_, rights in seen]
    assert everyone[:2] == [True, False]
    assert {owner for _, _, owner, _ in seen} == {ME}


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory to another account")
def test_what_others_may_change_or_own_is_refused(windows: Prefix) -> None:
    for name, mode, owner in (("open", 0o777, 0), ("theirs", 0o755, 65534), ("good", 0o755, 0)):
        (windows.drive / name).mkdir()
        (windows.drive / name).chmod(mode)
        os.chown(windows.drive / name, owner, owner)
    (windows.drive / "a-file").touch()
    names = ["open", "theirs", "a-file", "good"]
    paths = [rf"C:\{name}" for name in names]
    refused = ["UnsafeError", "UnsafeError", "FileExistsError", "made"]
    assert ask(windows, "make", *paths) == refused
    assert ask(windows, "make", *(rf"{path}\python\3.12" for path in paths)) == refused
    assert ask(windows, "inspect", *(rf"{path}\x" for path in paths))[:2] == refused[:2]
    assert [sorted((windows.drive / name).iterdir()) for name in names[:2]] == [[], []]


def test_a_private_directory_is_nobody_elses_and_then_gone(windows: Prefix) -> None:
    (_, _, owner, rights), left = ask(windows, "private", "")
    assert owner == ME
    assert {sid for sid, mask in rights if mask} == {ME, "S-1-5-18"}
    assert left is False
