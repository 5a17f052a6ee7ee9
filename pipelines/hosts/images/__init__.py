"""Images of hosts that are containers: made from the lock, recorded, found again."""

from pipelines.hosts.images.lookup import Image, ensure, find

__all__ = ["Image", "ensure", "find"]
