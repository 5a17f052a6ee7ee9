"""Directories of ours on a Windows that others use too: made closed, or taken if ours.

The decisions run here, on the bytes of access lists (``windows_disk``); the calls that ask Windows
run under Wine, in tests/sandbox/test_protected_dirs_on_windows.py.
"""

from __future__ import annotations

import ast
import itertools
import ntpath
import random
import re
from collections.abc import Iterator
from pathlib import Path, PureWindowsPath
from types import SimpleNamespace

import pytest
import windows_disk
from windows_disk import (
    ADMINISTRATORS,
    CLIENT,
    DIRECTORY,
    JUNCTION,
    ME,
    MOUNTED_LAYER,
    SERVER,
    SYMLINK,
    Disk,
)

from pipelines.remote import protected_dirs

REMOTE = Path(protected_dirs.__file__).parent
ROOT = Path(__file__).parents[2]
SAFE = "D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)"
#: What GetKernelObjectSecurity hands out under Wine 8, for a directory of mode 777 and of 755.
OPEN = (
    "0100048014000000000000000000000030000000010500000000000515000000000000000000000000000000"
    "e8030000020054000300000000031400ff011f0001010000000000051200000000032400ff011f0001050000"
    "0000000515000000000000000000000000000000e803000000031400ff011300010100000000000100000000"
)
CLOSED = OPEN.replace("031400ff0113", "031400a90012")


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protected_dirs, "sys", SimpleNamespace(platform="win32"))
    monkeypatch.setattr(protected_dirs, "os", SimpleNamespace(path=ntpath))
    monkeypatch.setattr(protected_dirs, "pathlib", SimpleNamespace(Path=PureWindowsPath))


def on(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr(protected_dirs, "_read_directory_access", disk.look)
    monkeypatch.setattr(protected_dirs, "_create_directory", disk.create)
    monkeypatch.setattr(protected_dirs, "_account", disk.account)
    return disk


@pytest.fixture(params=[CLIENT, SERVER], ids=["client", "server"])
def disk(
    request: pytest.FixtureRequest, windows: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Disk]:
    return on(Disk(request.param), monkeypatch)  # type: ignore[return-value]


def writers(disk: Disk, path: str) -> set[str]:
    """Who may change it, or what is made in it."""
    rows = disk.look(path).rights
    assert rows is not None
    return {sid for sid, mask in rows if mask & protected_dirs._WRITE}


# -- what is new -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [r"C:\b", r"C:\b\c\d", r"\\?\C:\b\c", "C:/b/c"])
def test_a_new_one_is_closed_from_the_first_moment(disk: Disk, path: str) -> None:
    for _ in range(2):
        protected_dirs.make(path)
    made = [place for place in disk.nodes if place != "c:\\"]
    assert len(made) == len(PureWindowsPath(path.removeprefix("\\\\?\\")).parts) - 1
    for place in made:
        assert writers(disk, place) == {windows_disk.SYSTEM, ADMINISTRATORS}
        assert disk.look(place).owner == ADMINISTRATORS


def test_the_account_is_named_only_where_it_is_no_administrator(
    windows: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else every other administrator's controller would find a stranger among the writers."""
    disk = on(Disk(administrator=False), monkeypatch)
    protected_dirs.make(r"C:\b\c")
    assert writers(disk, r"C:\b\c") == {windows_disk.SYSTEM, ADMINISTRATORS, ME}
    protected_dirs.make(r"C:\b\c\d")


def test_others_may_read_what_is_meant_for_them(disk: Disk) -> None:
    protected_dirs.make(r"C:\VS", readable=True)
    protected_dirs.make(r"C:\b")
    assert windows_disk.USERS in {sid for sid, _ in disk.look(r"C:\VS").rights or ()}
    assert windows_disk.USERS not in {sid for sid, _ in disk.look(r"C:\b").rights or ()}
    protected_dirs.make(r"C:\VS\VC")


def test_whoever_is_faster_is_looked_at(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between "there is nothing" and the call another user makes it: CreateDirectory says so."""

    def race(path: str, access: str, *, fresh: bool = False) -> None:
        disk.plant(path, "O:OT" + SAFE)
        disk.create(path, access, fresh=fresh)

    monkeypatch.setattr(protected_dirs, "_create_directory", race)
    with pytest.raises(protected_dirs.UnsafeError):
        protected_dirs.make(r"C:\b")


def test_a_disk_without_access_lists_is_refused(
    windows: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(Disk(fat=True), monkeypatch)
    with pytest.raises(protected_dirs.UnsafeError):
        protected_dirs.make(r"C:\b")


def test_a_root_in_which_others_may_rename_is_refused(
    windows: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delete child: the closed directory is renamed, another one takes its place."""
    disk = on(Disk("O:BAD:P(A;OICI;FA;;;BA)(A;OICI;FA;;;WD)"), monkeypatch)
    with pytest.raises(protected_dirs.UnsafeError):
        protected_dirs.make(r"C:\b")
    assert set(disk.nodes) == {"c:\\"}
    # A data disk as Windows formats it: Authenticated Users have Modify, which is not that.
    on(Disk("O:BAD:P(A;OICI;FA;;;BA)(A;OICI;M;;;AU)"), monkeypatch)
    protected_dirs.make(r"C:\b")


# -- what is there ---------------------------------------------------------------------------------

FINE = {
    "ours": "O:BA" + SAFE,
    "the account's": "O:MED:P(A;OICI;FA;;;ME)(A;OICI;FA;;;SY)",
    "SYSTEM's": "O:SYD:P(A;OICI;FA;;;SY)(A;OICI;RX;;;WD)",
    "Windows' own": "O:TID:P(A;OICI;FA;;;TI)(A;OICI;GA;;;SY)(A;OICI;RX;;;BU)",
    "of its makers": "O:BAD:P(A;OICI;FA;;;BA)(A;OICIIO;FA;;;CO)(A;OICI;FA;;;S-1-3-4)",
    "denied to others": "O:BAD:P(D;OICI;FA;;;BU)(A;OICI;FA;;;BA)",
    "of a container": "O:S-1-5-93-2-1D:P(A;OICI;FA;;;S-1-5-93-2-1)(A;OICI;FA;;;BA)",
}


@pytest.mark.parametrize("sddl", FINE.values(), ids=FINE)
def test_what_nobody_else_can_have_filled_is_used(disk: Disk, sddl: str) -> None:
    disk.plant(r"C:\b", sddl)
    before = dict(disk.nodes)
    protected_dirs.make(r"C:\b")
    protected_dirs.inspect(r"C:\b\not-there\either")
    assert disk.nodes == before


def test_a_layer_of_a_container_is_no_link(disk: Disk) -> None:
    disk.plant(r"C:\b", "O:BA" + SAFE, tag=MOUNTED_LAYER)
    protected_dirs.make(r"C:\b")


def test_what_may_not_be_read_is_not_taken(disk: Disk) -> None:
    disk.plant(r"C:\b", "O:OTD:P(A;OICI;FA;;;OT)")
    with pytest.raises(PermissionError):
        protected_dirs.make(r"C:\b")


def test_the_refusal_shows_the_list_and_the_cure(disk: Disk) -> None:
    disk.plant(r"C:\tools", "O:BAD:(A;OICI;FA;;;BA)(A;;0x4;;;AU)")
    with pytest.raises(protected_dirs.UnsafeError) as caught:
        protected_dirs.make(r"\\?\C:\tools\git")
    assert f"owner {ADMINISTRATORS}, {ADMINISTRATORS} 0x1f01ff, S-1-5-11 0x4" in caught.value.why
    assert 'icacls "C:\\tools" /inheritance:r' in caught.value.hint
    assert 'ren "C:\\tools" "tools.old"' in str(caught.value)


# -- the campaign ----------------------------------------------------------------------------------

_OWNERS = ("BA", "SY", "ME", "OT", "NS", "BU")
_STRANGERS = ("OT", "BU", "AU", "WD", "NS", "S-1-5-32-546", "S-1-15-2-1")
_RIGHTS = (
    *("FA", "M", "GA", "GW"),
    *("0x2", "0x4", "0x10", "0x40", "0x100", "0x10000", "0x40000", "0x80000"),
)
_FLAGS = ("OICI", "OICIIO", "", "CI", "OICIID", "CINP", "OIIO")
_KINDS = ("A", "XA", "OA")
_LINKS = (0, 0, JUNCTION, SYMLINK)
_ROOTS = ("b", "t", "w", "tools", "python", "cuda", "wcw", "VS", "sccache", "wcw-fixed")
_DEPTHS = ("", r"\python", r"\git\cmd", r"\12.8\bin", "\\b\xfcild dir")
_WHOLE = (None, "D:", "D:P")  # no list at all, one that denies everybody, the same closed


def _plants() -> list[tuple[str, str, int, int]]:
    """200 of the many: place, security, attributes, reparse tag; each has something wrong."""
    chance = random.Random(45)
    found: dict[tuple[str, str, int, int], None] = {}
    while len(found) < 200:
        owner = chance.choice(_OWNERS)
        whole = chance.choice((*_WHOLE, *["rights"] * 9))
        rights = f"({chance.choice(_KINDS)};{chance.choice(_FLAGS)};{chance.choice(_RIGHTS)};;;"
        rights += f"{chance.choice(_STRANGERS)})"
        stranger = chance.random() < 0.6
        sddl = f"O:{owner}"
        if whole == "rights":
            sddl += SAFE + (rights if stranger else "")
        elif whole is not None:
            sddl += whole
        tag = chance.choice(_LINKS)
        file = chance.random() < 0.1
        wrong = owner in ("OT", "NS", "BU") or whole is None or tag or file
        wrong = wrong or (whole == "rights" and stranger)
        place = f"C:\\{chance.choice(_ROOTS)}{chance.choice(_DEPTHS)}"
        if wrong:
            found[place, sddl, 0x20 if file else DIRECTORY, tag] = None
    return list(found)


PLANTS = _plants()


def test_two_hundred_plants_are_two_hundred_refusals(
    windows: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = 0
    for (place, sddl, attributes, tag), root in zip(PLANTS, itertools.cycle((CLIENT, SERVER))):
        disk = on(Disk(root), monkeypatch)
        protected_dirs.make(ntpath.dirname(place)) if place.count("\\") > 1 else None
        disk.plant(place, sddl, attributes=attributes, tag=tag).target = (
            "C:\\Windows" if tag else ""
        )
        before = dict(disk.nodes)
        for wanted in (place, place + r"\python\3.12", "\\\\?\\" + place):
            with pytest.raises((protected_dirs.UnsafeError, FileExistsError, PermissionError)):
                protected_dirs.make(wanted)
            if attributes & DIRECTORY:
                with pytest.raises((protected_dirs.UnsafeError, PermissionError)):
                    protected_dirs.inspect(wanted)
        assert disk.nodes == before, "what was planted is left alone"
        refused += 1
    assert refused == len(PLANTS) == 200


def test_the_campaign_has_every_kind_of_plant() -> None:
    text = [sddl for _, sddl, _, _ in PLANTS]
    for part in (*_OWNERS, *_STRANGERS, *_RIGHTS, *_KINDS):
        assert any(part in sddl for sddl in text), part
    assert {tag for *_, tag in PLANTS} == {0, JUNCTION, SYMLINK}
    assert {place.split("\\")[1] for place, *_ in PLANTS} == set(_ROOTS)


# -- private ones ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fresh", "planted"])
def test_a_private_one_may_lie_where_others_may_add(
    windows: None, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    r"""``C:\Windows\Temp``: users make files and directories there, and rename none of others."""
    disk = on(Disk(SERVER), monkeypatch)
    disk.plant(r"C:\Windows", "O:TID:P(A;OICI;FA;;;TI)(A;OICI;FA;;;BA)(A;OICI;RX;;;BU)")
    disk.plant(
        r"C:\Windows\Temp",
        "O:SYD:P(A;CI;0x100026;;;BU)(A;OICI;FA;;;BA)(A;OICI;FA;;;SY)(A;OICIIO;FA;;;CO)",
    )
    temp = SimpleNamespace(gettempdir=lambda: r"C:\Windows\Temp")
    monkeypatch.setattr(protected_dirs, "tempfile", temp)
    monkeypatch.setattr(protected_dirs, "shutil", SimpleNamespace(rmtree=lambda *_, **__: None))
    if name == "planted":
        monkeypatch.setattr("secrets.token_hex", lambda _: "known")
        disk.plant(r"C:\Windows\Temp\wcw-known", "O:OT" + SAFE)
        with pytest.raises(FileExistsError), protected_dirs.private():
            pytest.fail("another user's was entered")
        return
    with protected_dirs.private() as folder:
        assert writers(disk, str(folder)) == {windows_disk.SYSTEM, ADMINISTRATORS}
        rights = disk.look(str(folder)).rights
        assert {sid for sid, _ in rights or ()} == {windows_disk.SYSTEM, ADMINISTRATORS}
    disk.plant(r"C:\Windows\Temp", "O:SYD:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;CI;0x40;;;BU)")
    with pytest.raises(protected_dirs.UnsafeError), protected_dirs.private():
        pytest.fail("it can be renamed, and another put in its place")


def test_a_private_one_is_gone_afterwards() -> None:
    with protected_dirs.private() as folder:
        (folder / "x").touch()
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


# -- the bytes -------------------------------------------------------------------------------------


def test_descriptors_as_windows_hands_them_out() -> None:
    open_, closed = (protected_dirs.parsed(bytes.fromhex(text)) for text in (OPEN, CLOSED))
    me = "S-1-5-21-0-0-0-1000"
    full = [("S-1-5-18", 0x1F01FF), (me, 0x1F01FF)]
    assert open_ == (me, [*full, ("S-1-1-0", 0x1301FF)])
    assert closed == (me, [*full, ("S-1-1-0", 0x1200A9)])


def test_an_entry_of_a_kind_that_files_have_not_counts_as_a_strangers() -> None:
    data = windows_disk.descriptor(*windows_disk.entries("O:BAD:P(OA;OICI;FA;;;BA)"))
    seen = protected_dirs.Seen(DIRECTORY, 0, *protected_dirs.parsed(data))
    assert protected_dirs.complaint(seen, ME)


def test_on_other_systems_a_directory_is_a_directory(tmp_path: Path) -> None:
    for _ in range(2):
        protected_dirs.make(tmp_path / "a/b/c", readable=True)
        protected_dirs.inspect(tmp_path / "a/b/c")
    assert (tmp_path / "a/b/c").is_dir()


# -- none is made in another way -------------------------------------------------------------------

#: Module and line of code of what makes a directory without looking, and why it may.
ALLOWED = {
    ("buildwheel.py", "os.makedirs(os.path.dirname(path), exist_ok=True)"): "the build's own tree",
    ("cargo.py", "objects.mkdir(parents=True, exist_ok=True)"): "below its store, made the one way",
    ("fixed_paths.py", "place.mkdir()"): "its parent was made the one way",
    ("fixed_paths.py", "folder.mkdir(mode=448)"): "not on Windows",
    ("protected_dirs.py", "pathlib.Path(path).mkdir(parents=True, exist_ok=True)"): "the one way",
    ("protected_dirs.py", "tempfile.mkdtemp(prefix='wcw-')"): "not on Windows",
    ("shards/compiling.py", "os.makedirs(keep, exist_ok=True)"): "run by the build, in its tree",
    ("shards/hook.py", "os.makedirs(scratch)"): "run by the build, in its tree",
    (
        "shards/linking.py",
        "os.makedirs(os.path.dirname(unit.path), exist_ok=True)",
    ): "run by the build, in its tree",
    ("safe_paths.py", "path.mkdir(parents=True, exist_ok=True)"): "the same",
    (
        "resources/archive.py",
        "path.parent.mkdir(parents=True, exist_ok=True)",
    ): "below one that was made the one way",
    ("sccache.py", "tempfile.TemporaryDirectory(prefix='sc-')"): "not on Windows: for a socket",
    ("sharding.py", "package.mkdir(exist_ok=True)"): "below the job's directory",
    ("tester.py", "folder.mkdir()"): "their parent was made the one way",
    (
        "tester.py",
        "(suite / name).parent.mkdir(parents=True, exist_ok=True)",
    ): "below one that was just made",
    (
        "safe_paths.py",
        "path.parent.mkdir(parents=True, exist_ok=True)",
    ): "below one that was made the one way",
}


def made_in(source: str) -> set[str]:
    """The calls in a module that make directories."""
    names = {"mkdir", "makedirs", "mkdtemp", "TemporaryDirectory", "CreateDirectoryW", "copytree"}
    return {
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) in names
    }


def test_every_directory_on_a_host_is_made_the_one_way() -> None:
    """Also no entry is left over: what is gone is allowed no longer."""
    found = {
        (path.relative_to(REMOTE).as_posix(), call)
        for path in REMOTE.rglob("*.py")
        for call in made_in(path.read_text("utf-8"))
    }
    native = {one for one in found if "CreateDirectoryW" in one[1]}
    assert {name for name, _ in native} == {"protected_dirs.py"}
    assert found - native == set(ALLOWED)


def test_the_walk_sees_what_it_is_to_see() -> None:
    assert made_in(
        "import os\nos.makedirs(a)\nb.mkdir(parents=True)\nfrom os import mkdir\nmkdir(c)"
    ) == {
        "os.makedirs(a)",
        "b.mkdir(parents=True)",
        "mkdir(c)",
    }


# -- PowerShell's and Ansible's part ---------------------------------------------------------------

BOOTSTRAP = ROOT / "pipelines/hosts/windows/bootstrap.ps1"
PROTECT = ROOT / "ansible/roles/protected_directories/files/Protect-Directory.ps1"


def functions(script: Path) -> dict[str, str]:
    """The functions of a PowerShell script, by name."""
    found = re.findall(r"^function ([\w-]+) \{\n(.*?)^\}\n", script.read_text(), re.M | re.S)
    return dict(found)


def test_bootstrap_and_playbook_make_directories_alike() -> None:
    shared = functions(PROTECT)
    assert set(shared) == {"Get-TrustedSid", "Assert-Protected", "New-ProtectedDirectory"}
    assert shared.items() <= functions(BOOTSTRAP).items()


def test_powershell_decides_by_the_same_numbers() -> None:
    script = functions(BOOTSTRAP)
    (mask,) = re.findall(r"-band (0x[0-9A-F]+)\)", script["Assert-Protected"])
    assert int(mask, 16) == protected_dirs._WRITE
    trusted = set(re.findall(r"'(S-1-[\d-]+)'", script["Get-TrustedSid"]))
    assert trusted == protected_dirs._TRUSTED
    owners = set(re.findall(r"'(S-1-3-\d)'", script["Assert-Protected"]))
    assert owners == protected_dirs._OWNERS
