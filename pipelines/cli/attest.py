"""``invoke attest``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.cli.command import command
from pipelines.cli.options import Flags
from pipelines.core.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.record.run import Run


@command(
    help={
        "subject": "a run, as for report, or a wheel in the directory of its run",
        "key": "file of a private key (default: provenance.key of pipeline.yaml)",
    }
)
def attest(_: Flags, subject: str, *, key: str | None = None, json: bool = False) -> None:
    """Sign the provenance of a run's wheels: in-toto, SLSA, DSSE."""
    from pipelines.core.console import print_json, say
    from pipelines.core.paths import project_dir
    from pipelines.plan.config.model import load_config
    from pipelines.publish.provenance import attesting
    from pipelines.publish.provenance.signing import load_private
    from pipelines.stages.manifest import require_manifest
    from pipelines.wheels.checked import check_copy

    settings = load_config().provenance
    named = key or settings.key
    if not named:
        raise ConfigError(
            "there is no key to sign with",
            hint="Name one with --key, or as provenance.key in pipeline.yaml. Make one: "
            "openssl genpkey -algorithm ed25519 -out key.pem",
        )
    path = Path(named).expanduser()
    path = path if key else project_dir() / path
    wheels = _wheels_to_attest(subject)
    signer = load_private(path, attesting.passphrase_reader(path, settings.passphrase_env))
    keyid = signer.public_key.keyid
    made = []
    with tempfile.TemporaryDirectory(prefix="wcw-attest-") as room:
        for run, wheel in wheels:
            run.require_sealed_by(settings.trust)
            data = require_manifest(run)
            checked = check_copy(wheel, Path(room))
            made.append((wheel, attesting.attest_wheel(checked, data, run.path, signer)))
    if json:
        rows = [{"wheel": str(wheel), "envelope": str(path)} for wheel, path in made]
        print_json({"schema": 1, "keyid": keyid, "signed": rows})
        return
    for _wheel, path in made:
        say(f"{path}  signed by {keyid[:16]} ({signer.public_key.scheme})", style="green")


def _wheels_to_attest(subject: str) -> list[tuple[Run, Path]]:
    """The wheels of runs, or the one that is named, each with its run."""
    from pipelines.cli.find import find_runs

    path = Path(subject).expanduser()
    named = path.suffix == ".whl"
    found = [
        (run, wheel)
        for run in find_runs(str(path.absolute().parent.parent) if named else subject)
        for wheel in sorted((run.path / "wheels").glob("*.whl"))
        if not named or wheel.name == path.name
    ]
    if not found:
        raise ConfigError(
            f"{subject}: no wheel in the directory of a run",
            hint="Only the run that built a wheel can say what it was made of.",
        )
    return found
