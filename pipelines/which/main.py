"""The program ``which.py``: its words, its answer, and what installs if that is asked for."""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence

from pipelines.which.listed import CATALOGUE_NAME, Row, fetch_rows
from pipelines.which.looking import ask_driver, installed, read_torch, this_place
from pipelines.which.reporting import Report, machine_of, report
from pipelines.which.texts import RefusalError, project, shown
from pipelines.which.told import as_object, as_text, command_of, has_version, typed

#: Exit codes: a wheel was named or all loads; what was typed or the index is no good; neither.
GOOD, REFUSED, NOT_GOOD, INTERRUPTED = 0, 2, 9, 130
#: With these pip does not look at what is there, and would fetch torch anew.
_ASIDE = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_IGNORE_INSTALLED", "PIP_FORCE_REINSTALL")


def words() -> argparse.ArgumentParser:
    """Its command line."""
    made = argparse.ArgumentParser(
        prog="which.py",
        description="Which wheel of an index fits this Python, and why what is installed does not "
        "load. Nothing is installed unless --install is typed, and torch is never replaced.",
    )
    made.add_argument("--index", metavar="DIR|URL", help="the index (default: whence this file is)")
    made.add_argument("--package", metavar="NAME", help="this one alone")
    made.add_argument(
        "--for", dest="preset", metavar="NAME",
        help="say where this Python differs from the one that this program brings, such as comfyui",
    )  # fmt: skip
    made.add_argument(
        "--share", action="store_true", help="print one line about the machine: no names, no paths"
    )
    made.add_argument("--json", action="store_true", help="print one JSON object")
    made.add_argument("--no-load", action="store_true", help="import nothing, not even elsewhere")
    made.add_argument(
        "--install", action="store_true", help="run the command that is printed, and look again"
    )
    made.add_argument(
        "--mark", help=argparse.SUPPRESS
    )  # printed last: who ran it knows it is whole
    return made


def home(code_file: str) -> str:
    """The index that this file came from, a directory or an address; empty: it is not known.

    Where its text was fetched and compiled, that was under the name of its address.
    """
    if code_file.startswith(("https://", "http://127.0.0.1:")):
        return code_file.rpartition("/")[0] + "/"
    folder = os.path.dirname(os.path.abspath(code_file))
    return folder if os.path.isfile(os.path.join(folder, CATALOGUE_NAME)) else ""


def main(typed_words: Sequence[str], code_file: str) -> int:
    """Do it; the exit code."""
    options = words().parse_args(typed_words)
    for stream in (sys.stdout, sys.stderr):  # a terminal's code page may lack a letter of a path
        if isinstance(stream, io.TextIOWrapper):
            # Who runs this for its answer reads UTF-8.
            stream.reconfigure(encoding="utf-8" if options.mark else None)
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _do(options, code_file)
    except KeyboardInterrupt:
        print("which: interrupted", file=sys.stderr)
        return INTERRUPTED
    except RefusalError as error:
        print(f"which: {error.message}", file=sys.stderr)
        if error.advice:
            print(f"  {error.advice}", file=sys.stderr)
        return REFUSED
    if options.mark:
        print(options.mark)
    return code


def _do(options: argparse.Namespace, code_file: str) -> int:
    place = this_place()
    if options.share:
        driver = ask_driver(place)
        if driver.trouble:  # the line cannot say so, and would look like a machine without
            print(f"which: of the driver not all is known: {driver.trouble}", file=sys.stderr)
        torches = installed(place, ["torch"])
        print(machine_of(place, driver, read_torch(place), torches).line)
        return GOOD
    index = options.index or home(code_file)
    rows, base = fetch_rows(index) if index else ([], "")
    package = project(options.package or "")
    if options.package and index and package not in {row.project for row in rows}:
        print(f"The index has no {shown(options.package, 80)}.", file=sys.stderr)
    preset = options.preset or ""
    found = report(place, rows, package, load=not options.no_load, preset=preset)
    works = True
    if options.install:
        found, works = _install(found, rows, package, base, load=not options.no_load)
    if options.json:
        print(json.dumps(as_object(found, base), indent=1))
    else:
        print(as_text(found, base), end="")
    return GOOD if found.good and works else NOT_GOOD


def _install(
    found: Report, rows: Sequence[Row], package: str, base: str, *, load: bool
) -> tuple[Report, bool]:
    """Run the one command, and look again: the answer, and whether it is there and loads.

    Torch is as it was, or that is said.
    """
    fitting = [(name, one.fits) for name, one in found.choices if one.fits]
    if len(fitting) != 1:
        names = ", ".join(name for name, _ in fitting) or "none"
        raise RefusalError(
            f"--install: a wheel fits of {names}: expected one",
            "Say which with --package." if fitting else "Type it without --install: it says why.",
        )
    if not found.keeps_torch:
        raise RefusalError("--install: pip does not know of the torch that is there: it would be "
                           "replaced", "Install torch with pip first.")  # fmt: skip
    command = command_of(found, fitting[0][1], base)
    print(typed(command), file=sys.stderr, flush=True)
    kept = {name: text for name, text in os.environ.items() if name.upper() not in _ASIDE}
    code = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False, env=kept
    )
    if code.returncode:
        raise RefusalError(f"pip has ended with {code.returncode}: what it says stands above")
    if read_torch(found.place) != found.torch:
        raise RefusalError("torch is not the one that was there before", "Install it again.")
    name, best = fitting[0]
    preset = found.portable.preset if found.named and found.portable else ""
    again = report(found.place, rows, package, load=load, preset=preset)
    for one in again.packages:
        if one.installed.project == name and best and has_version(one, best.row):
            return again, one.loads is not False
    raise RefusalError(f"pip has ended well, and {shown(best.row.file if best else name)} is not "
                       "what this Python has", "Does a setting of pip's, such as target in "
                       "pip.ini, put it elsewhere?")  # fmt: skip
