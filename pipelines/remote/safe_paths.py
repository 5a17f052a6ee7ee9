"""Names in archives, before anything is written under them.

What Windows would understand as another place, a device or another name is refused on every
system: https://learn.microsoft.com/windows/win32/fileio/naming-a-file lists them.
"""

from __future__ import annotations

import re

_FORBIDDEN = re.compile(r'[\x00-\x1f<>:"|?*\\]')
_DEVICE = re.compile(
    r"(?i)(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9\u00b9\u00b2\u00b3])\s*(\.|$)"
)


def member_parts(name: str, archive: str) -> list[str]:
    """The folders and the file that ``name`` (with ``/``) means below the place of unpacking.

    ``ValueError`` when it would leave that place or be something else than it says.
    """
    parts = name.split("/")
    for part in parts:
        # Windows drops dots and blanks at the end: "..." and ". ." are names of folders above.
        if not part or part[-1] in ". " or _FORBIDDEN.search(part) or _DEVICE.match(part):
            raise refusal(name, archive)
    return parts


def refusal(name: str, archive: str) -> ValueError:
    """The error for a member that is not unpacked."""
    return ValueError(
        f"{archive}: member {name!r} is refused: it would leave the directory, or is a link, "
        "a device or a name that Windows does not have"
    )
