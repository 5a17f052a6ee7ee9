"""What suites of packages for torch share."""

from __future__ import annotations

import sys


def context_lost() -> bool:
    """Whether the GPU's context is gone: then every later call in this process fails too."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False
