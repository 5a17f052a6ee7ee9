"""What can be wrong, in words; and what is wrong with a Python and its machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipelines.publish.which.data import CAUSES, KNOWN, TORCHES
from pipelines.publish.which.looking import Driver, Installed, Place, Torch, found_at
from pipelines.publish.which.machine import Machine
from pipelines.publish.which.texts import ascii_line, minor_of

# Without a dot only two digits are unambiguous: torch210 is 2.10 or 2.1.0, torch251 is 2.5.1.
_LOCAL_TORCH = re.compile(r"(?:torch|(?<![a-z])pt)\.?(\d)(?:\.(\d{1,2})|(\d))(?!\d)")
_LOCAL_CUDA = re.compile(r"(?<![a-z])cu(?:da)?(1\d)(?:\.?(\d))?(?!\d)")
# With a marker it may be required elsewhere alone, or of an extra.
_REQUIRED = re.compile(r"torch\s*\(?\s*==\s*(\d{1,2})\.(\d{1,3})(?=[.\d*+a-z]*\s*\)?\s*$)")
_TORCH_INDEX = "https://download.pytorch.org/whl/"


@dataclass(frozen=True)
class Finding:
    """Something that is wrong."""

    id: str
    """For programs, such as ``missing-dll``."""
    actual: str
    """With both sides, as far as there are two."""
    hint: str
    level: str = "error"
    """``error``: nothing works with it; ``warning``; ``unknown``: it could not be checked."""
    do: tuple[str, ...] = ()
    """Words for pip that change it; or ``ren``, a file and its new name."""

    @property
    def failed(self) -> bool:
        """Whether nothing works with it."""
        return self.level == "error"


def cause_finding(
    key: str, level: str = "", do: tuple[str, ...] = (), /, **said: object
) -> Finding:
    """A row of ``causes.yaml``, filled in; ``level`` where it is not the row's."""
    actual, hint, usual = CAUSES[key]
    words = actual.format(**said), hint.format(**said)
    return Finding(key.partition(".")[0], *words, level or usual, do)


@dataclass(frozen=True)
class Built:
    """What a package was built for, as far as it says so; empty where it does not."""

    torch: str = ""
    cuda: str = ""
    """Perhaps the major version alone, such as ``12``."""
    stable: bool = False
    """Whether it keeps to torch's stable ABI: then it is for every later torch as well."""
    any_cuda: bool = False
    """Whether CUDA's runtime is inside: then it is for a torch of any CUDA."""


def built_for(package: Installed) -> Built:
    """By its local version (``2.8.3+cu128torch2.8``) and what it requires."""
    local = package.version.lower().partition("+")[2]
    torch, cuda = _LOCAL_TORCH.search(local), _LOCAL_CUDA.search(local)
    required = [one for text in package.requires if (one := _REQUIRED.match(text))]
    release = torch or (required[0] if required else None)
    return Built(
        ".".join(filter(None, release.groups())) if release else "",
        ".".join(filter(None, cuda.groups())) if cuda else "",
    )


def python_findings(place: Place, driver: Driver) -> Iterator[Finding]:
    """A Python for which there are no such wheels."""
    if place.platform in ("win32", "linux_i686"):
        yield cause_finding("32-bit-python")
    if place.platform == "win_arm64":
        yield cause_finding("windows-on-arm", how="built for ARM64")
    if place.platform == "win_amd64" and driver.native:
        yield cause_finding("windows-on-arm", how="built for x64, on Windows for ARM64")


def driver_findings(driver: Driver, torch: Torch | None) -> Iterator[Finding]:
    """No driver, an old one, no GPU."""
    if not driver.release:
        yield cause_finding("no-driver", why=f" ({driver.trouble})" if driver.trouble else "")
        return
    if driver.trouble:
        yield cause_finding("driver-trouble", release=driver.release, trouble=driver.trouble)
    if not driver.gpus:
        hidden = "CUDA_VISIBLE_DEVICES" in os.environ
        yield cause_finding("no-gpu.hidden" if hidden else "no-gpu", release=driver.release)
    major = minor_of(torch.cuda)[0] if torch and torch.cuda else 0
    if torch and major > minor_of(driver.release)[0]:
        said = {"torch": torch.version, "cuda": torch.cuda, "driver": driver.release}
        yield cause_finding("old-driver", major=major, **said)


def is_release_of(said: str, own: str) -> bool:
    """Whether metadata speaks of the release that the files are.

    On PyPI the files of ``2.8.0+cpu``, or ``+cu128``, are in a wheel that is called ``2.8.0``.
    """
    both = said.partition("+"), own.partition("+")
    return both[0][0] == both[1][0] and (both[0][2] == both[1][2] or not all(b[2] for b in both))


def processor_findings(driver: Driver, torch: Torch | None) -> Iterator[Finding]:
    """A processor without instructions that torch has been compiled for."""
    hint, _, needs = KNOWN["torch"]
    if torch and needs in driver.missing:
        yield cause_finding("old-processor", needs=needs.upper(), hint=hint)


def torch_for(place: Place, driver: Driver, release: str = "") -> tuple[str, ...]:
    """What pip is given for a torch with CUDA that the driver runs; empty: none is known."""
    own, newest = minor_of(driver.release), (0, 0)
    for name, cudas, pythons in TORCHES if place.windows else ():
        fits = [one for one in map(minor_of, cudas) if one[0] <= own[0]]
        if place.python in pythons and minor_of(release or name) == minor_of(name):
            newest = max([one for one in fits if one <= own] or fits[:1] or [newest])
    local = "cu{}{}".format(*newest)
    line = f"torch=={release}+{local}" if release else "torch"
    return ("install", line, "--index-url", _TORCH_INDEX + local) if newest[0] else ()


def torch_findings(
    place: Place, torch: Torch | None, there: Sequence[Installed], driver: Driver
) -> Iterator[Finding]:
    """None, one without CUDA, half of one, two of them; ``there``: every installation of it."""
    if torch is None:
        at = found_at(place, "torch") or (there[0].info if there else "")
        do = () if at else torch_for(place, driver)
        yield cause_finding("broken-torch" if at else "no-torch", "", do, at=ascii_line(at))
        return
    if not torch.cuda:
        do = torch_for(place, driver, torch.version.partition("+")[0])
        yield cause_finding("cpu-torch", "", do, version=torch.version)
    if len(there) > 1:
        where = " and ".join(ascii_line(f"{one.version} in {one.folder}", 150) for one in there[:3])
        yield cause_finding("two-torches", where=where)
    elif there and not is_release_of(there[0].version, torch.version):
        yield cause_finding("torn-torch", version=torch.version, metadata=there[0].version)


def against_torch(package: Installed, built: Built, machine: Machine) -> Iterator[Finding]:
    """A package that was built for another torch or CUDA than is there."""
    wanted, there = minor_of(built.torch), minor_of(machine.torch)
    later = built.stable and there > wanted
    if built.torch and machine.torch and wanted != there and not later:
        yield cause_finding(
            "torch-mismatch", package=package.label, built=built.torch, torch=machine.torch
        )
    own, has = built.cuda.partition(".")[0], machine.cuda.partition(".")[0]
    if own and has and own != has and not built.any_cuda:
        yield cause_finding(
            "cuda-mismatch", package=package.label, built=built.cuda, cuda=machine.cuda
        )
