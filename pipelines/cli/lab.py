"""``invoke lab``: an external wheel on a GPU, kept as a signed record."""

from __future__ import annotations

from pathlib import Path

from pipelines.cli.command import command
from pipelines.cli.options import FETCH, Flags
from pipelines.core.errors import WORSE, ConfigError, SmokeError

_OF_HERE = ("host", "python", *FETCH)


@command(
    shared=_OF_HERE,
    help={
        "wheel": "FILE, NAME==VERSION of an index, or URL",
        "suite": "a script with known numbers, or a pytest file or directory: docs/lab.md",
        "with": "NAME==VERSION to install with it, and whose DLLs are found; may be repeated",
        "at": "a Linux machine with a GPU for ssh, such as root@gpu1 (default: this one)",
        "give_back": "with --at: a command that ends the machine's rent, run in every case",
    },
    many=("with_",),
    alone=True,
)
def lab(
    flags: Flags,
    wheel: str,
    *,
    suite: str | None = None,
    with_: list[str] | None = None,
    at: str | None = None,
    give_back: str | None = None,
) -> int:
    """Test a Windows wheel of others on a GPU, through a bridge; keep a signed record, and a page.

    Exits with status 15 if something is worse than in the last such record.
    """
    from pipelines.cli.lines import open_line
    from pipelines.core.console import say
    from pipelines.core.paths import project_dir
    from pipelines.plan.config.model import load_config
    from pipelines.recipe.suite import suite_of_given
    from pipelines.reports import lab as records
    from pipelines.stages import rented
    from pipelines.stages.given import run_given

    path, companions = Path(suite or ""), tuple(with_ or ())
    if not suite or not path.exists():
        raise ConfigError(
            f"--suite {suite}: there is no such file or directory"
            if suite
            else "--suite is missing",
            hint="tests/gpu/foreign has suites of some packages; docs/lab.md says what one is.",
        )
    if (give_back and not at) or (at and any(flags.get(name) for name in _OF_HERE)):
        raise ConfigError("--give-back needs --at, and flags of a local host exclude it")
    suite_of_given(path)  # refused before a machine costs anything
    digest, out, failed = records.digest_of(path), project_dir() / load_config().out, None
    with rented.given_back(give_back or ""):
        if at:
            run, failed = rented.test_there(at, wheel, path, companions, out)
        else:
            line = open_line({**flags, "wheel": wheel, "gpu": True})
            try:
                run_given(line, companions=companions, script=suite)
            except SmokeError as error:
                failed = error
            run = line.run
    if records.digest_of(path) != digest:
        raise ConfigError(
            f"--suite {suite} was changed while it ran: nothing is recorded", hint="Run it again."
        )
    record = records.lab_record_of_run(run, digest)
    if record is None:
        raise failed or SmokeError("the suite saw no GPU", hint="Type: invoke doctor --gpu")
    moved = list(records.lab_record_differences(record, records.read_records(out / "lab")[0]))
    page = records.store_lab_record(record, out / "lab")
    for one in moved:
        say(f"{one.judgement}: {one.subject}: {one.before}, now {one.after}", style="yellow")
    say(f"{'passed' if record.passed else 'failed'} on {record.gpu}, {record.driver}: {page}")
    if failed:
        raise failed
    return WORSE if any(one.judgement == "worse" for one in moved) else 0
