"""What this program is called where it was started, so that hint can be typed as it stands.

Messages say ``invoke build`` or ``wcw --help``. Where neither is what was typed, as with ``./wcw``
or from another directory, they are shown with what was. Pages are shown with their full path.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from pipelines.core.paths import DOCUMENTS
from pipelines.core.shell import format_command_line

_PAGE = re.compile(r"(?<![\w./])docs/[\w/-]+\.md")
_typed = ""
_named = re.compile(r"(?!)")


def started_as(program: str) -> None:
    """``program`` is what was typed: ``sys.argv[0]``, or ``invoke``."""
    global _typed  # noqa: PLW0603
    path = Path(program)
    if path.name == "__main__.py":
        _typed = format_command_line([sys.executable, "-m", "pipelines"])
    elif shutil.which(path.name):
        _typed = path.name if path.name != "invoke" else ""  # its own --help is not ours
    elif program == "invoke":  # make's, which is not on PATH
        _typed = "./wcw"
    else:
        short = os.path.normpath(program)
        _typed = format_command_line([short if os.sep in short else f".{os.sep}{short}"])


def commands_are(names: Iterable[str]) -> None:
    """Only before these words is a name of the program taken for one."""
    global _named  # noqa: PLW0603
    # host.stop may be typed as two words, too.
    known = (re.escape(name).replace(r"\.", "[. ]") for name in names)
    words = "|".join(sorted(known, key=len, reverse=True))
    _named = re.compile(rf"(?<![\w./\\-])(?:invoke|wcw)(?= (?:--help|(?:{words})(?![\w-])))")


def as_typed(text: str) -> str:
    """Our own ``text`` with commands as they can be typed here."""
    return _named.sub(lambda _: _typed, text) if _typed else text


def with_pages(text: str) -> str:
    """The same, and pages with the path at which they can be opened from here."""
    return _PAGE.sub(_local_page_path, as_typed(text))


def _local_page_path(named: re.Match[str]) -> str:
    path = DOCUMENTS / named[0]
    return str(path) if path.is_file() and not Path(named[0]).is_file() else named[0]
