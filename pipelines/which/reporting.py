"""Everything that is looked at for one answer, put together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.which.causes import (
    Cause,
    against_torch,
    built_for,
    of_driver,
    of_python,
    of_torch,
)
from pipelines.which.children import run_child
from pipelines.which.choosing import Choice, choose
from pipelines.which.data import LOADER
from pipelines.which.devices import of_devices
from pipelines.which.listed import Row
from pipelines.which.loading import of_dlls
from pipelines.which.looking import (
    Driver,
    Installed,
    Place,
    Torch,
    ask_driver,
    installed,
    read_torch,
)
from pipelines.which.machine import Machine
from pipelines.which.packages import (
    binaries_of,
    of_copies,
    of_files,
    of_names,
    of_tags,
    of_this_python,
    python_files,
    stray,
)
from pipelines.which.searching import Shelf, adds_folders
from pipelines.which.texts import shown

#: Packages that are looked at whatever the index has.
KNOWN_PACKAGES = ("flash-attn", "xformers")
_LOAD_SECONDS = 180.0
_MOST_MODULES = 40


@dataclass(frozen=True)
class Package:
    """What came of one that is installed."""

    installed: Installed
    loads: bool | None
    """``None``: it was not tried."""
    errors: tuple[str, ...]
    """What its import said, or why it was not tried."""
    causes: tuple[Cause, ...]


@dataclass(frozen=True)
class Report:
    """The answer."""

    place: Place
    driver: Driver
    torch: Torch | None
    torch_installed: str
    """Its version as pip knows it; empty where it does not know one."""
    machine: Machine
    causes: tuple[Cause, ...]
    """Of the Python, the machine and torch."""
    packages: tuple[Package, ...]
    strays: tuple[str, ...]
    """Folders that are called like a package that is not installed."""
    choices: tuple[tuple[str, Choice], ...]
    """Of each project of the index that was asked for."""

    @property
    def good(self) -> bool:
        """Whether each project that was asked for loads, or has a wheel that fits."""
        names = {name for name, _ in self.choices} | {p.installed.project for p in self.packages}
        loads = {p.installed.project for p in self.packages if p.loads}
        fits = {name for name, choice in self.choices if choice.fits}
        return bool(names) and names <= loads | fits


def report(
    place: Place,
    rows: Sequence[Row],
    package: str = "",
    *,
    driver: Driver | None = None,
    load: bool = True,
) -> Report:
    """Look at a Python and at what is installed in it; ``load``: import it in another process."""
    driver = ask_driver(place) if driver is None else driver
    torch = read_torch(place)
    machine = Machine(
        platform=place.platform,
        python=place.python,
        torch=torch.version if torch else "",
        cuda=torch.cuda if torch else "",
        driver=driver.release,
        gpus=driver.gpus,
    )
    listed = sorted({row.project for row in rows})
    asked = [package] if package else list(dict.fromkeys([*KNOWN_PACKAGES, *listed]))
    shelf = Shelf(place, torch)
    packages, strays = [], []
    for name in asked:
        copies = installed(place, [name])
        if copies:
            packages.append(_package(shelf, copies, machine, load=load))
        elif at := stray(place, name):
            strays.append(at)
    torches = installed(place, ["torch"])
    return Report(
        place=place,
        driver=driver,
        torch=torch,
        torch_installed=torches[0].version if torches else "",
        machine=machine,
        causes=(*of_python(place, driver), *of_torch(place, torch), *of_driver(driver, torch)),
        packages=tuple(packages),
        strays=tuple(strays),
        choices=tuple((name, choose(rows, machine, name)) for name in listed if name in asked),
    )


def _package(shelf: Shelf, copies: Sequence[Installed], machine: Machine, *, load: bool) -> Package:
    own, place = copies[0], shelf.place
    paths, built = binaries_of(own), built_for(own)
    causes = [
        *of_files(own),
        *of_copies(place, copies),
        *of_names(place, own),
        *of_tags(place, own, paths),
        *against_torch(own, built, machine),
    ]
    windows = [one for one in paths if one.lower().endswith((".pyd", ".dll"))]
    if place.windows:
        adds = adds_folders(python_files(own))
        causes += of_dlls(shelf, of_this_python(place, windows), built, adds=adds)
    causes += of_devices(paths, machine.gpus, machine.driver)
    loads, errors = (None, ("its import was not tried",)) if not load else _load(shelf, own, paths)
    causes += [one for text in errors for one in _lacking_module(own, text)]
    breaking = sorted(causes, key=lambda one: not one.breaks)
    return Package(own, loads, tuple(errors), tuple(dict.fromkeys(breaking)))


def _load(shelf: Shelf, package: Installed, paths: Sequence[str]) -> tuple[bool | None, list[str]]:
    """Import it in a process of its own, where it may crash or hang."""
    main = package.project.replace("-", "_")
    words = ["torch"] if shelf.torch else []
    words += [main] if main in package.tops else [*package.tops[:1]]
    for path in paths:
        suffix = next((one for one in shelf.place.suffixes if path.endswith(one)), "")
        inside = os.path.relpath(path, package.folder)
        if not suffix:
            continue
        dotted = inside[: -len(suffix)].replace(os.sep, ".")
        words.append(dotted if _is_module(shelf, path, dotted) else path)
    command = [shelf.place.executable, "-c", LOADER, *dict.fromkeys(words[:_MOST_MODULES])]
    ended = run_child(command, _LOAD_SECONDS)
    errors = ended.told.get("errors")
    if isinstance(errors, dict):
        said = [f"{shown(name, 150)}: {shown(text, 400)}" for name, text in errors.items()]
        return not said, said
    why = ended.why or f"its process ended with {ended.code}"
    return False, [f"{shown(why)}: {shown(ended.output[-300:])}".rstrip(": ")]


def _is_module(shelf: Shelf, path: str, dotted: str) -> bool:
    """Whether a file has what Python calls, rather than being a library with that ending."""
    if not shelf.place.windows:
        return True
    image = shelf.read(path)
    if isinstance(image, str) or not image.whole:
        return True
    return f"PyInit_{dotted.rpartition('.')[2]}" in image.exports


def _lacking_module(package: Installed, error: str) -> list[Cause]:
    """A package that it requires, and that is not there."""
    name = error.partition("No module named ")[2].strip("'\" ").partition(".")[0].partition("'")[0]
    if "ModuleNotFoundError" not in error or not name or name in package.tops:
        return []
    if name == "torch" or not name.isidentifier():
        return []
    said = f"{package.project} imports {name}, which is not installed"
    return [Cause("missing-requirement", said, f"install {name} with pip, without replacing torch")]
