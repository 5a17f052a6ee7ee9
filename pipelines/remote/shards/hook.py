"""Makes a build system compile one shard of its units, or link objects of other hosts.

PEP 517 back ends run in this process, and torch's BuildExtension, scikit-build-core, meson-python
and a setup.py that calls cmake start ninja from here, through ``subprocess``. Each start of ninja
is replaced by one with a manifest next to its own:

- *compile*: with an additional target, this shard. Programs that take objects after that, such as a
linker, are not started, and the resulting wheel is invalid: it is written to a scratch directory.
- *link*: the objects are copied into place, and their edges become phony. The rest is the usual
build. Afterwards each of them must be unchanged, and none may be in ninja's log again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable

from .compiling import Compile
from .division import DivisionError, replace
from .linking import Link


def run(order: str, source: str, out: str, build: Callable[[str], str]) -> None:
    """Build according to the file ``order``: ``build`` receives a directory for its wheel.

    The result is written to the order's ``report``. Raises :class:`DivisionError`, or what the
    build system raises; then ``out`` is empty, as after a shard.
    """
    with open(order, encoding="utf-8") as file:
        request = json.load(file)
    compiles = request["mode"] == "compile"
    division = Compile(request, source) if compiles else Link(request, source)
    scratch = request["scratch"]
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch)
    division.install()
    if not compiles:
        _relink(os.path.join(scratch, "setup.cfg"))
    try:
        wheel, report = _build_divided_wheel(division, build, scratch)
        if not compiles:
            replace(os.path.join(scratch, wheel), os.path.join(out, wheel))
            print("wheel:", wheel, flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    part = request["report"] + ".part"
    with open(part, "w", encoding="utf-8") as file:
        json.dump(report, file)
    replace(part, request["report"])


def _relink(path: str) -> None:
    """Make setuptools start ninja and the linker, regardless of earlier attempts' files."""
    if os.environ.setdefault("DIST_EXTRA_CONFIG", path) == path:
        with open(path, "w", encoding="ascii") as file:
            file.write("[build_ext]\nforce = 1\n")


def _build_divided_wheel(
    division: Compile | Link, build: Callable[[str], str], scratch: str
) -> tuple[str, dict[str, object]]:
    """The wheel in ``scratch``, and the result; raises if anything is wrong with them."""
    caught: BaseException | None = None
    wheel = ""
    try:
        wheel = build(scratch)
    except (Exception, SystemExit) as error:
        caught = error
        if isinstance(error, SystemExit) and not error.code:
            caught = DivisionError("the build system exited with 0 but built no wheel")
    if division.refused is not None:  # whatever the build system made of it
        raise division.refused
    return wheel, division.finish(caught)
