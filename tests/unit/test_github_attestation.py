"""The commands of docs/provenance.md, on an attestation that GitHub made for a caller's repository.

``attestation/reusable-workflow.sigstore.json`` is GitHub's, of a run of 2024 in
malancas/attest-demo whose reusable workflow is in github/artifact-attestations-workflows; cli/cli
has it among its tests (pkg/cmd/attestation/test/data). sigstore verifies it offline, with the root
that it brings.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow


ROOT = Path(__file__).resolve().parents[2]
BUNDLE = Path(__file__).parent / "attestation" / "reusable-workflow.sigstore.json"
SUBJECT = "sha256:49a3aa6075e0f49f82843e74b5baa614ad2a588e6675612bf108a0a008c5ac25"
CALLER, SIGNER = "malancas/attest-demo", "github/artifact-attestations-workflows"
COMMIT = "09b495c3f12c7881b3cc17209a327792065c1a1d"


def documented(program: str) -> list[list[str]]:
    """The page's commands that begin so, as words."""
    page = (ROOT / "docs/provenance.md").read_text("utf-8").replace("\\\n", " ")
    return [shlex.split(line) for line in re.findall(rf"^{program} .*$", page, re.MULTILINE)]


def verify(
    caller: str = CALLER, signer: str = SIGNER, subject: str = SUBJECT, bundle: Path = BUNDLE
) -> subprocess.CompletedProcess[str]:
    """The page's command with a caller's and a signer's repository in it."""
    (words,) = documented("python -m sigstore verify github")
    put = {
        "WORKFLOWS/.github/workflows/attest-wheels.yml": f"{signer}/.github/workflows/attest.yml",
        "@REF": f"@{COMMIT}",
        "OWNER/REPOSITORY": caller,
        "WHEEL.intoto.jsonl": str(bundle),
    }
    for old, new in put.items():
        assert any(old in word for word in words), old
        words = [word.replace(old, new) for word in words]
    assert words[0] == "python"
    assert words[-1] == "WHEEL"
    command = [sys.executable, *words[1:-1], "--offline", subject]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_caller_s_attestation_is_verified() -> None:
    done = verify()
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "other",
    [
        {"caller": SIGNER},
        {"caller": "somebody/attest-demo"},
        {"signer": CALLER},
        {"signer": "somebody/artifact-attestations-workflows"},
        {"subject": f"sha256:{'0' * 64}"},
    ],
)
def test_another_is_refused(other: dict[str, Any]) -> None:
    assert verify(**other).returncode != 0


def test_a_changed_statement_is_refused(tmp_path: Path) -> None:
    bundle = json.loads(BUNDLE.read_text("utf-8"))
    payload = bundle["dsseEnvelope"]["payload"]
    bundle["dsseEnvelope"]["payload"] = payload[:-4] + "fQo="
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(bundle), encoding="utf-8")
    assert verify(bundle=changed).returncode != 0


def test_gh_gets_the_signer_that_its_certificate_names() -> None:
    """gh holds the certificate's name against ^https://github.com/SIGNER-WORKFLOW.

    https://github.com/cli/cli/blob/trunk/pkg/cmd/attestation/verify/policy.go (buildSANMatcher)
    """
    commands = documented("gh attestation verify")
    assert commands
    for words in commands:
        given = dict(zip(words[4::2], words[5::2], strict=True))
        assert given["--repo"] == "OWNER/REPOSITORY"
        assert given["--signer-workflow"] == "WORKFLOWS/.github/workflows/attest-wheels.yml"
    assert (ROOT / ".github/workflows/attest-wheels.yml").is_file()
