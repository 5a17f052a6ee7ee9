"""Whether a package's machine code runs on the GPUs that are there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from pipelines.core.architectures.serving import number, serves, way
from pipelines.publish.which.causes import Finding, cause
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
            why = shown(error.strerror)
            yield cause("not-checked.gpu-code", name=shown(os.path.basename(path)), why=why)
            continue
        units += found.containers
        if not found.complete:
            yield cause("not-checked.some-gpu-code", name=shown(os.path.basename(path)))
    if not units:
        return
    code = sorted({arch for one in units for arch in one.sass}, key=number)
    ptx = sorted({arch for one in units for arch in one.ptx}, key=number)
    has = ", ".join([*code, *(f"{one} as PTX" for one in ptx)]) or "no GPU"
    for gpu in dict.fromkeys(gpus):
        arch = gpu.replace(".", "")
        without = [one for one in units if not way(one.sass, one.ptx, arch)]
        if len(without) == len(units):
            yield cause("wrong-gpu", code=has, gpu=gpu)
        elif without:
            yield cause("some-gpu-code", count=len(without), all=len(units), gpu=gpu)
        elif not any(serves(one, arch) for one in code):
            releases = [minor_of(one) for unit in units for one in unit.releases]
            newest = max(releases, default=(0, 0))
            if driver and newest > minor_of(driver):
                cuda = f"{newest[0]}.{newest[1]}"
                yield cause("old-driver.ptx", gpu=gpu, cuda=cuda, driver=driver)
