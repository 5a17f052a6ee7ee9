"""Whether a package's machine code runs on the GPUs that are there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from pipelines.core.architectures.serving import arch_number, code_runs_on, runnable_code_kind
from pipelines.publish.which.causes import Finding, cause_finding
from pipelines.publish.which.images import read_device_code
from pipelines.publish.which.texts import ascii_line, minor_of
from pipelines.wheels.fatbin import Container


def device_findings(paths: Sequence[str], gpus: Sequence[str], driver: str) -> Iterator[Finding]:
    """A GPU for which none of the binaries has code, or only some of their parts."""
    units: list[Container] = []
    paths = paths if gpus else ()
    for path in paths:
        try:
            found = read_device_code(path)
        except OSError as error:
            why = ascii_line(error.strerror)
            yield cause_finding(
                "not-checked.gpu-code", name=ascii_line(os.path.basename(path)), why=why
            )
            continue
        units += found.containers
        if not found.complete:
            yield cause_finding(
                "not-checked.some-gpu-code", name=ascii_line(os.path.basename(path))
            )
    if not units:
        return
    code = sorted({arch for one in units for arch in one.sass}, key=arch_number)
    ptx = sorted({arch for one in units for arch in one.ptx}, key=arch_number)
    has = ", ".join([*code, *(f"{one} as PTX" for one in ptx)]) or "no GPU"
    for gpu in dict.fromkeys(gpus):
        arch = gpu.replace(".", "")
        without = [one for one in units if not runnable_code_kind(one.sass, one.ptx, arch)]
        if len(without) == len(units):
            yield cause_finding("wrong-gpu", code=has, gpu=gpu)
        elif without:
            yield cause_finding("some-gpu-code", count=len(without), all=len(units), gpu=gpu)
        elif not any(code_runs_on(one, arch) for one in code):
            releases = [minor_of(one) for unit in units for one in unit.releases]
            newest = max(releases, default=(0, 0))
            if driver and newest > minor_of(driver):
                cuda = f"{newest[0]}.{newest[1]}"
                yield cause_finding("old-driver.ptx", gpu=gpu, cuda=cuda, driver=driver)
