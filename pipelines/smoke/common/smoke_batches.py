"""Out of memory is no verdict on a wheel: the same with a smaller batch, and it is said."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
#: Puts a property of this name into the report.
Record = Callable[[str, object], None]
#: MiB of GPU memory that torch may take, for a GPU that others use as well.
LIMIT = "SMOKE_GPU_MEMORY_MIB"


def limit_memory() -> None:
    """Honour ``SMOKE_GPU_MEMORY_MIB``; called once, before the first allocation."""
    import torch

    if wanted := os.environ.get(LIMIT):
        total = torch.cuda.get_device_properties(0).total_memory >> 20
        torch.cuda.set_per_process_memory_fraction(min(1.0, int(wanted) / total))


def _no_memory(error: RuntimeError) -> bool:
    # torch.OutOfMemoryError has had two names; some allocations fail with CUDA's own words.
    return type(error).__name__ == "OutOfMemoryError" or "out of memory" in str(error)


def shrinking(
    batch: int,
    run: Callable[[int], T],
    record: Record,
    free: Callable[[], None],
) -> T:
    """``run(batch)``, halved until it fits; ``record`` hears of it. Batch 1 must fit, or it raises.

    ``free`` is called before each further try, once the failed one's tensors are gone.
    """
    asked = batch
    while True:
        try:
            result = run(batch)
        except RuntimeError as error:
            if not _no_memory(error) or batch == 1:
                raise
        else:
            if batch != asked:
                record("batch", f"{batch} instead of {asked}: out of GPU memory")
            return result
        batch = max(1, batch // 2)
        free()
