"""The bridge's DLLs, compiled from ``source/`` by the compiler of the sandbox's own Windows.

They are kept in the cache by the hash of what they are made of, and appear there under their final
name by rename. ``files.json`` has their sha256: it is compared at each use, and what is not whole
is made anew.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pipelines.core.errors import HostError, StorageError
from pipelines.core.files import DISK_ERRNOS, sha256_of
from pipelines.hosts.sandbox import health
from pipelines.hosts.sandbox.bridge import compiling
from pipelines.hosts.sandbox.bridge.compiling import make
from pipelines.hosts.sandbox.bridge.elf import exported_functions
from pipelines.hosts.sandbox.bridge.files import listed
from pipelines.hosts.sandbox.image import image_key
from pipelines.hosts.sandbox.making import alone, scratch_for
from pipelines.hosts.sandbox.wine import Prefix
from pipelines.toolchain.lock import Cache

Step = Callable[[str], object]

#: The entry of the lock whose wheel has the run-time that Windows' display driver brings.
RUNTIME = "nvidia-cuda-runtime"
#: DLL -> the names pinned for it, what its functions begin with, one without which it is no driver.
_DLLS = {
    "nvcuda": ("cuda-names.txt", "cu", "cuInit"),
    "nvml": ("nvml-names.txt", "nvml", "nvmlInit_v2"),
}


def names(libraries: Sequence[Path]) -> dict[str, list[str]]:
    """DLL -> what it exports: the pinned names, and those of this machine's driver.

    ``libraries``: its libcuda.so.1 and libnvidia-ml.so.1, as far as they are there. Raises
    :class:`HostError` for one that is neither.
    """
    found = {
        dll: {*(compiling.SOURCE / pinned).read_text("ascii").split()}
        for dll, (pinned, _, _) in _DLLS.items()
    }
    for path in libraries:
        functions = exported_functions(path)
        dll = next((d for d, (_, _, essential) in _DLLS.items() if essential in functions), None)
        if dll is None:
            expected = " or ".join(essential for _, _, essential in _DLLS.values())
            raise HostError(
                f"{path} has {len(functions)} functions, but not {expected}: it is no library of "
                "NVIDIA's driver",
                hint="Install NVIDIA's driver for Linux: nvidia-smi should list the GPU.",
            )
        begin = _DLLS[dll][1]
        found[dll] |= {
            name for name in functions if re.fullmatch(rf"{begin}\w{{1,200}}", name, re.A)
        }
    return {dll: sorted(exported) for dll, exported in found.items()}


def built(prefix: Prefix, cache: Cache, libraries: Sequence[Path], step: Step) -> Path:
    """The directory of the bridge for this machine's driver, verified; made unless it is there.

    ``prefix`` lends its compiler; nothing may run in it, for it is started and ended. ``step`` is
    told when something is compiled. Raises :class:`HostError` for a library that is no driver's or
    a compiler that fails, :class:`StorageError` on a full disk, and what :meth:`Cache.fetch` does.
    """
    exports = names(libraries)
    health.check_files(prefix)
    target = cache.root / "bridges" / _key(cache, health.made_of(prefix), exports)
    with _storage_errors(target), alone(target):
        if listed(target) is None:
            step("compiling the GPU bridge")
            with scratch_for(target) as scratch:
                make(prefix, cache.fetch(RUNTIME), exports, scratch)
                scratch.rename(target)
    return target


def key(cache: Cache, python: str, libraries: Sequence[Path]) -> str:
    """The name of the directory of :func:`built` for a Windows of today with ``python``."""
    return _key(cache, image_key(cache, python), names(libraries))


def _key(cache: Cache, image: str, exports: Mapping[str, Sequence[str]]) -> str:
    """The hash of all inputs: the image that lends its compiler, sources, names, run-time."""
    digest = hashlib.sha256(image.encode())
    digest.update(cache.lock.tool(RUNTIME).sha256.encode())
    digest.update(json.dumps(exports).encode())
    for source in (Path(__file__), Path(compiling.__file__), *sorted(compiling.SOURCE.rglob("*"))):
        if source.is_file():
            digest.update(f"{source.name} {sha256_of(source)}".encode())
    return digest.hexdigest()[:16]


@contextmanager
def _storage_errors(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in DISK_ERRNOS:
            raise StorageError(
                f"cannot make the GPU bridge in {target.parent}: {error.strerror}",
                hint="It needs 20 MiB. Free some, or set XDG_CACHE_HOME to a larger disk.",
            ) from error
        raise
