"""Small files of a container, through its engine: a way that needs no trust of ours."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import PurePosixPath

from docker.errors import NotFound
from docker.models.containers import Container

from pipelines.errors import HostError
from pipelines.hosts.engine.refusals import telling

_LONGEST = 1 << 20


def read_file(container: Container, path: str) -> bytes | None:
    """What is in a file of at most 1 MiB; ``None``: there is none.

    Raises :class:`HostError` for what is larger, or no file.
    """
    with telling(f"read {path} of container '{container.name}'"):
        try:
            stream, _ = container.get_archive(path)
        except NotFound:
            return None
        packed = bytearray()
        for piece in stream:
            packed += piece
            if len(packed) > _LONGEST + 10240:  # and what tar puts around it
                raise HostError(f"{path} of container '{container.name}' is larger than 1 MiB")
        try:
            with tarfile.open(fileobj=io.BytesIO(bytes(packed)), mode="r:") as archive:
                member = archive.next()
                file = archive.extractfile(member) if member is not None else None
                if member is not None and member.isreg() and file is not None:
                    return file.read()
        except tarfile.TarError as error:
            raise HostError(
                f"{path} of container '{container.name}': the engine sent no archive: {error}"
            ) from error
    raise HostError(f"{path} of container '{container.name}' is no file")


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
