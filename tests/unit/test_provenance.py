"""What a wheel's provenance says, who has signed it, and every lie about it that is found out.

The builds are real, of a backend that writes bytes; the keys are made by openssl and ssh-keygen
where those are there.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization as wire
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from google.protobuf import json_format
from hypothesis import HealthCheck, given, settings, strategies
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from records import rewrite
from securesystemslib.dsse import Envelope
from securesystemslib.signer import CryptoSigner
from test_rebuild import party, tree, wheel_of
from wheels import checked

from pipelines.cli import lines
from pipelines.cli.program import run_command_line as wcw
from pipelines.core.errors import AuditError, ConfigError
from pipelines.core.evidence import HOSTS
from pipelines.core.files import find_nearby, sha256_of
from pipelines.core.finding import Finding
from pipelines.publish.provenance import attesting, signing
from pipelines.publish.provenance.policy import read_requirements
from pipelines.publish.provenance.statement import (
    PREDICATE,
    SIGNED,
    UNSIGNED,
    make_statement,
    write_statements,
)
from pipelines.publish.provenance.verifying import Verified, find_provenance, verify_provenance
from pipelines.record import seal
from pipelines.record.run import Run
from pipelines.stages.line import run_build
from pipelines.stages.manifest import write_manifest
from pipelines.toolchain.lock import load_lock
from pipelines.wheels.metadata import inspect_wheel

PrivateKey = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
openssl = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
ssh_keygen = pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="ssh-keygen is missing")


def nobody() -> str:
    raise AssertionError("no passphrase is asked for")


def typed(*words: object) -> int:
    return subprocess.run(list(map(str, words)), capture_output=True, check=False).returncode


def pair(room: Path, name: str, key: PrivateKey | None = None) -> tuple[Path, Path]:
    """A key's two files."""
    made = key or ed25519.Ed25519PrivateKey.generate()
    private, public = room / f"{name}.pem", room / f"{name}.pub"
    private.write_bytes(
        made.private_bytes(wire.Encoding.PEM, wire.PrivateFormat.PKCS8, wire.NoEncryption())
    )
    public.write_bytes(
        made.public_key().public_bytes(wire.Encoding.PEM, wire.PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


class Desk:
    """A published wheel, signed by ``mine``; another key, ``theirs``."""

    def __init__(self, room: Path, run: Path) -> None:
        self.room, self.run = room, run
        self.wheel = wheel_of(run)
        self.mine, self.my_pub = pair(room, "mine")
        self.theirs, self.their_pub = pair(room, "theirs")
        self.envelope = self.attest(self.mine)

    def attest(self, key: Path) -> Path:
        return self.signed(signing.load_private(key, nobody))

    def signed(self, signer: CryptoSigner) -> Path:
        data = (self.run / "manifest.json").read_bytes()
        return attesting.attest_wheel(checked(self.wheel), data, self.run, signer)

    def look(self, *keys: Path, wheel: Path | None = None, of: Path | None = None) -> Verified:
        named = () if keys == (NONE,) else keys or (self.my_pub,)
        loaded = [(path, signing.load_public(path)) for path in named]
        wheel = wheel or self.wheel
        return verify_provenance(wheel, of or find_provenance(wheel), loaded, load_lock())

    def change(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the envelope that is there."""
        document = json.loads(self.envelope.read_text())
        change(document)
        self.envelope.write_text(json.dumps(document))

    def forge(self, change: Callable[[dict[str, Any]], object], key: Path | None = None) -> None:
        """Change what is signed, and sign it as somebody who has the key could."""
        said = json.loads(base64.b64decode(json.loads(self.envelope.read_text())["payload"]))
        change(said)
        signer = signing.load_private(key or self.mine, nobody)
        self.envelope.write_bytes(signing.sign_envelope(json.dumps(said).encode(), signer))


NONE = Path("none")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    room = tmp_path_factory.mktemp("built")
    return run_build(party(room, "they", tree(room)))


@pytest.fixture
def desk(tmp_path: Path, built: Path) -> Desk:
    run = tmp_path / "run"
    shutil.copytree(built, run)
    return Desk(tmp_path, run)


def of(found: Verified, id_: str) -> Finding:
    (one,) = (each for each in found.findings if each.id == id_)
    return one


def refused(found: Verified, name: str, words: str) -> None:
    one = of(found, name)
    assert (one.level, one.raises) == ("error", "AuditError"), one
    assert words in " ".join((one.actual, *one.values)), one
    assert found.code == AuditError.exit_code


# -- what is said ----------------------------------------------------------------------------------


def test_every_run_that_builds_a_wheel_leaves_a_statement(built: Path) -> None:
    wheel = wheel_of(built)
    said = json.loads((built / f"{wheel.name}{UNSIGNED}").read_text())
    manifest = json.loads((built / "manifest.json").read_text())
    assert said["_type"] == "https://in-toto.io/Statement/v1"
    assert said["predicateType"] == PREDICATE
    assert said["subject"] == [{"name": wheel.name, "digest": {"sha256": sha256_of(wheel)}}]
    # Of its own predicate nothing is unknown to SLSA's.
    made = json_format.ParseDict(said["predicate"], provenance_pb2.Provenance())
    assert made.build_definition.external_parameters["recipe"] == manifest["inputs"]["recipe"]
    assert made.build_definition.external_parameters["reproducible"] is True
    inner = said["predicate"]["buildDefinition"]["internalParameters"]
    assert inner["evidence"]["level"] == manifest["evidence"]
    assert inner["stages"] == dict.fromkeys(("provision", "build", "collect", "audit"), "passed")
    rows = said["predicate"]["buildDefinition"]["resolvedDependencies"]
    materials = manifest["inputs"]["materials"]
    source, tools = materials.pop("source"), materials.pop("tool", {})
    assert {one["name"]: one["digest"]["sha256"] for one in rows} == tools | {
        "source": source["archive"]
    }
    assert inner["materials"] == materials
    assert "label" in materials["toolset"], "that is no file of the lock"
    run = said["predicate"]["runDetails"]
    assert run["metadata"]["invocationId"] == built.name
    assert run["metadata"]["startedOn"] <= run["metadata"]["finishedOn"]
    hashes = {one["name"]: one["digest"]["sha256"] for one in run["byproducts"]}
    assert hashes["manifest.json"] == sha256_of(built / "manifest.json")
    assert {"build.log", "manifest.json"} <= hashes.keys()
    assert inner["serial"] == str(manifest["serial"])
    inside = {name: hashes.pop(name) for name in [*hashes] if "/sboms/" in name}
    assert all(sha256_of(built / name) == digest for name, digest in hashes.items())
    with zipfile.ZipFile(wheel) as archive:
        assert {n: hashlib.sha256(archive.read(n)).hexdigest() for n in inside} == inside
    assert len(inside) == 1


def test_signed_and_verified(desk: Desk) -> None:
    found = desk.look()
    assert found.code == 0
    assert {one.id: one.level for one in found.findings} == {
        "wheel": "ok",
        "signature": "ok",
        "serial": "ok",
        "manifest": "ok",
        "lock": "unknown",
        "sbom": "ok",
        "evidence": "unknown",
    }, "this recipe asks its host for nothing: of no tools nobody says that they are the same"


def later(said: dict[str, Any], seconds: int) -> None:
    """As of a later state of the run."""
    inner = said["predicate"]["buildDefinition"]["internalParameters"]
    inner["serial"] = str(int(inner["serial"]) + seconds)


def test_an_older_statement_is_refused_where_a_later_one_was_seen(desk: Desk) -> None:
    """Both are signed, and each agrees with its own manifest: of before and after a failed test."""
    (desk.run / "manifest.json").unlink()
    before = desk.envelope.read_bytes()

    def failed(said: dict[str, Any]) -> None:
        later(said, 60)
        said["predicate"]["buildDefinition"]["internalParameters"]["stages"]["test"] = "failed"

    assert desk.look().code == 0
    desk.forge(failed)
    refused(desk.look(), "test", "failed")
    desk.envelope.write_bytes(before)
    found = desk.look()
    refused(found, "serial", "is older than serial")
    assert found.accepting(["older"]).code == 0
    desk.forge(lambda said: later(said, 60))
    refused(desk.look(), "serial", "differs from the one seen")
    desk.forge(lambda said: later(said, 61))
    assert desk.look().code == 0
    key = signing.load_public(desk.my_pub)
    least = {"serial": "9" * 15}
    found = verify_provenance(desk.wheel, desk.envelope, [(desk.my_pub, key)], load_lock(), least)
    assert {one.id for one in found.findings if one.failed} == {"require-serial"}


def test_a_copy_elsewhere_needs_no_run(desk: Desk, tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.mkdir()
    for path in (desk.wheel, desk.envelope):
        shutil.copy(path, away)
    found = desk.look(wheel=away / desk.wheel.name)
    assert found.code == 0
    assert of(found, "manifest").level == "unknown"


@openssl
def test_openssl_finds_the_signature_true(desk: Desk, tmp_path: Path) -> None:
    """Checked by another program, over what DSSE says is signed."""
    document = json.loads(desk.envelope.read_text())
    payload = base64.b64decode(document["payload"])
    kind = document["payloadType"].encode()
    said = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
    (tmp_path / "said").write_bytes(said)
    (tmp_path / "sig").write_bytes(base64.b64decode(document["signatures"][0]["sig"]))
    words = ["-rawin", "-in", tmp_path / "said", "-sigfile", tmp_path / "sig"]
    command = ["pkeyutl", "-verify", "-pubin", "-inkey", desk.my_pub, *words]
    assert typed("openssl", *command) == 0
    (tmp_path / "said").write_bytes(said + b" ")
    assert typed("openssl", *command) != 0


def test_two_may_sign(desk: Desk) -> None:
    desk.attest(desk.theirs)
    assert desk.look(desk.my_pub, desk.their_pub).code == 0
    one = of(desk.look(desk.my_pub), "signature")
    assert (one.level, one.values) == ("ok", ("1 by other keys not checked",))


def test_what_others_have_signed_is_not_lost(desk: Desk) -> None:
    """A bundle of Sigstore's is worth nothing without its certificate."""
    inner = json.loads(desk.envelope.read_text())
    (one,) = inner["signatures"]
    twice = inner | {"signatures": [one | {"keyid": ""}, one | {"keyid": ""}]}
    for there in ({"dsseEnvelope": inner}, twice):
        desk.envelope.write_text(json.dumps(there))
        with pytest.raises(ConfigError, match="not an envelope that a signature can be added to"):
            desk.attest(desk.theirs)
        assert json.loads(desk.envelope.read_text()) == there


def test_a_bundle_may_have_other_lines(desk: Desk) -> None:
    """As in-toto wants them read: what is no provenance, and what is no JSON, is left out."""
    mine = desk.envelope.read_bytes()
    desk.forge(
        lambda said: said.update(predicateType="https://docs.pypi.org/attestations/publish/v1")
    )
    desk.envelope.write_bytes(b"{\n" + desk.envelope.read_bytes() + mine)
    assert desk.look().code == 0
    desk.envelope.write_bytes(mine + mine)
    refused(desk.look(), "statement", "it has 2 statements")


def test_a_bundle_of_sigstore_is_read_and_not_believed(desk: Desk) -> None:
    """GitHub signs with a certificate, which its own program checks."""
    inner = json.loads(desk.envelope.read_text())
    inner["signatures"] = [{"sig": inner["signatures"][0]["sig"]}]
    kind = "application/vnd.dev.sigstore.bundle.v0.3+json"
    desk.envelope.write_text(json.dumps({"mediaType": kind, "dsseEnvelope": inner}))
    found = desk.look(NONE)
    assert (of(found, "wheel").level, of(found, "signature").level) == ("ok", "unknown")
    assert found.code == AuditError.exit_code


# -- lies ------------------------------------------------------------------------------------------


def test_another_wheel_under_the_same_name(desk: Desk) -> None:
    with zipfile.ZipFile(desk.wheel, "a") as archive:
        archive.writestr("pkg/more.py", "import os")
    refused(desk.look(), "wheel", "about a different file")
    assert [one.id for one in desk.look().findings] == ["wheel", "signature"]


def test_one_byte_of_the_wheel(desk: Desk) -> None:
    data = bytearray(desk.wheel.read_bytes())
    data[len(data) // 2] ^= 1
    desk.wheel.write_bytes(data)
    refused(desk.look(), "wheel", "about a different file")


@pytest.mark.slow
def test_every_byte_of_the_envelope_matters(desk: Desk) -> None:
    """Whichever it is, it is refused, and nothing is unexpected.

    But for the name of the key, which is a hint: whose a signature is, the signature itself says.
    """
    data = desk.envelope.read_bytes()
    hints = range(data.index(b'"keyid"'), data.index(b'"sig"'))
    places = {*range(0, len(data), 97), *range(len(data) - 250, len(data) - 2)}
    for place in sorted(places):
        changed = bytearray(data)
        changed[place] ^= 1
        desk.envelope.write_bytes(changed)
        found = desk.look()
        assert found.code == AuditError.exit_code or place in hints, (place, found.findings)


def test_another_payload_type(desk: Desk) -> None:
    desk.change(lambda document: document.update(payloadType="application/json"))
    refused(desk.look(), "statement", "its payloadType is application/json")


def test_the_type_is_part_of_what_is_signed(desk: Desk) -> None:
    """Signed as another type, and then said to be ours."""
    said = base64.b64decode(json.loads(desk.envelope.read_text())["payload"])
    signer = signing.load_private(desk.mine, nobody)
    made = Envelope(said, "application/json", {})
    made.sign(signer)
    desk.envelope.write_text(json.dumps(made.to_dict() | {"payloadType": signing.PAYLOAD_TYPE}))
    refused(desk.look(), "signature", "no signature by")


def test_a_key_of_somebody_else(desk: Desk) -> None:
    refused(desk.look(desk.their_pub), "signature", "no signature by")
    desk.forge(lambda said: None, key=desk.theirs)
    refused(desk.look(desk.my_pub), "signature", "no signature by")
    mine = signing.load_public(desk.my_pub).keyid
    desk.change(lambda document: document["signatures"][0].update(keyid=mine))
    refused(desk.look(desk.my_pub), "signature", "signature 1 is invalid")


def test_two_signatures_one_of_them_bad(desk: Desk) -> None:
    desk.attest(desk.theirs)
    theirs = signing.load_public(desk.their_pub).keyid

    def damage(document: dict[str, Any]) -> None:
        one = next(one for one in document["signatures"] if one["keyid"] == theirs)
        one["sig"] = base64.b64encode(base64.b64decode(one["sig"])[::-1]).decode()

    desk.change(damage)
    refused(desk.look(desk.my_pub, desk.their_pub), "signature", "signature 2 is invalid")
    assert of(desk.look(desk.my_pub), "signature").level == "ok", "that one was not asked about"


def test_nobody_checked_the_signature(desk: Desk) -> None:
    found = desk.look(NONE)
    assert of(found, "signature").level == "unknown"
    assert found.code == AuditError.exit_code
    assert found.accepting(["unsigned"]).code == 0
    assert of(found.accepting(["unsigned"]), "signature").level == "unknown", "never ok"


def test_an_unsigned_statement(desk: Desk) -> None:
    desk.envelope.unlink()
    found = desk.look(NONE)
    assert found.provenance.endswith(UNSIGNED)
    assert (of(found, "signature").actual, found.code) == ("it is not signed", AuditError.exit_code)
    assert found.accepting(["unsigned"]).code == 0


def test_a_signature_that_was_taken_off(desk: Desk) -> None:
    """Who names a key has a signature looked at: none is no less wrong than another one."""
    desk.envelope.unlink()
    refused(desk.look().accepting(["unsigned"]), "signature", "it is not signed, but --key names 1")


def test_a_wrong_signature_is_never_enough(desk: Desk) -> None:
    found = desk.look(desk.their_pub).accepting(["unsigned", "lock"])
    refused(found, "signature", "no signature by")


def test_the_statement_of_another_wheel(desk: Desk) -> None:
    other = desk.wheel.with_name("other-1.0-py3-none-any.whl")
    shutil.copy(desk.wheel, other)
    refused(desk.look(wheel=other, of=desk.envelope), "wheel", "not about other-1.0")


def test_two_names_with_swapped_hashes(desk: Desk) -> None:
    good = sha256_of(desk.wheel)

    def swap(said: dict[str, Any]) -> None:
        said["subject"] = [
            {"name": desk.wheel.name, "digest": {"sha256": "0" * 64}},
            {"name": "other.whl", "digest": {"sha256": good}},
        ]

    desk.forge(swap)
    refused(desk.look(), "wheel", "stated 000000")


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        ([], "At least one subject"),
        ([{"name": "{name}"}], "At least one digest"),
        ([{"name": "{name}", "digest": {"sha1": "{sha256}"}}], "no sha256"),
        ([{"name": "{name}", "digest": {"sha256": "{sha256}", "sha512": "00"}}], "sha512 here"),
        ([{"name": "{name}", "digest": {"sha256": "{sha256}"}}] * 2, "it is about"),
        ([{"name": "dist/{name}", "digest": {"sha256": "{sha256}"}}], "it is about"),
        ([{"digest": {"sha256": "{sha256}"}}], "it is about nameless"),
        ("all", "not an in-toto statement"),
    ],
)
def test_other_subjects(desk: Desk, subject: Any, words: str) -> None:
    text = json.dumps(subject).replace("{name}", desk.wheel.name)
    text = text.replace("{sha256}", sha256_of(desk.wheel))
    desk.forge(lambda said: said.update(subject=json.loads(text)))
    found = desk.look()
    refused(found, found.findings[0].id, words)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("buildDefinition", "externalParameters", "archs"), "120", 'here "90a"'),
        (("buildDefinition", "internalParameters", "evidence", "level"), "R", 'here "F"'),
        (
            ("buildDefinition", "internalParameters", "materials", "python", "version"),
            "3.1",
            'version: there "3.1"',
        ),
        (("runDetails", "metadata", "invocationId"), "other", 'invocationId: there "other"'),
        (("runDetails", "builder", "id"), "https://builder.invalid", "builder.id"),
    ],
)
def test_signed_and_not_what_the_manifest_says(
    desk: Desk, place: tuple[str, ...], value: str, words: str
) -> None:
    def change(said: dict[str, Any]) -> None:
        inner = said["predicate"]
        for name in place[:-1]:
            inner = inner[name]
        inner[place[-1]] = value

    desk.forge(change)
    refused(desk.look(), "manifest", words)


def test_one_more_source_hides_behind_the_first(desk: Desk) -> None:
    def change(said: dict[str, Any]) -> None:
        rows = said["predicate"]["buildDefinition"]["resolvedDependencies"]
        rows.append({"name": "source", "digest": {"sha256": "0" * 64}})

    desk.forge(change)
    refused(desk.look(), "manifest", 'resolvedDependencies[source].digest.sha256: there "000')


def test_what_is_equal_for_python_alone(desk: Desk) -> None:
    def change(said: dict[str, Any]) -> None:
        said["predicate"]["buildDefinition"]["externalParameters"]["reproducible"] = 1

    desk.forge(change)
    refused(desk.look(), "manifest", "reproducible: there 1.0, here true")


def test_a_value_that_hides_behind_a_dot(desk: Desk) -> None:
    def change(said: dict[str, Any]) -> None:
        inner = said["predicate"]["buildDefinition"]["internalParameters"]
        inner |= {"host": {**inner["host"], "name": "other"}, "host.name": inner["host"]["name"]}

    desk.forge(change)
    assert of(desk.look(), "manifest").level == "error"


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("predicate_type", ()),
        ("build_definition", ("predicate",)),
        ("build_type", ("predicate", "buildDefinition")),
        ("started_on", ("predicate", "runDetails", "metadata")),
    ],
)
def test_a_name_that_protobuf_alone_takes_for_another(
    desk: Desk, name: str, place: tuple[str, ...]
) -> None:
    """Without a manifest nothing else would tell what everybody else reads."""

    def change(said: dict[str, Any]) -> None:
        for inner in place:
            said = said[inner]
        said[name] = {} if name == "build_definition" else "2020-01-01T00:00:00Z"

    (desk.run / "manifest.json").unlink()
    desk.forge(change)
    refused(desk.look(), "statement", f"it has {name}")


@pytest.mark.parametrize(
    "inner",
    [
        {"evidence": "R"},
        {"evidence": ["R"], "toolset": "x", "publishable": False},
        {"toolset": {"found": 5}, "stages": 5, "host": None},
    ],
)
def test_parameters_of_other_shapes(desk: Desk, inner: dict[str, Any]) -> None:
    (desk.run / "manifest.json").unlink()
    desk.forge(lambda said: said["predicate"]["buildDefinition"].update(internalParameters=inner))
    found = desk.look()
    assert of(found, "evidence").actual.startswith("the builder says none: ")
    assert "an unknown toolset" in of(found, "publishing").actual


def test_the_manifest_of_another_wheel(desk: Desk) -> None:
    """Its hash is stated and it says all that is stated, but for whose it is."""
    path = desk.run / "manifest.json"
    path.write_text(path.read_text().replace(sha256_of(desk.wheel), "0" * 64))

    def change(said: dict[str, Any]) -> None:
        rows = said["predicate"]["runDetails"]["byproducts"]
        next(one for one in rows if one["name"] == path.name)["digest"]["sha256"] = sha256_of(path)

    desk.forge(change)
    refused(desk.look(), "manifest", f"for a wheel with sha256 {'0' * 64}")


def test_a_manifest_of_other_materials(desk: Desk) -> None:
    path = desk.run / "manifest.json"
    data = json.loads(path.read_text())
    data["inputs"]["materials"]["source"]["archive"] = "0" * 64
    path.write_text(json.dumps(data))
    refused(desk.look(), "manifest", "resolvedDependencies[source].digest.sha256")
    path.write_text("{}")
    refused(desk.look(), "manifest", "schema: Field required")
    path.write_text(json.dumps(data | {"seconds": {}}).replace('"finished": "2', '"finished": "x2'))
    refused(desk.look(), "manifest", "finished: Input should be a valid datetime")
    data["host"]["cpus"] = float("1e300")
    path.write_text(json.dumps(data).replace("1e+300", "1e400"))
    refused(desk.look(), "manifest", "1e400 is no JSON")
    path.write_bytes(b"[" * 100_000)
    refused(desk.look(), "manifest", "nested too deep")


def test_what_was_signed_before_a_later_stage(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run changes, such as by a test: reported at once, found by verification, and fixed."""
    run = Run(desk.run)
    with run.stage("test"):
        pass
    write_manifest(run)
    assert f"note: {desk.envelope.name} was signed before" in capsys.readouterr().out
    refused(desk.look(), "manifest", "byproducts[manifest.json]")
    desk.attest(desk.mine)
    assert desk.look().code == 0


def test_the_manifest_of_another_run_says_nothing_of_it(desk: Desk) -> None:
    """As where several wheels lie in one directory."""
    path = desk.run / "manifest.json"
    path.write_text(path.read_text().replace(desk.wheel.name, "other-1.0-py3-none-any.whl"))
    found = desk.look()
    assert of(found, "manifest").level == "unknown"
    assert "is for a different wheel" in of(found, "manifest").actual
    with pytest.raises(ConfigError, match="lists 0 wheels"):
        desk.attest(desk.mine)


JSON = strategies.recursive(
    strategies.none()
    | strategies.booleans()
    | strategies.floats()
    | strategies.integers()
    | strategies.text(),
    lambda inner: strategies.lists(inner) | strategies.dictionaries(strategies.text(), inner),
)


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=[*HealthCheck])
@given(data=strategies.data())
def test_whatever_is_signed(desk: Desk, data: strategies.DataObject) -> None:
    """Any value in place of any part of a statement: an answer, and of its wheel no other."""
    envelope = desk.envelope.read_bytes()

    def change(said: dict[str, Any]) -> None:
        inner: Any = said
        for _ in range(data.draw(strategies.integers(0, 5))):
            names = [*inner] if isinstance(inner, dict) else [*range(len(inner))]
            name = data.draw(strategies.sampled_from(names))
            if not isinstance(inner[name], dict | list) or not inner[name]:
                break
            inner = inner[name]
        names = [*inner] if isinstance(inner, dict) else [*range(len(inner))]
        name = data.draw(strategies.sampled_from(names))
        inner[name] = data.draw(JSON)

    before = json.loads(base64.b64decode(json.loads(envelope)["payload"]))
    try:
        desk.forge(change)
        said = json.loads(base64.b64decode(json.loads(desk.envelope.read_bytes())["payload"]))
        found = desk.look()
        assert found.code in (0, 3, 9)
        if said["subject"] != before["subject"]:
            # Nothing but further names of other things, or notes, may be another one there.
            (mine,) = (o for o in before["subject"])
            assert found.code or {**mine} == {k: said["subject"][0][k] for k in mine}
    finally:
        desk.envelope.write_bytes(envelope)


def test_a_manifest_that_was_changed_is_not_signed(desk: Desk) -> None:
    path = desk.run / "manifest.json"
    path.write_text(path.read_text().replace('"90a"', '"120"'))
    with pytest.raises(AuditError, match="does not match"):
        desk.attest(desk.mine)
    (desk.run / f"{desk.wheel.name}{UNSIGNED}").unlink()
    with zipfile.ZipFile(desk.wheel, "a") as archive:
        archive.writestr("pkg/more.py", b"")
    with pytest.raises(AuditError, match=r"has sha256 \w{64}, but .* says"):
        desk.attest(desk.mine)


def test_todays_lock(desk: Desk) -> None:
    """Tools that are another file today, or none, are named; the rest of it may still be true."""
    lock = load_lock()
    id_, tool = next((n, t) for n, t in lock.tools.items() if t.pinned)

    def change(said: dict[str, Any]) -> None:
        rows = said["predicate"]["buildDefinition"]["resolvedDependencies"]
        rows.append({"name": id_, "digest": {"sha256": tool.sha256}})
        later(said, len(extra))
        for name in extra:
            rows.append({"name": name, "digest": {"sha256": "ab" * 32}})

    (desk.run / "manifest.json").unlink()
    extra: list[str] = []
    desk.forge(change)
    assert of(desk.look(), "lock").level == "ok"
    extra = [id_, "no-such-tool"]
    desk.forge(change)
    found = desk.look()
    one = of(found, "lock")
    assert (one.level, found.code) == ("error", 3)
    assert "no-such-tool" in one.values[1]
    assert tool.sha256[:16] in one.values[0]
    assert found.accepting(["lock"]).code == 0
    assert of(found.accepting(["lock"]), "lock").level == "warning"


def test_a_bill_of_materials_in_the_wheel(tmp_path: Path, built: Path) -> None:
    """Its hash is stated; one more, one less and another one are found."""
    room = tmp_path / "run"
    shutil.copytree(built, room)
    wheel = wheel_of(room)
    name = f"{wheel.name.split('-cp')[0].split('-py')[0]}.dist-info/sboms/pkg.cdx.json"
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(name, b"{}")
    manifest = json.loads((room / "manifest.json").read_text())
    next(r for r in manifest["files"] if r["path"].endswith(".whl"))["sha256"] = sha256_of(wheel)
    manifest["sboms"][wheel.name][name] = hashlib.sha256(b"{}").hexdigest()
    (room / "manifest.json").write_text(json.dumps(manifest))
    (room / f"{wheel.name}{UNSIGNED}").unlink()
    desk = Desk(tmp_path, room)
    assert of(desk.look(), "sbom").actual.split(", ")[0] == name
    desk.forge(lambda said: said["predicate"]["runDetails"].update(byproducts=[]))
    one = of(desk.look(), "sbom")
    assert one.level == "error"
    assert name in one.values


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_bill_that_is_packed_as_no_wheel_is(desk: Desk, method: int) -> None:
    with zipfile.ZipFile(desk.wheel, "a") as archive:
        archive.writestr("pkg-1.0.dist-info/sboms/z.json", b"{}", compress_type=method)
    desk.forge(lambda said: said["subject"][0]["digest"].update(sha256=sha256_of(desk.wheel)))
    refused(desk.look(), "sbom", f"compression method {method}")


def test_a_name_in_the_wheel_that_is_no_text(desk: Desk) -> None:
    with zipfile.ZipFile(desk.wheel, "a") as archive:
        archive.writestr("pkg/é", b"")
    desk.wheel.write_bytes(desk.wheel.read_bytes().replace("pkg/é".encode(), b"pkg/\xff\xfe"))
    desk.forge(lambda said: said["subject"][0]["digest"].update(sha256=sha256_of(desk.wheel)))
    refused(desk.look(), "sbom", "cannot be read")
    with pytest.raises(AuditError, match="cannot be read"):
        inspect_wheel(desk.wheel)


def test_a_wheel_at_the_top_has_nothing_above_it() -> None:
    assert find_nearby(Path("/no-such-wheel.whl"), "no-such-manifest.json") is None


# -- files that are none ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is not JSON"),
        (b"{}", "payload: Field required"),
        (b"[]", "not a JSON object"),
        (b"\xff\xfe", ""),
        (b'{"a":' * 200_000, "nested too deep"),
        (b"x" * ((1 << 20) + 1), "more than 1 MiB"),
        (b'{"payload": "e30=", "payloadType": "a", "signatures": []}', "signatures"),
        (b'{"payload": "e30=", "payload": "e30=", "signatures": []}', "twice in an object"),
        (b'{"_type": "https://in-toto.io/Statement/v1"}', "At least one subject"),
        (b'{"_type": NaN}', "NaN is no JSON"),
        (b'{"_type": 1e999}', "1e999 is no JSON"),
        (b'{"_type": %s}' % (b"9" * 400), "digits is no JSON"),
        (b'{"_type": [%s0]}' % (b"0," * 60_000), "more than 50000 values"),
        (b"{\n" * 200, "nor a bundle: it has 200 lines"),
        ("{}".encode("utf-16"), "codec can't decode"),
        (b'{"payload": "e30=", "payloadType": "a", "signatures": [{"sig": ""}]}', "not base64"),
        (b'{"_type": "https://in-toto.io/Statement/v0.1", "subject": [{"name": "a"}]}', "type"),
        (b'{"payload": "e3 0=", "payloadType": "a", "signatures": [{"sig": "YQ=="}]}', "base64"),
        (b'{"payload": "e31=", "payloadType": "a", "signatures": [{"sig": "YQ=="}]}', "not base64"),
    ],
)
def test_what_is_no_provenance(desk: Desk, data: bytes, words: str) -> None:
    desk.envelope.write_bytes(data)
    refused(desk.look(), "statement", words)


@pytest.mark.parametrize("depth", [50, 5000, 90_000])
def test_a_deep_predicate(desk: Desk, depth: int) -> None:
    text = '{"a":' * depth + "1" + "}" * depth
    head = {"_type": "https://in-toto.io/Statement/v1", "predicateType": PREDICATE}
    head["subject"] = [{"name": "a", "digest": {"sha256": "a"}}]  # type: ignore[assignment]
    raw = json.dumps(head)[:-1] + f', "predicate": {text}}}'
    signer = signing.load_private(desk.mine, nobody)
    desk.envelope.write_bytes(signing.sign_envelope(raw.encode(), signer))
    refused(desk.look(), desk.look().findings[0].id, "")


# -- keys ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()])
def test_keys_of_ecdsa(desk: Desk, curve: ec.EllipticCurve) -> None:
    private, public = pair(desk.room, "curve", ec.generate_private_key(curve))
    desk.envelope.unlink()
    desk.attest(private)
    assert desk.look(public).code == 0
    refused(desk.look(), "signature", "no signature by")


@pytest.mark.parametrize(
    "key", [rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP256K1())]
)
def test_keys_of_other_kinds(tmp_path: Path, key: PrivateKey) -> None:
    private, public = pair(tmp_path, "other", key)
    with pytest.raises(ConfigError, match="ed25519"):
        signing.load_private(private, nobody)
    with pytest.raises(ConfigError, match=r"ed25519|not a public key"):
        signing.load_public(public)


@openssl
@pytest.mark.parametrize(
    "words",
    [
        ["genpkey", "-algorithm", "ed25519"],
        ["ecparam", "-name", "prime256v1", "-genkey", "-noout"],
        ["genpkey", "-algorithm", "ed25519", "-aes-256-cbc", "-pass", "pass:correct horse"],
    ],
)
def test_keys_that_openssl_made(desk: Desk, words: list[str]) -> None:
    key, public = desk.room / "o.pem", desk.room / "o.pub"
    assert typed("openssl", *words, "-out", key) == 0
    command = ["pkey", "-in", key, "-pubout", "-out", public]
    assert typed("openssl", *command, "-passin", "pass:correct horse") == 0
    desk.envelope.unlink()
    desk.signed(signing.load_private(key, lambda: "correct horse"))
    assert desk.look(public).code == 0


@ssh_keygen
@pytest.mark.parametrize("kind", [["ed25519"], ["ecdsa", "-b", "384"]])
@pytest.mark.parametrize("phrase", ["", "correct horse"])
def test_keys_that_ssh_keygen_made(desk: Desk, kind: list[str], phrase: str) -> None:
    key = desk.room / "id"
    assert typed("ssh-keygen", "-q", "-N", phrase, "-f", key, "-t", *kind) == 0
    desk.envelope.unlink()
    asked = (lambda: phrase) if phrase else nobody
    desk.signed(signing.load_private(key, asked))
    assert desk.look(key.with_suffix(".pub")).code == 0
    if phrase:
        with pytest.raises(ConfigError, match="with that passphrase") as caught:
            signing.load_private(key, lambda: "wrong horse")
        assert "horse" not in caught.value.message + caught.value.hint


def test_what_is_no_key(desk: Desk) -> None:
    with pytest.raises(ConfigError, match="is a private key"):
        signing.load_public(desk.mine)
    with pytest.raises(ConfigError, match="not a public key"):
        signing.load_public(desk.envelope)
    with pytest.raises(ConfigError, match="not a valid private key"):
        signing.load_private(desk.my_pub, nobody)
    large = desk.room / "large"
    large.write_bytes(bytes(1 << 20))
    with pytest.raises(ConfigError, match="not a key"):
        signing.load_public(large)
    with pytest.raises(ConfigError, match="cannot be read"):
        signing.load_public(desk.room / "none")


def test_where_a_passphrase_comes_from(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WCW_TEST_PHRASE", "correct horse")
    assert attesting.passphrase_reader(desk.mine, "WCW_TEST_PHRASE")() == "correct horse"
    monkeypatch.delenv("WCW_TEST_PHRASE")
    with pytest.raises(ConfigError, match="WCW_TEST_PHRASE with its passphrase is not set"):
        attesting.passphrase_reader(desk.mine, "WCW_TEST_PHRASE")()
    monkeypatch.setattr("sys.stdin", (desk.room / "mine.pub").open())
    with pytest.raises(ConfigError, match="no terminal to prompt"):
        attesting.passphrase_reader(desk.mine, None)()


# -- the commands ----------------------------------------------------------------------------------


def test_the_commands(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.envelope.unlink()
    assert wcw(["attest", str(desk.run), "--key", str(desk.mine), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["signed"][0]["envelope"].endswith(SIGNED)
    words = ["verify", str(desk.wheel), "--json"]
    assert wcw([*words, "--key", str(desk.my_pub)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["exit"]) == (1, 0)
    assert document["findings"][0]["level"] == "ok"
    assert wcw(words) == 9
    assert json.loads(capsys.readouterr().out)["exit"] == 9
    assert wcw([*words, "--accept", "unsigned"]) == 0
    assert wcw([*words, "--accept", "everything"]) == 2
    assert wcw([*words, "--key", str(desk.their_pub)]) == 9
    assert wcw(["verify", str(desk.wheel), "--provenance", str(desk.room / "none")]) == 2
    assert wcw(["verify", str(desk.room / "none.whl")]) == 2
    assert wcw(["attest", str(desk.run)]) == 2, "no key was named"
    capsys.readouterr()
    assert wcw(["verify", str(desk.wheel), "--key", str(desk.their_pub)]) == 9
    assert "It is not verified." in capsys.readouterr().out


def test_the_key_of_pipeline_yaml(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a passphrase from its variable, which is nowhere seen."""
    made = ed25519.Ed25519PrivateKey.generate()
    private, public = pair(desk.room, "locked", made)
    locked = wire.BestAvailableEncryption(b"correct horse")
    form = (wire.Encoding.PEM, wire.PrivateFormat.PKCS8)
    private.write_bytes(made.private_bytes(*form, locked))
    config = desk.room / "pipeline.yaml"
    config.write_text(
        "hosts: {sandbox: {kind: sandbox}}\n"
        f"provenance: {{key: {private}, passphrase_env: WCW_TEST_PHRASE}}\n"
    )
    monkeypatch.setenv("WCW_CONFIG", str(config))
    words = ["attest", str(desk.wheel), "-vv"]
    assert wcw(words) == ConfigError.exit_code, "the variable is not set"
    monkeypatch.setenv("WCW_TEST_PHRASE", "wrong horse")
    assert wcw(words) == ConfigError.exit_code
    monkeypatch.setenv("WCW_TEST_PHRASE", "correct horse")
    assert wcw(words) == 0
    said = capsys.readouterr()
    assert "horse" not in said.out + said.err
    assert b"horse" not in desk.envelope.read_bytes()
    assert wcw(["verify", str(desk.wheel), "--key", str(public)]) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "leaking", ["", "import time; files['pkg/when.py'] = b'%d' % time.time_ns()"]
)
def test_and_the_bytes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    leaking: str,
) -> None:
    """Which rebuild says, of the wheel that was verified."""
    source = tree(tmp_path, leaking)
    desk = Desk(tmp_path, run_build(party(tmp_path, "they", source)))
    line = party(tmp_path, "we", source)
    monkeypatch.setattr(lines, "open_line", lambda _: line)
    capsys.readouterr()
    code = AuditError.exit_code if leaking else 0
    assert wcw(["rebuild", str(desk.wheel), "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == ("different" if leaking else "identical")


def test_a_wheel_that_was_not_built_here_has_no_statement(desk: Desk) -> None:
    data = json.loads((desk.run / "manifest.json").read_text())
    data["inputs"]["origin"] = "given, not built here"
    with pytest.raises(ValueError, match="not built here"):
        make_statement(json.dumps(data).encode(), desk.wheel.name)
    data["inputs"]["origin"] = None
    data["stages"]["audit"] = "failed"
    with pytest.raises(ValueError, match="its stage audit did not pass"):
        make_statement(json.dumps(data).encode(), desk.wheel.name)
    data["stages"]["audit"] = "passed"
    data["inputs"]["materials"]["tool"] = {"setuptools": "msvc"}
    with pytest.raises(ValueError, match="tool setuptools is msvc, not a sha256"):
        make_statement(json.dumps(data).encode(), desk.wheel.name)
    data["inputs"]["materials"]["tool"] = {"setuptools": "56" * 32, "uv": "12" * 32}
    data["tools"]["uv"] = {"version": "1.0", "sha256": "34" * 32}
    with pytest.raises(ValueError, match=r"tool uv had sha256 3434.*, but 1212"):
        make_statement(json.dumps(data).encode(), desk.wheel.name)
    data["tools"]["uv"]["sha256"] = None
    said = make_statement(json.dumps(data).encode(), desk.wheel.name)["predicate"][
        "buildDefinition"
    ]
    names = [one["name"] for one in said["resolvedDependencies"]]
    assert names == ["source", "setuptools", "uv"], "and not the tool set, which is no file"
    assert said["resolvedDependencies"][2]["annotations"]["hashed"] == "not by this run"


def forged(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a run says R; whoever did that has not the controller's key."""
    run = Run(desk.run)
    rewrite(run, "UPDATE facts SET value = '\"R\"' WHERE key = 'evidence'")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(desk.room))
    monkeypatch.delenv(seal.VARIABLE)
    write_manifest(run)


def edited(change: Callable[[dict[str, Any]], object]) -> Callable[..., None]:
    """The manifest as it is written, with the statement that follows from it."""

    def edit(desk: Desk, _: pytest.MonkeyPatch) -> None:
        path = desk.run / "manifest.json"
        said = json.loads(path.read_text())
        change(said)
        data = json.dumps(said, indent=2).encode() + b"\n"
        path.write_bytes(data)
        write_statements(desk.run, data)
        assert [*desk.run.glob(f"*{UNSIGNED}")]

    return edit


def other_wheel(desk: Desk, _: pytest.MonkeyPatch) -> None:
    """As good a wheel, of other bytes."""
    with zipfile.ZipFile(desk.wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(desk.wheel, "w") as new:
        for name, data in files.items():
            new.writestr(name, data)
    checked(desk.wheel)
    edited(lambda said: said["files"][0].update(sha256=sha256_of(desk.wheel)))(desk, _)


@pytest.mark.parametrize(
    "lie",
    [
        forged,
        other_wheel,
        edited(lambda said: said.update(evidence="R", publishable=True)),
        edited(lambda said: said["toolset"].update(found=["MSVC 14.44"])),
        edited(lambda said: said["inputs"].update(recipe="flash-attn")),
        edited(lambda said: said["host"].update(windows="10.0.26100")),
        edited(lambda said: said.update(run="20260101-000000-other")),
        edited(lambda said: said["stages"].update(test="passed")),
        lambda desk, _: (desk.run / "manifest.json").unlink(),
        lambda desk, _: (desk.run / "record.sqlite").unlink(),
    ],
)
def test_only_what_the_record_says_is_signed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, lie: Callable[..., object]
) -> None:
    desk.envelope.unlink()
    words = ["attest", str(desk.wheel), "--key", str(desk.mine)]
    assert wcw(words) == 0
    desk.envelope.unlink()
    lie(desk, monkeypatch)
    assert wcw(words) != 0
    assert not desk.envelope.exists()


def test_a_wheel_that_was_put_into_the_run_is_not_signed(desk: Desk) -> None:
    """A good wheel of other bytes: neither built nor audited there."""
    stem, tags = desk.wheel.name.split("-cp", 1)
    added = desk.wheel.with_name(f"{stem}-1-cp{tags}")
    with zipfile.ZipFile(desk.wheel) as archive, zipfile.ZipFile(added, "w") as other:
        for name in archive.namelist():
            other.writestr(name, archive.read(name))
    checked(added)
    wcw(["report", str(desk.run)])  # writes the manifest of what is there
    assert wcw(["attest", str(added), "--key", str(desk.mine)]) == AuditError.exit_code
    assert not [*desk.run.glob(f"{added.name}*")]


@pytest.mark.parametrize(("level", "kinds"), [("W", {"windows", "linux"}), ("R", set())])
def test_what_another_controller_has_recorded_is_signed_for_its_kind_of_host(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, level: str, kinds: set[str]
) -> None:
    """Record, manifest and statement agree; the seal is of a key that is trusted for a kind."""
    desk.envelope.unlink()
    changed = "UPDATE facts SET value = ? WHERE key = 'evidence'"
    key = rewrite(Run(desk.run), changed, (json.dumps(level),)).identity
    write_manifest(Run(desk.run))
    config, signed = desk.room / "trusting.yaml", set()
    monkeypatch.setenv("WCW_CONFIG", str(config))
    for kind in HOSTS:
        config.write_text(
            f"hosts: {{sandbox: {{kind: sandbox}}}}\nprovenance: {{trust: ['{key}={kind}']}}\n"
        )
        if wcw(["attest", str(desk.wheel), "--key", str(desk.mine)]) == 0:
            signed.add(kind)
    assert signed == kinds
    rows = {one.id: one.actual for one in desk.look().findings} if kinds else {}
    assert not kinds or key[:16] in rows["evidence"]


def stages(**states: str) -> Callable[[dict[str, Any]], object]:
    return lambda said: said["predicate"]["buildDefinition"]["internalParameters"]["stages"].update(
        states
    )


POLICY: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
    ("audit", stages(audit="failed")),
    ("build", stages(build="interrupted")),
    ("test", stages(test="failed")),
    (
        "builder",
        lambda said: said["predicate"]["runDetails"]["builder"].update(id="https://evil.example"),
    ),
    (
        "builder",
        lambda said: said["predicate"]["buildDefinition"].update(buildType="https://evil.example"),
    ),
    (
        "dependencies",
        lambda said: said["predicate"]["buildDefinition"].update(resolvedDependencies=[]),
    ),
]


@pytest.mark.parametrize(("name", "change"), POLICY, ids=range(len(POLICY)))
def test_a_signature_is_not_enough(
    desk: Desk, name: str, change: Callable[[dict[str, Any]], object]
) -> None:
    """It is refused also where no manifest is there to say otherwise."""
    desk.forge(change)
    (desk.run / "manifest.json").unlink()
    found = desk.look()
    assert of(found, "signature").level == "ok"
    assert (of(found, name).level, found.code) == ("error", AuditError.exit_code)
    accepted = found.accepting(["builder"]).code == 0
    assert accepted == (name == "builder")


@pytest.mark.parametrize(
    ("required", "holds"),
    [
        ("recipe=BUILT", True),
        ("recipe=flash-attn", False),
        ("level=W", True),
        ("level=R", False),
        ("test=passed", False),
        ("builder=urn:windows-cuda-wheels:builder", True),
        ("builder=urn:windows-cuda-wheels", False),
        ("newer-than=2020-01-01", True),
        ("newer-than=2999-01-01T00:00:00+00:00", False),
    ],
)
def test_what_is_required_must_be_said(desk: Desk, required: str, holds: bool) -> None:
    said = json.loads(base64.b64decode(json.loads(desk.envelope.read_text())["payload"]))
    built = said["predicate"]["buildDefinition"]["externalParameters"]["recipe"]
    words = ["verify", str(desk.wheel), "--key", str(desk.my_pub)]
    assert wcw(words) == 0
    wanted = [required.replace("BUILT", built), "newer-than=1990-01-01"][
        : 1 + ("newer" not in required)
    ]
    assert wcw([*words, "--require", ",".join(wanted)]) == (0 if holds else AuditError.exit_code)


@pytest.mark.parametrize(
    "required", ["recipe", "recipe=", "colour=red", "newer-than=yesterday", "level=A", ",", ""]
)
def test_a_requirement_that_is_none(required: str) -> None:
    with pytest.raises(ConfigError, match="--require"):
        read_requirements([required])
