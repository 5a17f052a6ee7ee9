r"""The one way to create a directory on a host, and to check whether an existing one may be used.

On Windows every account may create directories below the root of a drive and, on a client, change
those that others created there (https://github.com/golang/go/issues/35575). Files in our
directories are run by administrators and by SYSTEM, so a new one gets its access list in the call
that creates it, and an existing one is used only if no other account can have put anything there.
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
#: Owners and accounts with write access to accept, besides the current one. The third is Windows'
#: TrustedInstaller, the fourth ContainerAdministrator, which only exists inside a container:
#: https://learn.microsoft.com/windows/win32/secauthz/well-known-sids
_TRUSTED = {
    _SYSTEM,
    _ADMINISTRATORS,
    "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464",
    "S-1-5-93-2-1",
}
#: CREATOR OWNER and OWNER RIGHTS stand for the owner, who is checked.
_OWNERS = {"S-1-3-0", "S-1-3-4"}
#: https://learn.microsoft.com/windows/win32/fileio/file-access-rights-constants
#: Delete child, WRITE_DAC, WRITE_OWNER, GENERIC_ALL: any of them allows replacing a directory in
#: this one.
_REPLACE = 0x40 | 0x40000 | 0x80000 | 0x10000000
_DELETE = 0x10000
#: Those, plus add file, add subdirectory, write attributes (enough to make an empty directory a
#: junction), write extended attributes, delete, GENERIC_WRITE.
_WRITE = _REPLACE | _DELETE | 0x2 | 0x4 | 0x10 | 0x100 | 0x40000000
_REPARSE_POINT, _NAME_SURROGATE = 0x400, 0x20000000
#: Allowed and callback allowed; denied, of all forms:
#: https://learn.microsoft.com/openspecs/windows_protocols/ms-dtyp/628ebb1d-c509-4ea0-a10f-77ef97ca4586
_ALLOW, _DENY = {0, 9}, {1, 6, 10, 12}
_DACL_PRESENT = 0x4
_FOUND = 183  # ERROR_ALREADY_EXISTS


class Seen(NamedTuple):
    """Windows' information on a directory."""

    attributes: int
    tag: int
    """Whether it is a reparse point."""
    owner: str
    rights: list[tuple[str, int]] | None
    """SID and access mask of allowed or inherited entries; ``None``: full access for everybody."""


class UnsafeError(OSError):
    """A directory that others may have filled; ``hint`` is a command for an administrator."""

    def __init__(self, folder: str, why: str, shown: str) -> None:
        """``shown`` is its access list."""
        end = folder.rpartition("\\")[2]
        grant = " ".join(f'"*{who}:(OI)(CI)F"' for who in (_SYSTEM, _ADMINISTRATORS))
        self.why = f"{folder} is not safe to use: {why}. Found {shown}"
        self.hint = (
            f'As administrator, if nothing in it is needed: cmd /c ren "{folder}" "{end}.old". To '
            f"keep it, first check what others may have put there, then: "
            f'icacls "{folder}" /setowner "*{_ADMINISTRATORS}" /t /q; icacls "{folder}" /reset /t '
            f'/q; icacls "{folder}" /inheritance:r /grant:r {grant}'
        )
        super().__init__(f"{self.why}. {self.hint}")


def make(path: str | pathlib.Path, *, readable: bool = False) -> None:
    """Create the directory and its parents, or check that the existing ones are safe.

    On Windows a new one below the root of a drive is for SYSTEM, administrators and, unless it is
    an administrator, this account; ``readable``: other users may read its contents. Its contents
    inherit that. Raises :class:`UnsafeError`, ``FileExistsError`` for a file, ``OSError``.
    """
    if sys.platform != "win32":
        pathlib.Path(path).mkdir(parents=True, exist_ok=True)
        return
    for folder in _chain(path):
        try:
            seen = _read_directory_access(str(folder))
        except FileNotFoundError:
            access = _access(readable=readable) if folder.parent == folder.parent.parent else ""
            _create_directory(str(folder), access)
            seen = _read_directory_access(
                str(folder)
            )  # another process was faster, or there are no access lists
        if not seen.attributes & stat.FILE_ATTRIBUTE_DIRECTORY:
            raise FileExistsError(f"{folder} is a file, expected a directory")
        _refuse_unsafe_dir(folder, seen, _WRITE)


def inspect(path: str | pathlib.Path) -> None:
    """Raise :class:`UnsafeError` if another user can have created ``path``, or part of it."""
    if sys.platform == "win32":
        for folder in _chain(path):
            with contextlib.suppress(FileNotFoundError):
                _refuse_unsafe_dir(folder, _read_directory_access(str(folder)), _WRITE)


@contextlib.contextmanager
def private() -> Iterator[pathlib.Path]:
    """A new directory that no other user may enter, removed with its contents afterwards."""
    if sys.platform != "win32":
        folder = pathlib.Path(tempfile.mkdtemp(prefix="wcw-"))
    else:
        above = pathlib.Path(tempfile.gettempdir())
        for part in _chain(above):  # everybody may add to C:\Windows\Temp, but not rename there
            _refuse_unsafe_dir(part, _read_directory_access(str(part)), _REPLACE | _DELETE)
        folder = above / f"wcw-{secrets.token_hex(8)}"
        _create_directory(str(folder), _access(readable=False), fresh=True)
        _refuse_unsafe_dir(folder, _read_directory_access(str(folder)), _WRITE)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _chain(path: str | pathlib.Path) -> list[pathlib.Path]:
    """The directories of the path, from below the root of the drive, which is checked first."""
    folder = pathlib.Path(os.path.abspath(path))  # noqa: PTH100 - links must not be followed
    *chain, root = folder, *folder.parents
    _refuse_unsafe_dir(root, _read_directory_access(str(root)), _REPLACE)
    return chain[::-1]


def _refuse_unsafe_dir(folder: pathlib.Path, seen: Seen, forbidden: int) -> None:
    if why := complaint(seen, _account()[0], forbidden):
        raise UnsafeError(str(folder).removeprefix("\\\\?\\"), why, _describe_access(seen))


def complaint(seen: Seen, account: str, forbidden: int = _WRITE) -> str:
    """Why others may have filled a directory, or empty; ``account`` is the current SID."""
    if seen.attributes & _REPARSE_POINT and seen.tag & _NAME_SURROGATE:
        return "it is a junction or a link"
    trusted = {*_TRUSTED, account}
    if seen.owner not in trusted:
        return f"its owner {seen.owner} is neither this account nor an administrators group"
    if seen.rights is None:
        return "it has no access list: everybody may change it"
    # An inherit-only entry counts too: it applies to new contents.
    others = {sid for sid, mask in seen.rights if mask & forbidden} - trusted - _OWNERS
    return f"{', '.join(sorted(others))} may change it" if others else ""


def _describe_access(seen: Seen) -> str:
    rights = seen.rights if seen.rights is not None else [("everybody", 0x1F01FF)]
    return ", ".join([f"owner {seen.owner}", *(f"{sid} 0x{mask:x}" for sid, mask in rights)])


def parsed(descriptor: bytes) -> tuple[str, list[tuple[str, int]] | None]:
    """Owner and rights of a self-relative security descriptor, per [MS-DTYP] 2.4.6."""
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
            # Other types do not occur on files; what they grant, and to whom, is unknown.
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
    """The SDDL of a new directory; its parent's access list is not inherited."""
    account, administrator = _account()
    full = ["SY", "BA", *([] if administrator else [account])]
    entries = [f"(A;OICI;FA;;;{who})" for who in full] + ["(A;OICI;0x1200a9;;;BU)"] * readable
    return f"D:P{''.join(entries)}"


# -- Windows API; no policy below --------------------------------------------


@functools.cache
def _load_system_dll(name: str) -> Any:
    return ctypes.WinDLL(name, use_last_error=True)  # type: ignore[attr-defined]


def _last_windows_error(path: str) -> OSError:
    code = ctypes.get_last_error()  # type: ignore[attr-defined]
    return OSError(None, ctypes.FormatError(code), path, code)  # type: ignore[attr-defined]


def _create_directory(path: str, access: str, *, fresh: bool = False) -> None:
    """Create a directory with its access list; without one it inherits. ``OSError``.

    An existing one is left alone, or an error if it must be ``fresh``.
    """
    kernel, security = _load_system_dll("kernel32"), _load_system_dll("advapi32")
    descriptor = ctypes.c_void_p()
    if access and not security.ConvertStringSecurityDescriptorToSecurityDescriptorW(
        ctypes.c_wchar_p(access), 1, ctypes.byref(descriptor), None
    ):
        raise _last_windows_error(path)
    # SECURITY_ATTRIBUTES: its size, the descriptor, whether the handle is inherited.
    attributes = (ctypes.c_void_p * 3)(24, descriptor, None)
    try:
        pointer = ctypes.byref(attributes) if access else None
        if not kernel.CreateDirectoryW(ctypes.c_wchar_p(path), pointer):
            error = _last_windows_error(path)
            if fresh or ctypes.get_last_error() != _FOUND:  # type: ignore[attr-defined]
                raise error
    finally:
        kernel.LocalFree(descriptor)


def _read_directory_access(path: str) -> Seen:
    """``FileNotFoundError`` if it does not exist; links are not followed."""
    kernel, security = _load_system_dll("kernel32"), _load_system_dll("advapi32")
    kernel.CreateFileW.restype = ctypes.c_void_p
    # READ_CONTROL | FILE_READ_ATTRIBUTES; shared; OPEN_EXISTING; BACKUP_SEMANTICS (a directory) |
    # OPEN_REPARSE_POINT
    handle = ctypes.c_void_p(
        kernel.CreateFileW(ctypes.c_wchar_p(path), 0x20080, 7, None, 3, 0x02200000, None)
    )
    if handle.value == ctypes.c_void_p(-1).value:
        raise _last_windows_error(path)
    try:
        tag, size = (ctypes.c_uint32 * 2)(), ctypes.c_uint32()
        if not kernel.GetFileInformationByHandleEx(handle, 9, tag, 8):  # FileAttributeTagInfo
            raise _last_windows_error(path)
        information = 0x5  # OWNER_SECURITY_INFORMATION | DACL_SECURITY_INFORMATION
        security.GetKernelObjectSecurity(handle, information, None, 0, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        if not security.GetKernelObjectSecurity(
            handle, information, data, size, ctypes.byref(size)
        ):
            raise _last_windows_error(path)
        # Wine's fd_is_mount_point reports a container's volume as a junction; it has no others.
        wine = hasattr(_load_system_dll("ntdll"), "wine_get_version")
        return Seen(tag[0], 0 if wine else tag[1], *parsed(data.raw))
    finally:
        kernel.CloseHandle(handle)


@functools.cache
def _account() -> tuple[str, bool]:
    """The SID of this process' account, and whether it currently has administrator rights."""
    kernel, security = _load_system_dll("kernel32"), _load_system_dll("advapi32")
    kernel.GetCurrentProcess.restype = ctypes.c_void_p
    token, size = ctypes.c_void_p(), ctypes.c_uint32()
    process = ctypes.c_void_p(kernel.GetCurrentProcess())
    if not security.OpenProcessToken(process, 0x8, ctypes.byref(token)):  # TOKEN_QUERY
        raise _last_windows_error("")
    try:
        data = ctypes.create_string_buffer(256)  # TokenUser: a pointer to the SID behind it
        if not security.GetTokenInformation(token, 1, data, 256, ctypes.byref(size)):
            raise _last_windows_error("")
    finally:
        kernel.CloseHandle(token)
    (place,) = struct.unpack_from("<Q", data.raw)
    administrator = bool(_load_system_dll("shell32").IsUserAnAdmin())
    return _sid(data.raw, place - ctypes.addressof(data)), administrator
