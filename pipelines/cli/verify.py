"""``invoke verify``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.cli.command import command
from pipelines.cli.options import Flags
from pipelines.core.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.publish.provenance.verifying import Verified


def _parse_accept_flag(text: str | None) -> tuple[str, ...]:
    """The words between the commas, all of them known."""
    from pipelines.publish.provenance.verifying import ACCEPTED

    words = [] if text is None else [word.strip() for word in text.split(",")]
    for word in words:
        if word not in ACCEPTED:
            raise ConfigError(
                f"--accept {word}: expected {' or '.join(ACCEPTED)}",
                hint="Such as --accept unsigned.",
            )
    return tuple(words)


@command(
    help={
        "wheel": "the wheel",
        "provenance": "its provenance (default: WHEEL.intoto.jsonl next to it)",
        "key": "a public key that must have signed it; may be repeated",
        "accept": "what is enough: 'unsigned', 'lock' for another lock than today's, "
        "'builder' for another builder, 'older' than one that was verified here; by commas",
        "require": "NAME=VALUE by commas: recipe, level, test, builder, newer-than or serial",
    },
    many=("key", "require"),
)
def verify(
    _: Flags,
    wheel: str,
    *,
    provenance: str | None = None,
    key: list[str] | None = None,
    accept: str | None = None,
    require: list[str] | None = None,
    json: bool = False,
) -> int:
    """Check who vouches for a wheel, and what it was made of: hash, signature, manifest, lock.

    Exits with status 9 if something is wrong or no signature was checked, with 3 if the lock has
    other files today.
    """
    from pipelines.core.console import print_json
    from pipelines.publish.provenance.policy import read_requirements
    from pipelines.publish.provenance.signing import load_public
    from pipelines.publish.provenance.verifying import find_provenance, verify_provenance
    from pipelines.toolchain.lock import load_lock

    enough = _parse_accept_flag(accept)
    file, *named = (Path(name).expanduser() for name in (wheel, provenance) if name is not None)
    for missing in (path for path in (file, *named) if not path.is_file()):
        actual = "a directory" if missing.is_dir() else "none"
        raise ConfigError(
            f"{missing}: expected a file, found {actual}", hint="Name one that is here."
        )
    statement = named[0] if named else find_provenance(file)
    paths = [Path(name).expanduser() for name in key or ()]
    keys = [(path, load_public(path)) for path in paths]
    requirements = read_requirements(require or ())
    found = verify_provenance(file, statement, keys, load_lock(), requirements).accepting(enough)
    if json:
        print_json({"schema": 1, **found.model_dump(mode="json"), "exit": found.code})
    else:
        _show_verification(found)
    return found.code


def _show_verification(found: Verified) -> None:
    """A line a check, what differs below it."""
    from pipelines.core.console import console, say
    from pipelines.reports.findings import findings_table

    say(found.wheel, style="bold")
    say(f"sha256 {found.sha256}\nby {found.provenance}", style="dim")
    console.print(findings_table(found.findings, values=20))
    if found.code:
        say("It is not verified.", style="bold red")
    elif any(one.id == "signature" and one.level != "ok" for one in found.findings):
        say("No signature was checked, as you requested.", style="yellow")
