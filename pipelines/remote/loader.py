"""The first code that runs on a host: makes shipped sources importable, then serves calls.

The controller sends this file's text and, as the first item on the channel, the sources of the
package: ``{module name: (is package, file name, source)}`` as JSON, packed by zlib. They never
touch the host's disk.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Sequence
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .rpc import Channel

#: Module name to (is package, file name shown in tracebacks, source).
Sources = dict[str, tuple[bool, str, str]]


class SourceFinder(MetaPathFinder, ExecutionLoader):
    """Imports modules from a dictionary; ``get_source`` lets tracebacks show their lines."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the import system's signature
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Answer for shipped modules only; everything else is left to the next finder."""
        if fullname not in self.sources:
            return None
        return spec_from_loader(fullname, self, is_package=self.is_package(fullname))

    def is_package(self, fullname: str) -> bool:
        """Whether ``fullname`` is a package."""
        return self.sources[fullname][0]

    def get_filename(self, fullname: str) -> str:
        """The name that tracebacks show; no such file exists on the host."""
        return self.sources[fullname][1]

    def get_source(self, fullname: str) -> str:
        """The source as it was shipped."""
        return self.sources[fullname][2]


def main(channel: Channel) -> None:
    """Install the sources, confirm it, and serve calls until the controller disconnects."""
    sys.dont_write_bytecode = True
    sys.meta_path.insert(0, SourceFinder(json.loads(zlib.decompress(channel.receive()))))
    from importlib import import_module

    rpc = import_module("remote.rpc")
    channel.send("serving")
    rpc.serve(channel)


if __name__ == "__channelexec__":  # the module name execnet uses for sent code
    main(globals()["channel"])
