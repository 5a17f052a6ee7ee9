"""Files over a connection, by blocks: streamed, verified at both ends, resumed.

==========  ===================================================================================
``lanes``   who carries the blocks: two requests at a time, and what follows a break
``upload``  the plan of an upload
``fetch``   the plan of a download
==========  ===================================================================================

The host's side is :mod:`pipelines.remote.blocks`.
"""

from __future__ import annotations

from pipelines.session.transfers.fetch import get
from pipelines.session.transfers.lanes import Connection
from pipelines.session.transfers.upload import put

__all__ = ["Connection", "get", "put"]
