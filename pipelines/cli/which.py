"""``invoke which``: what ``which.py`` of an index says of a Python of this machine."""

from __future__ import annotations

import secrets
import sys
import tempfile
from json import loads
from pathlib import Path

from pipelines.cli.command import command
from pipelines.cli.options import Flags
from pipelines.core.errors import ConfigError

_SECONDS = 900.0  # imports of three packages, each in its own time
_MOST = 8 << 20  # bytes of its answer


@command(
    help={
        "python": "the Python to look at, such as python_embeded/python.exe (default: ours)",
        "index": "a directory or an https address of an index",
        "package": "only this package",
        "for": "compare it with the Python of this program, such as comfyui",
        "share": "print one line about the machine, for the index's page; no names, no paths",
        "no_load": "import nothing, not even in another process",
    },
    alone=True,
)
def which(
    _: Flags,
    *,
    python: str | None = None,
    index: str | None = None,
    package: str | None = None,
    for_: str | None = None,
    share: bool = False,
    no_load: bool = False,
    json: bool = False,
) -> int:
    """Say which wheel of an index fits a Python, or why what is installed there does not load.

    It runs the same file that the index serves. Exits with status 9 where nothing fits and nothing
    loads.
    """
    from pipelines.core.console import print_json
    from pipelines.core.hosttext import safe_block, safe_line
    from pipelines.publish.which.children import run_child
    from pipelines.publish.which.joining import WHICH, build_which_script
    from pipelines.publish.which.main import GOOD, NOT_GOOD, REFUSED

    python = str(Path(python).expanduser()) if python else sys.executable
    said = {"--index": index, "--package": package, "--for": for_}
    flags = [word for flag, text in said.items() if text for word in (flag, text)]
    alone = {"--share": share, "--no-load": no_load, "--json": json}
    flags += [flag for flag, given in alone.items() if given]
    mark = secrets.token_hex(16)
    with tempfile.TemporaryDirectory() as room:
        file = Path(room) / WHICH
        file.write_bytes(build_which_script())
        ended = run_child(
            [python, str(file), "--mark", mark, *flags], _SECONDS, most=_MOST, apart=True
        )
    if said_besides := safe_block(ended.errors, 4000):
        print(said_besides, file=sys.stderr)
    *rows, last = ended.output.splitlines() or [""]
    if ended.code not in (GOOD, REFUSED, NOT_GOOD) or last != mark:
        raise ConfigError(
            f"{safe_line(python, 300)} gave no answer: "
            + safe_line(ended.why or f"it exited with {ended.code}", 300),
            hint="Name a Python from 3.9 on with --python, and an index that can be read.",
        )
    if json and ended.code != REFUSED:
        try:
            print_json(loads("\n".join(rows)))
        except (ValueError, RecursionError):
            raise ConfigError(
                f"{safe_line(python, 300)} gave an answer that is not JSON",
                hint="Something in that Python prints, too: type the same without --json.",
            ) from None
    else:
        for row in rows:
            print(safe_block(row, 100_000))
    return ended.code
