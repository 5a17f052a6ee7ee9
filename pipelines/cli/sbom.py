"""``invoke sbom``: the bills of materials that lie in a wheel."""

from __future__ import annotations

from pipelines.cli.command import command
from pipelines.cli.options import Flags
from pipelines.core.errors import AuditError, ConfigError


@command(shared=("offline",), help={"wheel": "a wheel, or the https address of one"}, alone=True)
def sbom(flags: Flags, wheel: str, *, json: bool = False) -> int | None:
    """Print the SBOMs in a wheel: what it was made of, and whether they are valid.

    Exits with status 9 for a wheel without one, or with one that is not valid.
    """
    from pipelines.audit.inputs import resolve_inputs
    from pipelines.core.console import print_json
    from pipelines.core.extras import require_extra
    from pipelines.plan.config.model import load_config
    from pipelines.publish.provenance import show
    from pipelines.toolchain.lock import Cache, load_lock
    from pipelines.wheels.metadata import inspect_wheel
    from pipelines.wheels.sboms import all_of

    require_extra("sbom")
    offline = bool(flags.get("offline")) or load_config().offline
    taken = resolve_inputs([wheel], Cache(load_lock(), offline=offline))
    if len(taken) != 1:
        raise ConfigError(f"{wheel}: {len(taken)} wheels, expected one", hint="Name one of them.")
    (one,) = taken
    if one.path is None:
        raise AuditError(f"{one.file}: {one.problem}")
    facts = inspect_wheel(one.path)
    if one.sha256 and facts.sha256 != one.sha256:
        raise AuditError(f"{one.file} has sha256 {facts.sha256}, and {one.sha256} is stated")
    found = all_of(facts)
    if json:
        print_json(show.as_json(facts, found))
    else:
        show.show(facts, found)
    good = (
        bool(found)
        and facts.record.true
        and all(each.state == "valid" and not each.of_another for each in found)
    )
    return None if good else AuditError.exit_code
