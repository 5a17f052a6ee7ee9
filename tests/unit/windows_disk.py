r"""A disk with access lists, as harsh as Windows': what it does not grant it does not do.

Descriptors are kept as the bytes that Windows hands out, [MS-DTYP] 2.4.6, so that their reader
is tested as well. Where each rule comes from:

- a directory is made by who may add subdirectories to its parent, and its owner is Administrators
  for an elevated administrator, else the account: [MS-DTYP] 2.5.3.4, TOKEN_OWNER;
- without an access list of its own it takes the parent's entries that are inherited by containers;
  CREATOR OWNER becomes the creator, and stays for what is made below: 2.5.3.4.1;
- an access list that is given replaces what is inherited, but only in the call that makes the
  directory; a directory that exists is left as it is, and CreateDirectory says so;
- the owner may always read and write the access list: 2.5.3.2;
- a link in the middle of a path is followed, the last one is not by who asks for that;
- FAT has no access lists and takes no notice of one: GetSecurityInfo then gives none.
"""

from __future__ import annotations

import errno
import ntpath
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from pipelines.remote import protected_dirs

SYSTEM, ADMINISTRATORS, USERS = "S-1-5-18", "S-1-5-32-544", "S-1-5-32-545"
AUTHENTICATED, EVERYBODY, CREATOR = "S-1-5-11", "S-1-1-0", "S-1-3-0"
INSTALLER = "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464"
ME, OTHER = "S-1-5-21-1-2-3-1001", "S-1-5-21-1-2-3-1002"
SERVICE = "S-1-5-20"  # NETWORK SERVICE

_NAMES = {
    "SY": SYSTEM,
    "BA": ADMINISTRATORS,
    "BU": USERS,
    "AU": AUTHENTICATED,
    "WD": EVERYBODY,
    "CO": CREATOR,
    "TI": INSTALLER,
    "ME": ME,
    "OT": OTHER,
    "NS": SERVICE,
}
_RIGHTS = {"FA": 0x1F01FF, "GA": 0x10000000, "GW": 0x40000000, "M": 0x1301BF, "RX": 0x1200A9}
_TYPES = {"A": 0, "D": 1, "XA": 9, "OA": 5, "XD": 10}
_FLAGS = {"OI": 1, "CI": 2, "NP": 4, "IO": 8, "ID": 16}
OBJECT, CONTAINER, NO_PROPAGATE, INHERIT_ONLY = 1, 2, 4, 8
ADD_SUBDIRECTORY, READ_CONTROL, WRITE_DAC = 0x4, 0x20000, 0x40000
DIRECTORY, REPARSE = 0x10, 0x400
JUNCTION, SYMLINK, MOUNTED_LAYER = 0xA0000003, 0xA000000C, 0x80000018

#: What `icacls C:\` shows on a fresh Windows 11 and a fresh Server 2022, as SDDL.
CLIENT = "O:TID:P(A;OICI;FA;;;BA)(A;OICI;FA;;;SY)(A;OICI;RX;;;BU)(A;OICIIO;M;;;AU)(A;;0x4;;;AU)"
SERVER = (
    "O:TID:P(A;OICI;FA;;;BA)(A;OICI;FA;;;SY)(A;OICIIO;FA;;;CO)(A;OICI;RX;;;BU)(A;CI;0x4;;;BU)"
    "(A;CIIO;0x2;;;BU)"
)


def sid(text: str) -> bytes:
    """A SID as bytes."""
    _, revision, authority, *parts = text.split("-")
    head = struct.pack("<BB", int(revision), len(parts)) + int(authority).to_bytes(6, "big")
    return head + struct.pack(f"<{len(parts)}I", *map(int, parts))


@dataclass(frozen=True)
class Entry:
    """One of an access list."""

    kind: int
    flags: int
    mask: int
    sid: str

    def packed(self) -> bytes:
        body = struct.pack("<I", self.mask)
        body += b"\0\0\0\0" * (self.kind == _TYPES["OA"]) + sid(self.sid)
        return struct.pack("<BBH", self.kind, self.flags, 4 + len(body)) + body


def entries(sddl: str) -> tuple[str, list[Entry] | None]:
    """Owner (or nothing) and entries of an SDDL text; no list where it has no ``D:``."""
    owner, _, acl = sddl.partition("D:")
    owner = owner.removeprefix("O:")
    rows = []
    for kind, flags, mask, who in re.findall(r"\((\w+);(\w*);(\w+);;;([\w-]+)\)", acl):
        bits = sum(_FLAGS[flags[at : at + 2]] for at in range(0, len(flags), 2))
        rights = _RIGHTS[mask] if mask in _RIGHTS else int(mask, 16)
        rows.append(Entry(_TYPES[kind], bits, rights, _NAMES.get(who, who)))
    return _NAMES.get(owner, owner), rows if "D:" in sddl else None


def descriptor(owner: str, rows: Iterable[Entry] | None) -> bytes:
    """A self-relative security descriptor."""
    packed = [row.packed() for row in rows] if rows is not None else []
    acl = b"" if rows is None else struct.pack("<BxHHxx", 2, 8 + len(b"".join(packed)), len(packed))
    acl += b"".join(packed)
    control = 0x8000 | (0x4 if rows is not None else 0)
    name = sid(owner)
    place = 20 + len(name) if rows is not None else 0
    return struct.pack("<BxHIIII", 1, control, 20, 0, 0, place) + name + acl


@dataclass
class Node:
    attributes: int
    tag: int
    owner: str
    rows: list[Entry] | None
    target: str = ""


class Disk:
    """Drive C: and what is on it."""

    def __init__(
        self, root: str = CLIENT, *, administrator: bool = True, fat: bool = False
    ) -> None:
        self.administrator = administrator
        self.fat = fat
        self.nodes: dict[str, Node] = {}
        self.plant("C:\\", root)

    def plant(self, path: str, sddl: str, *, attributes: int = DIRECTORY, tag: int = 0) -> Node:
        """Have something there, whoever made it."""
        owner, rows = entries(sddl)
        node = Node(attributes | (REPARSE if tag else 0), tag, owner, None if self.fat else rows)
        self.nodes[self._key(path)] = node
        return node

    @staticmethod
    def _key(path: str) -> str:
        return path.removeprefix("\\\\?\\").casefold()

    def _resolved(self, path: str) -> str:
        """With the links on the way followed, but for the last part."""
        head, tail = ntpath.split(self._key(path))
        if not tail:
            return head
        above = self._resolved(head)
        if (node := self.nodes.get(above)) is None:
            raise FileNotFoundError(errno.ENOENT, "ERROR_PATH_NOT_FOUND", path)
        if not node.attributes & DIRECTORY:
            raise FileNotFoundError(errno.ENOENT, "ERROR_PATH_NOT_FOUND", path)
        return ntpath.join(self._key(node.target) if node.target else above, tail)

    def _granted(self, node: Node) -> int:
        """To the account that asks."""
        mine = {ME, EVERYBODY, AUTHENTICATED, USERS} | ({ADMINISTRATORS} & {*self._groups()})
        granted = denied = 0
        for row in node.rows or ():
            if row.sid in mine and not row.flags & INHERIT_ONLY:
                denied |= row.mask & ~granted if row.kind in (1, 10) else 0
                granted |= row.mask & ~denied if row.kind in (0, 9) else 0
        everything = 0x1F01FF if granted & 0x10000000 or node.rows is None else 0
        return granted | everything | (READ_CONTROL | WRITE_DAC if node.owner in mine else 0)

    def _groups(self) -> list[str]:
        return [ADMINISTRATORS] if self.administrator else []

    # -- as protected_dirs asks -------------------------------------------------------------------

    def account(self) -> tuple[str, bool]:
        return ME, self.administrator

    def look(self, path: str) -> protected_dirs.Seen:
        place = self._resolved(path)
        if (node := self.nodes.get(place)) is None:
            raise FileNotFoundError(errno.ENOENT, "ERROR_FILE_NOT_FOUND", path)
        if not self._granted(node) & READ_CONTROL:
            raise PermissionError(errno.EACCES, "ERROR_ACCESS_DENIED", path)
        told = protected_dirs.parsed(descriptor(node.owner, node.rows))
        return protected_dirs.Seen(node.attributes, node.tag, *told)

    def create(self, path: str, access: str, *, fresh: bool = False) -> None:
        place = self._resolved(path)
        if place in self.nodes:
            if fresh:
                raise FileExistsError(errno.EEXIST, "ERROR_ALREADY_EXISTS", path)
            return
        above = self.nodes[ntpath.dirname(place)]
        if not self._granted(above) & ADD_SUBDIRECTORY:
            raise PermissionError(errno.EACCES, "ERROR_ACCESS_DENIED", path)
        owner = ADMINISTRATORS if self.administrator else ME
        rows = entries(access)[1] if access else self._inherited(above, owner)
        self.nodes[place] = Node(DIRECTORY, 0, owner, None if self.fat else rows)

    def _inherited(self, above: Node, owner: str) -> list[Entry]:
        made = []
        for row in above.rows or ():
            if not row.flags & CONTAINER:
                if row.flags & OBJECT and not row.flags & NO_PROPAGATE:  # for files below only
                    made.append(Entry(row.kind, row.flags | INHERIT_ONLY, row.mask, row.sid))
                continue
            passed = 0 if row.flags & NO_PROPAGATE else row.flags & (OBJECT | CONTAINER)
            if row.sid == CREATOR:
                made.append(Entry(row.kind, 0, row.mask, owner))
                made += (
                    [Entry(row.kind, passed | INHERIT_ONLY, row.mask, CREATOR)] if passed else []
                )
            else:
                made.append(Entry(row.kind, passed, row.mask, row.sid))
        return made
