"""Names of GPUs as architectures: ``RTX 40xx`` and ``NVIDIA A100-SXM4-80GB`` are 89 and 80.

``read`` takes everything that a user may write for ``--archs``: numbers, names and ``native``.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints

from pipelines.core.architectures.archs import KNOWN, ArchList, parse_arch_list
from pipelines.core.errors import ConfigError
from pipelines.core.model import Dated, Model, Regex, read_data

GPUS_FILE = Path(__file__).resolve().with_name("gpus.yaml")

_NOISE = re.compile(
    r"nvidia|geforce|tesla|laptop|mobile|(with )?max-?q( design)?|gpu|generation|edition|[\s_-]+"
)
#: As CMake writes them: 89-real, 89-virtual.
_CMAKE = re.compile(r"(\d+[af]?)-(real|virtual)", re.IGNORECASE)
_PTX = re.compile(r"\s*\+\s*ptx\s*$", re.IGNORECASE)
_LONGEST = 80


class Gpu(Model):
    """One line of the file."""

    show: str
    match: Regex
    capability: Annotated[str, StringConstraints(pattern=r"^\d{1,2}\.\d$")]

    @property
    def arch(self) -> str:
        """``8.9`` is ``89``."""
        return self.capability.replace(".", "")


class Gpus(Dated):
    """``gpus.yaml``."""

    gpus: Annotated[tuple[Gpu, ...], Field(min_length=1)]


def load_gpu_table(path: Path = GPUS_FILE) -> Gpus:
    """The file; :class:`ConfigError` names the key that is wrong."""
    return read_data(path, Gpus)


def arch_of(name: str) -> str | None:
    """The architecture of the GPU of that name, or ``None`` when the table has none."""
    bare = _NOISE.sub("", name[:_LONGEST].lower())
    for gpu in load_gpu_table().gpus:
        if re.fullmatch(gpu.match, bare):
            return gpu.arch
    return None


def parse_gpu_archs(text: str, native: tuple[str, ...] | None = None) -> ArchList:
    """What a user wrote for ``--archs``: ``89``, ``8.9+PTX``, ``RTX 40xx, 120+PTX``, ``native``.

    ``native`` are the compute capabilities of the host's GPUs (``8.9``); ``None`` when the
    host was not asked. Raises :class:`ConfigError` with the nearest valid entry.
    """
    if re.fullmatch(r"\s*\d,\d\s*", text):
        meant = text.strip().replace(",", ".")
        raise ConfigError(
            f"{text!r} is a list of two architectures", hint=f"For one GPU write {meant}."
        )
    numbers = []
    for part in filter(None, (piece.strip() for piece in re.split(r"[;,]", text))):
        if cmake := _CMAKE.fullmatch(part):
            numbers.append(("compute_" if cmake[2].lower() == "virtual" else "") + cmake[1])
            continue
        name = _PTX.sub("", part)
        tail = "+PTX" if name != part else ""
        if re.fullmatch(r"\d{4}( (ti|super))*", name, re.IGNORECASE):  # 4090
            name = f"RTX {name}"
        if name.lower() == "native":
            numbers += [f"{capability}{tail}" for capability in _native(native)]
        elif re.search(r"[a-z]{2,}|[a-z].*\s|^[a-z]\d", name, re.IGNORECASE) and not re.match(
            r"(?i)\s*(sm|compute)_?\d|\s*[\d.]+[af]?\+",
            name,  # a number, however it goes on
        ):
            numbers.append(_arch_of_gpu_name(name) + tail)
        else:
            numbers.append(part)
    return parse_arch_list(";".join(numbers))


def _native(native: tuple[str, ...] | None) -> tuple[str, ...]:
    if native is None:
        raise ConfigError(
            "'native' means the host's own GPUs, and the host was not asked",
            hint="Name the GPU or its architecture, such as 'RTX 4090' or 89; invoke plan asks "
            "the host with --ask.",
        )
    if not native:
        raise ConfigError(
            "'native' means the host's own GPUs, and it has none",
            hint="Name the GPU that the wheel is for, such as 'RTX 4090', or its number, 89.",
        )
    return tuple(dict.fromkeys(native))


def _arch_of_gpu_name(name: str) -> str:
    arch = arch_of(name)
    if arch is not None and arch in KNOWN:
        return arch
    shown = {gpu.show.lower(): gpu.show for gpu in load_gpu_table().gpus}
    near = difflib.get_close_matches(name.lower(), shown, n=1, cutoff=0.6)
    numbers = ", ".join(arch for arch in KNOWN if arch.isdigit())
    hint = f"the nearest known name is {shown[near[0]]}" if near else f"write one of {numbers}"
    raise ConfigError(
        f"GPU {name[:40]!r} is not known",
        hint=f"{hint}; nvidia-smi --query-gpu=compute_cap --format=csv prints the number",
    )
