"""What ``which`` knows of requirements, against ``packaging``; and what it proposes."""

from __future__ import annotations

from pathlib import Path

import pytest
from environments import IMPORTS, RTX_4090, Windows, module
from hypothesis import given
from hypothesis import strategies as st
from packaging.markers import Marker
from packaging.specifiers import SpecifierSet
from pes import dll

from pipelines.publish.which.answer import as_object, as_text
from pipelines.publish.which.looking import Driver, Place
from pipelines.publish.which.reporting import build_report
from pipelines.publish.which.requiring import is_marker_true
from pipelines.publish.which.texts import satisfies_specifiers

RELEASES = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(lambda n: ".".join(map(str, n)))
HOW = st.sampled_from(["==", "!=", "<=", ">=", "~=", "=="])


@given(
    own=RELEASES, bound=RELEASES, how=HOW, star=st.booleans(), local=st.sampled_from(["", "+cu1"])
)
def test_versions_fit_as_packaging_says(
    own: str, bound: str, how: str, star: bool, local: str
) -> None:
    if how == "~=" and "." not in bound:
        bound += ".0"
    wanted = f"{how}{bound}" + ".*" * (star and how in ("==", "!="))
    expected = SpecifierSet(wanted).contains(own + local, prereleases=True)
    assert satisfies_specifiers(own + local, wanted) is expected, (own + local, wanted)


@pytest.mark.parametrize("wanted", ["==", ">=x", "~=1.*", "===1", "1.0", ">=1;"])
def test_what_is_no_range_is_not_understood(wanted: str) -> None:
    with pytest.raises(ValueError, match="not a version"):
        satisfies_specifiers("1.0", wanted)


PLACE = Place("python.exe", "3.12", "win_amd64", (), ())
ENVIRONMENT = {
    "os_name": "nt", "sys_platform": "win32", "platform_system": "Windows",
    "platform_machine": "AMD64", "python_version": "3.12", "extra": "",
    "platform_python_implementation": "CPython", "implementation_name": "cpython",
}  # fmt: skip


@pytest.mark.parametrize(
    "marker",
    [
        'sys_platform == "win32"', "sys_platform=='linux'", "os_name != 'nt'",
        'python_version < "3.9"', 'python_version >= "3.10" and platform_system == "Windows"',
        '"win" in sys_platform', 'platform_machine not in "arm64 aarch64"', 'extra == "dev"',
        '(sys_platform == "linux" or sys_platform == "win32") and python_version > "3.8"',
        'platform_python_implementation != "PyPy"', 'implementation_name == "cpython"',
    ],
)  # fmt: skip
def test_markers_hold_as_packaging_says(marker: str) -> None:
    assert is_marker_true(marker, PLACE) is Marker(marker).evaluate(dict(ENVIRONMENT))


@pytest.mark.parametrize("marker", ["python_full_version < '3.12.1'", "x", "1 < 2 < 3", "(" * 500])
def test_a_marker_that_is_not_understood_requires_nothing(marker: str) -> None:
    assert is_marker_true(marker, PLACE) is False


def test_what_was_named_and_is_not_installed_is_told(tmp_path: Path) -> None:
    found = build_report(Windows(tmp_path).place(), [], "nunchaku", driver=RTX_4090, load=False)
    assert (found.absent, found.good) == (("nunchaku",), False)
    assert "nunchaku is not installed" in as_text(found, "")
    assert as_object(found, "")["absent"] == ["nunchaku"]


def test_another_packages_dll_with_fewer_names(tmp_path: Path) -> None:
    windows = Windows(tmp_path)
    windows.package("other", "1.0", {"other/tbb12.dll": dll({}, ("old",))})
    own = {"flash_attn/tbb12.dll": dll({}, ("old", "new"))}
    windows.flash(module({**IMPORTS, "tbb12.dll": ["new"]}), more=own)
    (package,) = build_report(
        windows.place(), [], "flash-attn", driver=RTX_4090, load=False
    ).packages
    assert [(one.id, one.level) for one in package.findings] == [("other-copy", "warning")]
    windows.flash(module({**IMPORTS, "tbb12.dll": ["old"]}), more=own)
    (package,) = build_report(
        windows.place(), [], "flash-attn", driver=RTX_4090, load=False
    ).packages
    assert package.findings == ()


def test_torchs_dll_is_loaded_before_the_packages_own(tmp_path: Path) -> None:
    windows = Windows(tmp_path)
    (windows.site / "torch/lib/tbb12.dll").write_bytes(dll({}, ("old",)))
    own = {"flash_attn/tbb12.dll": dll({}, ("old", "new"))}
    windows.flash(module({**IMPORTS, "tbb12.dll": ["new"]}), more=own)
    (package,) = build_report(
        windows.place(), [], "flash-attn", driver=RTX_4090, load=False
    ).packages
    assert [one.id for one in package.findings] == ["missing-export"]


@pytest.mark.parametrize("version", ['1.0"&calc&"', "1.0$(calc)", "1.0%PATH%"])
def test_metadata_becomes_no_command(tmp_path: Path, version: str) -> None:
    windows = Windows(tmp_path)
    windows.package("nunchaku", "1.0", {"other.py": b""}, tag="py3-none-any")
    metadata = next(windows.site.glob("nunchaku-*/METADATA"))
    metadata.write_text(f"Name: nunchaku\nVersion: {version}\nRequires-Dist: x=={version}\n")
    found = build_report(windows.place(), [], "nunchaku", driver=RTX_4090, load=False)
    assert "other-project" in [one.id for one in found.packages[0].findings]
    assert as_object(found, "")["commands"] == []


def test_a_torch_that_the_driver_runs_is_proposed(tmp_path: Path) -> None:
    windows = Windows(tmp_path)
    for path in windows.site.glob("torch*"):
        path.rename(tmp_path / path.name)
    for release, index in (("12.5", "cu126"), ("12.9", "cu126"), ("13.0", "cu130"), ("10.2", "")):
        driver = Driver(release, ("8.9",))
        found = build_report(windows.place(), [], "x", driver=driver, load=False)
        said = as_object(found, "")["commands"]
        assert [one["do"].rpartition("/")[2].strip('"') for one in said] == [index] * bool(index)
        assert [one["undo"].endswith("uninstall -y torch") for one in said] == [True] * bool(index)
