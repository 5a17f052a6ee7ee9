"""Signing what a manifest says of its wheels, once the wheels are seen to be those."""

from __future__ import annotations

import getpass
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

from securesystemslib.signer import CryptoSigner

from pipelines.core.errors import AuditError, ConfigError
from pipelines.core.files import beside, sha256_of, write_atomic
from pipelines.core.hosttext import line, secret
from pipelines.core.jsonfile import read_bytes
from pipelines.publish.provenance.signing import Sealed, envelopes, sign, unsealed
from pipelines.publish.provenance.statement import MANIFEST, SIGNED, UNSIGNED, encoded, statement


def attest(wheel: Path, signer: CryptoSigner) -> Path:
    """Sign the statement on a wheel by the manifest with it; the envelope, beside that manifest.

    :class:`ConfigError` where there is no manifest that a statement can be made of,
    :class:`AuditError` where the wheel or an unsigned statement is not what the manifest says.
    """
    manifest = beside(wheel, MANIFEST)
    if manifest is None:
        raise ConfigError(
            f"{line(wheel, 300)}: there is no {MANIFEST} with it",
            hint="Only who has the run that built a wheel can say what it was made of.",
        )
    try:
        said = statement(read_bytes(manifest), wheel)
    except ValueError as error:
        raise ConfigError(
            f"{manifest}: {line(error, 500)}",
            hint="Build with this release: its manifests have all that a statement says.",
        ) from None
    (subject,) = said["subject"]
    if (found := sha256_of(wheel)) != subject["digest"]["sha256"]:
        raise AuditError(
            f"{wheel} has sha256 {found}, and {manifest} says {subject['digest']['sha256']}",
            hint="It is not the wheel that was built there: nothing is signed.",
        )
    payload = encoded(said)
    unsigned = manifest.with_name(wheel.name + UNSIGNED)
    if unsigned.is_file() and unsigned.read_bytes() != payload:
        raise AuditError(
            f"{unsigned} does not say what {manifest} says",
            hint="One of the two was changed since the run: nothing is signed.",
        )
    target = manifest.with_name(wheel.name + SIGNED)
    write_atomic(target, sign(payload, signer, _earlier(target)))
    return target


def _earlier(target: Path) -> Sealed | None:
    """The envelope that is there, for the signatures of others in it."""
    if not target.is_file():
        return None
    try:
        (one,) = envelopes(target)
        found = unsealed(one)
        # A bundle's certificate has no place in an envelope, nor have two signatures of one name.
        if "dsseEnvelope" in one or len(dict(found.signatures)) != len(found.signatures):
            raise ValueError  # noqa: TRY301
    except ValueError:
        raise ConfigError(
            f"{target} is there, and is no envelope that a signature can be added to",
            hint="Move it away: it would be lost.",
        ) from None
    return found


def passphrase(key: Path, variable: str | None) -> Callable[[], str]:
    """How to come by the passphrase of a key: a variable, else the terminal.

    What it gives is never shown. It raises :class:`ConfigError` where there is none.
    """

    def ask() -> str:
        if variable is not None:
            if value := os.environ.get(variable):
                return secret(value)
            raise ConfigError(
                f"{key}: the environment variable {variable} with its passphrase is not set",
                hint="Set it (in CI from a secret), or take provenance.passphrase_env out of "
                "pipeline.yaml to be asked.",
            )
        try:
            if not sys.stdin.isatty():
                raise EOFError  # noqa: TRY301
            with warnings.catch_warnings():
                warnings.simplefilter("error", getpass.GetPassWarning)  # it would echo
                return secret(getpass.getpass(f"Passphrase of {key}: "))
        except (EOFError, getpass.GetPassWarning):
            raise ConfigError(
                f"{key} has a passphrase, and there is no terminal to ask for it",
                hint="Write provenance.passphrase_env: NAME into pipeline.yaml, and set that "
                "environment variable (in CI from a secret).",
            ) from None

    return ask
