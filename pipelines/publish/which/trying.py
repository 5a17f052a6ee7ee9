"""Whether a package can be imported, tried in a process of its own, where it may crash or hang."""

from __future__ import annotations

import os
from collections.abc import Sequence

from pipelines.publish.which.causes import Finding, cause_finding
from pipelines.publish.which.children import run_child
from pipelines.publish.which.data import EXITS, KNOWN, LOADER
from pipelines.publish.which.images import open_mapped
from pipelines.publish.which.looking import Installed, Place
from pipelines.publish.which.requiring import pip_line
from pipelines.publish.which.searching import Shelf
from pipelines.publish.which.texts import ascii_line
from pipelines.wheels.fatbin import find_bytes

_LOAD_SECONDS = 180.0
_MOST_MODULES = 40


def try_import(
    shelf: Shelf, package: Installed, paths: Sequence[str]
) -> tuple[bool | None, list[str]]:
    """Whether it loads, with what went wrong; ``None`` where not all of it was tried."""
    words = ["torch"] if shelf.torch and shelf.with_torch else []
    words.append(package.own[0])
    for path in paths:
        suffix = next((one for one in shelf.place.suffixes if path.endswith(one)), "")
        if suffix and not os.path.basename(path).startswith("lib"):
            inside = os.path.relpath(path, package.folder)
            dotted = inside[: -len(suffix)].replace(os.sep, ".")
            words.append(dotted if _is_module(shelf, path, dotted) else path)
    words = list(dict.fromkeys(words))
    command = [shelf.place.executable, "-c", LOADER, *words[:_MOST_MODULES]]
    ended = run_child(command, _LOAD_SECONDS)
    errors = ended.result.get("errors")
    if ended.code or not isinstance(errors, dict):
        code = f"0x{(ended.code or 0) & 0xFFFFFFFF:08X}"
        why = ended.why or f"its process exited with {ended.code}"
        why += f" ({code}: {EXITS[code]})" if code in EXITS else ""
        return False, [f"{ascii_line(why)}: {ascii_line(ended.output[-300:])}".rstrip(": ")]
    said = [f"{ascii_line(name, 150)}: {ascii_line(text, 400)}" for name, text in errors.items()]
    if not said and len(words) > _MOST_MODULES:
        return None, [f"{len(words) - _MOST_MODULES} of its {len(words)} modules were not tried"]
    return not said, said


def _is_module(shelf: Shelf, path: str, dotted: str) -> bool:
    """Whether a file has what Python calls, rather than being a library with that ending."""
    init = f"PyInit_{dotted.rpartition('.')[2]}"
    if not shelf.place.windows:
        try:
            with open_mapped(path) as data:
                return find_bytes(data, init.encode()) >= 0
        except OSError:
            return True
    image = shelf.read(path)
    return isinstance(image, str) or not image.whole or init in image.exports


def missing_module(place: Place, package: Installed, error: str) -> list[Finding]:
    """A package that it requires, and that is not there."""
    name = error.partition("No module named ")[2].strip("'\" ").partition(".")[0].partition("'")[0]
    if "ModuleNotFoundError" not in error or not name or name in package.tops:
        return []
    if name == "torch" or not name.isidentifier():
        return []
    if name.startswith(package.project.replace("-", "_") + "_"):  # no other package has that
        return [cause_finding("half-installed.part", package=package.label, name=name)]
    do = ("install", pip_line(place, name)) if name in KNOWN else ()
    return [
        cause_finding("missing-requirement.imported", "", do, project=package.project, name=name)
    ]
