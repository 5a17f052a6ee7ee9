"""libc++ in the cache and in a Windows: what is not whole is seen, and is not used."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.core.errors import HostError, SetupError
from pipelines.hosts.container.config import ContainerHost
from pipelines.hosts.sandbox import libcxx, toolset
from pipelines.hosts.sandbox.config import SandboxHost
from pipelines.hosts.sandbox.making import FILES, read_verified_seal, seal_directory
from pipelines.hosts.sandbox.wine import Prefix, Wine
from pipelines.toolchain.lock import load_lock

HEADER = "include/vector"


def made_in(folder: Path) -> Path:
    """What :func:`libcxx.ensure_libcxx` gives, as far as its files go."""
    for name in (HEADER, "include/__config_site", "c/math.h", toolset.LIBCXX_LIBRARY):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text of {name}")
    seal_directory(folder)
    return folder


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    nowhere = tmp_path / "nowhere"
    windows = Prefix(tmp_path / "prefix", Wine(nowhere, nowhere, nowhere, nowhere, "wine-8.0"))
    (windows.drive / toolset.LIBCXX).parent.mkdir(parents=True)
    return windows


def other_text(folder: Path) -> None:
    (folder / HEADER).write_text("text of include/vektor")


def no_header(folder: Path) -> None:
    (folder / HEADER).unlink()


def one_more(folder: Path) -> None:
    (folder / "include/windows.h").write_text("")


def no_list(folder: Path) -> None:
    (folder / FILES).write_text("[]")


def nothing(folder: Path) -> None:
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        path.unlink()
    seal_directory(folder)


LIES = [other_text, no_header, one_more, no_list, nothing]


@pytest.mark.parametrize("lie", LIES)
def test_what_is_not_whole_is_not_used(
    lie: Callable[[Path], None], tmp_path: Path, prefix: Prefix
) -> None:
    made = made_in(tmp_path / "made")
    assert read_verified_seal(made)
    lie(made)
    assert read_verified_seal(made) is None
    with pytest.raises(HostError, match="damaged"):
        libcxx.install_libcxx(made, prefix)
    assert not (prefix.drive / toolset.LIBCXX).exists()


@pytest.mark.parametrize("lie", LIES)
def test_what_was_changed_in_a_windows_is_replaced(
    lie: Callable[[Path], None], tmp_path: Path, prefix: Prefix
) -> None:
    made = made_in(tmp_path / "made")
    place = prefix.drive / toolset.LIBCXX
    libcxx.install_libcxx(made, prefix)
    assert read_verified_seal(place) == read_verified_seal(made)
    lie(place)
    libcxx.install_libcxx(made, prefix)
    assert read_verified_seal(place) == read_verified_seal(made)
    assert not (place / "include/windows.h").exists()


def test_what_is_there_is_not_copied_again(tmp_path: Path, prefix: Prefix) -> None:
    made = made_in(tmp_path / "made")
    libcxx.install_libcxx(made, prefix)
    before = (prefix.drive / toolset.LIBCXX).stat().st_ino
    libcxx.install_libcxx(made, prefix)
    assert (prefix.drive / toolset.LIBCXX).stat().st_ino == before


@pytest.mark.parametrize(
    "files",
    [
        {"ziglang/lib/include/stddef.h": ""},
        {"ziglang/lib/libcxx/include/vector": "", "ziglang/lib/libcxx/src/vector.cpp": ""},
        {"ziglang/lib/libcxx/include/__config": libcxx._LEFT_OUT},
    ],
    ids=["none", "headers that read no configuration", "no sources"],
)
def test_another_zig_is_refused(files: dict[str, str], tmp_path: Path) -> None:
    wheel = tmp_path / "zig.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    with pytest.raises(SetupError, match="unexpected libc"):
        libcxx._unpack_libcxx_sources(wheel, tmp_path / "home", tmp_path / "sources")


def test_the_images_of_today_have_it_and_of_others_nobody_knows() -> None:
    asked = {"kind": "container", "system": "linux", "image": f"mine/sandbox@sha256:{'0' * 64}"}
    given = ContainerHost.model_validate(asked).supply(load_lock())
    assert given.toolset.apis == ("plain",)
    assert "image mine/sandbox@sha256:0" in given.toolset.limitation
    own = ContainerHost.model_validate({"kind": "container"})
    for host in (own, SandboxHost.model_validate({"kind": "sandbox"})):
        assert "stable" in host.supply(load_lock()).toolset.apis
