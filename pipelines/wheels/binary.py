"""A binary of a wheel, and everything read from it while it is unpacked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath

from pipelines.wheels.devicecode import Reading, read_code, read_device_code_file
from pipelines.wheels.elf import PYTHON, python_references
from pipelines.wheels.fatbin import Data, Inventory, inventory
from pipelines.wheels.hostcode import read_host
from pipelines.wheels.pe import PeFacts, read_pe
from pipelines.wheels.traces import Traces, read_traces

_MODULES = (".pyd", ".so")
BINARIES = (*_MODULES, ".dll")


@dataclass(frozen=True)
class Binary:
    """A .pyd, .so or .dll with its device code; if ``pe`` is None, ``problem`` says why."""

    name: str
    inventory: Inventory
    pe: PeFacts | None = None
    problem: str = ""
    elf: tuple[str, ...] | None = None
    """Python symbols in a .so; only read in a wheel for every Python."""
    traces: Traces | None = None
    """Traces of the build machine; ``None``: it could not be read."""
    code: Reading = field(default_factory=Reading)
    """The result of reading each entry of its device code."""
    faults: tuple[str, ...] = ()
    """Why its code cannot run or find its device code; only checked for Windows."""

    @property
    def of_python(self) -> tuple[str, ...] | None:
        """DLLs and functions of Python in it; None: not checked."""
        if self.pe is not None:
            return (*(name for name in self.pe.imports if PYTHON.match(name)), *self.pe.inits)
        return self.elf

    @property
    def module(self) -> bool:
        """Whether Python itself imports it: a .pyd or .so."""
        return self.name.endswith(_MODULES)

    @property
    def init(self) -> str:
        """The function that Python calls on import: ``PyInit_`` and the name before the dot."""
        return f"PyInit_{PurePosixPath(self.name).name.partition('.')[0]}"


def read_alone(name: str, data: Data) -> Binary:
    """A file of device code: containers, or a single cubin or PTX."""
    code = inventory(data)
    read = read_code(data, code) if code.containers else read_device_code_file(name, data)
    return Binary(name, code, code=read)


def read_binary(name: str, data: Data, *, alone: bool) -> Binary:
    """Read any bytes; the result says what is wrong with them.

    ``alone``: the wheel's tags are for every Python.
    """
    code = inventory(data)
    read = read_code(data, code)
    if name.endswith(".so") and not alone:
        return Binary(name, code, code=read)
    try:
        if name.endswith(".so"):
            return Binary(name, code, elf=python_references(data), code=read)
        traces, pe = read_traces(data), read_pe(data)
        faults = tuple(read_host(data, pe, code, read.kernels))
        return Binary(name, code, pe=pe, traces=traces, code=read, faults=faults)
    # pefile raises PEFormatError on purpose and, on hostile files, others by accident.
    except Exception as error:
        return Binary(name, code, problem=f"not a readable binary: {error}", code=read)
