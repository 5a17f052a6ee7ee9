"""``invoke attest``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pipelines.commands.command import Command
from pipelines.commands.options import Flag, Json, Options
from pipelines.errors import ConfigError


class AttestOptions(Options):
    """Flags of ``attest``."""

    subject: Annotated[str, Flag("a run, as for report, or a wheel with its manifest.json")]
    key: Annotated[
        str | None, Flag("file of a private key (default: provenance.key of pipeline.yaml)")
    ] = None
    as_json: Json = False


def attest(options: AttestOptions) -> None:
    """Sign what a run's wheels were made of: in-toto, SLSA provenance, DSSE."""
    from pipelines.config import load_config
    from pipelines.console import answer, say
    from pipelines.paths import home
    from pipelines.provenance import attesting
    from pipelines.provenance.signing import load_private

    settings = load_config().provenance
    named = options.key or settings.key
    if not named:
        raise ConfigError(
            "there is no key to sign with",
            advice="Name one with --key, or as provenance.key in pipeline.yaml. Make one: "
            "openssl genpkey -algorithm ed25519 -out key.pem",
        )
    key = Path(named).expanduser()
    key = key if options.key else home() / key
    wheels = _wheels(options.subject)
    signer = load_private(key, attesting.passphrase(key, settings.passphrase_env))
    keyid = signer.public_key.keyid
    made = [(wheel, attesting.attest(wheel, signer)) for wheel in wheels]
    if options.as_json:
        rows = [{"wheel": str(wheel), "envelope": str(path)} for wheel, path in made]
        answer({"schema": 1, "keyid": keyid, "signed": rows})
        return
    for _, path in made:
        say(f"{path}  signed by {keyid[:16]} ({signer.public_key.scheme})", style="green")


def _wheels(subject: str) -> list[Path]:
    """The wheels of a run, or the one that is named."""
    from pipelines.commands.find import find

    path = Path(subject).expanduser()
    if path.suffix == ".whl":
        if path.is_file():
            return [path]
        raise ConfigError(f"{path}: there is no such file", advice="Name a wheel, or a run.")
    found = [
        wheel for run in find(subject) for wheel in sorted((run.path / "wheels").glob("*.whl"))
    ]
    if not found:
        raise ConfigError(f"{subject} has no wheel", advice="Name a run that has built one.")
    return found


COMMAND = Command(attest, AttestOptions)
