"""The program ``which.py``: its words and its answer."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence

from pipelines.publish.which.answer import as_object, as_text
from pipelines.publish.which.listed import CATALOGUE_NAME, fetch_rows
from pipelines.publish.which.looking import ask_driver, find_installed, read_torch, this_place
from pipelines.publish.which.reporting import build_report, describe_machine
from pipelines.publish.which.texts import RefusalError, ascii_line, normalize_project

#: Exit codes: a wheel was named or all loads; what was typed or the index is no good; neither.
GOOD, REFUSED, NOT_GOOD, INTERRUPTED = 0, 2, 9, 130


def make_parser() -> argparse.ArgumentParser:
    """Its command line."""
    made = argparse.ArgumentParser(
        prog="which.py",
        description="Find the wheel of an index that fits this Python, and explain why an "
        "installed one does not load. It prints the install command, but does not run it.",
    )
    made.add_argument("--index", metavar="DIR|URL", help="the index (default: this file's own)")
    made.add_argument("--catalogue", metavar="FILE", help="a saved copy of its catalogue.json")
    made.add_argument("--package", metavar="NAME", help="only this package")
    made.add_argument(
        "--for", dest="preset", metavar="NAME",
        help="show how this Python differs from that of a program such as comfyui",
    )  # fmt: skip
    made.add_argument(
        "--share", action="store_true", help="print one line about this machine, no names or paths"
    )
    made.add_argument("--json", action="store_true", help="print one JSON object")
    made.add_argument("--no-load", action="store_true", help="do not import any package")
    made.add_argument(
        "--mark", help=argparse.SUPPRESS
    )  # printed last: who ran it knows it is whole
    return made


def find_own_index(code_file: str) -> str:
    """The index that this file came from, a directory or an address; empty: it is not known.

    Where its text was fetched and compiled, that was under the name of its address.
    """
    if code_file.startswith(("https://", "http://127.0.0.1:")):
        return code_file.rpartition("/")[0] + "/"
    folder = os.path.dirname(os.path.abspath(code_file))
    return folder if os.path.isfile(os.path.join(folder, CATALOGUE_NAME)) else ""


def main(typed_words: Sequence[str], code_file: str) -> int:
    """Do it; the exit code."""
    options = make_parser().parse_args(typed_words)
    for stream in (sys.stdout, sys.stderr):  # a terminal's code page may not have all letters
        if isinstance(stream, io.TextIOWrapper):
            # Who runs this for its answer reads UTF-8.
            stream.reconfigure(encoding="utf-8" if options.mark else None)
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _answer_query(options, code_file)
    except KeyboardInterrupt:
        print("which: interrupted", file=sys.stderr)
        return INTERRUPTED
    except RefusalError as error:
        print(f"which: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"  {error.hint}", file=sys.stderr)
        code = REFUSED
    if options.mark:
        print(options.mark)
    return code


def _answer_query(options: argparse.Namespace, code_file: str) -> int:
    place = this_place()
    if options.share:
        driver = ask_driver(place)
        if driver.trouble:  # the line cannot say so, and would look like a machine without
            print(f"which: the driver was not fully queried: {driver.trouble}", file=sys.stderr)
        torches = find_installed(place, ["torch"])
        print(describe_machine(place, driver, read_torch(place), torches).line)
        return GOOD
    index = options.index or find_own_index(code_file)
    rows, base = fetch_rows(index, options.catalogue or "") if index else ([], "")
    package = normalize_project(options.package or "")
    if options.package and index and package not in {row.project for row in rows}:
        print(f"The index has no package {ascii_line(options.package, 80)}.", file=sys.stderr)
    preset = options.preset or ""
    found = build_report(place, rows, package, load=not options.no_load, preset=preset)
    if options.json:
        print(json.dumps(as_object(found, base), indent=1))
    else:
        print(as_text(found, base), end="")
    return GOOD if found.good else NOT_GOOD
