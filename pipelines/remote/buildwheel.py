"""Calls a package's build system for a wheel: ``buildwheel.py SOURCE OUT`` (PEP 517).

A program of its own, run by the Python that builds, in its environment. It does what a front end
without isolation does, and some things more:

- Compile units that take long begin first. ninja starts them in the order in which they are written
  down, setuptools sorts them by name, and a build whose slow units come last leaves most cores idle
  at its end (ninja 1.13 takes no times into account).
- torch is imported through a link at one fixed place. Where its headers stand is in all that the
  preprocessor puts out, so units of another Python, with a torch of its own, would never be found
  in the compile cache; and ``__FILE__`` is in the wheel.
- Of its compile units a share may be compiled alone, or those of other hosts be linked: see
  :mod:`.shares.hook`, which lies beside this file then.
- For a reproducible build directories are listed by name. File systems have other orders, and what
  a ``glob`` in setup.py gives decides the order of objects in the link.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any, Protocol

#: A JSON list of globs on the names of sources: what takes longest first.
SLOW_FIRST = "WCW_SLOW_FIRST"
#: The release of CUDA that a CPU build of torch is taken to be for.
CPU_TORCH = "WCW_CPU_TORCH"
#: What torch's own build generates, and wheels without CUDA lack: those on which c10/cuda and
#: ATen/cuda stand. What else of NVIDIA's such a torch would have been built with nobody knows.
_GENERATED = {
    "c10/cuda/impl/cuda_cmake_macros.h": "#define C10_CUDA_BUILD_SHARED_LIBS\n",
    "ATen/cuda/CUDAConfig.h": "".join(
        f"#define AT_{name}_ENABLED() 0\n"
        for name in ("CUDNN", "CUSPARSELT", "HIPSPARSELT", "ROCM", "MAGMA")
    )
    + '#define NVCC_FLAGS_EXTRA ""\n',
}
#: Where the link is to be. There is nothing yet, and nobody else uses it.
PACKAGES = "WCW_PACKAGES"
#: A directory whose name is no job's, for what compilers may write down the place of.
FIXED = "WCW_FIXED"

#: A file with what :func:`.shares.hook.run` is to do.
UNITS = "WCW_UNITS"
#: Where back ends build that take a directory of a random name otherwise, from the source tree: of
#: another name the bytes are others, and nobody finds what was compiled when the build goes on.
_BUILD_DIRECTORY = "build/wheel"

_PATIENCE = 10.0  # seconds


class Backend(Protocol):
    """As much of PEP 517 as is called."""

    def build_wheel(
        self, wheel_directory: str, config_settings: dict[str, str] | None = None, /
    ) -> str:
        """Build; the wheel's name."""


def backend() -> tuple[str, Backend]:
    """The build backend of pyproject.toml and its name, or setuptools' as pip takes it without."""
    system: dict[str, Any] = {}
    if os.path.isfile("pyproject.toml"):  # noqa: PTH113
        try:
            toml = importlib.import_module("tomllib")
        except ImportError:  # Python 3.10
            toml = importlib.import_module("pip._vendor.tomli")
        with open("pyproject.toml", "rb") as file:  # noqa: PTH123
            system = toml.load(file).get("build-system", {})
    sys.path[:0] = [os.path.abspath(path) for path in system.get("backend-path", [])]  # noqa: PTH100
    name, _, inside = system.get("build-backend", "setuptools.build_meta:__legacy__").partition(":")
    found: Any = importlib.import_module(name)
    for part in filter(None, inside.split(".")):
        found = getattr(found, part)
    made: Backend = found
    return name, made


def rank(source: str, globs: list[str]) -> int:
    """The place of the first glob that fits the source's file name; after all, if none does."""
    name = source.replace("\\", "/").rpartition("/")[2]
    return next((n for n, glob in enumerate(globs) if fnmatch.fnmatchcase(name, glob)), len(globs))


def order_units(globs: list[str]) -> None:
    """Have torch write its ninja file in that order; a torch that works otherwise is left alone."""
    try:
        extension: Any = importlib.import_module("torch.utils.cpp_extension")
        write = extension._write_ninja_file
    except (ImportError, AttributeError):
        return

    @functools.wraps(write)
    def ordered(*arguments: object, **named: object) -> object:
        sources, objects = named.get("sources"), named.get("objects")
        if isinstance(sources, list) and isinstance(objects, list) and len(sources) == len(objects):
            pairs = sorted(zip(sources, objects), key=lambda pair: rank(pair[0], globs))  # noqa: B905
            named |= {"sources": [s for s, _ in pairs], "objects": [o for _, o in pairs]}
        return write(*arguments, **named)

    extension._write_ninja_file = ordered


def packages_at(place: str) -> None:
    """Have what is beside torch imported from ``place``, which becomes a link to it.

    Whoever named the place removes the link, when nothing runs any more that looks through it.
    """
    found = importlib.util.find_spec("torch")
    homes = found and found.submodule_search_locations
    if not homes:
        return
    home = os.path.realpath(os.path.dirname(homes[0]))  # noqa: PTH120
    paths = [place if os.path.realpath(path) == home else path for path in sys.path]
    try:
        if place not in paths:
            raise OSError(f"{home} is not in sys.path")  # noqa: TRY301
        _link(home, place)
        os.stat(os.path.join(place, "torch"))  # noqa: PTH116, PTH118
    except OSError as error:
        print(f"torch is compiled against where it is: {error}", flush=True)
    else:
        sys.path[:] = paths
        importlib.invalidate_caches()


def torch_with_cuda(cuda: str, folder: str) -> None:
    """Have torch.utils.cpp_extension take a CPU build of torch for one with ``cuda``.

    It then looks for CUDA_HOME as it does for any, and compilers find in ``folder`` the headers
    that such a wheel lacks. The wheel is left as it is. ``SystemExit`` if torch has CUDA.
    """
    torch: Any = importlib.import_module("torch")
    if torch.version.cuda is not None:
        found = f"torch {torch.__version__} is for CUDA {torch.version.cuda}"
        raise SystemExit(f"{found}: a CPU build was to be here")
    for name, text in _GENERATED.items():
        path = os.path.join(folder, name)  # noqa: PTH118
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        with open(path, "w", encoding="ascii") as file:  # noqa: PTH123
            file.write("#pragma once\n" + text)
    os.environ["INCLUDE"] = os.pathsep.join(filter(None, [folder, os.environ.get("INCLUDE")]))
    torch.version.cuda = cuda
    extension: Any = importlib.import_module("torch.utils.cpp_extension")
    extension.CUDA_HOME = os.environ["CUDA_HOME"]
    print(
        f"torch {torch.__version__} is a CPU build: it is taken for one with CUDA {cuda}, and "
        f"given {len(_GENERATED)} headers that its wheel lacks",
        flush=True,
    )


class _Listed:
    """What ``os.scandir`` gives, by name."""

    def __init__(self, path: Any) -> None:
        with _scandir(path) as found:
            self._entries = iter(sorted(found, key=lambda entry: entry.name))

    def __iter__(self) -> Iterator[Any]:
        return self._entries

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> _Listed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is open: all was read."""


_scandir, _listdir = os.scandir, os.listdir


def list_by_name() -> None:
    """Have this process list every directory by name, as os.walk and glob then do as well."""
    made: Any = os
    made.scandir = lambda path=".": _Listed(path)
    made.listdir = lambda path=".": sorted(_listdir(path))


def _link(home: str, place: str) -> None:
    if sys.platform != "win32":
        os.symlink(home, place)  # noqa: PTH211
        return
    import _winapi  # a symbolic link needs a privilege, a junction does not

    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            _winapi.CreateJunction(home, place)
        except PermissionError:  # a scanner looks at the directory that becomes the junction
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
            with contextlib.suppress(OSError):
                os.rmdir(place)  # noqa: PTH106
        else:
            return


def main(source: str, out: str) -> None:
    """Build; the wheel's name is printed last."""
    os.chdir(source)
    sys.argv[1:] = []  # setup.py reads them
    order = os.environ.pop(UNITS, "")
    divide = importlib.import_module("wcw_shares.hook").run if order else None
    sys.path[:1] = []  # where this file is
    if os.environ.get(FIXED):
        list_by_name()
    if place := os.environ.get(PACKAGES):
        packages_at(place)
    if cuda := os.environ.get(CPU_TORCH):
        folder = os.environ.get(FIXED) or os.path.dirname(out)  # noqa: PTH120
        torch_with_cuda(cuda, os.path.join(folder, "torch-headers"))  # noqa: PTH118
    if globs := json.loads(os.environ.get(SLOW_FIRST, "[]")):
        order_units(globs)
    if divide is not None:
        divide(order, source, out, build)
        return
    print("wheel:", build(out), flush=True)


def build(out: str) -> str:
    """Call the build system; the name of its wheel, which is in ``out``."""
    os.environ.setdefault("SKBUILD_BUILD_DIR", _BUILD_DIRECTORY)
    name, system = backend()
    if name == "mesonpy":
        return system.build_wheel(out, {"build-dir": _BUILD_DIRECTORY})
    return system.build_wheel(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
