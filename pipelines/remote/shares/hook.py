"""Has a build system compile one share of its units, or link what other hosts have compiled.

PEP 517 back ends run in this process, and torch's BuildExtension, scikit-build-core, meson-python
and a setup.py that calls cmake start ninja from here, through ``subprocess``. There each start of
ninja becomes one of a manifest that lies beside its own:

- *compile*: with one more target, which is this share. What takes objects after that, such as a
  linker, is not started, and the wheel that comes of it is none: it is written where nobody looks.
- *link*: the objects are put where they belong, and their edges make nothing any more. The rest is
  the usual build. After it each of them must be what it was, and none may be in ninja's log anew.
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
    """Build what the file ``order`` says: ``build`` is given a directory for its wheel.

    The result goes to ``told`` of the order. :class:`DivisionError`, or what the build system
    raises, is what went wrong; then nothing is in ``out``, as after a share.
    """
    with open(order, encoding="utf-8") as file:
        asked = json.load(file)
    compiles = asked["mode"] == "compile"
    division = Compile(asked, source) if compiles else Link(asked, source)
    scratch = asked["scratch"]
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch)
    division.install()
    if not compiles:
        _link_anew(os.path.join(scratch, "setup.cfg"))
    try:
        wheel, told = _built(division, build, scratch)
        if not compiles:
            replace(os.path.join(scratch, wheel), os.path.join(out, wheel))
            print("wheel:", wheel, flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    part = asked["told"] + ".part"
    with open(part, "w", encoding="utf-8") as file:
        json.dump(told, file)
    replace(part, asked["told"])


def _link_anew(path: str) -> None:
    """Have setuptools start ninja and linker whatever an attempt before this one has left."""
    if os.environ.setdefault("DIST_EXTRA_CONFIG", path) == path:
        with open(path, "w", encoding="ascii") as file:
            file.write("[build_ext]\nforce = 1\n")


def _built(
    division: Compile | Link, build: Callable[[str], str], scratch: str
) -> tuple[str, dict[str, object]]:
    """What was written to ``scratch``, and the result; raises what speaks against them."""
    caught: BaseException | None = None
    wheel = ""
    try:
        wheel = build(scratch)
    except (Exception, SystemExit) as error:
        caught = error
        if isinstance(error, SystemExit) and not error.code:
            caught = DivisionError("the build system has left with exit code 0 and no wheel")
    if division.refused is not None:  # whatever the build system has made of it
        raise division.refused
    return wheel, division.finish(caught)
