"""``invoke provision build test`` is ``./wcw provision build test``; see pipelines/commands."""

from __future__ import annotations

import sys

from invoke.main import program

sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)  # as invoke found it: it is slow

from pipelines.__main__ import main  # noqa: E402 - see above

if program.argv:  # invoke has a command line and looks for tasks: ours is the program for it
    main(program.argv[1:])
