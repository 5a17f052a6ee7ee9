"""What ``which`` knows from files of this project; in ``which.py`` these are constants."""

from __future__ import annotations

from pathlib import Path

from pipelines.config.presets import load_presets
from pipelines.wheels.libraries import table

#: Of each library of CUDA's: globs of its name, CUDA's major version, the project that has it.
CUDA_LIBRARIES: tuple[tuple[tuple[str, ...], str, str], ...] = tuple(
    (tuple(name for name in row.names if name.endswith(".dll")), row.cuda, row.project)
    for row in table().libraries
)
#: Globs of the DLLs that torch's own wheel has.
TORCH_LIBRARIES: tuple[str, ...] = table().torch
#: Of each preset: its name, what it is, the axes that it sets, the folder that its program lies in,
#: what lies beside that folder.
PRESETS: tuple[tuple[str, str, tuple[tuple[str, str], ...], str, tuple[str, ...]], ...] = tuple(
    (name, one.says, tuple(one.axes.told.items()), one.folder, one.beside)
    for name, one in load_presets().items()
    if not one.refused
)
#: Programs for processes of their own.
PROBE: str = Path(__file__).with_name("probe.py").read_text("utf-8")
LOADER: str = Path(__file__).with_name("loader.py").read_text("utf-8")
