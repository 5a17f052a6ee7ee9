"""What ``which`` knows from files of this project; in ``which.py`` these are constants."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pipelines.core.model import Dated, Model, Name, Text, read_data
from pipelines.core.versions import Release
from pipelines.plan.config.presets import load_presets
from pipelines.plan.matrix.torches import load_torches
from pipelines.wheels.libraries import library_table


class Known(Dated):
    """What helps with a package or DLL; what pip is given on Windows; instructions it needs."""

    hint: Text
    install: str = ""
    needs: str = ""


class Words(Model):
    """What is said of a cause, and its hint; they name what is filled in."""

    actual: Text
    hint: str | None = None
    level: Literal["error", "warning", "unknown"] = "error"


class _Causes(Model):
    fit: Text
    refuted: tuple[str, ...]
    causes: dict[str, Words]


class _File(Model):
    packages: dict[Name, Known]
    dlls: dict[str, Known]
    exits: dict[str, Text]
    mutex: Release


_SAID = read_data(Path(__file__).with_name("causes.yaml"), _Causes)
#: Of each cause: its words, its hint, its level.
CAUSES: dict[str, tuple[str, str, str]] = {
    key: (one.actual, _SAID.fit if one.hint is None else one.hint, one.level)
    for key, one in _SAID.causes.items()
}
FIT, REFUTED = _SAID.fit, _SAID.refuted
_FILE = read_data(Path(__file__).with_name("known.yaml"), _File)
#: Of each library of CUDA's: globs of its name, CUDA's major version, the project that has it.
CUDA_LIBRARIES: tuple[tuple[tuple[str, ...], str, str], ...] = tuple(
    (tuple(name for name in row.names if name.endswith(".dll")), row.cuda, row.project)
    for row in library_table().libraries
)
#: Globs of the DLLs that torch's own wheel has.
TORCH_LIBRARIES: tuple[str, ...] = library_table().torch
#: Of each preset: its name, what it is, the axes that it sets, the folder of its program, and what
#: is next to that folder.
PRESETS: tuple[tuple[str, str, tuple[tuple[str, str], ...], str, tuple[str, ...]], ...] = tuple(
    (name, one.says, tuple(one.axes.flags.items()), one.folder, one.siblings)
    for name, one in load_presets().items()
    if not one.refused
)
#: Of packages and DLLs the fields of :class:`Known`.
KNOWN: dict[str, tuple[str, str, str]] = {
    name: (one.hint, one.install, one.needs) for name, one in (_FILE.packages | _FILE.dlls).items()
}
EXITS, MUTEX = _FILE.exits, _FILE.mutex
#: Releases of torch, oldest first: for Windows its CUDA versions and its Pythons.
TORCHES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = tuple(
    (release, one.cuda, one.python) for release, one in load_torches().items()
)
#: Programs for processes of their own.
PROBE: str = Path(__file__).with_name("probe.py").read_text("utf-8")
LOADER: str = Path(__file__).with_name("loader.py").read_text("utf-8")
