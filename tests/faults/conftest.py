"""The simulator's fixtures, for every module here."""

from simulator import clock, host, new_host

__all__ = ["clock", "host", "new_host"]
