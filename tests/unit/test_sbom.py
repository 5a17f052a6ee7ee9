"""Bills of materials: of wheels built here the one that was meant, of others' what lies there."""

from __future__ import annotations

import base64
import hashlib
import json
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from audited import TAG, finding, one
from foreign_wheels import foreign
from packageurl import PackageURL
from plans import PYTHON, Desk, line_for, plan_for, recipe_of
from projects import project
from sessions import Here
from test_line import backend
from test_rebuild import lied, party, rewritten, tree, wheel_of
from wheels import FILES, INFO, METADATA, wheel

from pipelines.cli.program import run_command_line
from pipelines.core.errors import AuditError, ConfigError, LockError
from pipelines.core.finding import Finding
from pipelines.plan.matrix.buildplan import BuildPlan
from pipelines.publish.provenance.bill import Bill, bill_of
from pipelines.publish.provenance.sbom import (
    TOOLSET,
    Part,
    compare_sbom,
    make_sbom_template,
    with_toolset,
)
from pipelines.publish.rebuild.published import read_published
from pipelines.publish.rebuild.run import run_rebuild
from pipelines.recipe.load import load_recipe
from pipelines.recipe.model import Patch, Vendored
from pipelines.recipe.patches import patch_file
from pipelines.recipe.sourcetree import EPOCH, pack_source_tree
from pipelines.recipe.vendored import vendored_in
from pipelines.record.results import (
    AuditResult,
    BuildResult,
    ProvisionResult,
    ResourceResult,
)
from pipelines.remote import repack, sboms
from pipelines.stages.buildspec import collect_materials, environment_of
from pipelines.stages.line import Line, run_build
from pipelines.wheels.metadata import inspect_wheel
from pipelines.wheels.sboms import Sbom, all_of, problem_of, read_sbom

OWN = f"{INFO}/sboms/{sboms.FILE}"
PARTS = (
    Part("source", "pkg-1.0.tar.gz", "1.0", "a" * 64, license="MIT"),
    Part("tool chain", "MSVC", "14.44", ref=TOOLSET),
    Part("vendored", "CUTLASS", "4.0.0", purl="pkg:github/nvidia/cutlass@v4.0.0"),
)


def bill(*parts: Part, **properties: str) -> str:
    return make_sbom_template("Apache-2.0", parts or PARTS, properties, EPOCH)


def packed(room: Path, text: str, files: dict[str, bytes] = FILES) -> Path:
    """A wheel with that bill in it, as a host packs it."""
    room.mkdir(exist_ok=True)
    path = wheel(room, files)
    repack.repack(path, None, EPOCH, text)
    return path


# -- made ------------------------------------------------------------------------------------------


def test_equal_inputs_give_equal_bytes_and_others_do_not() -> None:
    seen = [sboms.completed(bill(*parts), METADATA) for parts in (PARTS, PARTS[::-1])]
    assert seen[0] == seen[1]
    document = json.loads(seen[0])
    assert document["metadata"]["timestamp"] == "2024-01-01T00:00:00+00:00"
    other = json.loads(sboms.completed(bill(python="3.12"), METADATA))
    assert document["serialNumber"] != other["serialNumber"]
    assert not problem_of(seen[0], "1.6", strict=True)


@pytest.mark.parametrize("name", ["Pkg", "a.b__c-D"])
def test_a_wheel_is_called_as_the_field_does(name: str) -> None:
    text = sboms.completed(bill(), f"Name: {name}\nVersion: 1!2.0+cu130.x\n\nVersion: 3\n".encode())
    purl = json.loads(text)["metadata"]["component"]["purl"]
    assert PackageURL.from_string(purl).to_string() == purl
    assert PackageURL.from_string(purl).version == "1!2.0+cu130.x"
    assert read_sbom("x.json", text, name, "1!2+cu130.x")[0].of_another is False


def test_metadata_without_a_name_has_no_bill() -> None:
    with pytest.raises(ValueError, match="METADATA"):
        sboms.completed(bill(), b"Name: x\n\nVersion: 1\n")


def test_the_host_puts_it_in_and_record_knows_it(tmp_path: Path) -> None:
    facts = inspect_wheel(packed(tmp_path, bill()))
    assert facts.record.true
    assert facts.members[-1] == f"{INFO}/RECORD"
    assert dict(facts.sboms) == {OWN: sboms.completed(bill(), METADATA)}
    (seen,) = all_of(facts)
    assert (seen.state, seen.format, seen.count) == ("valid", "CycloneDX 1.6", 3)
    assert seen.subject == "Pkg 1.0+cu130"
    with zipfile.ZipFile(tmp_path / facts.filename) as archive:
        assert archive.read("pkg/__init__.py") == FILES["pkg/__init__.py"]


def test_a_bill_of_that_name_in_the_source_is_not_taken_for_ours(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="already has a"):
        packed(tmp_path, bill(), FILES | {OWN: b"{}"})
    with pytest.raises(ValueError, match=r"has 2 RECORDs: a-1\.dist-info/RECORD, "):
        packed(tmp_path, bill(), FILES | {"a-1.dist-info/RECORD": b""})
    kept = packed(tmp_path / "kept", bill(), FILES | {f"{INFO}/sboms/rust.cdx.json": b"{}"})
    assert len(inspect_wheel(kept).sboms) == 2


# -- the bill that was meant -----------------------------------------------------------------------


def judged(path: Path, text: str) -> Finding:
    return compare_sbom(inspect_wheel(path), text)


def test_another_bill_than_was_meant_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path, bill())
    assert not judged(path, bill()).failed
    for other in (bill(python="3.12"), with_toolset(bill(), "14.38")):
        said = judged(path, other)
        assert (said.level, said.actual) == ("error", "different from the planned one")
    assert judged(wheel(tmp_path, FILES), bill()).actual == "none"
    blank = FILES | {OWN: sboms.completed(bill(), METADATA) + b" "}
    assert judged(wheel(tmp_path, blank), bill()).failed


def test_a_record_without_a_bill_passes_no_wheel(tmp_path: Path) -> None:
    for path in (packed(tmp_path, bill()), wheel(tmp_path, FILES)):
        assert judged(path, "").failed


def test_a_build_that_is_healed_names_the_tool_set_that_built_it() -> None:
    rows = json.loads(with_toolset(bill(), "14.38"))["components"]
    assert [row["version"] for row in rows if row["name"] == "MSVC"] == ["14.38"]
    assert [row["version"] for row in rows if row["name"] == "CUTLASS"] == ["4.0.0"]


@pytest.mark.parametrize(("kept", "named"), [("", "14.44"), ("14.38", "14.38")])
def test_a_kept_wheel_has_the_bill_of_what_cured_its_build(
    tmp_path: Path, kept: str, named: str
) -> None:
    """The next build with equal inputs takes it, and asks for no other tool set."""
    spec = {"bill": with_toolset(bill(), "14.44"), "toolset": ""}
    meant = Bill(at_desk(tmp_path).plan).ended(spec, {"toolset": kept})["bill"]
    rows = json.loads(str(meant))["components"]
    assert [row["version"] for row in rows if row["name"] == "MSVC"] == [named]


def at_desk(room: Path, **recipe: Any) -> Line:
    if not (room / "tree").exists():
        project(room / "tree", backend())
    made_of = recipe_of(room / "tree", **recipe)
    host = Desk(room / "root", Here())
    return line_for(plan_for(room, host, made_of, python=PYTHON, archs="90a"))


VERSION_H = "#define CUTLASS_MAJOR 4\n#define CUTLASS_MINOR 2\n"
CUTLASS = Vendored(
    name="CUTLASS",
    directory="csrc/cutlass",
    license="BSD-3-Clause",
    purl="pkg:github/nvidia/cutlass@v{version}",
    file="version.h",
    version=(r"MAJOR (\d+)", r"MINOR (\d+)"),
)


def test_a_run_has_it_and_its_audit_compares_it(tmp_path: Path) -> None:
    """Of a recipe that says nothing of reproducible bytes too."""
    project(tmp_path / "tree", backend())
    place = tmp_path / "tree/csrc/cutlass/version.h"
    place.parent.mkdir(parents=True)
    place.write_text(VERSION_H)
    line = at_desk(tmp_path, vendored=(CUTLASS,))
    path = run_build(line)
    facts = inspect_wheel(wheel_of(path))
    (seen,) = all_of(facts)
    assert (seen.state, seen.of_another) == ("valid", False)
    rows = {row.name: row for row in seen.components}
    assert (rows["CUTLASS"].version, rows["CUTLASS"].role) == ("4.2", "vendored")
    assert rows["CUTLASS"].purl == "pkg:github/nvidia/cutlass@v4.2"
    assert rows["CUTLASS"].properties == {"directory": "csrc/cutlass"}
    assert seen.properties["gpu:architectures"] == "90a"
    built = line.run.result(BuildResult)
    assert built is not None
    assert rows["pkg"].sha256 == built.source_sha256
    document = json.loads(dict(facts.sboms).popitem()[1] or b"")
    audited = line.run.result(AuditResult)
    assert audited is not None
    (check,) = [c for c in audited.files[0].checks if c.id == "sbom-planned"]
    assert check.level == "ok"
    text = json.dumps(document)
    assert str(tmp_path) not in text  # places differ from host to host
    line.close()


def there(kind: str, id_: str, **values: str) -> ResourceResult:
    return ResourceResult(id=id_, kind=kind, wanted="w", found="f", ok=True, values=values)


def test_of_an_environment_that_is_there_no_hash_is_claimed(tmp_path: Path) -> None:
    host = Desk(tmp_path / "root", Here())
    plan = plan_for(tmp_path, host, recipe="flash-attn", python="3.12", archs="80")
    source = pack_source_tree(
        [("setup.py", b""), (HEADER, b"".join(b"#define CUTLASS_%s 3\n" % n for n in N))]
    )
    provisioned = ProvisionResult(
        resources=(
            there("distributions", "environment", Python="3.12", torch="2.8.0+cu128", pytest="9"),
            there("program", "CUDA compiler", version="release 12.8, V12.8.93"),
            there("compilers", "host compilers", gcc="gcc 12.2.0"),
        )
    )
    bill_ = bill_of(plan, source, provisioned)
    rows = {row.name: row for row in sbom(sboms.completed(bill_, METADATA)).components}
    assert (rows["torch"].role, rows["torch"].version) == ("built against", "2.8.0+cu128")
    assert PackageURL.from_string(rows["torch"].purl).version == "2.8.0+cu128"
    assert rows["gcc"].version == "gcc 12.2.0"
    assert rows["CUDA compiler"].version == "release 12.8, V12.8.93"
    assert rows["CUTLASS"].version == "3.3.3"
    assert "pytest" not in rows
    for name in ("torch", "gcc", "CUDA compiler", "Python", "setuptools"):
        assert (rows[name].sha256, rows[name].properties) == ("", {"unknown": "sha256"})
    pinned = rows["flash_attn-2.8.3.post2.tar.gz"]
    assert pinned.sha256 == getattr(plan.recipe.source, "sha256", None)
    assert pinned.properties["built of sha256"] == hashlib.sha256(source).hexdigest()


def of_flash_attn(
    room: Path, monkeypatch: pytest.MonkeyPatch, cuda: str = "13.0"
) -> tuple[BuildPlan, dict[str, Any]]:
    """A plan whose source is patched, on a host with MSVC, and what its bill says of the source."""
    plan = plan_for(room, recipe="flash-attn", python="3.12", archs="80", cuda=cuda)
    vars(plan)["wanted"] = ()  # of tools, some of which are not pinned
    monkeypatch.setattr("pipelines.publish.provenance.bill._pinned", lambda _: ())
    source = pack_source_tree(
        [("setup.py", b""), (HEADER, b"".join(b"#define CUTLASS_%s 3\n" % n for n in N))]
    )
    document = json.loads(sboms.completed(bill_of(plan, source, None), METADATA))
    return plan, document


def test_patches_lie_in_the_bill_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, document = of_flash_attn(tmp_path, monkeypatch)
    (patch,) = plan.recipe.patches
    (source,) = [one for one in document["components"] if "pedigree" in one]
    assert source["name"] == "flash_attn-2.8.3.post2.tar.gz"
    (lies,) = source["pedigree"]["patches"]
    text = base64.b64decode(lies["diff"]["text"]["content"], validate=True)
    assert hashlib.sha256(text).hexdigest() == patch.sha256
    assert text == patch_file(patch).read_bytes()
    assert f"{patch.file}: sha256 {patch.sha256}" in source["pedigree"]["notes"]
    (resolved,) = lies["resolves"]
    assert (resolved["description"], resolved["references"]) == (patch.why, [patch.source])
    assert not problem_of(json.dumps(document).encode(), "1.6", strict=True)
    assert collect_materials(plan, "0" * 64, None).root["patch"] == {patch.file: patch.sha256}
    rows = sbom(json.dumps(document).encode()).components
    found = [row.properties.get("patched by") for row in rows]
    assert [*filter(None, found)] == [patch.file]


def test_a_patch_that_is_another_one_is_another_bill(tmp_path: Path) -> None:
    """Which the audit compares byte by byte, and a rebuild by its hash."""
    patch = Patch(
        file="x.patch", sha256="0" * 64, source="https://x.invalid/1", license="MIT", why="it fails"
    )
    other = patch.model_copy(update={"why": "else"})
    changes = ((), ((patch, b"--- a\n"),), ((patch, b"--- b\n"),), ((other, b"--- a\n"),))
    seen = [bill(Part("source", "x", "1", changes=one)) for one in changes]
    assert len(set(seen)) == len(seen)
    assert judged(packed(tmp_path, seen[1]), seen[2]).failed


@pytest.mark.parametrize(("cuda", "fixed"), [("13.0", False), ("13.2", True)])
def test_flags_that_a_release_needs_are_in_the_bill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuda: str, fixed: bool
) -> None:
    plan, document = of_flash_attn(tmp_path, monkeypatch, cuda)
    names = [one["name"] for one in document["metadata"]["component"]["properties"]]
    taken = [name.split(":fix:")[1] for name in names if ":fix:" in name]
    assert ("CL:/Zc:preprocessor" in taken) is fixed
    assert (environment_of(plan, 1).get("CL", "").find("/Zc:preprocessor") >= 0) is fixed


HEADER = "csrc/cutlass/include/cutlass/version.h"
N = (b"MAJOR", b"MINOR", b"PATCH")


def test_a_wheel_without_it_does_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a host would leave it whose Python packs no bill."""
    line = at_desk(tmp_path)
    whole = repack.repack
    monkeypatch.setattr(repack, "repack", lambda path, since, epoch, *_: whole(path, since, epoch))
    with pytest.raises(AuditError, match="SBOM: found none"):
        run_build(line)
    line.close()


@pytest.mark.slow
def test_a_rebuild_has_the_same_and_another_one_is_refused(tmp_path: Path) -> None:
    run_ = run_build(party(tmp_path, "they", tree(tmp_path)))
    name = next(n for n, _ in inspect_wheel(wheel_of(run_)).sboms)
    line = party(tmp_path, "we", tree(tmp_path))
    ours = inspect_wheel(wheel_of(run_rebuild(line, read_published(str(run_) + "/manifest.json"))))
    assert dict(ours.sboms) == dict(inspect_wheel(wheel_of(run_)).sboms)

    def other(data: dict[str, Any]) -> None:
        data["inputs"]["materials"]["wheel"]["sbom"] = "0" * 64

    rewritten(run_, other)
    with pytest.raises(LockError, match="wheel sbom: there 000"):
        run_rebuild(party(tmp_path, "others", tree(tmp_path)), read_published(str(wheel_of(run_))))
    assert name.endswith(sboms.FILE)


@pytest.mark.slow
def test_a_published_wheel_with_a_forged_bill_is_different(tmp_path: Path) -> None:
    run_ = run_build(party(tmp_path, "they", tree(tmp_path)))
    lied(run_, **{sboms.FILE.replace(".", "_"): b"{}"})
    with pytest.raises(AuditError, match=r"differs from the published wheel.*sboms"):
        run_rebuild(party(tmp_path, "we", tree(tmp_path)), read_published(str(wheel_of(run_))))


# -- vendored code ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (VERSION_H.replace("MINOR", "MINUS"), "has '4' by"),
        (VERSION_H + "#define CUTLASS_MAJOR 3", "MAJOR"),
        ("", "has no version"),
        ("MAJOR 4\nMINOR 2 x" * 100_000, "bytes"),
    ],
)
def test_vendored_code_that_says_no_version_is_refused(text: str, said: str) -> None:
    source = pack_source_tree([("setup.py", b""), ("csrc/cutlass/version.h", text.encode())])
    recipe = load_recipe("smoke-attention").model_copy(update={"vendored": (CUTLASS,)})
    with pytest.raises(ConfigError, match=said):
        vendored_in(recipe, source)


def test_a_release_that_the_tree_around_it_names() -> None:
    """The code itself says a version that many commits have: the newest entry of the change log."""
    (code,) = load_recipe("llama-cpp-python").vendored
    log = (
        "# Log\n## [2]\n- to ggml-org/llama.cpp@0c1e57098\n## [1]\n- ggml-org/llama.cpp@4df29be4f\n"
    )
    inside = (f"{code.directory}/CMakeLists.txt", b"set(LLAMA_VERSION_MAJOR 0)")
    (found,) = vendored_in(
        load_recipe("llama-cpp-python"),
        pack_source_tree([("setup.py", b""), inside, ("CHANGELOG.md", log.encode())]),
    )
    assert found.version == "0c1e57098"
    with pytest.raises(ConfigError, match=r"llama\.cpp: CHANGELOG\.md is not in the source"):
        vendored_in(load_recipe("llama-cpp-python"), pack_source_tree([("setup.py", b""), inside]))


def test_vendored_code_that_is_elsewhere_is_refused() -> None:
    recipe = load_recipe("smoke-attention").model_copy(update={"vendored": (CUTLASS,)})
    with pytest.raises(ConfigError, match="nothing below csrc/cutlass"):
        vendored_in(recipe, pack_source_tree([("setup.py", b"")]))
    with pytest.raises(ConfigError, match=r"version\.h is not in the source"):
        vendored_in(recipe, pack_source_tree([("setup.py", b""), ("csrc/cutlass/x.h", b"")]))


def test_every_flash_attn_declares_its_cutlass() -> None:
    for version in ("2.8.3.post2", "2.7.4.post1", "2.3.6", "main"):
        (one_,) = load_recipe("flash-attn", version=version).vendored
        assert (one_.name, one_.directory) == ("CUTLASS", "csrc/cutlass")
        assert bool(one_.file) == (version != "2.3.6")


def test_a_pattern_must_find_one_thing() -> None:
    fields = CUTLASS.model_dump()
    for pattern in ("MAJOR", "(a)(b)", "("):
        with pytest.raises(ValueError, match=r"group|regular expression"):
            Vendored.model_validate(fields | {"version": [pattern]})
    with pytest.raises(ValueError, match="go together"):
        Vendored.model_validate(fields | {"version": []})


# -- anybody's -------------------------------------------------------------------------------------


def sbom(data: bytes | None, file: str = "x.cdx.json") -> Sbom:
    return read_sbom(file, data, "other", "1.0")[0]


def cyclonedx(**more: Any) -> bytes:
    return json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.6", **more}).encode()


def nested(levels: int) -> bytes:
    return b'{"bomFormat": "CycloneDX", "x": ' + b"[" * levels + b"]" * levels + b"}"


MANY = [{"type": "library", "name": f"n{n}"} for n in range(20_000)]


@pytest.mark.parametrize(
    ("data", "state", "problem"),
    [
        (cyclonedx(), "valid", ""),
        (cyclonedx(specVersion="1.4", version=1), "valid", ""),
        (cyclonedx(components=[{"type": "no such", "name": "n"}]), "invalid", "components/0/type"),
        (cyclonedx(components=5), "invalid", "components"),
        (cyclonedx(specVersion="9.9"), "not checked", "no schema"),
        (cyclonedx(specVersion=["1.6"]), "not checked", "no schema"),
        (cyclonedx(components=MANY), "not checked", "too large"),
        (cyclonedx(components=MANY[:5000]), "valid", ""),
        (cyclonedx(components=[*MANY[:9], MANY[0]]), "invalid", "components: two"),
        (cyclonedx()[:-5], "invalid", "not JSON"),
        (b'{"bomFormat": "CycloneDX", "bomFormat": "x"}', "invalid", "twice"),
        (nested(100), "invalid", "deeper than"),
        (nested(200_000), "invalid", "not JSON"),
        (b"\xff\xfe\x00", "invalid", "not JSON"),
        (b"[" * 10 + b"1" * 5000 + b"]" * 10, "invalid", "not JSON"),
        (None, "not checked", "too large"),
        (b"<bom/>", "not checked", "not checked"),
        (b"[]", "not checked", "format"),
        (b'{"spdxVersion": "SPDX-2.3", "packages": [1, 2]}', "not checked", "SPDX"),
    ],
)
def test_whatever_lies_there_is_told(data: bytes | None, state: str, problem: str) -> None:
    began = time.monotonic()
    seen = sbom(data)
    assert time.monotonic() - began < 10
    assert seen.state == state
    assert problem in seen.problem


def test_what_it_says_is_bounded_and_harmless() -> None:
    name = "\x1b[31m" + "n" * 10_000
    (row,) = sbom(cyclonedx(components=[{"type": "library", "name": name}])).components
    assert "\x1b" not in row.name
    assert len(row.name) < 210


@pytest.mark.parametrize(
    ("subject", "another"),
    [
        ({"name": "Other", "version": "1.0.0", "purl": "pkg:pypi/other@1.0.0"}, False),
        ({"name": "torch", "version": "1.0", "purl": "pkg:pypi/torch@1.0"}, True),
        ({"name": "other", "version": "2.0", "purl": "pkg:pypi/other@2.0"}, True),
        ({"name": "other", "version": "?", "purl": "pkg:pypi/other"}, True),
        ({"name": "crate", "version": "7", "purl": "pkg:cargo/crate@7"}, False),
    ],
)
def test_a_bill_of_another_wheel_is_no_bill_of_this_one(
    subject: dict[str, str], another: bool
) -> None:
    seen = sbom(cyclonedx(metadata={"component": {"type": "library", **subject}}))
    assert (seen.state, seen.of_another) == ("valid", another)


def lying(room: Path, *data: bytes) -> Path:
    """A wheel with these as its bills."""
    files = {f"other-1.0.dist-info/sboms/{n}.cdx.json": each for n, each in enumerate(data)}
    return foreign(room, files={"other/__init__.py": b"", **files})


@pytest.mark.parametrize(
    ("data", "level", "said"),
    [
        (cyclonedx(), "ok", "CycloneDX 1.6, 0 components, valid"),
        (cyclonedx()[:-1], "error", "invalid"),
        (b" " * (4 << 20) + b"{}", "unknown", "unknown format"),
    ],
)
def test_the_audit_tells_of_it(tmp_path: Path, data: bytes, level: str, said: str) -> None:
    files = {"other-1.0.dist-info/sboms/x.cdx.json": data}
    found = finding(one(tmp_path, {"other/x.py": b"", **files}, tag="py3-none-any"), "SBOM")
    assert (found.level, said in found.actual) == (level, True)


def test_the_audit_tells_that_there_is_none(tmp_path: Path) -> None:
    found = finding(one(tmp_path, tag=TAG), "SBOM")
    assert (found.level, found.actual) == ("ok", "none")


def test_many_are_held_against_the_schema_for_so_long_as_one(tmp_path: Path) -> None:
    each = cyclonedx(components=MANY[:3000])
    seen = [one.state for one in all_of(inspect_wheel(lying(tmp_path, *[each] * 5)))]
    assert seen == ["valid", "valid", "not checked", "not checked", "not checked"]


def test_a_thousand_are_not_read(tmp_path: Path) -> None:
    seen = all_of(inspect_wheel(lying(tmp_path, *[cyclonedx()] * 40)))
    assert [each.state for each in seen].count("valid") == 16
    assert [each.state for each in seen].count("not checked") == 24


# -- the command -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("own_directory")
def test_a_table_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = packed(tmp_path, bill())
    assert run_command_line(["sbom", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "CycloneDX 1.6 of Pkg 1.0+cu130, 3 components, valid" in shown
    assert "vendored    CUTLASS" in shown
    assert run_command_line(["sbom", str(path), "--json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)["sboms"]
    assert document["components"][0].keys() >= {"name", "version", "sha256", "license", "purl"}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ((), "it contains no bill of materials"),
        ((cyclonedx()[:-1],), "invalid"),
        (
            (cyclonedx(metadata={"component": {"type": "library", "name": "x", "version": "1",
                                               "purl": "pkg:pypi/x@1"}}),),
            "it describes a different wheel: x 1",
        ),
        ((b"<bom/>",), "not checked"),
        ((cyclonedx(components=[{"type": "file", "name": "[/x]", "version": "[/y]",
                                 "hashes": [{"alg": "SHA-256", "content": "[/z]"}]}]),), "[/z]"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("own_directory")
def test_none_or_a_bad_one_is_no_success(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    data: tuple[bytes, ...],
    said: str,
) -> None:
    assert run_command_line(["sbom", str(lying(tmp_path, *data))]) == AuditError.exit_code
    assert said in capsys.readouterr().out


@pytest.mark.usefixtures("own_directory")
def test_a_changed_wheel_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forged = {**FILES, OWN: sboms.completed(bill(), METADATA)}
    path = wheel(tmp_path, forged, f"{OWN},sha256=AAAA,1\n".encode())
    assert run_command_line(["sbom", str(path)]) == AuditError.exit_code
    assert "they were changed" in capsys.readouterr().out
