"""``invoke provision build test`` is ``./wcw provision build test``; see pipelines/commands."""

from __future__ import annotations

from invoke.main import program

from pipelines.__main__ import main

if program.argv:  # invoke has a command line and looks for tasks: ours is the program for it
    main(program.argv[1:])
