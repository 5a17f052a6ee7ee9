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
from pipelines.core.files import write_atomic
from pipelines.core.hosttext import remember_secret, safe_line
from pipelines.publish.provenance.signing import Sealed, parse_envelope, read_bundle, sign_envelope
from pipelines.publish.provenance.statement import (
    MANIFEST,
    SIGNED,
    UNSIGNED,
    encode_statement,
    make_statement,
)
from pipelines.wheels.checked import CheckedWheel


def attest_wheel(wheel: CheckedWheel, data: bytes, folder: Path, signer: CryptoSigner) -> Path:
    """Sign the statement on a wheel by the manifest ``data``; the envelope, in ``folder``.

    :class:`ConfigError` where no statement can be made of the manifest, :class:`AuditError` where
    the wheel or an unsigned statement in ``folder`` is not what the manifest says.
    """
    try:
        said = make_statement(data, wheel.name)
    except ValueError as error:
        raise ConfigError(
            f"{folder / MANIFEST}: {safe_line(error, 500)}",
            hint="Build it again with this release: its manifests have all that a statement needs.",
        ) from None
    (subject,) = said["subject"]
    if wheel.sha256 != (stated := subject["digest"]["sha256"]):
        raise AuditError(
            f"{wheel.name} has sha256 {wheel.sha256}, but {folder / MANIFEST} says {stated}",
            hint="It is not the wheel that was built there, so nothing was signed.",
        )
    payload = encode_statement(said)
    unsigned = folder / (wheel.name + UNSIGNED)
    if unsigned.is_file() and unsigned.read_bytes() != payload:
        raise AuditError(
            f"{unsigned} does not match {folder / MANIFEST}",
            hint="One of the two was changed after the run, so nothing was signed.",
        )
    target = folder / (wheel.name + SIGNED)
    write_atomic(target, sign_envelope(payload, signer, _earlier(target)))
    return target


def _earlier(target: Path) -> Sealed | None:
    """The envelope that is there, for the signatures of others in it."""
    if not target.is_file():
        return None
    try:
        (one,) = read_bundle(target)
        found = parse_envelope(one)
        # A bundle's certificate has no place in an envelope, nor have two signatures of one name.
        if "dsseEnvelope" in one or len(dict(found.signatures)) != len(found.signatures):
            raise ValueError  # noqa: TRY301
    except ValueError:
        raise ConfigError(
            f"{target} exists, but is not an envelope that a signature can be added to",
            hint="Move it away first: it would be overwritten.",
        ) from None
    return found


def passphrase_reader(key: Path, variable: str | None) -> Callable[[], str]:
    """How to come by the passphrase of a key: a variable, else the terminal.

    What it gives is never shown. It raises :class:`ConfigError` where there is none.
    """

    def ask() -> str:
        if variable is not None:
            if value := os.environ.get(variable):
                return remember_secret(value)
            raise ConfigError(
                f"{key}: the environment variable {variable} with its passphrase is not set",
                hint="Set it (in CI from a secret), or remove provenance.passphrase_env from "
                "pipeline.yaml to be prompted.",
            )
        try:
            if not sys.stdin.isatty():
                raise EOFError  # noqa: TRY301
            with warnings.catch_warnings():
                warnings.simplefilter("error", getpass.GetPassWarning)  # it would echo
                return remember_secret(getpass.getpass(f"Passphrase of {key}: "))
        except (EOFError, getpass.GetPassWarning):
            raise ConfigError(
                f"{key} has a passphrase, but there is no terminal to prompt for it",
                hint="Add provenance.passphrase_env: NAME to pipeline.yaml, and set that "
                "environment variable (in CI from a secret).",
            ) from None

    return ask
