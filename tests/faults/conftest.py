"""The simulator's fixtures, for every module here."""

import sys
from pathlib import Path

#: Plans and lines for hosts are made as in the unit tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from simulator import clock, host, new_host

__all__ = ["clock", "host", "new_host"]
