"""``python -m pipelines`` is ``wcw``, which may be on no PATH."""

from __future__ import annotations

if __name__ == "__main__":
    from pipelines.commands.program import main

    main()
