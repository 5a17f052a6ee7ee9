"""``invoke which``: what ``which.py`` of an index says of a Python of this machine."""

from __future__ import annotations

import json
import secrets
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pipelines.commands.command import Command
from pipelines.commands.options import Flag, Json, Options
from pipelines.errors import ConfigError

_SECONDS = 900.0  # imports of three packages, each in its own time
_MOST = 8 << 20  # bytes of its answer


class WhichOptions(Options):
    """Flags of ``which``."""

    python: Annotated[
        str | None, Flag("the Python to look at, such as python_embeded/python.exe (default: ours)")
    ] = None
    index: Annotated[str | None, Flag("a directory or an https address of an index")] = None
    package: Annotated[str | None, Flag("this package alone")] = None
    for_: Annotated[
        str | None,
        Flag("say where it differs from the Python that this program brings, such as comfyui"),
    ] = None
    share: Annotated[
        bool, Flag("print one line about the machine, for the index's page; no names, no paths")
    ] = False
    no_load: Annotated[bool, Flag("import nothing, not even in another process")] = False
    as_json: Json = False


def which(options: WhichOptions) -> int:
    """Say which wheel of an index fits a Python, or why what is installed there does not load.

    It runs the very file that the index serves. Leaves with 9 where nothing fits and nothing loads.
    """
    from pipelines.console import answer
    from pipelines.hosttext import block, line
    from pipelines.which.children import run_child
    from pipelines.which.joining import WHICH, joined

    python = str(Path(options.python).expanduser()) if options.python else sys.executable
    said = {"index": options.index, "package": options.package, "for": options.for_}
    flags = [word for name, text in said.items() if text for word in (f"--{name}", text)]
    for name in ("share", "no_load", "as_json"):
        if getattr(options, name):
            flags.append(f"--{name.removeprefix('as_').replace('_', '-')}")
    mark = secrets.token_hex(16)
    with tempfile.TemporaryDirectory() as room:
        file = Path(room) / WHICH
        file.write_bytes(joined())
        ended = run_child(
            [python, str(file), "--mark", mark, *flags], _SECONDS, most=_MOST, apart=True
        )
    if said_besides := block(ended.errors, 4000):
        print(said_besides, file=sys.stderr)
    *rows, last = ended.output.splitlines() or [""]
    if ended.code not in (0, 9) or last != mark:
        raise ConfigError(
            f"{line(python, 300)} has given no answer: "
            + line(ended.why or f"it has ended with {ended.code}", 300),
            advice="Name a Python from 3.9 on with --python, and an index that can be read.",
        )
    if options.as_json:
        answer(_read(rows, python))
    else:
        for row in rows:
            print(block(row, 100_000))
    return ended.code


def _read(rows: Sequence[str], python: str) -> Any:
    from pipelines.hosttext import line

    try:
        return json.loads("\n".join(rows))
    except (ValueError, RecursionError):
        raise ConfigError(
            f"{line(python, 300)} has given an answer that is no JSON",
            advice="Something of that Python prints as well: type the same without --json.",
        ) from None


COMMAND = Command(which, WhichOptions, alone=True)
