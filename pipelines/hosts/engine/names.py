"""How an engine is named in ``pipeline.yaml``; apart, for the SDK takes 0.3 s to import."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

#: ``engine`` of a host: a URL, or the name of a context of Docker's.
EngineName = Annotated[
    str,
    StringConstraints(pattern=r"^((unix|ssh|tcp|npipe)://[^\s?#]+|[A-Za-z0-9][A-Za-z0-9_.+-]*)$"),
]
