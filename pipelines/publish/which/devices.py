"""Whether a package's machine code runs on the GPUs that are there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from pipelines.core.architectures.serving import number, serves
from pipelines.publish.which.causes import FIT, Finding
from pipelines.publish.which.images import device_code
from pipelines.publish.which.texts import minor_of, shown
from pipelines.wheels.fatbin import Container


def of_devices(paths: Sequence[str], gpus: Sequence[str], driver: str) -> Iterator[Finding]:
    """A GPU for which none of the binaries has code, or only some of their parts."""
    units: list[Container] = []
    paths = paths if gpus else ()
    for path in paths:
        try:
            found = device_code(path)
        except OSError as error:
            said = f"{shown(os.path.basename(path))}: {shown(error.strerror)}"
            yield Finding("not-checked", f"GPU code is not checked: {said}", "", level="unknown")
            continue
        units += found.containers
        if not found.complete:
            said = f"not all GPU code of {shown(os.path.basename(path))} was looked at"
            yield Finding("not-checked", said, "", level="unknown")
    if not units:
        return
    code = sorted({arch for one in units for arch in one.sass}, key=number)
    ptx = sorted({arch for one in units for arch in one.ptx}, key=number)
    has = ", ".join([*code, *(f"{one} as PTX" for one in ptx)]) or "no GPU"
    for gpu in dict.fromkeys(gpus):
        arch = gpu.replace(".", "")
        without = [one for one in units if not _runs(one, arch)]
        if len(without) == len(units):
            yield Finding(
                "wrong-gpu",
                f"it has code for {has}, and the GPU has compute capability {gpu}: "
                "its calls end in 'no kernel image is available'",
                FIT,
            )
        elif without:
            yield Finding(
                "some-gpu-code",
                f"{len(without)} of its {len(units)} parts have no code for a GPU of {gpu}",
                "calls of those parts end in 'no kernel image is available'",
                level="warning",
            )
        elif not any(serves(one, arch) for one in code):
            releases = [minor_of(one) for unit in units for one in unit.releases]
            newest = max(releases, default=(0, 0))
            if driver and newest > minor_of(driver):
                yield Finding(
                    "old-driver",
                    f"for a GPU of {gpu} it has PTX alone, of CUDA {newest[0]}.{newest[1]}, "
                    f"and the driver is of CUDA {driver}",
                    f"install a driver of CUDA {newest[0]}.{newest[1]} or newer",
                )


def _runs(unit: Container, arch: str) -> bool:
    return any(serves(one, arch) for one in unit.sass) or any(
        serves(one, arch, ptx=True) for one in unit.ptx
    )
