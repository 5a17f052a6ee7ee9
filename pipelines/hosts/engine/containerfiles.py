"""Small files of a container, through its engine: a way that needs no trust of ours."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import PurePosixPath

from docker.errors import NotFound
from docker.models.containers import Container

from pipelines.core.errors import HostError
from pipelines.hosts.engine.refusals import telling

_LONGEST = 1 << 20


def read_file(container: Container, path: str, longest: int = _LONGEST) -> bytes | None:
    """What is in a file of at most so many bytes; ``None``: there is none.

    Raises :class:`HostError` for what is larger, or no file: what runs in the container can put
    anything there. Nothing is unpacked: the bytes of the archive's first file are taken.
    """
    what = f"{path} of container '{container.name}'"
    packed = bytearray()
    with telling(f"read {what}"):
        try:
            pieces, _ = container.get_archive(path)
        except NotFound:
            return None
        for piece in pieces:
            packed += piece
            if len(packed) > longest + 10240:  # with what tar puts around it
                raise HostError(f"{what} has more than {longest} bytes")
    try:
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as archive:
            member = archive.next()
            file = archive.extractfile(member) if member is not None and member.isreg() else None
            if file is not None:
                return file.read()
    except tarfile.TarError as error:  # it changed while it was packed
        raise HostError(f"{what} cannot be read: {error}") from error
    raise HostError(f"{what} is no file")


def put_files(container: Container, files: Mapping[str, bytes], *, owner: int = 0) -> None:
    """Write files of mode 0600, each in a directory of mode 0700, into a container.

    It need not run. Directories above the file's own must be there. Paths are the engine's:
    ``/run/wcw/winrm``, and ``/wcw/winrm`` for a file on drive C.
    """
    for path, data in files.items():
        place = PurePosixPath(path)
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as archive:
            folder = tarfile.TarInfo(place.parent.name)
            folder.type, folder.mode, folder.uid = tarfile.DIRTYPE, 0o700, owner
            archive.addfile(folder)
            member = tarfile.TarInfo(f"{place.parent.name}/{place.name}")
            member.size, member.mode, member.uid = len(data), 0o600, owner
            archive.addfile(member, io.BytesIO(data))
        with telling(f"put {path} into container '{container.name}'"):
            container.put_archive(str(place.parent.parent), made.getvalue())
