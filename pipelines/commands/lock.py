"""``invoke lock``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pipelines.commands.command import Command
from pipelines.commands.options import Flag, Options


class LockOptions(Options):
    """Flags of ``lock``."""

    only: Annotated[
        str | None,
        Flag("complete these tools alone: names, separated by commas; msvc: the sandbox's"),
    ] = None
    cuda: Annotated[
        str | None, Flag("add the components of this CUDA toolkit, as NVIDIA lists them: 13.6")
    ] = None
    sync: Annotated[bool, Flag("only write the pins into images/ and ansible/")] = False
    check: Annotated[
        bool, Flag("only say whether lock, images/ and ansible/ agree with toolchain.yaml")
    ] = False
    stage: Annotated[
        str | None,
        Flag("only put the wheels that images/ and ansible/ install into this directory"),
    ] = None


def lock(options: LockOptions) -> None:
    """Make the lock of toolchain.yaml, pin what is new (needs the internet), sync the rest."""
    from pipelines.toolchain import command

    if options.cuda is not None:
        command.run_add(options.cuda)
        return
    if options.stage is not None:
        command.run_stage(Path(options.stage))
    if options.sync or options.check:
        command.run_sync(check=options.check)
    elif options.stage is None:
        from pipelines.config import own_pins

        own = own_pins()
        names = None if options.only is None else options.only.replace(" ", "").split(",")
        tools = None if names is None else ",".join(n for n in names if n not in own)
        if tools != "":
            command.run_complete(tools)
        for name, kind in own.items():
            if names is None or name in names:
                kind.make_pins(anew=names is not None)


COMMAND = Command(lock, LockOptions)
