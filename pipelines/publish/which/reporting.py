"""Everything that is looked at for one answer, put together."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pipelines.core.architectures.serving import is_of_toolkit
from pipelines.publish.which.causes import (
    Built,
    Finding,
    against_torch,
    built_for,
    driver_findings,
    is_release_of,
    processor_findings,
    python_findings,
    torch_findings,
)
from pipelines.publish.which.choosing import Judged, choose_wheel
from pipelines.publish.which.data import REFUTED
from pipelines.publish.which.devices import device_findings
from pipelines.publish.which.listed import Row
from pipelines.publish.which.loading import dll_findings
from pipelines.publish.which.looking import (
    Driver,
    Installed,
    Place,
    Torch,
    ask_driver,
    find_installed,
    read_torch,
)
from pipelines.publish.which.machine import Machine
from pipelines.publish.which.packages import (
    binaries_of,
    content_findings,
    copy_findings,
    file_findings,
    find_stray_folder,
    name_findings,
    package_uses_torch,
    paths_of_this_python,
    python_text,
    tag_findings,
)
from pipelines.publish.which.portable import Portable, match_portable_preset
from pipelines.publish.which.requiring import needed_by, requirement_findings
from pipelines.publish.which.searching import Shelf
from pipelines.publish.which.texts import version_key
from pipelines.publish.which.trying import missing_module, try_import

#: Packages that are looked at whatever the index has.
KNOWN_PACKAGES = ("flash-attn", "xformers")
_STABLE = ("aoti_torch_", "torch_")  # the beginnings of its names, in C


@dataclass(frozen=True)
class Package:
    """What came of one that is installed."""

    installed: Installed
    loads: bool | None
    """``None``: it was not tried."""
    errors: tuple[str, ...]
    """What its import said, or why it was not tried."""
    findings: tuple[Finding, ...]
    partly: bool = False
    """Whether it can be imported itself, and some of its extension modules cannot."""


@dataclass(frozen=True)
class Report:
    """The answer."""

    place: Place
    driver: Driver
    torch: Torch | None
    torch_installed: str
    """Its version as pip knows it; empty where it does not know one, or it is none."""
    machine: Machine
    findings: tuple[Finding, ...]
    """Of the Python, the machine and torch."""
    packages: tuple[Package, ...]
    strays: tuple[str, ...]
    """Folders that are called like a package that is not installed."""
    absent: tuple[str, ...]
    """Packages that were named and are not installed."""
    choices: tuple[Judged, ...]
    """Of each project of the index that was asked for its best wheel."""
    portable: Portable | None = None
    """The program whose own Python it is, or was said to be."""
    named: bool = False
    """Whether that was said."""

    @property
    def keeps_torch(self) -> bool:
        """Whether a command can name torch so that pip leaves it as it is."""
        if self.torch is None:
            return True
        return is_release_of(self.torch_installed, self.torch.version)

    @property
    def good(self) -> bool:
        """Whether each project that was asked for works, by all that is known, or has a wheel.

        Not of a Python that is another than it was said to be.
        """
        if self.named and self.portable and self.portable.differs:
            return False
        names = {p.installed.project for p in self.packages} | {
            one.row.project for one in self.choices
        }
        whole = not any(one.failed for one in self.findings)
        loads = {
            one.installed.project
            for one in self.packages
            if whole and one.loads and not any(finding.failed for finding in one.findings)
        }
        fits = {one.row.project for one in self.choices if one.fits}
        return bool(names) and names <= loads | fits


def build_report(
    place: Place,
    rows: Sequence[Row],
    package: str = "",
    *,
    driver: Driver | None = None,
    load: bool = True,
    preset: str = "",
) -> Report:
    """Look at a Python and at what is installed in it; ``load``: import it in another process.

    ``preset``: the program whose Python it is said to be.
    """
    driver = ask_driver(place) if driver is None else driver
    torch, torches = read_torch(place), find_installed(place, ["torch"])
    machine = describe_machine(place, driver, torch, torches)
    listed = sorted({row.project for row in rows})
    asked = [package] if package else list(dict.fromkeys([*KNOWN_PACKAGES, *listed]))
    shelf = Shelf(place, torch)
    packages, strays = [], []
    there = find_installed(place, asked)
    for name in asked:
        copies = [one for one in there if one.project == name]
        if copies:
            compiled = any(row.project == name and "any" not in row.tags[0] for row in rows)
            packages.append(_inspect_package(shelf, copies, machine, load=load, compiled=compiled))
        elif at := find_stray_folder(place, name):
            strays.append(at)
    packages += _beneath(shelf, torches, packages, machine, load)
    return Report(
        place=place,
        driver=driver,
        torch=torch,
        torch_installed=_installed_torch_version(torches),
        machine=machine,
        findings=(
            *python_findings(place, driver),
            *torch_findings(place, torch, torches, driver),
            *driver_findings(driver, torch),
            *processor_findings(driver, torch),
        ),
        packages=tuple(packages),
        strays=tuple(strays),
        absent=(package,) if package and package not in {one.project for one in there} else (),
        portable=match_portable_preset(place, machine, preset),
        named=bool(preset),
        choices=tuple(
            filter(None, (choose_wheel(rows, machine, name) for name in listed if name in asked))
        ),
    )


def _installed_torch_version(torches: Sequence[Installed]) -> str:
    """What METADATA says, if it is a version: it becomes a word of a command."""
    try:
        version_key(torches[0].version)
    except (IndexError, ValueError):
        return ""
    return torches[0].version


def describe_machine(
    place: Place, driver: Driver, torch: Torch | None, torches: Sequence[Installed]
) -> Machine:
    """What of a Python and its driver decides which wheel fits."""
    return Machine(
        platform=place.platform,
        python=place.python,
        torch=_pip_torch_version(torch, torches),
        cuda=torch.cuda if torch else "",
        driver=driver.release,
        gpus=driver.gpus,
    )


def _pip_torch_version(torch: Torch | None, torches: Sequence[Installed]) -> str:
    """Its version as pip knows it, which it has to be named by to be kept.

    PyPI's wheels of torch have ``2.11.0`` there and ``2.11.0+cu130`` in their files.
    """
    if torch is None:
        return ""
    known = torches[0].version if torches else ""
    return known if known == torch.version.partition("+")[0] else torch.version


def _beneath(
    shelf: Shelf,
    torches: Sequence[Installed],
    packages: list[Package],
    machine: Machine,
    load: bool,
) -> Iterator[Package]:
    """torch, and what is required by what does not load, as far as something is wrong there."""
    asked = [one.installed.project for one in packages]
    failing = [one.installed for one in packages if not one.loads]
    first = torches[:1] if len(failing) == len(packages) else []
    for one in dict.fromkeys([*first, *needed_by(shelf.place, failing)]):
        copies = torches if one.project == "torch" else [one]
        if one.project not in asked and (copies is torches or binaries_of(one)):
            own = _inspect_package(
                shelf, copies, replace(machine, gpus=()), load=load and copies is torches
            )
            if own.loads is False or any(finding.failed for finding in own.findings):
                yield own


def _inspect_package(
    shelf: Shelf,
    copies: Sequence[Installed],
    machine: Machine,
    *,
    load: bool,
    compiled: bool = False,
) -> Package:
    own, place = copies[0], shelf.place
    paths = binaries_of(own)
    read = [shelf.read(one) for one in paths if place.windows]
    libraries = [name for one in read if not isinstance(one, str) for name in one.libraries]
    shelf.text, shelf.with_torch = python_text(own), package_uses_torch(own, libraries)
    stable, any_cuda = _abi_of(shelf, paths)
    built = replace(built_for(own), stable=stable, any_cuda=any_cuda)
    findings = [
        *file_findings(own),
        *copy_findings(place, copies),
        *name_findings(place, own),
        *tag_findings(place, own, paths),
        *content_findings(own, compiled=compiled),
        *requirement_findings(place, own),
        *(against_torch(own, built, machine) if shelf.with_torch else ()),
    ]
    if place.windows:
        findings += _of_binaries(shelf, paths, built)
    findings += device_findings(paths, machine.gpus, machine.driver)
    loads, errors = try_import(shelf, own, paths) if load else (None, ["its import was not tried"])
    findings += [one for text in errors for one in missing_module(place, own, text)]
    if loads and any(one.id == "shadowed" for one in findings):
        loads, errors = False, ["something else with the same name was imported"]
    if loads:  # then these are no reasons why it does not
        findings = [
            replace(one, level="warning") if one.failed and one.id in REFUTED else one
            for one in findings
        ]
    breaking = sorted(findings, key=lambda one: not one.failed)
    inside = (f"{own.own[0]}.", own.folder)
    partly = loads is False and all(text.startswith(inside) for text in errors)
    return Package(own, loads, tuple(errors), tuple(dict.fromkeys(breaking)), partly)


def _abi_of(shelf: Shelf, paths: Sequence[str]) -> tuple[bool, bool]:
    """Whether its modules want only the stable ABI of torch; and then, no DLL of CUDA's toolkit."""
    modules = [one for one in paths if one.lower().endswith(".pyd")]
    read = [shelf.read(one) for one in modules if shelf.place.windows]
    needs = [need for one in read if not isinstance(one, str) for need in (*one.needs, *one.late)]
    wanted = [name for library, name in needs if library.startswith(("torch", "c10"))]
    whole = not any(isinstance(one, str) for one in read)
    stable = bool(wanted) and whole and all(name.startswith(_STABLE) for name in wanted)
    return stable, stable and not any(is_of_toolkit(library) for library, _ in needs)


def _of_binaries(shelf: Shelf, paths: Sequence[str], built: Built) -> Iterator[Finding]:
    """Of extension modules and what these want; DLLs that are loaded by hand may be for others."""
    modules = [
        one for one in paths_of_this_python(shelf.place, paths) if one.lower().endswith(".pyd")
    ]
    others = [one for one in paths if one.lower().endswith(".dll")]
    shelf.brought = {os.path.basename(one).lower(): one for one in others}
    seen = set(modules)
    yield from dll_findings(shelf, modules, built, seen=seen)
    # Of those that differ by a number, such as CUDA's version, a package loads the one that fits.
    alike: dict[str, list[list[Finding]]] = {}
    for path in (one for one in others if one not in seen):
        kind = re.sub(r"\d+", "#", os.path.basename(path).lower())
        alike.setdefault(kind, []).append([*dll_findings(shelf, [path], built)])
    by_hand = [
        *dict.fromkeys(f for group in alike.values() if all(group) for f in min(group, key=len))
    ]
    if not modules or any(map(shelf.is_torchs, others)):  # torch loads all that it has
        yield from by_hand
        return
    for finding in by_hand[:1]:
        more = f" (and {len(by_hand) - 1} more like it)" if len(by_hand) > 1 else ""
        said = f"in a DLL that it loads by itself, if at all: {finding.actual}{more}"
        yield replace(finding, actual=said, level="warning")
