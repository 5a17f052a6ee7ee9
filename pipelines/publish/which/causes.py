"""What can be wrong, as it is told; and what of a Python and its machine is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipelines.publish.which.data import KNOWN, TORCHES
from pipelines.publish.which.looking import Driver, Installed, Place, Torch, found_at
from pipelines.publish.which.machine import Machine
from pipelines.publish.which.texts import minor_of, shown

# Without a dot there are two digits, or nobody knows: torch210 is 2.10 or 2.1.0, torch251 is 2.5.1.
_LOCAL_TORCH = re.compile(r"(?:torch|(?<![a-z])pt)\.?(\d)(?:\.(\d{1,2})|(\d))(?!\d)")
_LOCAL_CUDA = re.compile(r"(?<![a-z])cu(?:da)?(1\d)(?:\.?(\d))?(?!\d)")
# With a marker it may be required elsewhere alone, or of an extra.
_REQUIRED = re.compile(r"torch\s*\(?\s*==\s*(\d{1,2})\.(\d{1,3})(?=[.\d*+a-z]*\s*\)?\s*$)")
_TORCH_INDEX = "https://download.pytorch.org/whl/"
FIT = "install a wheel that fits; the command is below, if the index has one"


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


@dataclass(frozen=True)
class Built:
    """What a package was built for, as far as it says so; empty where it does not."""

    torch: str = ""
    cuda: str = ""
    """Perhaps the major version alone, such as ``12``."""
    stable: bool = False
    """Whether it keeps to torch's stable ABI: then it is for every later torch as well."""


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


def of_python(place: Place, driver: Driver) -> Iterator[Finding]:
    """A Python for which there are no such wheels."""
    if place.platform in ("win32", "linux_i686"):
        yield Finding(
            "32-bit-python",
            "this Python is a 32-bit one: there is neither torch nor a CUDA wheel for it",
            "install the 64-bit Python (Windows installer, 64-bit)",
        )
    if place.platform == "win_arm64" or (place.platform == "win_amd64" and driver.native):
        how = "an ARM64 one" if place.platform == "win_arm64" else "an x64 one on Windows for ARM64"
        yield Finding(
            "windows-on-arm",
            f"this Python is {how}: the driver's library there is not one for x64 programs",
            "use a PC with an x64 processor, or wheels that are built for ARM64",
        )


def of_driver(driver: Driver, torch: Torch | None) -> Iterator[Finding]:
    """No driver, an old one, no GPU."""
    if not driver.release:
        why = f" ({driver.trouble})" if driver.trouble else ""
        yield Finding(
            "no-driver",
            f"no NVIDIA driver can be reached{why}",
            "install NVIDIA's driver for the GPU and restart; in a virtual machine or a remote "
            "session the GPU has to be passed on",
        )
        return
    if driver.trouble:
        yield Finding(
            "driver-trouble",
            f"the driver is of CUDA {driver.release}, and programs cannot use it: {driver.trouble}",
            "install the driver anew and restart",
        )
    if not driver.gpus:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        yield Finding(
            "no-gpu",
            f"the driver (CUDA {driver.release}) shows no GPU"
            + ("; CUDA_VISIBLE_DEVICES is set" if hidden is not None else ""),
            "unset CUDA_VISIBLE_DEVICES"
            if hidden is not None
            else "see in the device manager if the GPU is there and on",
        )
    if torch and torch.cuda and minor_of(torch.cuda)[0] > minor_of(driver.release)[0]:
        yield Finding(
            "old-driver",
            f"torch {torch.version} is built with CUDA {torch.cuda}, and the driver is of CUDA "
            f"{driver.release}",
            f"install a driver of CUDA {minor_of(torch.cuda)[0]}.0 or newer",
        )


def is_release_of(said: str, own: str) -> bool:
    """Whether metadata speaks of the release that the files are.

    On PyPI the files of ``2.8.0+cpu``, or ``+cu128``, are in a wheel that is called ``2.8.0``.
    """
    both = said.partition("+"), own.partition("+")
    return both[0][0] == both[1][0] and (both[0][2] == both[1][2] or not all(b[2] for b in both))


def of_processor(driver: Driver, torch: Torch | None) -> Iterator[Finding]:
    """A processor without instructions that torch has been compiled for."""
    hint, _, needs = KNOWN["torch"]
    if torch and needs in driver.lacks:
        said = f"this processor, or virtual machine, has no {needs.upper()}, which torch uses"
        yield Finding("old-processor", said, hint)


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


def of_torch(
    place: Place, torch: Torch | None, there: Sequence[Installed], driver: Driver
) -> Iterator[Finding]:
    """None, one without CUDA, half of one, two of them; ``there``: every installation of it."""
    if torch is None:
        at = found_at(place, "torch")
        if there or at:
            yield Finding(
                "broken-torch",
                f"torch is not whole: {shown(at or there[0].info)} has no version.py that says "
                "what it is",
                "install torch again from PyTorch's index for its CUDA, with --force-reinstall",
            )
        else:
            yield Finding(
                "no-torch",
                "no torch is installed in this Python",
                "install torch with CUDA first; is this the Python that you use?",
                do=torch_for(place, driver),
            )
        return
    if not torch.cuda:
        yield Finding(
            "cpu-torch",
            f"torch {torch.version} is a build without CUDA: no GPU is used with it",
            "install the same release of torch with CUDA, from PyTorch's index for that CUDA",
            do=torch_for(place, driver, torch.version.partition("+")[0]),
        )
    said = {one.version for one in there}
    if len(there) > 1:
        where = " and ".join(shown(f"{one.version} in {one.folder}", 150) for one in there[:3])
        yield Finding(
            "two-torches",
            f"torch is installed more than once: {where}",
            "uninstall torch until pip says that there is none, and install it once",
            level="warning",
        )
    elif there and not any(is_release_of(one, torch.version) for one in said):
        yield Finding(
            "torn-torch",
            f"torch's files are of {torch.version}, and its metadata says {there[0].version}",
            "install torch again from PyTorch's index for its CUDA, with --force-reinstall",
        )


def against_torch(package: Installed, built: Built, machine: Machine) -> Iterator[Finding]:
    """A package that was built for another torch or CUDA than is there."""
    wanted, there = minor_of(built.torch), minor_of(machine.torch)
    later = built.stable and there > wanted
    if built.torch and machine.torch and wanted != there and not later:
        yield Finding(
            "torch-mismatch",
            f"{package.project} {package.version} was built for torch {built.torch}, and torch is "
            f"{machine.torch}",
            FIT,
        )
    own, has = built.cuda.partition(".")[0], machine.cuda.partition(".")[0]
    if own and has and own != has:
        yield Finding(
            "cuda-mismatch",
            f"{package.project} {package.version} was built with CUDA {built.cuda}, and torch with "
            f"CUDA {machine.cuda}",
            FIT,
        )
