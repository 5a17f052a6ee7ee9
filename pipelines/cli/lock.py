"""``invoke lock``."""

from __future__ import annotations

from pathlib import Path

from pipelines.cli.command import command
from pipelines.cli.options import Flags


@command(
    help={
        "only": "only complete these tools: names, separated by commas",
        "cuda": "add the components of this CUDA toolkit, as NVIDIA lists them: 13.6",
        "sync": "only write the pins into images/ and ansible/",
        "check": "only check whether lock, images/ and ansible/ agree with toolchain.yaml",
        "stage": "only put the wheels that images/ and ansible/ install into this directory",
    }
)
def lock(
    _: Flags,
    *,
    only: str | None = None,
    cuda: str | None = None,
    sync: bool = False,
    check: bool = False,
    stage: str | None = None,
) -> None:
    """Generate the lock from toolchain.yaml, pin new files (needs the internet), copy the pins."""
    from pipelines.toolchain import command

    if cuda is not None:
        command.run_add(cuda)
        return
    if stage is not None:
        command.run_stage(Path(stage))
    if sync or check:
        command.run_sync(check=check)
    elif stage is None:
        command.run_complete(only)
