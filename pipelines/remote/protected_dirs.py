r"""The one way to make a directory on a host, and to see whether one that exists may be used.

On Windows every account may make directories below the root of a drive and, on a client, change
what others made there (https://github.com/golang/go/issues/35575). What lies in a directory of ours
is run by administrators and by SYSTEM, so a new one gets its access list in the call that makes it,
and an existing one is used only if nobody else can have put anything there.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import pathlib
import secrets
import shutil
import stat
import struct
import sys
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

_SYSTEM, _ADMINISTRATORS = "S-1-5-18", "S-1-5-32-544"
#: Who may own a directory, and change it, besides the account that asks. The third is Windows' own
#: TrustedInstaller, the fourth ContainerAdministrator, whom only the inside of a container knows:
#: https://learn.microsoft.com/windows/win32/secauthz/well-known-sids
_TRUSTED = {
    _SYSTEM,
    _ADMINISTRATORS,
    "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464",
    "S-1-5-93-2-1",
}
#: CREATOR OWNER and OWNER RIGHTS stand for whoever owns what is there, and that is looked at.
_OWNERS = {"S-1-3-0", "S-1-3-4"}
#: https://learn.microsoft.com/windows/win32/fileio/file-access-rights-constants
#: Delete child, WRITE_DAC, WRITE_OWNER, GENERIC_ALL: with one of them another directory can be put
#: in the place of what is in this one.
_REPLACE = 0x40 | 0x40000 | 0x80000 | 0x10000000
_DELETE = 0x10000
#: Those, and add file, add subdirectory, write attributes (enough to make an empty directory a
#: junction), write extended attributes, delete, GENERIC_WRITE.
_WRITE = _REPLACE | _DELETE | 0x2 | 0x4 | 0x10 | 0x100 | 0x40000000
_REPARSE_POINT, _NAME_SURROGATE = 0x400, 0x20000000
#: Allowed and callback allowed; denied, of all forms:
#: https://learn.microsoft.com/openspecs/windows_protocols/ms-dtyp/628ebb1d-c509-4ea0-a10f-77ef97ca4586
_ALLOW, _DENY = {0, 9}, {1, 6, 10, 12}
_DACL_PRESENT = 0x4
_FOUND = 183  # ERROR_ALREADY_EXISTS


class Seen(NamedTuple):
    """What Windows says of a directory."""

    attributes: int
    tag: int
    """Of a reparse point."""
    owner: str
    rights: list[tuple[str, int]] | None
    """SID and access mask of what is allowed or inherited; ``None``: everything, to everybody."""


class UnsafeError(OSError):
    """A directory that others may have filled; ``hint`` is what an administrator can type."""

    def __init__(self, folder: str, why: str, shown: str) -> None:
        """``shown`` is its access list."""
        end = folder.rpartition("\\")[2]
        grant = " ".join(f'"*{who}:(OI)(CI)F"' for who in (_SYSTEM, _ADMINISTRATORS))
        self.why = f"{folder} is not safe to use: {why}. Found {shown}"
        self.hint = (
            f'As administrator, if nothing in it is needed: cmd /c ren "{folder}" "{end}.old". To '
            f"keep it, first look at what others may have put there, then: "
            f'icacls "{folder}" /setowner "*{_ADMINISTRATORS}" /t /q; icacls "{folder}" /reset /t '
            f'/q; icacls "{folder}" /inheritance:r /grant:r {grant}'
        )
        super().__init__(f"{self.why}. {self.hint}")


def make(path: str | pathlib.Path, *, readable: bool = False) -> None:
    """Make the directory and those above it, or see that the ones that exist are safe.

    On Windows a new one below the root of a drive is for SYSTEM, administrators and, if that is
    no administrator's, this account; ``readable``: other users may read what is in it. What is made
    in it inherits that. Raises :class:`UnsafeError`, ``FileExistsError`` for a file, ``OSError``.
    """
    if sys.platform != "win32":
        pathlib.Path(path).mkdir(parents=True, exist_ok=True)
        return
    for folder in _chain(path):
        try:
            seen = _look(str(folder))
        except FileNotFoundError:
            access = _access(readable=readable) if folder.parent == folder.parent.parent else ""
            _create(str(folder), access)
            seen = _look(str(folder))  # another was faster, or the file system has no access lists
        if not seen.attributes & stat.FILE_ATTRIBUTE_DIRECTORY:
            raise FileExistsError(f"{folder} is a file, a directory is wanted")
        _refuse(folder, seen, _WRITE)


def inspect(path: str | pathlib.Path) -> None:
    """Raise :class:`UnsafeError` if somebody else can have put ``path``, or part of it, there."""
    if sys.platform == "win32":
        for folder in _chain(path):
            with contextlib.suppress(FileNotFoundError):
                _refuse(folder, _look(str(folder)), _WRITE)


@contextlib.contextmanager
def private() -> Iterator[pathlib.Path]:
    """A new directory that no other user may enter, removed with what is in it afterwards."""
    if sys.platform != "win32":
        folder = pathlib.Path(tempfile.mkdtemp(prefix="wcw-"))
    else:
        above = pathlib.Path(tempfile.gettempdir())
        for part in _chain(above):  # everybody may add to C:\Windows\Temp, and not rename there
            _refuse(part, _look(str(part)), _REPLACE | _DELETE)
        folder = above / f"wcw-{secrets.token_hex(8)}"
        _create(str(folder), _access(readable=False), fresh=True)
        _refuse(folder, _look(str(folder)), _WRITE)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _chain(path: str | pathlib.Path) -> list[pathlib.Path]:
    """The directories on the way, from below the root of the drive, which is looked at first."""
    folder = pathlib.Path(os.path.abspath(path))  # noqa: PTH100 - links are not to be followed
    *chain, root = folder, *folder.parents
    _refuse(root, _look(str(root)), _REPLACE)
    return chain[::-1]


def _refuse(folder: pathlib.Path, seen: Seen, forbidden: int) -> None:
    if why := complaint(seen, _account()[0], forbidden):
        raise UnsafeError(str(folder).removeprefix("\\\\?\\"), why, _shown(seen))


def complaint(seen: Seen, account: str, forbidden: int = _WRITE) -> str:
    """Why others may have filled a directory, or nothing; ``account`` is the SID of who asks."""
    if seen.attributes & _REPARSE_POINT and seen.tag & _NAME_SURROGATE:
        return "it is a junction or a link"
    trusted = {*_TRUSTED, account}
    if seen.owner not in trusted:
        return f"its owner {seen.owner} is neither this account nor an administrator's group"
    if seen.rights is None:
        return "it has no access list: everybody may change it"
    # An entry that is only inherited counts too: it is that of what is made there.
    others = {sid for sid, mask in seen.rights if mask & forbidden} - trusted - _OWNERS
    return f"{', '.join(sorted(others))} may change it" if others else ""


def _shown(seen: Seen) -> str:
    rights = seen.rights if seen.rights is not None else [("everybody", 0x1F01FF)]
    return ", ".join([f"owner {seen.owner}", *(f"{sid} 0x{mask:x}" for sid, mask in rights)])


def parsed(descriptor: bytes) -> tuple[str, list[tuple[str, int]] | None]:
    """Owner and rights of a self-relative security descriptor, as [MS-DTYP] 2.4.6 lays it out."""
    control, owner, _, _, acl = struct.unpack_from("<2xH4I", descriptor)
    name = _sid(descriptor, owner) if owner else ""
    if not (control & _DACL_PRESENT and acl):
        return name, None
    (count,) = struct.unpack_from("<H", descriptor, acl + 4)
    rights: list[tuple[str, int]] = []
    place = acl + 8
    for _ in range(count):
        kind, size, mask = struct.unpack_from("<BxHI", descriptor, place)
        if kind not in _DENY:
            # No file has others; what they grant, and whom, is not known.
            who = _sid(descriptor, place + 8) if kind in _ALLOW else f"entry of type {kind}"
            rights.append((who, mask))
        place += size
    return name, rights


def _sid(data: bytes, place: int) -> str:
    count = data[place + 1]
    authority = int.from_bytes(data[place + 2 : place + 8], "big")
    parts = struct.unpack_from(f"<{count}I", data, place + 8)
    return "-".join(map(str, ("S-1", authority, *parts)))


def _access(*, readable: bool) -> str:
    """Of a new directory, as SDDL; that of its parent is not inherited."""
    account, administrator = _account()
    full = ["SY", "BA", *([] if administrator else [account])]
    entries = [f"(A;OICI;FA;;;{who})" for who in full] + ["(A;OICI;0x1200a9;;;BU)"] * readable
    return f"D:P{''.join(entries)}"


# -- Windows' own part; nothing below decides anything --------------------------------------------


@functools.cache
def _library(name: str) -> Any:
    return ctypes.WinDLL(name, use_last_error=True)  # type: ignore[attr-defined]


def _failed(path: str) -> OSError:
    code = ctypes.get_last_error()  # type: ignore[attr-defined]
    return OSError(None, ctypes.FormatError(code), path, code)  # type: ignore[attr-defined]


def _create(path: str, access: str, *, fresh: bool = False) -> None:
    """Make a directory together with its access list; without one it inherits. ``OSError``.

    One that exists already is left alone, or an error if it is to be ``fresh``.
    """
    kernel, security = _library("kernel32"), _library("advapi32")
    descriptor = ctypes.c_void_p()
    if access and not security.ConvertStringSecurityDescriptorToSecurityDescriptorW(
        ctypes.c_wchar_p(access), 1, ctypes.byref(descriptor), None
    ):
        raise _failed(path)
    # SECURITY_ATTRIBUTES: its size, the descriptor, whether the handle is inherited.
    attributes = (ctypes.c_void_p * 3)(24, descriptor, None)
    try:
        given = ctypes.byref(attributes) if access else None
        if not kernel.CreateDirectoryW(ctypes.c_wchar_p(path), given):
            error = _failed(path)
            if fresh or ctypes.get_last_error() != _FOUND:  # type: ignore[attr-defined]
                raise error
    finally:
        kernel.LocalFree(descriptor)


def _look(path: str) -> Seen:
    """``FileNotFoundError`` when there is nothing; a link is not followed."""
    kernel, security = _library("kernel32"), _library("advapi32")
    kernel.CreateFileW.restype = ctypes.c_void_p
    # READ_CONTROL | FILE_READ_ATTRIBUTES; shared; OPEN_EXISTING; BACKUP_SEMANTICS (a directory) |
    # OPEN_REPARSE_POINT
    handle = ctypes.c_void_p(
        kernel.CreateFileW(ctypes.c_wchar_p(path), 0x20080, 7, None, 3, 0x02200000, None)
    )
    if handle.value == ctypes.c_void_p(-1).value:
        raise _failed(path)
    try:
        tag, size = (ctypes.c_uint32 * 2)(), ctypes.c_uint32()
        if not kernel.GetFileInformationByHandleEx(handle, 9, tag, 8):  # FileAttributeTagInfo
            raise _failed(path)
        wanted = 0x5  # OWNER_SECURITY_INFORMATION | DACL_SECURITY_INFORMATION
        security.GetKernelObjectSecurity(handle, wanted, None, 0, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        if not security.GetKernelObjectSecurity(handle, wanted, data, size, ctypes.byref(size)):
            raise _failed(path)
        # Wine's fd_is_mount_point shows a container's volume as a junction; it has no others.
        wine = hasattr(_library("ntdll"), "wine_get_version")
        return Seen(tag[0], 0 if wine else tag[1], *parsed(data.raw))
    finally:
        kernel.CloseHandle(handle)


@functools.cache
def _account() -> tuple[str, bool]:
    """The SID of this process' account, and whether it has an administrator's rights now."""
    kernel, security = _library("kernel32"), _library("advapi32")
    kernel.GetCurrentProcess.restype = ctypes.c_void_p
    token, size = ctypes.c_void_p(), ctypes.c_uint32()
    process = ctypes.c_void_p(kernel.GetCurrentProcess())
    if not security.OpenProcessToken(process, 0x8, ctypes.byref(token)):  # TOKEN_QUERY
        raise _failed("")
    try:
        data = ctypes.create_string_buffer(256)  # TokenUser: a pointer to the SID behind it
        if not security.GetTokenInformation(token, 1, data, 256, ctypes.byref(size)):
            raise _failed("")
    finally:
        kernel.CloseHandle(token)
    (place,) = struct.unpack_from("<Q", data.raw)
    administrator = bool(_library("shell32").IsUserAnAdmin())
    return _sid(data.raw, place - ctypes.addressof(data)), administrator
