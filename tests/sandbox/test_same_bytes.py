"""A wheel that a second sandbox builds again, of genuine Windows binaries: the same bytes."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from lines import line_below

from pipelines.core.errors import AuditError
from pipelines.core.files import sha256_of
from pipelines.publish.provenance.verifying import find_provenance, verify_provenance
from pipelines.publish.rebuild.published import Published, read_published
from pipelines.publish.rebuild.run import rebuild_verdict_json, run_rebuild
from pipelines.stages.line import run_build
from pipelines.toolchain.lock import load_lock
from pipelines.wheels.metadata import inspect_wheel
from pipelines.wheels.sboms import all_of

ARCHS = "80;90+PTX"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of who has published; the sandbox is gone when a test has it."""
    base = tmp_path_factory.mktemp("they")
    with line_below(base, recipe="smoke-attention", archs=ARCHS) as line:
        return run_build(line)


def lied(run: Path, room: Path) -> Published:
    """One byte of the code, and one of the device code, are others; the manifest says so."""
    (room / "wheels").mkdir(parents=True)
    (old,) = (run / "wheels").glob("*.whl")
    new = room / "wheels" / old.name
    with zipfile.ZipFile(old) as source, zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as made:
        for info in source.infolist():
            data = bytearray(source.read(info))
            if info.filename.endswith((".pyd", "_cuda.dll")):
                data[0x1234] ^= 1
                data[len(data) // 2] ^= 1
            made.writestr(info, bytes(data))
    manifest = json.loads((run / "manifest.json").read_text())
    for row in manifest["files"]:
        if row["path"].endswith(".whl"):
            row["sha256"] = sha256_of(new)
    (room / "manifest.json").write_text(json.dumps(manifest))
    return read_published(str(new))


def test_its_statement_names_what_it_was_built_with(published: Path) -> None:
    """Every file of the lock, setuptools too, and nothing that is none."""
    (wheel,) = (published / "wheels").glob("*.whl")
    found = verify_provenance(wheel, find_provenance(wheel), [], load_lock())
    states = {one.id: one.level for one in found.findings}
    expected = {"wheel": "ok", "signature": "unknown", "manifest": "ok", "lock": "ok"}
    assert expected.items() <= states.items()
    assert states["publishing"] == "warning", "a stand-in has compiled it"
    said = json.loads(find_provenance(wheel).read_text())["predicate"]["buildDefinition"]
    rows = {one["name"]: one["digest"]["sha256"] for one in said["resolvedDependencies"]}
    tools = {name: load_lock().tool(name).sha256 for name in rows.keys() - {"source"}}
    assert tools.items() <= rows.items()
    assert {"source", "setuptools", "nvidia-cuda-nvcc"} <= rows.keys()
    manifest = json.loads((published / "manifest.json").read_text())
    assert tools.keys() == manifest["tools"].keys()


def test_another_sandbox_builds_the_same_bytes(
    published: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = tmp_path_factory.mktemp("we-in-a-directory-of-another-length")
    with line_below(base, recipe="smoke-attention", archs=ARCHS) as line:
        run_rebuild(line, read_published(str(published / "manifest.json")))
        assert rebuild_verdict_json(line.run)["verdict"] == "identical"
        (ours,) = (line.run.path / "wheels").glob("*.whl")
        (theirs,) = (published / "wheels").glob("*.whl")
        assert ours.read_bytes() == theirs.read_bytes()
        (bill,) = all_of(inspect_wheel(ours))
        assert (bill.state, bill.of_another) == ("valid", False)
        parts = {row.name: row for row in bill.components}
        assert (
            parts["nvidia-cuda-nvcc"].sha256 == line.plan.cache.lock.tool("nvidia-cuda-nvcc").sha256
        )
        assert parts["image"].version == line.plan.host.inputs
        assert "pytest" not in parts, "it is brought for the test alone"
        with pytest.raises(AuditError, match="differs from the published wheel"):
            run_rebuild(line, lied(published, base / "lied"))
        found = json.dumps(rebuild_verdict_json(line.run))
        assert rebuild_verdict_json(line.run)["verdict"] == "different"
        assert "section .text" in found
        assert "in section .nv_fatb" in found
