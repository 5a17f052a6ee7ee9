"""Small files of a container, read and written through its engine."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import PurePosixPath

from docker.errors import NotFound
from docker.models.containers import Container

from pipelines.core.errors import HostError
from pipelines.hosts.engine.error_patterns import engine_errors

_LONGEST = 1 << 20


def read_container_file(container: Container, path: str, longest: int = _LONGEST) -> bytes | None:
    """The contents of a file of limited size; ``None`` if it does not exist.

    Raises :class:`HostError` for a larger one or anything but a file: programs in the container
    can put anything there. Nothing is unpacked: only the archive's first file is read.
    """
    what = f"{path} of container '{container.name}'"
    packed = bytearray()
    with engine_errors(f"read {what}"):
        try:
            pieces, _ = container.get_archive(path)
        except NotFound:
            return None
        for piece in pieces:
            packed += piece
            if len(packed) > longest + 10240:  # including tar's overhead
                raise HostError(f"{what} is larger than {longest} bytes")
    try:
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as archive:
            member = archive.next()
            file = archive.extractfile(member) if member is not None and member.isreg() else None
            if file is not None:
                return file.read()
    except tarfile.TarError as error:  # it changed during packing
        raise HostError(f"{what} cannot be read: {error}") from error
    raise HostError(f"{what} is not a file")


def put_files(container: Container, files: Mapping[str, bytes], *, owner: int = 0) -> None:
    """Write files of mode 0600, each in a directory of mode 0700, into a container.

    It need not be running. The parent of each file's directory must exist. Paths are the engine's:
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
        with engine_errors(f"write {path} into container '{container.name}'"):
            container.put_archive(str(place.parent.parent), made.getvalue())
