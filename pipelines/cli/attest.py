"""``invoke attest``."""

from __future__ import annotations

from pathlib import Path

from pipelines.cli.command import command
from pipelines.cli.options import Flags
from pipelines.core.errors import ConfigError


@command(
    help={
        "subject": "a run, as for report, or a wheel with its manifest.json",
        "key": "file of a private key (default: provenance.key of pipeline.yaml)",
    }
)
def attest(_: Flags, subject: str, *, key: str | None = None, json: bool = False) -> None:
    """Sign what a run's wheels were made of: in-toto, SLSA provenance, DSSE."""
    from pipelines.config.model import load_config
    from pipelines.core.console import answer, say
    from pipelines.core.paths import home
    from pipelines.publish.provenance import attesting
    from pipelines.publish.provenance.signing import load_private

    settings = load_config().provenance
    named = key or settings.key
    if not named:
        raise ConfigError(
            "there is no key to sign with",
            hint="Name one with --key, or as provenance.key in pipeline.yaml. Make one: "
            "openssl genpkey -algorithm ed25519 -out key.pem",
        )
    path = Path(named).expanduser()
    path = path if key else home() / path
    wheels = _wheels(subject)
    signer = load_private(path, attesting.passphrase(path, settings.passphrase_env))
    keyid = signer.public_key.keyid
    made = [(wheel, attesting.attest(wheel, signer)) for wheel in wheels]
    if json:
        rows = [{"wheel": str(wheel), "envelope": str(path)} for wheel, path in made]
        answer({"schema": 1, "keyid": keyid, "signed": rows})
        return
    for _wheel, path in made:
        say(f"{path}  signed by {keyid[:16]} ({signer.public_key.scheme})", style="green")


def _wheels(subject: str) -> list[Path]:
    """The wheels of a run, or the one that is named."""
    from pipelines.cli.find import find

    path = Path(subject).expanduser()
    if path.suffix == ".whl":
        if path.is_file():
            return [path]
        raise ConfigError(f"{path}: there is no such file", hint="Name a wheel, or a run.")
    found = [
        wheel for run in find(subject) for wheel in sorted((run.path / "wheels").glob("*.whl"))
    ]
    if not found:
        raise ConfigError(f"{subject} has no wheel", hint="Name a run that has built one.")
    return found
