"""Calls a package's build system for a wheel: ``buildwheel.py SOURCE OUT`` (PEP 517).

A separate program, run by the building Python in its environment. It does what a front end without
isolation does, plus:

- Slow compile units start first. ninja starts them in the order in which they are written,
setuptools sorts them by name, and a build whose slow units come last leaves most cores idle at its
end (ninja 1.13 does not consider durations).
- torch is imported through a link at one fixed path. Its headers' path is in all preprocessor
output, so units of another Python with its own torch would never be found in the compile cache; and
``__FILE__`` is in the wheel.
- A single shard of its compile units can be compiled, or those of other hosts linked: see
:mod:`.shards.hook`, which is then in this file's directory.
- For a reproducible build directories are listed by name. File systems have other orders, and the
result of a ``glob`` in setup.py determines the order of objects in the link.
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

#: A JSON list of globs on source names, slowest first.
SLOW_FIRST = "WCW_SLOW_FIRST"
#: The CUDA version to use a CPU build of torch with.
CPU_TORCH = "WCW_CPU_TORCH"
#: Headers that torch's own build generates and wheels without CUDA do not have: those included by
#: c10/cuda and ATen/cuda. Which other NVIDIA options such a torch would have is unknown.
_GENERATED = {
    "c10/cuda/impl/cuda_cmake_macros.h": "#define C10_CUDA_BUILD_SHARED_LIBS\n",
    "ATen/cuda/CUDAConfig.h": "".join(
        f"#define AT_{name}_ENABLED() 0\n"
        for name in ("CUDNN", "CUSPARSELT", "HIPSPARSELT", "ROCM", "MAGMA")
    )
    + '#define NVCC_FLAGS_EXTRA ""\n',
}
#: Path of the link. It does not exist yet and is not used by anything else.
PACKAGES = "WCW_PACKAGES"
#: A directory that no job uses, for paths that compilers embed.
FIXED = "WCW_FIXED"

#: A file with the input of :func:`.shards.hook.run`.
UNITS = "WCW_UNITS"
#: Build directories, below the source tree, of back ends that use a random name otherwise, which
#: changes the bytes and prevents a continued build from finding its compiled objects.
_BUILD_DIRECTORY = "build/wheel"

_PATIENCE = 10.0  # seconds


class Backend(Protocol):
    """The parts of PEP 517 that are called."""

    def build_wheel(
        self, wheel_directory: str, config_settings: dict[str, str] | None = None, /
    ) -> str:
        """Build; the wheel's name."""


def backend() -> tuple[str, Backend]:
    """The build backend of pyproject.toml and its name, or setuptools' like pip."""
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
    module: Any = importlib.import_module(name)
    for part in filter(None, inside.split(".")):
        module = getattr(module, part)
    made: Backend = module
    return name, made


def rank(source: str, globs: list[str]) -> int:
    """The index of the first glob matching the source's file name; the last if none does."""
    name = source.replace("\\", "/").rpartition("/")[2]
    return next((n for n, glob in enumerate(globs) if fnmatch.fnmatchcase(name, glob)), len(globs))


def order_units(globs: list[str]) -> None:
    """Have torch write its ninja file in that order; an unknown torch is left alone."""
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
    """Import torch's site-packages from ``place``, which becomes a link to it.

    The code that chose the path removes the link once nothing uses it any more.
    """
    torch_spec = importlib.util.find_spec("torch")
    homes = torch_spec and torch_spec.submodule_search_locations
    if not homes:
        return
    home = os.path.realpath(os.path.dirname(homes[0]))  # noqa: PTH120
    paths = [place if os.path.realpath(path) == home else path for path in sys.path]
    try:
        if place not in paths:
            raise OSError(f"{home} is not in sys.path")  # noqa: TRY301
        _create_directory_link(home, place)
        os.stat(os.path.join(place, "torch"))  # noqa: PTH116, PTH118
    except OSError as error:
        print(f"torch is used in its own location: {error}", flush=True)
    else:
        sys.path[:] = paths
        importlib.invalidate_caches()


def torch_with_cuda(cuda: str, folder: str) -> None:
    """Have torch.utils.cpp_extension use a CPU build of torch like one with ``cuda``.

    It then looks for CUDA_HOME as usual, and compilers find in ``folder`` the headers missing from
    such a wheel. The wheel is not changed. ``SystemExit`` if torch has CUDA.
    """
    torch: Any = importlib.import_module("torch")
    if torch.version.cuda is not None:
        description = f"torch {torch.__version__} is for CUDA {torch.version.cuda}"
        raise SystemExit(f"{description}, expected a CPU build")
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
        f"torch {torch.__version__} is a CPU build: used as one with CUDA {cuda}, with "
        f"{len(_GENERATED)} headers added that its wheel does not have",
        flush=True,
    )


class _Listed:
    """The result of ``os.scandir``, sorted by name."""

    def __init__(self, path: Any) -> None:
        with _scandir(path) as entries:
            self._entries = iter(sorted(entries, key=lambda entry: entry.name))

    def __iter__(self) -> Iterator[Any]:
        return self._entries

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> _Listed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Does nothing: everything was read."""


_scandir, _listdir = os.scandir, os.listdir


def list_by_name() -> None:
    """Have this process list every directory by name, including os.walk and glob."""
    made: Any = os
    made.scandir = lambda path=".": _Listed(path)
    made.listdir = lambda path=".": sorted(_listdir(path))


def _create_directory_link(home: str, place: str) -> None:
    if sys.platform != "win32":
        os.symlink(home, place)  # noqa: PTH211
        return
    import _winapi  # a symbolic link needs a privilege, a junction none

    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            _winapi.CreateJunction(home, place)
        except PermissionError:  # a scanner has the directory open
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
    sys.path[:1] = []  # the directory of this file
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
