"""Extras: what is missing names itself, and nothing else of the pipeline needs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from foreign_wheels import foreign
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pes import dll

from pipelines.core import extras
from pipelines.core.errors import SetupError
from pipelines.core.paths import PACKAGE
from pipelines.stages.manifest import write_run_statements
from pipelines.wheels.imports import demangle_symbol

PROJECT = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text("utf-8"))["project"]
OPTIONAL: dict[str, list[str]] = PROJECT["optional-dependencies"]

#: Hides the modules of an extra, as if they were not installed; Python imports it at its start.
HIDING = """
import importlib.machinery, os, sys
HIDDEN = set(os.environ["HIDDEN"].split(","))
class Hiding(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in HIDDEN else super().find_spec(name, path, target)
sys.meta_path = [Hiding if one is importlib.machinery.PathFinder else one for one in sys.meta_path]
"""


def without(extra: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The program without these modules, and the processes that it starts."""
    (cwd / "sitecustomize.py").write_text(HIDING)
    return subprocess.run(
        [sys.executable, "-m", "pipelines", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={
            "PYTHONPATH": f"{cwd}{os.pathsep}{PACKAGE.parent}",
            "PATH": "/usr/bin:/bin",
            "HOME": str(cwd),
            "HIDDEN": ",".join(name for name, own in extras.MODULES.items() if own == extra),
        },
        check=False,
    )


def test_the_table_is_that_of_pyproject() -> None:
    for extra in extras.EXTRAS:
        names = {Requirement(text).name for text in OPTIONAL[extra]}
        modules = {name for name, own in extras.MODULES.items() if own == extra} - {"google"}
        assert len(names) == len(modules)
        for module in modules:  # in-toto-attestation, cyclonedx-python-lib, pyspnego
            assert any(canonicalize_name(module) in canonicalize_name(name) for name in names)
    (every,) = OPTIONAL["all"]
    assert Requirement(every).extras == set(extras.EXTRAS)
    assert len(PROJECT["dependencies"]) < 22


@pytest.mark.slow
def test_no_module_of_an_extra_is_imported_where_it_is_not_translated() -> None:
    """By the core at import: ``plan`` and ``build`` would end because a package is missing."""
    code = (
        "import sys, pipelines.cli.build, pipelines.cli.plan, pipelines.stages.line, json\n"
        "import pipelines.publish.provenance.sbom, pipelines.wheels.checks\n"
        "json.dump([*sys.modules], sys.stdout)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert not {name.partition(".")[0] for name in json.loads(done.stdout)} & extras.MODULES.keys()


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A wheel with an SBOM, and with imports of torch's stable ABI and of Python's."""
    names = {"torch_cpu.dll": ["aoti_torch_get_dim"], "python3.dll": ["PyLong_FromLong"]}
    bill = b'{"bomFormat": "CycloneDX", "specVersion": "1.6"}'
    files = {"pkg/_C.pyd": dll(names), "pkg-1.0.dist-info/sboms/a.cdx.json": bill}
    return foreign(tmp_path, "pkg", "1.0", "cp39-abi3-win_amd64", files=files)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extra", "line"),
    [
        ("publish", "publish latest --to index"),
        ("publish", "verify WHEEL"),
        ("sbom", "sbom WHEEL"),
        ("abi", "audit WHEEL"),
        ("sandbox", "provision --host sandbox --recipe smoke-attention"),
    ],
)
def test_what_is_missing_names_itself(tmp_path: Path, made: Path, extra: str, line: str) -> None:
    done = without(extra, *line.replace("WHEEL", str(made)).split(), cwd=tmp_path)
    assert done.returncode == SetupError.exit_code, done.stderr
    said = " ".join(done.stderr.split())
    assert f"which the extra '{extra}' brings" in said
    assert re.search(rf"uv pip install .*--extra {extra}$", said)


@pytest.mark.slow
def test_an_audit_says_that_sboms_are_not_checked(tmp_path: Path, made: Path) -> None:
    done = without("sbom", "audit", str(made), "--json", cwd=tmp_path)
    (seen,) = json.loads(done.stdout)["wheels"]
    (row,) = (one for one in seen["findings"] if one["id"] == "sbom")
    assert row["level"] == "unknown"
    assert "--extra sbom" in row["hint"]


def test_where_it_is_installed_the_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "CHECKOUT", None)
    requires = ['fsspec>=2; extra == "publish"', "rich>=1", 's3fs[a]>=3; extra == "publish"']
    monkeypatch.setattr("importlib.metadata.requires", lambda _: requires)
    command = extras.install_extra("publish")
    assert command.startswith(sys.executable)
    assert command.endswith("-m pip install 'fsspec>=2' 's3fs[a]>=3'")


def test_a_checkout_on_windows_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr("importlib.metadata.requires", lambda _: pytest.fail("it has no metadata"))
    command = extras.install_extra("keyring")
    assert "-m pip install" in command
    assert OPTIONAL["keyring"][0] in command


def test_a_run_without_publish_has_no_provenance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "in_toto_attestation", None)
    write_run_statements(tmp_path, b"no manifest")
    assert "in_toto_attestation is not installed" in " ".join(capsys.readouterr().out.split())


def test_other_import_errors_are_faults() -> None:
    assert extras.missing_extra(ModuleNotFoundError("x", name="numpy")) is None
    assert extras.missing_extra(ImportError("x", name="fsspec")) is None
    found = extras.missing_extra(ModuleNotFoundError("x", name="cyclonedx.model"))
    assert isinstance(found, SetupError)


def test_an_unreadable_name_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert demangle_symbol("?f@@YAXXZ") == "void __cdecl f(void)"
    monkeypatch.setitem(sys.modules, "demangle", None)
    assert demangle_symbol("?f@@YAXXZ") == "?f@@YAXXZ"
