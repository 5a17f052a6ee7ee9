"""Which device code of a file a GPU will use: a cubin as it is, PTX to be compiled, or none.

The driver's rule, container by container: a cubin runs on its own major version and on minor
versions not below its own; PTX is compiled for any GPU not older than it, at the first use.
``90a`` runs on 9.0 alone, ``100f`` within its family. Where a container holds neither, a call
of that unit ends in "no kernel image is available for execution on the device".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from fatbin import Container, Inventory, arch_key


@dataclass(frozen=True)
class Choice:
    """What the driver takes: ``kind`` is ``sass``, ``ptx`` or ``none``; ``arch`` like ``90a``."""

    kind: str
    arch: str = ""

    def __str__(self) -> str:
        if self.kind == "none":
            return "nothing"
        return f"{'sm' if self.kind == 'sass' else 'compiled from compute'}_{self.arch}"


def _split(arch: str) -> tuple[int, int, str]:
    number, suffix = arch_key(arch)
    return number // 10, number % 10, suffix


def _fits(arch: str, device: str, *, ptx: bool) -> bool:
    major, minor, suffix = _split(arch)
    own_major, own_minor, _ = _split(device)
    if suffix == "a":
        return (major, minor) == (own_major, own_minor)
    if ptx and not suffix:
        return (major, minor) <= (own_major, own_minor)
    return major == own_major and minor <= own_minor


def choose(sass: Iterable[str], ptx: Iterable[str], device: str) -> Choice:
    """What a GPU of architecture ``device`` (``"89"``) takes of these; the nearest one wins."""
    for kind, archs in (("sass", sass), ("ptx", ptx)):
        fitting = [arch for arch in archs if _fits(arch, device, ptx=kind == "ptx")]
        if fitting:
            return Choice(kind, max(fitting, key=arch_key))
    return Choice("none")


def used(containers: Iterable[Container], device: str) -> Counter[Choice]:
    """Choice -> in how many containers (compiled units) it is made."""
    return Counter(choose(each.sass, each.ptx, device) for each in containers)


@dataclass(frozen=True)
class Verdict:
    """``text`` for the report; at most one of ``failure`` and ``warning`` is not empty."""

    text: str
    failure: str = ""
    warning: str = ""


def judge(name: str, found: Inventory, gpu: str, device: str) -> Verdict:
    """What ``gpu`` of architecture ``device`` will run of the file ``name``.

    A failure when nothing in it runs there. A warning when PTX has to be compiled, or when some
    units have nothing for this GPU: that is wanted where a kernel is for one GPU alone.
    """
    counts = used(found.containers, device)
    total = sum(counts.values())
    text = ", ".join(f"{choice} in {n} of {total} units" for choice, n in counts.most_common())
    held = f"SASS for {_list(found.sass)}, PTX for {_list(found.ptx)}"
    if not total:
        return Verdict("no device code")
    kinds = {choice.kind for choice in counts}
    if kinds == {"none"}:
        return Verdict(text, failure=f"{name} has {held}: nothing that {gpu} (sm_{device}) can run")
    if "ptx" in kinds:
        why = f"{name} has {held}: the driver compiles PTX for {gpu} (sm_{device}) at the first use"
        return Verdict(text, warning=f"{why} ({text}), which can take minutes and be slower")
    if "none" in kinds:
        return Verdict(text, warning=f"some units of {name} have nothing for {gpu}: {text}")
    return Verdict(text)


def _list(archs: Iterable[str]) -> str:
    return " ".join(sorted(archs, key=arch_key)) or "none"
