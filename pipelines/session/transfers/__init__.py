"""Files over links, by blocks: streamed, verified at both ends, resumed, side by side.

==========  ===================================================================================
``lanes``   who carries the blocks: several requests on one link, several links, breaks
``upload``  the plan of an upload
``fetch``   the plan of a download
==========  ===================================================================================

The host's side is :mod:`pipelines.remote.blocks`.
"""

from __future__ import annotations

from pipelines.session.transfers.fetch import get
from pipelines.session.transfers.lanes import Lines
from pipelines.session.transfers.upload import put

__all__ = ["Lines", "get", "put"]
