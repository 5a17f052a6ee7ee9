"""Drift on a host: what becomes of unpacked tools shows, and only that is put back."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pipelines.remote import files, provision, unpacked

OLD = 1_000_000_000
PROGRAM, HEADER, LIBRARY = "bin/ptxas.exe", "include/crt/host.h", "bin/nvvm.dll"
MEMBERS = {
    "nvcc": {PROGRAM: "the assembler", "bin/nvcc.exe": "the compiler", "etc/gitconfig": "own"},
    "crt": {HEADER: "#pragma once", LIBRARY: "the optimiser"},
}


class Host:
    """A directory of tools, and what provisioning would upload for it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.target = root / "cuda"
        self.spec: dict[str, Any] = {
            "kind": "archive",
            "path": str(self.target),
            "proof": "bin/nvcc.exe",
            "unwatched": ["*etc/gitconfig"],
            "archives": [],
        }
        (root / "store").mkdir()
        for name, members in MEMBERS.items():
            store = root / "store" / f"{name}.zip"
            with zipfile.ZipFile(store, "w") as made:
                for member, text in members.items():
                    made.writestr(f"top/{member}", text)
            sha256 = hashlib.sha256(store.read_bytes()).hexdigest()
            row = {"name": name, "version": "1", "sha256": sha256, "strip": "top"}
            self.spec["archives"].append({**row, "file": str(root / store.name)})
        self.upload()
        assert self.apply()["ok"]
        assert [*root.glob("*.zip")] == []

    def upload(self, *names: str) -> None:
        for name in names or MEMBERS:
            shutil.copy(self.root / "store" / f"{name}.zip", self.root)

    def check(self, **more: Any) -> Any:
        (row,) = provision.check_all([{**self.spec, **more}])
        return row

    def apply(self, **more: Any) -> Any:
        return provision.apply_one({**self.spec, **more}, str(self.root / "marker"))

    def texts(self) -> dict[str, str]:
        return {n: (self.target / n).read_text() for some in MEMBERS.values() for n in some}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def gone(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_text(path.read_text()[:-1])


def cut_in_secret(path: Path) -> None:
    """Shorter, with the time that it had."""
    told = path.stat()
    cut(path)
    os.utime(path, ns=(told.st_atime_ns, told.st_mtime_ns))


def swapped(path: Path) -> None:
    """Other bytes of the same size."""
    path.write_text(path.read_text()[::-1])
    os.utime(path, (OLD, OLD))


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "x").touch()


def a_link(path: Path) -> None:
    other = path.with_name("elsewhere")
    path.rename(other)
    path.symlink_to(other)


WRONG = [(gone, "missing"), (cut, "changed"), (swapped, "changed"), (a_directory, "missing")]
WRONG += [(a_link, "missing"), (cut_in_secret, "changed")]


@pytest.mark.parametrize(("harm", "state"), WRONG)
@pytest.mark.parametrize(("name", "origin"), [(PROGRAM, "nvcc"), (HEADER, "crt"), (LIBRARY, "crt")])
def test_what_is_damaged_shows_and_is_put_back(
    host: Host, harm: Callable[[Path], None], state: str, name: str, origin: str
) -> None:
    whole = host.texts()
    assert host.check()["ok"]
    harm(host.target / name)
    row = host.check()
    assert (row["ok"], row["uploads"]) == (False, [origin])
    assert row["found"] == f"1 of 4 files have changed: {name} {state}"
    assert row["plan"] == f"restore 1 files in {host.target}: {name} {state}"
    (host.target / "stray").write_text("of a user")
    host.upload(origin)
    assert host.apply()["ok"]
    assert host.texts() == whole
    assert not (host.target / name).is_symlink()
    assert (host.target / "stray").exists(), "only what is damaged is unpacked anew"
    assert host.check()["ok"]
    assert [*host.root.glob("*.zip")] == []


def test_a_whole_folder_that_is_gone(host: Host) -> None:
    whole = host.texts()
    shutil.rmtree(host.target / "include")
    shutil.rmtree(host.target / "bin")
    assert "4 of 4 files have changed: bin/ptxas.exe missing" in host.check()["found"]
    assert "and 1 more" in host.check()["found"]
    host.upload()
    assert host.apply()["ok"]
    assert host.texts() == whole


def test_a_swap_that_keeps_size_and_time_shows_to_whoever_looks_thoroughly(host: Host) -> None:
    path, whole = host.target / LIBRARY, host.texts()
    told = path.stat()
    path.write_text(path.read_text()[::-1])
    os.utime(path, ns=(told.st_atime_ns, told.st_mtime_ns))
    assert host.check()["ok"], "it is not hashed every time"
    row = host.check(thorough=True)
    assert (row["ok"], row["uploads"]) == (False, ["crt"])
    assert LIBRARY in row["plan"]
    assert not host.check()["ok"], "others know then as well"
    host.upload("crt")
    assert host.apply(thorough=True)["ok"]
    assert host.texts() == whole
    assert host.check(thorough=True)["ok"]


def test_a_new_time_alone_is_no_damage_and_is_hashed_once(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def sha256(path: str) -> str:
        seen.append(path)
        return files.sha256(path)

    monkeypatch.setattr(unpacked, "sha256", sha256)
    assert host.check()["ok"]
    assert seen == []
    os.utime(host.target / PROGRAM, (OLD, OLD))
    assert host.check()["ok"]
    assert host.check()["ok"]
    assert len(seen) == 1
    assert host.check(thorough=True)["ok"]
    assert len(seen) == 5


def test_what_others_change_is_no_damage(host: Host) -> None:
    (host.target / "etc/gitconfig").write_text("[core] longpaths")
    (host.target / "bin/__pycache__").mkdir()
    assert host.check(thorough=True)["ok"]


@pytest.mark.parametrize("name", ["__pycache__/a.pyc", "Lib/__pycache__/b.pyc", "Lib/site/x"])
def test_nobody_watches_what_python_looks_after(name: str) -> None:
    assert not unpacked.is_watched(name, ["Lib/site/*"])
    assert unpacked.is_watched("Lib/os.py", ["Lib/site/*"])


def test_an_archive_that_changed_on_the_host_is_not_unpacked(host: Host) -> None:
    (host.target / PROGRAM).unlink()
    host.upload()
    with zipfile.ZipFile(host.root / "nvcc.zip", "w") as made:
        made.writestr(f"top/{PROGRAM}", "the assembleR")
    told = host.apply()
    assert not told["ok"]
    assert "nvcc.zip has sha256" in told["error"]
    assert "provision again" in told["hint"]
    assert not (host.target / PROGRAM).exists()
    assert host.check()["uploads"] == ["nvcc"], "the others are still there"
    (host.target / ".archives.json").unlink()
    assert "nvcc.zip has sha256" in host.apply()["error"], "nor for a fresh directory"


def test_an_interrupted_repair_is_no_repair(host: Host) -> None:
    (host.target / PROGRAM).unlink()
    with pytest.raises(FileNotFoundError):
        host.apply()  # nothing was uploaded
    assert host.check()["uploads"] == ["nvcc"]


# -- directories from before there was a record, from the image, from the playbook -----------------


def test_a_directory_without_a_record_is_taken_as_it_is_and_says_so(host: Host) -> None:
    (host.target / ".files.json").unlink()
    (host.target / HEADER).write_text("nobody knows")
    row = host.check()
    assert (row["ok"], row["uploads"]) == (False, []), "nothing is sent for it"
    assert row["found"] == "2 of 2 archives, without a record of their files"
    assert "record the current files" in row["plan"]
    taken = host.apply()
    assert taken["ok"]
    assert "never compared" in taken["doubt"]
    row = host.check()
    assert row["ok"]
    assert "4 files; its files were never compared with the archives" in row["found"]
    assert "never compared" in row["doubt"]
    (host.target / PROGRAM).unlink()
    row = host.check()
    assert not row["ok"]
    assert "uploads" not in row, "which archive a file is of is not known: all are unpacked"


@pytest.mark.parametrize("recorded", [False, True])
def test_a_repair_compares_it_with_the_archives(host: Host, recorded: bool) -> None:
    whole = host.texts()
    (host.target / ".files.json").unlink()
    (host.target / HEADER).write_text("nobody knows")
    if recorded:
        assert host.apply()["ok"]
    row = host.check(thorough=True)
    assert not row["ok"]
    assert "uploads" not in row
    assert row["plan"].startswith("unpack 2 archives into")
    host.upload()
    assert host.apply(thorough=True)["ok"]
    assert host.texts() == whole
    assert "doubt" not in host.check()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": {"a": 1}}', '{"files": []}'])
def test_a_torn_record_is_none(host: Host, text: str) -> None:
    (host.target / ".files.json").write_text(text)
    assert "a record" in host.check()["found"]


@pytest.mark.parametrize(("key", "lie"), [("files", {}), ("archives", {"nvcc": "0" * 64})])
def test_a_record_of_no_files_or_of_another_archive_is_none(
    host: Host, key: str, lie: dict[str, str]
) -> None:
    told = json.loads((host.target / ".files.json").read_text())
    told[key] = told[key] | lie if lie else {}
    (host.target / ".files.json").write_text(json.dumps(told))
    assert "a record" in host.check()["found"]


@pytest.mark.parametrize("name", ["../a", "a/../../b", "/a", "C:/a", "a\\b", ".."])
def test_a_record_that_leads_out_of_the_directory_is_none(host: Host, name: str) -> None:
    outside = host.root / "a"
    outside.write_text("not ours")
    told = json.loads((host.target / ".files.json").read_text())
    told["files"][name] = {"archive": "nvcc", "size": 1, "mtime": 0, "sha256": "0" * 64}
    (host.target / ".files.json").write_text(json.dumps(told))
    assert "a record" in host.check()["found"]
    host.upload()
    assert host.apply(thorough=True)["ok"]
    assert outside.read_text() == "not ours"


def test_what_lacks_its_proof_is_not_taken_as_it_is(host: Host) -> None:
    whole = host.texts()
    (host.target / ".files.json").unlink()
    (host.target / "bin/nvcc.exe").unlink()
    row = host.check()
    assert not row["ok"]
    assert "uploads" not in row, "all are needed"
    assert row["plan"].startswith("unpack 2 archives into")
    host.upload()
    assert host.apply()["ok"]
    assert host.texts() == whole


def test_names_that_differ_in_case_alone_are_one_file_where_windows_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "normcase", str.lower)
    file = tmp_path / "a.zip"
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("Include/x", "one")
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    row = {"name": "a", "version": "1", "sha256": sha256, "file": str(file), "strip": ""}
    target = tmp_path / "t"
    spec: dict[str, Any] = {"kind": "archive", "path": str(target), "proof": "Include/x"}
    spec |= {"archives": [row], "unwatched": []}
    assert provision.apply_one(spec, str(tmp_path / "marker"))["ok"]
    (target / "Include/x").rename(target / "Include/X")
    assert provision.check_all([spec])[0]["ok"]


# -- what a build may leave behind -----------------------------------------------------------------

LEFT = ["bin/version.dll", "Lib/sitecustomize.py", "Lib/__pycache__/os.cpython-312.pyc"]


def test_a_repair_removes_what_nobody_unpacked(host: Host) -> None:
    """A library that is loaded first, a module that is imported at each start, compiled code."""
    for name in [*LEFT, "etc/gitconfig"]:
        path = host.target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("of a build")
    assert host.check()["ok"], "it is what windows-host.md says of a provision without --repair"
    row = host.check(thorough=True)
    assert (row["ok"], row["uploads"]) == (False, [])
    assert row["found"].startswith("3 of 4 files have changed: Lib/__pycache__/os")
    assert host.apply(thorough=True)["ok"]
    assert not [name for name in LEFT if (host.target / name).exists()]
    assert (host.target / "etc/gitconfig").exists(), "others write to it, and the recipe says so"
    assert host.check(thorough=True)["ok"]


def test_a_repair_leaves_what_shares_the_directory(host: Host) -> None:
    (host.target / "python.exe").write_text("another's")
    assert host.check(thorough=True, shared=True)["ok"]


def test_a_repair_puts_back_and_removes_at_once(host: Host) -> None:
    whole = host.texts()
    swapped(host.target / PROGRAM)
    (host.target / "bin/version.dll").write_text("of a build")
    row = host.check(thorough=True)
    assert row["uploads"] == ["nvcc"]
    host.upload("nvcc")
    assert host.apply(thorough=True)["ok"]
    assert host.texts() == whole
    assert not (host.target / "bin/version.dll").exists()


class Packages:
    """A build's environment, made from a wheel by what stands in for uv."""

    FILES: ClassVar = {
        "tool/_vendor/other-2.dist-info/RECORD": "other.py,sha256=x,1\n",  # as setuptools has them
        "tool/__init__.py": "x = 1\n",
        "tool/core.pyd": "machine code",
    }

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.site = root / "e/1234/Lib/site-packages"
        rows = ""
        with zipfile.ZipFile(root / "tool-1.0-py3-none-any.whl", "w") as wheel:
            info = "tool-1.0.dist-info"
            metadata = {f"{info}/METADATA": "Metadata-Version: 2.1\nName: tool\nVersion: 1.0\n"}
            data = {"tool-1.0.data/purelib/tool_data.py": "y = 2\n"}
            data["tool-1.0.data/scripts/tool.py"] = "#!python\n"
            for name, text in {**self.FILES, **metadata, **data}.items():
                wheel.writestr(name, text)
                digest = hashlib.sha256(text.encode()).digest()
                code = base64.urlsafe_b64encode(digest).decode().rstrip("=")
                rows += f"{name},sha256={code},{len(text)}\n"
            wheel.writestr(f"{info}/RECORD", f"{rows}{info}/RECORD,,\n")
        self.commands: list[list[str]] = []
        monkeypatch.setattr("pipelines.remote.resources.packages.capture", self.install)
        self.spec: dict[str, Any] = {
            "kind": "packages",
            "packages": {"tool": "1.0"},
            "files": [str(root / "tool-1.0-py3-none-any.whl")],
            "installer": "uv",
            "base": str(root / "python/python.exe"),
            "path": str(root / "e/1234"),
            "python": str(root / "e/1234/Scripts/python.exe"),
        }
        told = self.apply()
        assert told["ok"], told

    def install(self, command: list[str], *, timeout: float) -> tuple[int, str]:
        self.commands.append(command)
        if "venv" in command:
            for path in (Path(self.spec["python"]), self.site / "_virtualenv.py"):
                path.parent.mkdir(parents=True)
                path.touch()
            return 0, ""
        with zipfile.ZipFile(self.spec["files"][0]) as wheel:
            for name in wheel.namelist():
                if ".data/" not in name:
                    wheel.extract(name, self.site)
        (self.site / "tool_data.py").write_bytes(b"y = 2\n")
        record = self.site / "tool-1.0.dist-info/RECORD"
        text = record.read_text().replace("tool-1.0.data/purelib/", "")
        record.write_text(text.replace("tool-1.0.data/scripts/", "../../Scripts/"))
        return 0, ""

    def check(self, **more: Any) -> Any:
        (row,) = provision.check_all([{**self.spec, **more}])
        return row

    def apply(self, **more: Any) -> Any:
        return provision.apply_one({**self.spec, **more}, str(self.root / "marker"))


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Packages:
    return Packages(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "name",
    ["tool/__init__.py", "tool/core.pyd", "tool_data.py", "tool-1.0.dist-info/METADATA"],
)
def test_a_repair_compares_packages_with_their_wheels(packages: Packages, name: str) -> None:
    """Also where the package's own list was changed with it."""
    assert packages.check(thorough=True)["ok"]
    genuine = (packages.site / name).read_bytes()
    (packages.site / name).write_bytes(genuine + b"\n# of a build\n")
    record = packages.site / "tool-1.0.dist-info/RECORD"
    record.write_text(record.read_text().replace("sha256=", "sha256=0"))
    assert packages.check()["ok"], "versions alone are the same"
    row = packages.check(thorough=True)
    assert not row["ok"]
    assert f"1 files differ from the wheels, 0 belong to no package: {name}" in row["found"]
    assert packages.apply(thorough=True)["ok"]
    assert (packages.site / name).read_bytes() == genuine
    assert packages.check(thorough=True)["ok"]


def test_what_the_list_does_not_name_is_no_part_of_the_environment(packages: Packages) -> None:
    """Neither another package, nor one that was the list's when the environment was made."""
    other = packages.site / "other-1.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    assert not packages.check()["ok"]
    assert packages.apply()["ok"]
    assert not other.exists()
    shutil.rmtree(Path(packages.spec["python"]).parent)
    assert not packages.check()["ok"], "packages without a Python"


@pytest.mark.parametrize("name", ["evil.pth", "sitecustomize.py", "tool/__pycache__/core.pyc"])
def test_a_repair_removes_what_no_package_lists(packages: Packages, name: str) -> None:
    (packages.site / name).parent.mkdir(exist_ok=True)
    (packages.site / name).write_text("import os")
    assert packages.check()["ok"]
    assert not packages.check(thorough=True)["ok"]
    assert packages.apply(thorough=True)["ok"]
    assert not (packages.site / name).exists()
    assert packages.check(thorough=True)["ok"]


@pytest.mark.skipif(sys.platform != "win32", reason="paths of Windows")
@pytest.mark.parametrize(
    ("path", "long"),
    [
        ("C:/b/../c", r"\\?\C:\c"),
        ("//nas/share/b/../c", r"\\?\UNC\nas\share\c"),
        (r"\\nas\share", r"\\?\UNC\nas\share"),
        (r"\\?\UNC\nas\share\..", r"\\?\UNC\nas\share\.."),
        (r"\\.\pipe\x", r"\\.\pipe\x"),
        ("NUL", r"\\.\NUL"),
    ],
)
def test_the_form_of_a_path_that_has_no_limit(path: str, long: str) -> None:
    assert files.long_path(path) == long
