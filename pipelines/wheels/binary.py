"""A binary of a wheel, and all that is read of it while it is unpacked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath

from pipelines.wheels.devicecode import Reading, read_code, read_file
from pipelines.wheels.elf import PYTHON, of_python
from pipelines.wheels.fatbin import Data, Inventory, inventory
from pipelines.wheels.hostcode import read_host
from pipelines.wheels.pe import PeFacts, read_pe
from pipelines.wheels.traces import Traces, read_traces

_MODULES = (".pyd", ".so")
BINARIES = (*_MODULES, ".dll")


@dataclass(frozen=True)
class Binary:
    """A .pyd, .so or .dll with its device code; ``pe`` is None where ``problem`` says why."""

    name: str
    inventory: Inventory
    pe: PeFacts | None = None
    problem: str = ""
    elf: tuple[str, ...] | None = None
    """What a .so has of Python; only looked at in a wheel for every Python."""
    traces: Traces | None = None
    """What it tells of the machine that built it; ``None``: it could not be read."""
    code: Reading = field(default_factory=Reading)
    """What a look at each entry of its device code has found."""
    faults: tuple[str, ...] = ()
    """Why its own code cannot run, or not find its device code; only looked at for Windows."""

    @property
    def of_python(self) -> tuple[str, ...] | None:
        """What it has of Python: DLLs, functions; None: nobody has looked, or could."""
        if self.pe is not None:
            return (*(one for one in self.pe.imports if PYTHON.match(one)), *self.pe.inits)
        return self.elf

    @property
    def module(self) -> bool:
        """Whether Python imports it (a .pyd or .so), and not another binary."""
        return self.name.endswith(_MODULES)

    @property
    def init(self) -> str:
        """The function that Python calls on import: ``PyInit_`` and the name before the dot."""
        return f"PyInit_{PurePosixPath(self.name).name.partition('.')[0]}"


def read_alone(name: str, data: Data) -> Binary:
    """A file of device code: of containers, or of one piece of it."""
    code = inventory(data)
    read = read_code(data, code) if code.containers else read_file(name, data)
    return Binary(name, code, code=read)


def read_binary(name: str, data: Data, *, alone: bool) -> Binary:
    """Whatever bytes these are: what is wrong with them is in it.

    ``alone``: the wheel says that nothing in it is for one Python.
    """
    code = inventory(data)
    read = read_code(data, code)
    if name.endswith(".so") and not alone:
        return Binary(name, code, code=read)
    try:
        if name.endswith(".so"):
            return Binary(name, code, elf=of_python(data), code=read)
        traces, pe = read_traces(data), read_pe(data)
        faults = tuple(read_host(data, pe, code, read.kernels))
        return Binary(name, code, pe=pe, traces=traces, code=read, faults=faults)
    # pefile raises PEFormatError on purpose and, on hostile files, others by accident.
    except Exception as error:
        return Binary(name, code, problem=f"no readable binary: {error}", code=read)
