"""The wheel and this host fit together: each reason why not is a failed case of its own.

Judged by :mod:`smoke_facts` before any of these ran; a case here turns a judgement into a
result. Without a GPU the cases about one skip, and say so.
"""

from __future__ import annotations

from importlib.metadata import Distribution
from typing import Literal

import pytest
import smoke_suite
from smoke_batches import Record
from smoke_facts import Expected, Facts

#: By which a package says that it is made for a Python without the global lock.
_PROMISE = "Programming Language :: Python :: Free Threading"


def verdict(facts: Facts, name: str, *, gpu: bool = False) -> None:
    """Fail with the judgement called ``name``; skip without a GPU if it is about one."""
    if name in facts["failures"]:
        pytest.fail(facts["failures"][name], pytrace=False)
    if gpu and facts["gpu"]["skip"]:
        pytest.skip(facts["gpu"]["skip"])


def test_torch_is_there_and_has_cuda(facts: Facts, expected: Expected) -> None:
    """torch imports in a fresh interpreter, is a CUDA build, and sees the driver's GPUs."""
    verdict(facts, "torch")
    if smoke_suite.TORCH and expected.get("cpu_torch"):
        pytest.skip("this host takes a CPU build of torch, which imports: CUDA was not looked at")
    if not smoke_suite.TORCH:
        pytest.skip("this package does not use torch")


def test_package_imports_in_a_fresh_interpreter(facts: Facts) -> None:
    """A new Python imports the package and its extension: every DLL and symbol is found."""
    verdict(facts, "package")
    if facts["failed"]:
        pytest.skip(f"not tried: {facts['failed']}")


def test_import_leaves_the_global_lock_off(facts: Facts, installed: Distribution) -> None:
    """In a Python without the global lock it stays off, where the wheel's classifiers say so.

    One extension module that does not declare ``Py_MOD_GIL_NOT_USED`` switches it on for the whole
    process: https://docs.python.org/3/howto/free-threading-extensions.html
    """
    if not facts["lock"]:
        pytest.skip("this Python always has the global lock")
    if facts["failed"]:
        pytest.skip(f"not tried: {facts['failed']}")
    if facts["lock"] == "on":
        pytest.skip("the global lock was on before anything was imported")
    if not smoke_suite.MODULES:
        pytest.skip("the suite names no module to import")
    if facts["lock"] == "off":
        return
    said = f"the import of {facts['lock']} switched the global lock on"
    if facts["lock"] == "torch":
        pytest.skip(f"{said}, and it stays on")
    promises = [c for c in installed.metadata.get_all("Classifier") or [] if c.startswith(_PROMISE)]
    if not promises:
        pytest.skip(f"{said}; nothing in METADATA promises otherwise")
    pytest.fail(f"{said}; METADATA promises otherwise: {promises[0]}", pytrace=False)


def test_version_keeps_its_promise(facts: Facts) -> None:
    """torch and CUDA named in the version are the ones here."""
    verdict(facts, "promise")


def test_gpus_are_those_that_were_asked_for(facts: Facts, expected: Expected) -> None:
    """Where GPUs are asked for, these and no others are here, through a bridge or not."""
    verdict(facts, "gpu")
    if not expected.get("gpu", {}).get("asked"):
        pytest.skip("no GPU was asked for on this host")
    if facts["gpu"]["broken"]:
        pytest.fail(facts["gpu"]["broken"], pytrace=False)


def test_driver_knows_the_cuda_of_the_wheel(facts: Facts) -> None:
    """The driver answers and is not older than the CUDA the wheel was built with."""
    verdict(facts, "driver", gpu=True)


def test_device_code_for_every_gpu(facts: Facts, record_property: Record) -> None:
    """Every GPU here finds code it can run: a cubin, or PTX that is compiled (a warning)."""
    for number, text in enumerate(facts["warnings"], 1):
        record_property(f"warning{number}", text)
    verdict(facts, "image", gpu=True)
    if not facts["units"]:
        pytest.skip("no file of this package holds device code")


def test_promised_architectures_are_inside(facts: Facts, expected: Expected) -> None:
    """The files together carry the machine code and the PTX that were ordered."""
    wanted: dict[Literal["sass", "ptx"], set[str]]
    wanted = {"sass": set(expected.get("archs") or ()), "ptx": set(expected.get("ptx") or ())}
    if not any(wanted.values()):
        pytest.skip("which architectures were ordered is not known")
    for kind, archs in wanted.items():
        found = {arch for unit in facts["units"].values() for arch in unit[kind]}
        assert archs <= found, f"{kind} ordered for {sorted(archs)}, found for {sorted(found)}"
