"""The tasks of ``invoke provision build test``; ``wcw`` is the same program."""

from __future__ import annotations

import sys

from invoke.main import program

sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)  # as invoke found it: it is slow

from pipelines.__main__ import main  # noqa: E402 - see above

if program.argv:  # of invoke, whose program would give each flag to one task alone
    main(program.argv[1:])

from pipelines.cli.program import build_namespace  # noqa: E402 - not before main, which says what is missing

ns = build_namespace()
